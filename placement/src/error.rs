//! What can go wrong, and where.

use elastico_core::{Hint, JobId, suggest};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Why an input was refused.
///
/// An instance that cannot be served is no error: its placement says which jobs wait and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The ending says no known format.
    #[error("{} is neither .toml, .json nor .csv", path.display())]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// The text does not follow the format, or holds an unknown field.
    #[error("{}:{line}:{column}: {message}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Line from 1.
        line: usize,
        /// Column from 1.
        column: usize,
        /// What is wrong, in one line.
        message: String,
        /// The nearest known field.
        suggestion: Option<String>,
    },
    /// A value that cannot be meant.
    #[error("{}{}: {item}: {field} is {value}, {rule}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    Value {
        /// The file.
        file: PathBuf,
        /// Line from 1, where it could be found.
        line: Option<usize>,
        /// Which entry, for example ``job `a` ``.
        item: Box<str>,
        /// The field of the entry.
        field: &'static str,
        /// The value as given.
        value: Box<str>,
        /// The rule it breaks.
        rule: Box<str>,
        /// A nearer name or another remedy.
        suggestion: Option<Box<str>>,
    },
    /// A question about a job that is not there.
    #[error("there is no {what} `{name}`")]
    Unknown {
        /// Job, pool or workload.
        what: &'static str,
        /// The name as given.
        name: String,
        /// The nearest name.
        suggestion: Option<String>,
        /// What there is, in words: the first few.
        known: String,
    },
    /// A pool that cannot have so many GPUs more or fewer.
    #[error("pool `{pool}` has {has} GPU{}, {}", if *has == 1 { "" } else { "s" }, resized(*change))]
    Resize {
        /// The pool.
        pool: String,
        /// GPUs that it has.
        has: u32,
        /// GPUs to add, or to remove where negative.
        change: i64,
    },
    /// A new job whose id another job has.
    #[error("there is a job `{id}` already")]
    Duplicate {
        /// The id.
        id: String,
    },
    /// A pool without a list price, where the answer is money.
    #[error("pool `{pool}` has no price_per_gpu_hour")]
    NoListPrice {
        /// The pool.
        pool: String,
    },
    /// An option that cannot be meant.
    #[error("option {field} is {value}, {rule}")]
    Option {
        /// The option.
        field: &'static str,
        /// Its value.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A job that does not say what the options need.
    #[error("job `{job}`: {field} is absent, {rule}")]
    Job {
        /// The job.
        job: JobId,
        /// The field that is missing.
        field: &'static str,
        /// What needs it.
        rule: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// Something said about a job of a session that cannot be meant.
    #[error("job `{job}`: {field} is {value}, {rule}")]
    Amount {
        /// The job.
        job: String,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// The predictor failed.
    #[error("the predictor failed on {rows} rows")]
    Predictor {
        /// Rows of the batch.
        rows: usize,
        /// What the predictor said.
        source: Box<elastico_models::Error>,
    },
}

/// Letters of a name that a message repeats, and names that a hint lists.
const LONGEST: usize = 200;
const LISTED: usize = 5;

fn resized(change: i64) -> String {
    if change < 0 {
        format!("{} cannot be removed", change.unsigned_abs())
    } else {
        format!("with {change} more it would have over a million")
    }
}

impl Error {
    /// A name that none of those that there are is.
    pub(crate) fn unknown<'a>(
        what: &'static str,
        name: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let (mut listed, mut seen) = (Vec::new(), BTreeSet::new());
        for known in names {
            if seen.insert(known) && listed.len() < LISTED {
                listed.push(format!("`{known}`"));
            }
        }
        let known = match (listed.as_slice(), seen.len()) {
            ([], _) => format!("there is no {what} at all"),
            ([only], _) => format!("the only {what} is {only}"),
            ([all @ .., last], count) if count == listed.len() => {
                format!("the {what}s are {} and {last}", all.join(", "))
            }
            (first, count) => {
                format!("the {what}s are {} and {} more", first.join(", "), count - first.len())
            }
        };
        // What is longer than any name is like none of them.
        let (name, suggestion) = match name.char_indices().nth(LONGEST) {
            Some((end, _)) => (format!("{}…", &name[..end]), None),
            None => (name.to_owned(), suggest(name, seen.iter().copied()).map(str::to_owned)),
        };
        Self::Unknown { what, name, suggestion, known }
    }
}

impl Hint for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Syntax { suggestion: Some(near), .. } | Self::Unknown { suggestion: Some(near), .. } => {
                Some(format!("did you mean `{near}`?"))
            }
            Self::Value { suggestion, .. } => suggestion.as_deref().map(str::to_owned),
            Self::Unknown { known, .. } => Some(known.clone()),
            Self::Resize { pool, has, change } if *change < 0 => {
                Some(format!("remove at most {has}, or all of them with `{pool}:all`"))
            }
            Self::Resize { .. } => Some("add fewer".to_owned()),
            Self::Duplicate { .. } => Some("give the new job another id".to_owned()),
            Self::NoListPrice { .. } => {
                Some("give every pool its price_per_gpu_hour in cluster.toml".to_owned())
            }
            Self::Format { .. } => {
                Some("name the file cluster.toml, jobs.toml, jobs.json or jobs.csv".to_owned())
            }
            Self::Job { remedy, .. } => Some((*remedy).to_owned()),
            Self::Predictor { source, .. } => source.hint(),
            _ => None,
        }
    }
}
