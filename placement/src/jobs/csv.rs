//! `jobs.csv`: the flat fields of a job, one job a line.

use super::{Job, Jobs, MeasuredShape};
use crate::Error;
use crate::input::Format;
use elastico_core::{JobId, WorkloadId, WorkloadKind, suggest};
use serde::Deserialize;
use std::path::Path;

/// A line of `jobs.csv`: the flat fields of [`Job`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: JobId,
    workload: Option<WorkloadId>,
    kind: Option<WorkloadKind>,
    weight: Option<f64>,
    arrival_seconds: Option<f64>,
    waited_seconds: Option<f64>,
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

const COLUMNS: [&str; 17] = [
    "id",
    "workload",
    "kind",
    "weight",
    "arrival_seconds",
    "waited_seconds",
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
            waited_seconds: row.waited_seconds.unwrap_or(0.0),
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
                .map(|seconds| MeasuredShape::new(row.gpus_min.unwrap_or(1), seconds))
                .into_iter()
                .collect(),
            ..plain
        }
    }
}

impl Jobs {
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
}
