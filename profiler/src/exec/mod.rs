//! Profiles a pair of unmodified commands of the user's.
//!
//! [`Settings`] name two commands; [`run`] measures each alone and then both together by the same protocol, plan,
//! journal and dataset as a campaign. The commands are started as they are. A library that the CUDA driver loads into
//! them records their kernels ([`elastico_gpu::activity`]); [`progress`] finds the period in the sequence of kernels, and
//! one period is one step.
//!
//! Where kernels cannot be recorded, lines of standard output that match a pattern are the steps. With neither, clocks,
//! power and utilisation are all that can be told: the trial ends as `counters_unavailable`, without a slowdown.
//!
//! A side is parked by stopping all its processes after which the device drains what they had queued. None is left
//! behind: a guard process ends them when the coordinator is gone, and so does the injected library.

mod command;
mod lines;
pub mod progress;
mod settings;
mod startup;
mod summary;
mod tree;

pub(crate) use command::{Running, StartOptions, StepSource, sweep};
pub use settings::{FILE, Settings, UserCommand, name_of};
pub(crate) use startup::await_steady;
pub use summary::{SideSummary, Summary, summary};
pub(crate) use tree::Guard;

use crate::run::{Work, run_planned};
use crate::{Device, Error, Plan, Progress, RunOptions, RunReport};
use std::path::Path;

/// Measures two commands on a device that runs them, and writes the dataset of all that is in the journal.
///
/// # Errors
/// As [`run`](crate::run()).
pub fn run(
    settings: &Settings,
    device: &mut dyn Device,
    folder: &Path,
    options: &RunOptions<'_>,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<RunReport, Error> {
    let benchmarks = settings.benchmarks();
    let work = Work {
        plan: Plan::of_commands(settings, device.identity())?,
        benchmarks: benchmarks.iter().map(|(id, benchmark)| (id.clone(), benchmark)).collect(),
        budget: settings.budget,
        file: FILE,
        text: settings.to_toml(),
    };
    run_planned(&work, device, folder, options, progress)
}
