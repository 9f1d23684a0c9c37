//! Token generation: one position per sequence and step.

use super::transformer::whole_heads;
use super::{INFERENCE, InferenceStep, inference, pointwise, times};
use crate::axes::{Axes, Axis};
use crate::op::{Op, Pass};
use crate::structure::{Refusal, Structure};
use elastico_core::WorkloadKind;

pub(crate) const DECODE: Structure = Structure {
    name: "transformer_decode",
    kind: WorkloadKind::Inference,
    meaning: "one token per sequence: weights and key-value cache are read once, then the vocabulary head",
    axes: &[
        Axis::integer("batch", "b", "sequences decoded together", 1, 65_536).shrink(1),
        Axis::integer("context", "c", "tokens already in the cache", 16, 1_048_576).shrink(64),
        Axis::integer("hidden", "h", "width of the residual stream", 128, 65_536).shrink(256),
        Axis::integer("head_dim", "d", "width of a head", 16, 256).or(128).shrink(32),
        Axis::integer("group", "q", "query heads that share a key-value head", 1, 64).or(4).shrink(1),
        Axis::integer("layers", "l", "blocks", 1, 64).or(4).shrink(1),
        Axis::integer("vocabulary", "v", "entries of the output head; 0 leaves it out", 0, 1_000_000)
            .or(32_000)
            .shrink(1_000),
        Axis::integer("gap", "g", "host time before a step, in microseconds", 0, 1_000_000).or(50),
        Axis::dtype(INFERENCE),
    ],
    check: grouped_heads,
    build: |axes| {
        let (batch, hidden, layers) = (axes.integer("batch"), axes.integer("hidden"), axes.integer("layers"));
        let (dtype, vocabulary) = (axes.dtype(), axes.integer("vocabulary"));
        let attention = Attention::of(axes);
        let gemm = |n, k| Op::Gemm { m: batch, n, k, batch: 1, dtype };
        let wide = times(&[4, hidden]);
        let mut forward = Vec::new();
        for _ in 0..layers {
            forward.extend(attention.ops());
            forward.extend([
                gemm(wide, hidden),
                pointwise(times(&[batch, wide]), 1, 10, dtype),
                gemm(hidden, wide),
                pointwise(times(&[batch, hidden]), 2, 1, dtype),
            ]);
        }
        if vocabulary > 0 {
            forward.push(gemm(vocabulary, hidden));
            forward.push(Op::Softmax { rows: batch, columns: vocabulary, pass: Pass::Forward, dtype });
        }
        let parameters = layers as f64 * (attention.parameters() + 2.0 * wide as f64 * hidden as f64)
            + vocabulary as f64 * hidden as f64;
        inference(InferenceStep {
            gap: axes.integer("gap"),
            input: 0,
            output: times(&[batch, 4]),
            forward,
            weights: parameters * dtype.bytes(),
            cache: layers as f64 * attention.cache_bytes(),
        })
    },
};

pub(crate) const EXPERTS: Structure = Structure {
    name: "experts_decode",
    kind: WorkloadKind::Inference,
    meaning: "one token per sequence through a mixture of experts with an uneven router",
    axes: &[
        Axis::integer("batch", "b", "sequences decoded together", 1, 65_536).shrink(1),
        Axis::integer("context", "c", "tokens already in the cache", 16, 1_048_576).shrink(64),
        Axis::integer("hidden", "h", "width of the residual stream", 128, 65_536).shrink(128),
        Axis::integer("experts", "e", "experts of a layer", 2, 1_024).shrink(4),
        Axis::integer("chosen", "k", "experts that a token is sent to", 1, 64).or(2),
        Axis::integer("inner", "f", "inner width of an expert", 64, 65_536).or(1_024).shrink(128),
        Axis::integer("head_dim", "d", "width of a head", 16, 256).or(128).shrink(32),
        Axis::integer("group", "q", "query heads that share a key-value head", 1, 64).or(4).shrink(1),
        Axis::integer("layers", "l", "blocks", 1, 64).or(2).shrink(1),
        Axis::integer("gap", "g", "host time before a step, in microseconds", 0, 1_000_000).or(50),
        Axis::dtype(INFERENCE),
    ],
    check: |axes| {
        grouped_heads(axes)?;
        let (experts, chosen) = (axes.integer("experts"), axes.integer("chosen"));
        if chosen <= experts {
            return Ok(());
        }
        Err(Refusal { axis: "chosen", why: format!("{chosen} of {experts} experts cannot be chosen") })
    },
    build: |axes| {
        let (batch, hidden, layers) = (axes.integer("batch"), axes.integer("hidden"), axes.integer("layers"));
        let (experts, chosen, inner) =
            (axes.integer("experts"), axes.integer("chosen"), axes.integer("inner"));
        let dtype = axes.dtype();
        let attention = Attention::of(axes);
        let mut forward = Vec::new();
        for _ in 0..layers {
            forward.extend(attention.ops());
            forward.push(Op::Gemm { m: batch, n: experts, k: hidden, batch: 1, dtype });
            forward.push(Op::Softmax { rows: batch, columns: experts, pass: Pass::Forward, dtype });
            // The router sends half of the tokens to a quarter of the experts.
            let hot = (experts / 4).max(1);
            let assigned = times(&[batch, chosen]);
            for (group, tokens) in [(hot, assigned.div_ceil(2)), (experts - hot, assigned / 2)] {
                if let Some((active, rows)) = spread(tokens, group) {
                    forward.push(Op::Gemm { m: rows, n: inner, k: hidden, batch: active, dtype });
                    forward.push(pointwise(times(&[active, rows, inner]), 1, 10, dtype));
                    forward.push(Op::Gemm { m: rows, n: hidden, k: inner, batch: active, dtype });
                }
            }
            // Weighted sum of the chosen experts' outputs and the residual.
            forward.push(pointwise(times(&[batch, hidden]), chosen as u32 + 1, 2 * chosen as u32, dtype));
        }
        let layer = attention.parameters() + experts as f64 * hidden as f64 * (2.0 * inner as f64 + 1.0);
        inference(InferenceStep {
            gap: axes.integer("gap"),
            input: 0,
            output: times(&[batch, 4]),
            forward,
            weights: layers as f64 * layer * dtype.bytes(),
            cache: layers as f64 * attention.cache_bytes(),
        })
    },
};

/// How many of `experts` get any of `tokens` sent to them at random, and how many rows each then has, rounded up.
fn spread(tokens: u64, experts: u64) -> Option<(u64, u64)> {
    if tokens == 0 || experts == 0 {
        return None;
    }
    // Expected number of occupied bins: e (1 - (1 - 1/e)^t).
    let bins = experts as f64;
    let occupied = bins * (1.0 - (1.0 - 1.0 / bins).powf(tokens as f64));
    let active = (occupied.round() as u64).clamp(1, experts.min(tokens));
    Some((active, tokens.div_ceil(active)))
}

fn grouped_heads(axes: &Axes) -> Result<(), Refusal> {
    whole_heads(axes)?;
    let (heads, group) = (axes.integer("hidden") / axes.integer("head_dim"), axes.integer("group"));
    if heads % group == 0 {
        return Ok(());
    }
    Err(Refusal { axis: "group", why: format!("{heads} query heads are no multiple of {group}") })
}

/// The attention half of a decoding block.
struct Attention<'a> {
    axes: &'a Axes,
    /// Width of keys, and of values: hidden / group.
    narrow: u64,
}

impl<'a> Attention<'a> {
    fn of(axes: &'a Axes) -> Self {
        Self { axes, narrow: axes.integer("hidden") / axes.integer("group") }
    }

    fn ops(&self) -> [Op; 7] {
        let axes = self.axes;
        let (batch, hidden, dtype) = (axes.integer("batch"), axes.integer("hidden"), axes.dtype());
        let head_dim = axes.integer("head_dim");
        let gemm = |n, k| Op::Gemm { m: batch, n, k, batch: 1, dtype };
        let norm = Op::Norm { rows: batch, columns: hidden, pass: Pass::Forward, dtype };
        [
            norm,
            gemm(hidden + 2 * self.narrow, hidden),
            // The new key and value are written into the cache.
            pointwise(times(&[batch, 2, self.narrow]), 1, 0, dtype),
            Op::Attention {
                batch,
                heads: hidden / head_dim,
                kv_heads: self.narrow / head_dim,
                query: 1,
                context: axes.integer("context"),
                head_dim,
                causal: false,
                pass: Pass::Forward,
                dtype,
            },
            gemm(hidden, hidden),
            pointwise(times(&[batch, hidden]), 2, 1, dtype),
            norm,
        ]
    }

    /// Query, key, value and output projections: 2 h^2 + 2 h h/group.
    fn parameters(&self) -> f64 {
        let hidden = self.axes.integer("hidden") as f64;
        2.0 * hidden * (hidden + self.narrow as f64)
    }

    /// Keys and values of one layer.
    fn cache_bytes(&self) -> f64 {
        let tokens = self.axes.integer("batch") as f64 * self.axes.integer("context") as f64;
        2.0 * tokens * self.narrow as f64 * self.axes.dtype().bytes()
    }
}
