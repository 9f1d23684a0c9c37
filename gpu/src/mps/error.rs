//! Why MPS cannot be used.

use elastico_core::{Hint, Outcome};
use std::path::PathBuf;
use std::time::Duration;

/// Why MPS cannot be used. `log` is the end of the daemon's log, and empty where there is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpsError {
    /// No such program.
    #[error("there is no MPS control program `{}`", program.display())]
    Absent {
        /// What was looked for.
        program: PathBuf,
    },
    /// It cannot be run.
    #[error("the MPS control program `{}` cannot be run", program.display())]
    Program {
        /// What was run.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The folder for pipes and logs cannot be made.
    #[error("the folder `{}` for MPS cannot be used", folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Its path is too long for a UNIX socket.
    #[error("the path `{}` is {excess} bytes too long for the pipes of MPS", folder.display())]
    TooLong {
        /// Which.
        folder: PathBuf,
        /// By how much.
        excess: usize,
    },
    /// Another daemon has the GPU, which takes one process only.
    #[error("the MPS daemon of {user} (process {process}) holds the GPU, which is in exclusive compute mode")]
    Foreign {
        /// The other daemon.
        process: u32,
        /// Whose it is.
        user: String,
    },
    /// The daemon says that it cannot start.
    #[error("the MPS daemon does not start: {says}{}", ending(log))]
    Refused {
        /// What was run.
        program: PathBuf,
        /// Its last line of output.
        says: String,
        /// The end of its log.
        log: String,
    },
    /// Starting does not end.
    #[error("the MPS daemon does not start within {} s{}", timeout.as_secs_f64(), ending(log))]
    StartTimeout {
        /// The limit.
        timeout: Duration,
        /// The end of its log.
        log: String,
    },
    /// It says that it started, and there is no pipe: clients would run without MPS.
    #[error("the MPS daemon made no pipe in `{}`{}", folder.display(), ending(log))]
    NoPipe {
        /// Where it should be.
        folder: PathBuf,
        /// The end of its log.
        log: String,
    },
    /// It started and is gone.
    #[error("the MPS daemon died{}", ending(log))]
    Died {
        /// The end of its log.
        log: String,
    },
    /// A command failed.
    #[error("the MPS command `{command}` failed: {says}{}", ending(log))]
    Control {
        /// The command.
        command: String,
        /// What the program said.
        says: String,
        /// The end of the daemon's log.
        log: String,
    },
    /// A command does not end.
    #[error("the MPS command `{command}` does not end within {} s{}", timeout.as_secs_f64(), ending(log))]
    ControlTimeout {
        /// The command.
        command: String,
        /// The limit.
        timeout: Duration,
        /// The end of the daemon's log.
        log: String,
    },
    /// A process survives being killed.
    #[error("process {process} of the MPS daemon cannot be ended")]
    StillAlive {
        /// Which.
        process: u32,
    },
}

/// The last line of a log, as the end of a message.
fn ending(log: &str) -> String {
    log.lines()
        .rfind(|line| !line.trim().is_empty())
        .map_or(String::new(), |line| format!("; its log ends: {}", line.trim()))
}

impl MpsError {
    /// Whether this machine simply has no MPS.
    pub const fn is_absence(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }

    /// How a trial ends that met this error.
    pub const fn outcome(&self) -> Outcome {
        if self.is_absence() { Outcome::Unsupported } else { Outcome::MpsFault }
    }

    /// The end of the daemon's log.
    pub fn log(&self) -> Option<&str> {
        match self {
            Self::Refused { log, .. }
            | Self::StartTimeout { log, .. }
            | Self::NoPipe { log, .. }
            | Self::Died { log }
            | Self::Control { log, .. }
            | Self::ControlTimeout { log, .. } => Some(log),
            _ => None,
        }
    }
}

impl Hint for MpsError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Absent { .. } => {
                "install the driver's compute utilities (nvidia-compute-utils), or measure with time_slice".to_owned()
            }
            Self::Program { .. } => "make it executable, or name another by its path".to_owned(),
            Self::Folder { .. } => "choose a folder that this user may write".to_owned(),
            Self::TooLong { .. } => "choose a folder near the root, such as /tmp/elastico".to_owned(),
            Self::Foreign { process, .. } => format!(
                "stop that daemon (echo quit | nvidia-cuda-mps-control, as its user; process {process}), or set `nvidia-smi -c DEFAULT`"
            ),
            Self::Refused { .. } | Self::NoPipe { .. } | Self::Died { .. } => {
                "start it by hand with `nvidia-cuda-mps-control -f` to see why; containers need --ipc=host for it".to_owned()
            }
            Self::StartTimeout { .. } | Self::ControlTimeout { .. } | Self::Control { .. } => {
                "check `nvidia-smi` and `dmesg | grep -i xid`: MPS hangs where the driver does".to_owned()
            }
            Self::StillAlive { process } => {
                format!("process {process} hangs in the driver; only a reset of the GPU or a reboot ends it")
            }
        })
    }
}
