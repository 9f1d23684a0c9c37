//! The lines of the CSV file, read and checked.

use super::mapping::Mapping;
use super::sheet::{column_of, list};
use crate::error::Error;
use elastico_core::{SharingMode, WorkloadId, WorkloadKind, suggest};
use std::path::Path;

/// Indices of the CSV columns.
pub(super) struct Places {
    pub(super) subject: usize,
    pub(super) co_runner: usize,
    pub(super) families: Option<[usize; 2]>,
    pub(super) kinds: Option<[usize; 2]>,
    pub(super) batches: Option<[usize; 2]>,
    pub(super) shares: Option<[usize; 2]>,
    pub(super) device: Option<usize>,
    pub(super) sharing: Option<usize>,
    pub(super) pair: Option<usize>,
    pub(super) side: Option<usize>,
    pub(super) isolated: Option<usize>,
    pub(super) colocated: Option<usize>,
    pub(super) slowdown: Option<usize>,
    pub(super) deviation: Option<usize>,
    pub(super) filter: Vec<(usize, Vec<String>)>,
    /// Name, places of both sides, factor.
    pub(super) counters: Vec<(String, [usize; 2], f64)>,
}

impl Places {
    pub(super) fn resolve(
        plan: &Mapping,
        header: &csv::StringRecord,
        file: &Path,
        csv: &Path,
    ) -> Result<Self, Error> {
        let find = |field: &str, column: &str| {
            column_of(header, column, csv)?.ok_or_else(|| {
                let suggestion = suggest(column, header.iter()).map(str::to_owned);
                let mut problem = format!("names column `{column}`, which the CSV file lacks");
                if suggestion.is_none() {
                    problem.push_str(&format!("; it has {}", list(header)));
                }
                Error::Mapping { file: file.to_owned(), field: format!("`{field}`"), problem, suggestion }
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
pub(super) struct Cells<'a> {
    pub(super) file: &'a Path,
    pub(super) header: &'a csv::StringRecord,
    pub(super) record: &'a csv::StringRecord,
    pub(super) line: u64,
    /// Whether a mapping can leave lines out.
    pub(super) has_mapping: bool,
}

impl Cells<'_> {
    pub(super) fn get(&self, place: usize) -> &str {
        &self.record[place]
    }

    pub(super) fn refuse(&self, place: usize, problem: impl Into<String>) -> Error {
        refuse(self.file, self.line, &self.header[place], self.get(place), problem, self.has_mapping)
    }

    pub(super) fn name(&self, place: usize) -> Result<String, Error> {
        let id = WorkloadId::new(self.get(place));
        id.map(String::from).map_err(|error| self.refuse(place, format!("is no name: {error}")))
    }

    pub(super) fn positive(&self, place: usize) -> Result<f64, Error> {
        self.number(place, |number| number > 0.0, "is no finite number above 0")
    }

    /// NaN for an empty cell.
    pub(super) fn optional(&self, place: usize, good: fn(f64) -> bool, problem: &str) -> Result<f64, Error> {
        if self.get(place).is_empty() { Ok(f64::NAN) } else { self.number(place, good, problem) }
    }

    pub(super) fn number(&self, place: usize, good: fn(f64) -> bool, problem: &str) -> Result<f64, Error> {
        let number = self.get(place).parse::<f64>().ok().filter(|number| number.is_finite() && good(*number));
        number.ok_or_else(|| self.refuse(place, problem))
    }
}

pub(super) fn refuse(
    file: &Path,
    line: u64,
    column: &str,
    value: &str,
    problem: impl Into<String>,
    has_mapping: bool,
) -> Error {
    Error::CsvValue {
        has_mapping,
        file: file.to_owned(),
        line,
        column: column.to_owned(),
        value: printable(value),
        problem: problem.into(),
    }
}

/// A cell as a message shows it: control characters escaped, and no longer than tells which cell it is.
fn printable(value: &str) -> String {
    const MOST: usize = 60;
    let mut text = String::new();
    for letter in value.chars().take(MOST) {
        if letter.is_control() { text.extend(letter.escape_default()) } else { text.push(letter) }
    }
    if value.chars().nth(MOST).is_some() {
        text.push('…');
    }
    text
}

/// A workload at one share.
#[derive(Debug, Clone)]
pub(super) struct Party {
    pub(super) workload: String,
    pub(super) family: String,
    pub(super) kind: String,
    pub(super) batch: f64,
    pub(super) share_percent: u8,
    pub(super) counters: Vec<f64>,
}

/// A line, read and checked.
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) subject: Party,
    pub(super) co_runner: Party,
    pub(super) device: String,
    pub(super) sharing: SharingMode,
    pub(super) pair: String,
    pub(super) side: Option<usize>,
    pub(super) isolated_seconds: f64,
    pub(super) colocated_seconds: f64,
    /// Against the isolated value of the line.
    pub(super) ratio: f64,
    pub(super) ratio_deviation: f64,
}

pub(super) fn read_line(plan: &Mapping, places: &Places, cells: &Cells<'_>) -> Result<Line, Error> {
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
        pair: places.pair.map_or_else(|| Ok(String::new()), |place| cells.name(place))?,
        side,
        isolated_seconds,
        colocated_seconds,
        ratio,
        ratio_deviation,
    })
}

/// Reads the subject (0) or the co-runner (1).
pub(super) fn read_party(
    plan: &Mapping,
    places: &Places,
    cells: &Cells<'_>,
    index: usize,
) -> Result<Party, Error> {
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

pub(super) fn read_sharing(
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
