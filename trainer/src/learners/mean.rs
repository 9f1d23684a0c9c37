//! The mean of log slowdown.

use super::{Fitted, Learner, LearnerOptions, Training};
use crate::Error;
use elastico_core::Seed;

pub(crate) struct Mean;

impl Learner for Mean {
    fn fit(&self, training: &Training<'_>, _: &LearnerOptions, _: Seed) -> Result<Fitted, Error> {
        Ok(Fitted::Constant(weighted_mean(training)))
    }
}

/// The mean of log slowdown.
pub(super) fn weighted_mean(training: &Training<'_>) -> f64 {
    let (sum, total) = training.target.iter().enumerate().fold((0.0, 0.0), |(sum, total), (row, target)| {
        let weight = training.weight(row);
        (sum + weight * target, total + weight)
    });
    sum / total
}
