//! A fitted model before it becomes a file.

mod body;
mod distance;
mod domain;

pub(crate) use body::SCORE_GUARD;
pub use body::{Body, Calibrated, Gate, Link, Shrunk};
pub use distance::DomainDistance;
pub use domain::{DOMAIN_TOLERANCE_RATIO, Domain, fit_domain};

use crate::physics::prepare;
use crate::{Error, FeatureSchema, ModelMetadata, PhysicsSpec};

/// Log slowdowns are held within these bounds, so that no input gives a number that cannot be a slowdown: 0.5 to 1000.
pub(crate) const LOG_BOUNDS: (f32, f32) = (-std::f32::consts::LN_2, 6.907_755_4);

/// A fitted model: all that [`export`](crate::export) needs.
///
/// Domain rule: a row is in the domain if every value lies within the training range of its column, widened by
/// [`DOMAIN_TOLERANCE_RATIO`] of that range on both sides, and if the row as a whole lies near the training rows, where
/// [`domain_distance`](Self::domain_distance) says so. A missing value is in the domain exactly if that column had
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
    /// Distance of the upper bound from the point in log slowdown, at least 0. The bound itself is at least 1: nothing is promised
    /// to run faster beside another.
    pub upper_offset_log: f64,
    /// Least training value of each column. Finite.
    pub domain_lower: Vec<f32>,
    /// Largest training value of each column. Finite.
    pub domain_upper: Vec<f32>,
    /// Whether the column had missing values in training.
    pub domain_missing: Vec<bool>,
    /// How far from the training rows a row may lie; `None` = the ranges alone decide.
    pub domain_distance: Option<DomainDistance>,
    /// What the file says about itself.
    pub metadata: ModelMetadata,
}

/// What a model says about one row, in double precision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Evaluation {
    pub(crate) slowdown: f64,
    pub(crate) upper: f64,
    /// `None` where the distance lies so near its limit that single precision may decide either way.
    pub(crate) in_domain: Option<bool>,
}

impl ModelSpec {
    /// Width of a prepared row.
    pub fn prepared_width(&self) -> usize {
        self.schema.width() + self.physics.width()
    }

    /// The same model with raw features appended to its list, for example `subject_workload=NAME`.
    ///
    /// The new columns have the range 0 to 1, and a missing value there counts as 0 and as inside the domain; nothing
    /// reads them yet. Columns of the body are renumbered where they move.
    ///
    /// # Errors
    /// [`Error::FeatureName`] for a name that is no feature or stands there already, [`Error::Spec`] for a feature from
    /// which others would be derived.
    pub fn with_features(&self, extra: &[String]) -> Result<Self, Error> {
        let width = self.schema.width();
        let mut names = self.schema.names().to_vec();
        names.extend_from_slice(extra);
        let schema = FeatureSchema::new(&names)?;
        if self.physics != PhysicsSpec::none() && self.physics != crate::physics::physics(&schema) {
            return Err(Error::spec("the new features", "are such that others are derived from them"));
        }
        let mut wider = self.clone();
        wider.body = self.body.widened(width, extra.len());
        wider.impute.resize(names.len(), 0.0);
        wider.domain_lower.resize(names.len(), 0.0);
        wider.domain_upper.resize(names.len(), 1.0);
        wider.domain_missing.resize(names.len(), true);
        wider.domain_distance = self.domain_distance.as_ref().map(|distance| distance.widened(names.len()));
        wider.metadata.features = schema.clone();
        wider.metadata.features_digest = schema.digest();
        wider.schema = schema;
        Ok(wider)
    }

    /// The log slowdown of each raw row, held within the bounds of the graph (0.5 to 1000).
    ///
    /// # Panics
    /// Where `rows` is no multiple of the width of the schema.
    pub fn log_slowdown(&self, rows: &[f32]) -> Vec<f64> {
        assert!(rows.len().is_multiple_of(self.schema.width()), "rows have the width of the schema");
        self.evaluate(rows).into_iter().map(|evaluation| evaluation.slowdown.ln()).collect()
    }

    /// The standard deviation of the log slowdown over the trees, for each raw row; NaN where the body has no trees that
    /// are averaged, or only one.
    ///
    /// It says how much the trees disagree: where it is large, one more measurement teaches most.
    ///
    /// # Panics
    /// Where `rows` is no multiple of the width of the schema.
    pub fn spread(&self, rows: &[f32]) -> Vec<f64> {
        assert!(rows.len().is_multiple_of(self.schema.width()), "rows have the width of the schema");
        let mut prepared = Vec::with_capacity(self.prepared_width());
        rows.chunks_exact(self.schema.width())
            .map(|row| {
                prepared.clear();
                prepare(&self.physics, &self.impute, row, &mut prepared);
                self.body.spread(&prepared).unwrap_or(f64::NAN)
            })
            .collect()
    }

    /// The bounds of the domain with their tolerance.
    pub(crate) fn domain_bounds(&self) -> (Vec<f32>, Vec<f32>) {
        self.domain_lower
            .iter()
            .zip(&self.domain_upper)
            .map(|(low, high)| domain::widened(*low, *high))
            .unzip()
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
                let log = self.body.evaluate(&prepared).unwrap_or(f64::NAN).clamp(bounds.0, bounds.1);
                let in_box = row.iter().enumerate().all(|(column, value)| {
                    if value.is_nan() {
                        self.domain_missing[column]
                    } else {
                        *value >= lower[column] && *value <= upper[column]
                    }
                });
                let in_domain = match &self.domain_distance {
                    Some(distance) if in_box => distance.is_near(&prepared),
                    _ => Some(in_box),
                };
                let upper = (log + self.upper_offset_of(&prepared)).max(0.0);
                Evaluation { slowdown: log.exp(), upper: upper.exp(), in_domain }
            })
            .collect()
    }

    /// Distance of the bound from the point for a prepared row.
    fn upper_offset_of(&self, prepared: &[f32]) -> f64 {
        match self.body.gate().and_then(|gate| Some((gate.open(prepared)?, gate.upper_offset_log_elsewhere)))
        {
            Some((open, elsewhere)) => elsewhere + open * (self.upper_offset_log - elsewhere),
            None => self.upper_offset_log,
        }
    }

    /// Refuses a model whose file would not be sound.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let width = self.schema.width();
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
        if let Some(distance) = &self.domain_distance {
            distance.check(&self.impute)?;
        }
        self.body.check(width, self.prepared_width())
    }
}
