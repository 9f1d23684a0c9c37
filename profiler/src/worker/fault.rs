//! Failing on purpose, so that the coordinator's handling of faults is tested with real processes.

use super::engine::Engine;
use super::message::SideName;
use elastico_gpu::ring::Producer;
use rustix::process::{Signal, getpid, kill_process};
use std::time::Duration;

const VARIABLE: &str = "ELASTICO_WORKER_FAULT";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InjectedFault {
    /// Die by SIGKILL.
    Kill,
    /// Stop by SIGSTOP.
    Stop,
    /// A step without end, with a heartbeat.
    Endless,
    /// Wrong numbers.
    NotANumber,
    /// No memory.
    Oom,
}

fn word() -> Option<String> {
    std::env::var(VARIABLE).ok()
}

/// Whether the worker shall never say hello; asked before its side is known.
pub(super) fn is_silent() -> bool {
    word().is_some_and(|word| word == "silent")
}

impl InjectedFault {
    pub(super) fn read(side: SideName) -> Option<Self> {
        let word = word()?;
        let (kind, limit) = word.split_once('@').map_or((word.as_str(), None), |(kind, at)| (kind, Some(at)));
        if limit.is_some_and(|limit| limit != side.as_str()) {
            return None;
        }
        match kind {
            "kill" => Some(Self::Kill),
            "stop" => Some(Self::Stop),
            "endless" => Some(Self::Endless),
            "nan" => Some(Self::NotANumber),
            "oom" => Some(Self::Oom),
            _ => None,
        }
    }

    pub(super) fn strike(self, producer: &Producer, engine: &mut dyn Engine) {
        let signal = |signal| {
            // A process may always signal itself.
            let _ = kill_process(getpid(), signal);
        };
        match self {
            Self::Kill => signal(Signal::KILL),
            Self::Stop => signal(Signal::STOP),
            Self::Endless => loop {
                producer.beat();
                std::thread::sleep(Duration::from_millis(5));
            },
            Self::NotANumber => engine.spoil(),
            Self::Oom => {}
        }
    }
}
