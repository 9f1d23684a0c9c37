//! What both forests share: sub-forests over threads.

use super::{Bounds, Fitted, Training};
use crate::{Error, parallel};
use elastico_core::Seed;
use elastico_models::Tree;
use rand::RngExt as _;
use smartcore::linalg::basic::matrix::DenseMatrix;

/// The value of the leaf that a row falls into.
///
/// [`super::nodes::extract`] has made sure that children exist.
pub(crate) fn leaf(tree: &Tree, row: &[f32]) -> f64 {
    let mut node = &tree.nodes[0];
    while !node.is_leaf() {
        let next = if row[node.feature as usize] <= node.threshold { node.left } else { node.right };
        node = &tree.nodes[next as usize];
    }
    node.value
}

/// One piece of a forest, fitted by one thread.
pub(crate) struct SubForest<'a> {
    pub(crate) x: &'a DenseMatrix<f32>,
    pub(crate) y: &'a Vec<f64>,
    pub(crate) weights: Option<&'a [f64]>,
    pub(crate) trees: usize,
    pub(crate) features: usize,
    pub(crate) seed: u64,
}

/// Trees of one sub-forest. A fixed number, so that the result does not depend on the number of cores; small, so that
/// what smartcore keeps beside the nodes is soon freed.
const PART: usize = 10;

/// Fits sub-forests over threads and concatenates them in order.
pub(crate) fn grow(
    learner: &'static str,
    share: f64,
    training: &Training<'_>,
    bounds: &Bounds,
    seed: Seed,
    fit: impl Fn(&SubForest<'_>) -> Result<Vec<Tree>, String> + Sync,
) -> Result<Fitted, Error> {
    let error = |reason: String| Error::Learner { learner, reason };
    let features = training.features;
    let (rows, width) = (features.rows(), features.width);
    let mut columns = Vec::with_capacity(features.values.len());
    for column in 0..width {
        columns.extend(features.values.iter().skip(column).step_by(width));
    }
    let x = DenseMatrix::new(rows, width, columns, true).map_err(|failed| error(failed.to_string()))?;
    let y = training.target.to_vec();
    let mut stream = seed.stream("trainer.forest", &[learner]);
    let parts = bounds.trees.div_ceil(PART);
    let seeds: Vec<u64> = (0..parts).map(|_| stream.random()).collect();
    let grown = parallel::map(parts, |index| {
        fit(&SubForest {
            x: &x,
            y: &y,
            weights: training.weights,
            trees: PART.min(bounds.trees - index * PART),
            features: ((width as f64 * share).round() as usize).clamp(1, width),
            seed: seeds[index],
        })
    });
    let mut trees = Vec::with_capacity(bounds.trees);
    for part in grown {
        trees.extend(part.map_err(error)?);
    }
    if trees.len() != bounds.trees || trees.is_empty() {
        return Err(error(format!("{} trees were read where {} were fitted", trees.len(), bounds.trees)));
    }
    Ok(Fitted::Forest(trees))
}
