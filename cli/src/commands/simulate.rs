//! `elastico simulate`

mod headline;
mod oracles;
mod run_page;
mod sweep;
mod sweep_page;
mod tables;

use super::trace::{self, Reading, Selection};
use crate::artefacts::Artefacts;
use crate::failure::{Ending, usage};
use crate::output::{self, Format, Talk};
use anyhow::Context as _;
use clap::Subcommand;
use elastico_core::Seed;
use elastico_simulator::{
    ClusterSpec, Knowledge, Options, PolicyKind, SlowdownTable, SpeedTable, Sweep, Tables, Timing, Trace,
    idle_inputs, simulate_timed,
};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one policy on a trace
    Run {
        #[command(flatten)]
        scene: Scene,
        /// Stretch arrivals to this offered load
        #[arg(long, allow_negative_numbers = true, value_name = "RATIO")]
        load: Option<f64>,
        #[arg(long, value_name = "POLICY", help = policies_help("Who runs when"))]
        policy: String,
        #[command(flatten)]
        report: Report,
        /// Form of the answer
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Write the page that says where the promised numbers hold, from the runs of a sweep
    Headline(headline::Arguments),
    /// Turn a campaign and a predictor into what happens and what is planned with
    Tables(oracles::Arguments),
    /// Hold policies against the first of them, on the same traces
    Compare {
        #[command(flatten)]
        scene: Scene,
        #[arg(long, value_delimiter = ',', required = true, value_name = "POLICY", help = policies_help("The first is the baseline"))]
        policies: Vec<String>,
        /// Offered loads that arrivals are stretched to; the trace's own where none is given
        #[arg(
            long,
            alias = "load",
            value_delimiter = ',',
            allow_negative_numbers = true,
            value_name = "RATIO"
        )]
        loads: Vec<f64>,
        /// Traces resampled from the given one; 1 takes the trace itself
        #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
        seeds: u64,
        #[command(flatten)]
        threads: Threads,
        #[command(flatten)]
        report: Report,
        /// Form of the answer
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Go over clusters, loads, policies and seeds that a file describes
    Sweep {
        /// The description, elastico.sweep/1; docs/guides/simulate.md has one
        file: PathBuf,
        /// Where finished runs and the summary go
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
        /// Go on with the runs that the folder has
        #[arg(long)]
        resume: bool,
        #[command(flatten)]
        threads: Threads,
        /// Form of the answer
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    /// Write a page with figures
    #[arg(long = "report", value_name = "FILE.html")]
    file: Option<PathBuf>,
    /// Replace what is there
    #[arg(long, requires = "file")]
    force: bool,
}

impl Report {
    /// Refuses what cannot be written before any work is done.
    fn place(&self, scene: &Scene) -> anyhow::Result<Option<Artefacts>> {
        let Some(file) = &self.file else { return Ok(None) };
        let artefacts = Artefacts::files([("--report", file.as_path())], self.force, scene.inputs())?;
        // No folder is made for it.
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::metadata(folder).with_context(|| format!("cannot write `{}`", file.display()))?;
        }
        artefacts.prove_writable()?;
        Ok(Some(artefacts))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Threads {
    /// Runs at a time; as many as there are cores where not given. Results do not depend on it
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

impl Threads {
    fn count(&self) -> NonZeroUsize {
        self.jobs.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Scene {
    /// The trace, in any format that `elastico trace formats` lists
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    selection: Selection,

    /// n32g4 for 32 nodes of 4 GPUs, h100:n32g4 where tables name the device, pools as v100:n9g4,k80:n9g4, a cluster.toml,
    /// a CSV of the Tiresias family, or a node list of openb
    #[arg(long, value_name = "CLUSTER")]
    cluster: String,

    /// Slowdowns that happen (our JSON or Gavel's); needed by policies that co-locate
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,

    /// Slowdowns that the policy plans with; a planner that sees the truth is an oracle
    #[arg(long, value_name = "FILE", requires = "truth")]
    planner: Option<PathBuf>,

    /// Speeds of workloads on devices and numbers of GPUs, for elastic jobs and several devices: our JSON, Gavel's, or a
    /// folder of ElasticFlow; --throughputs where not given
    #[arg(long, value_name = "FILE")]
    speeds: Option<PathBuf>,

    /// The device that a folder of ElasticFlow was measured on
    #[arg(long, default_value = "a100", value_name = "DEVICE")]
    speeds_on: String,

    /// Let jobs run on any number of GPUs that the speeds list for their workload
    #[arg(long)]
    elastic: bool,

    /// Speeds that the policy plans with, where they are not those that happen
    #[arg(long, value_name = "FILE", requires = "speeds")]
    planner_speeds: Option<PathBuf>,

    #[command(flatten)]
    costs: Costs,
}

/// What reconfigurations, failures and distance cost
#[derive(Debug, clap::Args)]
struct Costs {
    /// Time without progress when a job runs again, in seconds
    #[arg(long, default_value_t = Options::default().restart_seconds, allow_negative_numbers = true, value_name = "SECONDS")]
    restart_seconds: f64,

    /// Running time between checkpoints; a node that fails takes the work since the last; 0 = none is lost
    #[arg(long, default_value_t = Options::default().checkpoint_seconds, allow_negative_numbers = true, value_name = "SECONDS")]
    checkpoint_seconds: f64,

    /// Mean time between failures of one node, in seconds; nodes never fail where it is not given
    #[arg(long, allow_negative_numbers = true, value_name = "SECONDS")]
    mtbf_seconds: Option<f64>,

    /// Time for which a failed node is away, in seconds
    #[arg(long, default_value_t = Options::default().repair_seconds, allow_negative_numbers = true, value_name = "SECONDS")]
    repair_seconds: f64,

    /// Spread jobs over more nodes than needed, slowed by this factor; they wait for nodes where it is not given
    #[arg(long, allow_negative_numbers = true, value_name = "RATIO")]
    spread_ratio: Option<f64>,

    /// Slowdown by co-runners above which a job counts as harmed; 1.5 is what ElastiCo keeps to
    #[arg(long, default_value_t = Options::default().harm_limit_ratio, allow_negative_numbers = true, value_name = "RATIO")]
    harm_limit: f64,

    /// Seed of the node failures
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    failure_seed: u64,
}

impl Costs {
    fn options(&self) -> Options {
        Options {
            restart_seconds: self.restart_seconds,
            checkpoint_seconds: self.checkpoint_seconds,
            mtbf_seconds: self.mtbf_seconds,
            repair_seconds: self.repair_seconds,
            spread_ratio: self.spread_ratio,
            harm_limit_ratio: self.harm_limit,
            seed: Seed(self.failure_seed),
            ..Options::default()
        }
    }
}

fn policies_help(what: &str) -> String {
    format!("{what}: {}", PolicyKind::NAMES.join(", "))
}

struct Read {
    trace: Trace,
    cluster: ClusterSpec,
    truth: (Option<SlowdownTable>, Option<SpeedTable>),
    planner: (Option<SlowdownTable>, Option<SpeedTable>),
    options: Options,
}

impl Scene {
    /// Files that are read.
    fn inputs(&self) -> Vec<PathBuf> {
        let optional = [&self.truth, &self.planner, &self.speeds, &self.planner_speeds];
        let cluster = Path::new(&self.cluster);
        let named: Vec<&Path> = [self.trace.as_path(), cluster]
            .into_iter()
            .chain(optional.into_iter().flatten().map(PathBuf::as_path))
            .chain(self.reading.inputs())
            .chain(self.selection.input())
            .collect();
        // Of a folder each of its files is read.
        let inside = named.iter().filter_map(|path| std::fs::read_dir(path).ok()).flatten();
        let inside: Vec<PathBuf> = inside.filter_map(|entry| Some(entry.ok()?.path())).collect();
        named.into_iter().map(Path::to_owned).chain(inside).collect()
    }

    /// Reads everything that policies need; `policy` is one that co-locates, if any does.
    fn read(&self, policy: Option<&PolicyKind>, talk: Talk) -> anyhow::Result<Read> {
        if let Some(policy) = policy.filter(|_| self.truth.is_none() || self.planner.is_none()) {
            let other = policy
                .without_pairs()
                .map(|name| format!("; `{name}` never co-locates and needs none"))
                .unwrap_or_default();
            let name = policy.name();
            return Err(if self.truth.is_none() {
                usage(
                    format!("the policy `{name}` co-locates, and nothing says which slowdowns happen"),
                    format!("give --truth and --planner{other}"),
                )
            } else {
                usage(
                    format!("the policy `{name}` co-locates, and there are no slowdowns to plan with"),
                    format!("give --planner; the file of --truth makes the policy an oracle{other}"),
                )
            });
        }
        let mut trace = trace::read(&self.trace, &self.reading, &self.selection, talk)?;
        let cluster = trace::cluster(&self.cluster)?;
        let slowdowns = |file: &Option<PathBuf>| file.as_deref().map(SlowdownTable::read).transpose();
        let speeds =
            |file: Option<&Path>| file.map(|file| SpeedTable::read(file, &self.speeds_on)).transpose();
        // A trace of Gavel comes with the file that knows how fast its jobs are elsewhere.
        let happens = speeds(self.speeds.as_deref().or(self.reading.throughputs()))?;
        if self.elastic {
            trace = match &happens {
                Some(speeds) => trace.elastic(speeds),
                None => {
                    return Err(usage(
                        "nothing says how fast jobs are on other numbers of GPUs",
                        "give --speeds",
                    ));
                }
            };
            let count = trace.jobs().iter().filter(|job| job.is_elastic()).count();
            let total = trace.jobs().len();
            talk.say(match count {
                0 => "warning: --elastic frees no job: the speeds list no other number of GPUs for a workload of the trace \
                      (a law alone has no range; gpus_min and gpus_max in the trace give one)"
                    .to_owned(),
                _ => format!("{count} of {total} jobs may run on other numbers of GPUs than they ask for"),
            });
        }
        let believed = match self.planner_speeds.as_deref() {
            Some(file) => speeds(Some(file))?,
            None => happens.clone(),
        };
        Ok(Read {
            trace,
            cluster,
            truth: (slowdowns(&self.truth)?, happens),
            planner: (slowdowns(&self.planner)?, believed),
            options: self.costs.options(),
        })
    }
}

pub(crate) fn run(command: &Command, talk: Talk) -> anyhow::Result<Ending> {
    match command {
        Command::Run { scene, load, policy, report, format } => {
            let policy = PolicyKind::parse(policy)?;
            let mut read = scene.read(Some(&policy).filter(|policy| policy.colocates()), talk)?;
            if let Some(load) = load {
                read.trace = read.trace.at_load(*load, &read.cluster)?;
            }
            let has_tables = read.truth.0.is_some() || read.truth.1.is_some();
            let truth = Knowledge::new(read.truth.0, read.truth.1);
            let planner = Knowledge::new(read.planner.0, read.planner.1);
            let tables = has_tables.then_some(Tables { truth: &truth, planner: &planner });
            for line in idle_inputs(&read.trace, &read.cluster, has_tables.then_some([&truth, &planner])) {
                talk.say(format!("warning: {line}"));
            }
            let page = report.place(scene)?;
            let options =
                Options { keep_jobs: page.is_some(), keep_timeline: page.is_some(), ..read.options };
            let (mut result, timing) =
                simulate_timed(&read.trace, &read.cluster, &policy, tables.as_ref(), &options)?;
            talk.say(speed(&timing));
            if let Some(page) = page {
                page.write(&[run_page::page(&result, &read.cluster)?.render()?.as_bytes()])?;
                // The answer is the same with and without a page.
                result.jobs.clear();
                result.timeline = None;
                result.options.keep_jobs = false;
            }
            output::answer(*format, &result, &[tables::run(&result)])?;
            Ok(Ending::Done)
        }
        Command::Headline(arguments) => headline::run(arguments, talk),
        Command::Tables(arguments) => oracles::run(arguments, talk),
        Command::Compare { scene, policies, loads, seeds, threads, report, format } => {
            let policies =
                policies.iter().map(|name| PolicyKind::parse(name)).collect::<Result<Vec<_>, _>>()?;
            let mut names = BTreeSet::new();
            if let Some(twice) = policies.iter().find(|policy| !names.insert(policy.name())) {
                return Err(usage(
                    format!("the policy `{}` is given twice", twice.name()),
                    "name each policy of --policies once",
                ));
            }
            let mut known = BTreeSet::new();
            if let Some(twice) = loads.iter().find(|load| !known.insert(load.to_bits())) {
                return Err(usage(
                    format!("the load {twice} is given twice"),
                    "name each load of --loads once",
                ));
            }
            let read = scene.read(policies.iter().find(|policy| policy.colocates()), talk)?;
            let loads: Vec<Option<f64>> =
                if loads.is_empty() { vec![None] } else { loads.iter().copied().map(Some).collect() };
            let (truth, planner) = (read.truth, read.planner);
            let tables = (truth.0, truth.1, planner.0, planner.1);
            let sweep =
                Sweep::of_trace(read.trace, read.cluster, &loads, &policies, *seeds, tables, read.options)?;
            sweep::compare(&sweep, threads.count(), report.place(scene)?, *format, talk)
        }
        Command::Sweep { file, out, resume, threads, format } => {
            let sweep = Sweep::read(file)?;
            sweep::check_outputs(&sweep, file, out)?;
            sweep::run(&sweep, out, *resume, threads.count(), *format, talk)
        }
    }
}

fn speed(timing: &Timing) -> String {
    format!(
        "{:.2} s, {:.0} jobs/s, {:.0} events/s; a round took the policy {:.1} us, p99 {:.1} us",
        timing.wall_seconds,
        timing.jobs_per_second,
        timing.events_per_second,
        timing.policy_p50_seconds * 1e6,
        timing.policy_p99_seconds * 1e6
    )
}
