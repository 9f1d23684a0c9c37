//! `profile exec` on stand-in libraries: real programs, the real injection library, the real protocol, no GPU.
//!
//! Each scene is a coordinator process of its own, since the stand-ins are found through its environment: this test
//! binary again, in the role of [`coordinator`].

#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

use elastico_core::{Outcome, Seed, WorkloadId, WorkloadKind};
use elastico_gpu::activity::{CUPTI_VARIABLE, FOLDER_VARIABLE, Folder, Status};
use elastico_gpu::libraries::{Libraries, LibraryKind};
use elastico_profiler::devices::ProcessOptions;
use elastico_profiler::devices::cuda::commands::{CommandDevice, CommandOptions};
use elastico_profiler::devices::cuda::{CudaDevice, CudaOptions};
use elastico_profiler::exec::{self, Settings, Summary, UserCommand};
use elastico_profiler::{Budget, Observation, ProtocolSettings, RunOptions, Stopping, journal};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The variable with the folder of a scene, for its coordinator.
const PLAY: &str = "ELASTICO_EXEC_SCENE";

/// Seconds of one kernel: long beside the time that a busy machine takes to wake a process.
const KERNEL: f64 = 3e-3;

struct Scene {
    folder: tempfile::TempDir,
    libraries: &'static Path,
    worker: PathBuf,
    injection: PathBuf,
}

/// How a coordinator ended.
struct Ended {
    observations: Vec<Observation>,
    summary: Summary,
    output: String,
}

impl Scene {
    /// `None`, with the reason printed, where something is missing.
    fn new(script: &str) -> Option<Self> {
        let libraries = stand_ins()?;
        let worker = crate::cpu::worker()?;
        let injection = injection()?;
        let folder = tempfile::Builder::new().prefix("x").tempdir_in("/tmp").unwrap();
        for name in ["mock", "pipes"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let script = format!("{script}\nkernel_microseconds * {}\njitter 0.001\n", KERNEL * 1e6);
        std::fs::write(folder.path().join("mock/script"), script).unwrap();
        Some(Self { folder, libraries, worker, injection })
    }

    /// Two programs by their modes; `change` sets what is special.
    fn settings(&self, a: &str, b: &str, change: impl FnOnce(&mut Settings)) {
        let program = self.libraries.join("user_program");
        let side = |name: &str, mode: &str, kind| UserCommand {
            name: WorkloadId::new(name).unwrap(),
            kind,
            command: if mode.starts_with('/') {
                mode.to_owned()
            } else {
                format!("exec {} {mode}", program.display())
            },
        };
        let b =
            if a == b { side("a", a, WorkloadKind::Training) } else { side("b", b, WorkloadKind::Inference) };
        let mut settings = Settings {
            schema: 1,
            name: "scene".to_owned(),
            seed: Seed(2),
            device: "cuda:0".parse().unwrap(),
            sharing: vec!["time_slice".parse().unwrap()],
            folder: self.folder.path().to_owned(),
            progress_pattern: None,
            injection: true,
            startup_seconds: 12.0,
            a: side("a", a, WorkloadKind::Training),
            b,
            stopping: Stopping { min_repeats: 2, max_repeats: 2, half_width: 0.2, level: 0.95 },
            protocol: ProtocolSettings {
                min_seconds: Some(0.5),
                max_seconds: Some(4.0),
                min_steps: Some(12),
                settle_steps: Some(2),
                soak_seconds: Some(0.5),
                soak_window_seconds: Some(0.1),
                overlap: Some(0.5),
                drift: Some(0.15),
                throttled: Some(1.0),
                retries: Some(3),
                deadline_seconds: Some(90.0),
                ..ProtocolSettings::default()
            },
            budget: Budget::default(),
        };
        change(&mut settings);
        std::fs::write(self.folder.path().join("settings.toml"), settings.to_toml()).unwrap();
    }

    fn run_folder(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn start(&self) -> Child {
        let join = |name: &str| {
            let mut new = self.libraries.as_os_str().to_owned();
            new.push(":");
            new.push(std::env::var_os(name).unwrap_or_default());
            new
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "exec::coordinator", "--nocapture"])
            .env(PLAY, self.folder.path())
            .env("ELASTICO_MOCK", self.folder.path().join("mock"))
            .env("ELASTICO_TEST_WORKER", &self.worker)
            .env("ELASTICO_TEST_INJECTION", &self.injection)
            .env("LD_LIBRARY_PATH", join("LD_LIBRARY_PATH"))
            .env("PATH", join("PATH"))
            .env("ELASTICO_CUPTI_DIR", self.libraries)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, file) in [
            ("CUDA", "libcuda.so.1"),
            ("NVML", "libnvidia-ml.so.1"),
            ("NVRTC", "libnvrtc.so.13"),
            ("CUBLASLT", "libcublasLt.so.13"),
        ] {
            command.env(format!("ELASTICO_{name}"), self.libraries.join(file));
        }
        command.spawn().unwrap()
    }

    /// Runs to the end; nothing may be left of it.
    fn play(&self) -> Ended {
        let ended = self.start().wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let output = format!("{}{}", text(&ended.stdout), text(&ended.stderr));
        assert_eq!(ended.status.code(), Some(0), "{output}");
        self.assert_clean();
        let folder = self.run_folder();
        let observations = journal::read(&folder.join(journal::FILE)).unwrap().observations;
        let summary = exec::summary(&folder, &BTreeMap::new()).unwrap();
        let findings = elastico_datasets::validate(&folder.join("dataset")).unwrap();
        assert!(findings.is_empty(), "{findings:?}");
        Ended { observations, summary, output }
    }

    /// The one trial of a program alone.
    fn alone(&self, mode: &str, change: impl FnOnce(&mut Settings)) -> (Observation, String) {
        self.settings(mode, mode, |settings| {
            settings.budget.max_trials = Some(1);
            settings.protocol.retries = Some(0);
            change(settings);
        });
        let mut ended = self.play();
        assert_eq!(ended.observations.len(), 1, "{}", ended.output);
        (ended.observations.remove(0), ended.output)
    }

    fn assert_clean(&self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.processes().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let processes = self.processes();
        assert!(processes.is_empty(), "still alive: {processes:?}");
        let rings: Vec<_> = std::fs::read_dir(self.folder.path().join("mock"))
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| name.to_string_lossy().contains("elastico"))
            .collect();
        assert!(rings.is_empty(), "left behind: {rings:?}");
    }

    /// Processes whose environment names this scene: id, state, command.
    fn processes(&self) -> Vec<(u32, char, String)> {
        let needle = format!("ELASTICO_MOCK={}", self.folder.path().join("mock").display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.windows(needle.len()).any(|window| window == needle.as_bytes()) {
                let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
                let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?');
                let command = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
                found.push((id, state, command.replace('\0', " ")));
            }
        }
        found
    }
}

/// The folder of the stand-ins; `None`, with the reason printed, where there is no compiler.
fn stand_ins() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("stand-ins");
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/mock/build.sh");
            let built = Command::new("sh").arg(script).arg(&folder).output().unwrap();
            if built.status.code() == Some(77) {
                println!("skipped: {}", String::from_utf8_lossy(&built.stderr).trim());
                return None;
            }
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            Some(folder)
        })
        .as_deref()
}

/// The cdylib that cargo built beside this test.
fn injection() -> Option<PathBuf> {
    let tests = std::env::current_exe().unwrap();
    let library = tests.parent()?.join("libelastico_injection.so");
    if library.exists() {
        return Some(library);
    }
    println!("skipped: {} is not built", library.display());
    None
}

/// Scenes side by side: a stand-in sleeps where a GPU would compute.
fn each<T: Sync>(cases: &[T], check: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| check(case));
        }
    });
}

/// Flags other than that of the soak, which is short here.
fn remarks<'a>(flags: impl IntoIterator<Item = &'a String>) -> Vec<&'a str> {
    flags.into_iter().map(String::as_str).filter(|flag| *flag != "not_steady").collect()
}

fn detail(observation: &Observation) -> String {
    observation.attempts.iter().filter_map(|attempt| attempt.detail.clone()).collect::<Vec<_>>().join("\n")
}

/// The role of the coordinator; nothing when the tests run as tests.
#[test]
fn coordinator() {
    let Some(folder) = std::env::var_os(PLAY).map(PathBuf::from) else { return };
    let named = |name: &str| PathBuf::from(std::env::var_os(name).unwrap());
    let settings = Settings::read(&folder.join("settings.toml")).unwrap();
    let gpu = CudaOptions {
        cache: folder.join("cache"),
        pipes: folder.join("pipes"),
        context_timeout: Duration::from_secs(10),
        processes: ProcessOptions { ring_folder: folder.join("mock"), ..ProcessOptions::default() },
        ..CudaOptions::default()
    };
    let worker = vec![named("ELASTICO_TEST_WORKER").into_os_string()];
    let gpu = CudaDevice::new(worker, 0, gpu).unwrap();
    let run_folder = folder.join("run");
    let options = CommandOptions {
        log_folder: run_folder.join("logs"),
        injection: named("ELASTICO_TEST_INJECTION"),
        ring_folder: folder.join("mock"),
        hold: Duration::from_millis(300),
        hang: Duration::from_secs(2),
    };
    let mut device = CommandDevice::new(gpu, &settings, options).unwrap();
    let options = RunOptions { resume: run_folder.exists(), ..RunOptions::default() };
    exec::run(&settings, &mut device, &run_folder, &options, &mut |progress| {
        let observation = progress.observation;
        println!("{} {} {}", observation.trial, observation.outcome, detail(observation));
    })
    .unwrap();
    println!("progress: {:?}", device.progress());
}

#[test]
fn a_pair_is_measured_under_time_slicing_and_under_mps() {
    let Some(scene) = Scene::new("") else { return };
    // Each alone twice, then the pair once in each mode.
    scene.settings("train", "infer", |settings| {
        settings.sharing = vec!["time_slice".parse().unwrap(), "mps(0.5,0.5)".parse().unwrap()];
        settings.budget.max_trials = Some(6);
    });
    let ended = scene.play();
    println!("{}\n{:#?}", ended.output, ended.summary);
    assert!(
        ended.observations.iter().all(|seen| seen.outcome == Outcome::Ok && remarks(&seen.flags).is_empty()),
        "{}",
        ended.output
    );
    assert!(ended.output.contains("in a period of 21 records"), "{}", ended.output);
    assert!(ended.output.contains("in a period of 7 records"), "{}", ended.output);
    assert_eq!(ended.summary.sides.len(), 4);
    for side in &ended.summary.sides {
        // Two that alternate, or each with half of the SMs: the time doubles.
        assert!((1.6..2.4).contains(&side.slowdown.unwrap()), "{side:?}");
        assert_eq!(side.n, 1, "{side:?}");
        assert!(side.overlap_least.unwrap() > 0.98, "{side:?}");
    }
    for observation in ended.observations.iter().filter(|seen| seen.sharing.family() == "mps") {
        let measured = observation.measured.as_ref().unwrap();
        for side in [&measured.subject, measured.co_runner.as_ref().unwrap()] {
            assert!((side.interference.unwrap().point - 1.0).abs() < 0.2, "{side:?}");
        }
    }
    // 20 kernels and a tenth of one for the log; 5 kernels.
    let step = |name: &str| {
        let alone = |seen: &&Observation| seen.subject.as_str() == name && seen.co_runner.is_none();
        let isolated = ended.observations.iter().find(alone);
        isolated.unwrap().measured.as_ref().unwrap().subject.isolated.point
    };
    assert!((step("a") / (20.1 * KERNEL) - 1.0).abs() < 0.2, "{}", step("a"));
    assert!((step("b") / (5.0 * KERNEL) - 1.0).abs() < 0.3, "{}", step("b"));
    let dataset = elastico_datasets::Dataset::read(&scene.run_folder().join("dataset")).unwrap();
    assert!(dataset.isolated.f64("step_dram_bytes").unwrap().iter().all(|value| value.is_nan()));
    assert!(dataset.isolated.f64("launch_rate_hertz").unwrap().iter().all(|value| *value > 30.0));
}

#[test]
fn random_kernels_are_weighed_by_device_time() {
    let Some(scene) = Scene::new("") else { return };
    scene.settings("aperiodic", "aperiodic", |settings| {
        settings.startup_seconds = 8.0;
        settings.budget.max_trials = Some(3);
    });
    let ended = scene.play();
    println!("{}\n{:#?}", ended.output, ended.summary);
    for side in &ended.summary.sides {
        assert!((1.6..2.4).contains(&side.slowdown.unwrap()), "{side:?}");
        assert!(side.flags.contains("aperiodic_progress"), "{side:?}");
    }
}

#[test]
fn children_graphs_and_forks_are_recorded() {
    each(&[("fork", 20.1), ("graph", 5.0), ("workers", 20.1)], |(mode, kernels)| {
        let Some(scene) = Scene::new("") else { return };
        let (observation, output) = scene.alone(mode, |_| {});
        assert_eq!(observation.outcome, Outcome::Ok, "{mode}: {output}");
        let seen = observation.measured.unwrap().subject.isolated.point;
        assert!((seen / (kernels * KERNEL) - 1.0).abs() < 0.3, "{mode}: {seen} {output}");
    });
}

#[test]
fn without_cupti_lines_are_steps_or_there_is_no_slowdown() {
    let Some(scene) = Scene::new("") else { return };
    let (observation, output) = scene.alone("taken", |settings| {
        settings.progress_pattern = Some(r"^step \d+".to_owned());
    });
    assert_eq!(observation.outcome, Outcome::Ok, "{output}");
    let seen = observation.measured.as_ref().unwrap().subject.isolated.point;
    assert!((seen / (20.1 * KERNEL) - 1.0).abs() < 0.3, "{seen}");
    assert!(observation.flags.contains(&"progress_by_lines".to_owned()), "{:?}", observation.flags);
    // The program tells neither SMs nor MPS.
    assert!(observation.flags.contains(&"sharing_unverified".to_owned()), "{:?}", observation.flags);

    let Some(scene) = Scene::new("") else { return };
    let (observation, output) = scene.alone("taken", |settings| settings.startup_seconds = 4.0);
    assert_eq!(observation.outcome, Outcome::CountersUnavailable, "{output}");
    let detail = detail(&observation);
    assert!(detail.contains("another profiler holds CUPTI"), "{detail}");
    assert!(detail.contains("No slowdown can be given") && detail.contains("MHz"), "{detail}");
    assert_eq!(observation.measured, None);
}

#[test]
fn what_goes_wrong_is_said_with_the_last_words() {
    let cases: [(&str, Outcome, &[&str]); 6] = [
        ("train 30", Outcome::WorkerCrash, &["ended by itself after", "it has to run for", "step 29"]),
        ("crash", Outcome::WorkerCrash, &["died of signal 6", "step 9"]),
        ("oom", Outcome::Oom, &["ran out of device memory", "Tried to allocate"]),
        ("hang", Outcome::Hang, &["makes nothing for", "step 9"]),
        ("idle", Outcome::Unsupported, &["made no kernel within", "did it use the GPU?"]),
        ("/no/such/program", Outcome::WorkerCrash, &["was not found", "/no/such/program"]),
    ];
    each(&cases, |(mode, outcome, words)| {
        let Some(scene) = Scene::new("") else { return };
        let (observation, output) = scene.alone(mode, |settings| settings.startup_seconds = 4.0);
        assert_eq!(observation.outcome, *outcome, "{mode}: {output}");
        for word in *words {
            assert!(detail(&observation).contains(word), "{mode}: {word} in {}", detail(&observation));
        }
    });
}

/// Killed while one side is stopped: the guard ends both, and the run goes on from its journal.
#[test]
fn a_killed_coordinator_leaves_nothing_and_can_go_on() {
    let Some(scene) = Scene::new("") else { return };
    scene.settings("train", "train", |settings| settings.budget.max_trials = Some(3));
    let mut coordinator = scene.start();
    let deadline = Instant::now() + Duration::from_mins(1);
    let has_stopped = || scene.processes().iter().any(|(_, state, _)| *state == 'T');
    while !has_stopped() {
        assert!(Instant::now() < deadline, "no side was ever parked: {:?}", scene.processes());
        assert!(coordinator.try_wait().unwrap().is_none(), "it ended before a side was parked");
        std::thread::sleep(Duration::from_millis(5));
    }
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    let killed = Instant::now();
    while scene.processes().iter().any(|(_, _, command)| command.contains("user_program")) {
        assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", scene.processes());
        std::thread::sleep(Duration::from_millis(20));
    }
    let before = journal::read(&scene.run_folder().join(journal::FILE)).unwrap().observations;
    let ended = scene.play();
    assert!(ended.observations.starts_with(&before), "{}", ended.output);
    assert_eq!(ended.observations.len(), 3, "{}", ended.output);
}

/// The real CUPTI without a driver: it refuses, the ring says so, the program goes on.
#[test]
fn the_real_cupti_without_a_driver_is_no_harm() {
    let (Some(injection), Some(stand_ins)) = (injection(), stand_ins()) else { return };
    let cupti = match Libraries::from_environment().locate(LibraryKind::Cupti) {
        Ok(cupti) if cupti.is_absolute() => cupti,
        other => {
            println!("skipped: no CUPTI wheel: {other:?}");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(stand_ins.join("user_program"))
        .args([Path::new("inject"), &injection])
        .env(FOLDER_VARIABLE, folder.path())
        .env(CUPTI_VARIABLE, &cupti)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"initialised: 1\n");
    let mut rings = Folder::new(folder.path());
    assert_eq!(rings.look().unwrap(), 1);
    let report = rings.rings[0].report();
    println!("{cupti:?}: {report:?}");
    assert!(report.status.is_silent() && report.status != Status::Absent, "{report:?}");
    assert!(report.cupti_version > 0, "{report:?}");
}
