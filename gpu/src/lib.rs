//! The driver's side of a measurement: the device, what this machine can do with it, and the memory that workers and
//! coordinator share.
//!
//! A worker process writes one [`ring::Step`] per step through its [`ring::Producer`]; the coordinator, which owns the
//! [`ring::Ring`], reads them and gives commands through the ring's control block. No system call lies on the worker's
//! path, and a parked worker sleeps in the kernel.
//!
//! [`libraries`] finds and opens NVIDIA's libraries, none of which is linked. [`cuda`] is a safe face of the driver, [`cubin`]
//! compiles kernels for the device that is there, [`gemm`] multiplies matrices, [`cupti`], [`gpm`] and [`telemetry`] read
//! counters and clocks, [`mps`] and [`mig`] share a device. Each says in a typed error what is missing and how to mend it.
//!
//! [`probe::probe`] looks at drivers, profiling libraries, permissions and cores and says for each what was found and
//! how to mend it. It never panics and needs no driver.
//!
//! [`product`] is the matrix product on the host, behind a face that checks lengths.
//!
//! This is the only crate with `unsafe`; its public face is safe.
//!
//! ```
//! use elastico_gpu::ring::{Command, Producer, Ring, Step};
//!
//! let folder = std::env::temp_dir();
//! let mut ring = Ring::create(&folder, "example", 64)?;
//! let mut worker = Producer::open(ring.path())?;
//!
//! let phase = ring.send(Command::Run, 0);
//! assert_eq!(worker.command(), (Command::Run, phase));
//! worker.push(Step { phase, start: 1_000, end: 2_000, busy: 900 });
//!
//! let mut steps = Vec::new();
//! ring.drain(&mut steps);
//! assert_eq!(steps, [Step { phase, start: 1_000, end: 2_000, busy: 900 }]);
//! # Ok::<(), elastico_gpu::ring::RingError>(())
//! ```

pub mod activity;
pub mod counter_check;
pub mod cubin;
pub mod cuda;
pub mod cupti;
pub mod gemm;
pub mod gpm;
pub mod libraries;
mod mapping;
pub mod mig;
pub mod mps;
pub mod probe;
pub mod product;
pub mod ring;
pub mod telemetry;
