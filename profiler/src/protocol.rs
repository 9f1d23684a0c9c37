//! How one trial is measured.
//!
//! A session holds both sides with living contexts. It is soaked until step times and clocks are steady; then run
//! isolated A, isolated B, both, isolated B, isolated A (which of A and B is first is drawn per attempt). The
//! bracketing isolated runs are the reference of the co-run and show how far the device drifted meanwhile. An attempt
//! that misses a limit is repeated in the same session; one that ends in a fault, in fresh processes. After the last
//! retry the last attempt that has times is kept, flagged with its outcome.
//!
//! An isolated trial is a soak and one phase. Counters come from a repetition of their own.

mod attempt;
mod settings;

pub use settings::{Protocol, ProtocolSettings};

use crate::device::{Active, Device, Fault, Phase, Session, SessionRequest, Side};
use crate::observation::{Attempt, Measured, Observation, PhaseRecord, Reported};
use crate::plan::Trial;
use attempt::Run;
use elastico_core::{DeviceKind, Outcome, Seed};
use elastico_workloads::Benchmark;
use rand::Rng;
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

/// Steps of one sub-window of the soak; timed phases always ask for more, by which a replay tells them apart.
pub(crate) const SOAK_STEPS: u32 = 4;

/// Measures one trial; every fault inside it ends up in the observation.
pub fn measure(
    device: &mut dyn Device,
    trial: &Trial,
    subject: &Benchmark,
    co_runner: Option<&Benchmark>,
    protocol: &Protocol,
    level: f64,
    seed: Seed,
) -> Observation {
    let is_virtual = matches!(device.identity().kind, DeviceKind::Simulated | DeviceKind::Recorded);
    let mut watch = Stopwatch { wall: (!is_virtual).then(Instant::now), finished: 0.0, current: 0.0 };
    let mut observation = Observation {
        trial: trial.id.clone(),
        cell: trial.cell.clone(),
        repeat: trial.repeat,
        subject: trial.subject.clone(),
        co_runner: trial.co_runner.clone(),
        sharing: trial.sharing.clone(),
        effective: None,
        outcome: Outcome::Ok,
        flags: Vec::new(),
        measured: None,
        counters: BTreeMap::new(),
        counters_status: String::new(),
        reported: None,
        attempts: Vec::new(),
        seconds: 0.0,
        finished: None,
    };
    let mut last_outcome;
    'processes: loop {
        let attempt = observation.attempts.len();
        let request = SessionRequest {
            trial: &trial.id,
            subject,
            co_runner,
            sharing: &trial.sharing,
            // Fresh processes after a fault draw fresh numbers.
            seed: if attempt == 0 {
                seed
            } else {
                Seed(seed.stream("retry", &[trial.id.as_str(), &attempt.to_string()]).next_u64())
            },
        };
        watch.new_session();
        let mut session = match device.open(&request) {
            Ok(session) => session,
            Err(fault) => {
                last_outcome = fault.outcome;
                observation.attempts.push(failed(fault, true, Vec::new()));
                if may_retry(&observation, last_outcome, protocol) && !watch.is_over(protocol) {
                    continue 'processes;
                }
                break 'processes;
            }
        };
        observation.effective = Some(session.effective_sharing());
        loop {
            let number = observation.attempts.len();
            let mut phases = Vec::new();
            let mut run =
                Run { session: &mut *session, protocol, level, watch: &mut watch, phases: &mut phases };
            let result = match co_runner {
                Some(_) => run.pair(pair_order(seed, trial, number)),
                None => run.isolated(),
            };
            match result {
                Ok((measured, steady)) => {
                    let mut missed = missed_limits(&measured, trial.co_runner.is_some(), protocol);
                    last_outcome = missed.first().map_or(Outcome::Ok, |(outcome, _)| *outcome);
                    observation.attempts.push(Attempt {
                        outcome: last_outcome,
                        detail: None,
                        at_open: false,
                        phases,
                    });
                    observation.flags = missed.drain(..).map(|(_, flag)| flag).collect();
                    if !steady {
                        observation.flags.push("not_steady".to_owned());
                    }
                    observation.outcome = last_outcome;
                    observation.measured = Some(measured);
                    if last_outcome != Outcome::Ok
                        && may_retry(&observation, last_outcome, protocol)
                        && !watch.is_over(protocol)
                    {
                        continue;
                    }
                    read_counters(&mut *session, &mut observation, protocol);
                    let report = session.report();
                    observation.reported = Reported::of(&report);
                    observation.flags.extend(report.flags.iter().map(|flag| (*flag).to_owned()));
                    break 'processes;
                }
                Err(fault) => {
                    last_outcome = fault.outcome;
                    observation.attempts.push(failed(fault, false, phases));
                    if may_retry(&observation, last_outcome, protocol) && !watch.is_over(protocol) {
                        continue 'processes;
                    }
                    break 'processes;
                }
            }
        }
    }
    if observation.measured.is_none() || last_outcome == Outcome::DeviceLost {
        observation.outcome = last_outcome;
        if observation.counters_status.is_empty() {
            observation.counters_status = format!("not read: {last_outcome}");
        }
    } else if observation.counters_status.is_empty() {
        "not read: the last attempt failed".clone_into(&mut observation.counters_status);
    }
    observation.seconds = watch.total();
    if !is_virtual {
        observation.finished =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs_f64());
    }
    observation
}

fn failed(fault: Fault, at_open: bool, phases: Vec<PhaseRecord>) -> Attempt {
    Attempt { outcome: fault.outcome, detail: Some(fault.detail), at_open, phases }
}

fn may_retry(observation: &Observation, outcome: Outcome, protocol: &Protocol) -> bool {
    outcome.is_retryable() && observation.attempts.len() <= protocol.retries as usize
}

/// Which side is first before and after the co-run.
fn pair_order(seed: Seed, trial: &Trial, attempt: usize) -> [Side; 2] {
    let bits = seed.stream("order", &[trial.id.as_str(), &attempt.to_string()]).next_u64();
    let side = |bit: u64| if bits >> bit & 1 == 0 { Side::Subject } else { Side::CoRunner };
    [side(0), side(1)]
}

/// Time that the trial took: wall time, or the session's own clock where that is not real time.
struct Stopwatch {
    wall: Option<Instant>,
    finished: f64,
    current: f64,
}

impl Stopwatch {
    fn new_session(&mut self) {
        self.finished += self.current;
        self.current = 0.0;
    }

    fn see(&mut self, phase: &Phase) {
        let ends = [phase.subject.last(), phase.co_runner.last()];
        self.current = ends.into_iter().flatten().fold(self.current, |latest, step| latest.max(step.end));
    }

    fn total(&self) -> f64 {
        self.wall.map_or(self.finished + self.current, |wall| wall.elapsed().as_secs_f64())
    }

    fn is_over(&self, protocol: &Protocol) -> bool {
        self.total() > protocol.deadline_seconds
    }
}

/// The limits that the numbers miss, the gravest first.
fn missed_limits(measured: &Measured, is_pair: bool, protocol: &Protocol) -> Vec<(Outcome, String)> {
    let mut missed = Vec::new();
    if measured.telemetry.throttled.is_some_and(|share| share > protocol.throttled) {
        missed.push((Outcome::Throttled, "throttled".to_owned()));
    }
    if is_pair {
        let sides = [Some(&measured.subject), measured.co_runner.as_ref()];
        let counted = sides.into_iter().flatten().all(|side| side.interference.is_some());
        if !counted || measured.overlap.is_none_or(|overlap| overlap < protocol.overlap) {
            missed.push((Outcome::LowOverlap, "low_overlap".to_owned()));
        }
        if measured.drift.is_some_and(|drift| drift > protocol.drift) {
            missed.push((Outcome::Drift, "drift".to_owned()));
        }
    }
    missed
}

fn read_counters(session: &mut dyn Session, observation: &mut Observation, protocol: &Protocol) {
    let active = match observation.co_runner {
        None => Active::Alone(Side::Subject),
        Some(_) if protocol.corun_counters => Active::Both,
        Some(_) => {
            "not read: `corun_counters` is off".clone_into(&mut observation.counters_status);
            return;
        }
    };
    match session.counters(active) {
        Ok(reading) => {
            let usable =
                |(name, value): (&'static str, f64)| value.is_finite().then(|| (name.to_owned(), value));
            observation.counters = reading.values.into_iter().filter_map(usable).collect();
            observation.counters_status = reading.status;
            observation.flags.extend(reading.flags.iter().map(|flag| (*flag).to_owned()));
        }
        // The times stand; only the counters of this trial are lost.
        Err(fault) => {
            observation.counters_status = format!("not read: {fault}");
            observation.flags.push("counters_failed".to_owned());
        }
    }
}
