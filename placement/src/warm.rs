//! What one solution tells the next, by names: jobs may have come and gone between.

use crate::cluster::Cluster;
use crate::dual::Dual;
use crate::instance::{Instance, push_top};
use crate::jobs::Jobs;
use crate::prices::Prices;
use elastico_core::{JobId, PoolId};
use std::collections::BTreeMap;

/// Pair columns of a job that are kept, those nearest to being chosen.
const KEPT: usize = 8;

/// Prices, the pair columns that were of use, and what each job gained.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warm {
    pub(crate) prices: Prices,
    pairs: Vec<(JobId, JobId, PoolId)>,
    surplus: Vec<(JobId, f64)>,
}

impl Warm {
    /// Prices alone.
    pub(crate) fn at(prices: Prices) -> Self {
        Self { prices, ..Self::default() }
    }

    pub(crate) fn of(instance: &Instance<'_>, jobs: &Jobs, dual: &Dual, prices: Prices) -> Self {
        let problem = &instance.problem;
        if problem.pairs.is_empty() {
            return Self::at(prices);
        }
        let mut lists = vec![Vec::new(); problem.jobs()];
        for (at, pair) in problem.pairs.iter().enumerate() {
            let slack = pair.reduced(&dual.prices) - dual.surplus[pair.a] - dual.surplus[pair.b];
            for job in [pair.a, pair.b] {
                push_top(&mut lists[job], KEPT, (slack, at, 0, ()));
            }
        }
        let mut kept: Vec<usize> = lists.into_iter().flatten().map(|(_, at, ..)| at).collect();
        kept.sort_unstable();
        kept.dedup();
        let name = |job: usize| jobs.job[job].id.clone();
        let of = |at: usize| {
            let pair = &problem.pairs[at];
            (name(pair.a), name(pair.b), instance.cluster.pool[pair.pool].id.clone())
        };
        Self {
            prices,
            pairs: kept.into_iter().map(of).collect(),
            surplus: dual.surplus.iter().enumerate().map(|(job, surplus)| (name(job), *surplus)).collect(),
        }
    }

    /// Pairs and gains by the numbers of these jobs and pools; those of others are left out.
    pub(crate) fn known(&self, cluster: &Cluster, jobs: &Jobs) -> (Vec<(usize, usize, usize)>, Vec<f64>) {
        if self.pairs.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let numbers: BTreeMap<&JobId, usize> =
            jobs.job.iter().enumerate().map(|(at, job)| (&job.id, at)).collect();
        let pairs = self.pairs.iter().filter_map(|(a, b, pool)| {
            let pool = cluster.pool.iter().position(|known| known.id == *pool)?;
            Some((*numbers.get(a)?, *numbers.get(b)?, pool))
        });
        let mut surplus = vec![0.0; jobs.job.len()];
        for (job, gained) in &self.surplus {
            if let Some(at) = numbers.get(job) {
                surplus[*at] = *gained;
            }
        }
        (pairs.collect(), surplus)
    }
}
