//! A new workload and a new GPU through the command line: refused or flagged, then calibrated by a few measurements.

use assert_cmd::Command;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const KNOWN: &str = r#""tr_block", "tr_conv", "tr_mlp", "tr_lstm", "tr_gnn", "in_prefill", "in_encoder", "in_vision1", "in_embed""#;
const NEW: &str = r#""st_fp64""#;

fn elastico(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("elastico").expect("the binary");
    command.args(arguments).current_dir(folder).timeout(std::time::Duration::from_mins(5));
    command
}

fn said(folder: &Path, arguments: &[&str], code: i32) -> String {
    let output = elastico(folder, arguments).assert().code(code).get_output().stderr.clone();
    String::from_utf8(output).expect("UTF-8 on stderr")
}

/// Simulates a campaign; its dataset is `NAME/dataset`.
fn campaign(folder: &Path, name: &str, device: &str, seed: u32, pairs: u32, subjects: &str) {
    let text = format!(
        "schema = 1\nname = \"{name}\"\nseed = {seed}\ndevice = \"{device}\"\nsharing = [\"time_slice\", \"mps(0.5,0.5)\"]\n\
         max_pairs = {pairs}\n[workloads]\nsubjects = [{subjects}]\nco_runners = [{KNOWN}]\n"
    );
    fs::write(folder.join(format!("{name}.toml")), text).expect("a temporary folder");
    elastico(folder, &["-q", "profile", "run", &format!("{name}.toml"), "--out", name]).assert().success();
}

type Key = (String, String, String);

/// Slowdowns by subject, co-runner and sharing mode as a dataset has them, mean of the repeats.
fn measured(folder: &Path, dataset: &str) -> BTreeMap<Key, f64> {
    let csv = elastico(folder, &["-q", "dataset", "export", dataset]).assert().success();
    let text = String::from_utf8(csv.get_output().stdout.clone()).expect("UTF-8 on stdout");
    let mut lines = text.lines().map(|line| {
        // A sharing mode holds a comma and stands in quotes.
        let mut inside = false;
        line.split(|letter: char| {
            inside ^= letter == '"';
            letter == ',' && !inside
        })
        .map(|cell| cell.trim_matches('"').to_owned())
        .collect::<Vec<String>>()
    });
    let header = lines.next().expect("a header");
    let column = |name: &str| header.iter().position(|known| known == name).expect("a column");
    let keys = ["subject_workload", "co_runner_workload", "sharing"].map(column);
    let (slowdown, outcome) = (column("slowdown_ratio"), column("outcome"));
    let mut cells: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for row in lines.filter(|row| row[outcome] == "ok" && !row[keys[1]].is_empty()) {
        let [subject, co_runner, sharing] = keys.map(|key| row[key].clone());
        cells
            .entry((subject, co_runner, sharing))
            .or_default()
            .push(row[slowdown].parse().expect("a number"));
    }
    cells.into_iter().map(|(key, values)| (key, values.iter().sum::<f64>() / values.len() as f64)).collect()
}

/// MAPE of a model on the pairs of `truth` that the probes do not have, and the share of them in its domain.
fn error(folder: &Path, model: &str, truth: &str, probes: &str) -> (f64, f64) {
    let probed: BTreeSet<(String, String)> =
        measured(folder, probes).into_keys().map(|(subject, co_runner, _)| (subject, co_runner)).collect();
    let truth_rows = measured(folder, truth);
    let predict =
        ["-q", "predict", "--model", model, "--dataset", truth, "--backend", "native", "--format", "json"];
    let output = elastico(folder, &predict).assert().success().get_output().stdout.clone();
    let table: Value = serde_json::from_slice(&output).expect("JSON on stdout");
    let (mut errors, mut inside) = (Vec::new(), 0);
    for row in table["rows"].as_array().expect("rows") {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let key = (text("subject"), text("co_runner"), text("sharing"));
        let Some(truth) = truth_rows.get(&key) else { continue };
        if !probed.contains(&(key.0, key.1)) {
            errors.push((row["slowdown"].as_f64().expect("a number") - truth).abs() / truth);
            inside += u32::from(row["in_domain"] == true);
        }
    }
    assert!(errors.len() >= 40, "only {} rows to judge", errors.len());
    (errors.iter().sum::<f64>() / errors.len() as f64, f64::from(inside) / errors.len() as f64)
}

#[test]
fn a_few_probes_teach_a_new_family_and_a_new_device() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path();
    campaign(folder, "base", "sim:h100", 3, 50, KNOWN);
    elastico(folder, &["-q", "train", "base/dataset", "--out", "base.onnx"]).assert().success();

    // A new family: nothing else keeps the units for double precision busy, so that no other could teach it.
    campaign(folder, "probes", "sim:h100", 5, 8, NEW);
    campaign(folder, "truth", "sim:h100", 7, 40, NEW);
    let calibrate = ["train", "probes/dataset", "--calibrate", "base.onnx", "--out", "family.onnx"];
    let told = said(folder, &[&calibrate[..], &["--dry-run"]].concat(), 0);
    assert!(told.contains("would calibrate") && !folder.join("family.onnx").exists(), "{told}");
    said(folder, &calibrate, 0);
    let card = fs::read_to_string(folder.join("family.md")).expect("the card beside the model");
    for words in
        ["simulated data", "base model", "offset of the subject", "held-out families", "new workloads"]
    {
        assert!(card.contains(words), "{words}: {card}");
    }
    let (before, _) = error(folder, "base.onnx", "truth/dataset", "probes/dataset");
    let (after, inside) = error(folder, "family.onnx", "truth/dataset", "probes/dataset");
    println!("family: {before} {after} {inside}");
    assert!(after < 0.95 * before, "{before} to {after}");

    // A new device: flagged, then taught.
    campaign(folder, "second", "sim:a10", 5, 20, KNOWN);
    campaign(folder, "second-truth", "sim:a10", 9, 60, KNOWN);
    let (before, inside) = error(folder, "base.onnx", "second-truth/dataset", "second/dataset");
    assert!(inside == 0.0, "{inside} of the rows of an unknown device are in the domain");
    let told = said(
        folder,
        &["predict", "--model", "base.onnx", "--dataset", "second/dataset", "--backend", "native"],
        0,
    );
    assert!(told.contains("not on a10") && told.contains("train --calibrate"), "{told}");
    let export =
        ["-q", "dataset", "export", "second-truth/dataset", "--table", "profiles", "--out", "second.json"];
    elastico(folder, &export).assert().success();
    let pair = measured(folder, "second-truth/dataset").into_keys().next().expect("a pair");
    let ask =
        ["whatif", "pair", &pair.0, &pair.1, "--profiles", "second.json", "--format", "json", "--model"];
    let stranger = elastico(folder, &[&ask[..], &["base.onnx"]].concat()).assert().code(1);
    let answer: Value = serde_json::from_slice(&stranger.get_output().stdout).expect("JSON on stdout");
    assert_eq!(answer["verdict"], "cannot_tell", "{answer}");
    assert!(answer["binds"].as_str().expect("a text").contains("not trained on a10"), "{answer}");

    let calibrate = ["-q", "train", "second/dataset", "--calibrate", "base.onnx", "--out", "second.onnx"];
    elastico(folder, &calibrate).assert().success();
    let card = fs::read_to_string(folder.join("second.md")).expect("the card beside the model");
    assert!(card.contains("the device a10") && card.contains("covers a10 alone"), "{card}");
    assert!(fs::metadata(folder.join("second.onnx")).expect("the model").len() <= 2_000_000);
    let (after, inside) = error(folder, "second.onnx", "second-truth/dataset", "second/dataset");
    println!("device: {before} {after} {inside}");
    assert!(after < 0.95 * before && inside > 0.5, "{before} to {after}, {inside} in the domain");

    // What cannot be meant.
    let refused = [
        (&["base/dataset", "--calibrate", "base.onnx"][..], "nothing to calibrate"),
        (&["second/dataset", "--calibrate", "second.onnx"], "calibrated already"),
        (&["probes/dataset", "--calibrate", "x.onnx"], "cannot read x.onnx"),
        (&["probes/dataset", "--calibrate", "base.md"], "cannot calibrate the model `base.md`"),
        (&["probes/dataset", "--calibrate", "base.onnx", "--learner", "mean"], "cannot be used with"),
        (&["probes/dataset", "--calibrate", "base.onnx", "--level", "0.8"], "cannot be used with"),
        (&["probes/dataset", "--calibrate", "base.onnx", "--config", "c.toml"], "cannot be used with"),
    ];
    for (arguments, words) in refused {
        let told = said(folder, &[&["train"], arguments, &["--out", "refused.onnx"]].concat(), 2);
        assert!(told.contains(words), "{arguments:?}: {told}");
        assert!(!folder.join("refused.onnx").exists());
    }
    let onto = ["train", "probes/dataset", "--calibrate", "base.onnx", "--out", "base.onnx", "--force"];
    assert!(said(folder, &onto, 2).contains("which is read"));
    campaign(folder, "few", "sim:l40s", 5, 4, KNOWN);
    let few = ["train", "few/dataset", "--calibrate", "base.onnx", "--out", "refused.onnx"];
    assert!(said(folder, &few, 2).contains("too few"), "a handful of pairs on a new device");
    let both = ["-q", "dataset", "merge", "second/dataset", "probes/dataset", "--out", "both"];
    elastico(folder, &both).assert().success();
    let both = ["train", "both", "--calibrate", "base.onnx", "--out", "refused.onnx"];
    assert!(said(folder, &both, 2).contains("of 2 devices"));
}
