//! The mapping file: which CSV column is what.

use crate::error::Error;
use crate::labels::OWN_HARNESS;
use elastico_core::{COUNTERS, SharingMode, WorkloadId, WorkloadKind, suggest};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const SCHEMA: &str = "elastico.pairs_mapping/1";

/// A mapping file to start from, with a comment for each field. It is complete: the tests import a file by it.
pub const MAPPING_TEMPLATE: &str = include_str!("../../mappings/template.toml");

/// A mapping file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mapping {
    /// [`SCHEMA`].
    pub(super) schema: String,
    /// The `source` column of the rows, and the origin in the provenance.
    pub(super) name: String,
    /// Facts for the provenance: publication, repository, licence.
    #[serde(default)]
    pub(super) facts: BTreeMap<String, String>,
    /// Flags of each row.
    #[serde(default)]
    pub(super) flags: Vec<String>,
    /// Each line is a trial of its own, measured on the subject alone.
    #[serde(default)]
    pub(super) one_sided: bool,
    /// CSV columns.
    pub(super) columns: Columns,
    /// Values that the CSV file does not state.
    #[serde(default)]
    pub(super) constants: Constants,
    /// The measured values.
    pub(super) values: Measured,
    /// What the file's own words for sharing mean; `mps` takes its shares from the share columns.
    #[serde(default)]
    pub(super) sharing_names: BTreeMap<String, String>,
    /// Rows to keep: column to allowed texts.
    #[serde(default)]
    pub(super) filter: BTreeMap<String, Vec<String>>,
    /// Isolated columns that are in the CSV file, per side.
    #[serde(default)]
    pub(super) counters: BTreeMap<String, CounterColumns>,
}

/// Names of CSV columns.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Columns {
    pub(super) subject: String,
    pub(super) co_runner: String,
    pub(super) subject_family: Option<String>,
    pub(super) co_runner_family: Option<String>,
    pub(super) subject_kind: Option<String>,
    pub(super) co_runner_kind: Option<String>,
    pub(super) subject_batch: Option<String>,
    pub(super) co_runner_batch: Option<String>,
    pub(super) device: Option<String>,
    pub(super) sharing: Option<String>,
    /// What the two rows of one co-run have in common, beyond workloads, device and sharing.
    pub(super) pair: Option<String>,
    /// `a` or `b`.
    pub(super) side: Option<String>,
    pub(super) subject_share_percent: Option<String>,
    pub(super) co_runner_share_percent: Option<String>,
}

/// Values for what the CSV file does not state.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Constants {
    pub(super) device: Option<String>,
    pub(super) sharing: Option<String>,
    /// Kind of both sides.
    pub(super) kind: Option<String>,
}

/// The measured values.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    /// Column of the isolated value.
    pub(super) isolated: Option<String>,
    /// Column of the co-located value.
    pub(super) colocated: Option<String>,
    /// Unit of both.
    pub(super) unit: Option<Unit>,
    /// Column of the slowdown, where there are no two values.
    pub(super) slowdown: Option<String>,
    /// Column of the standard deviation of the co-located value over repeats.
    pub(super) colocated_deviation: Option<String>,
    /// Where the isolated value was measured.
    #[serde(default)]
    pub(super) isolated_at: IsolatedAt,
    /// With `isolated_at = "share"` the slowdown against the full device is unknown. `true` records the interference in its
    /// place, flagged `slowdown_at_share`; `false` leaves the slowdown null.
    #[serde(default)]
    pub(super) slowdown_is_interference: Option<bool>,
}

/// The unit of a measured value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    /// A rate in steps per second: more is faster.
    PerSecond,
}

impl Unit {
    pub(super) fn to_seconds(self, value: f64) -> f64 {
        match self {
            Self::Seconds => value,
            Self::Milliseconds => value / 1000.0,
            Self::PerSecond => 1.0 / value,
        }
    }

    /// Co-located time ÷ isolated time, from the values as written: no rounding on the way.
    pub(super) fn ratio(self, isolated: f64, colocated: f64) -> f64 {
        if self == Self::PerSecond { isolated / colocated } else { colocated / isolated }
    }
}

/// The share at which the isolated value was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IsolatedAt {
    /// At the full device.
    #[default]
    Full,
    /// At the share of the co-run.
    Share,
}

/// Where one isolated column stands in the CSV file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CounterColumns {
    pub(super) subject: String,
    pub(super) co_runner: String,
    /// Factor to the column's unit, for example 0.01 for percent.
    #[serde(default = "one")]
    pub(super) scale: f64,
}

fn one() -> f64 {
    1.0
}

/// Isolated columns other than counters that a mapping may fill.
const FURTHER: [&str; 4] = ["working_set_bytes", "footprint_bytes", "clock_hertz", "power_watts"];

impl Mapping {
    pub(super) fn read(file: &Path) -> Result<Self, Error> {
        let text = String::from_utf8(super::read(file)?).map_err(|_| {
            Error::io("read", file)(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "it is no UTF-8 text",
            ))
        })?;
        let mapping: Self = toml::from_str(&text).map_err(|source| Error::MappingSyntax {
            file: file.to_owned(),
            suggestion: suggestion(source.message()),
            source: Box::new(source),
        })?;
        mapping.check(file)?;
        Ok(mapping)
    }

    fn check(&self, file: &Path) -> Result<(), Error> {
        let refuse = |field: &str, problem: &str| Error::Mapping {
            file: file.to_owned(),
            field: format!("`{field}`"),
            problem: problem.to_owned(),
            suggestion: None,
        };
        if self.schema != SCHEMA {
            return Err(refuse("schema", &format!("must be `{SCHEMA}`")));
        }
        if self.name == OWN_HARNESS {
            return Err(refuse("name", "is the harness of our own measurements, name the source"));
        }
        if self.one_sided && self.columns.side.is_some() {
            return Err(refuse("columns.side", "makes no sense with `one_sided`"));
        }
        for (field, name) in
            [("name", Some(&self.name)), ("constants.device", self.constants.device.as_ref())]
        {
            if let Some(name) = name {
                WorkloadId::new(name.as_str())
                    .map_err(|error| refuse(field, &format!("is no name: {error}")))?;
            }
        }
        let values = &self.values;
        match (&values.isolated, &values.colocated, values.unit, &values.slowdown) {
            (Some(_), Some(_), Some(_), None) | (None, None, None, Some(_)) => {}
            (Some(_), Some(_), None, None) => {
                return Err(refuse("values.unit", "is missing: seconds, milliseconds or per_second"));
            }
            _ => {
                return Err(refuse(
                    "values",
                    "must name either `isolated`, `colocated` and `unit`, or `slowdown` alone",
                ));
            }
        }
        if values.colocated_deviation.is_some() && values.unit.is_none_or(|unit| unit == Unit::PerSecond) {
            return Err(refuse("values.colocated_deviation", "needs values in seconds or milliseconds"));
        }
        match (values.slowdown_is_interference, values.isolated_at) {
            (Some(true), IsolatedAt::Full) => {
                return Err(refuse("values.slowdown_is_interference", "needs `isolated_at = \"share\"`"));
            }
            (None, IsolatedAt::Share) => {
                return Err(refuse(
                    "values.slowdown_is_interference",
                    "must be said with `isolated_at = \"share\"`: `true` learns from the interference alone, `false` keeps rows from \
                     which nothing can be learnt, since their slowdown against the full device is unknown",
                ));
            }
            _ => {}
        }
        let columns = &self.columns;
        for (field, column, constant) in [
            ("device", columns.device.is_some(), self.constants.device.is_some()),
            ("sharing", columns.sharing.is_some(), self.constants.sharing.is_some()),
            (
                "kind",
                columns.subject_kind.is_some() && columns.co_runner_kind.is_some(),
                self.constants.kind.is_some(),
            ),
        ] {
            if column == constant {
                let problem = if column {
                    "is both a column and a constant"
                } else {
                    "is neither a column nor a constant"
                };
                return Err(refuse(field, problem));
            }
        }
        for (first, second, name) in [
            (
                &columns.subject_share_percent,
                &columns.co_runner_share_percent,
                "columns.subject_share_percent",
            ),
            (&columns.subject_family, &columns.co_runner_family, "columns.subject_family"),
            (&columns.subject_kind, &columns.co_runner_kind, "columns.subject_kind"),
            (&columns.subject_batch, &columns.co_runner_batch, "columns.subject_batch"),
        ] {
            if first.is_some() != second.is_some() {
                return Err(refuse(name, "needs the same of the other side"));
            }
        }
        if let Some(kind) = &self.constants.kind {
            kind.parse::<WorkloadKind>().map_err(|error| refuse("constants.kind", &error.to_string()))?;
        }
        for sharing in self.sharing_names.values().chain(&self.constants.sharing) {
            sharing.parse::<SharingMode>().map_err(|error| refuse("sharing", &error.to_string()))?;
        }
        let known = || COUNTERS.iter().map(|counter| counter.name).chain(FURTHER);
        for (name, counter) in &self.counters {
            let field = format!("counters.{name}");
            if !known().any(|known| known == name) {
                return Err(Error::Mapping {
                    file: file.to_owned(),
                    field: format!("`{field}`"),
                    problem: "is no isolated column that an import may fill".to_owned(),
                    suggestion: suggest(name, known()).map(str::to_owned),
                });
            }
            if !(counter.scale.is_finite() && counter.scale > 0.0) {
                return Err(refuse(&format!("{field}.scale"), "must be finite and above 0"));
            }
        }
        if let Some(flag) = self.flags.iter().find(|flag| flag.is_empty() || flag.contains([';', ' '])) {
            return Err(refuse("flags", &format!("holds `{flag}`: a flag has no blank and no `;`")));
        }
        Ok(())
    }
}

/// The nearest of the fields that serde expected, read from its message: it hands them out in no other way.
fn suggestion(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message.contains("unknown").then(|| quoted.next())??;
    suggest(unknown, quoted).map(str::to_owned)
}
