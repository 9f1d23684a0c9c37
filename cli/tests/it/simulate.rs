//! `elastico simulate sweep`, `compare` and `run` with their pages.

use crate::elastico;
use std::fs;
use std::path::Path;

const SPEC: &str = r#"schema = "elastico.sweep/1"
baseline = "fifo"
clusters = ["n1g8"]
loads = [0.6, 1.2]
policies = ["fifo", "srtf_oracle"]
seeds = 3
[synthetic]
workloads = "workloads.csv"
jobs_per_gpu = 6
"#;

fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a temporary folder");
    let workloads = "workload,kind,sm_active_ratio\ntrain,training,0.4\ndecode,inference,0.2\n";
    fs::write(place.path().join("workloads.csv"), workloads).expect("a file");
    fs::write(place.path().join("sweep.toml"), SPEC).expect("a file");
    place
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join(name)).expect("a file")
}

#[test]
fn a_sweep_on_a_full_disk_goes_on_where_it_was_and_ends_with_the_same_bytes() {
    let place = place();
    let folder = place.path();
    let (code, stdout, stderr) = elastico(folder, "simulate sweep sweep.toml --out whole --jobs 1");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");
    let (code, _, _) = elastico(folder, "simulate sweep sweep.toml --out two --jobs 2");
    assert_eq!(code, Some(0));

    // No file may grow beyond a few kilobytes: the journal is cut within a line.
    let binary = assert_cmd::cargo::cargo_bin("elastico");
    let script =
        format!("trap '' XFSZ; ulimit -f 12; exec {} simulate sweep sweep.toml --out cut", binary.display());
    let output =
        std::process::Command::new("sh").args(["-c", &script]).current_dir(folder).output().expect("a shell");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(2 | 3)), "{stderr}");
    assert!(stderr.contains("runs.jsonl could not be written"), "{stderr}");
    let journal = read(folder, "cut/runs.jsonl");
    let lines = journal.split(|byte| *byte == b'\n').count() - 1;
    assert!((1..12).contains(&lines) && journal.ends_with(b"\n"), "{lines} lines");
    assert!(!folder.join("cut/summary.json").exists());

    let (code, _, stderr) = elastico(folder, "simulate sweep sweep.toml --out cut");
    assert_eq!(code, Some(2));
    assert!(stderr.contains("--resume"), "{stderr}");
    let (code, _, stderr) = elastico(folder, "simulate sweep sweep.toml --out cut --resume");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.starts_with(&format!("{lines} of 12 runs are there already")), "{stderr}");
    for name in ["summary.json", "summary.csv", "report.html", "sweep.json"] {
        assert_eq!(read(folder, &format!("whole/{name}")), read(folder, &format!("cut/{name}")), "{name}");
        assert_eq!(read(folder, &format!("whole/{name}")), read(folder, &format!("two/{name}")), "{name}");
    }
    let page = String::from_utf8(read(folder, "whole/report.html")).expect("text");
    assert!(page.contains("simulated n1g8") && page.contains("Mean completion time over load"));
}

#[test]
fn a_failed_run_is_listed_and_ends_with_four() {
    let place = place();
    let folder = place.path();
    let spec = SPEC.replace("[\"fifo\", \"srtf_oracle\"]", "[\"fifo\", \"external:false\"]");
    fs::write(folder.join("sweep.toml"), spec.replace("seeds = 3", "seeds = 1")).expect("a file");
    let (code, stdout, stderr) = elastico(folder, "simulate sweep sweep.toml --out out");
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stdout.contains("runs without a result") && stdout.contains("external:false"), "{stdout}");
}

#[test]
fn pages_are_written_and_change_no_answer() {
    let place = place();
    let folder = place.path();
    let jobs =
        "job_id,num_gpu,submit_time,model_name,duration\n0,4,0,vgg19,100\n1,2,10,vgg11,50\n2,2,20,vgg11,50\n";
    fs::write(folder.join("jobs.csv"), jobs).expect("a file");
    let scene = "--trace jobs.csv --time-unit s --cluster n1g4 --format json";
    let (_, plain, _) = elastico(folder, &format!("simulate run {scene} --policy fifo"));
    let (code, with, stderr) =
        elastico(folder, &format!("simulate run {scene} --policy fifo --report run.html"));
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(plain, with);
    let page = String::from_utf8(read(folder, "run.html")).expect("text");
    for part in
        ["simulated n1g4", "Who runs where and when", "Utilisation over time", "Distribution of completion"]
    {
        assert!(page.contains(part), "{part}");
    }
    let (code, _, stderr) =
        elastico(folder, &format!("simulate run {scene} --policy fifo --report run.html"));
    assert_eq!(code, Some(2));
    assert!(stderr.contains("exists already"), "{stderr}");

    let report = format!("simulate run {scene} --policy fifo --report none/a/run.html");
    let (code, _, stderr) = elastico(folder, &report);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.starts_with("error: cannot write `none/a/run.html`\n"), "{stderr}");
    assert!(!folder.join("none").exists());
    let twice = format!("simulate compare {scene} --policies fifo,srtf_oracle --loads 0.5,1,0.50");
    let (code, _, stderr) = elastico(folder, &twice);
    assert_eq!(code, Some(2));
    assert!(stderr.starts_with("error: the load 0.5 is given twice"), "{stderr}");

    let compare = format!("simulate compare {scene} --policies fifo,srtf_oracle --seeds 3 --loads 0.5,1");
    let (code, json, stderr) = elastico(folder, &format!("{compare} --report compare.html"));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(json.contains("\"schema\": \"elastico.sweep_summary/1\""), "{json}");
    assert!(folder.join("compare.html").is_file());
    let (code, _, stderr) = elastico(folder, &format!("{compare} --report jobs.csv --force"));
    assert_eq!(code, Some(2));
    assert!(stderr.contains("which is read"), "{stderr}");
}

/// The whole way of examples/headline with four workloads.
#[test]
fn a_campaign_and_a_predictor_become_a_simulation_and_a_page() {
    let place = place();
    let folder = place.path();
    let subjects = ["tr_mlp.b64_h512_bf16", "tr_lstm.b64_s64_h512_fp16", "in_vision1.i56_c64_l6_fp16"];
    let campaign = format!(
        "schema = 1\nname = \"few\"\nseed = 3\ndevice = \"sim:h100\"\nsharing = [\"time_slice\", \"mps(0.5,0.5)\"]\n\
         [workloads]\nsubjects = {subjects:?}\n[stopping]\nmin_repeats = 2\nmax_repeats = 2\nhalf_width = 0.5\n"
    );
    fs::write(folder.join("campaign.toml"), campaign).expect("a file");
    let (code, _, stderr) = elastico(folder, "profile run campaign.toml --out few");
    assert_eq!(code, Some(0), "{stderr}");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/bundled/simulated-h100-a100.onnx");
    let make = format!("simulate tables few/dataset --model {model} --out tables");
    let (code, stdout, stderr) = elastico(folder, &make);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("truth: simulated h100"), "{stdout}");
    let list = String::from_utf8(read(folder, "tables/workloads.csv")).expect("text");
    assert_eq!(list.lines().count(), 4, "{list}");
    let truth: serde_json::Value =
        serde_json::from_slice(&read(folder, "tables/truth.json")).expect("a document");
    // Three workloads, each beside each of the three.
    assert_eq!(truth["pairs"].as_array().map(Vec::len), Some(9));

    let (code, _, stderr) = elastico(folder, &make);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("exists already") && stderr.contains("--force"), "{stderr}");
    let (code, _, stderr) = elastico(folder, &make.replace("--out tables", "--out other --device a100-40gb"));
    assert_eq!(code, Some(2));
    assert!(stderr.contains("no pairs on `a100-40gb`") && stderr.contains("it has h100"), "{stderr}");
    for limit in ["nan", "-1", "0", "0.2", "inf"] {
        let (code, _, stderr) =
            elastico(folder, &format!("{} --limit {limit}", make.replace("--out tables", "--out other")));
        assert_eq!(code, Some(2), "{stderr}");
        let expected = limit.replace("nan", "NaN");
        assert!(stderr.starts_with(&format!("error: a limit of {expected} is no slowdown\n")), "{stderr}");
    }
    assert!(!folder.join("other").exists());

    let policies = "[\"fifo\", \"lucid\", \"elastico\", \"elastico_oracle\", \"elastico_no_pairs\"]";
    let spec = SPEC
        .replace("[\"fifo\", \"srtf_oracle\"]", policies)
        .replace("n1g8", "h100:n1g8")
        .replace("workloads.csv", "tables/workloads.csv")
        + "elastic_gpus = [1, 8]\n[tables]\ntruth = \"tables/truth.json\"\nplanner = \"tables/planner.json\"\n";
    fs::write(folder.join("sweep.toml"), spec).expect("a file");
    let (code, _, stderr) = elastico(folder, "simulate sweep sweep.toml --out runs");
    assert_eq!(code, Some(0), "{stderr}");
    let (code, _, stderr) = elastico(folder, "simulate headline sweep.toml --runs runs --out headline.md");
    assert_eq!(code, Some(0), "{stderr}");
    let page = String::from_utf8(read(folder, "headline.md")).expect("text");
    for part in
        ["| 8 | 1.2 | 3 |", "simulated h100", "30 of 30 runs", "| pairs |", "All policies, 8 GPUs, load 0.6"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    let (code, _, stderr) = elastico(folder, "simulate headline sweep.toml --runs nowhere --out none.md");
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("the folder nowhere is not there"), "{stderr}");
    assert!(!folder.join("nowhere").exists() && !folder.join("none.md").exists());
    let (code, _, stderr) =
        elastico(folder, "simulate headline sweep.toml --runs runs --out runs/runs.jsonl --force");
    assert_eq!(code, Some(2));
    assert!(stderr.contains("lies in the folder of the runs"), "{stderr}");
    // A sweep that is not through has a page of what is there, and says so.
    let journal = String::from_utf8(read(folder, "runs/runs.jsonl")).expect("text");
    let some: String = journal.split_inclusive('\n').take(12).collect();
    fs::write(folder.join("runs/runs.jsonl"), some).expect("a file");
    let (code, _, stderr) =
        elastico(folder, "simulate headline sweep.toml --runs runs --out headline.md --force");
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("12 of 30 runs"), "{stderr}");
}
