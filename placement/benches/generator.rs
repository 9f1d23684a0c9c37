//! Random instances of a seed: half training, half inference, an interference law of two demands per workload.

use super::{Cluster, Job, Jobs, MeasuredShape, PairOutcome, PairTable};
use elastico_core::{JobId, Seed, SharingMode, WorkloadId, WorkloadKind};
use rand::RngExt;
use std::collections::BTreeMap;
use std::path::Path;

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Training jobs.
    pub(crate) training: usize,
    /// Inference jobs, all on one GPU.
    pub(crate) inference: usize,
    /// GPUs, in nodes of `per_node`, half of them H100 and half A100 where `pools` is 2.
    pub(crate) gpus: u32,
    /// GPUs of a node.
    pub(crate) per_node: u32,
    /// 1 or 2.
    pub(crate) pools: u32,
    /// Most GPUs of a training job.
    pub(crate) most_gpus: u32,
}

/// A cluster, jobs, and what they do to each other.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    pub(crate) cluster: Cluster,
    pub(crate) jobs: Jobs,
    pub(crate) table: PairTable,
}

pub(crate) fn generate(size: Size, seed: Seed, sharing: &[SharingMode]) -> Generated {
    let mut random = seed.stream("instance", &[]);
    let mut text = String::new();
    for (pool, device) in ["h100", "a100-80gb"].iter().enumerate().take(size.pools as usize) {
        let gpus = size.gpus / size.pools + u32::from(pool == 0) * (size.gpus % size.pools);
        let nodes = gpus.div_ceil(size.per_node);
        let pool = format!(
            "[[pool]]\nid = \"p{pool}\"\ndevice = \"{device}\"\nnodes = {nodes}\ngpus_per_node = {}\ngpus = {gpus}\n\
             price_per_gpu_hour = {}\n",
            size.per_node,
            2 - pool
        );
        text.push_str(&pool);
    }
    let cluster = Cluster::from_toml(&text, Path::new("generated")).expect("the generated cluster is valid");
    let mut job = Vec::new();
    let mut demands = BTreeMap::new();
    for index in 0..size.training + size.inference {
        let training = index < size.training;
        let workload = WorkloadId::new(format!("w{index:05}")).expect("a plain name");
        let demand: (f64, f64) = if training {
            (random.random_range(0.4..0.95), random.random_range(0.2..0.8))
        } else {
            (random.random_range(0.05..0.5), random.random_range(0.1..0.7))
        };
        demands.insert(workload.clone(), demand);
        let mut one = Job::new(JobId::new(format!("job{index:05}")).expect("a plain name"), Some(workload));
        one.kind = Some(if training { WorkloadKind::Training } else { WorkloadKind::Inference });
        one.weight = random.random_range(-0.5_f64..0.5).exp();
        one.memory_bytes = Some(random.random_range(5e9..45e9));
        let most = if training { 1 << random.random_range(0..=size.most_gpus.ilog2()) } else { 1 };
        one.gpus_max = Some(most);
        let seconds = random.random_range(0.1..1.0);
        let exponent = random.random_range(0.6..0.95);
        for (pool, speed) in cluster.pool.iter().zip([1.0, random.random_range(0.35..0.7)]) {
            let mut gpus = 1;
            while gpus <= most {
                one.shape.push(MeasuredShape {
                    pool: Some(pool.id.clone()),
                    ..MeasuredShape::new(gpus, seconds / speed / f64::from(gpus).powf(exponent))
                });
                gpus *= 2;
            }
        }
        job.push(one);
    }
    let devices = cluster.pool.iter().map(|pool| pool.device.clone());
    // Nobody asks for a table where nobody may share, and its size is the square of the jobs.
    let sharers: Vec<WorkloadId> =
        if sharing.is_empty() { Vec::new() } else { demands.keys().cloned().collect() };
    let table = PairTable::from_fn(sharers, devices, sharing, |_, a, b, mode| {
        let (of_a, of_b) = (demands[a], demands[b]);
        let (share_a, share_b) = mode.shares();
        let over = (of_a.0 + of_b.0 - 1.0).max(0.0) + 0.8 * (of_a.1 + of_b.1 - 1.0).max(0.0);
        // A share under the demand slows its owner down and spares the other.
        let own = |demand: f64, share: f64| (demand / share).max(1.0);
        let other = |share: f64| if share < 1.0 { 0.5 } else { 1.0 };
        let slowdown = [
            own(of_a.0, share_a) * (1.03 + over * other(share_b)),
            own(of_b.0, share_b) * (1.03 + over * other(share_a)),
        ];
        Some(PairOutcome {
            sharing: mode.clone(),
            slowdown,
            upper: slowdown.map(|ratio| ratio * 1.08),
            in_domain: true,
        })
    });
    Generated { cluster, jobs: Jobs { job }, table }
}
