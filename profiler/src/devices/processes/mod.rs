//! What devices with worker processes have in common: starting, commanding, hearing and ending them.
//!
//! A [`Helper`] is a child process that speaks JSON lines; a [`WorkerProcess`] is one that makes steps and has a ring
//! per side; [`measure`] runs one phase; a [`Heart`] shows the workers that their coordinator lives.

mod helper;
mod phase;
mod worker;

pub(crate) use helper::{Environment, Helper};
pub(crate) use phase::{Heart, RawPhase, measure, records, span};
pub(crate) use worker::{WorkerProcess, side_name};

use std::path::PathBuf;
use std::time::Duration;

/// How worker processes are treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOptions {
    /// Where the step rings live; best a memory file system.
    pub ring_folder: PathBuf,
    /// Records that a ring holds until the coordinator fetches them, a hundred times a second.
    pub ring_capacity: usize,
    /// A worker that is not ready after this long is given up.
    pub start_timeout: Duration,
    /// A worker whose heartbeat stands still for so long hangs.
    pub hang_timeout: Duration,
    /// Time beyond the window in which a worker must finish its last step.
    pub drain_timeout: Duration,
    /// Time that a worker has to free its memory and leave; then it is killed.
    pub stop_timeout: Duration,
    /// A worker leaves when the coordinator's heartbeat stands still for so long.
    pub owner_timeout: Duration,
}

impl Default for ProcessOptions {
    fn default() -> Self {
        Self {
            ring_folder: PathBuf::from("/dev/shm"),
            ring_capacity: 1 << 16,
            start_timeout: Duration::from_mins(1),
            hang_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(2),
            owner_timeout: Duration::from_secs(30),
        }
    }
}

/// Removes rings that earlier coordinators left behind.
pub(crate) fn sweep(options: &ProcessOptions) {
    match elastico_gpu::ring::remove_stale(&options.ring_folder) {
        Ok(removed) if !removed.is_empty() => {
            tracing::info!(count = removed.len(), "removed the rings of coordinators that are gone");
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "old rings could not be looked for"),
    }
}
