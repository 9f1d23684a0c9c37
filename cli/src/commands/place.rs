//! `elastico place`

use super::predict::{Engine, warn_of_strangers};
use crate::artefacts::Artefacts;
use crate::failure::Ending;
use crate::output::{self, Format, Talk};
use anyhow::Context as _;
use clap::ValueEnum;
use elastico_core::SharingMode;
use elastico_models::{Predictor, Profiles};
use elastico_placement::{Allocator, Cluster, Jobs, Objective, Options, PairTable, Placement};
use elastico_report::{Column, Table, Value};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// The state of a cluster: who wants to run, on what, and what is known about it.
#[derive(Debug, clap::Args)]
pub(crate) struct State {
    /// Pools of the cluster (TOML)
    #[arg(long, value_name = "FILE")]
    cluster: PathBuf,

    /// Jobs (TOML, JSON or CSV)
    #[arg(long, value_name = "FILE")]
    jobs: PathBuf,

    /// Workload profiles, from `dataset export --table profiles` [default: those beside the model, `MODEL.profiles.json`]
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,

    /// Most slowdown that either side of a pair may suffer
    #[arg(long, default_value_t = Options::default().limit, value_name = "SLOWDOWN")]
    pub(crate) limit: f64,

    /// Sharing modes to try; repeat the option for several
    #[arg(long, value_name = "MODE")]
    sharing: Vec<SharingMode>,

    /// What is maximised
    #[arg(long, value_enum, default_value_t)]
    objective: Aim,

    /// Exponent of the objective `power`, below 1 and not 0; the lower, the closer to max-min
    #[arg(long, required_if_eq("objective", "power"), allow_negative_numbers = true, value_name = "P")]
    power: Option<f64>,

    /// Of the objective `srpt`: the waiting after which the weight of a job has doubled
    #[arg(long, default_value_t = 3600.0, value_name = "SECONDS")]
    ageing_seconds: f64,

    /// How long a job is expected to stay in a shape, so that it moves only for more than a restart costs
    #[arg(long, default_value_t = Options::default().horizon_seconds, value_name = "SECONDS")]
    horizon_seconds: f64,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Aim {
    /// The sum of weighted normalised throughputs
    #[default]
    Throughput,
    /// The sum of weighted logarithms: fairer
    Log,
    /// Shortest remaining time first, with ageing; every job needs `work_steps`
    Srpt,
    /// Powers of the throughputs, see --power: from throughput (1) to max-min fairness
    Power,
}

/// A state that has been read.
pub(crate) struct Read {
    pub(crate) allocator: Allocator,
    pub(crate) jobs: Jobs,
    pub(crate) profiles: Profiles,
    pub(crate) table: Option<PairTable>,
}

impl State {
    pub(crate) fn options(&self) -> Options {
        let horizon_seconds = self.horizon_seconds;
        let mut options = Options { limit: self.limit, horizon_seconds, ..Options::default() };
        options.objective = match (self.objective, self.power) {
            (Aim::Throughput, _) => Objective::Throughput,
            (Aim::Log, _) => Objective::Log,
            (Aim::Srpt, _) => Objective::srpt(self.ageing_seconds),
            (Aim::Power, power) => Objective::Power { p: power.unwrap_or(f64::NAN) },
        };
        if !self.sharing.is_empty() {
            options.sharing.clone_from(&self.sharing);
        }
        options
    }

    pub(crate) fn read(
        &self,
        model: &OptionalModel,
        predictor: Option<&dyn Predictor>,
        talk: Talk,
    ) -> anyhow::Result<Read> {
        self.read_with(&Jobs::default(), model, predictor, talk)
    }

    /// Reads the state; the table of pairs knows the workloads of `new` jobs too.
    pub(crate) fn read_with(
        &self,
        new: &Jobs,
        model: &OptionalModel,
        predictor: Option<&dyn Predictor>,
        talk: Talk,
    ) -> anyhow::Result<Read> {
        let allocator = Allocator::new(Cluster::read(&self.cluster)?, self.options());
        if let Some(predictor) = predictor {
            let devices = allocator.cluster().pool.iter().map(|pool| pool.device.as_str());
            warn_of_strangers(predictor, devices, talk);
        }
        let jobs = Jobs::read(&self.jobs)?;
        let profiles = self.profiles.clone().or_else(|| model.profiles(talk));
        let profiles = profiles.as_deref().map(Profiles::read).transpose()?.unwrap_or_default();
        let all = Jobs { job: jobs.job.iter().chain(&new.job).cloned().collect() };
        let table =
            predictor.map(|predictor| allocator.pair_table(&all, &profiles, predictor)).transpose()?;
        Ok(Read { allocator, jobs, profiles, table })
    }
}

/// The model is optional: without one nobody shares.
#[derive(Debug, clap::Args)]
pub(crate) struct OptionalModel {
    /// The model file; without one no job shares a GPU
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,

    #[command(flatten)]
    engine: Engine,
}

impl OptionalModel {
    /// Profiles that were shipped with the model.
    fn profiles(&self, talk: Talk) -> Option<PathBuf> {
        let beside = self.model.as_ref()?.with_extension("profiles.json");
        beside.is_file().then(|| {
            talk.say(format!("profiles of `{}`", beside.display()));
            beside
        })
    }

    pub(crate) fn load(&self) -> anyhow::Result<Option<Box<dyn Predictor>>> {
        self.model.as_deref().map(|model| self.engine.load(model)).transpose()
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    state: State,

    #[command(flatten)]
    model: OptionalModel,

    /// Also write the placement here (JSON)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Replace a file that exists
    #[arg(long)]
    force: bool,

    /// Solve and print, but write nothing
    #[arg(long)]
    dry_run: bool,

    /// Stay: read events as JSON lines on stdin, {"submit": JOB}, {"finish": "ID"}, {"solve": true} or {"advance": {"job": "ID",
    /// "work_steps_left": N, "waited_seconds": S}}, and answer each with one line on stdout
    #[arg(long, conflicts_with_all = ["out", "force", "dry_run", "format"])]
    serve: bool,

    /// Form of the answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    let out = arguments.out.as_ref().filter(|_| !arguments.dry_run);
    let state = &arguments.state;
    let others = [&state.profiles, &arguments.model.model];
    let inputs = [&state.cluster, &state.jobs].into_iter().chain(others.into_iter().flatten());
    let artefacts = Artefacts::files(out.map(|out| ("--out", out.as_path())), arguments.force, inputs)?;
    let begin = Instant::now();
    let predictor = arguments.model.load()?;
    let read = arguments.state.read(&arguments.model, predictor.as_deref(), talk)?;
    if predictor.is_none() {
        talk.say("no --model: no job shares a GPU");
    }
    if arguments.serve {
        return super::serve::run(&read.allocator, read.jobs, &read.profiles, predictor.as_deref(), talk);
    }
    let read_seconds = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let placement = read.allocator.solve_with(&read.jobs, &read.profiles, read.table.as_ref(), None)?;
    let solve_seconds = begin.elapsed().as_secs_f64();
    if let Some(out) = out {
        artefacts.write(&[&json(&placement)?])?;
        talk.say(format!("wrote `{}`", out.display()));
    }
    let timings = Timings { read_and_predict_seconds: read_seconds, solve_seconds };
    output::answer(arguments.format, &Timed { placement: &placement, timings }, &tables(&placement))?;
    // Jobs that wait because the cluster is full are no failure; jobs that can never run are a no.
    let infeasible =
        placement.waiting.iter().any(|job| job.reason == elastico_placement::WaitReason::NoShape);
    Ok(if infeasible { Ending::Negative } else { Ending::Done })
}

/// The answer on stdout. The file that `--out` writes has no times, so that it is the same each time.
#[derive(Serialize)]
struct Timed<'a> {
    #[serde(flatten)]
    placement: &'a Placement,
    timings: Timings,
}

#[derive(Serialize)]
struct Timings {
    /// Files, and the predictor's answers about all pairs.
    read_and_predict_seconds: f64,
    solve_seconds: f64,
}

/// The artefact.
pub(crate) fn json(placement: &Placement) -> anyhow::Result<Vec<u8>> {
    let mut json = serde_json::to_vec_pretty(placement).context("cannot write the placement as JSON")?;
    json.push(b'\n');
    Ok(json)
}

/// Who runs, who waits, and the prices.
pub(crate) fn tables(placement: &Placement) -> Vec<Table> {
    let label = if placement.basis.simulated { "simulated: " } else { "" };
    let mut running = Table::new(
        &placement.schema,
        format!(
            "{label}{} jobs on {} GPUs, {} pairs, {} waiting; value {:.3}, bound {:.3}, gap {:.2} %",
            placement.assignments.len(),
            placement.gpus_used(),
            placement.pairs(),
            placement.waiting.len(),
            placement.value,
            placement.bound,
            placement.gap * 100.0
        ),
        vec![
            Column::text("job"),
            Column::text("pool"),
            Column::text("place").label("node:GPUs"),
            Column::text("beside"),
            Column::text("sharing"),
            Column::number("slowdown", ""),
            Column::number("slowdown_upper", "").label("upper"),
        ],
    );
    for assignment in &placement.assignments {
        let places: Vec<String> = assignment
            .nodes
            .iter()
            .map(|node| {
                let gpus: Vec<String> = node.gpus.iter().map(ToString::to_string).collect();
                format!("{}:{}", node.node, gpus.join(","))
            })
            .collect();
        let beside = assignment.beside.as_ref();
        running.push(vec![
            assignment.job.as_str().into(),
            assignment.pool.as_str().into(),
            places.join(" ").into(),
            beside.map_or(Value::Missing, |beside| beside.job.as_str().into()),
            beside.map_or(Value::Missing, |beside| beside.sharing.to_string().into()),
            beside.map_or(Value::Missing, |beside| Value::number(beside.slowdown, 2)),
            beside.map_or(Value::Missing, |beside| Value::number(beside.slowdown_upper, 2)),
        ]);
    }
    let mut prices = Table::new(
        &placement.schema,
        "prices, in units of the objective",
        vec![
            Column::text("pool"),
            Column::text("resource"),
            Column::number("value_per_unit", "").label("price of one more"),
            Column::number("capacity", ""),
            Column::number("used_ratio", "").label("used"),
        ],
    );
    for price in &placement.prices.prices {
        prices.push(vec![
            price.pool.as_str().into(),
            price.resource.as_str().into(),
            Value::number(price.value_per_unit, 4),
            Value::number(price.capacity, 0),
            Value::number(price.used_ratio, 2),
        ]);
    }
    let mut tables = vec![running, prices];
    if !placement.waiting.is_empty() {
        let mut waiting = Table::new(
            &placement.schema,
            "waiting",
            vec![
                Column::text("job"),
                Column::text("reason"),
                Column::number("entry_slot_price", "").label("enters at"),
                Column::text("detail"),
            ],
        );
        for job in &placement.waiting {
            waiting.push(vec![
                job.job.as_str().into(),
                job.reason.as_str().into(),
                job.entry.as_ref().map_or(Value::Missing, |entry| Value::number(entry.entry_slot_price, 4)),
                job.detail().into(),
            ]);
        }
        tables.push(waiting);
    }
    tables
}
