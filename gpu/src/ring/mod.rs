//! A ring of step records and a control block in memory that two processes share.
//!
//! The coordinator creates the file and is the only reader; one worker opens it and is the only writer. Every word is
//! an atomic, so that even a foreign process that scribbles over the file can make numbers wrong but no behaviour
//! undefined. A full ring drops the new record and counts it: a lost step is seen, never silent.

mod layout;
mod owner;
mod worker;

pub use owner::{Beacon, Ring, WorkerStatus, remove_stale, start_time};
pub use worker::Producer;

use elastico_core::Hint;
use std::path::{Path, PathBuf};

/// One step as the worker saw it, in nanoseconds of `CLOCK_MONOTONIC`, which all processes of a host share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// The phase in which it ran, as [`Ring::send`] numbered it.
    pub phase: u32,
    /// When it was submitted.
    pub start: u64,
    /// When it was complete.
    pub end: u64,
    /// How much of that time the device worked for it, the rest being host gaps and idling on purpose.
    pub busy: u64,
}

/// What the coordinator asks of the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Finish the step in flight, then sleep.
    Park,
    /// Make steps.
    Run,
    /// Finish the step in flight, then leave.
    Stop,
}

impl Command {
    const fn bits(self) -> u32 {
        match self {
            Self::Park => 0,
            Self::Run => 1,
            Self::Stop => 2,
        }
    }

    /// An unknown word means stop: the safe reading of a damaged file.
    const fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Park,
            1 => Self::Run,
            _ => Self::Stop,
        }
    }
}

/// What the worker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// Nothing heard yet.
    Starting,
    /// Asleep, nothing in flight.
    Parked,
    /// Making steps.
    Running,
    /// Gone, or about to go; see the error code.
    Stopped,
}

impl WorkerState {
    const fn bits(self) -> u32 {
        match self {
            Self::Starting => 0,
            Self::Parked => 1,
            Self::Running => 2,
            Self::Stopped => 3,
        }
    }

    const fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Starting,
            1 => Self::Parked,
            2 => Self::Running,
            _ => Self::Stopped,
        }
    }
}

/// Why a ring cannot be made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The file could not be created, sized, opened or mapped.
    #[error("cannot {action} the step ring {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The folder has too little room, and writing to the mapping would kill the process.
    #[error("{} has {free} bytes free, the step ring needs {needed}", folder.display())]
    NoRoom {
        /// The folder.
        folder: PathBuf,
        /// Free bytes.
        free: u64,
        /// Bytes that the ring needs.
        needed: u64,
    },
    /// The capacity is 0 or absurd.
    #[error("a step ring of {capacity} records is not possible, the limit is {limit}")]
    Capacity {
        /// As asked for.
        capacity: usize,
        /// The largest.
        limit: usize,
    },
    /// The file is no step ring.
    #[error("{} is no step ring: {reason}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What gave it away.
        reason: String,
    },
    /// The ring is of another version of ElastiCo.
    #[error("{} is a step ring of version {found}, this program writes version {expected}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// A worker holds the writing end already.
    #[error("process {holder} already writes to the step ring {}", path.display())]
    Claimed {
        /// The file.
        path: PathBuf,
        /// The process that holds it.
        holder: u32,
    },
}

impl Hint for RingError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoRoom { folder, .. } => Some(format!(
                "free some space in {}, or give the container a larger shared memory (docker run --shm-size=1g)",
                folder.display()
            )),
            Self::Version { .. } => {
                Some("start coordinator and worker from the same build of elastico".to_owned())
            }
            _ => None,
        }
    }
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> RingError {
    move |source| RingError::File { action, path: path.to_owned(), source }
}

/// Nanoseconds of `CLOCK_MONOTONIC`: one clock for all processes of this host.
pub fn monotonic_nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64) * 1_000_000_000 + now.tv_nsec as u64
}
