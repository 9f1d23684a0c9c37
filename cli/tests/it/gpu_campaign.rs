//! `profiler/gpu-campaign.sh` from packing to a validated dataset, with stand-in libraries in place of the driver.

#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

use crate::stand_ins::stand_ins;
use assert_cmd::Command as Elastico;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn before(variable: &str, folder: &Path) -> OsString {
    let mut value = folder.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os(variable) {
        value.push(":");
        value.push(rest);
    }
    value
}

/// The borrowed machine: its libraries and programs are the stand-ins.
fn on_the_machine(script: &Path, out: &Path, seconds: &str, stand_ins: &Path, mock: &Path) -> Output {
    Command::new("bash")
        .arg(script)
        .arg("run")
        .arg(out)
        .arg(seconds)
        .env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", stand_ins))
        .env("PATH", before("PATH", stand_ins))
        .env("ELASTICO_MOCK", mock)
        .env("XDG_CACHE_HOME", mock.join("cache"))
        .output()
        .expect("bash")
}

#[test]
fn a_borrowed_gpu_leaves_a_dataset() {
    let Some(stand_ins) = stand_ins() else { return };
    let binaries = Path::new(env!("CARGO_BIN_EXE_elastico")).parent().expect("a folder of binaries");
    if !binaries.join("libelastico_injection.so").exists() {
        println!("skipped: the injection library is not built (cargo build --release)");
        return;
    }
    let place = tempfile::tempdir().expect("a temporary folder");
    let (packed, out) = (place.path().join("packed"), place.path().join("results"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiler/gpu-campaign.sh");
    let output = Command::new("bash")
        .arg(&script)
        .arg("pack")
        .arg(&packed)
        .env("ELASTICO_BUILT", binaries)
        .output()
        .expect("bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let mock = place.path().join("mock");
    fs::create_dir(&mock).expect("a temporary folder");
    fs::write(mock.join("script"), "name Stand-in H200\nkernel_microseconds * 20\n").expect("a file");
    let start = Instant::now();
    let output = on_the_machine(&packed.join("gpu-campaign.sh"), &out, "100", stand_ins, &mock);
    let summary = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{:.0} s\n{summary}", start.elapsed().as_secs_f64());
    assert!(output.status.success(), "{summary}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(start.elapsed() < Duration::from_mins(3), "the limit of seconds is kept");
    assert!(summary.contains("validate: exit 0"), "{summary}");

    // Few and small files, as they have to travel.
    let files: BTreeSet<String> = fs::read_dir(&out)
        .expect("results")
        .map(|entry| {
            let entry = entry.expect("an entry");
            assert!(entry.metadata().expect("a file").len() < 16_000_000);
            entry.file_name().to_string_lossy().into_owned()
        })
        .collect();
    for name in ["campaign.tar.gz", "doctor.json", "logs.tar.gz", "summary.txt"] {
        assert!(files.contains(name), "no {name} in {files:?}");
    }
    assert!(files.len() <= 8);
    // A second run does not mix with the first.
    let again = on_the_machine(&packed.join("gpu-campaign.sh"), &out, "100", stand_ins, &mock);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("not empty"));

    let data = place.path().join("h200");
    let import = |from: &Path| {
        let mut command = Elastico::cargo_bin("elastico").expect("the binary");
        command.args(["dataset", "import", "campaign"]).arg(from).arg("--out").arg(&data).arg("--force");
        command.assert().success();
    };
    import(&out);
    Elastico::cargo_bin("elastico")
        .expect("the binary")
        .args(["dataset", "validate"])
        .arg(&data)
        .assert()
        .success();
    let sheet = fs::read_to_string(data.join("DATASET.md")).expect("a datasheet");
    assert!(sheet.contains("No GPU took part"), "a stand-in is called one:\n{sheet}");
    assert!(sheet.contains("| `time_slice` |"), "{sheet}");
    let dataset = elastico_datasets::Dataset::read(&data).expect("a dataset");
    let outcomes = dataset.pairs.text("outcome").expect("a column");
    let good = (0..dataset.pairs.rows()).filter(|row| outcomes.get(*row) == Some("ok")).count();
    println!("{good} good rows of {}", dataset.pairs.rows());
    assert!(dataset.pairs.rows() >= 4, "{sheet}");
}

/// Without a driver each step says so and the results are packed all the same.
#[test]
fn a_machine_without_a_driver_says_so() {
    if std::env::var_os("ELASTICO_TEST_WITH_GPU").is_some() {
        println!("skipped: this machine has a driver");
        return;
    }
    let binaries = Path::new(env!("CARGO_BIN_EXE_elastico")).parent().expect("a folder of binaries");
    if !binaries.join("libelastico_injection.so").exists() {
        println!("skipped: the injection library is not built (cargo build --release)");
        return;
    }
    let place = tempfile::tempdir().expect("a temporary folder");
    let (packed, out) = (place.path().join("packed"), place.path().join("results"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiler/gpu-campaign.sh");
    let run = |arguments: [&Path; 2], program: &Path| {
        Command::new("bash")
            .arg(program)
            .args(arguments)
            .env("ELASTICO_BUILT", binaries)
            .env("ELASTICO_CUDA", "/nowhere/libcuda.so.1")
            .output()
            .expect("bash")
    };
    assert!(run([Path::new("pack"), &packed], &script).status.success());
    let output = run([Path::new("run"), &out], &packed.join("gpu-campaign.sh"));
    let summary = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{summary}");
    assert!(summary.contains("doctor: exit 1"), "{summary}");
    assert!(summary.contains("campaign: exit 3"), "{summary}");
    assert!(out.join("logs.tar.gz").exists() && !out.join("campaign.tar.gz").exists());
}
