//! What stays the same while a campaign runs.

use super::nvml::{Place, reason};
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, ComputeMode};
use nvml_wrapper::error::NvmlError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What NVML tells about a device; `None` with a reason in [`TelemetryIdentity::missing`] where it does not.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TelemetryIdentity {
    /// Product name.
    pub name: Option<String>,
    /// `GPU-…`, or `MIG-…` of an instance.
    pub uuid: Option<String>,
    /// Of the whole GPU.
    pub board_uuid: Option<String>,
    /// Whether this is a MIG instance: clocks, power and temperatures are then the whole GPU's.
    pub is_instance: bool,
    /// Driver version, as `580.159.03`.
    pub driver: Option<String>,
    /// Firmware of the board.
    pub vbios: Option<String>,
    /// Whether ECC is on.
    pub ecc: Option<bool>,
    /// Whether the driver stays loaded between programs.
    pub persistence: Option<bool>,
    /// `default`, `exclusive_process`, `exclusive_thread` or `prohibited`.
    pub compute_mode: Option<String>,
    /// Whether MIG is on.
    pub mig: Option<bool>,
    /// Highest SM clock.
    pub max_sm_clock_hertz: Option<f64>,
    /// Highest memory clock.
    pub max_memory_clock_hertz: Option<f64>,
    /// The power limit in force.
    pub power_limit_watts: Option<f64>,
    /// Generation of the host link now.
    pub pcie_generation: Option<u32>,
    /// Lanes of the host link now.
    pub pcie_lanes: Option<u32>,
    /// Why the others are missing.
    pub missing: BTreeMap<String, String>,
}

impl TelemetryIdentity {
    pub(super) fn read(nvml: &Nvml, place: &Place) -> Self {
        let mut missing = BTreeMap::new();
        let (device, board) = (&place.device, &place.board);
        Self {
            name: keep(&mut missing, "name", board.name()),
            uuid: keep(&mut missing, "uuid", device.uuid()),
            board_uuid: keep(&mut missing, "board_uuid", board.uuid()),
            is_instance: place.is_instance,
            driver: keep(&mut missing, "driver", nvml.sys_driver_version()),
            vbios: keep(&mut missing, "vbios", board.vbios_version()),
            ecc: keep(&mut missing, "ecc", board.is_ecc_enabled().map(|state| state.currently_enabled)),
            persistence: keep(&mut missing, "persistence", board.is_in_persistent_mode()),
            compute_mode: keep(&mut missing, "compute_mode", board.compute_mode().map(mode_word)),
            mig: keep(&mut missing, "mig", board.mig_mode().map(|mode| mode.current == 1)),
            max_sm_clock_hertz: keep(
                &mut missing,
                "max_sm_clock_hertz",
                board.max_clock_info(Clock::SM).map(megahertz),
            ),
            max_memory_clock_hertz: keep(
                &mut missing,
                "max_memory_clock_hertz",
                board.max_clock_info(Clock::Memory).map(megahertz),
            ),
            power_limit_watts: keep(
                &mut missing,
                "power_limit_watts",
                board.enforced_power_limit().map(|milliwatts| f64::from(milliwatts) * 1e-3),
            ),
            pcie_generation: keep(&mut missing, "pcie_generation", board.current_pcie_link_gen()),
            pcie_lanes: keep(&mut missing, "pcie_lanes", board.current_pcie_link_width()),
            missing,
        }
    }
}

fn keep<T>(missing: &mut BTreeMap<String, String>, name: &str, result: Result<T, NvmlError>) -> Option<T> {
    result.inspect_err(|error| drop(missing.insert(name.to_owned(), reason(error)))).ok()
}

pub(super) fn megahertz(clock: u32) -> f64 {
    f64::from(clock) * 1e6
}

fn mode_word(mode: ComputeMode) -> String {
    match mode {
        ComputeMode::Default => "default",
        ComputeMode::ExclusiveThread => "exclusive_thread",
        ComputeMode::Prohibited => "prohibited",
        ComputeMode::ExclusiveProcess => "exclusive_process",
    }
    .to_owned()
}
