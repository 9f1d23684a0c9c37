//! Writes a fitted model as an ONNX file.

use super::graph::{GraphBuilder, floats, id, integer, integers, matrix, string, strings};
use super::proto::{AttributeProto, FLOAT, ModelProto, OperatorSetIdProto, StringStringEntryProto};
use crate::metadata;
use crate::physics::{Columns, GUARD, LEAST_BYTES, LEAST_HERTZ, LEAST_SECONDS, LEAST_SHARE};
use crate::spec::{LOG_BOUNDS, SCORE_GUARD};
use crate::{Body, Error, Forest, ModelMetadata, ModelSpec, PhysicsSpec};
use prost::Message;
use prost::bytes::Bytes;

/// The domain of the tree operators.
pub(crate) const ML_DOMAIN: &str = "ai.onnx.ml";
// IR 8, opset 18 and ai.onnx.ml 3 are read by every ONNX Runtime since 1.14; tools that lag behind read them too.
const IR_VERSION: i64 = 8;
pub(crate) const OPSET: i64 = 18;
pub(crate) const ML_OPSET: i64 = 3;

/// Name of the graph's input.
pub(crate) const INPUT: &str = "features";
/// Names of the graph's outputs.
pub(crate) const OUTPUTS: [&str; 3] = ["slowdown", "slowdown_upper", "in_domain"];

/// Writes a model as the bytes of an ONNX file.
///
/// The graph reads `features`, float32 `[N, F]` with NaN for a missing value, and gives `slowdown`, `slowdown_upper` and
/// `in_domain` (1 or 0), each float32 `[N, 1]`. Imputation, physics features, domain check and bounds are nodes of the
/// graph. The metadata stand as JSON under `elastico.metadata`; scores that are not finite are left out.
///
/// # Errors
/// [`Error::Spec`] where a part of the model has the wrong length or an unusable value.
///
/// ```
/// use elastico_models::{Body, FeatureSchema, ModelMetadata, ModelSpec, export, load_bytes, physics, Backend};
///
/// let schema = FeatureSchema::new(&["subject_sm_active_ratio".into(), "co_runner_sm_active_ratio".into()])?;
/// let model = ModelSpec {
///     impute: vec![0.5; 2],
///     physics: physics(&schema),
///     body: Body::Constant(1.5_f64.ln()),
///     upper_offset_log: 0.1,
///     domain_lower: vec![0.0; 2],
///     domain_upper: vec![1.0; 2],
///     domain_missing: vec![false; 2],
///     metadata: ModelMetadata::new(schema.clone(), "mean"),
///     schema,
/// };
/// let predictor = load_bytes(&export(&model)?, Backend::Native)?;
/// let predictions = predictor.predict(&[0.3, 0.9, 0.3, 7.0])?;
/// assert!((predictions[0].slowdown.get() - 1.5).abs() < 1e-6);
/// assert!(predictions[0].in_domain && !predictions[1].in_domain);
/// # Ok::<(), elastico_models::Error>(())
/// ```
pub fn export(spec: &ModelSpec) -> Result<Vec<u8>, Error> {
    spec.check()?;
    let mut graph = GraphBuilder::default();
    let missing = graph.node("IsNaN", "missing", &[INPUT]);
    let impute = graph.row("impute", &spec.impute);
    let imputed = graph.node("Where", "imputed", &[&missing, &impute, INPUT]);
    let (low, high) = (graph.scalar("guard_low", -GUARD), graph.scalar("guard_high", GUARD));
    let raw = graph.node("Clip", "raw", &[&imputed, &low, &high]);
    let prepared = write_physics(&mut graph, &spec.physics, raw);
    let log = write_body(&mut graph, spec, &prepared);
    let (low, high) = (graph.scalar("log_low", LOG_BOUNDS.0), graph.scalar("log_high", LOG_BOUNDS.1));
    let log = graph.node("Clip", "log_slowdown", &[&log, &low, &high]);
    graph.node("Exp", OUTPUTS[0], &[&log]);
    let offset = graph.scalar("upper_offset_log", spec.upper_offset_log as f32);
    let log_upper = graph.node("Add", "log_slowdown_upper", &[&log, &offset]);
    graph.node("Exp", OUTPUTS[1], &[&log_upper]);
    write_domain(&mut graph, spec, &missing);

    let width = spec.schema.width();
    let input = matrix(INPUT, width, "raw features in the order of the metadata, NaN = missing");
    let outputs = vec![
        matrix(OUTPUTS[0], 1, "co-located time over isolated time at the full device"),
        matrix(OUTPUTS[1], 1, "one-sided upper bound at the metadata's conformal level"),
        matrix(OUTPUTS[2], 1, "1 where every feature lies in the range of the training data, else 0"),
    ];
    let metadata = serde_json::to_string(&complete(spec)).expect("strings and finite numbers");
    let model = ModelProto {
        ir_version: IR_VERSION,
        producer_name: "elastico".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        model_version: 1,
        doc_string: "slowdown of a GPU workload beside a co-runner".to_owned(),
        graph: Some(graph.finish(input, outputs)),
        opset_import: vec![
            OperatorSetIdProto { domain: String::new(), version: OPSET },
            OperatorSetIdProto { domain: ML_DOMAIN.to_owned(), version: ML_OPSET },
        ],
        metadata_props: vec![StringStringEntryProto { key: metadata::KEY.to_owned(), value: metadata }],
        training_info: Vec::new(),
        functions: Vec::new(),
    };
    Ok(super::seal(model.encode_to_vec()))
}

fn complete(spec: &ModelSpec) -> ModelMetadata {
    let mut metadata = spec.metadata.clone();
    metadata::SCHEMA.clone_into(&mut metadata.schema);
    metadata.features = spec.schema.clone();
    metadata.features_digest = spec.schema.digest();
    metadata.physics_features = spec.physics.names().to_vec();
    metadata.upper_offset_log = spec.upper_offset_log;
    metadata.achieved_coverage = metadata.achieved_coverage.filter(|coverage| coverage.is_finite());
    for scores in metadata.scores.values_mut() {
        scores.retain(|_, score| score.is_finite());
    }
    metadata
}

/// The nodes of [`PhysicsSpec::evaluate`], in the same order and with the same operations.
fn write_physics(graph: &mut GraphBuilder, spec: &PhysicsSpec, raw: String) -> String {
    if spec.width() == 0 {
        return raw;
    }
    let subjects = |columns: &[Columns]| columns.iter().map(|c| c.subject).collect::<Vec<_>>();
    let co_runners = |columns: &[Columns]| columns.iter().map(|c| c.co_runner).collect::<Vec<_>>();
    let mut parts = vec![raw.clone()];
    if !spec.contended.is_empty() {
        let subject = graph.columns("subject_demand", &raw, &subjects(&spec.contended));
        let co_runner = graph.columns("co_runner_demand", &raw, &co_runners(&spec.contended));
        let sum = graph.node("Add", "demand_sum", &[&subject, &co_runner]);
        let one = graph.scalar("one", 1.0);
        let excess = graph.node("Sub", "demand_excess", &[&sum, &one]);
        let saturation = graph.node("Relu", "demand_saturation", &[&excess]);
        let product = graph.node("Mul", "demand_product", &[&subject, &co_runner]);
        parts.extend([sum, saturation, product]);
    }
    if let Some(steps) = spec.steps {
        let least = graph.scalar("least_seconds", LEAST_SECONDS);
        let subject_step = graph.columns("subject_step", &raw, &[steps.subject]);
        let co_runner_step = graph.columns("co_runner_step", &raw, &[steps.co_runner]);
        if !spec.rates.is_empty() {
            let sides = [
                ("subject", &subject_step, subjects(&spec.rates)),
                ("co_runner", &co_runner_step, co_runners(&spec.rates)),
            ];
            for (side, step, columns) in sides {
                let work = graph.columns(&format!("{side}_work"), &raw, &columns);
                let positive = graph.node("Max", &format!("{side}_step_positive"), &[step, &least]);
                parts.push(graph.node("Div", &format!("{side}_rate"), &[&work, &positive]));
            }
        }
        parts.push(write_fraction(graph, "step_fraction", &subject_step, &co_runner_step, &least));
    }
    if let Some(shares) = spec.shares {
        let least = graph.scalar("least_share", LEAST_SHARE);
        let subject = graph.columns("subject_share", &raw, &[shares.subject]);
        let co_runner = graph.columns("co_runner_share", &raw, &[shares.co_runner]);
        parts.push(write_fraction(graph, "share_fraction", &subject, &co_runner, &least));
        if let Some(active) = spec.active {
            let active = graph.columns("sm_active", &raw, &[active.subject, active.co_runner]);
            let share = graph.columns("share", &raw, &[shares.subject, shares.co_runner]);
            let excess = graph.node("Sub", "share_difference", &[&active, &share]);
            parts.push(graph.node("Relu", "share_excess", &[&excess]));
        }
    }
    if let Some((sets, l2)) = spec.working_sets {
        let least = graph.scalar("least_bytes", LEAST_BYTES);
        let subject = graph.columns("subject_working_set", &raw, &[sets.subject]);
        let co_runner = graph.columns("co_runner_working_set", &raw, &[sets.co_runner]);
        let l2 = graph.columns("l2", &raw, &[l2]);
        let sum = graph.node("Add", "working_set_sum", &[&subject, &co_runner]);
        let excess = graph.node("Sub", "working_set_difference", &[&sum, &l2]);
        let overflow = graph.node("Relu", "working_set_excess", &[&excess]);
        let capacity = graph.node("Max", "l2_positive", &[&l2, &least]);
        parts.push(graph.node("Div", "working_set_overflow", &[&overflow, &capacity]));
    }
    if !spec.speeds.is_empty() {
        let (columns, firsts): (Vec<usize>, Vec<usize>) = spec.speeds.iter().copied().unzip();
        let least = graph.scalar("least_hertz", LEAST_HERTZ);
        let rate = graph.columns("isolated_rate", &raw, &columns);
        let first = graph.columns("first_isolated_rate", &raw, &firsts);
        parts.push(write_fraction(graph, "isolated_fraction", &rate, &first, &least));
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    graph.full_node("", "Concat", "prepared", &parts, vec![integer("axis", 1)])
}

fn write_fraction(
    graph: &mut GraphBuilder,
    name: &str,
    subject: &str,
    co_runner: &str,
    least: &str,
) -> String {
    let sum = graph.node("Add", &format!("{name}_sum"), &[subject, co_runner]);
    let positive = graph.node("Max", &format!("{name}_positive"), &[&sum, least]);
    graph.node("Div", name, &[subject, &positive])
}

fn write_body(graph: &mut GraphBuilder, spec: &ModelSpec, prepared: &str) -> String {
    let width = spec.prepared_width();
    match &spec.body {
        Body::Forest(forest) => graph.full_node(
            ML_DOMAIN,
            "TreeEnsembleRegressor",
            "forest",
            &[prepared],
            tree_attributes(forest),
        ),
        Body::Linear { mean, scale, weights, bias } => {
            let weights: Vec<f32> = weights.iter().map(|weight| *weight as f32).collect();
            write_linear(graph, prepared, mean, scale, &weights, *bias as f32)
        }
        // A sum with weights 0: the one form of a constant whose height follows the number of rows.
        Body::Constant(value) => {
            let zeros = vec![0.0; width];
            write_linear(graph, prepared, &zeros, &vec![1.0; width], &zeros, *value as f32)
        }
    }
}

fn write_linear(
    graph: &mut GraphBuilder,
    prepared: &str,
    mean: &[f32],
    scale: &[f32],
    weights: &[f32],
    bias: f32,
) -> String {
    let mean = graph.row("mean", mean);
    let scale = graph.row("scale", scale);
    let (low, high) = (graph.scalar("score_low", -SCORE_GUARD), graph.scalar("score_high", SCORE_GUARD));
    let matrix = graph.floats("weights", &[weights.len(), 1], weights);
    let bias = graph.scalar("bias", bias);
    let centred = graph.node("Sub", "centred", &[prepared, &mean]);
    let scaled = graph.node("Div", "scaled", &[&centred, &scale]);
    let scores = graph.node("Clip", "scores", &[&scaled, &low, &high]);
    let weighted = graph.node("MatMul", "weighted", &[&scores, &matrix]);
    graph.node("Add", "linear", &[&weighted, &bias])
}

fn tree_attributes(forest: &Forest) -> Vec<AttributeProto> {
    let (branch, leaf) = (Bytes::from_static(b"BRANCH_LEQ"), Bytes::from_static(b"LEAF"));
    let total = forest.trees.iter().map(|tree| tree.nodes.len()).sum();
    let (mut trees, mut nodes, mut features) =
        (Vec::with_capacity(total), Vec::with_capacity(total), Vec::with_capacity(total));
    let (mut modes, mut thresholds) = (Vec::with_capacity(total), Vec::with_capacity(total));
    let (mut lefts, mut rights) = (Vec::with_capacity(total), Vec::with_capacity(total));
    let (mut target_trees, mut target_nodes, mut target_weights) = (Vec::new(), Vec::new(), Vec::new());
    let divisor = forest.divisor();
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
                target_weights.push((node.value / divisor) as f32);
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

/// A missing value of a column that had none in training is filled with a number beyond every bound.
fn write_domain(graph: &mut GraphBuilder, spec: &ModelSpec, missing: &str) {
    let (lower, upper) = spec.domain_bounds();
    let fill: Vec<f32> = (spec.impute.iter().zip(&spec.domain_missing))
        .zip(lower.iter().zip(&upper))
        .map(|((median, seen), (low, high))| if *seen { median.clamp(*low, *high) } else { f32::MAX })
        .collect();
    let fill = graph.row("domain_fill", &fill);
    let (lower, upper) = (graph.row("domain_lower", &lower), graph.row("domain_upper", &upper));
    let axes = graph.integers("domain_axes", &[1]);
    let filled = graph.node("Where", "domain_values", &[missing, &fill, INPUT]);
    let above = graph.node("GreaterOrEqual", "domain_above_lower", &[&filled, &lower]);
    let below = graph.node("LessOrEqual", "domain_below_upper", &[&filled, &upper]);
    let inside = graph.node("And", "domain_inside", &[&above, &below]);
    let inside =
        graph.full_node("", "Cast", "domain_inside_ratio", &[&inside], vec![integer("to", i64::from(FLOAT))]);
    graph.full_node("", "ReduceMin", OUTPUTS[2], &[&inside, &axes], vec![integer("keepdims", 1)]);
}
