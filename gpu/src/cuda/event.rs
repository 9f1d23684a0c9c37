//! Points in a stream, with time stamps.

use super::{Context, CudaError};
use cudarc::driver::sys::CUevent;
use std::fmt;

/// A point in a stream.
pub struct Event {
    context: Context,
    handle: CUevent,
}

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above; the driver locks for itself.
unsafe impl Sync for Event {}

impl Event {
    pub(super) fn new(context: &Context, sleeps: bool) -> Result<Self, CudaError> {
        const BLOCKING_SYNC: u32 = 1;
        let mut handle = std::ptr::null_mut();
        let api = context.bind()?;
        let flags = if sleeps { BLOCKING_SYNC } else { 0 };
        // SAFETY: `handle` is valid for the write.
        context.check("cuEventCreate", unsafe { (api.cuEventCreate)(&raw mut handle, flags) })?;
        Ok(Self { context: context.clone(), handle })
    }

    /// Waits until the point is reached; at once where it was never recorded.
    ///
    /// # Errors
    /// [`CudaError::Call`], also for a fault of earlier work.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let api = self.context.bind()?;
        // SAFETY: the handle is valid while `self` lives.
        self.context.check("cuEventSynchronize", unsafe { (api.cuEventSynchronize)(self.handle) })
    }

    /// Whether the point is reached.
    ///
    /// # Errors
    /// [`CudaError::Call`], also for a fault of earlier work.
    pub fn is_complete(&self) -> Result<bool, CudaError> {
        const NOT_READY: u32 = 600;
        let api = self.context.bind()?;
        // SAFETY: the handle is valid while `self` lives.
        match unsafe { (api.cuEventQuery)(self.handle) } {
            NOT_READY => Ok(false),
            code => self.context.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Seconds on the device from `earlier` to this point. The resolution is about half a microsecond.
    ///
    /// # Errors
    /// [`CudaError::Call`]: 600 where one of them is not reached yet, 400 where one was never recorded.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64, CudaError> {
        let mut milliseconds = 0.0_f32;
        let api = self.context.bind()?;
        // SAFETY: `milliseconds` is valid for the write, both handles while their events live.
        let code = unsafe { (api.cuEventElapsedTime_v2)(&raw mut milliseconds, earlier.handle, self.handle) };
        self.context.check("cuEventElapsedTime_v2", code)?;
        Ok(f64::from(milliseconds) / 1e3)
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn handle(&self) -> CUevent {
        self.handle
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(api) = self.context.bind_for_drop() {
            // SAFETY: created in `new`; the driver waits with the freeing until the point is reached.
            unsafe { (api.cuEventDestroy_v2)(self.handle) };
        }
    }
}
