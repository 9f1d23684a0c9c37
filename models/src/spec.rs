//! A fitted model before it becomes a file.

use crate::physics::prepare;
use crate::{Error, FeatureSchema, Forest, ModelMetadata, PhysicsSpec};

/// Log slowdowns are held within these bounds, so that no input gives a number that cannot be a slowdown: 0.5 to 1000.
pub(crate) const LOG_BOUNDS: (f32, f32) = (-std::f32::consts::LN_2, 6.907_755_4);
/// A value may lie outside the training range by this share of the range and still count as inside.
pub const DOMAIN_TOLERANCE_RATIO: f32 = 0.05;
/// Standard scores of a linear body are held within these bounds; it guards against overflow only.
pub(crate) const SCORE_GUARD: f32 = 1e6;

/// What turns a prepared row (raw features, then physics features) into the logarithm of the slowdown.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// Regression trees.
    Forest(Forest),
    /// `bias + sum(weights · (x − mean) / scale)`; all four lists run over the prepared row.
    Linear {
        /// Centre of each column.
        mean: Vec<f32>,
        /// Spread of each column, above 0.
        scale: Vec<f32>,
        /// Weight of each standard score.
        weights: Vec<f64>,
        /// Log slowdown at the centre.
        bias: f64,
    },
    /// The same log slowdown for every row.
    Constant(f64),
}

/// A fitted model: all that [`export`](crate::export) needs.
///
/// Domain rule: a row is in the domain if every value lies within the training range of its column, widened by
/// [`DOMAIN_TOLERANCE_RATIO`] of that range on both sides. A missing value is in the domain exactly if that column had
/// missing values in training, and is then imputed.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// The raw features.
    pub schema: FeatureSchema,
    /// What replaces a missing value in each column: the training median. Finite.
    pub impute: Vec<f32>,
    /// The derived features.
    pub physics: PhysicsSpec,
    /// The learner's result.
    pub body: Body,
    /// Distance of the upper bound from the point in log slowdown, at least 0.
    pub upper_offset_log: f64,
    /// Least training value of each column. Finite.
    pub domain_lower: Vec<f32>,
    /// Largest training value of each column. Finite.
    pub domain_upper: Vec<f32>,
    /// Whether the column had missing values in training.
    pub domain_missing: Vec<bool>,
    /// What the file says about itself.
    pub metadata: ModelMetadata,
}

/// Medians and ranges of training rows; see [`fit_domain`].
#[derive(Debug, Clone, PartialEq)]
pub struct Domain {
    /// Median of the present values; 0 for a column without any.
    pub impute: Vec<f32>,
    /// Least present value.
    pub lower: Vec<f32>,
    /// Largest present value.
    pub upper: Vec<f32>,
    /// Whether a value was missing.
    pub missing: Vec<bool>,
}

/// Medians and ranges of the columns of row-major training rows; NaN = missing.
pub fn fit_domain(rows: &[f32], width: usize) -> Result<Domain, Error> {
    if width == 0 || rows.is_empty() || !rows.len().is_multiple_of(width) {
        return Err(Error::Rows { length: rows.len(), width });
    }
    let mut domain = Domain { impute: Vec::new(), lower: Vec::new(), upper: Vec::new(), missing: Vec::new() };
    for column in 0..width {
        let mut values: Vec<f32> = rows.iter().copied().skip(column).step_by(width).collect();
        if let Some(row) = values.iter().position(|value| value.is_infinite()) {
            return Err(Error::RowValue { row, feature: format!("feature {column}") });
        }
        let total = values.len();
        values.retain(|value| !value.is_nan());
        values.sort_unstable_by(f32::total_cmp);
        domain.missing.push(values.len() < total);
        domain.impute.push(values.get(values.len() / 2).copied().unwrap_or(0.0));
        domain.lower.push(values.first().copied().unwrap_or(0.0));
        domain.upper.push(values.last().copied().unwrap_or(0.0));
    }
    Ok(domain)
}

/// What a model says about one row, in double precision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Evaluation {
    pub(crate) slowdown: f64,
    pub(crate) upper: f64,
    pub(crate) in_domain: bool,
}

impl ModelSpec {
    /// Width of a prepared row.
    pub fn prepared_width(&self) -> usize {
        self.schema.width() + self.physics.width()
    }

    /// The bounds of the domain with their tolerance.
    pub(crate) fn domain_bounds(&self) -> (Vec<f32>, Vec<f32>) {
        let widen = |low: f32, high: f32| {
            let slack = ((high - low) * DOMAIN_TOLERANCE_RATIO).max(low.abs().max(high.abs()) * 1e-6);
            ((low - slack).max(-f32::MAX), (high + slack).min(f32::MAX / 2.0))
        };
        self.domain_lower.iter().zip(&self.domain_upper).map(|(low, high)| widen(*low, *high)).unzip()
    }

    /// The logarithm of the slowdown of a prepared row, in double precision and before it is held within bounds.
    pub(crate) fn body(&self, prepared: &[f32]) -> Option<f64> {
        match &self.body {
            Body::Forest(forest) => forest.evaluate(prepared),
            Body::Constant(value) => Some(*value),
            Body::Linear { mean, scale, weights, bias } => {
                let guard = f64::from(SCORE_GUARD);
                let score = |column: usize| {
                    ((f64::from(prepared[column]) - f64::from(mean[column])) / f64::from(scale[column]))
                        .clamp(-guard, guard)
                };
                Some(bias + weights.iter().enumerate().map(|(column, w)| w * score(column)).sum::<f64>())
            }
        }
    }

    /// The training side's evaluation of raw rows, one after another: the reference that an export must meet.
    pub(crate) fn evaluate(&self, rows: &[f32]) -> Vec<Evaluation> {
        let (lower, upper) = self.domain_bounds();
        let bounds = (f64::from(LOG_BOUNDS.0), f64::from(LOG_BOUNDS.1));
        let mut prepared = Vec::with_capacity(self.prepared_width());
        rows.chunks_exact(self.schema.width())
            .map(|row| {
                prepared.clear();
                prepare(&self.physics, &self.impute, row, &mut prepared);
                let log = self.body(&prepared).unwrap_or(f64::NAN).clamp(bounds.0, bounds.1);
                let in_domain = row.iter().enumerate().all(|(column, value)| {
                    if value.is_nan() {
                        self.domain_missing[column]
                    } else {
                        *value >= lower[column] && *value <= upper[column]
                    }
                });
                Evaluation { slowdown: log.exp(), upper: (log + self.upper_offset_log).exp(), in_domain }
            })
            .collect()
    }

    /// Refuses a model whose file would not be sound.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let width = self.schema.width();
        let prepared = self.prepared_width();
        let lengths = [
            ("impute", self.impute.len()),
            ("domain_lower", self.domain_lower.len()),
            ("domain_upper", self.domain_upper.len()),
            ("domain_missing", self.domain_missing.len()),
        ];
        for (part, length) in lengths {
            if length != width {
                return Err(Error::spec(part, format!("has {length} values for {width} features")));
            }
        }
        if self.physics != PhysicsSpec::none() && self.physics != crate::physics::physics(&self.schema) {
            return Err(Error::spec("physics", "belongs to another feature list"));
        }
        for (part, values) in [
            ("impute", &self.impute),
            ("domain_lower", &self.domain_lower),
            ("domain_upper", &self.domain_upper),
        ] {
            if let Some(column) = values.iter().position(|value| !value.is_finite()) {
                let name = &self.schema.names()[column];
                return Err(Error::spec(part, format!("of {name} is {}", values[column])));
            }
        }
        if let Some(column) = (0..width).find(|&c| self.domain_lower[c] > self.domain_upper[c]) {
            let name = &self.schema.names()[column];
            return Err(Error::spec("domain_lower", format!("of {name} is above domain_upper")));
        }
        if !(0.0..=f64::from(LOG_BOUNDS.1)).contains(&self.upper_offset_log) {
            let reason = format!("is {}, it must lie within 0 and {}", self.upper_offset_log, LOG_BOUNDS.1);
            return Err(Error::spec("upper_offset_log", reason));
        }
        let level = self.metadata.conformal_level;
        if !(level > 0.0 && level < 1.0) {
            return Err(Error::spec("conformal_level", format!("is {level}, it must lie within 0 and 1")));
        }
        self.check_body(prepared)
    }

    fn check_body(&self, prepared: usize) -> Result<(), Error> {
        match &self.body {
            Body::Constant(value) if !value.is_finite() => {
                Err(Error::spec("the constant", format!("is {value}")))
            }
            Body::Constant(_) => Ok(()),
            Body::Forest(forest) => {
                if forest.trees.is_empty() {
                    return Err(Error::spec("the forest", "has no tree"));
                }
                if !forest.base.is_finite() || forest.base.abs() > 1e6 {
                    return Err(Error::spec("the forest's base", format!("is {}", forest.base)));
                }
                let fault = |(index, tree): (usize, &crate::Tree)| {
                    tree.fault(prepared).map(|fault| Error::spec(format!("tree {index}"), fault))
                };
                forest.trees.iter().enumerate().find_map(fault).map_or(Ok(()), Err)
            }
            Body::Linear { mean, scale, weights, bias } => {
                for (part, length) in
                    [("mean", mean.len()), ("scale", scale.len()), ("weights", weights.len())]
                {
                    if length != prepared {
                        let reason = format!("has {length} values for {prepared} prepared features");
                        return Err(Error::spec(part, reason));
                    }
                }
                let sound = mean.iter().all(|value| value.is_finite())
                    && scale.iter().all(|value| value.is_finite() && *value > 0.0)
                    && weights.iter().chain([bias]).all(|value| value.abs() <= 1e9);
                if sound {
                    Ok(())
                } else {
                    Err(Error::spec(
                        "the linear body",
                        "has a mean, scale, weight or bias that is not usable",
                    ))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_ranges_and_missing_columns() {
        let nan = f32::NAN;
        let domain = fit_domain(&[1.0, nan, 3.0, nan, 2.0, nan], 2).unwrap();
        assert_eq!(domain.impute, [2.0, 0.0]);
        assert_eq!((domain.lower[0], domain.upper[0]), (1.0, 3.0));
        assert_eq!(domain.missing, [false, true]);
        assert!(matches!(fit_domain(&[1.0, 2.0, 3.0], 2), Err(Error::Rows { length: 3, width: 2 })));
        assert!(matches!(fit_domain(&[1.0, f32::INFINITY], 1), Err(Error::RowValue { row: 1, .. })));
    }
}
