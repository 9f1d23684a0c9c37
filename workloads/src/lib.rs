//! What runs: the benchmark catalogue and its step programs, with analytic demand.
//!
//! A [`Catalogue`] is read from TOML and holds [`Benchmark`]s, sorted by id. Each belongs to a family and is one setting
//! of the axes of a [`Structure`], the Rust function that turns sizes into a [`StepProgram`]: a flat list of [`Op`]s, one
//! unit of progress. From the ops alone follows the [`Demand`]: FLOPs per pipe, compulsory DRAM traffic, L2 traffic with
//! re-reads, working set, launches. Every benchmark has a second, CPU-sized program of the same structure, so that the
//! whole measuring protocol can run for real on any machine.
//!
//! ```
//! use elastico_workloads::Catalogue;
//!
//! let catalogue = Catalogue::bundled();
//! let block = catalogue.get("tr_block.b8_s1024_h1024_bf16")?;
//! let demand = block.program().demand();
//! // Forward 24 b s h^2 + 4 b s^2 h, backward twice that.
//! let forward = 24.0 * 8.0 * 1024.0_f64.powi(3) + 4.0 * 8.0 * 1024.0_f64.powi(3);
//! assert_eq!(demand.tensor_flops.get(), 3.0 * forward);
//!
//! assert!(catalogue.select("tr_*")?.len() > 20);
//! println!("{}", block.program());
//! # Ok::<(), elastico_workloads::Error>(())
//! ```

mod axes;
mod benchmark;
mod build;
mod catalogue;
mod cost;
mod cpu;
mod demand;
mod error;
mod form;
pub mod launch;
mod listing;
mod op;
mod program;
mod shape;
mod structure;
mod structures;

pub use axes::{Axis, Value};
pub use benchmark::Benchmark;
pub use catalogue::Catalogue;
pub use demand::Demand;
pub use error::{Error, Place};
pub use form::catalogue_schema;
pub use op::{Access, ConvolutionPass, Direction, Op, Pass, Pipe};
pub use program::{Memory, Section, StepProgram};
pub use structure::{STRUCTURES, Structure};
