use super::Policy;
use super::configurations::{assign, restart_factor};
use super::rounds::Rounds;
use crate::Round;

/// Sia (Jayaram Subramanya et al., SOSP 2023): in every round one configuration of pool and GPUs for each job, or none, for the
/// largest sum of powers of normalised goodput; a restart lowers the goodput of every other configuration.
///
/// Simplified: prices and a local search instead of the integer program; goodput is the planner's speed, the batch does not
/// change; configurations are powers of two and the ends of a job's range.
#[derive(Debug)]
pub(super) struct Sia {
    rounds: Rounds,
}

/// The paper's power, and its price of holding no GPUs.
const POWER: f64 = -0.5;
const NO_GPUS: f64 = 1.1;

impl Sia {
    pub(super) const fn new(round_seconds: f64) -> Self {
        Self { rounds: Rounds::new(round_seconds) }
    }
}

impl Policy for Sia {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        if !self.rounds.begins(round) {
            return;
        }
        assign(round, |round, job, shape, rate| {
            let slowest = round.shapes(job).iter().map(|known| known.rate).fold(f64::INFINITY, f64::min);
            NO_GPUS - (restart_factor(round, job, shape) * rate / slowest).powf(POWER)
        });
        if super::has_choice(round) && super::can_improve(round) {
            self.rounds.ask_again(round);
        }
    }
}
