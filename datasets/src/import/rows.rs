//! The rows of an import on their way into a dataset: each is held against the schema, and found again in the file.

use super::provenance;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::labels::SLOWDOWN_RANGE;
use crate::schema::{IsolatedRow, PairRow};
use crate::table::{Table, Values};
use crate::validate::first_finding;
use elastico_core::Outcome;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where in its file a row comes from.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// A line from 1, the header included.
    Line(u64),
    /// The keys from the outside in.
    Keys(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Keys(keys) => f.write_str(keys),
        }
    }
}

/// Rows with their places in one file.
#[derive(Debug)]
pub(super) struct Rows {
    file: PathBuf,
    isolated: Vec<IsolatedRow>,
    isolated_places: Vec<Place>,
    pairs: Vec<PairRow>,
    pairs_places: Vec<Place>,
}

impl Rows {
    pub(super) fn of(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            isolated: Vec::new(),
            isolated_places: Vec::new(),
            pairs: Vec::new(),
            pairs_places: Vec::new(),
        }
    }

    pub(super) fn alone(&mut self, row: IsolatedRow, place: Place) {
        self.isolated.push(row);
        self.isolated_places.push(place);
    }

    pub(super) fn beside(&mut self, row: PairRow, place: Place) {
        self.pairs.push(row);
        self.pairs_places.push(place);
    }

    pub(super) fn pairs(&self) -> &[PairRow] {
        &self.pairs
    }

    /// The dataset of these rows, each of which keeps the rules of the schema and is of a size that can be.
    pub(super) fn into_dataset(
        self,
        source: &str,
        files: &[(&Path, &[u8])],
        facts: BTreeMap<String, String>,
        exclusions: BTreeMap<String, u64>,
    ) -> Result<Dataset, Error> {
        self.check_slowdowns()?;
        let (isolated, pairs) = (Table::isolated(&self.isolated), Table::pairs(&self.pairs));
        for (table, places) in [(&isolated, &self.isolated_places), (&pairs, &self.pairs_places)] {
            self.check(table, places)?;
        }
        Dataset::new(isolated, pairs, provenance(source, files, facts), exclusions)
    }

    fn refuse(
        &self,
        place: &Place,
        column: &str,
        value: impl Into<String>,
        rule: impl Into<String>,
    ) -> Error {
        Error::ImportRow {
            file: self.file.clone(),
            place: place.to_string(),
            column: column.to_owned(),
            value: value.into(),
            rule: rule.into(),
        }
    }

    /// A slowdown that no model can say is a mistake of the columns, not a measurement.
    fn check_slowdowns(&self) -> Result<(), Error> {
        let (least, most) = SLOWDOWN_RANGE;
        for (row, place) in self.pairs.iter().zip(&self.pairs_places) {
            let slowdown =
                if row.slowdown_ratio.is_nan() { row.interference_ratio } else { row.slowdown_ratio };
            let claims = row.outcome == Outcome::Ok.as_str() && !slowdown.is_nan();
            if claims && !(least..=most).contains(&slowdown) {
                return Err(self.refuse(
                    place,
                    "slowdown_ratio",
                    short(slowdown),
                    format!("{least} to {most}, the slowdowns that a model file holds"),
                ));
            }
        }
        Ok(())
    }

    fn check(&self, table: &Table, places: &[Place]) -> Result<(), Error> {
        for (column, values) in table.entries() {
            let (Some(most), Values::Number(numbers)) = (most(column.unit), values) else { continue };
            if let Some(row) = numbers.iter().position(|number| number.abs() > most) {
                let rule = format!("at most {most:e} {}", column.unit);
                return Err(self.refuse(&places[row], column.name, short(numbers[row]), rule));
            }
        }
        match first_finding(table) {
            Some((row, finding)) => {
                Err(self.refuse(&places[row], &finding.column, finding.value, finding.rule))
            }
            None => Ok(()),
        }
    }
}

/// More than any device or run has; `None` for units with a rule of their own.
fn most(unit: &str) -> Option<f64> {
    Some(match unit {
        "bytes" => 1e18,
        "count" => 1e15,
        "hertz" => 1e13,
        "seconds" => 1e9,
        "watts" => 1e6,
        _ => return None,
    })
}

/// A number in as few digits as tell what it is.
fn short(number: f64) -> String {
    let rounded = format!("{number:.3e}").parse().unwrap_or(number);
    let plain = rounded == 0.0 || (1e-4..1e9).contains(&rounded.abs());
    if plain { rounded.to_string() } else { format!("{rounded:e}") }
}
