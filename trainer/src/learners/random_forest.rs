//! Random forest (Breiman 2001), by smartcore.

use super::few_families::cautious;
use super::forest::{SubForest, grow};
use super::inputs::of_trees;
use super::{Fitted, ForestOptions, Learner, LearnerOptions, Training};
use crate::Error;
use elastico_core::Seed;
use smartcore::ensemble::random_forest_regressor::{RandomForestRegressor, RandomForestRegressorParameters};

pub(crate) struct RandomForest;

impl Learner for RandomForest {
    fn fit(&self, training: &Training<'_>, options: &LearnerOptions, seed: Seed) -> Result<Fitted, Error> {
        Ok(cautious(grown(training, &options.random_forest, seed)?, training))
    }
}

fn grown(training: &Training<'_>, options: &ForestOptions, seed: Seed) -> Result<Fitted, Error> {
    let Training { target, weights, .. } = training;
    let features = of_trees(training, options.physics);
    let forest =
        grow("random_forest", &features, target, *weights, options, seed, |part: &SubForest<'_>| {
            let parameters = RandomForestRegressorParameters {
                max_depth: options.max_depth,
                min_samples_leaf: options.min_leaf,
                min_samples_split: 2,
                n_trees: part.trees,
                m: Some(part.features),
                keep_samples: false,
                seed: part.seed,
            };
            let fitted = match part.weights {
                Some(weights) => RandomForestRegressor::fit_with_weights(part.x, part.y, weights, parameters),
                None => RandomForestRegressor::fit(part.x, part.y, parameters),
            };
            fitted.map_err(|error| error.to_string()).and_then(|forest| super::nodes::extract(&forest))
        })?;
    Ok(Fitted::Forest(forest))
}
