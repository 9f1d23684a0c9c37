//! From a launch plan to what the driver launches: compiled kernels, filled buffers, products.

use super::super::engine::Failure;
use super::super::message::CudaWork;
use super::short_digest;
use elastico_gpu::cubin::Cache;
use elastico_gpu::cuda::{Argument, Context, CudaError, Function, Memory, Module, Pinned, Stream};
use elastico_gpu::gemm::{Gemm, GemmShape};
use elastico_workloads::launch::{
    self, Action, Buffer, GemmCall, KERNEL_FILES, KernelCall, LaunchPlan, Place,
};
use std::collections::BTreeMap;

/// Most parameters of a kernel.
const MOST_ARGUMENTS: usize = 24;
/// Bytes that the host writes at a time; a multiple of every element's size.
const CHUNK: u64 = 8 << 20;
/// Shared memory that a kernel may use without being asked for.
const DEFAULT_SHARED_BYTES: u32 = 48 << 10;

/// Kernels of one process, each file compiled and loaded once.
pub(super) struct Kernels<'a> {
    context: Context,
    work: &'a CudaWork,
    cache: Cache,
    modules: BTreeMap<&'static str, Module>,
    binaries: Vec<Vec<u8>>,
}

impl<'a> Kernels<'a> {
    pub(super) fn new(context: &Context, work: &'a CudaWork) -> Self {
        Self {
            context: context.clone(),
            work,
            cache: Cache::new(work.cache.clone()),
            modules: BTreeMap::new(),
            binaries: Vec::new(),
        }
    }

    pub(super) fn function(&mut self, file: &'static str, name: &str) -> Result<Function, Failure> {
        if !self.modules.contains_key(file) {
            let source = KERNEL_FILES
                .iter()
                .find(|known| known.name == file)
                .ok_or_else(|| Failure::crash(format!("the plan names no file of ours: {file}")))?;
            let capability = self.context.facts().compute_capability;
            let binary = self.cache.get_or_compile(&self.work.libraries, source.source, file, capability)?;
            self.modules.insert(file, self.context.load_module(&binary)?);
            self.binaries.push(binary);
        }
        Ok(self.modules[file].function(name)?)
    }

    /// Digest of all binaries that were loaded.
    pub(super) fn digest(&self) -> String {
        short_digest(&self.binaries)
    }
}

/// A buffer where the plan wants it.
pub(super) enum Held {
    Device(Memory),
    Pinned(Pinned),
}

/// An action that can be queued as it is.
pub(super) enum Ready {
    Kernel(Function, KernelCall),
    /// A product by the description of this index.
    Gemm(usize, GemmCall),
    ToDevice {
        from: usize,
        to: usize,
        bytes: u64,
        overlapped: bool,
    },
    ToHost {
        from: usize,
        to: usize,
        bytes: u64,
        overlapped: bool,
    },
    HostGap(f64),
}

/// Buffers and actions of one side.
pub(super) struct Loaded {
    pub(super) buffers: Vec<Held>,
    pub(super) actions: Vec<Ready>,
    /// Descriptions of products with their workspaces. Calls of one shape follow each other in one stream, so they share.
    gemms: Vec<(GemmShape, Gemm)>,
    /// Device memory in use by them.
    pub(super) allocated: u64,
}

fn foreign(what: &str) -> Failure {
    Failure::crash(format!("the plan puts {what} in the wrong kind of memory"))
}

impl Loaded {
    pub(super) fn new(
        context: &Context,
        stream: &Stream,
        kernels: &mut Kernels<'_>,
        work: &CudaWork,
        plan: &LaunchPlan,
    ) -> Result<Self, Failure> {
        let mut allocated = 0;
        let mut buffers = Vec::with_capacity(plan.buffers.len());
        for buffer in &plan.buffers {
            buffers.push(allocate(context, buffer)?);
            if buffer.place == Place::Device {
                allocated += buffer.bytes;
            }
        }
        let mut loaded = Self { buffers, actions: Vec::new(), gemms: Vec::new(), allocated };
        for action in &plan.setup {
            let ready = loaded.ready(context, kernels, work, action)?;
            loaded.queue(stream, &ready)?;
        }
        stream.synchronize()?;
        loaded.fill_from_host(plan)?;
        for action in &plan.actions {
            let ready = loaded.ready(context, kernels, work, action)?;
            loaded.actions.push(ready);
        }
        Ok(loaded)
    }

    /// Writes the buffers that no kernel fills: row numbers, and pinned memory.
    fn fill_from_host(&self, plan: &LaunchPlan) -> Result<(), Failure> {
        for index in plan.host_filled() {
            let bytes = plan.buffers[index].bytes;
            let mut chunk = vec![0; bytes.min(CHUNK) as usize];
            for offset in (0..bytes).step_by(CHUNK as usize) {
                let part = &mut chunk[..(bytes - offset).min(CHUNK) as usize];
                plan.contents(index, part, offset);
                match self.buffers.get(index) {
                    Some(Held::Device(memory)) => memory.write(offset, part)?,
                    Some(Held::Pinned(pinned)) => pinned.write(offset, part)?,
                    None => return Err(foreign("a buffer")),
                }
            }
        }
        Ok(())
    }

    fn ready(
        &mut self,
        context: &Context,
        kernels: &mut Kernels<'_>,
        work: &CudaWork,
        action: &Action,
    ) -> Result<Ready, Failure> {
        Ok(match action {
            Action::Kernel(call) => {
                let function = kernels.function(call.file, call.function)?;
                if call.shared_bytes > DEFAULT_SHARED_BYTES {
                    function.allow_shared_bytes(call.shared_bytes)?;
                }
                if call.arguments.len() > MOST_ARGUMENTS {
                    return Err(Failure::crash(format!("`{}` takes too many arguments", call.function)));
                }
                Ready::Kernel(function, call.clone())
            }
            Action::Gemm(call) => {
                let shape = GemmShape {
                    m: call.m,
                    n: call.n,
                    k: call.k,
                    batch: call.batch,
                    dtype: call.dtype,
                    transpose_a: call.transpose_a,
                    transpose_b: call.transpose_b,
                };
                let known = self.gemms.iter().position(|(known, _)| *known == shape);
                let index = match known {
                    Some(index) => index,
                    None => {
                        let gemm = Gemm::new(context, &work.libraries, &shape)?;
                        self.allocated += gemm.workspace_bytes();
                        self.gemms.push((shape, gemm));
                        self.gemms.len() - 1
                    }
                };
                Ready::Gemm(index, *call)
            }
            Action::Copy(call) => {
                let (from, to, bytes, overlapped) = (call.from, call.to, call.bytes, call.overlapped);
                match (self.buffers.get(from), self.buffers.get(to)) {
                    (Some(Held::Pinned(_)), Some(Held::Device(_))) => {
                        Ready::ToDevice { from, to, bytes, overlapped }
                    }
                    (Some(Held::Device(_)), Some(Held::Pinned(_))) => {
                        Ready::ToHost { from, to, bytes, overlapped }
                    }
                    _ => return Err(foreign("a copy")),
                }
            }
            Action::HostGap { seconds } => Ready::HostGap(*seconds),
        })
    }

    /// What all buffers hold; for small plans.
    pub(super) fn contents(&self, plan: &LaunchPlan) -> Result<Vec<Vec<u8>>, Failure> {
        let read = |(held, buffer): (&Held, &Buffer)| {
            let mut bytes = vec![0; buffer.bytes as usize];
            match held {
                Held::Device(memory) => memory.read(0, &mut bytes)?,
                Held::Pinned(pinned) => pinned.read(0, &mut bytes)?,
            }
            Ok(bytes)
        };
        self.buffers.iter().zip(&plan.buffers).map(read).collect()
    }

    /// Device memory of a buffer of the plan.
    pub(super) fn memory(&self, index: usize) -> Result<&Memory, Failure> {
        match self.buffers.get(index) {
            Some(Held::Device(memory)) => Ok(memory),
            _ => Err(foreign("an operand")),
        }
    }

    fn pinned(&self, index: usize) -> Result<&Pinned, Failure> {
        match self.buffers.get(index) {
            Some(Held::Pinned(pinned)) => Ok(pinned),
            _ => Err(foreign("the host's side of a copy")),
        }
    }

    /// Queues one action.
    pub(super) fn queue(&self, stream: &Stream, action: &Ready) -> Result<(), Failure> {
        match action {
            Ready::Kernel(function, call) => self.launch(stream, function, call),
            Ready::Gemm(index, call) => {
                let operand = |operand: &launch::Operand| {
                    Ok::<_, Failure>((self.memory(operand.buffer)?, operand.offset))
                };
                let (_, gemm) = self.gemms.get(*index).ok_or_else(|| foreign("a product"))?;
                Ok(gemm.run(stream, operand(&call.a)?, operand(&call.b)?, operand(&call.c)?)?)
            }
            Ready::ToDevice { from, to, bytes, .. } => {
                Ok(stream.copy_to_device(self.pinned(*from)?, self.memory(*to)?, *bytes)?)
            }
            Ready::ToHost { from, to, bytes, .. } => {
                Ok(stream.copy_to_host(self.memory(*from)?, self.pinned(*to)?, *bytes)?)
            }
            Ready::HostGap(_) => Ok(()),
        }
    }

    fn launch(&self, stream: &Stream, function: &Function, call: &KernelCall) -> Result<(), Failure> {
        // On the stack: single launches lie in the measured loop where launch rate is the point.
        let mut arguments: [Argument<'_>; MOST_ARGUMENTS] = std::array::from_fn(|_| Argument::U32(0));
        for (slot, argument) in arguments.iter_mut().zip(&call.arguments) {
            *slot = match *argument {
                launch::Argument::Buffer { index, offset } => Argument::Memory(self.memory(index)?, offset),
                launch::Argument::U32(value) => Argument::U32(value),
                launch::Argument::U64(value) => Argument::U64(value),
                launch::Argument::I32(value) => Argument::I32(value),
                launch::Argument::F32(value) => Argument::F32(value),
                launch::Argument::F64(value) => Argument::F64(value),
            };
        }
        let given = &arguments[..call.arguments.len().min(MOST_ARGUMENTS)];
        Ok(stream.launch(function, call.grid, call.block, call.shared_bytes, given)?)
    }
}

fn allocate(context: &Context, buffer: &Buffer) -> Result<Held, Failure> {
    let told = |error: CudaError| {
        let failure = Failure::from(error);
        Failure {
            detail: format!("{} bytes for {}: {}", buffer.bytes, buffer.label, failure.detail),
            ..failure
        }
    };
    Ok(match buffer.place {
        Place::Device => Held::Device(context.allocate(buffer.bytes).map_err(told)?),
        Place::Pinned => Held::Pinned(context.allocate_pinned(buffer.bytes).map_err(told)?),
    })
}
