//! Gavel's throughput file: steps per second of each job type on each device, alone and beside another.

use crate::{Error, Oracle, PairSlowdown, SlowdownTable, SpeedTable};
use elastico_core::{Slowdown, suggest};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Steps per second by device, job type and scale factor (Narayanan et al., OSDI 2020). Rates of pairs are of two jobs
/// on the same GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct GavelThroughputs {
    path: PathBuf,
    name: String,
    devices: BTreeMap<String, Rates>,
}

type Rates = BTreeMap<String, BTreeMap<u32, Entry>>;

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    isolated: f64,
    pairs: BTreeMap<String, [f64; 2]>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Alone(f64),
    Both([f64; 2]),
}

impl GavelThroughputs {
    /// Reads `{device: {"('job type', scale)": {"null": rate, "('other type', scale)": [rate, rate of the other]}}}`.
    ///
    /// # Errors
    /// The file, with line and column where it is no such JSON, or the entry that cannot be.
    pub fn read_json(path: &Path) -> Result<Self, Error> {
        let text = crate::document::read(path)?;
        Self::parse_json(&text, path)
    }

    /// Like [`Self::read_json`], from a text; `path` is only named in errors.
    ///
    /// # Errors
    /// As [`Self::read_json`].
    pub fn parse_json(text: &str, path: &Path) -> Result<Self, Error> {
        type Document = BTreeMap<String, BTreeMap<String, BTreeMap<String, Value>>>;
        let document: Document = crate::document::json(text, path, "throughput file of Gavel")?;
        let mut devices = BTreeMap::new();
        for (device, jobs) in document {
            let mut rates = Rates::new();
            for (key, values) in jobs {
                let refuse = |why: &str| {
                    Error::Needs {
                    path: path.into(),
                    what: format!("has in `{device}` the entry `{key}`, {why}"),
                    remedy: "an entry is \"('ResNet-18 (batch size 16)', 1)\": {\"null\": 32.3, other: [32.3, 24.1]}"
                        .to_owned(),
                }
                };
                let (name, scale) =
                    job_type(&key).ok_or_else(|| refuse("which is no job type with a scale"))?;
                let entry = entry(scale, values).map_err(refuse)?;
                rates.entry(name.to_owned()).or_default().insert(scale, entry);
            }
            devices.insert(device, rates);
        }
        Ok(Self { path: path.into(), name: super::sheet::name(path), devices })
    }

    /// Devices, sorted; `v100_unconsolidated` is a V100 job spread over servers.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.devices.keys().map(String::as_str)
    }

    /// Steps per second alone; `None` where the file has no such entry, 0 where it did not run.
    pub fn isolated(&self, device: &str, job_type: &str, scale: u32) -> Option<f64> {
        Some(self.entry(device, job_type, scale)?.isolated)
    }

    /// Steps per second of a job and of the one beside it on the same GPUs; `None` where the file has no such pair, 0
    /// where it did not run.
    pub fn beside(&self, device: &str, job_type: &str, other: &str, scale: u32) -> Option<[f64; 2]> {
        self.entry(device, job_type, scale)?.pairs.get(other).copied()
    }

    /// Every rate alone that is above 0, as a table: a job type is a workload, a scale factor is a number of GPUs.
    ///
    /// # Errors
    /// None for a file that was read.
    pub fn speeds(&self) -> Result<SpeedTable, Error> {
        let mut table = SpeedTable::new(self.name.clone());
        for (device, rates) in &self.devices {
            for (workload, scales) in rates {
                for (gpus, entry) in scales.iter().filter(|(_, entry)| entry.isolated > 0.0) {
                    table.set(workload, Some(device), *gpus, entry.isolated)?;
                }
            }
        }
        Ok(table)
    }

    /// Every pair on one GPU of which both sides ran, as a table.
    pub fn slowdowns(&self) -> SlowdownTable {
        let mut table = SlowdownTable::new(self.name.clone());
        for (device, rates) in &self.devices {
            for (subject, scales) in rates {
                for co_runner in scales.get(&1).into_iter().flat_map(|entry| entry.pairs.keys()) {
                    if let Some(pair) = self.pair(subject, co_runner, Some(device)) {
                        table.set_on(device, subject, co_runner, pair.slowdown, None);
                    }
                }
            }
        }
        table
    }

    fn entry(&self, device: &str, job_type: &str, scale: u32) -> Option<&Entry> {
        self.devices.get(device)?.get(job_type)?.get(&scale)
    }

    /// Refuses a device that the file does not have.
    pub(super) fn check_device(&self, device: &str) -> Result<(), Error> {
        if self.devices.contains_key(device) {
            return Ok(());
        }
        let near = suggest(device, self.devices()).map(|near| format!(", did you mean `{near}`?"));
        Err(Error::Needs {
            path: self.path.clone(),
            what: format!("has no device `{device}`{}", near.unwrap_or_default()),
            remedy: format!("its devices are {}", self.devices().collect::<Vec<_>>().join(", ")),
        })
    }
}

/// What Gavel measured, as it happens: a job type is a workload. Slowdowns are those of two jobs on one GPU.
impl Oracle for GavelThroughputs {
    fn name(&self) -> &str {
        &self.name
    }

    fn pair(&self, subject: &str, co_runner: &str, device: Option<&str>) -> Option<PairSlowdown> {
        let device = device?;
        let [beside, other] = self.beside(device, subject, co_runner, 1)?;
        // A pair of which one side did not run is no pair.
        let slowdown =
            Slowdown::new(self.isolated(device, subject, 1)? / beside).ok().filter(|_| other > 0.0)?;
        Some(PairSlowdown { slowdown, upper: slowdown })
    }

    fn speed(&self, workload: &str, device: Option<&str>, gpus: u32) -> Option<f64> {
        self.isolated(device?, workload, gpus).filter(|rate| *rate > 0.0)
    }
}

/// The rates of one job type; pairs of another scale are of another job and are not kept.
fn entry(scale: u32, values: BTreeMap<String, Value>) -> Result<Entry, &'static str> {
    let mut isolated = None;
    let mut pairs = BTreeMap::new();
    let sound = |rate: f64| rate.is_finite() && (0.0..super::sheet::MOST).contains(&rate);
    for (other, value) in values {
        match value {
            Value::Alone(rate) if other == "null" && sound(rate) => isolated = Some(rate),
            Value::Both(rates) if rates.into_iter().all(sound) => {
                let (name, other_scale) = job_type(&other).ok_or("beside something that is no job type")?;
                if other_scale == scale {
                    pairs.insert(name.to_owned(), rates);
                }
            }
            Value::Alone(_) | Value::Both(_) => return Err("with a rate that cannot be"),
        }
    }
    Ok(Entry { isolated: isolated.ok_or("without the rate `null` of the job alone")?, pairs })
}

/// `('ResNet-18 (batch size 16)', 1)`
fn job_type(key: &str) -> Option<(&str, u32)> {
    let inner = key.strip_prefix("('")?.strip_suffix(')')?;
    let (name, scale) = inner.rsplit_once("', ")?;
    Some((name, scale.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_found_by_device_type_and_scale() {
        let text = r#"{"v100": {
            "('A', 1)": {"null": 10.0, "('B (batch size 4)', 1)": [6.0, 2.0], "('B (batch size 4)', 2)": [1.0, 1.0]},
            "('B (batch size 4)', 1)": {"null": 4.0}}}"#;
        let rates = GavelThroughputs::parse_json(text, Path::new("r.json")).unwrap();
        assert_eq!(rates.isolated("v100", "A", 1), Some(10.0));
        assert_eq!(rates.isolated("v100", "A", 2), None);
        assert_eq!(rates.beside("v100", "A", "B (batch size 4)", 1), Some([6.0, 2.0]));
        assert!(rates.check_device("v10").unwrap_err().to_string().ends_with("did you mean `v100`?"));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (text, expected) in [
            (r#"{"v100": {"A": {"null": 1}}}"#, "no job type"),
            (r#"{"v100": {"('A', 1)": {}}}"#, "without the rate `null`"),
            (r#"{"v100": {"('A', 1)": {"null": -1}}}"#, "cannot be"),
            (r#"{"v100": {"('A', 1)": {"null": 1, "B": [1, 2]}}}"#, "beside something"),
            (r#"{"v100": {"('A', 1)": {"null": "x"}}}"#, "no valid throughput file"),
            ("[]", "no valid throughput file"),
        ] {
            let error = GavelThroughputs::parse_json(text, Path::new("r.json")).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
