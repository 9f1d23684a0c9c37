//! The shipped models: both back ends read them, and say the same.

use super::support::{library, random};
use elastico_models::{Backend, LoadOptions, ModelSpec, load_bytes};
use rand::RngExt as _;
use std::path::PathBuf;

fn bundled() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/bundled");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "onnx"))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no model is shipped");
    found
}

/// Rows within the ranges of the training data, one value in ten missing.
fn rows(spec: &ModelSpec, total: usize) -> Vec<f32> {
    let mut random = random("bundled");
    let ranges: Vec<(f32, f32)> =
        spec.domain_lower.iter().copied().zip(spec.domain_upper.iter().copied()).collect();
    (0..total)
        .flat_map(|_| ranges.clone())
        .map(
            |(low, high)| {
                if random.random_bool(0.1) { f32::NAN } else { low + (high - low) * random.random::<f32>() }
            },
        )
        .collect()
}

#[test]
fn each_shipped_model_is_small_readable_and_says_what_it_is() {
    for path in bundled() {
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.len() <= 2_000_000, "{}", path.display());
        let spec = ModelSpec::from_onnx(&bytes).unwrap();
        let is_simulated = spec.metadata.device_kinds.iter().any(|kind| !kind.is_measured());
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert_eq!(
            name.starts_with("simulated"),
            is_simulated,
            "the name of {} says where its data come from",
            path.display()
        );
        let card = std::fs::read_to_string(path.with_extension("md")).unwrap();
        assert_eq!(card.contains("simulated"), is_simulated);
        let coverage = spec.metadata.achieved_coverage.unwrap();
        assert!(coverage >= spec.metadata.conformal_level - 0.02, "{coverage}");
        assert!(spec.metadata.prior.is_some(), "{} can be calibrated", path.display());
    }
}

#[test]
fn both_back_ends_agree_on_each_shipped_model() {
    let Some(library) = library() else { return };
    for path in bundled() {
        let bytes = std::fs::read(&path).unwrap();
        let rows = rows(&ModelSpec::from_onnx(&bytes).unwrap(), 5_000);
        let native = load_bytes(&bytes, Backend::Native).unwrap().predict(&rows).unwrap();
        let ort = load_bytes(&bytes, LoadOptions { backend: Backend::Ort, library: Some(library.clone()) })
            .unwrap()
            .predict(&rows)
            .unwrap();
        for (row, (ours, theirs)) in native.iter().zip(&ort).enumerate() {
            let (a, b) = (ours.slowdown.get(), theirs.slowdown.get());
            assert!((a - b).abs() <= 1e-6 * a, "row {row}: {a} and {b}");
        }
    }
}
