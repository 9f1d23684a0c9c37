//! Attention, with its parts of a split context and its gradients.

use super::{Arguments, Memory};
use crate::launch::error::LaunchError;
use crate::launch::format::Format;
use crate::launch::plan::Operand;

type Done = Result<(), LaunchError>;

/// Query rows of a block of the split kernels.
const CHUNK: usize = 4;
/// What the kernels take for the logarithm of nothing.
const NEVER: f64 = -1e30;

struct Shape {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    query: usize,
    context: usize,
    width: usize,
    q_row: usize,
    kv_row: usize,
    causal: bool,
    scale: f64,
}

impl Shape {
    fn read(arguments: &mut Arguments<'_>) -> Result<Self, LaunchError> {
        let batch = arguments.call.grid[2] as usize;
        let mut size = || arguments.size().map(|size| size as usize);
        let (heads, kv_heads, query, context) = (size()?, size()?, size()?, size()?);
        let (width, q_row, kv_row, causal) = (size()?, size()?, size()?, size()? != 0);
        let scale = arguments.number()?;
        Ok(Self { batch, heads, kv_heads, query, context, width, q_row, kv_row, causal, scale })
    }

    fn seen(&self, position: usize) -> usize {
        if self.causal { self.context - self.query + position + 1 } else { self.context }
    }

    fn rows(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let (batch, heads, query) = (self.batch, self.heads, self.query);
        (0..batch).flat_map(move |batch| {
            (0..heads).flat_map(move |head| (0..query).map(move |position| (batch, head, position)))
        })
    }

    const fn kv_head(&self, head: usize) -> usize {
        head / (self.heads / self.kv_heads)
    }

    const fn out(&self, batch: usize, head: usize, position: usize) -> usize {
        ((batch * self.query + position) * self.heads + head) * self.width
    }

    const fn stats(&self, batch: usize, head: usize, position: usize) -> usize {
        (batch * self.heads + head) * self.query + position
    }

    fn queries(&self) -> usize {
        self.batch * self.query * self.heads * self.width
    }
}

/// Queries, keys and values.
struct Data {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
}

impl Data {
    fn read(memory: &Memory, shape: &Shape, format: Format, at: [Operand; 3]) -> Self {
        let span =
            |positions: usize, row: usize, heads: usize| ((positions - 1) * row + heads * shape.width) as u64;
        let queries = span(shape.batch * shape.query, shape.q_row, shape.heads);
        let keys = span(shape.batch * shape.context, shape.kv_row, shape.kv_heads);
        Self {
            q: memory.read(at[0], format, queries),
            k: memory.read(at[1], format, keys),
            v: memory.read(at[2], format, keys),
        }
    }

    fn query<'a>(&'a self, shape: &Shape, batch: usize, head: usize, position: usize) -> &'a [f64] {
        &self.q[(batch * shape.query + position) * shape.q_row + head * shape.width..][..shape.width]
    }

    fn key<'a>(&'a self, shape: &Shape, batch: usize, head: usize, position: usize) -> &'a [f64] {
        &self.k[(batch * shape.context + position) * shape.kv_row + shape.kv_head(head) * shape.width..]
            [..shape.width]
    }

    fn value<'a>(&'a self, shape: &Shape, batch: usize, head: usize, position: usize) -> &'a [f64] {
        &self.v[(batch * shape.context + position) * shape.kv_row + shape.kv_head(head) * shape.width..]
            [..shape.width]
    }

    /// Weighted values over some keys: base-2 logarithm of the largest weight, sum of weights, sum of values.
    fn over(
        &self,
        shape: &Shape,
        (batch, head, position): (usize, usize, usize),
        keys: std::ops::Range<usize>,
    ) -> (f64, f64, Vec<f64>) {
        let query = self.query(shape, batch, head, position);
        let scores: Vec<f64> = keys
            .clone()
            .map(|key| dot(query, self.key(shape, batch, head, key)) * shape.scale * std::f64::consts::LOG2_E)
            .collect();
        let most = scores.iter().copied().fold(NEVER, f64::max);
        let (mut all, mut out) = (0.0, vec![0.0; shape.width]);
        for (key, score) in keys.zip(scores) {
            let weight = (score - most).exp2();
            all += weight;
            for (out, value) in out.iter_mut().zip(self.value(shape, batch, head, key)) {
                *out += weight * value;
            }
        }
        (most, all, out)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn operands<const N: usize>(arguments: &mut Arguments<'_>) -> Result<[Operand; N], LaunchError> {
    let mut all = [Operand { buffer: 0, offset: 0 }; N];
    for one in &mut all {
        *one = arguments.memory()?;
    }
    Ok(all)
}

pub(super) fn forward(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let [q, k, v, out] = operands(arguments)?;
    let shape = Shape::read(arguments)?;
    whole(memory, &shape, format, [q, k, v], out);
    Ok(())
}

fn whole(memory: &mut Memory, shape: &Shape, format: Format, at: [Operand; 3], out: Operand) {
    let data = Data::read(memory, shape, format, at);
    let mut result = vec![0.0; shape.queries()];
    for row in shape.rows() {
        let (_, all, sum) = data.over(shape, row, 0..shape.seen(row.2));
        for (result, value) in result[shape.out(row.0, row.1, row.2)..].iter_mut().zip(sum) {
            *result = value / all;
        }
    }
    memory.write(out, format, &result);
}

pub(super) fn split(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let [q, k, v, out, partial] = operands(arguments)?;
    let shape = Shape::read(arguments)?;
    let splits = arguments.size()? as usize;
    if splits == 1 {
        whole(memory, &shape, format, [q, k, v], out);
        return Ok(());
    }
    let data = Data::read(memory, &shape, format, [q, k, v]);
    let group = shape.heads / shape.kv_heads;
    let (rows, part) = (shape.query * group, shape.context.div_ceil(splits));
    let chunks = rows.div_ceil(CHUNK);
    let mut all = Vec::new();
    for batch in 0..shape.batch {
        for kv_head in 0..shape.kv_heads {
            for chunk in 0..chunks {
                for split in 0..splits {
                    for row in chunk * CHUNK..(chunk + 1) * CHUNK {
                        // Rows past the end are like the last.
                        let row = row.min(rows - 1);
                        let position = row / group;
                        let begin = split * part;
                        let end = (begin + part).min(shape.seen(position)).max(begin);
                        let at = (batch, kv_head * group + row % group, position);
                        let (most, sum, values) = data.over(&shape, at, begin..end);
                        all.extend([most, sum]);
                        all.extend(values);
                    }
                }
            }
        }
    }
    memory.write(partial, Format::F32, &all);
    Ok(())
}

pub(super) fn combine(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let [partial, out] = operands(arguments)?;
    let [chunks, _, batch] = arguments.call.grid.map(|side| side as usize);
    let mut size = || arguments.size().map(|size| size as usize);
    let (heads, kv_heads, query, width, splits) = (size()?, size()?, size()?, size()?, size()?);
    let (group, step) = (heads / kv_heads, width + 2);
    let parts = batch * kv_heads * chunks * splits * CHUNK * step;
    let parts = memory.read(partial, Format::F32, parts as u64);
    let mut result = vec![0.0; batch * query * heads * width];
    for batch in 0..batch {
        for kv_head in 0..kv_heads {
            for row in 0..query * group {
                let first =
                    ((batch * kv_heads + kv_head) * chunks + row / CHUNK) * splits * CHUNK + row % CHUNK;
                let of = |split: usize| &parts[(first + split * CHUNK) * step..][..step];
                let most = (0..splits).map(|split| of(split)[0]).fold(NEVER, f64::max);
                let all: f64 = (0..splits).map(|split| of(split)[1] * (of(split)[0] - most).exp2()).sum();
                let place = ((batch * query + row / group) * heads + kv_head * group + row % group) * width;
                for column in 0..width {
                    let sum: f64 =
                        (0..splits).map(|split| of(split)[2 + column] * (of(split)[0] - most).exp2()).sum();
                    result[place + column] = sum / all;
                }
            }
        }
    }
    memory.write(out, format, &result);
    Ok(())
}

pub(super) fn backward_query(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let [q, k, v, o, gradient, dq, stats] = operands(arguments)?;
    let shape = Shape::read(arguments)?;
    let data = Data::read(memory, &shape, format, [q, k, v]);
    let o = memory.read(o, format, shape.queries() as u64);
    let gradient = memory.read(gradient, format, shape.queries() as u64);
    let rows = shape.batch * shape.heads * shape.query;
    let (mut result, mut kept) = (vec![0.0; shape.queries()], vec![0.0; 2 * rows]);
    for row @ (batch, head, position) in shape.rows() {
        let place = shape.out(batch, head, position);
        let grad = &gradient[place..place + shape.width];
        let product = dot(grad, &o[place..place + shape.width]);
        let seen = shape.seen(position);
        let (most, all, _) = data.over(&shape, row, 0..seen);
        let logarithm = most + all.log2();
        kept[shape.stats(batch, head, position)] = logarithm;
        kept[rows + shape.stats(batch, head, position)] = product;
        let query = data.query(&shape, batch, head, position);
        for key in 0..seen {
            let of_key = data.key(&shape, batch, head, key);
            let score = dot(query, of_key) * shape.scale * std::f64::consts::LOG2_E;
            let dp = dot(grad, data.value(&shape, batch, head, key));
            let ds = (score - logarithm).exp2() * (dp - product) * shape.scale;
            for (result, key) in result[place..].iter_mut().zip(of_key) {
                *result += ds * key;
            }
        }
    }
    memory.write(dq, format, &result);
    memory.write(stats, Format::F32, &kept);
    Ok(())
}

pub(super) fn backward_key(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let [q, k, v, gradient, stats, dk, dv] = operands(arguments)?;
    let shape = Shape::read(arguments)?;
    let data = Data::read(memory, &shape, format, [q, k, v]);
    let gradient = memory.read(gradient, format, shape.queries() as u64);
    let rows = shape.batch * shape.heads * shape.query;
    let stats = memory.read(stats, Format::F32, 2 * rows as u64);
    let elements = shape.batch * shape.context * shape.kv_heads * shape.width;
    let (mut of_keys, mut of_values) = (vec![0.0; elements], vec![0.0; elements]);
    for (batch, head, position) in shape.rows() {
        let from = shape.out(batch, head, position);
        let grad = &gradient[from..from + shape.width];
        let (logarithm, product) =
            (stats[shape.stats(batch, head, position)], stats[rows + shape.stats(batch, head, position)]);
        let query = data.query(&shape, batch, head, position);
        for key in 0..shape.seen(position) {
            let score =
                dot(query, data.key(&shape, batch, head, key)) * shape.scale * std::f64::consts::LOG2_E;
            let p = (score - logarithm).exp2();
            let ds = p * (dot(grad, data.value(&shape, batch, head, key)) - product) * shape.scale;
            let place = ((batch * shape.context + key) * shape.kv_heads + shape.kv_head(head)) * shape.width;
            for i in 0..shape.width {
                of_keys[place + i] += ds * query[i];
                of_values[place + i] += p * grad[i];
            }
        }
    }
    memory.write(dk, format, &of_keys);
    memory.write(dv, format, &of_values);
    Ok(())
}
