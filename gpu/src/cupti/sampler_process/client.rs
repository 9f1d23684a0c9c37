//! The coordinator's side.

use super::message::{PROTOCOL, Ready, Reply, Request, SamplerRequest};
use crate::cupti::SamplerReport;
use elastico_core::Hint;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines of stderr that are kept for an error's text.
const TAIL: usize = 8;

/// How long to wait for the sampler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplerTimeouts {
    /// For the process to say hello.
    pub hello: Duration,
    /// For libraries to load and the device to answer; a driver without persistence takes seconds.
    pub prepare: Duration,
    /// For a window to open or close.
    pub window: Duration,
}

impl Default for SamplerTimeouts {
    fn default() -> Self {
        Self {
            hello: Duration::from_secs(10),
            prepare: Duration::from_mins(1),
            window: Duration::from_secs(30),
        }
    }
}

/// What happened to the sampler. None of it fails a trial: counters are missing, with this as their reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// The process cannot be started.
    #[error("the sampler cannot be started")]
    Spawn(#[source] std::io::Error),
    /// It did not answer in time, and was ended.
    #[error("the sampler did not say `{awaited}` within {} s", limit.as_secs_f64())]
    Timeout {
        /// The word that was waited for.
        awaited: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// It ended by itself.
    #[error("the sampler died ({ending}){}", tail(stderr))]
    Died {
        /// Its exit status, or the signal.
        ending: String,
        /// The last lines of its stderr.
        stderr: String,
    },
    /// It cannot sample, and says why.
    #[error("{detail}")]
    Refused {
        /// The word for `counters_status`, as [`crate::cupti::CuptiError::status`].
        status: String,
        /// The reason.
        detail: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// It speaks otherwise than this program.
    #[error("the sampler said `{said}` where `{awaited}` was due")]
    Protocol {
        /// The word that was waited for.
        awaited: &'static str,
        /// What came.
        said: String,
    },
}

fn tail(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}

impl SamplerError {
    /// One word for the column `counters_status`.
    pub fn status(&self) -> &str {
        match self {
            Self::Spawn(_) => "sampler_not_started",
            Self::Timeout { .. } => "sampler_timeout",
            Self::Died { .. } => "sampler_died",
            Self::Refused { status, .. } => status,
            Self::Protocol { .. } => "sampler_protocol",
        }
    }
}

impl Hint for SamplerError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Refused { hint, .. } => hint.clone(),
            Self::Spawn(_) => None,
            Self::Timeout { .. } | Self::Died { .. } | Self::Protocol { .. } => Some(
                "run `elastico doctor`; with a driver of CUDA 13.0 use nvidia-cuda-cupti==13.0.85, later ones crash"
                    .to_owned(),
            ),
        }
    }
}

/// A running sampler. Dropping it ends the process.
#[derive(Debug)]
pub struct SamplerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    replies: Receiver<Result<Reply, String>>,
    stderr: Arc<Mutex<VecDeque<String>>>,
    stderr_reader: Option<JoinHandle<()>>,
    timeouts: SamplerTimeouts,
    ready: Ready,
}

impl SamplerProcess {
    /// Starts `command`, which has to run [`super::main`], and prepares it.
    ///
    /// An injection library is kept out of it, for CUPTI takes one subscriber. Give it the environment of a process
    /// without MPS: it creates no context, and must not become a client.
    ///
    /// # Errors
    /// [`SamplerError`]; the process has ended then.
    pub fn start(
        mut command: Command,
        request: &SamplerRequest,
        timeouts: SamplerTimeouts,
    ) -> Result<Self, SamplerError> {
        command
            .env_remove("CUDA_INJECTION64_PATH")
            // A group of its own: an interrupt at the terminal reaches the coordinator, which then ends the sampler.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(SamplerError::Spawn)?;
        let stdin = child.stdin.take();
        let replies = child.stdout.take().map_or_else(|| channel().1, read_replies);
        let stderr = Arc::default();
        let stderr_reader = child.stderr.take().map(|pipe| keep_tail(pipe, Arc::clone(&stderr)));
        let nothing = Ready {
            cupti_version: 0,
            chip: String::new(),
            base: String::new(),
            metrics: Vec::new(),
            absent: std::collections::BTreeMap::new(),
        };
        let mut process = Self { child, stdin, replies, stderr, stderr_reader, timeouts, ready: nothing };
        match process.receive("hello", timeouts.hello)? {
            Reply::Hello { protocol: PROTOCOL, .. } => {}
            other => return Err(out_of_turn("hello", &other)),
        }
        process.send(&Request::Prepare { request: request.clone() })?;
        match process.receive("ready", timeouts.prepare)? {
            Reply::Ready { ready } => process.ready = ready,
            other => return Err(out_of_turn("ready", &other)),
        }
        Ok(process)
    }

    /// What it samples.
    pub const fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Opens a window: the device is sampled from now on.
    ///
    /// # Errors
    /// [`SamplerError`]; after [`SamplerError::Refused`] it may be tried again.
    pub fn begin(&mut self) -> Result<(), SamplerError> {
        self.send(&Request::Start)?;
        match self.receive("started", self.timeouts.window)? {
            Reply::Started => Ok(()),
            other => Err(out_of_turn("started", &other)),
        }
    }

    /// Closes the window and reports it.
    ///
    /// # Errors
    /// [`SamplerError`].
    pub fn end(&mut self) -> Result<SamplerReport, SamplerError> {
        self.send(&Request::Stop)?;
        match self.receive("report", self.timeouts.window)? {
            Reply::Report { report } => Ok(report.into()),
            other => Err(out_of_turn("report", &other)),
        }
    }

    /// Ends the process: asks first, kills after a second.
    pub fn stop(mut self) {
        if self.send(&Request::Bye).is_ok() {
            let _ = self.receive("bye", Duration::from_secs(1));
        }
        // Dropping ends it.
    }

    /// The process's number, for tests and for logs.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn send(&mut self, request: &Request) -> Result<(), SamplerError> {
        let line = serde_json::to_string(request).map_err(|error| SamplerError::Spawn(error.into()))?;
        let sent = match &mut self.stdin {
            Some(stdin) => writeln!(stdin, "{line}").and_then(|()| stdin.flush()),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        sent.map_err(|_| self.died())
    }

    fn receive(&mut self, awaited: &'static str, limit: Duration) -> Result<Reply, SamplerError> {
        match self.replies.recv_timeout(limit) {
            Ok(Ok(Reply::Refused { status, detail, hint })) => {
                Err(SamplerError::Refused { status, detail, hint })
            }
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(said)) => Err(SamplerError::Protocol { awaited, said }),
            Err(RecvTimeoutError::Disconnected) => Err(self.died()),
            Err(RecvTimeoutError::Timeout) => {
                // A hung driver call cannot be cancelled from inside.
                self.kill();
                Err(SamplerError::Timeout { awaited, limit })
            }
        }
    }

    /// Its pipe is closed, so it has ended or is about to.
    fn died(&mut self) -> SamplerError {
        let deadline = Instant::now() + Duration::from_secs(1);
        let ending = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status.to_string(),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Ok(None) => {
                    self.kill();
                    break "it closed its output".to_owned();
                }
                Err(error) => break error.to_string(),
            }
        };
        // Its last words may still be on their way.
        while self.stderr_reader.as_ref().is_some_and(|reader| !reader.is_finished())
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        let lines = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        SamplerError::Died { ending, stderr: lines.iter().cloned().collect::<Vec<_>>().join(" | ") }
    }

    fn kill(&mut self) {
        // It may have ended on its own, and then there is nobody to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for SamplerProcess {
    fn drop(&mut self) {
        // Closed first, so that a healthy sampler gives the device back by itself.
        self.stdin = None;
        let deadline = Instant::now() + Duration::from_millis(500);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
    }
}

fn out_of_turn(awaited: &'static str, reply: &Reply) -> SamplerError {
    SamplerError::Protocol { awaited, said: reply.word().to_owned() }
}

fn read_replies(pipe: impl Read + Send + 'static) -> Receiver<Result<Reply, String>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            let Ok(line) = line else { break };
            let reply = serde_json::from_str(&line).map_err(|_| line.chars().take(200).collect());
            if sender.send(reply).is_err() {
                break;
            }
        }
    });
    receiver
}

fn keep_tail(pipe: impl Read + Send + 'static, lines: Arc<Mutex<VecDeque<String>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            let Ok(line) = line else { break };
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() == TAIL {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    })
}
