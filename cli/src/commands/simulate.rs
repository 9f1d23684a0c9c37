//! `elastico simulate`

use super::trace::{self, Reading, Selection};
use crate::failure::{Ending, usage};
use crate::output::{self, Format, Talk};
use clap::Subcommand;
use elastico_core::Seed;
use elastico_report::{Column, Table, Value};
use elastico_simulator::{
    ClusterSpec, Comparison, Knowledge, Options, PairedRatio, PolicyKind, Simulation, SlowdownTable,
    SpeedTable, Tables, Timing, Trace, compare, simulate_timed,
};
use std::path::{Path, PathBuf};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one policy on a trace
    Run {
        #[command(flatten)]
        scene: Scene,
        #[arg(long, value_name = "POLICY", help = policies_help("Who runs when"))]
        policy: String,
        /// Form of the answer
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Hold policies against the first of them, on the same traces
    Compare {
        #[command(flatten)]
        scene: Scene,
        #[arg(long, value_delimiter = ',', required = true, value_name = "POLICY", help = policies_help("The first is the baseline"))]
        policies: Vec<String>,
        /// Traces resampled from the given one; 1 takes the trace itself
        #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
        seeds: u64,
        /// Form of the answer
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
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

    /// n32g4 for 32 nodes of 4 GPUs, pools as v100:n9g4,k80:n9g4, a cluster.toml, or a CSV of the Tiresias family
    #[arg(long, value_name = "CLUSTER")]
    cluster: String,

    /// Stretch arrivals to this offered load
    #[arg(long, value_name = "RATIO")]
    load: Option<f64>,

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
    #[arg(long, default_value_t = Options::default().restart_seconds, value_name = "SECONDS")]
    restart_seconds: f64,

    /// Running time between checkpoints; a node that fails takes the work since the last; 0 = none is lost
    #[arg(long, default_value_t = Options::default().checkpoint_seconds, value_name = "SECONDS")]
    checkpoint_seconds: f64,

    /// Mean time between failures of one node, in seconds; nodes never fail where it is not given
    #[arg(long, value_name = "SECONDS")]
    mtbf_seconds: Option<f64>,

    /// Time for which a failed node is away, in seconds
    #[arg(long, default_value_t = Options::default().repair_seconds, value_name = "SECONDS")]
    repair_seconds: f64,

    /// Spread jobs over more nodes than needed, slowed by this factor; they wait for nodes where it is not given
    #[arg(long, value_name = "RATIO")]
    spread_ratio: Option<f64>,

    /// Slowdown by co-runners above which a job counts as harmed
    #[arg(long, default_value_t = Options::default().harm_limit_ratio, value_name = "RATIO")]
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
    truth: Knowledge,
    planner: Knowledge,
    has_tables: bool,
    options: Options,
}

impl Scene {
    fn read(&self, colocates: bool, talk: Talk) -> anyhow::Result<Read> {
        if colocates && self.truth.is_none() {
            return Err(usage(
                "a policy that co-locates needs slowdowns that happen",
                "give --truth and --planner",
            ));
        }
        if colocates && self.planner.is_none() {
            return Err(usage(
                "a policy that co-locates needs slowdowns to plan with",
                "give --planner; the file of --truth makes the policy an oracle",
            ));
        }
        let mut trace = trace::read(&self.trace, &self.reading, &self.selection, talk)?;
        let path = Path::new(&self.cluster);
        let cluster = if path.is_file() { ClusterSpec::read(path)? } else { self.cluster.parse()? };
        if let Some(load) = self.load {
            trace = trace.at_load(load, &cluster)?;
        }
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
        }
        let believed = match self.planner_speeds.as_deref() {
            Some(file) => speeds(Some(file))?,
            None => happens.clone(),
        };
        let has_tables = self.truth.is_some() || happens.is_some();
        Ok(Read {
            trace,
            cluster,
            truth: Knowledge::new(slowdowns(&self.truth)?, happens),
            planner: Knowledge::new(slowdowns(&self.planner)?, believed),
            has_tables,
            options: self.costs.options(),
        })
    }
}

impl Read {
    fn tables(&self) -> Option<Tables<'_>> {
        self.has_tables.then_some(Tables { truth: &self.truth, planner: &self.planner })
    }
}

pub(crate) fn run(command: &Command, talk: Talk) -> anyhow::Result<Ending> {
    match command {
        Command::Run { scene, policy, format } => {
            let policy = PolicyKind::parse(policy)?;
            let read = scene.read(policy.colocates(), talk)?;
            let tables = read.tables();
            let (result, timing) =
                simulate_timed(&read.trace, &read.cluster, &policy, tables.as_ref(), &read.options)?;
            talk.say(speed(&timing));
            output::answer(*format, &result, &[run_table(&result)])?;
        }
        Command::Compare { scene, policies, seeds, format } => {
            let policies =
                policies.iter().map(|name| PolicyKind::parse(name)).collect::<Result<Vec<_>, _>>()?;
            let read = scene.read(policies.iter().any(PolicyKind::colocates), talk)?;
            let tables = read.tables();
            let traces = if *seeds == 1 {
                vec![read.trace.clone()]
            } else {
                (0..*seeds).map(|seed| read.trace.resample(Seed(seed))).collect::<Result<Vec<_>, _>>()?
            };
            let result = compare(&traces, &read.cluster, &policies, tables.as_ref(), &read.options)?;
            output::answer(*format, &result, &[comparison_table(&result)])?;
        }
    }
    Ok(Ending::Done)
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

fn run_table(result: &Simulation) -> Table {
    let mut table = Table::new(
        result.schema,
        format!("{} {} on {}, {}", result.numbers, result.policy, result.cluster, result.trace),
        vec![Column::text("metric"), Column::number("value", ""), Column::text("unit")],
    );
    let mut add = |name: &str, value: Option<f64>, unit: &str| {
        table.push(vec![
            name.into(),
            value.map_or(Value::Missing, |value| Value::number(value, 3)),
            unit.into(),
        ]);
    };
    add("JCT mean", Some(result.jct_mean_seconds), "s");
    add("JCT median", Some(result.jct_median_seconds), "s");
    add("JCT p95", Some(result.jct_p95_seconds), "s");
    add("JCT p99", Some(result.jct_p99_seconds), "s");
    add("makespan", Some(result.makespan_seconds), "s");
    add("queueing mean", Some(result.queueing_mean_seconds), "s");
    add("GPUs allocated", Some(result.allocated_ratio), "ratio");
    add("SM active", result.sm_active_ratio, "ratio");
    add("throughput, steady window", result.throughput_steady_ratio, "ratio");
    add("idle GPUs that fragmentation strands", result.fragmentation_ratio, "ratio");
    add("JCT over isolated time, mean", Some(result.stretch_mean_ratio), "ratio");
    add("finish-time fairness, max", Some(result.fairness_max_ratio), "ratio");
    add("slowdown of co-located jobs, mean", result.colocated_slowdown_mean_ratio, "ratio");
    add("jobs", Some(result.jobs_total as f64), "");
    add("jobs harmed", Some(result.harmed_jobs_total as f64), "");
    add("pairs formed", Some(result.pairs_total as f64), "");
    add("preemptions", Some(result.preemptions_total as f64), "");
    add("restarts", Some(result.reconfigurations_total as f64), "");
    add("time lost to restarts", Some(result.reconfiguration_seconds), "s");
    if result.node_failures_total > 0 {
        add("node failures", Some(result.node_failures_total as f64), "");
        add("work lost to failures", Some(result.lost_seconds), "s");
    }
    table
}

fn comparison_table(result: &Comparison) -> Table {
    let mut table = Table::new(
        result.schema,
        format!(
            "{}: ratios to {} on {} traces of the same jobs, 95 % intervals; {}",
            result.numbers,
            result.baseline,
            result.traces.len(),
            result.cluster
        ),
        vec![
            Column::text("policy"),
            Column::number("jct_mean_seconds", "s").label("JCT mean"),
            Column::text("jct_mean_ratio").label("JCT ratio"),
            Column::text("jct_p99_ratio").label("p99 ratio"),
            Column::number("allocated_ratio", "").label("allocated"),
            Column::number("harmed_jobs_total", "").label("harmed"),
            Column::number("pairs_total", "").label("pairs"),
        ],
    );
    for row in &result.rows {
        table.push(vec![
            row.policy.as_str().into(),
            Value::number(row.jct_mean_seconds, 1),
            ratio(&row.jct_mean_ratio).into(),
            ratio(&row.jct_p99_ratio).into(),
            Value::number(row.allocated_ratio, 3),
            row.harmed_jobs_total.into(),
            Value::Count(row.pairs_total),
        ]);
    }
    table
}

fn ratio(ratio: &PairedRatio) -> String {
    match (ratio.lower, ratio.upper) {
        (Some(lower), Some(upper)) => format!("{:.3} [{lower:.3}, {upper:.3}]", ratio.point),
        _ => format!("{:.3} (n = {})", ratio.point, ratio.n),
    }
}
