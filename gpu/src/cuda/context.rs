//! The primary context of a device.

use super::driver::check;
use super::error::is_fatal;
use super::{Api, CudaError, DeviceFacts, Driver, Event, GreenContext, Memory, Module, Pinned, Stream};
use crate::gemm::Handle;
use cudarc::driver::sys::{CUcontext, CUdevice};
use std::any::Any;
use std::ffi::c_uint;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The primary context of one device. Clones are the same context.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Driver,
    device: CUdevice,
    handle: CUcontext,
    facts: DeviceFacts,
    is_lost: AtomicBool,
    captures: AtomicUsize,
    /// What calls used while a capture was open: the graph keeps it alive.
    used: Mutex<Vec<Keep>>,
    /// The handle for matrix products, while any product lives.
    gemm: Mutex<Weak<Handle>>,
}

/// Something that must live as long as a graph that uses it.
pub(super) type Keep = Arc<dyn Any + Send + Sync>;

// SAFETY: a context handle may be used from any thread; the driver locks for itself.
unsafe impl Send for Inner {}
// SAFETY: as above; the rest are facts, atomics and a mutex.
unsafe impl Sync for Inner {}

impl Context {
    /// Retains the primary context of the device with this index among those that the process sees.
    ///
    /// # Errors
    /// [`CudaError::Device`] where there is none, [`CudaError::Call`] where the device cannot be had.
    pub fn new(driver: &Driver, index: usize) -> Result<Self, CudaError> {
        let device = driver.device(index)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is valid for the write, `device` came from the driver.
        let code = unsafe { (driver.api().cuDevicePrimaryCtxRetain)(&raw mut handle, device) };
        check("cuDevicePrimaryCtxRetain", code)?;
        // Read only now: the SM count under MPS is that of the client once it is connected.
        let facts = match driver.facts(device) {
            Ok(facts) => facts,
            Err(error) => {
                // SAFETY: retained just above.
                unsafe { (driver.api().cuDevicePrimaryCtxRelease_v2)(device) };
                return Err(error);
            }
        };
        let context = Self {
            inner: Arc::new(Inner {
                driver: driver.clone(),
                device,
                handle,
                facts,
                is_lost: AtomicBool::new(false),
                captures: AtomicUsize::new(0),
                used: Mutex::new(Vec::new()),
                gemm: Mutex::new(Weak::new()),
            }),
        };
        context.bind()?;
        Ok(context)
    }

    /// The device, with the SMs that this process may use.
    pub fn facts(&self) -> &DeviceFacts {
        &self.inner.facts
    }

    /// The driver that it belongs to.
    pub fn driver(&self) -> &Driver {
        &self.inner.driver
    }

    /// Free and total device memory in bytes. Free memory counts all processes.
    ///
    /// # Errors
    /// [`CudaError::Call`].
    pub fn memory_info(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0_usize, 0_usize);
        let api = self.bind()?;
        // SAFETY: both are valid for the write.
        self.check("cuMemGetInfo_v2", unsafe { (api.cuMemGetInfo_v2)(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Allocates device memory, aligned to 256 bytes or more. Its content is undefined. Zero bytes are allowed.
    ///
    /// # Errors
    /// [`CudaError::Call`] with code 2 where there is no room.
    pub fn allocate(&self, bytes: u64) -> Result<Memory, CudaError> {
        Memory::new(self, bytes)
    }

    /// Allocates host memory that the device reaches by itself, zeroed.
    ///
    /// # Errors
    /// [`CudaError::Call`] with code 2 where there is no room.
    pub fn allocate_pinned(&self, bytes: u64) -> Result<Pinned, CudaError> {
        Pinned::new(self, bytes)
    }

    /// Loads compiled kernels.
    ///
    /// # Errors
    /// [`CudaError::Call`]: 200 for bytes that are no CUBIN, 209 for one of another compute capability.
    pub fn load_module(&self, cubin: &[u8]) -> Result<Module, CudaError> {
        Module::new(self, cubin)
    }

    /// A stream that does not wait for the default stream.
    ///
    /// # Errors
    /// [`CudaError::Call`].
    pub fn stream(&self) -> Result<Stream, CudaError> {
        Stream::new(self, 0)
    }

    /// A stream of the highest priority that the device has.
    ///
    /// # Errors
    /// [`CudaError::Call`].
    pub fn urgent_stream(&self) -> Result<Stream, CudaError> {
        let (mut least, mut greatest) = (0, 0);
        let api = self.bind()?;
        // SAFETY: both are valid for the write.
        let code = unsafe { (api.cuCtxGetStreamPriorityRange)(&raw mut least, &raw mut greatest) };
        self.check("cuCtxGetStreamPriorityRange", code)?;
        Stream::new(self, greatest)
    }

    /// An event with a time stamp. A thread that waits for it spins.
    ///
    /// # Errors
    /// [`CudaError::Call`].
    pub fn event(&self) -> Result<Event, CudaError> {
        Event::new(self, false)
    }

    /// An event with a time stamp. A thread that waits for it sleeps, which frees its core and costs some microseconds.
    ///
    /// # Errors
    /// [`CudaError::Call`].
    pub fn sleeping_event(&self) -> Result<Event, CudaError> {
        Event::new(self, true)
    }

    /// Waits until the device has done all work of this process.
    ///
    /// # Errors
    /// [`CudaError::Call`], also for a fault of earlier work.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let api = self.bind()?;
        // SAFETY: the context is current.
        self.check("cuCtxSynchronize", unsafe { (api.cuCtxSynchronize)() })
    }

    /// Splits the SMs into two partitions; their streams never run on each other's SMs. The driver rounds to the
    /// partition size of the chip: [`GreenContext::multiprocessors`] tells what was got.
    ///
    /// # Errors
    /// [`CudaError::Split`] where a share is 0, both are more than 100, or one is too small for the chip.
    pub fn split(&self, first_percent: u8, second_percent: u8) -> Result<[GreenContext; 2], CudaError> {
        super::green::split(self, first_percent, second_percent)
    }

    /// Whether a call met a fault after which the context is of no use.
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost.load(Ordering::Relaxed)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(super) fn device(&self) -> CUdevice {
        self.inner.device
    }

    /// Makes the context current in this thread and gives the functions.
    pub(crate) fn bind(&self) -> Result<&Api, CudaError> {
        let api = self.inner.driver.api();
        // SAFETY: the handle is retained while `self` lives.
        self.check("cuCtxSetCurrent", unsafe { (api.cuCtxSetCurrent)(self.inner.handle) })?;
        Ok(api)
    }

    /// The functions for cleaning up, unless the device faulted.
    pub(crate) fn bind_for_drop(&self) -> Option<&Api> {
        if self.is_lost() { None } else { self.bind().ok() }
    }

    /// Turns a code into an error and remembers a fault of the device.
    pub(super) fn check(&self, call: &'static str, code: c_uint) -> Result<(), CudaError> {
        let result = check(call, code);
        if result.is_err() && is_fatal(code.cast_signed()) {
            self.inner.is_lost.store(true, Ordering::Relaxed);
        }
        result
    }

    /// The handle for matrix products of this context, made by `make` where there is none.
    pub(crate) fn gemm_handle<E>(&self, make: impl FnOnce() -> Result<Handle, E>) -> Result<Arc<Handle>, E> {
        let mut slot = self.inner.gemm.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = slot.upgrade() {
            return Ok(handle);
        }
        let handle = Arc::new(make()?);
        *slot = Arc::downgrade(&handle);
        Ok(handle)
    }

    pub(super) fn begin_capture(&self) {
        self.inner.captures.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a capture and takes what was used in it. With several captures open at once each keeps more than its own.
    pub(super) fn end_capture(&self) -> Vec<Keep> {
        let mut used = self.inner.used.lock().unwrap_or_else(PoisonError::into_inner);
        if self.inner.captures.fetch_sub(1, Ordering::Relaxed) == 1 {
            std::mem::take(&mut *used)
        } else {
            used.clone()
        }
    }

    /// Remembers what a call used, if a graph may come of it.
    pub(super) fn keep(&self, used: impl FnOnce() -> Keep) {
        if self.inner.captures.load(Ordering::Relaxed) > 0 {
            self.inner.used.lock().unwrap_or_else(PoisonError::into_inner).push(used());
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("facts", &self.inner.facts).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !*self.is_lost.get_mut() {
            // SAFETY: retained once in `new`; nothing that uses it is left, because all of it holds this value.
            unsafe { (self.driver.api().cuDevicePrimaryCtxRelease_v2)(self.device) };
        }
    }
}
