//! Launch plans: a step program as CUDA kernels, matrix products and copies, with every argument filled in.
//!
//! [`LaunchPlan::new`] turns a [`StepProgram`] into buffers and an ordered list of [`Action`]s for one [`Target`]. The plan
//! is data: it needs no GPU, and whoever owns one interprets it.
//!
//! # How to run a plan
//!
//! 1. Compile the [`KERNEL_FILES`] named by [`LaunchPlan::functions`] with NVRTC for the device's own compute capability.
//!    The sources include nothing. Where a call asks for more than 48 KiB of [`KernelCall::shared_bytes`], raise the
//!    function's limit.
//! 2. Allocate the [`Buffer`]s, each at an address that is a multiple of 256 bytes.
//! 3. Fill them: run [`LaunchPlan::setup`] once, in order, on the device; then for each buffer of
//!    [`LaunchPlan::host_filled`] write what [`LaunchPlan::contents`] gives, in chunks. Both sides would write the same
//!    numbers.
//! 4. Run [`LaunchPlan::actions`] in order, on one stream: that is one step. Where [`LaunchPlan::is_graph`] is set, the
//!    actions between two host gaps are meant to be captured as one graph; else they are launched one by one.
//!    Two neighbouring copies with [`CopyCall::overlapped`] run at the same time. At a host gap the stream is drained, then
//!    the host waits.
//! 5. After a step that took `t`, idle for `t (1 - duty) / duty` ([`LaunchPlan::duty`]).
//!
//! Steps may be repeated without end: nothing grows, and nothing has to be reset. Streams carry on where the last step
//! stopped.
//!
//! # Memory
//!
//! [`LaunchPlan::bytes`] is the device memory. Activations share one arena by the lives of the tensors. Where a program's
//! [`footprint`](StepProgram::footprint) counts memory that no op touches (a key-value cache during prefill, the state of a
//! sparse optimiser), one buffer holds the rest, so that a workload occupies what it would in practice.
//!
//! # Checks
//!
//! [`checks`] gives one small program for each kind of op and format. [`Check::reference`] runs its plan on the CPU in
//! double precision with roundings at the same places, and [`Check::compare`] holds what a device computed against it.

mod arena;
mod call;
mod check;
mod error;
mod fill;
mod format;
mod lower;
mod plan;
mod reference;
mod setup;

pub use check::{Check, checks};
pub use error::LaunchError;
pub use fill::Fill;
pub use plan::{Action, Argument, Buffer, CopyCall, GemmCall, KernelCall, Operand, Place, Target, Touch};
pub use reference::reference;
pub use setup::{checksum, checksum_call, mark_call};

use crate::op::Op;
use crate::program::StepProgram;
use elastico_core::Seed;
use lower::Lowering;
use std::collections::BTreeSet;

/// A CUDA source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFile {
    /// Name without an ending.
    pub name: &'static str,
    /// Complete source: no includes are needed.
    pub source: &'static str,
}

macro_rules! kernel_file {
    ($file:literal) => {
        KernelFile {
            name: $file,
            source: concat!(
                include_str!("../../kernels/common.cuh"),
                include_str!(concat!("../../kernels/", $file, ".cu")),
            ),
        }
    };
    // One number format of a file that has kernels for several.
    ($file:literal, $dtype:ident, $mark:ident) => {
        KernelFile {
            name: concat!($file, "_", stringify!($dtype)),
            source: concat!(
                concat!("#define ONLY ", stringify!($dtype), "\n#define ", stringify!($mark), "\n"),
                include_str!("../../kernels/common.cuh"),
                include_str!(concat!("../../kernels/", $file, ".cu")),
            ),
        }
    };
}

/// All CUDA sources of the workloads, `extern "C"` kernels only. Files with kernels for several number formats appear once
/// for each, so that a worker compiles what it runs and no more.
pub const KERNEL_FILES: &[KernelFile] = &[
    kernel_file!("fill"),
    kernel_file!("stress"),
    kernel_file!("pointwise", fp32, ONLY_FP32),
    kernel_file!("pointwise", fp16, ONLY_FP16),
    kernel_file!("pointwise", bf16, ONLY_BF16),
    kernel_file!("pointwise", fp8, ONLY_FP8),
    kernel_file!("pointwise", int8, ONLY_INT8),
    kernel_file!("normalise", fp32, ONLY_FP32),
    kernel_file!("normalise", fp16, ONLY_FP16),
    kernel_file!("normalise", bf16, ONLY_BF16),
    kernel_file!("normalise", fp8, ONLY_FP8),
    kernel_file!("normalise", int8, ONLY_INT8),
    kernel_file!("sparse", fp32, ONLY_FP32),
    kernel_file!("sparse", fp16, ONLY_FP16),
    kernel_file!("sparse", bf16, ONLY_BF16),
    kernel_file!("sparse", fp8, ONLY_FP8),
    kernel_file!("sparse", int8, ONLY_INT8),
    kernel_file!("attention", fp32, ONLY_FP32),
    kernel_file!("attention", fp16, ONLY_FP16),
    kernel_file!("attention", bf16, ONLY_BF16),
    kernel_file!("attention", fp8, ONLY_FP8),
    kernel_file!("attention", int8, ONLY_INT8),
    kernel_file!("convolution", fp32, ONLY_FP32),
    kernel_file!("convolution", tf32, ONLY_TF32),
    kernel_file!("convolution", fp16, ONLY_FP16),
    kernel_file!("convolution", bf16, ONLY_BF16),
    kernel_file!("convolution", fp8, ONLY_FP8),
    kernel_file!("convolution", int8, ONLY_INT8),
];

/// One step of a workload on a CUDA device.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchPlan {
    /// Allocations, by the index that arguments name.
    pub buffers: Vec<Buffer>,
    /// Kernels that fill device buffers before the first step, in order.
    pub setup: Vec<Action>,
    /// The step, in order.
    pub actions: Vec<Action>,
    /// Whether the step is captured as a graph; where launching is the point, it is not.
    pub is_graph: bool,
    /// Share of the time in which the device may be busy, above 0 and at most 1.
    pub duty: f64,
    seed: Seed,
}

impl LaunchPlan {
    /// Lowers a program for a target. The seed decides the contents of buffers and nothing else.
    ///
    /// # Errors
    ///
    /// [`LaunchError::Capability`] where the target lacks the instructions of an op's format, [`LaunchError::Format`] for
    /// formats without kernels, [`LaunchError::Size`] for what no grid or kernel takes.
    pub fn new(program: &StepProgram, target: &Target, seed: Seed) -> Result<Self, LaunchError> {
        let mut lowering = Lowering::new(target, program);
        lowering.run(program)?;
        let Lowering { buffers: drafts, mut actions, .. } = lowering;
        let (offsets, arena_bytes) = arena::place(&drafts, &actions);
        let mut buffers = Vec::new();
        let mut to = Vec::with_capacity(drafts.len());
        let arena = drafts.iter().find(|draft| draft.is_transient).map(|draft| {
            // What the program counts as activations is held even where lives let tensors share it.
            let bytes = arena_bytes.max(program.memory.activations.get() as u64).next_multiple_of(256);
            buffers.push(Buffer { label: "activations", bytes, place: Place::Device, fill: draft.fill });
            buffers.len() - 1
        });
        for (draft, offset) in drafts.into_iter().zip(offsets) {
            to.push(match (offset, arena) {
                (Some(offset), Some(arena)) => (arena, offset),
                // A workspace that nothing uses in the end has no place, and no action names it.
                (None, _) if draft.is_transient => (usize::MAX, 0),
                _ => {
                    buffers.push(Buffer {
                        label: draft.label,
                        bytes: draft.bytes,
                        place: draft.place,
                        fill: draft.fill,
                    });
                    (buffers.len() - 1, 0)
                }
            });
        }
        arena::rewrite(&mut actions, &to);
        let mut plan = Self {
            buffers,
            setup: Vec::new(),
            actions,
            is_graph: !program.ops.iter().any(|op| matches!(op, Op::Launch { .. })),
            duty: program.duty,
            seed,
        };
        let rest = (program.footprint().get() as u64).saturating_sub(plan.bytes());
        if rest > 0 {
            plan.buffers.push(Buffer { label: "held", bytes: rest, place: Place::Device, fill: Fill::Held });
        }
        plan.setup = setup::fills(&plan)?;
        Ok(plan)
    }

    /// Device memory of all buffers.
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().filter(|buffer| buffer.place == Place::Device).map(|buffer| buffer.bytes).sum()
    }

    /// Page-locked host memory of all buffers.
    pub fn pinned_bytes(&self) -> u64 {
        self.buffers.iter().filter(|buffer| buffer.place == Place::Pinned).map(|buffer| buffer.bytes).sum()
    }

    /// The kernels that setup and step launch, as file and function.
    pub fn functions(&self) -> BTreeSet<(&'static str, &'static str)> {
        plan::functions(self.setup.iter().chain(&self.actions))
    }

    /// The ranges that a step leaves behind: written, and written by no later action. The latest first.
    pub fn results(&self) -> Vec<Touch> {
        check::results(&self.actions)
    }

    /// The key of a buffer's random numbers; see [`Fill::write`].
    pub fn key(&self, buffer: usize) -> u64 {
        fill::mixed(self.seed.0, buffer as u64)
    }

    /// Indices of the buffers that the host has to fill: row numbers, and everything pinned.
    pub fn host_filled(&self) -> impl Iterator<Item = usize> {
        self.buffers
            .iter()
            .enumerate()
            .filter(|(_, buffer)| !setup::is_filled_by_kernel(buffer) && buffer.fill != Fill::Held)
            .map(|(index, _)| index)
    }

    /// Writes what buffer `buffer` holds from byte `offset` on into `chunk`; see [`Fill::write`].
    pub fn contents(&self, buffer: usize, chunk: &mut [u8], offset: u64) {
        if let Some(known) = self.buffers.get(buffer) {
            known.fill.write(self.key(buffer), chunk, offset);
        }
    }
}
