//! The CUDA driver, its devices, and whether each can be had.

use super::{Area, Check, Device, Finding, ProbeOptions, Status};
use crate::cuda::{ComputeMode, Context, CudaError, DeviceFacts, Driver};
use elastico_core::Hint as _;

fn check(id: impl Into<String>, status: Status, finding: impl Into<String>) -> Check {
    Check::new(id, Area::Cuda, status, finding)
}

fn refusal(id: impl Into<String>, error: &CudaError) -> Check {
    let status = if error.is_absence() { Status::Absent } else { Status::Blocked };
    Check { fix: error.hint(), ..check(id, status, error.to_string()) }
}

pub(super) fn look(options: &ProbeOptions, tell: &mut dyn FnMut(Finding)) {
    let driver = match Driver::load(&options.libraries) {
        Ok(driver) => driver,
        Err(error) => return tell(Finding::Check(refusal("cuda.driver", &error))),
    };
    let (major, minor) = match driver.version() {
        Ok(version) => version,
        Err(error) => return tell(Finding::Check(refusal("cuda.driver", &error))),
    };
    let release = driver.release().map_or_else(String::new, |release| format!(" (release {release})"));
    let finding = format!("CUDA {major}.{minor}{release}, {}", driver.path().display());
    tell(Finding::Check(check("cuda.driver", Status::Ok, finding)));
    let devices = match driver.devices() {
        Ok(devices) => devices,
        Err(error) => return tell(Finding::Check(refusal("cuda.devices", &error))),
    };
    let count = devices.len();
    if let Some(index) = options.device.filter(|index| *index >= count) {
        return tell(Finding::Check(refusal("cuda.devices", &CudaError::Device { index, count })));
    }
    if devices.is_empty() {
        let none = check("cuda.devices", Status::Absent, "the driver lists no device");
        let fix = "check `nvidia-smi -L`, CUDA_VISIBLE_DEVICES and the container's GPU request";
        return tell(Finding::Check(none.fix(fix)));
    }
    for (index, facts) in devices.into_iter().enumerate() {
        if options.device.is_none_or(|chosen| chosen == index) {
            look_at_device(&driver, index, &facts, tell);
        }
    }
}

fn look_at_device(driver: &Driver, index: usize, facts: &DeviceFacts, tell: &mut dyn FnMut(Finding)) {
    let (major, minor) = facts.compute_capability;
    let mut device = Device {
        uuid: facts.uuid.clone(),
        name: Some(facts.name.clone()),
        cuda_index: Some(index),
        pci_bus: Some(facts.pci_bus.clone()).filter(|bus| !bus.is_empty()),
        compute_capability: Some(facts.compute_capability),
        multiprocessors: Some(facts.multiprocessors),
        l2_bytes: Some(facts.l2_bytes),
        memory_bytes: Some(facts.memory),
        compute_mode: Some(facts.compute_mode.as_str().to_owned()),
        driver: driver.release(),
        ..Device::default()
    };
    tell(Finding::Device(Box::new(device.clone())));
    let finding = format!("{}, {major}.{minor}, {} SMs", facts.name, facts.multiprocessors);
    let id = format!("cuda.device.{index}");
    let about = |check: Check| Finding::Check(check.of_device(facts.uuid.clone()));
    if (major, minor) < (7, 5) {
        let old = check(id, Status::Blocked, finding + ": CUDA 13 dropped chips before Turing");
        return tell(about(
            old.fix("use a GPU of compute capability 7.5 or newer, or simulate it: `sim:v100`"),
        ));
    }
    if facts.compute_mode == ComputeMode::Prohibited {
        let shut = check(id, Status::Blocked, finding + ": compute mode prohibited");
        return tell(about(shut.fix("nvidia-smi -c DEFAULT")));
    }
    tell(about(check(id, Status::Ok, finding)));
    // The first context is where an exclusive owner, a lost device or a broken fabric shows.
    let id = format!("cuda.context.{index}");
    let opened = Context::new(driver, index).and_then(|context| Ok((context.memory_info()?, context)));
    match opened {
        Ok(((free, total), context)) => {
            let facts = context.facts();
            device.memory_free_bytes = Some(free);
            device.mps_client = Some(facts.mps_enabled);
            tell(Finding::Device(Box::new(device)));
            let client = if facts.mps_enabled { ", as a client of an MPS server" } else { "" };
            let sizes = format!("{:.1} of {:.1} GB free", free as f64 / 1e9, total as f64 / 1e9);
            tell(about(check(id, Status::Ok, format!("a context can be had{client}; {sizes}"))));
        }
        Err(error) => tell(about(refusal(id, &error))),
    }
}
