//! The learners, one file each behind one trait, over plain matrices.

mod boosting;
mod elastic_net;
mod extra_trees;
mod factors;
mod few_families;
mod fitted;
mod forest;
mod gpu_lets;
mod inputs;
mod least_squares;
mod mean;
mod nodes;
mod options;
mod processor_sharing;
mod random_forest;
mod rule_tree;
mod saturation;
mod select;

use crate::matrix::Matrix;
use crate::{Error, Groups};
use elastico_core::{Seed, suggest};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

pub(crate) use extra_trees::grow_extra_trees;
pub(crate) use few_families::FEWEST_FAMILIES;
pub(crate) use fitted::Fitted;
pub(crate) use least_squares::Normal;
pub use options::{
    BiasFilterOptions, BoostingOptions, ElasticNetOptions, ForestOptions, GpuLetsOptions, LearnerOptions,
    MatrixFactorisationOptions, PhysicsUse, RuleTreeOptions, TreeMean, TreeTarget,
};
pub(crate) use select::{Choice, choose};

/// Which learner, by the name in files and on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearnerKind {
    /// The mean of log slowdown: what every other learner must beat.
    Mean,
    /// max(1, u₁ + u₂) of the busy shares of both sides, without any fit.
    ProcessorSharing,
    /// 1 + what saturates + what the co-runner presses on, with non-negative weights.
    Saturation,
    /// A line over L2 and DRAM utilisation of both sides (Choi et al. 2022).
    GpuLets,
    /// Effects of workloads known by name; a yardstick that cannot be exported.
    BiasFilter,
    /// Effects and factors of workloads known by name; a yardstick that cannot be exported.
    MatrixFactorisation,
    /// Linear in standardised physics features, by linfa.
    ElasticNet,
    /// Bootstrapped trees with the best threshold, by smartcore.
    RandomForest,
    /// Trees with random thresholds (Geurts et al. 2006), by smartcore. The default.
    ExtraTrees,
    /// Gradient boosting, by forust.
    Boosting,
    /// A small safe/unsafe tree by linfa, judged on that decision only.
    RuleTree,
    /// The best of [`LearnerOptions::candidates`] by cross-validation inside the training part.
    Auto,
}

/// What a learner sees: finite `f32` features, log slowdown, and weights of mean 1 where intervals were measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Training<'a> {
    pub(crate) features: &'a Matrix,
    pub(crate) names: &'a [String],
    /// How many of the columns are raw; those of the physics come behind them.
    pub(crate) raw: usize,
    pub(crate) target: &'a [f64],
    pub(crate) weights: Option<&'a [f64]>,
    /// Workloads, families, devices of each row.
    pub(crate) groups: &'a Groups,
    /// A slowdown up to this counts as safe to share.
    pub(crate) limit: f64,
}

impl Training<'_> {
    pub(crate) fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |weights| weights[row])
    }
}

/// One way to fit.
pub(crate) trait Learner: Sync {
    /// Fits; the same data, options and seed give the same result on any number of cores.
    fn fit(&self, training: &Training<'_>, options: &LearnerOptions, seed: Seed) -> Result<Fitted, Error>;
}

/// Chooses first; see [`choose`].
struct Auto;

impl Learner for Auto {
    fn fit(&self, training: &Training<'_>, options: &LearnerOptions, seed: Seed) -> Result<Fitted, Error> {
        choose(LearnerKind::Auto, training, options, seed)?.fit(training, seed)
    }
}

impl LearnerKind {
    /// Every learner, the plainest first; without [`Auto`](Self::Auto), which is one of them.
    pub const ALL: [Self; 11] = [
        Self::Mean,
        Self::ProcessorSharing,
        Self::Saturation,
        Self::GpuLets,
        Self::BiasFilter,
        Self::MatrixFactorisation,
        Self::ElasticNet,
        Self::RandomForest,
        Self::ExtraTrees,
        Self::Boosting,
        Self::RuleTree,
    ];

    /// Formulas of the busy shares, with at most a handful of fitted constants: what a learner must beat, next to the mean.
    pub const FORMULAS: [Self; 3] = [Self::ProcessorSharing, Self::Saturation, Self::GpuLets];

    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::ProcessorSharing => "processor_sharing",
            Self::Saturation => "saturation",
            Self::GpuLets => "gpu_lets",
            Self::BiasFilter => "bias_filter",
            Self::MatrixFactorisation => "matrix_factorisation",
            Self::ElasticNet => "elastic_net",
            Self::RandomForest => "random_forest",
            Self::ExtraTrees => "extra_trees",
            Self::Boosting => "boosting",
            Self::RuleTree => "rule_tree",
            Self::Auto => "auto",
        }
    }

    /// Whether a model file can hold what it learns, whatever the data.
    pub const fn is_exportable(self) -> bool {
        !matches!(self, Self::BiasFilter | Self::MatrixFactorisation | Self::RuleTree | Self::Auto)
    }

    /// Whether it says safe or not and nothing else: no error of a slowdown can be computed.
    pub const fn is_decision_only(self) -> bool {
        matches!(self, Self::RuleTree)
    }

    pub(crate) fn learner(self) -> &'static dyn Learner {
        match self {
            Self::Mean => &mean::Mean,
            Self::ProcessorSharing => &processor_sharing::ProcessorSharing,
            Self::Saturation => &saturation::Saturation,
            Self::GpuLets => &gpu_lets::GpuLets,
            Self::BiasFilter => &factors::BiasFilter,
            Self::MatrixFactorisation => &factors::MatrixFactorisation,
            Self::ElasticNet => &elastic_net::ElasticNet,
            Self::RandomForest => &random_forest::RandomForest,
            Self::ExtraTrees => &extra_trees::ExtraTrees,
            Self::Boosting => &boosting::Boosting,
            Self::RuleTree => &rule_tree::RuleTree,
            Self::Auto => &Auto,
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
        let all = || Self::ALL.into_iter().chain([Self::Auto]);
        all().find(|learner| learner.as_str() == text).ok_or_else(|| Error::Unknown {
            what: "learner",
            name: text.to_owned(),
            suggestion: suggest(text, all().map(Self::as_str)),
            known: all().map(Self::as_str).collect::<Vec<_>>().join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt as _;

    /// Rows to fit on, with what else a learner sees.
    pub(crate) struct Table {
        pub(crate) features: Matrix,
        pub(crate) names: Vec<String>,
        pub(crate) raw: usize,
        pub(crate) target: Vec<f64>,
        pub(crate) weights: Option<Vec<f64>>,
        pub(crate) groups: Groups,
    }

    impl Table {
        /// One pair and one family of its own for each five rows.
        pub(crate) fn of(names: &[&str], values: Vec<f32>, target: Vec<f64>) -> Self {
            let codes: Vec<u32> = (0..target.len() as u32).map(|row| row / 5).collect();
            let groups = Groups {
                pair: codes.clone(),
                subject_family: codes.clone(),
                co_runner_family: codes.clone(),
                device: vec![0; codes.len()],
                subject: codes.clone(),
                co_runner: codes.clone(),
                context: vec![0; codes.len()],
                families: codes.iter().map(ToString::to_string).collect(),
                ..Groups::default()
            };
            let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let raw = names.len();
            Self { features: Matrix::new(raw, values), names, raw, target, weights: None, groups }
        }

        /// Columns drawn from 0..1, and a law for the log slowdown.
        pub(crate) fn random(rows: usize, names: &[&str], law: impl Fn(&[f32]) -> f64) -> Self {
            let mut stream = Seed(3).stream("test", &[]);
            let values: Vec<f32> = (0..rows * names.len()).map(|_| stream.random()).collect();
            let target = values.chunks(names.len()).map(law).collect();
            Self::of(names, values, target)
        }

        pub(crate) fn training(&self) -> Training<'_> {
            Training {
                features: &self.features,
                names: &self.names,
                raw: self.raw,
                target: &self.target,
                weights: self.weights.as_deref(),
                groups: &self.groups,
                limit: 1.2,
            }
        }
    }

    /// A smooth surface with one useless column.
    fn surface(rows: usize) -> Table {
        Table::random(rows, &["subject_sm_active_ratio", "co_runner_sm_active_ratio", "noise"], |row| {
            f64::from(row[0] + row[1] - 1.0).max(0.0) + 0.1 * f64::from(row[0])
        })
    }

    fn error_of(kind: LearnerKind) -> f64 {
        let options = LearnerOptions::default();
        let fitted = kind.learner().fit(&surface(400).training(), &options, Seed(1)).unwrap();
        let test = surface(600);
        let predicted = fitted.predict(&test.training());
        test.target.iter().zip(&predicted).skip(400).map(|(y, p)| (y - p).abs()).sum::<f64>() / 200.0
    }

    #[test]
    fn each_learner_beats_the_mean_on_a_smooth_surface() {
        let mean = error_of(LearnerKind::Mean);
        for kind in [
            LearnerKind::ElasticNet,
            LearnerKind::RandomForest,
            LearnerKind::ExtraTrees,
            LearnerKind::Boosting,
            LearnerKind::Auto,
        ] {
            let error = error_of(kind);
            assert!(error < 0.6 * mean, "{kind}: {error} against {mean}");
        }
        assert!(error_of(LearnerKind::ExtraTrees) < 0.2 * mean);
        assert!(error_of(LearnerKind::Boosting) < 0.2 * mean);
    }

    #[test]
    fn fits_are_deterministic_and_weights_count() {
        let mut options = LearnerOptions::default();
        for kind in [LearnerKind::RandomForest, LearnerKind::ExtraTrees] {
            if let Some(forest) = options.forest_mut(kind) {
                *forest = ForestOptions { trees: 20, max_depth: Some(8), min_leaf: 5, ..*forest };
            }
        }
        options.boosting = BoostingOptions { rounds: 20, rows_ratio: 0.7, ..BoostingOptions::default() };
        let weights: Vec<f64> = (0..200).map(|row| if row % 2 == 0 { 1.9 } else { 0.1 }).collect();
        for kind in [LearnerKind::RandomForest, LearnerKind::ExtraTrees, LearnerKind::Boosting] {
            let fit = |weights: Option<&[f64]>, seed| {
                let table = Table { weights: weights.map(<[f64]>::to_vec), ..surface(200) };
                let fitted = kind.learner().fit(&table.training(), &options, Seed(seed)).unwrap();
                fitted.predict(&table.training())
            };
            assert_eq!(fit(None, 1), fit(None, 1), "{kind}");
            assert_ne!(fit(None, 1), fit(None, 2), "{kind}");
            assert_ne!(fit(None, 1), fit(Some(&weights), 1), "{kind}");
        }
    }

    #[test]
    fn names_round_trip_and_typos_are_caught() {
        for kind in LearnerKind::ALL.into_iter().chain([LearnerKind::Auto]) {
            assert_eq!(kind.as_str().parse::<LearnerKind>().unwrap(), kind);
        }
        let error = "extra_tree".parse::<LearnerKind>().unwrap_err();
        assert!(error.to_string().ends_with("did you mean `extra_trees`?"), "{error}");
    }
}
