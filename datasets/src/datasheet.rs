//! `DATASET.md`: what a dataset is, for somebody who has to decide whether to use it.
//!
//! The questions are those of Gebru et al., *Datasheets for Datasets* (CACM 2021), as far as a file can answer them.

use crate::Error;
use crate::dataset::Dataset;
use crate::table::Table;
use crate::text::TextColumn;
use elastico_core::{DeviceKind, Estimate, Outcome, quantile};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The datasheet of a dataset in Markdown: origin, content, quality, limits.
///
/// It depends on the dataset alone, so the same dataset gives the same text.
///
/// # Errors
/// [`Error::UnknownColumn`] where a table of the wrong kind stands in the dataset.
pub fn datasheet(dataset: &Dataset) -> Result<String, Error> {
    let facts = Facts::of(dataset)?;
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = write(&mut out, dataset, &facts);
    Ok(out)
}

/// What the text tells, counted.
struct Facts {
    devices: BTreeSet<String>,
    /// Workloads by kind, as `family` -> number.
    families: BTreeMap<String, BTreeMap<String, usize>>,
    /// Distinct pairs and rows by sharing in effect.
    sharing: BTreeMap<String, (BTreeSet<String>, u64)>,
    outcomes: BTreeMap<String, u64>,
    /// Relative half-widths of the slowdown's interval, of good rows.
    half_widths: Vec<f64>,
    slowdowns: Vec<f64>,
    /// Interference of the working side of null pairs, by sharing.
    null: BTreeMap<String, Vec<f64>>,
    /// Slowdowns of the sentinel pair, by side.
    sentinel: BTreeMap<String, Vec<f64>>,
    counters: BTreeMap<String, u64>,
    empty: Vec<&'static str>,
}

impl Facts {
    fn of(dataset: &Dataset) -> Result<Self, Error> {
        let (isolated, pairs) = (&dataset.isolated, &dataset.pairs);
        let get = |column: &TextColumn, row: usize| column.get(row).unwrap_or_default().to_owned();
        let mut facts = Self {
            devices: BTreeSet::new(),
            families: BTreeMap::new(),
            sharing: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            half_widths: Vec::new(),
            slowdowns: Vec::new(),
            null: BTreeMap::new(),
            sentinel: BTreeMap::new(),
            counters: BTreeMap::new(),
            empty: empty_columns(isolated).into_iter().chain(empty_columns(pairs)).collect(),
        };
        let mut known = BTreeSet::new();
        let text = |name| pairs.text(name);
        let (subjects, families, kinds) =
            (text("subject_workload")?, text("subject_family")?, text("subject_kind")?);
        let (sharing, outcomes, flags) = (text("sharing")?, text("outcome")?, text("flags")?);
        let (pair_ids, devices) = (text("pair_id")?, text("device")?);
        let slowdowns = pairs.f64("slowdown_ratio")?;
        let (lower, upper) = (pairs.f64("slowdown_lower_ratio")?, pairs.f64("slowdown_upper_ratio")?);
        let interference = pairs.f64("interference_ratio")?;
        for row in 0..pairs.rows() {
            facts.devices.insert(get(devices, row));
            if known.insert(get(subjects, row)) {
                *facts.families.entry(get(kinds, row)).or_default().entry(get(families, row)).or_default() +=
                    1;
            }
            let mode = facts.sharing.entry(get(sharing, row)).or_default();
            mode.0.insert(get(pair_ids, row));
            mode.1 += 1;
            let outcome = get(outcomes, row);
            let good = outcome == Outcome::Ok.as_str();
            *facts.outcomes.entry(outcome).or_default() += 1;
            let flags = flags.get(row).unwrap_or_default();
            let has = |flag: &str| flags.split(';').any(|found| found == flag);
            if has("null_pair") {
                // How the idle side fares says nothing.
                if interference[row].is_finite() && kinds.get(row) != Some("null") {
                    facts.null.entry(get(sharing, row)).or_default().push(interference[row]);
                }
            } else if has("sentinel") {
                let side = facts.sentinel.entry(get(subjects, row)).or_default();
                side.extend(Some(slowdowns[row]).filter(|slowdown| slowdown.is_finite()));
            } else if good && slowdowns[row].is_finite() {
                facts.slowdowns.push(slowdowns[row]);
                let half = (upper[row] - lower[row]) / (2.0 * slowdowns[row]);
                facts.half_widths.extend(Some(half).filter(|half| half.is_finite()));
            }
        }
        let (devices, status) = (isolated.text("device")?, isolated.text("counters_status")?);
        for row in 0..isolated.rows() {
            facts.devices.insert(get(devices, row));
            // Remarks on single trials stand behind the source.
            let source = get(status, row).split(';').next().unwrap_or_default().trim().to_owned();
            *facts.counters.entry(source).or_default() += 1;
        }
        Ok(facts)
    }
}

/// Columns that are null in every row of a table that has rows.
fn empty_columns(table: &Table) -> Vec<&'static str> {
    table
        .columns()
        .iter()
        .filter(|column| column.nullable && table.rows() > 0)
        .filter(|column| match table.f64(column.name) {
            Ok(values) => values.iter().all(|value| value.is_nan()),
            Err(_) => table
                .text(column.name)
                .is_ok_and(|texts| (0..table.rows()).all(|row| texts.get(row).is_none())),
        })
        .map(|column| column.name)
        .collect()
}

fn write(out: &mut String, dataset: &Dataset, facts: &Facts) -> std::fmt::Result {
    let manifest = &dataset.manifest;
    let devices: Vec<&str> = facts.devices.iter().map(String::as_str).collect();
    let kinds: Vec<&str> = manifest.device_kinds.iter().map(|kind| kind.as_str()).collect();
    writeln!(out, "# Dataset: slowdowns of pairs on {}\n", devices.join(", "))?;
    if manifest.device_kinds.contains(&DeviceKind::Simulated) {
        writeln!(
            out,
            "> **Simulated.** These numbers are about the fluid model of a GPU, not about a GPU.\n"
        )?;
    }
    if facts.devices.iter().any(|device| device.contains("stand-in"))
        || manifest
            .provenance
            .iter()
            .any(|origin| origin.facts.values().any(|fact| fact.contains("Stand-in")))
    {
        writeln!(
            out,
            "> **From a stand-in driver.** No GPU took part: a test of the tool, not a measurement.\n"
        )?;
    }
    writeln!(
        out,
        "How much two workloads slow each other down on one device: one row per subject per trial in `pairs/`, one row per \
         workload, share and repeat in `isolated/`. `slowdown_ratio` is co-located time per step over isolated time per \
         step at the full device.\n"
    )?;

    writeln!(out, "## Origin\n\n| | |\n|---|---|")?;
    writeln!(out, "| numbers | {} |", kinds.join(", "))?;
    writeln!(out, "| content | `{}` |", manifest.content_digest)?;
    for origin in &manifest.provenance {
        writeln!(out, "| source | {}, device `{}` |", origin.source, origin.device)?;
        if let Some(digest) = &origin.source_digest {
            writeln!(out, "| source's digest | `{}` |", digest.short())?;
        }
        writeln!(out, "| measured by | elastico {} |", origin.elastico_version)?;
        if let Some(seed) = origin.seed {
            writeln!(out, "| seed | {} |", seed.0)?;
        }
        for (name, value) in &origin.facts {
            writeln!(out, "| {} | {} |", name.replace('_', " "), value.replace('|', "/"))?;
        }
    }

    writeln!(out, "\n## Content\n")?;
    writeln!(
        out,
        "{} rows of pairs, {} isolated rows. Workloads by kind and family:\n",
        dataset.pairs.rows(),
        dataset.isolated.rows()
    )?;
    writeln!(out, "| kind | families (configurations) |\n|---|---|")?;
    for (kind, families) in &facts.families {
        let families: Vec<String> =
            families.iter().map(|(family, count)| format!("`{family}` ({count})")).collect();
        writeln!(out, "| {kind} | {} |", families.join(", "))?;
    }
    writeln!(out, "\n| sharing in effect | pairs | rows |\n|---|---|---|")?;
    for (mode, (pairs, rows)) in &facts.sharing {
        writeln!(out, "| `{mode}` | {} | {rows} |", pairs.len())?;
    }

    writeln!(out, "\n## Quality\n\n| outcome | rows of pairs |\n|---|---|")?;
    for (outcome, rows) in &facts.outcomes {
        writeln!(out, "| `{outcome}` | {rows} |")?;
    }
    writeln!(out)?;
    if let [Some(low), Some(middle), Some(high)] = quartiles(&facts.slowdowns) {
        writeln!(
            out,
            "- Slowdowns of good rows: a tenth below {low:.3}, half below {middle:.3}, a tenth above {high:.3} (n = {}).",
            facts.slowdowns.len()
        )?;
    }
    if let [_, Some(middle), Some(high)] = quartiles(&facts.half_widths) {
        writeln!(
            out,
            "- Half-width of their intervals within a trial, relative: median {:.2} %, 90 % below {:.2} %.",
            100.0 * middle,
            100.0 * high
        )?;
    }
    for (mode, values) in &facts.null {
        match Estimate::geometric(values, 0.95) {
            Some(estimate) => writeln!(
                out,
                "- Null pair under `{mode}`, interference of the working side (must be 1): {:.4}, 95 % interval {:.4} to \
                 {:.4}, {} trials.",
                estimate.point,
                estimate.lower,
                estimate.upper,
                values.len()
            )?,
            None => writeln!(
                out,
                "- Null pair under `{mode}`, interference of the working side (must be 1): {:.4}, one trial.",
                values[0]
            )?,
        }
    }
    for (subject, values) in &facts.sentinel {
        // One trial shows no drift.
        if let Some(estimate) = Estimate::geometric(values, 0.95) {
            writeln!(
                out,
                "- Sentinel over the campaign, slowdown of `{subject}`: {:.3}, 95 % interval {:.3} to {:.3}, {} trials.",
                estimate.point,
                estimate.lower,
                estimate.upper,
                values.len()
            )?;
        }
    }
    for (status, rows) in &facts.counters {
        writeln!(out, "- Counters of isolated rows: {status} ({rows} rows).")?;
    }
    for (reason, rows) in manifest.exclusions_by_reason() {
        writeln!(out, "- Left out: {rows} rows, `{reason}`.")?;
    }
    if !facts.empty.is_empty() {
        let names: Vec<String> = facts.empty.iter().map(|name| format!("`{name}`")).collect();
        writeln!(out, "- Null in every row: {}.", names.join(", "))?;
    }

    writeln!(
        out,
        "\n## Limits\n\n- One device of one host at its own clocks, temperatures and driver; another device needs its own \
         measurements.\n- Synthetic step programs of the catalogue, not anybody's application.\n- Rows whose outcome is not \
         `ok` are kept with their reason and are no training data unless asked for.\n- Two workloads share the device; \
         nothing here tells about three.\n"
    )?;
    writeln!(
        out,
        "Columns, units and sources: `docs/reference/dataset.md`. How a number comes about: `docs/method.md`. Licence: that of \
         the project, MIT or Apache-2.0."
    )
}

/// The 10 %, 50 % and 90 % quantiles.
fn quartiles(values: &[f64]) -> [Option<f64>; 3] {
    [0.1, 0.5, 0.9].map(|level| (!values.is_empty()).then(|| quantile(values, level)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IsolatedRow, PairRow};
    use elastico_core::Provenance;

    fn dataset() -> Dataset {
        let row = |side: &str, flags: Option<&str>, interference: f64| PairRow {
            pair_id: "a + b".to_owned(),
            trial_id: format!("t{side}"),
            side: side.to_owned(),
            subject_workload: format!("tr_mlp.{side}"),
            subject_family: "tr_mlp".to_owned(),
            subject_kind: "training".to_owned(),
            co_runner_workload: "x".to_owned(),
            co_runner_family: "x".to_owned(),
            co_runner_kind: "inference".to_owned(),
            device_kind: "cuda".to_owned(),
            device: "h200".to_owned(),
            source: "c".to_owned(),
            sharing: "time_slice".to_owned(),
            sharing_requested: "time_slice".to_owned(),
            interference_ratio: interference,
            slowdown_ratio: interference,
            slowdown_lower_ratio: interference * 0.99,
            slowdown_upper_ratio: interference * 1.01,
            outcome: "ok".to_owned(),
            flags: flags.map(str::to_owned),
            ..PairRow::default()
        };
        let isolated = IsolatedRow {
            device: "h200".to_owned(),
            device_kind: "cuda".to_owned(),
            counters_status: "pm".to_owned(),
            ..IsolatedRow::default()
        };
        let provenance = Provenance {
            elastico_version: "0.1.0".to_owned(),
            device_kind: DeviceKind::Cuda,
            device: "cuda:0".to_owned(),
            seed: None,
            source: "campaign t".to_owned(),
            source_digest: None,
            facts: BTreeMap::from([("driver".to_owned(), "580.1".to_owned())]),
        };
        let rows = [
            row("a", None, 2.0),
            row("b", None, 1.5),
            row("a", Some("null_pair"), 1.002),
            row("b", Some("null_pair;drift"), f64::NAN),
            row("a", Some("null_pair"), 0.998),
        ];
        Dataset::new(Table::isolated(&[isolated]), Table::pairs(&rows), provenance, BTreeMap::new()).unwrap()
    }

    #[test]
    fn the_sheet_counts_what_is_there() {
        let text = datasheet(&dataset()).unwrap();
        for part in [
            "# Dataset: slowdowns of pairs on h200",
            "| driver | 580.1 |",
            "| training | `tr_mlp` (2) |",
            "| `time_slice` | 1 | 5 |",
            "half below 1.750",
            "median 1.00 %",
            "Null pair under `time_slice`, interference of the working side (must be 1): 1.0000",
            "2 trials",
            "Counters of isolated rows: pm (1 rows)",
        ] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
        assert!(!text.contains("Simulated"));
    }

    #[test]
    fn a_stand_in_is_called_one() {
        let mut dataset = dataset();
        dataset.manifest.provenance[0].facts.insert("name".to_owned(), "Stand-in H200".to_owned());
        assert!(datasheet(&dataset).unwrap().contains("No GPU took part"));
    }
}
