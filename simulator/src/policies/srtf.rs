use super::Policy;
use super::estimates::Estimates;
use super::preemptive::Queue;
use crate::Round;
use elastico_core::Seed;

/// What is left of a job, by which it is ordered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Left {
    /// Seconds: shortest remaining time first.
    Seconds,
    /// Seconds times the GPUs that it asks for: shortest remaining service first.
    GpuSeconds,
}

/// Shortest remaining time, or service, first.
#[derive(Debug)]
pub(super) struct Srtf {
    estimates: Estimates,
    queue: Queue,
    left: Left,
}

impl Srtf {
    pub(super) fn new(error_factor: f64, seed: Seed, left: Left) -> Self {
        Self { estimates: Estimates::new(error_factor, seed), queue: Queue::default(), left }
    }
}

impl Policy for Srtf {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        self.estimates.learn(round);
        let (estimates, left) = (&self.estimates, self.left);
        self.queue.serve(round, &[], |round, job| {
            let gpus = match left {
                Left::Seconds => 1.0,
                Left::GpuSeconds => f64::from(round.job(job).gpus),
            };
            ((estimates.remaining_seconds(round, job) * gpus).to_bits(), job as u64)
        });
    }
}
