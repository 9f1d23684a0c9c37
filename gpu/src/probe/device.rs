//! What is known about one GPU.

use serde::{Deserialize, Serialize};

/// One GPU. What no library tells is `None`, never a guess.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// `GPU-…`, or `MIG-…` for an instance that this process was given.
    pub uuid: String,
    /// The product name.
    pub name: Option<String>,
    /// The index in this process, as in `cuda:0`.
    pub cuda_index: Option<usize>,
    /// The index of nvidia-smi.
    pub nvml_index: Option<u32>,
    /// The PCI address.
    pub pci_bus: Option<String>,
    /// CUPTI's name of the chip, for example `GH100`.
    pub chip: Option<String>,
    /// Compute capability, major and minor.
    pub compute_capability: Option<(i32, i32)>,
    /// SMs that this process may use.
    pub multiprocessors: Option<i32>,
    /// L2 cache.
    pub l2_bytes: Option<u64>,
    /// Device memory.
    pub memory_bytes: Option<u64>,
    /// Device memory that no process has.
    pub memory_free_bytes: Option<u64>,
    /// `default`, `exclusive_process` or `prohibited`.
    pub compute_mode: Option<String>,
    /// Whether this process is a client of an MPS server.
    pub mps_client: Option<bool>,
    /// Whether MIG mode is on.
    pub mig: Option<bool>,
    /// The instances, where it is on.
    pub mig_instances: Vec<MigInstance>,
    /// Whether ECC is on.
    pub ecc: Option<bool>,
    /// Whether persistence mode is on.
    pub persistence: Option<bool>,
    /// Whether NVML samples counters of this device (GPM, from Hopper on).
    pub gpm: Option<bool>,
    /// SM clock now.
    pub sm_clock_hertz: Option<f64>,
    /// The highest SM clock.
    pub sm_clock_max_hertz: Option<f64>,
    /// Memory clock now.
    pub memory_clock_hertz: Option<f64>,
    /// The power limit in force.
    pub power_limit_watts: Option<f64>,
    /// Temperature of the GPU.
    pub temperature_celsius: Option<f64>,
    /// The driver's release.
    pub driver: Option<String>,
    /// The version of the board's firmware.
    pub vbios: Option<String>,
    /// Compute processes of others on it.
    pub processes: Option<u32>,
}

/// A part of a GPU in MIG mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigInstance {
    /// `MIG-…`
    pub uuid: String,
    /// The profile, for example `3g.71gb`.
    pub profile: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// Its SMs, where NVML tells.
    pub multiprocessors: Option<u32>,
}

impl Device {
    /// Adds what another library knows.
    pub(super) fn add(&mut self, other: Self) {
        macro_rules! fill {
            ($($field:ident)*) => { $(if self.$field.is_none() { self.$field = other.$field; })* };
        }
        fill!(name cuda_index nvml_index pci_bus chip compute_capability multiprocessors l2_bytes memory_bytes
            memory_free_bytes compute_mode mps_client mig ecc persistence gpm sm_clock_hertz sm_clock_max_hertz
            memory_clock_hertz power_limit_watts temperature_celsius driver vbios processes);
        if self.mig_instances.is_empty() {
            self.mig_instances = other.mig_instances;
        }
    }
}
