//! Questions that change nothing: may these two share, would this job run, what is one more GPU worth, who is harmed.
//!
//! [`pair`] and [`partners`] ask the predictor alone. [`WhatIf`] holds a solved state and solves a changed one for each
//! question, so that an answer is no extrapolation of prices: it carries value, bound and gap of every solution that it
//! compares. Two solutions with a gap leave their difference uncertain; the `…_range` fields say by how much.

use crate::Error;
use crate::allocate::Allocator;
use crate::cluster::Cluster;
use crate::jobs::Jobs;
use crate::kept::Kept;
use crate::options::Options;
use crate::pairing::PairTable;
use crate::placement::{Assignment, Placement};
use crate::warm::Warm;
use elastico_models::Profiles;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

mod admit;
mod capacity;
mod charge;
mod effects;
mod harmed;
mod pairs;
mod price;
mod resize;
mod robust;
mod size;

pub use admit::{ADMIT_SCHEMA, Admission, AdmitAnswer, Remedy, RemedyKind};
pub use capacity::{Bottleneck, CAPACITY_SCHEMA, CapacityAnswer, CapacityStep};
pub use charge::{CHARGE_SCHEMA, ChargeAnswer, ChargedBy, IdleCharge, JobCharge, TenantCharge};
pub use effects::{Effect, EffectKind, State};
pub use harmed::{HARMED_SCHEMA, HarmedAnswer, Scenario};
pub use pairs::{
    PAIR_SCHEMA, PARTNERS_SCHEMA, PairAnswer, PairQuestion, PairWay, PartnersAnswer, Verdict, pair, partners,
};
pub use price::{Marginal, PRICE_SCHEMA, PriceAnswer, ResourcePrice};
pub use resize::{Amount, PoolAmounts};
pub use robust::{JobBreach, ROBUST_SCHEMA, RobustAnswer, RobustOptions, Spread, World};
pub use size::{SIZE_SCHEMA, SizeAnswer, SizePoint, Smallest, Target};

/// One of the solutions that an answer compares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// GPUs of the cluster.
    pub gpus: u32,
    /// Value of the objective.
    pub value: f64,
    /// No placement is worth more.
    pub bound: f64,
    /// What at most could still be won, as a ratio of the bound.
    pub gap: f64,
    /// Sum of the normalised throughputs of all jobs, without weights.
    pub throughput: f64,
    /// Jobs that run.
    pub running: usize,
    /// Pairs among them.
    pub pairs: usize,
    /// Jobs that wait.
    pub waiting: usize,
}

impl Side {
    fn of(placement: &Placement, cluster: &Cluster) -> Self {
        Self {
            gpus: cluster.gpu_count(),
            value: placement.value,
            bound: placement.bound,
            gap: placement.gap,
            throughput: placement.assignments.iter().map(speed).fold(0.0, |sum, speed| sum + speed),
            running: placement.assignments.len(),
            pairs: placement.pairs(),
            waiting: placement.waiting.len(),
        }
    }

    /// What fits the smaller cluster fits the larger one, and what bounds the larger one bounds the smaller. Both have the same
    /// jobs; a larger cluster takes over the whole solution, not its value alone.
    fn order(small: &mut Self, large: &mut Self) {
        if large.value < small.value {
            *large = Self { gpus: large.gpus, bound: large.bound, ..*small };
        }
        Self::order_bounds(small, large);
    }

    /// What bounds more bounds less too.
    fn order_bounds(small: &mut Self, large: &mut Self) {
        small.bound = small.bound.min(large.bound);
        for side in [small, large] {
            side.gap = gap(side.value, side.bound);
        }
    }

    /// Value of `after` less that of this one, for certain: neither solution can be improved past its bound.
    fn delta_range(&self, after: &Self) -> [f64; 2] {
        [after.value - self.bound, after.bound - self.value]
    }
}

fn gap(value: f64, bound: f64) -> f64 {
    if bound > 0.0 { ((bound - value) / bound).max(0.0) } else { 0.0 }
}

/// Normalised throughput of a job where it sits.
fn speed(assignment: &Assignment) -> f64 {
    assignment.shape.normalized_throughput / slowdown(assignment)
}

fn slowdown(assignment: &Assignment) -> f64 {
    assignment.beside.as_ref().map_or(1.0, |beside| beside.slowdown.max(1.0))
}

/// How far from each other two searches may end by chance, as a ratio of the bound.
const CHANCE: f64 = 1e-4;

/// A solved state to ask about.
#[derive(Debug)]
pub struct WhatIf<'a> {
    allocator: &'a Allocator,
    jobs: &'a Jobs,
    profiles: &'a Profiles,
    table: Option<&'a PairTable>,
    before: Placement,
    warm: Warm,
}

/// A state solved again with something changed.
struct Solved {
    allocator: Allocator,
    placement: Placement,
}

impl Solved {
    fn side(&self) -> Side {
        Side::of(&self.placement, self.allocator.cluster())
    }
}

impl<'a> WhatIf<'a> {
    /// Solves the state as it is.
    ///
    /// The table should know the workloads of new jobs too, where a question brings some: the others run exclusive.
    ///
    /// # Errors
    /// As [`Allocator::solve_with`].
    pub fn new(
        allocator: &'a Allocator,
        jobs: &'a Jobs,
        profiles: &'a Profiles,
        table: Option<&'a PairTable>,
    ) -> Result<Self, Error> {
        let (first, warm) = allocator.solve_warm(jobs, profiles, table, None, None)?;
        // A second solution from the prices of the first is what every question is compared with: each of them starts there too.
        let kept = Kept { placement: &first, within: 0.0 };
        let (before, _) = allocator.solve_warm(jobs, profiles, table, Some(&warm), Some(kept))?;
        Ok(Self { allocator, jobs, profiles, table, before, warm })
    }

    /// The placement as it is.
    pub const fn before(&self) -> &Placement {
        &self.before
    }

    fn side(&self) -> Side {
        Side::of(&self.before, self.allocator.cluster())
    }

    fn solve(&self, cluster: Cluster, options: Options, jobs: &Jobs) -> Result<Solved, Error> {
        self.solve_within(cluster, options, jobs, 0.0)
    }

    /// The same for questions about who changes: the present placement stays where what was found is no better by this ratio of
    /// the bound. Two searches end so far from each other by chance.
    fn solve_within(
        &self,
        cluster: Cluster,
        options: Options,
        jobs: &Jobs,
        within: f64,
    ) -> Result<Solved, Error> {
        let allocator = Allocator::new(cluster, options);
        let kept = Kept { placement: &self.before, within };
        let (placement, _) =
            allocator.solve_warm(jobs, self.profiles, self.table, Some(&self.warm), Some(kept))?;
        Ok(Solved { allocator, placement })
    }

    fn solve_on(&self, cluster: Cluster) -> Result<Solved, Error> {
        self.solve(cluster, self.allocator.options().clone(), self.jobs)
    }

    /// The jobs as they are, and new ones after them.
    fn with_jobs(&self, new: &Jobs) -> Result<Jobs, Error> {
        let known: BTreeSet<&str> = self.jobs.job.iter().map(|job| job.id.as_str()).collect();
        if let Some(twice) = new.job.iter().find(|job| known.contains(job.id.as_str())) {
            return Err(Error::Duplicate { id: twice.id.to_string() });
        }
        let mut jobs = self.jobs.clone();
        jobs.job.extend(new.job.iter().cloned());
        Ok(jobs)
    }
}
