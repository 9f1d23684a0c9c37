//! The CUDA device on stand-in libraries: the real driver code, the real workers, the whole protocol, no GPU.
//!
//! Each scene is a coordinator process of its own, since the stand-ins are found through its environment: this test
//! binary again, in the role of [`coordinator`]. A stand-in sleeps where a GPU would compute.

#![expect(
    clippy::print_stdout,
    reason = "a coordinator tells its scene what happened, and tests say why they skip"
)]

mod campaigns;
mod examination;
mod faults;
mod sharing;

use elastico_core::DeviceName;
use elastico_profiler::devices::ProcessOptions;
use elastico_profiler::devices::cuda::{CudaDevice, CudaOptions, self_test};
use elastico_profiler::{Campaign, Device, Observation, Progress, RunOptions, journal, run, run_all};
use elastico_workloads::Catalogue;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// The variable with the folder of a scene, for its coordinator.
const PLAY: &str = "ELASTICO_CUDA_SCENE";

/// The variable that makes a coordinator examine its device instead: `kernels`, or `all`.
const SELF_TEST: &str = "ELASTICO_CUDA_SELF_TEST";

/// One board with a script, and campaigns on it.
struct Scene {
    folder: tempfile::TempDir,
    libraries: &'static Path,
    worker: PathBuf,
    /// Least length of a phase.
    seconds: f64,
}

/// How a coordinator ended.
struct Ended {
    code: Option<i32>,
    output: String,
}

impl Scene {
    /// A board whose stand-ins follow a script; `None`, with the reason printed, where something is missing.
    fn new(script: &str) -> Option<Self> {
        Self::with(script, stand_ins("stand-ins", &[])?)
    }

    fn with(script: &str, libraries: &'static Path) -> Option<Self> {
        let worker = crate::cpu::worker()?;
        // Socket paths are short; the pipes of the MPS daemon lie in this folder.
        let folder = tempfile::Builder::new().prefix("e").tempdir_in("/tmp").unwrap();
        for name in ["mock", "pipes"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        // A launch takes long enough to sleep through, and jitter is small beside what is asserted.
        let script = format!("{script}\nkernel_microseconds * 1000\njitter 0.001\n");
        std::fs::write(folder.path().join("mock/script"), script).unwrap();
        Some(Self { folder, libraries, worker, seconds: 0.1 })
    }

    fn run_folder(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// Writes the campaign of one pair, with so many trials at most; 0 takes all.
    fn campaign(&self, pair: [&str; 2], sharing: &[&str], trials: u32) {
        self.limited_campaign(pair, sharing, trials, "drift = 5.0\noverlap = 0.01\nthrottled = 0.2\n");
    }

    fn limited_campaign(&self, pair: [&str; 2], sharing: &[&str], trials: u32, limits: &str) {
        self.campaign_on("\"cuda:0\"", pair, sharing, trials, limits);
    }

    fn campaign_on(&self, device: &str, pair: [&str; 2], sharing: &[&str], trials: u32, limits: &str) {
        let seconds = self.seconds;
        let mut text = format!(
            "schema = 1\nname = \"scene\"\nseed = 3\ndevice = {device}\nsharing = {sharing:?}\n\
             [workloads]\npairs = [[\"{}\", \"{}\"]]\n\
             [stopping]\nmin_repeats = 2\nmax_repeats = 2\nhalf_width = 0.2\n\
             [protocol]\nmin_seconds = {seconds}\nmax_seconds = 2.0\nmin_steps = 10\nsettle_steps = 2\n\
             soak_seconds = 0.4\nsoak_window_seconds = 0.04\nretries = 1\n{limits}deadline_seconds = 60\n",
            pair[0], pair[1]
        );
        if trials > 0 {
            writeln!(text, "[budget]\nmax_trials = {trials}").unwrap();
        }
        std::fs::write(self.folder.path().join("campaign.toml"), text).unwrap();
    }

    /// Starts the coordinator.
    fn start(&self) -> Child {
        self.command().spawn().unwrap()
    }

    fn command(&self) -> Command {
        let join = |name: &str| {
            let old = std::env::var_os(name).unwrap_or_default();
            let mut new = self.libraries.as_os_str().to_owned();
            new.push(":");
            new.push(old);
            new
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "cuda::coordinator", "--nocapture"])
            .env(PLAY, self.folder.path())
            .env("ELASTICO_MOCK", self.folder.path().join("mock"))
            .env("ELASTICO_TEST_WORKER", &self.worker)
            .env("LD_LIBRARY_PATH", join("LD_LIBRARY_PATH"))
            .env("PATH", join("PATH"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for name in ["CUDA", "NVML", "NVRTC", "CUBLASLT", "CUPTI_DIR"] {
            command.env_remove(format!("ELASTICO_{name}"));
        }
        let files = [
            ("CUDA", "libcuda.so.1"),
            ("NVML", "libnvidia-ml.so.1"),
            ("NVRTC", "libnvrtc.so.13"),
            ("CUBLASLT", "libcublasLt.so.13"),
        ];
        for (name, file) in files {
            command.env(format!("ELASTICO_{name}"), self.libraries.join(file));
        }
        command.env("ELASTICO_CUPTI_DIR", self.libraries);
        command
    }

    /// Runs the campaign, or goes on with it.
    fn play(&self) -> Ended {
        Self::wait(self.start())
    }

    /// Examines the device.
    fn examine(&self, part: &str) -> Ended {
        self.campaign(["st_fma.m10k_n66", "st_dram.read"], &["time_slice"], 1);
        Self::wait(self.command().env(SELF_TEST, part).spawn().unwrap())
    }

    fn wait(coordinator: Child) -> Ended {
        let ended = coordinator.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: ended.status.code(), output: format!("{}{}", text(&ended.stdout), text(&ended.stderr)) }
    }

    /// Changes the script between two runs.
    fn rewrite(&self, from: &str, to: &str) {
        let path = self.folder.path().join("mock/script");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from));
        std::fs::write(path, text.replacen(from, to, 1)).unwrap();
    }

    fn observations(&self) -> Vec<Observation> {
        journal::read(&self.run_folder().join(journal::FILE)).unwrap().observations
    }

    /// Runs so many trials of a pair and returns them; the journal must be whole and no process or pipe may be left.
    fn trials(&self, pair: [&str; 2], sharing: &str, count: u32) -> Vec<Observation> {
        self.campaign(pair, &[sharing], count);
        let ended = self.play();
        assert_eq!(ended.code, Some(0), "{}", ended.output);
        println!("{}", ended.output);
        let content = journal::read(&self.run_folder().join(journal::FILE)).unwrap();
        assert!(!content.is_torn);
        assert_eq!(content.observations.len(), count as usize, "{}", ended.output);
        self.assert_clean();
        content.observations
    }

    /// Nothing of the scene lives or lies around.
    fn assert_clean(&self) {
        let pipes: Vec<_> = std::fs::read_dir(self.folder.path().join("pipes"))
            .unwrap()
            .flatten()
            .map(|e| e.path())
            // The lock of a GPU stays: removing it would let two coordinators hold two files of one name.
            .filter(|path| path.extension().is_none_or(|extension| extension != "lock"))
            .collect();
        assert!(pipes.is_empty(), "left behind: {pipes:?}");
        let processes = self.processes();
        assert!(processes.is_empty(), "still alive: {processes:?}");
    }

    /// Processes whose environment names this scene.
    fn processes(&self) -> Vec<(u32, String)> {
        let needle = format!("ELASTICO_MOCK={}", self.folder.path().join("mock").display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.windows(needle.len()).any(|window| window == needle.as_bytes()) {
                let command = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
                found.push((id, command.replace('\0', " ")));
            }
        }
        found
    }
}

/// The stand-ins of some flags, built once; `None`, with the reason printed, where there is no compiler.
fn stand_ins(name: &str, flags: &[&str]) -> Option<&'static Path> {
    static BUILT: Mutex<()> = Mutex::new(());
    let _one = BUILT.lock();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/mock/build.sh");
    let built = Command::new("sh").arg(script).arg(&folder).args(flags).output().expect("a shell");
    if built.status.code() == Some(77) {
        println!("skipped: {}", String::from_utf8_lossy(&built.stderr).trim());
        return None;
    }
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(Box::leak(folder.into_boxed_path()))
}

/// A line for each trial.
fn tell(progress: &Progress<'_>) {
    let observation = progress.observation;
    let attempts: Vec<_> =
        observation.attempts.iter().map(|attempt| (attempt.outcome, attempt.detail.as_deref())).collect();
    println!("{} {} {} {attempts:?}", progress.device, observation.trial, observation.outcome);
}

/// Examines the device: its kernels alone, or everything.
fn examine(device: &mut CudaDevice, only_kernels: bool) {
    if only_kernels {
        for check in device.check_kernels().unwrap() {
            println!("check {:?} {} {:?}", check.error_ratio, check.name, check.reason);
        }
    } else {
        let report = self_test(device, &Catalogue::bundled()).unwrap();
        println!("report {}", serde_json::to_string(&report).unwrap());
    }
}

/// The role of the coordinator; nothing when the tests run as tests.
#[test]
fn coordinator() {
    let Some(folder) = std::env::var_os(PLAY).map(PathBuf::from) else { return };
    let worker = std::env::var_os("ELASTICO_TEST_WORKER").unwrap();
    let campaign = Campaign::read(&folder.join("campaign.toml")).unwrap();
    let options = CudaOptions {
        cache: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("stand-in-cubin"),
        pipes: folder.join("pipes"),
        context_timeout: Duration::from_secs(2),
        counting: Duration::from_millis(300),
        telemetry_hertz: 20.0,
        processes: ProcessOptions {
            ring_folder: folder.join("mock"),
            start_timeout: Duration::from_secs(20),
            hang_timeout: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(3),
            stop_timeout: Duration::from_millis(1500),
            ..ProcessOptions::default()
        },
        ..CudaOptions::default()
    };
    let open = |index, cores| {
        CudaDevice::new(vec![worker.clone()], index, CudaOptions { cores, ..options.clone() }).unwrap_or_else(
            |fault| {
                println!("no device: {fault}");
                std::process::exit(3);
            },
        )
    };
    let run_folder = folder.join("run");
    let options = RunOptions { resume: run_folder.exists(), ..RunOptions::default() };
    if campaign.at_once {
        let open = |name: &DeviceName, cores| match name {
            DeviceName::Cuda(index) => Ok(Box::new(open(*index, cores)) as Box<dyn Device>),
            other => panic!("{other} is no GPU"),
        };
        let ran = run_all(&campaign, &Catalogue::bundled(), &run_folder, &options, &open, &mut tell);
        println!("{ran:?}");
        return;
    }
    let mut device = open(0, None);
    if let Some(part) = std::env::var_os(SELF_TEST) {
        examine(&mut device, part == "kernels");
        return;
    }
    let ran = run(&campaign, &Catalogue::bundled(), &mut device, &run_folder, &options, &mut tell);
    match ran {
        Ok(report) => println!("{:?}", report.stopped),
        Err(error) => {
            println!("{error}");
            std::process::exit(2);
        }
    }
}
