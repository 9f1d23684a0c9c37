//! Why counters cannot be had, and what to do about it.

use crate::cuda::CudaError;
use crate::libraries::{LibraryError, LibraryKind};
use elastico_core::Hint;
use std::path::PathBuf;

/// The major version whose struct layouts this program speaks.
pub const MAJOR: u32 = 13;

/// Why CUPTI cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CuptiError {
    /// The library is nowhere, cannot be opened, or lacks a function.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// Another major version, whose structs have other sizes.
    #[error("`{}` is CUPTI {version}, not of major version {MAJOR}", library.display())]
    Version {
        /// What was opened.
        library: PathBuf,
        /// What `cuptiGetVersion` answered: 130001 for 13.0, 24 to 28 for 12.x.
        version: u32,
    },
    /// A name that CUPTI does not know on this chip.
    #[error("`{metric}` is no metric of {chip} in PM sampling")]
    Metric {
        /// The chip.
        chip: String,
        /// The name.
        metric: String,
    },
    /// A chip that has no set of metrics, or that CUPTI does not know.
    #[error("no set of metrics fits the chip `{chip}`")]
    Chip {
        /// The chip.
        chip: String,
    },
    /// The metrics cannot be had in one pass, so a running program cannot be sampled for them.
    #[error("these metrics need {passes} passes on {chip}, and PM sampling has one")]
    Passes {
        /// The chip.
        chip: String,
        /// As CUPTI counts them.
        passes: u32,
    },
    /// This user may not read counters (errors 35 and 40).
    #[error("{call}: this user may not read performance counters (CUPTI error {code})")]
    NotPermitted {
        /// The function.
        call: &'static str,
        /// `CUptiResult`.
        code: u32,
    },
    /// Another program owns the performance monitor (error 26, and 7 where PM sampling is already on).
    #[error("{call}: the performance monitor is held by another program (CUPTI error {code})")]
    Busy {
        /// The function.
        call: &'static str,
        /// `CUptiResult`.
        code: u32,
    },
    /// Another subscriber in this process (error 39).
    #[error("{call}: CUPTI already has a subscriber in this process")]
    Subscriber {
        /// The function.
        call: &'static str,
    },
    /// The device, the driver or the virtual machine does not offer it.
    #[error("PM sampling is not supported: {reason}")]
    Unsupported {
        /// Which part is missing.
        reason: String,
    },
    /// Any other refusal.
    #[error("{call} failed with CUPTI error {code} ({})", meaning(*code))]
    Call {
        /// The function.
        call: &'static str,
        /// `CUptiResult`.
        code: u32,
    },
    /// The driver below CUPTI.
    #[error(transparent)]
    Driver(#[from] CudaError),
}

impl CuptiError {
    /// One word for the column `counters_status`.
    pub const fn status(&self) -> &'static str {
        match self {
            Self::Library(_) | Self::Version { .. } => "no_library",
            Self::Metric { .. } | Self::Chip { .. } | Self::Passes { .. } => "no_metric_set",
            Self::NotPermitted { .. } => "not_permitted",
            Self::Busy { .. } => "busy",
            Self::Subscriber { .. } => "second_subscriber",
            Self::Unsupported { .. } => "unsupported",
            Self::Call { .. } => "failed",
            Self::Driver(_) => "no_driver",
        }
    }

    /// Sorts the answer of one call.
    pub(super) fn check(call: &'static str, code: u32) -> Result<(), Self> {
        Err(match code {
            0 => return Ok(()),
            35 | 40 => Self::NotPermitted { call, code },
            26 => Self::Busy { call, code },
            39 => Self::Subscriber { call },
            27 | 33 | 38 | 41..=45 => {
                Self::Unsupported { reason: format!("{call} answers CUPTI error {code} ({})", meaning(code)) }
            }
            _ => Self::Call { call, code },
        })
    }
}

impl Hint for CuptiError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Library(error) => return error.hint(),
            Self::Version { .. } => LibraryKind::Cupti.install(),
            Self::Metric { .. } | Self::Passes { .. } => {
                "look the names up with `ncu --query-metrics-collection pmsampling --chip <chip> --query-metrics`"
            }
            Self::Chip { .. } | Self::Unsupported { .. } => {
                "measure without counters; on Hopper and later NVML GPM is used in their place"
            }
            Self::NotPermitted { .. } => {
                "run as root or with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN); or on the host set \
                 `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in /etc/modprobe.d and reload the module; \
                 or go on without: on Hopper and later NVML GPM is used in their place"
            }
            Self::Busy { .. } => {
                "stop ncu, nsys or another CUPTI program; where DCGM samples this GPU: `dcgmi profile --pause`, and \
                 `dcgmi profile --resume` afterwards"
            }
            Self::Subscriber { .. } => {
                "unset CUDA_INJECTION64_PATH and stop the framework's own profiler in this process"
            }
            Self::Call { code: 15, .. } => {
                "libnvperf_host.so and libnvperf_target.so have to lie beside libcupti.so.13"
            }
            Self::Call { call, .. } if call.starts_with("cuptiPmSampling") => {
                "another program may hold the performance monitor (ncu, nsys, DCGM: `dcgmi profile --pause`); \
                 `elastico doctor` names those that run"
            }
            Self::Call { code: 999, .. } => {
                "CUPTI newer than the driver answers so: use nvidia-cuda-cupti==13.0.85 with a driver of CUDA 13.0"
            }
            Self::Call { .. } => "run `elastico doctor`",
            Self::Driver(error) => return error.hint(),
        };
        Some(text.to_owned())
    }
}

/// The `CUptiResult` values that these calls give. `cuptiGetResultString` is not used: it is one more call to fail.
pub(super) const fn meaning(code: u32) -> &'static str {
    match code {
        1 => "invalid parameter",
        2 => "invalid device",
        7 => "invalid operation",
        8 => "out of memory",
        9 => "hardware error",
        10 => "buffer too small",
        11 => "not implemented",
        13 => "not ready",
        14 => "not compatible with this driver",
        15 => "not initialized",
        17 => "invalid metric name",
        23 => "disabled",
        26 => "hardware busy",
        27 => "not supported",
        33 => "virtualized device",
        35 => "insufficient privileges",
        36 => "old profiler in use",
        38 => "legacy profiler only",
        39 => "a second subscriber",
        40 => "insufficient privileges on a virtualized device",
        41 => "confidential computing",
        42 => "mining product",
        43 => "not supported on a MIG instance",
        44 => "not supported under SLI",
        45 => "not supported under WSL",
        46 => "invalid chip name",
        999 => "unknown error",
        _ => "see CUptiResult in cupti_result.h",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_kinds_with_their_remedies() {
        let error = |code| CuptiError::check("cuptiPmSamplingEnable", code).unwrap_err();
        assert!(CuptiError::check("cuptiPmSamplingEnable", 0).is_ok());
        assert_eq!(error(35).status(), "not_permitted");
        let hint = error(35).hint().unwrap();
        for remedy in ["CAP_SYS_ADMIN", "NVreg_RestrictProfilingToAdminUsers=0", "GPM"] {
            assert!(hint.contains(remedy), "{hint}");
        }
        assert_eq!(error(26).status(), "busy");
        assert!(error(26).hint().unwrap().contains("dcgmi profile --pause"));
        assert_eq!(error(39).status(), "second_subscriber");
        assert_eq!(error(33).status(), "unsupported");
        assert_eq!(error(9).status(), "failed");
        assert_eq!(error(9).to_string(), "cuptiPmSamplingEnable failed with CUPTI error 9 (hardware error)");
    }
}
