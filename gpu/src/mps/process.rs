//! Processes by id and start time: an id alone may be another process by now.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::path::Path;
use std::time::{Duration, Instant};

/// A process, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    id: u32,
    /// Field 22 of /proc/PID/stat: clock ticks after boot.
    started: u64,
}

impl Process {
    /// The living process of this id.
    pub(super) fn of(id: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name in parentheses may hold anything.
        let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
        let state = fields.next()?;
        if matches!(state, "Z" | "X") {
            return None;
        }
        Some(Self { id, started: fields.nth(18)?.parse().ok()? })
    }

    pub(super) fn this() -> Option<Self> {
        Self::of(std::process::id())
    }

    pub(super) const fn id(self) -> u32 {
        self.id
    }

    pub(super) fn is_alive(self) -> bool {
        Self::of(self.id) == Some(self)
    }

    fn signal(self, signal: Signal) {
        let Some(id) = i32::try_from(self.id).ok().and_then(Pid::from_raw) else { return };
        // The descriptor keeps the process that has the id now; only then is it compared.
        if let Ok(handle) = pidfd_open(id, PidfdFlags::empty())
            && self.is_alive()
        {
            // It may have ended meanwhile, which is what the signal is for.
            let _ = pidfd_send_signal(handle, signal);
        }
    }

    /// `id started`.
    pub(super) fn to_text(self) -> String {
        format!("{} {}", self.id, self.started)
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (id, started) = text.trim().split_once(' ')?;
        Some(Self { id: id.parse().ok()?, started: started.parse().ok()? })
    }
}

/// A process of MPS: a control daemon or a server.
#[derive(Debug)]
pub(super) struct MpsProcess {
    process: Process,
    name: String,
    pipes: Option<Vec<u8>>,
    devices: Option<String>,
    is_hidden: bool,
}

impl MpsProcess {
    pub(super) const fn process(&self) -> Process {
        self.process
    }

    /// The file name of its program, as far as it can be read.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The owner, as a number or `root`.
    pub(super) fn user(&self) -> String {
        use std::os::unix::fs::MetadataExt as _;
        match std::fs::metadata(format!("/proc/{}", self.process.id)).map(|facts| facts.uid()) {
            Ok(0) => "root".to_owned(),
            Ok(user) => format!("user {user}"),
            Err(_) => "another user".to_owned(),
        }
    }

    /// Whether it may serve this GPU: it was not limited to others by their UUIDs.
    pub(super) fn may_serve(&self, uuid: Option<&str>) -> bool {
        match (&self.devices, uuid) {
            (Some(devices), Some(uuid)) => {
                devices.split(',').any(|device| !device.starts_with("GPU-") || device == uuid)
            }
            _ => true,
        }
    }

    /// Whether its environment cannot be read.
    pub(super) const fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// Whether its environment names this folder as the place of its pipes.
    pub(super) fn is_of(&self, pipes: &Path) -> bool {
        self.pipes.as_deref() == Some(pipes.as_os_str().as_encoded_bytes())
    }
}

/// All processes of MPS that can be seen.
pub(super) fn mps_processes() -> Vec<MpsProcess> {
    let mut found: Vec<MpsProcess> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            // Names are cut to 15 bytes; daemon and server look alike there.
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            if !name.starts_with("nvidia-cuda-mps") {
                return None;
            }
            let process = Process::of(id)?;
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
            let program = String::from_utf8_lossy(program);
            let program = program.rsplit('/').next().unwrap_or_default();
            let name = if program.is_empty() { name.trim_end() } else { program }.to_owned();
            let variables = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let is_hidden = variables.is_empty();
            let variable = |prefix: &[u8]| {
                let mut all = variables.split(|byte| *byte == 0);
                all.find_map(|variable| variable.strip_prefix(prefix)).map(<[u8]>::to_vec)
            };
            let devices = variable(b"CUDA_VISIBLE_DEVICES=");
            let devices = devices.map(|devices| String::from_utf8_lossy(&devices).into_owned());
            Some(MpsProcess {
                process,
                name,
                pipes: variable(b"CUDA_MPS_PIPE_DIRECTORY="),
                devices,
                is_hidden,
            })
        })
        .collect();
    found.sort_by_key(|found| found.process.id);
    found
}

/// Waits until it is so, or the time is over; whether it is so.
pub(super) fn wait_for(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends all of these, by request and then by force; one that is still there.
pub(super) fn end(processes: impl Fn() -> Vec<Process>) -> Option<Process> {
    for (signal, limit) in [(Signal::TERM, 500), (Signal::KILL, 2000)] {
        let mut left = processes();
        if left.is_empty() {
            return None;
        }
        for process in &left {
            process.signal(signal);
        }
        wait_for(Duration::from_millis(limit), || {
            left = processes();
            left.is_empty()
        });
    }
    processes().first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_itself_and_a_recorded_one_survives_text() {
        let this = Process::this().unwrap();
        assert!(this.is_alive());
        assert_eq!(Process::from_text(&this.to_text()), Some(this));
        assert_eq!(Process::from_text("12"), None);
        let other = Process { started: this.started + 1, ..this };
        assert!(!other.is_alive(), "the same id at another time is another process");
    }

    #[test]
    fn a_signal_for_a_former_process_of_the_same_id_is_not_sent() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        Process { started: process.started + 1, ..process }.signal(Signal::KILL);
        assert!(process.is_alive());
        assert_eq!(end(|| process.is_alive().then_some(process).into_iter().collect()), None);
        assert!(!process.is_alive(), "a zombie counts as gone");
        child.wait().unwrap();
    }
}
