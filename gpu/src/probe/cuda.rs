//! The CUDA driver, opened by name and asked only what every version answers.

#![expect(unsafe_code, reason = "calls into the driver, opened by name")]

use super::{Check, Status};
use elastico_core::Hint;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};

/// `CU_DEVICE_ATTRIBUTE_…` of cuda.h.
const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;
const MULTIPROCESSOR_COUNT: c_int = 16;

/// Why the driver cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// No such library.
    #[error("there is no CUDA driver `{}`", library.display())]
    Absent {
        /// What was opened.
        library: PathBuf,
        /// What the loader said.
        source: libloading::Error,
    },
    /// The library lacks a function that this program calls.
    #[error("the CUDA driver `{}` has no function `{symbol}`", library.display())]
    Symbol {
        /// What was opened.
        library: PathBuf,
        /// The function.
        symbol: &'static str,
        /// What the loader said.
        source: libloading::Error,
    },
    /// A call failed.
    #[error("{call} failed with CUDA error {code} ({})", meaning(*code))]
    Call {
        /// The function.
        call: &'static str,
        /// `CUresult`.
        code: i32,
    },
}

impl CudaError {
    /// Whether the machine simply has no GPU, as opposed to one that fails.
    pub const fn is_absence(&self) -> bool {
        matches!(self, Self::Absent { .. } | Self::Call { code: 100, .. })
    }
}

impl Hint for CudaError {
    fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::Absent { .. } => {
                    "install the NVIDIA driver, or start the container with GPUs (docker run --gpus all)"
                }
                Self::Symbol { .. } => "update the NVIDIA driver to r580 or newer",
                Self::Call { code: 100, .. } => {
                    "check `nvidia-smi` and CUDA_VISIBLE_DEVICES; `--device cpu` and `--device sim:h100` need no GPU"
                }
                Self::Call { code: 803 | 804, .. } => {
                    "driver and libcuda differ: reboot, or remove the CUDA compatibility package from the library path"
                }
                Self::Call { .. } => "check `nvidia-smi` and `dmesg | grep -i xid`",
            }
            .to_owned(),
        )
    }
}

/// The `CUresult` values that opening a driver gives. cuGetErrorName is not used: old drivers fail in it.
const fn meaning(code: i32) -> &'static str {
    match code {
        2 => "out of memory",
        3 => "not initialized",
        34 => "stub library",
        46 => "device unavailable",
        100 => "no device",
        101 => "invalid device",
        214 => "uncorrectable ECC error",
        802 => "system not ready",
        803 => "driver and library mismatch",
        804 => "compatibility package not supported on this device",
        805 => "MPS connection failed",
        807 => "MPS server not ready",
        999 => "unknown error",
        _ => "see CUresult in cuda.h",
    }
}

/// An initialized CUDA driver.
#[derive(Debug)]
pub struct CudaDriver {
    library: &'static Library,
    path: PathBuf,
}

/// One device as the driver names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaDevice {
    /// The product name.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: (i32, i32),
    /// SMs that this process may use; fewer than the chip has under an MPS limit or in a MIG instance.
    pub multiprocessors: i32,
    /// Device memory in bytes.
    pub memory: u64,
}

impl CudaDriver {
    /// Opens and initializes the driver; `None` lets the loader find `libcuda.so.1`.
    ///
    /// # Errors
    /// [`CudaError`] for a missing library, a missing function, or a driver that refuses.
    pub fn open(library: Option<&Path>) -> Result<Self, CudaError> {
        let path = library.unwrap_or(Path::new("libcuda.so.1")).to_owned();
        // SAFETY: loading runs the library's constructors; the driver is made to be loaded so, and a path that the
        // user gave is as trusted as the program itself.
        let library = unsafe { Library::new(&path) }
            .map_err(|source| CudaError::Absent { library: path.clone(), source })?;
        // The driver starts threads of its own: a loaded one is never unloaded.
        let driver = Self { library: Box::leak(Box::new(library)), path };
        // SAFETY: `CUresult cuInit(unsigned int)` of cuda.h.
        let init = unsafe { driver.function::<unsafe extern "C" fn(u32) -> c_int>("cuInit")? };
        // SAFETY: flags must be 0.
        check_call("cuInit", unsafe { init(0) })?;
        Ok(driver)
    }

    /// Looks a function up.
    ///
    /// # Safety
    /// `F` must be the function's type in cuda.h.
    unsafe fn function<F: Copy>(&self, symbol: &'static str) -> Result<F, CudaError> {
        // SAFETY: the caller vouches for the type; the library is never unloaded, so the copy stays valid.
        unsafe { self.library.get::<F>(symbol) }.map(|found| *found).map_err(|source| CudaError::Symbol {
            library: self.path.clone(),
            symbol,
            source,
        })
    }

    /// The newest CUDA version that the driver serves, for example `(13, 0)`.
    ///
    /// # Errors
    /// [`CudaError`] where the call is missing or fails.
    pub fn version(&self) -> Result<(i32, i32), CudaError> {
        let version = self.read_integer("cuDriverGetVersion")?;
        Ok((version / 1000, version % 1000 / 10))
    }

    /// All devices that this process may see.
    ///
    /// # Errors
    /// [`CudaError`] where a call is missing or fails.
    pub fn devices(&self) -> Result<Vec<CudaDevice>, CudaError> {
        (0..self.read_integer("cuDeviceGetCount")?).map(|index| self.device(index)).collect()
    }

    fn read_integer(&self, symbol: &'static str) -> Result<c_int, CudaError> {
        // SAFETY: both functions read so have the type `CUresult f(int*)` in cuda.h.
        let read = unsafe { self.function::<unsafe extern "C" fn(*mut c_int) -> c_int>(symbol)? };
        let mut value = 0;
        // SAFETY: `value` is valid for the write.
        check_call(symbol, unsafe { read(&raw mut value) })?;
        Ok(value)
    }

    fn device(&self, index: c_int) -> Result<CudaDevice, CudaError> {
        // SAFETY: `CUresult cuDeviceGetName(char*, int, CUdevice)`; `CUdevice` is an int.
        let name = unsafe {
            self.function::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>("cuDeviceGetName")?
        };
        // SAFETY: `CUresult cuDeviceTotalMem_v2(size_t*, CUdevice)`.
        let total = unsafe {
            self.function::<unsafe extern "C" fn(*mut usize, c_int) -> c_int>("cuDeviceTotalMem_v2")?
        };
        // SAFETY: `CUresult cuDeviceGetAttribute(int*, CUdevice_attribute, CUdevice)`.
        let attribute = unsafe {
            self.function::<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>("cuDeviceGetAttribute")?
        };
        let mut text = [0_u8; 256];
        // SAFETY: 255 of 256 bytes may be written, so that the last stays 0.
        check_call("cuDeviceGetName", unsafe { name(text.as_mut_ptr().cast(), 255, index) })?;
        let mut memory = 0_usize;
        // SAFETY: `memory` is valid for the write.
        check_call("cuDeviceTotalMem_v2", unsafe { total(&raw mut memory, index) })?;
        let read = |which: c_int| {
            let mut value = 0;
            // SAFETY: `value` is valid for the write.
            check_call("cuDeviceGetAttribute", unsafe { attribute(&raw mut value, which, index) })?;
            Ok(value)
        };
        Ok(CudaDevice {
            name: CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned(),
            compute_capability: (read(COMPUTE_CAPABILITY_MAJOR)?, read(COMPUTE_CAPABILITY_MINOR)?),
            multiprocessors: read(MULTIPROCESSOR_COUNT)?,
            memory: memory as u64,
        })
    }
}

const fn check_call(call: &'static str, code: c_int) -> Result<(), CudaError> {
    if code == 0 { Ok(()) } else { Err(CudaError::Call { call, code }) }
}

pub(super) fn check(library: Option<&Path>) -> (Option<CudaDriver>, Vec<Check>) {
    let refusal = |id: &str, error: &CudaError| {
        let status = if error.is_absence() { Status::Absent } else { Status::Blocked };
        Check { fix: error.hint(), ..Check::new(id, "cuda", status, error.to_string()) }
    };
    let driver = match CudaDriver::open(library) {
        Ok(driver) => driver,
        Err(error) => return (None, vec![refusal("cuda.driver", &error)]),
    };
    let mut checks = Vec::new();
    checks.push(match driver.version() {
        Ok((major, minor)) if major < 13 => Check::new(
            "cuda.driver",
            "cuda",
            Status::Warn,
            format!("the driver serves CUDA {major}.{minor}; kernels and counters are made for 13"),
        )
        .fix("update the NVIDIA driver to r580 or newer"),
        Ok((major, minor)) => {
            Check::new("cuda.driver", "cuda", Status::Ok, format!("the driver serves CUDA {major}.{minor}"))
        }
        Err(error) => refusal("cuda.driver", &error),
    });
    match driver.devices() {
        Ok(devices) => checks.extend(devices.iter().enumerate().map(|(index, device)| {
            let (major, minor) = device.compute_capability;
            let finding = format!(
                "{}, compute capability {major}.{minor}, {} SMs, {:.1} GB",
                device.name,
                device.multiprocessors,
                device.memory as f64 / 1e9
            );
            let id = format!("cuda.device.{index}");
            if (major, minor) < (7, 5) {
                Check::new(id, "cuda", Status::Blocked, finding + ": CUDA 13 dropped chips before Turing")
                    .fix("use a GPU of compute capability 7.5 or newer, or `--device sim:v100`")
            } else {
                Check::new(id, "cuda", Status::Ok, finding)
            }
        })),
        Err(error) => checks.push(refusal("cuda.devices", &error)),
    }
    (Some(driver), checks)
}
