//! Which GPUs to add or to remove?

use super::resize::{PoolAmounts, resized};
use super::{CHANCE, Side, Solved, WhatIf};
use crate::Error;
use crate::cluster::Cluster;
use crate::placement::Placement;
use crate::provenance::Basis;
use crate::resources::Resource;
use elastico_core::{JobId, PoolId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema id of an answer about capacity.
pub const CAPACITY_SCHEMA: &str = "elastico.whatif.capacity/1";

/// The resource that most of a placement's value is paid for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bottleneck {
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// The resource.
    pub resource: Resource,
    /// Its price.
    pub value_per_unit: f64,
    /// Price times capacity over the bound: how much of the value this resource accounts for.
    pub value_ratio: f64,
}

impl Bottleneck {
    fn of(placement: &Placement) -> Option<Self> {
        Self::all(placement).into_iter().next()
    }

    /// All that has a price, the largest part of the value first.
    fn all(placement: &Placement) -> Vec<Self> {
        let of = |price: &crate::Price| Self {
            pool: price.pool.clone(),
            resource: price.resource,
            value_per_unit: price.value_per_unit,
            value_ratio: price.value_per_unit * price.capacity / placement.bound.max(f64::MIN_POSITIVE),
        };
        let mut all: Vec<Self> = placement.prices.prices.iter().map(of).collect();
        all.retain(|bottleneck| bottleneck.value_ratio > 0.0);
        all.sort_by(|a, b| b.value_ratio.total_cmp(&a.value_ratio));
        all
    }
}

/// One size of a pool, the others as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityStep {
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// GPUs added, or removed where negative.
    pub gpus: i64,
    /// GPUs of the pool then.
    pub pool_gpus: u32,
    /// As it would be.
    pub after: Side,
    /// Value after less value now.
    pub value_delta: f64,
    /// The delta for certain: better placements of either side cannot bring it outside.
    pub value_delta_range: [f64; 2],
    /// Value per GPU of the whole change.
    pub value_per_gpu: f64,
    /// Value per GPU between this size and the next one on the way to the present size.
    pub marginal_per_gpu: f64,
    /// The marginal value for one unit of money per hour, where the pool has a price per GPU-hour.
    pub marginal_per_money: Option<f64>,
    /// What would be short then; absent = nothing has a price.
    pub bottleneck: Option<Bottleneck>,
    /// Jobs that would begin to run.
    #[schemars(with = "Vec<String>")]
    pub entering: Vec<JobId>,
    /// Jobs that would stop.
    #[schemars(with = "Vec<String>")]
    pub leaving: Vec<JobId>,
}

/// The answer to "which GPUs to add or to remove".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityAnswer {
    /// `elastico.whatif.capacity/1`.
    pub schema: String,
    /// As it is.
    pub before: Side,
    /// What most of the value is paid for now.
    pub bottleneck: Option<Bottleneck>,
    /// All that is short now, what most of the value is paid for first.
    pub short: Vec<Bottleneck>,
    /// By pool in the order of the question, from few GPUs to many.
    pub steps: Vec<CapacityStep>,
    /// What it rests on.
    pub basis: Basis,
}

impl WhatIf<'_> {
    /// What would more and fewer GPUs bring? Every size is solved; nodes come and go whole, the last one perhaps not full.
    ///
    /// # Errors
    /// [`Error::Unknown`] for an unknown pool, [`Error::Option`] where more GPUs are removed than there are.
    pub fn capacity(&self, add: &[PoolAmounts], remove: &[PoolAmounts]) -> Result<CapacityAnswer, Error> {
        let cluster = self.allocator.cluster();
        let mut pools: Vec<PoolId> = Vec::new();
        let mut changes: BTreeMap<&PoolId, Vec<i64>> = BTreeMap::new();
        for (named, grows) in
            add.iter().map(|named| (named, true)).chain(remove.iter().map(|named| (named, false)))
        {
            for amount in &named.amounts {
                let change = amount.signed(cluster, &named.pool, grows)?;
                changes.entry(&named.pool).or_default().push(change);
            }
            if !pools.contains(&named.pool) {
                pools.push(named.pool.clone());
            }
        }
        let mut before = self.side();
        let mut steps = Vec::new();
        for pool in &pools {
            let mut sizes = changes.remove(pool).unwrap_or_default();
            sizes.push(0);
            sizes.sort_unstable();
            sizes.dedup();
            let solve = |change: &i64| {
                Ok((*change != 0).then_some(self.solve_resized(resized(cluster, pool, *change)?)?))
            };
            let solved = sizes.iter().map(solve).collect::<Result<Vec<Option<Solved>>, Error>>()?;
            let mut sides: Vec<Side> =
                solved.iter().map(|solved| solved.as_ref().map_or(before, Solved::side)).collect();
            settle(&mut sides);
            if let Some(now) = sizes.iter().position(|change| *change == 0) {
                before = sides[now];
            }
            steps.extend(self.steps(pool, &sizes, &sides, &solved)?);
        }
        // A later pool may have shown that the present state can be worth more, or less.
        for step in &mut steps {
            let mut now = before;
            let (small, large) =
                if step.gpus > 0 { (&mut now, &mut step.after) } else { (&mut step.after, &mut now) };
            Side::order(small, large);
            step.value_delta = step.after.value - before.value;
            step.value_delta_range = before.delta_range(&step.after);
            step.value_per_gpu = step.value_delta / step.gpus as f64;
        }
        Ok(CapacityAnswer {
            schema: CAPACITY_SCHEMA.to_owned(),
            before,
            bottleneck: Bottleneck::of(&self.before),
            short: Bottleneck::all(&self.before),
            steps,
            basis: self.before.basis.clone(),
        })
    }

    fn solve_resized(&self, cluster: Cluster) -> Result<Solved, Error> {
        self.solve_within(cluster, self.allocator.options().clone(), self.jobs, CHANCE)
    }

    fn steps(
        &self,
        pool: &PoolId,
        sizes: &[i64],
        sides: &[Side],
        solved: &[Option<Solved>],
    ) -> Result<Vec<CapacityStep>, Error> {
        let known = self.allocator.cluster().get(pool.as_str())?;
        let Some(now) = sizes.iter().position(|change| *change == 0) else { return Ok(Vec::new()) };
        let ids = |of: &Placement, not_in: &Placement| -> Vec<JobId> {
            let jobs = of.assignments.iter().map(|assignment| &assignment.job);
            jobs.filter(|job| not_in.assignment(job.as_str()).is_none()).cloned().collect()
        };
        let step = |(at, solved): (usize, &Option<Solved>)| {
            let placement = &solved.as_ref()?.placement;
            let nearer = if at < now { at + 1 } else { at - 1 };
            let value_delta = sides[at].value - sides[now].value;
            let marginal = (sides[at].value - sides[nearer].value) / (sizes[at] - sizes[nearer]) as f64;
            Some(CapacityStep {
                pool: pool.clone(),
                gpus: sizes[at],
                pool_gpus: u32::try_from(i64::from(known.gpu_count()) + sizes[at]).unwrap_or(0),
                after: sides[at],
                value_delta,
                value_delta_range: sides[now].delta_range(&sides[at]),
                value_per_gpu: value_delta / sizes[at] as f64,
                marginal_per_gpu: marginal,
                marginal_per_money: known
                    .price_per_gpu_hour
                    .filter(|money| *money > 0.0)
                    .map(|money| marginal / money),
                bottleneck: Bottleneck::of(placement),
                entering: ids(placement, &self.before),
                leaving: ids(&self.before, placement),
            })
        };
        Ok(solved.iter().enumerate().filter_map(step).collect())
    }
}

/// Sides from the smallest cluster to the largest: values rise upwards, bounds fall downwards.
fn settle(sides: &mut [Side]) {
    for at in 1..sides.len() {
        let (small, large) = sides.split_at_mut(at);
        Side::order(&mut small[at - 1], &mut large[0]);
    }
    for at in (1..sides.len()).rev() {
        let (small, large) = sides.split_at_mut(at);
        Side::order(&mut small[at - 1], &mut large[0]);
    }
}
