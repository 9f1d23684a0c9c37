//! One file, three evaluators: native, ONNX Runtime by `ort`, and Python's onnxruntime, on random rows with missing values
//! and on neighbours of thresholds.

use crate::support::{bodies, library, python, rows};
use elastico_models::{Backend, Body, Forest, LoadOptions, ModelSpec, Prediction, export, load_bytes};
use std::path::Path;
use std::process::Command;

const RANDOM_ROWS: usize = 10_000;
/// Trees of which every threshold is tried.
const TREES: usize = 3;

/// Random rows, then rows at each threshold on a raw feature of some trees: on it, just under it and just over it.
fn all_rows(spec: &ModelSpec) -> Vec<f32> {
    let width = spec.schema.width();
    let mut all = rows(&spec.schema, RANDOM_ROWS);
    let forests: Vec<&Forest> = match &spec.body {
        Body::Forest(forest) => vec![forest],
        Body::Calibrated(calibrated) => match &calibrated.base {
            Body::Forest(forest) => {
                [Some(forest), calibrated.residual.as_ref()].into_iter().flatten().collect()
            }
            _ => calibrated.residual.iter().collect(),
        },
        _ => Vec::new(),
    };
    let nodes =
        forests.iter().flat_map(|forest| forest.trees.iter().take(TREES)).flat_map(|tree| &tree.nodes);
    let splits = nodes.filter(|node| !node.is_leaf() && (node.feature as usize) < width);
    for (index, node) in splits.enumerate() {
        for value in [node.threshold, node.threshold.next_up(), node.threshold.next_down()] {
            let start = all.len();
            all.extend_from_within(index * width..(index + 1) * width);
            all[start + node.feature as usize] = value;
        }
    }
    all
}

/// Relative difference of slowdowns and bounds; flags must be equal but for rows at the very limit of the distance.
fn difference(spec: &ModelSpec, rows: &[f32], a: &[Prediction], b: &[Prediction]) -> f64 {
    assert_eq!(a.len(), b.len());
    let relative = |x: f64, y: f64| (x - y).abs() / x;
    let undecided = undecided(spec, rows);
    a.iter()
        .zip(b)
        .zip(&undecided)
        .map(|((a, b), undecided)| {
            assert!(*undecided || a.in_domain == b.in_domain, "{a:?} {b:?}");
            relative(a.slowdown.get(), b.slowdown.get()).max(relative(a.upper.get(), b.upper.get()))
        })
        .fold(0.0, f64::max)
}

fn undecided(spec: &ModelSpec, rows: &[f32]) -> Vec<bool> {
    let Some(distance) = &spec.domain_distance else { return vec![false; rows.len() / spec.schema.width()] };
    let limit = distance.limit();
    distance.distances(rows).into_iter().map(|d| (d - limit).abs() < 1e-5 * (1.0 + limit)).collect()
}

#[test]
fn onnx_runtime_and_native_agree() {
    let Some(library) = library() else { return };
    for (name, spec, _) in bodies() {
        let rows = all_rows(&spec);
        let bytes = export(&spec).unwrap();
        let native = load_bytes(&bytes, Backend::Native).unwrap();
        let options = LoadOptions { backend: Backend::Ort, library: Some(library.clone()) };
        let ort = load_bytes(&bytes, options).unwrap();
        assert_eq!((native.backend(), ort.backend()), ("native", "ort"));
        let own = native.predict(&rows).unwrap();
        let difference = difference(&spec, &rows, &own, &ort.predict(&rows).unwrap());
        println!("{name}: {} rows, {difference:.1e}", own.len());
        assert!(difference <= 1e-6, "{name}: {difference}");
        assert_eq!(ort.predict(&[]).unwrap(), []);
        if spec.domain_distance.is_some() {
            let undecided = undecided(&spec, &rows).into_iter().filter(|row| *row).count();
            let near = own.iter().filter(|prediction| prediction.in_domain).count();
            assert!(undecided < 10 && near > 100 && near < own.len(), "{name}: {undecided}, {near}");
        }
    }
}

#[test]
fn python_accepts_the_files_and_gives_the_same_numbers() {
    let Some(python) = python() else { return };
    let imports = Command::new(&python).args(["-c", "import numpy, onnx, onnxruntime"]).output().unwrap();
    if !imports.status.success() {
        println!("skipped: .venv has no numpy, onnx or onnxruntime");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut script = Command::new(&python);
    script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/check_onnx.py"));
    for (name, spec, _) in bodies() {
        let model = folder.path().join(name);
        write_case(&spec, &model);
        script.arg(model);
    }
    let output = script.output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The file, its rows, and what native says about them; a flag that may be either is NaN.
fn write_case(spec: &ModelSpec, folder: &Path) {
    let rows = all_rows(spec);
    let bytes = export(spec).unwrap();
    let native = load_bytes(&bytes, Backend::Native).unwrap().predict(&rows).unwrap();
    let expected = native.iter().zip(undecided(spec, &rows)).flat_map(|(p, undecided)| {
        let flag = if undecided { f32::NAN } else { f32::from(u8::from(p.in_domain)) };
        [p.slowdown.get() as f32, p.upper.get() as f32, flag]
    });
    let write = |file: &str, values: &mut dyn Iterator<Item = f32>| {
        let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        std::fs::write(folder.join(file), bytes).unwrap();
    };
    std::fs::create_dir(folder).unwrap();
    std::fs::write(folder.join("model.onnx"), &bytes).unwrap();
    write("rows.f32", &mut rows.iter().copied());
    write("expected.f32", &mut { expected });
}
