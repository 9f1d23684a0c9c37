//! Transformers, multi-layer perceptrons and the optimiser alone.

use super::{
    INFERENCE, InferenceStep, MATRIX, Optimiser, TrainingStep, inference, pointwise, times, training,
};
use crate::axes::{Axes, Axis};
use crate::op::{Op, Pass};
use crate::program::{Builder, Memory};
use crate::structure::{Refusal, Structure, free};
use elastico_core::units::Bytes;
use elastico_core::{Dtype, WorkloadKind};

/// GELU in its tanh form: about ten operations.
const GELU_FLOPS: u32 = 10;

pub(crate) const TRAINING: Structure = Structure {
    name: "transformer_training",
    kind: WorkloadKind::Training,
    meaning: "decoder blocks with unfused attention: forward, backward, AdamW",
    axes: &[
        Axis::integer("batch", "b", "sequences per step", 1, 65_536).shrink(1),
        Axis::integer("sequence", "s", "tokens of a sequence", 16, 131_072).shrink(32),
        Axis::integer("hidden", "h", "width of the residual stream", 64, 65_536).shrink(64),
        Axis::integer("head_dim", "d", "width of a head", 16, 256).or(64),
        Axis::integer("layers", "l", "blocks", 1, 64).or(1).shrink(1),
        Axis::integer("gap", "g", "host time before a step, in microseconds", 0, 1_000_000).or(100),
        Axis::dtype(MATRIX),
    ],
    check: whole_heads,
    build: |axes| {
        let hidden = axes.integer("hidden");
        let layers = axes.integer("layers");
        let tokens = times(&[axes.integer("batch"), axes.integer("sequence")]);
        let forward = (0..layers).flat_map(|_| block(axes)).collect();
        training(TrainingStep {
            gap: axes.integer("gap"),
            input: times(&[tokens, 8]),
            forward,
            parameters: times(&[layers, block_parameters(hidden)]),
            tables: 0,
            optimiser: Optimiser::Adam,
            dtype: axes.dtype(),
        })
    },
};

pub(crate) const PREFILL: Structure = Structure {
    name: "transformer_prefill",
    kind: WorkloadKind::Inference,
    meaning: "decoder or encoder blocks over whole sequences with fused attention",
    axes: &[
        Axis::integer("batch", "b", "sequences per request", 1, 65_536).shrink(1),
        Axis::integer("sequence", "s", "tokens of a sequence", 16, 131_072).shrink(32),
        Axis::integer("hidden", "h", "width of the residual stream", 64, 65_536).shrink(128),
        Axis::integer("head_dim", "d", "width of a head", 16, 256).or(64),
        Axis::integer("layers", "l", "blocks", 1, 64).or(2).shrink(1),
        Axis::choice("mask", "whether a token sees only those before it", &["causal", "full"])
            .or_word("causal"),
        Axis::integer("gap", "g", "host time before a request, in microseconds", 0, 1_000_000).or(50),
        Axis::dtype(INFERENCE),
    ],
    check: whole_heads,
    build: |axes| {
        let (batch, sequence) = (axes.integer("batch"), axes.integer("sequence"));
        let (hidden, layers, dtype) = (axes.integer("hidden"), axes.integer("layers"), axes.dtype());
        let (tokens, head_dim) = (times(&[batch, sequence]), axes.integer("head_dim"));
        let gemm = |n, k| Op::Gemm { m: tokens, n, k, batch: 1, dtype };
        let norm = Op::Norm { rows: tokens, columns: hidden, pass: Pass::Forward, dtype };
        let wide = times(&[4, hidden]);
        let layer = [
            norm,
            gemm(times(&[3, hidden]), hidden),
            Op::Attention {
                batch,
                heads: hidden / head_dim,
                kv_heads: hidden / head_dim,
                query: sequence,
                context: sequence,
                head_dim,
                causal: axes.choice("mask") == "causal",
                pass: Pass::Forward,
                dtype,
            },
            gemm(hidden, hidden),
            pointwise(times(&[tokens, hidden]), 2, 1, dtype),
            norm,
            gemm(wide, hidden),
            pointwise(times(&[tokens, wide]), 1, GELU_FLOPS, dtype),
            gemm(hidden, wide),
            pointwise(times(&[tokens, hidden]), 2, 1, dtype),
        ];
        let element = dtype.bytes();
        inference(InferenceStep {
            gap: axes.integer("gap"),
            input: times(&[tokens, 8]),
            output: times(&[batch, hidden, element as u64]),
            forward: (0..layers).flat_map(|_| layer).collect(),
            weights: (layers as f64) * block_parameters(hidden) as f64 * element,
            cache: 2.0 * (layers as f64) * (tokens as f64) * (hidden as f64) * element,
        })
    },
};

pub(crate) const MLP_TRAINING: Structure = Structure {
    name: "mlp_training",
    kind: WorkloadKind::Training,
    meaning: "a multi-layer perceptron: forward, backward, optimiser",
    axes: &[
        Axis::integer("batch", "b", "samples per step", 1, 1_048_576).scale(8),
        Axis::integer("hidden", "h", "width of each layer", 16, 65_536).shrink(64),
        Axis::integer("layers", "l", "layers", 1, 256).or(3).shrink(2),
        Axis::choice("optimiser", "update rule", &["adam", "sgd"]).or_word("adam"),
        Axis::integer("gap", "g", "host time before a step, in microseconds", 0, 1_000_000).or(50),
        Axis::dtype(MATRIX),
    ],
    check: free,
    build: |axes| {
        let (batch, hidden) = (axes.integer("batch"), axes.integer("hidden"));
        let (layers, dtype) = (axes.integer("layers"), axes.dtype());
        training(TrainingStep {
            gap: axes.integer("gap"),
            input: times(&[batch, hidden, dtype.bytes() as u64]),
            forward: perceptron(batch, hidden, layers, dtype),
            parameters: times(&[layers, hidden, hidden + 1]),
            tables: 0,
            optimiser: if axes.choice("optimiser") == "sgd" { Optimiser::Momentum } else { Optimiser::Adam },
            dtype,
        })
    },
};

pub(crate) const RANKING: Structure = Structure {
    name: "mlp_inference",
    kind: WorkloadKind::Inference,
    meaning: "a small perceptron that answers requests at a rate",
    axes: &[
        Axis::integer("batch", "b", "candidates per request", 1, 1_048_576).scale(1),
        Axis::integer("hidden", "h", "width of each layer", 16, 65_536).shrink(64),
        Axis::integer("layers", "l", "layers", 1, 256).or(4).shrink(2),
        Axis::integer(
            "rate",
            "r",
            "requests per second that the gap between requests stands for",
            1,
            1_000_000,
        ),
        Axis::dtype(INFERENCE),
    ],
    check: free,
    build: |axes| {
        let (batch, hidden) = (axes.integer("batch"), axes.integer("hidden"));
        let (layers, dtype) = (axes.integer("layers"), axes.dtype());
        inference(InferenceStep {
            gap: 1_000_000 / axes.integer("rate"),
            input: times(&[batch, hidden, dtype.bytes() as u64]),
            output: times(&[batch, 4]),
            forward: perceptron(batch, hidden, layers, dtype),
            weights: times(&[layers, hidden, hidden + 1]) as f64 * dtype.bytes(),
            cache: 0.0,
        })
    },
};

pub(crate) const OPTIMISER: Structure = Structure {
    name: "optimiser",
    kind: WorkloadKind::Training,
    meaning: "AdamW over its parameters alone",
    axes: &[
        Axis::integer("parameters", "n", "parameters", 1_000, 100_000_000_000).shrink(100_000),
        Axis::integer("tensors", "t", "tensors that the parameters are spread over", 1, 2_048).or(8),
        Axis::dtype(&[Dtype::Fp32, Dtype::Fp16, Dtype::Bf16]),
    ],
    check: |axes| {
        if axes.integer("tensors") > axes.integer("parameters") {
            return Err(Refusal { axis: "tensors", why: "more tensors than parameters".to_owned() });
        }
        Ok(())
    },
    build: |axes| {
        let (parameters, tensors, dtype) =
            (axes.integer("parameters"), axes.integer("tensors"), axes.dtype());
        let update = Op::Adam { parameters: parameters / tensors, dtype };
        let (count, element) = (parameters as f64, dtype.bytes());
        Builder::new().section("optimiser", (0..tensors).map(|_| update)).finish(Memory {
            weights: Bytes(count * element),
            gradients: Bytes(count * element),
            optimiser: Bytes(count * if element < 4.0 { 12.0 } else { 8.0 }),
            ..Memory::default()
        })
    },
};

/// Weights and biases of a block: 12 h^2 + 13 h (Vaswani et al. 2017 with a four-fold inner width, two norms).
pub(crate) fn block_parameters(hidden: u64) -> u64 {
    times(&[12, hidden, hidden]).saturating_add(times(&[13, hidden]))
}

/// One block with its attention spelled out: 24 b s h^2 + 4 b s^2 h FLOPs in products (Narayanan et al., SC21, appendix).
fn block(axes: &Axes) -> Vec<Op> {
    let (batch, sequence) = (axes.integer("batch"), axes.integer("sequence"));
    let (hidden, head_dim, dtype) = (axes.integer("hidden"), axes.integer("head_dim"), axes.dtype());
    let (tokens, heads) = (times(&[batch, sequence]), times(&[batch, hidden / head_dim]));
    let gemm = |n, k| Op::Gemm { m: tokens, n, k, batch: 1, dtype };
    let norm = Op::Norm { rows: tokens, columns: hidden, pass: Pass::Forward, dtype };
    let wide = times(&[4, hidden]);
    vec![
        norm,
        gemm(times(&[3, hidden]), hidden),
        Op::Gemm { m: sequence, n: sequence, k: head_dim, batch: heads, dtype },
        Op::Softmax { rows: times(&[heads, sequence]), columns: sequence, pass: Pass::Forward, dtype },
        Op::Gemm { m: sequence, n: head_dim, k: sequence, batch: heads, dtype },
        gemm(hidden, hidden),
        pointwise(times(&[tokens, hidden]), 2, 1, dtype),
        norm,
        gemm(wide, hidden),
        pointwise(times(&[tokens, wide]), 1, GELU_FLOPS, dtype),
        gemm(hidden, wide),
        pointwise(times(&[tokens, hidden]), 2, 1, dtype),
    ]
}

/// `layers` square layers, each a product and a rectified bias.
pub(crate) fn perceptron(batch: u64, hidden: u64, layers: u64, dtype: Dtype) -> Vec<Op> {
    let layer = [
        Op::Gemm { m: batch, n: hidden, k: hidden, batch: 1, dtype },
        pointwise(times(&[batch, hidden]), 1, 2, dtype),
    ];
    (0..layers).flat_map(|_| layer).collect()
}

pub(crate) fn whole_heads(axes: &Axes) -> Result<(), Refusal> {
    let (hidden, head_dim) = (axes.integer("hidden"), axes.integer("head_dim"));
    if hidden % head_dim == 0 {
        return Ok(());
    }
    Err(Refusal { axis: "hidden", why: format!("{hidden} is no multiple of head_dim {head_dim}") })
}
