//! Green contexts: SMs of one device split between streams of one process.

use super::{Context, CudaError, Stream};
use cudarc::driver::sys::{CUdevResource, CUdevResourceType, CUgreenCtx};
use std::fmt;
use std::sync::Arc;

/// A part of the SMs. Streams made from it run on these SMs alone.
pub struct GreenContext {
    partition: Arc<Partition>,
}

pub(super) struct Partition {
    context: Context,
    handle: CUgreenCtx,
    multiprocessors: u32,
}

// SAFETY: a green context handle may be used from any thread.
unsafe impl Send for Partition {}
// SAFETY: as above.
unsafe impl Sync for Partition {}

impl Partition {
    pub(super) const fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }
}

impl GreenContext {
    /// The SMs that were really got.
    pub fn multiprocessors(&self) -> u32 {
        self.partition.multiprocessors
    }

    /// A stream on these SMs.
    ///
    /// # Errors
    /// [`CudaError::Call`].
    pub fn stream(&self) -> Result<Stream, CudaError> {
        const NON_BLOCKING: u32 = 1;
        let context = &self.partition.context;
        let mut handle = std::ptr::null_mut();
        let api = context.bind()?;
        // SAFETY: `handle` is valid for the write, the green context while `self` lives.
        let code =
            unsafe { (api.cuGreenCtxStreamCreate)(&raw mut handle, self.partition.handle, NON_BLOCKING, 0) };
        context.check("cuGreenCtxStreamCreate", code)?;
        Ok(Stream::in_partition(context, handle, self.partition.clone()))
    }
}

impl fmt::Debug for GreenContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GreenContext")
            .field("multiprocessors", &self.partition.multiprocessors)
            .finish_non_exhaustive()
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        if let Some(api) = self.context.bind_for_drop() {
            // SAFETY: created in `create`; no stream of it is left, because each holds this value. Work under way
            // must end first.
            unsafe {
                if (api.cuCtxSynchronize)() == 0 {
                    (api.cuGreenCtxDestroy)(self.handle);
                }
            }
        }
    }
}

/// SMs that a percentage of the device asks for: the multiple of `step` that is nearest, but at least `least`. The driver
/// would round up, and give 72 and 60 of 132 SMs for two halves where 64 and 68 can be had.
fn wanted(total: u32, percent: u8, least: u32, step: u32) -> u32 {
    let step = step.max(1);
    let exact = total * u32::from(percent);
    ((exact + 50 * step) / (100 * step) * step).max(least).max(1)
}

pub(super) fn split(context: &Context, first: u8, second: u8) -> Result<[GreenContext; 2], CudaError> {
    let all = resource(context)?;
    let total = count(&all);
    let refuse = |reason: String| CudaError::Split { total, first, second, reason };
    if first == 0 || second == 0 || u32::from(first) + u32::from(second) > 100 {
        return Err(refuse("shares are 1 to 99 and at most 100 together".to_owned()));
    }
    // The driver splits into groups of one size, and what is left is a resource of its own: the first split takes
    // one side's group, the second takes the other's out of the rest.
    let (least, step) = granularity(&all);
    let wanted = |percent| wanted(total, percent, least, step);
    let (one, rest) = take(context, &all, wanted(first))?
        .ok_or_else(|| refuse(format!("no partition of {} SMs", wanted(first))))?;
    let other = if u32::from(first) + u32::from(second) == 100 {
        rest.filter(|rest| count(rest) > 0)
    } else {
        match rest {
            Some(rest) => take(context, &rest, wanted(second))?.map(|(other, _)| other),
            None => None,
        }
    };
    let other =
        other.ok_or_else(|| refuse(format!("the first side got {} SMs and leaves too few", count(&one))))?;
    Ok([create(context, one)?, create(context, other)?])
}

fn resource(context: &Context) -> Result<CUdevResource, CudaError> {
    let mut all = empty();
    let api = context.bind()?;
    let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    // SAFETY: `all` is valid for the write.
    let code = unsafe { (api.cuDeviceGetDevResource)(context.device(), &raw mut all, kind) };
    context.check("cuDeviceGetDevResource", code)?;
    Ok(all)
}

/// One group of at least `least` SMs, and the rest; `None` where the driver makes none of that size.
fn take(
    context: &Context,
    from: &CUdevResource,
    least: u32,
) -> Result<Option<(CUdevResource, Option<CUdevResource>)>, CudaError> {
    const INVALID_VALUE: u32 = 1;
    const INVALID_CONFIGURATION: u32 = 915;
    let (mut group, mut rest, mut groups) = (empty(), empty(), 1);
    let api = context.bind()?;
    // SAFETY: there is room for the one group that `groups` asks for; all pointers are valid.
    let code = unsafe {
        (api.cuDevSmResourceSplitByCount)(&raw mut group, &raw mut groups, from, &raw mut rest, 0, least)
    };
    if matches!(code, INVALID_VALUE | INVALID_CONFIGURATION) {
        return Ok(None);
    }
    context.check("cuDevSmResourceSplitByCount", code)?;
    if groups == 0 {
        return Ok(None);
    }
    let has_rest = rest.type_ as u32 == CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM as u32;
    Ok(Some((group, has_rest.then_some(rest))))
}

fn create(context: &Context, mut resource: CUdevResource) -> Result<GreenContext, CudaError> {
    const DEFAULT_STREAM: u32 = 1;
    let api = context.bind()?;
    let mut description = std::ptr::null_mut();
    // SAFETY: `description` is valid for the write, and there is one resource.
    let code = unsafe { (api.cuDevResourceGenerateDesc)(&raw mut description, &raw mut resource, 1) };
    context.check("cuDevResourceGenerateDesc", code)?;
    let mut handle = std::ptr::null_mut();
    // SAFETY: `handle` is valid for the write; the description was made just above. The flag is required.
    let code =
        unsafe { (api.cuGreenCtxCreate)(&raw mut handle, description, context.device(), DEFAULT_STREAM) };
    context.check("cuGreenCtxCreate", code)?;
    let mut partition = Partition { context: context.clone(), handle, multiprocessors: 0 };
    let mut got = empty();
    let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    // SAFETY: `got` is valid for the write, the handle was made just above.
    let code = unsafe { (api.cuGreenCtxGetDevResource)(handle, &raw mut got, kind) };
    context.check("cuGreenCtxGetDevResource", code)?;
    partition.multiprocessors = count(&got);
    Ok(GreenContext { partition: Arc::new(partition) })
}

const fn empty() -> CUdevResource {
    // SAFETY: plain data; kind 0 is INVALID.
    unsafe { std::mem::zeroed() }
}

const fn count(resource: &CUdevResource) -> u32 {
    // SAFETY: every part of the union is plain data, and this one is valid for any bytes.
    unsafe { resource.__bindgen_anon_1.sm.smCount }
}

/// The smallest partition, and what sizes are multiples of.
const fn granularity(resource: &CUdevResource) -> (u32, u32) {
    // SAFETY: as above.
    let sm = unsafe { resource.__bindgen_anon_1.sm };
    (sm.minSmPartitionSize, sm.smCoscheduledAlignment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_the_nearest_partition() {
        assert_eq!(wanted(132, 50, 8, 8), 64);
        assert_eq!(wanted(132, 30, 8, 8), 40);
        assert_eq!(wanted(132, 1, 8, 8), 8);
        assert_eq!(wanted(108, 50, 4, 2), 54);
        assert_eq!(wanted(20, 1, 0, 0), 1, "a driver that tells no granularity");
    }
}
