//! What can go wrong with a dataset.

use elastico_core::{DeviceKind, Hint};
use std::fmt;
use std::path::PathBuf;

/// What can go wrong with a dataset, its files or its imports.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("cannot {operation} `{}`", path.display())]
    Io {
        /// What was tried, for example `read`.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The folder has no manifest, or what is there is none of ours.
    #[error("`{}` is no dataset folder: {reason}", path.display())]
    NotADataset {
        /// The folder.
        path: PathBuf,
        /// What is missing or in the way.
        reason: &'static str,
    },
    /// A dataset to be replaced whose folder holds something else too, which would be deleted with it.
    #[error("`{}` is not replaced: `{}` in it is no part of a dataset", folder.display(), file.display())]
    ForeignFile {
        /// The dataset's folder.
        folder: PathBuf,
        /// The file.
        file: PathBuf,
    },
    /// A JSON file is malformed; the source says line and column.
    #[error("cannot read `{}` as {what}", file.display())]
    Json {
        /// What the file should be.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// Line from 1.
        line: usize,
        /// Column from 1.
        column: usize,
        /// Why not.
        source: serde_json::Error,
    },
    /// The manifest is of another version.
    #[error("`{}` has schema `{found}`, this version reads `{}`", file.display(), crate::SCHEMA)]
    Version {
        /// The manifest.
        file: PathBuf,
        /// The schema that it states.
        found: String,
    },
    /// A Parquet file is damaged or is none.
    #[error("`{}` is no readable Parquet file: {reason}", file.display())]
    Parquet {
        /// The part.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The manifest states other device kinds than the rows have: nobody could trust a label of it.
    #[error(
        "the manifest of `{}` says {}, its rows say {}",
        folder.display(),
        list_kinds(stated),
        list_kinds(found)
    )]
    Kinds {
        /// The dataset.
        folder: PathBuf,
        /// What the manifest states.
        stated: Vec<DeviceKind>,
        /// What the rows have.
        found: Vec<DeviceKind>,
    },
    /// A part lacks a column, has one too many, or has one of the wrong type.
    #[error("`{}`: column `{column}` {problem}", file.display())]
    Column {
        /// The part.
        file: PathBuf,
        /// The column.
        column: String,
        /// What is wrong with it.
        problem: String,
        /// The nearest known name.
        suggestion: Option<&'static str>,
    },
    /// A part's bytes are not those that were written.
    #[error("`{}` is not the file that was written: its digest differs from the manifest's", file.display())]
    Changed {
        /// The part.
        file: PathBuf,
    },
    /// A part that the manifest does not list. It is not decoded: in a file without a digest a flipped bit can make the
    /// decoder ask for an absurd amount of memory, which ends the process and cannot be caught.
    #[error("`{}` is not listed in the manifest", file.display())]
    Unlisted {
        /// The part.
        file: PathBuf,
    },
    /// A part that the manifest lists is gone.
    #[error("`{}` is missing, the manifest lists it", file.display())]
    Missing {
        /// The part.
        file: PathBuf,
    },
    /// The rows are not those that were written.
    #[error("the rows of `{}` are not those that were written: content digest {found}, manifest {expected}", folder.display())]
    ContentChanged {
        /// The dataset.
        folder: PathBuf,
        /// First digits of the manifest's digest.
        expected: String,
        /// First digits of the digest of what was read.
        found: String,
    },
    /// A table has no column of this name.
    #[error("the {table} table has no column `{name}`")]
    UnknownColumn {
        /// The table.
        table: &'static str,
        /// The name as given.
        name: String,
        /// The nearest known name.
        suggestion: Option<&'static str>,
    },
    /// A column was asked for as the other kind.
    #[error("column `{name}` of the {table} table holds {holds}")]
    WrongKind {
        /// The table.
        table: &'static str,
        /// The column.
        name: String,
        /// What it holds.
        holds: &'static str,
    },
    /// A row names a device kind that does not exist.
    #[error("the {table} table, row {row}: `{value}` is no device kind")]
    DeviceKind {
        /// The table.
        table: &'static str,
        /// The row, from 0.
        row: usize,
        /// The text.
        value: String,
    },
    /// Two datasets hold different numbers for one row.
    #[error("{0}")]
    Conflict(Box<Conflict>),
    /// Datasets of different schema versions were to be merged.
    #[error("{left_source} has schema `{left}`, {right_source} has `{right}`")]
    SchemaDrift {
        /// Schema of the first.
        left: String,
        /// The first dataset.
        left_source: String,
        /// Schema of the other.
        right: String,
        /// The other dataset.
        right_source: String,
    },
    /// Data of different device kinds would mix.
    #[error("the datasets hold data of different kinds: {}", kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", "))]
    MixedKinds {
        /// The kinds that would meet.
        kinds: Vec<DeviceKind>,
    },
    /// There was nothing to merge.
    #[error("no dataset to merge")]
    NothingToMerge,
    /// A CSV file could not be read as such.
    #[error("cannot read `{}` as CSV", file.display())]
    Csv {
        /// The file.
        file: PathBuf,
        /// Why not; it names the line.
        source: csv::Error,
    },
    /// A value of a CSV file is wrong.
    #[error("`{}` line {line}, column `{column}`: `{value}` {problem}", file.display())]
    CsvValue {
        /// The file.
        file: PathBuf,
        /// Line from 1, the header included.
        line: u64,
        /// The column.
        column: String,
        /// The value as written.
        value: String,
        /// Why it cannot be.
        problem: String,
        /// Whether a mapping says which lines are read.
        has_mapping: bool,
    },
    /// A CSV file has two columns of one name.
    #[error("`{}` has two columns `{column}`", file.display())]
    CsvTwice {
        /// The file.
        file: PathBuf,
        /// The name.
        column: String,
    },
    /// A CSV file lacks a column that its import reads.
    #[error("`{}` has no column `{column}`", file.display())]
    CsvColumn {
        /// The file.
        file: PathBuf,
        /// The column.
        column: String,
        /// The columns that it has.
        found: String,
        /// The nearest of them.
        suggestion: Option<String>,
    },
    /// A line of a CSV file has too few cells, or more than the header.
    #[error("`{}` line {line}: {found} cells, the header has {expected}", file.display())]
    CsvLine {
        /// The file.
        file: PathBuf,
        /// Line from 1, the header included.
        line: u64,
        /// Cells of the line.
        found: usize,
        /// Cells of the header.
        expected: usize,
    },
    /// A file that holds no measurement of this kind, whatever its numbers.
    #[error("`{}` is not imported: {reason}", file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// Why not.
        reason: &'static str,
        /// What to do in its place.
        fix: &'static str,
    },
    /// A mapping file is malformed; the source shows the place.
    #[error("cannot read `{}` as a mapping of pairs", file.display())]
    MappingSyntax {
        /// The mapping file.
        file: PathBuf,
        /// The nearest known name to an unknown field.
        suggestion: Option<String>,
        /// Why not.
        source: Box<toml::de::Error>,
    },
    /// A mapping file says something that cannot be.
    #[error("`{}`: {field} {problem}", file.display())]
    Mapping {
        /// The mapping file.
        file: PathBuf,
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: String,
        /// The nearest known name.
        suggestion: Option<String>,
    },
    /// A value of an imported JSON file is wrong.
    #[error("`{}`: {place}: {problem}", file.display())]
    ImportValue {
        /// The file.
        file: PathBuf,
        /// Where in the file: the keys from the outside in.
        place: String,
        /// Why it cannot be.
        problem: String,
    },
    /// A row that an import would write breaks a rule of the schema.
    #[error("`{}` {place}: `{column}` would be {value}, must be {rule}", file.display())]
    ImportRow {
        /// The file, or the folder of several.
        file: PathBuf,
        /// Where in it.
        place: String,
        /// The column of the dataset.
        column: String,
        /// The value.
        value: String,
        /// The rule that it breaks.
        rule: String,
    },
    /// A folder to import lacks a file.
    #[error("`{}` does not hold all files of this import", folder.display())]
    MissingFiles {
        /// The folder.
        folder: PathBuf,
        /// What it must hold.
        needed: String,
    },
    /// The numbers of an import contradict each other too often to be one measurement.
    #[error("`{}`: {suspicious} of {total} slowdowns exceed {limit}x, so isolated and co-located rates were not measured together", file.display())]
    Suspicious {
        /// The file.
        file: PathBuf,
        /// Slowdowns over the limit.
        suspicious: usize,
        /// All slowdowns.
        total: usize,
        /// The limit.
        limit: f64,
    },
    /// Nothing usable was in the file.
    #[error("`{}` has nothing that can be imported", file.display())]
    NothingImported {
        /// The file.
        file: PathBuf,
        /// What it would have to hold.
        fix: String,
    },
    /// The tables could not be encoded.
    #[error("cannot encode the {table} table as Parquet: {reason}")]
    Encode {
        /// The table.
        table: &'static str,
        /// Why not.
        reason: String,
    },
    /// The receiver of an export failed.
    #[error("cannot write the {table} table as CSV")]
    Output {
        /// The table.
        table: &'static str,
        /// Why not.
        source: csv::Error,
    },
}

/// Two different rows under one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The table.
    pub table: &'static str,
    /// The key of the row.
    pub key: String,
    /// The first column that differs.
    pub column: &'static str,
    /// The value of the dataset that came first.
    pub left: String,
    /// The dataset that came first.
    pub left_source: String,
    /// The value of the other.
    pub right: String,
    /// The other dataset.
    pub right_source: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, key, column, left, left_source, right, right_source } = self;
        write!(
            f,
            "{table} row {key} differs in `{column}`: {left} in {left_source}, {right} in {right_source}"
        )
    }
}

impl Error {
    pub(crate) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { operation, path, source }
    }

    pub(crate) fn json(
        what: &'static str,
        file: impl Into<PathBuf>,
    ) -> impl FnOnce(serde_json::Error) -> Self {
        let file = file.into();
        move |source| Self::Json { what, file, line: source.line(), column: source.column(), source }
    }
}

fn list_kinds(kinds: &[DeviceKind]) -> String {
    kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(" and ")
}

impl Hint for Error {
    fn hint(&self) -> Option<String> {
        let did_you_mean = |near: &str| format!("did you mean `{near}`?");
        match self {
            Self::Io { source, path, .. } => match source.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    Some("free some space, or choose a folder on another disk; nothing half-written is left".into())
                }
                std::io::ErrorKind::PermissionDenied => {
                    Some(format!("choose a folder that you may write, or change the rights of `{}`", path.display()))
                }
                std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::DirectoryNotEmpty => {
                    Some("it came into being meanwhile, perhaps from the same command; choose another name".into())
                }
                _ => None,
            },
            Self::ForeignFile { .. } => Some("move the file to another folder first, or choose another path".into()),
            Self::NotADataset { .. } => {
                Some("a dataset is a folder with `manifest.json`, `isolated/` and `pairs/`; choose another path".into())
            }
            Self::Version { .. } => {
                Some("read it with the version of elastico that wrote it, or measure or import it again".into())
            }
            Self::Parquet { .. } | Self::Missing { .. } => {
                Some("copy the dataset again from its origin, or write it again from the journal".into())
            }
            Self::Changed { .. } => Some("copy the dataset again from its origin, or write it again".into()),
            Self::Unlisted { .. } => {
                Some("remove the file, or list it with `Dataset::list_parts` if another program wrote the same rows into it".into())
            }
            Self::Kinds { .. } => Some("the manifest was edited; get the dataset again from its origin".into()),
            Self::ContentChanged { .. } => {
                Some("numbers were changed after the dataset was written; get it again from its origin".into())
            }
            Self::Column { suggestion, .. } => Some(suggestion.map_or_else(
                || "docs/reference/dataset.md lists the columns of this version".into(),
                did_you_mean,
            )),
            Self::UnknownColumn { suggestion, .. } => suggestion.map(did_you_mean),
            Self::Mapping { suggestion, .. } | Self::MappingSyntax { suggestion, .. } => {
                suggestion.as_deref().map(did_you_mean)
            }
            Self::CsvColumn { suggestion, found, .. } => Some(suggestion.as_deref().map_or_else(
                || format!("give the file as it was published; the header of this one names {found}"),
                did_you_mean,
            )),
            Self::CsvTwice { .. } => Some("rename one of them, or leave it out".into()),
            Self::MissingFiles { needed, .. } => Some(format!("name the folder that holds {needed}")),
            Self::ImportRow { column, .. } if column == "slowdown_ratio" => Some(
                "see whether the columns of the value alone and beside are swapped, or their unit is another; a line that was \
                 so measured has to be left out"
                    .into(),
            ),
            Self::ImportRow { place, .. } => {
                Some(format!("correct {place} of the file, or the unit or scale by which it is read"))
            }
            Self::CsvLine { .. } => Some("quote cells that hold a comma, and give each line all cells".into()),
            Self::CsvValue { line, column, has_mapping, .. } => Some(format!(
                "correct column `{column}` in line {line}{}",
                if *has_mapping { "; a mapping can leave lines out by `[filter]`" } else { "" }
            )),
            Self::Refused { fix, .. } => Some((*fix).into()),
            Self::NothingImported { fix, .. } => Some(fix.clone()),
            Self::DeviceKind { .. } => Some(format!(
                "the kinds are {}",
                DeviceKind::ALL.map(|kind| format!("`{kind}`")).join(", ")
            )),
            Self::Conflict(_) => {
                Some("the two come from different runs under one trial id; merge only one of them".into())
            }
            Self::SchemaDrift { .. } => Some("write both with the same version of elastico first".into()),
            Self::MixedKinds { .. } => {
                Some("measured, simulated and imported data mix only when the kinds are named".into())
            }
            Self::Suspicious { .. } => Some(
                "import `simulation_throughputs.json`: the isolated rates of the physical file were measured again later, its pair rates were not"
                    .into(),
            ),
            _ => None,
        }
    }
}
