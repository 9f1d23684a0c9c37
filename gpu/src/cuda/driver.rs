//! Opening the driver, and what it tells about devices.

use super::CudaError;
use super::api::{Api, Opening};
use crate::libraries::{CUDA_MAJOR, Libraries, LibraryError, LibraryKind, Loaded};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute, CUuuid};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_int, c_uint};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

/// An initialized driver that has every function this program calls.
#[derive(Clone, Debug)]
pub struct Driver {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    loaded: Loaded,
    api: Api,
    version: (i32, i32),
}

/// One device, as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// The product name.
    pub name: String,
    /// `GPU-…`, or `MIG-…` where the process sees a MIG instance.
    pub uuid: String,
    /// Compute capability, major and minor.
    pub compute_capability: (i32, i32),
    /// SMs that this process may use; fewer than the chip has under an MPS percentage or in a MIG instance.
    pub multiprocessors: i32,
    /// Device memory in bytes.
    pub memory: u64,
    /// L2 cache in bytes.
    pub l2_bytes: u64,
    /// Whether this process is a client of an MPS server; false where the driver does not tell.
    pub mps_enabled: bool,
    /// The PCI address, `0000:17:00.0`; empty where the driver does not tell.
    pub pci_bus: String,
    /// Who may use the device.
    pub compute_mode: ComputeMode,
    /// Whether it shares the host's memory.
    pub integrated: bool,
    /// The most shared memory that one block may ask for, in bytes.
    pub shared_bytes_per_block: u32,
    /// The most threads that one SM holds.
    pub threads_per_multiprocessor: u32,
}

/// Who may use a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// No process.
    Prohibited,
    /// One process; several only through MPS.
    ExclusiveProcess,
    /// A mode that this program does not know.
    Unknown,
}

impl ComputeMode {
    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Prohibited => "prohibited",
            Self::ExclusiveProcess => "exclusive_process",
            Self::Unknown => "unknown",
        }
    }

    const fn from_driver(value: c_int) -> Self {
        match value {
            0 => Self::Default,
            2 => Self::Prohibited,
            3 => Self::ExclusiveProcess,
            _ => Self::Unknown,
        }
    }
}

impl Driver {
    /// Opens, checks and initializes the driver.
    ///
    /// # Errors
    /// [`CudaError`] for a missing library, an old one, a missing function, or a driver that refuses.
    pub fn load(libraries: &Libraries) -> Result<Self, CudaError> {
        let loaded = libraries.open(LibraryKind::Cuda).map_err(CudaError::Absent)?;
        let symbol = |version| {
            move |error| match error {
                LibraryError::Symbol { path, symbol, .. } => {
                    CudaError::Symbol { library: path, symbol, version }
                }
                error => CudaError::Absent(error),
            }
        };
        let opening = Opening::load(&loaded).map_err(symbol(None))?;
        let mut version = 0;
        // SAFETY: `version` is valid for the write; the call is allowed before cuInit.
        check("cuDriverGetVersion", unsafe { (opening.cuDriverGetVersion)(&raw mut version) })?;
        let version = (version / 1000, version % 1000 / 10);
        if version.0 < CUDA_MAJOR.cast_signed() {
            return Err(CudaError::TooOld { library: loaded.path().to_owned(), version });
        }
        let api = Api::load(&loaded).map_err(symbol(Some(version)))?;
        // SAFETY: flags must be 0.
        check("cuInit", unsafe { (opening.cuInit)(0) })?;
        Ok(Self { inner: Arc::new(Inner { loaded, api, version }) })
    }

    /// The newest CUDA version that the driver serves, for example `(13, 0)`.
    ///
    /// # Errors
    /// None today: it was read when the driver was loaded. It is a question to the driver all the same.
    pub fn version(&self) -> Result<(i32, i32), CudaError> {
        Ok(self.inner.version)
    }

    /// The file that was opened.
    pub fn path(&self) -> &Path {
        self.inner.loaded.path()
    }

    /// The driver's release, for example `580.159.03`, where the file's name tells it.
    pub fn release(&self) -> Option<String> {
        self.inner.loaded.file_version()
    }

    /// All devices that this process may see.
    ///
    /// # Errors
    /// [`CudaError::Call`] for a device that does not answer.
    pub fn devices(&self) -> Result<Vec<DeviceFacts>, CudaError> {
        (0..self.count()?).map(|index| self.facts(self.device(index)?)).collect()
    }

    pub(super) fn api(&self) -> &Api {
        &self.inner.api
    }

    /// The number of devices.
    ///
    /// # Errors
    /// [`CudaError::Call`].
    pub fn count(&self) -> Result<usize, CudaError> {
        let mut count = 0;
        // SAFETY: `count` is valid for the write.
        check("cuDeviceGetCount", unsafe { (self.api().cuDeviceGetCount)(&raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    pub(super) fn device(&self, index: usize) -> Result<CUdevice, CudaError> {
        let count = self.count()?;
        let ordinal = c_int::try_from(index).ok().filter(|_| index < count);
        let ordinal = ordinal.ok_or(CudaError::Device { index, count })?;
        let mut device = 0;
        // SAFETY: `device` is valid for the write.
        check("cuDeviceGet", unsafe { (self.api().cuDeviceGet)(&raw mut device, ordinal) })?;
        Ok(device)
    }

    pub(super) fn facts(&self, device: CUdevice) -> Result<DeviceFacts, CudaError> {
        let api = self.api();
        let mut text = [0_u8; 256];
        // SAFETY: 255 of 256 bytes may be written, so that the last stays 0.
        check("cuDeviceGetName", unsafe { (api.cuDeviceGetName)(text.as_mut_ptr().cast(), 255, device) })?;
        let name = CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned();
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` is valid for the write.
        check("cuDeviceGetUuid_v2", unsafe { (api.cuDeviceGetUuid_v2)(&raw mut uuid, device) })?;
        let mut memory = 0_usize;
        // SAFETY: `memory` is valid for the write.
        check("cuDeviceTotalMem_v2", unsafe { (api.cuDeviceTotalMem_v2)(&raw mut memory, device) })?;
        let mut bus = [0_u8; 64];
        // SAFETY: 63 of 64 bytes may be written.
        let answer = unsafe { (api.cuDeviceGetPCIBusId)(bus.as_mut_ptr().cast(), 63, device) };
        let pci_bus = match answer {
            0 => CStr::from_bytes_until_nul(&bus).unwrap_or_default().to_string_lossy().into_owned(),
            _ => String::new(),
        };
        let read = |attribute| self.attribute(attribute, device);
        let size = |attribute| read(attribute).map(|value| u32::try_from(value).unwrap_or(0));
        Ok(DeviceFacts {
            uuid: uuid_text(uuid, &name),
            name,
            compute_capability: (
                read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: read(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory: memory as u64,
            l2_bytes: size(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
            mps_enabled: read(Attribute::CU_DEVICE_ATTRIBUTE_MPS_ENABLED).is_ok_and(|value| value == 1),
            pci_bus,
            compute_mode: ComputeMode::from_driver(read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)?),
            integrated: read(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? == 1,
            shared_bytes_per_block: size(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            threads_per_multiprocessor: size(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        })
    }

    fn attribute(&self, attribute: Attribute, device: CUdevice) -> Result<c_int, CudaError> {
        let mut value = 0;
        // SAFETY: `value` is valid for the write.
        let code = unsafe { (self.api().cuDeviceGetAttribute)(&raw mut value, attribute, device) };
        check("cuDeviceGetAttribute", code)?;
        Ok(value)
    }
}

/// Turns a code into an error.
pub(super) const fn check(call: &'static str, code: c_uint) -> Result<(), CudaError> {
    if code == 0 { Ok(()) } else { Err(CudaError::Call { call, code: code.cast_signed() }) }
}

/// The prefix and the five groups, as NVML and nvidia-smi write it. Only the name tells that it is a MIG instance.
fn uuid_text(uuid: CUuuid, name: &str) -> String {
    let mut text = String::from(if name.contains(" MIG ") { "MIG" } else { "GPU" });
    for (index, byte) in uuid.bytes.into_iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{:02x}", byte.cast_unsigned());
    }
    text
}
