//! The example schedulers, in Rust and in Python, choose the same partner from the same file.

use crate::support::{forest, model_of, profiles, python};
use elastico_core::SharingMode;
use elastico_models::{FeatureSchema, Profiles, export};
use std::process::Command;

#[path = "../../examples/scheduler.rs"]
#[expect(dead_code, reason = "its main is for the command line")]
mod example;

const WORKLOADS: usize = 24;
/// Far from the others: the model must not judge it.
const STRANGER: &str = "w023.x";

#[test]
fn both_example_schedulers_choose_the_same_partner() {
    let mut names = FeatureSchema::standard().names().to_vec();
    names.extend(
        ["subject_family=w003", "co_runner_family=w004", "co_runner_workload=w005.x"].map(String::from),
    );
    let schema = FeatureSchema::new(&names).unwrap();
    let mut profiles = profiles(WORKLOADS);
    profiles[WORKLOADS - 1].fields.insert("step_seconds".to_owned(), 1e4);
    let profiles = Profiles::new(profiles).unwrap();
    let known: Vec<_> = profiles.iter().filter(|profile| profile.workload.as_str() != STRANGER).collect();
    let sharing: [SharingMode; 2] = ["time_slice", "mps(0.5,0.5)"].map(|mode| mode.parse().unwrap());
    let mut rows = Vec::new();
    for (index, subject) in known.iter().enumerate() {
        for co_runner in &known {
            schema.encode(subject, co_runner, &sharing[index % 2], &mut rows);
        }
    }
    let spec = model_of(schema, &rows, |prepared| forest(prepared, 40, 5));
    let folder = tempfile::tempdir().unwrap();
    let (model, file) = (folder.path().join("model.onnx"), folder.path().join("profiles.json"));
    std::fs::write(&model, export(&spec).unwrap()).unwrap();
    std::fs::write(&file, profiles.to_json()).unwrap();

    let choose = |sharing: &str, subject: &str| {
        let choice = example::choose(&model, &file, "h100", sharing, subject).unwrap();
        choice.map_or("run it alone".to_owned(), |(upper, name)| format!("{name} {upper:.4}"))
    };
    let mut cases = vec![("time_slice", ["time_slice", "1", "1"], "w002.x")];
    cases.push(("mps(0.5,0.5)", ["mps", "0.5", "0.5"], "w007.x"));
    cases.push(("mps(0.5,0.5)", ["mps", "0.5", "0.5"], STRANGER));
    let chosen: Vec<_> = cases.iter().map(|(sharing, _, subject)| choose(sharing, subject)).collect();
    assert!(!chosen[0].contains(STRANGER) && chosen[0].starts_with('w'), "{chosen:?}");
    assert_eq!(chosen[2], "run it alone");

    let Some(python) = python() else { return };
    for ((_, arguments, subject), chosen) in cases.iter().zip(&chosen) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/scheduler.py");
        let mut command = Command::new(&python);
        command.arg(script).args([&model, &file]).arg("h100").args(arguments).arg(subject);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        if error.contains("No module named 'onnxruntime'") {
            println!("skipped: .venv has no onnxruntime");
            return;
        }
        assert!(output.status.success(), "{error}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), *chosen, "beside {subject}");
    }
}
