//! Pairs from a CSV file and a mapping of its columns.

use super::mapping::{IsolatedAt, Mapping};
use super::{bounded_pair_id, isolated_trial_id, provenance, trial_id};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::schema::{IsolatedRow, PairRow};
use crate::table::Table;
use elastico_core::{DeviceKind, Outcome, SharingMode, WorkloadId, WorkloadKind, median, suggest};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Imports directed pair measurements from a CSV file: one line per subject, two lines per co-run.
///
/// The mapping file (TOML, `elastico.pairs_mapping/1`) says which column is what; `datasets/mappings/` holds two for public
/// measurements. Lines of one pair under one sharing mode are matched to co-runs in the order of the file; a
/// line without its other side is left out and counted. The isolated table gets one row per workload, device and share, with
/// the median of the values on the lines.
///
/// # Errors
/// [`Error::Mapping`] or [`Error::MappingSyntax`] for the mapping, [`Error::CsvValue`] with line and column for a value,
/// [`Error::NothingImported`] where no co-run is complete.
pub fn pairs_csv(csv: &Path, mapping: &Path) -> Result<Dataset, Error> {
    let plan = Mapping::read(mapping)?;
    let content = std::fs::read(csv).map_err(Error::io("read", csv))?;
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(content.as_slice());
    let failed = |source| Error::Csv { file: csv.to_owned(), source };
    let header = reader.headers().map_err(failed)?.clone();
    let places = Places::resolve(&plan, &header, mapping)?;

    let mut exclusions: BTreeMap<String, u64> = BTreeMap::new();
    let mut lines = Vec::new();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(failed)? {
        let cells = Cells {
            file: csv,
            header: &header,
            record: &record,
            line: record.position().map_or(0, csv::Position::line),
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

    let trials = match_sides(&lines, csv, &header, &places)?;
    let complete: Vec<_> =
        trials.iter().filter_map(|(key, sides)| Some((key, sides[0]?, sides[1]?))).collect();
    if complete.is_empty() {
        return Err(Error::NothingImported { file: csv.to_owned() });
    }
    let lonely = lines.len() - 2 * complete.len();
    if lonely > 0 {
        exclusions.insert("lines without the other side".to_owned(), lonely as u64);
    }

    let mut pairs = Vec::new();
    for (key, first, second) in complete {
        for (side, line) in [("a", first), ("b", second)] {
            pairs.push(pair_row(&plan, key, side, &lines[line]));
        }
    }
    let isolated = isolated_rows(&plan, &lines);
    let mut facts = plan.facts.clone();
    if plan.values.slowdown_is_interference {
        facts.insert(
            "slowdown".to_owned(),
            "isolated times are at the share: slowdown_ratio is the interference alone, the partition effect is unknown"
                .to_owned(),
        );
    }
    Dataset::new(
        Table::isolated(&isolated),
        Table::pairs(&pairs),
        provenance(&plan.name, csv, &content, facts),
        exclusions,
    )
}

/// Indices of the CSV columns.
struct Places {
    subject: usize,
    co_runner: usize,
    families: Option<[usize; 2]>,
    kinds: Option<[usize; 2]>,
    batches: Option<[usize; 2]>,
    shares: Option<[usize; 2]>,
    device: Option<usize>,
    sharing: Option<usize>,
    pair: Option<usize>,
    side: Option<usize>,
    isolated: Option<usize>,
    colocated: Option<usize>,
    slowdown: Option<usize>,
    deviation: Option<usize>,
    filter: Vec<(usize, Vec<String>)>,
    /// Name, places of both sides, factor.
    counters: Vec<(String, [usize; 2], f64)>,
}

impl Places {
    fn resolve(plan: &Mapping, header: &csv::StringRecord, file: &Path) -> Result<Self, Error> {
        let find = |field: &str, column: &str| {
            header.iter().position(|name| name == column).ok_or_else(|| Error::Mapping {
                file: file.to_owned(),
                field: format!("`{field}`"),
                problem: format!("names column `{column}`, which the CSV file lacks"),
                suggestion: suggest(column, header.iter()).map(str::to_owned),
            })
        };
        let maybe = |field: &str, column: &Option<String>| {
            column.as_deref().map(|column| find(field, column)).transpose()
        };
        let both = |name: &str, subject: &Option<String>, co_runner: &Option<String>| {
            let places = [
                maybe(&format!("columns.subject_{name}"), subject)?,
                maybe(&format!("columns.co_runner_{name}"), co_runner)?,
            ];
            Ok::<_, Error>(match places {
                [Some(subject), Some(co_runner)] => Some([subject, co_runner]),
                _ => None,
            })
        };
        let columns = &plan.columns;
        let values = &plan.values;
        Ok(Self {
            subject: find("columns.subject", &columns.subject)?,
            co_runner: find("columns.co_runner", &columns.co_runner)?,
            families: both("family", &columns.subject_family, &columns.co_runner_family)?,
            kinds: both("kind", &columns.subject_kind, &columns.co_runner_kind)?,
            batches: both("batch", &columns.subject_batch, &columns.co_runner_batch)?,
            shares: both("share_percent", &columns.subject_share_percent, &columns.co_runner_share_percent)?,
            device: maybe("columns.device", &columns.device)?,
            sharing: maybe("columns.sharing", &columns.sharing)?,
            pair: maybe("columns.pair", &columns.pair)?,
            side: maybe("columns.side", &columns.side)?,
            isolated: maybe("values.isolated", &values.isolated)?,
            colocated: maybe("values.colocated", &values.colocated)?,
            slowdown: maybe("values.slowdown", &values.slowdown)?,
            deviation: maybe("values.colocated_deviation", &values.colocated_deviation)?,
            filter: plan
                .filter
                .iter()
                .map(|(column, allowed)| Ok((find("filter", column)?, allowed.clone())))
                .collect::<Result<_, Error>>()?,
            counters: plan
                .counters
                .iter()
                .map(|(name, counter)| {
                    let field = format!("counters.{name}");
                    let places = [find(&field, &counter.subject)?, find(&field, &counter.co_runner)?];
                    Ok((name.clone(), places, counter.scale))
                })
                .collect::<Result<_, Error>>()?,
        })
    }
}

/// One line of the CSV file.
struct Cells<'a> {
    file: &'a Path,
    header: &'a csv::StringRecord,
    record: &'a csv::StringRecord,
    line: u64,
}

impl Cells<'_> {
    fn get(&self, place: usize) -> &str {
        &self.record[place]
    }

    fn refuse(&self, place: usize, problem: impl Into<String>) -> Error {
        refuse(self.file, self.line, &self.header[place], self.get(place), problem)
    }

    fn name(&self, place: usize) -> Result<String, Error> {
        let id = WorkloadId::new(self.get(place));
        id.map(String::from).map_err(|error| self.refuse(place, format!("is no name: {error}")))
    }

    fn positive(&self, place: usize) -> Result<f64, Error> {
        self.number(place, |number| number > 0.0, "is no finite number above 0")
    }

    /// NaN for an empty cell.
    fn optional(&self, place: usize, good: fn(f64) -> bool, problem: &str) -> Result<f64, Error> {
        if self.get(place).is_empty() { Ok(f64::NAN) } else { self.number(place, good, problem) }
    }

    fn number(&self, place: usize, good: fn(f64) -> bool, problem: &str) -> Result<f64, Error> {
        let number = self.get(place).parse::<f64>().ok().filter(|number| number.is_finite() && good(*number));
        number.ok_or_else(|| self.refuse(place, problem))
    }
}

fn refuse(file: &Path, line: u64, column: &str, value: &str, problem: impl Into<String>) -> Error {
    Error::CsvValue {
        file: file.to_owned(),
        line,
        column: column.to_owned(),
        value: value.to_owned(),
        problem: problem.into(),
    }
}

/// A workload at one share.
#[derive(Debug, Clone)]
struct Party {
    workload: String,
    family: String,
    kind: String,
    batch: f64,
    share_percent: u8,
    counters: Vec<f64>,
}

/// A line, read and checked.
struct Line {
    number: u64,
    subject: Party,
    co_runner: Party,
    device: String,
    sharing: SharingMode,
    pair: String,
    side: Option<usize>,
    isolated_seconds: f64,
    colocated_seconds: f64,
    /// Against the isolated value of the line.
    ratio: f64,
    ratio_deviation: f64,
}

fn read_line(plan: &Mapping, places: &Places, cells: &Cells<'_>) -> Result<Line, Error> {
    let [subject, co_runner] = [0, 1].map(|index| read_party(plan, places, cells, index));
    let (mut subject, mut co_runner) = (subject?, co_runner?);
    let device = match places.device {
        Some(place) => cells.name(place)?,
        None => plan.constants.device.clone().unwrap_or_default(),
    };
    let sharing = read_sharing(plan, places, cells, &subject, &co_runner)?;
    // Only MPS (and MIG, by its profile) limits a side.
    (subject.share_percent, co_runner.share_percent) = {
        let (mine, theirs) = sharing.shares();
        ((mine * 100.0).round() as u8, (theirs * 100.0).round() as u8)
    };
    let side = match places.side {
        Some(place) => match cells.get(place) {
            "a" | "A" => Some(0),
            "b" | "B" => Some(1),
            _ => return Err(cells.refuse(place, "is no side, expected a or b")),
        },
        None => None,
    };
    let (mut isolated_seconds, mut colocated_seconds, mut ratio_deviation) = (f64::NAN, f64::NAN, f64::NAN);
    let ratio = if let (Some(isolated), Some(colocated), Some(unit)) =
        (places.isolated, places.colocated, plan.values.unit)
    {
        let (alone, beside) = (cells.positive(isolated)?, cells.positive(colocated)?);
        isolated_seconds = unit.to_seconds(alone);
        colocated_seconds = unit.to_seconds(beside);
        if let Some(place) = places.deviation {
            let deviation = cells.optional(place, |deviation| deviation >= 0.0, "is no deviation")?;
            if deviation >= beside {
                return Err(cells.refuse(place, "is not below the value that it belongs to"));
            }
            ratio_deviation = deviation / alone;
        }
        unit.ratio(alone, beside)
    } else {
        let place = places.slowdown.unwrap_or_else(|| unreachable!("the mapping names values or a slowdown"));
        cells.positive(place)?
    };
    Ok(Line {
        number: cells.line,
        subject,
        co_runner,
        device,
        sharing,
        pair: places.pair.map_or_else(String::new, |place| cells.get(place).to_owned()),
        side,
        isolated_seconds,
        colocated_seconds,
        ratio,
        ratio_deviation,
    })
}

/// Reads the subject (0) or the co-runner (1).
fn read_party(plan: &Mapping, places: &Places, cells: &Cells<'_>, index: usize) -> Result<Party, Error> {
    let workload = cells.name([places.subject, places.co_runner][index])?;
    let family = match places.families {
        Some(families) => cells.name(families[index])?,
        None => workload.clone(),
    };
    let kind = match places.kinds {
        Some(kinds) => {
            let place = kinds[index];
            let kind = cells.get(place).parse::<WorkloadKind>();
            kind.map_err(|_| {
                cells.refuse(place, "is no workload kind (training, inference, stressor, null)")
            })?
            .to_string()
        }
        None => plan.constants.kind.clone().unwrap_or_default(),
    };
    let whole = |number: f64| number >= 1.0 && number.fract() == 0.0;
    let batch = match places.batches {
        Some(batches) => cells.optional(batches[index], whole, "is no batch size")?,
        None => f64::NAN,
    };
    let share_percent = match places.shares {
        Some(shares) => {
            let percent = |number: f64| (1.0..=100.0).contains(&number) && number.fract() == 0.0;
            cells.number(shares[index], percent, "is no whole percentage in 1..100")? as u8
        }
        None => 100,
    };
    let mut counters = Vec::new();
    for (name, columns, scale) in &places.counters {
        let place = columns[index];
        let value = cells.optional(place, |value| value >= 0.0, "is no finite number of at least 0")? * scale;
        if name.ends_with("_ratio") && value > 1.0 {
            let problem =
                format!("is {value} as `{name}`, a ratio is at most 1; check `scale` in the mapping");
            return Err(cells.refuse(place, problem));
        }
        counters.push(value);
    }
    Ok(Party { workload, family, kind, batch, share_percent, counters })
}

fn read_sharing(
    plan: &Mapping,
    places: &Places,
    cells: &Cells<'_>,
    subject: &Party,
    co_runner: &Party,
) -> Result<SharingMode, Error> {
    let mode = if let Some(place) = places.sharing {
        let text = cells.get(place);
        let text = plan.sharing_names.get(text).map_or(text, String::as_str);
        text.parse().map_err(|_| {
            cells.refuse(place, "is no sharing mode; translate it in `sharing_names` of the mapping")
        })?
    } else {
        let text = plan.constants.sharing.as_deref().unwrap_or_default();
        text.parse().unwrap_or_else(|_| unreachable!("the mapping was checked"))
    };
    Ok(match mode {
        SharingMode::Mps { .. } if places.shares.is_some() => SharingMode::Mps {
            subject_percent: subject.share_percent,
            co_runner_percent: co_runner.share_percent,
        },
        mode => mode,
    })
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
        let pair_id =
            bounded_pair_id(&line.subject.workload, &line.co_runner.workload, &line.device, &line.sharing);
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
                return Err(refuse(file, line.number, &header[place], value, problem));
            }
        }
    }
    Ok(trials)
}

fn pair_row(plan: &Mapping, key: &TrialKey, side: &str, line: &Line) -> PairRow {
    let at_share = plan.values.isolated_at == IsolatedAt::Share;
    let as_slowdown = !at_share || plan.values.slowdown_is_interference;
    let with_interval = as_slowdown && line.ratio_deviation.is_finite();
    let mut flags: Vec<&str> = plan.flags.iter().map(String::as_str).collect();
    let (subject_share, co_runner_share) = line.sharing.shares();
    // A share below 1 with an isolated time at the full device leaves the two factors unknown.
    let unlimited = subject_share >= 1.0;
    if at_share && as_slowdown && !unlimited {
        flags.push("slowdown_at_share");
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

/// One row per workload, device and share: the medians over the lines that state it.
fn isolated_rows(plan: &Mapping, lines: &[Line]) -> Vec<IsolatedRow> {
    #[derive(Default)]
    struct Alone<'a> {
        party: Option<&'a Party>,
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
        rows.push(row);
    }
    rows
}
