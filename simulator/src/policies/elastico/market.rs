//! The simulator's jobs as the allocator knows jobs, and its answer as targets.

use super::cells::Candidate;
use super::{ElasticoOptions, Pairing};
use crate::rates::Shape;
use crate::{ClusterSpec, Round, Target, TraceJob};
use elastico_core::{JobId, PoolId, SharingMode, WorkloadId, WorkloadKind};
use elastico_placement::{
    Allocator, Cluster, Current, Error, Job, Jobs, MeasuredShape, Options, PairOutcome, PairTable, Pool,
    Prices, Profiles, Resource,
};
use std::collections::BTreeMap;

/// The mode under which the tables of a simulation hold their slowdowns; which one it is, only they know.
const MODE: SharingMode = SharingMode::TimeSlice;

/// More memory than any GPU has: what the trace does not say is not looked at.
const ENDLESS: f64 = 1e18;

#[derive(Debug)]
pub(super) struct Market {
    allocator: Allocator,
    pools: Vec<PoolId>,
    profiles: Profiles,
    shares: bool,
    /// Name in the allocator, and a job of it, by workload.
    workloads: BTreeMap<String, (WorkloadId, usize)>,
    table: Option<PairTable>,
    prices: Option<Prices>,
}

/// The kind of a job; one that the trace does not tell counts as training.
pub(super) fn kind(job: &TraceJob) -> WorkloadKind {
    job.kind.unwrap_or(WorkloadKind::Training)
}

impl Market {
    /// The part `cell` of `count` equal ones of the cluster.
    pub(super) fn new(options: &ElasticoOptions, cluster: &ClusterSpec, cell: u32, count: u32) -> Self {
        let until = |nodes: u32, cell: u32| (u64::from(nodes) * u64::from(cell) / u64::from(count)) as u32;
        let device =
            |device: &Option<String>, pool: &PoolId| device.clone().unwrap_or_else(|| pool.to_string());
        let pool = cluster.pools().iter().map(|pool| Pool {
            id: pool.id.clone(),
            device: device(&pool.device, &pool.id),
            nodes: until(pool.nodes, cell + 1) - until(pool.nodes, cell),
            gpus_per_node: pool.gpus_per_node,
            gpus: None,
            host_cores: None,
            host_memory_bytes: None,
            network_bytes_per_second: None,
            gpu_memory_bytes: Some(pool.memory_bytes.unwrap_or(ENDLESS)),
            price_per_gpu_hour: None,
        });
        let of_allocator = Options {
            limit: options.limit_ratio,
            sharing: vec![MODE],
            pairs: options.pairs,
            share_across_tenants: true,
            horizon_seconds: options.horizon_seconds,
            // Ten times as many make JCT no shorter, and take half of the time.
            search: 10_000,
            ..Options::default()
        };
        Self {
            pools: cluster.pools().iter().map(|pool| pool.id.clone()).collect(),
            allocator: Allocator::new(Cluster { pool: pool.collect() }, of_allocator),
            profiles: Profiles::default(),
            shares: options.pairing == Pairing::Joint,
            workloads: BTreeMap::new(),
            table: None,
            prices: None,
        }
    }

    /// Learns of workloads that have not been here before.
    pub(super) fn meet(&mut self, round: &Round<'_, '_>) {
        for &job in round.arrived() {
            let name = &round.job(job).workload;
            if !self.workloads.contains_key(name)
                && let Ok(id) = WorkloadId::new(format!("w{}", self.workloads.len()))
            {
                self.workloads.insert(name.clone(), (id, job));
                self.table = None;
            }
        }
    }

    /// What one GPU of a pool costs at the prices of the last solution.
    pub(super) fn slot_price(&self, pool: usize) -> f64 {
        let prices = self.prices.iter().flat_map(|prices| &prices.prices);
        let mut slots = prices.filter(|price| price.resource == Resource::GpuSlots);
        slots.find(|price| price.pool == self.pools[pool]).map_or(0.0, |price| price.value_per_unit)
    }

    /// Every candidate gets a target that the cell could hold at all.
    pub(super) fn solve(
        &mut self,
        round: &Round<'_, '_>,
        candidates: &[Candidate],
    ) -> Result<Vec<(usize, Target)>, Error> {
        if self.shares && self.table.is_none() {
            self.table = Some(self.pair_table(round));
        }
        let mut known = Jobs::default();
        let mut targets: BTreeMap<usize, Target> = BTreeMap::new();
        for candidate in candidates {
            if let Some(job) = self.job(round, candidate) {
                known.job.push(job);
                targets.insert(candidate.job, Target::Wait);
            }
        }
        let placement =
            self.allocator.solve_with(&known, &self.profiles, self.table.as_ref(), self.prices.as_ref())?;
        for assignment in &placement.assignments {
            let Some(job) = number(&assignment.job) else { continue };
            let Some(pool) = self.pools.iter().position(|pool| *pool == assignment.pool) else { continue };
            let shape = Shape { pool, gpus: assignment.shape.gpus };
            let other = assignment.beside.as_ref().and_then(|beside| number(&beside.job));
            targets.insert(job, other.map_or(Target::Alone(shape), |other| Target::Beside(other, shape)));
        }
        self.prices = Some(placement.prices);
        Ok(targets.into_iter().collect())
    }

    fn job(&self, round: &Round<'_, '_>, candidate: &Candidate) -> Option<Job> {
        let Candidate { job, weight, ref shapes } = *candidate;
        let pools = &self.allocator.cluster().pool;
        let holds = |shape: &Shape| shape.gpus <= pools[shape.pool].gpu_count();
        shapes.iter().find(|(shape, _)| holds(shape))?;
        let traced = round.job(job);
        let workload = self.workloads.get(&traced.workload).map(|(id, _)| id.clone());
        let mut known = Job::new(id(job)?, workload);
        known.kind = Some(kind(traced));
        // What the trace does not say is not looked at; the allocator would refuse to share on it.
        known.memory_bytes = Some(traced.memory_bytes.unwrap_or(1.0));
        known.switch_seconds = round.options().restart_seconds;
        known.gpus_min = shapes.iter().map(|(shape, _)| shape.gpus).min()?;
        known.gpus_max = shapes.iter().map(|(shape, _)| shape.gpus).max();
        // The allocator measures throughput against its reference shape: the fastest with the fewest GPUs.
        let least = shapes.iter().filter(|(shape, _)| shape.gpus == known.gpus_min);
        known.weight = weight * least.map(|(_, rate)| *rate).fold(0.0, f64::max);
        known.shape = shapes
            .iter()
            .map(|(shape, rate)| {
                let mut measured = MeasuredShape::new(shape.gpus, 1.0 / rate);
                measured.pool = Some(self.pools[shape.pool].clone());
                measured
            })
            .collect();
        if let Some(shape) = round.shape_of(job) {
            let mut current = Current::new(self.pools[shape.pool].clone(), shape.gpus);
            current.beside = round.partner_of(job).and_then(id);
            known.current = Some(current);
        }
        Some(known)
    }

    /// What the planner says of all workloads that have been here.
    fn pair_table(&self, round: &Round<'_, '_>) -> PairTable {
        let pools = &self.allocator.cluster().pool;
        let jobs: BTreeMap<&WorkloadId, usize> =
            self.workloads.values().map(|(id, job)| (id, *job)).collect();
        let devices = pools.iter().map(|pool| pool.device.clone());
        PairTable::from_fn(jobs.keys().map(|id| (*id).clone()), devices, &[MODE], |device, a, b, sharing| {
            let pool = pools.iter().position(|pool| pool.device == device)?;
            let [of_a, of_b] = round.expect(*jobs.get(a)?, *jobs.get(b)?, pool)?;
            Some(PairOutcome {
                sharing: sharing.clone(),
                slowdown: [of_a.0, of_b.0],
                upper: [of_a.1, of_b.1],
                in_domain: true,
            })
        })
    }
}

fn id(job: usize) -> Option<JobId> {
    JobId::new(job.to_string()).ok()
}

fn number(id: &JobId) -> Option<usize> {
    id.as_str().parse().ok()
}
