//! Runs a campaign in a folder: `campaign.toml`, `plan.jsonl`, `journal.jsonl`, `dataset/`.

mod devices;

pub use devices::{OpenDevice, ShowProgress, run_all, status_all};

use crate::Error;
use crate::assemble::assemble;
use crate::campaign::{Budget, Campaign};
use crate::device::{Device, DeviceIdentity};
use crate::journal::{self, Header, Journal, Lock};
use crate::observation::Observation;
use crate::plan::{Plan, Trial};
use crate::protocol;
use crate::schedule::{Results, Schedule, State};
use elastico_core::units::Seconds;
use elastico_core::{Outcome, WorkloadId};
use elastico_workloads::{Benchmark, Catalogue};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Name of the campaign's copy in its folder.
const CAMPAIGN: &str = "campaign.toml";
/// Name of the plan in the folder.
const PLAN: &str = "plan.jsonl";
/// Name of the dataset in the folder.
const DATASET: &str = "dataset";

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions<'a> {
    /// Continue a journal that is there; without it such a folder is refused.
    pub resume: bool,
    /// Continue although campaign, device or version changed.
    pub force: bool,
    /// When set to true, the run ends after the current trial with all results saved.
    pub interrupted: Option<&'a AtomicBool>,
}

/// How far a run is, after each trial.
#[derive(Debug)]
pub struct Progress<'a> {
    /// The device that it was measured on, as the user named it.
    pub device: &'a str,
    /// Trials done, those of earlier runs in the folder included.
    pub done: u64,
    /// Trials that are certain by now: grows where cells need more repeats, at most to all repeats of all cells.
    pub total: u64,
    /// Time that the certain trials will still take, by their estimated cost and the pace so far.
    pub remaining: Option<Seconds>,
    /// The trial just done.
    pub trial: &'a Trial,
    /// Its result.
    pub observation: &'a Observation,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// Every cell is done.
    Complete,
    /// The budget is used up.
    Budget,
    /// The user stopped it.
    Interrupted,
    /// The device is gone; resume when it is back.
    DeviceLost,
}

/// What a run, or the folder of one, comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Schema of this form: `elastico.profile_status/1`.
    pub schema: &'static str,
    /// Name of the campaign.
    pub name: String,
    /// The device.
    pub device: String,
    /// Trials done.
    pub done: u64,
    /// Trials that are certain.
    pub total: u64,
    /// Trials by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Cells whose interval is narrow enough.
    pub converged: u64,
    /// Cells that reached the cap of repeats.
    pub inconclusive: u64,
    /// Cells that failed.
    pub failed: u64,
    /// Cells that need more repeats.
    pub open: u64,
    /// Configurations that were not measured.
    pub skipped: u64,
    /// Device seconds spent.
    pub seconds: f64,
    /// Whether a process is writing to the folder now.
    pub is_running: bool,
    /// Whether the last line of the journal is torn; resuming mends it.
    pub is_torn: bool,
}

/// What a call of [`run`] did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// Why it ended.
    pub stopped: Stopped,
    /// Trials that this call measured.
    pub measured: u64,
    /// How the folder stands now.
    pub status: Status,
}

/// Measures a campaign on one device, and writes the dataset of all that is in the journal.
///
/// **Determinism**: on a simulated device the folder's dataset depends on campaign, catalogue and version alone,
/// however often the run was killed and resumed.
///
/// # Errors
/// A plan that cannot be made, a folder that holds another campaign or is in use, and errors of writing. What goes
/// wrong in a trial is an outcome, not an error.
pub fn run(
    campaign: &Campaign,
    catalogue: &Catalogue,
    device: &mut dyn Device,
    folder: &Path,
    options: &RunOptions<'_>,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<RunReport, Error> {
    let plan = Plan::new(campaign, catalogue, device.identity())?;
    let mut benchmarks: BTreeMap<WorkloadId, &Benchmark> = BTreeMap::new();
    for facts in &plan.workloads {
        let benchmark = catalogue.get(facts.id.as_str()).map_err(|source| Error::Workload {
            file: folder.join(CAMPAIGN),
            line: 0,
            pattern: facts.id.to_string(),
            source: Box::new(source),
        })?;
        benchmarks.insert(facts.id.clone(), benchmark);
    }
    let work = Work { plan, benchmarks, budget: campaign.budget, file: CAMPAIGN, text: campaign.to_toml() };
    run_planned(&work, device, folder, options, progress)
}

/// A plan with all that it takes to carry it out.
pub(crate) struct Work<'a> {
    pub(crate) plan: Plan,
    /// Every workload of the plan.
    pub(crate) benchmarks: BTreeMap<WorkloadId, &'a Benchmark>,
    pub(crate) budget: Budget,
    /// What the plan was made of, as it is kept in the folder: name and text of the file.
    pub(crate) file: &'static str,
    pub(crate) text: String,
}

/// As [`run`], for a plan that was made otherwise.
pub(crate) fn run_planned(
    work: &Work<'_>,
    device: &mut dyn Device,
    folder: &Path,
    options: &RunOptions<'_>,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<RunReport, Error> {
    let plan = &work.plan;
    device
        .claim()
        .map_err(|fault| Error::NoDevice { device: plan.header.device.clone(), reason: fault.detail })?;
    std::fs::create_dir_all(folder).map_err(|source| Error::write(folder, source))?;
    let _lock = Lock::take(folder)?;
    if !options.resume
        && [journal::FILE, work.file, CAMPAIGN, PLAN, DATASET].iter().any(|name| folder.join(name).exists())
    {
        return Err(Error::Exists(folder.to_owned()));
    }
    remove_leftovers(folder)?;
    let (mut journal, earlier) = Journal::open(folder, &Header::new(plan, device.identity()), options.force)?;
    elastico_datasets::write_atomic(&folder.join(work.file), work.text.as_bytes())?;
    elastico_datasets::write_atomic(&folder.join(PLAN), plan.to_jsonl().as_bytes())?;

    let mut coordinator = Coordinator::new(plan, work.budget, &earlier);
    let stopped = coordinator.rounds(&work.benchmarks, device, &mut journal, options, progress)?;
    let measured = coordinator.measured;
    journal.sync()?;
    drop(journal);
    assemble(folder)?.write(&folder.join(DATASET))?;
    let mut status = status(folder)?;
    status.is_running = false;
    Ok(RunReport { stopped, measured, status })
}

/// Removes what a run that was killed while it wrote left beside its files. Only the holder of the lock may.
fn remove_leftovers(folder: &Path) -> Result<(), Error> {
    let entries = std::fs::read_dir(folder).map_err(|source| Error::read(folder, source))?;
    for entry in entries {
        let path = entry.map_err(|source| Error::read(folder, source))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') && name.ends_with(".tmp") {
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(|source| Error::write(&path, source))?;
        }
    }
    Ok(())
}

/// The state of a run in memory.
struct Coordinator<'a> {
    plan: &'a Plan,
    budget: Budget,
    results: Results,
    /// Cost of a trial of each cell.
    costs: BTreeMap<&'a str, f64>,
    done: u64,
    seconds: f64,
    measured: u64,
    started: Instant,
    cost_done: f64,
}

impl<'a> Coordinator<'a> {
    fn new(plan: &'a Plan, budget: Budget, earlier: &[Observation]) -> Self {
        let costs = plan.cells.iter().map(|cell| (cell.id.as_str(), cell.seconds)).collect();
        let mut results = Results::default();
        for observation in earlier {
            results.add(observation);
        }
        Self {
            plan,
            budget,
            results,
            costs,
            done: 0,
            seconds: earlier.iter().map(|observation| observation.seconds).sum(),
            measured: 0,
            started: Instant::now(),
            cost_done: 0.0,
        }
    }

    fn cost(&self, trial: &Trial) -> f64 {
        self.costs.get(trial.cell.as_str()).copied().unwrap_or(0.0)
    }

    fn rounds(
        &mut self,
        benchmarks: &BTreeMap<WorkloadId, &Benchmark>,
        device: &mut dyn Device,
        journal: &mut Journal,
        options: &RunOptions<'_>,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Stopped, Error> {
        let plan = self.plan;
        let mut schedule = Schedule::new(plan);
        loop {
            let round = schedule.round(&self.results);
            if round.is_empty() {
                return Ok(Stopped::Complete);
            }
            let mut ahead: f64 =
                round.iter().filter(|trial| !self.results.is_done(trial)).map(|trial| self.cost(trial)).sum();
            // The least repeats are certain from the start, later ones as they come.
            let (later, later_cost) =
                schedule.certain_ahead().fold((0, 0.0), |(count, cost), (cell, times)| {
                    (count + u64::from(times), f64::from(times).mul_add(cell.seconds, cost))
                });
            for (index, trial) in round.iter().enumerate() {
                if self.results.is_done(trial) {
                    self.done += 1;
                    continue;
                }
                if options.interrupted.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                    return Ok(Stopped::Interrupted);
                }
                if self.is_spent() {
                    return Ok(Stopped::Budget);
                }
                let observation = self.measure(trial, benchmarks, device);
                let observation = journal.add(&observation)?;
                self.results.add(&observation);
                self.seconds += observation.seconds;
                self.measured += 1;
                self.cost_done += self.cost(trial);
                ahead -= self.cost(trial);
                if observation.outcome == Outcome::DeviceLost {
                    return Ok(Stopped::DeviceLost);
                }
                self.done += 1;
                let pace = self.started.elapsed().as_secs_f64() / self.cost_done.max(f64::MIN_POSITIVE);
                progress(&Progress {
                    device: &plan.header.device,
                    done: self.done,
                    total: self.done + (round.len() - index - 1) as u64 + later,
                    remaining: Some(Seconds((ahead.max(0.0) + later_cost) * pace)),
                    trial,
                    observation: &observation,
                });
            }
        }
    }

    fn is_spent(&self) -> bool {
        let budget = &self.budget;
        budget.max_trials.is_some_and(|most| self.done >= u64::from(most))
            || budget.max_seconds.is_some_and(|most| self.seconds >= most)
    }

    fn measure(
        &self,
        trial: &Trial,
        benchmarks: &BTreeMap<WorkloadId, &Benchmark>,
        device: &mut dyn Device,
    ) -> Observation {
        let header = &self.plan.header;
        let subject = benchmarks[&trial.subject];
        let co_runner = trial.co_runner.as_ref().map(|id| benchmarks[id]);
        protocol::measure(device, trial, subject, co_runner, &header.protocol, header.level, header.seed)
    }
}

/// How the campaign in a folder stands, while it runs or after.
///
/// # Errors
/// [`Error::NoCampaign`], or a damaged file.
pub fn status(folder: &Path) -> Result<Status, Error> {
    let plan = read_plan(folder)?;
    let content = read_journal(folder)?;
    let mut results = Results::default();
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for observation in &content.observations {
        results.add(observation);
        *outcomes.entry(observation.outcome.to_string()).or_default() += 1;
    }
    let mut schedule = Schedule::new(&plan);
    let (mut done, mut total) = (0, 0);
    loop {
        let round = schedule.round(&results);
        let finished = round.iter().filter(|trial| results.is_done(trial)).count();
        done += finished as u64;
        total += round.len() as u64;
        // A round that is not complete does not tell yet which cells the next one has.
        if round.is_empty() || finished < round.len() {
            total += schedule.certain_ahead().map(|(_, times)| u64::from(times)).sum::<u64>();
            break;
        }
    }
    let count = |state: State| {
        plan.cells
            .iter()
            .filter(|cell| cell.role != crate::plan::Role::Sentinel)
            .filter(|cell| results.final_state(&plan, &cell.id) == state)
            .count() as u64
    };
    Ok(Status {
        schema: "elastico.profile_status/1",
        name: plan.header.name.clone(),
        device: plan.header.device.clone(),
        done,
        total,
        converged: count(State::Converged),
        inconclusive: count(State::Inconclusive),
        failed: count(State::Failed),
        open: count(State::Open),
        skipped: plan.skipped.len() as u64,
        seconds: content.observations.iter().map(|observation| observation.seconds).sum(),
        is_running: Lock::is_held(folder),
        is_torn: content.is_torn,
        outcomes,
    })
}

/// The device that a journal was begun on.
///
/// # Errors
/// As [`journal::read`].
pub fn device_of(folder: &Path) -> Result<DeviceIdentity, Error> {
    let header = read_journal(folder)?
        .header
        .ok_or_else(|| Error::NoCampaign { folder: folder.to_owned(), missing: "the journal's header" })?;
    Ok(DeviceIdentity {
        kind: header.device_kind,
        model: header.model,
        memory: elastico_core::units::Bytes(header.memory),
        facts: header.facts,
    })
}

pub(crate) fn read_plan(folder: &Path) -> Result<Plan, Error> {
    let path = folder.join(PLAN);
    match std::fs::read_to_string(&path) {
        Ok(text) => Plan::from_jsonl(&text, &path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::NoCampaign { folder: folder.to_owned(), missing: PLAN })
        }
        Err(source) => Err(Error::read(&path, source)),
    }
}

pub(crate) fn read_journal(folder: &Path) -> Result<journal::Content, Error> {
    let path = folder.join(journal::FILE);
    if !path.exists() {
        return Err(Error::NoCampaign { folder: folder.to_owned(), missing: journal::FILE });
    }
    journal::read(&path)
}
