//! The product of a block of rows with a constant matrix.

/// Columns that are summed side by side: enough sums for one row to keep the adders busy, and for [`ROWS`] rows as many as
/// there are registers.
const TILE: usize = 16;
/// Rows that share one pass over the weights.
const ROWS: usize = 2;

/// A constant matrix: one column, summed in double precision, or several, packed for single precision.
#[derive(Debug, Clone)]
pub(super) enum Weights {
    Column(Vec<f32>),
    Matrix {
        /// Columns of the result.
        width: usize,
        /// The columns in tiles, each row by row; the last is filled up with 0.
        tiles: Vec<Vec<[f32; TILE]>>,
    },
}

impl Weights {
    /// Packs row-major values of `width` columns, at least 1.
    pub(super) fn new(values: &[f32], width: usize) -> Self {
        if width == 1 {
            return Self::Column(values.to_vec());
        }
        let tile = |start: usize| {
            let row =
                |row: &[f32]| std::array::from_fn(|lane| row.get(start + lane).copied().unwrap_or_default());
            values.chunks_exact(width).map(row).collect()
        };
        Self::Matrix { width, tiles: (0..width).step_by(TILE).map(tile).collect() }
    }

    /// Writes the product for each row. Every sum runs over the row's values in order, so a row gives the same bits alone
    /// and among others.
    pub(super) fn multiply(&self, rows: &[f32], out: &mut [f32]) {
        match self {
            Self::Column(weights) => {
                for (row, out) in rows.chunks_exact(weights.len()).zip(out) {
                    let sum: f64 = row.iter().zip(weights).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                    *out = sum as f32;
                }
            }
            Self::Matrix { width, tiles } => {
                let height = tiles.first().map_or(0, Vec::len);
                let whole = rows.len() / (ROWS * height) * ROWS;
                let (many, rest) = rows.split_at(whole * height);
                let (out_many, out_rest) = out.split_at_mut(whole * width);
                multiply::<ROWS>(tiles, many, out_many, *width);
                multiply::<1>(tiles, rest, out_rest, *width);
            }
        }
    }
}

/// Multiplies `N` rows at a time; their number is a multiple of it.
fn multiply<const N: usize>(tiles: &[Vec<[f32; TILE]>], rows: &[f32], out: &mut [f32], width: usize) {
    let height = tiles.first().map_or(0, Vec::len);
    for (rows, out) in rows.chunks_exact(N * height).zip(out.chunks_exact_mut(N * width)) {
        let lanes: [&[f32]; N] = std::array::from_fn(|lane| &rows[lane * height..][..height]);
        for (tile, start) in tiles.iter().zip((0..width).step_by(TILE)) {
            let sums = tile_product(tile, lanes);
            let end = (start + TILE).min(width);
            for (sums, out) in sums.iter().zip(out.chunks_exact_mut(width)) {
                out[start..end].copy_from_slice(&sums[..end - start]);
            }
        }
    }
}

fn tile_product<const N: usize>(tile: &[[f32; TILE]], rows: [&[f32]; N]) -> [[f32; TILE]; N] {
    let mut sums = [[0.0; TILE]; N];
    for (index, weights) in tile.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(rows) {
            let x = row[index];
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum += x * weight;
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_by_hand_for_every_number_of_rows_and_columns() {
        for width in [1, 2, 15, 16, 17, 33] {
            let weights: Vec<f32> = (0..3 * width).map(|index| (index % 5) as f32 - 2.0).collect();
            let packed = Weights::new(&weights, width);
            for height in 0..6 {
                let rows: Vec<f32> = (0..3 * height).map(|index| (index % 7) as f32).collect();
                let mut out = vec![f32::NAN; height * width];
                packed.multiply(&rows, &mut out);
                for (index, found) in out.iter().enumerate() {
                    let (row, column) = (index / width, index % width);
                    let wanted: f32 = (0..3).map(|k| rows[3 * row + k] * weights[k * width + column]).sum();
                    assert!((found - wanted).abs() < 1e-6, "{height} rows, {width} columns");
                }
            }
        }
    }
}
