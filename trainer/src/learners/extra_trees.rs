//! Extra trees (Geurts, Ernst & Wehenkel 2006), by smartcore.

use super::forest::{SubForest, grow};
use super::{Fitted, Learner, LearnerOptions, Training};
use crate::Error;
use elastico_core::Seed;
use smartcore::ensemble::extra_trees_regressor::{ExtraTreesRegressor, ExtraTreesRegressorParameters};

pub(crate) struct ExtraTrees;

impl Learner for ExtraTrees {
    fn fit(&self, training: &Training<'_>, options: &LearnerOptions, seed: Seed) -> Result<Fitted, Error> {
        let options = &options.extra_trees;
        grow("extra_trees", training, options, seed, |part: &SubForest<'_>| {
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
}
