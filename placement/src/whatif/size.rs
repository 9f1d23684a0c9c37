//! The smallest pool that reaches a target.
//!
//! What fits fewer nodes fits more, so the best value rises with nodes, and halving finds the first size that reaches a
//! target of value. Jobs served and throughput follow the value only loosely: there the sizes beside the answer are
//! solved too, and the answer says which of both it rests on.

use super::{Side, WhatIf};
use crate::Error;
use crate::cluster::{Cluster, MOST_GPUS, Pool};
use crate::placement::{Placement, WaitReason};
use crate::provenance::Basis;
use elastico_core::{JobId, PoolId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema id of an answer about sizes.
pub const SIZE_SCHEMA: &str = "elastico.whatif.size/1";

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Target {
    /// This part of the jobs runs, 0..=1.
    Served(f64),
    /// The sum of normalised throughputs.
    Throughput(f64),
    /// The value of the objective.
    Value(f64),
}

impl Target {
    fn reached(self, side: &Side) -> bool {
        let enough = |has: f64, goal: f64| has >= goal - 1e-9 * goal.abs();
        match self {
            Self::Served(ratio) => {
                let jobs = (side.running + side.waiting) as f64;
                enough(side.running as f64, (ratio * jobs - 1e-9).ceil())
            }
            Self::Throughput(goal) => enough(side.throughput, goal),
            Self::Value(goal) => enough(side.value, goal),
        }
    }

    fn check(self) -> Result<(), Error> {
        let (field, goal, most) = match self {
            Self::Served(goal) => ("served", goal, 1.0),
            Self::Throughput(goal) => ("throughput", goal, f64::MAX),
            Self::Value(goal) => ("value", goal, f64::MAX),
        };
        if goal > 0.0 && goal <= most {
            return Ok(());
        }
        let rule =
            if most > 1.0 { "it must be a number above 0" } else { "it must be above 0 and at most 1" };
        Err(Error::Option { field, value: goal.to_string(), rule })
    }
}

/// Why no smaller pool does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Smallest {
    /// The bound of one node less is below the target, and bounds fall with nodes: no smaller pool reaches it.
    Proven,
    /// One and two nodes less were solved and do not reach it; better placements than those that were found might.
    Neighbours,
    /// The pool needs no node.
    Empty,
}

/// A pool of some size, the others as they are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SizePoint {
    /// Nodes of the pool.
    pub nodes: u32,
    /// GPUs of the pool.
    pub pool_gpus: u32,
    /// The solution.
    pub side: Side,
    /// Whether it reaches the target.
    pub reached: bool,
}

/// The answer to "how small may the pool be".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SizeAnswer {
    /// `elastico.whatif.size/1`.
    pub schema: String,
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// The target.
    pub target: Target,
    /// Nodes that the pool has.
    pub nodes_now: u32,
    /// The fewest nodes that reach the target; absent = no number does.
    pub nodes: Option<u32>,
    /// What those nodes cost per hour.
    pub money_per_hour: Option<f64>,
    /// What all pools cost per hour then, where each has a list price.
    #[serde(default)]
    pub cluster_money_per_hour: Option<f64>,
    /// Why no smaller pool does.
    pub smallest: Option<Smallest>,
    /// Whether every larger size that was solved reaches it and every smaller one does not.
    pub monotone: bool,
    /// Why the target cannot be reached.
    pub why_not: Option<String>,
    /// Jobs that would wait in the answer, or in the largest pool where there is none.
    #[schemars(with = "Vec<String>")]
    pub waiting: Vec<JobId>,
    /// Every size that was solved, by nodes.
    pub tried: Vec<SizePoint>,
    /// What it rests on.
    pub basis: Basis,
}

struct Sizes<'a, 'b> {
    whatif: &'b WhatIf<'a>,
    pool: PoolId,
    target: Target,
    solved: BTreeMap<u32, (SizePoint, Placement)>,
}

impl WhatIf<'_> {
    /// How few nodes of a pool reach a target, the other pools as they are?
    ///
    /// # Errors
    /// [`Error::Unknown`] for an unknown pool, [`Error::Option`] for a target that cannot be meant.
    pub fn size(&self, pool: &PoolId, target: Target) -> Result<SizeAnswer, Error> {
        target.check()?;
        let known = self.allocator.cluster().get(pool.as_str())?;
        let (nodes_now, per_node) = (known.nodes, known.gpus_per_node.max(1));
        let mut sizes = Sizes { whatif: self, pool: pool.clone(), target, solved: BTreeMap::new() };
        let most = sizes.most(per_node);
        let mut least_failed = None;
        let mut found = if sizes.at(0)? {
            Some(0)
        } else {
            let (mut failed, mut nodes) = (0, nodes_now.clamp(1, most));
            loop {
                if sizes.at(nodes)? {
                    least_failed = Some(failed);
                    break Some(nodes);
                }
                failed = nodes;
                if nodes == most {
                    break None;
                }
                nodes = nodes.saturating_mul(2).min(most);
            }
        };
        if let (Some(reached), Some(mut failed)) = (found, least_failed) {
            let mut reached = reached;
            while reached - failed > 1 {
                let middle = failed + (reached - failed) / 2;
                if sizes.at(middle)? {
                    reached = middle;
                } else {
                    failed = middle;
                }
            }
            // Where the target does not follow the value, a size below may reach it although one above it does not.
            while reached >= 2 && sizes.at(reached - 2)? {
                reached -= 2;
            }
            if reached >= 1 && sizes.at(reached - 1)? {
                reached -= 1;
            }
            if reached < most {
                sizes.at(reached + 1)?;
            }
            found = Some(reached);
        }
        Ok(sizes.answer(found, nodes_now, most))
    }
}

impl WhatIf<'_> {
    /// Solutions at most that [`Self::size`] makes: none, doubling to the largest size, halving, and the neighbours.
    ///
    /// # Errors
    /// As [`Self::size`].
    pub fn most_sizes(&self, pool: &PoolId, target: Target) -> Result<u32, Error> {
        target.check()?;
        let known = self.allocator.cluster().get(pool.as_str())?;
        let sizes = Sizes { whatif: self, pool: pool.clone(), target, solved: BTreeMap::new() };
        let most = sizes.most(known.gpus_per_node.max(1));
        let start = known.nodes.clamp(1, most);
        let doublings = (most / start).checked_ilog2().unwrap_or(0) + 1;
        let halvings = most.checked_ilog2().unwrap_or(0) + 1;
        Ok((1 + doublings + halvings + 3).min(most.saturating_add(1)))
    }
}

impl Sizes<'_, '_> {
    /// So many nodes that each job has its largest shape for itself: more bring nothing.
    fn most(&self, per_node: u32) -> u32 {
        let nodes: u64 =
            self.whatif.jobs.job.iter().map(|job| u64::from(job.most_gpus().div_ceil(per_node))).sum();
        let limit = MOST_GPUS / u64::from(per_node);
        u32::try_from(nodes.clamp(1, limit.max(1))).unwrap_or(u32::MAX)
    }

    fn cluster(&self, nodes: u32) -> Cluster {
        let mut cluster = self.whatif.allocator.cluster().clone();
        for pool in cluster.pool.iter_mut().filter(|pool| pool.id == self.pool) {
            pool.nodes = nodes;
            pool.gpus_per_node = pool.gpus_per_node.max(1);
            pool.gpus = None;
        }
        cluster
    }

    /// Whether so many nodes reach the target.
    fn at(&mut self, nodes: u32) -> Result<bool, Error> {
        if let Some((point, _)) = self.solved.get(&nodes) {
            return Ok(point.reached);
        }
        let solved = self.whatif.solve_on(self.cluster(nodes))?;
        let side = solved.side();
        let gpus = self.cluster(nodes).get(self.pool.as_str())?.gpu_count();
        let reached = self.target.reached(&side);
        let point = SizePoint { nodes, pool_gpus: gpus, side, reached };
        self.solved.insert(nodes, (point, solved.placement));
        Ok(reached)
    }

    fn answer(self, found: Option<u32>, nodes_now: u32, most: u32) -> SizeAnswer {
        let tried: Vec<SizePoint> = self.solved.values().map(|(point, _)| *point).collect();
        let below = found.and_then(|nodes| nodes.checked_sub(1));
        let smallest = found.map(|_| match (below.and_then(|nodes| self.solved.get(&nodes)), self.target) {
            (Some((point, _)), Target::Value(goal)) if point.side.bound < goal => Smallest::Proven,
            (Some(_), _) => Smallest::Neighbours,
            (None, _) => Smallest::Empty,
        });
        let at = self.solved.get(&found.unwrap_or(most));
        let waiting = at.map_or(Vec::new(), |(_, placement)| {
            placement.waiting.iter().map(|waiting| waiting.job.clone()).collect()
        });
        let why_not = at.filter(|_| found.is_none()).map(|(point, placement)| self.why_not(point, placement));
        let pool = self.whatif.allocator.cluster().pool.iter().find(|pool| pool.id == self.pool);
        let gpus = at.map_or(0, |(point, _)| point.pool_gpus);
        let money = |pool: &Pool| {
            let gpus = if pool.id == self.pool { gpus } else { pool.gpu_count() };
            pool.price_per_gpu_hour.map(|money| money * f64::from(gpus))
        };
        let all = self.whatif.allocator.cluster().pool.iter().map(money);
        SizeAnswer {
            schema: SIZE_SCHEMA.to_owned(),
            pool: self.pool.clone(),
            target: self.target,
            nodes_now,
            nodes: found,
            money_per_hour: found.and(pool).and_then(money),
            cluster_money_per_hour: found.and_then(|_| all.sum()),
            smallest,
            monotone: tried.is_sorted_by_key(|point| point.reached),
            why_not,
            waiting,
            tried,
            basis: self.whatif.before.basis.clone(),
        }
    }

    fn why_not(&self, point: &SizePoint, placement: &Placement) -> String {
        let side = &point.side;
        let never = placement
            .waiting
            .iter()
            .filter(|waiting| waiting.reason == WaitReason::NoShape)
            .collect::<Vec<_>>();
        let reaches = match self.target {
            Target::Served(_) => format!("{} of {} jobs run", side.running, side.running + side.waiting),
            Target::Throughput(_) => format!("the throughput is {:.3}", side.throughput),
            Target::Value(_) => format!("the value is {:.3}, the bound {:.3}", side.value, side.bound),
        };
        let first = never.first().map_or(String::new(), |waiting| {
            format!("; {} can never run here, first {}: {}", never.len(), waiting.job, waiting.detail())
        });
        format!("with {} nodes, enough for the largest shape of every job, {reaches}{first}", point.nodes)
    }
}
