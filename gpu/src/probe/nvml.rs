//! The management library: modes and clocks that decide what can be measured.

use super::{Area, Check, Device, Finding, MigInstance, ProbeOptions, Status};
use crate::libraries::{Libraries, LibraryError, LibraryKind};
use elastico_core::Hint as _;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, ComputeMode, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

fn check(id: impl Into<String>, status: Status, finding: impl Into<String>) -> Check {
    Check::new(id, Area::Nvml, status, finding)
}

pub(super) fn look(options: &ProbeOptions, tell: &mut dyn FnMut(Finding)) {
    let loaded = match options.libraries.open(LibraryKind::Nvml) {
        Ok(loaded) => loaded,
        Err(error) => {
            let status =
                if matches!(error, LibraryError::Absent { .. }) { Status::Absent } else { Status::Blocked };
            let refused = Check { fix: error.hint(), ..check("nvml.library", status, error.to_string()) };
            return tell(Finding::Check(refused));
        }
    };
    let nvml = match Nvml::builder().lib_path(loaded.path().as_os_str()).init() {
        Ok(nvml) => nvml,
        Err(error) => return tell(Finding::Check(refusal(&error))),
    };
    let driver = nvml.sys_driver_version();
    let release = driver.as_deref().map_or_else(|_| "unknown".to_owned(), ToString::to_string);
    let place = loaded.path().display();
    tell(Finding::Check(check("nvml.library", Status::Ok, format!("driver {release}, {place}"))));
    match nvml.device_count() {
        Ok(0) => tell(Finding::Check(
            check("nvml.devices", Status::Absent, "NVML sees no GPU")
                .fix("check `nvidia-smi -L` and the container's GPU request"),
        )),
        Ok(count) => {
            for index in 0..count {
                match nvml.device_by_index(index) {
                    Ok(device) => {
                        look_at_device(index, &device, driver.as_ref().ok(), &options.libraries, tell);
                    }
                    Err(error) => tell(Finding::Check(
                        check(
                            format!("nvml.device.{index}"),
                            Status::Blocked,
                            format!("GPU {index} does not answer: {}", error_text(&error)),
                        )
                        .fix("check `nvidia-smi` and `dmesg | grep -i xid`"),
                    )),
                }
            }
        }
        Err(error) => tell(Finding::Check(
            check("nvml.devices", Status::Blocked, format!("no count of GPUs: {}", error_text(&error)))
                .fix("check `nvidia-smi`"),
        )),
    }
}

fn refusal(error: &NvmlError) -> Check {
    let (status, fix) = match error {
        NvmlError::LibloadingError(_) => (Status::Blocked, "install the NVIDIA driver r580 or newer again"),
        NvmlError::DriverNotLoaded | NvmlError::NotFound => {
            (Status::Absent, "load the driver with `modprobe nvidia`, then check `nvidia-smi`")
        }
        NvmlError::NoPermission => (Status::Blocked, "give this user access to /dev/nvidiactl"),
        _ => (Status::Blocked, "check `nvidia-smi`; driver and library must be of one version"),
    };
    check("nvml.library", status, format!("NVML cannot be used: {}", error_text(error))).fix(fix)
}

fn error_text(error: &NvmlError) -> String {
    // The loader's texts run over lines and name every place it looked.
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

fn look_at_device(
    index: u32,
    gpu: &nvml_wrapper::Device<'_>,
    driver: Option<&String>,
    libraries: &Libraries,
    tell: &mut dyn FnMut(Finding),
) {
    let (device, faults) = describe(index, gpu, driver, libraries);
    let worst = faults.iter().map(|fault| fault.status).max().unwrap_or(Status::Ok);
    let told: Vec<&str> = faults.iter().map(|fault| fault.finding.as_str()).collect();
    let finding = if told.is_empty() { "in order for measuring".to_owned() } else { told.join("; ") };
    let fixes: Vec<&str> = faults.iter().map(|fault| fault.fix.as_str()).collect();
    let uuid = device.uuid.clone();
    tell(Finding::Device(Box::new(device)));
    let check = Check {
        fix: (!fixes.is_empty()).then(|| fixes.join("; ")),
        ..check(format!("nvml.device.{index}"), worst, finding)
    };
    tell(Finding::Check(check.of_device(uuid)));
}

/// Something that disturbs or forbids a measurement.
struct Fault {
    status: Status,
    finding: String,
    fix: String,
}

/// A fact that may be unavailable is left out rather than guessed.
fn describe(
    index: u32,
    gpu: &nvml_wrapper::Device<'_>,
    driver: Option<&String>,
    libraries: &Libraries,
) -> (Device, Vec<Fault>) {
    let mut faults = Vec::new();
    let mut fault = |status, finding: &str, fix: String| {
        faults.push(Fault { status, finding: finding.to_owned(), fix });
    };
    let megahertz = |clock: Result<u32, NvmlError>| clock.ok().map(|clock| f64::from(clock) * 1e6);
    let memory = gpu.memory_info().ok();
    let mut device = Device {
        uuid: gpu.uuid().unwrap_or_else(|_| format!("nvml:{index}")),
        name: gpu.name().ok(),
        nvml_index: Some(index),
        pci_bus: gpu.pci_info().ok().map(|pci| pci.bus_id),
        memory_bytes: memory.as_ref().map(|memory| memory.total),
        memory_free_bytes: memory.as_ref().map(|memory| memory.free),
        mig: gpu.mig_mode().ok().map(|mode| mode.current == 1),
        ecc: gpu.is_ecc_enabled().ok().map(|ecc| ecc.currently_enabled),
        persistence: gpu.is_in_persistent_mode().ok(),
        gpm: gpu.gpm_support().ok(),
        sm_clock_hertz: megahertz(gpu.clock_info(Clock::SM)),
        sm_clock_max_hertz: megahertz(gpu.max_clock_info(Clock::SM)),
        memory_clock_hertz: megahertz(gpu.clock_info(Clock::Memory)),
        power_limit_watts: gpu.enforced_power_limit().ok().map(|limit| f64::from(limit) / 1e3),
        temperature_celsius: gpu.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
        driver: driver.cloned(),
        vbios: gpu.vbios_version().ok(),
        ..Device::default()
    };
    if device.persistence == Some(false) {
        fault(
            Status::Warn,
            "persistence is off: the first context takes seconds",
            format!("nvidia-smi -i {index} -pm 1"),
        );
    }
    device.compute_mode = gpu.compute_mode().ok().map(|mode| {
        match mode {
            ComputeMode::Default => "default",
            ComputeMode::Prohibited => {
                fault(
                    Status::Blocked,
                    "compute mode prohibited: no process may use it",
                    format!("nvidia-smi -i {index} -c DEFAULT"),
                );
                "prohibited"
            }
            _ => {
                fault(
                    Status::Warn,
                    "compute mode exclusive: two processes share it only under MPS",
                    format!("nvidia-smi -i {index} -c DEFAULT"),
                );
                "exclusive_process"
            }
        }
        .to_owned()
    });
    if let Ok(processes) = gpu.running_compute_processes() {
        device.processes = u32::try_from(processes.len()).ok();
        if !processes.is_empty() {
            fault(
                Status::Warn,
                &format!("{} other compute processes disturb a measurement", processes.len()),
                format!("stop them (nvidia-smi -i {index} --query-compute-apps=pid,name --format=csv)"),
            );
        }
    }
    if device.mig == Some(true) {
        device.mig_instances = crate::mig::instances(libraries, index)
            .unwrap_or_default()
            .into_iter()
            .map(|instance| MigInstance {
                uuid: instance.uuid,
                profile: instance.profile,
                memory_bytes: instance.memory,
                multiprocessors: instance.multiprocessors,
            })
            .collect();
        if device.mig_instances.is_empty() {
            fault(
                Status::Blocked,
                "MIG is on, and there is no instance",
                format!("nvidia-smi mig -i {index} -cgi <profile> -C, or nvidia-smi -i {index} -mig 0"),
            );
        }
    }
    (device, faults)
}
