use super::Policy;
use super::configurations::{assign, restart_factor};
use super::rounds::Rounds;
use crate::{Round, Shape};

/// Pollux (Qiao et al., OSDI 2021): in every round the GPU counts with the largest power mean of speedups, p = -1; a restart
/// lowers the speedup of every other count. It takes all GPUs for equal.
///
/// Simplified: prices and a local search instead of the genetic search over nodes; goodput is the planner's speed, the batch
/// does not change. A job without GPUs counts a little worse than on its fewest.
#[derive(Debug)]
pub(super) struct Pollux {
    rounds: Rounds,
}

/// What holding no GPUs costs, where the fewest GPUs cost 1.
const NO_GPUS: f64 = 1.1;

impl Pollux {
    pub(super) const fn new(round_seconds: f64) -> Self {
        Self { rounds: Rounds::new(round_seconds) }
    }
}

impl Policy for Pollux {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        if !self.rounds.begins(round) {
            return;
        }
        assign(round, |round, job, shape, rate| {
            // The rates of the first pool that knows this count stand for all pools.
            let shapes = round.shapes(job);
            let of_count =
                |gpus| shapes.iter().find(|known| known.shape.gpus == gpus).map(|known| known.rate);
            let fewest = shapes.iter().map(|known| known.shape.gpus).min().unwrap_or(shape.gpus);
            let speedup = of_count(shape.gpus).unwrap_or(rate) / of_count(fewest).unwrap_or(rate);
            let here = round.shape_of(job).filter(|here| here.gpus == shape.gpus);
            let same = here.map_or(shape, |here| Shape { pool: here.pool, ..shape });
            NO_GPUS - 1.0 / (restart_factor(round, job, same) * speedup)
        });
        if super::has_choice(round) && super::can_improve(round) {
            self.rounds.ask_again(round);
        }
    }
}
