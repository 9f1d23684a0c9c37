//! The JSON lines between coordinator and worker.

use crate::device::Side;
use elastico_core::Seed;
use elastico_gpu::cuda::DeviceFacts;
use elastico_gpu::libraries::Libraries;
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
    /// Say what the driver sees; holds no context.
    Inventory { libraries: Libraries },
    /// Run one small kernel to see whether the GPU works.
    Probe(CudaWork),
    /// Run every kernel against its reference.
    Examine(CudaWork),
    /// Time the driver's clocks and launches.
    Time(CudaWork),
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
    /// The one GPU that the process sees.
    Cuda(CudaWork),
}

/// How a GPU is used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CudaWork {
    pub(crate) libraries: Libraries,
    /// Folder of compiled kernels.
    pub(crate) cache: PathBuf,
    /// Percentages of the SMs for the two seats, each on SMs of its own.
    pub(crate) split: Option<[u8; 2]>,
}

/// What the driver sees.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuInventory {
    pub(crate) devices: Vec<DeviceFacts>,
    /// The CUDA version that the driver serves.
    pub(crate) cuda: (i32, i32),
    /// The driver's release, where its file tells.
    pub(crate) driver: Option<String>,
    pub(crate) nvrtc: Option<String>,
    pub(crate) cublas_lt: Option<String>,
    pub(crate) cupti: Option<String>,
}

/// What a worker with a context sees and holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuReport {
    pub(crate) uuid: String,
    /// SMs that each seat may use.
    pub(crate) multiprocessors: Vec<u32>,
    /// Device memory that each seat allocated.
    pub(crate) allocated_bytes: Vec<u64>,
    pub(crate) mps_enabled: bool,
    pub(crate) free_bytes: u64,
    pub(crate) total_bytes: u64,
    /// Digest of all compiled kernels in use.
    pub(crate) kernels: String,
}

impl GpuReport {
    /// The seat of a side: the only one, or the side's own.
    fn seat<T: Copy>(values: &[T], side: Side) -> Option<T> {
        values.get(usize::from(side == Side::CoRunner)).or(values.first()).copied()
    }

    /// SMs that a side sees.
    pub(crate) fn multiprocessors_of(&self, side: Side) -> u32 {
        Self::seat(&self.multiprocessors, side).unwrap_or(0)
    }

    /// Device memory that a side allocated.
    pub(crate) fn allocated_of(&self, side: Side) -> u64 {
        Self::seat(&self.allocated_bytes, side).unwrap_or(0)
    }
}

/// One kernel check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Examined {
    pub(crate) name: String,
    /// Worst difference to the reference over what is allowed: up to 1 is right; absent where the GPU cannot run it.
    pub(crate) error: Option<f64>,
    /// Why it is wrong or absent.
    pub(crate) problem: Option<String>,
}

/// How well a GPU can be timed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Timing {
    /// Smallest difference of two event times, in seconds.
    pub(crate) event_resolution_seconds: f64,
    /// Time of steps by events over their time by the host's clock.
    pub(crate) event_over_host: f64,
    /// Host time of one launch of an empty kernel, in seconds.
    pub(crate) launch_seconds: f64,
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

impl From<Side> for SideName {
    fn from(side: Side) -> Self {
        match side {
            Side::Subject => Self::Subject,
            Side::CoRunner => Self::CoRunner,
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
    Ready {
        allocated_bytes: u64,
        peak_resident_bytes: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpu: Option<Box<GpuReport>>,
    },
    /// It has got so far on its way to ready.
    Stage { name: String },
    /// The answer to [`Request::Inventory`].
    Inventory(Box<GpuInventory>),
    /// The answer to [`Request::Probe`].
    Probed(Box<GpuReport>),
    /// The answer to [`Request::Examine`].
    Examined { checks: Vec<Examined> },
    /// The answer to [`Request::Time`].
    Timed(Timing),
    /// It leaves for this reason.
    Failed { outcome: String, detail: String },
    /// It has stopped as asked, with nothing in flight.
    Drained { steps: u64, checksum: f64, peak_resident_bytes: u64 },
}
