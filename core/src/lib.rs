//! The words that every other room uses, and nothing that touches the world.
//!
//! A *subject* runs beside a *co-runner* on one device under a [`SharingMode`]; its [`Slowdown`] is its co-located
//! time per unit of work over its isolated time at the full device. A number that was measured travels as an
//! [`Estimate`]: a point, an interval and an `n`. Randomness comes from one [`Seed`] by named streams.
//!
//! This crate does no I/O, knows no clock and starts no thread.
//!
//! ```
//! use elastico_core::{Estimate, Slowdown, antt, stp};
//!
//! let slowdowns = [Slowdown::new(1.25).unwrap(), Slowdown::new(2.0).unwrap()];
//! assert_eq!(stp(&slowdowns), 0.8 + 0.5);
//! assert_eq!(antt(&slowdowns), 1.625);
//!
//! let estimate = Estimate::geometric(&[1.24, 1.26, 1.25], 0.95).unwrap();
//! assert!(estimate.lower < 1.25 && 1.25 < estimate.upper);
//! ```

mod counter;
mod device;
mod digest;
mod estimate;
mod hint;
mod ids;
mod outcome;
pub mod parallel;
mod provenance;
mod seed;
mod sharing;
mod slowdown;
mod text;
pub mod units;
mod workload;

pub use counter::{COUNTERS, Counter};
pub use device::{CHIPS, Chip, DeviceKind, DeviceName, DeviceNameError, Dtype, chip};
pub use digest::Digest;
pub use estimate::{Estimate, Verdict, mean, median, quantile, sample_deviation, student_t_quantile};
pub use hint::{Hint, suggest};
pub use ids::{FamilyId, IdError, JobId, PoolId, TrialId, WorkloadId};
pub use outcome::Outcome;
pub use provenance::Provenance;
pub use seed::{Seed, Stream};
pub use sharing::{SharingMode, SharingModeError};
pub use slowdown::{Slowdown, SlowdownError, antt, stp};
pub use workload::{WorkloadKind, WorkloadKindError};
