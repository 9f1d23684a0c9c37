//! What this machine can do, and why not.
//!
//! Each [`Check`] stands alone: a missing driver makes its own line [`Status::Absent`] and stops no other line. Nothing
//! here changes the machine, starts a daemon or needs a privilege.

mod counters;
mod cuda;
mod host;
mod library;
mod mps;
mod nvml;

pub use cuda::{CudaDevice, CudaDriver, CudaError};
pub use host::allowed_cores;

use serde::Serialize;
use std::path::PathBuf;

/// How one check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// A stable name, for example `cupti.library`.
    pub id: String,
    /// The group it is listed under: `cuda`, `nvml`, `counters`, `mps` or `host`.
    pub area: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was found.
    pub finding: String,
    /// What to do about it: a command or a setting.
    pub fix: Option<String>,
}

impl Check {
    fn new(id: impl Into<String>, area: &'static str, status: Status, finding: impl Into<String>) -> Self {
        Self { id: id.into(), area, status, finding: finding.into(), fix: None }
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// Where to look. The default is where a usual installation has its files.
#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// The CUDA driver; `None` lets the loader find `libcuda.so.1`.
    pub cuda_library: Option<PathBuf>,
    /// The management library; `None` lets the loader find `libnvidia-ml.so.1`.
    pub nvml_library: Option<PathBuf>,
    /// The folder of CUPTI, before all others. The variable `ELASTICO_CUPTI_FOLDER` does the same.
    pub cupti_folder: Option<PathBuf>,
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
            cuda_library: None,
            nvml_library: None,
            cupti_folder: None,
            ring_folder: PathBuf::from("/dev/shm"),
            data_folder: PathBuf::from("."),
            process_folder: PathBuf::from("/proc"),
            system_folder: PathBuf::from("/sys"),
        }
    }
}

/// Looks at everything that a measurement on a GPU or on CPU cores needs.
///
/// ```
/// use elastico_gpu::probe::{ProbeOptions, probe};
///
/// let checks = probe(&ProbeOptions::default());
/// assert!(checks.iter().any(|check| check.id == "host.cores"));
/// ```
pub fn probe(options: &ProbeOptions) -> Vec<Check> {
    let (driver, mut checks) = cuda::check(options.cuda_library.as_deref());
    checks.extend(nvml::check(options.nvml_library.as_deref()));
    checks.extend(library::check(options, driver.as_ref()));
    checks.extend(counters::check(&options.process_folder));
    checks.extend(mps::check(&options.process_folder));
    checks.extend(host::check(options));
    checks
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
    use std::collections::BTreeSet;

    #[test]
    fn a_bare_machine_gets_findings_and_remedies_and_no_panic() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing.so");
        let checks = probe(&ProbeOptions {
            cuda_library: Some(missing.clone()),
            nvml_library: Some(missing),
            process_folder: folder.path().to_owned(),
            system_folder: folder.path().to_owned(),
            ..ProbeOptions::default()
        });
        let ids: BTreeSet<_> = checks.iter().map(|check| check.id.as_str()).collect();
        assert_eq!(ids.len(), checks.len(), "ids are unique");
        for id in [
            "cuda.driver",
            "nvml.library",
            "cupti.library",
            "nvrtc.library",
            "counters.permission",
            "counters.owner",
            "mps.control",
            "mps.daemon",
            "host.cores",
            "host.load",
            "host.shared_memory",
            "host.memory",
            "host.disk",
            "host.governor",
        ] {
            assert!(ids.contains(id), "{id}");
        }
        for check in &checks {
            assert!(!check.finding.is_empty());
            assert!(check.status != Status::Blocked || check.fix.is_some(), "{check:?}");
        }
        let driver = checks.iter().find(|check| check.id == "cuda.driver").unwrap();
        assert_eq!(driver.status, Status::Absent);
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
