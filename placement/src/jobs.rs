//! What wants to run.

use crate::Error;
use crate::input::{self, Format, Source};
use elastico_core::{JobId, PoolId, WorkloadId, WorkloadKind, suggest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// The jobs, as `jobs.toml`, `jobs.json` or `jobs.csv` lists them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Jobs {
    /// The jobs, in the order of the file.
    #[serde(default)]
    pub job: Vec<Job>,
}

const fn one() -> f64 {
    1.0
}

const fn one_gpu() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

/// One job. Amounts per GPU are those of one of its GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The name of the job.
    #[schemars(with = "String")]
    pub id: JobId,
    /// The workload whose profile describes it; without it the job needs measured shapes and runs exclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub workload: Option<WorkloadId>,
    /// `training` or `inference`; taken from the profile where absent, else `training`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub kind: Option<WorkloadKind>,
    /// How much a unit of its normalised throughput is worth.
    #[serde(default = "one")]
    pub weight: f64,
    /// When it came, from the start of the trace.
    #[serde(default)]
    pub arrival_seconds: f64,
    /// Steps that are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_steps: Option<f64>,
    /// The slowdown that it bears; the stricter of this and the option `limit` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_slowdown: Option<f64>,
    /// Device memory per GPU; taken from the profile's footprint where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<f64>,
    /// Host cores per GPU.
    #[serde(default = "one")]
    pub host_cores: f64,
    /// Host memory per GPU.
    #[serde(default)]
    pub host_memory_bytes: f64,
    /// Host network bandwidth per GPU.
    #[serde(default)]
    pub network_bytes_per_second: f64,
    /// Who owns it; jobs of different tenants share only where the option says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether it may run beside another job.
    #[serde(default = "yes")]
    pub allow_sharing: bool,
    /// Fewest GPUs.
    #[serde(default = "one_gpu")]
    pub gpus_min: u32,
    /// Most GPUs; more than the fewest makes the job elastic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_max: Option<u32>,
    /// The pools that it may use; empty = all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub pools: Vec<PoolId>,
    /// Measured shapes; they take precedence over the profile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<MeasuredShape>,
}

impl Job {
    /// A job with this id and workload, and the defaults of the file format.
    pub fn new(id: JobId, workload: Option<WorkloadId>) -> Self {
        Self {
            id,
            workload,
            kind: None,
            weight: 1.0,
            arrival_seconds: 0.0,
            work_steps: None,
            slo_slowdown: None,
            memory_bytes: None,
            host_cores: 1.0,
            host_memory_bytes: 0.0,
            network_bytes_per_second: 0.0,
            tenant: None,
            allow_sharing: true,
            gpus_min: 1,
            gpus_max: None,
            pools: Vec::new(),
            shape: Vec::new(),
        }
    }

    /// Most GPUs that it may use.
    pub fn most_gpus(&self) -> u32 {
        self.gpus_max.unwrap_or(self.gpus_min).max(self.gpus_min)
    }
}

/// How fast a job was seen to run in one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredShape {
    /// The pool; absent = every pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub pool: Option<PoolId>,
    /// GPUs.
    #[serde(default = "one_gpu")]
    pub gpus: u32,
    /// Share of the SMs of one GPU, above 0 and at most 1.
    #[serde(default = "one", alias = "share")]
    pub share_ratio: f64,
    /// Time of one step; either this or the throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_seconds: Option<f64>,
    /// Steps per second; either this or the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_hertz: Option<f64>,
}

impl MeasuredShape {
    /// Time of one step in seconds. `None` only for a shape that was never validated.
    pub fn seconds(&self) -> Option<f64> {
        self.step_seconds.or_else(|| self.throughput_hertz.map(|rate| 1.0 / rate))
    }
}

/// A line of `jobs.csv`: the flat fields of [`Job`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: JobId,
    workload: Option<WorkloadId>,
    kind: Option<WorkloadKind>,
    weight: Option<f64>,
    arrival_seconds: Option<f64>,
    work_steps: Option<f64>,
    slo_slowdown: Option<f64>,
    memory_bytes: Option<f64>,
    host_cores: Option<f64>,
    host_memory_bytes: Option<f64>,
    network_bytes_per_second: Option<f64>,
    tenant: Option<String>,
    allow_sharing: Option<bool>,
    gpus_min: Option<u32>,
    gpus_max: Option<u32>,
    step_seconds: Option<f64>,
}

const COLUMNS: [&str; 16] = [
    "id",
    "workload",
    "kind",
    "weight",
    "arrival_seconds",
    "work_steps",
    "slo_slowdown",
    "memory_bytes",
    "host_cores",
    "host_memory_bytes",
    "network_bytes_per_second",
    "tenant",
    "allow_sharing",
    "gpus_min",
    "gpus_max",
    "step_seconds",
];

impl From<Row> for Job {
    fn from(row: Row) -> Self {
        let plain = Self::new(row.id, row.workload);
        Self {
            kind: row.kind,
            weight: row.weight.unwrap_or(plain.weight),
            arrival_seconds: row.arrival_seconds.unwrap_or(plain.arrival_seconds),
            work_steps: row.work_steps,
            slo_slowdown: row.slo_slowdown,
            memory_bytes: row.memory_bytes,
            host_cores: row.host_cores.unwrap_or(plain.host_cores),
            host_memory_bytes: row.host_memory_bytes.unwrap_or(0.0),
            network_bytes_per_second: row.network_bytes_per_second.unwrap_or(0.0),
            tenant: row.tenant,
            allow_sharing: row.allow_sharing.unwrap_or(true),
            gpus_min: row.gpus_min.unwrap_or(1),
            gpus_max: row.gpus_max,
            shape: row
                .step_seconds
                .map(|seconds| MeasuredShape {
                    pool: None,
                    gpus: row.gpus_min.unwrap_or(1),
                    share_ratio: 1.0,
                    step_seconds: Some(seconds),
                    throughput_hertz: None,
                })
                .into_iter()
                .collect(),
            ..plain
        }
    }
}

impl Jobs {
    /// Reads and checks `jobs.toml`, `jobs.json` or `jobs.csv`; the ending names the format.
    ///
    /// # Errors
    /// [`Error`] with file, line, field, value and rule.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let format = input::format_of(path)?;
        let text = input::read(path)?;
        match format {
            Format::Toml => Self::from_toml(&text, path),
            Format::Json => Self::from_json(&text, path),
            Format::Csv => Self::from_csv(&text, path),
        }
    }

    /// Reads and checks jobs from TOML; `file` is only for messages.
    ///
    /// # Errors
    /// [`Error`] with file, line, field, value and rule.
    pub fn from_toml(text: &str, file: &Path) -> Result<Self, Error> {
        Self::checked(input::toml(text, file)?, text, file, Format::Toml)
    }

    /// Reads and checks jobs from JSON, `{"job": […]}` or the bare array.
    ///
    /// # Errors
    /// [`Error`] with file, line, field, value and rule.
    pub fn from_json(text: &str, file: &Path) -> Result<Self, Error> {
        let jobs = if text.trim_start().starts_with('[') {
            Self { job: input::json(text, file)? }
        } else {
            input::json(text, file)?
        };
        Self::checked(jobs, text, file, Format::Json)
    }

    /// Reads and checks jobs from CSV: the flat fields, an empty cell is the default.
    ///
    /// # Errors
    /// [`Error`] with file, line, field, value and rule.
    pub fn from_csv(text: &str, file: &Path) -> Result<Self, Error> {
        let syntax = |line: usize, column: usize, message: String, suggestion| Error::Syntax {
            file: file.to_owned(),
            line,
            column,
            message,
            suggestion,
        };
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let headers = reader.headers().map_err(|error| syntax(1, 1, error.to_string(), None))?.clone();
        if let Some((at, unknown)) = headers.iter().enumerate().find(|(_, name)| !COLUMNS.contains(name)) {
            let near = suggest(unknown, COLUMNS).map(str::to_owned);
            return Err(syntax(1, at + 1, format!("unknown field `{unknown}`"), near));
        }
        let mut job = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|error| {
                let line = error.position().map_or(1, |position| position.line() as usize);
                syntax(line, 1, error.to_string(), None)
            })?;
            let line = record.position().map_or(1, |position| position.line() as usize);
            let row: Row = record.deserialize(Some(&headers)).map_err(|error| match error.kind() {
                csv::ErrorKind::Deserialize { err, .. } => {
                    let at = err.field().unwrap_or(0) as usize;
                    let name = headers.get(at).unwrap_or("id");
                    let value = record.get(at).unwrap_or("");
                    syntax(line, at + 1, format!("{name} is `{value}`: {}", err.kind()), None)
                }
                _ => syntax(line, 1, error.to_string(), None),
            })?;
            job.push(row.into());
        }
        Self::checked(Self { job }, text, file, Format::Csv)
    }

    fn checked(jobs: Self, text: &str, file: &Path, format: Format) -> Result<Self, Error> {
        let source = Source { file: file.to_owned(), text, format, table: "job" };
        let mut ids = BTreeSet::new();
        for (index, job) in jobs.job.iter().enumerate() {
            let entry = (index, job.id.as_str());
            if !ids.insert(&job.id) {
                return Err(source.refuse(entry, "id", &job.id, "another job has that id", None));
            }
            job.check(&source, entry)?;
        }
        Ok(jobs)
    }

    /// The job of an id and its index.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the nearest id.
    pub fn get(&self, id: &str) -> Result<(usize, &Job), Error> {
        self.job.iter().enumerate().find(|(_, job)| job.id.as_str() == id).ok_or_else(|| Error::Unknown {
            what: "job",
            name: id.to_owned(),
            suggestion: suggest(id, self.job.iter().map(|job| job.id.as_str())).map(str::to_owned),
        })
    }
}

impl Job {
    fn check(&self, source: &Source<'_>, entry: (usize, &str)) -> Result<(), Error> {
        source.number(entry, "weight", Some(self.weight), 0.0, false)?;
        source.number(entry, "arrival_seconds", Some(self.arrival_seconds), 0.0, false)?;
        source.number(entry, "work_steps", self.work_steps, 0.0, false)?;
        source.number(entry, "slo_slowdown", self.slo_slowdown, 1.0, false)?;
        source.number(entry, "memory_bytes", self.memory_bytes, 0.0, false)?;
        source.number(entry, "host_cores", Some(self.host_cores), 0.0, false)?;
        source.number(entry, "host_memory_bytes", Some(self.host_memory_bytes), 0.0, false)?;
        source.number(entry, "network_bytes_per_second", Some(self.network_bytes_per_second), 0.0, false)?;
        if self.gpus_min == 0 {
            return Err(source.refuse(entry, "gpus_min", 0, "it must be at least 1", None));
        }
        if let Some(most) = self.gpus_max.filter(|most| *most < self.gpus_min) {
            let rule = format!("it must be at least gpus_min, {}", self.gpus_min);
            return Err(source.refuse(entry, "gpus_max", most, rule, None));
        }
        if self.workload.is_none() && self.shape.is_empty() {
            let remedy = "give `workload` (of the profiles) or a measured `[[job.shape]]`".to_owned();
            return Err(source.refuse(
                entry,
                "workload",
                "absent",
                "nothing says how fast the job runs",
                Some(remedy),
            ));
        }
        for shape in &self.shape {
            source.number(entry, "step_seconds", shape.step_seconds, 0.0, true)?;
            source.number(entry, "throughput_hertz", shape.throughput_hertz, 0.0, true)?;
            source.number(entry, "share_ratio", Some(shape.share_ratio), 0.0, true)?;
            if shape.share_ratio > 1.0 {
                return Err(source.refuse(
                    entry,
                    "share_ratio",
                    shape.share_ratio,
                    "it must be at most 1",
                    None,
                ));
            }
            if shape.gpus == 0 {
                return Err(source.refuse(entry, "gpus", 0, "a shape needs at least 1 GPU", None));
            }
            if shape.step_seconds.is_some() == shape.throughput_hertz.is_some() {
                return Err(source.refuse(
                    entry,
                    "step_seconds",
                    shape.step_seconds.map_or("absent".to_owned(), |seconds| seconds.to_string()),
                    "a shape needs exactly one of step_seconds and throughput_hertz",
                    None,
                ));
            }
        }
        Ok(())
    }
}
