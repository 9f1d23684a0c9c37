use super::Policy;
use super::preemptive::Queue;
use crate::Round;
use elastico_core::Seed;
use rand::RngExt;

/// Shortest remaining time first.
#[derive(Debug)]
pub(super) struct Srtf {
    error_factor: f64,
    seed: Seed,
    // The factor of each job that has arrived, by index.
    factors: Vec<f64>,
    queue: Queue,
}

impl Srtf {
    pub(super) fn new(error_factor: f64, seed: Seed) -> Self {
        Self { error_factor, seed, factors: Vec::new(), queue: Queue::default() }
    }
}

impl Policy for Srtf {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        for job in round.arrived() {
            if self.factors.len() <= *job {
                self.factors.resize(job + 1, 1.0);
            }
            if self.error_factor > 1.0 {
                let mut random = self.seed.stream("duration error", &[round.job(*job).job.as_str()]);
                let exponent = random.random_range(-1.0..=1.0);
                self.factors[*job] = self.error_factor.powf(exponent);
            }
        }
        let factors = &self.factors;
        self.queue
            .serve(round, |round, job| ((round.remaining_seconds(job) * factors[job]).to_bits(), job as u64));
    }
}
