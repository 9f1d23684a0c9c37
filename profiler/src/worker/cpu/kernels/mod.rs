//! The arithmetic of the ops on slices of FP32. Each function is what one lane does of one op.

mod attention;
mod convolution;
pub(super) mod loops;

pub(super) use attention::Attention;
pub(super) use convolution::{Convolution, ConvolutionKind};

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

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn close(left: f32, right: f32) -> bool {
        (left - right).abs() <= 1e-4 * right.abs().max(1.0)
    }

    pub(super) fn numbers(count: usize) -> Vec<f32> {
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
