//! The nodes of a body, named so that [`super::read`] finds each part again.

use super::export::ML_DOMAIN;
use super::graph::{GraphBuilder, floats, id, integer, integers, string, strings};
use super::proto::AttributeProto;
use crate::spec::SCORE_GUARD;
use crate::{Aggregate, Body, Calibrated, Forest, Gate, Link, ModelSpec, Shrunk};
use prost::bytes::Bytes;

/// The node that tells which rows a calibrated body was measured for, and the one before it.
pub(super) const GATE: &str = "gate";
pub(super) const GATE_VALUES: &str = "gate_values";
/// Before the names of the base of a calibrated body.
pub(super) const BASE: &str = "base_";
/// Before the names of its residual.
pub(super) const RESIDUAL: &str = "residual_";
/// Trees whose leaves are divided by their number, trees that are added up, and trees whose leaves are normalized
/// throughputs divided by their number. All are written as a sum.
pub(super) const MEAN_OF_TREES: &str = "mean_of_trees";
pub(super) const SUM_OF_TREES: &str = "sum_of_trees";
pub(super) const HARMONIC_MEAN_OF_TREES: &str = "harmonic_mean_of_trees";

/// Writes the body; gives the name of the log slowdown before it is held within bounds.
pub(super) fn write_body(graph: &mut GraphBuilder, spec: &ModelSpec, raw: &str, prepared: &str) -> String {
    match &spec.body {
        Body::Calibrated(calibrated) => {
            let Calibrated { base, scale, shift, offsets, residual, gate } = &**calibrated;
            let base = write_shrunk(graph, base, BASE, raw, prepared);
            let scale = graph.scalar("calibration_scale", *scale as f32);
            let scaled = graph.node("Mul", "calibration_scaled", &[&base, &scale]);
            let shift = graph.scalar("calibration_shift", *shift as f32);
            let mut log = graph.node("Add", "calibration_shifted", &[&scaled, &shift]);
            if !offsets.is_empty() {
                let (columns, weights): (Vec<usize>, Vec<f32>) =
                    offsets.iter().map(|(column, offset)| (*column as usize, *offset as f32)).unzip();
                let values = graph.columns("offset_values", raw, &columns);
                let weights = graph.floats("offset_weights", &[weights.len(), 1], &weights);
                let sum = graph.node("MatMul", "offset_sum", &[&values, &weights]);
                log = graph.node("Add", "calibration_offset", &[&log, &sum]);
            }
            if let Some(gate) = gate {
                write_gate(graph, gate, raw);
            }
            if let Some(forest) = residual {
                let mut residual = write_trees(graph, forest, RESIDUAL, prepared);
                if gate.is_some() {
                    residual = graph.node("Mul", "residual_gated", &[&residual, GATE]);
                }
                log = graph.node("Add", "calibration_corrected", &[&log, &residual]);
            }
            log
        }
        plain => write_shrunk(graph, plain, "", raw, prepared),
    }
}

/// 1 for a row that was measured for, else 0. Indicators are whole numbers, so their sum is exact.
fn write_gate(graph: &mut GraphBuilder, gate: &Gate, raw: &str) {
    let columns: Vec<usize> = gate.columns.iter().map(|column| *column as usize).collect();
    let values = graph.columns(GATE_VALUES, raw, &columns);
    let ones = graph.floats("gate_ones", &[columns.len(), 1], &vec![1.0; columns.len()]);
    let sum = graph.node("MatMul", "gate_sum", &[&values, &ones]);
    let (low, high) = (graph.scalar("gate_low", 0.0), graph.scalar("gate_high", 1.0));
    graph.node("Clip", GATE, &[&sum, &low, &high]);
}

/// A body that may be drawn toward the mean. Indicators are whole numbers, so their sum is exact.
fn write_shrunk(graph: &mut GraphBuilder, body: &Body, prefix: &str, raw: &str, prepared: &str) -> String {
    let Body::Shrunk(shrunk) = body else { return write_plain(graph, body, prefix, prepared) };
    let Shrunk { base, families, center, factor } = &**shrunk;
    let name = |part: &str| format!("{prefix}{part}");
    let base = write_plain(graph, base, prefix, prepared);
    let columns: Vec<usize> = families.iter().map(|column| *column as usize).collect();
    let values = graph.columns(&name("family_values"), raw, &columns);
    let ones = graph.floats(&name("family_ones"), &[columns.len(), 1], &vec![1.0; columns.len()]);
    let sum = graph.node("MatMul", &name("family_sum"), &[&values, &ones]);
    let one = graph.scalar(&name("one_family"), 1.0);
    let excess = graph.node("Sub", &name("family_excess"), &[&sum, &one]);
    let known = graph.node("Relu", &name("families_known"), &[&excess]);
    let factor = *factor as f32;
    let rest = graph.scalar(&name("belief_rest"), 1.0 - factor);
    let factor = graph.scalar(&name("belief"), factor);
    let part = graph.node("Mul", &name("belief_part"), &[&known, &rest]);
    let weight = graph.node("Add", &name("belief_weight"), &[&part, &factor]);
    let center = graph.scalar(&name("center"), *center as f32);
    let apart = graph.node("Sub", &name("from_center"), &[&base, &center]);
    let believed = graph.node("Mul", &name("believed"), &[&apart, &weight]);
    graph.node("Add", &name("shrunk"), &[&believed, &center])
}

/// A body that is not corrected; [`ModelSpec::check`](crate::ModelSpec) lets no calibrated one through to here.
fn write_plain(graph: &mut GraphBuilder, body: &Body, prefix: &str, prepared: &str) -> String {
    let name = |part: &str| format!("{prefix}{part}");
    match body {
        Body::Forest(forest) => write_trees(graph, forest, prefix, prepared),
        Body::Linear { mean, scale, weights, bias, link } => {
            let weights: Vec<f32> = weights.iter().map(|weight| *weight as f32).collect();
            let mean = graph.row(&name("mean"), mean);
            let scale = graph.row(&name("scale"), scale);
            let low = graph.scalar(&name("score_low"), -SCORE_GUARD);
            let high = graph.scalar(&name("score_high"), SCORE_GUARD);
            let matrix = graph.floats(&name("weights"), &[weights.len(), 1], &weights);
            let bias = graph.scalar(&name("bias"), *bias as f32);
            let centred = graph.node("Sub", &name("centred"), &[prepared, &mean]);
            let scaled = graph.node("Div", &name("scaled"), &[&centred, &scale]);
            let scores = graph.node("Clip", &name("scores"), &[&scaled, &low, &high]);
            let weighted = graph.node("MatMul", &name("weighted"), &[&scores, &matrix]);
            let sum = graph.node("Add", &name("linear"), &[&weighted, &bias]);
            match link {
                Link::Log => sum,
                Link::Ratio { least } => {
                    let least = graph.scalar(&name("least_ratio"), *least as f32);
                    let ratio = graph.node("Max", &name("ratio"), &[&sum, &least]);
                    graph.node("Log", &name("log_ratio"), &[&ratio])
                }
            }
        }
        Body::Constant(value) => write_constant(graph, *value, prefix, prepared),
        Body::Shrunk(shrunk) => write_plain(graph, &shrunk.base, prefix, prepared),
        Body::Calibrated(calibrated) => write_plain(graph, &calibrated.base, prefix, prepared),
    }
}

/// A column times 0, and the number added: the one form of a constant whose height follows the number of rows.
fn write_constant(graph: &mut GraphBuilder, value: f64, prefix: &str, prepared: &str) -> String {
    let zero = graph.scalar(&format!("{prefix}zero"), 0.0);
    let value = graph.scalar(&format!("{prefix}constant_value"), value as f32);
    let column = graph.columns(&format!("{prefix}any_column"), prepared, &[0]);
    let zeros = graph.node("Mul", &format!("{prefix}zeros"), &[&column, &zero]);
    graph.node("Add", &format!("{prefix}constant"), &[&zeros, &value])
}

fn write_trees(graph: &mut GraphBuilder, forest: &Forest, prefix: &str, prepared: &str) -> String {
    let kind = match forest.aggregate {
        Aggregate::Mean => MEAN_OF_TREES,
        Aggregate::Sum => SUM_OF_TREES,
        Aggregate::Harmonic => HARMONIC_MEAN_OF_TREES,
    };
    let name = format!("{prefix}{kind}");
    let sum =
        graph.full_node(ML_DOMAIN, "TreeEnsembleRegressor", &name, &[prepared], tree_attributes(forest));
    if forest.aggregate != Aggregate::Harmonic {
        return sum;
    }
    let minus = graph.scalar(&format!("{prefix}minus_one"), -1.0);
    let log = graph.node("Log", &format!("{prefix}log_throughput"), &[&sum]);
    graph.node("Mul", &format!("{prefix}log_of_trees"), &[&log, &minus])
}

fn tree_attributes(forest: &Forest) -> Vec<AttributeProto> {
    let (branch, leaf) = (Bytes::from_static(b"BRANCH_LEQ"), Bytes::from_static(b"LEAF"));
    let total = forest.trees.iter().map(|tree| tree.nodes.len()).sum();
    let (mut trees, mut nodes, mut features) =
        (Vec::with_capacity(total), Vec::with_capacity(total), Vec::with_capacity(total));
    let (mut modes, mut thresholds) = (Vec::with_capacity(total), Vec::with_capacity(total));
    let (mut lefts, mut rights) = (Vec::with_capacity(total), Vec::with_capacity(total));
    let (mut target_trees, mut target_nodes, mut target_weights) = (Vec::new(), Vec::new(), Vec::new());
    for (tree_id, tree) in forest.trees.iter().enumerate() {
        for (node_id, node) in tree.nodes.iter().enumerate() {
            trees.push(id(tree_id));
            nodes.push(id(node_id));
            if node.is_leaf() {
                features.push(0);
                modes.push(leaf.clone());
                thresholds.push(0.0);
                lefts.push(0);
                rights.push(0);
                target_trees.push(id(tree_id));
                target_nodes.push(id(node_id));
                target_weights.push(forest.weigh(node.value) as f32);
            } else {
                features.push(i64::from(node.feature));
                modes.push(branch.clone());
                thresholds.push(node.threshold);
                lefts.push(i64::from(node.left));
                rights.push(i64::from(node.right));
            }
        }
    }
    let target_ids = vec![0; target_nodes.len()];
    vec![
        integer("n_targets", 1),
        string("aggregate_function", "SUM"),
        string("post_transform", "NONE"),
        floats("base_values", vec![forest.base as f32]),
        integers("nodes_treeids", trees),
        integers("nodes_nodeids", nodes),
        integers("nodes_featureids", features),
        strings("nodes_modes", modes),
        floats("nodes_values", thresholds),
        integers("nodes_truenodeids", lefts),
        integers("nodes_falsenodeids", rights),
        integers("target_treeids", target_trees),
        integers("target_nodeids", target_nodes),
        integers("target_ids", target_ids),
        floats("target_weights", target_weights),
    ]
}
