//! Pairs from a CSV file and a mapping of its columns.

use super::lines::{Cells, Line, Party, Places, read_line, refuse};
use super::mapping::{IsolatedAt, Mapping};
use super::rows::{Place, Rows};
use super::sheet::header_of;
use super::{bounded_pair_id, isolated_trial_id, read, trial_id};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::schema::{IsolatedRow, PairRow};
use elastico_core::{DeviceKind, Outcome, median};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Imports directed pair measurements from a CSV file: one line per subject, two lines per co-run.
///
/// The mapping file (TOML, `elastico.pairs_mapping/1`) says which column is what; `datasets/mappings/` holds two for public
/// measurements, [`super::MAPPING_TEMPLATE`] is one to start from. Lines of one pair under one sharing mode are matched to
/// co-runs in the order of the file; a line without its other side is left out and counted, unless the mapping says
/// `one_sided`: then each line is a trial of its own, and its row is flagged so. The isolated table gets one row per workload, device and share, with
/// the median of the values on the lines.
///
/// # Errors
/// [`Error::Mapping`] or [`Error::MappingSyntax`] for the mapping, [`Error::CsvValue`] with line and column for a value,
/// [`Error::NothingImported`] where no co-run is complete, [`Error::Refused`] for a square matrix of names.
pub fn pairs_csv(csv: &Path, mapping: &Path) -> Result<Dataset, Error> {
    let plan = Mapping::read(mapping)?;
    let content = read(csv)?;
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(content.as_slice());
    let failed = |source| Error::Csv { file: csv.to_owned(), source };
    let header = header_of(&mut reader, csv)?;
    refuse_matrix(csv, &header, &content)?;
    let places = Places::resolve(&plan, &header, mapping, csv)?;

    let mut exclusions: BTreeMap<String, u64> = BTreeMap::new();
    let mut lines = Vec::new();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(failed)? {
        let cells = Cells {
            file: csv,
            header: &header,
            record: &record,
            line: record.position().map_or(0, csv::Position::line),
            has_mapping: true,
        };
        let dropped = places
            .filter
            .iter()
            .find(|(place, allowed)| !allowed.iter().any(|text| text == cells.get(*place)));
        if let Some((place, _)) = dropped {
            let reason = format!("lines filtered by `{}`", &header[*place]);
            *exclusions.entry(reason).or_default() += 1;
            continue;
        }
        lines.push(read_line(&plan, &places, &cells)?);
    }

    let mut rows = Rows::of(csv);
    if plan.one_sided {
        let mut seen: HashMap<(String, &str), usize> = HashMap::new();
        for line in &lines {
            let pair_id = id_of(line);
            let count = seen.entry((pair_id.clone(), &line.pair)).or_default();
            let key = TrialKey { pair_id, pair: line.pair.clone(), repeat: *count };
            *count += 1;
            rows.beside(pair_row(&plan, &key, "a", line), Place::Line(line.number));
        }
    } else {
        let trials = match_sides(&lines, csv, &header, &places)?;
        for (key, sides) in &trials {
            let [Some(first), Some(second)] = *sides else { continue };
            for (side, line) in [("a", first), ("b", second)] {
                rows.beside(pair_row(&plan, key, side, &lines[line]), Place::Line(lines[line].number));
            }
        }
    }
    let total = rows.pairs().len();
    if total == 0 {
        let fix = if lines.is_empty() {
            "below the header there is no line, or `[filter]` of the mapping keeps none"
        } else {
            "each co-run needs a line per side; for measurements of one side set `one_sided = true` in the mapping"
        };
        return Err(Error::NothingImported { file: csv.to_owned(), fix: fix.to_owned() });
    }
    if lines.len() > total {
        exclusions.insert("lines without the other side".to_owned(), (lines.len() - total) as u64);
    }
    for (row, line) in isolated_rows(&plan, &lines) {
        rows.alone(row, Place::Line(line));
    }
    let mut facts = plan.facts.clone();
    if plan.values.slowdown_is_interference == Some(true) {
        facts.insert(
            "slowdown".to_owned(),
            "isolated times are at the share: slowdown_ratio is the interference alone, the partition effect is unknown"
                .to_owned(),
        );
    }
    rows.into_dataset(&plan.name, &[(csv, &content)], facts, exclusions)
}

/// Names across and the same names down are a matrix. It states no unit, no device and no time, and one well-known matrix of slowdowns
/// (Eva's) is of jobs that share a host and not a GPU.
fn refuse_matrix(file: &Path, header: &csv::StringRecord, content: &[u8]) -> Result<(), Error> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(content);
    let mut down = reader.records().map_while(Result::ok).filter_map(|line| line.get(0).map(str::to_owned));
    let mut across = header.iter().skip(1);
    if header.len() > 2 && across.all(|name| down.next().is_some_and(|row| row == name)) {
        return Err(Error::Refused {
            file: file.to_owned(),
            reason: "it is a square matrix of names, which says neither device nor sharing nor times",
            fix: "write one line per directed pair; if the jobs shared a host and not a GPU (as in Eva's \
                  contention_matrix.csv), it is no GPU interference at all",
        });
    }
    Ok(())
}

fn id_of(line: &Line) -> String {
    bounded_pair_id(&line.subject.workload, &line.co_runner.workload, &line.device, &line.sharing)
}

/// What one co-run is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct TrialKey {
    pair_id: String,
    pair: String,
    repeat: usize,
}

/// The lines of each co-run: side a, side b.
type Trials = BTreeMap<TrialKey, [Option<usize>; 2]>;

/// Finds the two lines of each co-run; the n-th line of one side of a pair is its n-th repeat.
fn match_sides(
    lines: &[Line],
    file: &Path,
    header: &csv::StringRecord,
    places: &Places,
) -> Result<Trials, Error> {
    let mut trials = Trials::new();
    let mut seen: HashMap<(String, String, usize), usize> = HashMap::new();
    for (index, line) in lines.iter().enumerate() {
        let pair_id = id_of(line);
        let here = (&line.subject.workload, &line.co_runner.workload, line.sharing.to_string());
        let there = (&line.co_runner.workload, &line.subject.workload, line.sharing.swapped().to_string());
        let mut count = |side: usize| {
            let count = seen.entry((pair_id.clone(), line.pair.clone(), side)).or_insert(0);
            *count += 1;
            *count - 1
        };
        let (side, repeat) = match line.side {
            Some(side) => (side, count(side)),
            None => match here.cmp(&there) {
                std::cmp::Ordering::Less => (0, count(0)),
                std::cmp::Ordering::Greater => (1, count(1)),
                // A workload beside itself: lines alternate.
                std::cmp::Ordering::Equal => {
                    let nth = count(0);
                    (nth % 2, nth / 2)
                }
            },
        };
        let key = TrialKey { pair_id, pair: line.pair.clone(), repeat };
        let sides = trials.entry(key).or_default();
        sides[side] = Some(index);
        if let [Some(first), Some(second)] = *sides {
            let (first, second) = (&lines[first], &lines[second]);
            let mirrored = first.subject.workload == second.co_runner.workload
                && first.co_runner.workload == second.subject.workload
                && first.sharing == second.sharing.swapped();
            if !mirrored {
                let place = places.side.unwrap_or(places.subject);
                let value = &lines[index].subject.workload;
                let other = if first.number == line.number { second.number } else { first.number };
                let problem = format!("does not mirror line {other}, the other side of its co-run");
                return Err(refuse(file, line.number, &header[place], value, problem, true));
            }
        }
    }
    Ok(trials)
}

fn pair_row(plan: &Mapping, key: &TrialKey, side: &str, line: &Line) -> PairRow {
    let at_share = plan.values.isolated_at == IsolatedAt::Share;
    let as_slowdown = !at_share || plan.values.slowdown_is_interference == Some(true);
    let with_interval = as_slowdown && line.ratio_deviation.is_finite();
    let mut flags: Vec<&str> = plan.flags.iter().map(String::as_str).collect();
    let (subject_share, co_runner_share) = line.sharing.shares();
    // A share below 1 with an isolated time at the full device leaves the two factors unknown.
    let unlimited = subject_share >= 1.0;
    if at_share && as_slowdown && !unlimited {
        flags.push("slowdown_at_share");
    }
    if plan.one_sided {
        flags.push("one_sided");
    }
    if with_interval {
        flags.push("interval_one_deviation");
    }
    let null_unless = |known: bool, value: f64| if known { value } else { f64::NAN };
    PairRow {
        pair_id: key.pair_id.clone(),
        trial_id: trial_id(&plan.name, &key.pair_id, &key.pair, key.repeat),
        repeat_total: key.repeat as f64,
        side: side.to_owned(),
        subject_workload: line.subject.workload.clone(),
        subject_family: line.subject.family.clone(),
        subject_kind: line.subject.kind.clone(),
        co_runner_workload: line.co_runner.workload.clone(),
        co_runner_family: line.co_runner.family.clone(),
        co_runner_kind: line.co_runner.kind.clone(),
        device_kind: DeviceKind::Imported.to_string(),
        device: line.device.clone(),
        source: plan.name.clone(),
        sharing: line.sharing.to_string(),
        sharing_requested: line.sharing.to_string(),
        subject_share_ratio: subject_share,
        co_runner_share_ratio: co_runner_share,
        isolated_full_step_seconds: null_unless(!at_share || unlimited, line.isolated_seconds),
        isolated_step_seconds: null_unless(at_share || unlimited, line.isolated_seconds),
        colocated_step_seconds: line.colocated_seconds,
        slowdown_ratio: null_unless(as_slowdown || unlimited, line.ratio),
        slowdown_lower_ratio: null_unless(with_interval, line.ratio - line.ratio_deviation),
        slowdown_upper_ratio: null_unless(with_interval, line.ratio + line.ratio_deviation),
        partition_effect_ratio: null_unless(unlimited, 1.0),
        interference_ratio: null_unless(at_share || unlimited, line.ratio),
        outcome: Outcome::Ok.to_string(),
        flags: (!flags.is_empty()).then(|| flags.join(";")),
        ..PairRow::default()
    }
}

/// One row per workload, device and share: the medians over the lines that state it, with the first of them.
fn isolated_rows(plan: &Mapping, lines: &[Line]) -> Vec<(IsolatedRow, u64)> {
    #[derive(Default)]
    struct Alone<'a> {
        party: Option<&'a Party>,
        line: u64,
        seconds: Vec<f64>,
        counters: Vec<Vec<f64>>,
    }
    let at_share = plan.values.isolated_at == IsolatedAt::Share;
    let mut all: BTreeMap<(&str, &str, u8), Alone<'_>> = BTreeMap::new();
    for line in lines {
        for (party, seconds) in [(&line.subject, line.isolated_seconds), (&line.co_runner, f64::NAN)] {
            let share = if at_share { party.share_percent } else { 100 };
            let alone = all.entry((&line.device, &party.workload, share)).or_default();
            alone.party.get_or_insert(party);
            alone.counters.resize(party.counters.len(), Vec::new());
            if !seconds.is_nan() {
                if alone.seconds.is_empty() {
                    alone.line = line.number;
                }
                alone.seconds.push(seconds);
            }
            for (values, value) in alone.counters.iter_mut().zip(&party.counters) {
                if !value.is_nan() {
                    values.push(*value);
                }
            }
        }
    }
    let mut rows = Vec::new();
    for ((device, workload, share_percent), alone) in all {
        let Some(party) = alone.party.filter(|_| !alone.seconds.is_empty()) else { continue };
        let status = match (plan.counters.is_empty(), alone.counters.iter().all(|values| !values.is_empty()))
        {
            (true, _) => "not published",
            (false, true) => "ok",
            (false, false) => "partly published",
        };
        let mut row = IsolatedRow {
            trial_id: isolated_trial_id(&plan.name, workload, device, share_percent),
            workload: workload.to_owned(),
            family: party.family.clone(),
            kind: party.kind.clone(),
            device_kind: DeviceKind::Imported.to_string(),
            device: device.to_owned(),
            source: plan.name.clone(),
            share_ratio: f64::from(share_percent) / 100.0,
            step_seconds: median(&alone.seconds),
            batch_total: party.batch,
            counters_status: status.to_owned(),
            outcome: Outcome::Ok.to_string(),
            flags: (!plan.flags.is_empty()).then(|| plan.flags.join(";")),
            ..IsolatedRow::default()
        };
        for (name, values) in plan.counters.keys().zip(&alone.counters) {
            if let Some(number) = row.number_mut(name) {
                *number = median(values);
            }
        }
        rows.push((row, alone.line));
    }
    rows
}
