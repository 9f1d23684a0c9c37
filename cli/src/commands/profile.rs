//! `elastico profile`

use crate::failure::{Ending, environment};
use crate::output::{self, Format, Talk};
use anyhow::Context as _;
use clap::Subcommand;
use elastico_core::DeviceName;
use elastico_profiler::devices::cpu::{CpuDevice, CpuOptions};
use elastico_profiler::devices::cuda::{CudaDevice, CudaOptions};
use elastico_profiler::{Campaign, Device, Plan, Progress, RunOptions, RunReport, Status, Stopped};
use elastico_report::{Column, Table, Value};
use elastico_workloads::Catalogue;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

mod next;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say what a campaign would measure, how long it takes, and what is skipped
    Plan {
        /// The campaign (TOML)
        campaign: PathBuf,
        #[command(flatten)]
        source: Source,
        /// Other devices than the campaign's: `cuda:0-7`, `sim:h100`
        #[arg(long, value_name = "LIST")]
        devices: Option<String>,
        /// Print each cell
        #[arg(long)]
        cells: bool,
        /// Form of the answer
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Measure a campaign; each trial is on disk before the next begins
    Run {
        /// The campaign (TOML)
        campaign: PathBuf,
        #[command(flatten)]
        source: Source,
        /// Other devices than the campaign's; several GPUs are measured at once: `cuda:0-7`
        #[arg(long, value_name = "LIST")]
        devices: Option<String>,
        /// The folder for journal and dataset
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
        /// Plan only
        #[arg(long)]
        dry_run: bool,
    },
    /// Propose the pairs whose measurement teaches a model most, as a campaign
    Next(next::Arguments),
    /// Measure two commands of your own, unmodified: each alone, then both together
    Exec(super::exec::Arguments),
    /// Go on where a run was stopped or killed
    Resume {
        /// The folder of the run
        folder: PathBuf,
        #[command(flatten)]
        source: Source,
        /// Go on although campaign, device or version changed
        #[arg(long)]
        force: bool,
    },
    /// Say how a run stands, while it runs or after
    Status {
        /// The folder of the run
        folder: PathBuf,
        /// Form of the answer
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// A catalogue of your own beside the bundled one, a file or a folder
    #[arg(long, value_name = "PATH")]
    catalogue: Option<PathBuf>,
}

impl Source {
    fn read(&self) -> anyhow::Result<Catalogue> {
        Ok(match &self.catalogue {
            Some(path) => Catalogue::bundled().merge(Catalogue::read(path)?)?,
            None => Catalogue::bundled(),
        })
    }
}

pub(crate) fn run(command: &Command, talk: Talk) -> anyhow::Result<Ending> {
    match command {
        Command::Plan { campaign, source, devices, cells, format } => {
            let plans = plans(&read(campaign, devices.as_deref())?, &source.read()?)?;
            show(&plans, *cells, *format)
        }
        Command::Run { campaign, source, devices, out, dry_run } => {
            let campaign = read(campaign, devices.as_deref())?;
            let catalogue = source.read()?;
            if *dry_run {
                talk.say(format!("would write into `{}`", out.display()));
                return show(&plans(&campaign, &catalogue)?, false, Format::Table);
            }
            let reports = measure(&campaign, &catalogue, out, RunOptions::default(), talk)?;
            close(&reports, out, talk)
        }
        Command::Next(arguments) => next::run(arguments, talk),
        Command::Exec(arguments) => super::exec::run(arguments, talk),
        Command::Resume { folder, force, .. } if folder.join(elastico_profiler::exec::FILE).exists() => {
            super::exec::resume(folder, *force, talk)
        }
        Command::Resume { folder, source, force } => {
            let campaign = Campaign::read(&folder.join("campaign.toml"))?;
            let options = RunOptions { resume: true, force: *force, ..RunOptions::default() };
            let reports = measure(&campaign, &source.read()?, folder, options, talk)?;
            close(&reports, folder, talk)
        }
        Command::Status { folder, format } => {
            let all = elastico_profiler::status_all(folder)?;
            let tables: Vec<Table> = all.iter().map(status_table).collect();
            match all.as_slice() {
                [status] => output::answer(*format, status, &tables)?,
                several => output::answer(*format, &several, &tables)?,
            }
            Ok(Ending::Done)
        }
    }
}

/// The campaign of a file, on other devices where some are named.
fn read(file: &Path, devices: Option<&str>) -> anyhow::Result<Campaign> {
    let campaign = Campaign::read(file)?;
    Ok(match devices {
        Some(list) => campaign.on(DeviceName::list(list)?)?,
        None => campaign,
    })
}

/// Opens a device; workers of cores and GPUs are this very program.
pub(crate) fn open(
    name: &DeviceName,
    cores: Option<Vec<usize>>,
) -> Result<Box<dyn Device>, elastico_profiler::Error> {
    let refused = |reason| elastico_profiler::Error::NoDevice { device: name.to_string(), reason };
    let worker = || match std::env::current_exe() {
        Ok(program) => Ok(vec![program.into_os_string(), "worker".into()]),
        Err(error) => Err(refused(format!("this program does not know its own path: {error}"))),
    };
    match name {
        DeviceName::Cpu => match CpuDevice::new(worker()?, CpuOptions { cores, ..CpuOptions::default() }) {
            Ok(device) => Ok(Box::new(device)),
            Err(fault) => Err(refused(fault.detail)),
        },
        DeviceName::Cuda(index) => {
            match CudaDevice::new(worker()?, *index, CudaOptions { cores, ..CudaOptions::default() }) {
                Ok(device) => Ok(Box::new(device)),
                Err(fault) => Err(refused(fault.detail)),
            }
        }
        other => elastico_profiler::devices::open(other, cores),
    }
}

fn plans(campaign: &Campaign, catalogue: &Catalogue) -> anyhow::Result<Vec<Plan>> {
    campaign
        .per_device()
        .iter()
        .map(|part| Ok(Plan::new(part, catalogue, open(&part.device[0], None)?.identity())?))
        .collect()
}

fn show(plans: &[Plan], cells: bool, format: Format) -> anyhow::Result<Ending> {
    #[derive(Serialize)]
    struct Answer<'a> {
        schema: &'static str,
        plans: Vec<Row<'a>>,
    }
    #[derive(Serialize)]
    struct Row<'a> {
        plan: &'a elastico_profiler::PlanHeader,
        cells: &'a [elastico_profiler::Cell],
        skipped: &'a [elastico_profiler::Skipped],
        seconds_least: f64,
        seconds_most: f64,
    }
    let mut sums = Table::new(
        "elastico.profile_plan/1",
        "",
        vec![
            Column::text("device"),
            Column::text("numbers"),
            Column::number("workloads", ""),
            Column::number("cells", ""),
            Column::number("trials", "").label("trials, least"),
            Column::number("seconds_least", "").label("device s, least"),
            Column::number("seconds_most", "").label("device s, most"),
            Column::number("skipped", ""),
        ],
    );
    let mut listing = Table::new(
        "elastico.profile_plan/1",
        "cells",
        vec![
            Column::text("role"),
            Column::text("subject"),
            Column::text("co_runner"),
            Column::text("sharing"),
            Column::text("skipped"),
        ],
    );
    let mut rows = Vec::new();
    for plan in plans {
        let (least, most) = plan.seconds();
        sums.push(vec![
            plan.header.device.as_str().into(),
            plan.header.device_kind.as_str().into(),
            plan.workloads.len().into(),
            plan.cells.len().into(),
            Value::Count(plan.cells.len() as u64 * u64::from(plan.header.repeats.0)),
            Value::number(least, 0),
            Value::number(most, 0),
            plan.skipped.len().into(),
        ]);
        let name =
            |id: Option<&elastico_core::WorkloadId>| id.map_or(Value::Missing, |id| id.as_str().into());
        for cell in plan.cells.iter().filter(|_| cells) {
            listing.push(vec![
                format!("{:?}", cell.role).to_lowercase().into(),
                cell.subject.as_str().into(),
                name(cell.co_runner.as_ref()),
                cell.sharing.to_string().into(),
                Value::Missing,
            ]);
        }
        for skipped in &plan.skipped {
            listing.push(vec![
                "skipped".into(),
                skipped.subject.as_str().into(),
                name(skipped.co_runner.as_ref()),
                skipped.sharing.to_string().into(),
                skipped.reason.as_str().into(),
            ]);
        }
        rows.push(Row {
            plan: &plan.header,
            cells: &plan.cells,
            skipped: &plan.skipped,
            seconds_least: least,
            seconds_most: most,
        });
    }
    let mut tables = vec![sums];
    if !listing.rows.is_empty() {
        tables.push(listing);
    }
    output::answer(format, &Answer { schema: "elastico.profile_plan/1", plans: rows }, &tables)?;
    Ok(Ending::Done)
}

/// What the first interrupt sets.
pub(crate) fn interrupted() -> anyhow::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        // The second signal ends at once: the journal is valid at every moment.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupted))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)))
            .context("cannot listen for interrupts")?;
    }
    Ok(interrupted)
}

/// Measures a campaign with progress on stderr; the first interrupt ends it after the trial at hand.
pub(crate) fn measure(
    campaign: &Campaign,
    catalogue: &Catalogue,
    folder: &Path,
    options: RunOptions<'_>,
    talk: Talk,
) -> anyhow::Result<Vec<RunReport>> {
    let interrupted = interrupted()?;
    let bar = talk.has_terminal().then(|| {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} trials, {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    });
    // Several devices may report at once: the bar counts all of them.
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut told: BTreeSet<String> = BTreeSet::new();
    let mut progress = |progress: &Progress<'_>| {
        // Each reason once: a campaign without an MPS program has it in every second trial.
        if let Some(reason) = reason(progress).filter(|reason| told.insert(shape(reason))) {
            match &bar {
                Some(bar) => bar.println(reason),
                None => talk.say(reason),
            }
        }
        counts.insert(progress.device.to_owned(), (progress.done, progress.total));
        let left = left(progress);
        match &bar {
            Some(bar) => {
                bar.set_length(counts.values().map(|(_, total)| total).sum());
                bar.set_position(counts.values().map(|(done, _)| done).sum());
                bar.set_message(format!("{left}, last {}", progress.observation.outcome));
            }
            None if !talk.is_quiet() => talk.say(line(progress)),
            None => {}
        }
    };
    let options = RunOptions { interrupted: Some(&interrupted), ..options };
    let reports = elastico_profiler::run_all(campaign, catalogue, folder, &options, &open, &mut progress)?;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(reports)
}

fn left(progress: &Progress<'_>) -> String {
    progress.remaining.map_or(String::new(), |left| format!("about {:.0} s left", left.get().ceil()))
}

/// Why a trial has no times.
fn reason(progress: &Progress<'_>) -> Option<String> {
    let outcome = progress.observation.outcome;
    if outcome.has_times() {
        return None;
    }
    let detail = progress.observation.attempts.last()?.detail.as_deref()?;
    Some(format!("{outcome}: {detail}"))
}

/// A reason without its numbers: process ids differ from trial to trial.
fn shape(reason: &str) -> String {
    reason.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// One line for one trial.
pub(crate) fn line(progress: &Progress<'_>) -> String {
    let trial = progress.trial;
    let pair = match &trial.co_runner {
        Some(co_runner) => format!("{} beside {co_runner}, {}", trial.subject, trial.sharing),
        None => format!("{} alone, {}", trial.subject, trial.sharing),
    };
    let (device, outcome) = (progress.device, progress.observation.outcome);
    format!("{device} {}/{} {pair}: {outcome} ({})", progress.done, progress.total, left(progress))
}

fn close(reports: &[RunReport], folder: &Path, talk: Talk) -> anyhow::Result<Ending> {
    for report in reports {
        output::answer_table(Format::Table, &status_table(&report.status))?;
    }
    if let Some(report) = reports.iter().find(|report| report.stopped == Stopped::DeviceLost) {
        return Err(environment(
            format!("the device {} is gone; results so far are saved", report.status.device),
            format!("when it is back: elastico profile resume {}", folder.display()),
        ));
    }
    if reports.iter().any(|report| report.stopped == Stopped::Interrupted) {
        talk.say(format!(
            "interrupted, results saved; go on with: elastico profile resume {}",
            folder.display()
        ));
        return Ok(Ending::Interrupted);
    }
    let dataset = folder.join("dataset");
    if dataset.exists() {
        let measured: u64 = reports.iter().map(|report| report.measured).sum();
        talk.say(format!("{measured} trials measured; dataset in `{}`", dataset.display()));
    }
    let failed = reports.iter().any(|report| report.status.failed > 0);
    Ok(if failed { Ending::FailedTrials } else { Ending::Done })
}

fn status_table(status: &Status) -> Table {
    let state = match (status.is_running, status.is_torn) {
        (true, _) => "running",
        (false, true) => "stopped, last line torn (resume mends it)",
        (false, false) if status.open > 0 => "stopped before its end",
        (false, false) => "finished",
    };
    let numbers = if status.device.starts_with("sim:") { "simulated" } else { "measured" };
    let mut table = Table::new(
        status.schema,
        format!("{} on {}, {numbers}: {state}", status.name, status.device),
        vec![Column::text("what"), Column::number("count", "")],
    );
    for (what, count) in [
        ("trials done", status.done),
        ("trials planned so far", status.total),
        ("cells converged", status.converged),
        ("cells inconclusive", status.inconclusive),
        ("cells failed", status.failed),
        ("cells open", status.open),
        ("configurations skipped", status.skipped),
    ] {
        table.push(vec![what.into(), Value::Count(count)]);
    }
    for (outcome, count) in &status.outcomes {
        table.push(vec![format!("outcome {outcome}").into(), Value::Count(*count)]);
    }
    table
}
