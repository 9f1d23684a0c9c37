//! `elastico place`

use super::place_tables;
use super::predict::{Engine, warn_of_strangers};
use crate::artefacts::Artefacts;
use crate::failure::{Ending, usage};
use crate::output::{self, Format, Talk};
use anyhow::Context as _;
use clap::ValueEnum;
use elastico_core::{SharingMode, WorkloadId};
use elastico_models::{Predictor, Profiles, Side};
use elastico_placement::{Allocator, Cluster, Job, Jobs, Objective, Options, PairTable, Placement, Timings};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
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
    #[arg(long, allow_negative_numbers = true, value_name = "P")]
    power: Option<f64>,

    /// Of the objective `srpt`: the waiting after which the weight of a job has doubled [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    ageing_seconds: Option<f64>,

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
    fn options(&self) -> anyhow::Result<Options> {
        let horizon_seconds = self.horizon_seconds;
        let mut options = Options { limit: self.limit, horizon_seconds, ..Options::default() };
        options.objective = match (self.objective, self.power, self.ageing_seconds) {
            (Aim::Throughput, None, None) => Objective::Throughput,
            (Aim::Log, None, None) => Objective::Log,
            (Aim::Srpt, None, ageing) => Objective::srpt(ageing.unwrap_or(3600.0)),
            (Aim::Power, Some(p), None) => Objective::Power { p },
            (Aim::Power, None, _) => {
                return Err(usage("the objective `power` has no exponent", "give one with --power"));
            }
            (_, Some(_), _) => {
                return Err(usage(
                    "--power belongs to another objective",
                    "add --objective power, or leave it out",
                ));
            }
            (_, None, Some(_)) => {
                let hint = "add --objective srpt, or leave it out";
                return Err(usage("--ageing-seconds belongs to another objective", hint));
            }
        };
        if !self.sharing.is_empty() {
            options.sharing.clone_from(&self.sharing);
        }
        Ok(options)
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
        let cluster = Cluster::read(&self.cluster)?;
        if cluster.pool.is_empty() {
            return Err(usage(
                format!("{} has no pool: there is nothing to place jobs on", self.cluster.display()),
                "add a [[pool]] with id, device, nodes and gpus_per_node",
            ));
        }
        let allocator = Allocator::new(cluster, self.options()?);
        if let Some(predictor) = predictor {
            let devices = allocator.cluster().pool.iter().map(|pool| pool.device.as_str());
            warn_of_strangers(predictor, devices, talk);
        }
        let jobs = Jobs::read_on(&self.jobs, allocator.cluster())?;
        let profiles = self.profiles.clone().or_else(|| model.profiles(talk));
        let profiles = profiles.as_deref().map(Profiles::read).transpose()?.unwrap_or_default();
        for words in jobs.unknown_pools(allocator.cluster()).iter().take(5) {
            talk.say(words);
        }
        warn_of_missing_profiles(&jobs, &profiles, talk);
        if let Some(predictor) = predictor {
            warn_of_missing_features(predictor, &jobs, &profiles, talk);
        }
        let all = Jobs { job: jobs.job.iter().chain(&new.job).cloned().collect() };
        let table =
            predictor.map(|predictor| allocator.pair_table(&all, &profiles, predictor)).transpose()?;
        Ok(Read { allocator, jobs, profiles, table })
    }
}

/// Says that nothing tells how fast jobs run that only name a workload.
fn warn_of_missing_profiles(jobs: &Jobs, profiles: &Profiles, talk: Talk) {
    let is_bare = |job: &&Job| job.shape.is_empty() && job.batch.is_empty() && job.goodput.is_none();
    let bare = jobs.job.iter().filter(is_bare).count();
    if bare > 0 && profiles.iter().next().is_none() {
        talk.say(format!(
            "no profiles: {bare} of {} jobs only name a workload, and nothing says how fast it runs\n\
             hint: name the profiles with --profiles, or a --model that has some beside it",
            jobs.job.len()
        ));
    }
}

/// Says which profiles in use lack what the model asks of a workload: without it a prediction is a guess, or out of the domain.
fn warn_of_missing_features(predictor: &dyn Predictor, jobs: &Jobs, profiles: &Profiles, talk: Talk) {
    let used: BTreeSet<&str> =
        jobs.job.iter().filter_map(|job| job.workload.as_ref()).map(WorkloadId::as_str).collect();
    let features = &predictor.metadata().features;
    let known = profiles.iter().filter(|profile| used.contains(profile.workload.as_str()));
    let missing: Vec<usize> = known
        .map(|profile| {
            let values = features.side_values(profile, Side::Subject, &SharingMode::TimeSlice);
            values.iter().filter(|value| value.is_nan()).count()
        })
        .collect();
    let lacking = missing.iter().filter(|count| **count > 0).count();
    if lacking > 0 {
        talk.say(format!(
            "{lacking} of {} profiles in use lack up to {} of the features that the model asks of a workload\n\
             hint: use profiles of the same campaign as the model's, or measure what they lack",
            missing.len(),
            missing.iter().max().unwrap_or(&0)
        ));
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

/// Profiles that were shipped with a model.
pub(crate) fn profiles_beside(model: &Path, talk: Talk) -> Option<PathBuf> {
    let beside = model.with_extension("profiles.json");
    beside.is_file().then(|| {
        talk.say(format!("profiles of `{}`", beside.display()));
        beside
    })
}

impl OptionalModel {
    /// Profiles that were shipped with the model.
    fn profiles(&self, talk: Talk) -> Option<PathBuf> {
        profiles_beside(self.model.as_ref()?, talk)
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
        return super::serve::run(&read.allocator, &read.jobs, &read.profiles, predictor.as_deref(), talk);
    }
    let read_seconds = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let mut placement = read.allocator.solve_with(&read.jobs, &read.profiles, read.table.as_ref(), None)?;
    let solve_seconds = begin.elapsed().as_secs_f64();
    if let Some(out) = out {
        artefacts.write(&[&json(&placement)?])?;
        talk.say(format!("wrote `{}`", out.display()));
    }
    let told = match arguments.format {
        Format::Csv => place_tables::for_programs(&placement),
        Format::Table | Format::Json => place_tables::for_people(&placement),
    };
    // The file that `--out` writes has no times, so that it is the same each time.
    placement.timings = Some(Timings { read_and_predict_seconds: read_seconds, solve_seconds });
    output::answer(arguments.format, &placement, &told)?;
    // Jobs that wait because the cluster is full are no failure; jobs that can never run are a no.
    let infeasible =
        placement.waiting.iter().any(|job| job.reason == elastico_placement::WaitReason::NoShape);
    Ok(if infeasible { Ending::Negative } else { Ending::Done })
}

/// The artefact.
pub(crate) fn json(placement: &Placement) -> anyhow::Result<Vec<u8>> {
    let mut json = serde_json::to_vec_pretty(placement).context("cannot write the placement as JSON")?;
    json.push(b'\n');
    Ok(json)
}
