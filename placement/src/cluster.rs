//! What there is: pools of equal nodes.

use crate::Error;
use crate::input::{self, Format, Source};
use crate::resources::Amounts;
use elastico_core::{CHIPS, Chip, PoolId, chip, suggest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// The pools of a cluster, as `cluster.toml` lists them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The pools, in the order of the file.
    #[serde(default)]
    pub pool: Vec<Pool>,
}

/// Equal nodes with one GPU model. Amounts are those of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// The name of the pool.
    #[schemars(with = "String")]
    pub id: PoolId,
    /// The chip, a name of `elastico_core::CHIPS`, for example `h100`.
    pub device: String,
    /// Nodes.
    pub nodes: u32,
    /// GPUs of one node.
    pub gpus_per_node: u32,
    /// GPUs of the pool where the last node is not full; else nodes × GPUs per node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Processor cores of one node; absent = never short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_cores: Option<f64>,
    /// Host memory of one node; absent = never short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory_bytes: Option<f64>,
    /// Network bandwidth of one node; absent = never short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_bytes_per_second: Option<f64>,
    /// Memory of one GPU where it differs from the chip's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_bytes: Option<f64>,
    /// Money for one GPU for one hour; the currency is the reader's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_gpu_hour: Option<f64>,
}

impl Pool {
    /// The chip's constants. `None` only for a pool that was never validated.
    pub fn chip(&self) -> Option<&'static Chip> {
        chip(&self.device)
    }

    /// GPUs of the pool.
    pub fn gpu_count(&self) -> u32 {
        self.gpus.unwrap_or_else(|| self.nodes.saturating_mul(self.gpus_per_node))
    }

    /// Memory of one GPU in bytes.
    pub fn memory_of_gpu(&self) -> f64 {
        self.gpu_memory_bytes.or_else(|| self.chip().map(|chip| chip.memory.get())).unwrap_or(0.0)
    }

    /// GPUs of each node, the last one perhaps not full.
    pub(crate) fn gpus_of_nodes(&self) -> Vec<u32> {
        let mut left = self.gpu_count();
        let mut nodes = Vec::new();
        while left > 0 && self.gpus_per_node > 0 {
            let gpus = left.min(self.gpus_per_node);
            nodes.push(gpus);
            left -= gpus;
        }
        nodes
    }

    /// What a node with so many GPUs has; a node that is not full has its part of the host.
    pub(crate) fn amounts_of_node(&self, gpus: u32) -> Amounts {
        self.amounts_of(gpus, self.memory_of_gpu())
    }

    /// The same where the memory of a GPU is at hand.
    pub(crate) fn amounts_of(&self, gpus: u32, memory_of_gpu: f64) -> Amounts {
        let part = f64::from(gpus) / f64::from(self.gpus_per_node.max(1));
        let of_host = |amount: Option<f64>| amount.map_or(f64::INFINITY, |amount| amount * part);
        [
            f64::from(gpus),
            f64::from(gpus) * memory_of_gpu,
            of_host(self.host_cores),
            of_host(self.host_memory_bytes),
            of_host(self.network_bytes_per_second),
        ]
    }

    /// What the whole pool has.
    pub(crate) fn amounts(&self) -> Amounts {
        let mut total = [0.0; crate::resources::RESOURCES];
        let memory_of_gpu = self.memory_of_gpu();
        for gpus in self.gpus_of_nodes() {
            for (sum, amount) in total.iter_mut().zip(self.amounts_of(gpus, memory_of_gpu)) {
                *sum += amount;
            }
        }
        total
    }
}

/// GPUs of a pool at most: ten times the largest that is known, and small enough to seat one by one.
pub(crate) const MOST_GPUS: u64 = 1_000_000;

impl Cluster {
    /// Reads and checks `cluster.toml` or `cluster.json`.
    ///
    /// # Errors
    /// [`Error`] with file, line, field, value and rule.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let format = input::format_of(path)?;
        let text = input::read(path)?;
        match format {
            Format::Toml => Self::from_toml(&text, path),
            Format::Json => Self::checked(input::json(&text, path)?, &text, path, Format::Json),
            Format::Csv => Err(Error::Format { path: path.to_owned() }),
        }
    }

    /// Reads and checks a cluster from TOML; `file` is only for messages.
    ///
    /// # Errors
    /// [`Error`] with file, line, field, value and rule.
    pub fn from_toml(text: &str, file: &Path) -> Result<Self, Error> {
        Self::checked(input::toml(text, file)?, text, file, Format::Toml)
    }

    fn checked(cluster: Self, text: &str, file: &Path, format: Format) -> Result<Self, Error> {
        let source = Source { file: file.to_owned(), text, format, table: "pool" };
        let mut ids = BTreeSet::new();
        for (index, pool) in cluster.pool.iter().enumerate() {
            let entry = (index, pool.id.as_str());
            if !ids.insert(&pool.id) {
                return Err(source.refuse(entry, "id", &pool.id, "another pool has that id", None));
            }
            if pool.chip().is_none() {
                let near = suggest(&pool.device, CHIPS.iter().map(|chip| chip.name));
                let all = CHIPS.iter().map(|chip| chip.name).collect::<Vec<_>>().join(", ");
                return Err(source.refuse(
                    entry,
                    "device",
                    format!("`{}`", pool.device),
                    "there is no such chip",
                    Some(
                        near.map_or(format!("the chips are {all}"), |near| format!("did you mean `{near}`?")),
                    ),
                ));
            }
            if pool.nodes > 0 && pool.gpus_per_node == 0 {
                return Err(source.refuse(entry, "gpus_per_node", 0, "a node needs at least 1 GPU", None));
            }
            if u64::from(pool.nodes) * u64::from(pool.gpus_per_node) > MOST_GPUS {
                return Err(source.refuse(
                    entry,
                    "nodes",
                    pool.nodes,
                    "a pool has at most 1,000,000 GPUs",
                    None,
                ));
            }
            if let Some(gpus) = pool.gpus.filter(|gpus| *gpus > pool.nodes.saturating_mul(pool.gpus_per_node))
            {
                return Err(source.refuse(
                    entry,
                    "gpus",
                    gpus,
                    "it must be at most nodes × gpus_per_node",
                    None,
                ));
            }
            source.number(entry, "host_cores", pool.host_cores, 0.0, false)?;
            source.number(entry, "host_memory_bytes", pool.host_memory_bytes, 0.0, false)?;
            source.number(entry, "network_bytes_per_second", pool.network_bytes_per_second, 0.0, false)?;
            source.number(entry, "gpu_memory_bytes", pool.gpu_memory_bytes, 0.0, true)?;
            source.number(entry, "price_per_gpu_hour", pool.price_per_gpu_hour, 0.0, false)?;
        }
        Ok(cluster)
    }

    /// GPUs of all pools.
    pub fn gpu_count(&self) -> u32 {
        self.pool.iter().map(Pool::gpu_count).sum()
    }

    /// A copy that shares no text with this one.
    pub(crate) fn apart(&self) -> Self {
        let mut copy = self.clone();
        for pool in &mut copy.pool {
            pool.id = pool.id.apart();
        }
        copy
    }

    /// The pool of an id.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the nearest id.
    pub fn get(&self, id: &str) -> Result<&Pool, Error> {
        self.pool
            .iter()
            .find(|pool| pool.id.as_str() == id)
            .ok_or_else(|| Error::unknown("pool", id, self.pool.iter().map(|pool| pool.id.as_str())))
    }
}
