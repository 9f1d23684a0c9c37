//! Measures pairs on a device: campaign, plan, protocol, workers, journal.
//!
//! A [`Campaign`] says what to vary; a [`Plan`] makes it cells and [`Trial`]s; [`run`](run()) measures them on a
//! [`Device`] by the [`protocol`] and keeps each [`Observation`] in an append-only [`journal`]; [`assemble`](assemble())
//! turns the journal into a dataset. A run that was killed anywhere goes on with [`RunOptions::resume`].
//!
//! Everything above the [`Device`] trait is the same code for simulated chips, CPU cores, GPUs and replayed journals.
//!
//! ```
//! use elastico_profiler::{Campaign, RunOptions, Stopped, devices::simulated::Simulated, run};
//! use elastico_workloads::Catalogue;
//! use std::path::Path;
//!
//! let text = r#"
//! schema = 1
//! name = "one pair"
//! device = "sim:h100"
//! sharing = ["time_slice"]
//! max_pairs = 1
//! [workloads]
//! subjects = ["training"]
//! "#;
//! let campaign = Campaign::parse(text, Path::new("campaign.toml"))?;
//! let folder = tempfile::tempdir().unwrap();
//! let mut device = Simulated::new("h100")?;
//! let catalogue = Catalogue::bundled();
//! let report =
//!     run(&campaign, &catalogue, &mut device, folder.path(), &RunOptions::default(), &mut |_| {})?;
//! assert_eq!(report.stopped, Stopped::Complete);
//!
//! let dataset = elastico_datasets::Dataset::read(&folder.path().join("dataset"))?;
//! let slowdowns = dataset.pairs.f64("slowdown_ratio")?;
//! assert!(slowdowns.iter().all(|slowdown| *slowdown > 0.9));
//! # Ok::<(), elastico_profiler::Error>(())
//! ```

mod assemble;
mod campaign;
mod device;
pub mod devices;
mod error;
pub mod estimator;
pub mod exec;
pub mod journal;
mod observation;
mod plan;
pub mod protocol;
mod run;
mod sampling;
mod schedule;
pub mod worker;

pub use assemble::assemble;
pub use campaign::{Budget, Campaign, Stopping, Workloads};
pub use device::{
    Active, CounterReading, Device, DeviceIdentity, Fault, Phase, Session, SessionReport, SessionRequest,
    Side, StepRecord, Telemetry, Window,
};
pub use error::Error;
pub use observation::{
    Attempt, Interval, Measured, Observation, PhaseRecord, Ran, Reported, SideMeasured, TelemetryRecord,
    Track,
};
pub use plan::{Cell, Plan, PlanHeader, Role, Skipped, Trial, WorkloadFacts, program_on};
pub use protocol::{Protocol, ProtocolSettings};
pub use run::{
    OpenDevice, Progress, RunOptions, RunReport, ShowProgress, Status, Stopped, device_of, run, run_all,
    status, status_all,
};
pub use schedule::{Results, Schedule, State};
