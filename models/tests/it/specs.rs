//! Models before they are files: read back, widened, corrected, and what they say about themselves.

use crate::support::{bodies, boosted, calibrated, forest, linear, model, ratio};
use elastico_core::Seed;
use elastico_models::{
    Backend, Body, Calibrated, DomainDistance, Error, Gate, Link, ModelSpec, PhysicsSpec, export, load_bytes,
    verify,
};

fn predict(spec: &ModelSpec, rows: &[f32]) -> Vec<elastico_models::Prediction> {
    load_bytes(&export(spec).unwrap(), Backend::Native).unwrap().predict(rows).unwrap()
}

#[test]
fn a_file_comes_back_byte_for_byte() {
    for (name, spec, rows) in bodies() {
        let bytes = export(&spec).unwrap();
        let again = ModelSpec::from_onnx(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(export(&again).unwrap(), bytes, "{name}");
        verify(&again, &bytes, &rows).unwrap();
        // A second time nothing is rounded any more.
        assert_eq!(ModelSpec::from_onnx(&export(&again).unwrap()).unwrap(), again, "{name}");
        assert_eq!(again.physics, spec.physics, "{name}");
        assert_eq!(again.domain_missing, spec.domain_missing, "{name}");
        let (spread, wanted) = (again.spread(&rows), spec.spread(&rows));
        assert!(
            spread.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-6 || (a.is_nan() && b.is_nan())),
            "{name}: the spread comes back"
        );
    }
    let (mut spec, _) = model(30, |rows| forest(rows, 3, 3));
    spec.domain_missing.fill(true);
    spec.domain_missing[4] = false;
    assert_eq!(ModelSpec::from_onnx(&export(&spec).unwrap()).unwrap().domain_missing, spec.domain_missing);
}

#[test]
fn a_model_without_physics_comes_back_too() {
    let (mut spec, _) = model(30, |_| Body::Constant(0.2));
    spec.physics = PhysicsSpec::none();
    let again = ModelSpec::from_onnx(&export(&spec).unwrap()).unwrap();
    assert_eq!(again.physics, PhysicsSpec::none());
}

#[test]
fn features_are_appended_without_a_change_of_the_numbers() {
    let extra = ["subject_workload=new.x".to_owned(), "harness=other".to_owned()];
    for (name, spec, rows) in bodies() {
        let wider = spec.with_features(&extra).unwrap_or_else(|error| panic!("{name}: {error}"));
        let width = spec.schema.width();
        let widened: Vec<f32> = rows
            .chunks_exact(width)
            .enumerate()
            .flat_map(|(index, row)| {
                let more = if index % 2 == 0 { [1.0, 0.0] } else { [f32::NAN, 1.0] };
                row.iter().copied().chain(more)
            })
            .collect();
        assert_eq!(predict(&wider, &widened), predict(&spec, &rows), "{name}");
        verify(&wider, &export(&wider).unwrap(), &widened).unwrap();
        assert_eq!(wider.metadata.features, wider.schema);
        let again = ModelSpec::from_onnx(&export(&wider).unwrap()).unwrap();
        assert_eq!(again.schema, wider.schema, "{name}");
    }
    let (spec, _) = model(5, |_| Body::Constant(0.1));
    let refused = |names: &[&str]| {
        spec.with_features(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap_err()
    };
    assert!(matches!(refused(&["subject_step_seconds"]), Error::FeatureName { .. }));
    assert!(matches!(refused(&["workload=x"]), Error::FeatureName { .. }));
    let error = refused(&["subject_isolated_a_hertz", "subject_isolated_b_hertz"]);
    assert!(error.to_string().contains("derived"), "{error}");
}

#[test]
fn a_correction_is_what_it_says() {
    let (spec, rows) = model(40, |rows| forest(rows, 10, 4));
    let spec = spec.with_features(&["subject_workload=new.x".to_owned()]).unwrap();
    let width = spec.schema.width();
    let corrected = ModelSpec {
        body: Body::Calibrated(Box::new(Calibrated {
            base: spec.body.clone(),
            scale: 0.5,
            shift: 0.1,
            offsets: vec![((width - 1) as u32, 0.2)],
            residual: None,
            gate: None,
        })),
        ..spec.clone()
    };
    for (row, known) in rows.chunks_exact(width - 1).zip([0.0, 1.0].into_iter().cycle()) {
        let row: Vec<f32> = row.iter().copied().chain([known]).collect();
        let before = predict(&spec, &row)[0].slowdown.get().ln();
        let after = predict(&corrected, &row)[0].slowdown.get().ln();
        let wanted = 0.5 * before + 0.1 + 0.2 * f64::from(known);
        assert!((after - wanted).abs() < 1e-5, "{after} against {wanted}");
    }
}

#[test]
fn a_ratio_is_held_at_its_least() {
    let (mut spec, rows) = model(60, ratio);
    let free = predict(&spec, &rows);
    let Body::Linear { link, .. } = &mut spec.body else { panic!("a line was asked for") };
    *link = Link::Ratio { least: 1.1 };
    let held = predict(&spec, &rows);
    assert!(free.iter().any(|p| p.slowdown.get() < 1.09) && free.iter().any(|p| p.slowdown.get() > 1.12));
    for (free, held) in free.iter().zip(&held) {
        assert!((held.slowdown.get() - free.slowdown.get().max(1.1)).abs() < 1e-5);
    }
}

#[test]
fn the_spread_is_that_of_averaged_trees_only() {
    let (spec, rows) = model(20, |rows| forest(rows, 10, 4));
    let spread = spec.spread(&rows);
    assert!(spread.iter().all(|s| (0.0..1.0).contains(s)) && spread.iter().any(|s| *s > 0.1), "{spread:?}");
    for body in [boosted as fn(&[Vec<f32>]) -> Body, linear, |rows| forest(rows, 1, 3)] {
        let (spec, rows) = model(20, body);
        assert!(spec.spread(&rows).iter().all(|s| s.is_nan()));
    }
    let (halved, _) = model(20, |rows| {
        let Body::Calibrated(mut body) = calibrated(rows, forest(rows, 10, 4), false) else { panic!() };
        body.scale = -0.5;
        Body::Calibrated(body)
    });
    for (half, full) in halved.spread(&rows).into_iter().zip(spread) {
        assert!((half - full / 2.0).abs() < 1e-12);
    }
}

#[test]
fn unsound_corrections_and_distances_are_not_exported() {
    let (spec, rows) = model(30, |rows| calibrated(rows, forest(rows, 2, 2), true));
    let broken = |change: fn(&mut Calibrated)| {
        let mut bad = spec.clone();
        let Body::Calibrated(body) = &mut bad.body else { panic!("a correction was asked for") };
        change(body);
        export(&bad).unwrap_err().to_string()
    };
    assert!(broken(|c| c.base = Body::Calibrated(Box::new(c.clone()))).contains("itself calibrated"));
    assert!(broken(|c| c.scale = f64::NAN).contains("the scale NaN"));
    assert!(broken(|c| c.shift = f64::INFINITY).contains("the shift inf"));
    assert!(broken(|c| c.offsets = vec![(1, 0.1), (1, 0.2)]).contains("name column 1 twice"));
    assert!(broken(|c| c.offsets = vec![(9999, 0.1)]).contains("column 9999"));
    assert!(
        broken(|c| c.residual.as_mut().unwrap().trees.clear()).contains("the residual forest has no tree")
    );
    assert!(broken(|c| c.base = Body::Constant(f64::NAN)).contains("NaN"));
    let mut bad = spec.clone();
    let (line, _) = model(30, linear);
    let Body::Linear { mean, scale, weights, bias, .. } = line.body else { panic!("a line was asked for") };
    bad.body = Body::Linear { mean, scale, weights, bias, link: Link::Ratio { least: 0.0 } };
    assert!(export(&bad).unwrap_err().to_string().contains("is 0, it must lie within"));

    let distance = DomainDistance::fit(&spec.schema, &rows, &spec.impute, 8, Seed(1));
    let mut bad = ModelSpec { domain_distance: Some(distance.clone().with_limit(f32::NAN)), ..spec.clone() };
    assert!(export(&bad).unwrap_err().to_string().contains("limit"));
    bad = ModelSpec { domain_distance: Some(distance), ..spec };
    export(&bad).unwrap();
    bad.impute[2] += 1.0;
    assert!(export(&bad).unwrap_err().to_string().contains("other values for what is missing"));
}

#[test]
fn a_gate_keeps_trees_and_bound_to_the_rows_that_were_measured_for() {
    let (spec, rows) = model(40, |rows| forest(rows, 10, 4));
    let names = ["subject_workload=new.x", "co_runner_workload=new.x"].map(str::to_owned);
    let mut spec = spec.with_features(&names).unwrap();
    spec.upper_offset_log = 0.2;
    let width = spec.schema.width();
    let columns = vec![(width - 2) as u32, (width - 1) as u32];
    let Body::Forest(residual) = spec.body.clone() else { panic!("a forest was asked for") };
    let gated = ModelSpec {
        body: Body::Calibrated(Box::new(Calibrated {
            base: spec.body.clone(),
            scale: 1.0,
            shift: 0.0,
            offsets: Vec::new(),
            residual: Some(residual),
            gate: Some(Gate { columns, upper_offset_log_elsewhere: 0.2 }),
        })),
        upper_offset_log: 0.05,
        ..spec.clone()
    };
    for (row, sides) in
        rows.chunks_exact(width - 2).zip([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]].into_iter().cycle())
    {
        let row: Vec<f32> = row.iter().copied().chain(sides).collect();
        let (before, after) = (predict(&spec, &row)[0], predict(&gated, &row)[0]);
        let log = before.slowdown.get().ln();
        let (wanted, offset) = if sides == [0.0, 0.0] { (log, 0.2) } else { (2.0 * log, 0.05) };
        assert!((after.slowdown.get().ln() - wanted).abs() < 1e-5);
        assert!((after.upper.get().ln() - (wanted + offset).max(0.0)).abs() < 1e-5);
    }
}

#[test]
fn a_bound_is_never_under_one() {
    let (mut spec, rows) = model(10, |_| Body::Constant(-0.4));
    spec.upper_offset_log = 0.1;
    assert!(
        predict(&spec, &rows).iter().all(|p| p.slowdown.get() < 0.7 && (p.upper.get() - 1.0).abs() < 1e-6)
    );
}
