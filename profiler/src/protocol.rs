//! How one trial is measured.
//!
//! A session holds both sides with living contexts. It is soaked until step times and clocks are steady; then run
//! isolated A, isolated B, both, isolated B, isolated A (which of A and B is first is drawn per attempt). The
//! bracketing isolated runs are the reference of the co-run and show how far the device drifted meanwhile. An attempt
//! that misses a limit is repeated in the same session; one that ends in a fault, in fresh processes. After the last
//! retry the last attempt that has times is kept, flagged with its outcome.
//!
//! An isolated trial is a soak and one phase. Counters come from a repetition of their own.

use crate::campaign::{optional_positive, optional_ratio};
use crate::device::{Active, Device, Fault, Phase, Session, SessionRequest, Side, StepRecord, Window};
use crate::estimator::{self, Selection};
use crate::observation::{
    Attempt, Interval, Measured, Observation, PhaseRecord, Ran, SideMeasured, TelemetryRecord,
};
use crate::plan::Trial;
use elastico_core::units::{Hertz, Seconds};
use elastico_core::{DeviceKind, Outcome, Seed};
use elastico_workloads::Benchmark;
use rand::Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

/// Steps of one sub-window of the soak; timed phases always ask for more, by which a replay tells them apart.
pub(crate) const SOAK_STEPS: u32 = 4;

/// The `[protocol]` table of a campaign; an absent value depends on the kind of device, see [`Protocol::resolve`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProtocolSettings {
    /// Least length of a timed phase in seconds.
    #[serde(deserialize_with = "optional_positive", skip_serializing_if = "Option::is_none")]
    pub min_seconds: Option<f64>,
    /// Most length of a timed phase in seconds.
    #[serde(deserialize_with = "optional_positive", skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<f64>,
    /// Steps that the slower side makes in a timed phase, unless `max_seconds` is over first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_steps: Option<u32>,
    /// First steps of a phase that do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle_steps: Option<u32>,
    /// Most length of the soak in seconds.
    #[serde(deserialize_with = "optional_positive", skip_serializing_if = "Option::is_none")]
    pub soak_seconds: Option<f64>,
    /// Least share of the co-run window in which both sides have work in flight.
    #[serde(deserialize_with = "optional_ratio", skip_serializing_if = "Option::is_none")]
    pub overlap: Option<f64>,
    /// Most difference of the bracketing isolated runs, relative.
    #[serde(deserialize_with = "optional_positive", skip_serializing_if = "Option::is_none")]
    pub drift: Option<f64>,
    /// Most share of a phase in which heat or hardware cut the clock.
    #[serde(deserialize_with = "optional_ratio", skip_serializing_if = "Option::is_none")]
    pub throttled: Option<f64>,
    /// Attempts after the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Seconds after which a trial is ended as a timeout, all its attempts together.
    #[serde(deserialize_with = "optional_positive", skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<f64>,
    /// The sentinel pair is measured after each so many trials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_every: Option<u32>,
    /// Whether counters of both sides together are read in pair trials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corun_counters: Option<bool>,
}

/// The settings of the protocol with all defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Least length of a timed phase in seconds.
    pub min_seconds: f64,
    /// Most length of a timed phase in seconds.
    pub max_seconds: f64,
    /// Steps of the slower side in a timed phase.
    pub min_steps: u32,
    /// First steps of a phase that do not count.
    pub settle_steps: u32,
    /// Length of one sub-window of the soak in seconds.
    pub soak_window_seconds: f64,
    /// Sub-windows that must agree within 1 %.
    pub soak_windows: u32,
    /// Most length of the soak in seconds.
    pub soak_seconds: f64,
    /// Least overlap.
    pub overlap: f64,
    /// Most drift.
    pub drift: f64,
    /// Most throttled share.
    pub throttled: f64,
    /// Attempts after the first.
    pub retries: u32,
    /// Deadline of a trial in seconds.
    pub deadline_seconds: f64,
    /// Trials between two sentinels.
    pub sentinel_every: u32,
    /// Whether pair trials read joint counters.
    pub corun_counters: bool,
}

impl Protocol {
    /// Fills in the defaults.
    ///
    /// | setting | real device | simulated |
    /// |---|---|---|
    /// | `min_seconds`, `max_seconds` | 2, 20 | 0, 1000 |
    /// | `min_steps`, `settle_steps` | 50, 10 | 30, 3 |
    /// | `soak_seconds` | 30, until 5 windows of 0.5 s agree | 100, until 2 windows of 4 steps agree |
    /// | `overlap`, `drift`, `throttled` | 0.98, 0.02, 0.05 | same |
    /// | `retries` | 3 | same |
    /// | `deadline_seconds` | 3 x (soak + 5 phases at most) | same |
    /// | `sentinel_every` | 20 | same |
    /// | `corun_counters` | false: a repetition more | true |
    ///
    /// A simulated device has no transients, so its phases are as short as the statistics allow.
    pub fn resolve(settings: &ProtocolSettings, kind: DeviceKind) -> Self {
        let virtual_clock = matches!(kind, DeviceKind::Simulated);
        let pick = |real: f64, simulated: f64| if virtual_clock { simulated } else { real };
        let min_seconds = settings.min_seconds.unwrap_or(pick(2.0, 0.0));
        let max_seconds = settings.max_seconds.unwrap_or(pick(20.0, 1000.0)).max(min_seconds);
        let soak_seconds = settings.soak_seconds.unwrap_or(pick(30.0, 100.0));
        Self {
            min_seconds,
            max_seconds,
            min_steps: settings.min_steps.unwrap_or(if virtual_clock { 30 } else { 50 }).max(SOAK_STEPS),
            settle_steps: settings.settle_steps.unwrap_or(if virtual_clock { 3 } else { 10 }).max(1),
            soak_window_seconds: pick(0.5, 0.0),
            soak_windows: if virtual_clock { 2 } else { 5 },
            soak_seconds,
            overlap: settings.overlap.unwrap_or(0.98),
            drift: settings.drift.unwrap_or(0.02),
            throttled: settings.throttled.unwrap_or(0.05),
            retries: settings.retries.unwrap_or(3),
            deadline_seconds: settings
                .deadline_seconds
                .unwrap_or(3.0 * 5.0_f64.mul_add(max_seconds, soak_seconds)),
            sentinel_every: settings.sentinel_every.unwrap_or(20).max(1),
            corun_counters: settings.corun_counters.unwrap_or(virtual_clock),
        }
    }

    fn timed(&self) -> Window {
        Window {
            min: Seconds(self.min_seconds),
            min_steps: self.min_steps + self.settle_steps,
            max: Seconds(self.max_seconds),
        }
    }
}

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

/// One attempt in a living session.
struct Run<'a, 's> {
    session: &'a mut (dyn Session + 's),
    protocol: &'a Protocol,
    level: f64,
    watch: &'a mut Stopwatch,
    phases: &'a mut Vec<PhaseRecord>,
}

/// The counted steps of one phase.
struct Timed {
    subject: Option<Selection>,
    co_runner: Option<Selection>,
    overlap: Option<f64>,
    telemetry: TelemetryRecord,
}

impl Run<'_, '_> {
    fn phase(&mut self, active: Active, window: Window) -> Result<Phase, Fault> {
        let phase = self.session.run(active, window)?;
        self.watch.see(&phase);
        if self.watch.is_over(self.protocol) {
            let detail = format!("the trial took more than {} s", self.protocol.deadline_seconds);
            return Err(Fault { outcome: Outcome::Timeout, detail });
        }
        Ok(phase)
    }

    /// Runs until the last sub-windows agree within 1 % in step time and clock, or the time is over.
    fn soak(&mut self, active: Active) -> Result<bool, Fault> {
        let window = Window {
            min: Seconds(self.protocol.soak_window_seconds),
            min_steps: SOAK_STEPS,
            max: Seconds(self.protocol.max_seconds),
        };
        let needed = self.protocol.soak_windows as usize;
        let (mut seen, mut spent): (Vec<[f64; 3]>, f64) = (Vec::new(), 0.0);
        loop {
            let phase = self.phase(active, window)?;
            let step = |steps: &[StepRecord]| match steps {
                [first, .., last] => (last.end - first.end) / (steps.len() - 1) as f64,
                [only] => only.end - only.start,
                [] => 0.0,
            };
            let clock = phase.telemetry.clock.map_or(0.0, Hertz::get);
            seen.push([step(&phase.subject), step(&phase.co_runner), clock]);
            let both = || phase.subject.iter().chain(&phase.co_runner);
            let start = both().map(|step| step.start).fold(f64::INFINITY, f64::min);
            let end = both().map(|step| step.end).fold(0.0, f64::max);
            spent += if end > start { end - start } else { self.protocol.soak_window_seconds.max(1e-3) };
            if seen.len() >= needed {
                let recent = &seen[seen.len() - needed..];
                let agree = (0..3).all(|column| {
                    let low = recent.iter().map(|row| row[column]).fold(f64::INFINITY, f64::min);
                    let high = recent.iter().map(|row| row[column]).fold(0.0, f64::max);
                    high - low <= 0.01 * high
                });
                // A simulated phase has no transient: more than ten windows that disagree are noise.
                let tired = self.protocol.soak_window_seconds == 0.0 && seen.len() >= 10;
                if agree || tired {
                    return Ok(true);
                }
            }
            if spent >= self.protocol.soak_seconds {
                return Ok(false);
            }
        }
    }

    fn timed(&mut self, active: Active) -> Result<Timed, Fault> {
        let phase = self.phase(active, self.protocol.timed())?;
        let settle = self.protocol.settle_steps;
        let alone = |steps: &[StepRecord]| estimator::select(steps, settle, 0.0, f64::MAX);
        let telemetry = TelemetryRecord::from(&phase.telemetry);
        let timed = match active {
            Active::Alone(Side::Subject) => {
                Timed { subject: alone(&phase.subject), co_runner: None, overlap: None, telemetry }
            }
            Active::Alone(Side::CoRunner) => {
                Timed { subject: None, co_runner: alone(&phase.co_runner), overlap: None, telemetry }
            }
            Active::Both => {
                let window = estimator::both_busy(&phase.subject, &phase.co_runner, settle);
                let within = |steps: &[StepRecord]| {
                    window.and_then(|(from, to)| estimator::select(steps, settle, from, to))
                };
                let overlap = window.map_or(0.0, |(from, to)| {
                    estimator::overlap_ratio(&phase.subject, &phase.co_runner, from, to)
                });
                Timed {
                    subject: within(&phase.subject),
                    co_runner: within(&phase.co_runner),
                    overlap: Some(overlap),
                    telemetry,
                }
            }
        };
        self.phases.push(PhaseRecord {
            ran: match active {
                Active::Alone(Side::Subject) => Ran::Subject,
                Active::Alone(Side::CoRunner) => Ran::CoRunner,
                Active::Both => Ran::Both,
            },
            subject: timed.subject.as_ref().map(Into::into),
            co_runner: timed.co_runner.as_ref().map(Into::into),
            overlap: timed.overlap,
            telemetry,
        });
        Ok(timed)
    }

    fn isolated(&mut self) -> Result<(Measured, bool), Fault> {
        let steady = self.soak(Active::Alone(Side::Subject))?;
        let timed = self.timed(Active::Alone(Side::Subject))?;
        let selection = timed.subject.ok_or_else(|| too_few("alone"))?;
        let estimate = selection.step_seconds(self.level).ok_or_else(|| too_few("alone"))?;
        let subject = SideMeasured {
            isolated: estimate.into(),
            colocated: None,
            interference: None,
            steps: selection.steps,
            blocks: selection.blocks.len() as u32,
        };
        Ok((
            Measured { subject, co_runner: None, overlap: None, drift: None, telemetry: timed.telemetry },
            steady,
        ))
    }

    fn pair(&mut self, first: [Side; 2]) -> Result<(Measured, bool), Fault> {
        let steady = self.soak(Active::Both)?;
        let mut isolated: BTreeMap<(Side, usize), Selection> = BTreeMap::new();
        let mut bracket = |run: &mut Self, place: usize| -> Result<(), Fault> {
            let other = |side| if side == Side::Subject { Side::CoRunner } else { Side::Subject };
            for side in [first[place], other(first[place])] {
                let timed = run.timed(Active::Alone(side))?;
                let selection = if side == Side::Subject { timed.subject } else { timed.co_runner };
                isolated.insert((side, place), selection.ok_or_else(|| too_few("alone"))?);
            }
            Ok(())
        };
        bracket(self, 0)?;
        let both = self.timed(Active::Both)?;
        bracket(self, 1)?;

        let mut drift = 0.0_f64;
        let mut side = |side: Side, co_run: Option<&Selection>| -> Result<SideMeasured, Fault> {
            let (before, after) = (&isolated[&(side, 0)].blocks, &isolated[&(side, 1)].blocks);
            let ends = [before, after].map(|blocks| estimator::geometric_mean(blocks));
            let [Some(start), Some(end)] = ends else { return Err(too_few("alone")) };
            drift = drift.max((start / end - 1.0).abs());
            let reference = (start * end).sqrt();
            let all: Vec<f64> = before.iter().chain(after).copied().collect();
            let spread = estimator::geometric(&all, self.level).map(Interval::from);
            let interference =
                co_run.and_then(|steps| estimator::slowdown(&steps.blocks, before, after, self.level));
            Ok(SideMeasured {
                isolated: Interval {
                    point: reference,
                    lower: spread.and_then(|spread| spread.lower),
                    upper: spread.and_then(|spread| spread.upper),
                },
                colocated: interference.map(|estimate| estimate.point * reference),
                interference: interference.map(Into::into),
                steps: co_run.map_or(0, |steps| steps.steps),
                blocks: co_run.map_or(0, |steps| steps.blocks.len() as u32),
            })
        };
        let subject = side(Side::Subject, both.subject.as_ref())?;
        let co_runner = side(Side::CoRunner, both.co_runner.as_ref())?;
        let measured = Measured {
            subject,
            co_runner: Some(co_runner),
            overlap: both.overlap,
            drift: Some(drift),
            telemetry: both.telemetry,
        };
        Ok((measured, steady))
    }
}

fn too_few(phase: &str) -> Fault {
    Fault { outcome: Outcome::Hang, detail: format!("a side made too few steps {phase} to be timed") }
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
        }
        // The times stand; only the counters of this trial are lost.
        Err(fault) => {
            observation.counters_status = format!("not read: {fault}");
            observation.flags.push("counters_failed".to_owned());
        }
    }
}
