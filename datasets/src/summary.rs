//! What is in a dataset: pairs over their repeats, and counts.

use crate::dataset::Dataset;
use crate::error::Error;
use crate::table::Table;
use crate::text::TextColumn;
use elastico_core::{DeviceKind, Estimate, Outcome, mean};
use serde::Serialize;
use std::collections::BTreeMap;

/// One side of one pair over all its repeats.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairSummary {
    /// The unordered pair on one device under one sharing mode.
    pub pair_id: String,
    /// The side, `a` or `b`.
    pub side: String,
    /// The workload whose slowdown it is.
    pub subject_workload: String,
    /// The workload beside it.
    pub co_runner_workload: String,
    /// The device.
    pub device: String,
    /// Where the numbers come from.
    pub device_kind: String,
    /// The sharing in effect, from the subject's view.
    pub sharing: String,
    /// Trials with outcome `ok` and a slowdown.
    pub n: u32,
    /// Geometric mean of the slowdowns of those trials; `None` for none.
    pub slowdown: Option<f64>,
    /// The same with its 95 % interval (Student's t on logarithms, trials as the independent values); `None` for
    /// fewer than two trials: one trial says nothing about the spread between processes.
    pub interval: Option<Estimate>,
    /// All trials by outcome.
    pub outcomes: BTreeMap<String, u64>,
}

/// Sums up the pairs table over repeats: one row per pair, side and sharing, sorted by these.
///
/// # Errors
/// [`Error::UnknownColumn`] where an isolated table stands in [`Dataset::pairs`].
pub fn pair_summaries(dataset: &Dataset) -> Result<Vec<PairSummary>, Error> {
    let pairs = &dataset.pairs;
    let text = |name| pairs.text(name);
    let (pair_ids, sides, sharing) = (text("pair_id")?, text("side")?, text("sharing")?);
    let (subjects, co_runners) = (text("subject_workload")?, text("co_runner_workload")?);
    let (devices, kinds, outcomes) = (text("device")?, text("device_kind")?, text("outcome")?);
    let slowdowns = pairs.f64("slowdown_ratio")?;

    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for row in 0..pairs.rows() {
        let key = (pair_ids.code(row), sides.code(row), sharing.code(row), subjects.code(row));
        groups.entry(key).or_default().push(row);
    }
    let mut summaries: Vec<PairSummary> = groups
        .into_values()
        .map(|rows| {
            let first = rows[0];
            let show = |column: &TextColumn| column.get(first).unwrap_or_default().to_owned();
            let mut by_outcome = BTreeMap::new();
            let mut usable = Vec::new();
            for row in rows {
                let outcome = outcomes.get(row).unwrap_or_default();
                *by_outcome.entry(outcome.to_owned()).or_default() += 1;
                if outcome == Outcome::Ok.as_str() && slowdowns[row].is_finite() && slowdowns[row] > 0.0 {
                    usable.push(slowdowns[row]);
                }
            }
            let interval = Estimate::geometric(&usable, 0.95);
            let logs: Vec<f64> = usable.iter().map(|slowdown| slowdown.ln()).collect();
            PairSummary {
                pair_id: show(pair_ids),
                side: show(sides),
                subject_workload: show(subjects),
                co_runner_workload: show(co_runners),
                device: show(devices),
                device_kind: show(kinds),
                sharing: show(sharing),
                n: usable.len() as u32,
                slowdown: (!logs.is_empty()).then(|| mean(&logs).exp()),
                interval,
                outcomes: by_outcome,
            }
        })
        .collect();
    summaries.sort_by(|left, right| {
        (&left.pair_id, &left.side, &left.sharing).cmp(&(&right.pair_id, &right.side, &right.sharing))
    });
    Ok(summaries)
}

/// What one table holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableInspection {
    /// Rows.
    pub rows: u64,
    /// Rows by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Rows by device.
    pub devices: BTreeMap<String, u64>,
    /// Rows by harness: `elastico`, or the source of imported rows.
    pub harnesses: BTreeMap<String, u64>,
    /// Rows by flag; a row counts for each of its flags.
    pub flags: BTreeMap<String, u64>,
    /// Rows by sharing mode in effect; empty for the isolated table.
    pub sharing: BTreeMap<String, u64>,
    /// Share of nulls, 0..1, of each column that has some, in the order of the columns.
    pub nulls: Vec<(String, f64)>,
}

/// What a dataset holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DatasetInspection {
    /// Schema id of this view.
    pub schema: &'static str,
    /// Where the numbers come from.
    pub device_kinds: Vec<DeviceKind>,
    /// Digest of the rows.
    pub content_digest: String,
    /// The isolated table.
    pub isolated: TableInspection,
    /// The pairs table.
    pub pairs: TableInspection,
    /// What was left out, by reason.
    pub exclusions: BTreeMap<String, u64>,
}

/// Counts what a dataset holds.
pub fn inspect(dataset: &Dataset) -> DatasetInspection {
    let reasons = dataset.manifest.exclusions_by_reason();
    DatasetInspection {
        schema: "elastico.dataset_inspection/1",
        device_kinds: dataset.manifest.device_kinds.clone(),
        content_digest: dataset.manifest.content_digest.to_string(),
        isolated: inspect_table(&dataset.isolated),
        pairs: inspect_table(&dataset.pairs),
        exclusions: reasons.into_iter().map(|(reason, rows)| (reason.to_owned(), rows)).collect(),
    }
}

fn inspect_table(table: &Table) -> TableInspection {
    let tally = |column: &TextColumn| {
        let mut counts = vec![0_u64; column.values().len()];
        let mut nulls = 0;
        for row in 0..column.len() {
            match column.code(row) {
                Some(code) => counts[code as usize] += 1,
                None => nulls += 1,
            }
        }
        let mut counts: BTreeMap<String, u64> = column.values().iter().cloned().zip(counts).collect();
        if nulls > 0 {
            counts.insert("null".to_owned(), nulls);
        }
        counts
    };
    let count = |name: &str| table.text(name).map(tally).unwrap_or_default();
    let mut flags = BTreeMap::new();
    for (words, rows) in count("flags").into_iter().filter(|(words, _)| words != "null") {
        for word in words.split(';') {
            *flags.entry(word.to_owned()).or_default() += rows;
        }
    }
    let nulls = table
        .entries()
        .map(|(column, values)| (column.name, (0..table.rows()).filter(|row| values.is_null(*row)).count()))
        .filter(|(_, nulls)| *nulls > 0)
        .map(|(name, nulls)| (name.to_owned(), nulls as f64 / table.rows() as f64))
        .collect();
    TableInspection {
        rows: table.rows() as u64,
        outcomes: count("outcome"),
        devices: count("device"),
        harnesses: tally(&table.harness()),
        flags,
        sharing: count("sharing"),
        nulls,
    }
}
