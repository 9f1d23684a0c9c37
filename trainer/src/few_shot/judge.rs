//! How good a model becomes by a few measurements: the calibration rehearsed on what is known.

use super::LEVELS_OF_PROBES;
use super::correction::{Correction, Effect, EffectVariances, Probes};
use super::form::{DEVICE_FORMS, best, effects};
use crate::calibrate::offset_of_groups;
use crate::evaluate::{OutOfFold, Prepared};
use crate::matrix::{Matrix, medians};
use crate::metrics::{Scores, scores};
use crate::variety::Variety;
use crate::{Error, Examples, Groups, LearnerKind};
use elastico_core::{Seed, Stream, mean, sample_deviation};
use elastico_models::physics;
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Each number of probes is drawn this many times.
const DRAWS: u64 = 5;
/// Numbers of pairs on a new device.
const LEVELS_OF_PAIRS: [usize; 4] = [10, 20, 40, 80];

/// What is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Newcomer {
    /// Every workload of a family; `probes` co-runs each with partners of known families, on each device.
    Family,
    /// A device; `probes` pairs on it in all.
    Device,
}

/// Scores after a number of probes, over rows of pairs that were not probed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FewShotRow {
    /// What is new.
    pub newcomer: Newcomer,
    /// The learner that is calibrated; for the mean that is an offset on a constant.
    pub learner: LearnerKind,
    /// Co-runs of each new workload, or pairs on the new device.
    pub probes: u32,
    /// Test rows, mean over the draws of the probes.
    pub n: u64,
    /// Times the probes were drawn.
    pub draws: u64,
    /// MAPE of the same rows without any calibration: the rows differ from one number of probes to the next.
    pub mape_before: f64,
    /// Errors pooled over the draws; the interval resamples families, of a device the subjects'.
    #[serde(flatten)]
    pub scores: Scores,
}

/// Pooled predictions of one number of probes.
#[derive(Default)]
struct Pool {
    measured: Vec<f64>,
    predicted: Vec<f64>,
    /// Predictions before the calibration.
    base: Vec<f64>,
    cluster: Vec<u32>,
}

impl Pool {
    fn row(
        self,
        newcomer: Newcomer,
        learner: LearnerKind,
        probes: usize,
        limit: f64,
        seed: Seed,
    ) -> Option<FewShotRow> {
        let n = self.measured.len() as u64 / DRAWS;
        let scores = scores(&self.measured, &self.predicted, &self.cluster, limit, seed)?;
        let errors: Vec<f64> = self
            .base
            .iter()
            .zip(&self.measured)
            .map(|(base, measured)| (base - measured).abs() / measured)
            .collect();
        let mape_before = mean(&errors);
        Some(FewShotRow { newcomer, learner, probes: probes as u32, n, draws: DRAWS, mape_before, scores })
    }
}

/// The family of each workload.
pub(super) fn families_of(groups: &Groups) -> BTreeMap<u32, u32> {
    let subjects = groups.subject.iter().zip(&groups.subject_family);
    let co_runners = groups.co_runner.iter().zip(&groups.co_runner_family);
    subjects.chain(co_runners).map(|(workload, family)| (*workload, *family)).collect()
}

/// A row that was not probed.
struct Probed {
    row: usize,
    /// What the probes add to its log slowdown.
    correction: f64,
}

/// One held-out part of the families with everything that its calibration needs.
struct HeldOut<'a> {
    groups: &'a Groups,
    /// Rows that touch it.
    rows: Vec<u32>,
    /// By row of the examples: log slowdown by the model that has not seen it. NaN elsewhere.
    base: Vec<f64>,
    features: &'a Matrix,
    measured: &'a [f64],
    families: BTreeSet<u32>,
    workloads: BTreeSet<u32>,
    variances: EffectVariances,
}

impl HeldOut<'_> {
    fn is_new(&self, effect: Effect, code: u32) -> bool {
        match effect {
            Effect::SubjectFamily | Effect::CoRunnerFamily => self.families.contains(&code),
            Effect::Subject | Effect::CoRunner => self.workloads.contains(&code),
        }
    }

    /// Calibrates on `count` co-runs of each new workload on each device; gives each other row with its correction.
    fn rehearse(&self, count: usize, stream: &mut Stream) -> Result<Vec<Probed>, Error> {
        let groups = self.groups;
        let probes = Probes { base: &self.base, measured: self.measured, features: self.features, groups };
        let mut corrected = Vec::new();
        let devices: BTreeSet<u32> = self.rows.iter().map(|&row| groups.device[row as usize]).collect();
        for device in devices {
            let here: Vec<u32> =
                self.rows.iter().copied().filter(|&row| groups.device[row as usize] == device).collect();
            let mut taken: BTreeSet<(u32, u32)> = BTreeSet::new();
            for workload in &self.workloads {
                let known = |row: usize| {
                    let (subject, co_runner) = (groups.subject_family[row], groups.co_runner_family[row]);
                    (groups.subject[row] == *workload && !self.families.contains(&co_runner))
                        || (groups.co_runner[row] == *workload && !self.families.contains(&subject))
                };
                let mut units: Vec<(u32, u32)> = here
                    .iter()
                    .map(|&row| row as usize)
                    .filter(|&row| known(row))
                    .map(|row| (groups.pair[row], groups.context[row]))
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect();
                for _ in 0..count.min(units.len()) {
                    taken.insert(units.swap_remove(stream.random_range(0..units.len())));
                }
            }
            let pairs: BTreeSet<u32> = taken.iter().map(|(pair, _)| *pair).collect();
            let is_probe = |row: usize| taken.contains(&(groups.pair[row], groups.context[row]));
            let probed: Vec<u32> = here.iter().copied().filter(|&row| is_probe(row as usize)).collect();
            if probed.is_empty() {
                continue;
            }
            let correction = Correction::fit(
                &probes,
                &probed,
                effects(1.0),
                &self.variances,
                |effect, code| self.is_new(effect, code),
                Seed(0),
            )?;
            let rest = here.iter().copied().filter(|&row| !pairs.contains(&groups.pair[row as usize]));
            corrected.extend(rest.map(|row| {
                let row = row as usize;
                Probed { row, correction: correction.predict(&probes, row) - self.base[row] }
            }));
        }
        Ok(corrected)
    }
}

/// The held-out parts of the families, each with variances from the residuals of the others.
fn held_out<'a>(
    examples: &'a Examples,
    measured: &'a [f64],
    features: &'a Matrix,
    held: &OutOfFold,
) -> Vec<HeldOut<'a>> {
    let groups = &examples.groups;
    let residuals = held.residuals(examples);
    let members = families_of(groups);
    let held_families: Vec<BTreeSet<u32>> = held
        .held_out
        .iter()
        .map(|label| {
            let names: BTreeSet<&str> = label.split(", ").collect();
            (0..groups.families.len() as u32)
                .filter(|&code| names.contains(groups.families[code as usize].as_str()))
                .collect()
        })
        .collect();
    (0..held.held_out.len() as u32)
        .map(|fold| {
            let families = held_families[fold as usize].clone();
            let mut base = vec![f64::NAN; examples.rows()];
            let mut rows = Vec::new();
            for ((&row, &log), _) in
                held.rows.iter().zip(&held.log).zip(&held.fold).filter(|(_, f)| **f == fold)
            {
                base[row as usize] = log;
                rows.push(row);
            }
            let variances = EffectVariances::estimate(groups, &held.rows, &residuals, |index, is_subject| {
                let row = held.rows[index] as usize;
                let family =
                    if is_subject { groups.subject_family[row] } else { groups.co_runner_family[row] };
                held.fold[index] != fold && held_families[held.fold[index] as usize].contains(&family)
            });
            let workloads =
                members.iter().filter(|(_, family)| families.contains(family)).map(|(w, _)| *w).collect();
            HeldOut { groups, rows, base, features, measured, families, workloads, variances }
        })
        .collect()
}

/// Variances over all held-out families: the prior that the exported model carries.
pub(super) fn variances(examples: &Examples, held: &OutOfFold) -> EffectVariances {
    let groups = &examples.groups;
    EffectVariances::estimate(groups, &held.rows, &held.residuals(examples), |index, is_subject| {
        let row = held.rows[index] as usize;
        let family = if is_subject { groups.subject_family[row] } else { groups.co_runner_family[row] };
        let name = groups.families[family as usize].as_str();
        held.held_out[held.fold[index] as usize].split(", ").any(|held| held == name)
    })
}

/// A rehearsed calibration of new families.
#[derive(Default)]
pub(crate) struct Rehearsal {
    pub(crate) rows: Vec<FewShotRow>,
    /// By number of probes: how far the correction is believed, 0 to 1.
    pub(crate) belief: BTreeMap<u32, f64>,
    /// By number of probes: the offset under which the slowdowns of the families lie that were not probed.
    pub(crate) upper_offset_log: BTreeMap<u32, f64>,
}

/// Rehearses the calibration of each held-out family with 1, 2, 4 and 8 probes for each workload.
pub(crate) fn rehearse_families(
    examples: &Examples,
    held: &OutOfFold,
    learner: LearnerKind,
    level: f64,
    limit: f64,
    seed: Seed,
) -> Result<Rehearsal, Error> {
    let measured: Vec<f64> = examples.slowdown.iter().map(|slowdown| slowdown.ln()).collect();
    let all: Vec<u32> = (0..examples.rows() as u32).collect();
    let impute = medians(&examples.features, examples.schema.width(), &all);
    let prepared = Prepared::new(examples, &physics(&examples.schema), &impute, &all);
    let parts = held_out(examples, &measured, &prepared.features, held);
    let mut rehearsal = Rehearsal::default();
    for count in LEVELS_OF_PROBES {
        let mut probed = Vec::with_capacity(parts.len());
        for (part, label) in parts.iter().zip(&held.held_out) {
            let mut draws = Vec::new();
            for draw in 0..DRAWS {
                let mut stream = seed.stream("trainer.probes", &[&draw.to_string(), label]);
                draws.extend(part.rehearse(count, &mut stream)?);
            }
            probed.push(draws);
        }
        let errors: Vec<Option<[f64; BELIEFS.len()]>> =
            parts.iter().zip(&probed).map(|(part, rows)| errors_by_belief(part, rows)).collect();
        let mut pool = Pool::default();
        let mut residuals = vec![Vec::new(); parts.len()];
        for (fold, (part, rows)) in parts.iter().zip(&probed).enumerate() {
            // As the other families show it: what is judged must not have had a say.
            let others = errors.iter().enumerate().filter(|(other, _)| *other != fold);
            let belief = belief(others.filter_map(|(_, errors)| errors.as_ref()));
            for &Probed { row, correction } in rows {
                let log = part.base[row] + belief * correction;
                pool.measured.push(examples.slowdown[row]);
                pool.predicted.push(log.exp());
                pool.base.push(part.base[row].exp());
                pool.cluster.push(fold as u32);
                residuals[fold].push(measured[row] - log);
            }
        }
        residuals.retain(|group| !group.is_empty());
        if !residuals.is_empty() {
            rehearsal.upper_offset_log.insert(count as u32, offset_of_groups(&residuals, level));
            rehearsal.belief.insert(count as u32, belief(errors.iter().flatten()));
        }
        rehearsal.rows.extend(pool.row(Newcomer::Family, learner, count, limit, seed));
    }
    Ok(rehearsal)
}

/// How far a correction may be believed.
const BELIEFS: [f64; 5] = [1.0, 0.75, 0.5, 0.25, 0.0];

/// MAPE of one held-out part by how far its corrections are believed; absent without rows.
fn errors_by_belief(part: &HeldOut<'_>, rows: &[Probed]) -> Option<[f64; BELIEFS.len()]> {
    let error = |belief: f64| {
        let of_row = |probed: &Probed| {
            (part.base[probed.row] + belief * probed.correction - part.measured[probed.row]).exp() - 1.0
        };
        mean(&rows.iter().map(|probed| of_row(probed).abs()).collect::<Vec<_>>())
    };
    (!rows.is_empty()).then(|| BELIEFS.map(error))
}

/// The belief with the least mean error, if it is less than that of the whole belief by more than the standard error of their
/// difference over the families.
///
/// Where a model is good already a correction by few rows can do harm, and the rehearsal shows it.
fn belief<'a>(errors: impl Iterator<Item = &'a [f64; BELIEFS.len()]>) -> f64 {
    let errors: Vec<_> = errors.collect();
    let mean_of = |index: usize| mean(&errors.iter().map(|errors| errors[index]).collect::<Vec<_>>());
    if errors.len() < 2 {
        return 1.0;
    }
    let Some(least) = (0..BELIEFS.len()).min_by(|&a, &b| mean_of(a).total_cmp(&mean_of(b))) else {
        return 1.0;
    };
    let gains: Vec<f64> = errors.iter().map(|errors| errors[0] - errors[least]).collect();
    let is_clear = mean(&gains) > sample_deviation(&gains) / (gains.len() as f64).sqrt();
    if is_clear { BELIEFS[least] } else { BELIEFS[0] }
}

/// Rehearses the calibration to each held-out device with 10, 20, 40 and 80 pairs, taken as evenly over workloads and families
/// as `profile next` takes them. On Gavel's devices 10 such pairs are worth 1.2 points of MAPE against random ones, 40 of them 0.1.
pub(crate) fn rehearse_devices(
    examples: &Examples,
    held: &OutOfFold,
    learner: LearnerKind,
    limit: f64,
    seed: Seed,
) -> Result<Vec<FewShotRow>, Error> {
    let groups = &examples.groups;
    let measured: Vec<f64> = examples.slowdown.iter().map(|slowdown| slowdown.ln()).collect();
    let spec = physics(&examples.schema);
    let mut pools: BTreeMap<usize, Pool> = BTreeMap::new();
    for fold in 0..held.held_out.len() as u32 {
        let rows: Vec<u32> =
            held.rows.iter().zip(&held.fold).filter(|(_, f)| **f == fold).map(|(row, _)| *row).collect();
        let log: Vec<f64> =
            held.log.iter().zip(&held.fold).filter(|(_, f)| **f == fold).map(|(log, _)| *log).collect();
        let impute = medians(&examples.features, examples.schema.width(), &rows);
        let prepared = Prepared::new(examples, &spec, &impute, &rows);
        let here = groups.subset(&rows);
        let target: Vec<f64> = rows.iter().map(|&row| measured[row as usize]).collect();
        let probes = Probes { base: &log, measured: &target, features: &prepared.features, groups: &here };
        let pairs_total = here.pair.iter().collect::<BTreeSet<_>>().len();
        for count in LEVELS_OF_PAIRS.into_iter().filter(|count| 2 * count <= pairs_total) {
            for draw in 0..DRAWS {
                let name = [draw.to_string(), count.to_string(), held.held_out[fold as usize].clone()];
                let mut stream = seed.stream("trainer.pairs", &name.each_ref().map(String::as_str));
                let taken = evenly(&here, count, &mut stream);
                let (probed, rest): (Vec<u32>, Vec<u32>) =
                    (0..rows.len() as u32).partition(|&row| taken.contains(&here.pair[row as usize]));
                let found = best(&probes, &probed, &DEVICE_FORMS, None, |_, _| true, seed)?;
                let pool = pools.entry(count).or_default();
                for row in rest {
                    pool.measured.push(target[row as usize].exp());
                    pool.base.push(log[row as usize].exp());
                    pool.predicted.push(found.correction.predict(&probes, row as usize).exp());
                    pool.cluster.push(here.subject_family[row as usize]);
                }
            }
        }
    }
    let rows =
        pools.into_iter().filter_map(|(count, pool)| pool.row(Newcomer::Device, learner, count, limit, seed));
    Ok(rows.collect())
}

/// Pairs spread over workloads and over pairs of families; among those alike by chance.
fn evenly(groups: &Groups, count: usize, stream: &mut Stream) -> BTreeSet<u32> {
    let sides =
        (0..groups.pair.len()).map(|row| (groups.pair[row], (groups.subject[row], groups.co_runner[row])));
    let mut left: Vec<(u32, (u32, u32))> = sides.collect::<BTreeMap<_, _>>().into_iter().collect();
    let mut variety = Variety::new(BTreeMap::new(), families_of(groups));
    let mut taken = BTreeSet::new();
    while taken.len() < count && !left.is_empty() {
        let factors: Vec<f64> = left.iter().map(|(_, (a, b))| variety.factor(a, b)).collect();
        let most = factors.iter().copied().fold(0.0, f64::max);
        let best: Vec<usize> = (0..left.len()).filter(|&index| factors[index] >= most).collect();
        let (pair, (a, b)) = left.swap_remove(best[stream.random_range(0..best.len())]);
        variety.add(&a, &b);
        taken.insert(pair);
    }
    taken
}
