use super::Policy;
use super::estimates::Estimates;
use super::preemptive::Queue;
use crate::Round;
use elastico_core::Seed;

/// Shortest remaining time first.
#[derive(Debug)]
pub(super) struct Srtf {
    estimates: Estimates,
    queue: Queue,
}

impl Srtf {
    pub(super) fn new(error_factor: f64, seed: Seed) -> Self {
        Self { estimates: Estimates::new(error_factor, seed), queue: Queue::default() }
    }
}

impl Policy for Srtf {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        self.estimates.learn(round);
        let estimates = &self.estimates;
        self.queue.serve(round, false, |round, job| {
            (estimates.remaining_seconds(round, job).to_bits(), job as u64)
        });
    }
}
