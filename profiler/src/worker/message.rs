//! The JSON lines between coordinator and worker.

use elastico_core::Seed;
use elastico_workloads::StepProgram;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Raised with every change of the messages.
pub(crate) const PROTOCOL: u32 = 2;

/// The one line that a worker gets: what it is for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Make steps.
    Work(Box<Work>),
}

/// Steps to make, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Work {
    /// The trial, for random streams.
    pub(crate) trial: String,
    pub(crate) seed: Seed,
    /// Cores that the process may run on.
    pub(crate) cores: Vec<usize>,
    /// Leave when the coordinator's heartbeat stands still for so long.
    pub(crate) owner_timeout_seconds: f64,
    /// One side; or both, where they share a process.
    pub(crate) seats: Vec<Seat>,
    pub(crate) engine: EngineRequest,
}

/// One side of a trial in a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seat {
    pub(crate) side: SideName,
    pub(crate) program: StepProgram,
    /// Obey, but make no steps: a program without ops.
    pub(crate) idle: bool,
    pub(crate) ring: PathBuf,
}

/// What makes the steps.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum EngineRequest {
    /// The cores themselves, one lane on each.
    Cpu {
        /// Whether lane `i` stays on core `i`, rather than anywhere in the set.
        pinned: bool,
        memory_limit_bytes: u64,
    },
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
    Ready { allocated_bytes: u64, peak_resident_bytes: u64 },
    /// It leaves for this reason.
    Failed { outcome: String, detail: String },
    /// It has stopped as asked, with nothing in flight.
    Drained { steps: u64, checksum: f64, peak_resident_bytes: u64 },
}
