//! CUPTI and NVRTC: found where, and of which version.

#![expect(unsafe_code, reason = "calls into CUPTI, opened by name")]

use super::{Check, CudaDriver, ProbeOptions, Status};
use libloading::Library;
use std::ffi::c_int;
use std::path::{Path, PathBuf};

/// The major version that the counter code is written for: struct layouts differ between majors.
const MAJOR: u32 = 13;

pub(super) fn check(options: &ProbeOptions, driver: Option<&CudaDriver>) -> Vec<Check> {
    let folders = search_folders(options.cupti_folder.as_deref());
    vec![cupti(&folders, driver), nvrtc(&folders)]
}

fn cupti(folders: &[PathBuf], driver: Option<&CudaDriver>) -> Check {
    let install = "pip install nvidia-cuda-cupti==13.0.85, or set ELASTICO_CUPTI_FOLDER to the folder of libcupti.so.13";
    let check = |status, finding: String| Check::new("cupti.library", "counters", status, finding);
    let Some((path, major)) = newest(folders, "libcupti.so") else {
        return check(Status::Absent, format!("no libcupti.so in {} folders", folders.len())).fix(install);
    };
    let place = path.display();
    if major.is_some_and(|major| major != MAJOR) {
        return check(Status::Blocked, format!("{place} is not of major version {MAJOR}")).fix(install);
    }
    if driver.is_none() {
        // CUPTI 13.2 dies in its first call without a driver, later ones answer 999: it is looked at, not called.
        return check(Status::Warn, format!("{place} found; its version is read only where a driver is"))
            .fix("run `elastico doctor` on the machine with the GPU");
    }
    match cupti_version(&path) {
        // 13.0 reports 130001; 12.x reports 24 to 28.
        Ok(version) if version / 10_000 == MAJOR => {
            check(Status::Ok, format!("{place}, version {}.{}", version / 10_000, version % 10_000 / 100))
        }
        Ok(version) => {
            check(Status::Blocked, format!("{place} reports version {version}, not {MAJOR}")).fix(install)
        }
        Err(error) => check(Status::Blocked, format!("{place} cannot be used: {error}")).fix(install),
    }
}

fn cupti_version(path: &Path) -> Result<u32, String> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // CUPTI opens these by bare name; loaded by path first, its own look-up resolves to them.
    for helper in ["libnvperf_host.so", "libnvperf_target.so"] {
        // SAFETY: constructors of NVIDIA's own libraries, beside the one the user chose.
        if let Ok(library) = unsafe { Library::new(folder.join(helper)) } {
            std::mem::forget(library);
        }
    }
    // SAFETY: as above. CUPTI 13.0 and 13.1 fail when they are closed after use, so it is never closed.
    let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
    let library: &'static Library = Box::leak(Box::new(library));
    // SAFETY: `CUptiResult cuptiGetVersion(uint32_t*)` of cupti_version.h.
    let read = unsafe { library.get::<unsafe extern "C" fn(*mut u32) -> c_int>("cuptiGetVersion") }
        .map_err(|error| error.to_string())?;
    let mut version = 0;
    // SAFETY: `version` is valid for the write.
    match unsafe { read(&raw mut version) } {
        0 => Ok(version),
        code => Err(format!("cuptiGetVersion failed with CUPTI error {code}")),
    }
}

fn nvrtc(folders: &[PathBuf]) -> Check {
    let install = "pip install nvidia-cuda-nvrtc==13.0.88, or install the CUDA toolkit 13";
    match newest(folders, "libnvrtc.so") {
        Some((path, Some(MAJOR) | None)) => {
            Check::new("nvrtc.library", "cuda", Status::Ok, format!("{} found", path.display()))
        }
        Some((path, _)) => Check::new(
            "nvrtc.library",
            "cuda",
            Status::Blocked,
            format!("{} is not of major version {MAJOR}", path.display()),
        )
        .fix(install),
        None => Check::new(
            "nvrtc.library",
            "cuda",
            Status::Absent,
            format!("no libnvrtc.so in {} folders", folders.len()),
        )
        .fix(install),
    }
}

/// The first library of our major version, else the first of any, with the major that its file name tells.
fn newest(folders: &[PathBuf], name: &str) -> Option<(PathBuf, Option<u32>)> {
    let mut found = Vec::new();
    for folder in folders {
        let mut here: Vec<_> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let file = entry.file_name();
                let rest = file.to_str()?.strip_prefix(name)?;
                // `libcupti.so`, `libcupti.so.13`, `libcupti.so.2025.3.1`: a year is no major version.
                let major = rest.strip_prefix('.').and_then(|rest| rest.split('.').next()?.parse().ok());
                (rest.is_empty() || rest.starts_with('.'))
                    .then(|| (entry.path(), major.filter(|major| *major < 1000)))
            })
            .collect();
        here.sort();
        found.extend(here);
    }
    let ours = found.iter().position(|(_, major)| *major == Some(MAJOR));
    let unnumbered = || found.iter().position(|(_, major)| major.is_none());
    ours.or_else(unnumbered).or((!found.is_empty()).then_some(0)).map(|index| found.swap_remove(index))
}

/// Folders in order of preference: option, variable, toolkit, Python packages, loader path, system.
fn search_folders(option: Option<&Path>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = option.map(Path::to_owned).into_iter().collect();
    folders.extend(std::env::var_os("ELASTICO_CUPTI_FOLDER").map(PathBuf::from));
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    for toolkit in toolkits.chain([PathBuf::from("/usr/local/cuda")]) {
        folders.push(toolkit.join("extras/CUPTI/lib64"));
        folders.push(toolkit.join("lib64"));
    }
    for site in python_site_folders() {
        for package in ["cu13", "cuda_cupti", "cuda_nvrtc"] {
            folders.push(site.join("nvidia").join(package).join("lib"));
        }
    }
    if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    folders
        .extend(["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"].map(PathBuf::from));
    let mut seen = std::collections::BTreeSet::new();
    folders.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    folders
}

/// Package folders of the active environment, the user and the system, without starting Python.
fn python_site_folders() -> Vec<PathBuf> {
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os);
    let user = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local"));
    let roots = environments.map(PathBuf::from).chain(user).chain(["/usr/local", "/usr"].map(PathBuf::from));
    let mut sites = Vec::new();
    for root in roots {
        let mut versions: Vec<PathBuf> = std::fs::read_dir(root.join("lib"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                path.file_name()
                    .and_then(|name| name.to_str())
                    .is_some_and(|name| name.starts_with("python3"))
            })
            .collect();
        versions.sort();
        for version in versions {
            sites.push(version.join("site-packages"));
            sites.push(version.join("dist-packages"));
        }
    }
    sites
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            std::fs::write(folder.path().join(file), b"no library").unwrap();
        }
        folder
    }

    #[test]
    fn our_major_version_wins_over_an_unnumbered_link_and_others() {
        let folder = folder_with(&["libcupti.so", "libcupti.so.12", "libcupti.so.13", "libcuptix.so.13"]);
        let (path, major) = newest(&[folder.path().to_owned()], "libcupti.so").unwrap();
        assert!(path.ends_with("libcupti.so.13") && major == Some(13));
        let folder = folder_with(&["libcupti.so.2025.3.1", "libcupti.so.12"]);
        assert_eq!(newest(&[folder.path().to_owned()], "libcupti.so").unwrap().1, None);
    }

    #[test]
    fn another_major_version_is_blocked_and_none_is_absent() {
        let folder = folder_with(&["libcupti.so.12", "libnvrtc.so.12"]);
        let folders = [folder.path().to_owned()];
        assert_eq!(cupti(&folders, None).status, Status::Blocked);
        assert_eq!(nvrtc(&folders).status, Status::Blocked);
        assert_eq!(cupti(&[], None).status, Status::Absent);
        assert_eq!(nvrtc(&[]).status, Status::Absent);
    }

    #[test]
    fn a_file_that_is_no_library_is_an_error_text() {
        let folder = folder_with(&["libcupti.so.13"]);
        assert!(cupti_version(&folder.path().join("libcupti.so.13")).is_err());
    }
}
