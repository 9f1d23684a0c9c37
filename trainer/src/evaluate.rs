//! Out-of-fold judgement of every learner on every split.

use crate::calibrate::{Calibration, calibrate};
use crate::details::{Noise, noise};
use crate::few_shot::{FewShotRow, Newcomer, rehearse_devices, rehearse_families};
use crate::learners::{LearnerKind, LearnerOptions, Training, choose};
use crate::matrix::{Matrix, medians};
use crate::metrics::{SafeScores, Scores, partner_regret, safe_scores, scores};
use crate::{Error, Examples, Split};
use elastico_core::{DeviceKind, Digest, Seed};
use elastico_models::{PhysicsSpec, physics, prepare};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What to judge, and how.
#[derive(Debug, Clone)]
pub struct EvaluateOptions {
    /// Splits, in the order of the result.
    pub splits: Vec<Split>,
    /// Learners, in the order of the result.
    pub learners: Vec<LearnerKind>,
    /// How each learner is set, and what may be chosen inside each training part.
    pub settings: LearnerOptions,
    /// A slowdown up to this counts as safe to share.
    pub limit: f64,
    /// Seed of folds, forests and bootstrap.
    pub seed: Seed,
    /// More families (or devices) than this are dealt to this many folds.
    pub most_folds: usize,
    /// More rows than this are sampled down, by whole pairs.
    pub most_rows: usize,
    /// Whether calibration by a few measurements is rehearsed for the learners that can be exported.
    pub few_shot: bool,
    /// Levels of the upper bounds.
    pub levels: Vec<f64>,
}

impl Default for EvaluateOptions {
    fn default() -> Self {
        Self {
            splits: vec![Split::RandomPair, Split::UnseenFamily, Split::UnseenDevice],
            learners: LearnerKind::ALL.to_vec(),
            settings: LearnerOptions::default(),
            limit: 1.2,
            seed: Seed(0),
            most_folds: 20,
            most_rows: 50_000,
            few_shot: false,
            levels: vec![0.6, 0.7, 0.8, 0.9, 0.95, 0.98],
        }
    }
}

/// The schema id of the JSON form.
pub const EVALUATION_SCHEMA: &str = "elastico.evaluation/1";

/// The judgement: one row per split and learner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// [`EVALUATION_SCHEMA`].
    pub schema: String,
    /// Kinds of devices of the rows; a score over simulated rows says nothing about a real GPU.
    pub device_kinds: Vec<DeviceKind>,
    /// Content digest of the dataset.
    pub dataset_digest: Digest,
    /// Rows that were judged on, after sampling.
    pub rows_total: u64,
    /// The limit that `safe_*` refers to.
    pub limit: f64,
    /// The seed.
    pub seed: Seed,
    /// One per split and learner.
    pub rows: Vec<EvaluationRow>,
    /// The same after a few measurements of what is new; empty where that was not asked for.
    #[serde(default)]
    pub few_shot: Vec<FewShotRow>,
    /// Upper bounds at several levels on each split but that of random pairs, each family (or device) against the offset
    /// of the others.
    #[serde(default)]
    pub bounds: Vec<BoundRow>,
    /// How much measurements of one thing differ, below which no model can get; empty where nothing was measured twice.
    #[serde(default)]
    pub noise: Vec<Noise>,
}

/// How an upper bound of one learner held on families (or devices) that took no part in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundRow {
    /// What was held out.
    pub split: Split,
    /// Who predicted.
    pub learner: LearnerKind,
    /// Level, coverage and offset.
    #[serde(flatten)]
    pub calibration: Calibration,
}

/// One learner on one split. In JSON the scores stand beside the other fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRow {
    /// How rows were divided.
    pub split: Split,
    /// Who predicted.
    pub learner: LearnerKind,
    /// Pooled test rows; a row is counted once per fold that tests it.
    pub n: u64,
    /// Folds.
    pub folds: u64,
    /// The scores, or nothing where `reason` says why.
    #[serde(flatten)]
    pub scores: Option<Scores>,
    /// Instead of the scores, of a learner that says safe or not and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<SafeScores>,
    /// Why there are no scores.
    pub reason: Option<String>,
}

/// Judges learners on splits. What cannot be judged becomes a row with a reason; the others are not held up.
///
/// # Determinism
/// The same examples, options and seed give the same result, on any number of cores.
///
/// # Errors
/// [`Error::Setting`] for options outside their range.
pub fn evaluate(examples: &Examples, options: &EvaluateOptions) -> Result<Evaluation, Error> {
    evaluate_watched(examples, options, &mut |_| {})
}

/// The same; `watch` is told each stage before it begins.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_watched(
    examples: &Examples,
    options: &EvaluateOptions,
    watch: &mut dyn FnMut(&Stage<'_>),
) -> Result<Evaluation, Error> {
    Ok(judge(&examples.sample(options.most_rows, options.seed), options, watch)?.0)
}

/// What an evaluation is about to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage<'a> {
    /// Fits a learner on a fold.
    Fit {
        /// The split.
        split: Split,
        /// Who is fitted.
        learner: LearnerKind,
        /// What the fold holds out.
        held_out: &'a str,
        /// The fold, from 0.
        fold: usize,
        /// Folds of the split.
        folds: usize,
    },
    /// Rehearses the calibration of a learner.
    Rehearse {
        /// To what.
        newcomer: Newcomer,
        /// Whose.
        learner: LearnerKind,
    },
}

/// Is told each stage before it begins.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&Stage<'_>);

/// Of one split: what each learner predicted, or why there is no such split.
pub(crate) type Judged = Result<Vec<Result<OutOfFold, String>>, String>;

/// Judges and keeps the predictions, one entry per split.
pub(crate) fn judge(
    examples: &Examples,
    options: &EvaluateOptions,
    watch: Watch<'_>,
) -> Result<(Evaluation, Vec<Judged>), Error> {
    options.check()?;
    let mut rows = Vec::new();
    let mut all = Vec::new();
    for &split in &options.splits {
        let judged = out_of_fold(examples, split, options, watch);
        for (index, &learner) in options.learners.iter().enumerate() {
            let row =
                EvaluationRow { split, learner, n: 0, folds: 0, scores: None, decision: None, reason: None };
            rows.push(match judged.as_ref().map(|judged| &judged[index]) {
                Ok(Ok(predictions)) => EvaluationRow {
                    n: predictions.rows.len() as u64,
                    folds: predictions.held_out.len() as u64,
                    scores: (!learner.is_decision_only())
                        .then(|| predictions.scores(examples, split, options.limit, options.seed))
                        .flatten(),
                    decision: learner
                        .is_decision_only()
                        .then(|| predictions.decision(examples, options.limit)),
                    ..row
                },
                Ok(Err(reason)) | Err(reason) => EvaluationRow { reason: Some(reason.clone()), ..row },
            });
        }
        all.push(judged);
    }
    let evaluation = Evaluation {
        schema: EVALUATION_SCHEMA.to_owned(),
        device_kinds: examples.origin.device_kinds.clone(),
        dataset_digest: examples.origin.digest.clone(),
        rows_total: examples.rows() as u64,
        limit: options.limit,
        seed: options.seed,
        rows,
        few_shot: if options.few_shot { few_shot(examples, options, &all, watch)? } else { Vec::new() },
        bounds: bounds(examples, options, &all)?,
        noise: noise(examples, options.seed),
    };
    Ok((evaluation, all))
}

/// What each learner predicted on a split, where it could.
fn judged<'a>(
    options: &'a EvaluateOptions,
    all: &'a [Judged],
    split: Split,
) -> impl Iterator<Item = (LearnerKind, &'a OutOfFold)> {
    options
        .splits
        .iter()
        .zip(all)
        .filter(move |(found, _)| **found == split)
        .filter_map(|(_, judged)| judged.as_ref().ok())
        .flat_map(|judged| options.learners.iter().zip(judged))
        .filter_map(|(learner, held)| Some((*learner, held.as_ref().ok()?)))
        .filter(|(learner, _)| !learner.is_decision_only())
}

fn few_shot(
    examples: &Examples,
    options: &EvaluateOptions,
    all: &[Judged],
    watch: Watch<'_>,
) -> Result<Vec<FewShotRow>, Error> {
    let level = options.levels.first().copied().unwrap_or(0.9);
    let calibrates = |learner: LearnerKind| learner.is_exportable() || learner == LearnerKind::Auto;
    let mut rows = Vec::new();
    for (learner, held) in
        judged(options, all, Split::UnseenFamily).filter(|(learner, _)| calibrates(*learner))
    {
        watch(&Stage::Rehearse { newcomer: Newcomer::Family, learner });
        rows.extend(rehearse_families(examples, held, learner, level, options.limit, options.seed)?.rows);
    }
    for (learner, held) in
        judged(options, all, Split::UnseenDevice).filter(|(learner, _)| calibrates(*learner))
    {
        watch(&Stage::Rehearse { newcomer: Newcomer::Device, learner });
        rows.extend(rehearse_devices(examples, held, learner, options.limit, options.seed)?);
    }
    Ok(rows)
}

fn bounds(examples: &Examples, options: &EvaluateOptions, all: &[Judged]) -> Result<Vec<BoundRow>, Error> {
    let mut rows = Vec::new();
    // A fold of random pairs is no family: that a bound holds there says nothing about a new one.
    for &split in options.splits.iter().filter(|split| **split != Split::RandomPair) {
        for (learner, held) in judged(options, all, split).filter(|(_, held)| !held.rows.is_empty()) {
            for &level in &options.levels {
                rows.push(BoundRow { split, learner, calibration: calibrate(held, examples, level)? });
            }
        }
    }
    Ok(rows)
}

/// Predictions of rows by models that have not seen them.
#[derive(Debug, Clone, Default)]
pub(crate) struct OutOfFold {
    /// The rows tested; one may occur in several folds.
    pub(crate) rows: Vec<u32>,
    /// Predicted log slowdown of each.
    pub(crate) log: Vec<f64>,
    /// The fold of each.
    pub(crate) fold: Vec<u32>,
    /// What each fold holds out.
    pub(crate) held_out: Vec<String>,
}

impl OutOfFold {
    /// log measured − log predicted of each row.
    pub(crate) fn residuals(&self, examples: &Examples) -> Vec<f64> {
        self.rows
            .iter()
            .zip(&self.log)
            .map(|(&row, log)| examples.slowdown[row as usize].ln() - log)
            .collect()
    }

    fn decision(&self, examples: &Examples, limit: f64) -> SafeScores {
        let measured: Vec<f64> = self.rows.iter().map(|&row| examples.slowdown[row as usize]).collect();
        let predicted: Vec<f64> = self.log.iter().map(|log| log.exp()).collect();
        safe_scores(&measured, &predicted, limit)
    }

    pub(crate) fn scores(&self, examples: &Examples, split: Split, limit: f64, seed: Seed) -> Option<Scores> {
        let measured: Vec<f64> = self.rows.iter().map(|&row| examples.slowdown[row as usize]).collect();
        let predicted: Vec<f64> = self.log.iter().map(|log| log.exp()).collect();
        let family: Vec<u32> = match split {
            // A fold of random pairs is no family; resample by the subject's.
            Split::RandomPair => {
                self.rows.iter().map(|&row| examples.groups.subject_family[row as usize]).collect()
            }
            _ => self.fold.clone(),
        };
        let mut found = scores(&measured, &predicted, &family, limit, seed)?;
        // One number for each fold ranks nothing; that it differs from fold to fold is chance.
        let mut of_folds: BTreeMap<u32, f64> = BTreeMap::new();
        let tells = |(fold, log): (&u32, &f64)| (*of_folds.entry(*fold).or_insert(*log) - log).abs() > 1e-12;
        if !self.fold.iter().zip(&self.log).any(tells) {
            found.spearman = None;
        }
        let groups = &examples.groups;
        // Whoever looks for a partner chooses among the rows of one fold, on one device under one sharing mode.
        let choice: Vec<(u32, u32, u32)> = self
            .rows
            .iter()
            .zip(&self.fold)
            .map(|(&row, &fold)| (fold, groups.context[row as usize], groups.subject[row as usize]))
            .collect();
        if let Some((regret, random)) = partner_regret(&measured, &predicted, &choice) {
            (found.partner_regret, found.partner_regret_random) = (Some(regret), Some(random));
        }
        Some(found)
    }
}

/// Fits each learner on each fold. The outer reason: there is no such split. The inner: that learner failed.
fn out_of_fold(examples: &Examples, split: Split, options: &EvaluateOptions, watch: Watch<'_>) -> Judged {
    let folds = split.folds(&examples.groups, options.most_folds, options.seed)?;
    let spec = physics(&examples.schema);
    let mut judged: Vec<Result<OutOfFold, String>> = vec![Ok(OutOfFold::default()); options.learners.len()];
    for (index, fold) in folds.iter().enumerate() {
        let impute = medians(&examples.features, examples.schema.width(), &fold.train);
        let train = Prepared::new(examples, &spec, &impute, &fold.train);
        let test = Prepared::new(examples, &spec, &impute, &fold.test);
        for (learner, judged) in options.learners.iter().zip(&mut judged) {
            let Ok(predictions) = judged else { continue };
            let (learner_kind, held_out) = (*learner, fold.held_out.as_str());
            watch(&Stage::Fit { split, learner: learner_kind, held_out, fold: index, folds: folds.len() });
            let seed = fold_seed(options.seed, split, &fold.held_out);
            let training = train.training(options.limit);
            let fitted = choose(*learner, &training, &options.settings, seed)
                .and_then(|choice| choice.fit(&training, seed));
            match fitted {
                Ok(fitted) => {
                    predictions.rows.extend(&fold.test);
                    predictions.log.extend(fitted.predict(&test.training(options.limit)));
                    predictions.fold.extend(std::iter::repeat_n(index as u32, fold.test.len()));
                    predictions.held_out.push(fold.held_out.clone());
                }
                Err(error) => *judged = Err(error.to_string()),
            }
        }
        tracing::debug!(split = split.as_str(), held_out = fold.held_out, "fold judged");
    }
    Ok(judged)
}

/// A seed of its own for each fold, so that folds do not share their random thresholds.
fn fold_seed(seed: Seed, split: Split, held_out: &str) -> Seed {
    use rand::RngExt as _;
    Seed(seed.stream("trainer.fold", &[split.as_str(), held_out]).random())
}

/// Rows as the body of a model reads them: imputed, then physics features.
pub(crate) struct Prepared {
    pub(crate) features: Matrix,
    pub(crate) names: Vec<String>,
    raw: usize,
    target: Vec<f64>,
    weights: Option<Vec<f64>>,
    groups: crate::Groups,
}

impl Prepared {
    pub(crate) fn new(examples: &Examples, spec: &PhysicsSpec, impute: &[f32], rows: &[u32]) -> Self {
        let width = examples.schema.width() + spec.width();
        let mut values = Vec::with_capacity(rows.len() * width);
        for &row in rows {
            prepare(spec, impute, examples.row(row as usize), &mut values);
        }
        Self {
            features: Matrix::new(width, values),
            raw: examples.schema.width(),
            names: examples.schema.names().iter().chain(spec.names()).cloned().collect(),
            target: rows.iter().map(|&row| examples.slowdown[row as usize].ln()).collect(),
            weights: examples
                .weights
                .as_ref()
                .map(|weights| rows.iter().map(|&row| weights[row as usize]).collect()),
            groups: examples.groups.subset(rows),
        }
    }

    /// `limit`: a slowdown up to this counts as safe.
    pub(crate) fn training(&self, limit: f64) -> Training<'_> {
        Training {
            features: &self.features,
            names: &self.names,
            raw: self.raw,
            target: &self.target,
            weights: self.weights.as_deref(),
            groups: &self.groups,
            limit,
        }
    }
}

pub(crate) fn check_limit(limit: f64) -> Result<(), Error> {
    if limit.is_finite() && limit > 1.0 {
        Ok(())
    } else {
        Err(Error::Setting { what: "`limit`", value: limit, range: "a slowdown above 1" })
    }
}

impl EvaluateOptions {
    /// Refuses what no judgement can work with, whatever the data.
    ///
    /// # Errors
    /// [`Error::Setting`], [`Error::Option`], [`Error::Candidate`].
    pub fn check(&self) -> Result<(), Error> {
        self.settings.check()?;
        check_limit(self.limit)
    }
}

impl Evaluation {
    /// Whether any learner has scores, or a decision, on any split.
    pub fn has_scores(&self) -> bool {
        self.rows.iter().any(|row| row.scores.is_some() || row.decision.is_some())
    }

    /// The row of a split and learner.
    pub fn row(&self, split: Split, learner: LearnerKind) -> Option<&EvaluationRow> {
        self.rows.iter().find(|row| row.split == split && row.learner == learner)
    }

    /// The simple formula with the least MAPE on a split: what stands beside a learner, next to the mean.
    pub fn best_formula(&self, split: Split) -> Option<LearnerKind> {
        LearnerKind::FORMULAS
            .into_iter()
            .filter_map(|formula| Some((formula, self.row(split, formula)?.scores.as_ref()?.mape)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(formula, _)| formula)
    }
}

/// An aligned table; errors and ratios in percent for reading only.
impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<17}{:<22}{:>7}{:>8}{:>15}{:>8}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}",
            "split", "learner", "n", "MAPE %", "95 %", "RMSE", "R2", "P95", "rho", "prec", "rec", "base"
        )?;
        let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        for row in &self.rows {
            let split = row.split;
            let learner = row.learner;
            if let Some(decision) = &row.decision {
                writeln!(
                    f,
                    "{split:<17}{learner:<22}{:>7}{:>8}{:>15}{:>8}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7.2}",
                    row.n,
                    "-",
                    "-",
                    "-",
                    "-",
                    "-",
                    "-",
                    ratio(decision.safe_precision),
                    ratio(decision.safe_recall),
                    decision.safe_base_rate,
                )?;
                continue;
            }
            let (Some(scores), n) = (&row.scores, row.n) else {
                writeln!(f, "{split:<17}{learner:<22}  {}", row.reason.as_deref().unwrap_or("no rows"))?;
                continue;
            };
            let interval = scores.mape_interval.map_or("-".to_owned(), |(lower, upper)| {
                format!("{:.1} to {:.1}", 100.0 * lower, 100.0 * upper)
            });
            writeln!(
                f,
                "{split:<17}{learner:<22}{n:>7}{:>8.2}{interval:>15}{:>8.3}{:>7}{:>7.2}{:>7}{:>7}{:>7}{:>7.2}",
                100.0 * scores.mape,
                scores.rmse,
                ratio(scores.r2),
                scores.p95_abs_error,
                ratio(scores.spearman),
                ratio(scores.safe_precision),
                ratio(scores.safe_recall),
                scores.safe_base_rate,
            )?;
        }
        Ok(())
    }
}
