//! What an evaluation is made of, for a page that shows more than scores: predictions, reliability of the bound, noise of the
//! labels.

use crate::calibrate::{Guarantee, calibrate, coverages};
use crate::evaluate::{EvaluateOptions, Evaluation, OutOfFold, judge};
use crate::metrics::bootstrap;
use crate::{Error, Examples, LearnerKind, Split};
use elastico_core::{Seed, mean};
use elastico_models::{DOMAIN_TOLERANCE_RATIO, Domain, fit_domain};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The levels at which the bound is tried.
const LEVELS: [f64; 6] = [0.6, 0.7, 0.8, 0.9, 0.95, 0.98];

/// What stands behind the scores of one evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Details {
    /// The learner whose predictions are shown on each split.
    pub shown: BTreeMap<Split, LearnerKind>,
    /// Its predictions, each by a model that had not seen the row.
    pub predictions: Vec<HeldOut>,
    /// How well upper bounds made from other groups hold, level by level.
    pub reliability: Vec<Reliability>,
    /// How much two measurements of one thing differ; empty where nothing was measured twice.
    pub noise: Vec<Noise>,
}

/// One prediction of a row that the model had not seen.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldOut {
    /// The split that kept the row from the model.
    pub split: Split,
    /// What was held out.
    pub held_out: String,
    /// The subject.
    pub subject: String,
    /// The co-runner.
    pub co_runner: String,
    /// The device.
    pub device: String,
    /// Measured slowdown.
    pub measured: f64,
    /// Its interval, where one was measured.
    pub interval: Option<(f64, f64)>,
    /// Predicted slowdown.
    pub predicted: f64,
    /// Whether each feature lies in the range of the rows that the model was fitted on.
    pub in_domain: bool,
}

/// The bound at one level, each group held against the offset of the other groups.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reliability {
    /// The split.
    pub split: Split,
    /// The share of slowdowns that should lie under the bound.
    pub level: f64,
    /// The share that did, mean over groups.
    pub achieved: f64,
    /// Its 95 % interval by bootstrap over groups; absent with fewer than three.
    pub interval: Option<(f64, f64)>,
    /// The share in the worst group.
    pub least: f64,
    /// By which factor the bound lies over the prediction.
    pub factor: f64,
    /// Held-out groups.
    pub groups: u64,
    /// Whether there are enough groups for a promise.
    pub is_guaranteed: bool,
}

/// How much measurements of one and the same thing differ: no model can be better on average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// What was measured twice.
    pub source: NoiseSource,
    /// Standard deviation of the logarithm of one measurement.
    pub deviation: f64,
    /// The mean absolute percentage error of a perfect model, for normal noise: deviation x sqrt(2 / pi).
    pub mape_floor: f64,
    /// 95 % interval of the floor by bootstrap over what was measured; absent with fewer than three.
    pub interval: Option<(f64, f64)>,
    /// Things that were measured more than once.
    pub cells: u64,
    /// Things left out because all their values are equal to the last digit: one measurement written twice.
    pub copies: u64,
}

/// What was measured more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoiseSource {
    /// One subject beside one co-runner, again.
    Repeats,
    /// A workload beside itself: both sides should be equally slow.
    SelfPairs,
}

impl NoiseSource {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Repeats => "repeats of a pair",
            Self::SelfPairs => "two sides of a pair of equal workloads",
        }
    }
}

/// Judges as [`crate::evaluate()`] does, and keeps what the scores are made of.
///
/// The predictions shown are those of the first of extra trees, `auto`, boosting, random forest that was asked for, else of the
/// last learner that predicts: which one is shown does not depend on how well it did.
///
/// # Determinism
/// The same examples, options and seed give the same result, on any number of cores.
///
/// # Errors
/// As [`crate::evaluate()`].
pub fn evaluate_in_detail(
    examples: &Examples,
    options: &EvaluateOptions,
) -> Result<(Evaluation, Details), Error> {
    let sampled = examples.sample(options.most_rows, options.seed);
    let examples = &*sampled;
    let (evaluation, all) = judge(examples, options)?;
    let mut details = Details {
        shown: BTreeMap::new(),
        predictions: Vec::new(),
        reliability: Vec::new(),
        noise: noise(examples, options.seed),
    };
    for (&split, judged) in options.splits.iter().zip(&all) {
        let Ok(judged) = judged else { continue };
        let usable = |index: &usize| {
            let learner = options.learners[*index];
            !learner.is_decision_only() && judged[*index].as_ref().is_ok_and(|held| !held.rows.is_empty())
        };
        let preferred =
            [LearnerKind::ExtraTrees, LearnerKind::Auto, LearnerKind::Boosting, LearnerKind::RandomForest];
        let index = preferred
            .iter()
            .filter_map(|wanted| options.learners.iter().position(|learner| learner == wanted))
            .find(usable)
            .or_else(|| (0..options.learners.len()).rev().find(usable));
        let Some((index, held)) = index.and_then(|index| Some((index, judged[index].as_ref().ok()?))) else {
            continue;
        };
        details.shown.insert(split, options.learners[index]);
        details.predictions.extend(predictions(examples, split, held, options)?);
        if held.held_out.len() > 1 {
            for level in LEVELS {
                details.reliability.push(reliability(examples, split, held, level, options.seed)?);
            }
        }
    }
    Ok((evaluation, details))
}

fn predictions(
    examples: &Examples,
    split: Split,
    held: &OutOfFold,
    options: &EvaluateOptions,
) -> Result<Vec<HeldOut>, Error> {
    let groups = &examples.groups;
    // The same folds as those judged: they follow from groups and seed.
    let folds = split.folds(groups, options.most_folds, options.seed).unwrap_or_default();
    let width = examples.schema.width();
    let mut domains = Vec::with_capacity(folds.len());
    for fold in &folds {
        let rows: Vec<f32> = fold.train.iter().flat_map(|&row| examples.row(row as usize)).copied().collect();
        domains.push(fit_domain(&rows, width)?);
    }
    let rows = held.rows.iter().zip(&held.log).zip(&held.fold);
    Ok(rows
        .map(|((&row, log), &fold)| {
            let row = row as usize;
            let interval = examples.interval[row];
            let workload = |codes: &[u32]| groups.workloads[codes[row] as usize].clone();
            HeldOut {
                split,
                held_out: held.held_out[fold as usize].clone(),
                subject: workload(&groups.subject),
                co_runner: workload(&groups.co_runner),
                device: groups.devices[groups.device[row] as usize].clone(),
                measured: examples.slowdown[row],
                interval: (interval.0.is_finite() && interval.1.is_finite()).then_some(interval),
                predicted: log.exp(),
                in_domain: domains
                    .get(fold as usize)
                    .is_some_and(|domain| contains(domain, examples.row(row))),
            }
        })
        .collect())
}

/// The rule of the model file, without its distance.
fn contains(domain: &Domain, row: &[f32]) -> bool {
    row.iter().enumerate().all(|(column, value)| {
        if value.is_nan() {
            return domain.missing[column];
        }
        let (lower, upper) = (domain.lower[column], domain.upper[column]);
        let slack = (upper - lower) * DOMAIN_TOLERANCE_RATIO;
        *value >= lower - slack && *value <= upper + slack
    })
}

fn reliability(
    examples: &Examples,
    split: Split,
    held: &OutOfFold,
    level: f64,
    seed: Seed,
) -> Result<Reliability, Error> {
    let calibration = calibrate(held, examples, level)?;
    let coverage = coverages(held, examples, level)?;
    let groups: Vec<u32> = (0..coverage.len() as u32).collect();
    Ok(Reliability {
        split,
        level,
        achieved: calibration.achieved_coverage,
        interval: bootstrap(&coverage, &groups, seed),
        least: calibration.least_coverage,
        factor: calibration.offset_log.exp(),
        groups: calibration.groups_total,
        is_guaranteed: calibration.guarantee == Guarantee::NewFamilies,
    })
}

/// Rows that agree in subject, co-runner and context are measurements of one thing.
pub(crate) fn noise(examples: &Examples, seed: Seed) -> Vec<Noise> {
    let groups = &examples.groups;
    let mut cells: BTreeMap<(u32, u32, u32), Vec<f64>> = BTreeMap::new();
    for row in 0..examples.rows() {
        let key = (groups.subject[row], groups.co_runner[row], groups.context[row]);
        cells.entry(key).or_default().push(examples.slowdown[row].ln());
    }
    [NoiseSource::Repeats, NoiseSource::SelfPairs]
        .into_iter()
        .filter_map(|source| {
            let of_self = source == NoiseSource::SelfPairs;
            // Each deviation from the mean of its cell, widened by what the mean itself absorbs.
            let (mut squares, mut cell) = (Vec::new(), Vec::new());
            let (mut count, mut copies) = (0, 0);
            for ((subject, co_runner, _), values) in &cells {
                if (subject == co_runner) != of_self || values.len() < 2 {
                    continue;
                }
                if values.iter().all(|value| value.to_bits() == values[0].to_bits()) {
                    copies += 1;
                    continue;
                }
                let (center, n) = (mean(values), values.len() as f64);
                squares.extend(values.iter().map(|value| (value - center).powi(2) * n / (n - 1.0)));
                cell.extend(std::iter::repeat_n(count, values.len()));
                count += 1;
            }
            if squares.is_empty() {
                return None;
            }
            let floor = |variance: f64| variance.sqrt() * (2.0 / std::f64::consts::PI).sqrt();
            let variance = mean(&squares);
            Some(Noise {
                source,
                deviation: variance.sqrt(),
                mape_floor: floor(variance),
                interval: bootstrap(&squares, &cell, seed).map(|(low, high)| (floor(low), floor(high))),
                cells: u64::from(count),
                copies,
            })
        })
        .collect()
}
