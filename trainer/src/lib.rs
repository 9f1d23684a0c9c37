//! Fits, judges and exports predictors of pairwise slowdown.
//!
//! [`Examples`] turn a dataset into rows: what the isolated runs say about both sides, the device and the sharing mode,
//! with the measured slowdown as the label. [`evaluate`] judges learners ([`LearnerKind`]) on grouped splits ([`Split`]),
//! always with the mean of the training rows beside them: a low error proves nothing where slowdowns hardly vary. [`train`]
//! fits on everything, adds an upper bound calibrated on held-out families ([`Calibration`]), exports one ONNX file and
//! refuses it unless the file gives what the learner gave. [`rules`] is a small tree to read. [`propose`] says which pairs
//! to measure next. [`profiles`] hands the
//! isolated runs to the placement.
//!
//! Learners see the logarithm of the slowdown: errors of a ratio are ratios. Nothing is tuned on test rows, and the same
//! seed gives the same bytes on any number of cores.
//!
//! ```
//! use elastico_trainer::{LearnerKind, Split};
//!
//! assert_eq!("extra_trees".parse::<LearnerKind>().unwrap(), LearnerKind::ExtraTrees);
//! let error = "unseen_famly".parse::<Split>().unwrap_err();
//! assert!(error.to_string().contains("did you mean `unseen_family`?"));
//! ```

mod active;
mod calibrate;
mod card;
mod config;
mod details;
mod domain;
mod error;
mod evaluate;
mod examples;
mod features;
mod few_shot;
mod fit;
mod learners;
mod learning_curve;
mod matrix;
mod measured;
mod metrics;
mod profiles;
mod rules;
mod split;
mod train;
mod variety;

pub use active::{Candidates, NextOptions, Proposal, Strategy, pairs_among, propose};
pub use calibrate::Calibration;
pub use config::{TRAIN_SCHEMA, TrainConfig};
pub use details::{Details, HeldOut, Noise, NoiseSource, evaluate_in_detail};
pub use error::Error;
pub use evaluate::{
    BoundRow, EVALUATION_SCHEMA, EvaluateOptions, Evaluation, EvaluationRow, Stage, evaluate,
    evaluate_watched,
};
pub use examples::{ExampleOptions, Examples, Identities, Origin};
pub use few_shot::{
    CalibrateOptions, CalibratedModel, EffectVariances, FewShotRow, Newcomer, calibrate_model,
};
pub use fit::fit;
pub use learners::{
    BiasFilterOptions, BoostingOptions, ElasticNetOptions, ForestOptions, GpuLetsOptions, LearnerKind,
    LearnerOptions, MatrixFactorisationOptions, PhysicsUse, RuleTreeOptions, TreeMean, TreeTarget,
};
pub use learning_curve::{CurveOptions, CurvePoint, LearningCurve, learning_curve};
pub use measured::Measured;
pub use metrics::{SafeScores, Scores};
pub use profiles::profiles;
pub use rules::{RULES_SCHEMA, Rule, Rules, rules};
pub use split::{Fold, Groups, Split};
pub use train::{PredictionRow, TrainOptions, Trained, train};
