//! One attempt at a trial in a living session: soak, timed phases, numbers.

use super::{Protocol, SOAK_STEPS, Stopwatch};
use crate::device::{Active, Fault, Phase, Session, Side, StepRecord, Window};
use crate::estimator::{self, Selection};
use crate::observation::{Interval, Measured, PhaseRecord, Ran, SideMeasured, TelemetryRecord};
use elastico_core::Outcome;
use elastico_core::units::{Hertz, Seconds};
use std::collections::BTreeMap;

/// One attempt in a living session.
pub(super) struct Run<'a, 's> {
    pub(super) session: &'a mut (dyn Session + 's),
    pub(super) protocol: &'a Protocol,
    pub(super) level: f64,
    pub(super) watch: &'a mut Stopwatch,
    pub(super) phases: &'a mut Vec<PhaseRecord>,
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

    pub(super) fn isolated(&mut self) -> Result<(Measured, bool), Fault> {
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

    pub(super) fn pair(&mut self, first: [Side; 2]) -> Result<(Measured, bool), Fault> {
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
