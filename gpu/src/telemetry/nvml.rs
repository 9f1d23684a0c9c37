//! The management library, opened once, and its handles.

use crate::libraries::{Libraries, LibraryError, LibraryKind};
use elastico_core::Hint;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Why a device cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// A named library is not there.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The library cannot be opened or initialized.
    #[error("NVML `{}` cannot be used: {reason}", library.display())]
    Open {
        /// What was opened.
        library: PathBuf,
        /// What NVML or the loader said.
        reason: String,
        /// Whether there is simply no driver, as opposed to one that fails.
        is_absence: bool,
    },
    /// No such device.
    #[error("NVML knows no device `{device}`: {reason}")]
    Device {
        /// Index or UUID.
        device: String,
        /// What NVML said.
        reason: String,
    },
    /// The device does not offer it.
    #[error("{what} cannot be had: {reason}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What NVML said.
        reason: String,
    },
}

impl TelemetryError {
    /// One word for a status column.
    pub const fn status(&self) -> &'static str {
        match self {
            Self::Library(_) | Self::Open { is_absence: true, .. } => "no_library",
            Self::Open { .. } => "failed",
            Self::Device { .. } => "no_device",
            Self::Unsupported { .. } => "unsupported",
        }
    }
}

impl Hint for TelemetryError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Library(error) => error.hint(),
            Self::Open { is_absence: true, .. } => Some(LibraryKind::Nvml.install().to_owned()),
            Self::Open { .. } => {
                Some("check `nvidia-smi`; driver and library must be of one version".to_owned())
            }
            Self::Device { .. } => Some("list devices with `nvidia-smi -L`".to_owned()),
            Self::Unsupported { .. } => None,
        }
    }
}

/// What NVML says about a call, in one line: the loader's texts run over lines.
pub(crate) fn reason(error: &NvmlError) -> String {
    match error {
        NvmlError::NotSupported => "not supported on this device".to_owned(),
        NvmlError::NoPermission => "this user may not read it".to_owned(),
        NvmlError::FailedToLoadSymbol(_) => "this driver does not offer it".to_owned(),
        NvmlError::GpuLost => "the device is lost".to_owned(),
        other => other.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

/// The initialized library. It stays so until the process ends: handles then live as long as anybody wants them, and a
/// second initialization would only count.
pub(crate) fn nvml(libraries: &Libraries) -> Result<&'static Nvml, TelemetryError> {
    static OPEN: Mutex<BTreeMap<PathBuf, &'static Nvml>> = Mutex::new(BTreeMap::new());
    let library = libraries.locate(LibraryKind::Nvml)?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(nvml) = open.get(&library) {
        return Ok(nvml);
    }
    let nvml =
        Nvml::builder().lib_path(library.as_os_str()).init().map_err(|error| TelemetryError::Open {
            library: library.clone(),
            reason: reason(&error),
            is_absence: matches!(
                error,
                NvmlError::LibloadingError(_) | NvmlError::DriverNotLoaded | NvmlError::NotFound
            ),
        })?;
    let nvml: &'static Nvml = Box::leak(Box::new(nvml));
    open.insert(library, nvml);
    Ok(nvml)
}

/// A device, and the board that it is or is a part of.
#[derive(Debug)]
pub(crate) struct Place {
    /// What was asked for: a GPU or a MIG instance.
    pub(crate) device: Device<'static>,
    /// The whole GPU: clocks, power, temperatures and errors are its.
    pub(crate) board: Device<'static>,
    /// Whether the two differ.
    pub(crate) is_instance: bool,
}

impl Place {
    /// Finds `0`, `GPU-…` or `MIG-…`.
    pub(crate) fn find(nvml: &'static Nvml, device: &str) -> Result<Self, TelemetryError> {
        let unknown =
            |error: &NvmlError| TelemetryError::Device { device: device.to_owned(), reason: reason(error) };
        let find = || match device.parse() {
            Ok(index) => nvml.device_by_index(index),
            Err(_) => nvml.device_by_uuid(device),
        };
        let found = find().map_err(|error| unknown(&error))?;
        let is_instance = device.starts_with("MIG-") || found.mig_is_mig_device_handle().unwrap_or(false);
        let board = if is_instance { found.mig_parent_device() } else { find() };
        Ok(Self { device: found, board: board.map_err(|error| unknown(&error))?, is_instance })
    }
}
