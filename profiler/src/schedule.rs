//! Which trials come next, as a function of the plan and of the results of earlier rounds alone.
//!
//! Round `r` holds repeat `r` of every cell that is still open, in random order, with a sentinel after each so many
//! trials. A cell is open until its least repeats are done, then until its interval is narrow enough or the cap is
//! reached. In a campaign of waves the rounds of a wave end before those of the next begin. Since a round depends only on the rounds before it, a run that was interrupted anywhere goes on exactly as
//! if it had not been.

use crate::estimator;
use crate::observation::Observation;
use crate::plan::{Cell, Plan, Role, Trial};
use crate::sampling::shuffle;
use elastico_core::Outcome;
use std::collections::BTreeMap;

/// What is known of each cell: the last observation of each repeat.
#[derive(Clone, Debug, Default)]
pub struct Results {
    cells: BTreeMap<String, BTreeMap<u32, Known>>,
}

/// The little of an observation that decides.
#[derive(Clone, Debug)]
struct Known {
    outcome: Outcome,
    /// Interference of both sides, or the isolated step time.
    values: Vec<f64>,
}

/// How far a cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Repeats are missing.
    Open,
    /// The interval is narrow enough.
    Converged,
    /// The cap is reached and the interval is still too wide.
    Inconclusive,
    /// It failed in a way that repeating does not mend, or again and again.
    Failed,
}

impl Results {
    /// Takes in one observation; a later one of the same repeat replaces it.
    pub fn add(&mut self, observation: &Observation) {
        let values = match &observation.measured {
            None => Vec::new(),
            Some(measured) => match &measured.co_runner {
                None => vec![measured.subject.isolated.point],
                Some(co_runner) => [&measured.subject, co_runner]
                    .into_iter()
                    .filter_map(|side| Some(side.interference?.point))
                    .collect(),
            },
        };
        let known = Known { outcome: observation.outcome, values };
        self.cells.entry(observation.cell.clone()).or_default().insert(observation.repeat, known);
    }

    /// Whether a repeat needs no measuring any more. A lost device says nothing about the trial.
    pub fn is_done(&self, trial: &Trial) -> bool {
        self.cells
            .get(&trial.cell)
            .and_then(|repeats| repeats.get(&trial.repeat))
            .is_some_and(|known| known.outcome != Outcome::DeviceLost)
    }

    /// How far a cell is after its first `repeats` repeats.
    pub fn state(&self, plan: &Plan, cell: &str, repeats: u32) -> State {
        let (min, max) = plan.header.repeats;
        let empty = BTreeMap::new();
        let known: Vec<&Known> =
            self.cells.get(cell).unwrap_or(&empty).range(..repeats).map(|(_, known)| known).collect();
        let hopeless = known.iter().any(|known| {
            !known.outcome.has_times()
                && !known.outcome.is_retryable()
                && known.outcome != Outcome::DeviceLost
        });
        let failures = known.iter().filter(|known| !known.outcome.has_times()).count() as u32;
        if hopeless || failures >= min {
            return State::Failed;
        }
        if (known.len() as u32) < min {
            return State::Open;
        }
        let good: Vec<&[f64]> = known
            .iter()
            .filter(|known| known.outcome == Outcome::Ok)
            .map(|known| known.values.as_slice())
            .collect();
        let sides = good.first().map_or(0, |values| values.len());
        let narrow = good.len() as u32 >= min
            && sides > 0
            && (0..sides).all(|side| {
                let values: Vec<f64> = good.iter().filter_map(|values| values.get(side).copied()).collect();
                estimator::geometric(&values, plan.header.level)
                    .is_some_and(|estimate| estimate.half_width_ratio() <= plan.header.half_width)
            });
        if narrow {
            State::Converged
        } else if known.len() as u32 >= max {
            State::Inconclusive
        } else {
            State::Open
        }
    }

    /// How far a cell is with all that is known.
    pub fn final_state(&self, plan: &Plan, cell: &str) -> State {
        self.state(plan, cell, u32::MAX)
    }
}

/// Deals out rounds in order.
#[derive(Debug)]
pub struct Schedule<'a> {
    plan: &'a Plan,
    wave: u32,
    last_wave: u32,
    round: u32,
    sentinels: u32,
    since_sentinel: u32,
}

impl<'a> Schedule<'a> {
    /// A schedule from the first round on.
    pub fn new(plan: &'a Plan) -> Self {
        let last_wave = plan.cells.iter().map(|cell| cell.wave).max().unwrap_or(0);
        Self { plan, wave: 0, last_wave, round: 0, sentinels: 0, since_sentinel: 0 }
    }

    /// The trials of the next round, given the results of all rounds before it; empty when the campaign is complete.
    pub fn round(&mut self, results: &Results) -> Vec<Trial> {
        let plan = self.plan;
        loop {
            let open: Vec<Trial> = self
                .wave_cells(self.wave)
                .filter(|cell| {
                    self.round < plan.header.repeats.1
                        && results.state(plan, &cell.id, self.round) == State::Open
                })
                .map(|cell| cell.trial(self.round))
                .collect();
            if open.is_empty() && self.wave < self.last_wave {
                self.wave += 1;
                self.round = 0;
                continue;
            }
            return self.deal(open);
        }
    }

    /// The trials that are certain whatever the results: the least repeats of every cell, with their sentinels.
    pub fn certain(mut self) -> Vec<Trial> {
        let mut trials = Vec::new();
        for wave in 0..=self.last_wave {
            self.wave = wave;
            for round in 0..self.plan.header.repeats.0 {
                self.round = round;
                let cells = self.wave_cells(wave).map(|cell| cell.trial(round)).collect();
                trials.extend(self.deal(cells));
            }
        }
        trials
    }

    /// Cells that the rounds dealt so far leave out for certain, each as often as it will be measured at least.
    pub fn certain_ahead(&self) -> impl Iterator<Item = (&'a Cell, u32)> {
        let (wave, dealt, least) = (self.wave, self.round, self.plan.header.repeats.0);
        self.plan.cells.iter().filter(|cell| cell.role != Role::Sentinel).filter_map(move |cell| {
            let count = match cell.wave.cmp(&wave) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Equal => least.saturating_sub(dealt),
                std::cmp::Ordering::Greater => least,
            };
            (count > 0).then_some((cell, count))
        })
    }

    fn wave_cells(&self, wave: u32) -> impl Iterator<Item = &'a Cell> + use<'a> {
        self.plan.cells.iter().filter(move |cell| cell.role != Role::Sentinel && cell.wave == wave)
    }

    /// Shuffles a round, puts the sentinels in, and goes on to the next.
    fn deal(&mut self, mut open: Vec<Trial>) -> Vec<Trial> {
        let plan = self.plan;
        let (round, wave) = (self.round.to_string(), self.wave.to_string());
        let parts: &[&str] = if self.wave == 0 { &[&round] } else { &[&round, &wave] };
        let mut stream = plan.header.seed.stream("round", parts);
        shuffle(&mut open, &mut stream);
        self.round += 1;
        let Some(sentinel) = plan.sentinel() else { return open };
        let mut trials = Vec::with_capacity(open.len() + open.len() / 16 + 1);
        for trial in open {
            if self.since_sentinel == 0 {
                trials.push(sentinel.trial(self.sentinels));
                self.sentinels += 1;
            }
            self.since_sentinel = (self.since_sentinel + 1) % plan.header.protocol.sentinel_every;
            trials.push(trial);
        }
        trials
    }
}
