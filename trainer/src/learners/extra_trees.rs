//! Extra trees (Geurts, Ernst & Wehenkel 2006), by smartcore.

use super::forest::{SubForest, grow};
use super::{Bounds, Fitted, Learner, Training};
use crate::Error;
use elastico_core::Seed;
use smartcore::ensemble::extra_trees_regressor::{ExtraTreesRegressor, ExtraTreesRegressorParameters};

pub(crate) struct ExtraTrees;

/// Share of the features that each node looks at.
const FEATURES: f64 = 0.7;

impl Learner for ExtraTrees {
    fn fit(&self, training: &Training<'_>, bounds: &Bounds, seed: Seed) -> Result<Fitted, Error> {
        grow("extra_trees", FEATURES, training, bounds, seed, |part: &SubForest<'_>| {
            let parameters = ExtraTreesRegressorParameters {
                max_depth: bounds.max_depth,
                min_samples_leaf: bounds.min_leaf,
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
