//! In which configurations a job can run, and how fast in each.

use crate::cluster::{Cluster, Pool};
use crate::jobs::Job;
use crate::resources::Resources;
use elastico_core::{DeviceKind, JobId, PoolId, WorkloadKind};
use elastico_models::{Profiles, WorkloadProfile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Where the performance of a shape comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Measured on a device.
    Measured,
    /// Computed by the fluid model of a device.
    Simulated,
    /// Extrapolated by the scaling law from another shape.
    Assumed,
}

/// How the throughput of training grows with GPUs where it was not measured.
///
/// throughput(n) = throughput(1) · n^`within_node` up to one node, and beyond that grows with the nodes to the power
/// `across_nodes`. With two measured points or more the exponent within a node is fitted instead.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScalingLaw {
    /// Exponent within a node, 0..=1.
    pub within_node: f64,
    /// Exponent over nodes, 0..=1.
    pub across_nodes: f64,
}

impl Default for ScalingLaw {
    /// 0.9 and 0.8: an assumption, not a measurement, which is why such shapes are marked `assumed`. Two measured points
    /// of the job replace it.
    fn default() -> Self {
        Self { within_node: 0.9, across_nodes: 0.8 }
    }
}

impl ScalingLaw {
    fn growth(self, gpus: u32, per_node: u32) -> f64 {
        let inside = f64::from(gpus.min(per_node.max(1)));
        let nodes = (f64::from(gpus) / f64::from(per_node.max(1))).max(1.0);
        inside.powf(self.within_node) * nodes.powf(self.across_nodes)
    }
}

/// One feasible configuration of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// The pool.
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
}

impl Shape {
    /// Whether it has its GPUs alone.
    pub fn is_whole(&self) -> bool {
        self.share_ratio >= 1.0
    }
}

/// Why a configuration is no shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// The pool.
    pub pool: PoolId,
    /// GPUs, where the reason is about them.
    pub gpus: Option<u32>,
    /// The reason, in words.
    pub reason: String,
}

/// All shapes of one job, none dominated by another of its pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShapeFamily {
    /// The job.
    pub job: JobId,
    /// Training or inference.
    pub kind: WorkloadKind,
    /// Steps per second of the reference: the fastest shape with the fewest GPUs. Throughputs are relative to it.
    pub reference_hertz: f64,
    /// The shapes, by pool, then GPUs, then share.
    pub shapes: Vec<Shape>,
    /// What was left out and why.
    pub dropped: Vec<Dropped>,
}

/// The profile of a workload on a chip, whether it was measured there or simulated.
pub(crate) fn profile<'a>(profiles: &'a Profiles, job: &Job, device: &str) -> Option<&'a WorkloadProfile> {
    let workload = job.workload.as_ref()?;
    crate::pairing::find(profiles, workload, device)
}

/// Device memory per GPU in bytes, from the job or its profile.
pub(crate) fn memory(job: &Job, profile: Option<&WorkloadProfile>) -> Option<f64> {
    let of_profile = || profile?.fields.get("footprint_bytes").copied().filter(|bytes| bytes.is_finite());
    job.memory_bytes.or_else(of_profile)
}

#[derive(Clone, Copy)]
struct Point {
    seconds: f64,
    origin: Origin,
}

/// Known performance, by GPUs and share in millionths.
type Points = BTreeMap<(u32, u32), Point>;

const FULL: u32 = 1_000_000;

fn points(job: &Job, pool: &Pool, profile: Option<&WorkloadProfile>) -> Points {
    let mut points = Points::new();
    if let Some(profile) = profile {
        let origin =
            if profile.device_kind == DeviceKind::Simulated { Origin::Simulated } else { Origin::Measured };
        let full = profile.fields.get("step_seconds").map(|seconds| (1.0, *seconds));
        let shares = profile.shares.iter().map(|point| (point.share_ratio, point.step_seconds));
        for (share, seconds) in shares.chain(full) {
            if seconds.is_finite() && seconds > 0.0 && share > 0.0 && share <= 1.0 {
                points.insert((1, (share * f64::from(FULL)).round() as u32), Point { seconds, origin });
            }
        }
    }
    // A shape for every pool first, so that one for this pool replaces it.
    for general in [true, false] {
        for shape in job.shape.iter().filter(|shape| shape.pool.is_none() == general) {
            if shape.pool.as_ref().is_none_or(|id| *id == pool.id)
                && let Some(seconds) = shape.seconds()
            {
                let share = (shape.share_ratio * f64::from(FULL)).round() as u32;
                points.insert((shape.gpus, share), Point { seconds, origin: Origin::Measured });
            }
        }
    }
    points
}

/// The exponent of throughput over GPUs by least squares on logarithms, where two points say something.
fn fitted_exponent(whole: &[(u32, Point)]) -> Option<f64> {
    if whole.len() < 2 {
        return None;
    }
    let logs: Vec<(f64, f64)> =
        whole.iter().map(|(gpus, point)| (f64::from(*gpus).ln(), -point.seconds.ln())).collect();
    let count = logs.len() as f64;
    let (x_mean, y_mean) =
        (logs.iter().map(|(x, _)| x).sum::<f64>() / count, logs.iter().map(|(_, y)| y).sum::<f64>() / count);
    let covariance: f64 = logs.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let variance: f64 = logs.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    Some((covariance / variance).clamp(0.0, 1.0))
}

/// The GPU counts worth trying: powers of two and both ends, since others leave nodes torn.
fn counts(job: &Job, measured: &Points) -> BTreeSet<u32> {
    let (least, most) = (job.gpus_min, job.most_gpus());
    let powers = (0..31).map(|power| 1_u32 << power).filter(|gpus| (least..=most).contains(gpus));
    let known = measured
        .keys()
        .filter(|(gpus, share)| *share == FULL && (least..=most).contains(gpus))
        .map(|key| key.0);
    powers.chain([least, most]).chain(known).collect()
}

struct Candidate {
    gpus: u32,
    share: u32,
    point: Point,
}

fn candidates(
    job: &Job,
    kind: WorkloadKind,
    pool: &Pool,
    points: &Points,
    law: ScalingLaw,
) -> Vec<Candidate> {
    let whole: Vec<(u32, Point)> = points
        .iter()
        .filter(|((_, share), _)| *share == FULL)
        .map(|((gpus, _), point)| (*gpus, *point))
        .collect();
    let law = fitted_exponent(&whole).map_or(law, |exponent| ScalingLaw {
        within_node: exponent,
        across_nodes: law.across_nodes.min(exponent),
    });
    let mut candidates = Vec::new();
    for gpus in counts(job, points) {
        if let Some(point) = points.get(&(gpus, FULL)) {
            candidates.push(Candidate { gpus, share: FULL, point: *point });
            continue;
        }
        let nearest = whole.iter().min_by_key(|(known, _)| (known.abs_diff(gpus), *known));
        if let (WorkloadKind::Training, Some((known, point))) = (kind, nearest) {
            let growth = law.growth(gpus, pool.gpus_per_node) / law.growth(*known, pool.gpus_per_node);
            let point = Point { seconds: point.seconds / growth, origin: Origin::Assumed };
            candidates.push(Candidate { gpus, share: FULL, point });
        }
    }
    if job.gpus_min == 1 {
        for ((gpus, share), point) in points {
            if *gpus == 1 && *share < FULL {
                candidates.push(Candidate { gpus: 1, share: *share, point: *point });
            }
        }
    }
    candidates
}

fn misfit(pool: &Pool, gpus: u32, memory: f64, resources: &Resources) -> Option<String> {
    let per_node = pool.gpus_per_node;
    if memory > pool.memory_of_gpu() {
        return Some(format!(
            "needs {:.3e} bytes of device memory, a GPU has {:.3e}",
            memory,
            pool.memory_of_gpu()
        ));
    }
    if gpus > pool.gpu_count() {
        return Some(format!("needs {gpus} GPUs, the pool has {}", pool.gpu_count()));
    }
    if gpus > per_node && !gpus.is_multiple_of(per_node) {
        return Some(format!("{gpus} GPUs are no whole number of nodes of {per_node}"));
    }
    let nodes = f64::from(gpus.div_ceil(per_node.max(1)));
    let of_node = pool.amounts_of_node(per_node.min(pool.gpu_count()));
    let names = ["", "", "host cores", "bytes of host memory", "bytes/s of network"];
    let amounts = resources.amounts();
    (2..5).find(|at| amounts[*at] / nodes > of_node[*at]).map(|at| {
        format!("needs {:.3e} {} per node, a node has {:.3e}", amounts[at] / nodes, names[at], of_node[at])
    })
}

/// Keeps what no smaller shape of the pool equals: throughput must rise with GPUs, and with the share.
fn prune(shapes: &mut Vec<Shape>) {
    let mut best_whole = 0.0_f64;
    let mut best_part = 0.0_f64;
    shapes.sort_by(|a, b| {
        (a.gpus, a.share_ratio).partial_cmp(&(b.gpus, b.share_ratio)).expect("ratios are finite")
    });
    shapes.retain(|shape| {
        let best = if shape.is_whole() { &mut best_whole } else { &mut best_part };
        let speed = shape.step_seconds.recip();
        let keeps = speed > *best;
        *best = best.max(speed);
        keeps
    });
}

impl ShapeFamily {
    /// The shapes of a job on a cluster.
    pub fn of(job: &Job, cluster: &Cluster, profiles: &Profiles, law: ScalingLaw) -> Self {
        let known: Vec<Option<&WorkloadProfile>> =
            cluster.pool.iter().map(|pool| profile(profiles, job, &pool.device)).collect();
        let of_profile = known.iter().flatten().map(|profile| profile.kind).next();
        let kind = job.kind.or(of_profile).unwrap_or(WorkloadKind::Training);
        let mut family =
            Self { job: job.id.clone(), kind, reference_hertz: 0.0, shapes: Vec::new(), dropped: Vec::new() };
        for (pool, profile) in cluster.pool.iter().zip(known) {
            if pool.gpu_count() > 0 {
                family.add_pool(job, pool, profile, law);
            }
        }
        let reference = |gpus: u32, shapes: &[Shape]| {
            let speeds = shapes
                .iter()
                .filter(|shape| shape.is_whole() && shape.gpus == gpus)
                .map(|shape| shape.step_seconds);
            speeds.min_by(f64::total_cmp).map(f64::recip)
        };
        let fewest = family.shapes.iter().filter(|shape| shape.is_whole()).map(|shape| shape.gpus).min();
        family.reference_hertz = fewest.and_then(|gpus| reference(gpus, &family.shapes)).unwrap_or(0.0);
        for shape in &mut family.shapes {
            shape.normalized_throughput =
                1.0 / (shape.step_seconds * family.reference_hertz.max(f64::MIN_POSITIVE));
        }
        if fewest.is_none() {
            // A share of a GPU has no value without the whole GPU to compare with.
            family.shapes.clear();
        }
        family
    }

    fn add_pool(&mut self, job: &Job, pool: &Pool, profile: Option<&WorkloadProfile>, law: ScalingLaw) {
        let mut drop = |gpus: Option<u32>, reason: String| {
            self.dropped.push(Dropped { pool: pool.id.clone(), gpus, reason });
        };
        if !job.pools.is_empty() && !job.pools.contains(&pool.id) {
            return drop(None, "the job does not allow this pool".to_owned());
        }
        let points = points(job, pool, profile);
        let memory = memory(job, profile).unwrap_or(0.0);
        let candidates = candidates(job, self.kind, pool, &points, law);
        if candidates.is_empty() {
            let reason = if points.is_empty() {
                format!("no profile or measured shape on `{}`", pool.device)
            } else {
                "its GPU count was never measured, and only training is extrapolated".to_owned()
            };
            return drop(None, reason);
        }
        let mut shapes = Vec::new();
        for Candidate { gpus, share, point } in candidates {
            let count = f64::from(gpus);
            let share_ratio = f64::from(share) / f64::from(FULL);
            let resources = Resources {
                gpu_slots: count * share_ratio,
                gpu_memory_bytes: count * memory,
                host_cores: count * job.host_cores,
                host_memory_bytes: count * job.host_memory_bytes,
                network_bytes_per_second: count * job.network_bytes_per_second,
            };
            if let Some(reason) = misfit(pool, gpus, memory, &resources) {
                drop(Some(gpus), reason);
                continue;
            }
            shapes.push(Shape {
                pool: pool.id.clone(),
                gpus,
                share_ratio,
                step_seconds: point.seconds,
                normalized_throughput: 0.0,
                resources,
                origin: point.origin,
            });
        }
        prune(&mut shapes);
        self.shapes.extend(shapes);
    }

    /// The shape with one whole GPU of a pool: what a pair is compared with.
    pub fn single_gpu(&self, pool: &PoolId) -> Option<&Shape> {
        self.shapes.iter().find(|shape| shape.gpus == 1 && shape.is_whole() && shape.pool == *pool)
    }
}
