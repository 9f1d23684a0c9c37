//! Attention in blocks of query rows, with its gradient.

use super::{BLOCK, softmax_row};
use elastico_gpu::product::{Matrix, Real};

/// The sizes of attention for one lane.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker::cpu) struct Attention {
    /// Pairs of sequence and query head.
    pub(in crate::worker::cpu) heads: usize,
    /// Query heads that share a key head.
    pub(in crate::worker::cpu) group: usize,
    pub(in crate::worker::cpu) query: usize,
    pub(in crate::worker::cpu) context: usize,
    pub(in crate::worker::cpu) width: usize,
    pub(in crate::worker::cpu) causal: bool,
    pub(in crate::worker::cpu) backward: bool,
}

impl Attention {
    /// Key heads.
    pub(in crate::worker::cpu) const fn groups(&self) -> usize {
        self.heads.div_ceil(self.group)
    }

    pub(in crate::worker::cpu) const fn inputs(&self) -> usize {
        let queries = self.heads * self.query * self.width;
        let keys = 2 * self.groups() * self.context * self.width;
        // Backward reads the gradient of the output as well.
        if self.backward { 2 * queries + keys } else { queries + keys }
    }

    pub(in crate::worker::cpu) const fn outputs(&self) -> usize {
        let queries = self.heads * self.query * self.width;
        if self.backward { queries + 2 * self.groups() * self.context * self.width } else { queries }
    }

    pub(in crate::worker::cpu) const fn scratch(&self) -> usize {
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

    pub(in crate::worker::cpu) fn run(&self, input: &[f32], output: &mut [f32], scratch: &mut [f32]) {
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

#[cfg(test)]
mod tests {
    use super::super::tests::{close, numbers};
    use super::*;

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
}
