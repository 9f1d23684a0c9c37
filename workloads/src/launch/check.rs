//! Small programs, one for each kind of op and format, and the comparison of a device with the reference.

use super::LaunchPlan;
use super::error::LaunchError;
use super::format::Format;
use super::plan::{Action, Target, Touch};
use super::reference::reference;
use crate::op::{Access, ConvolutionPass, Direction, Op, Pass, Pipe};
use crate::program::{Memory, Section, StepProgram};
use elastico_core::units::Seconds;
use elastico_core::{Dtype, Seed};

/// A small program whose results are compared with those of the CPU.
#[derive(Clone, Debug)]
pub struct Check {
    /// What is checked: op and format.
    pub name: String,
    /// The step.
    pub program: StepProgram,
    /// How many steps run before the comparison.
    pub steps: u32,
    /// Largest relative difference of any array: the norm of the difference over the norm of the reference.
    pub tolerance: f64,
}

impl Check {
    /// The plan of the program.
    ///
    /// # Errors
    ///
    /// As [`LaunchPlan::new`]; [`LaunchError::Capability`] means that the check does not apply to the target.
    pub fn plan(&self, target: &Target) -> Result<LaunchPlan, LaunchError> {
        LaunchPlan::new(&self.program, target, Seed(1))
    }

    /// Contents of all buffers of the plan after [`Check::steps`] steps on the CPU.
    ///
    /// # Errors
    ///
    /// As [`reference()`].
    pub fn reference(&self, plan: &LaunchPlan) -> Result<Vec<Vec<u8>>, LaunchError> {
        reference(plan, self.steps)
    }

    /// Compares every array that the step wrote and nothing overwrote with [`Check::reference`], and what nothing wrote
    /// with what it was. `contents` has the buffers of the plan by index, as a device left them after [`Check::steps`]
    /// steps. Gives the largest relative difference.
    ///
    /// # Errors
    ///
    /// [`LaunchError::Mismatch`], [`LaunchError::NotFinite`], [`LaunchError::Bytes`], and those of [`reference()`].
    pub fn compare(&self, plan: &LaunchPlan, contents: &[Vec<u8>]) -> Result<f64, LaunchError> {
        let expected = self.reference(plan)?;
        for (index, buffer) in plan.buffers.iter().enumerate() {
            let found = contents.get(index).map_or(0, |bytes| bytes.len() as u64);
            if found != buffer.bytes {
                let (check, label) = (self.name.clone(), buffer.label);
                return Err(LaunchError::Bytes { check, label, found, expected: buffer.bytes });
            }
        }
        let mut most = 0.0_f64;
        for touch in results(&plan.actions) {
            let range = touch.offset as usize..(touch.offset + touch.bytes) as usize;
            let size = touch.format.bytes() as usize;
            let (mut difference, mut norm) = (0.0, 0.0);
            let found = contents[touch.buffer][range.clone()].chunks_exact(size);
            let wanted = expected[touch.buffer][range].chunks_exact(size);
            for (element, (found, wanted)) in found.zip(wanted).enumerate() {
                let (found, wanted) = (touch.format.read(found), touch.format.read(wanted));
                if !found.is_finite() {
                    let (check, label) = (self.name.clone(), plan.buffers[touch.buffer].label);
                    return Err(LaunchError::NotFinite { check, label, element: element as u64 });
                }
                difference += (found - wanted).powi(2);
                norm += wanted * wanted;
            }
            let error = if norm > 0.0 { (difference / norm).sqrt() } else { difference.sqrt() };
            let tolerance = if matches!(touch.format, Format::I32 | Format::U64 | Format::Raw) {
                0.0
            } else {
                self.tolerance
            };
            if error > tolerance {
                let (check, label) = (self.name.clone(), plan.buffers[touch.buffer].label);
                return Err(LaunchError::Mismatch { check, label, error, tolerance });
            }
            most = most.max(error);
        }
        Ok(most)
    }
}

/// The written ranges that no later action writes to, the latest first.
pub(super) fn results(actions: &[Action]) -> Vec<Touch> {
    let mut kept: Vec<Touch> = Vec::new();
    let meets = |one: &Touch, other: &Touch| {
        one.buffer == other.buffer
            && one.offset < other.offset + other.bytes
            && other.offset < one.offset + one.bytes
    };
    let mut covered: Vec<Touch> = Vec::new();
    for touch in actions.iter().rev().flat_map(Action::touches).filter(|touch| touch.is_written) {
        if touch.bytes > 0 && !covered.iter().any(|later| meets(later, &touch)) {
            kept.push(touch);
        }
        covered.push(touch);
    }
    kept
}

/// Formats of most ops.
const FORMATS: [Dtype; 6] = [Dtype::Fp32, Dtype::Tf32, Dtype::Fp16, Dtype::Bf16, Dtype::Fp8, Dtype::Int8];
/// Formats that are differentiated.
const TRAINED: [Dtype; 4] = [Dtype::Fp32, Dtype::Tf32, Dtype::Fp16, Dtype::Bf16];

/// Results that differ in their last places: sums in another order, roundings that fall the other way now and then.
fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Fp64 => 1e-12,
        Dtype::Fp32 => 2e-5,
        // Products keep 10 bits of each operand, and tensor cores cut the rest off: a bias that squares double.
        Dtype::Tf32 => 1e-2,
        Dtype::Fp16 => 3e-3,
        Dtype::Bf16 => 2e-2,
        Dtype::Fp8 => 6e-2,
        Dtype::Int8 => 3e-2,
    }
}

fn program(sections: &[(&str, &[Op])]) -> StepProgram {
    let mut program =
        StepProgram { ops: Vec::new(), sections: Vec::new(), memory: Memory::default(), duty: 1.0 };
    for (name, ops) in sections {
        program.sections.push(Section { name: (*name).to_owned(), first: program.ops.len() });
        program.ops.extend_from_slice(ops);
    }
    program
}

/// Forward ops, their gradients and an optimiser.
fn trained(forward: &[Op], update: Op) -> StepProgram {
    let backward: Vec<_> = forward.iter().rev().flat_map(Op::gradient).collect();
    program(&[("forward", forward), ("backward", &backward), ("optimiser", &[update])])
}

/// One small program for each kind of op and format, and steps that join several.
pub fn checks() -> Vec<Check> {
    let mut all = Vec::new();
    let mut add = |name: String, program: StepProgram, steps: u32, dtype: Dtype| {
        all.push(Check { name, program, steps, tolerance: tolerance(dtype) });
    };
    let alone = |op: Op| program(&[("work", &[op])]);
    let rows = |dtype: Dtype| {
        let mut ops = Vec::new();
        let passes: &[Pass] =
            if TRAINED.contains(&dtype) { &[Pass::Forward, Pass::Backward] } else { &[Pass::Forward] };
        for pass in passes.iter().copied() {
            // A row of a warp, one of a block, and rows that are split.
            for (rows, columns) in [(13, 77), (5, 2052), (2, 40_000)] {
                ops.push(("norm", Op::Norm { rows, columns, pass, dtype }));
            }
            for (rows, columns) in [(13, 77), (3, 1500)] {
                ops.push(("softmax", Op::Softmax { rows, columns, pass, dtype }));
            }
        }
        ops
    };
    for dtype in FORMATS {
        for (m, n, k, batch) in [(48, 32, 64, 1), (16, 48, 32, 3)] {
            add(format!("gemm {batch} {dtype}"), alone(Op::Gemm { m, n, k, batch, dtype }), 1, dtype);
        }
        for (index, (kind, op)) in rows(dtype).into_iter().enumerate() {
            add(format!("{kind} {index} {dtype}"), alone(op), 1, dtype);
        }
        for (elements, inputs, outputs, flops_per_element) in
            [(1000, 2, 1, 1), (2053, 3, 2, 20), (100, 1, 1, 0)]
        {
            let op = Op::Elementwise { elements, inputs, outputs, flops_per_element, dtype };
            add(format!("elementwise {inputs} {dtype}"), alone(op), 1, dtype);
        }
        for (columns, pooled) in [(64, 5), (7, 1), (8, 20)] {
            let op = Op::Gather { lookups: 103, columns, table_rows: 50, pooled, skew: 1.05, dtype };
            add(format!("gather {columns} {dtype}"), alone(op), 1, dtype);
            if TRAINED.contains(&dtype) {
                let op = Op::Scatter { updates: 103, columns, table_rows: 50, skew: 1.05, dtype };
                add(format!("scatter {columns} {dtype}"), alone(op), 1, dtype);
            }
        }
        for (channels_in, channels_out, size, kernel, stride) in
            [(16, 24, 9, 3, 1), (5, 70, 8, 3, 2), (16, 32, 6, 1, 1)]
        {
            let pass = ConvolutionPass::Forward;
            let op =
                Op::Convolution { batch: 2, channels_in, channels_out, size, kernel, stride, pass, dtype };
            add(format!("convolution {channels_in} {dtype}"), alone(op), 1, dtype);
        }
        for (name, heads, kv_heads, query, context, head_dim, causal) in [
            ("full", 2, 2, 40, 40, 64, false),
            ("causal", 2, 1, 100, 100, 64, true),
            ("wide", 1, 1, 70, 90, 128, true),
            ("decode", 8, 2, 1, 600, 128, false),
            ("small", 3, 3, 5, 9, 20, true),
        ] {
            let pass = Pass::Forward;
            let op =
                Op::Attention { batch: 2, heads, kv_heads, query, context, head_dim, causal, pass, dtype };
            add(format!("attention {name} {dtype}"), alone(op), 1, dtype);
        }
    }
    for dtype in TRAINED {
        for pass in [ConvolutionPass::DataGradient, ConvolutionPass::FilterGradient] {
            for (channels_in, channels_out, stride) in [(16, 24, 1), (5, 9, 2)] {
                let op = Op::Convolution {
                    batch: 3,
                    channels_in,
                    channels_out,
                    size: 15,
                    kernel: 3,
                    stride,
                    pass,
                    dtype,
                };
                add(format!("convolution gradient {channels_in} {dtype}"), alone(op), 1, dtype);
            }
        }
        for (heads, kv_heads, head_dim, causal) in [(4, 2, 32, true), (1, 1, 20, false)] {
            let pass = Pass::Backward;
            let op = Op::Attention {
                batch: 2,
                heads,
                kv_heads,
                query: 21,
                context: 21,
                head_dim,
                causal,
                pass,
                dtype,
            };
            add(format!("attention gradient {head_dim} {dtype}"), alone(op), 1, dtype);
        }
        add(format!("optimiser {dtype}"), alone(Op::Adam { parameters: 3001, dtype }), 3, dtype);
        let layer = [
            Op::Norm { rows: 24, columns: 64, pass: Pass::Forward, dtype },
            Op::Gemm { m: 24, n: 3 * 64, k: 64, batch: 1, dtype },
            Op::Gemm { m: 12, n: 12, k: 32, batch: 4, dtype },
            Op::Softmax { rows: 48, columns: 12, pass: Pass::Forward, dtype },
            Op::Gemm { m: 12, n: 32, k: 12, batch: 4, dtype },
            Op::Elementwise { elements: 24 * 64, inputs: 2, outputs: 1, flops_per_element: 1, dtype },
        ];
        add(
            format!("block step {dtype}"),
            trained(&layer, Op::Adam { parameters: 64 * 200, dtype }),
            2,
            dtype,
        );
        let heads = Op::Attention {
            batch: 2,
            heads: 2,
            kv_heads: 2,
            query: 12,
            context: 12,
            head_dim: 32,
            causal: true,
            pass: Pass::Forward,
            dtype,
        };
        let fused = [layer[0], layer[1], heads, layer[5]];
        add(
            format!("fused step {dtype}"),
            trained(&fused, Op::Adam { parameters: 64 * 200, dtype }),
            2,
            dtype,
        );
        let residual = [
            Op::Convolution {
                batch: 2,
                channels_in: 16,
                channels_out: 16,
                size: 6,
                kernel: 3,
                stride: 1,
                pass: ConvolutionPass::Forward,
                dtype,
            },
            Op::Norm { rows: 16, columns: 72, pass: Pass::Forward, dtype },
            Op::Elementwise { elements: 16 * 72, inputs: 1, outputs: 1, flops_per_element: 2, dtype },
        ];
        let update = Op::Elementwise {
            elements: 16 * 16 * 9,
            inputs: 3,
            outputs: 2,
            flops_per_element: 4,
            dtype: Dtype::Fp32,
        };
        add(format!("convolution step {dtype}"), trained(&residual, update), 2, dtype);
        let bags = [
            Op::Gather { lookups: 60, columns: 16, table_rows: 40, pooled: 5, skew: 0.5, dtype },
            Op::Gemm { m: 12, n: 16, k: 16, batch: 1, dtype },
        ];
        add(format!("table step {dtype}"), trained(&bags, Op::Adam { parameters: 256, dtype }), 3, dtype);
    }
    for access in [Access::Read, Access::Write, Access::Copy, Access::Triad] {
        for (footprint, bytes) in [(96_000, 50_000), (4800, 30_000)] {
            let op = Op::Stream { footprint, bytes, access, blocks: 3 };
            add(format!("stream {access:?} {footprint}").to_lowercase(), alone(op), 3, Dtype::Fp32);
        }
    }
    let press = |pipe, dtype, flops| Op::Compute { flops, pipe, dtype, blocks: 2, warps_per_block: 2 };
    add("fma fp32".to_owned(), alone(press(Pipe::Fp32, Dtype::Fp32, 80_000)), 1, Dtype::Fp32);
    add("fma fp64".to_owned(), alone(press(Pipe::Fp64, Dtype::Fp64, 80_000)), 1, Dtype::Fp64);
    for dtype in [Dtype::Tf32, Dtype::Fp16, Dtype::Bf16, Dtype::Fp8, Dtype::Int8] {
        // Sums of exact products that stay below 2^24: no format rounds them.
        let mut op = press(Pipe::Tensor, dtype, 2_000_000);
        if dtype == Dtype::Tf32 {
            op = press(Pipe::Tensor, dtype, 500_000);
        }
        add(format!("tensor {dtype}"), alone(op), 1, Dtype::Tf32);
    }
    for conflict in [1, 8, 5] {
        let op = Op::SharedMemory { bytes: 40_000, conflict, blocks: 2, warps_per_block: 2 };
        add(format!("shared memory {conflict}"), alone(op), 1, Dtype::Fp32);
    }
    for addresses in [1, 300] {
        add(format!("atomic {addresses}"), alone(Op::Atomic { updates: 5000, addresses }), 2, Dtype::Fp32);
    }
    let copy = Op::Copy { bytes: 10_000, direction: Direction::Both };
    add("copy".to_owned(), alone(copy), 1, Dtype::Fp32);
    let seconds = Seconds(1e-4);
    let resident = Op::Resident { blocks: 3, warps_per_block: 2, shared_bytes: 1024, seconds };
    add(
        "launch".to_owned(),
        program(&[("work", &[Op::Launch { count: 3 }, resident, Op::HostGap { seconds }])]),
        1,
        Dtype::Fp32,
    );
    all
}
