//! Results of simulations as tables.

use elastico_report::{Column, Table, Value};
use elastico_simulator::{FailedRun, Interval, PointSummary, PolicySummary, Simulation, SweepSummary};
use std::collections::BTreeMap;

/// One run.
pub(super) fn run(result: &Simulation) -> Table {
    let mut table = Table::new(
        result.schema,
        format!("{} {} on {}, {}", result.numbers, result.policy, result.cluster, result.trace),
        vec![Column::text("metric"), Column::number("value", ""), Column::text("unit")],
    );
    let mut add = |name: &str, value: Value, unit: &str| table.push(vec![name.into(), value, unit.into()]);
    let number = |value: Option<f64>| value.map_or(Value::Missing, |value| Value::number(value, 3));
    add("JCT mean", number(Some(result.jct_mean_seconds)), "s");
    add("JCT median", number(Some(result.jct_median_seconds)), "s");
    add("JCT p95", number(Some(result.jct_p95_seconds)), "s");
    add("JCT p99", number(Some(result.jct_p99_seconds)), "s");
    add("makespan", number(Some(result.makespan_seconds)), "s");
    add("time to first start, mean", number(Some(result.queueing_mean_seconds)), "s");
    add("GPUs allocated", number(Some(result.allocated_ratio)), "ratio");
    add("SM active", number(result.sm_active_ratio), "ratio");
    add("throughput, steady window", number(result.throughput_steady_ratio), "ratio");
    add("idle GPUs that fragmentation strands", number(result.fragmentation_ratio), "ratio");
    add("JCT over isolated time, mean", number(Some(result.stretch_mean_ratio)), "ratio");
    add("finish-time fairness, max", number(Some(result.fairness_max_ratio)), "ratio");
    add("slowdown of co-located jobs, mean", number(result.colocated_slowdown_mean_ratio), "ratio");
    add("jobs", result.jobs_total.into(), "");
    add("jobs harmed", result.harmed_jobs_total.into(), "");
    add("pairs formed", Value::Count(result.pairs_total), "");
    add("preemptions", Value::Count(result.preemptions_total), "");
    add("restarts", Value::Count(result.reconfigurations_total), "");
    add("time lost to restarts", number(Some(result.reconfiguration_seconds)), "s");
    if result.node_failures_total > 0 {
        add("node failures", Value::Count(result.node_failures_total), "");
        add("work lost to failures", number(Some(result.lost_seconds)), "s");
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
    let traces = if seeds == 1 { "trace" } else { "traces" };
    let title = format!(
        "{}: {}{load}, {seeds} {traces}; ratios to {} with 95 % intervals",
        summary.numbers, point.cluster, summary.baseline
    );
    let mean = |row: &PolicySummary, name: &str| row.means.get(name).map(|interval| interval.point);
    let number = |value: Option<f64>, decimals: usize| {
        value.map_or(Value::Missing, |value| Value::number(value, decimals))
    };
    let columns = vec![
        (Column::text("policy"), column(point, |row| label(row).into())),
        (
            Column::number("jct_mean_seconds", "s").label("JCT"),
            column(point, |row| number(mean(row, "jct_mean_seconds"), 0)),
        ),
        (
            Column::text("jct_mean_ratio").label("JCT ratio"),
            column(point, |row| ratio(row.ratios.get("jct_mean_seconds")).into()),
        ),
        (
            Column::text("throughput_ratio").label("throughput"),
            column(point, |row| ratio(throughput(row)).into()),
        ),
        (
            Column::number("sm_active_ratio", "").label("SM"),
            column(point, |row| {
                number(mean(row, "sm_active_steady_ratio").or_else(|| mean(row, "sm_active_ratio")), 3)
            }),
        ),
        (
            Column::number("harmed_jobs_ratio", "%").label("harm"),
            column(point, |row| number(mean(row, "harmed_jobs_ratio").map(|share| 100.0 * share), 2)),
        ),
    ];
    // What nothing is known of only takes the width of what is.
    let (columns, values): (Vec<Column>, Vec<Vec<Value>>) =
        columns.into_iter().filter(|(_, values)| values.iter().any(is_known)).unzip();
    let mut table = Table::new(summary.schema, title, columns);
    for index in 0..point.policies.len() {
        table.push(values.iter().map(|column| column[index].clone()).collect());
    }
    table
}

fn is_known(value: &Value) -> bool {
    *value != Value::Missing && *value != Value::from("")
}

fn column(point: &PointSummary, value: impl Fn(&PolicySummary) -> Value) -> Vec<Value> {
    point.policies.iter().map(value).collect()
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

/// Runs without a result, those of one cluster and reason together.
pub(super) fn failed(summary: &SweepSummary) -> Option<Table> {
    if summary.failed.is_empty() {
        return None;
    }
    let mut groups: BTreeMap<(&str, &str), Vec<&FailedRun>> = BTreeMap::new();
    for run in &summary.failed {
        groups.entry((run.cluster.as_str(), run.reason.as_str())).or_default().push(run);
    }
    let mut table = Table::new(
        summary.schema,
        "runs without a result",
        vec![
            Column::text("cluster"),
            Column::text("loads"),
            Column::text("policies"),
            Column::number("runs_total", "").label("runs"),
            Column::text("reason"),
        ],
    );
    for ((cluster, reason), runs) in groups {
        let loads = each_once(runs.iter().filter_map(|run| run.load_ratio).map(|load| load.to_string()));
        let policies = each_once(runs.iter().map(|run| run.policy.clone()));
        table.push(vec![cluster.into(), loads.into(), policies.into(), runs.len().into(), reason.into()]);
    }
    Some(table)
}

/// In the order of their first time, with commas.
fn each_once(texts: impl Iterator<Item = String>) -> String {
    let mut known: Vec<String> = Vec::new();
    for text in texts {
        if !known.contains(&text) {
            known.push(text);
        }
    }
    known.join(", ")
}
