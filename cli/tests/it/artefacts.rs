//! What commands write: never over what they read, never half, and never numbers that no model can hold.

use assert_cmd::Command;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const MAPPING: &str = r#"
schema = "elastico.pairs_mapping/1"
name = "small"
[columns]
subject = "victim"
co_runner = "aggressor"
[constants]
device = "a100-40gb"
sharing = "mps(0.5,0.5)"
kind = "training"
[values]
isolated = "solo_s"
colocated = "coloc_s"
unit = "seconds"
"#;

fn elastico(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::cargo_bin("elastico").expect("the binary");
    command.args(arguments.split_whitespace()).current_dir(folder);
    command.timeout(std::time::Duration::from_mins(2));
    command
}

/// stderr of a command that ends with this code.
fn says(folder: &Path, arguments: &str, code: i32) -> String {
    let assert = elastico(folder, arguments).assert();
    let output = assert.get_output();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments}\n{stderr}");
    stderr
}

/// A folder with a dataset `set` of fifteen pairs.
fn with_dataset() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a temporary folder");
    let mut csv = "victim,aggressor,solo_s,coloc_s\n".to_owned();
    for (a, first) in ["a", "b", "c", "d", "e", "f"].iter().enumerate() {
        for (b, second) in ["a", "b", "c", "d", "e", "f"].iter().enumerate().filter(|(b, _)| *b != a) {
            let alone = 1.0 + a as f64;
            let _ = writeln!(csv, "{first},{second},{alone},{}", alone * (1.1 + 0.1 * a.max(b) as f64));
        }
    }
    fs::write(place.path().join("pairs.csv"), csv).expect("a file");
    fs::write(place.path().join("mapping.toml"), MAPPING).expect("a file");
    says(place.path(), "dataset import pairs pairs.csv --mapping mapping.toml --out set", 0);
    place
}

#[test]
fn no_command_writes_over_what_it_reads_or_half_of_what_it_makes() {
    let place = with_dataset();
    let folder = place.path();
    let manifest = fs::read(folder.join("set/manifest.json")).expect("the manifest");
    fs::write(folder.join("train.toml"), "schema = \"elastico.train/1\"\n").expect("a file");
    for arguments in [
        "train set --learner mean --out set/manifest.json --force",
        "train set --learner mean --out set/model.onnx",
        "evaluate set --learners mean --page set/manifest.json --force",
        "dataset export set --table profiles --out set/manifest.json --force",
    ] {
        assert!(says(folder, arguments, 2).contains("lies inside the dataset"), "{arguments}");
    }
    for arguments in [
        "evaluate set --config train.toml --page ./train.toml --force",
        "dataset merge set --out ./set --force",
    ] {
        assert!(says(folder, arguments, 2).contains("which is read"), "{arguments}");
    }
    assert_eq!(fs::read(folder.join("set/manifest.json")).expect("the manifest"), manifest);

    says(folder, "train set --learner mean --out model.onnx", 0);
    let model = fs::read(folder.join("model.onnx")).expect("a model");
    // The card cannot be written: the model stays the old one.
    fs::create_dir(folder.join("card.md")).expect("a folder");
    says(folder, "train set --learner elastic_net --out model.onnx --card card.md --force", 2);
    assert_eq!(fs::read(folder.join("model.onnx")).expect("a model"), model);

    fs::write(folder.join("set/pairs/notes.txt"), "mine").expect("a file");
    let again = "dataset import pairs pairs.csv --mapping mapping.toml --out set --force";
    assert!(says(folder, again, 2).contains("notes.txt` in it is no part of a dataset"));
    assert!(folder.join("set/pairs/notes.txt").exists());
}

#[test]
fn what_the_model_never_saw_is_said_to_be_outside() {
    let place = with_dataset();
    let folder = place.path();
    says(folder, "train set --learner mean --out model.onnx", 0);
    says(folder, "dataset export set --table profiles --out profiles.json", 0);
    let predict =
        "predict --model model.onnx --profiles profiles.json --subject a --co-runner b --format json";
    for (sharing, wanted) in [("mps(0.3,0.7)", true), ("streams", false), ("exclusive", false)] {
        let assert = elastico(folder, &format!("{predict} --sharing {sharing}"))
            .env("ELASTICO_ORT_LIBRARY", "")
            .assert()
            .success();
        let output = assert.get_output();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(answer["rows"][0]["in_domain"] == true, wanted, "{sharing}: {answer}");
        let warned = String::from_utf8_lossy(&output.stderr).contains("nothing is in its domain");
        assert_eq!(warned, !wanted, "{sharing}");
    }
    // Two pairs of one family cannot be split by family: no score at all is a no.
    let stderr = says(folder, "evaluate set --learners mean --splits unseen_device", 1);
    assert!(stderr.contains("no learner could be judged"), "{stderr}");
}
