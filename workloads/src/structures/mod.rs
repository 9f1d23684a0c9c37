//! One module per group of structures, and what training and inference steps have in common.

pub(crate) mod convolution;
pub(crate) mod decode;
pub(crate) mod recurrent;
pub(crate) mod sparse;
pub(crate) mod stressor;
pub(crate) mod transformer;

use crate::op::{Direction, Op};
use crate::program::{Builder, Memory, StepProgram};
use elastico_core::Dtype;
use elastico_core::units::{Bytes, Seconds};

/// Formats of matrix work.
pub(crate) const MATRIX: &[Dtype] = &[Dtype::Fp32, Dtype::Tf32, Dtype::Fp16, Dtype::Bf16];
/// Formats of matrix work that is not differentiated.
pub(crate) const INFERENCE: &[Dtype] =
    &[Dtype::Fp32, Dtype::Tf32, Dtype::Fp16, Dtype::Bf16, Dtype::Fp8, Dtype::Int8];

/// The product of sizes; saturates, and the footprint limit then refuses it.
pub(crate) fn times(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product: u64, factor| product.saturating_mul(*factor))
}

pub(crate) fn gap(microseconds: u64) -> Option<Op> {
    (microseconds > 0).then_some(Op::HostGap { seconds: Seconds(microseconds as f64 / 1e6) })
}

pub(crate) fn pointwise(elements: u64, inputs: u32, flops_per_element: u32, dtype: Dtype) -> Op {
    Op::Elementwise { elements, inputs, outputs: 1, flops_per_element, dtype }
}

/// How the dense parameters of a training step are updated.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Optimiser {
    Adam,
    /// Momentum SGD: reads weight, gradient and momentum, writes weight and momentum.
    Momentum,
}

/// What [`training`] needs beside the forward ops.
pub(crate) struct TrainingStep {
    /// Host work before each step, in microseconds.
    pub(crate) gap: u64,
    /// Bytes of the batch that come from the host.
    pub(crate) input: u64,
    pub(crate) forward: Vec<Op>,
    /// Dense parameters.
    pub(crate) parameters: u64,
    /// Bytes of tables that are updated sparsely, their optimiser state included.
    pub(crate) tables: u64,
    pub(crate) optimiser: Optimiser,
    pub(crate) dtype: Dtype,
}

/// Data loading, forward, backward in reverse order, optimiser.
///
/// Memory by the same count as [`Op::Adam`]: weights and gradients in the work's format, then 12 bytes per parameter of
/// master copy and moments for 16-bit formats, 8 for FP32 (ZeRO, SC20, section 3.1: 16 bytes per parameter in all).
pub(crate) fn training(step: TrainingStep) -> StepProgram {
    let TrainingStep { gap: host, input, forward, parameters, tables, optimiser, dtype } = step;
    let backward: Vec<_> = forward.iter().rev().flat_map(Op::gradient).collect();
    training_with_backward(
        TrainingStep { gap: host, input, forward, parameters, tables, optimiser, dtype },
        backward,
    )
}

/// As [`training`], where gradients do not mirror the forward ops one by one.
pub(crate) fn training_with_backward(step: TrainingStep, backward: Vec<Op>) -> StepProgram {
    let TrainingStep { gap: host, input, forward, parameters, tables, optimiser, dtype } = step;
    let element = dtype.bytes();
    let update = match optimiser {
        Optimiser::Adam => Op::Adam { parameters, dtype },
        Optimiser::Momentum => Op::Elementwise {
            elements: parameters,
            inputs: 3,
            outputs: 2,
            flops_per_element: 4,
            dtype: Dtype::Fp32,
        },
    };
    let master = if element < 4.0 { 4.0 } else { 0.0 };
    let moments = if optimiser == Optimiser::Adam { 8.0 } else { 4.0 };
    let count = parameters as f64;
    let memory = Memory {
        weights: Bytes(count * element + tables as f64),
        gradients: Bytes(count * element),
        optimiser: Bytes(count * (moments + master)),
        activations: Bytes(forward.iter().map(Op::output_bytes).sum::<f64>() + input as f64),
        ..Memory::default()
    };
    let load = (input > 0).then_some(Op::Copy { bytes: input, direction: Direction::HostToDevice });
    Builder::new()
        .section("data loading", gap(host).into_iter().chain(load))
        .section("forward", forward)
        .section("backward", backward)
        .section("optimiser", (parameters > 0).then_some(update))
        .finish(memory)
}

/// What [`inference`] needs beside the ops.
pub(crate) struct InferenceStep {
    /// Host work or idle time before each request, in microseconds.
    pub(crate) gap: u64,
    /// Bytes of the request and of the answer.
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) forward: Vec<Op>,
    /// Bytes of weights and tables.
    pub(crate) weights: f64,
    /// Bytes of key-value cache.
    pub(crate) cache: f64,
}

/// Request, forward, answer. Layer outputs live in two buffers of the largest size that take turns.
pub(crate) fn inference(step: InferenceStep) -> StepProgram {
    let InferenceStep { gap: host, input, output, forward, weights, cache } = step;
    let largest = forward.iter().map(Op::output_bytes).fold(0.0, f64::max);
    let copy = |bytes: u64, direction| (bytes > 0).then_some(Op::Copy { bytes, direction });
    Builder::new()
        .section("request", gap(host).into_iter().chain(copy(input, Direction::HostToDevice)))
        .section("forward", forward)
        .section("answer", copy(output, Direction::DeviceToHost))
        .finish(Memory {
            weights: Bytes(weights),
            cache: Bytes(cache),
            activations: Bytes(2.0 * largest + input as f64 + output as f64),
            ..Memory::default()
        })
}
