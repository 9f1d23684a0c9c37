//! A scheduler that talks JSON lines to `place --serve`.

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;

#[test]
fn no_line_ends_a_session() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../placement/examples");
    let path = |name: &str| examples.join(name).display().to_string();
    let output = Command::cargo_bin("elastico")
        .unwrap()
        .args(["-q", "place", "--serve", "--cluster", &path("cluster.toml"), "--jobs", &path("jobs.toml")])
        .write_stdin(&b"\xff\xfe\n{\"advance\": {\"job\": \"pretrain\", \"work_steps_left\": -5, \"waited_seconds\": 0}}\n{\"solve\": true}\n"[..])
        .assert()
        .success()
        .get_output()
        .clone();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[1]["error"].as_str().unwrap().contains("no UTF-8"), "{}", lines[1]);
    assert!(lines[2]["error"].as_str().unwrap().contains("work_steps_left is -5"), "{}", lines[2]);
    assert!(lines[1]["hint"].is_string() && lines[2]["hint"].is_string());
    let restarts =
        lines[0]["placement"]["assignments"].as_array().unwrap().iter().map(|run| &run["restarts"]);
    assert!(restarts.into_iter().all(|restarts| restarts == false), "nobody ran before");
    assert!(lines[3]["placement"]["gap"].is_number());
}

#[test]
fn each_line_is_answered_and_a_bad_one_changes_nothing() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../placement/examples");
    let path = |name: &str| examples.join(name).display().to_string();
    let events = [
        r#"{"finish": "pretrain"}"#,
        r#"{"submit": {"id": "late", "shape": [{"gpus": 2, "step_seconds": 0.5}], "gpus_max": 2}}"#,
        r#"{"submit": {"id": "late", "shape": [{"step_seconds": 0.5}]}}"#,
        r#"{"submit": {"id": "odd", "wieght": 2}}"#,
        "",
        "{",
        r#"{"finish": "pretrain"}"#,
        r#"{"solve": true}"#,
        r#"{"solve": true, "finish": "late"}"#,
        &format!(r#"{{"finish": "{}"}}"#, "z".repeat(100_000)),
        &format!(r#"{{"advance": {{"{}": 1}}}}"#, "z".repeat(100_000)),
    ];
    let output = Command::cargo_bin("elastico")
        .unwrap()
        .args(["-q", "place", "--serve", "--cluster", &path("cluster.toml"), "--jobs", &path("jobs.toml")])
        .write_stdin(events.join("\n"))
        .assert()
        .success()
        .get_output()
        .clone();
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.iter().all(|line| line["schema"] == "elastico.session/1"));
    let numbers: Vec<u64> = lines.iter().map(|line| line["line"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11], "an empty line is no event");
    assert!(lines[0]["placement"]["gap"].as_f64().unwrap() < 0.05);
    assert_eq!(lines[2]["decisions"][0]["decision"], "runs");
    assert_eq!(lines[2]["decisions"][0]["shape"]["gpus"], 2);
    assert!(lines[3]["error"].as_str().unwrap().contains("a job `late` already"), "{}", lines[3]);
    assert!(lines[4]["error"].as_str().unwrap().contains("wieght"), "{}", lines[4]);
    assert_eq!(lines[4]["hint"], "did you mean `weight`?");
    assert!(lines[5]["hint"].as_str().unwrap().contains("submit"));
    assert!(lines[6]["error"].as_str().unwrap().contains("there is no job `pretrain`"));
    let jobs = |key: &str| lines[7]["placement"][key].as_array().unwrap().len();
    let before = |key: &str| lines[0]["placement"][key].as_array().unwrap().len();
    assert_eq!(jobs("assignments") + jobs("waiting"), before("assignments") + before("waiting"));
    assert!(lines[8]["error"].as_str().unwrap().contains("is no event"));
    for line in &lines[9..] {
        assert!(line.to_string().len() < 1500, "a line is not repeated in its answer");
    }
}
