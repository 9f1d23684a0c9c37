//! One file for each policy, behind one trait with one method.

mod best_fit;
mod configurations;
mod elastico;
mod estimates;
mod external;
mod fifo;
mod gavel;
mod greedy_pairs;
mod kind;
mod las;
mod lucid;
mod max_min;
mod memory_fit_pairs;
mod muri;
mod pollux;
mod preemptive;
mod random_pairs;
mod rounds;
mod running;
mod sia;
mod sjf;
mod srtf;

pub use elastico::{Choosing, ElasticoOptions, Pairing};
pub use greedy_pairs::GreedyOptions;
pub use kind::PolicyKind;

use crate::Round;

/// Decides who runs.
pub trait Policy {
    /// Called after each arrival, finish, failure and wake-up, with everything of that instant already done.
    fn decide(&mut self, round: &mut Round<'_, '_>);
}

/// Waiting jobs of each size that a policy looks at for joining others in one round.
const GUESTS: usize = 64;

/// The first waiting jobs of each size of which somebody runs alone.
fn guests(round: &Round<'_, '_>) -> Vec<usize> {
    let sizes = round.waiting_sizes().filter(|gpus| round.hosts(*gpus).next().is_some());
    sizes.flat_map(|gpus| round.waiting_of(gpus).take(GUESTS)).collect()
}

/// Whether a later round could choose otherwise although nobody comes or goes, where the choice is by speeds and restarts:
/// somebody has a choice, or waits for his restart to be worth it.
fn has_choice(round: &Round<'_, '_>) -> bool {
    let waiting = round.waiting();
    let waits_to_return = waiting.iter().any(|job| round.has_run(*job));
    waits_to_return || waiting.into_iter().chain(round.running()).any(|job| round.shapes(job).len() > 1)
}

/// Whether a later round could do better although nobody comes or goes: somebody waits, or runs slower than it could.
fn can_improve(round: &Round<'_, '_>) -> bool {
    let is_slow = |job: usize| {
        let best = round.shapes(job).iter().map(|known| known.rate).fold(0.0, f64::max);
        let rate = round.shape_of(job).and_then(|shape| round.rate(job, shape));
        rate.is_some_and(|rate| rate < best)
    };
    round.waiting_sizes().next().is_some() || round.running().any(is_slow)
}
