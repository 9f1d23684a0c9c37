//! Weights, gradients and optimiser state: flat arrays, one slot for each product.

use super::{ALIGNMENT, Lowering, aligned, dtype_of};
use crate::launch::call::{Call, View};
use crate::launch::error::LaunchError;
use crate::launch::fill::Fill;
use crate::launch::format::Format;
use crate::op::Op;
use crate::program::StepProgram;
use elastico_core::Dtype;

/// How far one optimiser step moves a weight at most, nearly: ten thousand steps move it by a thousandth.
const RATE: f64 = 1e-7;

/// The weights of one format.
#[derive(Debug)]
pub(super) struct Weights {
    buffer: usize,
    gradients: Option<usize>,
    /// Elements that the program says it has; without a number every product gets a slot.
    budget: Option<u64>,
    /// Elements in slots.
    used: u64,
    /// Where the next slot begins, in elements.
    next: u64,
    /// First element and size of each slot.
    slots: Vec<(u64, u64)>,
    /// The deepest product: weights are scaled by it, so that no product grows its operand.
    depth: u64,
}

/// State of the optimiser.
#[derive(Debug)]
pub(super) struct Optimiser {
    /// The first parameter that has not been updated yet.
    next: u64,
    format: Format,
    /// FP32 copy of the weights for formats of 16 bits, moments.
    arrays: Vec<usize>,
}

impl Lowering<'_> {
    /// Finds out how many weights the program has.
    pub(super) fn plan_weights(&mut self, program: &StepProgram) {
        let updated: u64 = program
            .sections
            .iter()
            .zip(program.parts())
            .filter(|(section, _)| section.name == "optimiser")
            .flat_map(|(_, (_, ops))| ops)
            .map(|op| match op {
                Op::Adam { parameters, .. } => *parameters,
                Op::Elementwise { elements, .. } => *elements,
                _ => 0,
            })
            .sum();
        let mut tables = std::collections::BTreeSet::new();
        for op in &program.ops {
            if let Op::Gather { table_rows, columns, dtype, .. } = op {
                tables.insert((*table_rows, *columns, *dtype));
            }
        }
        let tables: f64 =
            tables.iter().map(|(rows, columns, dtype)| *rows as f64 * *columns as f64 * dtype.bytes()).sum();
        let dense = program.memory.weights.get() - if updated == 0 { tables } else { 0.0 };
        for op in &program.ops {
            let dtype = match op {
                Op::Gemm { dtype, .. } | Op::Convolution { dtype, .. } => *dtype,
                _ => continue,
            };
            let elements = if updated > 0 { updated } else { (dense.max(0.0) / dtype.bytes()) as u64 };
            self.weights_of(Format::of(dtype)).budget = (elements > 0).then_some(elements);
        }
    }

    fn weights_of(&mut self, format: Format) -> &mut Weights {
        if !self.weights.contains_key(&format) {
            let buffer = self.buffer("weights", 1, Fill::Zero);
            let weights = Weights {
                buffer,
                gradients: None,
                budget: None,
                used: 0,
                next: 0,
                slots: Vec::new(),
                depth: 1,
            };
            self.weights.insert(format, weights);
        }
        self.weights.get_mut(&format).expect("it was inserted above")
    }

    /// A weight of that many elements for a product `depth` deep. When all weights have their product, one of the same
    /// size is used again: a recurrent cell reads the same weight at each time step.
    pub(super) fn weight(&mut self, format: Format, elements: u64, depth: u64) -> View {
        let weights = self.weights_of(format);
        weights.depth = weights.depth.max(depth);
        let is_full = weights.budget.is_some_and(|budget| weights.used + elements > budget);
        let same = weights.slots.iter().rev().find(|(_, size)| *size == elements).map(|(first, _)| *first);
        let first = match same {
            Some(first) if is_full => first,
            _ if is_full && !weights.slots.is_empty() => 0,
            _ => {
                weights.used += elements;
                weights.slots.push((weights.next, elements));
                weights.next
            }
        };
        weights.next = weights.next.max(aligned(first + elements, format));
        View { buffer: weights.buffer, offset: first * format.bytes(), elements, format }
    }

    /// Where the gradient of a weight goes: the same place in an array of gradients.
    pub(super) fn weight_gradient(&mut self, weight: View) -> View {
        View { buffer: self.gradients(weight.format), ..weight }
    }

    fn gradients(&mut self, format: Format) -> usize {
        if let Some(buffer) = self.weights_of(format).gradients {
            return buffer;
        }
        let fill = Fill::Normal { dtype: dtype_of(format), deviation: 1.0 };
        let buffer = self.buffer("gradients", 1, fill);
        self.weights_of(format).gradients = Some(buffer);
        buffer
    }

    /// Sizes of the weights and gradients, when all products have asked.
    pub(super) fn finish_weights(&mut self) {
        let updated = self.optimiser.as_ref().map(|optimiser| (optimiser.format, optimiser.next));
        for (format, weights) in &self.weights {
            let own = updated.filter(|(updated, _)| updated == format).map_or(0, |(_, count)| count);
            let elements = weights.next.max(weights.budget.unwrap_or(0)).max(own);
            let deviation = weight_deviation(*format, weights.depth);
            let bytes = (elements * format.bytes()).next_multiple_of(ALIGNMENT);
            let draft = &mut self.buffers[weights.buffer];
            (draft.bytes, draft.fill) = (bytes, Fill::Normal { dtype: dtype_of(*format), deviation });
            if let Some(gradients) = weights.gradients {
                self.buffers[gradients].bytes = bytes;
            }
            if let Some(optimiser) = self.optimiser.as_ref().filter(|optimiser| optimiser.format == *format)
                && format.bytes() < 4
            {
                self.buffers[optimiser.arrays[0]].fill = Fill::Normal { dtype: Dtype::Fp32, deviation };
            }
        }
    }

    /// The next `count` parameters of the optimiser: weights, FP32 weights, `moments` arrays, gradients.
    fn parameters(
        &mut self,
        count: u64,
        format: Format,
        moments: &[(&'static str, Fill)],
    ) -> (View, View, Vec<View>, View) {
        let gradients = self.gradients(format);
        let weights = self.weights_of(format).buffer;
        let has_master = format.bytes() < 4;
        if self.optimiser.is_none() {
            let mut arrays = Vec::new();
            if has_master {
                let fill = Fill::Normal { dtype: Dtype::Fp32, deviation: 1.0 };
                arrays.push(self.buffer("master weights", 1, fill));
            }
            for (label, fill) in moments {
                arrays.push(self.buffer(label, 1, *fill));
            }
            self.optimiser = Some(Optimiser { next: 0, format, arrays });
        }
        let optimiser = self.optimiser.as_mut().expect("it was set above");
        let first = optimiser.next;
        // Arrays of a tensor begin at whole sectors.
        optimiser.next = (first + count).next_multiple_of(64);
        let needed = optimiser.next * 4;
        let arrays: Vec<_> = optimiser.arrays.clone();
        for buffer in &arrays {
            self.buffers[*buffer].bytes = self.buffers[*buffer].bytes.max(needed);
        }
        let view =
            |buffer, format: Format| View { buffer, offset: first * format.bytes(), elements: count, format };
        let states: Vec<_> = arrays.iter().map(|buffer| view(*buffer, Format::F32)).collect();
        let weight = view(weights, format);
        let (master, moments) = if has_master { (states[0], states[1..].to_vec()) } else { (weight, states) };
        (weight, master, moments, view(gradients, format))
    }

    pub(super) fn adam(&mut self, parameters: u64, dtype: Dtype) -> Result<(), LaunchError> {
        let format = Format::of(dtype);
        let function = match format {
            Format::F32 => ("pointwise_fp32", "adam_fp32"),
            Format::F16 => ("pointwise_fp16", "adam_fp16"),
            Format::Bf16 => ("pointwise_bf16", "adam_bf16"),
            _ => return Err(LaunchError::Format { op: "adam", dtype }),
        };
        let moments = [
            ("first moments", Fill::Normal { dtype: Dtype::Fp32, deviation: 1e-3 }),
            ("second moments", Fill::Positive { dtype: Dtype::Fp32, largest: 1e-3 }),
        ];
        let (weight, master, moments, gradient) = self.parameters(parameters, format, &moments);
        let call = Call::new(function)
            .write(weight)
            .write(master)
            .write(moments[0])
            .write(moments[1])
            .read(gradient)
            .u64(parameters)
            .f32(RATE)
            .flops(14.0 * parameters as f64)
            .grid("adam", [parameters.div_ceil(1024), 1, 1])?;
        self.kernel(call);
        Ok(())
    }

    /// SGD with momentum over weights of the program's format.
    pub(super) fn momentum(&mut self, parameters: u64) -> Result<(), LaunchError> {
        let format = self.weights.keys().next().copied().unwrap_or(Format::F32);
        let function = match format {
            Format::F32 => ("pointwise_fp32", "momentum_fp32"),
            Format::F16 => ("pointwise_fp16", "momentum_fp16"),
            Format::Bf16 => ("pointwise_bf16", "momentum_bf16"),
            _ => return Err(LaunchError::Format { op: "elementwise", dtype: dtype_of(format) }),
        };
        let moments = [("momentum", Fill::Normal { dtype: Dtype::Fp32, deviation: 1e-3 })];
        let (weight, master, moments, gradient) = self.parameters(parameters, format, &moments);
        let call = Call::new(function)
            .write(weight)
            .write(master)
            .write(moments[0])
            .read(gradient)
            .u64(parameters)
            .f32(RATE)
            .flops(4.0 * parameters as f64)
            .grid("elementwise", [parameters.div_ceil(1024), 1, 1])?;
        self.kernel(call);
        Ok(())
    }
}

/// Standard deviation of the weights of a product that deep. INT8 weights use the whole range; the sums are scaled when
/// they are quantised again.
fn weight_deviation(format: Format, depth: u64) -> f64 {
    if format == Format::I8 { 1.0 } else { (depth.max(1) as f64).sqrt().recip() }
}
