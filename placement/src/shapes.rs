//! In which configurations a job can run, and how fast in each.

mod batch;
mod goodput;
mod measured;
mod prune;
mod scaling;

pub use batch::BatchPoint;
pub use goodput::{Goodput, Timing};
pub use scaling::ScalingLaw;

use crate::cluster::{Cluster, Pool};
use crate::jobs::{Current, Job, MeasuredShape};
use crate::resources::{Amounts, Resource, Resources, bytes};
use crate::settings::{self, Settings};
use elastico_core::{JobId, PoolId, WorkloadKind};
use elastico_models::{Profiles, WorkloadProfile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Where the performance of a shape comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// Measured on a device.
    Measured,
    /// Computed by the fluid model of a device.
    Simulated,
    /// Computed by a model whose parameters were fitted to measurements of this job: its goodput.
    Fitted,
    /// Extrapolated by the scaling law from another shape.
    Assumed,
}

/// One feasible configuration of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shape {
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// GPUs.
    pub gpus: u32,
    /// Share of the SMs; below 1 the shape runs only inside a pair.
    pub share_ratio: f64,
    /// Time of one step, running alone.
    pub step_seconds: f64,
    /// Throughput over that of the job's reference shape.
    pub normalized_throughput: f64,
    /// What it takes.
    pub resources: Resources,
    /// Where its performance comes from.
    pub origin: Origin,
    /// What the job's entry point is started with, by the names that it reads.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
}

impl Shape {
    /// Whether it has its GPUs alone.
    pub fn is_whole(&self) -> bool {
        self.share_ratio >= 1.0
    }
}

impl Current {
    /// Whether the job runs in this shape.
    pub fn is(&self, shape: &Shape) -> bool {
        let same_settings = self.settings.is_empty() || self.settings == shape.settings;
        self.pool == shape.pool && self.gpus == shape.gpus && same_settings
    }
}

/// Why a configuration is no shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dropped {
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// GPUs, where the reason is about them.
    pub gpus: Option<u32>,
    /// The reason, in words.
    pub reason: String,
    /// What would have to be otherwise, where more GPUs of the pool do not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// All shapes of one job, none made useless by another of its pool.
///
/// A shape stays where no other of the pool is as fast with as little of everything: GPUs, host cores, host memory and
/// network. With one GPU device memory counts as well, since a slower shape that leaves more of it can have a co-runner. The
/// shape in which the job runs now always stays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShapeFamily {
    /// The job.
    pub job: JobId,
    /// Training or inference.
    pub kind: WorkloadKind,
    /// Steps per second of the reference: the fastest shape with the fewest GPUs that a large enough cluster of these pools
    /// could hold. Throughputs are relative to it, and keep their meaning when the pools grow or shrink.
    pub reference_hertz: f64,
    /// The shapes, by pool, then GPUs, then share, then speed.
    pub shapes: Vec<Shape>,
    /// What was left out and why.
    pub dropped: Vec<Dropped>,
}

/// The profile of a workload on a chip, whether it was measured there or simulated.
fn profile<'a>(profiles: &'a Profiles, job: &Job, device: &str) -> Option<&'a WorkloadProfile> {
    let workload = job.workload.as_ref()?;
    crate::pairing::find(profiles, workload, device)
}

/// A whole GPU, in the unit of [`Candidate::share`].
const FULL: u32 = 1_000_000;

/// What a shape takes for each of its GPUs.
#[derive(Clone, Copy, Debug, Default)]
struct PerGpu {
    memory: Option<f64>,
    host_cores: f64,
    host_memory: f64,
    network: f64,
}

impl PerGpu {
    fn of(job: &Job, profile: Option<&WorkloadProfile>) -> Self {
        let footprint = || profile?.fields.get("footprint_bytes").copied().filter(|bytes| bytes.is_finite());
        Self {
            memory: job.memory_bytes.or_else(footprint),
            host_cores: job.host_cores,
            host_memory: job.host_memory_bytes,
            network: job.network_bytes_per_second,
        }
    }

    fn with(&self, shape: &MeasuredShape) -> Self {
        Self {
            memory: shape.memory_bytes.or(self.memory),
            host_cores: shape.host_cores.unwrap_or(self.host_cores),
            host_memory: shape.host_memory_bytes.unwrap_or(self.host_memory),
            network: shape.network_bytes_per_second.unwrap_or(self.network),
        }
    }

    fn times(&self, gpus: u32, share_ratio: f64) -> Resources {
        let count = f64::from(gpus);
        Resources {
            gpu_slots: count * share_ratio,
            gpu_memory_bytes: count * self.memory.unwrap_or(0.0),
            host_cores: count * self.host_cores,
            host_memory_bytes: count * self.host_memory,
            network_bytes_per_second: count * self.network,
        }
    }
}

/// A configuration before it is known whether the pool can hold it.
struct Candidate<'a> {
    gpus: u32,
    /// In millionths of a GPU.
    share: u32,
    seconds: f64,
    origin: Origin,
    per_gpu: PerGpu,
    settings: Cow<'a, Settings>,
}

/// The GPU counts worth trying: powers of two within a node and of whole nodes beyond, since others leave nodes torn; both
/// ends, what is known, and what the job has now.
fn counts(job: &Job, pool: &Pool, known: impl Iterator<Item = u32>) -> Vec<u32> {
    let (least, most) = (job.gpus_min, job.most_gpus());
    let per_node = pool.gpus_per_node.max(1);
    let doubled = |from: u32, to: u32| {
        std::iter::successors(Some(from), |gpus| gpus.checked_mul(2)).take_while(move |gpus| *gpus <= to)
    };
    let current = job.current.iter().filter(|current| current.pool == pool.id).map(|current| current.gpus);
    let powers = doubled(1, per_node.min(most)).chain(doubled(per_node, most));
    let mut all = Vec::with_capacity(24);
    for gpus in powers.chain([least, most]).chain(known).chain(current) {
        if (least..=most).contains(&gpus)
            && let Err(at) = all.binary_search(&gpus)
        {
            all.insert(at, gpus);
        }
    }
    all
}

/// What a pool can hold.
struct Room {
    gpus: u32,
    per_node: u32,
    memory_of_gpu: f64,
    node: Amounts,
}

impl Room {
    /// Of the pool if it had so many GPUs.
    fn of(pool: &Pool, gpus: u32) -> Self {
        let memory_of_gpu = pool.memory_of_gpu();
        let node = pool.amounts_of(pool.gpus_per_node.min(gpus), memory_of_gpu);
        Self { gpus, per_node: pool.gpus_per_node, memory_of_gpu, node }
    }

    /// Why it cannot hold a configuration.
    fn misfit(&self, candidate: &Candidate, resources: &Resources) -> Option<Misfit> {
        let (gpus, per_node) = (candidate.gpus, self.per_node);
        let memory = candidate.per_gpu.memory.unwrap_or(0.0);
        if memory > self.memory_of_gpu {
            let (needs, has) = (bytes(memory), bytes(self.memory_of_gpu));
            return Some(Misfit {
                reason: format!("needs {needs} of device memory, a GPU has {has}"),
                remedy: Some(format!("at most {has} of device memory per GPU, or GPUs with {needs}")),
            });
        }
        if gpus > self.gpus {
            return Some(format!("needs {gpus} GPUs, the pool has {}", self.gpus).into());
        }
        if gpus > per_node && !gpus.is_multiple_of(per_node) {
            return Some(Misfit {
                reason: format!("{gpus} GPUs are no whole number of nodes of {per_node}"),
                remedy: Some(format!("a shape within a node, or of a multiple of {per_node} GPUs")),
            });
        }
        let nodes = f64::from(gpus.div_ceil(per_node.max(1)));
        let amounts = resources.amounts();
        (2..5).find(|at| amounts[*at] / nodes > self.node[*at]).map(|at| {
            let (resource, needs, has) = (Resource::ALL[at], amounts[at] / nodes, self.node[at]);
            Misfit {
                reason: format!(
                    "needs {} per node, a node has {}",
                    resource.in_words(needs),
                    resource.amount(has)
                ),
                remedy: Some(format!(
                    "at most {} per node, or nodes with {}",
                    resource.in_words(has),
                    resource.amount(needs)
                )),
            }
        })
    }
}

/// Why a pool cannot hold a configuration, and what would have to be otherwise where more GPUs do not help.
struct Misfit {
    reason: String,
    remedy: Option<String>,
}

impl From<String> for Misfit {
    fn from(reason: String) -> Self {
        Self { reason, remedy: None }
    }
}

impl ShapeFamily {
    /// The shapes of a job on a cluster.
    pub fn of(job: &Job, cluster: &Cluster, profiles: &Profiles, law: ScalingLaw) -> Self {
        let known = |pool: &Pool| profile(profiles, job, &pool.device);
        let of_profile = || cluster.pool.iter().filter_map(known).map(|profile| profile.kind).next();
        let of_family = (!job.batch.is_empty()).then_some(WorkloadKind::Inference);
        let kind = job.kind.or_else(of_profile).or(of_family).unwrap_or(WorkloadKind::Training);
        let mut family =
            Self { job: job.id.clone(), kind, reference_hertz: 0.0, shapes: Vec::new(), dropped: Vec::new() };
        let references = cluster.pool.iter().filter_map(|pool| family.add_pool(job, pool, known(pool), law));
        let reference = references.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        family.reference_hertz = reference.map_or(0.0, |(_, seconds)| seconds.recip());
        for shape in &mut family.shapes {
            shape.normalized_throughput =
                1.0 / (shape.step_seconds * family.reference_hertz.max(f64::MIN_POSITIVE));
        }
        if !family.shapes.iter().any(Shape::is_whole) {
            // A share of a GPU has no value without the whole GPU to compare with.
            family.shapes.clear();
        }
        family
    }

    /// Adds the shapes that the pool can hold. Returns GPUs and step time of the fastest shape with the fewest GPUs that
    /// it could hold with GPUs enough.
    fn add_pool(
        &mut self,
        job: &Job,
        pool: &Pool,
        profile: Option<&WorkloadProfile>,
        law: ScalingLaw,
    ) -> Option<(u32, f64)> {
        let pool_gpus = pool.gpu_count();
        let dropped = &mut self.dropped;
        let mut keep = |gpus: Option<u32>, Misfit { reason, remedy }: Misfit| {
            if pool_gpus > 0 {
                dropped.push(Dropped { pool: pool.id.clone(), gpus, reason, remedy });
            }
        };
        let mut drop = |gpus: Option<u32>, reason: String| keep(gpus, reason.into());
        if !job.pools.is_empty() && !job.pools.contains(&pool.id) {
            drop(None, "the job does not allow this pool".to_owned());
            return None;
        }
        let candidates = if let Some(goodput) = &job.goodput {
            goodput::candidates(goodput, job, pool, profile, &mut drop)
        } else if job.batch.is_empty() {
            measured::candidates(job, self.kind, pool, profile, law)
        } else {
            batch::candidates(job, pool, profile)
        };
        let candidates = match candidates {
            Ok(candidates) => candidates,
            Err(reason) => {
                drop(None, reason);
                return None;
            }
        };
        let mut reference: Option<(u32, f64)> = None;
        let first = self.shapes.len();
        self.shapes.reserve(candidates.len());
        let room = Room::of(pool, pool_gpus);
        for candidate in candidates {
            let share_ratio = f64::from(candidate.share) / f64::from(FULL);
            let resources = candidate.per_gpu.times(candidate.gpus, share_ratio);
            let outside = !(job.gpus_min..=job.most_gpus()).contains(&candidate.gpus);
            let reason = if outside {
                Some(format!("the job allows {} to {} GPUs", job.gpus_min, job.most_gpus()).into())
            } else {
                room.misfit(&candidate, &resources)
            };
            let unlimited = || Room::of(pool, u32::MAX);
            let holds = || reason.is_none() || unlimited().misfit(&candidate, &resources).is_none();
            if !outside && candidate.share == FULL && holds() {
                let found = (candidate.gpus, candidate.seconds);
                reference = Some(reference.map_or(found, |best| {
                    let is_better = found.0 < best.0 || (found.0 == best.0 && found.1 < best.1);
                    if is_better { found } else { best }
                }));
            }
            if let Some(Misfit { reason, remedy }) = reason {
                let settings = settings::in_words(&candidate.settings);
                let prefix = if settings.is_empty() { settings } else { settings + ": " };
                keep(Some(candidate.gpus), Misfit { reason: prefix + &reason, remedy });
                continue;
            }
            self.shapes.push(Shape {
                pool: pool.id.clone(),
                gpus: candidate.gpus,
                share_ratio,
                step_seconds: candidate.seconds,
                normalized_throughput: 0.0,
                resources,
                origin: candidate.origin,
                settings: candidate.settings.into_owned(),
            });
        }
        self.shapes[first..].sort_by(|a, b| {
            a.gpus
                .cmp(&b.gpus)
                .then(a.share_ratio.total_cmp(&b.share_ratio))
                .then(a.step_seconds.total_cmp(&b.step_seconds))
        });
        let is_current = |shape: &Shape| job.current.as_ref().is_some_and(|current| current.is(shape));
        prune::prune(&mut self.shapes, first, is_current);
        reference
    }

    /// The fastest shape with one whole GPU of a pool: what a pair is compared with.
    pub fn single_gpu(&self, pool: &PoolId) -> Option<&Shape> {
        self.shapes.iter().find(|shape| shape.gpus == 1 && shape.is_whole() && shape.pool == *pool)
    }

    /// The shapes that are of use without a co-runner, with their indexes. Those with one GPU that are there only because
    /// they leave device memory to a co-runner are not among them, but for the current shape of the job.
    pub(crate) fn alone(&self, current: Option<&Current>) -> impl Iterator<Item = (usize, &Shape)> {
        self.shapes.iter().enumerate().filter(move |(at, shape)| {
            let is_current = || current.is_some_and(|current| current.is(shape));
            shape.is_whole()
                && (shape.gpus > 1 || is_current() || !prune::is_covered(&self.shapes, *at, false))
        })
    }

    /// The shapes with which the job can be in a pair on a GPU of a pool, with their indexes, the fastest first. All take
    /// what the fastest takes of the host; they differ in speed, device memory and settings.
    pub(crate) fn in_pair(&self, pool: &PoolId) -> impl Iterator<Item = (usize, &Shape)> {
        let first = self.single_gpu(pool);
        let host = |shape: &Shape| {
            let taken = &shape.resources;
            [taken.host_cores, taken.host_memory_bytes, taken.network_bytes_per_second].map(f64::to_bits)
        };
        self.shapes.iter().enumerate().filter(move |(_, shape)| {
            first.is_some_and(|first| {
                shape.gpus == 1 && shape.is_whole() && shape.pool == first.pool && host(shape) == host(first)
            })
        })
    }
}
