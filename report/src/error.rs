use elastico_core::Hint;

/// Why something could not be drawn or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A figure without a single point says nothing.
    #[error("the figure `{figure}` has no {what} to draw")]
    Empty {
        /// Title of the figure.
        figure: String,
        /// What is missing.
        what: &'static str,
    },
    /// NaN, infinite, or not positive where an axis is logarithmic.
    #[error("the figure `{figure}` cannot place {value} as {what} of `{label}`")]
    Number {
        /// Title of the figure.
        figure: String,
        /// Which number of the point.
        what: &'static str,
        /// Name of the point.
        label: String,
        /// The number as given.
        value: f64,
    },
    /// Two values for one cell: averaging them is the caller's decision.
    #[error("the figure `{figure}` has two values for `{subject}` beside `{co_runner}`")]
    Duplicate {
        /// Title of the figure.
        figure: String,
        /// The row.
        subject: String,
        /// The column.
        co_runner: String,
    },
    /// A chip that the table of constants lacks.
    #[error("there is no chip `{name}`{}", suggestion.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default())]
    Chip {
        /// The name as given.
        name: String,
        /// The nearest chip.
        suggestion: Option<&'static str>,
    },
    /// A row with more or fewer values than the table has columns.
    #[error("row {row} of the table `{table}` has {found} values for {expected} columns")]
    Row {
        /// Title of the table.
        table: String,
        /// Index of the row, from 0.
        row: usize,
        /// Values in the row.
        found: usize,
        /// Columns of the table.
        expected: usize,
    },
    /// A text that names no output format.
    #[error("`{0}` is no output format (table, json, csv)")]
    Format(String),
    /// The page's template failed.
    #[error("the page could not be filled in")]
    Template(#[from] minijinja::Error),
    /// The CSV writer failed.
    #[error("the table could not be written as csv")]
    Csv(#[from] csv::Error),
}

impl Hint for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Empty { .. } => {
                Some("check that the filter or the split leaves at least one row".to_owned())
            }
            Self::Duplicate { .. } => Some(
                "draw one sharing mode and one device at a time, or combine the repeats first".to_owned(),
            ),
            Self::Number { .. } => {
                Some("leave out what was not measured instead of passing it on".to_owned())
            }
            Self::Chip { .. } => Some("chips are listed by `elastico doctor`".to_owned()),
            _ => None,
        }
    }
}
