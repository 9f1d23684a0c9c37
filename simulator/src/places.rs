//! Which GPUs of a pool are free.

use crate::PoolSpec;
use std::collections::BTreeSet;

/// GPUs on nodes of one pool: `(node, GPUs)`.
pub(crate) type Place = Vec<(u32, u32)>;

/// A job that fits one node gets one node; a larger one gets whole nodes and a rest.
#[derive(Debug)]
pub(crate) struct FreeGpus {
    free: Vec<u32>,
    // Nodes by free GPUs, so that best fit need not look at every node.
    by_free: Vec<BTreeSet<u32>>,
    down: BTreeSet<u32>,
    total: u32,
}

impl FreeGpus {
    pub(crate) fn new(pool: &PoolSpec) -> Self {
        let size = pool.gpus_per_node as usize;
        let mut by_free = vec![BTreeSet::new(); size + 1];
        by_free[size] = (0..pool.nodes).collect();
        Self {
            free: vec![pool.gpus_per_node; pool.nodes as usize],
            by_free,
            down: BTreeSet::new(),
            total: pool.gpus(),
        }
    }

    pub(crate) const fn total(&self) -> u32 {
        self.total
    }

    pub(crate) const fn size(&self) -> u32 {
        (self.by_free.len() - 1) as u32
    }

    pub(crate) const fn nodes(&self) -> u32 {
        self.free.len() as u32
    }

    pub(crate) fn of_node(&self, node: u32) -> u32 {
        self.free[node as usize]
    }

    /// Free GPUs of the emptiest node.
    pub(crate) fn largest(&self) -> u32 {
        let largest = self.by_free.iter().rposition(|nodes| !nodes.is_empty());
        largest.unwrap_or_default() as u32
    }

    /// GPUs held by jobs.
    pub(crate) fn held(&self) -> u32 {
        (self.nodes() - self.down.len() as u32) * self.size() - self.total
    }

    pub(crate) fn is_any_down(&self) -> bool {
        !self.down.is_empty()
    }

    /// Best fit: the fullest node that still holds the job.
    pub(crate) fn take(&mut self, gpus: u32) -> Option<Place> {
        let place = self.find(gpus)?;
        self.hold(&place);
        Some(place)
    }

    /// GPUs on more nodes than needed, the emptiest first.
    pub(crate) fn take_spread(&mut self, gpus: u32) -> Option<Place> {
        if gpus > self.total {
            return None;
        }
        let mut left = gpus;
        let mut place = Place::new();
        for (free, nodes) in self.by_free.iter().enumerate().skip(1).rev() {
            for node in nodes {
                if left > 0 {
                    let count = left.min(free as u32);
                    place.push((*node, count));
                    left -= count;
                }
            }
        }
        self.hold(&place);
        Some(place)
    }

    /// Whether a job would find a place on as few nodes as can be.
    pub(crate) fn fits(&self, gpus: u32) -> bool {
        let size = self.size();
        if gpus > self.total {
            false
        } else if gpus <= size {
            self.by_free[gpus as usize..].iter().any(|nodes| !nodes.is_empty())
        } else {
            self.find(gpus).is_some()
        }
    }

    fn find(&self, gpus: u32) -> Option<Place> {
        if gpus > self.total {
            return None;
        }
        let size = self.size();
        let (whole, rest) = if gpus <= size { (0, gpus) } else { (gpus / size, gpus % size) };
        let empty = &self.by_free[size as usize];
        if (empty.len() as u32) < whole {
            return None;
        }
        let mut place: Place = empty.iter().take(whole as usize).map(|node| (*node, size)).collect();
        if rest > 0 {
            // Of the empty nodes the first `whole` are taken already.
            let fitting = self.by_free[rest as usize..size as usize].iter().flatten().next();
            let node = fitting.or_else(|| empty.iter().nth(whole as usize))?;
            place.push((*node, rest));
        }
        Some(place)
    }

    pub(crate) fn hold(&mut self, place: &[(u32, u32)]) {
        for (node, count) in place {
            self.shift(*node, self.free[*node as usize] - count);
        }
    }

    pub(crate) fn give_back(&mut self, place: &[(u32, u32)]) {
        for (node, count) in place {
            self.shift(*node, self.free[*node as usize] + count);
        }
    }

    /// Takes an empty node out of service.
    pub(crate) fn fail(&mut self, node: u32) {
        self.shift(node, 0);
        self.down.insert(node);
    }

    pub(crate) fn repair(&mut self, node: u32) {
        if self.down.remove(&node) {
            self.shift(node, self.size());
        }
    }

    fn shift(&mut self, node: u32, free: u32) {
        let before = std::mem::replace(&mut self.free[node as usize], free);
        self.by_free[before as usize].remove(&node);
        self.by_free[free as usize].insert(node);
        self.total = self.total - before + free;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_jobs_fill_up_nodes_and_large_ones_take_whole_nodes() {
        let mut gpus = FreeGpus::new(&"n3g4".parse().unwrap());
        assert_eq!(gpus.take(3), Some(vec![(0, 3)]));
        assert_eq!(gpus.take(1), Some(vec![(0, 1)]));
        assert_eq!(gpus.take(6), Some(vec![(1, 4), (2, 2)]));
        assert_eq!(gpus.take(3), None);
        gpus.give_back(&[(1, 4), (2, 2)]);
        assert_eq!((gpus.total(), gpus.held()), (8, 4));
        assert_eq!(gpus.take(2), Some(vec![(1, 2)]));
        assert_eq!(gpus.take(5), Some(vec![(2, 4), (1, 1)]));
        assert_eq!(gpus.take(2), None, "one GPU is left");
    }

    #[test]
    fn a_job_may_be_spread_and_a_node_may_fail() {
        let mut gpus = FreeGpus::new(&"n2g2".parse().unwrap());
        gpus.take(1);
        gpus.fail(1);
        assert_eq!((gpus.total(), gpus.held(), gpus.fits(2)), (1, 1, false));
        gpus.repair(1);
        assert_eq!(gpus.take_spread(3), Some(vec![(1, 2), (0, 1)]));
        assert_eq!((gpus.total(), gpus.held()), (0, 4));
    }
}
