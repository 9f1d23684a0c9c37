//! The CPU device with real worker processes. Timing facts are asserted with wide margins: the machine may be busy.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests may fail and say why they skip"
)]

use elastico_core::units::Seconds;
use elastico_core::{DeviceKind, Outcome, Seed, SharingMode, TrialId};
use elastico_profiler::devices::ProcessOptions;
use elastico_profiler::devices::cpu::{CpuDevice, CpuOptions};
use elastico_profiler::protocol::measure;
use elastico_profiler::{Active, Device, Fault, Phase, Session, SessionRequest, Side, StepRecord, Window};
use elastico_profiler::{Protocol, ProtocolSettings, Trial};
use elastico_workloads::{Benchmark, Catalogue};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One session at a time: the tests measure, and the machine has few cores.
static MACHINE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The example binary, which cargo builds beside the tests; `None` where it was left out.
pub(crate) fn worker() -> Option<PathBuf> {
    let tests = std::env::current_exe().unwrap();
    let worker = tests.parent()?.parent()?.join("examples/worker");
    if worker.exists() {
        return Some(worker);
    }
    println!("skipped: {} is not built (cargo build --examples)", worker.display());
    None
}

struct Bench {
    folder: tempfile::TempDir,
    device: CpuDevice,
    catalogue: Catalogue,
}

impl Bench {
    fn new(fault: Option<&str>) -> Option<Self> {
        Self::with(fault, |options| options)
    }

    fn with(fault: Option<&str>, change: impl Fn(ProcessOptions) -> ProcessOptions) -> Option<Self> {
        let worker = worker()?;
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let mut command: Vec<OsString> = Vec::new();
        if let Some(fault) = fault {
            command.extend(["env".into(), format!("ELASTICO_WORKER_FAULT={fault}").into()]);
        }
        command.push(worker.into());
        let processes = change(ProcessOptions {
            ring_folder: folder.path().to_owned(),
            hang_timeout: Duration::from_secs(8),
            ..ProcessOptions::default()
        });
        let options = CpuOptions { processes, ..CpuOptions::default() };
        let device = CpuDevice::new(command, options).unwrap();
        Some(Self { folder, device, catalogue: Catalogue::bundled() })
    }

    fn rings(&self) -> usize {
        std::fs::read_dir(self.folder.path()).unwrap().count()
    }

    /// Opens a session of the first benchmarks of two families and hands it over.
    fn session<T>(
        &mut self,
        subject: &str,
        co_runner: Option<&str>,
        sharing: &str,
        then: impl FnOnce(&mut dyn Session) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (trial, sharing): (_, SharingMode) = (TrialId::new("t1").unwrap(), sharing.parse().unwrap());
        let request = SessionRequest {
            trial: &trial,
            subject: family(&self.catalogue, subject),
            co_runner: co_runner.map(|name| family(&self.catalogue, name)),
            sharing: &sharing,
            seed: Seed(7),
        };
        let mut session = self.device.open(&request)?;
        then(&mut *session)
    }
}

fn family<'a>(catalogue: &'a Catalogue, name: &str) -> &'a Benchmark {
    catalogue
        .iter()
        .find(|benchmark| benchmark.family.as_str() == name)
        .unwrap_or_else(|| panic!("no family {name}"))
}

fn window(seconds: f64) -> Window {
    Window { min: Seconds(seconds), min_steps: 4, max: Seconds(10.0) }
}

/// The fastest step: what a side can do when no other program is in its way.
fn fastest(steps: &[StepRecord]) -> f64 {
    steps.iter().map(|step| step.end - step.start).fold(f64::INFINITY, f64::min)
}

/// Time per step from completions, without the first.
fn step_seconds(steps: &[StepRecord]) -> f64 {
    assert!(steps.len() >= 3, "{} steps", steps.len());
    (steps[steps.len() - 1].end - steps[1].end) / (steps.len() - 2) as f64
}

fn check_order(phase: &Phase) {
    for steps in [&phase.subject, &phase.co_runner] {
        assert!(steps.iter().all(|step| step.end > step.start));
        assert!(steps.windows(2).all(|pair| pair[1].start >= pair[0].end));
    }
}

const BOTH: [Active; 3] = [Active::Alone(Side::Subject), Active::Alone(Side::CoRunner), Active::Both];

#[test]
fn phases_hold_the_steps_of_the_active_sides_only() {
    let _alone = alone();
    let Some(mut bench) = Bench::new(None) else { return };
    bench
        .session("st_fma", Some("tr_mlp"), "mps(0.5,0.5)", |session| {
            for active in BOTH {
                let phase = session.run(active, window(0.2))?;
                check_order(&phase);
                assert_eq!(phase.subject.is_empty(), active == Active::Alone(Side::CoRunner));
                assert_eq!(phase.co_runner.is_empty(), active == Active::Alone(Side::Subject));
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(bench.rings(), 0, "rings are gone with the session");
}

#[test]
fn both_sides_are_busy_together_and_share_one_clock() {
    let _alone = alone();
    let Some(mut bench) = Bench::new(None) else { return };
    let phase = bench
        .session("st_fma", Some("st_fma"), "time_slice", |session| session.run(Active::Both, window(0.4)))
        .unwrap();
    let (first, second) = (&phase.subject, &phase.co_runner);
    let from = first[0].start.max(second[0].start);
    let to = first[first.len() - 1].end.min(second[second.len() - 1].end);
    let whole =
        first[first.len() - 1].end.max(second[second.len() - 1].end) - first[0].start.min(second[0].start);
    assert!((to - from) / whole > 0.5, "{from} {to} {whole}");
}

#[test]
fn taking_turns_on_the_same_cores_costs_what_it_must() {
    let _alone = alone();
    let Some(mut bench) = Bench::new(None) else { return };
    // On a quiet machine this is 2. Beside n busy programs per core it is (n + 2) / (n + 1), and it jumps: several tries.
    let mut seen = Vec::new();
    for _ in 0..5 {
        let slowdown = bench
            .session("st_fma", Some("st_fma"), "time_slice", |session| {
                let isolated = session.run(Active::Alone(Side::Subject), window(0.3))?;
                let both = session.run(Active::Both, window(0.6))?;
                Ok(step_seconds(&both.subject) / step_seconds(&isolated.subject))
            })
            .unwrap();
        seen.push(slowdown);
        if (1.1..4.0).contains(&slowdown) {
            return;
        }
    }
    panic!("two equal sides on the same cores should slow each other: {seen:?}");
}

#[test]
fn a_share_is_slower_than_the_full_device_and_is_reported() {
    let _alone = alone();
    let Some(mut bench) = Bench::new(None) else { return };
    let cores = std::thread::available_parallelism().unwrap().get();
    if cores < 2 {
        println!("skipped: one core has no shares");
        return;
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        let mut isolated = |sharing| {
            bench
                .session("st_fma", None, sharing, |session| {
                    let phase = session.run(Active::Alone(Side::Subject), window(0.3))?;
                    Ok((fastest(&phase.subject), session.effective_sharing()))
                })
                .unwrap()
        };
        let (full, mode) = isolated("exclusive");
        assert_eq!(mode, SharingMode::Exclusive);
        let (half, mode) = isolated("mps(0.5,0.5)");
        assert!(matches!(mode, SharingMode::Mps { subject_percent: 33..=67, .. }), "{mode}");
        seen.push(half / full);
        if half / full > 1.2 {
            return;
        }
    }
    panic!("half of the cores should be slower than all of them: {seen:?}");
}

#[test]
fn an_idle_co_runner_leaves_the_subject_alone() {
    let _alone = alone();
    let Some(mut bench) = Bench::new(None) else { return };
    let mut seen = Vec::new();
    for _ in 0..4 {
        let ratio = bench
            .session("st_fma", Some("null"), "mps(0.5,0.5)", |session| {
                let isolated = session.run(Active::Alone(Side::Subject), window(0.3))?;
                let both = session.run(Active::Both, window(0.3))?;
                assert!(both.co_runner.len() > 4, "the null workload waits in steps");
                Ok(step_seconds(&both.subject) / step_seconds(&isolated.subject))
            })
            .unwrap();
        seen.push(ratio);
        if (0.8..1.25).contains(&ratio) {
            return;
        }
    }
    panic!("a co-runner that waits must not slow the subject: {seen:?}");
}

#[test]
fn counters_tell_what_processors_can_and_say_why_not_more() {
    let _alone = alone();
    let Some(mut bench) = Bench::new(None) else { return };
    let reading = bench
        .session("st_fma", None, "exclusive", |session| session.counters(Active::Alone(Side::Subject)))
        .unwrap();
    let active = reading.values["kernel_active_ratio"];
    assert!(active > 0.3 && active <= 1.0, "{reading:?}");
    assert!(reading.values["launch_rate_hertz"] > 0.0);
    assert_eq!(reading.values.len(), 2);
    assert!(reading.status.starts_with("cpu: only") && reading.status.contains("MB"), "{}", reading.status);
}

#[test]
fn the_protocol_measures_a_pair_on_real_cores() {
    let _alone = alone();
    let Some(mut bench) = Bench::new(None) else { return };
    let catalogue = Catalogue::bundled();
    let (subject, co_runner) = (family(&catalogue, "st_fma"), family(&catalogue, "tr_opt"));
    let trial = Trial {
        id: TrialId::new("cell.r0").unwrap(),
        cell: "cell".to_owned(),
        repeat: 0,
        subject: subject.id.clone(),
        co_runner: Some(co_runner.id.clone()),
        sharing: "mps(0.5,0.5)".parse().unwrap(),
    };
    let settings = ProtocolSettings {
        min_seconds: Some(0.2),
        max_seconds: Some(2.0),
        min_steps: Some(10),
        settle_steps: Some(2),
        soak_seconds: Some(0.5),
        retries: Some(0),
        ..ProtocolSettings::default()
    };
    let protocol = Protocol::resolve(&settings, DeviceKind::Cpu);
    let seen = measure(&mut bench.device, &trial, subject, Some(co_runner), &protocol, 0.95, Seed(3));
    assert!(seen.outcome.has_times(), "{} {:?}", seen.outcome, seen.attempts);
    let measured = seen.measured.unwrap();
    for side in [&measured.subject, measured.co_runner.as_ref().unwrap()] {
        assert!(side.isolated.point > 0.0 && side.steps > 2, "{side:?}");
    }
    assert!(measured.overlap.unwrap() > 0.5, "{measured:?}");
    if std::thread::available_parallelism().unwrap().get().is_multiple_of(2) {
        assert_eq!(seen.effective, Some(trial.sharing), "the half of an even number of cores can be had");
    }
}

#[test]
fn what_cores_cannot_do_is_refused_before_anything_starts() {
    let _alone = alone();
    let Some(mut bench) = Bench::new(None) else { return };
    for sharing in ["mig(1g.10gb)", "streams", "exclusive"] {
        let fault = bench.session("st_fma", Some("null"), sharing, |_| Ok(())).unwrap_err();
        assert_eq!(fault.outcome, Outcome::Unsupported, "{fault}");
        assert!(!fault.outcome.is_retryable());
    }
    let fault = bench
        .session("st_fma", None, "exclusive", |session| session.run(Active::Both, window(0.1)).map(drop))
        .unwrap_err();
    assert_eq!(fault.outcome, Outcome::Unsupported);
}

/// Opens a pair, runs it, and returns the fault that must come of it; nothing may be left behind.
fn faulty(fault: &str, change: impl Fn(ProcessOptions) -> ProcessOptions) -> Option<Fault> {
    let mut bench = Bench::with(Some(fault), change)?;
    let seen = bench
        .session("tr_mlp", Some("tr_mlp"), "mps(0.5,0.5)", |session| {
            session
                .run(Active::Both, Window { min: Seconds(20.0), min_steps: 4, max: Seconds(20.0) })
                .map(drop)
        })
        .unwrap_err();
    assert_eq!(bench.rings(), 0, "rings are gone after the fault");
    assert_eq!(children(std::process::id()), Vec::<u32>::new(), "no worker is left");
    Some(seen)
}

#[test]
fn a_killed_worker_is_a_crash_with_its_signal() {
    let _alone = alone();
    let start = Instant::now();
    let Some(fault) = faulty("kill@co_runner", |options| options) else { return };
    assert_eq!(fault.outcome, Outcome::WorkerCrash);
    assert!(fault.detail.contains("co-runner") && fault.detail.contains("signal 9"), "{fault}");
    assert!(start.elapsed() < Duration::from_secs(10), "seen at once, not at the end of the window");
}

#[test]
fn a_stopped_worker_hangs() {
    let _alone = alone();
    let timeout = Duration::from_millis(800);
    let Some(fault) = faulty("stop@subject", |options| ProcessOptions { hang_timeout: timeout, ..options })
    else {
        return;
    };
    assert_eq!(fault.outcome, Outcome::Hang);
    assert!(fault.detail.contains("the subject's worker"), "{fault}");
}

#[test]
fn an_endless_step_is_a_timeout() {
    let _alone = alone();
    let Some(mut bench) = Bench::with(Some("endless@subject"), |options| ProcessOptions {
        drain_timeout: Duration::from_millis(300),
        ..options
    }) else {
        return;
    };
    let fault = bench
        .session("st_fma", None, "exclusive", |session| {
            session.run(
                Active::Alone(Side::Subject),
                Window { min: Seconds(0.1), min_steps: 50, max: Seconds(0.4) },
            )
        })
        .unwrap_err();
    assert_eq!(fault.outcome, Outcome::Timeout, "{fault}");
}

#[test]
fn refused_memory_is_oom_and_wrong_numbers_are_a_crash() {
    let _alone = alone();
    let Some(fault) = faulty("oom@co_runner", |options| options) else { return };
    assert_eq!(fault.outcome, Outcome::Oom, "{fault}");
    assert!(fault.detail.contains("do not fit"), "{fault}");

    let Some(mut bench) = Bench::new(Some("nan")) else { return };
    let fault = bench
        .session("st_fma", None, "exclusive", |session| {
            session.run(Active::Alone(Side::Subject), window(0.1))
        })
        .unwrap_err();
    assert!(fault.outcome == Outcome::WorkerCrash && fault.detail.contains("not finite"), "{fault}");
}

#[test]
fn a_worker_that_is_missing_silent_or_foreign_is_named() {
    let _alone = alone();
    let Some(mut bench) = Bench::with(Some("silent"), |options| ProcessOptions {
        start_timeout: Duration::from_millis(300),
        ..options
    }) else {
        return;
    };
    let fault = bench.session("st_fma", None, "exclusive", |_| Ok(())).unwrap_err();
    assert_eq!(fault.outcome, Outcome::Hang, "{fault}");

    for (command, part) in [
        (vec!["/nowhere/elastico"], "cannot start the worker `/nowhere/elastico`"),
        (vec!["sh", "-c", "echo broken >&2; exit 5"], "left with code 5; stderr: broken"),
        (vec!["sh", "-c", "echo hello; cat > /dev/null"], "says what is no message"),
    ] {
        let processes =
            ProcessOptions { ring_folder: bench.folder.path().to_owned(), ..ProcessOptions::default() };
        let options = CpuOptions { processes, ..CpuOptions::default() };
        let command: Vec<OsString> = command.into_iter().map(OsString::from).collect();
        bench.device = CpuDevice::new(command, options).unwrap();
        let fault = bench.session("st_fma", None, "exclusive", |_| Ok(())).unwrap_err();
        assert_eq!(fault.outcome, Outcome::WorkerCrash);
        assert!(fault.detail.contains(part), "{fault}");
    }
    assert_eq!(bench.rings(), 0);
    assert!(CpuDevice::new(Vec::new(), CpuOptions::default()).is_err());
}

/// Set for the process that plays a coordinator which is killed or stopped.
const PLAY: &str = "ELASTICO_TEST_PLAY";

/// Direct children of a process that still run and are workers.
fn children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
        let (state, owner) = (fields.next(), fields.next());
        let is_worker = String::from_utf8_lossy(&command).contains("examples/worker");
        if is_worker && state != Some("Z") && owner == Some(&parent.to_string()) {
            found.push(process);
        }
    }
    found
}

fn lives(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn wait_until(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_worker_outlives_its_coordinator() {
    if std::env::var_os(PLAY).is_some() {
        // The coordinator of the scene: it measures until it is ended from outside.
        let owner_timeout = Duration::from_millis(1500);
        let mut bench = Bench::with(None, |options| ProcessOptions { owner_timeout, ..options }).unwrap();
        let endless = Window { min: Seconds(60.0), min_steps: 1, max: Seconds(60.0) };
        let _ = bench
            .session("st_fma", Some("st_fma"), "mps(0.5,0.5)", |session| session.run(Active::Both, endless));
        return;
    }
    let _alone = alone();
    if worker().is_none() {
        return;
    }
    for (signal, why) in [("-KILL", "the parent-death signal"), ("-STOP", "the stale heartbeat")] {
        let mut coordinator = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cpu::no_worker_outlives_its_coordinator", "--nocapture"])
            .env(PLAY, "1")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut workers = Vec::new();
        wait_until(Duration::from_secs(30), "two workers start", || {
            workers = children(coordinator.id());
            workers.len() == 2
        });
        // Past the start: both are ready, or about to be.
        std::thread::sleep(Duration::from_millis(700));
        assert!(workers.iter().all(|process| lives(*process)), "{why}");
        let sent = std::process::Command::new("kill")
            .args([signal, &coordinator.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        wait_until(Duration::from_secs(20), why, || !workers.iter().any(|process| lives(*process)));
        coordinator.kill().unwrap();
        coordinator.wait().unwrap();
    }
}
