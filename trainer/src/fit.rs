//! One learner on all rows.

use crate::evaluate::{Prepared, check_limit};
use crate::learners::{LearnerOptions, choose};
use crate::matrix::medians;
use crate::{Error, Examples, LearnerKind};
use elastico_core::Seed;
use elastico_models::{Body, physics};

/// Fits a learner on all rows, without judging, calibrating or checking a file: what [`train`](crate::train) does first.
///
/// Where `settings` hold several to choose from, they are chosen first. `limit`: a slowdown up to this counts as safe.
///
/// # Determinism
/// The same examples, settings and seed give the same body, on any number of cores.
///
/// # Errors
/// [`Error::Setting`], [`Error::Option`], and [`Error::Learner`] where it cannot be fitted or no model file can hold it.
pub fn fit(
    examples: &Examples,
    learner: LearnerKind,
    settings: &LearnerOptions,
    limit: f64,
    seed: Seed,
) -> Result<Body, Error> {
    settings.check()?;
    check_limit(limit)?;
    let rows: Vec<u32> = (0..examples.rows() as u32).collect();
    let impute = medians(&examples.features, examples.schema.width(), &rows);
    let prepared = Prepared::new(examples, &physics(&examples.schema), &impute, &rows);
    let training = prepared.training(limit);
    let choice = choose(learner, &training, settings, seed)?;
    choice.fit(&training, seed)?.into_body(choice.learner)
}
