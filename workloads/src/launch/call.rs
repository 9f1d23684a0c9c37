//! Puts a kernel call together: an operand becomes an argument and a touched range at once.

use super::error::LaunchError;
use super::format::Format;
use super::plan::{Argument, KernelCall, Operand, Touch};

/// The kernel of that name for a format, as file and function, or why there is none.
macro_rules! typed {
    ($file:literal, $name:literal, $format:expr, $op:expr) => {
        match $format {
            $crate::launch::format::Format::F32 => Ok((concat!($file, "_fp32"), concat!($name, "_fp32"))),
            $crate::launch::format::Format::F16 => Ok((concat!($file, "_fp16"), concat!($name, "_fp16"))),
            $crate::launch::format::Format::Bf16 => Ok((concat!($file, "_bf16"), concat!($name, "_bf16"))),
            $crate::launch::format::Format::E4m3 => Ok((concat!($file, "_fp8"), concat!($name, "_fp8"))),
            $crate::launch::format::Format::I8 => Ok((concat!($file, "_int8"), concat!($name, "_int8"))),
            _ => {
                Err($crate::launch::error::LaunchError::Format { op: $op, dtype: elastico_core::Dtype::Fp64 })
            }
        }
    };
}
pub(super) use typed;

/// Elements at a place in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) buffer: usize,
    /// Bytes from the start of the buffer.
    pub(super) offset: u64,
    pub(super) elements: u64,
    pub(super) format: Format,
}

impl View {
    pub(super) const fn bytes(&self) -> u64 {
        self.elements * self.format.bytes()
    }

    pub(super) const fn operand(&self) -> Operand {
        Operand { buffer: self.buffer, offset: self.offset }
    }

    /// The part from an element on.
    pub(super) const fn from(self, first: u64) -> Self {
        Self {
            offset: self.offset + first * self.format.bytes(),
            elements: self.elements.saturating_sub(first),
            ..self
        }
    }

    pub(super) const fn take(self, elements: u64) -> Self {
        Self { elements, ..self }
    }
}

/// Most blocks of a grid along its first side.
pub(super) const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// Most along the others.
pub(super) const MOST_BLOCKS_ACROSS: u64 = 65_535;
/// Threads of most kernels.
pub(super) const THREADS: u32 = 256;

/// A kernel call in the making.
pub(super) struct Call(KernelCall);

impl Call {
    pub(super) const fn new((file, function): (&'static str, &'static str)) -> Self {
        Self(KernelCall {
            file,
            function,
            grid: [1, 1, 1],
            block: [THREADS, 1, 1],
            shared_bytes: 0,
            arguments: Vec::new(),
            touches: Vec::new(),
            flops: 0.0,
        })
    }

    fn touched(mut self, view: View, is_written: bool) -> Self {
        self.0.arguments.push(Argument::Buffer { index: view.buffer, offset: view.offset });
        self.0.touches.push(Touch {
            buffer: view.buffer,
            offset: view.offset,
            bytes: view.bytes(),
            is_written,
            format: view.format,
        });
        self
    }

    /// A pointer behind which all elements of the view may be read.
    pub(super) fn read(self, view: View) -> Self {
        self.touched(view, false)
    }

    /// A pointer behind which all elements of the view may be written.
    pub(super) fn write(self, view: View) -> Self {
        self.touched(view, true)
    }

    pub(super) fn u32(mut self, value: u64) -> Self {
        self.0.arguments.push(Argument::U32(value as u32));
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.arguments.push(Argument::U64(value));
        self
    }

    pub(super) fn f32(mut self, value: f64) -> Self {
        self.0.arguments.push(Argument::F32(value as f32));
        self
    }

    pub(super) fn f64(mut self, value: f64) -> Self {
        self.0.arguments.push(Argument::F64(value));
        self
    }

    pub(super) const fn block(mut self, threads: u32) -> Self {
        self.0.block = [threads, 1, 1];
        self
    }

    pub(super) const fn shared(mut self, bytes: u32) -> Self {
        self.0.shared_bytes = bytes;
        self
    }

    pub(super) const fn flops(mut self, flops: f64) -> Self {
        self.0.flops = flops;
        self
    }

    /// Sets the grid and ends the call; refuses what no device takes.
    pub(super) fn grid(mut self, op: &'static str, grid: [u64; 3]) -> Result<KernelCall, LaunchError> {
        for (side, limit) in grid.into_iter().zip([MOST_BLOCKS, MOST_BLOCKS_ACROSS, MOST_BLOCKS_ACROSS]) {
            if side > limit {
                return Err(LaunchError::Size { op, what: "a grid", found: side, limit });
            }
        }
        self.0.grid = grid.map(|side| side.max(1) as u32);
        Ok(self.0)
    }
}
