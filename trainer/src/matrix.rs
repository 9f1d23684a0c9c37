//! A row-major table of `f32`, as the graph of the model sees it.

/// Rows of equal width. `f32`, because the exported graph computes in `f32` and thresholds must split the same rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) width: usize,
    pub(crate) values: Vec<f32>,
}

impl Matrix {
    pub(crate) fn new(width: usize, values: Vec<f32>) -> Self {
        debug_assert!(width > 0 && values.len().is_multiple_of(width));
        Self { width, values }
    }

    pub(crate) fn rows(&self) -> usize {
        self.values.len() / self.width.max(1)
    }

    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..(row + 1) * self.width]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }
}

/// The median of each column over the given rows, without missing values; 0 where a column has none.
pub(crate) fn medians(values: &[f32], width: usize, rows: &[u32]) -> Vec<f32> {
    // Above this many rows a regular sample gives the same median for every practical purpose.
    const ENOUGH: usize = 20_000;
    let stride = rows.len().div_ceil(ENOUGH).max(1);
    let mut column = Vec::with_capacity(rows.len() / stride + 1);
    (0..width)
        .map(|index| {
            column.clear();
            column.extend(
                rows.iter()
                    .step_by(stride)
                    .map(|&row| values[row as usize * width + index])
                    .filter(|value| value.is_finite()),
            );
            if column.is_empty() {
                return 0.0;
            }
            // The upper median, as the exported model takes it: a value that occurred, hence exact in f32.
            let middle = column.len() / 2;
            *column.select_nth_unstable_by(middle, f32::total_cmp).1
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_skip_what_is_missing() {
        let values = [1.0, f32::NAN, 3.0, f32::NAN, 5.0, f32::NAN, 100.0, 7.0];
        assert_eq!(medians(&values, 2, &[0, 1, 2]), vec![3.0, 0.0]);
        assert_eq!(medians(&values, 2, &[3]), vec![100.0, 7.0]);
    }
}
