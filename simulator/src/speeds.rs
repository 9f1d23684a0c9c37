//! How fast workloads run on other devices and on other numbers of GPUs.

use crate::Error;
use crate::error::check;
use crate::tables::{Oracle, PairSlowdown};
use elastico_placement::ScalingLaw;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;

/// A table of isolated speeds, `elastico.speeds/1`, with a law for the counts of GPUs that it does not list.
///
/// `speeds` lists workload, device (absent = any), GPUs (1 where absent) and speed, in a unit that is one within a
/// workload. `laws` lists the two exponents of [`ScalingLaw`] and the GPUs of a node, for one workload, or for all others
/// where it names none. What neither knows cannot run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeedTable {
    name: String,
    // By workload, device ("" = any) and GPUs.
    speeds: BTreeMap<String, BTreeMap<String, BTreeMap<u32, f64>>>,
    laws: BTreeMap<String, Law>,
    default_law: Option<Law>,
}

/// Speed over that of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Law {
    within_node: f64,
    across_nodes: f64,
    gpus_per_node: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    schema: Schema,
    name: String,
    #[serde(default)]
    speeds: Vec<SpeedEntry>,
    #[serde(default)]
    laws: Vec<LawEntry>,
}

#[derive(Serialize, Deserialize)]
enum Schema {
    #[serde(rename = "elastico.speeds/1")]
    One,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpeedEntry {
    workload: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(default = "one")]
    gpus: u32,
    speed: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LawEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workload: Option<String>,
    within_node: f64,
    across_nodes: f64,
    gpus_per_node: u32,
}

const fn one() -> u32 {
    1
}

impl SpeedTable {
    /// A table that knows nothing.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets the speed of a workload on so many GPUs of a device; `None` = of any device.
    ///
    /// # Errors
    /// A speed that is not above 0, or no GPUs.
    pub fn set(&mut self, workload: &str, device: Option<&str>, gpus: u32, speed: f64) -> Result<(), Error> {
        if !(1e-9..=1e12).contains(&speed) {
            let what = format!("the speed of `{workload}`");
            return Err(Error::Number { what, value: speed, must: "above 0, within 1e-9 and 1e12" });
        }
        check(|| format!("gpus of `{workload}`"), f64::from(gpus), 1.0, "1 or more")?;
        let devices = self.speeds.entry(workload.to_owned()).or_default();
        devices.entry(device.unwrap_or_default().to_owned()).or_default().insert(gpus, speed);
        Ok(())
    }

    /// From the fewest to the most GPUs that are listed for a workload, on any device.
    pub(crate) fn listed_gpus(&self, workload: &str) -> Option<RangeInclusive<u32>> {
        let devices = self.speeds.get(workload)?;
        let counts = || devices.values().flat_map(BTreeMap::keys).copied();
        Some(counts().min()?..=counts().max()?)
    }

    /// The devices that entries name, sorted.
    pub(crate) fn devices(&self) -> BTreeSet<&str> {
        self.speeds
            .values()
            .flat_map(BTreeMap::keys)
            .map(String::as_str)
            .filter(|name| !name.is_empty())
            .collect()
    }

    /// Sets how speed grows with GPUs where it is not listed: for one workload, or for all that have no law of their own.
    ///
    /// # Errors
    /// An exponent outside 0..=1, or a node without GPUs.
    pub fn set_law(
        &mut self,
        workload: Option<&str>,
        law: ScalingLaw,
        gpus_per_node: u32,
    ) -> Result<(), Error> {
        for (name, exponent) in [("within_node", law.within_node), ("across_nodes", law.across_nodes)] {
            if !(0.0..=1.0).contains(&exponent) {
                return Err(Error::Number { what: name.to_owned(), value: exponent, must: "within 0 and 1" });
            }
        }
        check(|| "gpus_per_node".to_owned(), f64::from(gpus_per_node), 1.0, "1 or more")?;
        let law = Law { within_node: law.within_node, across_nodes: law.across_nodes, gpus_per_node };
        match workload {
            Some(workload) => drop(self.laws.insert(workload.to_owned(), law)),
            None => self.default_law = Some(law),
        }
        Ok(())
    }

    /// Reads a table.
    ///
    /// # Errors
    /// The file, and the line, column or entry of what is wrong in it.
    pub fn read_json(path: &Path) -> Result<Self, Error> {
        let text = crate::document::read(path)?;
        Self::parse_json(&text, path)
    }

    /// Like [`Self::read_json`], from a text; `path` is only named in errors.
    ///
    /// # Errors
    /// As [`Self::read_json`].
    pub fn parse_json(text: &str, path: &Path) -> Result<Self, Error> {
        let document: Document = crate::document::json(text, path, "speed table")?;
        let mut table = Self::new(document.name);
        let refuse = |index: usize, list: &str, why: String| Error::Content {
            path: path.into(),
            line: None,
            why: format!("entry {} of `{list}`: {why}", index + 1),
            remedy: None,
        };
        for (index, entry) in document.speeds.into_iter().enumerate() {
            table.add(&entry).map_err(|why| refuse(index, "speeds", why))?;
        }
        for (index, entry) in document.laws.into_iter().enumerate() {
            table.add_law(&entry).map_err(|why| refuse(index, "laws", why))?;
        }
        Ok(table)
    }

    /// Adds an entry of a file, or says why it cannot be.
    fn add(&mut self, entry: &SpeedEntry) -> Result<(), String> {
        let SpeedEntry { workload, device, gpus, speed } = entry;
        let counts = self.speeds.get(workload).and_then(|on| on.get(device.as_deref().unwrap_or_default()));
        if counts.is_some_and(|counts| counts.contains_key(gpus)) {
            let on = device.as_ref().map(|device| format!(" of {device}")).unwrap_or_default();
            return Err(format!("the speed of `{workload}` on {gpus} GPUs{on} is listed twice"));
        }
        self.set(workload, device.as_deref(), *gpus, *speed).map_err(|error| error.to_string())
    }

    /// Adds a law of a file, or says why it cannot be.
    fn add_law(&mut self, entry: &LawEntry) -> Result<(), String> {
        let is_known = match &entry.workload {
            Some(workload) => self.laws.contains_key(workload),
            None => self.default_law.is_some(),
        };
        if is_known {
            let whose = entry.workload.as_ref().map(|workload| format!("of `{workload}`"));
            return Err(format!("the law {} is listed twice", whose.as_deref().unwrap_or("for all others")));
        }
        let law = ScalingLaw { within_node: entry.within_node, across_nodes: entry.across_nodes };
        self.set_law(entry.workload.as_deref(), law, entry.gpus_per_node).map_err(|error| error.to_string())
    }

    /// The table as a document.
    pub fn to_json(&self) -> serde_json::Value {
        let mut document =
            Document { schema: Schema::One, name: self.name.clone(), speeds: Vec::new(), laws: Vec::new() };
        for (workload, devices) in &self.speeds {
            for (device, counts) in devices {
                document.speeds.extend(counts.iter().map(|(gpus, speed)| SpeedEntry {
                    workload: workload.clone(),
                    device: (!device.is_empty()).then(|| device.clone()),
                    gpus: *gpus,
                    speed: *speed,
                }));
            }
        }
        let named = self.laws.iter().map(|(workload, law)| (Some(workload.clone()), law));
        document.laws.extend(named.chain(self.default_law.iter().map(|law| (None, law))).map(
            |(workload, law)| LawEntry {
                workload,
                within_node: law.within_node,
                across_nodes: law.across_nodes,
                gpus_per_node: law.gpus_per_node,
            },
        ));
        serde_json::json!(document)
    }
}

impl Oracle for SpeedTable {
    fn name(&self) -> &str {
        &self.name
    }

    fn pair(&self, _: &str, _: &str, _: Option<&str>) -> Option<PairSlowdown> {
        None
    }

    fn speed(&self, workload: &str, device: Option<&str>, gpus: u32) -> Option<f64> {
        let devices = self.speeds.get(workload)?;
        let counts = device.and_then(|device| devices.get(device)).or_else(|| devices.get(""))?;
        if let Some(speed) = counts.get(&gpus) {
            return Some(*speed);
        }
        // From the nearest count that is listed below, else from the smallest.
        let (known, speed) = counts.range(..gpus).next_back().or_else(|| counts.first_key_value())?;
        Some(speed * self.growth(workload, gpus)? / self.growth(workload, *known)?)
    }

    fn growth(&self, workload: &str, gpus: u32) -> Option<f64> {
        let law = self.laws.get(workload).copied().or(self.default_law)?;
        Some(
            ScalingLaw { within_node: law.within_node, across_nodes: law.across_nodes }
                .growth(gpus, law.gpus_per_node),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> SpeedTable {
        let mut table = SpeedTable::new("measured");
        table.set("a", Some("v100"), 1, 10.0).unwrap();
        table.set("a", Some("v100"), 4, 30.0).unwrap();
        table.set("a", Some("k80"), 1, 2.0).unwrap();
        table.set_law(Some("a"), ScalingLaw { within_node: 1.0, across_nodes: 0.5 }, 4).unwrap();
        table
    }

    #[test]
    fn what_is_listed_wins_over_the_law_and_the_unknown_stays_unknown() {
        let table = table();
        let speed = |device, gpus| table.speed("a", device, gpus);
        assert_eq!(speed(Some("v100"), 4), Some(30.0));
        assert_eq!(speed(Some("v100"), 2), Some(20.0));
        assert_eq!(speed(Some("v100"), 16), Some(60.0));
        assert_eq!(speed(Some("k80"), 4), Some(8.0));
        assert_eq!(speed(Some("h100"), 1), None);
        assert_eq!((table.speed("b", None, 1), table.growth("b", 2)), (None, None));
        assert_eq!(table.growth("a", 16), Some(8.0));
    }

    #[test]
    fn a_table_survives_its_own_format_and_refuses_nonsense() {
        let text = table().to_json().to_string();
        assert_eq!(SpeedTable::parse_json(&text, Path::new("s.json")).unwrap(), table());
        for wrong in [
            text.replace("30.0", "0.0"),
            text.replace("\"speed\"", "\"sped\""),
            text.replace("0.5", "1.5"),
            text.replace("\"gpus\":4,", "\"gpus\":1,"),
            text.replace("speeds/1", "speeds/2"),
        ] {
            assert_ne!(wrong, text);
            assert!(SpeedTable::parse_json(&wrong, Path::new("s.json")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_entry_is_refused_with_its_place() {
        let law = r#"{"within_node": 0.7, "across_nodes": 0.2, "gpus_per_node": 8}"#;
        let text = format!(
            r#"{{"schema": "elastico.speeds/1", "name": "n", "speeds": [{{"workload": "a", "speed": 2}},
            {{"workload": "a", "gpus": 2, "speed": 3}}], "laws": [{law}]}}"#
        );
        let parse = |text: &str| SpeedTable::parse_json(text, Path::new("s.json"));
        assert!(parse(&format!("\u{feff}{text}")).is_ok());
        let twice = format!("{law}, {law}");
        for (from, to, why) in [
            ("\"gpus\": 2", "\"gpus\": 1", "2 of `speeds`: the speed of `a` on 1 GPUs is listed twice"),
            (
                "\": 3",
                "\": 0",
                "2 of `speeds`: the speed of `a` is 0, it must be above 0, within 1e-9 and 1e12",
            ),
            (law, twice.as_str(), "2 of `laws`: the law for all others is listed twice"),
        ] {
            let error = parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert_eq!(error, format!("s.json: entry {why}"));
        }
    }
}
