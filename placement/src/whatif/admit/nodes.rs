//! More nodes for a job: how few are enough, and on which pools none help.

use super::{Remedy, RemedyKind, Trial};
use crate::Error;
use crate::cluster::{Cluster, MOST_GPUS, Pool};
use crate::jobs::{Job, Jobs};
use crate::shapes::{Dropped, ShapeFamily};
use crate::whatif::WhatIf;
use crate::whatif::resize::resized;
use std::collections::BTreeSet;

/// More nodes of a pool that are tried at most.
pub(super) const MOST_NODES: u32 = 8;

impl WhatIf<'_> {
    /// Why the job has no shape on this pool, however many nodes it has; `None` where it has one with nodes enough. Other pools
    /// that the job may be allowed are a change of their own.
    pub(super) fn forbidden(&self, job: &Job, pool: &Pool) -> Option<Vec<Dropped>> {
        let mut alone = Pool { gpus: None, ..pool.clone() };
        alone.gpus_per_node = alone.gpus_per_node.max(1);
        let most = u32::try_from(MOST_GPUS).unwrap_or(u32::MAX) / alone.gpus_per_node;
        alone.nodes = alone.nodes.max(job.most_gpus().div_ceil(alone.gpus_per_node)).min(most);
        let cluster = Cluster { pool: vec![alone] };
        let family = ShapeFamily::of(job, &cluster, self.profiles, self.allocator.options().scaling);
        if !family.shapes.is_empty() {
            return None;
        }
        let allowed = job.pools.is_empty() || job.pools.contains(&pool.id);
        let mut reasons = if allowed { family.dropped } else { Vec::new() };
        let mut seen = BTreeSet::new();
        reasons.retain(|dropped| seen.insert(dropped.remedy.clone().unwrap_or(dropped.reason.clone())));
        Some(reasons)
    }

    /// The fewest more nodes of a pool with which the job runs: one, two, four, eight, then halving below the first that do.
    pub(super) fn nodes(&self, job: &Job, pool: &Pool, jobs: &Jobs) -> Result<Option<Remedy>, Error> {
        let (mut refused, mut found) = (0, None);
        let mut nodes = 1;
        while nodes <= MOST_NODES {
            let Some(remedy) = self.more_nodes(job, pool, nodes, jobs)? else { break };
            if remedy.admits {
                found = Some((nodes, remedy));
                break;
            }
            refused = nodes;
            nodes *= 2;
        }
        let Some((mut admitted, mut remedy)) = found else {
            // Not even one more node makes a pool that can be.
            return Ok((refused > 0).then(|| Remedy {
                kind: RemedyKind::Node,
                change: format!("up to {} of {} do not help", more(refused, "node"), pool.id),
                admits: false,
                cost_to_others: None,
                money_per_hour: None,
                displaced: Vec::new(),
            }));
        };
        while admitted - refused > 1 {
            let middle = refused + (admitted - refused) / 2;
            match self.more_nodes(job, pool, middle, jobs)? {
                Some(fewer) if fewer.admits => (admitted, remedy) = (middle, fewer),
                _ => refused = middle,
            }
        }
        Ok(Some(remedy))
    }

    /// So many more nodes of a pool; `None` where it cannot be that large.
    fn more_nodes(&self, job: &Job, pool: &Pool, nodes: u32, jobs: &Jobs) -> Result<Option<Remedy>, Error> {
        let gpus = i64::from(nodes) * i64::from(pool.gpus_per_node.max(1));
        let Ok(cluster) = resized(self.allocator.cluster(), &pool.id, gpus) else { return Ok(None) };
        let plural = if gpus == 1 { "" } else { "s" };
        let text = format!("{} of {}, {gpus} GPU{plural}", more(nodes, "node"), pool.id);
        let trial = Trial { cluster, ..self.trial(RemedyKind::Node, text, job.clone()) };
        let mut remedy = self.remedy(&trial, jobs)?;
        remedy.money_per_hour = pool.price_per_gpu_hour.map(|money| money * gpus as f64);
        Ok(Some(remedy))
    }
}

/// `1 more node`, `3 more nodes`.
fn more(count: u32, what: &str) -> String {
    format!("{count} more {what}{}", if count == 1 { "" } else { "s" })
}
