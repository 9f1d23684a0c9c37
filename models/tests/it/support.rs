//! Random models and rows, the same for one seed.

use elastico_core::{DeviceKind, FamilyId, Seed, WorkloadId, WorkloadKind};
use elastico_models::{
    Aggregate, Body, Calibrated, DomainDistance, FIELDS, FeatureSchema, Forest, Gate, Link, ModelMetadata,
    ModelSpec, Shrunk, Tree, TreeNode, WorkloadProfile, fit_domain, physics, prepare,
};
use rand::RngExt as _;
use std::path::PathBuf;

pub(crate) fn random(purpose: &str) -> elastico_core::Stream {
    Seed(7).stream(purpose, &["models"])
}

/// A value that fits a unit.
pub(crate) fn value(unit: &str, random: &mut elastico_core::Stream) -> f64 {
    let uniform: f64 = random.random();
    match unit {
        "ratio" => uniform,
        "seconds" => 1e-3 * 1e3_f64.powf(uniform),
        "bytes" => 1e6 * 1e4_f64.powf(uniform),
        _ => 10.0 * 1e8_f64.powf(uniform),
    }
}

/// Simulated workloads `w000.x`, `w001.x`, …; some fields are missing.
pub(crate) fn profiles(total: usize) -> Vec<WorkloadProfile> {
    let mut random = random("profiles");
    let profile = |index: usize| {
        let mut fields = std::collections::BTreeMap::new();
        for field in FIELDS.iter().filter(|field| field.name != "training_ratio") {
            if random.random_bool(0.95) {
                fields.insert(field.name.to_owned(), value(field.unit, &mut random));
            }
        }
        let is_training = index.is_multiple_of(2);
        WorkloadProfile {
            workload: WorkloadId::new(format!("w{index:03}.x")).unwrap(),
            family: FamilyId::new(format!("w{index:03}")).unwrap(),
            kind: if is_training { WorkloadKind::Training } else { WorkloadKind::Inference },
            device: "h100".into(),
            device_kind: DeviceKind::Simulated,
            fields,
            shares: Vec::new(),
        }
    };
    (0..total).map(profile).collect()
}

/// Rows with values that fit each feature's unit; one value in 20 is missing.
pub(crate) fn rows(schema: &FeatureSchema, total: usize) -> Vec<f32> {
    let mut random = random("rows");
    let mut rows = Vec::with_capacity(total * schema.width());
    for _ in 0..total {
        for feature in schema.features() {
            let value = value(&feature.unit, &mut random);
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
    Body::Linear { mean, scale, weights, bias: 0.3, link: Link::Log }
}

/// The same line as the slowdown itself.
pub(crate) fn ratio(prepared: &[Vec<f32>]) -> Body {
    let Body::Linear { mean, scale, weights, .. } = linear(prepared) else { panic!("a line was asked for") };
    Body::Linear { mean, scale, weights, bias: 1.1, link: Link::Ratio { least: 1.0 } }
}

/// Trees that are added up, as boosting does.
pub(crate) fn boosted(prepared: &[Vec<f32>]) -> Body {
    let Body::Forest(mut forest) = forest(prepared, 20, 4) else { panic!("a forest was asked for") };
    forest.aggregate = Aggregate::Sum;
    for node in forest.trees.iter_mut().flat_map(|tree| &mut tree.nodes) {
        node.value /= 20.0;
    }
    Body::Forest(forest)
}

/// Trees whose normalized throughputs are averaged.
pub(crate) fn harmonic(prepared: &[Vec<f32>], trees: usize, depth: usize) -> Body {
    let Body::Forest(forest) = forest(prepared, trees, depth) else { panic!("a forest was asked for") };
    Body::Forest(Forest { aggregate: Aggregate::Harmonic, base: 0.0, ..forest })
}

/// Drawn toward a mean by two columns that take the place of indicators.
pub(crate) fn shrunk(base: Body) -> Body {
    let column = |name| FeatureSchema::standard().position(name).unwrap() as u32;
    let families = ["subject_training_ratio", "co_runner_training_ratio"].map(column).to_vec();
    Body::Shrunk(Box::new(Shrunk { base, families, center: 0.25, factor: 0.3 }))
}

pub(crate) fn calibrated(prepared: &[Vec<f32>], base: Body, has_residual: bool) -> Body {
    let Body::Forest(residual) = forest(prepared, 7, 3) else { panic!("a forest was asked for") };
    let residual = Forest { base: -0.6, ..residual };
    Body::Calibrated(Box::new(Calibrated {
        base,
        scale: 0.8,
        shift: 0.05,
        offsets: if has_residual { vec![(14, 0.2), (0, -0.1)] } else { Vec::new() },
        residual: has_residual.then_some(residual),
        // Columns that take the place of indicators.
        gate: has_residual.then(|| Gate { columns: vec![14, 15], upper_offset_log_elsewhere: 0.23 }),
    }))
}

/// One model of each kind of body, with rows that it was made from.
pub(crate) fn bodies() -> Vec<(&'static str, ModelSpec, Vec<f32>)> {
    let make = |name, (spec, rows)| (name, spec, rows);
    let with_distance = |prototypes, (mut spec, rows): (ModelSpec, Vec<f32>)| {
        let distance = DomainDistance::fit(&spec.schema, &rows, &spec.impute, prototypes, Seed(1));
        let limit = DomainDistance::limit_for(&distance.distances(&rows), 0.8);
        spec.domain_distance = Some(distance.with_limit(limit));
        (spec, rows)
    };
    vec![
        make("forest", model(300, |prepared| forest(prepared, 30, 7))),
        make("harmonic", model(300, |prepared| harmonic(prepared, 30, 7))),
        make("shrunk", model(300, |prepared| shrunk(harmonic(prepared, 10, 5)))),
        make("single leaf", model(10, |prepared| forest(prepared, 1, 0))),
        make("boosted", model(300, boosted)),
        make("linear", model(300, linear)),
        make("ratio", model(300, ratio)),
        make("constant", model(10, |_| Body::Constant(0.4))),
        make("calibrated", model(300, |rows| calibrated(rows, forest(rows, 10, 5), true))),
        make("calibrated harmonic", {
            let residual = |rows: &[Vec<f32>]| {
                let Body::Calibrated(mut body) = calibrated(rows, harmonic(rows, 10, 5), true) else {
                    panic!("a calibrated body was asked for")
                };
                let Body::Forest(trees) = harmonic(rows, 7, 3) else { panic!("a forest was asked for") };
                body.residual = Some(trees);
                Body::Calibrated(body)
            };
            model(300, residual)
        }),
        make("calibrated shrunk", model(300, |rows| calibrated(rows, shrunk(forest(rows, 10, 5)), true))),
        make("calibrated line", model(300, |rows| calibrated(rows, ratio(rows), false))),
        make("calibrated constant", model(300, |rows| calibrated(rows, Body::Constant(0.3), true))),
        make("distance", with_distance(40, model(300, |prepared| forest(prepared, 5, 5)))),
        make("distance to one", with_distance(1, model(300, linear))),
    ]
}

/// A model over the standard features and the rows that it was made from.
pub(crate) fn model(total: usize, body: impl FnOnce(&[Vec<f32>]) -> Body) -> (ModelSpec, Vec<f32>) {
    let schema = FeatureSchema::standard();
    let rows = rows(&schema, total);
    (model_of(schema, &rows, body), rows)
}

/// A model made from rows.
pub(crate) fn model_of(
    schema: FeatureSchema,
    rows: &[f32],
    body: impl FnOnce(&[Vec<f32>]) -> Body,
) -> ModelSpec {
    let domain = fit_domain(rows, schema.width()).unwrap();
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
    metadata.sharing_modes = vec!["mps".into(), "time_slice".into()];
    metadata.scores.insert("random_pair".into(), [("mape".into(), 0.1), ("r2".into(), f64::NAN)].into());
    ModelSpec {
        schema,
        impute: domain.impute,
        physics,
        body: body(&prepared),
        upper_offset_log: 0.2,
        domain_lower: domain.lower,
        domain_upper: domain.upper,
        domain_missing: domain.missing,
        domain_distance: None,
        metadata,
    }
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
