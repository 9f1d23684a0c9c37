//! The throughput files of Gavel (Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
//! Workloads", OSDI 2020).

use super::rows::{Place, Rows};
use super::{bounded_pair_id, facts, isolated_trial_id, read, trial_id, without_mark};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::schema::{IsolatedRow, PairRow};
use elastico_core::{DeviceKind, Outcome, SharingMode, WorkloadKind};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

const SOURCE: &str = "gavel";
const GPUS: [&str; 3] = ["k80", "p100", "v100"];
/// No published co-location of two training jobs slows one of them down more; see [`gavel`].
const SUSPICIOUS: f64 = 20.0;

/// Imports a throughput file of Gavel: `{gpu: {job: {"null": isolated steps/s, other job: [rate of job, rate of other]}}}`.
///
/// Kept are K80, P100 and V100 at scale factor 1, each unordered pair once (the file has both orders). Left out, and counted
/// in the manifest: pairs with a zero (not run, or out of memory), other scale factors, and the
/// `*_unconsolidated` devices, which repeat the same pairs. A co-located rate equal to the isolated one to the last digit was
/// capped there; such rows stay, flagged `clipped`.
///
/// The file does not say how the jobs shared a device: Gavel's scheduler can start the Multi-Process Service and need
/// not. `sharing` is `time_slice`, what two processes get where no such service runs, and each row is flagged
/// `sharing_unstated`.
///
/// # Errors
/// [`Error::Json`] with line and column; [`Error::ImportValue`] for a rate that cannot be; [`Error::Suspicious`] where more than
/// 1 % of the slowdowns exceed 20x. That is so for the physical-cluster file, whose isolated rates were measured
/// again later while its pair rates were not.
pub fn gavel(json: &Path) -> Result<Dataset, Error> {
    let content = read(json)?;
    let file: Throughputs =
        serde_json::from_slice(without_mark(&content)).map_err(Error::json("Gavel's throughputs", json))?;
    let mut import = Import { file: json, exclusions: BTreeMap::new(), rows: Rows::of(json) };
    for (gpu, jobs) in &file.0 {
        import.gpu(gpu, jobs)?;
    }
    let slowdowns = import.rows.pairs().iter().map(|row| row.slowdown_ratio);
    let suspicious = slowdowns.filter(|slowdown| *slowdown > SUSPICIOUS).count();
    let total = import.rows.pairs().len();
    if suspicious * 100 > total {
        return Err(Error::Suspicious { file: json.to_owned(), suspicious, total, limit: SUSPICIOUS });
    }
    if total == 0 {
        let found: Vec<&str> = file.0.iter().map(|(gpu, _)| gpu.as_str()).take(8).collect();
        let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
        let fix = format!(
            "pairs of {} at scale factor 1 are read; the file has the devices: {found}",
            GPUS.join(", ")
        );
        return Err(Error::NothingImported { file: json.to_owned(), fix });
    }
    let facts = facts(&[
        ("publication", "Narayanan et al., OSDI 2020"),
        ("repository", "github.com/stanford-futuredata/gavel"),
        ("licence", "MIT"),
        (
            "sharing",
            "not stated in the file; recorded as time_slice, what two processes get where no MPS daemon runs",
        ),
    ]);
    import.rows.into_dataset(SOURCE, &[(json, &content)], facts, import.exclusions)
}

struct Import<'a> {
    file: &'a Path,
    exclusions: BTreeMap<String, u64>,
    rows: Rows,
}

impl Import<'_> {
    fn exclude(&mut self, reason: &str, entries: usize) {
        *self.exclusions.entry(reason.to_owned()).or_default() += entries as u64;
    }

    fn refuse(&self, place: &[&str], problem: impl Into<String>) -> Error {
        Error::ImportValue { file: self.file.to_owned(), place: place.join(" > "), problem: problem.into() }
    }

    fn rate(&self, rate: f64, place: &[&str]) -> Result<f64, Error> {
        if rate.is_finite() && rate >= 0.0 {
            Ok(rate)
        } else {
            Err(self.refuse(place, format!("{rate} is no rate, it must be finite and at least 0")))
        }
    }

    fn gpu(&mut self, gpu: &str, jobs: &Ordered<Ordered<Rates>>) -> Result<(), Error> {
        if !GPUS.contains(&gpu) {
            let entries = jobs.0.iter().map(|(_, entries)| entries.0.len()).sum();
            let reason = if gpu.ends_with("_unconsolidated") {
                "entries of unconsolidated devices, which repeat the same pairs"
            } else {
                "entries of unknown devices"
            };
            self.exclude(reason, entries);
            return Ok(());
        }
        let mut isolated: HashMap<&str, f64> = HashMap::new();
        let mut kept: Vec<(Job<'_>, &Ordered<Rates>)> = Vec::new();
        for (key, entries) in &jobs.0 {
            let job = Job::parse(key).ok_or_else(|| {
                self.refuse(
                    &[gpu, key],
                    "is no job, expected a text such as ('ResNet-18 (batch size 16)', 1)",
                )
            })?;
            if job.scale != 1 {
                self.exclude("entries of scale factors above 1", entries.0.len());
                continue;
            }
            let Some((_, alone)) = entries.0.iter().find(|(other, _)| other == "null") else {
                return Err(self.refuse(&[gpu, key], "has no isolated rate, the entry `null`"));
            };
            let Rates::Alone(rate) = alone else {
                return Err(self.refuse(&[gpu, key, "null"], "is a pair of rates, expected one"));
            };
            let rate = self.rate(*rate, &[gpu, key, "null"])?;
            if isolated.insert(key, rate).is_some() {
                return Err(self.refuse(&[gpu, key], "occurs twice"));
            }
            if rate > 0.0 {
                self.rows.alone(isolated_row(gpu, &job, rate), Place::Keys(format!("{gpu} > {key} > null")));
            } else {
                self.exclude("isolated runs not run", 1);
            }
            kept.push((job, entries));
        }

        // The rates of the first copy of each unordered pair, in the order of its names.
        let mut first_copies: HashMap<(&str, &str), [f64; 2]> = HashMap::new();
        for (job, entries) in &kept {
            for (other_key, rates) in &entries.0 {
                if other_key == "null" {
                    continue;
                }
                let place = [gpu, job.key, other_key];
                let other = Job::parse(other_key).ok_or_else(|| self.refuse(&place, "is no job"))?;
                let Rates::Both(rates) = rates else {
                    return Err(self.refuse(&place, "is one rate, expected two"));
                };
                let rates = [self.rate(rates[0], &place)?, self.rate(rates[1], &place)?];
                if other.scale != 1 {
                    self.exclude("entries of scale factors above 1", 1);
                    continue;
                }
                let (key, rates) = if job.name <= other.name {
                    ((job.name, other.name), rates)
                } else {
                    ((other.name, job.name), [rates[1], rates[0]])
                };
                if let Some(first) = first_copies.get(&key) {
                    if first.map(f64::to_bits) != rates.map(f64::to_bits) {
                        self.exclude("second copies of a pair that differ from the first", 1);
                    }
                    continue;
                }
                first_copies.insert(key, rates);
                let alone = [isolated.get(job.key), isolated.get(other_key.as_str())];
                let [Some(mine), Some(theirs)] = alone else {
                    return Err(self.refuse(&place, "has no isolated rate of the other job"));
                };
                if rates.contains(&0.0) || *mine == 0.0 || *theirs == 0.0 {
                    self.exclude("pairs not run, or out of memory", 1);
                    continue;
                }
                let (first, second, alone) = if job.name <= other.name {
                    (job, &other, [*mine, *theirs])
                } else {
                    (&other, job, [*theirs, *mine])
                };
                for row in pair_rows(gpu, first, second, alone, rates) {
                    self.rows.beside(row, Place::Keys(place.join(" > ")));
                }
            }
        }
        Ok(())
    }
}

fn isolated_row(gpu: &str, job: &Job<'_>, rate: f64) -> IsolatedRow {
    IsolatedRow {
        trial_id: isolated_trial_id(SOURCE, job.name, gpu, 100),
        workload: job.name.to_owned(),
        family: job.family.to_owned(),
        kind: WorkloadKind::Training.to_string(),
        device_kind: DeviceKind::Imported.to_string(),
        device: gpu.to_owned(),
        source: SOURCE.to_owned(),
        share_ratio: 1.0,
        step_seconds: 1.0 / rate,
        batch_total: job.batch,
        counters_status: "not published".to_owned(),
        outcome: Outcome::Ok.to_string(),
        ..IsolatedRow::default()
    }
}

fn pair_rows(gpu: &str, first: &Job<'_>, second: &Job<'_>, alone: [f64; 2], rates: [f64; 2]) -> [PairRow; 2] {
    let sharing = SharingMode::TimeSlice;
    let pair_id = bounded_pair_id(first.name, second.name, gpu, &sharing);
    let row = |side: &str, subject: &Job<'_>, co_runner: &Job<'_>, alone: f64, rate: f64| {
        let clipped = alone.to_bits() == rate.to_bits();
        let slowdown = alone / rate;
        PairRow {
            trial_id: trial_id(SOURCE, &pair_id, "", 0),
            pair_id: pair_id.clone(),
            side: side.to_owned(),
            subject_workload: subject.name.to_owned(),
            subject_family: subject.family.to_owned(),
            subject_kind: WorkloadKind::Training.to_string(),
            co_runner_workload: co_runner.name.to_owned(),
            co_runner_family: co_runner.family.to_owned(),
            co_runner_kind: WorkloadKind::Training.to_string(),
            device_kind: DeviceKind::Imported.to_string(),
            device: gpu.to_owned(),
            source: SOURCE.to_owned(),
            sharing: sharing.to_string(),
            sharing_requested: sharing.to_string(),
            subject_share_ratio: 1.0,
            co_runner_share_ratio: 1.0,
            isolated_full_step_seconds: 1.0 / alone,
            isolated_step_seconds: 1.0 / alone,
            colocated_step_seconds: 1.0 / rate,
            slowdown_ratio: slowdown,
            partition_effect_ratio: 1.0,
            interference_ratio: slowdown,
            outcome: Outcome::Ok.to_string(),
            flags: Some(if clipped { "sharing_unstated;clipped" } else { "sharing_unstated" }.to_owned()),
            ..PairRow::default()
        }
    };
    [row("a", first, second, alone[0], rates[0]), row("b", second, first, alone[1], rates[1])]
}

/// A job as the file names it: the text of a Python tuple.
#[derive(Debug, PartialEq)]
struct Job<'a> {
    key: &'a str,
    name: &'a str,
    family: &'a str,
    /// NaN where the name has none.
    batch: f64,
    scale: u32,
}

impl<'a> Job<'a> {
    fn parse(key: &'a str) -> Option<Self> {
        let inner = key.strip_prefix('(')?.strip_suffix(')')?;
        let (quoted, scale) = inner.rsplit_once(',')?;
        let name = ['\'', '"'].iter().find_map(|quote| quoted.strip_prefix(*quote)?.strip_suffix(*quote))?;
        let scale = scale.trim().parse().ok().filter(|scale| *scale > 0)?;
        let (family, batch) = match name.split_once(" (batch size ") {
            Some((family, batch)) => (family, batch.strip_suffix(')')?.parse::<u32>().ok().map(f64::from)?),
            None => (name, f64::NAN),
        };
        (!family.is_empty()).then_some(Self { key, name, family, batch, scale })
    }
}

type Throughputs = Ordered<Ordered<Ordered<Rates>>>;

/// A JSON object in the order of the file: which copy of a pair is the first must not depend on hashing.
struct Ordered<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Ordered<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Ordered(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// One rate, or the rates of both jobs of a pair, in steps per second.
enum Rates {
    Alone(f64),
    Both([f64; 2]),
}

impl<'de> Deserialize<'de> for Rates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RatesVisitor;
        impl<'de> Visitor<'de> for RatesVisitor {
            type Value = Rates;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate, or an array of two rates")
            }
            fn visit_f64<E>(self, rate: f64) -> Result<Rates, E> {
                Ok(Rates::Alone(rate))
            }
            fn visit_u64<E>(self, rate: u64) -> Result<Rates, E> {
                Ok(Rates::Alone(rate as f64))
            }
            fn visit_i64<E>(self, rate: i64) -> Result<Rates, E> {
                Ok(Rates::Alone(rate as f64))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut rates: A) -> Result<Rates, A::Error> {
                use serde::de::Error as _;
                let mut next =
                    |index| rates.next_element()?.ok_or_else(|| A::Error::invalid_length(index, &self));
                let both = [next(0)?, next(1)?];
                match rates.next_element::<f64>()? {
                    None => Ok(Rates::Both(both)),
                    Some(_) => Err(A::Error::invalid_length(3, &self)),
                }
            }
        }
        deserializer.deserialize_any(RatesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(json: &str) -> Result<Dataset, Error> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), json).unwrap();
        gavel(file.path())
    }

    #[test]
    fn jobs_are_parsed() {
        let job = Job::parse("('ResNet-18 (batch size 16)', 4)").unwrap();
        assert_eq!((job.name, job.family, job.scale), ("ResNet-18 (batch size 16)", "ResNet-18", 4));
        assert!((job.batch - 16.0).abs() < f64::EPSILON);
        assert!(Job::parse("('A3C', 1)").unwrap().batch.is_nan());
        for nonsense in ["A3C", "('A3C')", "('A3C', 0)", "('A3C (batch size x)', 1)", "(A3C, 1)"] {
            assert_eq!(Job::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn first_copy_counts_and_zeros_are_excluded() {
        let dataset = import(
            r#"{"v100": {
                "('B', 1)": {"null": 4.0, "('A', 1)": [2.0, 8.0], "('C', 1)": [0.0, 0.0]},
                "('A', 1)": {"null": 10.0, "('B', 1)": [9.0, 2.0]},
                "('C', 1)": {"null": 1, "('B', 1)": [0, 0], "('B', 2)": [0, 0]},
                "('C', 2)": {"null": 1.0}},
              "v100_unconsolidated": {"('A', 1)": {"null": 10.0}}}"#,
        )
        .unwrap();
        assert_eq!(dataset.pairs.f64("slowdown_ratio").unwrap(), [1.25, 2.0]);
        assert_eq!(dataset.pairs.text("subject_workload").unwrap().get(0), Some("A"));
        assert_eq!(dataset.isolated.rows(), 3);
        let reasons: Vec<_> = dataset.manifest.exclusions_by_reason().into_iter().collect();
        assert_eq!(
            reasons,
            [
                ("entries of scale factors above 1", 2),
                ("entries of unconsolidated devices, which repeat the same pairs", 1),
                ("pairs not run, or out of memory", 1),
                ("second copies of a pair that differ from the first", 1),
            ]
        );
    }

    #[test]
    fn errors_name_the_place() {
        for (json, expected) in [
            (
                "{\"k80\": {\"('A', 1)\":\n {\"null\": \"x\"}}}",
                "expected a rate, or an array of two rates at line 2 column 13",
            ),
            ("{\"k80\": {\"('A', 1)\": {\"null\": -1.0}}}", "k80 > ('A', 1) > null: -1 is no rate"),
            ("{\"k80\": {\"('A', 1)\": {}}}", "k80 > ('A', 1): has no isolated rate, the entry `null`"),
            ("{\"k80\": {\"A\": {\"null\": 1}}}", "k80 > A: is no job, expected a text such as"),
            ("{\"k80\": {\"('A', 1)\": {\"null\": 1, \"('A', 1)\": 2}}}", "is one rate, expected two"),
            (
                "{\"k80\": {\"('A', 1)\": {\"null\": 1, \"('B', 1)\": [2, 3]}}}",
                "has no isolated rate of the other job",
            ),
        ] {
            let error = import(json).unwrap_err();
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            let text = format!("{error}: {source}");
            assert!(text.contains(expected), "{text}");
        }
        assert!(matches!(import("{}"), Err(Error::NothingImported { .. })));
    }
}
