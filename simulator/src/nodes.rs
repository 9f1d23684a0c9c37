//! Who holds GPUs of which node, and which nodes have changed.

use crate::ClusterSpec;
use crate::places::Place;

/// Jobs by pool and node.
#[derive(Debug)]
pub(crate) struct Nodes {
    pools: Vec<Vec<Node>>,
    clock: u64,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// Jobs and the GPUs that they hold here.
    jobs: Vec<(usize, u32)>,
    changed: u64,
}

impl Nodes {
    pub(crate) fn new(cluster: &ClusterSpec) -> Self {
        let pools = cluster.pools().iter();
        Self { pools: pools.map(|pool| vec![Node::default(); pool.nodes as usize]).collect(), clock: 0 }
    }

    /// Counts changes.
    pub(crate) const fn clock(&self) -> u64 {
        self.clock
    }

    pub(crate) fn touch(&mut self, pool: usize, node: u32) {
        self.clock += 1;
        self.pools[pool][node as usize].changed = self.clock;
    }

    pub(crate) fn add(&mut self, job: usize, pool: usize, place: &Place) {
        for (node, count) in place {
            self.touch(pool, *node);
            self.pools[pool][*node as usize].jobs.push((job, *count));
        }
    }

    pub(crate) fn remove(&mut self, job: usize, pool: usize, place: &Place) {
        for (node, _) in place {
            self.touch(pool, *node);
            self.pools[pool][*node as usize].jobs.retain(|(other, _)| *other != job);
        }
    }

    /// Nodes that have changed after the clock stood at `since`, with the jobs on them.
    pub(crate) fn changed_since(
        &self,
        pool: usize,
        since: Option<u64>,
    ) -> impl Iterator<Item = (u32, &[(usize, u32)])> {
        let is_new = move |node: &Node| since.is_none_or(|since| node.changed > since);
        let nodes = (0..).zip(&self.pools[pool]).filter(move |(_, node)| is_new(node));
        nodes.map(|(index, node)| (index, node.jobs.as_slice()))
    }
}
