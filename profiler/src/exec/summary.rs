//! What a run of two commands comes to: a slowdown for each side under each sharing mode.

use crate::assemble::assemble;
use crate::estimator::geometric_mean;
use crate::run::{read_journal, read_plan};
use crate::{Cell, Error, Observation, Plan};
use elastico_core::{Estimate, Outcome, SharingMode, WorkloadId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One side of the pair under one sharing mode, over its repeats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideSummary {
    /// The side that the row is about.
    pub subject: WorkloadId,
    /// The other side.
    pub co_runner: WorkloadId,
    /// The sharing, from the subject's view.
    pub sharing: SharingMode,
    /// Seconds per step alone at its share, the geometric mean over good repeats.
    pub isolated_step_seconds: Option<f64>,
    /// Co-located time per unit of work over isolated time at the full device: the geometric mean over good repeats.
    pub slowdown: Option<f64>,
    /// Lower end of the interval: over repeats, or over blocks where there is one good repeat.
    pub slowdown_lower: Option<f64>,
    /// Upper end of the interval.
    pub slowdown_upper: Option<f64>,
    /// Good repeats.
    pub n: usize,
    /// Least overlap of both sides in a good repeat.
    pub overlap_least: Option<f64>,
    /// Largest drift between the bracketing isolated runs of a good repeat.
    pub drift_most: Option<f64>,
    /// Repeats by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Flags of any repeat.
    pub flags: BTreeSet<String>,
    /// How the subject's steps were found, where this process found them.
    pub progress: Option<String>,
}

/// What a run comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Schema of this form: `elastico.profile_exec/1`.
    pub schema: &'static str,
    /// The device as named.
    pub device: String,
    /// Its model.
    pub model: String,
    /// One per side and sharing mode.
    pub sides: Vec<SideSummary>,
}

/// Sums up a run's folder; `progress` tells how steps were found, by workload.
///
/// # Errors
/// As [`assemble`](crate::assemble()).
pub fn summary(folder: &Path, progress: &BTreeMap<WorkloadId, String>) -> Result<Summary, Error> {
    let plan = read_plan(folder)?;
    let content = read_journal(folder)?;
    let rows = Rows::read(folder)?;
    let mut sides = Vec::new();
    for cell in &plan.cells {
        let Some(co_runner) = &cell.co_runner else { continue };
        let trials: Vec<&Observation> =
            content.observations.iter().filter(|observation| observation.cell == cell.id).collect();
        let of = |letter, subject, other, sharing| {
            side(&plan, cell, &trials, &rows, letter, (subject, other, sharing), progress.get(subject))
        };
        sides.push(of("a", &cell.subject, co_runner, cell.sharing.clone()));
        sides.push(of("b", co_runner, &cell.subject, cell.sharing.swapped()));
    }
    let header = plan.header;
    Ok(Summary { schema: "elastico.profile_exec/1", device: header.device, model: header.model, sides })
}

/// The columns of the pairs that count here.
struct Rows {
    trial: Vec<String>,
    side: Vec<String>,
    /// Slowdown, its ends, isolated step, overlap, drift.
    numbers: [Vec<f64>; 6],
}

impl Rows {
    fn read(folder: &Path) -> Result<Self, Error> {
        let dataset = assemble(folder)?;
        let text = |name: &str| -> Result<Vec<String>, Error> {
            let column = dataset.pairs.text(name)?;
            Ok(column.iter().map(|text| text.unwrap_or_default().to_owned()).collect())
        };
        let number = |name: &str| -> Result<Vec<f64>, Error> { Ok(dataset.pairs.f64(name)?.to_vec()) };
        Ok(Self {
            trial: text("trial_id")?,
            side: text("side")?,
            numbers: [
                number("slowdown_ratio")?,
                number("slowdown_lower_ratio")?,
                number("slowdown_upper_ratio")?,
                number("isolated_step_seconds")?,
                number("overlap_ratio")?,
                number("drift_ratio")?,
            ],
        })
    }
}

fn side(
    plan: &Plan,
    cell: &Cell,
    trials: &[&Observation],
    rows: &Rows,
    letter: &str,
    (subject, co_runner, sharing): (&WorkloadId, &WorkloadId, SharingMode),
    progress: Option<&String>,
) -> SideSummary {
    debug_assert!(cell.co_runner.is_some());
    let good: BTreeSet<&str> = trials
        .iter()
        .filter(|observation| observation.outcome == Outcome::Ok)
        .map(|observation| observation.trial.as_str())
        .collect();
    let mine: Vec<usize> = (0..rows.trial.len())
        .filter(|row| rows.side[*row] == letter && good.contains(rows.trial[*row].as_str()))
        .filter(|row| rows.numbers[0][*row].is_finite())
        .collect();
    let [slowdown, lower, upper, isolated, overlap, drift] = rows.numbers.each_ref().map(|column| {
        mine.iter().map(|row| column[*row]).filter(|value| value.is_finite()).collect::<Vec<f64>>()
    });
    let estimate = Estimate::geometric(&slowdown, plan.header.level);
    let single = |values: &[f64]| values.first().copied().filter(|_| mine.len() == 1);
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for observation in trials {
        *outcomes.entry(observation.outcome.to_string()).or_default() += 1;
    }
    SideSummary {
        subject: subject.clone(),
        co_runner: co_runner.clone(),
        sharing,
        isolated_step_seconds: geometric_mean(&isolated),
        slowdown: estimate.as_ref().map(|estimate| estimate.point).or(single(&slowdown)),
        slowdown_lower: estimate.as_ref().map(|estimate| estimate.lower).or(single(&lower)),
        slowdown_upper: estimate.as_ref().map(|estimate| estimate.upper).or(single(&upper)),
        n: mine.len(),
        overlap_least: overlap.into_iter().reduce(f64::min),
        drift_most: drift.into_iter().reduce(f64::max),
        outcomes,
        flags: trials.iter().flat_map(|observation| observation.flags.iter().cloned()).collect(),
        progress: progress.cloned(),
    }
}
