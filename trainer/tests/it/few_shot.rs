//! Calibration of a finished model by a few measurements.

use crate::made_up::{MadeUp, assemble};
use elastico_core::{DeviceKind, Hint as _};
use elastico_datasets::{IsolatedRow, PairRow};
use elastico_models::{Backend, ModelSpec, load_bytes};
use elastico_trainer::{
    CalibrateOptions, CalibratedModel, Error, ExampleOptions, Examples, Split, TrainOptions, calibrate_model,
    train,
};

const NEW: &str = "family_09";
const SIMULATED: DeviceKind = DeviceKind::Simulated;

/// A model of all families but one.
fn base(kind: DeviceKind) -> Vec<u8> {
    let (isolated, pairs) = measured(kind);
    let known: Vec<PairRow> = pairs.into_iter().filter(|row| !touches(row)).collect();
    let examples = Examples::from_dataset(&assemble(&isolated, &known), &ExampleOptions::default()).unwrap();
    let options = TrainOptions { splits: vec![Split::UnseenFamily], ..TrainOptions::default() };
    train(&examples, &options).unwrap().onnx
}

/// Each family suffers by a factor that its load does not tell, the new one by the largest.
fn measured(kind: DeviceKind) -> (Vec<IsolatedRow>, Vec<PairRow>) {
    let (isolated, mut pairs) = MadeUp { device_kind: kind, ..MadeUp::default() }.rows();
    for row in &mut pairs {
        let factor = [1.0, 1.15, 1.25, 1.05, 1.3][number(&row.subject_family) % 5];
        row.slowdown_ratio *= factor;
        row.slowdown_lower_ratio *= factor;
        row.slowdown_upper_ratio *= factor;
    }
    (isolated, pairs)
}

fn number(family: &str) -> usize {
    family.trim_start_matches("family_").parse().unwrap()
}

fn touches(row: &PairRow) -> bool {
    row.subject_family == NEW || row.co_runner_family == NEW
}

/// Pairs of the new family with known ones; `with` says which, by number.
fn rows(kind: DeviceKind, with: impl Fn(usize) -> bool, change: impl Fn(&mut PairRow)) -> Vec<PairRow> {
    let mut rows: Vec<PairRow> = measured(kind)
        .1
        .into_iter()
        .filter(|row| touches(row) && row.subject_family != row.co_runner_family)
        .filter(|row| {
            let other = if row.subject_family == NEW { &row.co_runner_family } else { &row.subject_family };
            with(number(other))
        })
        .collect();
    rows.iter_mut().for_each(change);
    rows
}

/// Calibrates; the workloads were measured alone as the pairs were.
fn calibrated(base: &[u8], rows: &[PairRow]) -> Result<CalibratedModel, Error> {
    let (mut isolated, _) = measured(SIMULATED);
    for row in &mut isolated {
        row.device = rows[0].device.clone();
        row.device_kind = rows[0].device_kind.clone();
        row.source = rows[0].source.clone();
    }
    let schema = ModelSpec::from_onnx(base).unwrap().schema;
    let examples =
        Examples::for_schema(&assemble(&isolated, rows), &ExampleOptions::default(), &schema).unwrap();
    calibrate_model(base, &examples, &CalibrateOptions::default())
}

/// MAPE on rows of the new family that were no probes.
fn error(model: &[u8]) -> f64 {
    let rows = rows(SIMULATED, |other| other >= 3, |_| {});
    let dataset = assemble(&measured(SIMULATED).0, &rows);
    let predictor = load_bytes(model, Backend::Native).unwrap();
    let schema = &predictor.metadata().features;
    let profiles = elastico_trainer::profiles(&dataset).unwrap();
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
    let base = base(SIMULATED);
    let probes = rows(SIMULATED, |other| other < 3, |_| {});
    let model = calibrated(&base, &probes).unwrap();
    assert_eq!(model.workloads, ["family_09.v0", "family_09.v1"]);
    assert!(
        !model.is_new_device && model.pairs_total == 12 && model.rows_total == 48,
        "{} pairs, {} rows",
        model.pairs_total,
        model.rows_total
    );
    let (before, after) = (error(&base), error(&model.onnx));
    assert!(before > 0.08 && after < 0.6 * before, "{before} to {after}");
    assert!(model.mape_after.unwrap() < model.mape_before);
    for words in ["calibrated to 2 new workloads on h100", "Trained on simulated data", "held-out families"] {
        assert!(model.card.contains(words), "{words}: {}", model.card);
    }
    assert!(model.metadata.facts["calibrated_from"].len() > 16);
    let again = calibrated(&base, &probes).unwrap();
    assert!(again.onnx == model.onnx && again.card == model.card);
}

#[test]
fn what_would_teach_something_else_is_refused() {
    let refused = |base: &[u8], rows: &[PairRow]| {
        let error = calibrated(base, rows).map(|model| model.card).unwrap_err();
        assert!(error.hint().is_some());
        error.to_string()
    };
    let few = |other: usize| other < 3;
    let simulated = base(SIMULATED);
    let sharing = refused(&simulated, &rows(SIMULATED, few, |row| row.sharing = "mps(0.5,0.5)".into()));
    assert!(sharing.contains("sharing mode mps"), "{sharing}");
    let device = refused(&simulated, &rows(SIMULATED, |other| other == 0, |row| row.device = "a10".into()));
    assert!(device.contains("`a10` is new to the model") && device.contains("too few"), "{device}");
    let kind = refused(&simulated, &rows(DeviceKind::Imported, few, |_| {}));
    assert!(kind.contains("trained on simulated data, the probes are imported"), "{kind}");
    let imported = base(DeviceKind::Imported);
    let harness = refused(&imported, &rows(DeviceKind::Imported, few, |row| row.source = "other".into()));
    assert!(harness.contains("harness other") && harness.contains("learnt from made up"), "{harness}");
    assert!(calibrated(&imported, &rows(DeviceKind::Imported, few, |_| {})).is_ok());
}

#[test]
fn a_new_device_fits_a_full_file_with_fewer_trees() {
    let base = base(SIMULATED);
    let (isolated, mut pairs) = MadeUp::default().rows();
    for row in &mut pairs {
        row.device = "a10".into();
        // Half of the subjects suffer, the others do not: neither a line nor few offsets can say by whom.
        let bent = if row.subject_workload.ends_with("v0") { 2 } else { 1 };
        row.slowdown_ratio = row.slowdown_ratio.powi(bent);
        row.slowdown_lower_ratio = f64::NAN;
        row.slowdown_upper_ratio = f64::NAN;
    }
    let isolated: Vec<_> =
        isolated.into_iter().map(|row| IsolatedRow { device: "a10".into(), ..row }).collect();
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
    let limit = base.len() + (whole.onnx.len() - base.len()) * 3 / 4;
    let options = CalibrateOptions { max_bytes: limit, ..CalibrateOptions::default() };
    assert!(calibrate_model(&base, &examples, &options).unwrap().onnx.len() <= limit);
    let options = CalibrateOptions { max_bytes: 20_000, ..CalibrateOptions::default() };
    assert!(matches!(calibrate_model(&base, &examples, &options), Err(Error::TooLarge { .. })));
}

#[test]
fn pairs_of_known_workloads_keep_what_the_base_says_of_them() {
    let base = base(SIMULATED);
    let model = calibrated(&base, &rows(SIMULATED, |other| other < 4, |_| ())).unwrap();
    assert!(model.upper_offset_log < ModelSpec::from_onnx(&base).unwrap().upper_offset_log);
    let (isolated, pairs) = measured(SIMULATED);
    let known: Vec<PairRow> = pairs.into_iter().filter(|row| !touches(row)).collect();
    let predicted = |onnx: &[u8]| {
        let schema = ModelSpec::from_onnx(onnx).unwrap().schema;
        let dataset = assemble(&isolated, &known);
        let examples = Examples::for_schema(&dataset, &ExampleOptions::default(), &schema).unwrap();
        load_bytes(onnx, Backend::Native).unwrap().predict(&examples.features).unwrap()
    };
    for (before, after) in predicted(&base).iter().zip(predicted(&model.onnx)) {
        assert!((before.slowdown.get() / after.slowdown.get() - 1.0).abs() < 1e-5);
        assert!((before.upper.get() / after.upper.get() - 1.0).abs() < 1e-5);
    }
}
