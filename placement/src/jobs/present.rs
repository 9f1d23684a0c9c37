//! Whether what the jobs say about the present can be: on these pools, nodes and GPUs, and beside whom.

use super::{Current, Job, Jobs};
use crate::Error;
use crate::cluster::Cluster;
use crate::input::Source;
use elastico_core::{JobId, PoolId, suggest};
use std::collections::{BTreeMap, BTreeSet};

type Entry<'a> = (usize, &'a str);

const STALE: &str = "give what is true now, or leave `current` out where the job does not run";

impl Jobs {
    /// Checks `current` of every job against the cluster and the other jobs.
    pub(super) fn check_present(&self, cluster: &Cluster, source: &Source<'_>) -> Result<(), Error> {
        let jobs: BTreeMap<&JobId, &Job> = self.job.iter().map(|job| (&job.id, job)).collect();
        let mut owners: BTreeMap<(&PoolId, u32, u32), Vec<&Job>> = BTreeMap::new();
        let mut claims = Claims::default();
        for (index, job) in self.job.iter().enumerate() {
            let Some(current) = &job.current else { continue };
            let entry = (index, job.id.as_str());
            current.check_place(cluster, source, entry)?;
            if let Some(beside) = &current.beside {
                check_co_runner(job, current, beside, &jobs, source, entry)?;
            }
            claims.add(job, current, cluster, source, entry)?;
            for node in &current.nodes {
                for gpu in &node.gpus {
                    let owners = owners.entry((&current.pool, node.node, *gpu)).or_default();
                    let names = |a: &Job, b: &Job| a.co_runner() == Some(&b.id);
                    let stranger = owners
                        .iter()
                        .find(|other| owners.len() > 1 || !(names(job, other) || names(other, job)));
                    if let Some(other) = stranger {
                        let value = format!("GPU {gpu} of node {} of `{}`", node.node, current.pool);
                        let rule = format!("job `{}` has that GPU", other.id);
                        let remedy = "name the co-runner by `beside`, or correct the GPUs".to_owned();
                        return Err(source.refuse(entry, "current", value, rule, Some(remedy)));
                    }
                    owners.push(job);
                }
            }
        }
        Ok(())
    }

    /// Pools that jobs name and the cluster does not have, in words. That is no fault: one file may serve several clusters.
    pub fn unknown_pools(&self, cluster: &Cluster) -> Vec<String> {
        let mut named: BTreeMap<(&PoolId, &str), Vec<&JobId>> = BTreeMap::new();
        for job in &self.job {
            let pools = job.pools.iter().map(|pool| (pool, "pools"));
            let shapes = job.shape.iter().filter_map(|shape| shape.pool.as_ref()).map(|pool| (pool, "shape"));
            let batch = job.batch.iter().filter_map(|point| point.pool.as_ref()).map(|pool| (pool, "batch"));
            let timing = job.goodput.iter().flat_map(|goodput| &goodput.timing);
            let timing = timing.filter_map(|timing| timing.pool.as_ref()).map(|pool| (pool, "timing"));
            let all: BTreeSet<_> = pools.chain(shapes).chain(batch).chain(timing).collect();
            for key in all {
                if !cluster.pool.iter().any(|pool| pool.id == *key.0) {
                    named.entry(key).or_default().push(&job.id);
                }
            }
        }
        let words = named.into_iter().map(|((pool, field), jobs)| {
            let more = if jobs.len() > 1 { format!(" and {} more", jobs.len() - 1) } else { String::new() };
            let near = suggest(pool.as_str(), cluster.pool.iter().map(|pool| pool.id.as_str()));
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            format!("there is no pool `{pool}`, which `{field}` of job `{}`{more} names{near}", jobs[0])
        });
        words.collect()
    }
}

/// What the jobs seen so far say that they have, named GPUs or not.
#[derive(Default)]
struct Claims<'a> {
    gpus: BTreeMap<&'a PoolId, u64>,
    /// Jobs whose GPUs are counted, and who is on the GPU with them.
    counted: BTreeMap<&'a JobId, Option<&'a JobId>>,
    /// Jobs that one of the counted names as its co-runner, and which: either of a pair may name the other.
    named: BTreeMap<&'a JobId, &'a JobId>,
}

impl<'a> Claims<'a> {
    /// Counts the GPUs of a job, those of a pair once. A pool cannot give more than it has.
    fn add(
        &mut self,
        job: &'a Job,
        current: &'a Current,
        cluster: &Cluster,
        source: &Source<'_>,
        entry: Entry<'_>,
    ) -> Result<(), Error> {
        let beside = current.beside.as_ref();
        let refuse = |value: String, rule: String| {
            Err(source.refuse(entry, "current", value, rule, Some(STALE.to_owned())))
        };
        let other = beside
            .filter(|other| self.counted.contains_key(*other))
            .or_else(|| self.named.get(&job.id).copied());
        let third = match (other, beside) {
            (Some(other), _) => self.counted.get(other).copied().flatten(),
            (None, Some(beside)) => self.named.get(beside).copied(),
            (None, None) => None,
        };
        if let (Some(third), Some(beside)) = (third.filter(|third| **third != job.id), beside) {
            return refuse(format!("beside `{beside}`"), format!("job `{third}` runs beside it already"));
        }
        self.counted.insert(&job.id, other.or(beside));
        if let Some(other) = other {
            // The GPU of a pair is counted with the first of them.
            self.counted.insert(other, Some(&job.id));
            return Ok(());
        }
        self.named.extend(beside.map(|beside| (beside, &job.id)));
        let sum = self.gpus.entry(&current.pool).or_default();
        *sum += u64::from(current.gpus);
        let has = cluster.get(current.pool.as_str())?.gpu_count();
        if *sum > u64::from(has) {
            let value = format!("{} of `{}`", gpus(u64::from(current.gpus)), current.pool);
            let rule = format!("with the jobs before it that is {}, the pool has {has}", gpus(*sum));
            return refuse(value, rule);
        }
        Ok(())
    }
}

fn gpus(count: u64) -> String {
    format!("{count} GPU{}", if count == 1 { "" } else { "s" })
}

impl Current {
    fn check_place(&self, cluster: &Cluster, source: &Source<'_>, entry: Entry<'_>) -> Result<(), Error> {
        let refuse = |value: String, rule: String| {
            Err(source.refuse(entry, "current", value, rule, Some(STALE.to_owned())))
        };
        let Some(pool) = cluster.pool.iter().find(|pool| pool.id == self.pool) else {
            let near = suggest(self.pool.as_str(), cluster.pool.iter().map(|pool| pool.id.as_str()));
            let remedy = near.map_or(STALE.to_owned(), |near| format!("did you mean `{near}`?"));
            let rule = "the cluster has no such pool";
            return Err(source.refuse(entry, "current", format!("pool `{}`", self.pool), rule, Some(remedy)));
        };
        if self.gpus > pool.gpu_count() {
            return refuse(
                format!("{} GPUs of `{}`", self.gpus, pool.id),
                format!("the pool has {}", pool.gpu_count()),
            );
        }
        if self.nodes.is_empty() {
            return Ok(());
        }
        let sizes = pool.gpus_of_nodes();
        let mut seen = BTreeSet::new();
        for node in &self.nodes {
            let place = format!("node {} of `{}`", node.node, pool.id);
            let Some(size) = sizes.get(node.node as usize) else {
                return refuse(place, format!("the pool has {} nodes, counted from 0", sizes.len()));
            };
            if !seen.insert(node.node) {
                return refuse(place, "it is named twice: give all GPUs of a node together".to_owned());
            }
            if node.gpus.is_empty() {
                return refuse(place, "no GPU of it is named".to_owned());
            }
            if let Some(gpu) = node.gpus.iter().find(|gpu| *gpu >= size) {
                return refuse(
                    format!("GPU {gpu} of {place}"),
                    format!("the node has {size}, counted from 0"),
                );
            }
            let gpus: BTreeSet<u32> = node.gpus.iter().copied().collect();
            if gpus.len() < node.gpus.len() {
                return refuse(format!("GPUs {:?} of {place}", node.gpus), "one is named twice".to_owned());
            }
        }
        let named: usize = self.nodes.iter().map(|node| node.gpus.len()).sum();
        if named != self.gpus as usize {
            return refuse(format!("gpus = {}", self.gpus), format!("its nodes name {named}"));
        }
        Ok(())
    }
}

fn check_co_runner(
    job: &Job,
    current: &Current,
    beside: &JobId,
    jobs: &BTreeMap<&JobId, &Job>,
    source: &Source<'_>,
    entry: Entry<'_>,
) -> Result<(), Error> {
    let refuse = |rule: String, remedy: String| {
        Err(source.refuse(entry, "current", format!("beside `{beside}`"), rule, Some(remedy)))
    };
    let Some(other) = jobs.get(beside) else {
        let near = suggest(beside.as_str(), jobs.keys().map(|id| id.as_str()));
        let remedy = near.map_or("leave `beside` out where that job has ended".to_owned(), |near| {
            format!("did you mean `{near}`?")
        });
        return refuse("there is no such job".to_owned(), remedy);
    };
    let Some(its) = &other.current else {
        return refuse("that job has no `current`, it waits".to_owned(), STALE.to_owned());
    };
    if let Some(third) = its.beside.as_ref().filter(|third| **third != job.id) {
        return refuse(format!("that job runs beside `{third}`"), STALE.to_owned());
    }
    let elsewhere = its.pool != current.pool
        || (!its.nodes.is_empty() && !current.nodes.is_empty() && its.nodes != current.nodes);
    if elsewhere || its.gpus != current.gpus {
        return refuse("that job has another place".to_owned(), STALE.to_owned());
    }
    Ok(())
}
