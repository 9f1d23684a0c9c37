//! From results to the views of the report.

use anyhow::Context as _;
use elastico_core::{DeviceKind, Dtype, Estimate, Outcome, SharingMode, mean, median, quantile};
use elastico_datasets::{Dataset, PairSummary, TextColumn};
use elastico_placement::{Cluster, Placement};
use elastico_report::{
    Bar, BarGroup, BarUnit, Bars, Block, Cell, Column, Fact, Figure, GpuView, Heatmap, NodeView, Origin,
    Page, PlacementChart, PredictedVsMeasured, PredictionPoint, Roofline, RooflinePoint, Section, Table,
    Tenant, Value, Waiting,
};
use elastico_trainer::{Evaluation, PredictionRow, Split};
use elastico_workloads::Catalogue;
use std::collections::{BTreeMap, BTreeSet};

/// Rows and columns of a heat map at most; beyond, workloads are summed up by family.
const HEATMAP_LIMIT: usize = 16;
/// Pairs at most that are listed one by one.
const LISTED_LIMIT: usize = 24;

/// What a page is made from. Everything but the dataset may be absent.
pub(crate) struct Material<'a> {
    pub(crate) title: String,
    pub(crate) datasets: Vec<&'a Dataset>,
    pub(crate) evaluation: Option<&'a Evaluation>,
    pub(crate) predictions: &'a [PredictionRow],
    pub(crate) rules: Option<String>,
    pub(crate) placement: Option<(&'a Placement, &'a Cluster)>,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) limit: f64,
}

/// The page.
pub(crate) fn page(material: &Material<'_>) -> anyhow::Result<Page> {
    let mut page = Page::new(&material.title);
    let mut kinds = BTreeSet::new();
    for dataset in &material.datasets {
        page.provenance.extend(dataset.manifest.provenance.iter().cloned());
        kinds.extend(dataset.manifest.device_kinds.iter().copied());
    }
    if kinds.contains(&DeviceKind::Simulated) {
        page.warnings.push(
            "Numbers marked simulated come from the fluid model, not from a GPU. They show how the tool works, not how \
             fast a GPU is."
                .to_owned(),
        );
    }
    page.summary = summary(material)?;
    for dataset in &material.datasets {
        page = page.with(slowdowns(dataset, material.limit)?);
    }
    if let Some(section) = workloads(material)? {
        page = page.with(section);
    }
    if let Some(section) = model(material)? {
        page = page.with(section);
    }
    if let Some((placement, cluster)) = material.placement {
        page = page.with(placed(placement, cluster)?);
    }
    Ok(page)
}

fn summary(material: &Material<'_>) -> anyhow::Result<String> {
    let mut parts = Vec::new();
    for dataset in &material.datasets {
        let summaries = elastico_datasets::pair_summaries(dataset)?;
        let slowdowns: Vec<f64> = summaries.iter().filter_map(|summary| summary.slowdown).collect();
        if !slowdowns.is_empty() {
            parts.push(format!(
                "Of {} subjects beside a co-runner on {}, half are slowed by {:.2}x or less and one in ten by {:.2}x or more.",
                slowdowns.len(),
                origin(dataset),
                median(&slowdowns),
                quantile(&slowdowns, 0.9),
            ));
        }
    }
    if let Some((placement, _)) = material.placement {
        parts.push(format!(
            "{} jobs run on {} GPUs, {} of them two by two, at most {:.2} % from the best possible.",
            placement.assignments.len(),
            placement.gpus_used(),
            2 * placement.pairs(),
            placement.gap * 100.0
        ));
    }
    Ok(parts.join(" "))
}

fn origin(dataset: &Dataset) -> Origin {
    let provenance = dataset.manifest.provenance.first();
    let device = provenance.map_or("unknown device", |provenance| &provenance.device);
    let kind = dataset.manifest.device_kinds.first().copied().unwrap_or(DeviceKind::Imported);
    Origin::new(kind, device.strip_prefix("sim:").unwrap_or(device))
}

fn slowdowns(dataset: &Dataset, limit: f64) -> anyhow::Result<Section> {
    let origin = origin(dataset);
    let summaries = elastico_datasets::pair_summaries(dataset)?;
    let mut section = Section::new(format!("Slowdowns, {origin}"));
    section = section.with(facts(dataset, &summaries, limit)?);
    let mut by_sharing: BTreeMap<String, Vec<&PairSummary>> = BTreeMap::new();
    for summary in &summaries {
        // Shares as the subject sees them make two texts of one mode; the family joins what belongs together.
        let mode: SharingMode = summary.sharing.parse().with_context(|| "a validated dataset")?;
        let key = match &mode {
            SharingMode::Mps { .. } if mode.shares() != (1.0, 1.0) => {
                format!("mps, shares {}", shares(&mode))
            }
            other => other.to_string(),
        };
        by_sharing.entry(key).or_default().push(summary);
    }
    let families = family_of(dataset)?;
    for (sharing, rows) in by_sharing {
        let names: BTreeSet<&str> = rows
            .iter()
            .flat_map(|row| [row.subject_workload.as_str(), row.co_runner_workload.as_str()])
            .collect();
        let by_family = names.len() > HEATMAP_LIMIT;
        let mut view =
            Heatmap::new(origin.clone(), format!("Slowdown of the row beside the column, {sharing}"));
        view.sharing = sharing;
        view.limit = Some(limit);
        view.cells = if by_family {
            family_cells(&rows, &families)
        } else {
            rows.iter().map(|row| cell(row)).collect()
        };
        if by_family {
            view.note = "Workloads of a family are summed up by the geometric mean; the interval is the range of its pairs."
                .to_owned();
        }
        section = section.with(Figure::heatmap(&view)?);
    }
    if summaries.len() <= LISTED_LIMIT {
        section = section
            .with(
                "Every pair with what was seen, also where a limit was missed; the interval is over repeats.",
            )
            .with(pair_table(dataset)?);
    }
    Ok(section)
}

/// Every pair with all trials that have times, whatever their outcome.
fn pair_table(dataset: &Dataset) -> anyhow::Result<Table> {
    let pairs = &dataset.pairs;
    let [subjects, co_runners, sharing, outcomes] =
        ["subject_workload", "co_runner_workload", "sharing", "outcome"].map(|name| pairs.text(name));
    let (subjects, co_runners, sharing, outcomes) = (subjects?, co_runners?, sharing?, outcomes?);
    let slowdowns = pairs.f64("slowdown_ratio")?;
    let mut groups: BTreeMap<[&str; 3], (Vec<f64>, BTreeSet<&str>)> = BTreeMap::new();
    for (row, slowdown) in slowdowns.iter().enumerate() {
        let key = [subjects, co_runners, sharing].map(|column| column.get(row).unwrap_or_default());
        let (values, seen) = groups.entry(key).or_default();
        if *slowdown > 0.0 {
            values.push(*slowdown);
        }
        seen.extend(outcomes.get(row));
    }
    let mut table = Table::new(
        "elastico.pairs/1",
        "",
        vec![
            Column::text("subject"),
            Column::text("co_runner"),
            Column::text("sharing"),
            Column::number("slowdown", ""),
            Column::number("lower", ""),
            Column::number("upper", ""),
            Column::number("n", ""),
            Column::text("outcomes"),
        ],
    );
    for ([subject, co_runner, sharing], (values, seen)) in groups {
        let interval = Estimate::geometric(&values, 0.95);
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let number = |value: Option<f64>| value.map_or(Value::Missing, |value| Value::number(value, 3));
        table.push(vec![
            subject.into(),
            co_runner.into(),
            sharing.into(),
            Value::number(mean(&logs).exp(), 3),
            number(interval.map(|interval| interval.lower)),
            number(interval.map(|interval| interval.upper)),
            values.len().into(),
            seen.into_iter().collect::<Vec<_>>().join(", ").into(),
        ]);
    }
    Ok(table)
}

fn shares(mode: &SharingMode) -> String {
    let (a, b) = mode.shares();
    let (low, high) = if a <= b { (a, b) } else { (b, a) };
    format!("{low} and {high}")
}

fn facts(dataset: &Dataset, summaries: &[PairSummary], limit: f64) -> anyhow::Result<Vec<Fact>> {
    let slowdowns: Vec<f64> = summaries.iter().filter_map(|summary| summary.slowdown).collect();
    let widths: Vec<f64> = summaries
        .iter()
        .filter_map(|summary| summary.interval.as_ref())
        .map(Estimate::half_width_ratio)
        .collect();
    let overlap: Vec<f64> =
        dataset.pairs.f64("overlap_ratio")?.iter().copied().filter(|ratio| ratio.is_finite()).collect();
    let safe = slowdowns.iter().filter(|slowdown| **slowdown <= limit).count();
    let mut facts = vec![Fact::new(
        summaries.len().to_string(),
        "subjects beside a co-runner",
        format!("{} trials", dataset.pairs.rows() / 2),
    )];
    if !slowdowns.is_empty() {
        facts.push(Fact::new(
            format!("{:.0} %", 100.0 * safe as f64 / slowdowns.len() as f64),
            format!("slowed by {limit}x or less"),
            format!("n = {}", slowdowns.len()),
        ));
    }
    if !widths.is_empty() {
        facts.push(Fact::new(
            format!("{:.1} %", 100.0 * median(&widths)),
            "median half-width of the 95 % intervals",
            format!("n = {} pairs with two repeats or more", widths.len()),
        ));
    }
    if !overlap.is_empty() {
        let least = overlap.iter().copied().fold(f64::INFINITY, f64::min);
        facts.push(Fact::new(
            format!("{least:.3}"),
            "least overlap of a trial",
            format!("n = {}", overlap.len()),
        ));
    }
    let not_ok = outcomes(dataset.pairs.text("outcome")?);
    if !not_ok.is_empty() {
        let list: Vec<String> = not_ok.iter().map(|(outcome, rows)| format!("{outcome} {rows}")).collect();
        facts.push(Fact::new(
            not_ok.values().sum::<usize>().to_string(),
            "rows kept with another outcome than ok",
            list.join(", "),
        ));
    }
    Ok(facts)
}

fn outcomes(column: &TextColumn) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for outcome in column.iter().flatten().filter(|outcome| *outcome != Outcome::Ok.as_str()) {
        *counts.entry(outcome.to_owned()).or_default() += 1;
    }
    counts
}

fn cell(summary: &PairSummary) -> Cell {
    let (subject, co_runner) = (&summary.subject_workload, &summary.co_runner_workload);
    match summary.slowdown {
        Some(slowdown) => {
            let cell = Cell::new(subject, co_runner, slowdown).repeats(summary.n);
            match &summary.interval {
                Some(interval) => cell.interval(interval.lower, interval.upper),
                None => cell,
            }
        }
        None => Cell::failed(subject, co_runner, summary.outcomes.keys().next().cloned().unwrap_or_default()),
    }
}

fn family_of(dataset: &Dataset) -> anyhow::Result<BTreeMap<String, String>> {
    let mut families = BTreeMap::new();
    let pairs = &dataset.pairs;
    for side in ["subject", "co_runner"] {
        let (workloads, names) =
            (pairs.text(&format!("{side}_workload"))?, pairs.text(&format!("{side}_family"))?);
        for row in 0..pairs.rows() {
            if let (Some(workload), Some(family)) = (workloads.get(row), names.get(row))
                && !families.contains_key(workload)
            {
                families.insert(workload.to_owned(), family.to_owned());
            }
        }
    }
    Ok(families)
}

fn family_cells(rows: &[&PairSummary], families: &BTreeMap<String, String>) -> Vec<Cell> {
    let mut groups: BTreeMap<(&str, &str), Vec<&PairSummary>> = BTreeMap::new();
    for row in rows {
        let family = |workload: &str| families.get(workload).map_or("?", String::as_str);
        groups.entry((family(&row.subject_workload), family(&row.co_runner_workload))).or_default().push(row);
    }
    groups
        .into_iter()
        .map(|((subject, co_runner), rows)| {
            let slowdowns: Vec<f64> = rows.iter().filter_map(|row| row.slowdown).collect();
            if slowdowns.is_empty() {
                let reason = rows[0].outcomes.keys().next().cloned().unwrap_or_default();
                return Cell::failed(subject, co_runner, reason);
            }
            let logs: Vec<f64> = slowdowns.iter().map(|slowdown| slowdown.ln()).collect();
            let low = slowdowns.iter().copied().fold(f64::INFINITY, f64::min);
            let high = slowdowns.iter().copied().fold(0.0, f64::max);
            let repeats = rows.iter().map(|row| row.n).sum();
            Cell::new(subject, co_runner, mean(&logs).exp()).interval(low, high).repeats(repeats)
        })
        .collect()
}

/// Roofline of the workloads of the first dataset on a chip of the table.
fn workloads(material: &Material<'_>) -> anyhow::Result<Option<Section>> {
    let mut section = Section::new("Workloads");
    let mut any = false;
    for dataset in &material.datasets {
        let isolated = &dataset.isolated;
        let Some(chip) = isolated.text("device")?.get(0).and_then(elastico_core::chip) else { continue };
        let mut steps: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let (names, outcome) = (isolated.text("workload")?, isolated.text("outcome")?);
        let (seconds, share) = (isolated.f64("step_seconds")?, isolated.f64("share_ratio")?);
        for row in 0..isolated.rows() {
            if let Some(name) = names.get(row)
                && outcome.get(row) == Some("ok")
                && share[row] >= 1.0
                && seconds[row] > 0.0
            {
                steps.entry(name).or_default().push(row);
            }
        }
        let flops = ["step_tensor_flops_total", "step_fp32_flops_total", "step_fp64_flops_total"]
            .map(|name| isolated.f64(name));
        let [tensor, fp32, fp64] = flops;
        let (tensor, fp32, fp64, bytes) = (tensor?, fp32?, fp64?, isolated.f64("step_dram_bytes")?);
        let origin = origin(dataset);
        let mut view = Roofline::new(origin, "Roofline of the workloads, running alone", chip.name);
        for (name, rows) in steps {
            let row = rows[0];
            let work = [tensor[row], fp32[row], fp64[row]]
                .into_iter()
                .filter(|value| value.is_finite())
                .sum::<f64>();
            let times: Vec<f64> = rows.iter().map(|row| seconds[*row]).collect();
            if work > 0.0 && bytes[row] > 0.0 {
                let dtype = material.catalogue.get(name).map_or(Dtype::Fp32, |benchmark| benchmark.dtype);
                view.points.push(RooflinePoint {
                    label: name.to_owned(),
                    intensity: work / bytes[row],
                    achieved: work / median(&times),
                    dtype,
                });
            }
        }
        if !view.points.is_empty() {
            view.note = "Workloads that move no data or compute nothing have no place in it.".to_owned();
            section = section.with(Figure::roofline(&view)?);
            any = true;
        }
    }
    Ok(any.then_some(section))
}

fn model(material: &Material<'_>) -> anyhow::Result<Option<Section>> {
    let Some(dataset) = material.datasets.first() else { return Ok(None) };
    let origin = origin(dataset);
    let mut section = Section::new("Predictor");
    if let Some(evaluation) = material.evaluation {
        let mut view = Bars::new(
            origin.clone(),
            "Error by split and learner",
            "mean absolute percentage error on rows the model had not seen",
            BarUnit::Percent,
        );
        let mut groups: BTreeMap<Split, BarGroup> = BTreeMap::new();
        for row in &evaluation.rows {
            if let Some(scores) = &row.scores {
                let group = groups.entry(row.split).or_insert_with(|| BarGroup {
                    name: row.split.as_str().replace('_', " "),
                    bars: Vec::new(),
                });
                group.bars.push(Bar {
                    name: row.learner.as_str().replace('_', " "),
                    value: scores.mape,
                    interval: scores.mape_interval,
                    n: row.n as usize,
                    is_baseline: row.learner == elastico_trainer::LearnerKind::Mean,
                });
            }
        }
        view.groups = groups.into_values().collect();
        view.note = "Read the unseen family first: a random pair flatters every model.".to_owned();
        section = section.with(Figure::bars(&view)?).with(crate::evaluation_tables::scores_table(evaluation));
    }
    for split in [Split::UnseenFamily, Split::RandomPair] {
        let points: Vec<PredictionPoint> = material
            .predictions
            .iter()
            .filter(|row| row.split == split)
            .map(|row| PredictionPoint {
                label: format!("{} beside {}, {}", row.subject_family, row.co_runner_family, row.device),
                measured: row.measured,
                interval: row.measured_interval,
                predicted: row.predicted,
                upper: Some(row.upper),
                in_domain: true,
            })
            .collect();
        if points.is_empty() {
            continue;
        }
        let title = format!("Predicted against observed slowdown, {}", split.as_str().replace('_', " "));
        let mut view = PredictedVsMeasured::new(origin.clone(), title);
        view.points = points;
        view.note = "Each point was predicted by a model that had not seen it.".to_owned();
        section = section.with(Figure::predicted_vs_measured(&view)?);
    }
    if let Some(rules) = &material.rules {
        section = section
            .with("A small tree that says where sharing is safe, as a second opinion that can be read:")
            .with(Block::Code(rules.clone()));
    }
    Ok((!section.blocks.is_empty()).then_some(section))
}

fn placed(placement: &Placement, cluster: &Cluster) -> anyhow::Result<Section> {
    let kind = if placement.basis.simulated { DeviceKind::Simulated } else { DeviceKind::Imported };
    let kind = match placement.basis.device_kinds.iter().collect::<Vec<_>>().as_slice() {
        [only] => **only,
        _ => kind,
    };
    let origin = Origin::new(kind, "placement");
    let mut view = PlacementChart::new(origin, "Who runs where, and beside whom");
    let mut tenants: BTreeMap<(&str, u32, u32), Vec<Tenant>> = BTreeMap::new();
    for assignment in &placement.assignments {
        let beside = assignment.beside.as_ref();
        let share = beside.map_or(1.0, |beside| beside.sharing.shares().0);
        let shape = match (assignment.shape.gpus, beside) {
            (_, Some(beside)) => beside.sharing.to_string(),
            (1, None) => "1 GPU".to_owned(),
            (gpus, None) => format!("{gpus} GPUs"),
        };
        for node in &assignment.nodes {
            for gpu in &node.gpus {
                tenants.entry((assignment.pool.as_str(), node.node, *gpu)).or_default().push(Tenant {
                    job: assignment.job.to_string(),
                    shape: shape.clone(),
                    share_ratio: share,
                    slowdown: beside.map(|beside| beside.slowdown),
                    upper: beside.map(|beside| beside.slowdown_upper),
                });
            }
        }
    }
    for pool in &cluster.pool {
        let mut left = pool.gpu_count();
        for node in 0..pool.nodes {
            let count = pool.gpus_per_node.min(left);
            left -= count;
            let gpus = (0..count)
                .map(|gpu| GpuView {
                    name: gpu.to_string(),
                    tenants: tenants.remove(&(pool.id.as_str(), node, gpu)).unwrap_or_default(),
                })
                .collect();
            view.nodes.push(NodeView { name: format!("{} node {node}", pool.id), gpus });
        }
    }
    view.waiting = placement
        .waiting
        .iter()
        .map(|waiting| Waiting { job: waiting.job.to_string(), reason: waiting.detail() })
        .collect();
    view.note = format!(
        "Value {:.3} against a bound of {:.3}: at most {:.2} % could still be won.",
        placement.value,
        placement.bound,
        placement.gap * 100.0
    );
    let mut section = Section::new("Placement").with(Figure::placement_chart(&view)?);
    for table in crate::commands::placement_tables(placement) {
        section = section.with(table);
    }
    Ok(section)
}
