//! How far a row lies from the training rows: the second half of the domain rule.

use crate::physics::GUARD;
use crate::{Error, FeatureSchema};
use elastico_core::Seed;

/// Standard scores are held within these bounds, so that one odd column cannot hide all others.
const MOST_DEVIATIONS: f64 = 10.0;
/// A column without negative values enters in its bounded form if it spans more than this factor.
const WIDE_SPAN: f32 = 10.0;
/// Rows among which prototypes are chosen; of more, as many are drawn.
const MOST_ROWS: usize = 50_000;

/// Distance of a row to the nearest of some prototypes, which are training rows.
///
/// The distance is the root mean square, over columns, of the difference of standard scores. Columns are the raw features
/// of the two sides and the constants of the device; those with `=` in their names, those of the sharing mode and those
/// that are constant in training have no part. A column without negative values whose largest value is more than 10
/// times its least positive one enters as `x / (x + m)`, where `m` is the median of its positive values: that orders rows
/// as a logarithm would, and IEEE 754 fixes it to the last bit. A missing value is imputed first. Standard scores are
/// held within ±10.
///
/// Prototypes are chosen by farthest-point traversal (Gonzalez, Theoretical Computer Science 38, 1985): the training row
/// nearest to the centre, then again and again the row farthest from all that were chosen. No training row then lies
/// farther from a prototype than twice what the best choice of as many prototypes could reach. Ties go to the row whose
/// scores are the least, so the order of the rows does not matter.
///
/// A file computes the squared distance in single precision as `|x|² − 2 x·p + |p|²`; evaluators may add up in any order.
/// A row whose squared distance lies within `(D + 4) ε (3 |x|² + 2 l²)` of the squared limit l², where D is the number of
/// columns and ε = 2⁻²³, may so be called near or far; [`verify`](crate::verify) does not compare the flag of such a row.
/// [`limit_for`](Self::limit_for) gives a limit in a gap, where no known row lies.
#[derive(Debug, Clone, PartialEq)]
pub struct DomainDistance {
    /// Columns of a raw row.
    width: usize,
    /// Columns that enter as they are, ascending.
    pub(crate) plain: Vec<usize>,
    /// Columns that enter in their bounded form, ascending.
    pub(crate) bounded: Vec<usize>,
    /// The `m` of each bounded column.
    pub(crate) medians: Vec<f32>,
    /// What replaces a missing value of each column, plain ones first; so for all that follows.
    impute: Vec<f32>,
    /// Centre of each column's form.
    pub(crate) mean: Vec<f32>,
    /// Standard deviation of each column's form times the root of the number of columns.
    pub(crate) scale: Vec<f32>,
    /// Scores of the prototypes divided by that root, one prototype after another.
    pub(crate) prototypes: Vec<f32>,
    /// The square of the limit.
    pub(crate) limit_squared: f32,
}

impl DomainDistance {
    /// The most prototypes: what a prediction can afford.
    pub const MOST_PROTOTYPES: usize = 128;

    /// Fits scores and prototypes to row-major training rows, NaN = missing; the limit is infinite, so that every row is
    /// near. `impute` is that of the model. The seed decides which rows may become prototypes where there are more than
    /// 50,000 of them.
    ///
    /// # Panics
    /// Where `rows` or `impute` do not fit the schema; [`fit_domain`](crate::fit_domain) tells before.
    pub fn fit(
        schema: &FeatureSchema,
        rows: &[f32],
        impute: &[f32],
        most_prototypes: usize,
        seed: Seed,
    ) -> Self {
        let width = schema.width();
        assert!(rows.len().is_multiple_of(width) && impute.len() == width, "rows have the schema's width");
        let mut fitted = Self {
            width,
            plain: Vec::new(),
            bounded: Vec::new(),
            medians: Vec::new(),
            impute: Vec::new(),
            mean: Vec::new(),
            scale: Vec::new(),
            prototypes: Vec::new(),
            limit_squared: f32::INFINITY,
        };
        let mut moments = [Vec::new(), Vec::new()];
        for (column, name) in schema.names().iter().enumerate() {
            if name.contains('=') || name.starts_with("sharing_") {
                continue;
            }
            let mut values: Vec<f32> =
                rows.chunks_exact(width).map(|row| imputed(row[column], impute[column])).collect();
            let median = wide_median(&values);
            if let Some(median) = median {
                for value in &mut values {
                    *value = bounded(*value, median);
                }
            }
            let Some((mean, deviation)) = moments_of(&values) else { continue };
            if let Some(median) = median {
                fitted.bounded.push(column);
                fitted.medians.push(median);
            } else {
                fitted.plain.push(column);
            }
            moments[usize::from(median.is_some())].push((mean, deviation));
        }
        fitted.impute = fitted.columns().map(|column| impute[column]).collect();
        let root = (fitted.dimensions() as f64).sqrt();
        for (mean, deviation) in moments.into_iter().flatten() {
            fitted.mean.push(mean as f32);
            fitted.scale.push(((deviation * root) as f32).max(f32::MIN_POSITIVE));
        }
        fitted.prototypes = fitted.choose(rows, most_prototypes.clamp(1, Self::MOST_PROTOTYPES), seed);
        fitted
    }

    /// The distance of each raw row to its nearest prototype, in standard deviations.
    ///
    /// # Panics
    /// Where `rows` is no multiple of the width of the schema.
    pub fn distances(&self, rows: &[f32]) -> Vec<f32> {
        assert!(rows.len().is_multiple_of(self.width), "rows have the schema's width");
        let mut scores = Vec::with_capacity(self.dimensions());
        rows.chunks_exact(self.width)
            .map(|row| {
                scores.clear();
                self.push_scores(row, &mut scores);
                self.nearest(&scores).sqrt() as f32
            })
            .collect()
    }

    /// The same with another limit; a row is near if its distance is not above it.
    #[must_use]
    pub fn with_limit(mut self, limit: f32) -> Self {
        self.limit_squared = limit * limit;
        self
    }

    /// The largest distance of a row that is near.
    pub fn limit(&self) -> f32 {
        self.limit_squared.sqrt()
    }

    /// A limit under which at least the given share of the distances lies: the middle of the first gap from there on that
    /// is wide enough for single precision.
    pub fn limit_for(distances: &[f32], share: f64) -> f32 {
        const GAP_RATIO: f32 = 1e-3;
        let mut sorted: Vec<f32> = distances.iter().copied().filter(|distance| !distance.is_nan()).collect();
        sorted.sort_unstable_by(f32::total_cmp);
        let Some(last) = sorted.last().copied() else { return f32::INFINITY };
        let inside = ((share.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize).max(1);
        sorted[inside - 1..]
            .windows(2)
            .find(|pair| pair[1] - pair[0] > GAP_RATIO * (1.0 + pair[1]))
            .map_or(last + GAP_RATIO * (1.0 + last), |pair| f32::midpoint(pair[0], pair[1]))
    }

    /// How many columns enter.
    pub fn dimensions(&self) -> usize {
        self.plain.len() + self.bounded.len()
    }

    /// How many prototypes there are.
    pub fn prototypes_total(&self) -> usize {
        self.prototypes.len().checked_div(self.dimensions()).unwrap_or(0)
    }

    /// Reassembles what a file says; the caller compares the export of it with the file.
    #[expect(clippy::too_many_arguments, reason = "the tensors of a file")]
    pub(crate) fn from_parts(
        impute: &[f32],
        plain: Vec<usize>,
        bounded: Vec<usize>,
        medians: Vec<f32>,
        mean: Vec<f32>,
        scale: Vec<f32>,
        prototypes: Vec<f32>,
        limit_squared: f32,
    ) -> Option<Self> {
        let filled = plain.iter().chain(&bounded).map(|column| impute.get(*column).copied());
        let filled = filled.collect::<Option<Vec<_>>>()?;
        let width = impute.len();
        Some(Self { width, plain, bounded, medians, impute: filled, mean, scale, prototypes, limit_squared })
    }

    /// Bounds of a score that is divided by the root of the number of columns.
    pub(crate) fn score_bound(&self) -> f32 {
        (MOST_DEVIATIONS / (self.dimensions().max(1) as f64).sqrt()) as f32
    }

    /// The squared length of each prototype.
    pub(crate) fn norms(&self) -> Vec<f32> {
        self.prototypes.chunks_exact(self.dimensions().max(1)).map(|p| squared(p) as f32).collect()
    }

    /// Whether an imputed and guarded row is near; `None` where single precision may decide either way.
    pub(super) fn is_near(&self, row: &[f32]) -> Option<bool> {
        if self.limit_squared.is_infinite() {
            return Some(true);
        }
        let mut scores = Vec::with_capacity(self.dimensions());
        self.push_scores(row, &mut scores);
        let nearest = self.nearest(&scores);
        let limit = f64::from(self.limit_squared);
        // The sums of D products err by at most D ε (|x|² + |p|²) / 2 each, and no prototype within reach of the limit has
        // a square above 2 |x|² + 2 l².
        let tolerance =
            (self.dimensions() + 4) as f64 * f64::from(f32::EPSILON) * (3.0 * squared(&scores) + 2.0 * limit);
        if (nearest - limit).abs() <= tolerance { None } else { Some(nearest < limit) }
    }

    /// The same over rows of more columns, appended to those known.
    pub(super) fn widened(&self, width: usize) -> Self {
        Self { width, ..self.clone() }
    }

    pub(super) fn check(&self, impute: &[f32]) -> Result<(), Error> {
        let refuse = |reason: &str| Err(Error::spec("domain_distance", reason));
        let dimensions = self.dimensions();
        if self.width != impute.len() || self.columns().any(|column| column >= impute.len()) {
            return refuse("belongs to another feature list");
        }
        if !self
            .columns()
            .zip(&self.impute)
            .all(|(column, value)| impute[column].to_bits() == value.to_bits())
        {
            return refuse("was fitted with other values for what is missing");
        }
        if [self.impute.len(), self.mean.len(), self.scale.len()] != [dimensions; 3]
            || self.medians.len() != self.bounded.len()
            || self.prototypes.len() != self.prototypes_total() * dimensions
            || (dimensions > 0 && self.prototypes.is_empty())
        {
            return refuse("has parts of unequal lengths");
        }
        let numbers = [&self.medians, &self.mean, &self.scale, &self.prototypes];
        let finite = numbers.into_iter().flatten().all(|value| value.is_finite());
        if !finite || self.medians.iter().chain(&self.scale).any(|value| *value <= 0.0) {
            return refuse("has a number that is not usable");
        }
        if self.limit_squared.is_nan() || self.limit_squared < 0.0 {
            return refuse("has a limit that is no distance");
        }
        Ok(())
    }

    fn columns(&self) -> impl Iterator<Item = usize> {
        self.plain.iter().chain(&self.bounded).copied()
    }

    /// The scores of a raw row by the operations of the graph, bit by bit.
    fn push_scores(&self, row: &[f32], out: &mut Vec<f32>) {
        let bound = self.score_bound();
        let score = |index: usize, value: f32| {
            ((value - self.mean[index]) / self.scale[index]).max(-bound).min(bound)
        };
        for (index, column) in self.plain.iter().enumerate() {
            out.push(score(index, imputed(row[*column], self.impute[index])));
        }
        for (place, (column, median)) in self.bounded.iter().zip(&self.medians).enumerate() {
            let index = self.plain.len() + place;
            out.push(score(index, bounded(imputed(row[*column], self.impute[index]), *median)));
        }
    }

    /// The squared distance to the nearest prototype.
    fn nearest(&self, scores: &[f32]) -> f64 {
        self.prototypes
            .chunks_exact(self.dimensions().max(1))
            .map(|prototype| distance(scores, prototype))
            .min_by(f64::total_cmp)
            .unwrap_or(0.0)
    }

    fn choose(&self, rows: &[f32], most: usize, seed: Seed) -> Vec<f32> {
        let dimensions = self.dimensions();
        let total = rows.len() / self.width;
        if dimensions == 0 || total == 0 {
            return Vec::new();
        }
        let drawn: Vec<usize> = if total <= MOST_ROWS {
            (0..total).collect()
        } else {
            let mut stream = seed.stream("prototypes", &[]);
            rand::seq::index::sample(&mut stream, total, MOST_ROWS).into_vec()
        };
        let mut scores = Vec::with_capacity(drawn.len() * dimensions);
        for row in drawn {
            self.push_scores(&rows[row * self.width..][..self.width], &mut scores);
        }
        let mut distinct: Vec<&[f32]> = scores.chunks_exact(dimensions).collect();
        let order = |a: &&[f32], b: &&[f32]| {
            let unequal = a.iter().zip(b.iter()).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
            unequal.unwrap_or(std::cmp::Ordering::Equal)
        };
        distinct.sort_unstable_by(order);
        distinct.dedup_by(|a, b| order(a, b).is_eq());

        let mut to_nearest = vec![f64::INFINITY; distinct.len()];
        let centre = vec![0.0; dimensions];
        let from_centre: Vec<f64> = distinct.iter().map(|row| -distance(row, &centre)).collect();
        let mut chosen = first_largest(&from_centre);
        let mut prototypes = Vec::new();
        for _ in 0..most.min(distinct.len()) {
            prototypes.extend_from_slice(distinct[chosen]);
            for (nearest, row) in to_nearest.iter_mut().zip(&distinct) {
                *nearest = nearest.min(distance(row, distinct[chosen]));
            }
            chosen = first_largest(&to_nearest);
        }
        prototypes
    }
}

fn imputed(value: f32, median: f32) -> f32 {
    if value.is_nan() { median } else { value }.clamp(-GUARD, GUARD)
}

fn bounded(value: f32, median: f32) -> f32 {
    let value = value.max(0.0);
    value / (value + median)
}

/// The median of the positive values, for a column that has no negative one and spans more than [`WIDE_SPAN`].
fn wide_median(values: &[f32]) -> Option<f32> {
    if values.iter().any(|value| *value < 0.0) {
        return None;
    }
    let mut positive: Vec<f32> = values.iter().copied().filter(|value| *value > 0.0).collect();
    let least = positive.iter().copied().fold(f32::INFINITY, f32::min);
    let largest = positive.iter().copied().fold(0.0, f32::max);
    if largest <= WIDE_SPAN * least {
        return None;
    }
    let middle = positive.len() / 2;
    Some(*positive.select_nth_unstable_by(middle, f32::total_cmp).1)
}

/// Mean and standard deviation; `None` for a column without spread.
fn moments_of(values: &[f32]) -> Option<(f64, f64)> {
    let values: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
    let (mean, deviation) = (elastico_core::mean(&values), elastico_core::sample_deviation(&values));
    // Rounding alone gives a constant column a deviation of some 1e-16 of its mean.
    (deviation > 1e-7 * mean.abs()).then_some((mean, deviation))
}

fn squared(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum()
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
}

fn first_largest(values: &[f64]) -> usize {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter().position(|value| *value >= largest).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(names: &[&str]) -> FeatureSchema {
        FeatureSchema::new(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    const NAMES: [&str; 6] = [
        "subject_a_ratio",
        "subject_family=x",
        "co_runner_b_bytes",
        "sharing_mps_ratio",
        "device_sm_total",
        "harness=y",
    ];

    fn rows() -> Vec<f32> {
        let row =
            |i: u8| [f32::from(i) / 10.0 + 0.5, f32::from(i % 2), 10_f32.powi(i32::from(i)), 1.0, 80.0, 0.0];
        (0..6).flat_map(row).collect()
    }

    #[test]
    fn only_numbers_with_spread_enter_and_wide_ones_in_their_bounded_form() {
        let fitted = DomainDistance::fit(&schema(&NAMES), &rows(), &[0.0; 6], 3, Seed(1));
        assert_eq!((&fitted.plain[..], &fitted.bounded[..]), (&[0][..], &[2][..]));
        assert_eq!(fitted.medians, [1e3], "the upper of the two in the middle");
        assert_eq!((fitted.dimensions(), fitted.prototypes_total()), (2, 3));
        assert!(fitted.limit().is_infinite());
    }

    #[test]
    fn distances_by_hand() {
        let schema = schema(&["subject_a_ratio", "subject_b_ratio"]);
        // Standard deviations of 0.2 / √2 and 0.1 / √2 about 0.5.
        let rows = [0.3, 0.5, 0.5, 0.4, 0.7, 0.5, 0.5, 0.6, 0.5, 0.5];
        let fitted = DomainDistance::fit(&schema, &rows, &[0.5; 2], 1, Seed(1));
        let found = fitted.distances(&[0.5, 0.5, 0.7, 0.6, f32::NAN, 0.5, 1e9, 0.5]);
        assert_eq!(found[0].to_bits(), 0.0_f32.to_bits(), "the one prototype is the centre");
        assert!((found[1] - std::f32::consts::SQRT_2).abs() < 1e-5, "both scores are √2: {found:?}");
        assert_eq!(found[2].to_bits(), 0.0_f32.to_bits(), "missing values are imputed");
        assert!(
            (f64::from(found[3]) - 10.0 / 2.0_f64.sqrt()).abs() < 1e-4,
            "one odd column counts 10: {found:?}"
        );
    }

    #[test]
    fn prototypes_are_far_apart_distinct_and_independent_of_the_order_of_the_rows() {
        let (schema, rows) = (schema(&NAMES), rows());
        let all = DomainDistance::fit(&schema, &rows, &[0.0; 6], 128, Seed(1));
        assert_eq!(all.prototypes_total(), 6, "no more than there are distinct rows");
        assert!(all.distances(&rows).iter().all(|distance| *distance < 1e-6));
        let mut turned: Vec<f32> = rows.chunks_exact(6).rev().flatten().copied().collect();
        turned.extend_from_slice(&rows);
        let few = DomainDistance::fit(&schema, &rows, &[0.0; 6], 2, Seed(1));
        let again = DomainDistance::fit(&schema, &turned, &[0.0; 6], 2, Seed(2));
        assert_eq!(few.plain, again.plain);
        let (a, b) = (few.distances(&rows), again.distances(&rows));
        assert_eq!(
            a.iter().map(|d| *d < 1e-6).collect::<Vec<_>>(),
            b.iter().map(|d| *d < 1e-6).collect::<Vec<_>>(),
            "the same rows are prototypes"
        );
    }

    #[test]
    fn a_limit_lies_in_a_gap() {
        let distances = [0.1, 0.2, 0.3, 0.300_001, 0.300_002, 0.5, f32::NAN, 0.9];
        assert!(
            (DomainDistance::limit_for(&distances, 0.3) - 0.4).abs() < 1e-6,
            "not within the cluster at 0.3"
        );
        assert!((DomainDistance::limit_for(&distances, 0.0) - 0.15).abs() < 1e-6);
        assert!(DomainDistance::limit_for(&distances, 1.0) > 0.9);
        assert!(DomainDistance::limit_for(&[], 0.9).is_infinite());
    }

    #[test]
    fn without_columns_every_row_is_near() {
        let fitted = DomainDistance::fit(&schema(&["sharing_mps_ratio"]), &[1.0, 0.0], &[0.0], 8, Seed(1));
        assert_eq!((fitted.dimensions(), fitted.prototypes_total()), (0, 0));
        assert_eq!(fitted.with_limit(0.1).distances(&[0.5]), [0.0]);
    }
}
