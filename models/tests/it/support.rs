//! Random models and rows, the same for one seed.

use elastico_core::Seed;
use elastico_models::{
    Aggregate, Body, FeatureSchema, Forest, ModelMetadata, ModelSpec, Tree, TreeNode, fit_domain, physics,
    prepare,
};
use rand::RngExt as _;
use std::path::PathBuf;

pub(crate) fn random(purpose: &str) -> elastico_core::Stream {
    Seed(7).stream(purpose, &["models"])
}

/// Rows with values that fit each feature's unit; one value in 20 is missing.
pub(crate) fn rows(schema: &FeatureSchema, total: usize) -> Vec<f32> {
    let mut random = random("rows");
    let mut rows = Vec::with_capacity(total * schema.width());
    for _ in 0..total {
        for feature in schema.features() {
            let uniform: f64 = random.random();
            let value = match feature.unit.as_str() {
                "ratio" => uniform,
                "seconds" => 1e-3 * 1e3_f64.powf(uniform),
                "bytes" => 1e6 * 1e4_f64.powf(uniform),
                _ => 10.0 * 1e8_f64.powf(uniform),
            };
            rows.push(if random.random_bool(0.05) { f32::NAN } else { value as f32 });
        }
    }
    rows
}

/// A tree whose thresholds are values of prepared rows, so that rows hit them exactly.
fn tree(prepared: &[Vec<f32>], depth: usize, random: &mut elastico_core::Stream) -> Tree {
    fn grow(
        nodes: &mut Vec<TreeNode>,
        prepared: &[Vec<f32>],
        depth: usize,
        random: &mut elastico_core::Stream,
    ) -> u32 {
        let index = nodes.len();
        nodes.push(TreeNode::leaf(random.random_range(0.0..1.5)));
        if depth > 0 {
            let row = &prepared[random.random_range(0..prepared.len())];
            let feature = random.random_range(0..row.len());
            let left = grow(nodes, prepared, depth - 1, random);
            let right = grow(nodes, prepared, depth - 1, random);
            nodes[index] = TreeNode::split(feature as u32, f64::from(row[feature]), left, right);
        }
        index as u32
    }
    let mut nodes = Vec::new();
    grow(&mut nodes, prepared, depth, random);
    Tree { nodes }
}

pub(crate) fn forest(prepared: &[Vec<f32>], trees: usize, depth: usize) -> Body {
    let mut random = random("forest");
    let trees = (0..trees).map(|_| tree(prepared, depth, &mut random)).collect();
    Body::Forest(Forest { trees, aggregate: Aggregate::Mean, base: 0.05 })
}

pub(crate) fn linear(prepared: &[Vec<f32>]) -> Body {
    let mut random = random("linear");
    let width = prepared[0].len();
    let column = |index: usize| prepared.iter().map(move |row| f64::from(row[index])).collect::<Vec<_>>();
    let mean: Vec<f32> = (0..width).map(|c| elastico_core::mean(&column(c)) as f32).collect();
    let scale = (0..width).map(|c| elastico_core::sample_deviation(&column(c)).max(1e-6) as f32).collect();
    let weights = (0..width).map(|_| random.random_range(-0.05..0.05)).collect();
    Body::Linear { mean, scale, weights, bias: 0.3 }
}

/// A model over the standard features and the rows that it was made from.
pub(crate) fn model(total: usize, body: impl FnOnce(&[Vec<f32>]) -> Body) -> (ModelSpec, Vec<f32>) {
    let schema = FeatureSchema::standard();
    let rows = rows(&schema, total);
    let domain = fit_domain(&rows, schema.width()).unwrap();
    let physics = physics(&schema);
    let prepared: Vec<_> = rows
        .chunks_exact(schema.width())
        .map(|row| {
            let mut out = Vec::new();
            prepare(&physics, &domain.impute, row, &mut out);
            out
        })
        .collect();
    let mut metadata = ModelMetadata::new(schema.clone(), "random");
    metadata.devices = vec!["h100".into()];
    metadata.scores.insert("random_pair".into(), [("mape".into(), 0.1), ("r2".into(), f64::NAN)].into());
    let spec = ModelSpec {
        schema,
        impute: domain.impute,
        physics,
        body: body(&prepared),
        upper_offset_log: 0.2,
        domain_lower: domain.lower,
        domain_upper: domain.upper,
        domain_missing: domain.missing,
        metadata,
    };
    (spec, rows)
}

fn workspace() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The ONNX Runtime library: the environment's, or that of the workspace's Python environment.
pub(crate) fn library() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("ELASTICO_ORT_LIBRARY") {
        return Some(path.into());
    }
    let entries =
        |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = entries(workspace().join(".venv/lib"))
        .flat_map(|python| entries(python.join("site-packages/onnxruntime/capi")))
        .find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so."))
        });
    if found.is_none() {
        println!("skipped: neither ELASTICO_ORT_LIBRARY nor .venv names an ONNX Runtime library");
    }
    found
}

/// The Python of the workspace's environment.
pub(crate) fn python() -> Option<PathBuf> {
    let python = workspace().join(".venv/bin/python");
    if python.exists() {
        return Some(python);
    }
    println!("skipped: there is no .venv/bin/python");
    None
}
