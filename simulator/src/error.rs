use elastico_core::Hint;
use std::path::PathBuf;

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
        column: &'static str,
        /// A column of the file with a similar name.
        found: Option<String>,
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
    /// A number of a trace, a table or an option that cannot be.
    #[error("{what} is {value}, it must be {must}")]
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
    /// A job that the cluster can never hold.
    #[error("job `{job}` asks for {gpus} GPUs, the cluster has {capacity}")]
    TooLarge {
        /// The job.
        job: String,
        /// GPUs it asks for.
        gpus: u32,
        /// GPUs of the cluster.
        capacity: u32,
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
    #[error("the policy `elastico` needs a table of slowdowns for {0}")]
    NoTable(&'static str),
    /// A comparison without policies or seeds.
    #[error("a comparison needs at least one {0}")]
    Nothing(&'static str),
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
            Self::Column { .. } => {
                "a job list of the Tiresias family has the columns job_id,num_gpu,submit_time,iterations,model_name,duration,interval"
            }
            Self::Cluster(_) => "write n32g4 for 32 nodes of 4 GPUs",
            Self::TooLarge { .. } => "give a larger --cluster, or leave such jobs out of the trace",
            Self::Policy { .. } => "policies are fifo, fifo_backfill, srtf, las and elastico",
            Self::NoTable(_) => {
                "give a truth table that moves the jobs, and the planner's predictions; they should not be the same"
            }
            Self::Json { what: "trace", .. } => {
                "a trace starts with {\"schema\": \"elastico.trace/1\", \"jobs\": [...]}"
            }
            Self::Json { what: "slowdown table", .. } => {
                "a table starts with {\"schema\": \"elastico.slowdowns/1\", \"name\": ..., \"pairs\": [...]}"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}

/// Refuses a number that is not finite or lies under a limit.
pub(crate) fn check(
    what: impl FnOnce() -> String,
    value: f64,
    least: f64,
    must: &'static str,
) -> Result<(), Error> {
    if value.is_finite() && value >= least {
        Ok(())
    } else {
        Err(Error::Number { what: what(), value, must })
    }
}
