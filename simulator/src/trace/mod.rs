//! Job lists: what arrives when, how large it is, and how long it takes alone.

mod date;
mod elasticflow;
mod format;
mod gavel;
mod inspect;
mod json;
mod mapping;
mod measured;
mod mix;
mod openb;
mod philly;
mod pollux;
mod read;
mod requests;
mod sample;
mod select;
mod sheet;
mod throughputs;
mod tiresias;
mod token_rate;

pub use format::TraceFormat;
pub use inspect::{DeviceDemand, GpuCount, TraceSummary};
pub use mapping::{MAPPING_TEMPLATE, PRESETS};
pub use mix::{GpuShare, MixOptions, ShareOf, SyntheticWorkload};
pub(crate) use openb::{is_nodes as is_openb_nodes, read_nodes as read_openb_nodes};
pub use read::{Attempts, ReadOptions};
pub use sample::SyntheticOptions;
pub use throughputs::GavelThroughputs;
pub use tiresias::TimeUnit;
pub use token_rate::TokenRate;

use crate::{ClusterSpec, Error};
use elastico_core::units::Seconds;
use elastico_core::{JobId, WorkloadKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

/// A list of jobs, sorted by submission.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The file, or how the trace was made.
    pub name: String,
    /// The format that it was read from; absent where it was made.
    pub format: Option<TraceFormat>,
    /// Jobs in order of submission; at least one.
    jobs: Vec<TraceJob>,
    /// What the reader had to assume.
    pub warnings: Vec<Warning>,
}

/// One job of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TraceJob {
    /// Its name.
    pub job: JobId,
    /// What it runs: the key into the tables of slowdowns and speeds.
    pub workload: String,
    /// Training or inference, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WorkloadKind>,
    /// GPUs that it asks for, all at once. Its duration is meant on these.
    pub gpus: u32,
    /// Fewest GPUs that it can run on; absent = as many as it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_min: Option<u32>,
    /// Most GPUs that it can run on; absent = as many as it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_max: Option<u32>,
    /// When it is submitted, seconds from the start of the trace.
    pub submit_seconds: f64,
    /// How long it runs alone on the GPUs that it asks for, seconds.
    pub duration_seconds: f64,
    /// The device on which its duration is meant; absent = on any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Devices that it may run on; empty = any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// The part of its one GPU that it asks for, above 0 and at most 1; absent = whole GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_share_ratio: Option<f64>,
    /// How much it matters beside other jobs; 1 where not said.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: f64,
    /// Memory that it takes on each of its GPUs, bytes, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<f64>,
    /// Whose job it is, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Share of the multiprocessors' cycles that it keeps busy alone, 0..1, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_active_ratio: Option<f64>,
}

const fn one() -> f64 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
#[expect(clippy::float_cmp, reason = "exactly the default")]
fn is_one(value: &f64) -> bool {
    *value == 1.0
}

impl TraceJob {
    /// A rigid job that runs equally fast on any device; its other fields can be set afterwards.
    pub fn new(
        job: JobId,
        workload: impl Into<String>,
        gpus: u32,
        submit_seconds: f64,
        duration_seconds: f64,
    ) -> Self {
        Self {
            job,
            workload: workload.into(),
            kind: None,
            gpus,
            gpus_min: None,
            gpus_max: None,
            submit_seconds,
            duration_seconds,
            device: None,
            devices: Vec::new(),
            gpu_share_ratio: None,
            weight: 1.0,
            memory_bytes: None,
            tenant: None,
            sm_active_ratio: None,
        }
    }

    /// The counts of GPUs that it can run on, as a range.
    pub fn gpu_range(&self) -> RangeInclusive<u32> {
        self.gpus_min.unwrap_or(self.gpus)..=self.gpus_max.unwrap_or(self.gpus)
    }

    /// Whether it can run on another number of GPUs than it asks for.
    pub fn is_elastic(&self) -> bool {
        self.gpu_range() != (self.gpus..=self.gpus)
    }

    /// GPU-seconds that it needs alone on the GPUs that it asks for.
    pub fn gpu_seconds(&self) -> f64 {
        self.duration_seconds * f64::from(self.gpus) * self.gpu_share_ratio.unwrap_or(1.0)
    }
}

/// What a reader had to assume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "warning", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// The format was not given, and the file does not name it.
    Format {
        /// The format that was taken.
        assumed: TraceFormat,
        /// Why.
        because: String,
    },
    /// The unit of time was not given.
    TimeUnit {
        /// The unit that was taken.
        assumed: TimeUnit,
        /// Why.
        because: String,
    },
    /// Jobs were not in order of submission.
    Unsorted,
    /// Jobs that do no work were left out.
    NoWork {
        /// How many.
        jobs: usize,
    },
    /// Lines were left out.
    LeftOut {
        /// How many.
        lines: usize,
        /// Why; goes after the number.
        because: String,
    },
    /// Something that the file does not say.
    Assumed {
        /// What was taken, and what it means.
        what: String,
    },
}

impl Warning {
    /// Jobs or lines that were left out.
    pub const fn left_out(&self) -> usize {
        match self {
            Self::NoWork { jobs: count } | Self::LeftOut { lines: count, .. } => *count,
            _ => 0,
        }
    }
}

/// The warning with its remedy.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format { assumed, because } => {
                write!(
                    f,
                    "read as {} because {because}; say so with --trace-format {assumed}",
                    assumed.describe()
                )
            }
            Self::TimeUnit { assumed, because } => {
                write!(f, "took times as {assumed} because {because}; say so with --time-unit {assumed}")
            }
            Self::Unsorted => f.write_str("jobs were not in order of submission and have been sorted"),
            Self::NoWork { jobs } => write!(f, "left out {jobs} jobs with no GPU or no duration"),
            Self::LeftOut { lines, because } => write!(f, "left out {lines} {because}"),
            Self::Assumed { what } => f.write_str(what),
        }
    }
}

/// The latest submission and the longest duration.
const MOST_SECONDS: f64 = 1e12;

/// The least part of the latest submission that a duration may be: a time there is known to 2e-16 of itself, so such a duration
/// is known to 0.2 %, and a longer one better.
const LEAST_PART: f64 = 1e-13;

impl TraceJob {
    /// Refuses numbers that cannot be.
    fn check(&self) -> Result<(), Error> {
        let refuse = |field, value, must| Err(Error::Job { job: self.job.to_string(), field, value, must });
        let submit = self.submit_seconds;
        if !(0.0..=f64::MAX).contains(&submit) {
            return refuse("submit_seconds", submit, "0 or more");
        }
        let duration = self.duration_seconds;
        if !(f64::MIN_POSITIVE..=f64::MAX).contains(&duration) {
            return refuse("duration_seconds", duration, "above 0");
        }
        for (field, value) in [("submit_seconds", submit), ("duration_seconds", duration)] {
            if value > MOST_SECONDS {
                return refuse(field, value, "at most 1e12: is the unit of time right?");
            }
        }
        if self.gpus == 0 {
            return refuse("gpus", 0.0, "1 or more");
        }
        if !(f64::MIN_POSITIVE..=MOST_WEIGHT).contains(&self.weight) {
            return refuse("weight", self.weight, "above 0, and at most 1e9");
        }
        let range = self.gpu_range();
        if !(1..=self.gpus).contains(range.start()) {
            return refuse("gpus_min", f64::from(*range.start()), "at least 1 and at most gpus");
        }
        if *range.end() < self.gpus {
            return refuse("gpus_max", f64::from(*range.end()), "at least gpus");
        }
        if let Some(share) = self.gpu_share_ratio
            && !(share > 0.0 && share <= 1.0 && self.gpus == 1)
        {
            return refuse("gpu_share_ratio", share, "above 0, at most 1, and of a job with one GPU");
        }
        if let Some(bytes) = self.memory_bytes
            && !(0.0..=MOST_BYTES).contains(&bytes)
        {
            return refuse("memory_bytes", bytes, "0 or more, and at most 1e15");
        }
        if let Some(ratio) = self.sm_active_ratio
            && !(0.0..=1.0).contains(&ratio)
        {
            return refuse("sm_active_ratio", ratio, "within 0 and 1");
        }
        Ok(())
    }
}

/// More than any job weighs against another.
const MOST_WEIGHT: f64 = 1e9;

/// More than any GPU has.
const MOST_BYTES: f64 = 1e15;

/// The first job whose duration is lost beside the time of the last submission.
fn lost_to_rounding(jobs: &[TraceJob]) -> Option<&TraceJob> {
    let least = last_submission(jobs) * LEAST_PART;
    jobs.iter().find(|job| job.duration_seconds < least)
}

fn last_submission(jobs: &[TraceJob]) -> f64 {
    jobs.iter().map(|job| job.submit_seconds).fold(0.0, f64::max)
}

impl Trace {
    /// A trace of jobs in any order.
    ///
    /// # Errors
    /// No jobs, two of one name, or a number that cannot be: among them times beyond 1e12 s, and durations so short beside the
    /// last submission that they are lost to rounding.
    pub fn new(name: impl Into<String>, mut jobs: Vec<TraceJob>) -> Result<Self, Error> {
        let name = name.into();
        if jobs.is_empty() {
            return Err(Error::NoJobs(name));
        }
        let mut names = BTreeSet::new();
        for job in &jobs {
            job.check()?;
            if !names.insert(&job.job) {
                return Err(Error::Duplicate { trace: name, job: job.job.to_string() });
            }
        }
        if let Some(job) = lost_to_rounding(&jobs) {
            return Err(Error::Job {
                job: job.job.to_string(),
                field: "duration_seconds",
                value: job.duration_seconds,
                must: "at least 1e-13 of the last submit_seconds, or it is lost to rounding",
            });
        }
        let mut warnings = Vec::new();
        if !jobs.is_sorted_by(|a, b| a.submit_seconds <= b.submit_seconds) {
            warnings.push(Warning::Unsorted);
            // Stable: jobs of one instant stay in the order of the file.
            jobs.sort_by(|a, b| a.submit_seconds.total_cmp(&b.submit_seconds));
        }
        Ok(Self { name, format: None, jobs, warnings })
    }

    /// The jobs in order of submission.
    pub fn jobs(&self) -> &[TraceJob] {
        &self.jobs
    }

    /// Time between the first and the last submission.
    pub fn span(&self) -> Seconds {
        let first = self.jobs.first().map_or(0.0, |job| job.submit_seconds);
        Seconds(self.jobs.last().map_or(0.0, |job| job.submit_seconds) - first)
    }

    /// Offered load: GPU-seconds asked for over GPU-seconds there are while jobs arrive. Infinite where all arrive at
    /// once.
    pub fn load(&self, cluster: &ClusterSpec) -> f64 {
        let work: f64 = self.jobs.iter().map(TraceJob::gpu_seconds).sum();
        work / (f64::from(cluster.gpus()) * self.span().get())
    }
}
