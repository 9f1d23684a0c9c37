//! What two jobs are worth on one GPU, and which pairs there are.

use super::halves::{Half, PairChoice, fitting};
use super::ways::Way;
use super::{Instance, PairFacts, Refusal};
use crate::pairing::{Counts, PairOutcome};
use crate::problem::{Pair, PriceTable};
use crate::resources::{Amounts, RESOURCES};
use crate::worth::Worth;

/// Two jobs, a pool, and what they are worth together on one GPU of it.
pub(crate) type PairOffer = (usize, usize, usize, f64);

impl Instance<'_> {
    /// Value of the best way of sharing that every rule permits.
    pub(crate) fn pair_value(&self, a: usize, b: usize, pool: usize) -> Result<f64, Refusal> {
        let (fact_a, fact_b) = (&self.facts[a], &self.facts[b]);
        if !(fact_a.allow && fact_b.allow) {
            return Err(Refusal::SharingNotAllowed);
        }
        if !self.options.pairs.allow(fact_a.kind, fact_b.kind) {
            return Err(Refusal::Kinds);
        }
        if fact_a.tenant != fact_b.tenant && !self.options.share_across_tenants {
            return Err(Refusal::Tenants);
        }
        let Some(table) = self.table else { return Err(Refusal::Cold) };
        let (Some(alone_a), Some(alone_b)) = (&fact_a.alone[pool], &fact_b.alone[pool]) else {
            return Err(Refusal::NoSingleGpuShape);
        };
        let (Some(device), Some(class_a), Some(class_b)) = (self.devices[pool], fact_a.class, fact_b.class)
        else {
            return Err(Refusal::Cold);
        };
        if !(alone_a.is_known() && alone_b.is_known()) {
            return Err(Refusal::MemoryUnknown);
        }
        let (gpu_memory, node) = &self.nodes[pool];
        let mut fitting = fitting(alone_a, alone_b, *gpu_memory).peekable();
        if fitting.peek().is_none() {
            return Err(Refusal::Memory);
        }
        if (2..RESOURCES).any(|at| alone_a.amounts[at] + alone_b.amounts[at] > node[at]) {
            return Err(Refusal::Host);
        }
        let ways = self.ways[device].get(class_a, class_b);
        let safe = |way: &Way| way.upper[0] <= fact_a.limit && way.upper[1] <= fact_b.limit;
        fitting
            .flat_map(|halves| {
                ways.clone().filter(safe).map(move |way| {
                    let (values, _) = self.pair_worth([a, b], halves, &way.slowdown);
                    values[0] + values[1]
                })
            })
            .max_by(f64::total_cmp)
            .ok_or_else(|| {
                let mut all = table.outcomes(device, class_a, class_b).peekable();
                if all.peek().is_none() {
                    Refusal::Cold
                } else if all.any(|outcome| outcome.in_domain) {
                    Refusal::Limit
                } else {
                    Refusal::OutOfDomain
                }
            })
    }

    /// The way of sharing behind [`Self::pair_value`], the same one from both sides.
    pub(crate) fn pair_choice(&self, a: usize, b: usize, pool: usize) -> Result<PairChoice, Refusal> {
        if a > b {
            // Of equally good ways the first is taken: in one order of the jobs, or their halves would not meet.
            return self.pair_choice(b, a, pool).map(PairChoice::swapped);
        }
        self.pair_value(a, b, pool)?;
        let (fact_a, fact_b) = (&self.facts[a], &self.facts[b]);
        let known = self.table.zip(self.devices[pool]).zip(fact_a.class.zip(fact_b.class));
        let speeds = fact_a.alone[pool].as_ref().zip(fact_b.alone[pool].as_ref());
        let (Some(((table, device), (class_a, class_b))), Some((alone_a, alone_b))) = (known, speeds) else {
            return Err(Refusal::Cold);
        };
        let safe = |outcome: &PairOutcome| {
            outcome.in_domain
                && outcome.upper[0] <= fact_a.limit.min(self.options.limit)
                && outcome.upper[1] <= fact_b.limit.min(self.options.limit)
        };
        let mut best: Option<PairChoice> = None;
        for halves in fitting(alone_a, alone_b, self.nodes[pool].0) {
            for outcome in table.outcomes(device, class_a, class_b).filter(safe) {
                let slowdown = outcome.slowdown.map(|ratio| ratio.max(1.0));
                let (values, restarts) = self.pair_worth([a, b], halves, &slowdown);
                let value = values[0] + values[1];
                if best.as_ref().is_none_or(|best| value > best.values[0] + best.values[1]) {
                    let shapes = halves.map(|half| half.shape);
                    best = Some(PairChoice { outcome, shapes, values, restarts });
                }
            }
        }
        best.ok_or(Refusal::Limit)
    }

    /// What each of two jobs is worth beside the other, and whether it must be restarted.
    fn pair_worth(&self, jobs: [usize; 2], halves: [&Half; 2], slowdown: &[f64; 2]) -> ([f64; 2], [bool; 2]) {
        let together =
            self.facts[jobs[0]].beside == Some(jobs[1]) || self.facts[jobs[1]].beside == Some(jobs[0]);
        let side = |at: usize| {
            let worth = &self.worths[jobs[at]];
            (worth, halves[at].throughput / slowdown[at], halves[at].stays)
        };
        Worth::pair([side(0), side(1)], together)
    }

    pub(crate) fn pair_demand(&self, a: usize, b: usize, pool: usize) -> Amounts {
        let mut demand = [0.0; RESOURCES];
        for job in [a, b] {
            if let Some(Some(alone)) = self.facts[job].alone.get(pool) {
                for (sum, amount) in demand.iter_mut().zip(&alone.amounts) {
                    *sum += amount;
                }
            }
        }
        demand[0] = 1.0;
        // The fastest shapes of both need not fit together; those of the pair do.
        demand[1] = demand[1].min(self.nodes[pool].0);
        demand
    }

    /// The stricter of the option's and the job's limit.
    pub(crate) fn limit_of(&self, job: usize) -> f64 {
        self.facts[job].limit.min(self.options.limit)
    }

    /// Jobs that could share at all, so that scans of pairs leave the others out.
    pub(crate) fn sharers(&self) -> Vec<usize> {
        let can =
            |fact: &PairFacts| fact.allow && fact.class.is_some() && fact.alone.iter().any(Option::is_some);
        (0..self.facts.len()).filter(|job| self.table.is_some() && can(&self.facts[*job])).collect()
    }

    /// Calls back for every pair of jobs and pool that is listed: (a, b, pool, value).
    pub(crate) fn each_pair(&self, mut visit: impl FnMut(usize, usize, usize, f64)) {
        for offer in &self.offers.list {
            visit(offer.a as usize, offer.b as usize, offer.pool as usize, offer.value);
        }
    }

    /// How many pairs of jobs each reason refuses; a pair that one pool permits is not refused. Nothing is counted where there
    /// are too many to look at each.
    pub(crate) fn refusals(&self) -> Counts {
        self.offers.refused.clone()
    }

    pub(crate) fn pair(&self, a: usize, b: usize, pool: usize, value: f64) -> Pair {
        Pair { a, b, pool, demand: self.pair_demand(a, b, pool), value }
    }

    /// The largest violation of `surplus[a] + surplus[b] >= reduced value` per job, and the worst pairs of each. No pair
    /// violates it by more, listed or not.
    pub(crate) fn violations(
        &self,
        prices: &PriceTable,
        surplus: &[f64],
        keep: usize,
        least: f64,
    ) -> (Vec<f64>, Vec<PairOffer>) {
        let fixed = self.pair_costs(prices);
        let mut seen = Violations::new(self.facts.len(), keep, least);
        self.each_pair(|a, b, pool, value| {
            let price = prices[pool][0] + fixed[pool][a] + fixed[pool][b];
            seen.see(a, b, pool, value, value - price - surplus[a] - surplus[b]);
        });
        if !self.offers.alike.is_empty() {
            self.across(prices, surplus, &fixed, &mut seen);
        }
        seen.found()
    }

    /// Per pool and job: what the host resources of its half of a pair cost.
    pub(crate) fn pair_costs(&self, prices: &PriceTable) -> Vec<Vec<f64>> {
        let of = |pool: usize, fact: &PairFacts| {
            let amounts =
                fact.alone.get(pool).and_then(Option::as_ref).map_or([0.0; RESOURCES], |alone| alone.amounts);
            (1..RESOURCES).filter(|at| prices[pool][*at] > 0.0).map(|at| prices[pool][at] * amounts[at]).sum()
        };
        (0..self.nodes.len()).map(|pool| self.facts.iter().map(|fact| of(pool, fact)).collect()).collect()
    }
}

/// What pairs gain over the surplus of both.
pub(super) struct Violations {
    keep: usize,
    pub(super) least: f64,
    pub(super) worst: Vec<f64>,
    lists: Vec<Vec<(f64, usize, usize, f64)>>,
}

impl Violations {
    fn new(jobs: usize, keep: usize, least: f64) -> Self {
        Self { keep, least, worst: vec![0.0; jobs], lists: vec![Vec::new(); jobs] }
    }

    pub(super) fn see(&mut self, a: usize, b: usize, pool: usize, value: f64, over: f64) {
        if over > 0.0 {
            self.worst[a] = self.worst[a].max(over);
            self.worst[b] = self.worst[b].max(over);
        }
        if over > self.least {
            push_top(&mut self.lists[a], self.keep, (over, b, pool, value));
            push_top(&mut self.lists[b], self.keep, (over, a, pool, value));
        }
    }

    fn found(self) -> (Vec<f64>, Vec<PairOffer>) {
        let mut found: Vec<PairOffer> = Vec::new();
        for (a, list) in self.lists.into_iter().enumerate() {
            found.extend(list.into_iter().map(|(_, b, pool, value)| (a.min(b), a.max(b), pool, value)));
        }
        found.sort_by_key(|pair| (pair.0, pair.1, pair.2));
        found.dedup_by_key(|pair| (pair.0, pair.1, pair.2));
        (self.worst, found)
    }
}

/// Keeps the `keep` largest entries, unsorted; ties keep the first seen.
pub(crate) fn push_top<T>(
    list: &mut Vec<(f64, usize, usize, T)>,
    keep: usize,
    entry: (f64, usize, usize, T),
) {
    if list.len() < keep {
        list.push(entry);
        return;
    }
    let least =
        list.iter().enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0)).map(|(at, least)| (at, least.0));
    if let Some((at, value)) = least
        && entry.0 > value
    {
        list[at] = entry;
    }
}
