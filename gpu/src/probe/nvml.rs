//! The management library: modes and clocks that decide what can be measured.

use super::{Check, Status};
use nvml_wrapper::Device;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, ComputeMode};
use nvml_wrapper::error::NvmlError;
use std::path::Path;

pub(super) fn check(library: Option<&Path>) -> Vec<Check> {
    let opened = match library {
        Some(path) => Nvml::builder().lib_path(path.as_os_str()).init(),
        // The wrapper asks for the unversioned name, which only a development package installs.
        None => Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init(),
    };
    let nvml = match opened {
        Ok(nvml) => nvml,
        Err(error) => {
            let (status, fix) = match &error {
                NvmlError::LibloadingError(_) => (
                    Status::Absent,
                    "install the NVIDIA driver, or start the container with NVIDIA_DRIVER_CAPABILITIES=all",
                ),
                NvmlError::DriverNotLoaded | NvmlError::NotFound => {
                    (Status::Absent, "load the driver with `modprobe nvidia`, then check `nvidia-smi`")
                }
                NvmlError::NoPermission => (Status::Blocked, "give this user access to /dev/nvidiactl"),
                _ => (Status::Blocked, "check `nvidia-smi`; driver and library must be of one version"),
            };
            return vec![
                Check::new(
                    "nvml.library",
                    "nvml",
                    status,
                    format!("NVML cannot be used: {}", error_text(&error)),
                )
                .fix(fix),
            ];
        }
    };
    let driver =
        nvml.sys_driver_version().unwrap_or_else(|error| format!("unknown ({})", error_text(&error)));
    let mut checks = vec![Check::new("nvml.library", "nvml", Status::Ok, format!("driver {driver}"))];
    match nvml.device_count() {
        Ok(0) => checks.push(
            Check::new("nvml.devices", "nvml", Status::Absent, "NVML sees no GPU")
                .fix("check `nvidia-smi -L` and the container's GPU request"),
        ),
        Ok(count) => checks.extend((0..count).map(|index| {
            match nvml.device_by_index(index) {
                Ok(device) => device_check(index, &device),
                Err(error) => Check::new(
                    format!("nvml.device.{index}"),
                    "nvml",
                    Status::Blocked,
                    format!("GPU {index} does not answer: {}", error_text(&error)),
                )
                .fix("check `nvidia-smi` and `dmesg | grep -i xid`"),
            }
        })),
        Err(error) => checks.push(
            Check::new(
                "nvml.devices",
                "nvml",
                Status::Blocked,
                format!("no count of GPUs: {}", error_text(&error)),
            )
            .fix("check `nvidia-smi`"),
        ),
    }
    checks
}

fn error_text(error: &NvmlError) -> String {
    // The loader's texts run over lines and name every place it looked.
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// A fact that may be unavailable is left out rather than guessed.
fn device_check(index: u32, device: &Device<'_>) -> Check {
    let mut facts = vec![device.name().unwrap_or_else(|_| format!("GPU {index}"))];
    let mut worst = Status::Ok;
    let mut fixes = Vec::new();
    let mut fault = |status: Status, fix: String| {
        worst = worst.max(status);
        fixes.push(fix);
    };
    if let Ok(memory) = device.memory_info() {
        facts.push(format!("{:.1} of {:.1} GB free", memory.free as f64 / 1e9, memory.total as f64 / 1e9));
    }
    if let Ok(mode) = device.mig_mode() {
        facts.push(format!("MIG {}", if mode.current == 1 { "on" } else { "off" }));
    }
    if let Ok(persistent) = device.is_in_persistent_mode() {
        facts.push(format!("persistence {}", if persistent { "on" } else { "off" }));
        if !persistent {
            fault(Status::Warn, format!("nvidia-smi -i {index} -pm 1"));
        }
    }
    match device.compute_mode() {
        Ok(ComputeMode::Default) => facts.push("compute mode default".to_owned()),
        Ok(ComputeMode::Prohibited) => {
            facts.push("compute mode prohibited".to_owned());
            fault(Status::Blocked, format!("nvidia-smi -i {index} -c DEFAULT"));
        }
        Ok(_) => {
            facts.push("compute mode exclusive: two processes can share it only under MPS".to_owned());
            fault(Status::Warn, format!("nvidia-smi -i {index} -c DEFAULT"));
        }
        Err(_) => {}
    }
    if let Ok(ecc) = device.is_ecc_enabled() {
        facts.push(format!("ECC {}", if ecc.currently_enabled { "on" } else { "off" }));
    }
    for (kind, name) in [(Clock::SM, "SM"), (Clock::Memory, "memory")] {
        if let (Ok(now), Ok(most)) = (device.clock_info(kind), device.max_clock_info(kind)) {
            facts.push(format!("{name} clock {now} of {most} MHz"));
        }
    }
    if let Ok(processes) = device.running_compute_processes()
        && !processes.is_empty()
    {
        facts.push(format!("{} other compute processes", processes.len()));
        fault(
            Status::Warn,
            format!(
                "stop them for a measurement (nvidia-smi -i {index} --query-compute-apps=pid,name --format=csv)"
            ),
        );
    }
    Check {
        fix: (!fixes.is_empty()).then(|| fixes.join("; ")),
        ..Check::new(format!("nvml.device.{index}"), "nvml", worst, facts.join(", "))
    }
}
