//! From a cluster and jobs to a placement.

use crate::Error;
use crate::cluster::Cluster;
use crate::dual::{self, Dual, Start};
use crate::instance::Instance;
use crate::jobs::{Job, Jobs};
use crate::kept::{self, Kept};
use crate::nodes::{Nodes, Seat};
use crate::options::Options;
use crate::pairing::{PairTable, find};
use crate::placement::{
    Assignment, Beside, Entry, NodeGpus, PLACEMENT_SCHEMA, Placement, Said, WaitReason, Waiting,
};
use crate::prices::Prices;
use crate::problem::{Choice, PriceTable, Single};
use crate::provenance::Basis;
use crate::resources::{Amounts, RESOURCES, cost};
use crate::rounding::Rounder;
use crate::settings;
use crate::warm::Warm;
use elastico_core::parallel;
use elastico_models::{Predictor, Profiles};
use std::collections::BTreeSet;

/// Places jobs on one cluster under one set of options.
#[derive(Clone, Debug)]
pub struct Allocator {
    cluster: Cluster,
    options: Options,
}

/// Jobs that a thread tells about at a time.
const TOLD: usize = 256;

/// The gap at which the exact search of close calls stops.
const SEARCHED_GAP: f64 = 1e-3;

impl Allocator {
    /// An allocator; the options are checked when it solves.
    pub const fn new(cluster: Cluster, options: Options) -> Self {
        Self { cluster, options }
    }

    /// The cluster.
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The options.
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Asks the predictor about all pairs of the jobs' workloads; the table serves any jobs with these workloads.
    ///
    /// # Errors
    /// [`Error::Predictor`] where the model fails.
    pub fn pair_table(
        &self,
        jobs: &Jobs,
        profiles: &Profiles,
        predictor: &dyn Predictor,
    ) -> Result<PairTable, Error> {
        let workloads =
            jobs.job.iter().filter(|job| job.allow_sharing).filter_map(|job| job.workload.clone());
        PairTable::predict(workloads, &self.cluster, &self.options.sharing, profiles, predictor)
    }

    /// Places the jobs. Without a predictor no job shares a GPU.
    ///
    /// # Errors
    /// [`Error::Option`] or [`Error::Predictor`]; jobs that cannot run are no error.
    pub fn solve(
        &self,
        jobs: &Jobs,
        profiles: &Profiles,
        predictor: Option<&dyn Predictor>,
    ) -> Result<Placement, Error> {
        let table = predictor.map(|predictor| self.pair_table(jobs, profiles, predictor)).transpose()?;
        self.solve_with(jobs, profiles, table.as_ref(), None)
    }

    /// Places the jobs, starting from the prices of an earlier round: fewer steps where little has changed.
    ///
    /// Jobs that run say so by `current`: they change their shape only for more than a restart costs, and where `current`
    /// names their GPUs they keep these as long as they keep the shape. [`Session`](crate::Session) does this bookkeeping, and
    /// follows the progress of the jobs, for a caller that solves again and again.
    ///
    /// # Errors
    /// As [`Self::solve`].
    pub fn update(
        &self,
        earlier: &Prices,
        jobs: &Jobs,
        profiles: &Profiles,
        predictor: Option<&dyn Predictor>,
    ) -> Result<Placement, Error> {
        let table = predictor.map(|predictor| self.pair_table(jobs, profiles, predictor)).transpose()?;
        self.solve_with(jobs, profiles, table.as_ref(), Some(earlier))
    }

    /// Places the jobs with a table of pairs that is already there; what a simulator calls every round.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn solve_with(
        &self,
        jobs: &Jobs,
        profiles: &Profiles,
        table: Option<&PairTable>,
        earlier: Option<&Prices>,
    ) -> Result<Placement, Error> {
        let earlier = earlier.map(|prices| Warm::at(prices.clone()));
        Ok(self.solve_warm(jobs, profiles, table, earlier.as_ref(), None)?.0)
    }

    /// The same from all that an earlier solution tells; returns what this one tells. A placement that is `kept` stays as far as
    /// nothing better is found, and so does how the jobs run by their `current`.
    pub(crate) fn solve_warm(
        &self,
        jobs: &Jobs,
        profiles: &Profiles,
        table: Option<&PairTable>,
        earlier: Option<&Warm>,
        kept: Option<Kept<'_>>,
    ) -> Result<(Placement, Warm), Error> {
        let (mut instance, dual) = self.price(jobs, profiles, table, earlier)?;
        let mut present: Vec<(Vec<Choice>, f64)> = Vec::new();
        present.extend(kept::running(&mut instance).map(|choices| (choices, 0.0)));
        if let Some(kept) = kept {
            let ids: Vec<_> = jobs.job.iter().map(|job| &job.id).collect();
            present.push((kept.choices(&mut instance, &ids), kept.within * dual.bound));
        }
        let (_, nodes) = seat(&instance, &dual, &present);
        let model = table.and_then(|table| table.model().cloned());
        let workloads: BTreeSet<_> = jobs.job.iter().filter_map(|job| job.workload.as_ref()).collect();
        let kinds = workloads.into_iter().flat_map(|workload| {
            let pools = self.cluster.pool.iter();
            pools.filter_map(|pool| Some(find(profiles, workload, &pool.device)?.device_kind))
        });
        let basis = Basis::new(kinds.collect::<BTreeSet<_>>(), model);
        let placement = report(&instance, jobs, &dual, &nodes, basis);
        let warm = Warm::of(&instance, jobs, &dual, placement.prices.clone());
        Ok((placement, warm))
    }

    /// The prices and the bound alone: no job is placed, and nothing is used.
    pub(crate) fn bound(
        &self,
        jobs: &Jobs,
        profiles: &Profiles,
        table: Option<&PairTable>,
        earlier: Option<&Warm>,
    ) -> Result<Prices, Error> {
        let (instance, dual) = self.price(jobs, profiles, table, earlier)?;
        let nothing = vec![[0.0; RESOURCES]; self.cluster.pool.len()];
        Ok(Prices {
            bound: dual.bound,
            bound_lower: dual.lower,
            calls: dual.calls,
            rounds: dual.rounds,
            ..Prices::of(&self.cluster, &instance.problem, &dual.prices, &nothing)
        })
    }

    fn price<'a>(
        &'a self,
        jobs: &'a Jobs,
        profiles: &'a Profiles,
        table: Option<&'a PairTable>,
        earlier: Option<&Warm>,
    ) -> Result<(Instance<'a>, Dual), Error> {
        self.options.check()?;
        self.options.objective.check_jobs(&jobs.job)?;
        let mut instance = Instance::new(&self.cluster, &self.options, jobs, profiles, table);
        let earlier = earlier.filter(|warm| !warm.prices.prices.is_empty());
        let known = earlier.map(|warm| warm.known(&self.cluster, jobs)).unwrap_or_default();
        let prices = earlier.map(|warm| warm.prices.table(&self.cluster));
        let start = Start { prices: prices.as_ref(), pairs: &known.0, surplus: &known.1 };
        let dual = dual::solve(&mut instance, &start);
        Ok((instance, dual))
    }
}

/// Rounds, searches and seats; tries again with head room where nodes were too torn, and keeps the best. Beside it stands
/// the best value without nodes.
///
/// Each of the solutions that are `present` stands for election too, as it is and with what gains taken over from the one that
/// was found; it wins where it is worth no less, or less by no more than the amount beside it.
pub(crate) fn seat<'a>(
    instance: &'a Instance<'_>,
    dual: &Dual,
    present: &[(Vec<Choice>, f64)],
) -> (f64, Nodes<'a>) {
    let problem = &instance.problem;
    let mut best: Option<Nodes<'a>> = None;
    let mut of_pools = 0.0_f64;
    for headroom in [1.0, 0.97, 0.94] {
        let capacity: Vec<Amounts> = problem
            .capacity
            .iter()
            .map(|amounts| amounts.map(|amount| (amount * headroom).ceil().min(amount)))
            .collect();
        let rounder = Rounder::new(problem, dual, capacity);
        let mut rounded = rounder.round(&dual.answer, &dual.others);
        let options = instance.options;
        let tolerance = options.tolerance.max(SEARCHED_GAP);
        rounder.search(&mut rounded, tolerance, options.search, options.seed);
        of_pools = of_pools.max(rounded.value);
        let mut nodes = Nodes::new(instance);
        let mut failed = nodes.place(&rounded.choices, dual);
        for (choices, within) in present {
            let kept = rounder.keep(choices, &rounded, *within);
            of_pools = of_pools.max(kept.value);
            let mut seated = Nodes::new(instance);
            let failed_kept = seated.place(&kept.choices, dual);
            if seated.value >= nodes.value - within {
                (nodes, failed) = (seated, failed_kept);
            }
        }
        if best.as_ref().is_none_or(|best| nodes.value > best.value) {
            best = Some(nodes);
        }
        if failed == 0 {
            break;
        }
    }
    (of_pools, best.unwrap_or_else(|| Nodes::new(instance)))
}

fn report(instance: &Instance<'_>, jobs: &Jobs, dual: &Dual, nodes: &Nodes<'_>, basis: Basis) -> Placement {
    let (_, used) = instance.problem.evaluate(&nodes.choices);
    let value = nodes.value;
    let mut prices = Prices::of(instance.cluster, &instance.problem, &dual.prices, &used);
    prices.bound = dual.bound;
    prices.bound_lower = dual.lower;
    prices.calls = dual.calls;
    prices.rounds = dual.rounds;
    let told = parallel::chunks(nodes.choices.len(), TOLD, |range| {
        let (mut assignments, mut waiting) = (Vec::new(), Vec::new());
        for job in range {
            match nodes.choices[job] {
                Choice::Waiting => waiting.push(wait(instance, &jobs.job, &dual.prices, &used, job)),
                choice => {
                    let seats = &nodes.seats[job];
                    assignments.extend(assign(instance, &jobs.job, &dual.prices, seats, job, choice));
                }
            }
        }
        (assignments, waiting)
    });
    let (mut assignments, mut waiting) = (Vec::new(), Vec::new());
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
    }
}

/// What a job has that runs; `jobs` are those of the instance, in its order.
pub(crate) fn assign(
    instance: &Instance<'_>,
    jobs: &[Job],
    prices: &PriceTable,
    seats: &[Seat],
    job: usize,
    choice: Choice,
) -> Option<Assignment> {
    if choice == Choice::Waiting {
        return None;
    }
    let family = instance.family(job);
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
pub(crate) fn entry(instance: &Instance<'_>, prices: &PriceTable, job: usize) -> Option<Entry> {
    let columns = instance.problem.singles[job].iter();
    let priced = columns.map(|column| (column, cost(&prices[column.pool], &column.demand)));
    let (column, price) = priced.max_by(|(a, price_a), (b, price_b)| {
        let pool = |column: &Single| &instance.cluster.pool[column.pool].id;
        (a.value - price_a)
            .total_cmp(&(b.value - price_b))
            .then(b.demand[0].total_cmp(&a.demand[0]))
            .then(pool(b).cmp(pool(a)))
    })?;
    let slot_price = prices[column.pool][0];
    let others = price - slot_price * column.demand[0];
    Some(Entry {
        pool: instance.cluster.pool[column.pool].id.clone(),
        gpus: column.demand[0] as u32,
        value: column.value,
        price,
        slot_price,
        entry_slot_price: ((column.value - others) / column.demand[0]).max(0.0),
    })
}

/// Why a job waits that uses nothing of what is used; `jobs` are those of the instance, in its order.
pub(crate) fn wait(
    instance: &Instance<'_>,
    jobs: &[Job],
    prices: &PriceTable,
    used: &[[f64; RESOURCES]],
    job: usize,
) -> Waiting {
    let id = jobs[job].id.clone();
    let Some(entry) = entry(instance, prices, job) else {
        let family = instance.family(job);
        let reasons = family.dropped.iter().map(|dropped| match dropped.gpus {
            Some(gpus) => format!("{} with {gpus} GPUs: {}", dropped.pool, dropped.reason),
            None => format!("{}: {}", dropped.pool, dropped.reason),
        });
        let detail = reasons.collect::<Vec<_>>().join("; ");
        let detail = if detail.is_empty() { "the cluster has no GPU".to_owned() } else { detail };
        return Waiting::new(id, WaitReason::NoShape, Said::Text(detail), None);
    };
    let tolerance = 1e-3 * entry.value.abs();
    let free = instance
        .cluster
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
    Waiting::new(id, reason, said, Some(entry))
}
