//! One command of the user's: started, watched, parked, read, ended.

use super::lines::{self, Logs, Ticks, follow};
use super::progress::{Event, Progress};
use super::tree::{MARKER_VARIABLE, Tree};
use crate::device::{Fault, Side, StepRecord};
use crate::devices::processes::{Environment, side_name};
use elastico_core::{Hint, Outcome};
use elastico_gpu::activity::{
    ActivityError, CUPTI_VARIABLE, FOLDER_VARIABLE, Folder, Kind, OWNER_VARIABLE, Report, Status,
};
use elastico_gpu::ring::{monotonic_nanoseconds, start_time};
use regex::bytes::Regex;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, PoisonError};
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
/// How often new processes of the command are looked for.
const LOOK: Duration = Duration::from_millis(100);

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

    /// Takes over the records that are there.
    pub(crate) fn fetch(&mut self) -> Result<(), Fault> {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            if let Err(error) = self.rings.look() {
                let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
                let outcome = match error {
                    ActivityError::Foreign { .. } => Outcome::Unsupported,
                    _ => Outcome::WorkerCrash,
                };
                return Err(self.fault(outcome, &format!("left records that cannot be read: {error}{hint}")));
            }
        }
        let ticked = self.ticks.lock().unwrap_or_else(PoisonError::into_inner).len();
        if ticked != self.ticked {
            self.ticked = ticked;
            self.heard = Instant::now();
        }
        self.events.resize_with(self.rings.rings.len(), Vec::new);
        let mut records = Vec::new();
        for (index, (ring, events)) in self.rings.rings.iter_mut().zip(&mut self.events).enumerate() {
            let progress = match &self.source {
                StepSource::Kernels { ring, progress } if *ring == index => Some(progress),
                _ => None,
            };
            records.clear();
            ring.drain(&mut records);
            for record in &records {
                let (stopped, resumed) = self.pause;
                if record.end > stopped && record.start < resumed && record.end < resumed {
                    let drained = Duration::from_nanos(record.end - stopped);
                    self.drain = Some(self.drain.unwrap_or(Duration::ZERO).max(drained));
                }
                self.launches += u64::from(record.kind != Kind::Copy);
                let event = Event { start: record.start, end: record.end, signature: record.signature };
                self.done += progress.map_or(0.0, |progress| {
                    let (worth, whole) = progress.worth(&event);
                    worth / whole
                });
                events.push(event);
            }
            if !records.is_empty() {
                self.heard = Instant::now();
            }
        }
        Ok(())
    }

    /// What the processes say of their recording.
    pub(crate) fn reports(&self) -> Vec<Report> {
        self.rings.rings.iter().map(elastico_gpu::activity::Reader::report).collect()
    }

    /// Why no kernels can come; `None` while they can.
    pub(crate) fn why_silent(&self) -> Option<String> {
        let reports = self.reports();
        let is_silent = !reports.is_empty() && reports.iter().all(|report| report.status.is_silent());
        let report = reports.into_iter().next().filter(|_| is_silent)?;
        Some(match report.status {
            Status::Taken => {
                "another profiler holds CUPTI in it (Nsight, or one of the program's own)".to_owned()
            }
            Status::Absent => "no CUPTI could be loaded into it".to_owned(),
            Status::Forbidden => format!("the driver forbids recording (CUPTI error {})", report.code),
            _ => format!("CUPTI refused to record (error {})", report.code),
        })
    }

    /// Records of one ring in order of their ends, at most the last `most`.
    pub(crate) fn sorted(&mut self, ring: usize, most: usize) -> &[Event] {
        let Some(events) = self.events.get_mut(ring) else { return &[] };
        events.sort_unstable_by_key(|event| event.end);
        let excess = events.len().saturating_sub(most);
        events.drain(..excess);
        events
    }

    /// The process whose kernels take most device time.
    pub(crate) fn busiest(&self) -> Option<usize> {
        let time = |events: &Vec<Event>| -> u64 {
            events.iter().map(|event| event.end.saturating_sub(event.start)).sum()
        };
        let rings = self.events.iter().enumerate().filter(|(_, events)| !events.is_empty());
        rings.max_by_key(|(index, events)| (time(events), std::cmp::Reverse(*index))).map(|(index, _)| index)
    }

    /// How its steps are told, in words.
    pub(crate) fn how(&self) -> String {
        match &self.source {
            StepSource::Kernels { progress: Progress::Periodic(period), .. } => {
                let name = self.rings.rings.iter().find_map(|ring| ring.names().remove(&period.anchor));
                let name = name.unwrap_or_else(|| format!("kernel {:016x}", period.anchor));
                let times =
                    if period.per_period > 1 { format!("{} x ", period.per_period) } else { String::new() };
                format!("{times}`{}` in a period of {} records", short(&name), period.records)
            }
            StepSource::Kernels { .. } => "no period; equal device time".to_owned(),
            StepSource::Lines(_) => "lines of output".to_owned(),
            StepSource::Unknown | StepSource::None(_) => "not to be told".to_owned(),
        }
    }

    /// When matching lines came.
    pub(crate) fn ticks(&self) -> Vec<u64> {
        self.ticks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets records and ticks: a new phase begins.
    pub(crate) fn forget(&mut self) {
        self.events.iter_mut().for_each(Vec::clear);
        self.launches = 0;
        self.done = 0.0;
        self.heard = Instant::now();
        self.ticked = 0;
        self.ticks.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Steps so far in this phase, roughly.
    pub(crate) fn count(&self) -> u32 {
        match &self.source {
            StepSource::Kernels { .. } => self.done as u32,
            StepSource::Lines(_) => self.ticks().len() as u32,
            StepSource::Unknown | StepSource::None(_) => 0,
        }
    }

    /// Whether something that ended at `instant` or later is known.
    pub(crate) fn knows(&self, instant: u64) -> bool {
        match &self.source {
            StepSource::Kernels { ring, .. } => self
                .events
                .get(*ring)
                .is_some_and(|events| events.iter().rev().take(2_000).any(|event| event.end >= instant)),
            _ => true,
        }
    }

    /// Steps that lie within `from..=to`, on a clock that begins at `epoch`.
    pub(crate) fn steps(&mut self, from: u64, to: u64, epoch: u64) -> Vec<StepRecord> {
        let within = |step: &StepRecord| {
            let at = |instant: u64| instant.saturating_sub(epoch) as f64 * 1e-9;
            step.start >= at(from) && step.end <= at(to)
        };
        let mut steps = match self.source.clone() {
            StepSource::Kernels { ring, progress } => progress.steps(self.sorted(ring, usize::MAX), epoch),
            StepSource::Lines(_) => {
                let at = |instant: u64| instant.saturating_sub(epoch) as f64 * 1e-9;
                let ticks = self.ticks();
                let pairs = ticks.windows(2).filter(|pair| pair[0] < pair[1]);
                pairs.map(|pair| StepRecord { start: at(pair[0]), end: at(pair[1]) }).collect()
            }
            StepSource::Unknown | StepSource::None(_) => Vec::new(),
        };
        steps.retain(within);
        steps
    }

    /// Seconds that a step takes alone; 0 where steps cannot be told.
    pub(crate) fn usual(&self) -> f64 {
        match &self.source {
            StepSource::Kernels { progress, .. } => progress.usual(),
            StepSource::Lines(seconds) => *seconds,
            StepSource::Unknown | StepSource::None(_) => 0.0,
        }
    }

    /// Share of `from..to` in which a kernel or copy of this side ran, and its launches per second.
    pub(crate) fn activity(&self, from: u64, to: u64) -> Option<(f64, f64)> {
        let mut spans: Vec<(u64, u64)> = self
            .events
            .iter()
            .flatten()
            .map(|event| (event.start.max(from), event.end.min(to)))
            .filter(|(start, end)| start < end)
            .collect();
        spans.sort_unstable();
        let (mut busy, mut reached) = (0, from);
        for (start, end) in spans {
            busy += end.saturating_sub(start.max(reached));
            reached = reached.max(end);
        }
        let whole = to.checked_sub(from).filter(|whole| *whole > 0)? as f64;
        let records: usize = self.events.iter().map(Vec::len).sum();
        let rate = self.launches as f64 / (whole * 1e-9);
        (records > 0).then_some((busy as f64 / whole, rate))
    }

    /// Records that were lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.reports().iter().map(|report| report.dropped).sum()
    }

    /// How long nothing was heard of it.
    pub(crate) fn silence(&self) -> Duration {
        self.heard.elapsed()
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
