//! What this machine can do, and why not.
//!
//! Each [`Check`] stands alone: a missing driver makes its own line [`Status::Absent`] and stops no other line. Nothing
//! here changes the machine, starts a daemon or needs a privilege.
//!
//! Drivers and their libraries are other people's code: a damaged or mismatched one can crash or hang its process. So
//! [`probe`] looks at each [`Area`] with such a library in a child process with a time limit, and a death or a hang is
//! one more finding. [`child_main`] is that child.

mod child;
mod counters;
mod cupti;
mod device;
mod driver;
mod host;
mod mps;
mod nvml;
mod platform;
mod toolkit;

pub use child::{child_main, isolate};
pub use device::{Device, MigInstance};
pub use host::allowed_cores;
pub use platform::Machine;

use crate::libraries::Libraries;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How long a look at one area may take. A driver without persistence needs seconds for its first context.
const TIME_LIMIT: Duration = Duration::from_secs(15);

/// How one check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Usable.
    Ok,
    /// Usable, with a loss that the finding names.
    Warn,
    /// Here, but it cannot be used as it is.
    Blocked,
    /// Not here; only what needs it is unavailable.
    Absent,
}

impl Status {
    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Blocked => "blocked",
            Self::Absent => "absent",
        }
    }

    /// Whether what was looked at can be used.
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Ok | Self::Warn)
    }
}

/// A group of checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// The CUDA driver, its devices, and whether they can be had.
    Cuda,
    /// The management library: modes, clocks, other programs.
    Nvml,
    /// The run-time compiler.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// CUPTI, and a short try at sampling.
    Cupti,
    /// Who may read hardware counters, and who holds them.
    Counters,
    /// The Multi-Process Service.
    Mps,
    /// Cores, load, memory and room for files.
    Host,
    /// Libraries of the predictor.
    Models,
}

impl Area {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 9] = [
        Self::Cuda,
        Self::Nvml,
        Self::Nvrtc,
        Self::CublasLt,
        Self::Cupti,
        Self::Counters,
        Self::Mps,
        Self::Host,
        Self::Models,
    ];

    /// The name in files, and the first part of its checks' ids.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Nvml => "nvml",
            Self::Nvrtc => "nvrtc",
            Self::CublasLt => "cublas_lt",
            Self::Cupti => "cupti",
            Self::Counters => "counters",
            Self::Mps => "mps",
            Self::Host => "host",
            Self::Models => "models",
        }
    }
}

impl std::str::FromStr for Area {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|area| area.as_str() == text).ok_or_else(|| format!("`{text}` is no area"))
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// A stable name, for example `cupti.library`.
    pub id: String,
    /// The group it is listed under.
    pub area: Area,
    /// The UUID of the device that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How it ended.
    pub status: Status,
    /// What was found.
    pub finding: String,
    /// What to do about it: a command or a setting.
    pub fix: Option<String>,
}

impl Check {
    /// A check without a remedy.
    pub fn new(id: impl Into<String>, area: Area, status: Status, finding: impl Into<String>) -> Self {
        Self { id: id.into(), area, device: None, status, finding: finding.into(), fix: None }
    }

    /// With a remedy.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// About one device.
    #[must_use]
    pub fn of_device(mut self, uuid: impl Into<String>) -> Self {
        self.device = Some(uuid.into());
        self
    }
}

/// What an area has to say, one line of its child process each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Something was looked at.
    Check(Check),
    /// What an area knows about a device; what several know is put together.
    Device(Box<Device>),
}

/// Where to look. The default is where a usual installation has its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeOptions {
    /// The driver's libraries.
    pub libraries: Libraries,
    /// Only this device, by the driver's index.
    pub device: Option<usize>,
    /// What kernels are compiled for, to see whether it works; where none is given, 9.0.
    pub compute_capabilities: Vec<(i32, i32)>,
    /// How long a look at one area may take; where none is given, 15 s.
    pub time_limit: Option<Duration>,
    /// Where step rings live.
    pub ring_folder: PathBuf,
    /// Where results will be written.
    pub data_folder: PathBuf,
    /// The process file system.
    pub process_folder: PathBuf,
    /// The device file system.
    pub system_folder: PathBuf,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self {
            libraries: Libraries::default(),
            device: None,
            compute_capabilities: Vec::new(),
            time_limit: None,
            ring_folder: PathBuf::from("/dev/shm"),
            data_folder: PathBuf::from("."),
            process_folder: PathBuf::from("/proc"),
            system_folder: PathBuf::from("/sys"),
        }
    }
}

/// All that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Findings {
    /// The host.
    pub machine: Machine,
    /// The GPUs, by the driver's index, then those that only NVML sees.
    pub devices: Vec<Device>,
    /// In the order of areas.
    pub checks: Vec<Check>,
}

impl Findings {
    /// The worst status among the checks whose id begins so; `None` where there is none.
    pub fn worst(&self, prefix: &str) -> Option<&Check> {
        self.checks.iter().filter(|check| check.id.starts_with(prefix)).max_by_key(|check| check.status)
    }
}

/// Looks at everything that a measurement on a GPU or on CPU cores needs. `command` makes the command line of a child
/// process that calls [`child_main`] for an area.
///
/// It takes half a second on a healthy machine, and as much as two time limits more where a driver hangs.
pub fn probe(options: &ProbeOptions, command: &(dyn Fn(Area) -> Command + Sync)) -> Findings {
    let child = |area: Area, options: &ProbeOptions| isolate(command(area), area, options);
    let findings: Vec<Finding> = thread::scope(|scope| {
        let others = [Area::CublasLt, Area::Mps].map(|area| scope.spawn(move || child(area, options)));
        // NVML first: it counts the processes on a GPU, and the next ones would be among them.
        let mut findings = child(Area::Nvml, options);
        let cupti = scope.spawn(|| child(Area::Cupti, options));
        findings.extend(child(Area::Cuda, options));
        // Kernels are compiled for the devices that the driver lists.
        let compute_capabilities: BTreeSet<(i32, i32)> =
            devices_in(&findings).filter_map(|device| device.compute_capability).collect();
        let compute_capabilities = compute_capabilities.into_iter().collect();
        findings.extend(child(Area::Nvrtc, &ProbeOptions { compute_capabilities, ..options.clone() }));
        for thread in others.into_iter().chain([cupti]) {
            // A thread of ours that panicked is a fault of this program.
            findings.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        for area in [Area::Counters, Area::Host] {
            look(area, options, &mut |finding| findings.push(finding));
        }
        findings
    });
    gather(options, findings)
}

fn devices_in(findings: &[Finding]) -> impl Iterator<Item = &Device> {
    findings.iter().filter_map(|finding| match finding {
        Finding::Device(device) => Some(device.as_ref()),
        Finding::Check(_) => None,
    })
}

/// Looks at one area in this process.
pub(crate) fn look(area: Area, options: &ProbeOptions, tell: &mut dyn FnMut(Finding)) {
    match area {
        Area::Cuda => driver::look(options, tell),
        Area::Nvml => nvml::look(options, tell),
        Area::Nvrtc => tell(Finding::Check(toolkit::nvrtc(options))),
        Area::CublasLt => tell(Finding::Check(toolkit::cublas_lt(options))),
        Area::Cupti => cupti::look(options, tell),
        Area::Counters => {
            counters::check(&options.process_folder).into_iter().map(Finding::Check).for_each(tell);
        }
        Area::Mps => mps::look(options, tell),
        Area::Host => {
            tell(Finding::Check(platform::check(&Machine::read(options))));
            host::check(options).into_iter().map(Finding::Check).for_each(tell);
        }
        // Known to the callers of this crate.
        Area::Models => {}
    }
}

/// Puts together what areas know of one device, and orders all.
fn gather(options: &ProbeOptions, findings: Vec<Finding>) -> Findings {
    let mut devices: Vec<Device> = Vec::new();
    let mut checks = Vec::new();
    for finding in findings {
        match finding {
            Finding::Check(check) => checks.push(check),
            Finding::Device(device) => match devices.iter_mut().find(|known| known.uuid == device.uuid) {
                Some(known) => known.add(*device),
                None => devices.push(*device),
            },
        }
    }
    if options.device.is_some() {
        // The driver listed only the chosen one; what NVML says of others is left out.
        devices.retain(|device| device.cuda_index.is_some());
        checks.retain(|check| {
            check.device.as_ref().is_none_or(|uuid| devices.iter().any(|device| device.uuid == *uuid))
        });
    }
    devices.sort_by_key(|device| (device.cuda_index.unwrap_or(usize::MAX), device.nvml_index));
    counters::settle(&mut checks);
    checks.sort_by_key(|check| check.area);
    Findings { machine: Machine::read(options), devices, checks }
}

/// Command names of all processes that can be seen, with their ids.
fn process_names(process_folder: &std::path::Path) -> Vec<(u32, String)> {
    let mut names: Vec<(u32, String)> = std::fs::read_dir(process_folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            Some((process, name.trim_end().to_owned()))
        })
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_areas_are_read_back() {
        for area in Area::ALL {
            assert_eq!(area.as_str().parse(), Ok(area));
            assert_eq!(serde_json::to_value(area).unwrap(), area.as_str());
        }
    }

    #[test]
    fn a_device_is_known_by_its_uuid_and_others_are_left_out_when_one_is_chosen() {
        let device = |uuid: &str| Device { uuid: uuid.to_owned(), ..Device::default() };
        let findings = || {
            vec![
                Finding::Device(Box::new(Device { cuda_index: Some(0), ..device("GPU-b") })),
                Finding::Device(Box::new(Device { nvml_index: Some(0), ecc: Some(true), ..device("GPU-a") })),
                Finding::Device(Box::new(Device {
                    nvml_index: Some(1),
                    ecc: Some(false),
                    ..device("GPU-b")
                })),
                Finding::Check(Check::new("host.load", Area::Host, Status::Ok, "x")),
                Finding::Check(Check::new("nvml.device.0", Area::Nvml, Status::Warn, "x").of_device("GPU-a")),
                Finding::Check(Check::new("nvml.device.1", Area::Nvml, Status::Ok, "x").of_device("GPU-b")),
            ]
        };
        let all = gather(&ProbeOptions::default(), findings());
        assert_eq!(all.devices.len(), 2);
        assert_eq!((all.devices[0].cuda_index, all.devices[0].ecc), (Some(0), Some(false)));
        assert_eq!(all.checks.last().unwrap().id, "host.load");
        let one = gather(&ProbeOptions { device: Some(0), ..ProbeOptions::default() }, findings());
        assert_eq!(one.devices.len(), 1);
        let ids: Vec<_> = one.checks.iter().map(|check| check.id.as_str()).collect();
        assert_eq!(ids, ["nvml.device.1", "host.load"]);
    }

    #[test]
    fn process_names_come_from_the_process_folder() {
        let folder = tempfile::tempdir().unwrap();
        for (process, name) in [("12", "nv-hostengine\n"), ("7", "sh\n"), ("self", "x\n")] {
            std::fs::create_dir(folder.path().join(process)).unwrap();
            std::fs::write(folder.path().join(process).join("comm"), name).unwrap();
        }
        assert_eq!(process_names(folder.path()), [(7, "sh".to_owned()), (12, "nv-hostengine".to_owned())]);
    }
}
