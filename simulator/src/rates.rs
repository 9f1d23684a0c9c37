//! Rates of jobs and slowdowns of pairs by index, so that a round looks up and never asks by name.

use crate::tables::{Oracle, PairSlowdown, Tables};
use crate::{ClusterSpec, Error, Trace, TraceJob};
use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};

/// Where a job runs: so many GPUs of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// Index of the pool in the cluster.
    pub pool: usize,
    /// GPUs.
    pub gpus: u32,
}

/// A shape and what the planner expects of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapeRate {
    /// The shape.
    pub shape: Shape,
    /// Isolated seconds of the trace's duration done in each second; 1 on the GPUs that the job asks for.
    pub rate: f64,
}

/// Jobs that run alike: one workload, one reference, one range of GPUs.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) workload: u32,
    least: u32,
    most: u32,
    // By pool and GPUs - least; NaN = cannot run so.
    truth: Vec<f64>,
    planner: Vec<f64>,
    /// What policies choose from: powers of two, the ends of the range and the request.
    pub(crate) shapes: Vec<ShapeRate>,
    /// The pools on which it runs as it asks to, the fastest first.
    pub(crate) requested: Vec<Shape>,
}

impl Class {
    fn index(&self, shape: Shape) -> Option<usize> {
        let width = (self.most - self.least + 1) as usize;
        (self.least..=self.most)
            .contains(&shape.gpus)
            .then(|| shape.pool * width + (shape.gpus - self.least) as usize)
    }

    pub(crate) fn truth(&self, shape: Shape) -> Option<f64> {
        self.truth.get(self.index(shape)?).copied().filter(|rate| !rate.is_nan())
    }

    pub(crate) fn planner(&self, shape: Shape) -> Option<f64> {
        self.truth(shape)?;
        self.planner.get(self.index(shape)?).copied().filter(|rate| !rate.is_nan())
    }
}

/// Everything that the tables say about a trace on a cluster.
#[derive(Debug)]
pub(crate) struct Rates<'a> {
    pub(crate) classes: Vec<Class>,
    workloads: Vec<&'a str>,
    devices: Vec<Option<&'a str>>,
    device_of_pool: Vec<usize>,
    tables: Option<Tables<'a>>,
    pairs: OnceCell<Pairs>,
}

#[derive(Debug)]
struct Pairs {
    truth: Vec<Option<PairSlowdown>>,
    planner: Vec<Option<PairSlowdown>>,
    // Pairs of workloads that a policy asked about and the truth does not know.
    unknown: Vec<Cell<bool>>,
}

/// Whether a job may run on the device of a pool; a pool without one is any.
pub(crate) fn allows(job: &TraceJob, pool: &crate::PoolSpec) -> bool {
    let Some(device) = &pool.device else { return true };
    job.devices.is_empty() || job.devices.contains(device)
}

impl<'a> Rates<'a> {
    /// The rates, and the class of each job.
    pub(crate) fn new(
        trace: &'a Trace,
        cluster: &'a ClusterSpec,
        tables: Option<&Tables<'a>>,
    ) -> Result<(Self, Vec<u32>), Error> {
        let jobs = trace.jobs();
        let names: BTreeSet<&str> = jobs.iter().map(|job| job.workload.as_str()).collect();
        let workloads: Vec<&str> = names.into_iter().collect();
        let mut devices: Vec<Option<&str>> = Vec::new();
        let mut device_of_pool = Vec::new();
        for pool in cluster.pools() {
            let device = pool.device.as_deref();
            let known = devices.iter().position(|other| *other == device);
            device_of_pool.push(known.unwrap_or(devices.len()));
            if known.is_none() {
                devices.push(device);
            }
        }
        let mut rates = Self {
            classes: Vec::new(),
            workloads,
            devices,
            device_of_pool,
            tables: tables.copied(),
            pairs: OnceCell::new(),
        };
        let mut known = BTreeMap::new();
        let mut of_jobs = Vec::with_capacity(jobs.len());
        for job in jobs {
            let key = (
                job.workload.as_str(),
                job.device.as_deref(),
                job.gpus,
                job.gpus_min,
                job.gpus_max,
                job.devices.as_slice(),
            );
            let class = match known.get(&key) {
                Some(class) => *class,
                None => {
                    let class = rates.classes.len() as u32;
                    rates.classes.push(rates.class(job, cluster)?);
                    known.insert(key, class);
                    class
                }
            };
            of_jobs.push(class);
        }
        Ok((rates, of_jobs))
    }

    fn class(&self, job: &TraceJob, cluster: &ClusterSpec) -> Result<Class, Error> {
        let pools = cluster.pools();
        let suitable = || pools.iter().filter(|pool| allows(job, pool));
        let Some(capacity) = suitable().map(crate::PoolSpec::gpus).max() else {
            return Err(Error::NoDevice { job: job.job.to_string(), devices: job.devices.clone() });
        };
        if !suitable().any(|pool| pool.holds(job.gpus)) {
            let is_bound = suitable().count() < pools.len();
            let devices = if is_bound { job.devices.clone() } else { Vec::new() };
            return Err(Error::TooLarge { job: job.job.to_string(), gpus: job.gpus, devices, capacity });
        }
        let largest = pools.iter().map(crate::PoolSpec::gpus).max().unwrap_or_default();
        let (least, most) = job.gpu_range().into_inner();
        let most = most.min(largest.max(job.gpus));
        let all = |oracle: Option<&dyn Oracle>| -> Vec<f64> {
            let mut rates = Vec::with_capacity(pools.len() * (most - least + 1) as usize);
            for (index, pool) in pools.iter().enumerate() {
                let will_do = allows(job, pool);
                for gpus in least..=most {
                    let rate =
                        (will_do && pool.holds(gpus)).then(|| self.rate(oracle, job, index, gpus)).flatten();
                    rates.push(rate.filter(|rate| rate.is_finite() && *rate > 0.0).unwrap_or(f64::NAN));
                }
            }
            rates
        };
        let mut class = Class {
            workload: self.workloads.binary_search(&job.workload.as_str()).unwrap_or_default() as u32,
            least,
            most,
            truth: all(self.tables.map(|tables| tables.truth)),
            planner: all(self.tables.map(|tables| tables.planner)),
            shapes: Vec::new(),
            requested: Vec::new(),
        };
        let mut requested = Vec::new();
        for pool in 0..pools.len() {
            for gpus in least..=most {
                let is_offered = gpus.is_power_of_two() || [least, most, job.gpus].contains(&gpus);
                let shape = Shape { pool, gpus };
                if let Some(rate) = class.planner(shape).filter(|_| is_offered) {
                    class.shapes.push(ShapeRate { shape, rate });
                    if gpus == job.gpus {
                        requested.push(ShapeRate { shape, rate });
                    }
                }
            }
        }
        // Stable: equally fast pools stay in the order of the cluster.
        requested.sort_by(|a, b| b.rate.total_cmp(&a.rate));
        class.requested = requested.into_iter().map(|rate| rate.shape).collect();
        if class.requested.is_empty() {
            return Err(Error::NoShape {
                job: job.job.to_string(),
                workload: job.workload.clone(),
                gpus: job.gpus,
                device: job.device.clone(),
            });
        }
        Ok(class)
    }

    /// The rate of a job alone on so many GPUs of a pool, against what its trace says.
    fn rate(&self, oracle: Option<&dyn Oracle>, job: &TraceJob, pool: usize, gpus: u32) -> Option<f64> {
        let reference = job.device.as_deref();
        // A pool without a device is the device that the job means, a job without one means that of the pool.
        let device = self.devices[self.device_of_pool[pool]].or(reference);
        let reference = reference.or(device);
        if device == reference && gpus == job.gpus {
            return Some(1.0);
        }
        let oracle = oracle?;
        let speed = |device, gpus| oracle.speed(&job.workload, device, gpus);
        if let (Some(here), Some(there)) = (speed(device, gpus), speed(reference, job.gpus)) {
            return Some(here / there);
        }
        if device != reference {
            return None;
        }
        Some(oracle.growth(&job.workload, gpus)? / oracle.growth(&job.workload, job.gpus)?)
    }

    fn pairs(&self) -> Option<&Pairs> {
        let tables = self.tables?;
        Some(self.pairs.get_or_init(|| {
            let all = |oracle: &dyn Oracle| {
                let mut pairs = Vec::with_capacity(self.devices.len() * self.workloads.len().pow(2));
                for device in &self.devices {
                    for subject in &self.workloads {
                        pairs.extend(
                            self.workloads.iter().map(|co_runner| oracle.pair(subject, co_runner, *device)),
                        );
                    }
                }
                pairs
            };
            let truth = all(tables.truth);
            Pairs { unknown: vec![Cell::new(false); truth.len()], truth, planner: all(tables.planner) }
        }))
    }

    fn index(&self, subject: u32, co_runner: u32, pool: usize) -> usize {
        let size = self.workloads.len();
        (self.device_of_pool[pool] * size + subject as usize) * size + co_runner as usize
    }

    /// The slowdown that happens; what is asked for in vain is counted.
    pub(crate) fn truth(&self, subject: u32, co_runner: u32, pool: usize) -> Option<PairSlowdown> {
        let pairs = self.pairs()?;
        let index = self.index(subject, co_runner, pool);
        if pairs.truth[index].is_none() {
            pairs.unknown[index].set(true);
        }
        pairs.truth[index]
    }

    pub(crate) fn planner(&self, subject: u32, co_runner: u32, pool: usize) -> Option<PairSlowdown> {
        self.pairs()?.planner[self.index(subject, co_runner, pool)]
    }

    /// Everything that the planner expects and the truth knows, by subject, co-runner and pool.
    pub(crate) fn expected(&self, pools: usize) -> Vec<(&'a str, &'a str, usize, PairSlowdown)> {
        let Some(pairs) = self.pairs() else { return Vec::new() };
        let mut expected = Vec::new();
        for pool in 0..pools {
            for (a, subject) in self.workloads.iter().enumerate() {
                for (b, co_runner) in self.workloads.iter().enumerate() {
                    let index = self.index(a as u32, b as u32, pool);
                    if let Some(pair) = pairs.planner[index].filter(|_| pairs.truth[index].is_some()) {
                        expected.push((*subject, *co_runner, pool, pair));
                    }
                }
            }
        }
        expected
    }

    /// Ordered pairs of workloads that were asked for and that the truth does not know.
    pub(crate) fn unknown(&self) -> usize {
        self.pairs.get().map_or(0, |pairs| pairs.unknown.iter().filter(|unknown| unknown.get()).count())
    }
}
