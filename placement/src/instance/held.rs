//! Where jobs sit now, and what is lost where one of them has to leave its GPUs.

use super::Instance;
use crate::cluster::Cluster;
use crate::jobs::Job;
use crate::nodes::Seat;
use crate::problem::Choice;
use std::collections::BTreeMap;

/// The GPUs that a job has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) pool: usize,
    pub(crate) seats: Vec<Seat>,
}

/// The GPUs of every job, as far as the cluster has them and no other job does; empty where no job names any.
pub(super) fn held(cluster: &Cluster, jobs: &[Job]) -> Vec<Option<Held>> {
    let named = |job: &Job| job.current.as_ref().is_some_and(|current| !current.nodes.is_empty());
    if !jobs.iter().any(named) {
        return Vec::new();
    }
    let sizes: Vec<Vec<u32>> = cluster.pool.iter().map(crate::cluster::Pool::gpus_of_nodes).collect();
    let mut owners: BTreeMap<(usize, usize, u32), Vec<usize>> = BTreeMap::new();
    let mut all = Vec::with_capacity(jobs.len());
    for (at, job) in jobs.iter().enumerate() {
        let found = of_job(cluster, &sizes, job).filter(|held| {
            held.gpus().all(|gpu| match owners.get(&gpu).map(Vec::as_slice) {
                None => true,
                Some([other]) => {
                    job.co_runner() == Some(&jobs[*other].id) || jobs[*other].co_runner() == Some(&job.id)
                }
                Some(_) => false,
            })
        });
        if let Some(held) = &found {
            held.gpus().for_each(|gpu| owners.entry(gpu).or_default().push(at));
        }
        all.push(found);
    }
    all
}

fn of_job(cluster: &Cluster, sizes: &[Vec<u32>], job: &Job) -> Option<Held> {
    let current = job.current.as_ref().filter(|current| !current.nodes.is_empty())?;
    let pool = cluster.pool.iter().position(|pool| pool.id == current.pool)?;
    let seats: Vec<Seat> =
        current.nodes.iter().map(|node| Seat { node: node.node as usize, gpus: node.gpus.clone() }).collect();
    let held = Held { pool, seats };
    let exists =
        |(pool, node, gpu): (usize, usize, u32)| sizes[pool].get(node).is_some_and(|size| gpu < *size);
    let mut gpus: Vec<_> = held.gpus().collect();
    let all_exist = gpus.iter().copied().all(exists);
    let count = gpus.len();
    gpus.sort_unstable();
    gpus.dedup();
    (all_exist && gpus.len() == count && count == current.gpus as usize).then_some(held)
}

impl Held {
    fn gpus(&self) -> impl Iterator<Item = (usize, usize, u32)> {
        self.seats.iter().flat_map(|seat| seat.gpus.iter().map(|gpu| (self.pool, seat.node, *gpu)))
    }
}

impl Instance<'_> {
    /// Whether any job says where it sits.
    pub(crate) fn knows_seats(&self) -> bool {
        !self.held.is_empty()
    }

    /// The job on the same GPU now.
    pub(crate) fn beside(&self, job: usize) -> Option<usize> {
        self.facts[job].beside
    }

    /// Where the job sits now.
    pub(crate) fn held(&self, job: usize) -> Option<&Held> {
        self.held.get(job)?.as_ref()
    }

    /// What a job that keeps its shape loses because it leaves its GPUs for these; `None` where it stays, or is restarted
    /// anyway.
    pub(crate) fn moved(&self, job: usize, choice: Choice, seats: &[Seat]) -> Option<f64> {
        let held = self.held(job)?;
        if held.seats == seats {
            return None;
        }
        let (value, restarts) = match choice {
            Choice::Waiting => return None,
            Choice::Single(at) => {
                let column = &self.problem.singles[job][at];
                (column.value, self.worths[job].restarts(&self.family(job).shapes[column.shape]))
            }
            Choice::Pair(at) => {
                let pair = &self.problem.pairs[at];
                let chosen = self.pair_choice(job, pair.a + pair.b - job, pair.pool).ok()?;
                (chosen.values[0], chosen.restarts[0])
            }
        };
        (!restarts).then(|| self.worths[job].lost_by_moving(value))
    }
}
