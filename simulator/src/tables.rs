//! Oracles: the truth that moves jobs, and the predictions that a policy plans with.

use crate::error::short;
use crate::{Error, SpeedTable};
use elastico_core::Slowdown;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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

/// Anything that knows how fast jobs run: a measured table, a predictor, a law.
pub trait Oracle {
    /// The name that results carry.
    fn name(&self) -> &str;

    /// The slowdown of `subject` beside `co_runner` on a device, `None` where nothing is known. Both have the same GPUs;
    /// the slowdown is taken to be the same for any number of them.
    fn pair(&self, subject: &str, co_runner: &str, device: Option<&str>) -> Option<PairSlowdown>;

    /// The isolated speed of a workload on so many GPUs of a device, in any unit that is one for all devices and counts
    /// of this workload: the engine takes ratios. `None` = it cannot run so.
    ///
    /// The default knows nothing; then jobs run as the trace says, on the GPUs and the device that they ask for.
    fn speed(&self, workload: &str, device: Option<&str>, gpus: u32) -> Option<f64> {
        let _ = (workload, device, gpus);
        None
    }

    /// The speed on so many GPUs over that of one GPU of the same device, whatever device that is. Asked where
    /// [`Self::speed`] knows nothing and the device is the one that the job means: a law tells counts apart, not devices.
    fn growth(&self, workload: &str, gpus: u32) -> Option<f64> {
        let _ = (workload, gpus);
        None
    }
}

/// What happens, and what a policy believes.
#[derive(Clone, Copy)]
pub struct Tables<'a> {
    /// Moves the jobs.
    pub truth: &'a dyn Oracle,
    /// What the policy may look at.
    pub planner: &'a dyn Oracle,
}

impl fmt::Debug for Tables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables")
            .field("truth", &self.truth.name())
            .field("planner", &self.planner.name())
            .finish()
    }
}

/// Slowdowns from one place and speeds from another, as one oracle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Knowledge {
    name: String,
    slowdowns: Option<SlowdownTable>,
    speeds: Option<SpeedTable>,
}

impl Knowledge {
    /// What both tables know; without speeds a job runs only as it asks to, without slowdowns no pair forms.
    pub fn new(slowdowns: Option<SlowdownTable>, speeds: Option<SpeedTable>) -> Self {
        let names = [slowdowns.as_ref().map(Oracle::name), speeds.as_ref().map(Oracle::name)];
        let name = names.into_iter().flatten().collect::<Vec<_>>().join(" and ");
        Self { name, slowdowns, speeds }
    }

    pub(crate) const fn slowdowns(&self) -> Option<&SlowdownTable> {
        self.slowdowns.as_ref()
    }

    pub(crate) const fn speeds(&self) -> Option<&SpeedTable> {
        self.speeds.as_ref()
    }
}

impl Oracle for Knowledge {
    fn name(&self) -> &str {
        &self.name
    }

    fn pair(&self, subject: &str, co_runner: &str, device: Option<&str>) -> Option<PairSlowdown> {
        self.slowdowns.as_ref()?.pair(subject, co_runner, device)
    }

    fn speed(&self, workload: &str, device: Option<&str>, gpus: u32) -> Option<f64> {
        self.speeds.as_ref()?.speed(workload, device, gpus)
    }

    fn growth(&self, workload: &str, gpus: u32) -> Option<f64> {
        self.speeds.as_ref()?.growth(workload, gpus)
    }
}

/// A table of slowdowns, `elastico.slowdowns/1`: subject, co-runner, slowdown, and where known its upper bound and the
/// device. An entry without device holds on every device that has none of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowdownTable {
    name: String,
    // By device ("" = any), subject and co-runner.
    pairs: BTreeMap<String, BTreeMap<String, BTreeMap<String, PairSlowdown>>>,
}

/// A job slowed by more stands still.
const MOST_SLOWDOWN: f64 = 1e6;

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
    device: Option<String>,
    slowdown: Slowdown,
    upper: Option<Slowdown>,
}

impl SlowdownTable {
    /// A table without pairs.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), pairs: BTreeMap::new() }
    }

    /// Sets the slowdown of a subject beside a co-runner on any device, with an upper bound where there is one.
    pub fn set(&mut self, subject: &str, co_runner: &str, slowdown: Slowdown, upper: Option<Slowdown>) {
        self.set_on("", subject, co_runner, slowdown, upper);
    }

    /// Like [`Self::set`], for one device.
    pub fn set_on(
        &mut self,
        device: &str,
        subject: &str,
        co_runner: &str,
        slowdown: Slowdown,
        upper: Option<Slowdown>,
    ) {
        let pair = PairSlowdown { slowdown, upper: upper.unwrap_or(slowdown) };
        let rows = self.pairs.entry(device.to_owned()).or_default();
        rows.entry(subject.to_owned()).or_default().insert(co_runner.to_owned(), pair);
    }

    /// Reads a table.
    ///
    /// # Errors
    /// The file, or the line and column of what is wrong in it.
    pub fn read_json(path: &Path) -> Result<Self, Error> {
        let text = crate::document::read(path)?;
        Self::parse_json(&text, path)
    }

    /// Like [`Self::read_json`], from a text; `path` is only named in errors.
    ///
    /// # Errors
    /// As [`Self::read_json`].
    pub fn parse_json(text: &str, path: &Path) -> Result<Self, Error> {
        let document: Document = crate::document::json(text, path, "slowdown table")?;
        let mut table = Self::new(document.name);
        for (index, entry) in document.pairs.into_iter().enumerate() {
            table.add(entry).map_err(|why| Error::Content {
                path: path.into(),
                line: None,
                why: format!("entry {} of `pairs`: {why}", index + 1),
                remedy: None,
            })?;
        }
        Ok(table)
    }

    /// Adds an entry of a file, or says why it cannot be.
    fn add(&mut self, entry: Entry) -> Result<(), String> {
        let Entry { subject, co_runner, device, slowdown, upper } = entry;
        let what = || {
            let on = device.as_ref().map(|device| format!(" on {device}")).unwrap_or_default();
            format!("the slowdown of `{subject}` beside `{co_runner}`{on}")
        };
        for value in [Some(slowdown), upper].into_iter().flatten() {
            if value.get() > MOST_SLOWDOWN {
                return Err(format!("{} is {}, it must be at most a million", what(), short(value.get())));
            }
        }
        if let Some(upper) = upper.filter(|upper| upper.get() < slowdown.get()) {
            return Err(format!(
                "the upper bound of {} is {}, it must be at least the slowdown, {}",
                what(),
                short(upper.get()),
                short(slowdown.get())
            ));
        }
        let on = device.as_deref().unwrap_or_default();
        let known = self.pairs.get(on).and_then(|rows| rows.get(&subject));
        if known.is_some_and(|row| row.contains_key(&co_runner)) {
            return Err(format!("{} is listed twice", what()));
        }
        self.set_on(on, &subject, &co_runner, slowdown, upper);
        Ok(())
    }

    /// The table as a document.
    pub fn to_json(&self) -> serde_json::Value {
        let mut pairs = Vec::new();
        for (device, rows) in &self.pairs {
            for (subject, row) in rows {
                for (co_runner, pair) in row {
                    let mut entry = serde_json::json!({
                        "subject": subject,
                        "co_runner": co_runner,
                        "slowdown": pair.slowdown,
                        "upper": pair.upper,
                    });
                    if !device.is_empty() {
                        entry["device"] = device.as_str().into();
                    }
                    pairs.push(entry);
                }
            }
        }
        serde_json::json!({ "schema": "elastico.slowdowns/1", "name": self.name, "pairs": pairs })
    }

    /// The devices that entries name.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &str> {
        self.pairs.keys().map(String::as_str).filter(|device| !device.is_empty())
    }

    /// Whether it knows two of these workloads beside one another on a device.
    pub(crate) fn knows_any(&self, workloads: &BTreeSet<&str>, device: Option<&str>) -> bool {
        let knows = |name: &String| workloads.contains(name.as_str());
        let on = |device: &str| {
            let mut rows = self.pairs.get(device).into_iter().flatten();
            rows.any(|(subject, row)| knows(subject) && row.keys().any(knows))
        };
        on("") || device.is_some_and(on)
    }

    /// The workloads that occur as subjects, sorted.
    pub fn subjects(&self) -> impl Iterator<Item = &str> {
        let subjects: BTreeSet<&str> =
            self.pairs.values().flat_map(|rows| rows.keys().map(String::as_str)).collect();
        subjects.into_iter()
    }
}

impl Oracle for SlowdownTable {
    fn name(&self) -> &str {
        &self.name
    }

    fn pair(&self, subject: &str, co_runner: &str, device: Option<&str>) -> Option<PairSlowdown> {
        let on = |device: &str| self.pairs.get(device)?.get(subject)?.get(co_runner).copied();
        device.and_then(on).or_else(|| on(""))
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
        table.set_on("t4", "b", "a", Slowdown::new(1.9).unwrap(), None);
        let of = |device| table.pair("b", "a", device).map(|pair| pair.slowdown.get());
        assert_eq!([of(Some("t4")), of(Some("h100")), of(None)], [Some(1.9), Some(1.1), Some(1.1)]);
        let text = table.to_json().to_string();
        assert_eq!(SlowdownTable::parse_json(&text, Path::new("t.json")).unwrap(), table);
        for wrong in [
            text.replace("1.2", "-1.2"),
            text.replace("1.3", "1e308"),
            text.replace("upper", "uper"),
            text.replace("1.3", "1.19"),
            text.replace("\"t4\"", "\"\""),
            text.replace("slowdowns/1", "x/1"),
        ] {
            assert!(SlowdownTable::parse_json(&wrong, Path::new("t.json")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_entry_is_refused_with_its_place() {
        let text = r#"{"schema": "elastico.slowdowns/1", "name": "n", "pairs": [
            {"subject": "a", "co_runner": "b", "slowdown": 1.5, "device": "t4"},
            {"subject": "a", "co_runner": "b", "slowdown": 1.7, "upper": 2.5}]}"#;
        let parse = |text: &str| SlowdownTable::parse_json(text, Path::new("t.json"));
        assert!(parse(&format!("\u{feff}{text}")).is_ok());
        for (from, to, why) in [
            ("2.5}", "2.5, \"device\": \"t4\"}", "the slowdown of `a` beside `b` on t4 is listed twice"),
            (
                "2.5",
                "1.6",
                "the upper bound of the slowdown of `a` beside `b` is 1.6, it must be at least the slowdown, 1.7",
            ),
            ("2.5", "1e300", "the slowdown of `a` beside `b` is 1e300, it must be at most a million"),
        ] {
            let error = parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert_eq!(error, format!("t.json: entry 2 of `pairs`: {why}"));
        }
    }
}
