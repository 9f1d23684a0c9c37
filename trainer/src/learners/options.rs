//! The settings of every learner: one table each, with ranges.

use super::{Choice, LearnerKind};
use crate::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How every learner is set.
///
/// The same tables stand in a file of schema `elastico.train/1`; see [`TrainConfig`](crate::TrainConfig), which may also give
/// several values of a setting to choose from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LearnerOptions {
    /// The gpu-lets line.
    pub gpu_lets: GpuLetsOptions,
    /// Additive effects of workloads.
    pub bias_filter: BiasFilterOptions,
    /// Factors of workloads.
    pub matrix_factorisation: MatrixFactorisationOptions,
    /// The elastic net.
    pub elastic_net: ElasticNetOptions,
    /// The random forest.
    pub random_forest: ForestOptions,
    /// Extra trees.
    pub extra_trees: ForestOptions,
    /// Gradient boosting.
    pub boosting: BoostingOptions,
    /// The safe/unsafe rules.
    pub rule_tree: RuleTreeOptions,
    /// Whom [`LearnerKind::Auto`] chooses from, the plainest first: of equals the earlier one is taken.
    #[serde(skip)]
    pub candidates: Vec<LearnerKind>,
    /// Most folds of the cross-validation inside the training part by which settings are chosen.
    #[serde(skip)]
    pub inner_folds: usize,
    /// Further settings of a learner to choose from; the tables above where a learner has none.
    #[serde(skip)]
    pub(crate) variants: BTreeMap<LearnerKind, Vec<Self>>,
}

impl Default for LearnerOptions {
    fn default() -> Self {
        Self {
            gpu_lets: GpuLetsOptions::default(),
            bias_filter: BiasFilterOptions::default(),
            matrix_factorisation: MatrixFactorisationOptions::default(),
            elastic_net: ElasticNetOptions::default(),
            random_forest: ForestOptions::default(),
            extra_trees: ForestOptions::default(),
            boosting: BoostingOptions::default(),
            rule_tree: RuleTreeOptions::default(),
            candidates: vec![
                LearnerKind::Mean,
                LearnerKind::Saturation,
                LearnerKind::ElasticNet,
                LearnerKind::ExtraTrees,
                LearnerKind::Boosting,
            ],
            inner_folds: 5,
            variants: BTreeMap::new(),
        }
    }
}

/// How large a forest may grow, and what its nodes look at.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForestOptions {
    /// Number of trees.
    pub trees: usize,
    /// Greatest depth; `None` grows until the leaves are pure.
    pub max_depth: Option<u16>,
    /// Fewest rows of a leaf.
    pub min_leaf: usize,
    /// Share of the features that each node looks at.
    pub features_ratio: f64,
    /// What each tree is fitted on.
    pub target: TreeTarget,
    /// How the trees are averaged; of trees on normalized throughput always harmonically.
    pub mean: TreeMean,
    /// Whether nodes also look at the physics features.
    pub physics: PhysicsUse,
}

/// Whether trees also split on the physics features (sums, products, saturation of both sides' demands).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhysicsUse {
    /// Unless families have indicators and fewer than five are known. Physics is what carries over to other families; of so
    /// few none is believed (they get the mean), and among the known ones it only blurs what the raw features tell
    /// apart: on iGniter's random pairs extra trees miss by 0.48 % with it and by 0.44 % without.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What the trees of a forest are fitted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeTarget {
    /// The logarithm of the slowdown.
    #[default]
    Log,
    /// Normalized throughput, 1 ÷ slowdown: large slowdowns are told apart less, small ones more. On Gavel's random pairs it
    /// lowers the MAPE from 6.3 to 6.0 %.
    Throughput,
}

/// Which mean of the trees' slowdowns a forest predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeMean {
    /// The mean of normalized throughput, inverted: where trees disagree it lies below the geometric mean, as a small
    /// relative error of a skewed quantity demands. On Gavel's pairs it lowers the MAPE on unseen families from 21.0 to
    /// 19.6 % and on random pairs by 0.1 points; R2 on random pairs falls from 0.86 to 0.84.
    #[default]
    Harmonic,
    /// The mean of log slowdown, as the textbook has it.
    Geometric,
}

impl Default for ForestOptions {
    fn default() -> Self {
        Self {
            trees: 150,
            max_depth: None,
            min_leaf: 1,
            features_ratio: 0.5,
            target: TreeTarget::Log,
            mean: TreeMean::Harmonic,
            physics: PhysicsUse::Auto,
        }
    }
}

/// Gradient boosting of squared error on log slowdown, grown leaf by leaf.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BoostingOptions {
    /// Number of trees.
    pub rounds: usize,
    /// By what each tree is shrunk.
    pub learning_rate: f64,
    /// Most leaves of a tree.
    pub leaves: usize,
    /// Greatest depth of a tree.
    pub max_depth: usize,
    /// Least total weight of a leaf; rows weigh 1 on average.
    pub min_leaf: f64,
    /// L2 penalty of leaf values.
    pub l2: f64,
    /// Bins of a feature.
    pub bins: u16,
    /// Share of the rows that each tree sees.
    pub rows_ratio: f64,
    /// Share of the features that each tree sees.
    pub features_ratio: f64,
    /// Whether the prediction may never fall where the co-runner's pressure rises.
    pub monotone: bool,
    /// Whether trees also look at the physics features.
    pub physics: PhysicsUse,
}

impl Default for BoostingOptions {
    fn default() -> Self {
        Self {
            rounds: 300,
            learning_rate: 0.06,
            leaves: 16,
            max_depth: 32,
            min_leaf: 5.0,
            l2: 1.0,
            bins: 256,
            rows_ratio: 1.0,
            features_ratio: 1.0,
            monotone: false,
            physics: PhysicsUse::Auto,
        }
    }
}

/// Elastic net on standardised features. linfa's solver takes no row weights, so none are used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ElasticNetOptions {
    /// Weight of the whole penalty.
    pub penalty: f64,
    /// Share of the L1 part in it.
    pub l1_ratio: f64,
}

impl Default for ElasticNetOptions {
    fn default() -> Self {
        Self { penalty: 0.01, l1_ratio: 0.5 }
    }
}

/// The gpu-lets line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GpuLetsOptions {
    /// L2 penalty for each row, only to keep a table with dependent columns solvable.
    pub ridge: f64,
}

impl Default for GpuLetsOptions {
    fn default() -> Self {
        Self { ridge: 1e-9 }
    }
}

/// Additive effects of subject and co-runner.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BiasFilterOptions {
    /// As if each workload had been seen in so many further rows without effect.
    pub ridge: f64,
}

impl Default for BiasFilterOptions {
    fn default() -> Self {
        Self { ridge: 1.0 }
    }
}

/// Effects, and a product of factors of subject and co-runner.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MatrixFactorisationOptions {
    /// Factors of a workload in each role.
    pub rank: usize,
    /// L2 penalty of effects and factors.
    pub ridge: f64,
    /// Rounds of alternating least squares.
    pub sweeps: usize,
}

impl Default for MatrixFactorisationOptions {
    fn default() -> Self {
        Self { rank: 4, ridge: 0.1, sweeps: 40 }
    }
}

/// The safe/unsafe tree.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleTreeOptions {
    /// Most questions in a row.
    pub max_depth: usize,
    /// Least share of the rows in a leaf; never under five rows.
    pub min_leaf_ratio: f64,
    /// linfa looks at each value of each feature at each node; more rows than this are sampled.
    pub most_rows: usize,
}

impl Default for RuleTreeOptions {
    fn default() -> Self {
        Self { max_depth: 4, min_leaf_ratio: 0.01, most_rows: 5_000 }
    }
}

/// A setting with its least and largest value.
type Limit = (&'static str, f64, f64, f64);

impl ForestOptions {
    fn limits(&self) -> Vec<Limit> {
        vec![
            ("trees", self.trees as f64, 1.0, 5000.0),
            ("max_depth", self.max_depth.map_or(2.0, f64::from), 2.0, f64::from(u16::MAX)),
            ("min_leaf", self.min_leaf as f64, 1.0, 1e9),
            ("features_ratio", self.features_ratio, 0.01, 1.0),
        ]
    }
}

impl LearnerOptions {
    fn limits(&self, learner: LearnerKind) -> Vec<Limit> {
        match learner {
            LearnerKind::Mean
            | LearnerKind::ProcessorSharing
            | LearnerKind::Saturation
            | LearnerKind::Auto => Vec::new(),
            LearnerKind::GpuLets => vec![("ridge", self.gpu_lets.ridge, 0.0, 1.0)],
            LearnerKind::BiasFilter => vec![("ridge", self.bias_filter.ridge, 0.0, 1e6)],
            LearnerKind::MatrixFactorisation => {
                let options = &self.matrix_factorisation;
                vec![
                    ("rank", options.rank as f64, 1.0, 64.0),
                    ("ridge", options.ridge, 1e-9, 1e6),
                    ("sweeps", options.sweeps as f64, 1.0, 1000.0),
                ]
            }
            LearnerKind::ElasticNet => vec![
                ("penalty", self.elastic_net.penalty, 0.0, 1e6),
                ("l1_ratio", self.elastic_net.l1_ratio, 0.0, 1.0),
            ],
            LearnerKind::RandomForest => self.random_forest.limits(),
            LearnerKind::ExtraTrees => self.extra_trees.limits(),
            LearnerKind::Boosting => {
                let options = &self.boosting;
                vec![
                    ("rounds", options.rounds as f64, 1.0, 5000.0),
                    ("learning_rate", options.learning_rate, 1e-4, 1.0),
                    ("leaves", options.leaves as f64, 2.0, 1024.0),
                    ("max_depth", options.max_depth as f64, 1.0, 64.0),
                    ("min_leaf", options.min_leaf, 0.0, 1e9),
                    ("l2", options.l2, 0.0, 1e6),
                    ("bins", f64::from(options.bins), 2.0, 4096.0),
                    ("rows_ratio", options.rows_ratio, 0.05, 1.0),
                    ("features_ratio", options.features_ratio, 0.05, 1.0),
                ]
            }
            LearnerKind::RuleTree => vec![
                ("max_depth", self.rule_tree.max_depth as f64, 1.0, 8.0),
                ("min_leaf_ratio", self.rule_tree.min_leaf_ratio, 0.0, 0.5),
                ("most_rows", self.rule_tree.most_rows as f64, 10.0, 100_000.0),
            ],
        }
    }

    /// Refuses what no learner can work with.
    ///
    /// # Errors
    /// [`Error::Option`] names the first setting outside its range.
    pub fn check(&self) -> Result<(), Error> {
        for learner in LearnerKind::ALL {
            for (field, value, least, most) in self.limits(learner) {
                if !(least..=most).contains(&value) {
                    return Err(Error::Option { learner, field, value, least, most });
                }
            }
        }
        if !(2..=50).contains(&self.inner_folds) {
            let (value, range) = (self.inner_folds as f64, "2 to 50");
            return Err(Error::Setting { what: "`inner_folds`", value, range });
        }
        if let Some(refused) = self.candidates.iter().find(|learner| !learner.is_exportable()) {
            return Err(Error::Candidate { learner: *refused });
        }
        self.variants.values().flatten().try_for_each(Self::check)
    }

    /// These settings with so many trees in each forest.
    #[must_use]
    pub fn with_trees(mut self, trees: usize) -> Self {
        self.random_forest.trees = trees;
        self.extra_trees.trees = trees;
        self
    }

    /// The forest settings of a learner, where it is a forest.
    pub fn forest(&self, learner: LearnerKind) -> Option<&ForestOptions> {
        match learner {
            LearnerKind::RandomForest => Some(&self.random_forest),
            LearnerKind::ExtraTrees => Some(&self.extra_trees),
            _ => None,
        }
    }

    /// The same, to change.
    pub fn forest_mut(&mut self, learner: LearnerKind) -> Option<&mut ForestOptions> {
        match learner {
            LearnerKind::RandomForest => Some(&mut self.random_forest),
            LearnerKind::ExtraTrees => Some(&mut self.extra_trees),
            _ => None,
        }
    }

    /// These settings with the chosen forest no larger than it was exported.
    pub(crate) fn with_size_of(&self, choice: &Choice) -> Self {
        let Some(exported) = choice.options.forest(choice.learner) else { return self.clone() };
        let mut sized = self.clone();
        let variants = sized.variants.values_mut().flatten();
        for forest in variants.filter_map(|variant| variant.forest_mut(choice.learner)) {
            forest.trees = forest.trees.min(exported.trees);
            forest.min_leaf = forest.min_leaf.max(exported.min_leaf);
        }
        if let Some(forest) = sized.forest_mut(choice.learner) {
            forest.trees = forest.trees.min(exported.trees);
            forest.min_leaf = forest.min_leaf.max(exported.min_leaf);
        }
        sized
    }

    /// The settings of one learner as text, for metadata and cards.
    pub fn describe(&self, learner: LearnerKind) -> BTreeMap<String, String> {
        let tables = serde_json::to_value(self).unwrap_or_default();
        let table = tables.get(learner.as_str()).and_then(serde_json::Value::as_object);
        table
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), value.to_string()))
            .collect()
    }

    /// The settings that a learner may be fitted with; more than one where a file lists values.
    pub(crate) fn variants_of(&self, learner: LearnerKind) -> Vec<Self> {
        let plain = || vec![Self { variants: BTreeMap::new(), ..self.clone() }];
        self.variants.get(&learner).cloned().filter(|found| !found.is_empty()).unwrap_or_else(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_ranges_and_others_are_not() {
        let sound = LearnerOptions::default();
        sound.check().unwrap();
        let mut bad = sound.clone();
        bad.boosting.learning_rate = 0.0;
        assert_eq!(
            bad.check().unwrap_err().to_string(),
            "`boosting.learning_rate` is 0, it must be 0.0001 to 1"
        );
        let mut bad = sound.clone();
        bad.extra_trees.features_ratio = f64::NAN;
        assert!(bad.check().is_err());
        let mut bad = sound.clone();
        bad.candidates.push(LearnerKind::BiasFilter);
        assert!(bad.check().unwrap_err().to_string().contains("`bias_filter`"));
        let mut hidden = sound.clone();
        let mut bad = sound;
        bad.random_forest.trees = 0;
        hidden.variants.insert(LearnerKind::RandomForest, vec![bad]);
        assert!(hidden.check().is_err());
    }

    #[test]
    fn a_description_names_what_is_set() {
        let described = LearnerOptions::default().describe(LearnerKind::ExtraTrees);
        let wanted = [
            ("features_ratio", "0.5"),
            ("mean", "\"harmonic\""),
            ("min_leaf", "1"),
            ("physics", "\"auto\""),
            ("target", "\"log\""),
            ("trees", "150"),
        ];
        assert_eq!(described, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert!(LearnerOptions::default().describe(LearnerKind::Mean).is_empty());
    }
}
