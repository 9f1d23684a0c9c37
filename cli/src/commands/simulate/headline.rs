//! `elastico simulate headline`: the page that says where the promised numbers hold, from the runs of a sweep.

use crate::artefacts::Artefacts;
use crate::failure::{Ending, usage};
use crate::output::Talk;
use elastico_simulator::{Interval, PointSummary, PolicySummary, Sweep, SweepFolder, SweepSummary};
use std::fmt::Write as _;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The description of the sweep
    #[arg(value_name = "FILE")]
    sweep: PathBuf,

    /// The folder with its runs; not all need be there
    #[arg(long, value_name = "FOLDER")]
    runs: PathBuf,

    /// The page, Markdown
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

/// What the page holds the numbers against.
const JCT_GAIN: f64 = 2.94;
const THROUGHPUT_GAIN: f64 = 2.02;
const SM_BEFORE: f64 = 0.25;
const SM_AFTER: f64 = 0.46;
const HARMED: f64 = 0.01;

const OWN: &str = "elastico";

/// The parts, and who lacks each.
const PARTS: [(&str, &str); 5] = [
    ("shapes", "elastico_no_shapes"),
    ("prices (greedy instead)", "elastico_no_prices"),
    ("pairs", "elastico_no_pairs"),
    ("pairs in the prices (afterwards instead)", "elastico_sequential"),
    ("exact knowledge of the work left (a factor of up to 2 off)", "elastico_noisy"),
];

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    let artefacts =
        Artefacts::files([("--out", arguments.out.as_path())], arguments.force, [&arguments.sweep])?;
    // Whatever lies in the folder of the runs is an input.
    let runs = arguments.runs.canonicalize().unwrap_or_else(|_| arguments.runs.clone());
    if elastico_datasets::resolve(&arguments.out).starts_with(&runs) {
        return Err(usage(
            format!("`{}` lies in the folder of the runs", arguments.out.display()),
            "choose another place with --out",
        ));
    }
    let sweep = Sweep::read(&arguments.sweep)?;
    let summary = sweep.summary(&SweepFolder::runs(&arguments.runs, &sweep)?);
    artefacts.write(&[page(&summary).as_bytes()])?;
    talk.say(format!(
        "{} of {} runs stand in `{}`",
        summary.runs_done,
        summary.runs_total,
        arguments.out.display()
    ));
    Ok(if summary.runs_done == summary.runs_total { Ending::Done } else { Ending::FailedTrials })
}

fn page(summary: &SweepSummary) -> String {
    let mut page = String::new();
    let mut line = |text: &str| {
        page.push_str(text);
        page.push('\n');
    };
    line("# The headline, simulated\n");
    line(
        "Made by `examples/headline/run`; do not edit. Every number is simulated, none is a measurement of a cluster.\n",
    );
    line(&format!(
        "The slowdowns that happen are those of `{}`; policies see `{}` only. {} of {} runs are in. Half of the jobs train, half are offline \
         inference; [sweep.toml](../examples/headline/sweep.toml) says everything else. Ratios are geometric means over seeds of \
         the same traces under both policies, with 95 % intervals. Load is the GPU-seconds that jobs ask for over those that there are while they \
         arrive; above 1 the queue grows until the last job has come, and a ratio of completion times grows with the length of the trace.\n",
        summary.truth.as_deref().unwrap_or("nothing"),
        summary.planner.as_deref().unwrap_or("nothing"),
        summary.runs_done,
        summary.runs_total
    ));
    line("## Against FIFO\n");
    line(&format!(
        "Promised: mean JCT {JCT_GAIN} x shorter, throughput {THROUGHPUT_GAIN} x, SM-active utilisation from {:.0} % or less to {:.0} % or more, p99 no worse, under \
         {:.0} % of the jobs slowed beyond the limit of 1.5. Throughput and utilisation are those of the steady window. One objective for all \
         rows.\n",
        SM_BEFORE * 100.0,
        SM_AFTER * 100.0,
        HARMED * 100.0
    ));
    line(&against_fifo(summary));
    line("## Against the best other policy\n");
    line(
        "The best of the others by each metric, seen from the same runs; oracles and parts of ElastiCo are not among them. Above 1 ElastiCo is better.\n",
    );
    line(&against_rivals(summary));
    for point in summary.points.iter().filter(|point| own(point, "elastico_no_pairs").is_some()) {
        line(&format!("## All policies, {}\n", place(point)));
        line(&all_policies(point));
    }
    line("## What each part brings\n");
    line(
        "Mean JCT and throughput without a part, over those of the whole: a JCT above 1 or a throughput below 1 is what the part brings. At low load \
          all is shapes, under a backlog pairs matter most.\n",
    );
    line(&ablation(summary));
    line("## What an oracle would add\n");
    line("`elastico_oracle` plans with the slowdowns and the scaling that happen.\n");
    line(&oracle(summary));
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn own<'a>(point: &'a PointSummary, policy: &str) -> Option<&'a PolicySummary> {
    point.policies.iter().find(|row| row.policy == policy && row.runs_done > 0)
}

fn place(point: &PointSummary) -> String {
    let load = point.load_ratio.map(|load| format!(", load {load}")).unwrap_or_default();
    format!("{} GPUs{load}", point.gpus_total)
}

fn mean(row: Option<&PolicySummary>, metric: &str) -> Option<f64> {
    Some(row?.means.get(metric)?.point)
}

/// A ratio with its interval, upside down where less is better.
fn gain(ratio: Option<&Interval>, less_is_better: bool) -> String {
    let Some(ratio) = ratio else { return "–".to_owned() };
    let turn = |value: f64| if less_is_better { 1.0 / value } else { value };
    let (mut lower, mut upper) = (ratio.lower.map(turn), ratio.upper.map(turn));
    if less_is_better {
        std::mem::swap(&mut lower, &mut upper);
    }
    match (lower, upper) {
        (Some(lower), Some(upper)) => format!("{:.2} ({lower:.2} to {upper:.2})", turn(ratio.point)),
        _ => format!("{:.2}", turn(ratio.point)),
    }
}

fn mark(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}

fn against_fifo(summary: &SweepSummary) -> String {
    let mut table = String::from(
        "| GPUs | load | n | JCT, x shorter | p99, x shorter | throughput, x | SM-active | harmed | all of it |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for point in &summary.points {
        let Some(row) = own(point, OWN) else { continue };
        let baseline = own(point, &summary.baseline);
        let ratio = |metric: &str| row.ratios.get(metric);
        let point_of = |metric: &str| ratio(metric).map_or(f64::NAN, |ratio| ratio.point);
        let before = mean(baseline, "sm_active_steady_ratio").unwrap_or(f64::NAN);
        let after = mean(Some(row), "sm_active_steady_ratio").unwrap_or(f64::NAN);
        let harmed = mean(Some(row), "harmed_jobs_ratio").unwrap_or(f64::NAN);
        let holds = [
            1.0 / point_of("jct_mean_seconds") >= JCT_GAIN,
            point_of("jct_p99_seconds") <= 1.0,
            point_of("throughput_steady_ratio") >= THROUGHPUT_GAIN,
            before <= SM_BEFORE && after >= SM_AFTER,
            harmed < HARMED,
        ];
        let n = ratio("jct_mean_seconds").map_or(0, |ratio| ratio.n);
        let _ = writeln!(
            table,
            "| {} | {} | {n} | {} {} | {} {} | {} {} | {:.3} to {:.3} {} | {:.2} % {} | {} |",
            point.gpus_total,
            point.load_ratio.map(|load| load.to_string()).unwrap_or_default(),
            gain(ratio("jct_mean_seconds"), true),
            mark(holds[0]),
            gain(ratio("jct_p99_seconds"), true),
            mark(holds[1]),
            gain(ratio("throughput_steady_ratio"), false),
            mark(holds[2]),
            before,
            after,
            mark(holds[3]),
            harmed * 100.0,
            mark(holds[4]),
            mark(holds.iter().all(|holds| *holds)),
        );
    }
    table
}

fn against_rivals(summary: &SweepSummary) -> String {
    let mut table = String::from(
        "| GPUs | load | JCT: the best other | x shorter | p99: the best other | x shorter | throughput: the best other | x |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for point in &summary.points {
        let Some(row) = own(point, OWN) else { continue };
        let rival = |metric: &str, less: bool| {
            row.best_others.get(metric).map_or_else(
                || ("–".to_owned(), "–".to_owned()),
                |rival| (rival.policy.clone(), gain(Some(&rival.ratio), less)),
            )
        };
        let [jct, p99, throughput] = [
            rival("jct_mean_seconds", true),
            rival("jct_p99_seconds", true),
            rival("throughput_steady_ratio", false),
        ];
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            point.gpus_total,
            point.load_ratio.map(|load| load.to_string()).unwrap_or_default(),
            jct.0,
            jct.1,
            p99.0,
            p99.1,
            throughput.0,
            throughput.1
        );
    }
    table
}

fn all_policies(point: &PointSummary) -> String {
    let mut table = String::from(
        "| policy | JCT, x shorter | p99, x shorter | throughput, x | allocated | SM-active | harmed | fairness, mean | restarts per job |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for row in &point.policies {
        let of = |metric: &str| mean(Some(row), metric).unwrap_or(f64::NAN);
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {:.3} | {:.3} | {:.2} % | {:.2} | {:.2} |",
            row.policy,
            gain(row.ratios.get("jct_mean_seconds"), true),
            gain(row.ratios.get("jct_p99_seconds"), true),
            gain(row.ratios.get("throughput_steady_ratio"), false),
            of("allocated_while_arriving_ratio"),
            of("sm_active_steady_ratio"),
            of("harmed_jobs_ratio") * 100.0,
            of("fairness_mean_ratio"),
            of("reconfigurations_total") / of("jobs_total"),
        );
    }
    table
}

fn ablation(summary: &SweepSummary) -> String {
    let points: Vec<&PointSummary> =
        summary.points.iter().filter(|point| own(point, "elastico_no_pairs").is_some()).collect();
    let mut table = String::from("| without |");
    for point in &points {
        let _ = write!(table, " {} |", place(point));
    }
    table.push_str("\n|---|");
    table.push_str(&"---|".repeat(points.len()));
    table.push('\n');
    for (part, policy) in PARTS {
        let _ = write!(table, "| {part} |");
        for point in &points {
            let _ = write!(table, " {} |", against_own(point, policy));
        }
        table.push('\n');
    }
    table
}

/// JCT and throughput of another policy over ElastiCo's.
fn against_own(point: &PointSummary, policy: &str) -> String {
    let ratio = |metric: &str| {
        let [own, other] = [OWN, policy].map(|policy| mean(own(point, policy), metric));
        Some(other? / own?)
    };
    match (ratio("jct_mean_seconds"), ratio("throughput_steady_ratio")) {
        (Some(jct), Some(throughput)) => format!("JCT {jct:.2}, throughput {throughput:.2}"),
        _ => "–".to_owned(),
    }
}

fn oracle(summary: &SweepSummary) -> String {
    let mut table = String::from("| GPUs | load | oracle over ElastiCo |\n|---|---|---|\n");
    for point in summary.points.iter().filter(|point| own(point, "elastico_oracle").is_some()) {
        let _ = writeln!(
            table,
            "| {} | {} | {} |",
            point.gpus_total,
            point.load_ratio.map(|load| load.to_string()).unwrap_or_default(),
            against_own(point, "elastico_oracle")
        );
    }
    table
}
