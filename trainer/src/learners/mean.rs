//! The mean of log slowdown.

use super::{Bounds, Fitted, Learner, Training};
use crate::Error;
use elastico_core::Seed;

pub(crate) struct Mean;

impl Learner for Mean {
    fn fit(&self, training: &Training<'_>, _: &Bounds, _: Seed) -> Result<Fitted, Error> {
        let weight = |row: usize| training.weights.map_or(1.0, |weights| weights[row]);
        let (sum, total) =
            training.target.iter().enumerate().fold((0.0, 0.0), |(sum, total), (row, target)| {
                (sum + weight(row) * target, total + weight(row))
            });
        Ok(Fitted::Constant(sum / total))
    }
}
