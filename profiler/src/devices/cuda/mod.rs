//! A real GPU as a device: step programs as captured graphs, run by worker processes that the driver lets share it.
//!
//! | mode | processes | what is checked |
//! |---|---|---|
//! | `exclusive` | the subject's, away from any MPS daemon | all SMs seen |
//! | `time_slice` | one per side, away from any MPS daemon | no MPS, all SMs seen |
//! | `mps(p,q)` | one per side under a daemon of our own, with their percentages | MPS enabled, SMs seen within a TPC of the percentage |
//! | `mig(profile)` | one per side, each in an instance of its own | no MPS, fewer SMs than the GPU has |
//! | `streams` | one for both sides, a stream each | all SMs seen |
//! | `streams(p,q)` | one for both sides, a green context each | SMs within a partition of the shares |
//!
//! The coordinator holds no context: what it must know of the driver it asks a process of its own. It owns the MPS
//! daemon, the NVML poller and the ledger of memory. After a fault it stops the daemon, looks whether the GPU still works,
//! and turns the fault into the gravest thing that it finds.

mod claim;
pub mod commands;
mod cores;
mod counters;
mod identity;
mod memory;
mod pipes;
mod recovery;
mod self_test;
mod session;
mod sharing;
mod telemetry;

pub use self_test::{KernelCheck, NullPair, SelfTest, self_test};

use super::processes::{Environment, ProcessOptions, WorkerProcess, sweep};
use crate::device::{Device, DeviceIdentity, Fault, Session, SessionRequest, Side};
use crate::worker::message::{CudaWork, EngineRequest, GpuReport, Reply, Seat, SideName, Work};
use counters::Source;
use elastico_core::{Hint, Outcome, SharingMode};
use elastico_gpu::cubin::Cache;
use elastico_gpu::cuda::DeviceFacts;
use elastico_gpu::libraries::Libraries;
use elastico_gpu::mps::{Daemon, DaemonOptions};
use memory::{LEAK, Ledger};
use pipes::EmptyPipes;
use session::CudaSession;
use sharing::{Arrangement, SIDE, base_environment, verify, without_mps};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use telemetry::Poller;

/// How the CUDA device treats driver and workers.
#[derive(Debug, Clone, PartialEq)]
pub struct CudaOptions {
    /// Where the driver's libraries are.
    pub libraries: Libraries,
    /// Host cores for this GPU: coordinator, submitting threads, sampler; `None` takes those beside the GPU.
    pub cores: Option<Vec<usize>>,
    /// Folder of compiled kernels; shared by all GPUs and campaigns.
    pub cache: PathBuf,
    /// Folder for the pipes of the MPS daemon; its path must be short, as sockets' are.
    pub pipes: PathBuf,
    /// The MPS control program; `None` finds it on PATH.
    pub mps_control: Option<PathBuf>,
    /// A driver call that a process needs for its context, and every call of the MPS control program, must be done by then.
    pub context_timeout: Duration,
    /// Samples of clocks, power and temperatures per second; 0 takes none.
    pub telemetry_hertz: f64,
    /// Least length of the repetition that counters are read in, and of the phases of a self-test.
    pub counting: Duration,
    /// Time between two samples of the counters.
    pub sampling_interval: Duration,
    /// How workers are started, watched and ended.
    pub processes: ProcessOptions,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self {
            libraries: Libraries::from_environment(),
            cores: None,
            cache: cache_folder(),
            pipes: std::env::temp_dir(),
            mps_control: None,
            context_timeout: Duration::from_secs(30),
            telemetry_hertz: elastico_gpu::telemetry::TelemetryPoller::DEFAULT_HERTZ,
            counting: Duration::from_secs(1),
            sampling_interval: Duration::from_millis(1),
            processes: ProcessOptions {
                // Compiling, loading and filling a large model's buffers.
                start_timeout: Duration::from_mins(3),
                hang_timeout: Duration::from_secs(20),
                // A context of many gigabytes takes seconds to go; killing it under MPS can take the server along.
                stop_timeout: Duration::from_secs(20),
                ..ProcessOptions::default()
            },
        }
    }
}

/// The user's cache for compiled kernels.
fn cache_folder() -> PathBuf {
    Cache::default_folder().unwrap_or_else(|| std::env::temp_dir().join("elastico-cubin"))
}

/// One GPU of this host.
///
/// A worker dies with the *thread* that opened its session (the kernel's parent-death signal is per thread), so a
/// session must not outlive that thread.
pub struct CudaDevice {
    identity: DeviceIdentity,
    facts: DeviceFacts,
    command: Vec<OsString>,
    cores: cores::Cores,
    options: CudaOptions,
    /// An empty pipe folder: a process with it meets no MPS daemon.
    no_mps: EmptyPipes,
    daemon: Option<Daemon>,
    poller: Poller,
    ledger: Ledger,
    source: Source,
    index: u32,
    /// Held while this device measures.
    claim: Option<claim::Claim>,
}

impl std::fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaDevice")
            .field("identity", &self.identity)
            .field("cores", &self.cores)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl CudaDevice {
    /// The GPU of an index as nvidia-smi counts, with workers that are started by `worker_command`, program first:
    /// `[current_exe, "worker"]`, a program that calls [`crate::worker::main`].
    ///
    /// What earlier coordinators left behind is removed here: rings, and MPS daemons with their folders.
    ///
    /// # Errors
    /// A [`Fault`] where the driver is missing or refuses, or there is no such GPU.
    pub fn new(worker_command: Vec<OsString>, index: u32, options: CudaOptions) -> Result<Self, Fault> {
        let unusable = |detail: String| Fault { outcome: Outcome::Unsupported, detail };
        if worker_command.is_empty() {
            return Err(unusable("the worker command is empty".to_owned()));
        }
        sweep(&options.processes);
        elastico_gpu::mps::sweep(&options.pipes, options.context_timeout);
        let no_mps = EmptyPipes::create(&options.pipes)
            .map_err(|error| unusable(format!("no folder for pipes: {error}")))?;
        let inventory = identity::inventory(&worker_command, &options, no_mps.path())?;
        let facts = identity::pick(&inventory, index)?.clone();
        let cores = cores::Cores::new(options.cores.clone(), &facts.pci_bus)?;
        let (poller, known) = Poller::open(&options.libraries, &facts.uuid, options.telemetry_hertz);
        let identity = identity::identity(&facts, &inventory, known.as_ref(), cores.all());
        Ok(Self {
            identity,
            facts,
            command: worker_command,
            cores,
            options,
            no_mps,
            daemon: None,
            poller,
            ledger: Ledger::default(),
            source: Source::Unknown,
            index,
            claim: None,
        })
    }

    /// How a mode is brought about on this GPU.
    fn arrangement(&self, sharing: &SharingMode, is_pair: bool) -> Result<Arrangement, Fault> {
        let is_divided = self.facts.uuid.starts_with("MIG-");
        Arrangement::new(sharing, is_pair, is_divided, || {
            elastico_gpu::mig::instances(&self.options.libraries, self.index)
                .map_err(|error| error.to_string())
        })
    }

    /// The folder in which no MPS daemon listens.
    fn no_mps(&self) -> Environment {
        without_mps(self.no_mps.path())
    }

    /// The daemon, started once and then kept.
    fn daemon(&mut self) -> Result<&Daemon, Fault> {
        let fault = |detail: String| Fault { outcome: Outcome::MpsFault, detail };
        if self.daemon.as_ref().is_some_and(|daemon| !daemon.is_alive()) {
            // Dropping it stops what is left of it.
            self.daemon = None;
        }
        if self.daemon.is_none() {
            let options = DaemonOptions {
                program: self.options.mps_control.clone(),
                folder: self.options.pipes.clone(),
                device_uuid: Some(self.facts.uuid.clone()),
                timeout: self.options.context_timeout,
            };
            let started = Daemon::start(&options).map_err(|error| {
                let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
                let mut fault = fault(format!("the MPS daemon does not start: {error}{hint}"));
                if error.is_absence() {
                    fault.outcome = Outcome::Unsupported;
                }
                fault
            })?;
            self.daemon = Some(started);
        }
        self.daemon.as_ref().ok_or_else(|| fault("there is no MPS daemon".to_owned()))
    }

    /// Waits until the memory of the session before is free again; whether it is not.
    fn has_leaked(&mut self) -> bool {
        let Some(mut used) = self.poller.memory_used() else { return false };
        let Some(baseline) = self.ledger.baseline else {
            self.ledger.baseline = Some(used);
            return false;
        };
        // The MPS server keeps a context for its next clients.
        let kept = if self.daemon.is_some() { memory::CONTEXT } else { 0.0 };
        let deadline = Instant::now() + Duration::from_secs(3);
        while used > baseline + LEAK + kept && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            used = self.poller.memory_used().unwrap_or(0.0);
        }
        let leaked = used > baseline + LEAK + kept;
        if leaked {
            tracing::warn!(used, baseline, "device memory of an earlier session is still taken");
        }
        leaked
    }

    fn work(&self, request: &SessionRequest<'_>, sides: &[Side], arrangement: &Arrangement) -> Work {
        let seat = |side: &Side| {
            let program = of_side(request, *side).program().clone();
            Seat { side: (*side).into(), idle: program.ops.is_empty(), program, ring: PathBuf::new() }
        };
        Work {
            trial: request.trial.as_str().to_owned(),
            seed: request.seed,
            cores: sides.iter().flat_map(|side| self.cores.of(*side)).copied().collect(),
            owner_timeout_seconds: self.options.processes.owner_timeout.as_secs_f64(),
            seats: sides.iter().map(seat).collect(),
            engine: EngineRequest::Cuda(CudaWork {
                split: match arrangement {
                    Arrangement::Together(split) => *split,
                    _ => None,
                },
                ..self.cuda_work()
            }),
        }
    }

    fn cuda_work(&self) -> CudaWork {
        CudaWork { libraries: self.options.libraries.clone(), cache: self.options.cache.clone(), split: None }
    }

    /// Starts the processes of a session and waits until they are ready; with what each of them reports.
    fn start(
        &mut self,
        request: &SessionRequest<'_>,
        sides: &[Side],
        arrangement: &Arrangement,
    ) -> Result<(Vec<WorkerProcess>, Vec<GpuReport>), Fault> {
        let groups: Vec<Vec<Side>> = match arrangement {
            Arrangement::Together(_) => vec![sides.to_vec()],
            _ => sides.iter().map(|side| vec![*side]).collect(),
        };
        let mut workers = Vec::new();
        for group in &groups {
            let side = group[0];
            let mut environment = base_environment(Some(arrangement.visible(side, &self.facts.uuid)));
            let name = if group.len() > 1 { "both" } else { SideName::from(side).as_str() };
            environment.push((SIDE.to_owned(), Some(name.to_owned())));
            if arrangement.is_mps() {
                let percent = arrangement.percent(side);
                let client = self.daemon()?.client_environment(percent, None);
                environment.extend(client.into_iter().map(|(name, value)| (name, Some(value))));
            } else {
                environment.extend(self.no_mps());
            }
            let work = self.work(request, group, arrangement);
            let options = &self.options.processes;
            workers.push(WorkerProcess::start(&self.command, &environment, options, group, work)?);
        }
        for worker in &mut workers {
            worker.await_stage(self.options.context_timeout, "get a context")?;
        }
        let mut reports = Vec::new();
        for worker in &mut workers {
            if let Reply::Ready { gpu: Some(report), .. } =
                worker.await_ready(self.options.processes.start_timeout)?
            {
                reports.push(*report);
            }
        }
        Ok((workers, reports))
    }
}

/// The benchmark of a side.
fn of_side<'a>(request: &SessionRequest<'a>, side: Side) -> &'a elastico_workloads::Benchmark {
    match side {
        Side::Subject => request.subject,
        Side::CoRunner => request.co_runner.unwrap_or(request.subject),
    }
}

impl Device for CudaDevice {
    fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    fn claim(&mut self) -> Result<(), Fault> {
        if self.claim.is_none() {
            self.claim = Some(claim::Claim::take(&self.options.pipes, &self.facts.uuid)?);
        }
        Ok(())
    }

    fn open<'a>(&'a mut self, request: &SessionRequest<'_>) -> Result<Box<dyn Session + 'a>, Fault> {
        Ok(Box::new(self.begin(request)?))
    }
}

impl CudaDevice {
    fn begin(&mut self, request: &SessionRequest<'_>) -> Result<CudaSession<'_>, Fault> {
        let sides: &[Side] =
            if request.co_runner.is_some() { &[Side::Subject, Side::CoRunner] } else { &[Side::Subject] };
        let arrangement = self.arrangement(request.sharing, sides.len() == 2)?;
        // Errors that belong to a session before this one are not this one's.
        let _ = self.poller.xid(true);
        let has_leaked = self.has_leaked();
        let planned: Vec<_> = sides
            .iter()
            .map(|side| of_side(request, *side))
            .map(|benchmark| (&benchmark.id, benchmark.program().footprint().get()))
            .collect();
        self.ledger.admit(self.facts.memory as f64, &planned)?;
        let before = self.poller.memory_used();
        let opened = self.start(request, sides, &arrangement).and_then(|(workers, reports)| {
            let effective = self.verify(&arrangement, request.sharing, sides, &reports)?;
            Ok((workers, reports, effective))
        });
        let (workers, reports, effective) = match opened {
            Ok(opened) => opened,
            Err(fault) => return Err(self.explain(fault, &arrangement)),
        };
        if let (&[Side::Subject], Some(before), Some(now)) = (sides, before, self.poller.memory_used()) {
            self.ledger.note(&request.subject.id, now - before);
        }
        let mut flags = Vec::new();
        if self.cores.are_few(sides.len()) {
            flags.push("few_cores");
        }
        if has_leaked {
            flags.push("memory_leaked");
        }
        Ok(CudaSession::new(self, workers, reports, effective, arrangement, request, flags))
    }

    fn verify(
        &self,
        arrangement: &Arrangement,
        sharing: &SharingMode,
        sides: &[Side],
        reports: &[GpuReport],
    ) -> Result<SharingMode, Fault> {
        let of = |place: usize| reports.get(place).or(reports.first());
        let seen: Vec<(Side, &GpuReport)> =
            sides.iter().enumerate().filter_map(|(place, side)| Some((*side, of(place)?))).collect();
        let whole = u32::try_from(self.facts.multiprocessors).unwrap_or(0);
        verify(arrangement, sharing, whole, &seen)
    }
}
