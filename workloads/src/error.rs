//! What can be wrong with a catalogue or with a name looked up in it.

use elastico_core::{Hint, IdError};
use std::fmt;
use std::path::PathBuf;

/// Where in a file something stands; lines and columns count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file as it was named by the caller.
    pub file: PathBuf,
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

fn meant(suggestion: Option<&String>) -> String {
    suggestion.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default()
}

/// Why a catalogue cannot be read, or a workload cannot be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file or folder cannot be read.
    #[error("cannot read the catalogue {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A folder without a single `.toml` file.
    #[error("there is no .toml file in {}", path.display())]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },
    /// No TOML, or a value of the wrong type.
    #[error("{place}: {detail}")]
    Syntax {
        /// Where.
        place: Place,
        /// What the parser says.
        detail: String,
    },
    /// A field that no catalogue has.
    #[error("{place}: unknown field `{field}`{}", meant(suggestion.as_ref()))]
    UnknownField {
        /// Where.
        place: Place,
        /// The field as given.
        field: String,
        /// The nearest field.
        suggestion: Option<String>,
        /// All fields of that table.
        known: Vec<String>,
    },
    /// A catalogue of another version.
    #[error("{place}: catalogue schema {found} is not supported, this version reads schema 1")]
    Schema {
        /// Where.
        place: Place,
        /// The version of the file.
        found: i64,
    },
    /// A structure that no Rust function implements.
    #[error("{place}: unknown structure `{name}`{}", meant(suggestion.as_ref()))]
    UnknownStructure {
        /// Where.
        place: Place,
        /// The name as given.
        name: String,
        /// The nearest structure.
        suggestion: Option<String>,
    },
    /// An axis that the structure lacks.
    #[error("{place}: structure `{structure}` has no axis `{axis}`{}", meant(suggestion.as_ref()))]
    UnknownAxis {
        /// Where.
        place: Place,
        /// The structure.
        structure: &'static str,
        /// The axis as given.
        axis: String,
        /// The nearest axis.
        suggestion: Option<String>,
    },
    /// An axis without a default that a configuration leaves out.
    #[error("{place}: axis `{axis}` ({meaning}) is missing")]
    MissingAxis {
        /// Where.
        place: Place,
        /// The axis.
        axis: &'static str,
        /// What it sets.
        meaning: &'static str,
    },
    /// A value that the field cannot have.
    #[error("{place}: `{field}` {why}")]
    Value {
        /// Where.
        place: Place,
        /// The field or axis.
        field: String,
        /// What is wrong and what would be right.
        why: String,
    },
    /// An id that cannot be a name.
    #[error("{place}: `{field}` cannot be a name")]
    Id {
        /// Where.
        place: Place,
        /// The field.
        field: &'static str,
        /// Why.
        source: IdError,
    },
    /// Two configurations, or families, of one name.
    #[error("{place}: `{id}` is already defined at {first}")]
    Duplicate {
        /// Where.
        place: Place,
        /// The id.
        id: String,
        /// Where it stood first.
        first: Place,
    },
    /// A family that goes on in another place with other settings.
    #[error(
        "{place}: family `{family}` continues that of {first} with another structure, summary or shared axes"
    )]
    FamilyMismatch {
        /// Where.
        place: Place,
        /// The family.
        family: String,
        /// Where it stood first.
        first: Place,
    },
    /// No benchmark of that id.
    #[error("there is no workload `{id}` in the catalogue{}", meant(suggestion.as_ref()))]
    UnknownWorkload {
        /// The id as given.
        id: String,
        /// The nearest id.
        suggestion: Option<String>,
    },
    /// A pattern that matches no benchmark.
    #[error("nothing in the catalogue matches `{pattern}`{}", meant(suggestion.as_ref()))]
    NothingSelected {
        /// The pattern, or that part of a list.
        pattern: String,
        /// The nearest id, family or kind.
        suggestion: Option<String>,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownField { known, .. } => Some(format!("known fields: {}", known.join(", "))),
            Self::EmptyFolder { .. } => Some("name a .toml file or a folder that holds some".to_owned()),
            Self::UnknownStructure { .. } => {
                let names: Vec<_> = crate::STRUCTURES.iter().map(|structure| structure.name).collect();
                Some(format!("known structures: {}", names.join(", ")))
            }
            Self::UnknownAxis { structure, .. } => {
                let axes = crate::STRUCTURES.iter().find(|known| known.name == *structure)?.axes;
                let names: Vec<_> = axes.iter().map(|axis| axis.name).collect();
                Some(format!("axes of `{structure}`: {}", names.join(", ")))
            }
            Self::MissingAxis { axis, .. } => {
                Some(format!("give `{axis}` in the configuration or, for all of the family, in `axes`"))
            }
            Self::Schema { .. } => Some("write `schema = 1` at the top of the file".to_owned()),
            Self::Duplicate { .. } => Some("configurations of one family have to differ in an axis".to_owned()),
            Self::FamilyMismatch { .. } => Some("give the configurations a family id of their own".to_owned()),
            Self::UnknownWorkload { .. } | Self::NothingSelected { .. } => Some(
                "select by id, family, kind (training, inference, stressor, null) or a pattern such as `tr_*`"
                    .to_owned(),
            ),
            Self::Read { .. } | Self::Syntax { .. } | Self::Value { .. } | Self::Id { .. } => None,
        }
    }
}
