//! Queues of work, and graphs made of them.

use super::context::Keep;
use super::green::Partition;
use super::module::{lay_out, pointers};
use super::{Argument, Context, CudaError, Event, Function, Memory, Pinned};
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUstream, CUstreamCaptureMode};
use std::fmt;
use std::sync::Arc;

/// A queue of work on the device, done in order.
pub struct Stream {
    context: Context,
    handle: CUstream,
    /// The SMs that it runs on, where it is not all of them.
    partition: Option<Arc<Partition>>,
}

// SAFETY: a stream handle may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver locks for itself.
unsafe impl Sync for Stream {}

impl Stream {
    pub(super) fn new(context: &Context, priority: i32) -> Result<Self, CudaError> {
        const NON_BLOCKING: u32 = 1;
        let mut handle = std::ptr::null_mut();
        let api = context.bind()?;
        // SAFETY: `handle` is valid for the write.
        let code = unsafe { (api.cuStreamCreateWithPriority)(&raw mut handle, NON_BLOCKING, priority) };
        context.check("cuStreamCreateWithPriority", code)?;
        Ok(Self { context: context.clone(), handle, partition: None })
    }

    pub(super) fn in_partition(context: &Context, handle: CUstream, partition: Arc<Partition>) -> Self {
        Self { context: context.clone(), handle, partition: Some(partition) }
    }

    /// Queues a kernel.
    ///
    /// # Errors
    /// [`CudaError::Arguments`] and [`CudaError::Shape`] before anything is queued, [`CudaError::Call`].
    pub fn launch(
        &self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        arguments: &[Argument<'_>],
    ) -> Result<(), CudaError> {
        let shape = |reason| CudaError::Shape { function: function.name().to_owned(), grid, block, reason };
        self.check_context("the kernel", function.context())?;
        if grid.contains(&0) || block.contains(&0) {
            return Err(shape("no dimension may be 0"));
        }
        let threads = block.iter().try_fold(1_u32, |threads, size| threads.checked_mul(*size));
        if threads.is_none_or(|threads| threads > function.attributes().max_threads_per_block) {
            return Err(shape("a block has more threads than this kernel's registers allow"));
        }
        let mut words = lay_out(function, arguments)?;
        let mut pointers = pointers(&mut words);
        function.keep();
        let api = self.context.bind()?;
        // SAFETY: there is one pointer per parameter, each to as many bytes as the parameter has, and the driver reads
        // them before it returns. Handles are valid while their owners live.
        let code = unsafe {
            (api.cuLaunchKernel)(
                function.handle(),
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared_bytes,
                self.handle,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.context.check("cuLaunchKernel", code)
    }

    /// Queues a copy of the first `bytes` bytes to the device.
    ///
    /// # Errors
    /// [`CudaError::Bounds`] where one of them is smaller, [`CudaError::Call`].
    pub fn copy_to_device(&self, from: &Pinned, to: &Memory, bytes: u64) -> Result<(), CudaError> {
        self.check_context("the source", from.context())?;
        self.check_context("the target", to.context())?;
        let (source, target) = (from.range("copy", bytes)?, to.range("copy", 0, bytes)?);
        from.keep();
        to.keep();
        let api = self.context.bind()?;
        // SAFETY: both ranges were checked; freeing either waits for the device.
        let code = unsafe { (api.cuMemcpyHtoDAsync_v2)(target, source, bytes as usize, self.handle) };
        self.context.check("cuMemcpyHtoDAsync_v2", code)
    }

    /// Queues a copy of the first `bytes` bytes to the host.
    ///
    /// # Errors
    /// [`CudaError::Bounds`] where one of them is smaller, [`CudaError::Call`].
    pub fn copy_to_host(&self, from: &Memory, to: &Pinned, bytes: u64) -> Result<(), CudaError> {
        self.check_context("the source", from.context())?;
        self.check_context("the target", to.context())?;
        let (source, target) = (from.range("copy", 0, bytes)?, to.range("copy", bytes)?);
        from.keep();
        to.keep();
        let api = self.context.bind()?;
        // SAFETY: both ranges were checked; freeing either waits for the device.
        let code = unsafe { (api.cuMemcpyDtoHAsync_v2)(target, source, bytes as usize, self.handle) };
        self.context.check("cuMemcpyDtoHAsync_v2", code)
    }

    /// Queues a copy of the first `bytes` bytes from device memory to device memory.
    ///
    /// # Errors
    /// [`CudaError::Bounds`] where one of them is smaller, [`CudaError::Call`].
    pub fn copy_on_device(&self, from: &Memory, to: &Memory, bytes: u64) -> Result<(), CudaError> {
        self.check_context("the source", from.context())?;
        self.check_context("the target", to.context())?;
        let (source, target) = (from.range("copy", 0, bytes)?, to.range("copy", 0, bytes)?);
        from.keep();
        to.keep();
        let api = self.context.bind()?;
        // SAFETY: both ranges were checked; freeing either waits for the device.
        let code = unsafe { (api.cuMemcpyDtoDAsync_v2)(target, source, bytes as usize, self.handle) };
        self.context.check("cuMemcpyDtoDAsync_v2", code)
    }

    /// Queues the filling of memory with one byte.
    ///
    /// # Errors
    /// [`CudaError::Bounds`] past the end, [`CudaError::Call`].
    pub fn fill(&self, memory: &Memory, offset: u64, bytes: u64, value: u8) -> Result<(), CudaError> {
        self.check_context("the memory", memory.context())?;
        let address = memory.range("fill", offset, bytes)?;
        memory.keep();
        let api = self.context.bind()?;
        // SAFETY: the range was checked; freeing the memory waits for the device.
        let code = unsafe { (api.cuMemsetD8Async)(address, value, bytes as usize, self.handle) };
        self.context.check("cuMemsetD8Async", code)
    }

    /// Makes a graph of what `work` queues, instead of doing it. Work on another stream belongs to it if that stream waits
    /// for an event of this one, and this one waits for it again before the end.
    ///
    /// # Errors
    /// What `work` returns, and [`CudaError::Call`] where the work cannot be captured. The stream is usable again in
    /// either case.
    pub fn capture<E: From<CudaError>>(&self, work: impl FnOnce(&Self) -> Result<(), E>) -> Result<Graph, E> {
        let api = self.context.bind()?;
        // Thread-local: another thread's call that cannot be captured must not spoil this capture.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the handle is valid while `self` lives.
        let code = unsafe { (api.cuStreamBeginCapture_v2)(self.handle, mode) };
        self.context.check("cuStreamBeginCapture_v2", code)?;
        self.context.begin_capture();
        let mut open = Capture { stream: self, is_open: true };
        let worked = work(self);
        let (graph, used) = open.end();
        // The error of the work says more than that of the spoilt capture.
        worked?;
        let graph = graph?;
        Ok(Graph::new(self, &graph, used)?)
    }

    /// Queues a graph.
    ///
    /// # Errors
    /// [`CudaError::Call`].
    pub fn launch_graph(&self, graph: &Graph) -> Result<(), CudaError> {
        self.check_context("the graph", &graph.context)?;
        let api = self.context.bind()?;
        // SAFETY: both handles are valid while their owners live.
        self.context.check("cuGraphLaunch", unsafe { (api.cuGraphLaunch)(graph.handle, self.handle) })
    }

    /// Sets an event to the present end of the queue.
    ///
    /// # Errors
    /// [`CudaError::Call`].
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        self.check_context("the event", event.context())?;
        let api = self.context.bind()?;
        // SAFETY: both handles are valid while their owners live.
        self.context.check("cuEventRecord", unsafe { (api.cuEventRecord)(event.handle(), self.handle) })
    }

    /// Lets later work of this stream wait for an event.
    ///
    /// # Errors
    /// [`CudaError::Call`].
    pub fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        self.check_context("the event", event.context())?;
        let api = self.context.bind()?;
        // SAFETY: both handles are valid while their owners live.
        let code = unsafe { (api.cuStreamWaitEvent)(self.handle, event.handle(), 0) };
        self.context.check("cuStreamWaitEvent", code)
    }

    /// Waits until all work of this stream is done.
    ///
    /// # Errors
    /// [`CudaError::Call`], also for a fault of that work.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let api = self.context.bind()?;
        // SAFETY: the handle is valid while `self` lives.
        self.context.check("cuStreamSynchronize", unsafe { (api.cuStreamSynchronize)(self.handle) })
    }

    /// Whether all work of this stream is done.
    ///
    /// # Errors
    /// [`CudaError::Call`], also for a fault of that work.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        const NOT_READY: u32 = 600;
        let api = self.context.bind()?;
        // SAFETY: the handle is valid while `self` lives.
        match unsafe { (api.cuStreamQuery)(self.handle) } {
            NOT_READY => Ok(false),
            code => self.context.check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// SMs that this stream may run on.
    pub fn multiprocessors(&self) -> u32 {
        self.partition.as_ref().map_or_else(
            || u32::try_from(self.context.facts().multiprocessors).unwrap_or(0),
            |partition| partition.multiprocessors(),
        )
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn handle(&self) -> CUstream {
        self.handle
    }

    fn check_context(&self, what: &'static str, other: &Context) -> Result<(), CudaError> {
        if self.context.is_same(other) { Ok(()) } else { Err(CudaError::Foreign { what }) }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("multiprocessors", &self.multiprocessors()).finish_non_exhaustive()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(api) = self.context.bind_for_drop() {
            // SAFETY: created by the driver for this value; it finishes queued work by itself.
            unsafe { (api.cuStreamDestroy_v2)(self.handle) };
        }
    }
}

/// A capture under way: ended whatever happens, else the stream could never be used again.
struct Capture<'a> {
    stream: &'a Stream,
    is_open: bool,
}

impl Capture<'_> {
    fn end(&mut self) -> (Result<Template, CudaError>, Vec<Keep>) {
        self.is_open = false;
        let context = &self.stream.context;
        let used = context.end_capture();
        let api = match context.bind() {
            Ok(api) => api,
            Err(error) => return (Err(error), used),
        };
        let mut handle: CUgraph = std::ptr::null_mut();
        // SAFETY: `handle` is valid for the write, the stream lives.
        let code = unsafe { (api.cuStreamEndCapture)(self.stream.handle, &raw mut handle) };
        let template = context.check("cuStreamEndCapture", code);
        (template.map(|()| Template { context: context.clone(), handle }), used)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.is_open {
            drop(self.end());
        }
    }
}

/// A captured graph, from which an executable one is made.
struct Template {
    context: Context,
    handle: CUgraph,
}

impl Drop for Template {
    fn drop(&mut self) {
        if !self.handle.is_null()
            && let Some(api) = self.context.bind_for_drop()
        {
            // SAFETY: made by cuStreamEndCapture for this value.
            unsafe { (api.cuGraphDestroy)(self.handle) };
        }
    }
}

/// Work that is queued by one call, again and again. It keeps the memory and the kernels that it uses.
pub struct Graph {
    context: Context,
    handle: CUgraphExec,
    nodes: usize,
    used: Vec<Keep>,
}

// SAFETY: the handle may be used from any thread, one call at a time on one stream; the driver locks for itself.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Graph {
    fn new(stream: &Stream, template: &Template, used: Vec<Keep>) -> Result<Self, CudaError> {
        let context = &stream.context;
        let api = context.bind()?;
        let mut nodes = 0;
        // SAFETY: with no array the call writes the number of nodes.
        let code = unsafe { (api.cuGraphGetNodes)(template.handle, std::ptr::null_mut(), &raw mut nodes) };
        context.check("cuGraphGetNodes", code)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is valid for the write, the template lives.
        let code = unsafe { (api.cuGraphInstantiateWithFlags)(&raw mut handle, template.handle, 0) };
        context.check("cuGraphInstantiateWithFlags", code)?;
        let graph = Self { context: context.clone(), handle, nodes, used };
        // Uploaded now, so that the first measured launch is like the others.
        // SAFETY: both handles are valid.
        let code = unsafe { (api.cuGraphUpload)(handle, stream.handle) };
        context.check("cuGraphUpload", code)?;
        Ok(graph)
    }

    /// Kernels, copies and other nodes.
    pub const fn nodes(&self) -> usize {
        self.nodes
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("nodes", &self.nodes)
            .field("used", &self.used.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Some(api) = self.context.bind_for_drop() {
            // SAFETY: made by cuGraphInstantiateWithFlags for this value; a launch under way is finished first.
            unsafe { (api.cuGraphExecDestroy)(self.handle) };
        }
    }
}
