//! `profile exec` as far as it goes without a GPU.

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

fn exec(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("elastico").expect("the binary");
    command.args(["profile", "exec", "--out", "run"]).args(arguments).current_dir(folder);
    command.timeout(Duration::from_mins(1));
    command
}

fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = exec(folder.path(), arguments).assert().code(code).get_output().stderr.clone();
    let text = String::from_utf8_lossy(&output);
    for word in words {
        assert!(text.contains(word), "{arguments:?}: {word} in {text}");
    }
    assert!(!folder.path().join("run").exists(), "a refused call leaves nothing");
}

#[test]
fn a_dry_run_says_what_would_run_and_starts_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let arguments = [
        "--a",
        "sh train.sh --lr 1",
        "--b",
        "sh train.sh --lr 2",
        "--kind-b",
        "inference",
        "--sharing",
        "time_slice",
        "--sharing",
        "mps(0.3,0.7)",
        "--repeats",
        "4",
        "--dry-run",
        "--format",
        "json",
    ];
    let output = exec(folder.path(), &arguments).assert().success().get_output().stdout.clone();
    let answer: Value = serde_json::from_slice(&output).expect("JSON on stdout");
    assert_eq!(answer["schema"], "elastico.profile_exec_plan/1");
    let settings = &answer["settings"];
    // One script twice: the names tell them apart.
    assert_eq!((&settings["a"]["name"], &settings["b"]["name"]), (&"train-a".into(), &"train-b".into()));
    assert_eq!(settings["b"]["kind"], "inference");
    assert_eq!(settings["stopping"]["min_repeats"], 4);
    assert_eq!(settings["sharing"], serde_json::json!(["time_slice", "mps(0.3,0.7)"]));
    assert_eq!(answer["protocol"]["min_seconds"], 5.0);
    assert!(!folder.path().join("run").exists());

    let table = exec(folder.path(), &["--a", "sh a.sh", "--b", "sh b.sh", "--dry-run"]);
    let text = String::from_utf8(table.unwrap_output()).expect("text");
    assert!(text.contains("a beside b") && text.contains("a alone"), "{text}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_a_remedy() {
    let good = ["--a", "sh a.sh", "--b", "sh b.sh"];
    let with = |more: &[&'static str]| -> Vec<&'static str> { good.iter().chain(more).copied().collect() };
    refused(&["--a", "sh a.sh"], 2, &["--b"]);
    refused(&["--a", "", "--b", "sh b.sh"], 2, &["--a is empty"]);
    refused(&["--a", "no-such-program x", "--b", "sh b.sh"], 2, &["no program `no-such-program`", "hint:"]);
    refused(&with(&["--sharing", "streams"]), 2, &["two programs", "hint:"]);
    refused(&with(&["--sharing", "exclusive"]), 2, &["cannot run `exclusive`"]);
    refused(&with(&["--sharing", "mps(2,1)"]), 2, &["mps(2,1)"]);
    refused(&with(&["--device", "cpu"]), 2, &["`cpu` runs no commands", "cuda:0"]);
    refused(&with(&["--repeats", "1"]), 2, &["--repeats"]);
    refused(&with(&["--window", "nan"]), 2, &["--window NaN"]);
    refused(&with(&["--window", "9", "--max-window", "3"]), 2, &["less than --window"]);
    refused(&with(&["--name-a", "x", "--name-b", "x"]), 2, &["both be named `x`"]);
}

/// The interface of `assert_cmd` gives the output of a good run only through `assert`.
trait Output {
    fn unwrap_output(self) -> Vec<u8>;
}

impl Output for Command {
    fn unwrap_output(mut self) -> Vec<u8> {
        self.assert().success().get_output().stdout.clone()
    }
}
