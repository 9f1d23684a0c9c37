//! What can go wrong with the driver, and what it means for a trial.

use crate::libraries::LibraryError;
use elastico_core::{Hint, Outcome};
use serde::Serialize;
use std::path::PathBuf;

/// Why the driver, or one call of it, failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library cannot be opened.
    #[error(transparent)]
    Absent(LibraryError),
    /// The driver lacks a function that this program calls.
    #[error("the CUDA driver `{}` has no function `{symbol}` ({})", library.display(), version_text(*version))]
    Symbol {
        /// The file.
        library: PathBuf,
        /// The function.
        symbol: &'static str,
        /// The CUDA version that the driver serves, where it tells.
        version: Option<(i32, i32)>,
    },
    /// The driver serves an older CUDA than kernels and counters are made for.
    #[error("the CUDA driver `{}` serves CUDA {}.{}; CUDA 13.0 is needed", library.display(), version.0, version.1)]
    TooOld {
        /// The file.
        library: PathBuf,
        /// What it serves.
        version: (i32, i32),
    },
    /// A call failed.
    #[error("{call} failed with CUDA error {code} ({})", meaning(*code))]
    Call {
        /// The function.
        call: &'static str,
        /// `CUresult`.
        code: i32,
    },
    /// There is no device of that index.
    #[error("there is no CUDA device {index}: this process sees {count}")]
    Device {
        /// What was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// A read, write or copy reaches past its memory.
    #[error("{operation} of {bytes} bytes at offset {offset} reaches past the end of {size} bytes")]
    Bounds {
        /// What was asked for.
        operation: &'static str,
        /// Where it starts.
        offset: u64,
        /// How much.
        bytes: u64,
        /// The size of the memory.
        size: u64,
    },
    /// A kernel was given other arguments than it takes.
    #[error("kernel `{function}` takes arguments of {expected:?} bytes, not {given:?}")]
    Arguments {
        /// The kernel.
        function: String,
        /// The sizes of its parameters.
        expected: Vec<u64>,
        /// The sizes of what was given.
        given: Vec<u64>,
    },
    /// A launch that no device of this kind takes.
    #[error("kernel `{function}` cannot be launched with grid {grid:?}, block {block:?}: {reason}")]
    Shape {
        /// The kernel.
        function: String,
        /// Blocks in x, y and z.
        grid: [u32; 3],
        /// Threads in x, y and z.
        block: [u32; 3],
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The SMs cannot be split so.
    #[error("{total} SMs cannot be split into {first} % and {second} %: {reason}")]
    Split {
        /// SMs of the device.
        total: u32,
        /// First share.
        first: u8,
        /// Second share.
        second: u8,
        /// Why not.
        reason: String,
    },
    /// Two things of different contexts were used together.
    #[error("{what} belongs to another context")]
    Foreign {
        /// Which of them.
        what: &'static str,
    },
}

fn version_text(version: Option<(i32, i32)>) -> String {
    version.map_or_else(
        || "it does not tell its version".to_owned(),
        |(major, minor)| format!("it serves CUDA {major}.{minor}"),
    )
}

/// A row of [`OUTCOMES`]: all codes from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OutcomeRow {
    /// The first `CUresult`.
    pub first: i32,
    /// The last `CUresult`.
    pub last: i32,
    /// What a trial ends with.
    pub outcome: Outcome,
    /// Why.
    pub reason: &'static str,
}

const fn row(first: i32, last: i32, outcome: Outcome, reason: &'static str) -> OutcomeRow {
    OutcomeRow { first, last, outcome, reason }
}

/// What a failed call means for the trial in which it failed. Codes that are not listed are a crash of the worker: its
/// context is of no more use, another process may succeed.
pub const OUTCOMES: &[OutcomeRow] = &[
    row(2, 2, Outcome::Oom, "out of memory"),
    row(34, 34, Outcome::DeviceLost, "the toolkit's stub was loaded instead of a driver"),
    row(46, 46, Outcome::Unsupported, "another process has the device to itself (compute mode)"),
    row(100, 101, Outcome::DeviceLost, "the device is no longer listed"),
    row(209, 209, Outcome::Unsupported, "the kernel is made for another compute capability"),
    row(214, 214, Outcome::DeviceLost, "uncorrectable ECC error: the device needs a reset"),
    row(220, 220, Outcome::DeviceLost, "uncorrectable NVLink error"),
    row(222, 223, Outcome::Unsupported, "the driver cannot take this kernel's code"),
    row(700, 719, Outcome::WorkerCrash, "a kernel faulted; the fault stays with the context"),
    row(800, 801, Outcome::Unsupported, "not permitted or not supported here"),
    row(802, 804, Outcome::DeviceLost, "driver, library or fabric are not ready"),
    row(805, 810, Outcome::MpsFault, "the MPS server refused, was lost or ended this client"),
    row(811, 812, Outcome::Unsupported, "the device runtime of kernels is not served here"),
];

/// Calls with which a process takes hold of a device: an unknown failure in one of them means that the device cannot be
/// had, later ones only that this process failed.
const OPENING: [&str; 4] = ["cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain"];

impl CudaError {
    /// How a trial ends that met this error; [`OUTCOMES`] is the table.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Call { call, code } => {
                OUTCOMES.iter().find(|row| (row.first..=row.last).contains(code)).map_or_else(
                    || {
                        if OPENING.contains(call) { Outcome::DeviceLost } else { Outcome::WorkerCrash }
                    },
                    |row| row.outcome,
                )
            }
            Self::Absent(_) | Self::Symbol { .. } | Self::TooOld { .. } | Self::Device { .. } => {
                Outcome::DeviceLost
            }
            Self::Split { .. } => Outcome::Unsupported,
            Self::Bounds { .. } | Self::Arguments { .. } | Self::Shape { .. } | Self::Foreign { .. } => {
                Outcome::WorkerCrash
            }
        }
    }

    /// Whether the machine simply has no GPU, as opposed to one that fails.
    pub const fn is_absence(&self) -> bool {
        matches!(self, Self::Absent(LibraryError::Absent { .. }) | Self::Call { code: 100, .. })
    }

    /// The driver's code, where a call failed.
    pub const fn code(&self) -> Option<i32> {
        match self {
            Self::Call { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// Whether nothing more can be done with a context after this code: cleaning up would fail, or wait for ever.
pub(super) const fn is_fatal(code: i32) -> bool {
    matches!(code, 4 | 100 | 101 | 201 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 805..=810 | 999)
}

impl Hint for CudaError {
    fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::Absent(error) => return error.hint(),
                Self::Symbol { .. } | Self::TooOld { .. } => "update the NVIDIA driver to r580 or newer",
                Self::Call { code: 2, .. } => {
                    "free device memory (see `nvidia-smi`), or choose smaller workloads"
                }
                Self::Call { code: 34, .. } => {
                    "remove the toolkit's `stubs` folder from LD_LIBRARY_PATH, so that the driver's libcuda.so.1 is found"
                }
                Self::Call { code: 46, .. } => {
                    "stop the process that has the GPU (see `nvidia-smi`), or nvidia-smi -c DEFAULT"
                }
                Self::Call { code: 100 | 101, .. } | Self::Device { .. } => {
                    "check `nvidia-smi -L` and CUDA_VISIBLE_DEVICES; `cpu` and `sim:h100` need no GPU"
                }
                Self::Call { code: 209 | 222 | 223, .. } => {
                    "remove the folder of compiled kernels, so that they are made for this GPU"
                }
                Self::Call { code: 802, .. } => "start the fabric manager: systemctl start nvidia-fabricmanager",
                Self::Call { code: 803 | 804, .. } => {
                    "driver and libcuda differ: reboot, or remove the CUDA compatibility package from the library path"
                }
                Self::Call { code: 805..=810, .. } => {
                    "look at the MPS daemon's log; the next trial starts a daemon of its own"
                }
                Self::Call { .. } => "check `nvidia-smi` and `dmesg | grep -i xid`",
                Self::Split { .. } => "choose shares that leave each side the least partition of this GPU, or MPS shares",
                Self::Bounds { .. } | Self::Arguments { .. } | Self::Shape { .. } | Self::Foreign { .. } => return None,
            }
            .to_owned(),
        )
    }
}

/// What a code means. `cuGetErrorName` is not asked: it needs the driver, and errors outlive it.
pub(super) const fn meaning(code: i32) -> &'static str {
    match code {
        1 => "invalid value",
        2 => "out of memory",
        3 => "not initialized",
        4 => "deinitialized",
        34 => "stub library",
        46 => "device unavailable",
        100 => "no device",
        101 => "invalid device",
        200 => "invalid image",
        201 => "invalid context",
        209 => "no binary for this GPU",
        214 => "uncorrectable ECC error",
        220 => "uncorrectable NVLink error",
        222 => "unsupported PTX version",
        223 => "compilation by the driver is switched off",
        226 => "contained error",
        304 => "operating system call failed",
        400 => "invalid handle",
        401 => "illegal state",
        500 => "not found",
        600 => "not ready",
        700 => "illegal address",
        701 => "launch out of resources",
        702 => "launch timeout",
        709 => "context is destroyed",
        710 => "device assertion",
        714 => "hardware stack error",
        715 => "illegal instruction",
        716 => "misaligned address",
        717 => "invalid address space",
        718 => "invalid program counter",
        719 => "launch failure",
        721 => "tensor memory leak",
        800 => "not permitted",
        801 => "not supported",
        802 => "system not ready",
        803 => "driver and library mismatch",
        804 => "compatibility package not supported on this device",
        805 => "MPS connection failed",
        806 => "MPS remote procedure failed",
        807 => "MPS server not ready",
        808 => "MPS has no room for another client",
        809 => "MPS has no room for another connection",
        810 => "MPS ended this client",
        811 | 812 => "device runtime not supported",
        900..=908 => "stream capture failed",
        909 => "timeout",
        914 | 915 => "resource cannot be split so",
        999 => "unknown error",
        _ => "see CUresult in cuda.h",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_outcomes_is_in_order_and_every_row_has_a_meaning() {
        for pair in OUTCOMES.windows(2) {
            assert!(pair[0].last < pair[1].first, "{pair:?}");
        }
        for row in OUTCOMES {
            assert!(row.first <= row.last && !row.reason.is_empty());
            assert_ne!(meaning(row.first), meaning(-1), "{row:?}");
        }
    }

    #[test]
    fn an_unknown_failure_weighs_more_when_the_device_is_opened() {
        let outcome = |call, code| CudaError::Call { call, code }.outcome();
        assert_eq!(outcome("cuInit", 999), Outcome::DeviceLost);
        assert_eq!(outcome("cuLaunchKernel", 999), Outcome::WorkerCrash);
        assert_eq!(outcome("cuStreamSynchronize", 719), Outcome::WorkerCrash);
        assert_eq!(outcome("cuStreamSynchronize", 810), Outcome::MpsFault);
        assert_eq!(outcome("cuMemAlloc_v2", 2), Outcome::Oom);
        assert_eq!(outcome("cuEventSynchronize", 214), Outcome::DeviceLost);
    }

    #[test]
    fn what_keeps_a_context_usable_is_not_fatal() {
        for code in [1, 2, 46, 200, 500, 600, 701, 801, 901, 914] {
            assert!(!is_fatal(code), "{code}");
        }
        for code in [700, 702, 710, 716, 719, 214, 806, 810, 999] {
            assert!(is_fatal(code), "{code}");
        }
    }
}
