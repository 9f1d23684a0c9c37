//! How a trial ended.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How a trial ended. Only [`Outcome::Ok`] rows are training data unless asked for by name; every other row is kept
/// with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Measured within all limits.
    Ok,
    /// The sum of the isolated peaks does not fit the device, so the pair was not launched.
    OomPredicted,
    /// A side ran out of device memory.
    Oom,
    /// The trial's deadline passed.
    Timeout,
    /// A worker stopped making steps while its process lived.
    Hang,
    /// A worker process died.
    WorkerCrash,
    /// The MPS server or daemon failed.
    MpsFault,
    /// The device is gone; the campaign stops and can be resumed.
    DeviceLost,
    /// The driver reported an Xid error.
    Xid,
    /// A required counter could not be read.
    CountersUnavailable,
    /// The bracketing isolated runs differ by more than the limit after all retries.
    Drift,
    /// Both sides were busy together for too small a share of the window.
    LowOverlap,
    /// The clock was cut for heat or by hardware.
    Throttled,
    /// The interval is still too wide at the cap of repeats.
    Inconclusive,
    /// The device cannot share in the requested way, so the pair was not launched.
    Unsupported,
}

impl Outcome {
    /// Every outcome, in order of declaration.
    pub const ALL: [Self; 15] = [
        Self::Ok,
        Self::OomPredicted,
        Self::Oom,
        Self::Timeout,
        Self::Hang,
        Self::WorkerCrash,
        Self::MpsFault,
        Self::DeviceLost,
        Self::Xid,
        Self::CountersUnavailable,
        Self::Drift,
        Self::LowOverlap,
        Self::Throttled,
        Self::Inconclusive,
        Self::Unsupported,
    ];

    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::OomPredicted => "oom_predicted",
            Self::Oom => "oom",
            Self::Timeout => "timeout",
            Self::Hang => "hang",
            Self::WorkerCrash => "worker_crash",
            Self::MpsFault => "mps_fault",
            Self::DeviceLost => "device_lost",
            Self::Xid => "xid",
            Self::CountersUnavailable => "counters_unavailable",
            Self::Drift => "drift",
            Self::LowOverlap => "low_overlap",
            Self::Throttled => "throttled",
            Self::Inconclusive => "inconclusive",
            Self::Unsupported => "unsupported",
        }
    }

    /// Whether times were measured, even if a limit was missed: such a trial has numbers and a flag.
    pub const fn has_times(self) -> bool {
        matches!(self, Self::Ok | Self::Drift | Self::LowOverlap | Self::Throttled | Self::Inconclusive)
    }

    /// Whether running the same trial again may end otherwise.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Timeout
                | Self::Hang
                | Self::WorkerCrash
                | Self::MpsFault
                | Self::Xid
                | Self::Drift
                | Self::LowOverlap
                | Self::Throttled
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Outcome {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
            .ok_or_else(|| format!("`{text}` is no outcome"))
    }
}
