use super::Policy;
use super::estimates::Estimates;
use super::preemptive::Queue;
use crate::Round;
use elastico_core::Seed;

/// Shortest job first; who runs is left alone, and who fits overtakes who does not.
#[derive(Debug)]
pub(super) struct Sjf {
    estimates: Estimates,
    queue: Queue,
}

impl Sjf {
    pub(super) fn new(error_factor: f64, seed: Seed) -> Self {
        Self { estimates: Estimates::new(error_factor, seed), queue: Queue::default() }
    }
}

impl Policy for Sjf {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        self.estimates.learn(round);
        let estimates = &self.estimates;
        self.queue.fill(round, |round, job| (estimates.duration_seconds(round, job).to_bits(), job as u64));
    }
}
