//! Writes a fitted model as an ONNX file.

use super::body::{GATE, write_body};
use super::domain::write_domain;
use super::graph::{GraphBuilder, matrix};
use super::physics::write_physics;
use super::proto::{ModelProto, OperatorSetIdProto, StringStringEntryProto};
use crate::metadata;
use crate::physics::GUARD;
use crate::spec::LOG_BOUNDS;
use crate::{Error, ModelMetadata, ModelSpec};
use prost::Message;

/// The domain of the tree operators.
pub(crate) const ML_DOMAIN: &str = "ai.onnx.ml";
// IR 8, opset 18 and ai.onnx.ml 3 are read by every ONNX Runtime since 1.14; tools that lag behind read them too.
pub(crate) const IR_VERSION: i64 = 8;
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
///     domain_distance: None,
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
    let prepared = write_physics(&mut graph, &spec.physics, raw.clone());
    let log = write_body(&mut graph, spec, &raw, &prepared);
    let (low, high) = (graph.scalar("log_low", LOG_BOUNDS.0), graph.scalar("log_high", LOG_BOUNDS.1));
    let log = graph.node("Clip", "log_slowdown", &[&log, &low, &high]);
    graph.node("Exp", OUTPUTS[0], &[&log]);
    let gate = spec.body.gate();
    let everywhere = gate.map_or(spec.upper_offset_log, |gate| gate.upper_offset_log_elsewhere) as f32;
    let offset = graph.scalar("upper_offset_log", everywhere);
    let mut log_upper = graph.node("Add", "log_slowdown_upper", &[&log, &offset]);
    if gate.is_some() {
        let less = graph.scalar("upper_offset_gated", spec.upper_offset_log as f32 - everywhere);
        let less = graph.node("Mul", "upper_offset_where_measured", &[GATE, &less]);
        log_upper = graph.node("Add", "log_slowdown_upper_gated", &[&log_upper, &less]);
    }
    // Nothing is promised to run faster beside another.
    let log_upper = graph.node("Relu", "log_slowdown_upper_held", &[&log_upper]);
    graph.node("Exp", OUTPUTS[1], &[&log_upper]);
    write_domain(&mut graph, spec, &missing, &raw);

    let width = spec.schema.width();
    let input = matrix(INPUT, width, "raw features in the order of the metadata, NaN = missing");
    let outputs = vec![
        matrix(OUTPUTS[0], 1, "co-located time over isolated time at the full device"),
        matrix(OUTPUTS[1], 1, "one-sided upper bound at the metadata's conformal level"),
        matrix(OUTPUTS[2], 1, "1 where the features lie within those of the training data, else 0"),
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
    metadata.training_ranges =
        spec.domain_lower.iter().copied().zip(spec.domain_upper.iter().copied()).collect();
    let constants = |device: &String| {
        let constants = spec.schema.device_constants(device);
        (!constants.is_empty()).then(|| (device.clone(), constants))
    };
    metadata.device_constants = metadata.devices.iter().filter_map(constants).collect();
    metadata.physics_features = spec.physics.names().to_vec();
    metadata.upper_offset_log = spec.upper_offset_log;
    metadata.achieved_coverage = metadata.achieved_coverage.filter(|coverage| coverage.is_finite());
    for scores in metadata.scores.values_mut() {
        scores.retain(|_, score| score.is_finite());
    }
    metadata
}
