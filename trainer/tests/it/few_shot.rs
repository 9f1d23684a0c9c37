//! Calibration of a finished model by a few measurements.

use crate::made_up::{MadeUp, assemble};
use elastico_core::Hint as _;
use elastico_datasets::PairRow;
use elastico_models::{Backend, ModelSpec, load_bytes};
use elastico_trainer::{
    CalibrateOptions, CalibratedModel, Error, ExampleOptions, Examples, Split, TrainOptions, calibrate_model,
    train,
};

const NEW: &str = "family_09";

/// A model of all families but one.
fn base() -> Vec<u8> {
    let (isolated, pairs) = MadeUp::default().rows();
    let known: Vec<PairRow> = pairs.into_iter().filter(|row| !touches(row)).collect();
    let examples = Examples::from_dataset(&assemble(&isolated, &known), &ExampleOptions::default()).unwrap();
    let options = TrainOptions { splits: vec![Split::UnseenFamily], ..TrainOptions::default() };
    train(&examples, &options).unwrap().onnx
}

fn touches(row: &PairRow) -> bool {
    row.subject_family == NEW || row.co_runner_family == NEW
}

/// Pairs of the new family, which suffers 30 % more than its load says, with known ones; `of_probe` says which.
fn rows(of_probe: impl Fn(usize) -> bool, change: impl Fn(&mut PairRow)) -> Vec<PairRow> {
    let (_, pairs) = MadeUp::default().rows();
    let mut rows: Vec<PairRow> = pairs
        .into_iter()
        .filter(|row| touches(row) && row.subject_family != row.co_runner_family)
        .filter(|row| {
            let other = if row.subject_family == NEW { &row.co_runner_family } else { &row.subject_family };
            of_probe(other[other.len() - 1..].parse().unwrap())
        })
        .collect();
    for row in &mut rows {
        if row.subject_family == NEW {
            row.slowdown_ratio *= 1.3;
            row.slowdown_lower_ratio *= 1.3;
            row.slowdown_upper_ratio *= 1.3;
        }
        change(row);
    }
    rows
}

fn calibrated(base: &[u8], rows: &[PairRow], device: &str) -> Result<CalibratedModel, Error> {
    let (mut isolated, _) = MadeUp::default().rows();
    isolated.iter_mut().for_each(|row| row.device = device.into());
    let schema = ModelSpec::from_onnx(base).unwrap().schema;
    let examples =
        Examples::for_schema(&assemble(&isolated, rows), &ExampleOptions::default(), &schema).unwrap();
    calibrate_model(base, &examples, &CalibrateOptions::default())
}

/// MAPE on rows of the new family that were no probes.
fn error(model: &[u8]) -> f64 {
    let (isolated, _) = MadeUp::default().rows();
    let dataset = assemble(&isolated, &rows(|other| other >= 3, |_| {}));
    let predictor = load_bytes(model, Backend::Native).unwrap();
    let schema = &predictor.metadata().features;
    let profiles = elastico_trainer::profiles(&dataset).unwrap();
    let rows = rows(|other| other >= 3, |_| {});
    let mut features = Vec::new();
    for row in &rows {
        let of = |workload: &str| profiles.get(workload, "h100").unwrap();
        let sharing = row.sharing.parse().unwrap();
        schema.encode(of(&row.subject_workload), of(&row.co_runner_workload), &sharing, &mut features);
    }
    let predicted = predictor.predict(&features).unwrap();
    let errors = rows
        .iter()
        .zip(predicted)
        .map(|(row, found)| (found.slowdown.get() / row.slowdown_ratio - 1.0).abs());
    errors.sum::<f64>() / rows.len() as f64
}

#[test]
fn three_partners_teach_the_offset_of_a_new_family() {
    let base = base();
    let model = calibrated(&base, &rows(|other| other < 3, |_| {}), "h100").unwrap();
    assert_eq!(model.workloads, ["family_09.v0", "family_09.v1"]);
    assert!(!model.is_new_device && model.pairs_total == 12 && model.rows_total == 48, "{model:?}");
    let (before, after) = (error(&base), error(&model.onnx));
    assert!(before > 0.08 && after < 0.6 * before, "{before} to {after}");
    assert!(model.mape_after.unwrap() < model.mape_before);
    for words in ["calibrated to 2 new workloads on h100", "Trained on simulated data", "held-out families"] {
        assert!(model.card.contains(words), "{words}: {}", model.card);
    }
    assert!(model.metadata.facts["calibrated_from"].len() > 16);
    let again = calibrated(&base, &rows(|other| other < 3, |_| {}), "h100").unwrap();
    assert!(again.onnx == model.onnx && again.card == model.card);
}

#[test]
fn what_would_teach_something_else_is_refused() {
    let base = base();
    let refused = |rows: &[PairRow], device: &str| {
        let error = calibrated(&base, rows, device).unwrap_err();
        assert!(error.hint().is_some());
        error.to_string()
    };
    let few = |other: usize| other < 3;
    let harness = refused(&rows(few, |row| row.source = "other".into()), "h100");
    assert!(harness.contains("harness other") && harness.contains("learnt from made up"), "{harness}");
    let sharing = refused(&rows(few, |row| row.sharing = "mps(0.5,0.5)".into()), "h100");
    assert!(sharing.contains("sharing mode mps"), "{sharing}");
    let device = refused(&rows(|other| other == 0, |row| row.device = "a10".into()), "a10");
    assert!(device.contains("`a10` is new to the model") && device.contains("too few"), "{device}");
    let kind = MadeUp { device_kind: elastico_core::DeviceKind::Cuda, ..MadeUp::default() };
    let schema = ModelSpec::from_onnx(&base).unwrap().schema;
    let examples = Examples::for_schema(&kind.dataset(), &ExampleOptions::default(), &schema).unwrap();
    let kind = calibrate_model(&base, &examples, &CalibrateOptions::default()).unwrap_err().to_string();
    assert!(kind.contains("trained on simulated data"), "{kind}");
}

#[test]
fn a_new_device_fits_a_full_file_with_fewer_trees() {
    let base = base();
    let (isolated, mut pairs) = MadeUp::default().rows();
    for row in &mut pairs {
        row.device = "a10".into();
        // Half of the subjects suffer, the others do not: neither a line nor few offsets can say by whom.
        let bent = if row.subject_workload.ends_with("v0") { 2 } else { 1 };
        row.slowdown_ratio = row.slowdown_ratio.powi(bent);
        row.slowdown_lower_ratio = f64::NAN;
        row.slowdown_upper_ratio = f64::NAN;
    }
    let isolated: Vec<_> = isolated
        .into_iter()
        .map(|row| elastico_datasets::IsolatedRow { device: "a10".into(), ..row })
        .collect();
    let schema = ModelSpec::from_onnx(&base).unwrap().schema;
    let examples =
        Examples::for_schema(&assemble(&isolated, &pairs), &ExampleOptions::default(), &schema).unwrap();
    let whole = calibrate_model(&base, &examples, &CalibrateOptions::default()).unwrap();
    assert!(
        whole.is_new_device && whole.mape_after.unwrap() < 0.5 * whole.mape_before,
        "{:?}",
        whole.mape_after
    );
    assert_eq!(whole.metadata.devices, ["a10"]);
    assert!(whole.metadata.facts["calibration_form"].contains("trees"), "{:?}", whole.metadata.facts);
    let limit = usize::midpoint(base.len(), whole.onnx.len());
    let options = CalibrateOptions { max_bytes: limit, ..CalibrateOptions::default() };
    assert!(calibrate_model(&base, &examples, &options).unwrap().onnx.len() <= limit);
    let options = CalibrateOptions { max_bytes: base.len() / 2, ..CalibrateOptions::default() };
    assert!(matches!(calibrate_model(&base, &examples, &options), Err(Error::TooLarge { .. })));
}
