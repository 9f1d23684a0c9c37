//! The answer: who runs where, in which shape, beside whom, and who waits and why.

mod waiting;

pub(crate) use waiting::{STOPS, Said};

use crate::cluster::Cluster;
use crate::options::Options;
use crate::prices::Prices;
use crate::provenance::Basis;
use crate::resources::Resource;
use crate::shapes::Shape;
use elastico_core::{JobId, PoolId, SharingMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The schema id of a placement.
pub const PLACEMENT_SCHEMA: &str = "elastico.placement/1";

/// GPUs of one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeGpus {
    /// Index of the node within its pool, from 0.
    pub node: u32,
    /// Indexes of the GPUs within the node, from 0.
    pub gpus: Vec<u32>,
}

/// Who is on the same GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Beside {
    /// The co-runner.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The sharing mode, seen from the subject.
    #[schemars(with = "String")]
    pub sharing: SharingMode,
    /// Predicted slowdown of the subject.
    pub slowdown: f64,
    /// Upper bound of it.
    pub slowdown_upper: f64,
    /// What it was compared with: the stricter of the option and the job's SLO.
    pub limit: f64,
}

/// One job that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Assignment {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// Its GPUs.
    pub nodes: Vec<NodeGpus>,
    /// Its shape, with what it takes alone.
    pub shape: Shape,
    /// Its co-runner; absent = it has its GPUs alone.
    pub beside: Option<Beside>,
    /// Time of one step here, slowdown included.
    pub step_seconds: f64,
    /// Time until its work is done at this speed, where the work is known.
    pub remaining_seconds: Option<f64>,
    /// What it adds to the objective.
    pub value: f64,
    /// What its resources cost at the prices; the slot of a pair is charged to both by half.
    pub price: f64,
    /// Whether it runs now and must be stopped and started again for this; `false` for a job that waited.
    #[serde(default)]
    pub restarts: bool,
    /// One sentence.
    pub why: String,
}

impl NodeGpus {
    /// The GPUs, runs of three and more as `0-7`.
    fn runs(&self) -> String {
        let mut runs: Vec<[u32; 2]> = Vec::new();
        for gpu in &self.gpus {
            match runs.last_mut() {
                Some([_, last]) if *last + 1 == *gpu => *last = *gpu,
                _ => runs.push([*gpu, *gpu]),
            }
        }
        let runs = runs.iter().map(|[first, last]| match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        });
        runs.collect::<Vec<_>>().join(",")
    }
}

impl Assignment {
    /// Its GPUs as `node:GPUs`, for example `0:0-7 1:3`.
    pub fn places(&self) -> String {
        let places = self.nodes.iter().map(|node| format!("{}:{}", node.node, node.runs()));
        places.collect::<Vec<_>>().join(" ")
    }

    /// The same in words: `node 0, GPU 3`.
    pub fn places_in_words(&self) -> String {
        match self.nodes.as_slice() {
            [one] => {
                format!("node {}, GPU{} {}", one.node, if one.gpus.len() == 1 { "" } else { "s" }, one.runs())
            }
            _ => format!("node:GPUs {}", self.places()),
        }
    }
}

/// Why a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitReason {
    /// It has no feasible shape on this cluster.
    NoShape,
    /// Every shape costs more than it is worth.
    PricedOut,
    /// It is worth its price, as much as others that run; whole jobs do not fill the cluster better.
    Tie,
    /// It comes while nobody is moved, and no place for it is free; the next whole solution may run it.
    NoRoom,
    /// There are enough free GPUs, but not together on a node with enough host resources.
    Fragmented,
}

impl WaitReason {
    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoShape => "no_shape",
            Self::PricedOut => "priced_out",
            Self::Tie => "tie",
            Self::NoRoom => "no_room",
            Self::Fragmented => "fragmented",
        }
    }
}

/// The shape with which a job would come in first where it has its GPUs for itself, and at which price.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// GPUs.
    pub gpus: u32,
    /// What it is worth.
    pub value: f64,
    /// What it costs now.
    pub price: f64,
    /// Price of one GPU slot now.
    pub slot_price: f64,
    /// Alone the job enters when a slot costs this or less, other prices unchanged; beside another it may run at a higher price.
    pub entry_slot_price: f64,
}

pub use waiting::Waiting;

/// A feasible placement with its certificate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// `elastico.placement/1`.
    pub schema: String,
    /// The jobs that run, in the order of the input.
    pub assignments: Vec<Assignment>,
    /// The jobs that wait, in the order of the input.
    pub waiting: Vec<Waiting>,
    /// Jobs that wait and were not looked at, because of the option `candidates`; the bound is one of the others alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// Pairs of jobs that may not share, by reason; not counted among more than 2,000 jobs that may share.
    #[serde(rename = "refused")]
    pub refused_pairs: BTreeMap<String, u64>,
    /// Value of the objective.
    #[serde(rename = "objective")]
    pub value: f64,
    /// No placement is worth more.
    pub bound: f64,
    /// (bound - value) / bound: what at most could still be won.
    pub gap: f64,
    /// The prices.
    pub prices: Prices,
    /// The options.
    pub options: Options,
    /// What it rests on.
    pub basis: Basis,
    /// How long it took: in what `place --format json` prints, not in the file that `--out` writes, which is the same each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// How long a placement took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timings {
    /// Files, and the predictor's answers about all pairs.
    pub read_and_predict_seconds: f64,
    /// The solution.
    pub solve_seconds: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Placement {
    /// The assignment of a job.
    pub fn assignment(&self, job: &str) -> Option<&Assignment> {
        self.assignments.iter().find(|assignment| assignment.job.as_str() == job)
    }

    /// GPUs with at least one job.
    pub fn gpus_used(&self) -> u32 {
        let gpus = |assignment: &Assignment| {
            let all: usize = assignment.nodes.iter().map(|node| node.gpus.len()).sum();
            all as f64 * if assignment.beside.is_some() { 0.5 } else { 1.0 }
        };
        self.assignments.iter().map(gpus).sum::<f64>().round() as u32
    }

    /// GPUs with two jobs.
    pub fn pairs(&self) -> usize {
        self.assignments.iter().filter(|assignment| assignment.beside.is_some()).count() / 2
    }

    /// Jobs that run now and get nothing: they must be stopped.
    pub fn stops(&self) -> usize {
        self.waiting.iter().filter(|waiting| waiting.stops).count()
    }

    /// Counts and certificate in one line.
    pub fn summary(&self) -> String {
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let stops = match self.stops() {
            0 => String::new(),
            stops => format!(", {stops} of them must stop"),
        };
        format!(
            "{} on {}, {}, {} waiting{stops}; value {:.3}, bound {:.3}, gap {:.2} %",
            count(self.assignments.len(), "job"),
            count(self.gpus_used() as usize, "GPU"),
            count(self.pairs(), "pair"),
            self.waiting.len(),
            self.value,
            self.bound,
            self.gap * 100.0
        )
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.basis.simulated {
            writeln!(f, "simulated: profiles or model do not come from measurements alone")?;
        }
        writeln!(f, "{}", self.summary())?;
        for assignment in &self.assignments {
            let places = assignment.nodes.iter().map(|node| {
                let gpus: Vec<String> = node.gpus.iter().map(ToString::to_string).collect();
                format!("{}:{}", node.node, gpus.join(","))
            });
            let places = places.collect::<Vec<_>>().join(" ");
            writeln!(f, "{}  {} {}  {}", assignment.job, assignment.pool, places, assignment.why)?;
        }
        for waiting in &self.waiting {
            writeln!(f, "{}  waits  {}", waiting.job, waiting.detail())?;
        }
        Ok(())
    }
}

/// What is wrong with a placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The job, or the first of them.
    pub job: JobId,
    /// What is violated, with numbers.
    pub rule: String,
}

#[derive(Default)]
struct Load<'a> {
    jobs: Vec<&'a Assignment>,
}

/// Checks a placement against the cluster from what it says alone, independent of the solver.
///
/// Every GPU exists and has one job, or two that name each other under a sharing mode with both upper bounds within
/// the limits and both memories within the GPU's; every node has the host resources; the value does not exceed the bound.
pub fn check(placement: &Placement, cluster: &Cluster) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut loads: BTreeMap<(usize, u32, u32), Load<'_>> = BTreeMap::new();
    let mut hosts: BTreeMap<(usize, u32), [f64; 3]> = BTreeMap::new();
    for assignment in &placement.assignments {
        let mut fail = |rule: String| found.push(Violation { job: assignment.job.clone(), rule });
        let Some(pool) = cluster.pool.iter().position(|pool| pool.id == assignment.pool) else {
            fail(format!("pool `{}` is not in the cluster", assignment.pool));
            continue;
        };
        let sizes = cluster.pool[pool].gpus_of_nodes();
        let mut count = 0;
        for NodeGpus { node, gpus } in &assignment.nodes {
            let size = sizes.get(*node as usize).copied().unwrap_or(0);
            for gpu in gpus {
                if *gpu >= size {
                    fail(format!("GPU {gpu} of node {node} does not exist"));
                }
                loads.entry((pool, *node, *gpu)).or_default().jobs.push(assignment);
                count += 1;
            }
            let part = gpus.len() as f64 / f64::from(assignment.shape.gpus.max(1));
            let host = hosts.entry((pool, *node)).or_default();
            let taken = &assignment.shape.resources;
            host[0] += taken.host_cores * part;
            host[1] += taken.host_memory_bytes * part;
            host[2] += taken.network_bytes_per_second * part;
        }
        if count != assignment.shape.gpus {
            fail(format!("its shape has {} GPUs, it sits on {count}", assignment.shape.gpus));
        }
        if let Some(beside) = &assignment.beside
            && beside.slowdown_upper > beside.limit
        {
            fail(format!(
                "slowdown may reach {:.3}, the limit is {:.3}",
                beside.slowdown_upper, beside.limit
            ));
        }
    }
    for ((pool, node, gpu), load) in &loads {
        let place = format!("GPU {gpu} of node {node} of `{}`", cluster.pool[*pool].id);
        let memory: f64 = load
            .jobs
            .iter()
            .map(|job| job.shape.resources.gpu_memory_bytes / f64::from(job.shape.gpus.max(1)))
            .sum();
        let mut fail = |rule: String| found.push(Violation { job: load.jobs[0].job.clone(), rule });
        if memory > cluster.pool[*pool].memory_of_gpu() * (1.0 + 1e-9) {
            fail(format!("{place} would hold {}", Resource::GpuMemoryBytes.in_words(memory)));
        }
        let names = |job: &Assignment, other: &Assignment| {
            job.beside.as_ref().is_some_and(|beside| beside.job == other.job)
        };
        match load.jobs.as_slice() {
            [alone] if alone.beside.is_some() => {
                fail(format!("{place} has one job, which names a co-runner"));
            }
            [_] => {}
            [a, b] if names(a, b) && names(b, a) => {}
            jobs => fail(format!("{place} has {} jobs that do not name each other", jobs.len())),
        }
    }
    for ((pool, node), host) in &hosts {
        let gpus = cluster.pool[*pool].gpus_of_nodes().get(*node as usize).copied().unwrap_or(0);
        let amounts = cluster.pool[*pool].amounts_of_node(gpus);
        if let Some(at) = (0..3).find(|at| host[*at] > amounts[at + 2] * (1.0 + 1e-9) + 1e-6)
            && let Some(job) = placement.assignments.iter().find(|assignment| {
                assignment.pool == cluster.pool[*pool].id
                    && assignment.nodes.iter().any(|seat| seat.node == *node)
            })
        {
            let resource = Resource::ALL[at + 2];
            let (asked, has) = (resource.in_words(host[at]), resource.amount(amounts[at + 2]));
            let rule = format!("node {node} is asked for {asked}, it has {has}");
            found.push(Violation { job: job.job.clone(), rule });
        }
    }
    if placement.value > placement.bound * (1.0 + 1e-9) + 1e-12
        && let Some(first) = placement.assignments.first()
    {
        let rule = format!("the value {} exceeds the bound {}", placement.value, placement.bound);
        found.push(Violation { job: first.job.clone(), rule });
    }
    found
}
