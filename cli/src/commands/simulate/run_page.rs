//! One run as a page: nodes over time, utilisation, completion times.

use super::tables;
use elastico_core::{DeviceKind, WorkloadKind};
use elastico_report::{
    Axis, AxisUnit, Curve, CurvePoint, Curves, Fact, Figure, Gantt, GanttBar, GanttKind, GanttRow, Origin,
    Page, Section,
};
use elastico_simulator::{ClusterSpec, JobOutcome, Simulation, Stay, Timeline};
use std::collections::BTreeMap;

/// GPUs at most that are drawn.
const GPUS: u32 = 64;
/// Bars at most; beyond, a part of the time is drawn.
const BARS: usize = 2000;
/// Parts of time whose average utilisation is drawn.
const BINS: usize = 200;
/// Points of a distribution.
const POINTS: usize = 200;

/// The page; the result must have its jobs and its timeline.
pub(super) fn page(result: &Simulation, cluster: &ClusterSpec) -> anyhow::Result<Page> {
    let origin = Origin::new(DeviceKind::Simulated, &result.cluster);
    let mut page = Page::new(format!("{} on {}", result.policy, result.cluster));
    page.origins.push(origin.clone());
    page.warnings
        .push("Every number on this page is simulated; none was measured on this cluster.".to_owned());
    page.summary = format!(
        "{} jobs of {} under the policy {}: mean completion time {}, {:.0} % of the GPUs held.",
        result.jobs_total,
        result.trace,
        result.policy,
        duration(result.jct_mean_seconds),
        100.0 * result.allocated_ratio
    );
    page = page.with(Section::new("Result").with(facts(result)));
    if let Some(timeline) = &result.timeline {
        page = page.with(
            Section::new("Over time")
                .with(Figure::gantt(&gantt(timeline, cluster, &origin))?)
                .with(Figure::curves(&utilisation(timeline, result, &origin))?),
        );
    }
    let mut section = Section::new("Completion times");
    if !result.jobs.is_empty() {
        section = section.with(Figure::curves(&distribution(&result.jobs, &origin))?);
    }
    let named = |what: &str, name: &Option<String>| {
        name.as_ref().map(|name| format!("{what}: {name}.")).unwrap_or_default()
    };
    let oracles = format!(
        "{} {}",
        named("Slowdowns and speeds that happened", &result.truth),
        named("What the policy planned with", &result.planner)
    );
    section = section.with(tables::run(result));
    if !oracles.trim().is_empty() {
        section = section.with(oracles.trim());
    }
    Ok(page.with(section))
}

fn facts(result: &Simulation) -> Vec<Fact> {
    let percent = |value: f64| format!("{:.1} %", 100.0 * value);
    let mut facts = vec![
        Fact::new(
            duration(result.jct_mean_seconds),
            "mean completion time",
            format!("p99 {}, n = {} jobs", duration(result.jct_p99_seconds), result.jobs_total),
        ),
        Fact::new(percent(result.allocated_ratio), "GPUs held", "over the makespan"),
    ];
    if let Some(active) = result.sm_active_ratio {
        facts.push(Fact::new(percent(active), "SM active", "over the makespan, a pair counted once"));
    }
    facts.push(Fact::new(
        result.harmed_jobs_total.to_string(),
        "jobs harmed",
        format!("slowed by more than {} over their life", result.harm_limit_ratio),
    ));
    facts
}

fn duration(seconds: f64) -> String {
    match seconds {
        long if long >= 7200.0 => format!("{:.1} h", long / 3600.0),
        middle if middle >= 120.0 => format!("{:.1} min", middle / 60.0),
        short => format!("{short:.1} s"),
    }
}

/// Nodes that are drawn, by pool and node, with their row; evenly chosen where there are too many.
fn rows(cluster: &ClusterSpec) -> (Vec<GanttRow>, BTreeMap<(usize, u32), usize>, u32) {
    let all: Vec<(usize, u32)> = cluster
        .pools()
        .iter()
        .enumerate()
        .flat_map(|(pool, spec)| (0..spec.nodes).map(move |node| (pool, node)))
        .collect();
    let wanted = (GPUS / cluster.largest_node()).max(1) as usize;
    let count = wanted.min(all.len());
    let mut rows = Vec::new();
    let mut places = BTreeMap::new();
    for index in 0..count {
        let (pool, node) = all[index * all.len() / count];
        let spec = &cluster.pools()[pool];
        let name =
            if cluster.pools().len() > 1 { format!("{} {node}", spec.id) } else { format!("node {node}") };
        places.insert((pool, node), rows.len());
        rows.push(GanttRow { name, lanes: spec.gpus_per_node });
    }
    (rows, places, all.len() as u32)
}

fn gantt(timeline: &Timeline, cluster: &ClusterSpec, origin: &Origin) -> Gantt {
    let (rows, places, nodes) = rows(cluster);
    let bars: Vec<GanttBar> =
        timeline.stays.iter().flat_map(|stay| bars_of(stay, timeline, &places)).collect();
    let end = timeline.end_seconds();
    let (mut from, mut to) = (0.0, end);
    let inside =
        |from: f64, to: f64| bars.iter().filter(|bar| bar.to_seconds > from && bar.from_seconds < to).count();
    // Around the middle of the run, half as long until it can be read.
    while inside(from, to) > BARS {
        let quarter = (to - from) / 4.0;
        (from, to) = (from + quarter, to - quarter);
    }
    let mut note = String::new();
    if rows.len() < nodes as usize {
        note = format!("Drawn are {} of the {nodes} nodes, evenly chosen.", rows.len());
    }
    if to < end {
        note = format!("{note} Drawn are {} of the {} of the run.", duration(to - from), duration(end));
    }
    let bars = bars
        .into_iter()
        .filter(|bar| bar.to_seconds > from && bar.from_seconds < to)
        .map(|bar| GanttBar {
            // A restart before the window is not in it.
            stalled_seconds: if bar.from_seconds < from { 0.0 } else { bar.stalled_seconds },
            from_seconds: bar.from_seconds.max(from),
            to_seconds: bar.to_seconds.min(to),
            ..bar
        })
        .collect();
    Gantt {
        title: "Who runs where and when".to_owned(),
        origin: origin.clone(),
        rows,
        bars,
        from_seconds: from,
        to_seconds: to.max(from + 1e-9),
        note: note.trim().to_owned(),
    }
}

/// The bars of a stay: one for each run of neighbouring GPUs, and two where it outlasts the job that it joined.
fn bars_of(stay: &Stay, timeline: &Timeline, places: &BTreeMap<(usize, u32), usize>) -> Vec<GanttBar> {
    if stay.to_seconds <= stay.from_seconds {
        return Vec::new();
    }
    let host = stay.beside.map(|host| &timeline.stays[host]);
    let shared_to = host.map_or(stay.from_seconds, |host| host.to_seconds.min(stay.to_seconds));
    let parts = [(true, stay.from_seconds, shared_to), (false, shared_to, stay.to_seconds)];
    let mut blocks: Vec<(usize, u32, u32)> = Vec::new();
    for (node, gpu) in &stay.gpus {
        let Some(row) = places.get(&(stay.pool, *node)) else { continue };
        match blocks.last_mut() {
            Some((last, first, count)) if last == row && *first + *count == *gpu => *count += 1,
            _ => blocks.push((*row, *gpu, 1)),
        }
    }
    let beside = host.map(|host| format!(", joined {}", host.job)).unwrap_or_default();
    let label = format!(
        "{} ({}), {} GPUs, {} to {}{beside}",
        stay.job,
        stay.workload,
        stay.gpus.len(),
        duration(stay.from_seconds),
        duration(stay.to_seconds)
    );
    let mut bars = Vec::new();
    for (is_guest, from, to) in parts {
        for (row, lane, lanes) in blocks.iter().filter(|_| to > from) {
            bars.push(GanttBar {
                row: *row,
                lane: *lane,
                lanes: *lanes,
                is_guest,
                from_seconds: from,
                to_seconds: to,
                stalled_seconds: (stay.from_seconds + stay.stalled_seconds - from).clamp(0.0, to - from),
                kind: match stay.kind {
                    Some(WorkloadKind::Training) => GanttKind::Training,
                    Some(WorkloadKind::Inference) => GanttKind::Inference,
                    _ => GanttKind::Unknown,
                },
                label: label.clone(),
            });
        }
    }
    bars
}

fn utilisation(timeline: &Timeline, result: &Simulation, origin: &Origin) -> Curves {
    let width = timeline.end_seconds() / BINS as f64;
    let curve = |name: &str, values: Vec<f64>, is_baseline| Curve {
        name: name.to_owned(),
        points: values
            .into_iter()
            .enumerate()
            .map(|(bin, y)| CurvePoint { x: (bin as f64 + 0.5) * width, y, interval: None })
            .collect(),
        is_baseline,
    };
    let mut curves = vec![curve("GPUs held", timeline.allocated(BINS), true)];
    if result.sm_active_ratio.is_some() {
        curves.push(curve("SM active", timeline.sm_active(BINS), false));
    }
    Curves {
        title: "Utilisation over time".to_owned(),
        origin: origin.clone(),
        x: Axis { label: "time".to_owned(), unit: AxisUnit::Seconds, is_log: false },
        y: Axis { label: "of all GPUs".to_owned(), unit: AxisUnit::Percent, is_log: false },
        curves,
        note: format!("Averages over {}; a shared GPU counts once.", duration(width)),
    }
}

fn distribution(jobs: &[JobOutcome], origin: &Origin) -> Curves {
    let curve = |name: &str, value: &dyn Fn(&JobOutcome) -> f64, is_baseline| {
        let mut values: Vec<f64> = jobs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let count = values.len().min(POINTS);
        let points = (1..=count).map(|index| {
            let rank = index * values.len() / count;
            let y = rank as f64 / values.len() as f64;
            CurvePoint { x: values[rank - 1].max(1e-3), y, interval: None }
        });
        Curve { name: name.to_owned(), points: points.collect(), is_baseline }
    };
    Curves {
        title: "Distribution of completion times".to_owned(),
        origin: origin.clone(),
        x: Axis { label: "time from submission".to_owned(), unit: AxisUnit::Seconds, is_log: true },
        y: Axis { label: "of the jobs".to_owned(), unit: AxisUnit::Percent, is_log: false },
        curves: vec![
            curve("isolated time", &|job| job.isolated_seconds, true),
            curve("completion time", &JobOutcome::jct_seconds, false),
        ],
        note: format!("n = {} jobs. Between the curves lie waiting, slowdowns and restarts.", jobs.len()),
    }
}
