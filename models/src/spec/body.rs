//! What a learner hands over: from a prepared row to the logarithm of the slowdown.

use super::LOG_BOUNDS;
use crate::{Error, Forest};

/// Standard scores of a linear body are held within these bounds; it guards against overflow only.
pub(crate) const SCORE_GUARD: f32 = 1e6;
/// The least [`Link::Ratio`] may be held at, and the largest: what can be a slowdown.
const RATIOS: std::ops::RangeInclusive<f64> = 0.5..=1000.0;

/// What turns a prepared row (raw features, then physics features) into the logarithm of the slowdown.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// Regression trees.
    Forest(Forest),
    /// `bias + sum(weights · (x − mean) / scale)`, read by `link`; the lists run over the prepared row.
    Linear {
        /// Centre of each column.
        mean: Vec<f32>,
        /// Spread of each column, above 0.
        scale: Vec<f32>,
        /// Weight of each standard score.
        weights: Vec<f64>,
        /// The sum at the centre.
        bias: f64,
        /// What the sum is.
        link: Link,
    },
    /// The same log slowdown for every row.
    Constant(f64),
    /// Another body, drawn toward the mean where a family is unknown.
    Shrunk(Box<Shrunk>),
    /// Another body, adapted to a new device or new workloads.
    Calibrated(Box<Calibrated>),
}

/// What the sum of a linear body is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Link {
    /// The logarithm of the slowdown.
    Log,
    /// The slowdown itself: the logarithm is `ln(max(sum, least))`.
    Ratio {
        /// The least slowdown, within 0.5 and 1000.
        least: f64,
    },
}

/// A body that knows what it does not know: `center + w · (base − center)`, where w is 1 for two known families and
/// `factor` otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Shrunk {
    /// The body; a forest, a line or a constant.
    pub base: Body,
    /// The raw columns `subject_family=NAME` and `co_runner_family=NAME`: a row of two known families has a 1 in two of
    /// them, any other in fewer.
    pub families: Vec<u32>,
    /// Mean log slowdown of the training rows.
    pub center: f64,
    /// How much of the base's distance from the mean is believed of an unknown family, 0 to 1.
    pub factor: f64,
}

impl Shrunk {
    fn weight(&self, prepared: &[f32]) -> Option<f64> {
        let known = |column: &u32| prepared.get(*column as usize).map(|value| f64::from(*value));
        let known = self.families.iter().map(known).sum::<Option<f64>>()?;
        Some(self.factor + (1.0 - self.factor) * (known - 1.0).max(0.0))
    }

    fn check(&self, width: usize, prepared: usize) -> Result<(), Error> {
        let part = "the body of known families";
        if matches!(self.base, Body::Shrunk(_) | Body::Calibrated(_)) {
            return Err(Error::spec(part, "has a base that is itself corrected"));
        }
        if !(0.0..=1.0).contains(&self.factor) || self.center.is_nan() || self.center.abs() > 1e3 {
            let reason = format!("has the factor {} and the center {}", self.factor, self.center);
            return Err(Error::spec(part, reason));
        }
        let mut columns = self.families.clone();
        columns.sort_unstable();
        if columns.is_empty()
            || columns.windows(2).any(|pair| pair[0] == pair[1])
            || columns.last().is_some_and(|column| *column as usize >= width)
        {
            return Err(Error::spec(part, "names no raw columns, or one twice"));
        }
        self.base.check(width, prepared)
    }
}

/// A body with corrections: `scale · base + shift + sum(offset · raw column) + gate · residual`.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibrated {
    /// The body that is corrected; not itself calibrated.
    pub base: Body,
    /// Factor of the base's log slowdown.
    pub scale: f64,
    /// Added to the log slowdown.
    pub shift: f64,
    /// Raw columns, each at most once, and what their imputed value is multiplied with: for example the offset of a
    /// workload as subject beside its column `subject_workload=NAME`.
    pub offsets: Vec<(u32, f64)>,
    /// Trees over the prepared row that predict what the rest leaves over.
    pub residual: Option<Forest>,
    /// Which rows were measured; the trees speak of them alone. `None` = of all rows.
    pub gate: Option<Gate>,
}

/// Tells the rows that a calibration was measured for from all others, which keep what the base says of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// Raw indicator columns, for example `subject_workload=NAME`: a row with a 1 in one of them was measured for.
    pub columns: Vec<u32>,
    /// Distance of the upper bound from the point in log slowdown for all other rows, at least 0.
    pub upper_offset_log_elsewhere: f64,
}

impl Gate {
    /// 1 for a row that was measured for, else 0.
    pub(crate) fn open(&self, prepared: &[f32]) -> Option<f64> {
        let values = self.columns.iter().map(|column| prepared.get(*column as usize).copied().map(f64::from));
        Some(values.sum::<Option<f64>>()?.clamp(0.0, 1.0))
    }
}

impl Body {
    /// The logarithm of the slowdown of a prepared row, in double precision and before it is held within bounds. `None`
    /// where the body contradicts itself.
    pub(crate) fn evaluate(&self, prepared: &[f32]) -> Option<f64> {
        match self {
            Self::Forest(forest) => forest.evaluate(prepared),
            Self::Constant(value) => Some(*value),
            Self::Linear { mean, scale, weights, bias, link } => {
                let guard = f64::from(SCORE_GUARD);
                let score = |column: usize| {
                    ((f64::from(prepared[column]) - f64::from(mean[column])) / f64::from(scale[column]))
                        .clamp(-guard, guard)
                };
                let sum = bias + weights.iter().enumerate().map(|(column, w)| w * score(column)).sum::<f64>();
                Some(match link {
                    Link::Log => sum,
                    Link::Ratio { least } => sum.max(*least).ln(),
                })
            }
            Self::Shrunk(shrunk) => {
                let weight = shrunk.weight(prepared)?;
                Some(shrunk.center + weight * (shrunk.base.evaluate(prepared)? - shrunk.center))
            }
            Self::Calibrated(calibrated) => {
                let Calibrated { base, scale, shift, offsets, residual, gate } = &**calibrated;
                let gate = gate.as_ref().map_or(Some(1.0), |gate| gate.open(prepared))?;
                let residual = residual.as_ref().map_or(Some(0.0), |forest| forest.evaluate(prepared))?;
                let offset = |(column, offset): &(u32, f64)| {
                    Some(offset * f64::from(*prepared.get(*column as usize)?))
                };
                let offsets = offsets.iter().map(offset).sum::<Option<f64>>()?;
                Some(scale * base.evaluate(prepared)? + shift + offsets + gate * residual)
            }
        }
    }

    /// The standard deviation over the trees of a prepared row; `None` for a body without averaged trees.
    ///
    /// Of a calibrated body it is that of the base times the scale; a residual of averaged trees adds its variance, as if
    /// both were independent.
    pub(crate) fn spread(&self, prepared: &[f32]) -> Option<f64> {
        match self {
            Self::Forest(forest) => forest.spread(prepared),
            Self::Linear { .. } | Self::Constant(_) => None,
            // How much the trees disagree does not depend on how far they are believed.
            Self::Shrunk(shrunk) => shrunk.base.spread(prepared),
            Self::Calibrated(calibrated) => {
                let base = calibrated.base.spread(prepared).map(|spread| spread * calibrated.scale.abs());
                let residual = calibrated.residual.as_ref().and_then(|forest| forest.spread(prepared));
                match (base, residual) {
                    (Some(base), Some(residual)) => Some(base.hypot(residual)),
                    (base, residual) => base.or(residual),
                }
            }
        }
    }

    /// Which rows it was calibrated for, where that is not all.
    pub(crate) fn gate(&self) -> Option<&Gate> {
        match self {
            Self::Calibrated(calibrated) => calibrated.gate.as_ref(),
            _ => None,
        }
    }

    /// All trees that the body reads.
    pub(crate) fn forests(&self) -> Vec<&Forest> {
        match self {
            Self::Forest(forest) => vec![forest],
            Self::Linear { .. } | Self::Constant(_) => Vec::new(),
            Self::Shrunk(shrunk) => shrunk.base.forests(),
            Self::Calibrated(calibrated) => {
                let mut forests = calibrated.base.forests();
                forests.extend(&calibrated.residual);
                forests
            }
        }
    }

    /// The body over a row in which `extra` raw columns stand between the first `width` columns and the rest.
    pub(super) fn widened(&self, width: usize, extra: usize) -> Self {
        match self {
            Self::Constant(value) => Self::Constant(*value),
            Self::Forest(forest) => Self::Forest(widened(forest, width, extra)),
            Self::Linear { mean, scale, weights, bias, link } => Self::Linear {
                mean: inserted(mean, width, extra, 0.0),
                scale: inserted(scale, width, extra, 1.0),
                weights: inserted(weights, width, extra, 0.0),
                bias: *bias,
                link: *link,
            },
            // Known stays known: columns of new families are not among them.
            Self::Shrunk(shrunk) => Self::Shrunk(Box::new(Shrunk {
                base: shrunk.base.widened(width, extra),
                ..(**shrunk).clone()
            })),
            Self::Calibrated(calibrated) => Self::Calibrated(Box::new(Calibrated {
                base: calibrated.base.widened(width, extra),
                residual: calibrated.residual.as_ref().map(|forest| widened(forest, width, extra)),
                ..(**calibrated).clone()
            })),
        }
    }

    /// Refuses a body whose file would not be sound; rows have `width` raw columns and `prepared` in all.
    pub(super) fn check(&self, width: usize, prepared: usize) -> Result<(), Error> {
        match self {
            Self::Constant(value) if value.is_nan() || value.abs() > 1e6 => {
                Err(Error::spec("the constant", format!("is {value}")))
            }
            Self::Constant(_) => Ok(()),
            Self::Forest(forest) => forest.check("the forest", prepared),
            Self::Linear { mean, scale, weights, bias, link } => {
                for (part, length) in
                    [("mean", mean.len()), ("scale", scale.len()), ("weights", weights.len())]
                {
                    if length != prepared {
                        let reason = format!("has {length} values for {prepared} prepared features");
                        return Err(Error::spec(part, reason));
                    }
                }
                if let Link::Ratio { least } = link
                    && !RATIOS.contains(least)
                {
                    let reason =
                        format!("is {least}, it must lie within {} and {}", RATIOS.start(), RATIOS.end());
                    return Err(Error::spec("the least slowdown of the linear body", reason));
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
            Self::Shrunk(shrunk) => shrunk.check(width, prepared),
            Self::Calibrated(calibrated) => calibrated.check(width, prepared),
        }
    }
}

impl Calibrated {
    fn check(&self, width: usize, prepared: usize) -> Result<(), Error> {
        if matches!(self.base, Body::Calibrated(_)) {
            return Err(Error::spec("the calibrated body", "has a base that is itself calibrated"));
        }
        for (part, value) in [("scale", self.scale), ("shift", self.shift)] {
            if value.is_nan() || value.abs() > 1e3 {
                return Err(Error::spec("the calibrated body", format!("has the {part} {value}")));
            }
        }
        let mut columns: Vec<_> = self.offsets.iter().map(|(column, _)| *column).collect();
        columns.sort_unstable();
        if let Some([column, ..]) = columns.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::spec("the offsets", format!("name column {column} twice")));
        }
        for (column, offset) in &self.offsets {
            if *column as usize >= width || offset.is_nan() || offset.abs() > 1e6 {
                let reason = format!("give column {column} of {width} the offset {offset}");
                return Err(Error::spec("the offsets", reason));
            }
        }
        if let Some(residual) = &self.residual {
            residual.check("the residual forest", prepared)?;
        }
        if let Some(gate) = &self.gate {
            if gate.columns.is_empty() || gate.columns.iter().any(|column| *column as usize >= width) {
                return Err(Error::spec("the gate", "names no raw columns"));
            }
            if !(0.0..=f64::from(LOG_BOUNDS.1)).contains(&gate.upper_offset_log_elsewhere) {
                let reason = format!("has the offset {} of the bound", gate.upper_offset_log_elsewhere);
                return Err(Error::spec("the gate", reason));
            }
        }
        self.base.check(width, prepared)
    }
}

fn widened(forest: &Forest, width: usize, extra: usize) -> Forest {
    let mut forest = forest.clone();
    for node in forest.trees.iter_mut().flat_map(|tree| &mut tree.nodes) {
        if !node.is_leaf() && node.feature as usize >= width {
            node.feature += extra as u32;
        }
    }
    forest
}

fn inserted<T: Copy>(values: &[T], at: usize, count: usize, value: T) -> Vec<T> {
    let (before, after) = values.split_at(at.min(values.len()));
    [before, &vec![value; count], after].concat()
}
