//! What can go wrong between a dataset and a model.

use crate::LearnerKind;
use elastico_core::Hint;
use std::path::PathBuf;

/// Why examples, a judgement or a model could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The dataset could not be read as tables.
    #[error("the dataset cannot be used for training")]
    Dataset(#[from] elastico_datasets::Error),
    /// A profile, a feature list or the model file was refused.
    #[error("these measurements cannot become rows of a model")]
    Models(#[from] elastico_models::Error),
    /// No row is left to learn from.
    #[error("no row of `pairs` can be learnt from: {reason}")]
    NoExamples {
        /// What happened to the rows.
        reason: String,
    },
    /// Rows of several device kinds, and none asked for by name.
    #[error("`pairs` mixes device kinds ({found}), and data of different kinds never mix unasked")]
    MixedKinds {
        /// Each kind with its number of rows.
        found: String,
    },
    /// Rows of several harnesses, and mixing was not asked for.
    #[error("`pairs` mixes harnesses ({found}), which disagree by more than their noise")]
    MixedHarnesses {
        /// Each harness with its number of rows.
        found: String,
    },
    /// Slowdowns against the time at a share beside slowdowns against the time at the full device: two different labels.
    #[error(
        "{at_share} rows of `pairs` are flagged `slowdown_at_share`, {others} are not: their slowdowns do not mean the same"
    )]
    MixedLabels {
        /// Rows whose slowdown is the interference alone.
        at_share: usize,
        /// The other rows.
        others: usize,
    },
    /// A row that claims to be usable carries a number that is no slowdown.
    #[error("row {row} of `pairs` has outcome `{outcome}`, but `{column}` is {value}")]
    Label {
        /// Row of the table, from 0.
        row: usize,
        /// Its outcome.
        outcome: String,
        /// The column.
        column: &'static str,
        /// What stands there.
        value: f64,
    },
    /// A cell that must hold a word of a closed list, or any word at all.
    #[error("row {row} of `{table}`: column `{column}` holds {found}")]
    Cell {
        /// The table.
        table: &'static str,
        /// Row of the table, from 0.
        row: usize,
        /// The column.
        column: &'static str,
        /// What stands there, quoted, or `nothing`.
        found: String,
    },
    /// A pair names a workload that was never measured alone on that device.
    #[error("row {row} of `pairs`: `{workload}` has no usable row in `isolated` for device `{device}`")]
    Unprofiled {
        /// Row of the table, from 0.
        row: usize,
        /// The workload.
        workload: String,
        /// The device.
        device: String,
    },
    /// No feature varies.
    #[error("none of the {candidates} candidate features varies over the {rows} rows")]
    NoFeatures {
        /// How many were looked at.
        candidates: usize,
        /// How many rows.
        rows: usize,
    },
    /// A name that is not in a closed list.
    #[error("there is no {what} `{name}`, {}", suggestion.map_or_else(|| format!("the known ones are {known}"), |near| format!("did you mean `{near}`?")))]
    Unknown {
        /// Learner or split.
        what: &'static str,
        /// The name as given.
        name: String,
        /// The nearest known name.
        suggestion: Option<&'static str>,
        /// All of them.
        known: String,
    },
    /// A number outside its range.
    #[error("{what} is {value}, it must be {range}")]
    Setting {
        /// The setting.
        what: &'static str,
        /// As given.
        value: f64,
        /// What is allowed.
        range: &'static str,
    },
    /// A setting of a learner outside its range.
    #[error("`{learner}.{field}` is {value}, it must be {least} to {most}")]
    Option {
        /// Whose.
        learner: LearnerKind,
        /// The setting.
        field: &'static str,
        /// As given.
        value: f64,
        /// The least that is allowed.
        least: f64,
        /// The most that is allowed.
        most: f64,
    },
    /// `auto` may not choose a learner that no model file can hold.
    #[error("`{learner}` is no candidate: no model file can hold it")]
    Candidate {
        /// Which one.
        learner: LearnerKind,
    },
    /// Training ends in a model file, and none can hold what this learner learns.
    #[error("no model file can hold what `{learner}` learns: it {}", if learner.is_decision_only() { "says safe or not, and no number" } else { "knows workloads by name" })]
    NotExportable {
        /// Which one.
        learner: LearnerKind,
    },
    /// A file could not be read.
    #[error("cannot read `{}`", file.display())]
    Read {
        /// Which one.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A mistake in a file of schema `elastico.train/1`.
    #[error("{}:{line}:{column}: {message}", file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// Line from 1.
        line: usize,
        /// Column from 1.
        column: usize,
        /// What is wrong, in one line.
        message: String,
        /// The nearest known name.
        suggestion: Option<String>,
    },
    /// A learner failed on this data.
    #[error("{learner} cannot be fitted: {reason}")]
    Learner {
        /// Which one.
        learner: &'static str,
        /// Its own words.
        reason: String,
    },
    /// Nothing could be judged, so nothing can be promised about the model.
    #[error("no split can be made of these {rows} rows: {reason}")]
    NoSplit {
        /// How many rows.
        rows: usize,
        /// Why the last one tried is impossible.
        reason: String,
    },
    /// Measurements that a model cannot be calibrated with.
    #[error("the model cannot be calibrated: {reason}")]
    Calibrate {
        /// Why.
        reason: String,
    },
    /// The trees of a model are not averaged, so their disagreement says nothing.
    #[error("a model of `{learner}` does not say how sure it is: it has no averaged trees")]
    NoSpread {
        /// The learner of the model.
        learner: String,
    },
    /// Every candidate was measured.
    #[error("no pair is left to propose: each one that occurs was measured under one of the sharing modes")]
    NothingLeft {
        /// Pairs and modes that were measured.
        measured: usize,
    },
    /// The exported file would be too large at any setting.
    #[error("the model takes {bytes} bytes at its smallest setting, the limit is {limit}")]
    TooLarge {
        /// Size at the smallest setting.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Dataset(source) => source.hint(),
            Self::Models(source) => source.hint(),
            Self::NoExamples { reason } if reason.contains("slowdown_ratio outside") => Some(
                "see whether the columns of the times alone and beside are swapped, or their units differ; no model file holds \
                 such slowdowns"
                    .into(),
            ),
            Self::NoExamples { .. } => Some(
                "`elastico dataset inspect` lists the rows by outcome; flagged rows can be included by name"
                    .into(),
            ),
            Self::MixedKinds { .. } => {
                Some("name the device kinds to learn from, for example `--kinds simulated`".into())
            }
            Self::MixedHarnesses { .. } => Some(
                "train on one of them, or say `--mix-harnesses`: each harness then becomes a feature".into(),
            ),
            Self::MixedLabels { .. } => {
                Some("keep the two in datasets of their own; no option mixes them".into())
            }
            Self::Label { .. } | Self::Cell { .. } => {
                Some("`elastico dataset validate` names every such row".into())
            }
            Self::Unprofiled { .. } => Some(
                "merge the dataset that holds the isolated runs of this workload, then train again".into(),
            ),
            Self::NoFeatures { .. } => Some(
                "the workloads look alike in all that was measured of them: bring counters or times of each alone, or tell them \
                 apart with `--identities always`"
                    .into(),
            ),
            Self::Unknown { known, .. } => Some(format!("one of {known}")),
            Self::NoSplit { .. } => {
                Some("measure more pairs, of at least two families: what is judged has to be held out".into())
            }
            Self::NoSpread { .. } => Some("train with `--learner extra_trees` or `random_forest`".into()),
            Self::NothingLeft { .. } => {
                Some("ask for one sharing mode at a time, or for more workloads".into())
            }
            Self::TooLarge { .. } => Some("raise the size limit, or train with fewer trees".into()),
            Self::Config { suggestion, .. } => Some(suggestion.as_ref().map_or_else(
                || "docs/guides/predict.md says what may stand there".to_owned(),
                |near| format!("did you mean `{near}`?"),
            )),
            Self::Read { .. } => Some("name a TOML file of schema `elastico.train/1`".into()),
            Self::Candidate { .. } => Some("`elastico evaluate` judges it beside the others".into()),
            Self::Calibrate { .. } => Some(
                "measure two to eight co-runs of each new workload, or 40 pairs on a new device, and give the original model"
                    .into(),
            ),
            Self::Setting { what, .. } => Some(format!("correct {what}, which is a flag or stands in the file of --config")),
            Self::NotExportable { .. } => {
                Some("`elastico evaluate` judges it beside the others; `elastico train --help` lists those of a model file".into())
            }
            Self::Option { .. } | Self::Learner { .. } => None,
        }
    }
}
