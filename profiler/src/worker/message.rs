//! The JSON lines between coordinator and worker.

use elastico_core::Seed;
use elastico_workloads::StepProgram;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Raised with every change of the messages.
pub(crate) const PROTOCOL: u32 = 1;

/// The one line that a worker gets: what to run and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prepare {
    /// `subject` or `co_runner`.
    pub(crate) side: SideName,
    /// The trial, for random streams.
    pub(crate) trial: String,
    pub(crate) program: StepProgram,
    /// Obey, but make no steps: the null workload.
    pub(crate) idle: bool,
    /// One lane runs on each.
    pub(crate) cores: Vec<usize>,
    /// Whether lane `i` stays on core `i`, rather than anywhere in the set.
    pub(crate) pinned: bool,
    pub(crate) ring: PathBuf,
    pub(crate) seed: Seed,
    pub(crate) memory_limit_bytes: u64,
    /// Leave when the coordinator's heartbeat stands still for so long.
    pub(crate) owner_timeout_seconds: f64,
}

/// The side, as a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SideName {
    Subject,
    CoRunner,
}

impl SideName {
    /// The word itself.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::CoRunner => "co_runner",
        }
    }
}

impl From<crate::device::Side> for SideName {
    fn from(side: crate::device::Side) -> Self {
        match side {
            crate::device::Side::Subject => Self::Subject,
            crate::device::Side::CoRunner => Self::CoRunner,
        }
    }
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Reply {
    /// The process runs.
    Hello { protocol: u32, version: String },
    /// Everything is allocated, touched and warm; the worker obeys the ring now.
    Ready { lanes: usize, allocated_bytes: u64, peak_resident_bytes: u64 },
    /// It leaves without having run, for this reason.
    Failed { outcome: String, detail: String },
    /// It has stopped as asked, with nothing in flight.
    Drained { steps: u64, checksum: f64, peak_resident_bytes: u64 },
}
