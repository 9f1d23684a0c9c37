//! One command of the user's: started, watched, parked, ended.

mod reading;

use super::lines::{self, Logs, Ticks, follow};
use super::progress::{Event, Progress};
use super::tree::{MARKER_VARIABLE, Tree};
use crate::device::{Fault, Side};
use crate::devices::processes::{Environment, side_name};
use elastico_core::Outcome;
use elastico_gpu::activity::{CUPTI_VARIABLE, FOLDER_VARIABLE, Folder, OWNER_VARIABLE};
use elastico_gpu::ring::{monotonic_nanoseconds, start_time};
use regex::bytes::Regex;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a folder of rings begins; process id and start time of its owner follow.
const PREFIX: &str = "elastico-exec";
/// Time that a command has to end by itself when it is asked to.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest wait for the device to drain what a stopped side had queued.
const LONGEST_DRAIN: Duration = Duration::from_secs(10);
/// Wait for that before a drain has been seen.
const FIRST_DRAIN: Duration = Duration::from_millis(300);
/// How commands are started and watched.
#[derive(Debug, Clone)]
pub(crate) struct StartOptions {
    /// Where they run.
    pub(crate) working_folder: PathBuf,
    /// Where their output is kept.
    pub(crate) log_folder: PathBuf,
    /// Where their rings live; best a memory file system.
    pub(crate) ring_folder: PathBuf,
    /// The library that records kernels; `None` records nothing.
    pub(crate) injection: Option<PathBuf>,
    /// CUPTI as a file, for programs that have none.
    pub(crate) cupti: Option<PathBuf>,
    /// Lines of standard output that are steps.
    pub(crate) pattern: Option<Regex>,
    /// Longest time to steady progress.
    pub(crate) startup: Duration,
    /// A period must hold so long before it is believed: libraries try out kernels in loops of their own.
    pub(crate) hold: Duration,
    /// A side without progress for so long hangs.
    pub(crate) hang: Duration,
    /// Seconds that a trial takes beside the start-up, for advice.
    pub(crate) trial_seconds: f64,
}

/// How a side's steps are told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StepSource {
    /// Not known yet.
    Unknown,
    /// From the kernels of one process.
    Kernels {
        /// Its ring.
        ring: usize,
        /// How.
        progress: Progress,
    },
    /// From lines of output, with the seconds between two.
    Lines(f64),
    /// They cannot be told, and why.
    None(String),
}

/// A living command. Dropping it ends all its processes and removes its rings.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) side: Side,
    pub(crate) source: StepSource,
    command: String,
    child: Child,
    exited: Option<ExitStatus>,
    started: Instant,
    tree: Tree,
    rings: Folder,
    ring_folder: PathBuf,
    looked: Option<Instant>,
    /// Records since the last [`Running::forget`], of each ring.
    events: Vec<Vec<Event>>,
    /// Kernels and graph launches among them.
    launches: u64,
    /// Records that were lost or not timed before this phase.
    lost_before: u64,
    /// What those of the source add up to, in parts of a step.
    done: f64,
    heard: Instant,
    logs: Logs,
    ticks: Ticks,
    /// How many of them were there at the last look.
    ticked: usize,
    follower: Option<JoinHandle<()>>,
    is_parked: bool,
    /// When it was stopped last, and resumed after that; nanoseconds.
    pause: (u64, u64),
    /// Longest drain seen.
    drain: Option<Duration>,
    trial_seconds: f64,
}

impl Running {
    /// Starts a command in a group of its own; it carries `marker`.
    pub(crate) fn start(
        side: Side,
        command: &str,
        environment: &Environment,
        marker: &str,
        log_name: &str,
        options: &StartOptions,
    ) -> Result<Self, Fault> {
        let fault = |what: String| Fault {
            outcome: Outcome::Unsupported,
            detail: format!(
                "the {}'s command `{}` cannot be started: {what}",
                side_name(side),
                short(command)
            ),
        };
        let owner = std::process::id();
        let owner = format!("{owner}.{}", start_time(owner).unwrap_or(0));
        let ring_folder = options.ring_folder.join(format!("{PREFIX}.{owner}.{marker}"));
        std::fs::create_dir_all(&ring_folder)
            .map_err(|error| fault(format!("no folder {}: {error}", ring_folder.display())))?;
        std::fs::create_dir_all(&options.log_folder)
            .map_err(|error| fault(format!("no folder {}: {error}", options.log_folder.display())))?;
        let logs = Logs {
            output: options.log_folder.join(format!("{log_name}.out")),
            errors: options.log_folder.join(format!("{log_name}.err")),
        };
        let create = |path: &Path| {
            File::create(path).map_err(|error| fault(format!("no log {}: {error}", path.display())))
        };
        let (output, errors) = (create(&logs.output)?, create(&logs.errors)?);
        let mut prepared = Command::new("/bin/sh");
        prepared
            .args(["-c", command])
            .current_dir(&options.working_folder)
            .stdin(Stdio::null())
            .stderr(errors)
            // A group of its own: an interrupt at the terminal reaches the coordinator, which then ends the command.
            .process_group(0);
        for (name, value) in environment {
            match value {
                Some(value) => prepared.env(name, value),
                None => prepared.env_remove(name),
            };
        }
        prepared.env(MARKER_VARIABLE, marker);
        if let Some(library) = &options.injection {
            prepared.env("CUDA_INJECTION64_PATH", library);
            prepared.env(FOLDER_VARIABLE, &ring_folder).env(OWNER_VARIABLE, &owner);
            if let Some(cupti) = &options.cupti {
                prepared.env(CUPTI_VARIABLE, cupti);
            }
        }
        let ticks = Ticks::default();
        let piped = match &options.pattern {
            Some(pattern) => {
                // Python holds lines back when they do not go to a terminal.
                prepared.env("PYTHONUNBUFFERED", "1").stdout(Stdio::piped());
                Some((pattern.clone(), output))
            }
            None => {
                prepared.stdout(output);
                None
            }
        };
        let mut child = prepared.spawn().map_err(|error| {
            let folder = options.working_folder.display();
            fault(format!("{error} (it would run in {folder})"))
        })?;
        let follower = match (piped, child.stdout.take()) {
            (Some((pattern, output)), Some(pipe)) => Some(follow(pipe, output, pattern, Arc::clone(&ticks))),
            _ => None,
        };
        Ok(Self {
            side,
            source: StepSource::Unknown,
            command: short(command),
            tree: Tree::new(child.id(), marker),
            child,
            exited: None,
            started: Instant::now(),
            rings: Folder::new(&ring_folder),
            ring_folder,
            looked: None,
            events: Vec::new(),
            launches: 0,
            lost_before: 0,
            done: 0.0,
            heard: Instant::now(),
            logs,
            ticks,
            ticked: 0,
            follower,
            is_parked: false,
            pause: (0, 0),
            drain: None,
            trial_seconds: options.trial_seconds,
        })
    }

    /// A fault of this side.
    pub(crate) fn fault(&self, outcome: Outcome, what: &str) -> Fault {
        let detail = format!("the {}'s command `{}` {what}", side_name(self.side), self.command);
        Fault { outcome, detail }
    }

    /// As [`Running::fault`], with the end of its output.
    pub(crate) fn fault_with_log(&self, outcome: Outcome, what: &str) -> Fault {
        let mut fault = self.fault(outcome, what);
        let words = self.logs.last_words();
        if !words.is_empty() {
            fault.detail.push('\n');
            fault.detail.push_str(&words);
        }
        fault
    }

    /// A fault unless the command still runs.
    pub(crate) fn health(&mut self) -> Result<(), Fault> {
        if self.exited.is_none() {
            self.exited = self.child.try_wait().ok().flatten();
        }
        let Some(status) = self.exited else { return Ok(()) };
        // Its pipe ends with its last process, so that the log is whole.
        self.tree.kill();
        if let Some(follower) = self.follower.take() {
            let _ = follower.join();
        }
        let after = self.started.elapsed().as_secs_f64();
        let errors = lines::tail(&self.logs.errors);
        if !status.success()
            && lines::tells_of_memory(&format!("{errors}\n{}", lines::tail(&self.logs.output)))
        {
            return Err(
                self.fault_with_log(Outcome::Oom, &format!("ran out of device memory after {after:.1} s"))
            );
        }
        let what = match (status.signal(), status.code()) {
            (Some(9), _) => {
                "was killed (signal 9: by a user, or by the kernel for want of memory)".to_owned()
            }
            (Some(signal), _) => format!("died of signal {signal} after {after:.1} s"),
            (None, Some(127)) => "was not found: a program that it names is not there".to_owned(),
            (None, Some(126)) => "cannot be executed: a program that it names may not be run".to_owned(),
            (None, Some(0)) => format!(
                "ended by itself after {after:.1} s, before it was measured; it has to run for {:.0} s at least: \
                 give it more iterations",
                after + self.trial_seconds
            ),
            (None, code) => format!("left with code {} after {after:.1} s", code.unwrap_or(-1)),
        };
        Err(self.fault_with_log(Outcome::WorkerCrash, &what))
    }

    /// Stops all its processes and waits until the device has drained what they had queued.
    pub(crate) fn park(&mut self) {
        if self.is_parked {
            return;
        }
        self.tree.stop();
        self.is_parked = true;
        self.pause = (monotonic_nanoseconds(), u64::MAX);
        // Records of the drain come only after the resume; then it is known how long it took.
        let seen = self.drain.map_or(FIRST_DRAIN, |drain| drain.mul_f64(1.5) + Duration::from_millis(20));
        std::thread::sleep(seen.max(Duration::from_millis(50)).min(LONGEST_DRAIN));
    }

    /// Lets all its processes go on.
    pub(crate) fn resume(&mut self) {
        if !self.is_parked {
            return;
        }
        self.pause.1 = monotonic_nanoseconds();
        self.tree.resume();
        self.is_parked = false;
        self.heard = Instant::now();
    }

    /// Lets a parked side go on for a moment: stopped amid a call it may hold a lock that the other side needs, as
    /// clients of one MPS server share memory.
    pub(crate) fn nudge(&mut self) {
        if self.is_parked {
            self.tree.resume();
            std::thread::sleep(Duration::from_millis(5));
            self.tree.stop();
        }
    }

    /// Ends all its processes, with nothing of theirs on the device: a client that goes amid its work can take an MPS
    /// server along.
    pub(crate) fn end(&mut self) {
        if self.exited.is_none() {
            self.park();
            self.tree.end(PATIENCE);
            self.exited = self.child.wait().ok();
        }
        self.tree.kill();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        if let Some(follower) = self.follower.take() {
            let _ = follower.join();
        }
        // What stays is swept when the next device is made.
        let _ = std::fs::remove_dir_all(&self.ring_folder);
    }
}

/// Removes ring folders of coordinators that are gone.
pub(crate) fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| {
            let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('.')?.split('.');
            Some((parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u64>().ok()?))
        });
        if let Some((process, started)) = owner
            && start_time(process) != Some(started)
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A command for messages.
fn short(command: &str) -> String {
    let line: String =
        command.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if line.chars().count() <= 80 { line } else { line.chars().take(77).chain("...".chars()).collect() }
}
