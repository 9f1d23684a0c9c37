//! What a GPU is called, and the facts that its numbers depend on.

use super::CudaOptions;
use super::sharing::{base_environment, without_mps};
use crate::device::{DeviceIdentity, Fault};
use crate::devices::processes::Helper;
use crate::worker::message::{GpuInventory, Reply, Request};
use elastico_core::units::Bytes;
use elastico_core::{CHIPS, DeviceKind, Outcome};
use elastico_gpu::cuda::DeviceFacts;
use elastico_gpu::telemetry::TelemetryIdentity;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

/// What stands before the model of a device whose driver is a stand-in for tests.
const STAND_IN: &str = "Stand-in ";

/// Asks the driver in a process of its own, so that the coordinator never holds a context.
pub(super) fn inventory(
    command: &[OsString],
    options: &CudaOptions,
    no_mps: &Path,
) -> Result<GpuInventory, Fault> {
    let request = Request::Inventory { libraries: options.libraries.clone() };
    let mut environment = base_environment(None);
    environment.extend(without_mps(no_mps));
    let mut helper = Helper::start("the inventory".to_owned(), command, &environment, &request)?;
    let deadline = Instant::now() + options.context_timeout;
    helper.greet(deadline)?;
    match helper.reply(deadline, "answer")? {
        Reply::Inventory(inventory) => Ok(*inventory),
        // What the driver lacks says everything; which process asked says nothing.
        Reply::Failed { outcome, detail } => {
            Err(Fault { outcome: outcome.parse().unwrap_or(Outcome::DeviceLost), detail })
        }
        other => Err(helper.unexpected(other)),
    }
}

/// The device of an index in the inventory.
pub(super) fn pick(inventory: &GpuInventory, index: u32) -> Result<&DeviceFacts, Fault> {
    inventory.devices.get(index as usize).ok_or_else(|| Fault {
        outcome: Outcome::Unsupported,
        detail: match inventory.devices.len() {
            0 => "the driver sees no GPU".to_owned(),
            1 => format!("there is no GPU {index}: the driver sees one, cuda:0"),
            count => format!("there is no GPU {index}: the driver sees cuda:0 to cuda:{}", count - 1),
        },
    })
}

/// Model and facts. Nothing in them changes between two runs on the same machine, so a resumed journal can compare them.
pub(super) fn identity(
    device: &DeviceFacts,
    inventory: &GpuInventory,
    telemetry: Option<&TelemetryIdentity>,
    cores: &[usize],
) -> DeviceIdentity {
    let mut facts = BTreeMap::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    let (major, minor) = device.compute_capability;
    fact("gpu", Some(device.name.clone()));
    fact("uuid", Some(device.uuid.clone()));
    fact("compute_capability", Some(format!("{major}.{minor}")));
    fact("multiprocessors", Some(device.multiprocessors.to_string()));
    fact("l2_bytes", Some(device.l2_bytes.to_string()));
    fact("cuda", Some(format!("{}.{}", inventory.cuda.0, inventory.cuda.1)));
    fact("driver", telemetry.and_then(|known| known.driver.clone()).or_else(|| inventory.driver.clone()));
    fact("nvrtc", inventory.nvrtc.clone());
    fact("cublas_lt", inventory.cublas_lt.clone());
    fact("cupti", inventory.cupti.clone());
    if let Some(known) = telemetry {
        let yes_no = |flag: bool| if flag { "on" } else { "off" }.to_owned();
        fact("vbios", known.vbios.clone());
        fact("ecc", known.ecc.map(yes_no));
        fact("persistence", known.persistence.map(yes_no));
        fact("compute_mode", known.compute_mode.clone());
        fact("power_limit_watts", known.power_limit_watts.map(|watts| format!("{watts:.0}")));
        fact("max_sm_clock_hertz", known.max_sm_clock_hertz.map(|hertz| format!("{hertz:.0}")));
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == "model name"))
        .map(|(_, value)| value.trim().to_owned());
    fact("host_processor", processor);
    fact("host_cores", Some(cores.len().to_string()));
    fact("kernel", Some(read("/proc/sys/kernel/osrelease").trim().to_owned()));
    DeviceIdentity {
        kind: DeviceKind::Cuda,
        model: model(&device.name, device.memory),
        memory: Bytes(device.memory as f64),
        facts,
    }
}

/// The chip of a product name, as the `device` column has it; a name of its own where the table has no such chip.
///
/// A stand-in driver keeps `stand-in-` before the model, so that its numbers are never taken for a GPU's.
fn model(product: &str, memory: u64) -> String {
    if let Some(rest) = product.strip_prefix(STAND_IN) {
        return format!("stand-in-{}", model(rest, memory));
    }
    let lower = product.to_lowercase();
    let words: Vec<&str> = lower.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
    let mut best: Option<(&str, f64)> = None;
    for chip in CHIPS {
        let (stem, suffix) = chip.name.split_once('-').unwrap_or((chip.name, ""));
        // `rtx4090` is `GeForce RTX 4090`; `a100-80gb` is `A100-SXM4-80GB`; the memory tells variants apart.
        let named = words.contains(&stem)
            || words.windows(2).any(|pair| pair.concat() == stem)
            || (stem == "t4" && words.contains(&"t4"));
        let distance = (chip.memory.get() / memory as f64 - 1.0).abs();
        if named && (distance < 0.2 || suffix.is_empty()) && best.is_none_or(|(_, least)| distance < least) {
            best = Some((chip.name, distance));
        }
    }
    // Boards of other form have other SMs, clocks and power limits: their numbers must not mix.
    let form = ["pcie", "nvl", "mig"].into_iter().find(|form| words.contains(form)).filter(|form| {
        // The table's A100 is both; its own numbers tell them apart.
        best.is_some_and(|(name, _)| matches!((name, *form), (_, "nvl" | "mig") | ("h100", "pcie")))
    });
    if let (Some((name, _)), Some(form)) = (best, form) {
        return format!("{name}-{form}");
    }
    best.map_or_else(
        || {
            let name: Vec<&str> =
                words.into_iter().filter(|word| !word.is_empty() && *word != "nvidia").collect();
            name.join("-")
        },
        |(name, _)| name.to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_names_become_chips() {
        let gib = 1_u64 << 30;
        for (product, memory, expected) in [
            ("NVIDIA H200", 140 * gib, "h200"),
            ("NVIDIA H200 NVL", 140 * gib, "h200-nvl"),
            ("NVIDIA H100 PCIe", 80 * gib, "h100-pcie"),
            ("NVIDIA H100 80GB HBM3", 80 * gib, "h100"),
            ("NVIDIA A100-SXM4-80GB", 80 * gib, "a100-80gb"),
            ("NVIDIA A100-SXM4-40GB", 40 * gib, "a100-40gb"),
            ("NVIDIA A100-PCIE-40GB", 40 * gib, "a100-40gb"),
            ("Tesla T4", 15 * gib, "t4"),
            ("Tesla V100-SXM2-16GB", 16 * gib, "v100"),
            ("NVIDIA GeForce RTX 4090", 24 * gib, "rtx4090"),
            ("NVIDIA A10", 23 * gib, "a10"),
            ("NVIDIA L40S", 45 * gib, "l40s"),
            ("NVIDIA B200", 179 * gib, "b200"),
            ("Stand-in H200", 134 * gib, "stand-in-h200"),
            ("NVIDIA RTX A6000", 48 * gib, "rtx-a6000"),
        ] {
            assert_eq!(model(product, memory), expected, "{product}");
        }
    }

    #[test]
    fn a_gpu_that_is_not_there_is_named() {
        let empty = GpuInventory { devices: Vec::new(), ..GpuInventory::default() };
        let fault = pick(&empty, 0).unwrap_err();
        assert_eq!((fault.outcome, fault.detail.as_str()), (Outcome::Unsupported, "the driver sees no GPU"));
    }
}
