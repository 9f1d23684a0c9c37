//! The same plan on the CPU: every kernel in double precision, rounded where the kernel rounds to memory.

mod attention;
mod convolution;
mod rows;
mod stress;

use super::LaunchPlan;
use super::error::LaunchError;
use super::fill::Fill;
use super::format::Format;
use super::plan::{Action, Argument, GemmCall, KernelCall, Operand};

/// The largest plan that is worth a CPU's time.
const MOST_BYTES: u64 = 256 << 20;

/// Contents of all buffers of a plan, by index, after `steps` steps on the CPU.
///
/// Meant for small plans such as those of [`super::checks`].
///
/// # Errors
///
/// [`LaunchError::Size`] for a plan of more than 256 MiB, [`LaunchError::Reference`] for a call that no kernel of
/// [`super::KERNEL_FILES`] answers to.
pub fn reference(plan: &LaunchPlan, steps: u32) -> Result<Vec<Vec<u8>>, LaunchError> {
    if plan.bytes() > MOST_BYTES {
        let what = "a plan for the reference";
        return Err(LaunchError::Size { op: "reference", what, found: plan.bytes(), limit: MOST_BYTES });
    }
    let mut memory = Memory {
        buffers: plan
            .buffers
            .iter()
            .enumerate()
            .map(|(index, buffer)| {
                let mut bytes = vec![0; buffer.bytes as usize];
                if buffer.fill != Fill::Held {
                    plan.contents(index, &mut bytes, 0);
                }
                bytes
            })
            .collect(),
    };
    for _ in 0..steps {
        for action in &plan.actions {
            memory.run(action)?;
        }
    }
    Ok(memory.buffers)
}

/// The device's memory.
struct Memory {
    buffers: Vec<Vec<u8>>,
}

impl Memory {
    fn run(&mut self, action: &Action) -> Result<(), LaunchError> {
        match action {
            Action::Kernel(call) => self.kernel(call),
            Action::Gemm(call) => {
                self.gemm(call);
                Ok(())
            }
            Action::Copy(call) => {
                let bytes = call.bytes as usize;
                let source = self.buffers[call.from][..bytes].to_vec();
                self.buffers[call.to][..bytes].copy_from_slice(&source);
                Ok(())
            }
            Action::HostGap { .. } => Ok(()),
        }
    }

    fn read(&self, at: Operand, format: Format, elements: u64) -> Vec<f64> {
        let size = format.bytes() as usize;
        let begin = at.offset as usize;
        self.buffers[at.buffer][begin..begin + elements as usize * size]
            .chunks_exact(size)
            .map(|bytes| format.read(bytes))
            .collect()
    }

    fn write(&mut self, at: Operand, format: Format, values: &[f64]) {
        let size = format.bytes() as usize;
        let begin = at.offset as usize;
        let bytes = &mut self.buffers[at.buffer][begin..begin + values.len() * size];
        for (bytes, value) in bytes.chunks_exact_mut(size).zip(values) {
            format.write(*value, bytes);
        }
    }

    fn gemm(&mut self, call: &GemmCall) {
        let GemmCall { m, n, k, batch, dtype, .. } = *call;
        let format = Format::of(dtype);
        // Integers are multiplied as they lie in memory.
        let step = if format == Format::I8 { super::format::INT8_STEP.powi(-2) } else { 1.0 };
        let a = self.read(call.a, format, m * k * batch);
        let b = self.read(call.b, format, k * n * batch);
        let (m, n, k) = (m as usize, n as usize, k as usize);
        let mut c = vec![0.0; m * n * batch as usize];
        for (index, c) in c.iter_mut().enumerate() {
            let (product, row, column) = (index / (m * n), index / n % m, index % n);
            let (a, b) = (&a[product * m * k..], &b[product * k * n..]);
            let sum: f64 = (0..k)
                .map(|i| {
                    let a = if call.transpose_a { a[i * m + row] } else { a[row * k + i] };
                    let b = if call.transpose_b { b[column * k + i] } else { b[i * n + column] };
                    a * b
                })
                .sum();
            *c = sum * step;
        }
        self.write(call.c, call.result(), &c);
    }

    fn kernel(&mut self, call: &KernelCall) -> Result<(), LaunchError> {
        let mut arguments = Arguments { call, next: 0 };
        let (name, format) = split(call.function);
        match name {
            "pointwise" => rows::pointwise(self, &mut arguments, format),
            "requantise" => rows::requantise(self, &mut arguments),
            "adam" => rows::adam(self, &mut arguments, format),
            "momentum" => rows::momentum(self, &mut arguments, format),
            "norm_warp" | "norm_block" => rows::norm(self, &mut arguments, format, false),
            "norm_backward_warp" | "norm_backward_block" => rows::norm(self, &mut arguments, format, true),
            "norm_partial" => rows::norm_partial(self, &mut arguments, format, false),
            "norm_backward_partial" => rows::norm_partial(self, &mut arguments, format, true),
            "norm_apply" => rows::norm_apply(self, &mut arguments, format, false),
            "norm_backward_apply" => rows::norm_apply(self, &mut arguments, format, true),
            "softmax_warp" | "softmax_block" => rows::softmax(self, &mut arguments, format),
            "softmax_backward_warp" | "softmax_backward_block" => {
                rows::softmax_backward(self, &mut arguments, format)
            }
            "gather" => rows::gather(self, &mut arguments, format),
            "scatter" => rows::scatter(self, &mut arguments, format),
            "attention_64" | "attention_128" => attention::forward(self, &mut arguments, format),
            "attention_split" => attention::split(self, &mut arguments, format),
            "attention_combine" => attention::combine(self, &mut arguments, format),
            "attention_backward_query" => attention::backward_query(self, &mut arguments, format),
            "attention_backward_key" => attention::backward_key(self, &mut arguments, format),
            "convolution_forward" => convolution::forward(self, &mut arguments, format),
            "convolution_data" => convolution::data(self, &mut arguments, format),
            "convolution_filter" => convolution::filter(self, &mut arguments, format),
            "convolution_reduce" => convolution::reduce(self, &mut arguments, format),
            "fma" => stress::fma(self, &mut arguments, format),
            "tensor" => stress::tensor(self, &mut arguments),
            _ => match call.function {
                "stream_read" | "cyclic_read" => stress::stream_read(self, &mut arguments),
                "stream_write" => stress::stream_write(self, &mut arguments),
                "stream_copy" => stress::stream_copy(self, &mut arguments),
                "stream_triad" => stress::stream_triad(self, &mut arguments),
                "atomics" => stress::atomics(self, &mut arguments),
                "shared_loads" => stress::shared_loads(self, &mut arguments),
                "empty" | "resident" => Ok(()),
                _ => Err(arguments.error("no such kernel")),
            },
        }
    }
}

/// A function's name without its format, and that format.
fn split(function: &'static str) -> (&'static str, Format) {
    const FORMATS: [(&str, Format); 7] = [
        ("_fp64", Format::F64),
        ("_fp32", Format::F32),
        ("_tf32", Format::F32),
        ("_fp16", Format::F16),
        ("_bf16", Format::Bf16),
        ("_fp8", Format::E4m3),
        ("_int8", Format::I8),
    ];
    FORMATS
        .iter()
        .find_map(|(suffix, format)| function.strip_suffix(suffix).map(|name| (name, *format)))
        .unwrap_or((function, Format::F32))
}

/// The arguments of a call, one after the other.
struct Arguments<'a> {
    call: &'a KernelCall,
    next: usize,
}

impl Arguments<'_> {
    fn error(&self, why: &'static str) -> LaunchError {
        LaunchError::Reference { function: self.call.function, why }
    }

    fn take(&mut self) -> Result<Argument, LaunchError> {
        let argument = self.call.arguments.get(self.next).copied();
        self.next += 1;
        argument.ok_or_else(|| self.error("an argument is missing"))
    }

    fn memory(&mut self) -> Result<Operand, LaunchError> {
        match self.take()? {
            Argument::Buffer { index, offset } => Ok(Operand { buffer: index, offset }),
            _ => Err(self.error("a pointer was expected")),
        }
    }

    /// An integer of either width.
    fn size(&mut self) -> Result<u64, LaunchError> {
        match self.take()? {
            Argument::U32(value) => Ok(u64::from(value)),
            Argument::U64(value) => Ok(value),
            _ => Err(self.error("an integer was expected")),
        }
    }

    /// A floating-point number of either width.
    fn number(&mut self) -> Result<f64, LaunchError> {
        match self.take()? {
            Argument::F32(value) => Ok(f64::from(value)),
            Argument::F64(value) => Ok(value),
            _ => Err(self.error("a number was expected")),
        }
    }

    /// Threads of the whole grid.
    fn threads(&self) -> u64 {
        self.call.grid.iter().chain(&self.call.block).map(|side| u64::from(*side)).product()
    }
}
