//! From measuring to placing through the command line, and back after kill -9.

use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

const CAMPAIGN: &str = r#"
schema = 1
name = "road"
seed = 3
device = "sim:h100"
sharing = ["time_slice", "mps(0.5,0.5)"]
max_pairs = 60

[workloads]
subjects = ["training", "inference"]
"#;

const CLUSTER: &str = r#"
[[pool]]
id = "h100"
device = "h100"
nodes = 1
gpus_per_node = 2
price_per_gpu_hour = 3.0
"#;

const JOBS: &str = r#"
[[job]]
id = "train"
workload = "tr_mlp.b64_h512_bf16"

[[job]]
id = "serve"
workload = "in_encoder.b1_s128_h768_fp16"

[[job]]
id = "rank"
workload = "in_rank.b512_h1024_r500_fp16"
"#;

const NEW: &str = r#"
[[job]]
id = "wide"
workload = "tr_mlp.b64_h512_bf16"
gpus_min = 4

[[job]]
id = "stranger"
workload = "nobody_measured_this"
"#;

fn elastico(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("elastico").expect("the binary");
    command.args(arguments).current_dir(folder).timeout(Duration::from_mins(5));
    command
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output =
        elastico(folder, arguments).args(["--format", "json"]).assert().success().get_output().stdout.clone();
    serde_json::from_slice(&output).expect("JSON on stdout")
}

fn measured(folder: &Path) {
    fs::write(folder.join("campaign.toml"), CAMPAIGN).expect("a temporary folder");
    elastico(folder, &["-q", "profile", "run", "campaign.toml", "--out", "run"]).assert().success();
}

#[test]
fn a_dataset_becomes_a_model_and_a_placement() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path();
    measured(folder);
    elastico(folder, &["dataset", "validate", "run/dataset"]).assert().success();
    elastico(folder, &["-q", "train", "run/dataset", "--out", "model.onnx"]).assert().success();
    elastico(folder, &["-q", "train", "run/dataset", "--out", "model.onnx"]).assert().code(2);
    let card = fs::read_to_string(folder.join("model.md")).expect("the card beside the model");
    assert!(card.contains("simulated data"), "{card}");

    let export = ["-q", "dataset", "export", "run/dataset", "--table", "profiles", "--out", "profiles.json"];
    elastico(folder, &export).assert().success();
    let rows = json(
        folder,
        &["predict", "--model", "model.onnx", "--dataset", "run/dataset", "--backend", "native"],
    );
    let rows = rows["rows"].as_array().expect("rows");
    assert!(rows.len() >= 120, "{} rows", rows.len());
    for row in rows {
        let (point, upper) =
            (row["slowdown"].as_f64().expect("a number"), row["slowdown_upper"].as_f64().expect("a number"));
        assert!(point > 0.5 && upper >= point, "{row}");
    }

    fs::write(folder.join("cluster.toml"), CLUSTER).expect("a temporary folder");
    fs::write(folder.join("jobs.toml"), JOBS).expect("a temporary folder");
    let state = [
        "--cluster",
        "cluster.toml",
        "--jobs",
        "jobs.toml",
        "--profiles",
        "profiles.json",
        "--model",
        "model.onnx",
    ];
    let with = |head: &[&'static str]| [head, &state].concat();
    let placement = json(folder, &with(&["place"]));
    assert_eq!(placement["schema"], "elastico.placement/1");
    assert_eq!(placement["basis"]["simulated"], true);
    let (value, bound) =
        (placement["objective"].as_f64().expect("a value"), placement["bound"].as_f64().expect("a bound"));
    assert!(value > 0.0 && value <= bound * (1.0 + 1e-9), "{value} {bound}");
    questions(folder, &with);

    let report = ["-q", "report", "run/dataset", "--out", "report.html"];
    elastico(folder, &report).assert().success();
    let html = fs::read_to_string(folder.join("report.html")).expect("the page");
    assert!(html.contains("simulated h100"));
    assert!(!html.contains("http://") || !html.contains("<script src"), "the page must need no network");
}

/// Every question about a state has an answer with a schema id, a bound and a basis, and the exit code of its verdict.
fn questions<'a>(folder: &Path, with: &dyn Fn(&[&'a str]) -> Vec<&'a str>) {
    fs::write(folder.join("new.toml"), NEW).expect("a temporary folder");
    let ask = |code: i32, head: &[&'a str]| -> Value {
        let output = elastico(folder, &with(head)).args(["--format", "json"]).assert().code(code);
        let answer: Value = serde_json::from_slice(&output.get_output().stdout).expect("JSON on stdout");
        assert_eq!(answer["basis"]["simulated"], true, "{head:?}");
        elastico(folder, &with(head)).assert().code(code);
        answer
    };
    let number = |value: &Value| value.as_f64().expect("a number");
    let more = ask(0, &["whatif", "capacity", "--add", "h100:1,2", "--remove", "h100:all"]);
    assert_eq!(more["schema"], "elastico.whatif.capacity/1");
    let steps = more["steps"].as_array().expect("steps");
    assert_eq!(steps.iter().map(|step| number(&step["gpus"])).collect::<Vec<_>>(), [-2.0, 1.0, 2.0]);
    assert!(number(&steps[0]["after"]["value"]) < 1e-9, "{more}");
    let alone = ask(1, &["whatif", "harmed", "--without-sharing"]);
    assert!(number(&alone["value_delta"]) < 0.0 && number(&alone["harmed"]) >= 1.0, "{alone}");
    let admitted = ask(1, &["whatif", "admit", "new.toml"]);
    let verdicts: Vec<&str> =
        admitted["jobs"].as_array().expect("jobs").iter().filter_map(|job| job["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["no", "cannot_tell"], "{admitted}");
    let price = ask(0, &["whatif", "price", "--per-hour"]);
    assert_eq!(price["prices"][0]["resource"], "gpu_slots", "{price}");
    let size = ask(0, &["whatif", "size", "--served", "1.0"]);
    assert!(number(&size["nodes"]) >= 1.0 && size["monotone"] == true, "{size}");
    let never = ask(1, &["whatif", "size", "--throughput", "1000"]);
    assert!(never["nodes"].is_null() && never["why_not"].is_string(), "{never}");
    let robust = elastico(folder, &with(&["whatif", "robust", "--draws", "5", "--format", "json"])).output();
    let robust: Value = serde_json::from_slice(&robust.expect("an answer").stdout).expect("JSON on stdout");
    assert!(number(&robust["pairs"]) >= 1.0 && number(&robust["regret"]["mean"]) < 1.0, "{robust}");
    let charge = ask(0, &["whatif", "charge", "--by-job"]);
    let parts = number(&charge["charged_per_hour"]) + number(&charge["idle_per_hour"]);
    assert!((parts - 6.0).abs() < 1e-9, "{charge}");
    let why = ask(0, &["explain", "serve"]);
    assert!(number(&why["value"]) <= number(&why["bound"]) && why["holders"].is_array(), "{why}");
    elastico(folder, &with(&["explain", "sevre"])).assert().code(2);
    elastico(folder, &with(&["whatif", "admit", "jobs.toml"])).assert().code(2);
}

#[test]
fn python_reads_the_exported_model_as_predict_does() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python");
    if !python.exists() {
        println!("skipped: no .venv with onnxruntime beside the workspace (see notebooks/README.md)");
        return;
    }
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path();
    measured(folder);
    elastico(folder, &["-q", "train", "run/dataset", "--out", "model.onnx"]).assert().success();
    let predict = [
        "predict",
        "--model",
        "model.onnx",
        "--dataset",
        "run/dataset",
        "--features",
        "--backend",
        "native",
        "--format",
        "csv",
    ];
    let csv = elastico(folder, &predict).assert().success().get_output().stdout.clone();
    fs::write(folder.join("predictions.csv"), csv).expect("a temporary folder");
    let script = r"
import csv, json, numpy, onnxruntime
session = onnxruntime.InferenceSession('model.onnx')
names = [f['name'] if isinstance(f, dict) else f for f in json.loads(session.get_modelmeta().custom_metadata_map['elastico.metadata'])['features']]
rows = list(csv.DictReader(open('predictions.csv')))
x = numpy.array([[float(r[n]) if r[n] else numpy.nan for n in names] for r in rows], numpy.float32)
slowdown, upper, domain = session.run(None, {session.get_inputs()[0].name: x})
for name, column in (('slowdown', slowdown), ('slowdown_upper', upper)):
    want = numpy.array([float(r[name]) for r in rows])
    error = numpy.abs(column[:, 0] / want - 1).max()
    assert error < 1e-5, (name, error)
print(len(rows), error)
";
    let output =
        Process::new(&python).args(["-c", script]).current_dir(folder).output().expect("python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn lines(journal: &Path) -> usize {
    fs::read_to_string(journal).map_or(0, |text| text.lines().count())
}

/// Starts a run, kills it once the journal has `after` lines, and says whether it was killed in time.
fn killed(folder: &Path, arguments: &[&str], journal: &Path, after: usize) -> bool {
    let mut child = Process::new(env!("CARGO_BIN_EXE_elastico"))
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let deadline = Instant::now() + Duration::from_mins(1);
    while lines(journal) < after && Instant::now() < deadline && child.try_wait().expect("a child").is_none()
    {
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let status = child.wait().expect("a child");
    !status.success()
}

#[test]
fn a_killed_campaign_resumes_to_the_same_bytes() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path();
    let campaign = CAMPAIGN.replace("max_pairs = 60", "max_pairs = 700");
    fs::write(folder.join("campaign.toml"), campaign).expect("a temporary folder");
    elastico(folder, &["-q", "profile", "run", "campaign.toml", "--out", "whole"]).assert().success();
    let journal = folder.join("torn/journal.jsonl");
    let first = killed(folder, &["-q", "profile", "run", "campaign.toml", "--out", "torn"], &journal, 300);
    let second = killed(folder, &["-q", "profile", "resume", "torn"], &journal, 1500);
    assert!(first && second, "the run was over before it could be killed");
    assert!(lines(&journal) < lines(&folder.join("whole/journal.jsonl")));
    elastico(folder, &["-q", "profile", "resume", "torn"]).assert().success();
    for part in ["manifest.json", "isolated/part-0.parquet", "pairs/part-0.parquet"] {
        let read = |run: &str| fs::read(folder.join(run).join("dataset").join(part)).expect("a part");
        assert!(read("whole") == read("torn"), "{part} differs");
    }
}

#[test]
fn imported_measurements_are_learnt_as_well_as_others_learn_them() {
    let shared = std::env::var_os("ELASTICO_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from);
    let file = shared.join("data/colocation/gavel/simulation_throughputs.json");
    if !file.exists() {
        println!("skipped: `{}` is not there (set ELASTICO_SHARED)", file.display());
        return;
    }
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path();
    let file = file.to_str().expect("a UTF-8 path");
    elastico(folder, &["-q", "dataset", "import", "gavel", file, "--out", "g"]).assert().success();
    let splits = "random_pair,unseen_family";
    let learners = "mean,extra_trees";
    let evaluation = json(
        folder,
        &["-q", "evaluate", "g", "--learners", learners, "--splits", splits, "--page", "g.html"],
    );
    let page = fs::read_to_string(folder.join("g.html")).expect("a page");
    for words in ["imported measurements", "mean (baseline)", "Reliability of the upper bound", "Residuals"] {
        assert!(page.contains(words), "{words}");
    }
    for (split, limit) in [("random_pair", 0.07), ("unseen_family", 0.22)] {
        let row = |learner: &str| {
            let rows = evaluation["rows"].as_array().expect("rows");
            rows.iter().find(|row| row["split"] == split && row["learner"] == learner).expect("a row").clone()
        };
        let (trees, mean) = (row("extra_trees"), row("mean"));
        for field in ["n", "mape", "rmse", "r2", "p95_abs_error", "spearman", "safe_precision", "safe_recall"]
        {
            assert!(trees[field].is_number(), "{field} of {trees}");
        }
        let mape = trees["mape"].as_f64().expect("a number");
        assert!(mape <= limit, "{split}: {mape}");
        assert!(mape < mean["mape"].as_f64().expect("a number"), "{split}: not better than the mean");
    }
}

#[test]
fn help_completions_and_manual_are_there() {
    let place = tempfile::tempdir().expect("a temporary folder");
    for arguments in
        [&["--help"][..], &["profile", "run", "--help"], &["completions", "bash"], &["man"], &["--version"]]
    {
        let output = elastico(place.path(), arguments).assert().success().get_output().stdout.clone();
        assert!(!output.is_empty(), "{arguments:?}");
    }
    elastico(place.path(), &["man", "--out", "pages"]).assert().success();
    assert!(place.path().join("pages/elastico-profile-run.1").exists());
    elastico(place.path(), &["profil"]).assert().code(2);
}
