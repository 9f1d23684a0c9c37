//! What a trace asks for, in tables that fit the terminal.

use elastico_report::{Column, Table, Value};
use elastico_simulator::{DeviceDemand, TraceFormat, TraceSummary};

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Bars of one line: a text of more letters would be broken.
const BARS: usize = 24;

pub(super) fn summary(summary: &TraceSummary) -> Vec<Table> {
    let mut tables = vec![facts(summary), sizes(summary), devices(summary)];
    if summary.span_seconds > 0.0 {
        tables.push(over_time(summary));
    }
    tables
}

fn facts(summary: &TraceSummary) -> Table {
    let format = summary.format.map_or("made, not read", TraceFormat::describe);
    let mut table = Table::new(
        summary.schema,
        format!("{}: {format}", summary.name),
        vec![Column::text("what"), Column::number("value", ""), Column::text("unit")],
    );
    let mut add = |what: &str, value: Value, unit: &str| table.push(vec![what.into(), value, unit.into()]);
    add("jobs", Value::Count(summary.jobs_total as u64), "");
    add("left out", Value::Count(summary.left_out_total as u64), "");
    add("workloads by name", Value::Count(summary.workloads_total as u64), "");
    add("tenants", Value::Count(summary.tenants_total as u64), "");
    add("first to last submission", Value::number(summary.span_seconds / 3600.0, 3), "h");
    add("duration p50", Value::number(summary.duration_p50_seconds, 1), "s");
    add("duration p90", Value::number(summary.duration_p90_seconds, 1), "s");
    add("duration p99", Value::number(summary.duration_p99_seconds, 1), "s");
    add("duration, longest", Value::number(summary.duration_max_seconds, 1), "s");
    add("work", Value::number(summary.gpu_seconds / 3600.0, 1), "GPU h");
    add("gaps, deviation over mean", ratio(summary.gap_variation_ratio, 2), "1 = Poisson");
    add("arrivals, busiest bin over mean", ratio(summary.arrivals_peak_ratio, 2), "");
    table
}

fn ratio(value: Option<f64>, digits: usize) -> Value {
    value.map_or(Value::Missing, |value| Value::number(value, digits))
}

fn sizes(summary: &TraceSummary) -> Table {
    let mut table = Table::new(
        summary.schema,
        "jobs by GPUs",
        vec![
            Column::text("gpus").label("GPUs"),
            Column::number("jobs_total", "").label("jobs"),
            Column::number("jobs_percent", "%").label("of the jobs"),
            Column::number("work_percent", "%").label("of the work"),
            Column::text("bar").label(""),
        ],
    );
    for count in &summary.gpu_counts {
        let gpus = if count.gpus == 0 { "part of 1".to_owned() } else { count.gpus.to_string() };
        table.push(vec![
            gpus.into(),
            Value::Count(count.jobs_total as u64),
            Value::number(count.jobs_ratio * 100.0, 1),
            Value::number(count.gpu_seconds_ratio * 100.0, 1),
            "█".repeat((count.gpu_seconds_ratio * 20.0).round() as usize).into(),
        ]);
    }
    table
}

fn devices(summary: &TraceSummary) -> Table {
    let on = summary.devices.iter().find_map(|device| device.durations_on.as_deref());
    let meant = on.map(|device| format!("; durations are those on {device}")).unwrap_or_default();
    let mut table = Table::new(
        summary.schema,
        format!("demand by GPU type: GPUs busy if no job waited{meant}"),
        vec![
            Column::text("device").label("GPU type"),
            Column::number("jobs_total", "").label("jobs"),
            Column::number("gpu_hours", "GPU h").label("work"),
            Column::number("mean_gpus", "").label("mean"),
            Column::number("peak_gpus", "").label("peak"),
            Column::number("capacity_gpus", "").label("there are"),
            Column::number("load_percent", "%").label("load"),
            Column::number("over_percent", "%").label("time over"),
        ],
    );
    for device in &summary.devices {
        let mean = device.demand_gpus.iter().sum::<f64>() / device.demand_gpus.len().max(1) as f64;
        table.push(vec![
            device.device.as_str().into(),
            Value::Count(device.jobs_total as u64),
            Value::number(device.gpu_seconds / 3600.0, 1),
            ratio((summary.span_seconds > 0.0).then_some(mean), 1),
            Value::number(device.peak_gpus, 1),
            device.capacity_gpus.map_or(Value::Missing, Value::Count),
            ratio(device.load_ratio.map(|load| load * 100.0), 1),
            ratio(device.over_capacity_ratio.map(|over| over * 100.0), 1),
        ]);
    }
    table
}

/// One line of bars for each GPU type: height is the demand, full at its capacity or, without a cluster, at its own most.
fn over_time(summary: &TraceSummary) -> Table {
    let bins = BARS.min(summary.devices.first().map_or(1, |device| device.demand_gpus.len()));
    let seconds =
        summary.bin_seconds * summary.devices.first().map_or(0, |device| device.demand_gpus.len()) as f64;
    let mut table = Table::new(
        summary.schema,
        format!(
            "demand over {:.1} h, {:.2} h a bar; ! is above the capacity",
            seconds / 3600.0,
            seconds / 3600.0 / bins as f64
        ),
        vec![
            Column::text("device").label("GPU type"),
            Column::number("full_gpus", "").label("full bar"),
            Column::text("demand"),
        ],
    );
    for device in &summary.devices {
        let heights = rebin(&device.demand_gpus, bins);
        let full = full_bar(device, &heights);
        let bars = heights.iter().map(|height| bar(*height, full, device.capacity_gpus)).collect::<String>();
        table.push(vec![device.device.as_str().into(), Value::number(full, 1), bars.into()]);
    }
    table
}

fn full_bar(device: &DeviceDemand, heights: &[f64]) -> f64 {
    let most = heights.iter().copied().fold(0.0, f64::max);
    device.capacity_gpus.filter(|gpus| *gpus > 0).map_or(most, |gpus| gpus as f64)
}

fn bar(height: f64, full: f64, capacity: Option<u64>) -> char {
    if capacity.is_some_and(|gpus| height > gpus as f64 + 1e-6) {
        return '!';
    }
    if height <= 0.0 || full <= 0.0 {
        return ' ';
    }
    let level = (height / full * LEVELS.len() as f64).ceil() as usize;
    LEVELS[level.clamp(1, LEVELS.len()) - 1]
}

/// Means over fewer bins.
fn rebin(values: &[f64], bins: usize) -> Vec<f64> {
    let last = values.len();
    (0..bins)
        .map(|bin| {
            let (from, to) = (bin * last / bins, ((bin + 1) * last / bins).max(bin * last / bins + 1));
            let part = &values[from.min(last.saturating_sub(1))..to.min(last)];
            part.iter().sum::<f64>() / part.len().max(1) as f64
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_full_at_the_capacity_and_cry_above_it() {
        let heights = [0.0, 0.1, 4.0, 8.0, 8.5];
        let text: String = heights.iter().map(|height| bar(*height, 8.0, Some(8))).collect();
        assert_eq!(text, " ▁▄█!");
        assert_eq!(rebin(&[1.0, 3.0, 5.0, 7.0, 9.0, 11.0], 3), [2.0, 6.0, 10.0]);
        assert_eq!(rebin(&[1.0, 3.0], 2), [1.0, 3.0]);
    }
}
