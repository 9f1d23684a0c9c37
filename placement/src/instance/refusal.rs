//! Why two jobs may not share a GPU.

use serde::{Deserialize, Serialize};

/// Why two jobs may not share a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// One of them does not allow sharing.
    SharingNotAllowed,
    /// The options do not pair their kinds.
    Kinds,
    /// They belong to different tenants.
    Tenants,
    /// One has no shape with one GPU in the pool.
    NoSingleGpuShape,
    /// One is unknown to the predictor: no workload, or no profile on the chip.
    Cold,
    /// Device memory of one is unknown.
    MemoryUnknown,
    /// Device memory of both together exceeds the GPU's.
    Memory,
    /// Host resources of both together exceed a node's.
    Host,
    /// The prediction extrapolates.
    OutOfDomain,
    /// An upper bound exceeds the limit under every sharing mode.
    Limit,
}

impl Refusal {
    /// Every reason, in the order of declaration.
    pub(crate) const ALL: [Self; 10] = [
        Self::SharingNotAllowed,
        Self::Kinds,
        Self::Tenants,
        Self::NoSingleGpuShape,
        Self::Cold,
        Self::MemoryUnknown,
        Self::Memory,
        Self::Host,
        Self::OutOfDomain,
        Self::Limit,
    ];

    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SharingNotAllowed => "sharing_not_allowed",
            Self::Kinds => "kinds",
            Self::Tenants => "tenants",
            Self::NoSingleGpuShape => "no_single_gpu_shape",
            Self::Cold => "cold",
            Self::MemoryUnknown => "memory_unknown",
            Self::Memory => "memory",
            Self::Host => "host",
            Self::OutOfDomain => "out_of_domain",
            Self::Limit => "limit",
        }
    }
}
