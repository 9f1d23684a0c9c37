//! One worker process from the coordinator's side: started, heard, watched, ended.

use super::CpuOptions;
use crate::device::{Fault, Side};
use crate::worker::CODE_NUMBERS;
use crate::worker::message::{PROTOCOL, Prepare, Reply};
use elastico_core::{Hint, Outcome};
use elastico_gpu::ring::{Command as Order, Ring, Step, WorkerState};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a worker did that left [`CODE_NUMBERS`].
const NOT_FINITE: &str = "computed numbers that are not finite";
/// Bytes of stderr that are kept for the journal.
const TAIL: usize = 2000;

/// A living worker. Dropping it ends its whole process group and removes its ring.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    pub(super) side: Side,
    /// Whether it makes no steps at all.
    pub(super) idle: bool,
    pub(super) ring: Ring,
    /// What it said when it was ready.
    pub(super) peak_resident_bytes: u64,
    pub(super) allocated_bytes: u64,
    child: Child,
    exited: Option<ExitStatus>,
    replies: Receiver<Result<Reply, String>>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    readers: Vec<JoinHandle<()>>,
    heartbeat: u64,
    heard: Instant,
    hang_timeout: Duration,
}

impl WorkerProcess {
    /// Starts the process and hands it its work; [`WorkerProcess::await_ready`] waits for the end of that.
    pub(super) fn start(
        command: &[OsString],
        options: &CpuOptions,
        side: Side,
        mut prepare: Prepare,
    ) -> Result<Self, Fault> {
        let fault = |outcome, detail| Fault { outcome, detail };
        let label = format!("{}{}", prepare.side.as_str(), prepare.trial);
        let ring = Ring::create(&options.ring_folder, &label, options.ring_capacity).map_err(|error| {
            let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
            fault(
                Outcome::WorkerCrash,
                format!("no step ring for the {}: {error}{hint}", prepare.side.as_str()),
            )
        })?;
        ring.path().clone_into(&mut prepare.ring);
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| fault(Outcome::WorkerCrash, "the worker command is empty".to_owned()))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: an interrupt at the terminal reaches the coordinator, which then ends the workers.
            .process_group(0)
            .spawn()
            .map_err(|error| {
                let program = program.to_string_lossy();
                fault(Outcome::WorkerCrash, format!("cannot start the worker `{program}`: {error}"))
            })?;
        let (sender, replies) = channel();
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let mut readers = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            readers.push(std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines() {
                    let reply = line.map_err(|error| error.to_string()).and_then(|line| {
                        serde_json::from_str(&line).map_err(|error| format!("{error} in `{line}`"))
                    });
                    if sender.send(reply).is_err() {
                        return;
                    }
                }
            }));
        }
        if let Some(mut pipe) = child.stderr.take() {
            let tail = Arc::clone(&stderr);
            readers.push(std::thread::spawn(move || {
                let mut chunk = [0; 512];
                while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                    if let Ok(mut tail) = tail.lock() {
                        tail.extend(&chunk[..count]);
                        let excess = tail.len().saturating_sub(TAIL);
                        tail.drain(..excess);
                    }
                }
            }));
        }
        let mut worker = Self {
            side,
            idle: prepare.idle,
            ring,
            peak_resident_bytes: 0,
            allocated_bytes: 0,
            child,
            exited: None,
            replies,
            stderr,
            readers,
            heartbeat: 0,
            heard: Instant::now(),
            hang_timeout: options.hang_timeout,
        };
        worker.send(&prepare)?;
        Ok(worker)
    }

    fn send(&mut self, prepare: &Prepare) -> Result<(), Fault> {
        let line = serde_json::to_string(prepare).map_err(|error| Fault {
            outcome: Outcome::WorkerCrash,
            detail: format!("the step program cannot be written: {error}"),
        })?;
        let written = self.child.stdin.as_mut().map(|stdin| {
            stdin.write_all(line.as_bytes())?;
            stdin.write_all(b"\n")?;
            stdin.flush()
        });
        match written {
            Some(Ok(())) => Ok(()),
            // The pipe breaks where the process is gone: why it went is the better message.
            _ => Err(self.crash()),
        }
    }

    /// Waits until the worker has allocated, touched and warmed up everything.
    pub(super) fn await_ready(&mut self, timeout: Duration) -> Result<(), Fault> {
        let deadline = Instant::now() + timeout;
        match self.reply(deadline)? {
            Reply::Hello { protocol, .. } if protocol == PROTOCOL => {}
            Reply::Hello { protocol, version } => {
                return Err(self.fault(
                    Outcome::WorkerCrash,
                    &format!("is version {version} and speaks protocol {protocol}, not {PROTOCOL}"),
                ));
            }
            other => return Err(self.unexpected(other)),
        }
        match self.reply(deadline)? {
            Reply::Ready { allocated_bytes, peak_resident_bytes, .. } => {
                self.allocated_bytes = allocated_bytes;
                self.peak_resident_bytes = peak_resident_bytes;
                self.heard = Instant::now();
                Ok(())
            }
            other => Err(self.unexpected(other)),
        }
    }

    fn reply(&mut self, deadline: Instant) -> Result<Reply, Fault> {
        match self.replies.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                Err(self.fault(Outcome::WorkerCrash, &format!("says what is no message: {error}")))
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(self.fault(Outcome::Hang, "lives but does not get ready in time"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.crash()),
        }
    }

    fn unexpected(&mut self, reply: Reply) -> Fault {
        match reply {
            Reply::Failed { outcome, detail } => {
                self.fault(outcome.parse().unwrap_or(Outcome::WorkerCrash), &format!("cannot run: {detail}"))
            }
            other => self.fault(Outcome::WorkerCrash, &format!("said {other:?} out of turn")),
        }
    }

    /// A fault unless the process lives and shows it.
    pub(super) fn health(&mut self) -> Result<(), Fault> {
        if self.exited.is_some() || !matches!(self.child.try_wait(), Ok(None)) {
            return Err(self.crash());
        }
        let status = self.ring.status();
        if status.state == WorkerState::Stopped && status.error_code == CODE_NUMBERS {
            return Err(self.fault(Outcome::WorkerCrash, NOT_FINITE));
        }
        if status.heartbeat != self.heartbeat {
            self.heartbeat = status.heartbeat;
            self.heard = Instant::now();
        } else if self.heard.elapsed() > self.hang_timeout {
            let silence = self.heard.elapsed().as_secs_f64();
            return Err(
                self.fault(Outcome::Hang, &format!("lives but shows no sign of it for {silence:.1} s"))
            );
        }
        Ok(())
    }

    /// Whether it has obeyed the last command and has nothing in flight.
    pub(super) fn is_parked(&self) -> bool {
        let status = self.ring.status();
        status.phase == self.ring.phase() && status.state == WorkerState::Parked
    }

    /// Moves the records of the phase `phase` to `steps`; those of earlier phases are of no use any more.
    pub(super) fn drain(&mut self, phase: u32, steps: &mut Vec<Step>) {
        let known = steps.len();
        self.ring.drain(steps);
        if steps[known..].iter().any(|step| step.phase != phase) {
            let kept: Vec<Step> = steps.drain(known..).filter(|step| step.phase == phase).collect();
            steps.extend(kept);
        }
    }

    /// A fault of this worker.
    pub(super) fn fault(&self, outcome: Outcome, what: &str) -> Fault {
        let side = match self.side {
            Side::Subject => "subject",
            Side::CoRunner => "co-runner",
        };
        Fault { outcome, detail: format!("the {side}'s worker (process {}) {what}", self.child.id()) }
    }

    /// The fault of a worker that is gone, with what it left: exit status or signal, and the end of its stderr.
    fn crash(&mut self) -> Fault {
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.exited.is_none() && Instant::now() < deadline {
            self.exited = self.child.try_wait().ok().flatten();
            std::thread::sleep(Duration::from_millis(5));
        }
        let how = match self.exited {
            None => "closed its pipes and does not end".to_owned(),
            Some(status) => match (status.signal(), status.code()) {
                (Some(9), _) => {
                    "was killed (signal 9: by a user, or by the kernel for want of memory)".to_owned()
                }
                (Some(signal), _) => format!("died of signal {signal}"),
                (None, Some(code)) => format!("left with code {code}"),
                (None, None) => format!("ended: {status}"),
            },
        };
        // The process is gone, so its pipes end and the readers with them.
        if self.exited.is_some() {
            self.end_group();
            for reader in self.readers.drain(..) {
                let _ = reader.join();
            }
        }
        // The ring outlives the worker: a code that it left there tells more than its exit status.
        if self.ring.status().error_code == CODE_NUMBERS {
            return self.fault(Outcome::WorkerCrash, NOT_FINITE);
        }
        // A worker that could say why said so before it left.
        while let Ok(reply) = self.replies.try_recv() {
            if let Ok(reply @ Reply::Failed { .. }) = reply {
                return self.unexpected(reply);
            }
        }
        let tail: Vec<u8> = self.stderr.lock().map(|tail| tail.iter().copied().collect()).unwrap_or_default();
        let tail = String::from_utf8_lossy(&tail);
        let last_words =
            if tail.trim().is_empty() { String::new() } else { format!("; stderr: {}", tail.trim()) };
        self.fault(Outcome::WorkerCrash, &format!("{how}{last_words}"))
    }

    /// Kills every process of the worker's group: a wrapper around the worker, too.
    fn end_group(&self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // No such group is what we want.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Ends the worker at once.
    pub(super) fn kill(&mut self) {
        // Once the process is reaped its id may be another's.
        if self.exited.is_none() {
            self.end_group();
            self.exited = self.child.wait().ok();
        }
    }

    /// Asks the worker to leave and gives it a moment.
    pub(super) fn stop(&mut self) {
        self.ring.send(Order::Stop, 0);
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.exited.is_none() && Instant::now() < deadline {
            self.exited = self.child.try_wait().ok().flatten();
            std::thread::sleep(Duration::from_millis(1));
        }
        while let Ok(reply) = self.replies.try_recv() {
            if let Ok(Reply::Drained { steps, peak_resident_bytes, .. }) = reply {
                tracing::debug!(steps, peak_resident_bytes, "worker drained");
            }
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}
