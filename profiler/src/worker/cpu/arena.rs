//! Memory with a limit, touched before use and filled with numbers that are neither zero nor alike.

use elastico_core::Stream;
use rand::Rng;

/// An allocation that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{needed} bytes for {what} do not fit: {used} of {limit} bytes are in use")]
pub(super) struct OutOfMemory {
    what: &'static str,
    needed: u64,
    used: u64,
    limit: u64,
}

/// The memory that one worker may allocate.
#[derive(Debug)]
pub(super) struct Ration {
    limit: u64,
    used: u64,
}

impl Ration {
    pub(super) const fn new(limit: u64) -> Self {
        Self { limit, used: 0 }
    }

    pub(super) const fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// From now on nothing fits.
    pub(super) const fn refuse_all(&mut self) {
        self.limit = 0;
    }

    /// A vector of `count` elements, each written, so that its pages are there.
    pub(super) fn vector<T>(
        &mut self,
        what: &'static str,
        count: usize,
        mut element: impl FnMut() -> T,
    ) -> Result<Vec<T>, OutOfMemory> {
        let needed = (count as u64).saturating_mul(size_of::<T>() as u64);
        let refusal = OutOfMemory { what, needed, used: self.used, limit: self.limit };
        if self.used.saturating_add(needed) > self.limit {
            return Err(refusal);
        }
        let mut vector = Vec::new();
        vector.try_reserve_exact(count).map_err(|_| refusal)?;
        vector.resize_with(count, &mut element);
        self.used += needed;
        Ok(vector)
    }
}

/// A quick source of numbers, seeded from a stream: hundreds of megabytes are filled before each trial.
///
/// Source: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016 (xorshift64*).
#[derive(Debug)]
pub(super) struct Noise(u64);

impl Noise {
    pub(super) fn new(stream: &mut Stream) -> Self {
        Self(stream.next_u64() | 1)
    }

    pub(super) const fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Uniform in 0..1.
    pub(super) const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Magnitude in 0.5..1 with either sign: never 0, on which processors save power and time.
    pub(super) const fn single(&mut self) -> f32 {
        f32::from_bits(0x3f00_0000 | ((self.bits() >> 32) as u32 & 0x807f_ffff))
    }

    /// As [`Noise::single`], for products in double precision.
    pub(super) fn double(&mut self) -> f64 {
        f64::from(self.single())
    }

    /// Row numbers below `rows` under Zipf's law with exponent `skew`, 0 being uniform.
    ///
    /// The inverse of the law's continuous form; the popular rows are spread over the table, as they are in practice.
    pub(super) fn row(&mut self, rows: u32, skew: f64, spread: u32) -> u32 {
        let (count, share) = (f64::from(rows), self.unit());
        let rank = if skew == 0.0 {
            share * count
        } else if (skew - 1.0).abs() < 1e-9 {
            count.powf(share) - 1.0
        } else {
            let exponent = 1.0 - skew;
            ((count.powf(exponent) - 1.0) * share + 1.0).powf(exponent.recip()) - 1.0
        };
        let rank = (rank as u32).min(rows - 1);
        ((u64::from(rank) * u64::from(spread)) % u64::from(rows)) as u32
    }
}

/// A multiplier that has no divisor in common with `rows`, so that it permutes the rows.
pub(super) fn spread(rows: u32) -> u32 {
    const fn divisor(mut left: u32, mut right: u32) -> u32 {
        while right != 0 {
            (left, right) = (right, left % right);
        }
        left
    }
    (2_654_435_761..=u32::MAX).step_by(2).find(|factor| divisor(*factor, rows) == 1).unwrap_or(1)
}

/// Where the next operand lies in a buffer that is used around and around.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor(usize);

impl Cursor {
    /// Starts elsewhere than at the first element.
    pub(super) const fn at(start: usize) -> Self {
        Self(start)
    }

    /// The next `count` of `length` elements; starts again where they would pass the end.
    pub(super) const fn take(&mut self, length: usize, count: usize) -> std::ops::Range<usize> {
        if self.0 + count > length {
            self.0 = 0;
        }
        let start = self.0;
        self.0 += count;
        start..start + count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::Seed;

    fn noise() -> Noise {
        Noise::new(&mut Seed(5).stream("test", &[]))
    }

    #[test]
    fn numbers_are_never_small_and_have_both_signs() {
        let mut noise = noise();
        let numbers: Vec<f32> = (0..1000).map(|_| noise.single()).collect();
        assert!(numbers.iter().all(|number| (0.5..1.0).contains(&number.abs())));
        assert!(numbers.iter().any(|number| *number < 0.0) && numbers.iter().any(|number| *number > 0.0));
    }

    #[test]
    fn a_skewed_law_prefers_few_rows_and_stays_in_the_table() {
        let rows = 1000;
        let factor = spread(rows);
        let share_of_top_ten = |skew: f64| {
            let mut noise = noise();
            let mut counts = vec![0_u32; rows as usize];
            for _ in 0..20_000 {
                counts[noise.row(rows, skew, factor) as usize] += 1;
            }
            counts.sort_unstable_by(|left, right| right.cmp(left));
            f64::from(counts[..10].iter().sum::<u32>()) / 20_000.0
        };
        assert!(share_of_top_ten(0.0) < 0.03);
        assert!(share_of_top_ten(0.9) > 0.2);
        assert!(share_of_top_ten(1.0) > 0.3);
        assert!(share_of_top_ten(1.5) > share_of_top_ten(1.0));
    }

    #[test]
    fn the_ration_is_kept() {
        let mut ration = Ration::new(100);
        assert_eq!(ration.vector("a", 20, || 1_u32).unwrap().len(), 20);
        let error = ration.vector("b", 6, || 1_u32).unwrap_err();
        assert_eq!(error.to_string(), "24 bytes for b do not fit: 80 of 100 bytes are in use");
        let mut endless = Ration::new(u64::MAX);
        assert!(endless.vector("c", usize::MAX / 8, || 0_u32).is_err());
    }

    #[test]
    fn the_cursor_wraps_without_passing_the_end() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.take(10, 6), 0..6);
        assert_eq!(cursor.take(10, 4), 6..10);
        assert_eq!(cursor.take(10, 7), 0..7);
    }
}
