//! The kernel and what is below it: some virtual machines and sandboxes have no counters.

use super::{Area, Check, ProbeOptions, Status};
use serde::Serialize;
use std::path::Path;

/// The host that this process runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The kernel's release, `6.1.0`.
    pub kernel: Option<String>,
    /// The processor's name.
    pub processor: Option<String>,
    /// `gvisor`, `wsl`, `firecracker`, the maker of the virtual machine, or `None` on bare metal or where nothing shows it.
    pub virtualization: Option<String>,
    /// `docker`, `podman`, `kubernetes`, or `None`.
    pub container: Option<String>,
}

impl Machine {
    pub(super) fn read(options: &ProbeOptions) -> Self {
        let (process, system) = (&options.process_folder, &options.system_folder);
        let text = |path: &Path| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let processor = text(&process.join("cpuinfo")).and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        Self {
            kernel: text(&process.join("sys/kernel/osrelease")),
            processor,
            virtualization: virtualization(process, system),
            container: container(process),
        }
    }

    /// Whether it is a sandbox that answers system calls itself.
    pub fn is_gvisor(&self) -> bool {
        self.virtualization.as_deref() == Some("gvisor")
    }
}

fn virtualization(process: &Path, system: &Path) -> Option<String> {
    let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let version = text(&process.join("version"));
    // gVisor gives itself out as Linux 4.4.0 with this build date.
    if version.contains("gVisor") || version.contains("Sun Jan 10 15:06:54 PST 2016") {
        return Some("gvisor".to_owned());
    }
    if version.to_lowercase().contains("microsoft") {
        return Some("wsl".to_owned());
    }
    let maker = text(&system.join("class/dmi/id/sys_vendor")).trim().to_owned();
    let product = text(&system.join("class/dmi/id/product_name")).trim().to_owned();
    let flags = text(&process.join("cpuinfo"));
    let is_guest = flags.lines().any(|line| {
        line.starts_with("flags") && line.split_ascii_whitespace().any(|flag| flag == "hypervisor")
    });
    if !is_guest {
        return None;
    }
    let command_line = text(&process.join("cmdline"));
    let is_micro = command_line.contains("virtio_mmio.device=") || command_line.contains("firecracker");
    if maker.is_empty() && is_micro {
        return Some("firecracker".to_owned());
    }
    let name = [maker, product].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    Some(if name.is_empty() { "virtual machine".to_owned() } else { name })
}

fn container(process: &Path) -> Option<String> {
    let groups = std::fs::read_to_string(process.join("1/cgroup")).unwrap_or_default();
    let root = process.join("1/root");
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() || groups.contains("kubepods") {
        Some("kubernetes".to_owned())
    } else if root.join(".dockerenv").exists() || groups.contains("docker") {
        Some("docker".to_owned())
    } else if root.join("run/.containerenv").exists() || groups.contains("libpod") {
        Some("podman".to_owned())
    } else {
        None
    }
}

pub(super) fn check(machine: &Machine) -> Check {
    let parts = [
        Some(format!("Linux {}", machine.kernel.as_deref().unwrap_or("of an unknown release"))),
        machine.virtualization.clone(),
        machine.container.as_ref().map(|container| format!("in {container}")),
        machine.processor.clone(),
    ];
    let finding = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    if machine.is_gvisor() {
        return Check::new(
            "host.platform",
            Area::Host,
            Status::Warn,
            finding + ": gVisor does not pass hardware counters through",
        )
        .fix("use another container runtime (runc, Kata) for counters; timing works here");
    }
    Check::new("host.platform", Area::Host, Status::Ok, finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let folder = folder.path().to_owned();
        let options = ProbeOptions {
            process_folder: folder.clone(),
            system_folder: folder.clone(),
            ..ProbeOptions::default()
        };
        Machine { container: None, ..Machine::read(&options) }
    }

    #[test]
    fn sandboxes_and_virtual_machines_are_told_apart() {
        let guest = ("cpuinfo", "model name\t: A CPU\nflags\t\t: fpu hypervisor\n");
        let bare = machine(&[("cpuinfo", "model name\t: A CPU\nflags\t\t: fpu\n")]);
        assert_eq!((bare.virtualization, bare.processor.as_deref()), (None, Some("A CPU")));
        let gvisor =
            machine(&[guest, ("version", "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n")]);
        assert!(gvisor.is_gvisor() && check(&gvisor).status == Status::Warn);
        let micro = machine(&[guest, ("cmdline", "console=ttyS0 virtio_mmio.device=4K@0xd0000000:5\n")]);
        assert_eq!(micro.virtualization.as_deref(), Some("firecracker"));
        let cloud =
            machine(&[guest, ("class/dmi/id/sys_vendor", "Maker\n"), ("class/dmi/id/product_name", "P1\n")]);
        assert_eq!(cloud.virtualization.as_deref(), Some("Maker P1"));
        assert_eq!(check(&cloud).status, Status::Ok);
        assert_eq!(machine(&[guest]).virtualization.as_deref(), Some("virtual machine"));
    }
}
