//! Questions that change nothing: can these two share, what is one more GPU worth, what does sharing bring.
//!
//! [`pair`] and [`partners`] ask the predictor alone; [`WhatIf`] solves again, so that its answers are exact and carry
//! the bound and the gap of both solutions.

use crate::Error;
use crate::allocate::Allocator;
use crate::cluster::MOST_GPUS;
use crate::jobs::Jobs;
use crate::options::Options;
use crate::pairing::PairTable;
use crate::placement::Placement;
use crate::provenance::Basis;
use crate::resources::Resource;
use elastico_core::{JobId, PoolId};
use elastico_models::Profiles;
use serde::{Deserialize, Serialize};
use std::fmt;

mod pairs;

pub use pairs::{PairAnswer, PairQuestion, PairWay, PartnersAnswer, Verdict, pair, partners};

/// The schema id of an answer about a pair.
pub const PAIR_SCHEMA: &str = "elastico.whatif.pair/1";
/// The schema id of an answer about partners.
pub const PARTNERS_SCHEMA: &str = "elastico.whatif.partners/1";
/// The schema id of an answer about a change.
pub const CHANGE_SCHEMA: &str = "elastico.whatif.change/1";

/// One of the two solutions that an answer compares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// GPUs of the cluster.
    pub gpus: u32,
    /// Value of the objective.
    pub value: f64,
    /// No placement is worth more.
    pub bound: f64,
    /// What at most could still be won, as a ratio of the bound.
    pub gap: f64,
    /// Jobs that run.
    pub running: usize,
    /// Pairs among them.
    pub pairs: usize,
    /// Jobs that wait.
    pub waiting: usize,
}

impl Side {
    fn of(placement: &Placement, cluster: &crate::Cluster) -> Self {
        Self {
            gpus: cluster.gpu_count(),
            value: placement.value,
            bound: placement.bound,
            gap: placement.gap,
            running: placement.assignments.len(),
            pairs: placement.pairs(),
            waiting: placement.waiting.len(),
        }
    }
}

/// A change of capacity in one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityChange {
    /// The pool.
    pub pool: PoolId,
    /// GPUs added, or removed where negative.
    pub gpus: i64,
    /// Value per GPU of this change, where it is the only one: exact, both solutions are solved.
    pub value_per_gpu: Option<f64>,
    /// The price of a GPU slot before the change: what the first small change would be worth.
    pub slot_price: f64,
    /// What one GPU costs per hour.
    pub price_per_gpu_hour: Option<f64>,
    /// Value per unit of money and hour, where both are known.
    pub value_per_money: Option<f64>,
}

/// The answer to a "what if" that is solved again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// `elastico.whatif.change/1`.
    pub schema: String,
    /// The question in words.
    pub question: String,
    /// As it is.
    pub before: Side,
    /// As it would be.
    pub after: Side,
    /// Value after less value before.
    pub value_delta: f64,
    /// The delta for certain: no placement of either side can make it less, or more, than this.
    pub value_delta_range: [f64; 2],
    /// Jobs that would begin to run.
    pub entering: Vec<JobId>,
    /// Jobs that would stop.
    pub leaving: Vec<JobId>,
    /// The changes of capacity, if any.
    pub capacity: Vec<CapacityChange>,
    /// What it rests on.
    pub basis: Basis,
}

/// A solved state to ask about.
#[derive(Debug)]
pub struct WhatIf<'a> {
    allocator: &'a Allocator,
    jobs: &'a Jobs,
    profiles: &'a Profiles,
    table: Option<&'a PairTable>,
    before: Placement,
}

impl<'a> WhatIf<'a> {
    /// Solves the state as it is.
    ///
    /// # Errors
    /// As [`Allocator::solve_with`].
    pub fn new(
        allocator: &'a Allocator,
        jobs: &'a Jobs,
        profiles: &'a Profiles,
        table: Option<&'a PairTable>,
    ) -> Result<Self, Error> {
        let before = allocator.solve_with(jobs, profiles, table, None)?;
        Ok(Self { allocator, jobs, profiles, table, before })
    }

    /// The placement as it is.
    pub const fn before(&self) -> &Placement {
        &self.before
    }

    /// What would more or fewer GPUs bring? Nodes are added whole, the last one perhaps not full.
    ///
    /// # Errors
    /// [`Error::Unknown`] for an unknown pool, [`Error::Option`] where more GPUs are removed than there are.
    pub fn capacity(&self, changes: &[(PoolId, i64)]) -> Result<Change, Error> {
        let mut cluster = self.allocator.cluster().clone();
        let mut described = Vec::new();
        for (id, gpus) in changes {
            let known = cluster.get(id.as_str())?;
            let count = i64::from(known.gpu_count()).checked_add(*gpus);
            let most = i64::try_from(MOST_GPUS).unwrap_or(i64::MAX);
            let count = count.filter(|count| *count <= most).and_then(|count| u32::try_from(count).ok());
            let Some(count) = count else {
                return Err(Error::Option {
                    field: "gpus",
                    value: gpus.to_string(),
                    rule: "the pool would have fewer than 0 GPUs, or over a million",
                });
            };
            for pool in cluster.pool.iter_mut().filter(|pool| pool.id == *id) {
                pool.gpus_per_node = pool.gpus_per_node.max(1);
                pool.nodes = count.div_ceil(pool.gpus_per_node);
                pool.gpus = (count != pool.nodes * pool.gpus_per_node).then_some(count);
            }
            let sign = if *gpus < 0 { "-" } else { "+" };
            described.push(format!("{id} {sign}{} GPUs", gpus.unsigned_abs()));
        }
        let changed = Allocator::new(cluster, self.allocator.options().clone());
        let mut change = self.solve_again(&changed, described.join(", "))?;
        let grows = changes.iter().all(|(_, gpus)| *gpus >= 0);
        let shrinks = changes.iter().all(|(_, gpus)| *gpus <= 0);
        // What fits the smaller cluster fits the larger one, and what bounds the larger one bounds the smaller.
        let (small, large) = if grows {
            (&mut change.before, &mut change.after)
        } else {
            (&mut change.after, &mut change.before)
        };
        if grows || shrinks {
            large.value = large.value.max(small.value);
            small.bound = small.bound.min(large.bound);
            for side in [small, large] {
                side.gap = if side.bound > 0.0 { (side.bound - side.value) / side.bound } else { 0.0 };
            }
            change.measure();
        }
        let alone = changes.len() == 1;
        for (id, gpus) in changes {
            let money = self.allocator.cluster().get(id.as_str())?.price_per_gpu_hour;
            let per_gpu = (alone && *gpus != 0).then(|| change.value_delta / *gpus as f64);
            change.capacity.push(CapacityChange {
                pool: id.clone(),
                gpus: *gpus,
                value_per_gpu: per_gpu,
                slot_price: self.before.prices.get(id, Resource::GpuSlots),
                price_per_gpu_hour: money,
                value_per_money: per_gpu
                    .zip(money.filter(|money| *money > 0.0))
                    .map(|(value, money)| value / money),
            });
        }
        Ok(change)
    }

    /// What would be lost if no job shared a GPU?
    ///
    /// # Errors
    /// As [`Allocator::solve_with`].
    pub fn without_sharing(&self) -> Result<Change, Error> {
        let options = Options { sharing: Vec::new(), ..self.allocator.options().clone() };
        self.solve_again(
            &Allocator::new(self.allocator.cluster().clone(), options),
            "no job shares".to_owned(),
        )
    }

    /// What would another limit on slowdowns bring?
    ///
    /// # Errors
    /// [`Error::Option`] for a limit under 1.
    pub fn limit(&self, limit: f64) -> Result<Change, Error> {
        let options = Options { limit, ..self.allocator.options().clone() };
        let changed = Allocator::new(self.allocator.cluster().clone(), options);
        self.solve_again(
            &changed,
            format!("slowdown limit {limit} instead of {}", self.allocator.options().limit),
        )
    }

    fn solve_again(&self, changed: &Allocator, question: String) -> Result<Change, Error> {
        let after = changed.solve_with(self.jobs, self.profiles, self.table, Some(&self.before.prices))?;
        let missing_in = |placement: &Placement, job: &JobId| placement.assignment(job.as_str()).is_none();
        let ids = |of: &Placement, not_in: &Placement| -> Vec<JobId> {
            let jobs = of.assignments.iter().map(|assignment| &assignment.job);
            jobs.filter(|job| missing_in(not_in, job)).cloned().collect()
        };
        let mut change = Change {
            schema: CHANGE_SCHEMA.to_owned(),
            question,
            before: Side::of(&self.before, self.allocator.cluster()),
            after: Side::of(&after, changed.cluster()),
            value_delta: 0.0,
            value_delta_range: [0.0; 2],
            entering: ids(&after, &self.before),
            leaving: ids(&self.before, &after),
            capacity: Vec::new(),
            basis: after.basis.clone(),
        };
        change.measure();
        Ok(change)
    }
}

impl Change {
    fn measure(&mut self) {
        self.value_delta = self.after.value - self.before.value;
        self.value_delta_range = [self.after.value - self.before.bound, self.after.bound - self.before.value];
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simulated = if self.basis.simulated { " (simulated)" } else { "" };
        writeln!(f, "{}{simulated}: value {:+.3}", self.question, self.value_delta)?;
        for (name, side) in [("before", &self.before), ("after", &self.after)] {
            writeln!(
                f,
                "  {name:<6} {} GPUs, value {:.3}, bound {:.3}, gap {:.2} %, {} run, {} pairs, {} wait",
                side.gpus,
                side.value,
                side.bound,
                side.gap * 100.0,
                side.running,
                side.pairs,
                side.waiting
            )?;
        }
        for capacity in &self.capacity {
            if let Some(value) = capacity.value_per_gpu {
                writeln!(
                    f,
                    "  {}: {value:.3} per GPU, price before {:.3}",
                    capacity.pool, capacity.slot_price
                )?;
            }
        }
        Ok(())
    }
}
