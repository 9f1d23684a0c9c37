//! What can go wrong around a campaign; what goes wrong inside a trial is an [`Outcome`](elastico_core::Outcome).

use elastico_core::Hint;
use std::io;
use std::path::{Path, PathBuf};

/// An error of planning, running or reading a campaign.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The campaign file is wrong at one place.
    #[error("{}:{line}:{column}: {message}", file.display())]
    Campaign {
        /// The file as named by the user.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong and why.
        message: String,
        /// The known name nearest to a mistyped one.
        suggestion: Option<String>,
    },
    /// A pattern of the campaign selects no workload.
    #[error("{}:{line}: cannot select workloads by `{pattern}`", file.display())]
    Workload {
        /// The campaign file.
        file: PathBuf,
        /// Line of the pattern, from 1; 0 where the campaign was not read from text.
        line: usize,
        /// The pattern.
        pattern: String,
        /// Why the catalogue refuses it.
        #[source]
        source: Box<elastico_workloads::Error>,
    },
    /// The catalogue has no workload of kind `null`, so that no campaign has its control.
    #[error("the catalogue has no workload of kind `null` for the null pair")]
    NoNull,
    /// The campaign leads to no pair at all.
    #[error("the campaign `{name}` has no pair that could run: {reason}")]
    EmptyPlan {
        /// The campaign.
        name: String,
        /// Why nothing is left.
        reason: String,
    },
    /// One call runs one device.
    #[error("the device {device} is none of the campaign's devices ({devices})")]
    WrongDevice {
        /// The device at hand.
        device: String,
        /// The devices of the campaign.
        devices: String,
    },
    /// A device that is not available in this build or on this host.
    #[error("the device {device} cannot be opened: {reason}")]
    NoDevice {
        /// The device as named.
        device: String,
        /// Why not.
        reason: String,
    },
    /// The folder has results already.
    #[error("the folder {} holds an earlier run, or a dataset or campaign of its own", .0.display())]
    Exists(PathBuf),
    /// The folder has no campaign in it.
    #[error("the folder {} holds no campaign: {missing} is missing", folder.display())]
    NoCampaign {
        /// The folder.
        folder: PathBuf,
        /// The file that is missing.
        missing: &'static str,
    },
    /// Another coordinator writes to the folder.
    #[error("another process runs the campaign in {}", .0.display())]
    Locked(PathBuf),
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A result could not be appended; what stood in the journal before is still valid.
    #[error("cannot append trial {trial} to {}", path.display())]
    Append {
        /// The journal.
        path: PathBuf,
        /// The trial whose result was lost.
        trial: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line of a journal or plan that no version of this program wrote.
    #[error("{}:{line}: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The journal was begun under other conditions.
    #[error("the {what} changed since the journal was begun: it was {before}, it is {now}")]
    Changed {
        /// What differs: `campaign`, `plan`, `device` or `version`.
        what: &'static str,
        /// The value in the journal.
        before: String,
        /// The value now.
        now: String,
    },
    /// The dataset could not be written or read.
    #[error("cannot make the dataset of the campaign")]
    Dataset(#[source] Box<elastico_datasets::Error>),
}

impl Error {
    /// Whether the machine is at fault rather than the input: no such device, or another process in the way.
    pub const fn is_environment(&self) -> bool {
        matches!(self, Self::NoDevice { .. } | Self::Locked(_))
    }

    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }
}

impl From<elastico_datasets::Error> for Error {
    fn from(error: elastico_datasets::Error) -> Self {
        Self::Dataset(Box::new(error))
    }
}

impl Hint for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Campaign { suggestion: Some(near), .. } => Some(format!("did you mean `{near}`?")),
            Self::Campaign { file, .. } => Some(format!(
                "correct it there; `elastico config check campaign {}` reads it again",
                file.display()
            )),
            Self::Workload { source, .. } => source.hint(),
            Self::NoNull => Some("add a workload with `kind = \"null\"` to the catalogue".to_owned()),
            Self::EmptyPlan { .. } => {
                Some("see what was skipped and why with `elastico profile plan`".to_owned())
            }
            Self::WrongDevice { .. } => Some("name the device in the campaign's `device`".to_owned()),
            Self::NoDevice { .. } => Some("see what this host can do with `elastico doctor`".to_owned()),
            Self::Exists(folder) => Some(format!(
                "choose a new folder, or continue a run with `elastico profile resume {}`",
                folder.display()
            )),
            Self::NoCampaign { .. } => Some("start one with `elastico profile run`".to_owned()),
            Self::Locked(_) => Some("wait for it, or choose another folder".to_owned()),
            Self::Append { source, .. } | Self::Write { source, .. }
                if source.kind() == io::ErrorKind::StorageFull =>
            {
                Some("free space, then continue with `elastico profile resume`".to_owned())
            }
            Self::Corrupt { .. } => Some("restore the file, or run into a new folder".to_owned()),
            Self::Changed { .. } => {
                Some("run into a new folder, or resume with `--force` to mix both".to_owned())
            }
            Self::Dataset(source) => source.hint(),
            Self::Read { .. } | Self::Write { .. } | Self::Append { .. } => None,
        }
    }
}
