//! What was learnt: a function from rows to log slowdown.

use super::factors::Factors;
use super::gpu_lets::Interference;
use super::rule_tree::Decision;
use super::{LearnerKind, Training, forest};
use crate::Error;
use elastico_models::{Body, Forest, Link, Shrunk};

/// The natural logarithms of [`elastico_datasets::SLOWDOWN_RANGE`], 0.5 and 1000, as in the graph.
const LOG_BOUNDS: (f64, f64) = (-std::f64::consts::LN_2, 6.907_755_4);

/// What was learnt.
#[derive(Debug, Clone)]
pub(crate) enum Fitted {
    /// The same for all rows.
    Constant(f64),
    /// A line.
    Linear(Linear),
    /// The mean or the sum of trees.
    Forest(Forest),
    /// A line over products of columns.
    Interference(Interference),
    /// Effects of workloads, known by name.
    Factors(Factors),
    /// Safe or not, without a number.
    Decision(Decision),
    /// Another, drawn toward the mean where a family is unknown.
    Shrunk(Box<ShrunkFit>),
}

/// See [`elastico_models::Shrunk`].
#[derive(Debug, Clone)]
pub(crate) struct ShrunkFit {
    pub(crate) base: Fitted,
    /// Columns of the family indicators.
    pub(crate) families: Vec<usize>,
    pub(crate) center: f64,
    pub(crate) factor: f64,
}

/// `bias + Σ weight · (x − center) ÷ scale`, through the link.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Linear {
    pub(crate) weights: Vec<f64>,
    pub(crate) center: Vec<f64>,
    pub(crate) scale: Vec<f64>,
    pub(crate) bias: f64,
    pub(crate) link: Link,
}

impl Fitted {
    /// Predicted log slowdown of each row, held within the bounds of the exported graph (0.5 to 1000).
    ///
    /// Of `rows` only features, names and groups are read.
    pub(crate) fn predict(&self, rows: &Training<'_>) -> Vec<f64> {
        let mut logs = self.raw(rows);
        for log in &mut logs {
            *log = log.clamp(LOG_BOUNDS.0, LOG_BOUNDS.1);
        }
        logs
    }

    fn raw(&self, rows: &Training<'_>) -> Vec<f64> {
        let features = rows.features;
        match self {
            Self::Constant(value) => vec![*value; features.rows()],
            Self::Linear(linear) => features.iter().map(|row| linear.predict(row)).collect(),
            Self::Forest(forest) => {
                let mut sums = vec![0.0; features.rows()];
                // Tree by tree, so that one tree's nodes stay in the cache for all rows.
                for tree in &forest.trees {
                    // Weighed once for each leaf rather than for each row: a harmonic mean costs an exponential.
                    let mut weighed = tree.clone();
                    for node in weighed.nodes.iter_mut().filter(|node| node.is_leaf()) {
                        node.value = forest.weigh(node.value);
                    }
                    for (sum, row) in sums.iter_mut().zip(features.iter()) {
                        *sum += forest::leaf(&weighed, row);
                    }
                }
                sums.iter().map(|sum| forest.conclude(*sum)).collect()
            }
            Self::Interference(line) => features.iter().map(|row| line.predict(row)).collect(),
            Self::Factors(factors) => factors.predict(rows.groups),
            Self::Decision(decision) => decision.predict(rows),
            Self::Shrunk(shrunk) => {
                let ShrunkFit { base, families, center, factor } = &**shrunk;
                let mut logs = base.raw(rows);
                for (log, row) in logs.iter_mut().zip(features.iter()) {
                    let known: f64 = families.iter().map(|&column| f64::from(row[column])).sum();
                    let weight = factor + (1.0 - factor) * (known - 1.0).max(0.0);
                    *log = center + weight * (*log - center);
                }
                logs
            }
        }
    }

    /// What the exported file holds.
    ///
    /// # Errors
    /// [`Error::Learner`] where the learner has no form that the file can hold.
    pub(crate) fn into_body(self, learner: LearnerKind) -> Result<Body, Error> {
        let refuse =
            |reason: &str| Err(Error::Learner { learner: learner.as_str(), reason: reason.to_owned() });
        Ok(match self {
            Self::Constant(value) => Body::Constant(value),
            Self::Linear(linear) => Body::Linear {
                mean: linear.center.iter().map(|value| *value as f32).collect(),
                scale: linear.scale.iter().map(|value| *value as f32).collect(),
                weights: linear.weights,
                bias: linear.bias,
                link: linear.link,
            },
            Self::Forest(forest) => Body::Forest(forest),
            Self::Shrunk(shrunk) => Body::Shrunk(Box::new(Shrunk {
                base: shrunk.base.into_body(learner)?,
                families: shrunk.families.iter().map(|&column| column as u32).collect(),
                center: shrunk.center,
                factor: shrunk.factor,
            })),
            Self::Interference(_) => {
                return refuse(
                    "shares of the SMs vary here, and utilisation times share has no place in the model file",
                );
            }
            Self::Factors(_) => {
                return refuse(
                    "it knows workloads by name, not by features, so a file of it could not predict a new one",
                );
            }
            Self::Decision(_) => return refuse("it says safe or not, a model file holds a slowdown"),
        })
    }
}

impl Linear {
    pub(crate) fn predict(&self, row: &[f32]) -> f64 {
        let scaled = row
            .iter()
            .zip(&self.center)
            .zip(&self.scale)
            .map(|((x, center), scale)| (f64::from(*x) - center) / scale);
        let sum = self.bias + scaled.zip(&self.weights).map(|(x, weight)| x * weight).sum::<f64>();
        match self.link {
            Link::Log => sum,
            Link::Ratio { least } => sum.max(least).ln(),
        }
    }

    /// A formula over raw columns: the sum of `weight · x` over the named columns, at least 1.
    pub(crate) fn formula(width: usize, bias: f64, terms: &[(usize, f64)]) -> Self {
        let mut weights = vec![0.0; width];
        for (column, weight) in terms {
            weights[*column] += weight;
        }
        let link = Link::Ratio { least: 1.0 };
        Self { weights, center: vec![0.0; width], scale: vec![1.0; width], bias, link }
    }
}
