//! `elastico doctor` on machines that lack one thing or another, by stand-in libraries.

use crate::stand_ins::stand_ins;
use assert_cmd::Command;
use serde_json::Value;
use std::time::Duration;

/// A machine that has some of the stand-ins, and nothing else.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn with(names: &[&str], script: &str) -> Option<Self> {
        let all = stand_ins()?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in names {
            std::fs::copy(all.join(name), folder.path().join(name)).expect("a stand-in");
        }
        std::fs::write(folder.path().join("script"), script).expect("a temporary folder");
        Some(Self { folder })
    }

    fn doctor(&self, arguments: &[&str]) -> Command {
        let folder = self.folder.path();
        let mut command = Command::cargo_bin("elastico").expect("the binary");
        command
            .arg("doctor")
            .args(arguments)
            .env_clear()
            .env("PATH", folder)
            .env("ELASTICO_MOCK", folder)
            .env("COLUMNS", "80")
            .current_dir(folder)
            .timeout(Duration::from_mins(1));
        for variable in ["CUDA", "NVML", "NVRTC", "CUBLASLT", "CUPTI_DIR"] {
            command.env(format!("ELASTICO_{variable}"), folder);
        }
        command
    }

    /// The answer, and whether the exit code said that a campaign on a GPU can run.
    fn answer(&self, arguments: &[&str]) -> (Value, bool) {
        let output = self.doctor(arguments).args(["--format", "json"]).output().expect("it runs");
        let code = output.status.code().expect("it ends by itself");
        assert!(code == 0 || code == 1, "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stderr, b"", "{}", String::from_utf8_lossy(&output.stderr));
        (serde_json::from_slice(&output.stdout).expect("JSON on stdout"), code == 0)
    }
}

fn check<'a>(answer: &'a Value, id: &str) -> &'a Value {
    let checks = answer["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no {id} in {answer:#}"))
}

const DRIVER: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];
const TOOLKIT: [&str; 4] = ["libcupti.so.13", "libnvperf_host.so", "libcublasLt.so.13", "libnvrtc.so.13"];

fn all() -> Vec<&'static str> {
    DRIVER.into_iter().chain(TOOLKIT).chain(["nvidia-cuda-mps-control"]).collect()
}

#[test]
fn a_machine_with_everything_is_ready() {
    let Some(machine) = Machine::with(&all(), "persistence 1\n") else { return };
    let (answer, is_ready) = machine.answer(&[]);
    assert!(is_ready, "{answer:#}");
    assert_eq!(answer["gpu_campaign"], true);
    assert_eq!(answer["blocked_by"], serde_json::json!([]));
    assert_eq!(answer["devices"][0]["name"], "Stand-in H200");
    assert_eq!(answer["devices"][0]["chip"], "GH100");
    let text = String::from_utf8(machine.doctor(&["--device", "cuda:0"]).output().unwrap().stdout).unwrap();
    assert!(text.starts_with("cuda:0  Stand-in H200, GH100, compute capability 9.0, 132 SMs"), "{text}");
    assert!(text.ends_with("A campaign on a GPU can run here.\n"), "{text}");
    machine.doctor(&["--device", "cuda:1"]).assert().code(1);
    machine.doctor(&["--device", "gpu"]).assert().code(2);
}

#[test]
fn a_machine_without_a_driver_is_told_what_is_missing_and_how_to_get_it() {
    let Some(machine) = Machine::with(&[], "") else { return };
    let (answer, is_ready) = machine.answer(&[]);
    assert!(!is_ready);
    for id in ["cuda.driver", "nvml.library", "nvrtc.library", "cublas_lt.library", "cupti.library"] {
        assert_eq!(check(&answer, id)["status"], "absent");
        assert!(check(&answer, id)["fix"].as_str().unwrap().contains("install"), "{answer:#}");
    }
    let output = machine.doctor(&[]).assert().code(1).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("No campaign on a GPU can run here; in its way: cuda.driver"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn half_a_driver_and_an_old_toolkit_are_no_driver() {
    for (names, blocked, usable) in [
        (vec!["libnvidia-ml.so.1"], "cuda.driver", "nvml.library"),
        (vec!["libcuda.so.1"], "nvml.library", "cuda.driver"),
    ] {
        let names: Vec<&str> = names.into_iter().chain(TOOLKIT).collect();
        let Some(machine) = Machine::with(&names, "") else { return };
        let (answer, is_ready) = machine.answer(&[]);
        assert!(!is_ready);
        assert_eq!(check(&answer, blocked)["status"], "absent", "{answer:#}");
        assert_eq!(check(&answer, usable)["status"], "ok", "{answer:#}");
        assert_eq!(answer["blocked_by"][0], blocked);
    }
    let Some(machine) = Machine::with(&all(), "") else { return };
    let folder = machine.folder.path();
    std::fs::rename(folder.join("libcupti.so.13"), folder.join("libcupti.so.12")).unwrap();
    let (answer, is_ready) = machine.answer(&[]);
    assert!(!is_ready);
    assert_eq!(answer["blocked_by"], serde_json::json!(["cupti.library"]), "{answer:#}");
    let finding = check(&answer, "cupti.library")["finding"].as_str().unwrap();
    assert!(finding.contains("of major version 12, not 13"), "{finding}");
}

#[test]
fn a_driver_that_crashes_is_a_line_of_the_answer() {
    let Some(machine) = Machine::with(&all(), "crash cuptiProfilerInitialize\n") else { return };
    let (answer, is_ready) = machine.answer(&[]);
    assert!(!is_ready);
    assert_eq!(answer["blocked_by"], serde_json::json!(["cupti.probe"]), "{answer:#}");
}
