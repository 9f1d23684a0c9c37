//! The probe against stand-ins, each area in a process of its own, as `elastico doctor` runs it.

use crate::support::{compile, scene, stand_ins, with_stand_ins};
use elastico_gpu::libraries::Libraries;
use elastico_gpu::probe::{Area, Check, Findings, ProbeOptions, Status, child_main, probe};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// The area that a child looks at; unset in the parent.
const AREA: &str = "ELASTICO_TEST_AREA";

/// Runs as a child only.
#[test]
fn child() {
    let Ok(area) = std::env::var(AREA) else { return };
    assert_eq!(child_main(area.parse().unwrap(), |_, _| {}), ExitCode::SUCCESS);
}

/// What is found where the stand-ins behave by `script`; `None` where there is no C compiler.
fn found(script: &str, change: impl FnOnce(&mut ProbeOptions)) -> Option<Findings> {
    let folder = stand_ins()?;
    Some(found_in(folder, script, change))
}

fn found_in(folder: &Path, script: &str, change: impl FnOnce(&mut ProbeOptions)) -> Findings {
    let scene = scene(script);
    let command = |area: Area| {
        let mut command = Command::new(std::env::current_exe().expect("the test binary"));
        command.args(["--exact", "probes::child", "--nocapture"]).env(AREA, area.as_str());
        with_stand_ins(&mut command, folder, scene.path());
        command.env("ELASTICO_NVRTC", folder).env("ELASTICO_CUBLASLT", folder).env("PATH", folder);
        command.env("CUDA_MPS_PIPE_DIRECTORY", scene.path().join("pipes"));
        command
    };
    let mut options = ProbeOptions {
        process_folder: scene.path().join("proc"),
        time_limit: Some(Duration::from_secs(20)),
        ..ProbeOptions::default()
    };
    change(&mut options);
    probe(&options, &command)
}

fn find<'a>(findings: &'a Findings, id: &str) -> &'a Check {
    findings.checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no {id} in {findings:#?}"))
}

#[track_caller]
fn expect(findings: &Findings, id: &str, status: Status, part: &str) {
    let check = find(findings, id);
    assert_eq!(check.status, status, "{check:?}");
    assert!(check.finding.contains(part), "{part} in {check:?}");
    assert!(
        status == Status::Ok || status == Status::Absent || check.fix.is_some(),
        "a remedy for {check:?}"
    );
}

#[test]
fn a_healthy_machine_is_described_by_all_its_libraries() {
    let Some(findings) = found("devices 2\npersistence 1\n", |_| {}) else { return };
    for (id, part) in [
        ("cuda.driver", "CUDA 13.0"),
        ("cuda.device.0", "Stand-in H200, 9.0, 132 SMs"),
        ("cuda.context.0", "a context can be had"),
        ("nvml.library", "driver 580"),
        ("nvml.device.0", "in order for measuring"),
        ("nvrtc.library", "NVRTC 13.0, compiles for 9.0"),
        ("cublas_lt.library", "cuBLASLt 13."),
        ("cupti.library", "CUPTI 13.0"),
        ("cupti.sampling.1", "GH100: "),
        ("mps.control", "version 13.0"),
    ] {
        expect(&findings, id, Status::Ok, part);
    }
    expect(&findings, "mps.daemon", Status::Absent, "no daemon is running");
    assert_eq!(findings.devices.len(), 2);
    let device = &findings.devices[1];
    assert_eq!((device.cuda_index, device.nvml_index), (Some(1), Some(1)), "one device, not two: {device:?}");
    assert_eq!(device.chip.as_deref(), Some("GH100"));
    assert_eq!(device.compute_mode.as_deref(), Some("default"));
    assert!(device.memory_free_bytes < device.memory_bytes && device.ecc.is_some(), "{device:?}");

    let one = found("devices 2\npersistence 1\n", |options| options.device = Some(1)).unwrap();
    assert_eq!(one.devices.len(), 1);
    assert!(one.checks.iter().all(|check| !check.id.ends_with(".0")), "{:?}", one.checks);
    let none = found("devices 2\n", |options| options.device = Some(2)).unwrap();
    expect(&none, "cuda.devices", Status::Blocked, "there is no CUDA device 2: this process sees 2");
}

#[test]
fn faults_of_a_driver_are_findings_with_a_remedy() {
    for (script, id, status, part) in [
        ("init_result 100", "cuda.driver", Status::Absent, "no device"),
        ("init_result 803", "cuda.driver", Status::Blocked, "mismatch"),
        ("driver_version 12080", "cuda.driver", Status::Blocked, "serves CUDA 12.8; CUDA 13.0 is needed"),
        ("devices 0", "cuda.driver", Status::Absent, "no device"),
        ("compute_capability 7 0", "cuda.device.0", Status::Blocked, "CUDA 13 dropped chips before Turing"),
        ("fault cuDevicePrimaryCtxRetain 46", "cuda.context.0", Status::Blocked, "device unavailable"),
        ("persistence 0", "nvml.device.0", Status::Warn, "persistence is off"),
        ("compute_mode 2", "nvml.device.0", Status::Blocked, "prohibited"),
        ("deny counters", "cupti.sampling.0", Status::Blocked, "may not read performance counters"),
        ("perfmon_busy 1", "cupti.sampling.0", Status::Blocked, "held by another program"),
        ("fault nvmlInit 9", "nvml.library", Status::Absent, "NVML cannot be used"),
    ] {
        let Some(findings) = found(script, |_| {}) else { return };
        expect(&findings, id, status, part);
    }
}

#[test]
fn a_library_that_crashes_or_hangs_is_one_more_finding() {
    let Some(findings) = found("crash cuptiProfilerInitialize", |_| {}) else { return };
    expect(&findings, "cupti.probe", Status::Blocked, "was ended by signal");
    expect(&findings, "cupti.library", Status::Ok, "CUPTI 13.0");
    expect(&findings, "cuda.context.0", Status::Ok, "a context can be had");

    let findings =
        found("fault cuInit hang", |options| options.time_limit = Some(Duration::from_secs(2))).unwrap();
    expect(&findings, "cuda.probe", Status::Blocked, "did not end within 2 s");
    expect(&findings, "cupti.probe", Status::Blocked, "did not end within 2 s");
    expect(&findings, "nvml.library", Status::Ok, "driver 580");
}

#[test]
fn another_major_version_and_a_damaged_file_are_refused() {
    if stand_ins().is_none() {
        return;
    }
    // A CUPTI 12 that carries its number, and one under a name of ours.
    let numbered = tempfile::tempdir().unwrap();
    compile(numbered.path(), "cupti.c", "libcupti.so.12", &["-DVERSION=28"]);
    let disguised = tempfile::tempdir().unwrap();
    compile(disguised.path(), "cupti.c", "libcupti.so.13", &["-DVERSION=28"]);
    for (folder, part) in [(&numbered, "is of major version 12, not 13"), (&disguised, "is CUPTI 28")] {
        let libraries = Libraries { cupti_folder: Some(folder.path().to_owned()), ..Libraries::default() };
        let findings = found("", |options| options.libraries = libraries).unwrap();
        expect(&findings, "cupti.library", Status::Blocked, part);
    }
    let file = numbered.path().join("libcuda.so.1");
    std::fs::write(&file, b"\x7fELF\x02\x01\x01 and then nothing").unwrap();
    let libraries = Libraries { cuda: Some(file), ..Libraries::default() };
    let findings = found("", |options| options.libraries = libraries).unwrap();
    expect(&findings, "cuda.driver", Status::Blocked, "cannot be opened");
}

#[test]
fn a_bare_machine_gets_findings_and_no_panic() {
    let nowhere = |name: &str| Some(Path::new("/nowhere").join(name));
    let libraries = Libraries {
        cuda: nowhere("libcuda.so.1"),
        nvml: nowhere("libnvidia-ml.so.1"),
        nvrtc: nowhere("libnvrtc.so.13"),
        cublas_lt: nowhere("libcublasLt.so.13"),
        cupti_folder: nowhere(""),
    };
    let empty = tempfile::tempdir().unwrap();
    let findings = found_in(empty.path(), "", |options| options.libraries = libraries);
    assert!(findings.devices.is_empty());
    for id in ["cuda.driver", "nvml.library", "nvrtc.library", "cublas_lt.library", "cupti.library"] {
        expect(&findings, id, Status::Absent, "tried /nowhere");
        assert!(find(&findings, id).fix.is_some());
    }
    for id in ["counters.permission", "mps.control", "mps.daemon"] {
        assert_eq!(find(&findings, id).status, Status::Absent);
    }
    let mut ids: Vec<_> = findings.checks.iter().map(|check| check.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), findings.checks.len(), "ids are unique");
}
