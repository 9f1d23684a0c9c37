//! What buffers hold before the first step: the same numbers from the host and from the fill kernels.
//!
//! Each element is a function of the buffer's key and its own index alone (a counter-based generator: Salmon et al.,
//! "Parallel random numbers: as easy as 1, 2, 3", SC11), so that chunks can be written in any order and by either side.

use super::format::Format;
use elastico_core::Dtype;

/// What a buffer holds before the first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Zeros: counters and cursors only, never operands.
    Zero,
    /// Nearly normal numbers, cut at 3.46 deviations.
    Normal {
        /// Format.
        dtype: Dtype,
        /// Standard deviation.
        deviation: f64,
    },
    /// Uniform above 0 and at most `largest`: second moments.
    Positive {
        /// Format.
        dtype: Dtype,
        /// The largest value.
        largest: f64,
    },
    /// Row numbers as `unsigned long long`, below `rows`, under Zipf's law with exponent `skew`; 0 is uniform.
    ///
    /// The popular rows are spread over the table, as they are in practice.
    Rows {
        /// Rows of the table; at least 1.
        rows: u64,
        /// Exponent.
        skew: f64,
    },
    /// Random bytes that nobody computes with.
    Bytes,
    /// Memory that is held and never touched: nothing has to be written.
    Held,
}

/// The mixing function of the generator (`fill.cu` has the same): the finaliser of SplitMix64 (Steele et al., OOPSLA
/// 2014) over the key and the counter.
pub(super) const fn mixed(key: u64, counter: u64) -> u64 {
    let mut z = key.wrapping_add(counter.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Standard deviation of the sum of four uniform 16-bit numbers.
const SUM_DEVIATION: f64 = 37_836.752_4;

/// The factor of [`Fill::Normal`] as the fill kernel gets it.
pub(super) fn normal_factor(deviation: f64) -> f32 {
    (deviation / SUM_DEVIATION) as f32
}

fn normal(bits: u64, factor: f32) -> f32 {
    // Four 16-bit numbers add up exactly; only the one product rounds.
    let sum: i32 = (0..4).map(|part| ((bits >> (16 * part)) & 0xffff) as i32).sum();
    (sum - 131_070) as f32 * factor
}

fn positive(bits: u64, largest: f32) -> f32 {
    (((bits >> 40) as u32) + 1) as f32 * (largest / 16_777_216.0)
}

/// A multiplier that has no divisor in common with `rows`, so that it permutes them.
fn spread(rows: u64) -> u64 {
    const fn divisor(mut left: u64, mut right: u64) -> u64 {
        while right != 0 {
            (left, right) = (right, left % right);
        }
        left
    }
    (0..64).map(|step| 2_654_435_761 + 2 * step).find(|factor| divisor(*factor, rows) == 1).unwrap_or(1)
}

/// The inverse of the law's continuous form.
fn rank(share: f64, rows: f64, skew: f64) -> f64 {
    if skew == 0.0 {
        share * rows
    } else if (skew - 1.0).abs() < 1e-9 {
        rows.powf(share) - 1.0
    } else {
        let exponent = 1.0 - skew;
        ((rows.powf(exponent) - 1.0) * share + 1.0).powf(exponent.recip()) - 1.0
    }
}

impl Fill {
    /// Size of one element; chunks begin and end between elements.
    pub fn element_bytes(&self) -> u64 {
        match self {
            Self::Normal { dtype, .. } | Self::Positive { dtype, .. } => dtype.bytes() as u64,
            Self::Rows { .. } => 8,
            Self::Zero | Self::Bytes | Self::Held => 1,
        }
    }

    /// Writes the part of the buffer that begins at byte `offset` into `chunk`.
    ///
    /// `key` is [`super::LaunchPlan::key`] of the buffer. `offset` is a multiple of [`Fill::element_bytes`]; bytes after
    /// the last whole element of the chunk become 0.
    pub fn write(&self, key: u64, chunk: &mut [u8], offset: u64) {
        let size = self.element_bytes();
        let first = offset / size;
        let each = |chunk: &mut [u8], element: &dyn Fn(u64, &mut [u8])| {
            let mut whole = chunk.chunks_exact_mut(size as usize);
            for (index, bytes) in (&mut whole).enumerate() {
                element(mixed(key, first + index as u64), bytes);
            }
            whole.into_remainder().fill(0);
        };
        match *self {
            Self::Zero | Self::Held => chunk.fill(0),
            Self::Normal { dtype, deviation } => {
                let (format, factor) = (Format::of(dtype), normal_factor(deviation));
                each(chunk, &|bits, bytes| format.write_single(normal(bits, factor), bytes));
            }
            Self::Positive { dtype, largest } => {
                let format = Format::of(dtype);
                each(chunk, &|bits, bytes| format.write_single(positive(bits, largest as f32), bytes));
            }
            Self::Rows { rows, skew } => {
                let (rows, spread) = (rows.max(1), spread(rows.max(1)));
                each(chunk, &|bits, bytes| {
                    let share = (bits >> 11) as f64 / (1_u64 << 53) as f64;
                    let rank = (rank(share, rows as f64, skew) as u64).min(rows - 1);
                    let row = (u128::from(rank) * u128::from(spread) % u128::from(rows)) as u64;
                    bytes.copy_from_slice(&row.to_le_bytes());
                });
            }
            Self::Bytes => each(chunk, &|bits, bytes| bytes.fill((bits >> 32) as u8)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(fill: Fill, count: usize, offset: u64) -> Vec<f32> {
        let mut bytes = vec![0; count * 4];
        fill.write(7, &mut bytes, offset);
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
    }

    #[test]
    fn chunks_agree_with_the_whole() {
        let fill = Fill::Normal { dtype: Dtype::Fp32, deviation: 1.0 };
        assert_eq!(floats(fill, 100, 0)[60..], floats(fill, 40, 240)[..]);
        let rows = Fill::Rows { rows: 1000, skew: 1.05 };
        let (mut whole, mut part) = (vec![0; 800], vec![0; 80]);
        rows.write(3, &mut whole, 0);
        rows.write(3, &mut part, 160);
        assert_eq!(whole[160..240], part[..]);
    }

    #[test]
    fn normal_numbers_have_the_deviation_and_no_zero() {
        let values = floats(Fill::Normal { dtype: Dtype::Fp32, deviation: 0.5 }, 100_000, 0);
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / 1e5;
        let variance = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / 1e5;
        // Six standard errors of the mean.
        assert!(mean.abs() < 6.0 * 0.5 / 1e5_f64.sqrt(), "{mean}");
        assert!((variance.sqrt() - 0.5).abs() < 0.01, "{variance}");
        assert!(values.iter().filter(|v| **v == 0.0).count() < 20);
        let positive = floats(Fill::Positive { dtype: Dtype::Fp32, largest: 2.0 }, 10_000, 0);
        assert!(positive.iter().all(|v| *v > 0.0 && *v <= 2.0));
    }

    #[test]
    fn rows_are_below_the_table_and_skewed() {
        for (rows, skew) in [(1, 1.05), (7, 0.0), (1_000_000, 1.05), (50_000_000, 1.0), (12_345, 2.0)] {
            let mut bytes = vec![0; 80_000];
            Fill::Rows { rows, skew }.write(1, &mut bytes, 0);
            let mut numbers: Vec<_> =
                bytes.chunks_exact(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap())).collect();
            assert!(numbers.iter().all(|row| *row < rows));
            numbers.sort_unstable();
            numbers.dedup();
            if rows > 100_000 {
                // A uniform draw of 10,000 from this many rows would leave more than 9,900 different ones.
                assert!(numbers.len() < 7_000, "{rows} rows, skew {skew}: {}", numbers.len());
            }
        }
    }
}
