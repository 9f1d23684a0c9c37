//! What kinds of work share a device.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a workload is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// Iterations of forward, backward and optimiser.
    Training,
    /// Batches or decode steps of a trained model.
    Inference,
    /// Presses one resource on purpose.
    Stressor,
    /// Holds a context and does nothing: the control.
    Null,
}

impl WorkloadKind {
    /// Every kind, in order of declaration.
    pub const ALL: [Self; 4] = [Self::Training, Self::Inference, Self::Stressor, Self::Null];

    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Inference => "inference",
            Self::Stressor => "stressor",
            Self::Null => "null",
        }
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that names no workload kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no workload kind (training, inference, stressor, null)")]
pub struct WorkloadKindError(pub String);

impl FromStr for WorkloadKind {
    type Err = WorkloadKindError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| WorkloadKindError(text.to_owned()))
    }
}
