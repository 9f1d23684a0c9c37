//! Nodes and their GPUs.

use crate::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Equal nodes; `n32g4` on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSpec {
    /// Nodes.
    pub nodes: u32,
    /// GPUs of each node.
    pub gpus_per_node: u32,
}

/// More GPUs than any cluster has; a larger number is a slip of the finger.
const MOST_GPUS: u64 = 10_000_000;

impl ClusterSpec {
    /// A cluster of equal nodes.
    ///
    /// # Errors
    /// No nodes, no GPUs, or more than ten million GPUs.
    pub fn new(nodes: u32, gpus_per_node: u32) -> Result<Self, Error> {
        let gpus = u64::from(nodes) * u64::from(gpus_per_node);
        if (1..=MOST_GPUS).contains(&gpus) {
            Ok(Self { nodes, gpus_per_node })
        } else {
            Err(Error::Cluster(format!("n{nodes}g{gpus_per_node}")))
        }
    }

    /// All GPUs.
    pub const fn gpus(&self) -> u32 {
        self.nodes * self.gpus_per_node
    }

    /// Reads a cluster file of Tiresias: `num_switch,num_node_p_switch,num_gpu_p_node,…`, one line of numbers.
    ///
    /// # Errors
    /// A missing column, or a number that cannot be, with its line and column.
    pub fn read_tiresias(path: &Path) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.into(), source })?;
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
        let values: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
        let number = |column: &'static str| {
            let index = header.iter().position(|name| *name == column).ok_or_else(|| Error::Column {
                path: path.into(),
                column: column.to_owned(),
                found: elastico_core::suggest(column, header.iter().copied()).map(str::to_owned),
                expects: "a cluster file has the columns num_switch,num_node_p_switch,num_gpu_p_node"
                    .to_owned(),
            })?;
            let text = values.get(index).copied().unwrap_or_default();
            text.parse::<u32>().map_err(|_| Error::Value {
                path: path.into(),
                line: 2,
                column: column.to_owned(),
                why: format!("`{text}` is no count"),
            })
        };
        let nodes = number("num_switch")?.saturating_mul(number("num_node_p_switch")?);
        Self::new(nodes, number("num_gpu_p_node")?)
    }
}

impl fmt::Display for ClusterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("n{}g{}", self.nodes, self.gpus_per_node))
    }
}

impl FromStr for ClusterSpec {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Cluster(text.to_owned());
        let (nodes, gpus) = text.strip_prefix('n').and_then(|rest| rest.split_once('g')).ok_or_else(wrong)?;
        Self::new(nodes.parse().map_err(|_| wrong())?, gpus.parse().map_err(|_| wrong())?)
    }
}

/// GPUs on nodes: `(node, GPUs)`.
pub(crate) type Place = Vec<(u32, u32)>;

/// Which GPUs are free. A job that fits one node gets one node; a larger one gets whole nodes and a rest.
#[derive(Debug)]
pub(crate) struct FreeGpus {
    free: Vec<u32>,
    // Nodes by free GPUs, so that best fit need not look at every node.
    by_free: Vec<BTreeSet<u32>>,
    total: u32,
}

impl FreeGpus {
    pub(crate) fn new(spec: ClusterSpec) -> Self {
        let size = spec.gpus_per_node as usize;
        let mut by_free = vec![BTreeSet::new(); size + 1];
        by_free[size] = (0..spec.nodes).collect();
        Self { free: vec![spec.gpus_per_node; spec.nodes as usize], by_free, total: spec.gpus() }
    }

    pub(crate) const fn total(&self) -> u32 {
        self.total
    }

    pub(crate) fn of_node(&self, node: u32) -> u32 {
        self.free[node as usize]
    }

    /// Best fit: the fullest node that still holds the job.
    pub(crate) fn take(&mut self, gpus: u32) -> Option<Place> {
        if gpus > self.total {
            return None;
        }
        let size = (self.by_free.len() - 1) as u32;
        let (whole, rest) = if gpus <= size { (0, gpus) } else { (gpus / size, gpus % size) };
        let empty = &self.by_free[size as usize];
        if (empty.len() as u32) < whole {
            return None;
        }
        let mut place: Place = empty.iter().take(whole as usize).map(|node| (*node, size)).collect();
        if rest > 0 {
            let fitting = self.by_free[rest as usize..].iter().flatten();
            let node = fitting.copied().find(|node| !place.iter().any(|(taken, _)| taken == node))?;
            place.push((node, rest));
        }
        for (node, count) in &place {
            self.shift(*node, self.free[*node as usize] - count);
        }
        Some(place)
    }

    pub(crate) fn give_back(&mut self, place: &[(u32, u32)]) {
        for (node, count) in place {
            self.shift(*node, self.free[*node as usize] + count);
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
    fn the_text_form_round_trips_and_nonsense_is_refused() {
        assert_eq!("n32g4".parse::<ClusterSpec>().unwrap().to_string(), "n32g4");
        for text in ["", "32x4", "n0g4", "n4g0", "n-1g4", "n4g4x", "n4294967295g4294967295"] {
            assert!(text.parse::<ClusterSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn small_jobs_fill_up_nodes_and_large_ones_take_whole_nodes() {
        let mut gpus = FreeGpus::new(ClusterSpec::new(3, 4).unwrap());
        assert_eq!(gpus.take(3), Some(vec![(0, 3)]));
        assert_eq!(gpus.take(1), Some(vec![(0, 1)]));
        assert_eq!(gpus.take(6), Some(vec![(1, 4), (2, 2)]));
        assert_eq!(gpus.take(3), None);
        gpus.give_back(&[(1, 4), (2, 2)]);
        assert_eq!(gpus.total(), 8);
        assert_eq!(gpus.take(2), Some(vec![(1, 2)]));
        assert_eq!(gpus.take(5), Some(vec![(2, 4), (1, 1)]));
        assert_eq!(gpus.take(2), None, "one GPU is left");
    }
}
