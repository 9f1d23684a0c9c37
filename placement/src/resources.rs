//! The five resources that a shape asks of a pool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How many resources a pool has.
pub(crate) const RESOURCES: usize = 5;

/// An amount of every resource, in the order of [`Resource::ALL`].
pub(crate) type Amounts = [f64; RESOURCES];

/// One of the resources that have a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Whole GPUs. A pair fills one slot: fractions of a GPU cannot be put on nodes without loss.
    GpuSlots,
    /// Device memory.
    GpuMemoryBytes,
    /// Processor cores of the host.
    HostCores,
    /// Memory of the host.
    HostMemoryBytes,
    /// Network bandwidth of the host.
    NetworkBytesPerSecond,
}

impl Resource {
    /// Every resource, in the order of declaration.
    pub const ALL: [Self; RESOURCES] = [
        Self::GpuSlots,
        Self::GpuMemoryBytes,
        Self::HostCores,
        Self::HostMemoryBytes,
        Self::NetworkBytesPerSecond,
    ];

    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GpuSlots => "gpu_slots",
            Self::GpuMemoryBytes => "gpu_memory_bytes",
            Self::HostCores => "host_cores",
            Self::HostMemoryBytes => "host_memory_bytes",
            Self::NetworkBytesPerSecond => "network_bytes_per_second",
        }
    }

    /// An amount for people, for example `80 GB`.
    pub(crate) fn amount(self, amount: f64) -> String {
        match self {
            Self::GpuSlots | Self::HostCores => short(amount),
            Self::GpuMemoryBytes | Self::HostMemoryBytes => bytes(amount),
            Self::NetworkBytesPerSecond => format!("{}/s", bytes(amount)),
        }
    }

    /// The same with its name: `80 GB of device memory`.
    pub(crate) fn in_words(self, amount: f64) -> String {
        let name = match self {
            Self::GpuSlots => "GPUs",
            Self::GpuMemoryBytes => "of device memory",
            Self::HostCores => "host cores",
            Self::HostMemoryBytes => "of host memory",
            Self::NetworkBytesPerSecond => "of network",
        };
        format!("{} {name}", self.amount(amount))
    }
}

/// Bytes for people.
pub(crate) fn bytes(amount: f64) -> String {
    if amount.abs() < 1e6 {
        format!("{} bytes", short(amount))
    } else {
        format!("{} GB", short(amount / 1e9))
    }
}

/// At most three decimals, without zeros at the end.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a shape takes in total, over all its GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Whole GPUs, or the share of one for a shape that only runs inside a pair.
    pub gpu_slots: f64,
    /// Device memory over all GPUs.
    pub gpu_memory_bytes: f64,
    /// Host processor cores.
    pub host_cores: f64,
    /// Host memory.
    pub host_memory_bytes: f64,
    /// Host network bandwidth.
    pub network_bytes_per_second: f64,
}

impl Resources {
    /// The amount of one resource.
    pub const fn get(&self, resource: Resource) -> f64 {
        match resource {
            Resource::GpuSlots => self.gpu_slots,
            Resource::GpuMemoryBytes => self.gpu_memory_bytes,
            Resource::HostCores => self.host_cores,
            Resource::HostMemoryBytes => self.host_memory_bytes,
            Resource::NetworkBytesPerSecond => self.network_bytes_per_second,
        }
    }

    pub(crate) fn amounts(&self) -> Amounts {
        Resource::ALL.map(|resource| self.get(resource))
    }
}

/// Sum of products: what the amounts cost at the prices.
pub(crate) fn cost(prices: &Amounts, amounts: &Amounts) -> f64 {
    // A resource without limit has price 0 and may be asked for without bound, so it is skipped, not multiplied.
    prices
        .iter()
        .zip(amounts)
        .filter(|(price, _)| **price > 0.0)
        .fold(0.0, |sum, (price, amount)| sum + price * amount)
}
