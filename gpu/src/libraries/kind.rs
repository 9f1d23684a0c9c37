//! The libraries, and what can be wrong with them.

use super::CUDA_MAJOR;
use elastico_core::Hint;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// One of the libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LibraryKind {
    /// The driver.
    Cuda,
    /// The management library.
    Nvml,
    /// The run-time compiler.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Profiling.
    Cupti,
}

impl LibraryKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Cuda, Self::Nvml, Self::Nvrtc, Self::CublasLt, Self::Cupti];

    /// The file's name up to the version, for example `libcupti.so`.
    pub const fn stem(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so",
            Self::Nvml => "libnvidia-ml.so",
            Self::Nvrtc => "libnvrtc.so",
            Self::CublasLt => "libcublasLt.so",
            Self::Cupti => "libcupti.so",
        }
    }

    /// The name that programs are linked against, for example `libcupti.so.13`.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so.1",
            Self::Nvml => "libnvidia-ml.so.1",
            Self::Nvrtc => "libnvrtc.so.13",
            Self::CublasLt => "libcublasLt.so.13",
            Self::Cupti => "libcupti.so.13",
        }
    }

    /// The environment variable that names it.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Cuda => "ELASTICO_CUDA",
            Self::Nvml => "ELASTICO_NVML",
            Self::Nvrtc => "ELASTICO_NVRTC",
            Self::CublasLt => "ELASTICO_CUBLASLT",
            Self::Cupti => "ELASTICO_CUPTI_DIR",
        }
    }

    /// Whether it comes with the driver; the others come with the toolkit or with Python packages.
    pub const fn is_of_driver(self) -> bool {
        matches!(self, Self::Cuda | Self::Nvml)
    }

    /// How to get it.
    pub const fn install(self) -> &'static str {
        match self {
            Self::Cuda => {
                "install the NVIDIA driver r580 or newer, or start the container with GPUs (docker run --gpus all)"
            }
            Self::Nvml => {
                "install the NVIDIA driver, or start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            }
            Self::Nvrtc => "pip install nvidia-cuda-nvrtc==13.0.88, or set ELASTICO_NVRTC to libnvrtc.so.13",
            Self::CublasLt => {
                "pip install nvidia-cublas==13.0.*, or set ELASTICO_CUBLASLT to libcublasLt.so.13"
            }
            Self::Cupti => {
                "pip install nvidia-cuda-cupti==13.0.85, or set ELASTICO_CUPTI_DIR to the folder of libcupti.so.13"
            }
        }
    }
}

impl fmt::Display for LibraryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cuda => "CUDA driver",
            Self::Nvml => "NVML",
            Self::Nvrtc => "NVRTC",
            Self::CublasLt => "cuBLASLt",
            Self::Cupti => "CUPTI",
        })
    }
}

/// Why a library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// It is nowhere.
    #[error("there is no {kind} library `{}`; tried {}", kind.file_name(), tried.join(", "))]
    Absent {
        /// Which.
        kind: LibraryKind,
        /// Where it was looked for: folders, and the loader.
        tried: Vec<String>,
    },
    /// It is of another major version.
    #[error("the {kind} library `{}` is of major version {found}, not {CUDA_MAJOR}", path.display())]
    Major {
        /// Which.
        kind: LibraryKind,
        /// The file.
        path: PathBuf,
        /// Its major version.
        found: u32,
    },
    /// The loader refused it.
    #[error("the {kind} library `{}` cannot be opened: {reason}", path.display())]
    Refused {
        /// Which.
        kind: LibraryKind,
        /// The file.
        path: PathBuf,
        /// What the loader said, without line breaks.
        reason: String,
    },
    /// It lacks a function that this program calls.
    #[error("the {kind} library `{}` has no function `{symbol}`", path.display())]
    Symbol {
        /// Which.
        kind: LibraryKind,
        /// The file.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
    },
}

impl LibraryError {
    /// Which library it is about.
    pub const fn kind(&self) -> LibraryKind {
        match self {
            Self::Absent { kind, .. }
            | Self::Major { kind, .. }
            | Self::Refused { kind, .. }
            | Self::Symbol { kind, .. } => *kind,
        }
    }
}

impl Hint for LibraryError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Symbol { kind, .. } if kind.is_of_driver() => {
                "update the NVIDIA driver to r580 or newer".to_owned()
            }
            _ => self.kind().install().to_owned(),
        })
    }
}
