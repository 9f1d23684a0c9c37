//! What if the predictions are wrong?
//!
//! The present placement is kept, and the slowdowns are replaced by others that the predictions might have been: each
//! one times a factor drawn evenly from 1 - error to 1 + error. Under them the placement is worth something else, some
//! pairs exceed their limit, and an allocator that had known the truth would have placed otherwise.

use super::{Side, WhatIf};
use crate::Error;
use crate::allocate::Allocator;
use crate::pairing::{PairOutcome, PairTable};
use crate::placement::Assignment;
use crate::provenance::Basis;
use elastico_core::{JobId, Seed, SharingMode, WorkloadId, parallel};
use rand::RngExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The schema id of an answer about robustness.
pub const ROBUST_SCHEMA: &str = "elastico.whatif.robust/1";

/// How wrong, how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RobustOptions {
    /// Largest relative error of a slowdown, 0..1.
    pub error: f64,
    /// Draws.
    pub draws: u32,
    /// Seed of the draws.
    pub seed: Seed,
}

impl Default for RobustOptions {
    fn default() -> Self {
        Self { error: 0.1, draws: 50, seed: Seed(0) }
    }
}

/// The mean over draws, and the middle nine tenths of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// 5 % of the draws are below.
    pub low: f64,
    /// 5 % of the draws are above.
    pub high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        values.sort_by(f64::total_cmp);
        let at = |quantile: f64| values[((values.len() - 1) as f64 * quantile).round() as usize];
        Self { mean: values.iter().sum::<f64>() / values.len() as f64, low: at(0.05), high: at(0.95) }
    }
}

/// One world in which the predictions were wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct World {
    /// What the present placement is worth there.
    pub value: f64,
    /// What an allocator that knows the slowdowns makes of it.
    pub resolved: Side,
    /// `resolved.value - value` over `resolved.value`; below 0 where the present placement gains by exceeding limits.
    pub regret: f64,
    /// The regret cannot be more than this: taken from the bound.
    pub regret_most: f64,
    /// Pairs of which a side is slowed down more than it bears.
    pub breaches: usize,
    /// The jobs that are slowed down more than they bear.
    #[schemars(with = "Vec<String>")]
    pub breached: Vec<JobId>,
}

/// How often a job is slowed down more than it bears.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobBreach {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// Draws in which it is, as a ratio.
    pub draws_ratio: f64,
}

/// The answer to "what if the predictions are wrong".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RobustAnswer {
    /// `elastico.whatif.robust/1`.
    pub schema: String,
    /// Largest relative error.
    pub error: f64,
    /// Draws.
    pub draws: u32,
    /// Seed of the draws.
    #[schemars(with = "u64")]
    pub seed: Seed,
    /// As predicted.
    pub before: Side,
    /// Pairs that rest on a prediction.
    pub pairs: usize,
    /// Value of the present placement over draws.
    pub value: Spread,
    /// Regret over draws.
    pub regret: Spread,
    /// Pairs over their limit, over draws.
    pub breaches: Spread,
    /// Draws in which a pair exceeds its limit, as a ratio.
    pub breached_draws_ratio: f64,
    /// Every slowdown that the placement rests on is larger by the error, every other one smaller.
    pub worst: World,
    /// The largest error, to a thousandth, at which no pair can exceed its limit; absent = no pair.
    pub safe_error: Option<f64>,
    /// Jobs by how often they are slowed down more than they bear, the most often first; jobs that never are are absent.
    pub jobs: Vec<JobBreach>,
    /// What it rests on.
    pub basis: Basis,
}

/// Draws at most: the rarest event that they can show is one in so many.
const MOST_DRAWS: u32 = 10_000;

/// One cell of the table of pairs: chip, both workloads in order, and the mode seen from the first.
type Cell = (String, WorkloadId, WorkloadId, String);

impl WhatIf<'_> {
    /// How much would be lost, and who would be slowed down too much, if the slowdowns were off by an error?
    ///
    /// # Errors
    /// [`Error::Option`] for an error outside 0..1 or no draws.
    pub fn robust(&self, options: RobustOptions) -> Result<RobustAnswer, Error> {
        let RobustOptions { error, draws, seed } = options;
        if !(error > 0.0 && error < 1.0) {
            let rule = "it must be above 0 and below 1";
            return Err(Error::Option { field: "error", value: error.to_string(), rule });
        }
        if !(1..=MOST_DRAWS).contains(&draws) {
            let rule = "it must be 1 to 10000: each draw is solved";
            return Err(Error::Option { field: "draws", value: draws.to_string(), rule });
        }
        let drawn = parallel::map(draws as usize, |draw| {
            // One stream per draw, consumed in the order of the table: the same on every machine.
            let mut random = seed.stream("robust", &[&draw.to_string()]);
            let mut factors = BTreeMap::new();
            self.world(|cell| {
                *factors
                    .entry(cell.clone())
                    .or_insert_with(|| [(); 2].map(|()| 1.0 + error * random.random_range(-1.0..=1.0)))
            })
        });
        let worlds = drawn.into_iter().collect::<Result<Vec<_>, _>>()?;
        let used: BTreeSet<Cell> = self.cells().collect();
        let worst =
            self.world(|cell| if used.contains(cell) { [1.0 + error; 2] } else { [1.0 - error; 2] })?;
        let all = |value: fn(&World) -> f64| Spread::of(worlds.iter().map(value).collect());
        let mut counts: BTreeMap<&JobId, u32> = BTreeMap::new();
        for job in worlds.iter().flat_map(|world| &world.breached) {
            *counts.entry(job).or_default() += 1;
        }
        let ratio = |count: u32| f64::from(count) / f64::from(draws);
        let mut jobs: Vec<JobBreach> = counts
            .into_iter()
            .map(|(job, count)| JobBreach { job: job.clone(), draws_ratio: ratio(count) })
            .collect();
        jobs.sort_by(|a, b| b.draws_ratio.total_cmp(&a.draws_ratio).then(a.job.cmp(&b.job)));
        Ok(RobustAnswer {
            schema: ROBUST_SCHEMA.to_owned(),
            error,
            draws,
            seed,
            before: self.side(),
            pairs: self.before.pairs(),
            value: all(|world| world.value),
            regret: all(|world| world.regret),
            breaches: all(|world| world.breaches as f64),
            breached_draws_ratio: worlds.iter().filter(|world| world.breaches > 0).count() as f64
                / f64::from(draws),
            worst,
            safe_error: self.safe_error(),
            jobs,
            basis: self.before.basis.clone(),
        })
    }

    /// The present placement, and one that knows better, where each slowdown is its prediction times a factor.
    fn world(&self, mut factor: impl FnMut(&Cell) -> [f64; 2]) -> Result<World, Error> {
        let truth = self.perturbed(&mut factor);
        let allocator = Allocator::new(self.allocator.cluster().clone(), self.allocator.options().clone());
        let (solved, _) =
            allocator.solve_warm(self.jobs, self.profiles, truth.as_ref(), Some(&self.warm), None)?;
        let mut value = 0.0;
        let mut breached = Vec::new();
        for assignment in &self.before.assignments {
            let (worth, slowdown) = self.under(assignment, &mut factor);
            value += worth;
            if assignment.beside.as_ref().is_some_and(|beside| slowdown > beside.limit * (1.0 + 1e-9)) {
                breached.push(assignment.job.clone());
            }
        }
        let pairs = breached.iter().filter(|job| {
            // A pair counts once: by its first side, unless that one bears it.
            let beside =
                self.before.assignment(job.as_str()).and_then(|assignment| assignment.beside.as_ref());
            beside.is_none_or(|beside| **job < beside.job || !breached.contains(&beside.job))
        });
        let breaches = pairs.count();
        let loss = |best: f64| if best > 0.0 { (best - value) / best } else { 0.0 };
        Ok(World {
            value,
            regret: loss(solved.value),
            regret_most: loss(solved.bound).max(0.0),
            resolved: Side::of(&solved, allocator.cluster()),
            breaches,
            breached,
        })
    }

    /// Value and slowdown of a job where it sits, under other slowdowns.
    fn under(&self, assignment: &Assignment, factor: &mut impl FnMut(&Cell) -> [f64; 2]) -> (f64, f64) {
        let (Some(beside), Some((cell, side))) = (&assignment.beside, self.cell(assignment)) else {
            return (assignment.value, 1.0);
        };
        let slowdown = beside.slowdown * factor(&cell)[side];
        // Weight and restart are factors of the value, whatever the slowdown.
        let objective = self.allocator.options().objective;
        let utility =
            |slowdown: f64| objective.utility(assignment.shape.normalized_throughput / slowdown.max(1.0));
        let predicted = utility(beside.slowdown);
        let ratio = if predicted > 0.0 { utility(slowdown) / predicted } else { 0.0 };
        (assignment.value * ratio, slowdown)
    }

    /// The cell that an assignment rests on, and which side of it the job is.
    fn cell(&self, assignment: &Assignment) -> Option<(Cell, usize)> {
        let beside = assignment.beside.as_ref()?;
        let workload =
            |job: &JobId| self.jobs.get(job.as_str()).ok().and_then(|(_, job)| job.workload.clone());
        let (mine, other) = (workload(&assignment.job)?, workload(&beside.job)?);
        let device = self.allocator.cluster().get(assignment.pool.as_str()).ok()?.chip()?.name.to_owned();
        // Of two equal workloads either job may be the first.
        let first = mine < other || (mine == other && assignment.job < beside.job);
        let sharing = if first { beside.sharing.clone() } else { beside.sharing.swapped() };
        let (a, b) = if first { (mine, other) } else { (other, mine) };
        Some(((device, a, b, sharing.to_string()), usize::from(!first)))
    }

    fn cells(&self) -> impl Iterator<Item = Cell> {
        self.before.assignments.iter().filter_map(|assignment| Some(self.cell(assignment)?.0))
    }

    fn perturbed(&self, factor: &mut impl FnMut(&Cell) -> [f64; 2]) -> Option<PairTable> {
        let table = self.table?;
        let workloads = self.jobs.job.iter().filter_map(|job| job.workload.clone());
        let pools = self.allocator.cluster().pool.iter();
        let devices = pools.filter_map(|pool| pool.chip().map(|chip| chip.name.to_owned()));
        let mut known: BTreeMap<(String, WorkloadId, WorkloadId), Vec<PairOutcome>> = BTreeMap::new();
        let outcome = |device: &str, a: &WorkloadId, b: &WorkloadId, mode: &SharingMode| {
            let outcomes = known
                .entry((device.to_owned(), a.clone(), b.clone()))
                .or_insert_with(|| table.get(device, a, b));
            let predicted = outcomes.iter().find(|outcome| outcome.sharing == *mode)?;
            let factors = factor(&(device.to_owned(), a.clone(), b.clone(), mode.to_string()));
            let slowdown = [0, 1].map(|side| predicted.slowdown[side] * factors[side]);
            // Whoever knows the slowdown needs no bound on it.
            Some(PairOutcome { slowdown, upper: slowdown, ..predicted.clone() })
        };
        Some(PairTable::from_fn(workloads, devices, table.modes(), outcome))
    }

    /// The largest error at which no pair can exceed its limit.
    fn safe_error(&self) -> Option<f64> {
        let room = self.before.assignments.iter().filter_map(|assignment| {
            let beside = assignment.beside.as_ref()?;
            Some(beside.limit / beside.slowdown.max(f64::MIN_POSITIVE) - 1.0)
        });
        room.min_by(f64::total_cmp).map(|error| (error.max(0.0) * 1000.0).floor() / 1000.0)
    }
}
