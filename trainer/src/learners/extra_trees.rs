//! Extra trees (Geurts, Ernst & Wehenkel 2006), by smartcore.

use super::few_families::cautious;
use super::forest::{SubForest, grow};
use super::inputs::of_trees;
use super::{Fitted, ForestOptions, Learner, LearnerOptions, Training};
use crate::Error;
use crate::matrix::Matrix;
use elastico_core::Seed;
use elastico_models::Forest;
use smartcore::ensemble::extra_trees_regressor::{ExtraTreesRegressor, ExtraTreesRegressorParameters};

pub(crate) struct ExtraTrees;

impl Learner for ExtraTrees {
    fn fit(&self, training: &Training<'_>, options: &LearnerOptions, seed: Seed) -> Result<Fitted, Error> {
        let Training { target, weights, .. } = training;
        let features = of_trees(training, options.extra_trees.physics);
        let forest = fit(&features, target, *weights, &options.extra_trees, seed)?;
        Ok(cautious(Fitted::Forest(forest), training))
    }
}

/// Extra trees for any target, outside the choice of learners.
pub(crate) fn grow_extra_trees(
    features: &Matrix,
    target: &[f64],
    options: &ForestOptions,
    seed: Seed,
) -> Result<Forest, Error> {
    fit(features, target, None, options, seed)
}

fn fit(
    features: &Matrix,
    target: &[f64],
    weights: Option<&[f64]>,
    options: &ForestOptions,
    seed: Seed,
) -> Result<Forest, Error> {
    grow("extra_trees", features, target, weights, options, seed, |part: &SubForest<'_>| {
        let parameters = ExtraTreesRegressorParameters {
            max_depth: options.max_depth,
            min_samples_leaf: options.min_leaf,
            min_samples_split: 2,
            n_trees: part.trees,
            m: Some(part.features),
            keep_samples: false,
            seed: part.seed,
        };
        let fitted = match part.weights {
            Some(weights) => ExtraTreesRegressor::fit_with_weights(part.x, part.y, weights, parameters),
            None => ExtraTreesRegressor::fit(part.x, part.y, parameters),
        };
        fitted.map_err(|error| error.to_string()).and_then(|forest| super::nodes::extract(&forest))
    })
}
