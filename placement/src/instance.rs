//! From jobs, profiles and predictions to columns.

mod across;
mod halves;
mod held;
mod pairs;
mod refusal;
mod ways;

use halves::{Alone, Half};
pub(crate) use held::Held;
pub(crate) use pairs::push_top;
pub use refusal::Refusal;
use ways::{Offers, Ways};

use crate::cluster::{Cluster, Pool};
use crate::jobs::{Job, Jobs};
use crate::options::Options;
use crate::pairing::PairTable;
use crate::problem::{Problem, Single, Singles};
use crate::resources::Amounts;
use crate::shapes::ShapeFamily;
use crate::worth::Worth;
use elastico_core::parallel;
use elastico_core::{JobId, WorkloadKind};
use elastico_models::Profiles;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

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
const PART: usize = 64;

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
    offers: Offers,
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
            // Ids of its own: the counters of shared ones would go from core to core with each shape.
            let cluster = &cluster.apart();
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
        let count = jobs.job.len();
        let mut all = Part {
            worths: Vec::with_capacity(count),
            singles: Singles::with_capacity(count, parts.iter().map(|part| part.singles.all().len()).sum()),
            facts: Vec::with_capacity(count),
        };
        for part in parts {
            all.worths.extend(part.worths);
            all.singles.append(part.singles);
            all.facts.extend(part.facts);
        }
        let Part { worths, singles, facts } = all;
        let problem = Problem {
            capacity: cluster.pool.iter().map(Pool::amounts).collect(),
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
            offers: Offers::default(),
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
        instance.offers = Offers::default();
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

    /// Lists pairs by blocks of so many jobs, as is done for many more.
    #[cfg(test)]
    pub(crate) fn deal(&mut self, size: usize) {
        self.offers = Offers::of_blocks(self, self.sharers(), size);
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
        self.family_in(job, self.cluster)
    }

    /// The same with the names of pools from a copy of the cluster.
    pub(crate) fn family_in(&self, job: usize, cluster: &Cluster) -> Cow<'_, ShapeFamily> {
        match &self.families {
            Families::Kept(families) => Cow::Borrowed(&families[job]),
            Families::Made { jobs, profiles } => {
                Cow::Owned(ShapeFamily::of(&jobs[job], cluster, profiles, self.options.scaling))
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
        let demand = with_whole_hosts(&cluster.pool[pool], shape.resources.amounts());
        Some(Single { pool, demand, value: worth.alone(shape), shape: at })
    })
}

/// Who has all GPUs of a node has its host: what such a job leaves of it is of use to nobody.
fn with_whole_hosts(pool: &Pool, mut demand: Amounts) -> Amounts {
    let (gpus, per_node) = (demand[0] as u32, pool.gpus_per_node);
    if per_node > 0 && gpus >= per_node && gpus.is_multiple_of(per_node) {
        let node = pool.amounts_of(per_node, 0.0);
        for (amount, whole) in demand.iter_mut().zip(node).skip(2).filter(|(_, whole)| whole.is_finite()) {
            *amount = amount.max(whole * f64::from(gpus / per_node));
        }
    }
    demand
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
