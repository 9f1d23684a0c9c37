//! What both forests share: sub-forests over threads.

use super::{ForestOptions, TreeMean, TreeTarget};
use crate::Error;
use crate::matrix::Matrix;
use elastico_core::Seed;
use elastico_core::parallel;
use elastico_models::{Aggregate, Forest, Tree, round_down};
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

/// A positive feature over more than this factor is split on a logarithmic scale.
const WIDE: f32 = 10.0;

/// The scale on which thresholds of a feature are drawn.
///
/// Extra trees draw thresholds evenly between the least and the largest value. For rates, bytes and times, whose ratios
/// matter, an even draw falls among the largest values nearly always; drawn evenly over the logarithm, every decade gets
/// its share. A logarithm keeps the order of rows, so the threshold is carried back to the raw scale and the exported tree
/// knows nothing of it.
#[derive(Clone, Copy)]
enum Scale {
    Linear,
    Logarithmic,
}

impl Scale {
    fn of(values: &[f32]) -> Self {
        let (low, high) = values
            .iter()
            .fold((f32::INFINITY, 0.0_f32), |(low, high), value| (low.min(*value), high.max(*value)));
        if low > 0.0 && high > low * WIDE { Self::Logarithmic } else { Self::Linear }
    }

    fn apply(self, values: &mut [f32]) {
        if matches!(self, Self::Logarithmic) {
            for value in values {
                *value = value.ln();
            }
        }
    }

    fn undo(self, threshold: f32) -> f32 {
        match self {
            Self::Linear => threshold,
            Self::Logarithmic => round_down(f64::from(threshold).exp()),
        }
    }
}

/// Fits sub-forests over threads and concatenates them in order.
pub(crate) fn grow(
    learner: &'static str,
    features: &Matrix,
    target: &[f64],
    weights: Option<&[f64]>,
    options: &ForestOptions,
    seed: Seed,
    fit: impl Fn(&SubForest<'_>) -> Result<Vec<Tree>, String> + Sync,
) -> Result<Forest, Error> {
    let error = |reason: String| Error::Learner { learner, reason };
    let (rows, width) = (features.rows(), features.width);
    let mut columns: Vec<f32> = Vec::with_capacity(features.values.len());
    let mut scales = Vec::with_capacity(width);
    for column in 0..width {
        let start = columns.len();
        columns.extend(features.values.iter().skip(column).step_by(width));
        scales.push(Scale::of(&columns[start..]));
        scales[column].apply(&mut columns[start..]);
    }
    let x = DenseMatrix::new(rows, width, columns, true).map_err(|failed| error(failed.to_string()))?;
    let y: Vec<f64> = match options.target {
        TreeTarget::Log => target.to_vec(),
        TreeTarget::Throughput => target.iter().map(|log| (-log).exp()).collect(),
    };
    let mut stream = seed.stream("trainer.forest", &[learner]);
    let parts = options.trees.div_ceil(PART);
    let seeds: Vec<u64> = (0..parts).map(|_| stream.random()).collect();
    let grown = parallel::map(parts, |index| {
        fit(&SubForest {
            x: &x,
            y: &y,
            weights,
            trees: PART.min(options.trees - index * PART),
            features: ((width as f64 * options.features_ratio).round() as usize).clamp(1, width),
            seed: seeds[index],
        })
    });
    let mut trees = Vec::with_capacity(options.trees);
    for part in grown {
        trees.extend(part.map_err(error)?);
    }
    for node in trees.iter_mut().flat_map(|tree: &mut Tree| &mut tree.nodes).filter(|node| !node.is_leaf()) {
        node.threshold = scales[node.feature as usize].undo(node.threshold);
    }
    if trees.len() != options.trees || trees.is_empty() {
        return Err(error(format!("{} trees were read where {} were fitted", trees.len(), options.trees)));
    }
    if options.target == TreeTarget::Throughput {
        for node in trees.iter_mut().flat_map(|tree| &mut tree.nodes).filter(|node| node.is_leaf()) {
            node.value = -node.value.ln();
        }
    }
    let aggregate = match (options.target, options.mean) {
        (TreeTarget::Log, TreeMean::Geometric) => Aggregate::Mean,
        (TreeTarget::Log, TreeMean::Harmonic) | (TreeTarget::Throughput, _) => Aggregate::Harmonic,
    };
    Ok(Forest { trees, aggregate, base: 0.0 })
}
