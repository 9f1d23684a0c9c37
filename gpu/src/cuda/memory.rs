//! Memory on the device, and memory of the host that the device reaches.

use super::{Context, CudaError};
use cudarc::driver::sys::CUdeviceptr;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// Device memory. A read, write or fill is done when the call returns. It does not wait for streams: synchronize first.
pub struct Memory {
    inner: Arc<DeviceInner>,
}

struct DeviceInner {
    context: Context,
    address: CUdeviceptr,
    bytes: u64,
}

impl Memory {
    pub(super) fn new(context: &Context, bytes: u64) -> Result<Self, CudaError> {
        let mut address = 0;
        if bytes > 0 {
            let api = context.bind()?;
            // SAFETY: `address` is valid for the write.
            let code = unsafe { (api.cuMemAlloc_v2)(&raw mut address, size(bytes)) };
            context.check("cuMemAlloc_v2", code)?;
        }
        Ok(Self { inner: Arc::new(DeviceInner { context: context.clone(), address, bytes }) })
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// Writes from the host.
    ///
    /// # Errors
    /// [`CudaError::Bounds`] past the end, [`CudaError::Call`].
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), CudaError> {
        let address = self.range("write", offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        let api = self.inner.context.bind()?;
        // SAFETY: the range was checked; `data` is valid for the read, which is over when the call returns.
        let code = unsafe { (api.cuMemcpyHtoD_v2)(address, data.as_ptr().cast(), data.len()) };
        self.inner.context.check("cuMemcpyHtoD_v2", code)?;
        self.finish()
    }

    /// Reads to the host.
    ///
    /// # Errors
    /// [`CudaError::Bounds`] past the end, [`CudaError::Call`].
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), CudaError> {
        let address = self.range("read", offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        let api = self.inner.context.bind()?;
        // SAFETY: the range was checked; `data` is valid for the write, which is over when the call returns.
        let code = unsafe { (api.cuMemcpyDtoH_v2)(data.as_mut_ptr().cast(), address, data.len()) };
        self.inner.context.check("cuMemcpyDtoH_v2", code)
    }

    /// Sets all bytes to one value.
    ///
    /// # Errors
    /// [`CudaError::Call`].
    pub fn fill(&self, value: u8) -> Result<(), CudaError> {
        if self.inner.bytes == 0 {
            return Ok(());
        }
        let api = self.inner.context.bind()?;
        // SAFETY: the range is the whole allocation.
        let code = unsafe { (api.cuMemsetD8_v2)(self.inner.address, value, size(self.inner.bytes)) };
        self.inner.context.check("cuMemsetD8_v2", code)?;
        self.finish()
    }

    /// Waits for the default stream. A write or fill may return when the data is only on its way, and streams of this
    /// module do not wait for the default stream.
    fn finish(&self) -> Result<(), CudaError> {
        let api = self.inner.context.bind()?;
        // SAFETY: null is the default stream of the current context.
        let code = unsafe { (api.cuStreamSynchronize)(std::ptr::null_mut()) };
        self.inner.context.check("cuStreamSynchronize", code)
    }

    /// The device address of `bytes` bytes at `offset`, for passing to a launch in this crate.
    pub(crate) fn range(
        &self,
        operation: &'static str,
        offset: u64,
        bytes: u64,
    ) -> Result<CUdeviceptr, CudaError> {
        check_range(operation, offset, bytes, self.inner.bytes)?;
        Ok(self.inner.address + offset)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Keeps the memory for a graph, where one is being captured.
    pub(crate) fn keep(&self) {
        self.inner.context.keep(|| self.inner.clone());
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.inner.bytes).finish_non_exhaustive()
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        if self.bytes > 0
            && let Some(api) = self.context.bind_for_drop()
        {
            // SAFETY: allocated in `new`. The call waits for work that uses the memory.
            unsafe { (api.cuMemFree_v2)(self.address) };
        }
    }
}

/// Host memory that the device reaches by itself, so that copies do not go through a buffer of the driver.
///
/// It may be sent to another thread but not shared: two threads could otherwise write the same bytes.
pub struct Pinned {
    inner: Arc<HostInner>,
    _not_sync: std::marker::PhantomData<std::cell::Cell<()>>,
}

struct HostInner {
    context: Context,
    address: *mut u8,
    bytes: u64,
}

// SAFETY: the bytes are reached through `Pinned` alone, which is not `Sync`; the driver's handle is for any thread.
unsafe impl Send for HostInner {}
// SAFETY: as above; clones in graphs only keep the memory allocated.
unsafe impl Sync for HostInner {}

impl Pinned {
    pub(super) fn new(context: &Context, bytes: u64) -> Result<Self, CudaError> {
        let mut address: *mut c_void = std::ptr::null_mut();
        if bytes > 0 {
            let api = context.bind()?;
            // SAFETY: `address` is valid for the write.
            let code = unsafe { (api.cuMemHostAlloc)(&raw mut address, size(bytes), 0) };
            context.check("cuMemHostAlloc", code)?;
            // SAFETY: just allocated with this size; zeroed, so that a read never sees undefined bytes.
            unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, size(bytes)) };
        }
        let inner = HostInner { context: context.clone(), address: address.cast(), bytes };
        Ok(Self { inner: Arc::new(inner), _not_sync: std::marker::PhantomData })
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// Writes from the host.
    ///
    /// # Errors
    /// [`CudaError::Bounds`] past the end.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), CudaError> {
        check_range("write", offset, data.len() as u64, self.inner.bytes)?;
        if !data.is_empty() {
            // SAFETY: the range was checked; no reference into the memory is ever given out, so nothing overlaps.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    data.as_ptr(),
                    self.inner.address.add(size(offset)),
                    data.len(),
                );
            }
        }
        Ok(())
    }

    /// Reads to the host. After a copy to it, synchronize first: else the bytes are those of before, or some of each.
    ///
    /// # Errors
    /// [`CudaError::Bounds`] past the end.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), CudaError> {
        check_range("read", offset, data.len() as u64, self.inner.bytes)?;
        if !data.is_empty() {
            // SAFETY: as in `write`; the memory is initialized from the start.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.inner.address.add(size(offset)),
                    data.as_mut_ptr(),
                    data.len(),
                );
            }
        }
        Ok(())
    }

    /// The host address of the first `bytes` bytes.
    pub(super) fn range(&self, operation: &'static str, bytes: u64) -> Result<*mut c_void, CudaError> {
        check_range(operation, 0, bytes, self.inner.bytes)?;
        Ok(self.inner.address.cast())
    }

    pub(super) fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(super) fn keep(&self) {
        self.inner.context.keep(|| self.inner.clone());
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("bytes", &self.inner.bytes).finish_non_exhaustive()
    }
}

impl Drop for HostInner {
    fn drop(&mut self) {
        if self.bytes > 0
            && let Some(api) = self.context.bind_for_drop()
        {
            // A copy may still be under way, and its target must not become somebody else's memory.
            // SAFETY: the context is current; allocated in `new`.
            unsafe {
                if (api.cuCtxSynchronize)() == 0 {
                    (api.cuMemFreeHost)(self.address.cast());
                }
            }
        }
    }
}

/// Sizes are 64 bits wide here and `size_t` in the driver, which are one on every platform that CUDA 13 serves.
const fn size(bytes: u64) -> usize {
    bytes as usize
}

fn check_range(operation: &'static str, offset: u64, bytes: u64, size: u64) -> Result<(), CudaError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(()),
        _ => Err(CudaError::Bounds { operation, offset, bytes, size }),
    }
}
