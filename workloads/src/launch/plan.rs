//! The words of a launch plan: buffers, kernel calls, products, copies.

use super::fill::Fill;
use super::format::Format;
use elastico_core::Dtype;
use std::collections::BTreeSet;

/// What a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Compute capability, for example (9, 0).
    pub compute_capability: (i32, i32),
    /// Multiprocessors that the process sees; sizes splits and grids.
    pub multiprocessors: u32,
    /// Capacity of L2; decides which loads go around the first-level cache.
    pub l2_bytes: u64,
}

/// Where a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Device memory.
    Device,
    /// Page-locked host memory.
    Pinned,
}

/// One allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// What it is for.
    pub label: &'static str,
    /// Size; never 0.
    pub bytes: u64,
    /// Where it lies.
    pub place: Place,
    /// What it holds before the first step.
    pub fill: Fill,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A kernel of [`super::KERNEL_FILES`].
    Kernel(KernelCall),
    /// A matrix product of the vendor's library.
    Gemm(GemmCall),
    /// A copy over the host link.
    Copy(CopyCall),
    /// The host waits, and the device with it: everything before is finished first.
    HostGap {
        /// How long.
        seconds: f64,
    },
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCall {
    /// Name of the file, as in [`super::KernelFile::name`].
    pub file: &'static str,
    /// The `extern "C"` function.
    pub function: &'static str,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block; above 48 KiB the function's limit has to be raised first.
    pub shared_bytes: u32,
    /// In the order of the function's parameters.
    pub arguments: Vec<Argument>,
    /// Every range that the call may read or write: for bounds checks and for sharing memory, no launch needs it.
    pub touches: Vec<Touch>,
    /// Arithmetic that the call is there for, in operations; a multiply-add counts two.
    pub flops: f64,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// A device pointer into a buffer.
    Buffer {
        /// Index in [`super::LaunchPlan::buffers`].
        index: usize,
        /// Bytes from its start.
        offset: u64,
    },
    /// `unsigned int`.
    U32(u32),
    /// `unsigned long long`.
    U64(u64),
    /// `int`.
    I32(i32),
    /// `float`.
    F32(f32),
    /// `double`.
    F64(f64),
}

/// A range of a buffer that a call touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Index in [`super::LaunchPlan::buffers`].
    pub buffer: usize,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Whether it is written (it may be read too).
    pub is_written: bool,
    /// What the range holds.
    pub(super) format: Format,
}

impl Touch {
    /// Size of one element in bytes.
    pub const fn element_bytes(&self) -> u64 {
        self.format.bytes()
    }

    /// Whether whole elements of the range are finite numbers; integers always are.
    pub fn is_finite(&self, elements: &[u8]) -> bool {
        elements
            .chunks_exact(self.format.bytes() as usize)
            .all(|element| self.format.read(element).is_finite())
    }
}

/// An operand of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Index in [`super::LaunchPlan::buffers`].
    pub buffer: usize,
    /// Bytes from its start; a multiple of 256.
    pub offset: u64,
}

/// `batch` products C\[m,n\] = A\[m,k\] B\[k,n\], row-major and dense, one after the other in memory.
///
/// A transposed operand lies in memory as \[k,m\] or \[n,k\]. A, B and C have the format `dtype` (FP8 is E4M3);
/// only for INT8 C holds 32-bit integers. Sums are FP32 (INT8: 32-bit integers); scales are 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GemmCall {
    /// Rows of A and C.
    pub m: u64,
    /// Columns of B and C.
    pub n: u64,
    /// Inner dimension.
    pub k: u64,
    /// Independent products.
    pub batch: u64,
    /// Format of the operands.
    pub dtype: Dtype,
    /// Whether A lies in memory as \[k,m\].
    pub transpose_a: bool,
    /// Whether B lies in memory as \[n,k\].
    pub transpose_b: bool,
    /// First operand.
    pub a: Operand,
    /// Second operand.
    pub b: Operand,
    /// The product.
    pub c: Operand,
}

impl GemmCall {
    /// The format of C.
    pub(super) fn result(&self) -> Format {
        if self.dtype == Dtype::Int8 { Format::I32 } else { Format::of(self.dtype) }
    }

    /// The ranges that the product touches.
    pub fn touches(&self) -> [Touch; 3] {
        let format = Format::of(self.dtype);
        let touch = |operand: Operand, elements: u64, format: Format, is_written| Touch {
            buffer: operand.buffer,
            offset: operand.offset,
            bytes: elements * self.batch * format.bytes(),
            is_written,
            format,
        };
        [
            touch(self.a, self.m * self.k, format, false),
            touch(self.b, self.k * self.n, format, false),
            touch(self.c, self.m * self.n, self.result(), true),
        ]
    }

    /// Operations; a multiply-add counts two.
    pub fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64 * self.batch as f64
    }
}

/// A copy of the first `bytes` of one buffer to the start of another; one of the two is pinned, the other on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyCall {
    /// Index of the source in [`super::LaunchPlan::buffers`].
    pub from: usize,
    /// Index of the target.
    pub to: usize,
    /// How much.
    pub bytes: u64,
    /// Runs at the same time as its neighbour, which is an overlapped copy too: the first of two on the plan's stream,
    /// the second on a second stream that joins before the next action.
    pub overlapped: bool,
}

impl Action {
    /// Every range of a buffer that the action touches.
    pub fn touches(&self) -> Vec<Touch> {
        match self {
            Self::Kernel(call) => call.touches.clone(),
            Self::Gemm(call) => call.touches().to_vec(),
            Self::Copy(call) => [(call.from, false), (call.to, true)]
                .map(|(buffer, is_written)| Touch {
                    buffer,
                    offset: 0,
                    bytes: call.bytes,
                    is_written,
                    format: Format::Raw,
                })
                .to_vec(),
            Self::HostGap { .. } => Vec::new(),
        }
    }

    /// Operations of kernels and products.
    pub fn flops(&self) -> f64 {
        match self {
            Self::Kernel(call) => call.flops,
            Self::Gemm(call) => call.flops(),
            Self::Copy(_) | Self::HostGap { .. } => 0.0,
        }
    }
}

/// The kernels of some actions, as file and function.
pub(super) fn functions<'a>(
    actions: impl Iterator<Item = &'a Action>,
) -> BTreeSet<(&'static str, &'static str)> {
    actions
        .filter_map(|action| match action {
            Action::Kernel(call) => Some((call.file, call.function)),
            _ => None,
        })
        .collect()
}
