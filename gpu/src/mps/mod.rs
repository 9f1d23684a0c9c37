//! The Multi-Process Service: a daemon of our own, started, asked and always stopped.
//!
//! Each [`Daemon`] has a folder of its own for pipes and logs, so that it meets no other. It is stopped when the value is
//! dropped, on error paths and on panic too. A coordinator that is killed leaves its daemon behind; the next
//! [`Daemon::start`] or [`sweep`] finds it by the record in its folder and stops it: the process with the recorded id *and*
//! start time, or an MPS process whose environment names that very folder. A stranger's daemon is never touched.
//!
//! Every call of the control program has a time limit, and there is one caller at a time: with four at once, one call in
//! four was seen to fail on an H200.

mod control;
mod error;
mod folder;
mod process;

pub(crate) use control::version_in;
pub use error::MpsError;

use crate::libraries::Libraries;

use control::{Control, Failure};
use folder::Folder;
use nvml_wrapper::enum_wrappers::device::ComputeMode;
use process::Process;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const CONTROL: &str = "nvidia-cuda-mps-control";
/// How long a daemon may take to end after `quit` before it is killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a daemon is started.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// The control program; `None` finds `nvidia-cuda-mps-control` on PATH.
    pub program: Option<PathBuf>,
    /// The daemon makes a folder of its own inside. Pipes are UNIX sockets, so the path must be short.
    pub folder: PathBuf,
    /// The one GPU that it serves, `GPU-…`; `None`: all.
    pub device_uuid: Option<String>,
    /// The limit of each call of the control program, starting included.
    pub timeout: Duration,
}

/// A running MPS daemon that belongs to this process. Dropping it stops it.
#[derive(Debug)]
pub struct Daemon {
    options: DaemonOptions,
    control: Control,
    folder: Folder,
    version: Option<String>,
    process: Option<Process>,
    one_caller: Mutex<()>,
}

impl Daemon {
    /// Starts a daemon and waits until it answers. Daemons that earlier coordinators left in the same folder are stopped
    /// first.
    ///
    /// # Errors
    /// [`MpsError`]. Nothing is left running then.
    pub fn start(options: &DaemonOptions) -> Result<Self, MpsError> {
        let program = program(options.program.as_deref())?;
        sweep(&options.folder, options.timeout);
        refuse_foreign(options.device_uuid.as_deref())?;
        let folder = Folder::create(&options.folder, &program)?;
        let control = Control::new(program, &folder, options);
        // From here on, dropping the value cleans up.
        let mut daemon = Self {
            options: options.clone(),
            control,
            folder,
            version: None,
            process: None,
            one_caller: Mutex::new(()),
        };
        daemon.version = daemon.control.version();
        daemon.launch()?;
        daemon.ask("get_server_list")?;
        Ok(daemon)
    }

    fn launch(&mut self) -> Result<(), MpsError> {
        let deadline = Instant::now() + self.options.timeout;
        let program = self.control.program().to_owned();
        let answer = self.control.run(&["-d"], None).map_err(|failure| match failure {
            Failure::Start(source) => MpsError::Program { program: program.clone(), source },
            Failure::Timeout => {
                MpsError::StartTimeout { timeout: self.options.timeout, log: self.log_tail() }
            }
        })?;
        if !answer.is_success {
            return Err(MpsError::Refused { program, says: answer.last_line(), log: self.log_tail() });
        }
        loop {
            if let Some(process) = self.folder.daemon().filter(|_| self.folder.has_pipe()) {
                self.folder.record(process);
                self.process = Some(process);
                return Ok(());
            }
            if Instant::now() >= deadline {
                let log = self.log_tail();
                return Err(if self.folder.has_pipe() {
                    MpsError::Died { log }
                } else {
                    MpsError::NoPipe { folder: self.folder.pipes(), log }
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What a client process needs in its environment: the daemon's pipes, the share of the SMs that it may use, and its
    /// limit of device memory in bytes.
    ///
    /// The percentage limits; it reserves nothing, and it is fixed when the client makes its context.
    pub fn client_environment(&self, percent: u8, memory_limit: Option<u64>) -> Vec<(String, String)> {
        let mut environment = self.folder.environment();
        environment.push(("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE".to_owned(), percent.clamp(1, 100).to_string()));
        if let Some(bytes) = memory_limit {
            let mebibytes = (bytes >> 20).max(1);
            environment.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT".to_owned(), format!("0={mebibytes}M")));
        }
        environment
    }

    /// The control program's version, for example `13.0`; `None` where it does not tell.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The process id of the daemon.
    pub fn process_id(&self) -> Option<u32> {
        self.process.map(Process::id)
    }

    /// The folder of the pipes, `CUDA_MPS_PIPE_DIRECTORY`.
    pub fn pipes(&self) -> PathBuf {
        self.folder.pipes()
    }

    /// The servers that run: the daemon starts one when the first client comes.
    ///
    /// # Errors
    /// [`MpsError::Control`] and its like.
    pub fn servers(&self) -> Result<Vec<u32>, MpsError> {
        let answer = self.ask("get_server_list")?;
        Ok(answer.split_whitespace().filter_map(|word| word.parse().ok()).collect())
    }

    /// Whether the daemon's process lives and its pipe is there. Without either, programs would run without MPS, and in
    /// silence.
    pub fn is_alive(&self) -> bool {
        self.process.is_some_and(Process::is_alive) && self.folder.has_pipe()
    }

    /// Whether the daemon lives, answers, and none of its servers reports a fault. To be asked after a client died: one
    /// client's fault can take a server down while the daemon still looks alive.
    pub fn is_healthy(&self) -> bool {
        if !self.is_alive() {
            return false;
        }
        let Ok(servers) = self.servers() else { return false };
        servers.iter().all(|server| {
            Process::of(*server).is_some()
                && match self.ask(&format!("get_server_status {server}")) {
                    Ok(status) => !status.to_ascii_uppercase().contains("FAULT"),
                    // A program that does not know the command: then the server's life must do.
                    Err(MpsError::Control { .. }) => self.is_alive(),
                    Err(_) => false,
                }
        })
    }

    /// Stops it and starts another, in a folder of its own: the environment of clients changes.
    ///
    /// # Errors
    /// [`MpsError`]; then there is no daemon, and only another restart can help.
    pub fn restart(&mut self) -> Result<(), MpsError> {
        self.halt()?;
        *self = Self::start(&self.options.clone())?;
        Ok(())
    }

    /// The last lines of the daemon's and the servers' logs.
    pub fn log_tail(&self) -> String {
        self.folder.log_tail()
    }

    /// Stops the daemon and its servers, first by asking, then by force.
    ///
    /// # Errors
    /// [`MpsError::StillAlive`] where a process survives even that.
    pub fn stop(mut self) -> Result<(), MpsError> {
        self.halt()
    }

    fn halt(&mut self) -> Result<(), MpsError> {
        let _one = self.one_caller.lock();
        self.process = None;
        halt(&self.control, &self.folder, self.options.timeout)
    }

    fn ask(&self, command: &str) -> Result<String, MpsError> {
        let _one = self.one_caller.lock();
        let fail =
            |says: String| MpsError::Control { command: command.to_owned(), says, log: self.log_tail() };
        match self.control.run(&[], Some(command)) {
            // An empty list may be told by the exit code alone.
            Ok(answer) if answer.is_success || (answer.text.trim().is_empty() && self.is_alive()) => {
                Ok(answer.text)
            }
            Ok(answer) => Err(fail(answer.last_line())),
            Err(Failure::Start(source)) => Err(fail(source.to_string())),
            Err(Failure::Timeout) => Err(MpsError::ControlTimeout {
                command: command.to_owned(),
                timeout: self.options.timeout,
                log: self.log_tail(),
            }),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A process that survives SIGKILL hangs in the driver; nothing here can end it.
        let _ = self.halt();
    }
}

/// The environment of a process that must not meet any MPS daemon: a pipe folder without a pipe. Without it, a program
/// joins whatever daemon the machine runs. `folder` must be private to the caller and empty.
pub fn without_mps(folder: &Path) -> Vec<(String, String)> {
    vec![("CUDA_MPS_PIPE_DIRECTORY".to_owned(), folder.to_string_lossy().into_owned())]
}

/// Stops the daemons in this folder whose coordinator is gone, and removes their folders. Returns how many there were.
pub fn sweep(folder: &Path, timeout: Duration) -> usize {
    let left = Folder::abandoned(folder);
    for (folder, program) in &left {
        let options =
            DaemonOptions { program: None, folder: folder.path().to_owned(), device_uuid: None, timeout };
        let _ = halt(&Control::new(program.clone(), folder, &options), folder, timeout);
    }
    left.len()
}

/// Ends every MPS process of a folder and removes it.
fn halt(control: &Control, folder: &Folder, timeout: Duration) -> Result<(), MpsError> {
    if folder.daemon().is_some() && folder.has_pipe() {
        // One that did not hear the request is not waited for.
        if control.run(&[], Some("quit -t 2")).is_ok_and(|answer| answer.is_success) {
            process::wait_for(timeout.min(PATIENCE), || folder.processes().is_empty());
        }
    }
    let left = process::end(|| folder.processes());
    folder.remove();
    left.map_or(Ok(()), |process| Err(MpsError::StillAlive { process: process.id() }))
}

fn program(named: Option<&Path>) -> Result<PathBuf, MpsError> {
    if let Some(named) = named {
        return if named.is_file() {
            Ok(named.to_owned())
        } else {
            Err(MpsError::Absent { program: named.to_owned() })
        };
    }
    std::env::var_os("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .map(|folder| folder.join(CONTROL))
        .find(|program| program.is_file())
        .ok_or_else(|| MpsError::Absent { program: PathBuf::from(CONTROL) })
}

/// A second daemon is no trouble, unless the GPU takes only one process: then the first one's server is that process.
fn refuse_foreign(device_uuid: Option<&str>) -> Result<(), MpsError> {
    let mut daemons =
        process::mps_processes().into_iter().filter(|process| process.name().contains("control"));
    let Some(other) = daemons.find(|process| process.may_serve(device_uuid)) else { return Ok(()) };
    let mode = crate::telemetry::nvml(&Libraries::from_environment()).ok().and_then(|nvml| {
        let device = match device_uuid {
            Some(uuid) => nvml.device_by_uuid(uuid),
            None => nvml.device_by_index(0),
        };
        device.ok()?.compute_mode().ok()
    });
    if mode == Some(ComputeMode::ExclusiveProcess) {
        return Err(MpsError::Foreign { process: other.process().id(), user: other.user() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_absence() {
        let error = program(Some(Path::new("/nowhere/nvidia-cuda-mps-control"))).unwrap_err();
        assert!(error.is_absence());
        assert!(error.to_string().contains("/nowhere/nvidia-cuda-mps-control"), "{error}");
    }

    #[test]
    fn without_mps_names_a_folder_without_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let environment = without_mps(folder.path());
        assert_eq!(environment[0].0, "CUDA_MPS_PIPE_DIRECTORY");
        assert!(!Path::new(&environment[0].1).join("control").exists());
    }
}
