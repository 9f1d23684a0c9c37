//! Fused attention: tensor cores where the format and the head allow it, a split context for few queries.

use super::{Lowering, dtype_of};
use crate::launch::call::{Call, View, typed};
use crate::launch::error::LaunchError;
use crate::launch::fill::Fill;
use crate::launch::format::Format;
use crate::op::{Op, Pass};

/// Widest head of the kernels that work without tensor cores.
const WIDEST_HEAD: u64 = 256;
/// Queries of one block of the tensor-core kernel.
const QUERY_TILE: u64 = 64;
/// Fewer queries than this leave most of a tile empty.
const FEWEST_QUERIES: u64 = 16;
/// Query rows that share the keys they read in the other kernels.
const CHUNK: u64 = 4;
/// Query rows, or keys, of a block of the backward kernels.
const PAIR: u64 = 2;
/// A part of a split context has at least this many keys.
const SPLIT_KEYS: u64 = 256;

/// Sizes of one attention.
#[derive(Clone, Copy)]
struct Shape {
    batch: u64,
    heads: u64,
    kv_heads: u64,
    query: u64,
    context: u64,
    head_dim: u64,
    causal: bool,
}

/// Queries, keys and values, and the elements from one position to the next.
struct Operands {
    q: View,
    k: View,
    v: View,
    q_row: u64,
    kv_row: u64,
}

impl Shape {
    const fn queries(&self) -> u64 {
        self.batch * self.query * self.heads * self.head_dim
    }

    const fn keys(&self) -> u64 {
        self.batch * self.context * self.kv_heads * self.head_dim
    }

    /// Elements from the first of a packed array to the end of the last row, `row` elements apart.
    const fn span(positions: u64, row: u64, width: u64) -> u64 {
        (positions - 1) * row + width
    }

    fn scale(&self) -> f64 {
        (self.head_dim as f64).sqrt().recip()
    }

    /// The sizes as the kernels take them.
    fn arguments(&self, call: Call, operands: &Operands) -> Call {
        call.u32(self.heads)
            .u32(self.kv_heads)
            .u32(self.query)
            .u32(self.context)
            .u32(self.head_dim)
            .u32(operands.q_row)
            .u32(operands.kv_row)
            .u32(u64::from(self.causal))
            .f32(self.scale())
    }
}

impl Lowering<'_> {
    pub(super) fn attention(&mut self, op: &Op) -> Result<(), LaunchError> {
        let Op::Attention { batch, heads, kv_heads, query, context, head_dim, causal, pass, dtype } = *op
        else {
            return Ok(());
        };
        let shape = Shape {
            batch: batch.max(1),
            heads: heads.max(1),
            kv_heads: kv_heads.clamp(1, heads.max(1)),
            query: query.max(1),
            // With a mask, query i of q stands at position context - q + i.
            context: if causal { context.max(query) } else { context }.max(1),
            head_dim: head_dim.max(1),
            causal,
        };
        check("a head", head_dim, WIDEST_HEAD)?;
        check("the context", shape.context.max(shape.query), 1 << 30)?;
        let format = Format::of(dtype);
        if format == Format::F64 {
            return Err(LaunchError::Format { op: "attention", dtype });
        }
        let flops = op.demand().flops().get();
        if pass == Pass::Backward {
            Self::require_trained("attention", format)?;
            return self.attention_backward(op, shape, format, flops);
        }
        let operands = self.attention_operands(shape, format);
        let out = self.output(format, shape.queries());
        let is_tensor = self.target.compute_capability
            >= if format == Format::E4m3 { (8, 9) } else { (8, 0) }
            && format != Format::F32
            && matches!(head_dim, 64 | 128)
            && shape.query >= FEWEST_QUERIES;
        if is_tensor {
            let function = match head_dim {
                64 => typed!("attention", "attention_64", format, "attention"),
                _ => typed!("attention", "attention_128", format, "attention"),
            }?;
            let call = Call::new(function).read(operands.q).read(operands.k).read(operands.v).write(out);
            let call = shape.arguments(call, &operands).block(128).flops(flops);
            let grid = [shape.query.div_ceil(QUERY_TILE), shape.heads, shape.batch];
            self.kernel(call.grid("attention", grid)?);
        } else {
            self.attention_split(shape, &operands, out, flops)?;
        }
        self.record(op, vec![operands.q, operands.k, operands.v], out, false, false);
        Ok(())
    }

    /// Without tensor cores: a block has up to four query rows of one key head and a part of the context.
    fn attention_split(
        &mut self,
        shape: Shape,
        operands: &Operands,
        out: View,
        flops: f64,
    ) -> Result<(), LaunchError> {
        let chunks = (shape.query * (shape.heads / shape.kv_heads)).div_ceil(CHUNK);
        let blocks = chunks * shape.kv_heads * shape.batch;
        let wanted = (4 * u64::from(self.target.multiprocessors)).div_ceil(blocks);
        let splits = wanted.min(shape.context.div_ceil(SPLIT_KEYS)).max(1);
        let partial = if splits > 1 {
            self.transient("partial sums", Format::F32, blocks * splits * CHUNK * (shape.head_dim + 2))
        } else {
            View { format: Format::F32, elements: 0, ..out }
        };
        let call = Call::new(typed!("attention", "attention_split", out.format, "attention")?)
            .read(operands.q)
            .read(operands.k)
            .read(operands.v)
            .write(out.take(if splits > 1 { 0 } else { out.elements }))
            .write(partial);
        let call = shape.arguments(call, operands).u32(splits).block(128).flops(flops);
        self.kernel(call.grid("attention", [chunks * splits, shape.kv_heads, shape.batch])?);
        if splits > 1 {
            let combine = Call::new(typed!("attention", "attention_combine", out.format, "attention")?)
                .read(partial)
                .write(out)
                .u32(shape.heads)
                .u32(shape.kv_heads)
                .u32(shape.query)
                .u32(shape.head_dim)
                .u32(splits)
                .block(128);
            self.kernel(combine.grid("attention", [chunks, shape.kv_heads, shape.batch])?);
        }
        Ok(())
    }

    /// Gradients of queries, then of keys and values, each with the scores computed again.
    fn attention_backward(
        &mut self,
        op: &Op,
        shape: Shape,
        format: Format,
        flops: f64,
    ) -> Result<(), LaunchError> {
        let (operands, o, gradient) = match self.forward_of(op) {
            Some((record, _)) => {
                let gradient = self.gradient_of(record, format, shape.queries());
                let record = &self.records[record];
                let (q, k, v) = (record.inputs[0], record.inputs[1], record.inputs[2]);
                let (q_width, kv_width) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
                // Packed where the forward pass read them packed.
                let packed = q_width + 2 * kv_width;
                let row = |view: View, positions: u64, width: u64| {
                    if view.elements == Shape::span(positions, packed, width) { packed } else { width }
                };
                let operands = Operands {
                    q,
                    k,
                    v,
                    q_row: row(q, shape.batch * shape.query, q_width),
                    kv_row: row(k, shape.batch * shape.context, kv_width),
                };
                (operands, record.output, gradient)
            }
            None => {
                let gradient = self.operand(format, shape.queries());
                let o = self.second(format, shape.queries(), gradient);
                (self.attention_operands(shape, format), o, gradient)
            }
        };
        let out = self.output(format, shape.queries() + 2 * shape.keys());
        let dq = out.take(shape.queries());
        let dk = out.from(shape.queries()).take(shape.keys());
        let dv = out.from(shape.queries() + shape.keys()).take(shape.keys());
        // Of each query row: the logarithm of the sum of its weights, and the product of result and gradient.
        let rows = shape.batch * shape.heads * shape.query;
        let stats = self.transient("attention rows", Format::F32, 2 * rows);
        let pairs = (shape.query * (shape.heads / shape.kv_heads)).div_ceil(PAIR);
        let call = Call::new(typed!("attention", "attention_backward_query", format, "attention")?)
            .read(operands.q)
            .read(operands.k)
            .read(operands.v)
            .read(o)
            .read(gradient)
            .write(dq)
            .write(stats);
        let call = shape.arguments(call, &operands).block(128).flops(flops * 0.4);
        self.kernel(call.grid("attention", [pairs, shape.kv_heads, shape.batch])?);
        let call = Call::new(typed!("attention", "attention_backward_key", format, "attention")?)
            .read(operands.q)
            .read(operands.k)
            .read(operands.v)
            .read(gradient)
            .read(stats)
            .write(dk)
            .write(dv);
        let call = shape.arguments(call, &operands).block(128).flops(flops * 0.6);
        self.kernel(call.grid("attention", [shape.context.div_ceil(PAIR), shape.kv_heads, shape.batch])?);
        Ok(())
    }

    /// Queries from the product that made them, keys and values from there too or, for fewer queries than keys, from the
    /// cache.
    fn attention_operands(&mut self, shape: Shape, format: Format) -> Operands {
        let (q_width, kv_width) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        let packed = q_width + 2 * kv_width;
        let (rows, keys) = (shape.batch * shape.query, shape.batch * shape.context);
        let together = self
            .result(format, rows * packed, None)
            .filter(|view| self.whole(*view) == rows * packed && view.offset == 0);
        if let Some(view) = together {
            let q = view.take(Shape::span(rows, packed, q_width));
            if shape.query == shape.context {
                let span = Shape::span(keys, packed, kv_width);
                return Operands {
                    q,
                    k: view.from(q_width).take(span),
                    v: view.from(q_width + kv_width).take(span),
                    q_row: packed,
                    kv_row: packed,
                };
            }
            let (k, v) = self.cached(format, shape.keys());
            return Operands { q, k, v, q_row: packed, kv_row: kv_width };
        }
        let q = self.operand(format, shape.queries());
        let (k, v) = self.cached(format, shape.keys());
        Operands { q, k, v, q_row: q_width, kv_row: kv_width }
    }

    /// The next keys and values of the cache; each layer has its own.
    fn cached(&mut self, format: Format, elements: u64) -> (View, View) {
        let needed = 2 * super::aligned(elements, format);
        let (buffer, next) = match self.cache {
            Some((buffer, next, cached)) if cached == format => (buffer, next),
            _ => {
                let fill = Fill::Normal { dtype: dtype_of(format), deviation: 1.0 };
                (self.buffer("key-value cache", self.cache_bytes, fill), 0)
            }
        };
        let draft = &mut self.buffers[buffer];
        let bytes = needed * format.bytes();
        let first = if next > 0 && next + bytes > draft.bytes.next_multiple_of(1 << 16) { 0 } else { next };
        draft.bytes = draft.bytes.max(first + bytes);
        self.cache = Some((buffer, first + bytes, format));
        let view = |offset| View { buffer, offset, elements, format };
        (view(first), view(first + bytes / 2))
    }
}

fn check(what: &'static str, found: u64, limit: u64) -> Result<(), LaunchError> {
    if found <= limit { Ok(()) } else { Err(LaunchError::Size { op: "attention", what, found, limit }) }
}
