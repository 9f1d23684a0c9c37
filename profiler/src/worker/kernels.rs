//! The arithmetic of the ops on slices of FP32. Each function is what one lane does of one op.

use elastico_gpu::product::{Matrix, Real};

/// Rows of a product that are made at a time, so that scratch stays in the caches.
pub(super) const BLOCK: usize = 64;

/// Layer normalisation of each row.
pub(super) fn norm_forward(columns: usize, input: &[f32], output: &mut [f32]) {
    for (row, out) in input.chunks_exact(columns).zip(output.chunks_exact_mut(columns)) {
        let (mean, scale) = moments(row);
        for (value, out) in row.iter().zip(out) {
            *out = (value - mean) * scale * 1.01 + 0.01;
        }
    }
}

/// Gradient of a layer normalisation from its input and the gradient of its output.
pub(super) fn norm_backward(columns: usize, input: &[f32], gradient: &[f32], output: &mut [f32]) {
    let rows = input.chunks_exact(columns).zip(gradient.chunks_exact(columns));
    for ((row, gradient), out) in rows.zip(output.chunks_exact_mut(columns)) {
        let (mean, scale) = moments(row);
        let inverse = 1.0 / columns as f32;
        let mean_gradient = gradient.iter().sum::<f32>() * inverse;
        let projection: f32 =
            row.iter().zip(gradient).map(|(value, gradient)| (value - mean) * scale * gradient).sum();
        let projection = projection * inverse;
        for ((value, gradient), out) in row.iter().zip(gradient).zip(out) {
            *out = (gradient - mean_gradient - (value - mean) * scale * projection) * scale;
        }
    }
}

/// Mean and inverse standard deviation.
fn moments(row: &[f32]) -> (f32, f32) {
    let (sum, squares) =
        row.iter().fold((0.0, 0.0), |(sum, squares), value| (sum + value, squares + value * value));
    let inverse = 1.0 / row.len() as f32;
    let mean = sum * inverse;
    (mean, 1.0 / (squares * inverse - mean * mean + 1e-5).max(1e-5).sqrt())
}

/// Softmax of one row in place.
pub(super) fn softmax_row(row: &mut [f32]) {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for value in row.iter_mut() {
        *value = (*value - largest).exp();
        sum += *value;
    }
    let inverse = 1.0 / sum;
    for value in row {
        *value *= inverse;
    }
}

/// Softmax of each row.
pub(super) fn softmax_forward(columns: usize, input: &[f32], output: &mut [f32]) {
    for (row, out) in input.chunks_exact(columns).zip(output.chunks_exact_mut(columns)) {
        out.copy_from_slice(row);
        softmax_row(out);
    }
}

/// Gradient of a softmax from its output and the gradient of that.
pub(super) fn softmax_backward(columns: usize, probabilities: &[f32], gradient: &[f32], output: &mut [f32]) {
    let rows = probabilities.chunks_exact(columns).zip(gradient.chunks_exact(columns));
    for ((row, gradient), out) in rows.zip(output.chunks_exact_mut(columns)) {
        let dot: f32 = row.iter().zip(gradient).map(|(left, right)| left * right).sum();
        for ((value, gradient), out) in row.iter().zip(gradient).zip(out) {
            *out = value * (gradient - dot);
        }
    }
}

/// A pointwise function of `inputs` arrays that are one after the other in `input`; writes `outputs` arrays.
pub(super) fn elementwise(
    elements: usize,
    (inputs, outputs): (usize, usize),
    flops: usize,
    input: &[f32],
    output: &mut [f32],
) {
    const CHUNK: usize = 512;
    let mut work = [0.7_f32; CHUNK];
    for start in (0..elements).step_by(CHUNK) {
        let count = CHUNK.min(elements - start);
        let work = &mut work[..count];
        for array in 0..inputs {
            let from = &input[array * elements + start..][..count];
            if array == 0 {
                work.copy_from_slice(from);
            } else {
                for (value, other) in work.iter_mut().zip(from) {
                    *value = 0.5 * (*value + other);
                }
            }
        }
        // Each pass is a multiply and an addition whose fixed point is 1.
        for _ in 0..flops.div_ceil(2) {
            for value in work.iter_mut() {
                *value = *value * 0.75 + 0.25;
            }
        }
        for array in 0..outputs {
            output[array * elements + start..][..count].copy_from_slice(work);
        }
    }
}

/// Sums of `pooled` rows of a table at a time.
pub(super) fn gather(columns: usize, pooled: usize, rows: &[u32], table: &[f32], output: &mut [f32]) {
    for (group, out) in rows.chunks(pooled).zip(output.chunks_exact_mut(columns)) {
        let mut group = group.iter().map(|row| &table[*row as usize * columns..][..columns]);
        if let Some(first) = group.next() {
            out.copy_from_slice(first);
        }
        for row in group {
            for (sum, value) in out.iter_mut().zip(row) {
                *sum += value;
            }
        }
    }
}

/// Adds rows to rows of a table.
pub(super) fn scatter(columns: usize, rows: &[u32], input: &[f32], table: &mut [f32]) {
    for (row, addend) in rows.iter().zip(input.chunks_exact(columns)) {
        for (value, addend) in table[*row as usize * columns..][..columns].iter_mut().zip(addend) {
            // Small enough that a table stays finite for as long as a campaign runs.
            *value += 1e-6 * addend;
        }
    }
}

/// One AdamW update; `state` holds weights, first and second moments one after the other.
///
/// Source: Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019, algorithm 2.
pub(super) fn adam(parameters: usize, gradient: &[f32], state: &mut [f32]) {
    let (weights, moments) = state.split_at_mut(parameters);
    let (first, second) = moments.split_at_mut(parameters);
    for (((weight, gradient), first), second) in weights.iter_mut().zip(gradient).zip(first).zip(second) {
        *first = 0.9 * *first + 0.1 * gradient;
        *second = 0.999 * *second + 0.001 * gradient * gradient;
        *weight -= 1e-3 * (*first / (second.sqrt() + 1e-8) + 0.01 * *weight);
    }
}

/// C = A B for `products` independent products, one after the other in each buffer.
pub(super) fn products<T: Real>(
    products: usize,
    (m, n, k): (usize, usize, usize),
    a: &[T],
    b: &[T],
    c: &mut [T],
    zero: T,
) {
    for index in 0..products {
        T::multiply(
            Matrix::new(&a[index * m * k..], m, k),
            Matrix::new(&b[index * k * n..], k, n),
            zero,
            &mut c[index * m * n..],
        );
    }
}

/// The sizes of attention for one lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attention {
    /// Pairs of sequence and query head.
    pub(super) heads: usize,
    /// Query heads that share a key head.
    pub(super) group: usize,
    pub(super) query: usize,
    pub(super) context: usize,
    pub(super) width: usize,
    pub(super) causal: bool,
    pub(super) backward: bool,
}

impl Attention {
    /// Key heads.
    pub(super) const fn groups(&self) -> usize {
        self.heads.div_ceil(self.group)
    }

    pub(super) const fn inputs(&self) -> usize {
        let queries = self.heads * self.query * self.width;
        let keys = 2 * self.groups() * self.context * self.width;
        // Backward reads the gradient of the output as well.
        if self.backward { 2 * queries + keys } else { queries + keys }
    }

    pub(super) const fn outputs(&self) -> usize {
        let queries = self.heads * self.query * self.width;
        if self.backward { queries + 2 * self.groups() * self.context * self.width } else { queries }
    }

    pub(super) const fn scratch(&self) -> usize {
        BLOCK * self.context * if self.backward { 2 } else { 1 }
    }

    /// Keys that the rows up to `last` see.
    const fn visible(&self, last: usize) -> usize {
        if self.causal {
            let hidden = self.query.saturating_sub(last);
            if self.context > hidden { self.context - hidden } else { 1 }
        } else {
            self.context
        }
    }

    pub(super) fn run(&self, input: &[f32], output: &mut [f32], scratch: &mut [f32]) {
        let (size, keys) = (self.query * self.width, self.context * self.width);
        let (queries, rest) = input.split_at(self.heads * size);
        let (key_values, gradients) = rest.split_at(2 * self.groups() * keys);
        let (out, key_gradients) = output.split_at_mut(self.heads * size);
        let scale = (self.width as f32).sqrt().recip();
        key_gradients.fill(0.0);
        for head in 0..self.heads {
            let group = head / self.group;
            let (key, value) = key_values[2 * group * keys..][..2 * keys].split_at(keys);
            for first in (0..self.query).step_by(BLOCK) {
                let rows = BLOCK.min(self.query - first);
                let seen = self.visible(first + rows);
                let place = head * size + first * self.width;
                let query = Matrix::new(&queries[place..], rows, self.width);
                let (key, value) = (Matrix::new(key, seen, self.width), Matrix::new(value, seen, self.width));
                let (scores, more) = scratch.split_at_mut(rows * seen);
                f32::multiply(query, key.transposed(), 0.0, scores);
                for (offset, row) in scores.chunks_exact_mut(seen).enumerate() {
                    let own = self.visible(first + offset + 1);
                    for score in &mut row[..own] {
                        *score *= scale;
                    }
                    softmax_row(&mut row[..own]);
                    row[own..].fill(0.0);
                }
                let probabilities = Matrix::new(&*scores, rows, seen);
                if !self.backward {
                    f32::multiply(probabilities, value, 0.0, &mut out[place..]);
                    continue;
                }
                let gradient = Matrix::new(&gradients[place..], rows, self.width);
                let (key_gradient, value_gradient) =
                    key_gradients[2 * group * keys..][..2 * keys].split_at_mut(keys);
                f32::multiply(probabilities.transposed(), gradient, 1.0, value_gradient);
                let inner = &mut more[..rows * seen];
                f32::multiply(gradient, value.transposed(), 0.0, inner);
                for (row, inner) in scores.chunks_exact_mut(seen).zip(inner.chunks_exact(seen)) {
                    let dot: f32 = row.iter().zip(inner).map(|(left, right)| left * right).sum();
                    for (value, inner) in row.iter_mut().zip(inner) {
                        *value *= (inner - dot) * scale;
                    }
                }
                let differences = Matrix::new(&*scores, rows, seen);
                f32::multiply(differences, key, 0.0, &mut out[place..]);
                f32::multiply(differences.transposed(), query, 1.0, key_gradient);
            }
        }
    }
}

/// Which of the three products of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConvolutionKind {
    Forward,
    Data,
    Filter,
}

/// The sizes of a convolution for one lane: an implicit product over patches, as channels-last frameworks do it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Convolution {
    pub(super) kind: ConvolutionKind,
    /// Output pixels, all images together.
    pub(super) pixels: usize,
    pub(super) channels_in: usize,
    pub(super) channels_out: usize,
    /// Height and width of the input.
    pub(super) size: usize,
    pub(super) kernel: usize,
    pub(super) stride: usize,
}

impl Convolution {
    const fn patch(&self) -> usize {
        self.kernel * self.kernel * self.channels_in
    }

    /// The part of the image that one lane walks over, with the rows that its last patch needs.
    const fn image(&self) -> usize {
        self.pixels * self.stride * self.stride * self.channels_in + self.reach()
    }

    /// Elements from the start of a patch to its end.
    const fn reach(&self) -> usize {
        (self.kernel - 1) * self.size * self.channels_in + self.kernel * self.channels_in
    }

    pub(super) const fn weights(&self) -> usize {
        match self.kind {
            ConvolutionKind::Filter => 0,
            _ => self.patch() * self.channels_out,
        }
    }

    pub(super) const fn inputs(&self) -> usize {
        let outer = self.pixels * self.channels_out;
        match self.kind {
            ConvolutionKind::Forward => self.image(),
            ConvolutionKind::Data => outer,
            ConvolutionKind::Filter => self.image() + outer,
        }
    }

    pub(super) const fn outputs(&self) -> usize {
        match self.kind {
            ConvolutionKind::Forward => self.pixels * self.channels_out,
            ConvolutionKind::Data => self.image(),
            ConvolutionKind::Filter => self.patch() * self.channels_out,
        }
    }

    pub(super) const fn scratch(&self) -> usize {
        BLOCK * self.patch()
    }

    /// Starts of the contiguous segments of one pixel's patch, and their length.
    fn segments(&self, pixel: usize) -> (impl Iterator<Item = usize>, usize) {
        let start = pixel * self.stride * self.stride * self.channels_in;
        let pitch = self.size * self.channels_in;
        ((0..self.kernel).map(move |row| start + row * pitch), self.kernel * self.channels_in)
    }

    fn collect(&self, first: usize, image: &[f32], patches: &mut [f32]) {
        for (offset, patch) in patches.chunks_exact_mut(self.patch()).enumerate() {
            let (starts, length) = self.segments(first + offset);
            for (start, part) in starts.zip(patch.chunks_exact_mut(length)) {
                part.copy_from_slice(&image[start..start + length]);
            }
        }
    }

    fn spread(&self, first: usize, patches: &[f32], image: &mut [f32]) {
        for (offset, patch) in patches.chunks_exact(self.patch()).enumerate() {
            let (starts, length) = self.segments(first + offset);
            for (start, part) in starts.zip(patch.chunks_exact(length)) {
                for (sum, value) in image[start..start + length].iter_mut().zip(part) {
                    *sum += value;
                }
            }
        }
    }

    pub(super) fn run(&self, weights: &[f32], input: &[f32], output: &mut [f32], scratch: &mut [f32]) {
        let (patch, outer) = (self.patch(), self.channels_out);
        if self.kind != ConvolutionKind::Forward {
            output.fill(0.0);
        }
        for first in (0..self.pixels).step_by(BLOCK) {
            let rows = BLOCK.min(self.pixels - first);
            let patches = &mut scratch[..rows * patch];
            match self.kind {
                ConvolutionKind::Forward => {
                    self.collect(first, input, patches);
                    let (patches, filter) =
                        (Matrix::new(&*patches, rows, patch), Matrix::new(weights, patch, outer));
                    f32::multiply(patches, filter, 0.0, &mut output[first * outer..]);
                }
                ConvolutionKind::Data => {
                    let gradient = Matrix::new(&input[first * outer..], rows, outer);
                    let filter = Matrix::new(weights, patch, outer);
                    f32::multiply(gradient, filter.transposed(), 0.0, patches);
                    self.spread(first, patches, output);
                }
                ConvolutionKind::Filter => {
                    let (image, gradients) = input.split_at(self.image());
                    self.collect(first, image, patches);
                    let gradient = Matrix::new(&gradients[first * outer..], rows, outer);
                    f32::multiply(Matrix::new(&*patches, rows, patch).transposed(), gradient, 1.0, output);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f32, right: f32) -> bool {
        (left - right).abs() <= 1e-4 * right.abs().max(1.0)
    }

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|index| ((index * 37 + 11) % 23) as f32 / 23.0 - 0.4).collect()
    }

    #[test]
    fn softmax_rows_sum_to_one_and_their_gradient_to_zero() {
        let input = numbers(24);
        let mut output = vec![0.0; 24];
        softmax_forward(6, &input, &mut output);
        assert!(output.chunks(6).all(|row| close(row.iter().sum(), 1.0)));
        let mut gradient = vec![0.0; 24];
        softmax_backward(6, &output, &numbers(24), &mut gradient);
        assert!(gradient.chunks(6).all(|row| close(row.iter().sum(), 0.0)));
    }

    #[test]
    fn normalised_rows_have_mean_zero_and_deviation_one() {
        let mut output = vec![0.0; 64];
        norm_forward(32, &numbers(64), &mut output);
        for row in output.chunks(32) {
            let plain: Vec<f32> = row.iter().map(|value| (value - 0.01) / 1.01).collect();
            assert!(close(plain.iter().sum::<f32>() / 32.0, 0.0));
            // A little under 1 for the constant that keeps equal rows finite.
            let variance = plain.iter().map(|value| value * value).sum::<f32>() / 32.0;
            assert!((0.999..1.0001).contains(&variance), "{variance}");
        }
        let mut gradient = vec![0.0; 64];
        norm_backward(32, &numbers(64), &numbers(64), &mut gradient);
        assert!(gradient.chunks(32).all(|row| close(row.iter().sum(), 0.0)));
    }

    #[test]
    fn attention_in_blocks_equals_attention_by_the_formula() {
        let attention =
            Attention { heads: 4, group: 2, query: 70, context: 80, width: 8, causal: true, backward: false };
        let input = numbers(attention.inputs());
        let mut output = vec![0.0; attention.outputs()];
        attention.run(&input, &mut output, &mut vec![0.0; attention.scratch()]);
        let (size, keys) = (70 * 8, 80 * 8);
        for (head, row) in [(0, 0), (1, 63), (3, 69)] {
            let query = &input[head * size + row * 8..][..8];
            let base = 4 * size + 2 * (head / 2) * keys;
            let seen = 80 - 70 + row + 1;
            let mut scores: Vec<f32> = (0..seen)
                .map(|key| {
                    let key = &input[base + key * 8..][..8];
                    query.iter().zip(key).map(|(left, right)| left * right).sum::<f32>() / 8.0_f32.sqrt()
                })
                .collect();
            softmax_row(&mut scores);
            for column in 0..8 {
                let expected: f32 = scores
                    .iter()
                    .enumerate()
                    .map(|(key, share)| share * input[base + keys + key * 8 + column])
                    .sum();
                assert!(close(output[head * size + row * 8 + column], expected), "head {head}, row {row}");
            }
        }
    }

    #[test]
    fn attention_gradient_agrees_with_differences() {
        let forward =
            Attention { heads: 1, group: 1, query: 5, context: 5, width: 4, causal: false, backward: false };
        let backward = Attention { backward: true, ..forward };
        let mut input = numbers(backward.inputs());
        let mut gradients = vec![0.0; backward.outputs()];
        backward.run(&input, &mut gradients, &mut vec![0.0; backward.scratch()]);
        let loss = |input: &[f32]| {
            let mut output = vec![0.0; 20];
            forward.run(&input[..60], &mut output, &mut vec![0.0; forward.scratch()]);
            output
                .iter()
                .zip(&input[60..80])
                .map(|(value, gradient)| f64::from(value * gradient))
                .sum::<f64>()
        };
        // One element each of the queries, keys and values.
        for place in [3, 25, 47] {
            let before = input[place];
            input[place] = before + 0.01;
            let up = loss(&input);
            input[place] = before - 0.01;
            let down = loss(&input);
            input[place] = before;
            let expected = (up - down) / 0.02;
            assert!(
                (f64::from(gradients[place]) - expected).abs() < 2e-3,
                "{place}: {} {expected}",
                gradients[place]
            );
        }
    }

    #[test]
    fn convolution_products_are_adjoint() {
        let convolution = |kind| Convolution {
            kind,
            pixels: 70,
            channels_in: 3,
            channels_out: 5,
            size: 9,
            kernel: 3,
            stride: 1,
        };
        let forward = convolution(ConvolutionKind::Forward);
        let scratch = &mut vec![0.0; forward.scratch()];
        let (image, filter) = (numbers(forward.inputs()), numbers(forward.weights()));
        let gradient: Vec<f32> = numbers(forward.outputs()).iter().rev().copied().collect();
        let mut out = vec![0.0; forward.outputs()];
        forward.run(&filter, &image, &mut out, scratch);
        let dot = |left: &[f32], right: &[f32]| {
            left.iter().zip(right).map(|(left, right)| f64::from(left * right)).sum::<f64>()
        };
        let expected = dot(&out, &gradient);
        let data = convolution(ConvolutionKind::Data);
        let mut back = vec![0.0; data.outputs()];
        data.run(&filter, &gradient, &mut back, scratch);
        assert!((dot(&back, &image) - expected).abs() < 1e-3);
        let by_filter = convolution(ConvolutionKind::Filter);
        let mut filter_gradient = vec![0.0; by_filter.outputs()];
        by_filter.run(&[], &[image.clone(), gradient].concat(), &mut filter_gradient, scratch);
        assert!((dot(&filter_gradient, &filter) - expected).abs() < 1e-3);
    }

    #[test]
    fn gather_and_scatter_touch_the_named_rows() {
        let mut table: Vec<f32> = (0..12).map(|index| index as f32).collect();
        let mut output = vec![0.0; 4];
        gather(2, 2, &[0, 5, 3, 3], &table, &mut output);
        assert_eq!(output, [10.0, 12.0, 12.0, 14.0]);
        scatter(2, &[1, 1], &[1e6, 2e6, 1e6, 2e6], &mut table);
        assert_eq!(table[2..4], [4.0, 7.0]);
    }

    #[test]
    fn adam_walks_against_the_gradient_and_stays_finite() {
        let mut state = [vec![0.0; 4], vec![0.0; 8]].concat();
        for _ in 0..1000 {
            adam(4, &[1.0, -1.0, 0.5, -0.5], &mut state);
        }
        assert!(state[0] < -0.5 && state[1] > 0.5 && state.iter().all(|value| value.is_finite()));
    }

    #[test]
    fn pointwise_functions_average_inputs_and_write_every_output() {
        let input = [vec![1.0; 1000], vec![1.0; 1000]].concat();
        let mut output = vec![0.0; 3000];
        elementwise(1000, (2, 3), 7, &input, &mut output);
        assert!(output.iter().all(|value| close(*value, 1.0)));
    }
}
