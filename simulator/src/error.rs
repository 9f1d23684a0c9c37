use crate::PolicyKind;
use elastico_core::Hint;
use std::path::{Path, PathBuf};

/// Why a trace, a table or a simulation is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("{} could not be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// One value of a trace is wrong.
    #[error("{}, line {line}, column `{column}`: {why}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Line, from 1; the header is line 1.
        line: u64,
        /// Name of the column.
        column: String,
        /// What is wrong, with the value.
        why: String,
    },
    /// A line that is no record.
    #[error("{}, line {line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// What a file says cannot be, though it is read without fault.
    #[error("{}{}: {why}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Content {
        /// The file.
        path: PathBuf,
        /// Line, from 1, where the fault is in one place.
        line: Option<u64>,
        /// What is wrong.
        why: String,
        /// What helps, where anything does.
        remedy: Option<String>,
    },
    /// A JSON document that is not what was asked for.
    #[error("{} is no valid {what}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What was expected.
        what: &'static str,
        /// Line, column and field.
        source: serde_json::Error,
    },
    /// A column that the format needs.
    #[error("{} lacks the column `{column}`{}", path.display(), found.as_deref().map(|near| format!(", did you mean `{near}`?")).unwrap_or_default())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// A column of the file with a similar name.
        found: Option<String>,
        /// What such a file has, for the hint.
        expects: String,
    },
    /// A file that is no trace of a known format.
    #[error("{} is no trace that is known here: {why}", path.display())]
    UnknownTrace {
        /// The file.
        path: PathBuf,
        /// What was seen.
        why: String,
    },
    /// A file that is something else.
    #[error("{} is no trace but {what}", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
        /// What it is good for.
        remedy: &'static str,
    },
    /// A trace that means nothing without something else.
    #[error("{} {what}", path.display())]
    Needs {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: String,
        /// How to give it.
        remedy: String,
    },
    /// A mapping file that is wrong.
    #[error("the mapping {name}: {why}")]
    Mapping {
        /// Its file or preset.
        name: String,
        /// What is wrong.
        why: String,
        /// What helps.
        remedy: String,
    },
    /// Lines that would be left out, under `strict`.
    #[error("{}: {why}, and nothing may be left out", path.display())]
    Strict {
        /// The file.
        path: PathBuf,
        /// The warning that is an error now.
        why: String,
    },
    /// A trace without jobs.
    #[error("the trace `{0}` has no jobs")]
    NoJobs(String),
    /// Two jobs of one name.
    #[error("the trace `{trace}` has two jobs called `{job}`")]
    Duplicate {
        /// The trace.
        trace: String,
        /// The job.
        job: String,
    },
    /// A number of a job that cannot be.
    #[error("{field} of job `{job}` is {}, it must be {must}", short(*value))]
    Job {
        /// The job.
        job: String,
        /// Which number.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        must: &'static str,
    },
    /// A load at which the times of a trace are no longer told apart.
    #[error("a load of {} stretches the submissions to {last_seconds:.1e} s, and {why}", short(*load))]
    Stretched {
        /// The load.
        load: f64,
        /// When the last job would be submitted.
        last_seconds: f64,
        /// What is lost there.
        why: &'static str,
    },
    /// A number of a trace, a table or an option that cannot be.
    #[error("{what} is {}, it must be {must}", short(*value))]
    Number {
        /// Which number.
        what: String,
        /// Its value.
        value: f64,
        /// What it must be.
        must: &'static str,
    },
    /// A text that describes no cluster.
    #[error("`{0}` is no cluster")]
    Cluster(String),
    /// A cluster with two pools of one name.
    #[error("the cluster has two pools called `{0}`")]
    TwoPools(String),
    /// A pool whose last node is not full.
    #[error("pool `{0}` has a node that is not full")]
    PartNode(String),
    /// A cluster file that `elastico place` would refuse too.
    #[error(transparent)]
    Placement(#[from] elastico_placement::Error),
    /// A job that no pool can ever hold.
    #[error(
        "job `{job}` asks for {gpus} GPUs{}, the largest pool{} has {capacity}",
        if devices.is_empty() { String::new() } else { format!(" and may run on {} only", devices.join(", ")) },
        if devices.is_empty() { "" } else { " of these" }
    )]
    TooLarge {
        /// The job.
        job: String,
        /// GPUs it asks for.
        gpus: u32,
        /// Devices that it may run on, where other pools have others.
        devices: Vec<String>,
        /// GPUs of the largest pool that it may run on.
        capacity: u32,
    },
    /// A job for whose devices there is no pool.
    #[error("job `{job}` may run on {} only, and the cluster has no pool of these", devices.join(", "))]
    NoDevice {
        /// The job.
        job: String,
        /// Devices that it may run on.
        devices: Vec<String>,
    },
    /// A job of which nobody knows how fast it runs here.
    #[error("job `{job}` cannot run on this cluster: no speed of `{workload}` is known on {gpus} GPUs{}", device.as_deref().map(|device| format!(" against those of a {device}")).unwrap_or_default())]
    NoShape {
        /// The job.
        job: String,
        /// Its workload.
        workload: String,
        /// GPUs that it asks for.
        gpus: u32,
        /// The device that its duration is meant on.
        device: Option<String>,
    },
    /// A text that names no policy.
    #[error("there is no policy `{name}`{}", suggestion.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default())]
    Policy {
        /// The name as given.
        name: String,
        /// The nearest policy.
        suggestion: Option<&'static str>,
    },
    /// Co-location without slowdowns.
    #[error("the policy `{policy}` needs tables of slowdowns: one that happens, and one to plan with")]
    NoTable {
        /// The policy.
        policy: String,
    },
    /// A policy outside this program that cannot go on.
    #[error("the policy program `{command}` failed{}: {why}", at_seconds.map(|time| format!(" at {} s of the simulation", short(time))).unwrap_or_default())]
    External {
        /// The command.
        command: String,
        /// The simulated time, where it was asked something.
        at_seconds: Option<f64>,
        /// What happened.
        why: String,
    },
    /// A sweep without policies or seeds, a generator without workloads.
    #[error("at least one {0} is needed")]
    Nothing(&'static str),
    /// A file that describes no sweep.
    #[error("{}{}: {why}", path.display(), place.map(|(line, column)| format!(", line {line}, column {column}")).unwrap_or_default())]
    Sweep {
        /// The file.
        path: PathBuf,
        /// Line and column, from 1, where the fault is in one place.
        place: Option<(usize, usize)>,
        /// What is wrong.
        why: String,
        /// The nearest known field.
        suggestion: Option<String>,
    },
    /// A folder that this sweep cannot use.
    #[error("the folder {} {why}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        why: String,
        /// What helps.
        remedy: &'static str,
    },
    /// A file that could not be written.
    #[error("{} could not be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A value that JSON cannot hold.
    #[error("a result could not be put into JSON")]
    Unwritable(#[source] serde_json::Error),
    /// Jobs that are moved so often that none gets on.
    #[error(
        "no job makes progress under the policy `{policy}`: {unfinished} jobs run again and again, and a restart takes {} s each time",
        short(*restart_seconds)
    )]
    NoProgress {
        /// The policy.
        policy: String,
        /// Jobs that are not done.
        unfinished: usize,
        /// Time that a job loses when it runs again.
        restart_seconds: f64,
    },
    /// Nodes that fail faster than jobs get done.
    #[error(
        "with a mean time of {} s between failures of a node no job gets done; {unfinished} are left",
        short(*mtbf_seconds)
    )]
    FailTooOften {
        /// Mean time between failures of one node.
        mtbf_seconds: f64,
        /// Jobs that are not done.
        unfinished: usize,
    },
    /// Jobs that wait while nothing runs: a policy that starts nothing.
    #[error("{waiting} jobs wait for ever under the policy `{policy}`")]
    Stuck {
        /// The policy.
        policy: String,
        /// Jobs in the queue.
        waiting: usize,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Column { expects, .. } => expects,
            Self::UnknownTrace { .. } => {
                "name the format with --trace-format, or map the columns of a CSV file with --mapping; `elastico trace formats` lists what is known"
            }
            Self::NotATrace { remedy, .. } | Self::Folder { remedy, .. } => remedy,
            Self::Needs { remedy, .. } | Self::Mapping { remedy, .. } => remedy,
            Self::Content { remedy, .. } => return remedy.clone(),
            Self::Stretched { .. } => "give a larger load",
            Self::NoDevice { .. } => {
                "add a pool of such a device to the --cluster, or leave such jobs out of the trace"
            }
            Self::Sweep { suggestion: Some(near), .. } => return Some(format!("did you mean `{near}`?")),
            Self::Sweep { .. } => "docs/guides/simulate.md shows a whole file and says what each field means",
            Self::Strict { .. } => "correct the file, or leave --strict away",
            Self::Cluster(_) => {
                "write n32g4 for 32 nodes of 4 GPUs, or pools by their device: v100:n9g4,k80:n9g4"
            }
            Self::TwoPools(_) => "name pools of one device apart: east=v100:n9g4,west=v100:n9g4",
            Self::PartNode(_) => "list the node that is not full as a pool of its own",
            Self::Placement(error) => return error.hint(),
            Self::NoShape { .. } => {
                "give speeds for the devices of the cluster, or name the device of the job among its pools"
            }
            Self::TooLarge { .. } => "give a larger --cluster, or leave such jobs out of the trace",
            Self::Policy { .. } => {
                return Some(format!("policies are {}, and external:COMMAND", PolicyKind::NAMES.join(", ")));
            }
            Self::External { .. } => {
                "it reads one line elastico.policy-round/1 and writes one line elastico.policy-actions/1, flushed, for each round; see docs/guides/simulate.md"
            }
            Self::NoProgress { .. } => {
                "restarts must be shorter than the time for which the policy leaves a job alone, as a round of it"
            }
            Self::FailTooOften { .. } => "a larger mtbf_seconds, or a smaller checkpoint_seconds",
            Self::NoTable { policy } => {
                let other = PolicyKind::parse(policy).ok().and_then(|policy| policy.without_pairs());
                let other =
                    other.map(|name| format!("; or take `{name}`, which needs none")).unwrap_or_default();
                return Some(format!(
                    "give `truth`, which moves the jobs, and `planner`, which policies see, under [tables] of a sweep{other}"
                ));
            }
            Self::Json { what: "trace", .. } => {
                "a trace starts with {\"schema\": \"elastico.trace/1\", \"jobs\": [...]}"
            }
            Self::Json { what: "speed table", .. } => {
                "a table starts with {\"schema\": \"elastico.speeds/1\", \"name\": ..., \"speeds\": [...], \"laws\": [...]}"
            }
            Self::Json { what: "slowdown table", .. } => {
                "a table starts with {\"schema\": \"elastico.slowdowns/1\", \"name\": ..., \"pairs\": [...]}"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}

impl Error {
    /// The same with the file and line that it is about, for an error that knows neither.
    pub(crate) fn in_file(self, path: &Path, line: Option<u64>) -> Self {
        let remedy = self.hint();
        let why = match self {
            // The file is named already.
            Self::NoJobs(_) => "there are no jobs".to_owned(),
            Self::Duplicate { job, .. } => format!("two jobs are called `{job}`"),
            other => other.to_string(),
        };
        Self::Content { path: path.into(), line, why, remedy }
    }
}

/// A number for a message: one of hundreds of digits is written with its exponent.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    if size.is_finite() && size != 0.0 && !(1e-6..1e15).contains(&size) {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}

/// Refuses a number that is not finite or lies under a limit.
pub(crate) fn check(
    what: impl FnOnce() -> String,
    value: f64,
    least: f64,
    must: &'static str,
) -> Result<(), Error> {
    check_within(what, value, least, f64::MAX, must)
}

/// Refuses a number outside two limits.
pub(crate) fn check_within(
    what: impl FnOnce() -> String,
    value: f64,
    least: f64,
    most: f64,
    must: &'static str,
) -> Result<(), Error> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(Error::Number { what: what(), value, must }) }
}
