//! Results of simulations as tables.

use elastico_report::{Column, Table, Value};
use elastico_simulator::{Interval, PointSummary, PolicySummary, Simulation, SweepSummary};

/// One run.
pub(super) fn run(result: &Simulation) -> Table {
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

/// One table for each cluster and load, for people.
pub(super) fn points(summary: &SweepSummary) -> Vec<Table> {
    summary.points.iter().map(|point| of_point(summary, point)).collect()
}

fn of_point(summary: &SweepSummary, point: &PointSummary) -> Table {
    let seeds = point.policies.iter().map(|policy| policy.runs_done).max().unwrap_or_default();
    let load = point.load_ratio.map(|load| format!(", load {load}")).unwrap_or_default();
    let mut table = Table::new(
        summary.schema,
        format!(
            "{}: {}{load}, {seeds} traces; ratios to {} with 95 % intervals",
            summary.numbers, point.cluster, summary.baseline
        ),
        vec![
            Column::text("policy"),
            Column::number("jct_mean_seconds", "s").label("JCT"),
            Column::text("jct_mean_ratio").label("JCT ratio"),
            Column::text("throughput_ratio").label("throughput"),
            Column::number("sm_active_ratio", "").label("SM"),
            Column::number("harmed_jobs_ratio", "%").label("harm"),
        ],
    );
    for row in &point.policies {
        let mean = |name: &str| row.means.get(name).map(|interval| interval.point);
        let number = |value: Option<f64>, decimals: usize| {
            value.map_or(Value::Missing, |value| Value::number(value, decimals))
        };
        table.push(vec![
            label(row).into(),
            number(mean("jct_mean_seconds"), 0),
            ratio(row.ratios.get("jct_mean_seconds")).into(),
            ratio(throughput(row)).into(),
            number(mean("sm_active_steady_ratio").or_else(|| mean("sm_active_ratio")), 3),
            number(mean("harmed_jobs_ratio").map(|share| 100.0 * share), 2),
        ]);
    }
    table
}

/// The name, with the number of runs that failed.
fn label(row: &PolicySummary) -> String {
    match row.runs_failed {
        0 => row.policy.clone(),
        failed => format!("{} ({failed} failed)", row.policy),
    }
}

/// The ratio of throughputs in the steady window; over the whole run where all jobs arrive at once.
pub(super) fn throughput(row: &PolicySummary) -> Option<&Interval> {
    row.ratios.get("throughput_steady_ratio").or_else(|| row.ratios.get("throughput_ratio"))
}

/// A ratio with its interval, or else its n.
pub(super) fn ratio(ratio: Option<&Interval>) -> String {
    let Some(ratio) = ratio else { return String::new() };
    match (ratio.lower, ratio.upper) {
        // The baseline against itself.
        (Some(lower), Some(upper)) if lower.to_bits() == upper.to_bits() => format!("{:.2}", ratio.point),
        // Spaces that do not break: a number and its interval stay on one line.
        (Some(lower), Some(upper)) => format!("{:.2}\u{a0}{lower:.2}–{upper:.2}", ratio.point),
        _ => format!("{:.2}\u{a0}n={}", ratio.point, ratio.n),
    }
}

/// Every number of the summary, one in a row.
pub(super) fn long(summary: &SweepSummary) -> Table {
    let mut table = Table::new(
        summary.schema,
        "",
        vec![
            Column::text("cluster"),
            Column::number("load_ratio", ""),
            Column::text("policy"),
            Column::text("metric"),
            Column::text("statistic"),
            Column::text("against"),
            Column::number("point", ""),
            Column::number("lower", ""),
            Column::number("upper", ""),
            Column::number("n", ""),
        ],
    );
    let number = |value: Option<f64>| value.map_or(Value::Missing, |value| Value::number(value, 6));
    for point in &summary.points {
        for row in &point.policies {
            let mut add = |metric: &str, statistic: &str, against: &str, interval: &Interval| {
                table.push(vec![
                    point.cluster.as_str().into(),
                    number(point.load_ratio),
                    row.policy.as_str().into(),
                    metric.into(),
                    statistic.into(),
                    against.into(),
                    number(Some(interval.point)),
                    number(interval.lower),
                    number(interval.upper),
                    interval.n.into(),
                ]);
            };
            for (metric, interval) in &row.means {
                add(metric, "mean", "", interval);
            }
            for (metric, interval) in &row.ratios {
                add(metric, "ratio", &summary.baseline, interval);
            }
            for (metric, interval) in &row.differences {
                add(metric, "difference", &summary.baseline, interval);
            }
            for (metric, rival) in &row.best_others {
                add(metric, "ratio to best other", &rival.policy, &rival.ratio);
            }
        }
    }
    table
}

/// Runs without a result.
pub(super) fn failed(summary: &SweepSummary) -> Option<Table> {
    if summary.failed.is_empty() {
        return None;
    }
    let mut table = Table::new(
        summary.schema,
        "runs without a result",
        vec![
            Column::text("cluster"),
            Column::number("load_ratio", "").label("load"),
            Column::text("policy"),
            Column::number("seed", ""),
            Column::text("reason"),
        ],
    );
    for run in &summary.failed {
        table.push(vec![
            run.cluster.as_str().into(),
            run.load_ratio.map_or(Value::Missing, |load| Value::number(load, 2)),
            run.policy.as_str().into(),
            Value::Count(run.seed),
            run.reason.as_str().into(),
        ]);
    }
    Some(table)
}
