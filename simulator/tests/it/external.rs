//! A policy that is a program of its own.

use elastico_core::{Hint, JobId};
use elastico_simulator::{Error, Options, PolicyKind, Simulation, Trace, TraceJob, simulate};
use std::process::Command;

fn job(name: &str, gpus: u32, submit: f64, duration: f64) -> TraceJob {
    TraceJob::new(JobId::new(name).unwrap(), "a", gpus, submit, duration)
}

fn run(command: &str, timeout_seconds: f64) -> Result<Simulation, Error> {
    let jobs = vec![job("large", 2, 0.0, 100.0), job("wide", 2, 10.0, 50.0), job("small", 1, 20.0, 30.0)];
    run_jobs(jobs, command, timeout_seconds)
}

fn run_jobs(jobs: Vec<TraceJob>, command: &str, timeout_seconds: f64) -> Result<Simulation, Error> {
    let trace = Trace::new("by hand", jobs).unwrap();
    let policy = PolicyKind::External { name: format!("external:{command}"), timeout_seconds };
    let options = Options { keep_jobs: true, ..Options::default() };
    simulate(&trace, &"n1g2".parse().unwrap(), &policy, None, &options)
}

#[test]
fn the_example_in_python_decides() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: there is no python3");
        return;
    }
    let command = format!("python3 {}/../examples/policy/smallest_first.py", env!("CARGO_MANIFEST_DIR"));
    let result = run(&command, 60.0).unwrap();
    // The small one overtakes the wide one, which asked before it.
    let finishes: Vec<f64> = result.jobs.iter().map(|job| job.finish_seconds).collect();
    assert_eq!(finishes, [100.0, 180.0, 130.0]);
    assert_eq!(result.policy, format!("external:{command}"));
}

#[test]
fn a_program_that_fails_gives_one_clear_error() {
    let error =
        |command: &str| run(command, if command == "cat /dev/zero" { 60.0 } else { 0.3 }).unwrap_err();
    for (command, expected) in [
        ("no-such-program-at-all", "it cannot be started"),
        ("false", "it ended"),
        ("sleep 30", "no answer within 0.3 s"),
        // It repeats the question.
        ("cat", "failed at 0 s of the simulation: its answer is no elastico.policy-actions/1"),
        // It never ends its line.
        ("cat /dev/zero", "its answer has no end of line within 16 MiB"),
        (" ", "the command is empty"),
    ] {
        let error = error(command);
        let text = error.to_string();
        assert!(text.contains(expected), "{command}: {text}");
        assert!(error.hint().unwrap().contains("elastico.policy-round/1"));
    }
}

/// A program in the shell that answers each round with the next of these lines.
fn answers(folder: &std::path::Path, lines: &[&str]) -> String {
    let script = folder.join("policy.sh");
    let says: Vec<String> = lines.iter().map(|line| format!("read -r state\necho '{line}'\n")).collect();
    std::fs::write(&script, says.concat()).unwrap();
    format!("sh {}", script.display())
}

#[test]
fn a_mistake_is_told_with_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let target =
        |target: &str| format!(r#"{{"schema": "elastico.policy-actions/1", "targets": [{target}]}}"#);
    let first = target(r#"{"job": "large", "do": "alone"}"#);
    for (second, expected) in [
        (
            r#"{"job": "wild", "do": "wait"}"#,
            "its answer names the job `wild`, which is not here, did you mean `wide`?",
        ),
        (r#"{"job": "wide", "do": "alone", "gpus": 9}"#, "job `wide` cannot run on 9 GPUs there"),
    ] {
        let command = answers(folder.path(), &[&first, &target(second)]);
        let text = run(&command, 10.0).unwrap_err().to_string();
        assert!(text.ends_with(&format!("failed at 10 s of the simulation: {expected}")), "{text}");
    }
}

#[test]
fn a_program_that_reads_nothing_holds_up_nobody() {
    // More than a pipe holds.
    let jobs = |gap: f64| -> Vec<TraceJob> {
        (0..1000).map(|index| job(&format!("job-{index}"), 1, f64::from(index) * gap, 50.0)).collect()
    };
    let text = run_jobs(jobs(0.0), "sleep 30", 0.3).unwrap_err().to_string();
    assert!(text.ends_with("no answer within 0.3 s"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("deaf.sh");
    let nothing = r#"{"schema": "elastico.policy-actions/1", "targets": []}"#;
    std::fs::write(&script, format!("while echo '{nothing}'; do :; done\n")).unwrap();
    let text = run_jobs(jobs(1.0), &format!("sh {}", script.display()), 10.0).unwrap_err().to_string();
    assert!(text.ends_with("it answers without reading what it is asked"), "{text}");
}
