//! The same file gives the same numbers everywhere.

use crate::support::{bodies, forest, linear, model};
use elastico_models::{
    Backend, Body, EXPORT_TOLERANCE, Error, ModelSpec, export, load, load_bytes, prepare, verify,
};

#[test]
fn native_meets_the_training_side_on_data_and_at_thresholds() {
    for (name, spec, rows) in bodies() {
        let bytes = export(&spec).unwrap();
        let verification = verify(&spec, &bytes, &rows).unwrap();
        assert!(verification.native_difference_ratio < EXPORT_TOLERANCE, "{name}: {verification:?}");
        assert_eq!(verification.data_rows_total, rows.len() / spec.schema.width());
        let thresholds = verification.threshold_rows_total;
        match name {
            "forest" => assert!(thresholds > 8_000, "{name}: {verification:?}"),
            "calibrated" => assert!(thresholds > 700, "{name}: {verification:?}"),
            "calibrated constant" => assert!(thresholds > 50, "{name}: {verification:?}"),
            _ => {}
        }
    }
}

#[test]
fn a_file_of_another_model_is_not_verified() {
    let (spec, rows) = model(50, |prepared| forest(prepared, 5, 4));
    let (mut other, _) = model(50, |prepared| forest(prepared, 5, 4));
    let Body::Forest(forest) = &mut other.body else { panic!("a forest was asked for") };
    forest.trees[2].nodes.iter_mut().filter(|node| node.is_leaf()).for_each(|node| node.value += 1e-3);
    let error = verify(&spec, &export(&other).unwrap(), &rows).unwrap_err();
    assert!(matches!(error, Error::Disagreement { left: "training side", .. }), "{error}");
    let mut other = spec.clone();
    other.domain_upper[0] /= 2.0;
    let error = verify(&spec, &export(&other).unwrap(), &rows).unwrap_err();
    assert!(matches!(error, Error::Disagreement { output: "in_domain", .. }), "{error}");
}

#[test]
fn many_rows_are_the_single_rows() {
    let (spec, rows) = model(200, |prepared| forest(prepared, 20, 6));
    let predictor = load_bytes(&export(&spec).unwrap(), Backend::Native).unwrap();
    let together = predictor.predict(&rows).unwrap();
    for (row, expected) in rows.chunks_exact(spec.schema.width()).zip(&together) {
        assert_eq!(predictor.predict(row).unwrap(), [*expected]);
    }
    let many: Vec<f32> = rows.iter().copied().cycle().take(27 * rows.len()).collect();
    let repeated = predictor.predict(&many).unwrap();
    assert_eq!(repeated.len(), 5400, "enough for several threads");
    assert!(repeated.iter().zip(together.iter().cycle()).all(|(a, b)| a == b));
    assert!(together.iter().all(|p| p.in_domain && p.upper > p.slowdown), "training rows lie in the domain");
    assert_eq!(export(&spec).unwrap(), export(&spec).unwrap(), "equal models give equal bytes");
}

#[test]
fn numbers_stay_within_bounds_however_wild_the_row() {
    for (name, spec, _) in bodies() {
        let predictor = load_bytes(&export(&spec).unwrap(), Backend::Native).unwrap();
        for value in [f32::MAX, f32::MIN, -1.0, 0.0, 1e30] {
            let prediction = predictor.predict(&vec![value; spec.schema.width()]).unwrap()[0];
            assert!((0.49..1001.0).contains(&prediction.slowdown.get()), "{name} at {value}: {prediction:?}");
            assert!(value == 0.0 || !prediction.in_domain, "{name} at {value}");
        }
        let missing = predictor.predict(&vec![f32::NAN; spec.schema.width()]).unwrap()[0];
        assert_eq!(missing.in_domain, spec.domain_missing.iter().all(|seen| *seen), "{name}");
    }
}

#[test]
fn a_missing_value_is_in_the_domain_only_where_training_had_some() {
    let (mut spec, rows) = model(50, |_| Body::Constant(0.1));
    let width = spec.schema.width();
    let mut row: Vec<f32> = spec.impute.clone();
    row[3] = f32::NAN;
    for seen in [true, false] {
        spec.domain_missing = vec![true; width];
        spec.domain_missing[3] = seen;
        let bytes = export(&spec).unwrap();
        let prediction = load_bytes(&bytes, Backend::Native).unwrap().predict(&row).unwrap()[0];
        assert_eq!(prediction.in_domain, seen);
        verify(&spec, &bytes, &rows).unwrap();
    }
}

#[test]
fn rows_are_checked() {
    let (spec, mut rows) = model(3, |_| Body::Constant(0.1));
    let predictor = load_bytes(&export(&spec).unwrap(), Backend::Native).unwrap();
    assert_eq!(predictor.predict(&[]).unwrap(), []);
    assert!(matches!(predictor.predict(&rows[1..]), Err(Error::Rows { .. })));
    let width = spec.schema.width();
    rows[width + 2] = f32::NEG_INFINITY;
    let error = predictor.predict(&rows).unwrap_err();
    assert_eq!(error.to_string(), "row 1: subject_step_seconds is infinite");
}

#[test]
fn metadata_come_back_and_undefined_scores_are_left_out() {
    let (spec, _) = model(20, |_| Body::Constant(0.1));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, export(&spec).unwrap()).unwrap();
    let predictor = load(&path, Backend::Native).unwrap();
    let metadata = predictor.metadata();
    assert_eq!(metadata.features, spec.schema);
    assert_eq!(metadata.features_digest, spec.schema.digest());
    assert_eq!(metadata.physics_features, spec.physics.names());
    assert_eq!(metadata.upper_offset_log.to_bits(), 0.2_f64.to_bits());
    assert_eq!(metadata.scores["random_pair"], [("mape".to_owned(), 0.1)].into());
    assert!(matches!(load(&folder.path().join("absent.onnx"), Backend::Auto), Err(Error::Read { .. })));
}

#[test]
fn unsound_models_are_not_exported() {
    let (spec, _) = model(20, |prepared| forest(prepared, 2, 2));
    let broken = |change: fn(&mut ModelSpec)| {
        let mut bad = spec.clone();
        change(&mut bad);
        export(&bad).unwrap_err().to_string()
    };
    assert!(broken(|s| s.impute[0] = f32::NAN).contains("impute of subject_training_ratio is NaN"));
    assert!(broken(|s| s.domain_missing.clear()).contains("domain_missing has 0 values"));
    assert!(broken(|s| s.domain_lower[0] = 2.0).contains("above domain_upper"));
    assert!(broken(|s| s.upper_offset_log = -0.1).contains("upper_offset_log is -0.1"));
    assert!(broken(|s| s.metadata.conformal_level = 1.0).contains("conformal_level"));
    assert!(broken(|s| s.body = Body::Constant(f64::NAN)).contains("NaN"));
    assert!(broken(|s| s.body = linear(&[vec![0.0; 3], vec![1.0; 3]])).contains("mean has 3 values"));
    assert!(broken(|s| s.physics = elastico_models::PhysicsSpec::none()).contains("splits on feature"));
    let Body::Forest(forest) = &spec.body else { panic!("a forest was asked for") };
    let mut cyclic = spec.clone();
    let mut trees = forest.clone();
    trees.trees[1].nodes[0].left = 0;
    cyclic.body = Body::Forest(trees);
    assert!(export(&cyclic).unwrap_err().to_string().contains("tree 1 of the forest reaches node 0 twice"));
}

#[test]
fn prepared_rows_have_the_stated_width() {
    let (spec, rows) = model(2, |_| Body::Constant(0.0));
    let mut out = Vec::new();
    prepare(&spec.physics, &spec.impute, &rows[..spec.schema.width()], &mut out);
    assert_eq!(out.len(), spec.prepared_width());
}
