//! From jobs, profiles and predictions to columns.

mod halves;
mod held;
mod ways;

pub(crate) use halves::PairChoice;
use halves::{Alone, Half, fitting};
pub(crate) use held::Held;
use ways::{Offers, Way, Ways};

use crate::cluster::Cluster;
use crate::jobs::{Job, Jobs};
use crate::options::Options;
use crate::pairing::{Counts, PairOutcome, PairTable};
use crate::problem::{Pair, PriceTable, Problem, Single, Singles};
use crate::resources::{Amounts, RESOURCES};
use crate::shapes::ShapeFamily;
use crate::worth::Worth;
use elastico_core::parallel;
use elastico_core::{JobId, WorkloadKind};
use elastico_models::Profiles;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Why two jobs may not share a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// One of them does not allow sharing.
    SharingNotAllowed,
    /// The options do not pair their kinds.
    Kinds,
    /// They belong to different tenants.
    Tenants,
    /// One has no shape with one GPU in the pool.
    NoSingleGpuShape,
    /// One is unknown to the predictor: no workload, or no profile on the chip.
    Cold,
    /// Device memory of one is unknown.
    MemoryUnknown,
    /// Device memory of both together exceeds the GPU's.
    Memory,
    /// Host resources of both together exceed a node's.
    Host,
    /// The prediction extrapolates.
    OutOfDomain,
    /// An upper bound exceeds the limit under every sharing mode.
    Limit,
}

impl Refusal {
    /// Every reason, in the order of declaration.
    pub(crate) const ALL: [Self; 10] = [
        Self::SharingNotAllowed,
        Self::Kinds,
        Self::Tenants,
        Self::NoSingleGpuShape,
        Self::Cold,
        Self::MemoryUnknown,
        Self::Memory,
        Self::Host,
        Self::OutOfDomain,
        Self::Limit,
    ];

    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SharingNotAllowed => "sharing_not_allowed",
            Self::Kinds => "kinds",
            Self::Tenants => "tenants",
            Self::NoSingleGpuShape => "no_single_gpu_shape",
            Self::Cold => "cold",
            Self::MemoryUnknown => "memory_unknown",
            Self::Memory => "memory",
            Self::Host => "host",
            Self::OutOfDomain => "out_of_domain",
            Self::Limit => "limit",
        }
    }
}

/// Two jobs, a pool, and what they are worth together on one GPU of it.
pub(crate) type PairOffer = (usize, usize, usize, f64);

/// Tenants by number: whether two jobs have the same is asked for every pair.
#[derive(Default)]
struct Tenants(BTreeMap<String, usize>);

impl Tenants {
    fn know(&mut self, tenant: &str) {
        if !self.0.contains_key(tenant) {
            self.0.insert(tenant.to_owned(), self.0.len());
        }
    }
}

struct PairFacts {
    class: Option<usize>,
    kind: WorkloadKind,
    tenant: Option<usize>,
    allow: bool,
    limit: f64,
    /// The job on the same GPU now.
    beside: Option<usize>,
    /// Per pool: what one GPU takes, and the shapes that a pair can have.
    alone: Vec<Option<Alone>>,
}

/// The shape families: where jobs come one by one they are kept, else made again when somebody asks, since those of many jobs
/// take far more memory than their columns.
enum Families<'a> {
    Kept(Vec<ShapeFamily>),
    Made { jobs: &'a [Job], profiles: &'a Profiles },
}

/// What becomes of some of the jobs.
#[derive(Default)]
struct Part {
    worths: Vec<Worth>,
    singles: Singles,
    facts: Vec<PairFacts>,
}

/// Jobs of a part: fixed, and small enough that a few thousand jobs keep all cores busy.
const PART: usize = 256;

/// Jobs on a cluster, turned into columns; pairs are found on demand.
pub(crate) struct Instance<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) options: &'a Options,
    families: Families<'a>,
    pub(crate) worths: Vec<Worth>,
    pub(crate) problem: Problem,
    tenants: Tenants,
    table: Option<&'a PairTable>,
    facts: Vec<PairFacts>,
    /// Where each job sits now; empty where no job says it.
    held: Vec<Option<Held>>,
    devices: Vec<Option<usize>>,
    /// Per pool: device memory of a GPU and what a full node has.
    nodes: Vec<(f64, Amounts)>,
    /// Per device.
    ways: Vec<Ways>,
    /// Absent where there are too many to be listed.
    offers: Option<Offers>,
}

impl<'a> Instance<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        options: &'a Options,
        jobs: &'a Jobs,
        profiles: &'a Profiles,
        table: Option<&'a PairTable>,
    ) -> Self {
        let mut tenants = Tenants::default();
        for tenant in jobs.job.iter().filter_map(|job| job.tenant.as_deref()) {
            tenants.know(tenant);
        }
        let running: BTreeMap<&JobId, usize> = if jobs.job.iter().any(|job| job.co_runner().is_some()) {
            jobs.job.iter().enumerate().map(|(at, job)| (&job.id, at)).collect()
        } else {
            BTreeMap::new()
        };
        let parts = parallel::chunks(jobs.job.len(), PART, |range| {
            let mut part = Part::default();
            for job in &jobs.job[range] {
                let family = ShapeFamily::of(job, cluster, profiles, options.scaling);
                let worth = Worth::of(job, &family, options);
                let beside = job.co_runner().and_then(|id| running.get(id).copied());
                part.singles.push(columns_of(cluster, &family, &worth, job));
                part.facts.push(facts_of(cluster, options, table, &tenants, (&family, &worth, job), beside));
                part.worths.push(worth);
            }
            part
        });
        let mut all = Part::default();
        for part in parts {
            all.worths.extend(part.worths);
            all.singles.append(part.singles);
            all.facts.extend(part.facts);
        }
        let Part { worths, singles, facts } = all;
        let problem = Problem {
            capacity: cluster.pool.iter().map(crate::cluster::Pool::amounts).collect(),
            singles,
            pairs: Vec::new(),
        };
        let devices: Vec<Option<usize>> =
            cluster.pool.iter().map(|pool| table.and_then(|table| table.device(&pool.device))).collect();
        let mut instance = Self {
            facts,
            held: held::held(cluster, &jobs.job),
            nodes: cluster
                .pool
                .iter()
                .map(|pool| {
                    (pool.memory_of_gpu(), pool.amounts_of_node(pool.gpus_per_node.min(pool.gpu_count())))
                })
                .collect(),
            cluster,
            options,
            families: Families::Made { jobs: &jobs.job, profiles },
            worths,
            problem,
            tenants,
            table,
            devices,
            ways: Vec::new(),
            offers: None,
        };
        let sharing = instance.facts.iter().filter(|fact| fact.allow);
        let classes: BTreeSet<usize> = sharing.filter_map(|fact| fact.class).collect();
        instance.ways = instance.admit(|class| classes.contains(&class));
        instance.offers = Offers::of(&instance);
        instance
    }

    /// Without jobs, to which they are added one by one.
    pub(crate) fn open(
        cluster: &'a Cluster,
        options: &'a Options,
        profiles: &'a Profiles,
        table: Option<&'a PairTable>,
    ) -> Self {
        static NO_JOBS: Jobs = Jobs { job: Vec::new() };
        let mut instance = Self::new(cluster, options, &NO_JOBS, profiles, table);
        instance.families = Families::Kept(Vec::new());
        instance.offers = None;
        // Whoever comes later may be of any class.
        instance.ways = instance.admit(|_| true);
        instance
    }

    /// Adds a job and gives its number.
    pub(crate) fn push(&mut self, job: &Job, profiles: &Profiles) -> usize {
        let family = ShapeFamily::of(job, self.cluster, profiles, self.options.scaling);
        let worth = Worth::of(job, &family, self.options);
        if let Some(tenant) = &job.tenant {
            self.tenants.know(tenant);
        }
        self.problem.singles.push(columns_of(self.cluster, &family, &worth, job));
        let known = (&family, &worth, job);
        self.facts.push(facts_of(self.cluster, self.options, self.table, &self.tenants, known, None));
        self.worths.push(worth);
        if let Families::Kept(families) = &mut self.families {
            families.push(family);
        }
        self.worths.len() - 1
    }

    /// Forgets all jobs.
    pub(crate) fn clear(&mut self) {
        self.families = Families::Kept(Vec::new());
        self.worths.clear();
        self.facts.clear();
        self.problem.singles.clear();
        self.problem.pairs.clear();
    }

    /// Values the columns of a job anew, whose work left or waiting time is another than before.
    pub(crate) fn reweigh(&mut self, at: usize, job: &Job) {
        let Families::Kept(families) = &self.families else { return };
        let family = &families[at];
        let worth = Worth::of(job, family, self.options);
        for column in &mut self.problem.singles[at] {
            column.value = worth.alone(&family.shapes[column.shape]);
        }
        self.worths[at] = worth;
    }

    /// The shapes of a job.
    pub(crate) fn family(&self, job: usize) -> Cow<'_, ShapeFamily> {
        match &self.families {
            Families::Kept(families) => Cow::Borrowed(&families[job]),
            Families::Made { jobs, profiles } => {
                Cow::Owned(ShapeFamily::of(&jobs[job], self.cluster, profiles, self.options.scaling))
            }
        }
    }

    /// The ways of the classes that are used.
    fn admit(&self, used: impl Fn(usize) -> bool) -> Vec<Ways> {
        let Some(table) = self.table else { return Vec::new() };
        let last = self.devices.iter().flatten().max().map_or(0, |device| device + 1);
        let used: Vec<bool> = (0..table.classes()).map(used).collect();
        (0..last).map(|device| Ways::of(table, device, &used, self.options.limit)).collect()
    }

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

    /// Calls back for every pair of jobs and pool that the rules permit: (a, b, pool, value).
    pub(crate) fn each_pair(&self, mut visit: impl FnMut(usize, usize, usize, f64)) {
        if let Some(offers) = &self.offers {
            for offer in &offers.list {
                visit(offer.a as usize, offer.b as usize, offer.pool as usize, offer.value);
            }
            return;
        }
        let sharers = self.sharers();
        for (at, &a) in sharers.iter().enumerate() {
            for &b in &sharers[at + 1..] {
                for pool in (0..self.nodes.len()).filter(|pool| self.devices[*pool].is_some()) {
                    if let Ok(value) = self.pair_value(a, b, pool) {
                        visit(a, b, pool, value);
                    }
                }
            }
        }
    }

    /// How many pairs of jobs each reason refuses; a pair that one pool permits is not refused. Nothing is counted where there
    /// are too many to look at each.
    pub(crate) fn refusals(&self) -> Counts {
        self.offers.as_ref().map(|offers| offers.refused.clone()).unwrap_or_default()
    }

    pub(crate) fn pair(&self, a: usize, b: usize, pool: usize, value: f64) -> Pair {
        Pair { a, b, pool, demand: self.pair_demand(a, b, pool), value }
    }

    /// The largest violation of `surplus[a] + surplus[b] >= reduced value` per job, and the worst pairs of each.
    pub(crate) fn violations(
        &self,
        prices: &PriceTable,
        surplus: &[f64],
        keep: usize,
        least: f64,
    ) -> (Vec<f64>, Vec<PairOffer>) {
        let mut worst = vec![0.0_f64; self.facts.len()];
        let mut lists: Vec<Vec<(f64, usize, usize, f64)>> = vec![Vec::new(); self.facts.len()];
        let fixed = self.pair_costs(prices);
        self.each_pair(|a, b, pool, value| {
            let price = prices[pool][0] + fixed[pool][a] + fixed[pool][b];
            let over = value - price - surplus[a] - surplus[b];
            if over > 0.0 {
                worst[a] = worst[a].max(over);
                worst[b] = worst[b].max(over);
            }
            if over > least {
                push_top(&mut lists[a], keep, (over, b, pool, value));
                push_top(&mut lists[b], keep, (over, a, pool, value));
            }
        });
        let mut found: Vec<PairOffer> = Vec::new();
        for (a, list) in lists.into_iter().enumerate() {
            found.extend(list.into_iter().map(|(_, b, pool, value)| (a.min(b), a.max(b), pool, value)));
        }
        found.sort_by_key(|pair| (pair.0, pair.1, pair.2));
        found.dedup_by_key(|pair| (pair.0, pair.1, pair.2));
        (worst, found)
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

/// The shapes in which a job runs without a co-runner.
fn columns_of<'i>(
    cluster: &'i Cluster,
    family: &'i ShapeFamily,
    worth: &'i Worth,
    job: &'i Job,
) -> impl Iterator<Item = Single> + 'i {
    let mut pool = 0;
    family.alone(job.current.as_ref()).filter_map(move |(at, shape)| {
        // Shapes are in the order of pools.
        pool += cluster.pool[pool..].iter().position(|pool| pool.id == shape.pool)?;
        Some(Single { pool, demand: shape.resources.amounts(), value: worth.alone(shape), shape: at })
    })
}

fn facts_of(
    cluster: &Cluster,
    options: &Options,
    table: Option<&PairTable>,
    tenants: &Tenants,
    (family, worth, job): (&ShapeFamily, &Worth, &Job),
    beside: Option<usize>,
) -> PairFacts {
    // Without a table there are no pairs.
    let pools = if table.is_some() { &cluster.pool[..] } else { &[] };
    let alone =
        pools.iter().map(|pool| if job.gpus_min == 1 { Alone::of(family, worth, &pool.id) } else { None });
    PairFacts {
        class: job.workload.as_ref().zip(table).and_then(|(workload, table)| table.class(workload)),
        kind: family.kind,
        tenant: job.tenant.as_ref().and_then(|tenant| tenants.0.get(tenant).copied()),
        allow: job.allow_sharing && !options.sharing.is_empty(),
        limit: job.slo_slowdown.unwrap_or(f64::INFINITY),
        beside,
        alone: alone.collect(),
    }
}
