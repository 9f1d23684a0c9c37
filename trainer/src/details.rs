//! What an evaluation is made of, for a page that shows more than scores: predictions, and the noise of the labels.

use crate::domain::{limit, places};
use crate::evaluate::{EvaluateOptions, Evaluation, OutOfFold, Stage, judge};
use crate::metrics::bootstrap;
use crate::{Error, Examples, LearnerKind, Split};
use elastico_core::{Seed, mean};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What stands behind the scores of one evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Details {
    /// The learner whose predictions are shown on each split.
    pub shown: BTreeMap<Split, LearnerKind>,
    /// Its predictions, each by a model that had not seen the row.
    pub predictions: Vec<HeldOut>,
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
    /// By the rule of the model file: whether each feature lies in the range of the rows that the model was fitted on, and
    /// the row near one of them. How near stems from held-out families; where none were held out, the ranges alone decide.
    pub in_domain: bool,
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

/// Judges as [`crate::evaluate()`] does, and keeps what the scores are made of. `watch` is told each stage before it begins.
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
    watch: &mut dyn FnMut(&Stage<'_>),
) -> Result<(Evaluation, Details), Error> {
    let sampled = examples.sample(options.most_rows, options.seed);
    let examples = &*sampled;
    let (evaluation, all) = judge(examples, options, watch)?;
    let mut shown: Vec<(Split, LearnerKind, &OutOfFold)> = Vec::new();
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
        shown.extend(
            index.and_then(|index| Some((split, options.learners[index], judged[index].as_ref().ok()?))),
        );
    }
    let families = shown.iter().find(|(split, ..)| *split == Split::UnseenFamily);
    let near = match families {
        Some((.., held)) => limit(&places(examples, held, options.seed)?.distances),
        None => f32::INFINITY,
    };
    let mut details = Details { shown: BTreeMap::new(), predictions: Vec::new() };
    for (split, learner, held) in shown {
        details.shown.insert(split, learner);
        details.predictions.extend(predictions(examples, split, held, near, options.seed)?);
    }
    Ok((evaluation, details))
}

/// `near`: the distance up to which a row is in the domain.
fn predictions(
    examples: &Examples,
    split: Split,
    held: &OutOfFold,
    near: f32,
    seed: Seed,
) -> Result<Vec<HeldOut>, Error> {
    let groups = &examples.groups;
    let places = places(examples, held, seed)?;
    let rows = held.rows.iter().zip(&held.log).zip(&held.fold).enumerate();
    Ok(rows
        .map(|(index, ((&row, log), &fold))| {
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
                in_domain: places.is_in_box[index] && places.distances[index] <= near,
            }
        })
        .collect())
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
