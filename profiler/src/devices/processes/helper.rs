//! A child process that speaks JSON lines: started by exec, heard, ended.

use crate::device::Fault;
use crate::worker::message::{PROTOCOL, Reply, Request};
use elastico_core::Outcome;
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

/// Bytes of stderr that are kept for the journal.
const TAIL: usize = 2000;

/// Variables of a child beside the inherited ones; `None` takes one away.
pub(crate) type Environment = Vec<(String, Option<String>)>;

/// A living child. Dropping it ends its whole process group.
#[derive(Debug)]
pub(crate) struct Helper {
    /// Who it is in messages: `the subject's worker`.
    who: String,
    child: Child,
    exited: Option<ExitStatus>,
    replies: Receiver<Result<Reply, String>>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Helper {
    /// Starts the process and hands it its request.
    pub(crate) fn start(
        who: String,
        command: &[OsString],
        environment: &Environment,
        request: &Request,
    ) -> Result<Self, Fault> {
        let crash = |detail: String| Fault { outcome: Outcome::WorkerCrash, detail };
        let line = serde_json::to_string(request)
            .map_err(|error| crash(format!("the step program cannot be written: {error}")))?;
        let (program, arguments) =
            command.split_first().ok_or_else(|| crash("the worker command is empty".to_owned()))?;
        let mut prepared = Command::new(program);
        prepared
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: an interrupt at the terminal reaches the coordinator, which then ends the workers.
            .process_group(0);
        for (name, value) in environment {
            match value {
                Some(value) => prepared.env(name, value),
                None => prepared.env_remove(name),
            };
        }
        let mut child = prepared.spawn().map_err(|error| {
            let program = program.to_string_lossy();
            crash(format!("cannot start the worker `{program}`: {error}"))
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
        let mut helper = Self { who, child, exited: None, replies, stderr, readers };
        let written = helper.child.stdin.as_mut().map(|stdin| {
            stdin.write_all(line.as_bytes())?;
            stdin.write_all(b"\n")?;
            stdin.flush()
        });
        match written {
            Some(Ok(())) => Ok(helper),
            // The pipe breaks where the process is gone: why it went is the better message.
            _ => Err(helper.crash(None)),
        }
    }

    /// Who it is in messages.
    pub(crate) fn who(&self) -> &str {
        &self.who
    }

    /// Waits for the greeting and checks that both speak the same protocol.
    pub(crate) fn greet(&mut self, deadline: Instant) -> Result<(), Fault> {
        match self.reply(deadline, "get ready")? {
            Reply::Hello { protocol, .. } if protocol == PROTOCOL => Ok(()),
            Reply::Hello { protocol, version } => Err(self.fault(
                Outcome::WorkerCrash,
                &format!("is version {version} and speaks protocol {protocol}, not {PROTOCOL}"),
            )),
            other => Err(self.unexpected(other)),
        }
    }

    /// The next thing it says; `purpose` is what it fails to do where it says nothing in time.
    pub(crate) fn reply(&mut self, deadline: Instant, purpose: &str) -> Result<Reply, Fault> {
        match self.replies.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                Err(self.fault(Outcome::WorkerCrash, &format!("says what is no message: {error}")))
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(self.fault(Outcome::Hang, &format!("lives but does not {purpose} in time")))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.crash(None)),
        }
    }

    /// The fault that a reply out of turn stands for.
    pub(crate) fn unexpected(&self, reply: Reply) -> Fault {
        match reply {
            Reply::Failed { outcome, detail } => {
                self.fault(outcome.parse().unwrap_or(Outcome::WorkerCrash), &format!("cannot run: {detail}"))
            }
            other => self.fault(Outcome::WorkerCrash, &format!("said {other:?} out of turn")),
        }
    }

    /// A fault of this process.
    pub(crate) fn fault(&self, outcome: Outcome, what: &str) -> Fault {
        Fault { outcome, detail: format!("{} (process {}) {what}", self.who, self.child.id()) }
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        if self.exited.is_none() {
            match self.child.try_wait() {
                Ok(status) => self.exited = status,
                Err(_) => return true,
            }
        }
        self.exited.is_some()
    }

    /// Whether it ended by itself within a time.
    pub(crate) fn wait_end(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.exited.is_some()
    }

    /// What it has said and nobody has read.
    pub(crate) fn unread(&self) -> impl Iterator<Item = Reply> + '_ {
        self.replies.try_iter().filter_map(Result::ok)
    }

    /// The fault of a process that is gone: what it said, what it left, or its exit status and the end of its stderr.
    pub(crate) fn crash(&mut self, left: Option<Outcome>) -> Fault {
        let how = if self.wait_end(Duration::from_secs(2)) {
            // The process is gone, so its pipes end and the readers with them.
            self.end_group();
            for reader in self.readers.drain(..) {
                let _ = reader.join();
            }
            match self.exited.map(|status| (status.signal(), status.code(), status)) {
                Some((Some(9), ..)) => {
                    "was killed (signal 9: by a user, or by the kernel for want of memory)".to_owned()
                }
                Some((Some(signal), ..)) => format!("died of signal {signal}"),
                Some((None, Some(code), _)) => format!("left with code {code}"),
                Some((None, None, status)) => format!("ended: {status}"),
                None => "is gone".to_owned(),
            }
        } else {
            "closed its pipes and does not end".to_owned()
        };
        // A process that could say why said so before it left.
        let failed = self.unread().find(|reply| matches!(reply, Reply::Failed { .. }));
        if let Some(Reply::Failed { outcome, detail }) = failed {
            return self.fault(outcome.parse().unwrap_or(Outcome::WorkerCrash), &detail);
        }
        let tail: Vec<u8> = self.stderr.lock().map(|tail| tail.iter().copied().collect()).unwrap_or_default();
        let tail = String::from_utf8_lossy(&tail);
        let last_words =
            if tail.trim().is_empty() { String::new() } else { format!("; stderr: {}", tail.trim()) };
        self.fault(left.unwrap_or(Outcome::WorkerCrash), &format!("{how}{last_words}"))
    }

    /// Kills every process of the group: a wrapper around the worker, too.
    fn end_group(&self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // No such group is what we want.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Ends the process at once.
    pub(crate) fn kill(&mut self) {
        // Once the process is reaped its id may be another's.
        if self.exited.is_none() {
            self.end_group();
            self.exited = self.child.wait().ok();
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.kill();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}
