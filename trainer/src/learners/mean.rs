//! The mean of log slowdown.

use super::{Fitted, Learner, LearnerOptions, Training};
use crate::Error;
use elastico_core::Seed;

pub(crate) struct Mean;

impl Learner for Mean {
    fn fit(&self, training: &Training<'_>, _: &LearnerOptions, _: Seed) -> Result<Fitted, Error> {
        let weight = |row| training.weight(row);
        let (sum, total) =
            training.target.iter().enumerate().fold((0.0, 0.0), |(sum, total), (row, target)| {
                (sum + weight(row) * target, total + weight(row))
            });
        Ok(Fitted::Constant(sum / total))
    }
}
