//! Pools of equal nodes.

use crate::Error;
use elastico_core::{PoolId, chip};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A cluster: one pool, `n8g8` on the command line, or several, `v100:n9g4,p100:n9g4`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterSpec {
    pools: Vec<PoolSpec>,
}

/// Equal nodes with one GPU model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PoolSpec {
    /// Its name; `pool` where the only pool has none.
    pub id: PoolId,
    /// The GPU model, the key into tables of slowdowns and speeds; absent = every job runs as its trace says.
    pub device: Option<String>,
    /// Nodes.
    pub nodes: u32,
    /// GPUs of each node.
    pub gpus_per_node: u32,
    /// Memory of one GPU in bytes, where known: that of the chip, or of the cluster file.
    pub memory_bytes: Option<f64>,
}

/// The name of a pool that was given none.
const UNNAMED: &str = "pool";

/// More GPUs than any cluster has; a larger number is a slip of the finger.
const MOST_GPUS: u64 = 10_000_000;

impl PoolSpec {
    /// A pool; its memory is that of the chip where `device` is the name of one.
    pub fn new(id: PoolId, device: Option<String>, nodes: u32, gpus_per_node: u32) -> Self {
        let memory_bytes = device.as_deref().and_then(chip).map(|chip| chip.memory.get());
        Self { id, device, nodes, gpus_per_node, memory_bytes }
    }

    /// GPUs of the pool.
    pub const fn gpus(&self) -> u32 {
        self.nodes.saturating_mul(self.gpus_per_node)
    }

    pub(crate) fn is_unnamed(&self) -> bool {
        self.id.as_str() == UNNAMED
    }

    /// Whether the empty pool holds a job of so many GPUs on as few nodes as can be.
    pub const fn holds(&self, gpus: u32) -> bool {
        gpus <= self.gpus() && gpus.div_ceil(self.gpus_per_node) <= self.nodes
    }
}

impl ClusterSpec {
    /// One pool of equal nodes without a name.
    ///
    /// # Errors
    /// No nodes, no GPUs, or more than ten million GPUs.
    pub fn new(nodes: u32, gpus_per_node: u32) -> Result<Self, Error> {
        let text = || format!("n{nodes}g{gpus_per_node}");
        let id = PoolId::new(UNNAMED).map_err(|_| Error::Cluster(text()))?;
        Self::of(vec![PoolSpec::new(id, None, nodes, gpus_per_node)])
    }

    /// A cluster of pools.
    ///
    /// # Errors
    /// No pool, two of one name, a pool without GPUs, or more than ten million GPUs.
    pub fn of(pools: Vec<PoolSpec>) -> Result<Self, Error> {
        let mut names = BTreeSet::new();
        let mut gpus = 0;
        let cluster = Self { pools };
        for pool in &cluster.pools {
            let own = u64::from(pool.nodes) * u64::from(pool.gpus_per_node);
            gpus += own;
            if own == 0 || gpus > MOST_GPUS {
                return Err(Error::Cluster(cluster.to_string()));
            }
            if !names.insert(&pool.id) {
                return Err(Error::TwoPools(pool.id.to_string()));
            }
        }
        if cluster.pools.is_empty() {
            return Err(Error::Nothing("pool with nodes"));
        }
        Ok(cluster)
    }

    /// The pools; at least one.
    pub fn pools(&self) -> &[PoolSpec] {
        &self.pools
    }

    /// All GPUs.
    pub fn gpus(&self) -> u32 {
        self.pools.iter().map(PoolSpec::gpus).sum()
    }

    /// GPUs of the largest node.
    pub fn largest_node(&self) -> u32 {
        self.pools.iter().map(|pool| pool.gpus_per_node).max().unwrap_or_default()
    }

    /// Reads a cluster file: `cluster.toml` or `.json` as `elastico place` reads it, else a CSV: of Tiresias, or the
    /// nodes of Alibaba's openb.
    ///
    /// # Errors
    /// As the reader of the format.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        let cluster = match ending.as_deref() {
            Some("toml" | "json") => Self::try_from(&elastico_placement::Cluster::read(path)?),
            _ if crate::trace::is_openb_nodes(path)? => crate::trace::read_openb_nodes(path),
            _ => Self::read_tiresias(path),
        };
        cluster.map_err(|error| match error {
            // These know nothing of a file.
            Error::Nothing(_) | Error::Cluster(_) | Error::TwoPools(_) | Error::PartNode(_) => {
                error.in_file(path, None)
            }
            other => other,
        })
    }

    /// Reads a cluster file of Tiresias: `num_switch,num_node_p_switch,num_gpu_p_node,…`, one line of numbers.
    ///
    /// # Errors
    /// A missing column, or a number that cannot be, with its line and column.
    pub fn read_tiresias(path: &Path) -> Result<Self, Error> {
        let text = crate::document::read(path)?;
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

/// The pools of a cluster file; its host cores, memory and network are not simulated.
impl TryFrom<&elastico_placement::Cluster> for ClusterSpec {
    type Error = Error;

    fn try_from(cluster: &elastico_placement::Cluster) -> Result<Self, Error> {
        let mut pools = Vec::new();
        for pool in cluster.pool.iter().filter(|pool| pool.nodes > 0) {
            if pool.gpu_count() != pool.nodes.saturating_mul(pool.gpus_per_node) {
                return Err(Error::PartNode(pool.id.to_string()));
            }
            let mut spec =
                PoolSpec::new(pool.id.clone(), Some(pool.device.clone()), pool.nodes, pool.gpus_per_node);
            spec.memory_bytes = Some(pool.memory_of_gpu()).filter(|bytes| *bytes > 0.0);
            pools.push(spec);
        }
        Self::of(pools)
    }
}

/// `n8g8`, `v100:n9g4` where the pool is called as its device, `east=h100:n2g8` where not, `east=:n2g8` without device.
impl fmt::Display for PoolSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            None if self.is_unnamed() => {}
            None => write!(f, "{}=:", self.id)?,
            Some(device) if device == self.id.as_str() => write!(f, "{device}:")?,
            Some(device) => write!(f, "{}={device}:", self.id)?,
        }
        write!(f, "n{}g{}", self.nodes, self.gpus_per_node)
    }
}

impl FromStr for PoolSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Cluster(text.to_owned());
        let (name, size) = text.rsplit_once(':').unwrap_or((UNNAMED, text));
        let (id, device) = match name.split_once('=') {
            Some((id, device)) => (id, Some(device)),
            None if size.len() == text.len() => (name, None),
            None => (name, Some(name)),
        };
        let (nodes, gpus) = size.strip_prefix('n').and_then(|rest| rest.split_once('g')).ok_or_else(wrong)?;
        Ok(Self::new(
            PoolId::new(id).map_err(|_| wrong())?,
            device.filter(|device| !device.is_empty()).map(str::to_owned),
            nodes.parse().map_err(|_| wrong())?,
            gpus.parse().map_err(|_| wrong())?,
        ))
    }
}

impl fmt::Display for ClusterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pools: Vec<String> = self.pools.iter().map(ToString::to_string).collect();
        f.pad(&pools.join(","))
    }
}

impl FromStr for ClusterSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::of(text.split(',').map(str::parse).collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_round_trips_and_nonsense_is_refused() {
        for text in ["n32g4", "v100:n9g4,p100:n9g4,k80:n9g4", "east=h100:n2g8,west=:n1g4"] {
            assert_eq!(text.parse::<ClusterSpec>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "32x4",
            "n0g4",
            "n4g0",
            "n-1g4",
            "n4g4x",
            "n4294967295g4294967295",
            "a:n1g1,",
            "a:n1g1,a:n2g2",
            ":n1g1",
            "n1g1,n2g2",
        ] {
            assert!(text.parse::<ClusterSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_cluster_file_of_place_is_read_with_its_memory() {
        let text = "[[pool]]\nid = \"east\"\ndevice = \"h100\"\nnodes = 2\ngpus_per_node = 8\n";
        let read = |text: &str| {
            let cluster = elastico_placement::Cluster::from_toml(text, Path::new("cluster.toml")).unwrap();
            ClusterSpec::try_from(&cluster)
        };
        let spec = read(text).unwrap();
        assert_eq!(spec.to_string(), "east=h100:n2g8");
        assert_eq!(spec.pools()[0].memory_bytes, Some(chip("h100").unwrap().memory.get()));
        assert!(matches!(read(&format!("{text}gpus = 13\n")), Err(Error::PartNode(_))));
    }

    #[test]
    fn a_cluster_file_that_has_no_pool_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let tiresias = "num_switch,num_node_p_switch,num_gpu_p_node\n";
        let zero = format!("{tiresias}1,0,4\n");
        for (name, text, why) in [
            ("none.toml", "", "at least one pool with nodes is needed"),
            ("none.csv", "sn,cpu_milli,memory_mib,gpu,model\n", "at least one pool with nodes is needed"),
            ("zero.csv", zero.as_str(), "`n0g4` is no cluster"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            let error = ClusterSpec::read(&path).unwrap_err().to_string();
            assert_eq!(error, format!("{}: {why}", path.display()));
        }
        let path = folder.path().join("marked.csv");
        std::fs::write(&path, format!("\u{feff}{tiresias}1,2,4\n")).unwrap();
        assert_eq!(ClusterSpec::read(&path).unwrap().to_string(), "n2g4");
    }
}
