//! The host: cores, load, memory and room for files.

use super::{Area, Check, ProbeOptions, Status};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::path::{Path, PathBuf};

/// Two workers of 600 MB.
const MEMORY_NEEDED: f64 = 1.2e9;
/// Rings of a pair with room to spare.
const SHARED_MEMORY_NEEDED: f64 = 16e6;
/// A long campaign's journal and Parquet parts.
const DISK_NEEDED: f64 = 1e9;

/// The cores that this process may run on, in ascending order.
///
/// # Errors
/// What the system says where it cannot tell.
pub fn allowed_cores() -> std::io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

pub(super) fn check(options: &ProbeOptions) -> Vec<Check> {
    let cores = allowed_cores();
    let count = cores.as_ref().map_or(1, Vec::len);
    vec![
        cores_check(cores, quota(&options.process_folder, &options.system_folder)),
        load(&options.process_folder, count),
        room("host.shared_memory", &options.ring_folder, SHARED_MEMORY_NEEDED, "step rings", true),
        memory(&options.process_folder, &options.system_folder),
        room("host.disk", &options.data_folder, DISK_NEEDED, "results", false),
        governor(&options.system_folder),
    ]
}

fn cores_check(cores: std::io::Result<Vec<usize>>, quota: Option<f64>) -> Check {
    let check = |status, finding: String| Check::new("host.cores", Area::Host, status, finding);
    let cores = match cores {
        Ok(cores) => cores,
        Err(error) => {
            return check(Status::Warn, format!("the allowed cores cannot be read: {error}"))
                .fix("measure with `--device sim:h100`");
        }
    };
    let count = cores.len();
    if let Some(quota) = quota.filter(|quota| *quota < count as f64) {
        return check(
            Status::Warn,
            format!("{count} cores are visible, but the container may use only {quota:.2}: times jump as it is stopped"),
        )
        .fix(format!("give the container --cpus={count} or pin it with --cpuset-cpus"));
    }
    if count < 2 {
        return check(Status::Warn, "1 core: the two sides of a pair can only take turns".to_owned())
            .fix("allow at least 2 cores (taskset, --cpuset-cpus) for pairs with shares");
    }
    check(Status::Ok, format!("{count} cores allowed"))
}

/// The control group's limit in cores, the tightest of all levels.
fn quota(process_folder: &Path, system_folder: &Path) -> Option<f64> {
    group_folders(process_folder, system_folder)
        .iter()
        .filter_map(|folder| {
            let two = |text: &str| {
                let mut parts = text.split_ascii_whitespace().map(str::parse::<f64>);
                Some(parts.next()?.ok()? / parts.next()?.ok()?)
            };
            let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
            // `max 100000` means no limit, and does not parse.
            read("cpu.max").and_then(|text| two(&text)).or_else(|| {
                two(&format!("{} {}", read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?))
                    .filter(|cores| *cores > 0.0)
            })
        })
        .min_by(f64::total_cmp)
}

/// Control group folders of this process, from the root down, for both versions of the interface.
fn group_folders(process_folder: &Path, system_folder: &Path) -> Vec<PathBuf> {
    let groups = std::fs::read_to_string(process_folder.join("self/cgroup")).unwrap_or_default();
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let root = if controllers.is_empty() {
            system_folder.join("fs/cgroup")
        } else if controllers.split(',').any(|name| name == "cpu" || name == "memory") {
            system_folder.join("fs/cgroup").join(controllers)
        } else {
            continue;
        };
        let mut folder = root.clone();
        folders.push(root);
        for part in Path::new(path).components() {
            if let std::path::Component::Normal(name) = part {
                folder.push(name);
                folders.push(folder.clone());
            }
        }
    }
    folders
}

fn load(process_folder: &Path, cores: usize) -> Check {
    let load = std::fs::read_to_string(process_folder.join("loadavg"))
        .ok()
        .and_then(|text| text.split_ascii_whitespace().next()?.parse::<f64>().ok());
    match load {
        None => Check::new("host.load", Area::Host, Status::Absent, "the load average cannot be read"),
        Some(load) if load > 0.25 * cores as f64 => Check::new(
            "host.load",
            Area::Host,
            Status::Warn,
            format!("load average {load:.2} on {cores} cores: other programs disturb a measurement"),
        )
        .fix("stop other programs (see `top`), or expect retries for drift"),
        Some(load) => Check::new(
            "host.load",
            Area::Host,
            Status::Ok,
            format!("load average {load:.2} on {cores} cores"),
        ),
    }
}

fn memory(process_folder: &Path, system_folder: &Path) -> Check {
    let available = std::fs::read_to_string(process_folder.join("meminfo")).ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
    });
    let limited = group_folders(process_folder, system_folder)
        .iter()
        .filter_map(|folder| {
            let read =
                |name: &str| std::fs::read_to_string(folder.join(name)).ok()?.trim().parse::<f64>().ok();
            Some(read("memory.max")? - read("memory.current")?)
        })
        .min_by(f64::total_cmp);
    let Some(free) = available.map(|free| limited.map_or(free, |limit| free.min(limit.max(0.0)))) else {
        return Check::new("host.memory", Area::Host, Status::Absent, "free memory cannot be read");
    };
    let finding = format!("{:.1} GB of memory available", free / 1e9);
    if free < MEMORY_NEEDED {
        Check::new(
            "host.memory",
            Area::Host,
            Status::Warn,
            finding + ", a pair of CPU workers may need 1.2 GB",
        )
        .fix("free some memory or raise the container's limit")
    } else {
        Check::new("host.memory", Area::Host, Status::Ok, finding)
    }
}

fn room(id: &str, folder: &Path, needed: f64, use_for: &str, is_memory: bool) -> Check {
    let place = folder.display();
    let volume = match rustix::fs::statvfs(folder) {
        Ok(volume) => volume,
        Err(error) => {
            return Check::new(
                id,
                Area::Host,
                Status::Blocked,
                format!("{place} cannot be used for {use_for}: {error}"),
            )
            .fix(format!("create {place} and make it writable"));
        }
    };
    if rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_err() {
        return Check::new(id, Area::Host, Status::Blocked, format!("{place} is not writable"))
            .fix(format!("make {place} writable for this user"));
    }
    let free = volume.f_bavail as f64 * volume.f_frsize as f64;
    let finding = format!("{:.1} GB free in {place}", free / 1e9);
    if free >= needed {
        Check::new(id, Area::Host, Status::Ok, finding)
    } else if is_memory {
        Check::new(id, Area::Host, Status::Blocked, finding)
            .fix("docker run --shm-size=1g, or remove files there")
    } else {
        Check::new(id, Area::Host, Status::Warn, finding).fix("free some space or write elsewhere with --out")
    }
}

fn governor(system_folder: &Path) -> Check {
    let path = system_folder.join("devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let check = |status, finding: String| Check::new("host.governor", Area::Host, status, finding);
    match std::fs::read_to_string(path).map(|text| text.trim().to_owned()) {
        Err(_) => check(Status::Absent, "the frequency governor is not visible here".to_owned()),
        Ok(name) if name == "performance" => check(Status::Ok, "frequency governor `performance`".to_owned()),
        Ok(name) => check(Status::Warn, format!("frequency governor `{name}`: the clock follows the load"))
            .fix("cpupower frequency-set -g performance"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tightest_quota_of_all_levels_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(quota(root, root), None);
        write(root, "self/cgroup", "0::/a/b\n");
        write(root, "fs/cgroup/cpu.max", "max 100000\n");
        write(root, "fs/cgroup/a/cpu.max", "150000 100000\n");
        write(root, "fs/cgroup/a/b/cpu.max", "400000 100000\n");
        assert_eq!(quota(root, root), Some(1.5));
        write(root, "self/cgroup", "4:cpu,cpuacct:/c\n");
        write(root, "fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "-1");
        write(root, "fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000");
        assert_eq!(quota(root, root), None);
    }

    #[test]
    fn cores_are_judged_by_number_and_quota() {
        assert_eq!(cores_check(Ok(vec![0, 1]), None).status, Status::Ok);
        assert_eq!(cores_check(Ok(vec![0, 1]), Some(2.0)).status, Status::Ok);
        assert_eq!(cores_check(Ok(vec![0, 1]), Some(0.5)).status, Status::Warn);
        assert_eq!(cores_check(Ok(vec![3]), None).status, Status::Warn);
        assert!(!allowed_cores().unwrap().is_empty());
    }

    #[test]
    fn load_memory_and_governor_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "loadavg", "1.90 1.00 0.50 1/100 42\n");
        assert_eq!(load(root, 2).status, Status::Warn);
        assert_eq!(load(root, 64).status, Status::Ok);
        write(root, "meminfo", "MemTotal: 9 kB\nMemAvailable:    4000000 kB\n");
        assert_eq!(memory(root, root).status, Status::Ok);
        write(root, "self/cgroup", "0::/a\n");
        write(root, "fs/cgroup/a/memory.max", "1000000000\n");
        write(root, "fs/cgroup/a/memory.current", "900000000\n");
        assert_eq!(memory(root, root).status, Status::Warn);
        write(root, "devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
        assert_eq!(governor(root).status, Status::Warn);
    }

    #[test]
    fn a_missing_folder_is_blocked_and_a_full_one_too() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(room("x", &folder.path().join("no"), 1.0, "x", true).status, Status::Blocked);
        assert_eq!(room("x", folder.path(), 1e18, "x", true).status, Status::Blocked);
        assert_eq!(room("x", folder.path(), 1e18, "x", false).status, Status::Warn);
        assert_eq!(room("x", folder.path(), 1.0, "x", true).status, Status::Ok);
    }
}
