//! What can go wrong between a profile, a model file and a runtime.

use crate::schema::SchemaDifference;
use elastico_core::Hint;
use std::path::PathBuf;

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// JSON that is not what the schema asks for.
    #[error("{file}, line {line}, column {column}: {reason}{}", did_you_mean(suggestion.as_deref()))]
    Json {
        /// The file, or `profiles` for text without a file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong there.
        reason: String,
        /// The nearest known field.
        suggestion: Option<String>,
    },
    /// A value of a workload profile that no measurement can give.
    #[error("the profile of {workload} on {device}: {field} {reason}")]
    Profile {
        /// The workload.
        workload: String,
        /// The device.
        device: String,
        /// The field.
        field: String,
        /// Why it is refused.
        reason: String,
    },
    /// No profile of this workload on this device.
    #[error("there is no profile of {workload} on {device}{}", did_you_mean(suggestion.as_deref()))]
    UnknownProfile {
        /// The workload asked for.
        workload: String,
        /// The device asked for.
        device: String,
        /// The nearest profile.
        suggestion: Option<String>,
        /// The devices that the workload was profiled on.
        devices: Vec<String>,
    },
    /// A feature name outside the naming rule.
    #[error("`{name}` is no feature: {reason}{}", did_you_mean(suggestion.as_deref()))]
    FeatureName {
        /// The name.
        name: String,
        /// The rule it breaks.
        reason: String,
        /// The nearest known name.
        suggestion: Option<String>,
    },
    /// The features of a model are not the wanted ones.
    #[error("the features do not match: {difference}")]
    SchemaMismatch {
        /// What is missing, extra or elsewhere.
        difference: Box<SchemaDifference>,
    },
    /// A model that cannot be exported.
    #[error("the model cannot be exported: {part} {reason}")]
    Spec {
        /// The part of [`ModelSpec`](crate::ModelSpec).
        part: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Bytes that are no ONNX file.
    #[error("the file is not readable as ONNX")]
    Protobuf(#[source] prost::DecodeError),
    /// A file of which some bytes are not those that were written.
    #[error("the file is damaged: it was changed after it was written, its digest does not fit")]
    Damaged,
    /// A file without the digest that every model has at its end.
    #[error("the file has no digest, so nobody can tell whether it is the model that was trained")]
    Unsealed,
    /// A file of a format that came after this version.
    #[error("the file is by a newer version: its {part} is {found}, this one reads {known}")]
    Newer {
        /// What is newer.
        part: &'static str,
        /// What the file has.
        found: String,
        /// The newest that is read.
        known: String,
    },
    /// An operator outside the set that the export writes.
    #[error("node `{node}` uses the operator {operator}, which the native back end does not evaluate")]
    Operator {
        /// Name of the node, or its position.
        node: String,
        /// Domain and name of the operator.
        operator: String,
    },
    /// A graph that contradicts itself.
    #[error("the graph is malformed: {part} {reason}")]
    Graph {
        /// The node, tensor or attribute.
        part: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Something larger than any model of ours.
    #[error("{what} of {found} is over the limit of {limit}")]
    TooLarge {
        /// What is large.
        what: &'static str,
        /// Its size.
        found: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// An ONNX file without, or with contradicting, ElastiCo metadata.
    #[error("the file is no ElastiCo model: {reason}")]
    NotElastico {
        /// What is absent or contradicts.
        reason: String,
    },
    /// A sound file that cannot become a [`ModelSpec`](crate::ModelSpec) again.
    #[error("the file cannot be read back into a model: {reason}")]
    NotReadBack {
        /// Why not.
        reason: String,
    },
    /// Rows that do not fill a matrix.
    #[error("{length} values are no rows of {width} features")]
    Rows {
        /// Values given.
        length: usize,
        /// Features of the model.
        width: usize,
    },
    /// An infinite feature value.
    #[error("row {row}: {feature} is infinite")]
    RowValue {
        /// Row, from 0.
        row: usize,
        /// Name of the feature.
        feature: String,
    },
    /// A model gave a number that is no slowdown.
    #[error("row {row}: the model gives {value} as {output}")]
    Output {
        /// Row, from 0.
        row: usize,
        /// Which output.
        output: &'static str,
        /// What came.
        value: f32,
    },
    /// No ONNX Runtime library is configured or none is where it should be.
    #[error("there is no ONNX Runtime library ({})", tried.join("; "))]
    LibraryMissing {
        /// Where it was looked for.
        tried: Vec<String>,
    },
    /// The library speaks an older interface.
    #[error("{} is ONNX Runtime {found}, at least {needed} is needed", path.display())]
    LibraryTooOld {
        /// The library.
        path: PathBuf,
        /// Its version.
        found: String,
        /// The least version.
        needed: String,
    },
    /// The file is no usable ONNX Runtime library.
    #[error("{} is no usable ONNX Runtime library: {reason}", path.display())]
    LibraryBroken {
        /// The library.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A process can load one ONNX Runtime only.
    #[error("this process has already loaded {}, it cannot load {} too", loaded.display(), asked.display())]
    LibraryBusy {
        /// The library in use.
        loaded: PathBuf,
        /// The library asked for.
        asked: PathBuf,
    },
    /// ONNX Runtime refused.
    #[error("ONNX Runtime cannot {operation}: {reason}")]
    Runtime {
        /// What was asked of it.
        operation: &'static str,
        /// What it said.
        reason: String,
    },
    /// Two evaluations of one model differ.
    #[error(
        "{left} and {right} disagree on row {row} ({place}): {left_value} against {right_value} for {output}, more than \
         {tolerance} apart"
    )]
    Disagreement {
        /// One evaluation.
        left: &'static str,
        /// The other.
        right: &'static str,
        /// Row, from 0.
        row: usize,
        /// Whether the row came from the data or lies at a threshold.
        place: &'static str,
        /// Which output.
        output: &'static str,
        /// Value of the one.
        left_value: f64,
        /// Value of the other.
        right_value: f64,
        /// Relative tolerance.
        tolerance: f64,
    },
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default()
}

impl Error {
    /// Whether the machine is at fault rather than the input: a runtime library that is missing or unusable.
    pub const fn is_environment(&self) -> bool {
        matches!(
            self,
            Self::LibraryMissing { .. }
                | Self::LibraryTooOld { .. }
                | Self::LibraryBroken { .. }
                | Self::LibraryBusy { .. }
                | Self::Runtime { .. }
        )
    }

    pub(crate) fn graph(part: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Graph { part: part.into(), reason: reason.into() }
    }

    pub(crate) fn spec(part: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Spec { part: part.into(), reason: reason.into() }
    }
}

impl Hint for Error {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Json { suggestion: Some(near), .. } | Self::FeatureName { suggestion: Some(near), .. } => {
                return Some(format!("write `{near}`"));
            }
            Self::UnknownProfile { workload, device, devices, .. } => {
                return Some(if devices.is_empty() {
                    format!("profile {workload} on {device}, or name a workload of the profiles")
                } else {
                    format!(
                        "it was profiled on {}; profile it on {device} too, or name one of these",
                        devices.join(", ")
                    )
                });
            }
            Self::SchemaMismatch { .. } => "train the model and encode the rows with the same feature list",
            Self::Damaged | Self::Unsealed => {
                "copy the file again from where it was written, or train the model again"
            }
            Self::Newer { .. } => "update ElastiCo, or train the model with this version",
            Self::Protobuf(_) => "use a file that `elastico train` wrote, copied as a whole",
            Self::Operator { .. } | Self::Graph { .. } | Self::NotElastico { .. } => {
                "use a file that `elastico train` wrote"
            }
            Self::NotReadBack { .. } => "train the model again with this version of ElastiCo",
            Self::LibraryMissing { .. } => {
                "set ELASTICO_ORT_LIBRARY to libonnxruntime.so, or use the native back end"
            }
            Self::LibraryTooOld { .. } | Self::LibraryBroken { .. } => {
                "install a newer onnxruntime and point ELASTICO_ORT_LIBRARY to it, or use the native back end"
            }
            Self::LibraryBusy { .. } => "use one ONNX Runtime library in one process",
            Self::Disagreement { .. } => "report this model: its export is not exact",
            _ => return None,
        };
        Some(text.to_owned())
    }
}
