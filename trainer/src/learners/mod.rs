//! The learners, one file each behind one trait, over plain matrices.

mod elastic_net;
mod extra_trees;
mod forest;
mod mean;
mod nodes;
mod processor_sharing;
mod random_forest;

use crate::Error;
use crate::matrix::Matrix;
use elastico_core::{Seed, suggest};
use elastico_models::Tree;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Which learner, by the name in files and on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearnerKind {
    /// The mean of log slowdown: what every other learner must beat.
    Mean,
    /// max(1, u₁ + u₂) of the busy shares of both sides, without any fit.
    ProcessorSharing,
    /// Linear in standardised physics features, by linfa.
    ElasticNet,
    /// Bootstrapped trees with the best threshold, by smartcore.
    RandomForest,
    /// Trees with random thresholds (Geurts et al. 2006), by smartcore. The default.
    ExtraTrees,
}

/// How large a forest may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Number of trees.
    pub trees: usize,
    /// Greatest depth; `None` grows until the leaves are pure.
    pub max_depth: Option<u16>,
    /// Fewest rows of a leaf.
    pub min_leaf: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { trees: 150, max_depth: None, min_leaf: 1 }
    }
}

impl Bounds {
    /// Refuses sizes that no forest can have.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |what, value, range| Err(Error::Setting { what, value, range });
        match self {
            Self { trees, .. } if !(1..=5000).contains(trees) => {
                refuse("the number of trees", *trees as f64, "1 to 5000")
            }
            Self { max_depth: Some(depth), .. } if *depth < 2 => {
                refuse("the depth of a tree", f64::from(*depth), "at least 2")
            }
            Self { min_leaf: 0, .. } => refuse("the fewest rows of a leaf", 0.0, "at least 1"),
            _ => Ok(()),
        }
    }
}

/// What a learner sees: finite `f32` features, log slowdown, and weights of mean 1 where intervals were measured.
#[derive(Debug)]
pub(crate) struct Training<'a> {
    pub(crate) features: &'a Matrix,
    pub(crate) names: &'a [String],
    pub(crate) target: &'a [f64],
    pub(crate) weights: Option<&'a [f64]>,
}

/// One way to fit.
pub(crate) trait Learner: Sync {
    /// Fits; the same data, bounds and seed give the same result on any number of cores.
    fn fit(&self, training: &Training<'_>, bounds: &Bounds, seed: Seed) -> Result<Fitted, Error>;
}

/// The natural logarithms of 0.5 and 1000, as in the graph.
const LOG_BOUNDS: (f64, f64) = (-std::f64::consts::LN_2, 6.907_755_4);

/// What was learnt: a function from features to log slowdown.
#[derive(Debug, Clone)]
pub(crate) enum Fitted {
    /// The same for all rows.
    Constant(f64),
    /// `bias + Σ weight · (x − center) ÷ scale`.
    Linear(Linear),
    /// The mean of the trees.
    Forest(Vec<Tree>),
    /// The columns of the busy shares.
    Sharing { subject: usize, co_runner: usize },
}

/// A linear model on scaled features.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Linear {
    pub(crate) weights: Vec<f64>,
    pub(crate) center: Vec<f64>,
    pub(crate) scale: Vec<f64>,
    pub(crate) bias: f64,
}

impl Fitted {
    /// Predicted log slowdown of each row, held within the bounds of the exported graph (0.5 to 1000).
    pub(crate) fn predict(&self, features: &Matrix) -> Vec<f64> {
        let mut logs = self.raw(features);
        for log in &mut logs {
            *log = log.clamp(LOG_BOUNDS.0, LOG_BOUNDS.1);
        }
        logs
    }

    fn raw(&self, features: &Matrix) -> Vec<f64> {
        match self {
            Self::Constant(value) => vec![*value; features.rows()],
            Self::Linear(linear) => features.iter().map(|row| linear.predict(row)).collect(),
            Self::Forest(trees) => {
                let mut sums = vec![0.0; features.rows()];
                // Tree by tree, so that one tree's nodes stay in the cache for all rows.
                for tree in trees {
                    for (sum, row) in sums.iter_mut().zip(features.iter()) {
                        *sum += forest::leaf(tree, row);
                    }
                }
                sums.iter().map(|sum| sum / trees.len() as f64).collect()
            }
            Self::Sharing { subject, co_runner } => features
                .iter()
                .map(|row| (f64::from(row[*subject]) + f64::from(row[*co_runner])).max(1.0).ln())
                .collect(),
        }
    }
}

impl Linear {
    fn predict(&self, row: &[f32]) -> f64 {
        let scaled = row
            .iter()
            .zip(&self.center)
            .zip(&self.scale)
            .map(|((x, center), scale)| (f64::from(*x) - center) / scale);
        self.bias + scaled.zip(&self.weights).map(|(x, weight)| x * weight).sum::<f64>()
    }
}

impl LearnerKind {
    /// Every learner, the plainest first.
    pub const ALL: [Self; 5] =
        [Self::Mean, Self::ProcessorSharing, Self::ElasticNet, Self::RandomForest, Self::ExtraTrees];

    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::ProcessorSharing => "processor_sharing",
            Self::ElasticNet => "elastic_net",
            Self::RandomForest => "random_forest",
            Self::ExtraTrees => "extra_trees",
        }
    }

    pub(crate) fn learner(self) -> &'static dyn Learner {
        match self {
            Self::Mean => &mean::Mean,
            Self::ProcessorSharing => &processor_sharing::ProcessorSharing,
            Self::ElasticNet => &elastic_net::ElasticNet,
            Self::RandomForest => &random_forest::RandomForest,
            Self::ExtraTrees => &extra_trees::ExtraTrees,
        }
    }
}

impl fmt::Display for LearnerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for LearnerKind {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.map(Self::as_str);
        Self::ALL.into_iter().find(|learner| learner.as_str() == text).ok_or_else(|| Error::Unknown {
            what: "learner",
            name: text.to_owned(),
            suggestion: suggest(text, known),
            known: known.join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A smooth surface with one useless column.
    fn surface(rows: usize) -> (Matrix, Vec<f64>) {
        use rand::RngExt as _;
        let mut stream = Seed(3).stream("test", &[]);
        let mut values = Vec::new();
        let mut target = Vec::new();
        for _ in 0..rows {
            let (a, b, c): (f32, f32, f32) = (stream.random(), stream.random(), stream.random());
            values.extend([a, b, c]);
            target.push((f64::from(a) + f64::from(b) - 1.0).max(0.0) + 0.1 * f64::from(a));
        }
        (Matrix::new(3, values), target)
    }

    fn error_of(kind: LearnerKind) -> f64 {
        let names: Vec<String> =
            ["subject_sm_active_ratio", "co_runner_sm_active_ratio", "noise"].map(String::from).to_vec();
        let (features, target) = surface(400);
        let training = Training { features: &features, names: &names, target: &target, weights: None };
        let fitted = kind.learner().fit(&training, &Bounds::default(), Seed(1)).unwrap();
        let (test, truth) = surface(600);
        let predicted = fitted.predict(&test);
        truth.iter().zip(&predicted).skip(400).map(|(y, p)| (y - p).abs()).sum::<f64>() / 200.0
    }

    #[test]
    fn each_learner_beats_the_mean_on_a_smooth_surface() {
        let mean = error_of(LearnerKind::Mean);
        for kind in [LearnerKind::ElasticNet, LearnerKind::RandomForest, LearnerKind::ExtraTrees] {
            let error = error_of(kind);
            assert!(error < 0.6 * mean, "{kind}: {error} against {mean}");
        }
        assert!(error_of(LearnerKind::ExtraTrees) < 0.2 * mean);
    }

    #[test]
    fn fits_are_deterministic_and_weights_count() {
        let names = vec!["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let (features, target) = surface(200);
        let bounds = Bounds { trees: 20, max_depth: Some(8), min_leaf: 5 };
        let weights: Vec<f64> = (0..200).map(|row| if row % 2 == 0 { 1.9 } else { 0.1 }).collect();
        for kind in [LearnerKind::RandomForest, LearnerKind::ExtraTrees] {
            let fit = |weights: Option<&[f64]>, seed| {
                let training = Training { features: &features, names: &names, target: &target, weights };
                kind.learner().fit(&training, &bounds, Seed(seed)).unwrap().predict(&features)
            };
            assert_eq!(fit(None, 1), fit(None, 1), "{kind}");
            assert_ne!(fit(None, 1), fit(None, 2), "{kind}");
            assert_ne!(fit(None, 1), fit(Some(&weights), 1), "{kind}");
        }
    }

    #[test]
    fn names_round_trip_and_typos_are_caught() {
        for kind in LearnerKind::ALL {
            assert_eq!(kind.as_str().parse::<LearnerKind>().unwrap(), kind);
        }
        let error = "extra_tree".parse::<LearnerKind>().unwrap_err();
        assert!(error.to_string().ends_with("did you mean `extra_trees`?"), "{error}");
    }
}
