//! Who may read hardware counters, and who holds them.

use super::{Area, Check, Status, process_names};
use std::path::Path;

/// Programs that hold the performance monitor while they run. The kernel cuts command names to 15 bytes.
const OWNERS: [&str; 7] =
    ["nv-hostengine", "dcgm-exporter", "dcgmproftester", "ncu", "nsys", "nsys-launcher", "nvprof"];

const CAP_SYS_ADMIN: u64 = 1 << 21;

pub(super) fn check(process_folder: &Path) -> Vec<Check> {
    vec![permission(process_folder), owner(process_folder)]
}

fn permission(process_folder: &Path) -> Check {
    let check = |status, finding: &str| Check::new("counters.permission", Area::Counters, status, finding);
    let Ok(parameters) = std::fs::read_to_string(process_folder.join("driver/nvidia/params")) else {
        return check(Status::Absent, "the NVIDIA kernel module is not loaded");
    };
    let restricted = parameters
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == "RmProfilingAdminOnly")
        .map(|(_, value)| value.trim() != "0");
    match restricted {
        Some(false) => check(Status::Ok, "every user may read counters"),
        Some(true) if is_administrator(process_folder) => {
            check(Status::Ok, "counters are for administrators, and this process is one")
        }
        Some(true) => check(
            Status::Blocked,
            "counters are for administrators only; campaigns run, with timing and without counters",
        )
        .fix(
            "run as root or with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN), or on the host: \
             echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > /etc/modprobe.d/nvidia-counters.conf, \
             then reload the module",
        ),
        None => check(Status::Warn, "the driver does not say who may read counters")
            .fix("run one trial with counters and look at its `counters_status`"),
    }
}

/// The try at sampling decides: where it worked, the driver's setting is no fault, whatever it says.
pub(super) fn settle(checks: &mut [Check]) {
    let has_sampled =
        checks.iter().any(|check| check.id.starts_with("cupti.sampling") && check.status == Status::Ok);
    for check in checks.iter_mut().filter(|check| check.id == "counters.permission") {
        if has_sampled && check.status == Status::Blocked {
            check.status = Status::Ok;
            check.finding = String::from("counters are for administrators, and sampling works here");
            check.fix = None;
        }
    }
}

fn is_administrator(process_folder: &Path) -> bool {
    std::fs::read_to_string(process_folder.join("self/status")).is_ok_and(|status| {
        status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & CAP_SYS_ADMIN != 0)
    })
}

fn owner(process_folder: &Path) -> Check {
    let holders: Vec<String> = process_names(process_folder)
        .into_iter()
        .filter(|(_, name)| OWNERS.iter().any(|owner| name == &owner[..owner.len().min(15)]))
        .map(|(process, name)| format!("{name} ({process})"))
        .collect();
    if holders.is_empty() {
        return Check::new("counters.owner", Area::Counters, Status::Ok, "no other profiler is running");
    }
    let finding = format!("{} may hold the performance monitor", holders.join(", "));
    Check::new("counters.owner", Area::Counters, Status::Warn, finding)
        .fix("dcgmi profile --pause (and --resume afterwards), or stop the profiler")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process_folder(
        restricted: Option<&str>,
        capabilities: &str,
        names: &[(&str, &str)],
    ) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        if let Some(value) = restricted {
            write("driver/nvidia/params", &format!("Other: 3\nRmProfilingAdminOnly: {value}\n"));
        }
        write("self/status", &format!("Name:\tx\nCapEff:\t{capabilities}\n"));
        for (process, name) in names {
            write(&format!("{process}/comm"), &format!("{name}\n"));
        }
        folder
    }

    #[test]
    fn permission_follows_the_driver_and_the_capability() {
        let status = |restricted, capabilities| {
            permission(process_folder(restricted, capabilities, &[]).path()).status
        };
        assert_eq!(status(None, "0"), Status::Absent);
        assert_eq!(status(Some("0"), "0"), Status::Ok);
        assert_eq!(status(Some("1"), "0000000000000000"), Status::Blocked);
        assert_eq!(status(Some("1"), "000001ffffffffff"), Status::Ok);
    }

    #[test]
    fn a_running_profiler_is_named() {
        let folder = process_folder(None, "0", &[("31", "nv-hostengine"), ("32", "bash")]);
        let check = owner(folder.path());
        assert_eq!(check.status, Status::Warn);
        assert!(check.finding.contains("nv-hostengine (31)") && !check.finding.contains("bash"));
    }
}
