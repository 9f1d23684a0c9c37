//! A real GPU as a device for commands of the user's, see [`crate::exec`].
//!
//! The GPU is a [`CudaDevice`]: its identity, sharing, daemon, telemetry and counters are the same. What differs is what
//! runs: shell commands, which cannot be asked to park or to count their steps.
//!
//! | mode | each command gets |
//! |---|---|
//! | `exclusive`, `time_slice` | an empty MPS pipe folder, so that no daemon is met |
//! | `mps(p,q)` | the pipes of a daemon of our own, and its percentage |
//! | `mig(profile)` | an instance of its own |
//! | `streams` | refused: two programs have no process in common |

mod session;

use super::CudaDevice;
use super::sharing::{Arrangement, base_environment, verify};
use crate::device::{Device, DeviceIdentity, Fault, Session, SessionRequest, Side};
use crate::devices::processes::Environment;
use crate::exec::{Guard, Running, Settings, StartOptions, await_steady, sweep};
use crate::worker::message::GpuReport;
use elastico_core::{Outcome, SharingMode, WorkloadId};
use elastico_gpu::libraries::LibraryKind;
use elastico_gpu::ring::start_time;
use regex::bytes::Regex;
use session::CommandSession;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How commands are run, beside what [`Settings`] say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOptions {
    /// Where the output of the commands is kept, two files per trial and side.
    pub log_folder: PathBuf,
    /// The library that records kernels: `libelastico_injection.so` of this build.
    pub injection: PathBuf,
    /// Where the rings of records live; best a memory file system.
    pub ring_folder: PathBuf,
    /// A period of kernels must hold so long before it is believed: libraries try out kernels in loops of their own.
    pub hold: Duration,
    /// A side without progress for so long hangs; a side with long steps has ten of them.
    pub hang: Duration,
}

/// Variables for workers that would change a program of the user's.
const NOT_FOR_PROGRAMS: &[&str] = &["CUDA_MODULE_LOADING"];
/// Time that the recording has to tell of SMs and MPS, which it does a tenth of a second after the first kernel.
const TELL: Duration = Duration::from_secs(3);

/// A GPU that runs two commands.
#[derive(Debug)]
pub struct CommandDevice {
    gpu: CudaDevice,
    commands: BTreeMap<WorkloadId, String>,
    start: StartOptions,
    sessions: u32,
    /// How steps were found, by workload.
    progress: BTreeMap<WorkloadId, String>,
}

impl CommandDevice {
    /// The commands of `settings` on a GPU.
    ///
    /// # Errors
    /// A [`Fault`] where the pattern is no regular expression.
    pub fn new(gpu: CudaDevice, settings: &Settings, options: CommandOptions) -> Result<Self, Fault> {
        let unusable = |detail: String| Fault { outcome: Outcome::Unsupported, detail };
        sweep(&options.ring_folder);
        let pattern = match settings.progress_pattern.as_deref().map(Regex::new) {
            Some(Err(error)) => {
                return Err(unusable(format!("the progress pattern cannot be used: {error}")));
            }
            Some(Ok(pattern)) => Some(pattern),
            None => None,
        };
        let protocol = settings.protocol();
        let start = StartOptions {
            working_folder: settings.folder.clone(),
            log_folder: options.log_folder,
            ring_folder: options.ring_folder,
            injection: settings.injection.then_some(options.injection),
            cupti: gpu.options.libraries.locate(LibraryKind::Cupti).ok(),
            pattern,
            startup: Duration::try_from_secs_f64(settings.startup_seconds).unwrap_or(Duration::from_mins(2)),
            hold: options.hold,
            hang: options.hang,
            trial_seconds: 2.0 * settings.startup_seconds.min(30.0)
                + protocol.soak_seconds
                + 6.0 * protocol.min_seconds,
        };
        Ok(Self { gpu, commands: settings.commands(), start, sessions: 0, progress: BTreeMap::new() })
    }

    /// How the steps of each workload were found in the last session with it.
    pub const fn progress(&self) -> &BTreeMap<WorkloadId, String> {
        &self.progress
    }

    /// The environment of a side's command.
    fn environment(&mut self, arrangement: &Arrangement, side: Side) -> Result<Environment, Fault> {
        let mut environment = base_environment(Some(arrangement.visible(side, &self.gpu.facts.uuid)));
        environment.retain(|(name, _)| !NOT_FOR_PROGRAMS.contains(&name.as_str()));
        if matches!(arrangement, Arrangement::Apart) && std::env::var_os("CUDA_VISIBLE_DEVICES").is_none() {
            // Some frameworks read only numbers there.
            environment.push(("CUDA_VISIBLE_DEVICES".to_owned(), Some(self.gpu.index.to_string())));
        }
        if arrangement.is_mps() {
            let percent = arrangement.percent(side);
            let client = self.gpu.daemon()?.client_environment(percent, None);
            environment.extend(client.into_iter().map(|(name, value)| (name, Some(value))));
        } else {
            environment.extend(self.gpu.no_mps());
        }
        Ok(environment)
    }

    /// Starts a side and waits until its progress is steady. All others must be parked.
    fn start(
        &mut self,
        request: &SessionRequest<'_>,
        side: Side,
        arrangement: &Arrangement,
        marker: &str,
    ) -> Result<Running, Fault> {
        let benchmark = super::of_side(request, side);
        let command = self.commands.get(&benchmark.id).ok_or_else(|| Fault {
            outcome: Outcome::Unsupported,
            detail: format!("`{}` is none of the commands", benchmark.id),
        })?;
        let command = command.clone();
        let environment = self.environment(arrangement, side)?;
        let letter = if side == Side::Subject { 'a' } else { 'b' };
        let log_name = format!("{}.{letter}", request.trial);
        let marker = format!("{marker}.{letter}");
        let mut running = Running::start(side, &command, &environment, &marker, &log_name, &self.start)?;
        await_steady(&mut running, &self.start)?;
        let how = running.how();
        tracing::info!(workload = benchmark.id.as_str(), how, "progress");
        self.progress.insert(benchmark.id.clone(), how);
        Ok(running)
    }

    /// Checks the sharing that a side sees; whether it could be seen.
    fn verify(
        &self,
        running: &mut Running,
        arrangement: &Arrangement,
        sharing: &SharingMode,
    ) -> Result<bool, Fault> {
        let deadline = Instant::now() + TELL;
        loop {
            let reports = running.reports();
            if let Some((report, under_mps)) =
                reports.iter().find_map(|report| Some((report, report.under_mps?)))
            {
                let seen = GpuReport {
                    multiprocessors: vec![report.multiprocessors],
                    mps_enabled: under_mps,
                    ..GpuReport::default()
                };
                let whole = u32::try_from(self.gpu.facts.multiprocessors).unwrap_or(0);
                // A side has one report here, whichever it is.
                return verify(arrangement, sharing, whole, &[(running.side, &seen)]).map(|_| true);
            }
            let may_come = reports.iter().any(|report| !report.status.is_silent());
            if !may_come || Instant::now() >= deadline {
                return Ok(false);
            }
            running.health()?;
            running.fetch()?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts all sides, one after the other, so that each learns its progress alone.
    fn start_all(
        &mut self,
        request: &SessionRequest<'_>,
        arrangement: &Arrangement,
        marker: &str,
    ) -> Result<(Vec<Running>, bool), Fault> {
        let sides: &[Side] =
            if request.co_runner.is_some() { &[Side::Subject, Side::CoRunner] } else { &[Side::Subject] };
        let mut started: Vec<Running> = Vec::new();
        let mut is_verified = true;
        for side in sides {
            for before in &mut started {
                before.park();
            }
            let mut running = self.start(request, *side, arrangement, marker)?;
            is_verified &= self.verify(&mut running, arrangement, request.sharing)?;
            started.push(running);
        }
        Ok((started, is_verified))
    }
}

impl Device for CommandDevice {
    fn identity(&self) -> &DeviceIdentity {
        self.gpu.identity()
    }

    fn claim(&mut self) -> Result<(), Fault> {
        self.gpu.claim()
    }

    fn open<'a>(&'a mut self, request: &SessionRequest<'_>) -> Result<Box<dyn Session + 'a>, Fault> {
        let unsupported = |detail: &str| Fault { outcome: Outcome::Unsupported, detail: detail.to_owned() };
        if *request.sharing == SharingMode::Streams {
            return Err(unsupported(
                "`streams` takes one process for both sides, and these are two programs",
            ));
        }
        let is_pair = request.co_runner.is_some();
        let arrangement = self.gpu.arrangement(request.sharing, is_pair)?;
        let _ = self.gpu.poller.xid(true);
        let mut flags = Vec::new();
        if self.gpu.has_leaked() {
            flags.push("memory_leaked");
        }
        let mut ids = vec![&request.subject.id];
        ids.extend(request.co_runner.map(|co_runner| &co_runner.id));
        let planned: Vec<(&WorkloadId, f64)> = ids.into_iter().map(|id| (id, 0.0)).collect();
        self.gpu.ledger.admit(self.gpu.facts.memory as f64, &planned)?;
        let before = self.gpu.poller.memory_used();

        self.sessions += 1;
        let owner = std::process::id();
        let marker = format!("{owner}-{}-{}", start_time(owner).unwrap_or(0), self.sessions);
        let guard = Guard::start(&marker)
            .map_err(|error| unsupported(&format!("no guard for the commands can be started: {error}")))?;
        let (sides, is_verified) = match self.start_all(request, &arrangement, &marker) {
            Ok(started) => started,
            Err(fault) => return Err(self.gpu.blame(fault, &arrangement)),
        };
        if !is_verified {
            flags.push("sharing_unverified");
        }
        Ok(Box::new(CommandSession::new(self, sides, guard, arrangement, request, before, flags)))
    }
}
