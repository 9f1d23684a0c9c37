//! Durations as a policy knows them: misjudged by a factor.

use crate::Round;
use elastico_core::Seed;
use rand::RngExt;

/// One factor for each job, log-uniform between 1 / `error_factor` and `error_factor`.
#[derive(Debug)]
pub(super) struct Estimates {
    error_factor: f64,
    seed: Seed,
    // By index of the job, as far as jobs have arrived.
    factors: Vec<f64>,
}

impl Estimates {
    pub(super) const fn new(error_factor: f64, seed: Seed) -> Self {
        Self { error_factor, seed, factors: Vec::new() }
    }

    /// To be called in every round.
    pub(super) fn learn(&mut self, round: &Round<'_, '_>) {
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
    }

    /// Work left, as far as it is known.
    pub(super) fn remaining_seconds(&self, round: &Round<'_, '_>, job: usize) -> f64 {
        round.remaining_seconds(job) * self.factors.get(job).copied().unwrap_or(1.0)
    }

    /// The whole work, as far as it is known.
    pub(super) fn duration_seconds(&self, round: &Round<'_, '_>, job: usize) -> f64 {
        round.job(job).duration_seconds * self.factors.get(job).copied().unwrap_or(1.0)
    }
}
