//! Pairwise slowdowns: the truth that moves jobs, and the predictions that a policy plans with.

use crate::Error;
use elastico_core::Slowdown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// What is known of one subject beside one co-runner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairSlowdown {
    /// The slowdown of the subject.
    pub slowdown: Slowdown,
    /// Its upper bound; the slowdown itself where none is known.
    pub upper: Slowdown,
}

/// Anything that knows slowdowns: a measured table, a predictor, a law.
pub trait PairOracle {
    /// The name that results carry.
    fn name(&self) -> &str;

    /// The slowdown of `subject` beside `co_runner`, `None` where nothing is known. Asked once for each pair of
    /// workloads of a trace.
    fn pair(&self, subject: &str, co_runner: &str) -> Option<PairSlowdown>;
}

/// The two sides of co-location.
#[derive(Clone, Copy)]
pub struct Tables<'a> {
    /// Moves the jobs.
    pub truth: &'a dyn PairOracle,
    /// What the policy may look at.
    pub planner: &'a dyn PairOracle,
}

impl fmt::Debug for Tables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables")
            .field("truth", &self.truth.name())
            .field("planner", &self.planner.name())
            .finish()
    }
}

/// A table of slowdowns, `elastico.slowdowns/1`.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowdownTable {
    name: String,
    pairs: BTreeMap<String, BTreeMap<String, PairSlowdown>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "schema")]
    _schema: Schema,
    name: String,
    pairs: Vec<Entry>,
}

#[derive(Deserialize)]
enum Schema {
    #[serde(rename = "elastico.slowdowns/1")]
    One,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    subject: String,
    co_runner: String,
    slowdown: Slowdown,
    upper: Option<Slowdown>,
}

impl SlowdownTable {
    /// A table without pairs.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), pairs: BTreeMap::new() }
    }

    /// Sets the slowdown of a subject beside a co-runner, with an upper bound where there is one.
    pub fn set(&mut self, subject: &str, co_runner: &str, slowdown: Slowdown, upper: Option<Slowdown>) {
        let pair = PairSlowdown { slowdown, upper: upper.unwrap_or(slowdown) };
        self.pairs.entry(subject.to_owned()).or_default().insert(co_runner.to_owned(), pair);
    }

    /// Reads a table.
    ///
    /// # Errors
    /// The file, or the line and column of what is wrong in it.
    pub fn read_json(path: &Path) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.into(), source })?;
        Self::parse_json(&text, path)
    }

    /// Like [`Self::read_json`], from a text; `path` is only named in errors.
    ///
    /// # Errors
    /// As [`Self::read_json`].
    pub fn parse_json(text: &str, path: &Path) -> Result<Self, Error> {
        let document: Document = serde_json::from_str(text).map_err(|source| Error::Json {
            path: path.into(),
            what: "slowdown table",
            source,
        })?;
        let mut table = Self::new(document.name);
        for entry in document.pairs {
            table.set(&entry.subject, &entry.co_runner, entry.slowdown, entry.upper);
        }
        Ok(table)
    }

    /// The table as a document.
    pub fn to_json(&self) -> serde_json::Value {
        let pairs: Vec<serde_json::Value> = self
            .pairs
            .iter()
            .flat_map(|(subject, row)| {
                row.iter().map(move |(co_runner, pair)| {
                    serde_json::json!({
                        "subject": subject,
                        "co_runner": co_runner,
                        "slowdown": pair.slowdown,
                        "upper": pair.upper,
                    })
                })
            })
            .collect();
        serde_json::json!({ "schema": "elastico.slowdowns/1", "name": self.name, "pairs": pairs })
    }

    /// The workloads that occur as subjects, sorted.
    pub fn subjects(&self) -> impl Iterator<Item = &str> {
        self.pairs.keys().map(String::as_str)
    }
}

impl PairOracle for SlowdownTable {
    fn name(&self) -> &str {
        &self.name
    }

    fn pair(&self, subject: &str, co_runner: &str) -> Option<PairSlowdown> {
        self.pairs.get(subject)?.get(co_runner).copied()
    }
}

/// Both tables over the workloads of one trace, by index.
#[derive(Debug, Default)]
pub(crate) struct DensePairs {
    truth: Vec<Option<PairSlowdown>>,
    planner: Vec<Option<PairSlowdown>>,
    size: usize,
}

impl DensePairs {
    pub(crate) fn new(workloads: &[&str], tables: &Tables<'_>) -> Self {
        let all = |oracle: &dyn PairOracle| {
            workloads
                .iter()
                .flat_map(|subject| workloads.iter().map(|co_runner| oracle.pair(subject, co_runner)))
                .collect()
        };
        Self { truth: all(tables.truth), planner: all(tables.planner), size: workloads.len() }
    }

    pub(crate) fn truth(&self, subject: u32, co_runner: u32) -> Option<PairSlowdown> {
        *self.truth.get(subject as usize * self.size + co_runner as usize)?
    }

    pub(crate) fn planner(&self, subject: u32, co_runner: u32) -> Option<PairSlowdown> {
        *self.planner.get(subject as usize * self.size + co_runner as usize)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_survives_its_own_format_and_refuses_nonsense() {
        let mut table = SlowdownTable::new("measured");
        table.set("a", "b", Slowdown::new(1.2).unwrap(), Slowdown::new(1.3).ok());
        table.set("b", "a", Slowdown::new(1.1).unwrap(), None);
        let text = table.to_json().to_string();
        assert_eq!(SlowdownTable::parse_json(&text, Path::new("t.json")).unwrap(), table);
        for wrong in
            [text.replace("1.2", "-1.2"), text.replace("upper", "uper"), text.replace("slowdowns/1", "x/1")]
        {
            assert!(SlowdownTable::parse_json(&wrong, Path::new("t.json")).is_err(), "{wrong}");
        }
    }
}
