//! Gradient boosting (Friedman 2001) with histograms, by forust.

use super::few_families::cautious;
use super::forest::leaf;
use super::inputs::of_trees;
use super::{BoostingOptions, Fitted, Learner, LearnerOptions, Training};
use crate::Error;
use elastico_core::{Seed, Stream};
use elastico_models::{Aggregate, Forest, Tree, TreeNode, round_below};
use forust_ml::Matrix as Columns;
use forust_ml::binning::bin_matrix;
use forust_ml::constraints::{Constraint, ConstraintMap};
use forust_ml::gradientbooster::GrowPolicy;
use forust_ml::sampler::SampleMethod;
use forust_ml::splitter::MissingImputerSplitter;
use forust_ml::tree::Tree as Grown;
use rand::RngExt as _;

/// Squared error on log slowdown, leaf by leaf.
///
/// Bins, histograms and trees are forust's. The rounds are here, because forust 0.8 holds a leaf within the bounds of its
/// monotone ancestors only where its own split is on a constrained feature; see [`enforce`].
pub(crate) struct Boosting;

/// Under so many values a thread costs more than it saves.
const SERIAL: usize = 100_000;

impl Learner for Boosting {
    fn fit(&self, training: &Training<'_>, options: &LearnerOptions, seed: Seed) -> Result<Fitted, Error> {
        let features = of_trees(training, options.boosting.physics);
        let training =
            &Training { features: &features, names: &training.names[..features.width], ..*training };
        let parallel = features.values.len() > SERIAL;
        let fit = || boost(training, &options.boosting, seed, parallel);
        // On a thread of the pool, so that no parallel step is a hand-over from a caller that waits.
        let forest = if parallel { rayon::scope(|_| fit()) } else { fit() };
        let forest = forest.map_err(|reason| Error::Learner { learner: "boosting", reason })?;
        Ok(cautious(Fitted::Forest(forest), training))
    }
}

/// The rounds. The trees do not depend on the number of threads.
fn boost(
    training: &Training<'_>,
    options: &BoostingOptions,
    seed: Seed,
    parallel: bool,
) -> Result<Forest, String> {
    let features = training.features;
    let (rows, width) = (features.rows(), features.width);
    let weights: Vec<f64> = (0..rows).map(|row| training.weight(row)).collect();
    let binned = {
        let mut columns = Vec::with_capacity(rows * width);
        for column in 0..width {
            columns.extend(features.values.iter().skip(column).step_by(width).map(|x| f64::from(*x)));
        }
        let columns = Columns::new(&columns, rows, width);
        bin_matrix(&columns, &weights, options.bins, f64::NAN, parallel).map_err(|error| error.to_string())?
    };
    let data = Columns::new(&binned.binned_data, rows, width);
    let constraints = if options.monotone { constraints(training.names) } else { ConstraintMap::new() };
    let splitter = MissingImputerSplitter {
        l1: 0.0,
        l2: options.l2 as f32,
        max_delta_step: 0.0,
        gamma: 0.0,
        min_leaf_weight: options.min_leaf as f32,
        learning_rate: options.learning_rate as f32,
        allow_missing_splits: true,
        constraints_map: constraints.clone(),
    };
    let total: f64 = weights.iter().sum();
    let base = weights.iter().zip(training.target).map(|(weight, y)| weight * y).sum::<f64>() / total;
    let hess: Vec<f32> = weights.iter().map(|weight| *weight as f32).collect();
    let mut predicted = vec![base; rows];
    let mut grad = vec![0.0_f32; rows];
    let mut stream = seed.stream("trainer.boosting", &[]);
    let sampling = if options.rows_ratio < 1.0 { SampleMethod::Random } else { SampleMethod::None };
    let mut trees = Vec::with_capacity(options.rounds);
    for _ in 0..options.rounds {
        for (((grad, predicted), y), weight) in
            grad.iter_mut().zip(&predicted).zip(training.target).zip(&weights)
        {
            *grad = ((predicted - y) * weight) as f32;
        }
        let mut grown = Grown::new();
        let reached = grown.fit(
            &data,
            share(rows, options.rows_ratio, &mut stream),
            &share(width, options.features_ratio, &mut stream),
            &binned.cuts,
            &grad,
            &hess,
            &splitter,
            options.leaves,
            options.max_depth,
            parallel,
            &sampling,
            &GrowPolicy::LossGuide,
        );
        enforce(&mut grown, &constraints);
        let tree = convert(&grown).ok_or("its trees are not laid out as expected")?;
        match reached.filter(|_| sampling == SampleMethod::None) {
            Some(reached) => {
                for (rows, value) in reached.leaves(&grown) {
                    for &row in rows {
                        predicted[row] += value;
                    }
                }
            }
            None => {
                for (predicted, row) in predicted.iter_mut().zip(features.iter()) {
                    *predicted += leaf(&tree, row);
                }
            }
        }
        trees.push(tree);
    }
    Ok(Forest { trees, aggregate: Aggregate::Sum, base })
}

/// A share of 0..count in order, at least one; all of them without a draw.
fn share(count: usize, ratio: f64, stream: &mut Stream) -> Vec<usize> {
    let mut all: Vec<usize> = (0..count).collect();
    if ratio < 1.0 {
        let wanted = ((count as f64 * ratio).round() as usize).clamp(1, count);
        for index in 0..wanted {
            let other = stream.random_range(index..count);
            all.swap(index, other);
        }
        all.truncate(wanted);
        all.sort_unstable();
    }
    all
}

/// Holds each node within the bounds that its ancestors' monotone splits set: at such a split the middle of both children
/// parts the values below it. Without constraints nothing changes.
fn enforce(tree: &mut Grown, constraints: &ConstraintMap) {
    if constraints.is_empty() {
        return;
    }
    let mut bounds = vec![(f32::NEG_INFINITY, f32::INFINITY); tree.nodes.len()];
    // Children are numbered after their parent.
    for index in 0..tree.nodes.len() {
        let (low, high) = bounds[index];
        let node = &mut tree.nodes[index];
        node.weight_value = node.weight_value.clamp(low, high);
        if node.is_leaf {
            continue;
        }
        let (left, right, feature) = (node.left_child, node.right_child, node.split_feature);
        let value = |child: usize| tree.nodes[child].weight_value.clamp(low, high);
        let middle = f32::midpoint(value(left), value(right));
        (bounds[left], bounds[right]) = match constraints.get(&feature) {
            Some(Constraint::Positive) => ((low, middle), (middle, high)),
            Some(Constraint::Negative) => ((middle, high), (low, middle)),
            _ => ((low, high), (low, high)),
        };
    }
}

/// forust goes left on `x < t` in double precision. A missing value never reaches a tree, so that branch is left out.
fn convert(grown: &Grown) -> Option<Tree> {
    let count = grown.nodes.len();
    let nodes = grown.nodes.iter().enumerate().map(|(index, node)| {
        if node.is_leaf {
            return node.weight_value.is_finite().then(|| TreeNode::leaf(f64::from(node.weight_value)));
        }
        let child = |child: usize| (child > index && child < count).then_some(child as u32);
        let threshold = round_below(node.split_value);
        threshold.is_finite().then_some(())?;
        Some(TreeNode {
            feature: u32::try_from(node.split_feature).ok()?,
            threshold,
            left: child(node.left_child)?,
            right: child(node.right_child)?,
            value: 0.0,
        })
    });
    let nodes = nodes.collect::<Option<Vec<_>>>()?;
    (!nodes.is_empty()).then_some(Tree { nodes })
}

/// How the prediction may move with each feature. Pressure of the co-runner is how busy it is alone, its rates and its
/// share; what is a sum, an excess or a product with it moves the same way, the subject's part of the shares the other.
///
/// With the shares held fixed this makes the prediction monotone in every counter of the co-runner. A share itself also
/// lowers `co_runner_share_excess_ratio`, so it is monotone only where that feature is absent.
fn constraints(names: &[String]) -> ConstraintMap {
    let pressure = |name: &str| {
        const JOINT: [&str; 4] = ["_sum_ratio", "_saturation_ratio", "_product_ratio", "_overflow_ratio"];
        const OWN: [&str; 3] = ["_active_ratio", "_throughput_ratio", "_share_ratio"];
        let of_co_runner = name.starts_with("co_runner_");
        JOINT.iter().any(|end| name.ends_with(end))
            || (of_co_runner && OWN.iter().any(|end| name.ends_with(end)))
            || (of_co_runner && (name.contains("_rate_") || name.ends_with("_share_excess_ratio")))
    };
    let constraint = |name: &str| match name {
        "share_fraction_ratio" => Some(Constraint::Negative),
        name if pressure(name) => Some(Constraint::Positive),
        _ => None,
    };
    names.iter().enumerate().filter_map(|(column, name)| Some((column, constraint(name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learners::tests::Table;
    use forust_ml::GradientBooster;
    use forust_ml::objective::ObjectiveType;

    const NAMES: [&str; 4] = [
        "subject_sm_active_ratio",
        "co_runner_sm_active_ratio",
        "sm_active_sum_ratio",
        "co_runner_step_seconds",
    ];

    /// Rows whose sum column follows from the first two, and a law that falls with pressure here and there by noise.
    fn table(rows: usize) -> Table {
        let mut table = Table::random(rows, &NAMES, |_| 0.0);
        for (index, row) in table.features.values.chunks_mut(4).enumerate() {
            row[2] = row[0] + row[1];
            let noise = 0.3 * f64::from((index as f32 * 12.9898).sin());
            table.target[index] = f64::from(row[2] - 1.0).max(0.0) + 0.2 * f64::from(row[3]) + noise;
        }
        table
    }

    fn fit(table: &Table, monotone: bool) -> Forest {
        let options = BoostingOptions { rounds: 60, monotone, ..BoostingOptions::default() };
        boost(&table.training(), &options, Seed(3), true).unwrap()
    }

    /// The most that a prediction falls while only the co-runner becomes busier.
    fn largest_fall(fitted: &Fitted) -> f64 {
        let mut largest = 0.0_f64;
        for s in 0..10 {
            for t in 0..5 {
                let (s, t) = (s as f32 / 10.0, t as f32 / 5.0);
                let values: Vec<f32> =
                    (0..=50).flat_map(|c| [s, c as f32 / 50.0, s + c as f32 / 50.0, t]).collect();
                let path = Table::of(&NAMES, values, vec![0.0; 51]);
                let predicted = fitted.predict(&path.training());
                largest = predicted.windows(2).map(|two| two[0] - two[1]).fold(largest, f64::max);
            }
        }
        largest
    }

    #[test]
    fn monotone_is_monotone_and_free_is_not() {
        let table = table(600);
        assert!(largest_fall(&Fitted::Forest(fit(&table, true))) < 1e-9);
        assert!(largest_fall(&Fitted::Forest(fit(&table, false))) > 0.01);
    }

    #[test]
    fn what_monotone_costs_is_small() {
        let table = table(600);
        let error = |monotone| {
            let predicted = Fitted::Forest(fit(&table, monotone)).predict(&table.training());
            let errors =
                predicted.iter().zip(&table.target).map(|(p, y)| (p.max(-0.69) - y.max(-0.69)).abs());
            errors.sum::<f64>() / 600.0
        };
        assert!(error(true) < 1.5 * error(false), "{} {}", error(true), error(false));
    }

    #[test]
    fn one_thread_and_two_grow_the_same_trees() {
        let table = table(3000);
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| fit(&table, false))
        };
        assert_eq!(on(1), on(2));
    }

    #[test]
    fn it_predicts_what_forusts_own_rounds_predict() {
        let table = table(400);
        let columns: Vec<f64> = (0..4)
            .flat_map(|column| (0..400).map(move |row| (row, column)))
            .map(|(row, column)| f64::from(table.features.row(row)[column]))
            .collect();
        let columns = Columns::new(&columns, 400, 4);
        let options = BoostingOptions::default();
        let mut booster = GradientBooster::default();
        booster.objective_type = ObjectiveType::SquaredLoss;
        booster.iterations = options.rounds;
        booster.learning_rate = options.learning_rate as f32;
        booster.max_leaves = options.leaves;
        booster.max_depth = options.max_depth;
        booster.min_leaf_weight = options.min_leaf as f32;
        booster.grow_policy = GrowPolicy::LossGuide;
        booster.fit(&columns, &table.target, &vec![1.0; 400], None).unwrap();
        // forust's thresholds are values of the data: every row stands at some of them.
        let expected = booster.predict(&columns, false);
        let forest = boost(&table.training(), &options, Seed(3), false).unwrap();
        for (found, expected) in Fitted::Forest(forest).predict(&table.training()).iter().zip(&expected) {
            assert!((found - expected.max(-std::f64::consts::LN_2)).abs() < 1e-9);
        }
    }
}
