//! CPU cores as a device: the same step programs, run for real by two worker processes.
//!
//! It exists so that the whole measuring protocol is exercised for real on any machine: processes, gating, drift,
//! crash, resume. The contention is real (cores, caches, memory bandwidth), but it is not a GPU's.
//!
//! What sharing means here, with all cores that this process may use as the device:
//!
//! | mode | subject | co-runner |
//! |---|---|---|
//! | `exclusive` | all cores | none: a pair is refused |
//! | `time_slice` | all cores, one lane fixed to each | the same: the kernel alternates the two lanes of a core |
//! | `mps(p,q)` | `p` of the cores from the first on, lanes free among them | `q` of the cores from the last back |
//! | `mig(...)`, `streams` | refused | refused |
//!
//! A worker has one lane per core of its set and splits each op by rows, so that "isolated at the share" is slower than
//! "isolated at the full device" by what the missing cores are worth. As under MPS, shares that add up to more than 1
//! overlap. A share is rounded to whole cores, one at least; [`Session::effective_sharing`]
//! tells what came of it. On cores without hyper-threads `mps(1,1)` and `time_slice` differ only in that lanes may move.

mod cores;
mod session;

use super::processes::{ProcessOptions, WorkerProcess, sweep};
use crate::device::{Device, DeviceIdentity, Fault, Session, SessionRequest, Side};
use crate::worker::message::{EngineRequest, Reply, Seat, Work};
use elastico_core::units::Bytes;
use elastico_core::{DeviceKind, Outcome};
use elastico_gpu::probe::allowed_cores;
use session::CpuSession;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// How the CPU device treats its workers.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuOptions {
    /// Cores that make up the device; `None` takes all that this process may use.
    pub cores: Option<Vec<usize>>,
    /// Memory that one worker may allocate.
    pub memory_limit: Bytes,
    /// How its workers are started, watched and ended.
    pub processes: ProcessOptions,
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self { cores: None, memory_limit: Bytes(600e6), processes: ProcessOptions::default() }
    }
}

/// The cores of this host as a device.
///
/// A worker dies with the *thread* that opened its session (the kernel's parent-death signal is per thread), so a
/// session must not outlive that thread.
#[derive(Debug)]
pub struct CpuDevice {
    identity: DeviceIdentity,
    command: Vec<OsString>,
    cores: Vec<usize>,
    options: CpuOptions,
}

impl CpuDevice {
    /// A device whose workers are started by `worker_command`, program first: `[current_exe, "worker"]`, a program that
    /// calls [`crate::worker::main`].
    ///
    /// Rings that earlier coordinators left behind are removed here.
    ///
    /// # Errors
    /// A [`Fault`] where the command is empty or no core may be used.
    pub fn new(worker_command: Vec<OsString>, options: CpuOptions) -> Result<Self, Fault> {
        let unusable = |detail: String| Fault { outcome: Outcome::Unsupported, detail };
        if worker_command.is_empty() {
            return Err(unusable("the worker command is empty".to_owned()));
        }
        let allowed = allowed_cores()
            .map_err(|error| unusable(format!("the cores of this process cannot be read: {error}")))?;
        let cores = options.cores.clone().unwrap_or_else(|| allowed.clone());
        if let Some(core) = cores.iter().find(|core| !allowed.contains(core)) {
            return Err(unusable(format!("core {core} is not among the cores {allowed:?} of this process")));
        }
        if cores.is_empty() {
            return Err(unusable("no core to run on".to_owned()));
        }
        sweep(&options.processes);
        let identity = identity(&cores);
        Ok(Self { identity, command: worker_command, cores, options })
    }

    fn work(&self, request: &SessionRequest<'_>, side: Side, placing: &cores::Placing) -> Work {
        let benchmark = match side {
            Side::Subject => request.subject,
            Side::CoRunner => request.co_runner.unwrap_or(request.subject),
        };
        let program = benchmark.cpu_program().clone();
        Work {
            trial: request.trial.as_str().to_owned(),
            seed: request.seed,
            cores: placing.of(side).to_vec(),
            owner_timeout_seconds: self.options.processes.owner_timeout.as_secs_f64(),
            seats: vec![Seat {
                side: side.into(),
                idle: program.ops.is_empty(),
                program,
                ring: PathBuf::new(),
            }],
            engine: EngineRequest::Cpu {
                pinned: placing.pinned,
                memory_limit_bytes: self.options.memory_limit.get() as u64,
            },
        }
    }
}

impl Device for CpuDevice {
    fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    fn open<'a>(&'a mut self, request: &SessionRequest<'_>) -> Result<Box<dyn Session + 'a>, Fault> {
        let placing = cores::place(&self.cores, request.sharing, request.co_runner.is_some())
            .map_err(|detail| Fault { outcome: Outcome::Unsupported, detail })?;
        let mut sides = vec![Side::Subject];
        if request.co_runner.is_some() {
            sides.push(Side::CoRunner);
        }
        // Both start and allocate at the same time; a fault of one drops, and so ends, the other.
        let options = &self.options.processes;
        let mut workers = Vec::new();
        for side in sides {
            let work = self.work(request, side, &placing);
            workers.push(WorkerProcess::start(&self.command, &Vec::new(), options, &[side], work)?);
        }
        let mut peaks = Vec::new();
        for worker in &mut workers {
            if let Reply::Ready { peak_resident_bytes, .. } = worker.await_ready(options.start_timeout)? {
                peaks.push(peak_resident_bytes);
            }
        }
        Ok(Box::new(CpuSession::new(&self.options, workers, peaks, placing, request)))
    }
}

/// Model `cpu`, with the facts that a reader of the numbers asks for.
fn identity(cores: &[usize]) -> DeviceIdentity {
    let mut facts = BTreeMap::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let field = |text: &str, name: &str| {
        text.lines()
            .find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name))
            .map(|(_, value)| value.trim().to_owned())
    };
    let processor = read("/proc/cpuinfo").unwrap_or_default();
    fact("processor", field(&processor, "model name"));
    fact("cores", Some(cores.len().to_string()));
    fact("kernel", read("/proc/sys/kernel/osrelease"));
    fact("governor", read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
    let cache = "/sys/devices/system/cpu/cpu0/cache";
    for index in 0..5 {
        let entry = |name: &str| read(&format!("{cache}/index{index}/{name}"));
        if let (Some(level), Some(kind), Some(size)) = (entry("level"), entry("type"), entry("size"))
            && kind != "Instruction"
        {
            fact(&format!("cache_l{level}"), Some(size));
        }
    }
    let memory = read("/proc/meminfo")
        .and_then(|text| field(&text, "MemTotal"))
        .and_then(|value| value.strip_suffix("kB")?.trim().parse::<f64>().ok())
        .map_or(Bytes(0.0), |kilobytes| Bytes(kilobytes * 1024.0));
    DeviceIdentity { kind: DeviceKind::Cpu, model: "cpu".to_owned(), memory, facts }
}
