//! What to measure next: from a first campaign to the second, and against random order on the simulated device.

use assert_cmd::Command;
use elastico_core::Seed;
use elastico_datasets::Dataset;
use elastico_trainer::{CurveOptions, ExampleOptions, LearnerOptions, Strategy, learning_curve};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn elastico(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("elastico").expect("the binary");
    command.args(arguments).current_dir(folder).timeout(std::time::Duration::from_mins(5));
    command
}

fn campaign(most_pairs: &str, subjects: &str) -> String {
    format!(
        "schema = 1\nname = \"first\"\nseed = 3\ndevice = \"sim:h100\"\nsharing = [\"time_slice\"]\n{most_pairs}\n\
         [workloads]\nsubjects = [{subjects}]\n\
         [stopping]\nmin_repeats = 2\nmax_repeats = 2\nhalf_width = 0.5\n"
    )
}

fn sides(row: &Value) -> BTreeSet<String> {
    ["subject", "co_runner"].map(|side| row[side].as_str().expect("a name").to_owned()).into()
}

const NEXT: [&str; 12] = [
    "profile",
    "next",
    "--model",
    "model.onnx",
    "--dataset",
    "first/dataset",
    "--device",
    "sim:h100",
    "--budget",
    "8",
    "--workloads",
    "tr_mlp,tr_conv,in_encoder,in_decode",
];

#[test]
fn a_proposal_is_a_campaign_that_runs_and_merges() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path();
    fs::write(
        folder.join("first.toml"),
        campaign("max_pairs = 12", r#""tr_mlp", "tr_conv", "in_encoder", "in_decode""#),
    )
    .expect("a temporary folder");
    elastico(folder, &["-q", "profile", "run", "first.toml", "--out", "first"]).assert().success();
    elastico(folder, &["-q", "train", "first/dataset"]).assert().success();

    let output = elastico(folder, &NEXT).args(["--format", "json"]).assert().success().get_output().clone();
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON on stdout");
    assert_eq!(answer["schema"], "elastico.profile_next/1");
    let rows = answer["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 8);
    // Not every workload was in the first campaign: those come first, as isolated runs.
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    let alone = rows.iter().take_while(|row| row["reason"] == "isolated run").count();
    assert_eq!(alone > 0, talk.contains("no isolated run"), "{talk}");
    assert!(rows[alone..].iter().all(|row| row["reason"] == "pair" && row["score"].is_number()));

    elastico(folder, &NEXT).args(["--out", "second.toml", "--dry-run"]).assert().success();
    assert!(!folder.join("second.toml").exists(), "a dry run writes nothing");
    elastico(folder, &NEXT).args(["--out", "second.toml"]).assert().success();
    elastico(folder, &NEXT).args(["--out", "second.toml"]).assert().code(2);
    let printed = elastico(folder, &NEXT).assert().success().get_output().stdout.clone();
    assert_eq!(printed, fs::read(folder.join("second.toml")).expect("the campaign"), "the same on stdout");

    elastico(folder, &["-q", "profile", "run", "second.toml", "--out", "second"]).assert().success();
    let merge = ["-q", "dataset", "merge", "first/dataset", "second/dataset", "--out", "both"];
    elastico(folder, &merge).assert().success();
    let pairs = |name: &str| -> BTreeSet<BTreeSet<String>> {
        let dataset = Dataset::read(&folder.join(name)).expect("a dataset");
        let text = |column: &str, row: usize| {
            let column = dataset.pairs.text(column).expect("a column of names");
            column.get(row).expect("a name").to_owned()
        };
        let row = |row| [text("subject_workload", row), text("co_runner_workload", row)].into();
        (0..dataset.pairs.rows()).map(row).collect()
    };
    let (before, after) = (pairs("first/dataset"), pairs("both"));
    for row in rows {
        assert!(!before.contains(&sides(row)), "measured before: {row}");
        assert!(after.contains(&sides(row)), "not measured: {row}");
    }

    // Once all have their isolated runs, no pair is proposed that either campaign measured.
    elastico(folder, &["-q", "train", "both", "--force"]).assert().success();
    let mut third = NEXT;
    third[5] = "both";
    let output = elastico(folder, &third).args(["--format", "json"]).assert().success().get_output().clone();
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON on stdout");
    let rows = answer["rows"].as_array().expect("rows");
    assert!(
        rows.iter().all(|row| row["reason"] == "isolated run" || !after.contains(&sides(row))),
        "{rows:?}"
    );
}

#[test]
fn active_order_beats_random_order_on_the_simulated_device() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path();
    fs::write(folder.join("pool.toml"), campaign("", r#""training", "inference""#))
        .expect("a temporary folder");
    elastico(folder, &["-q", "profile", "run", "pool.toml", "--out", "pool"]).assert().success();
    let dataset = Dataset::read(&folder.join("pool/dataset")).expect("the pool");
    let options = CurveOptions {
        batch: 40,
        steps: 2,
        seeds: (0..8).map(Seed).collect(),
        strategies: vec![Strategy::Random, Strategy::Active],
        settings: LearnerOptions::default().with_trees(80),
        ..CurveOptions::default()
    };
    let curve = learning_curve(&dataset, &ExampleOptions::default(), &options).expect("a curve");
    let ratio = curve.error_ratio(Strategy::Active, Strategy::Random, 100).expect("eight seeds");
    assert!(ratio.point < 0.95 && ratio.upper < 1.0, "{ratio:?}\n{curve}");
}
