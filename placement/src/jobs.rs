//! What wants to run.

mod check;
mod csv;
mod present;

use crate::Error;
use crate::cluster::Cluster;
use crate::input::{self, Format, Source};
use crate::placement::NodeGpus;
use crate::settings::{SettingNames, Settings};
use crate::shapes::{BatchPoint, Goodput};
use elastico_core::{JobId, PoolId, WorkloadId, WorkloadKind};
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

const fn half_a_minute() -> f64 {
    30.0
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
    /// How long it has waited so far, the time that it ran not counted; the objective `srpt` ages by it.
    #[serde(default)]
    pub waited_seconds: f64,
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
    /// Where and how it runs now; absent = it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Current>,
    /// Time that a change of its shape costs: checkpoint, restart, warm-up. It counts where `current` is given; 30 s is what
    /// the simulations of Pollux charge.
    #[serde(default = "half_a_minute")]
    pub switch_seconds: f64,
    /// Measured shapes; they take precedence over the profile. A job has these, or `batch`, or `goodput`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<MeasuredShape>,
    /// Throughput of inference by batch size, with the memory that it takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batch: Vec<BatchPoint>,
    /// Goodput of training by GPUs and batch size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Goodput>,
    /// How the job's entry point names the settings that `batch` and `goodput` choose.
    #[serde(default)]
    pub setting_names: SettingNames,
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
            waited_seconds: 0.0,
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
            current: None,
            switch_seconds: half_a_minute(),
            shape: Vec::new(),
            batch: Vec::new(),
            goodput: None,
            setting_names: SettingNames::default(),
        }
    }

    /// The job that is on the same GPU now.
    pub fn co_runner(&self) -> Option<&JobId> {
        self.current.as_ref()?.beside.as_ref()
    }

    /// Time that its work takes at a speed in steps per second, where the work is known.
    pub fn remaining_seconds(&self, hertz: f64) -> Option<f64> {
        self.work_steps.map(|steps| steps / hertz)
    }

    /// Most GPUs that it may use.
    pub fn most_gpus(&self) -> u32 {
        self.gpus_max.unwrap_or(self.gpus_min).max(self.gpus_min)
    }
}

/// What a job that runs has now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Current {
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// GPUs.
    #[serde(default = "one_gpu")]
    pub gpus: u32,
    /// The job on the same GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub beside: Option<JobId>,
    /// Its GPUs; they stay the same as long as it keeps its shape, unless somebody else finds no room otherwise. Empty = the
    /// pool alone is known. Where the cluster has no such GPUs, or others have them, the job is seated anew and restarts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeGpus>,
    /// The settings that it was started with; empty = a shape with this pool and these GPUs is the same shape.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
}

impl Current {
    /// So many GPUs of a pool, without co-runner.
    pub const fn new(pool: PoolId, gpus: u32) -> Self {
        Self { pool, gpus, beside: None, nodes: Vec::new(), settings: Settings::new() }
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
    /// Device memory per GPU in this shape; the job's where absent, as with the other amounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<f64>,
    /// Host cores per GPU in this shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_cores: Option<f64>,
    /// Host memory per GPU in this shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory_bytes: Option<f64>,
    /// Host network bandwidth per GPU in this shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_bytes_per_second: Option<f64>,
    /// Settings that make this shape, by the names that the job's entry point reads.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
}

impl MeasuredShape {
    /// So many whole GPUs of every pool, with the time of a step.
    pub const fn new(gpus: u32, step_seconds: f64) -> Self {
        Self {
            pool: None,
            gpus,
            share_ratio: 1.0,
            step_seconds: Some(step_seconds),
            throughput_hertz: None,
            memory_bytes: None,
            host_cores: None,
            host_memory_bytes: None,
            network_bytes_per_second: None,
            settings: Settings::new(),
        }
    }

    /// Time of one step in seconds. `None` only for a shape that was never validated.
    pub fn seconds(&self) -> Option<f64> {
        self.step_seconds.or_else(|| self.throughput_hertz.map(|rate| 1.0 / rate))
    }
}

impl Jobs {
    /// Reads and checks `jobs.toml`, `jobs.json` or `jobs.csv`; the ending names the format.
    ///
    /// # Errors
    /// [`Error`] with file, line, field, value and rule.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let format = input::format_of(path)?;
        Self::parse(&input::read(path)?, path, format)
    }

    /// The same for jobs on a cluster: where jobs run now must be there, and each GPU has one job, or two that share it.
    ///
    /// # Errors
    /// As [`Self::read`]; [`Error::Value`] for a `current` that cannot be.
    pub fn read_on(path: &Path, cluster: &Cluster) -> Result<Self, Error> {
        let format = input::format_of(path)?;
        let text = input::read(path)?;
        let jobs = Self::parse(&text, path, format)?;
        jobs.check_present(cluster, &Source { file: path.to_owned(), text: &text, format, table: "job" })?;
        Ok(jobs)
    }

    fn parse(text: &str, path: &Path, format: Format) -> Result<Self, Error> {
        match format {
            Format::Toml => Self::from_toml(text, path),
            Format::Json => Self::from_json(text, path),
            Format::Csv => Self::from_csv(text, path),
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
        self.job
            .iter()
            .enumerate()
            .find(|(_, job)| job.id.as_str() == id)
            .ok_or_else(|| Error::unknown("job", id, self.job.iter().map(|job| job.id.as_str())))
    }
}
