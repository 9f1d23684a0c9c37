//! Replays a captured journal as a device, failures included.
//!
//! The journal keeps, per phase and side, the time per step of ten blocks. From them steps are laid out again, so that
//! the protocol selects the same ones and comes to the same numbers (within 1e-6, as blocks are kept in single
//! precision). A fault comes back where it came: when a side starts, or before the phase that it ended. A trial is found
//! by its workloads, sharing and repeat; one that the journal lacks ends in `worker_crash` with the reason.
//!
//! It works on journals of every kind of device, simulated ones included.

use crate::Error;
use crate::device::{
    Active, CounterReading, Device, DeviceIdentity, Fault, Phase, Session, SessionReport, SessionRequest,
    Side, StepRecord, Telemetry, Window,
};
use crate::estimator::block_bounds;
use crate::observation::{Attempt, Observation, PhaseRecord, Ran, TelemetryRecord, Track};
use crate::protocol::SOAK_STEPS;
use crate::run;
use elastico_core::units::{Bytes, Hertz, Watts};
use elastico_core::{COUNTERS, DeviceKind, Outcome, SharingMode, TrialId};
use std::collections::BTreeMap;
use std::path::Path;

/// Subject, co-runner, sharing, and the end of the trial's id: its repeat, with a letter for sentinels.
type Key = (String, Option<String>, SharingMode, String);

fn repeat_of(trial: &TrialId) -> String {
    trial.as_str().rsplit_once('.').map_or_else(String::new, |(_, repeat)| repeat.to_owned())
}

/// A journal as a device.
#[derive(Debug)]
pub struct Recorded {
    identity: DeviceIdentity,
    trials: BTreeMap<Key, Observation>,
    /// The next attempt of each trial.
    next: BTreeMap<Key, usize>,
}

impl Recorded {
    /// Reads the journal of a campaign's folder.
    ///
    /// # Errors
    /// [`Error::NoCampaign`] or a damaged journal.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let content = run::read_journal(folder)?;
        let header = content.header.ok_or_else(|| Error::NoCampaign {
            folder: folder.to_owned(),
            missing: "the journal's header",
        })?;
        let mut facts = header.facts;
        facts.insert("recorded_campaign".to_owned(), header.campaign.to_string());
        facts.insert("recorded_kind".to_owned(), header.device_kind.to_string());
        facts.insert("recorded_version".to_owned(), header.version);
        let identity = DeviceIdentity {
            kind: DeviceKind::Recorded,
            model: header.model,
            memory: Bytes(header.memory),
            facts,
        };
        let trials = content
            .observations
            .into_iter()
            .map(|observation| {
                let key = (
                    observation.subject.to_string(),
                    observation.co_runner.as_ref().map(ToString::to_string),
                    observation.sharing.clone(),
                    repeat_of(&observation.trial),
                );
                (key, observation)
            })
            .collect();
        Ok(Self { identity, trials, next: BTreeMap::new() })
    }
}

impl Device for Recorded {
    fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    fn open<'a>(&'a mut self, request: &SessionRequest<'_>) -> Result<Box<dyn Session + 'a>, Fault> {
        let key = (
            request.subject.id.to_string(),
            request.co_runner.map(|co_runner| co_runner.id.to_string()),
            request.sharing.clone(),
            repeat_of(request.trial),
        );
        let Some(observation) = self.trials.get(&key) else {
            return Err(missing(format!("the journal has no repeat {} of this cell", key.3)));
        };
        let next = self.next.entry(key).or_insert(0);
        match observation.attempts.get(*next) {
            None => Err(missing("the journal has no more attempts of this trial".to_owned())),
            Some(attempt) if attempt.at_open => {
                *next += 1;
                Err(fault(attempt))
            }
            Some(_) => Ok(Box::new(Replay { observation, next, phase: 0 })),
        }
    }
}

fn missing(detail: String) -> Fault {
    Fault { outcome: Outcome::WorkerCrash, detail }
}

fn fault(attempt: &Attempt) -> Fault {
    Fault { outcome: attempt.outcome, detail: attempt.detail.clone().unwrap_or_default() }
}

struct Replay<'a> {
    observation: &'a Observation,
    /// The attempt that is replayed; a retry in living processes moves it on.
    next: &'a mut usize,
    phase: usize,
}

impl Session for Replay<'_> {
    fn effective_sharing(&self) -> SharingMode {
        self.observation.effective.clone().unwrap_or_else(|| self.observation.sharing.clone())
    }

    fn run(&mut self, active: Active, window: Window) -> Result<Phase, Fault> {
        let observation = self.observation;
        if let Some(attempt) = observation.attempts.get(*self.next)
            && attempt.detail.is_none()
            && self.phase == attempt.phases.len()
        {
            *self.next += 1;
            self.phase = 0;
        }
        let Some(attempt) = observation.attempts.get(*self.next) else {
            return Err(missing("the journal has no more attempts of this trial".to_owned()));
        };
        if self.phase == attempt.phases.len() {
            *self.next += 1;
            self.phase = 0;
            return Err(fault(attempt));
        }
        if window.min_steps <= SOAK_STEPS {
            return Ok(soak(attempt, active));
        }
        let ran = match active {
            Active::Alone(Side::Subject) => Ran::Subject,
            Active::Alone(Side::CoRunner) => Ran::CoRunner,
            Active::Both => Ran::Both,
        };
        // Before and after the co-run another campaign's seed may ask for the sides in the other order.
        let half = if self.phase > attempt.phases.len() / 2 { attempt.phases.len() / 2 + 1 } else { 0 };
        let found = match attempt.phases.get(self.phase) {
            Some(phase) if phase.ran == ran => Some(phase),
            _ => attempt.phases[half..].iter().find(|phase| phase.ran == ran),
        };
        self.phase += 1;
        found.map(replay).ok_or_else(|| missing("the journal lacks this phase".to_owned()))
    }

    fn counters(&mut self, _: Active) -> Result<CounterReading, Fault> {
        let read = |name: &'static str| Some((name, *self.observation.counters.get(name)?));
        let values = COUNTERS.iter().filter_map(|counter| read(counter.name)).collect();
        Ok(CounterReading {
            values,
            status: self.observation.counters_status.clone(),
            ..CounterReading::default()
        })
    }

    fn report(&self) -> SessionReport {
        self.observation.reported.as_ref().map(SessionReport::from).unwrap_or_default()
    }
}

/// A few even steps at the speed of the phase that the soak prepares.
fn soak(attempt: &Attempt, active: Active) -> Phase {
    let of = |track: fn(&PhaseRecord) -> Option<&Track>| {
        let mean =
            attempt.phases.iter().rev().find_map(track).and_then(|track| track.blocks.first().copied());
        let step = f64::from(mean.unwrap_or(1e-3));
        (0..=SOAK_STEPS)
            .map(|number| StepRecord { start: f64::from(number) * step, end: f64::from(number + 1) * step })
            .collect()
    };
    let telemetry =
        attempt.phases.first().map_or_else(Telemetry::default, |phase| telemetry(&phase.telemetry));
    let (subject, co_runner) =
        (active != Active::Alone(Side::CoRunner), active != Active::Alone(Side::Subject));
    Phase {
        subject: if subject { of(|phase| phase.subject.as_ref()) } else { Vec::new() },
        co_runner: if co_runner { of(|phase| phase.co_runner.as_ref()) } else { Vec::new() },
        telemetry,
    }
}

fn telemetry(record: &TelemetryRecord) -> Telemetry {
    Telemetry {
        clock: record.clock.map(Hertz),
        memory_clock: record.memory_clock.map(Hertz),
        power: record.power.map(Watts),
        temperature: record.temperature,
        memory_temperature: record.memory_temperature,
        throttled_ratio: record.throttled,
        power_capped_ratio: record.power_capped,
    }
}

fn replay(phase: &PhaseRecord) -> Phase {
    let tracks = [phase.subject.as_ref(), phase.co_runner.as_ref()];
    let from = tracks.iter().flatten().map(|track| track.start).fold(f64::INFINITY, f64::min);
    let to = tracks.iter().flatten().map(|track| end(track)).fold(0.0, f64::max);
    let busy = phase.overlap.unwrap_or(1.0);
    let mut steps: [Vec<StepRecord>; 2] =
        tracks.map(|track| track.map_or_else(Vec::new, |track| lay_out(track, from, to)));
    // The gaps of both sides together are laid into the co-runner.
    for step in &mut steps[1] {
        step.start = step.end - busy * (step.end - step.start);
    }
    let [subject, co_runner] = steps;
    Phase { subject, co_runner, telemetry: telemetry(&phase.telemetry) }
}

fn durations(track: &Track) -> impl Iterator<Item = f64> + '_ {
    block_bounds(track.steps)
        .zip(&track.blocks)
        .flat_map(|((low, high), block)| std::iter::repeat_n(f64::from(*block), (high - low) as usize))
}

fn end(track: &Track) -> f64 {
    durations(track).fold(track.start, |now, duration| now + duration)
}

/// The steps of one side: those before the window of which `from` is the begin, the counted ones, and one past `to`.
fn lay_out(track: &Track, from: f64, to: f64) -> Vec<StepRecord> {
    let step = track.blocks.first().map_or(1e-3, |block| f64::from(*block));
    let mut records = Vec::with_capacity((track.lead + track.steps) as usize + 1);
    for number in 1..track.lead {
        let before_last = f64::from(track.lead - number);
        let end = from - before_last * step;
        records.push(StepRecord { start: end - step, end });
    }
    let before = records.last().map_or(track.start - step, |last: &StepRecord| last.end);
    records.push(StepRecord { start: before, end: track.start });
    let mut now = track.start;
    for duration in durations(track) {
        records.push(StepRecord { start: now, end: now + duration });
        now += duration;
    }
    if now < to {
        // Uncounted, since it ends outside, but it keeps the side busy until the window closes.
        records.push(StepRecord { start: now, end: to + 1e-3 * (to - from).max(1e-6) });
    }
    records
}
