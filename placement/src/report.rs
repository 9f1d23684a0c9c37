//! What is told of a solution: where each job runs and why, or why it waits.

use crate::cluster::Cluster;
use crate::dual::Dual;
use crate::instance::Instance;
use crate::jobs::Job;
use crate::nodes::{Nodes, Seat};
use crate::placement::{
    Assignment, Beside, Entry, NodeGpus, PLACEMENT_SCHEMA, Placement, STOPS, Said, WaitReason, Waiting,
};
use crate::prices::Prices;
use crate::problem::{Choice, PriceTable, Single};
use crate::provenance::Basis;
use crate::resources::{Amounts, cost};
use crate::settings;
use elastico_core::parallel;

/// Jobs that a thread tells about at a time.
const TOLD: usize = 128;

/// What became of all jobs.
pub(crate) fn report(
    instance: &Instance<'_>,
    jobs: &[Job],
    dual: &Dual,
    nodes: &Nodes<'_>,
    basis: Basis,
) -> Placement {
    let (_, used) = instance.problem.evaluate(&nodes.choices);
    // The sum of nothing may be a negative zero.
    let value = nodes.value + 0.0;
    let mut prices = Prices::of(instance.cluster, &instance.problem, &dual.prices, &used);
    prices.bound = dual.bound;
    prices.bound_lower = dual.lower;
    prices.calls = dual.calls;
    prices.rounds = dual.rounds;
    let told = parallel::chunks(nodes.choices.len(), TOLD, |range| {
        let (mut assignments, mut waiting) = (Vec::new(), Vec::new());
        let cluster = &instance.cluster.apart();
        let teller = Teller { instance, cluster, jobs, prices: &dual.prices };
        for job in range {
            match nodes.choices[job] {
                Choice::Waiting => waiting.push(teller.wait(&used, job)),
                choice => assignments.extend(teller.assign(&nodes.seats[job], job, choice)),
            }
        }
        (assignments, waiting)
    });
    let placed = told.iter().map(|(assigned, _)| assigned.len()).sum();
    let (mut assignments, mut waiting) =
        (Vec::with_capacity(placed), Vec::with_capacity(nodes.choices.len() - placed));
    for (assigned, waits) in told {
        assignments.extend(assigned);
        waiting.extend(waits);
    }
    Placement {
        schema: PLACEMENT_SCHEMA.to_owned(),
        assignments,
        waiting,
        left_out: 0,
        refused_pairs: instance.refusals(),
        value,
        bound: dual.bound.max(value),
        gap: if dual.bound > 0.0 { ((dual.bound - value) / dual.bound).max(0.0) } else { 0.0 },
        prices,
        options: instance.options.clone(),
        basis,
        timings: None,
    }
}

/// Tells what a job has, or why it waits.
#[derive(Clone, Copy)]
pub(crate) struct Teller<'t> {
    pub(crate) instance: &'t Instance<'t>,
    /// The cluster of the instance; many answers share the names of its pools.
    pub(crate) cluster: &'t Cluster,
    /// The jobs of the instance, in its order.
    pub(crate) jobs: &'t [Job],
    pub(crate) prices: &'t PriceTable,
}

impl Teller<'_> {
    /// What a job has that runs.
    pub(crate) fn assign(&self, seats: &[Seat], job: usize, choice: Choice) -> Option<Assignment> {
        let Self { instance, cluster, jobs, prices } = *self;
        if choice == Choice::Waiting {
            return None;
        }
        let family = instance.family_in(job, cluster);
        let moved = instance.moved(job, choice, seats);
        let seats =
            seats.iter().map(|seat| NodeGpus { node: seat.node as u32, gpus: seat.gpus.clone() }).collect();
        let (shape, beside, price, slowdown, value, restarts) = match choice {
            Choice::Waiting => return None,
            Choice::Single(at) => {
                let column = &instance.problem.singles[job][at];
                let shape = family.shapes[column.shape].clone();
                let restarts = instance.worths[job].restarts(&shape);
                (shape, None, cost(&prices[column.pool], &column.demand), 1.0, column.value, restarts)
            }
            Choice::Pair(at) => {
                let pair = &instance.problem.pairs[at];
                let other = pair.a + pair.b - job;
                let chosen = instance.pair_choice(job, other, pair.pool).ok()?;
                let (shape, way) = (family.shapes[chosen.shapes[0]].clone(), chosen.outcome);
                let mut demand = shape.resources.amounts();
                demand[0] = 0.5;
                let beside = Beside {
                    job: jobs[other].id.clone(),
                    sharing: way.sharing,
                    slowdown: way.slowdown[0],
                    slowdown_upper: way.upper[0],
                    limit: instance.limit_of(job),
                };
                let slowdown = way.slowdown[0].max(1.0);
                let price = cost(&prices[pair.pool], &demand);
                (shape, Some(beside), price, slowdown, chosen.values[0], chosen.restarts[0])
            }
        };
        let value = value - moved.unwrap_or(0.0);
        let step_seconds = shape.step_seconds * slowdown;
        let mut why = match &beside {
            None => format!(
                "{} GPU{} alone, worth {value:.3} at a price of {price:.3}",
                shape.gpus,
                if shape.gpus == 1 { "" } else { "s" }
            ),
            Some(beside) => format!(
                "beside {} by {}, {:.2}x slower (at most {:.2}x, limit {:.2}x), worth {value:.3} at a price of {price:.3}",
                beside.job, beside.sharing, beside.slowdown, beside.slowdown_upper, beside.limit
            ),
        };
        if !shape.settings.is_empty() {
            why.push_str(&format!(", started with {}", settings::in_words(&shape.settings)));
        }
        if restarts {
            why.push_str(", after a restart");
        } else if moved.is_some() {
            why.push_str(", after a restart on other GPUs");
        }
        Some(Assignment {
            job: jobs[job].id.clone(),
            pool: shape.pool.clone(),
            nodes: seats,
            beside,
            step_seconds,
            remaining_seconds: jobs[job].work_steps.map(|steps| steps * step_seconds),
            value,
            price,
            restarts: restarts || moved.is_some(),
            why,
            shape,
        })
    }

    /// The single shape that is nearest to being worth its price.
    pub(crate) fn entry(&self, job: usize) -> Option<Entry> {
        let Self { instance, cluster, prices, .. } = *self;
        let columns = instance.problem.singles[job].iter();
        let priced = columns.map(|column| (column, cost(&prices[column.pool], &column.demand)));
        let (column, price) = priced.max_by(|(a, price_a), (b, price_b)| {
            let pool = |column: &Single| &cluster.pool[column.pool].id;
            (a.value - price_a)
                .total_cmp(&(b.value - price_b))
                .then(b.demand[0].total_cmp(&a.demand[0]))
                .then_with(|| pool(b).cmp(pool(a)))
        })?;
        let slot_price = prices[column.pool][0];
        let others = price - slot_price * column.demand[0];
        Some(Entry {
            pool: cluster.pool[column.pool].id.clone(),
            gpus: column.demand[0] as u32,
            value: column.value,
            price,
            slot_price,
            entry_slot_price: ((column.value - others) / column.demand[0]).max(0.0),
        })
    }

    /// Why a job waits that uses nothing of what is used.
    pub(crate) fn wait(&self, used: &[Amounts], job: usize) -> Waiting {
        let Self { instance, cluster, jobs, .. } = *self;
        let (id, stops) = (jobs[job].id.clone(), jobs[job].current.is_some());
        let Some(entry) = self.entry(job) else {
            let family = instance.family_in(job, cluster);
            let reasons = family.dropped.iter().map(|dropped| match dropped.gpus {
                Some(1) => format!("{} with 1 GPU: {}", dropped.pool, dropped.reason),
                Some(gpus) => format!("{} with {gpus} GPUs: {}", dropped.pool, dropped.reason),
                None => format!("{}: {}", dropped.pool, dropped.reason),
            });
            let mut reasons: Vec<String> = reasons.collect();
            // Shapes that differ in their share alone say the same.
            reasons.dedup();
            let detail = reasons.join("; ");
            let detail = if detail.is_empty() { "the cluster has no GPU".to_owned() } else { detail };
            let detail = if stops { format!("{detail}; {STOPS}") } else { detail };
            return Waiting::new(id, WaitReason::NoShape, Said::Text(detail), None, stops);
        };
        let tolerance = 1e-3 * entry.value.abs();
        let free = cluster
            .pool
            .iter()
            .position(|pool| pool.id == entry.pool)
            .map_or(0.0, |pool| instance.problem.capacity[pool][0] - used[pool][0]);
        let (reason, said) = if entry.value <= 0.0 {
            (WaitReason::PricedOut, Said::Worthless)
        } else if entry.value - entry.price < -tolerance {
            (WaitReason::PricedOut, Said::PricedOut)
        } else if free >= f64::from(entry.gpus) {
            (WaitReason::Fragmented, Said::Torn { free })
        } else {
            (WaitReason::Tie, Said::Tie)
        };
        Waiting::new(id, reason, said, Some(entry), stops)
    }
}
