//! Which trials come next, as a function of the plan and of the results of earlier rounds alone.
//!
//! Round `r` holds repeat `r` of every cell that is still open, in random order, with a sentinel after each so many
//! trials. A cell is open until its least repeats are done, then until its interval is narrow enough or the cap is
//! reached. Since a round depends only on the rounds before it, a run that was interrupted anywhere goes on exactly as
//! if it had not been.

use crate::estimator;
use crate::observation::Observation;
use crate::plan::{Plan, Role, Trial};
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
    round: u32,
    sentinels: u32,
    since_sentinel: u32,
}

impl<'a> Schedule<'a> {
    /// A schedule from the first round on.
    pub fn new(plan: &'a Plan) -> Self {
        Self { plan, round: 0, sentinels: 0, since_sentinel: 0 }
    }

    /// The trials of the next round, given the results of all rounds before it; empty when the campaign is complete.
    pub fn round(&mut self, results: &Results) -> Vec<Trial> {
        let plan = self.plan;
        let mut open: Vec<Trial> = plan
            .cells
            .iter()
            .filter(|cell| cell.role != Role::Sentinel)
            .filter(|cell| {
                self.round < plan.header.repeats.1 && results.state(plan, &cell.id, self.round) == State::Open
            })
            .map(|cell| cell.trial(self.round))
            .collect();
        let mut stream = plan.header.seed.stream("round", &[&self.round.to_string()]);
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
