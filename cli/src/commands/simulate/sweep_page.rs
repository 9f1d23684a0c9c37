//! Many runs as a page: curves over load, and paired ratios.

use super::tables;
use elastico_core::DeviceKind;
use elastico_report::{
    Axis, AxisUnit, Bar, BarGroup, BarUnit, Bars, Column, Curve, CurvePoint, Curves, Figure, Origin, Page,
    Section, Table, Value,
};
use elastico_simulator::{Interval, PointSummary, PolicySummary, SweepSummary};

/// What is drawn: metric, title, axis, and how numbers are written.
const FIGURES: [(&str, &str, &str, AxisUnit, BarUnit, bool); 5] = [
    ("jct_mean_seconds", "Mean completion time", "mean JCT", AxisUnit::Seconds, BarUnit::Seconds, true),
    (
        "jct_p99_seconds",
        "Slowest completion times",
        "p99 of the JCT",
        AxisUnit::Seconds,
        BarUnit::Seconds,
        true,
    ),
    (
        "throughput_steady_ratio",
        "Throughput",
        "work over what all GPUs could do",
        AxisUnit::Percent,
        BarUnit::Percent,
        false,
    ),
    ("sm_active_steady_ratio", "Utilisation", "SM active", AxisUnit::Percent, BarUnit::Percent, false),
    (
        "harmed_jobs_ratio",
        "Harmed jobs",
        "slowed beyond the limit",
        AxisUnit::Percent,
        BarUnit::Percent,
        true,
    ),
];

/// Spread of a quantity from which its axis is logarithmic.
const SPREAD: f64 = 8.0;

pub(super) fn page(summary: &SweepSummary) -> anyhow::Result<Page> {
    let mut page = Page::new(format!("Policies: {}", summary.name));
    page.warnings.push("Every number on this page is simulated; none was measured on a cluster.".to_owned());
    page.summary = format!(
        "{} of {} runs. Policies meet the same traces; ratios are own over {} on the same trace, geometric means over traces \
         with 95 % intervals.",
        summary.runs_done, summary.runs_total, summary.baseline
    );
    let mut clusters: Vec<&str> = Vec::new();
    for point in &summary.points {
        if !clusters.contains(&point.cluster.as_str()) {
            clusters.push(&point.cluster);
        }
    }
    for cluster in clusters {
        let points: Vec<&PointSummary> =
            summary.points.iter().filter(|point| point.cluster == *cluster).collect();
        page = page.with(section(summary, cluster, &points)?);
    }
    let mut last = Section::new("What the numbers rest on");
    if let (Some(truth), Some(planner)) = (&summary.truth, &summary.planner) {
        last = last.with(format!("What happened came from: {truth}. What policies planned with: {planner}."));
    }
    last = last.with(
        "The best other policy is chosen by the same runs that it is then compared on, so a narrow lead over it is worth little.",
    );
    if let Some(failed) = tables::failed(summary) {
        last = last.with(failed);
    }
    Ok(page.with(last))
}

fn section(summary: &SweepSummary, cluster: &str, points: &[&PointSummary]) -> anyhow::Result<Section> {
    let origin = Origin::new(DeviceKind::Simulated, cluster);
    let mut section =
        Section::new(format!("{cluster}, {} GPUs", points.first().map_or(0, |point| point.gpus_total)));
    let has_loads = points.len() > 1 && points.iter().all(|point| point.load_ratio.is_some());
    for (metric, title, label, axis, unit, lower_is_better) in FIGURES {
        let better = if lower_is_better { "Lower is better." } else { "Higher is better." };
        if has_loads {
            let curves = curves(summary, points, metric);
            if curves.is_empty() {
                continue;
            }
            let values: Vec<f64> =
                curves.iter().flat_map(|curve| &curve.points).map(|point| point.y).collect();
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            section = section.with(Figure::curves(&Curves {
                title: format!("{title} over load"),
                origin: origin.clone(),
                x: Axis { label: "offered load".to_owned(), unit: AxisUnit::Plain, is_log: false },
                y: Axis {
                    label: label.to_owned(),
                    unit: axis,
                    is_log: axis == AxisUnit::Seconds && least > 0.0 && most / least > SPREAD,
                },
                curves,
                note: format!("{better} {}", n_of(points)),
            })?);
        } else {
            let groups: Vec<BarGroup> =
                points.iter().filter_map(|point| group(summary, point, metric)).collect();
            if groups.iter().all(|group| group.bars.is_empty()) {
                continue;
            }
            let mut view = Bars::new(origin.clone(), title, label, unit);
            view.groups = groups;
            view.lower_is_better = lower_is_better;
            section = section.with(Figure::bars(&view)?);
        }
    }
    for point in points {
        section = section.with(ratios(summary, point));
    }
    Ok(section)
}

fn n_of(points: &[&PointSummary]) -> String {
    let counts = || points.iter().flat_map(|point| &point.policies).map(|policy| policy.runs_done);
    match (counts().min(), counts().max()) {
        (Some(least), Some(most)) if least == most => format!("n = {most} traces for each point."),
        (Some(least), Some(most)) => format!("n = {least} to {most} traces for a point."),
        _ => String::new(),
    }
}

fn curves(summary: &SweepSummary, points: &[&PointSummary], metric: &str) -> Vec<Curve> {
    let mut names: Vec<&str> = Vec::new();
    for policy in points.iter().flat_map(|point| &point.policies) {
        if !names.contains(&policy.policy.as_str()) {
            names.push(&policy.policy);
        }
    }
    let mut curves = Vec::new();
    for name in names {
        let mut own: Vec<CurvePoint> = points
            .iter()
            .filter_map(|point| {
                let policy = point.policies.iter().find(|policy| policy.policy == name)?;
                let mean = policy.means.get(metric)?;
                Some(CurvePoint { x: point.load_ratio?, y: mean.point, interval: bounds(mean) })
            })
            .collect();
        own.sort_by(|a, b| a.x.total_cmp(&b.x));
        if !own.is_empty() {
            curves.push(Curve { name: name.to_owned(), points: own, is_baseline: name == summary.baseline });
        }
    }
    curves
}

fn bounds(interval: &Interval) -> Option<(f64, f64)> {
    interval.lower.zip(interval.upper)
}

fn group(summary: &SweepSummary, point: &PointSummary, metric: &str) -> Option<BarGroup> {
    let bars: Vec<Bar> = point
        .policies
        .iter()
        .filter_map(|policy| {
            let mean = policy.means.get(metric)?;
            Some(Bar {
                name: policy.policy.clone(),
                value: mean.point,
                interval: bounds(mean),
                n: mean.n,
                is_baseline: policy.policy == summary.baseline,
            })
        })
        .collect();
    let name = point.load_ratio.map_or_else(|| "load of the trace".to_owned(), |load| format!("load {load}"));
    (!bars.is_empty()).then_some(BarGroup { name, bars })
}

/// Paired ratios and differences of one point.
fn ratios(summary: &SweepSummary, point: &PointSummary) -> Table {
    let load = point.load_ratio.map(|load| format!(", load {load}")).unwrap_or_default();
    let mut table = Table::new(
        summary.schema,
        format!("Own over {} on the same traces{load}", summary.baseline),
        vec![
            Column::text("policy"),
            Column::text("jct_mean_ratio").label("JCT mean"),
            Column::text("jct_p99_ratio").label("JCT p99"),
            Column::text("throughput_ratio").label("throughput"),
            Column::text("sm_active_difference").label("SM active, difference in points"),
            Column::text("best_other").label("JCT mean over that of the best other"),
            Column::number("harmed_jobs_ratio", "%").label("harmed"),
            Column::number("n", ""),
        ],
    );
    for row in &point.policies {
        let best = row.best_others.get("jct_mean_seconds");
        table.push(vec![
            row.policy.as_str().into(),
            tables::ratio(row.ratios.get("jct_mean_seconds")).into(),
            tables::ratio(row.ratios.get("jct_p99_seconds")).into(),
            tables::ratio(tables::throughput(row)).into(),
            points_of(row).into(),
            best.map(|best| format!("{} ({})", tables::ratio(Some(&best.ratio)), best.policy))
                .unwrap_or_default()
                .into(),
            row.means
                .get("harmed_jobs_ratio")
                .map_or(Value::Missing, |share| Value::number(100.0 * share.point, 2)),
            row.runs_done.into(),
        ]);
    }
    table
}

/// The difference of SM-active utilisation, in points of percent.
fn points_of(row: &PolicySummary) -> String {
    let difference =
        row.differences.get("sm_active_steady_ratio").or_else(|| row.differences.get("sm_active_ratio"));
    let Some(difference) = difference else { return String::new() };
    let points = |value: f64| format!("{:+.1}", 100.0 * value);
    match bounds(difference) {
        Some((lower, upper)) => {
            format!("{}\u{a0}{}\u{a0}to\u{a0}{}", points(difference.point), points(lower), points(upper))
        }
        None => points(difference.point),
    }
}
