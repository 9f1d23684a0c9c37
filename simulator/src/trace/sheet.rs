//! A CSV file with a header, and errors that name file, line and column.

use super::{TraceJob, Warning, date};
use crate::error::short;
use crate::{Error, Trace};
use elastico_core::{JobId, suggest};
use std::path::Path;

/// No time, count or rate of a real log is larger; sums of such numbers stay finite.
pub(super) const MOST: f64 = 1e15;

/// The name of a trace: that of its file.
pub(super) fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// A CSV file whose header is read.
pub(super) struct Sheet<'a> {
    path: &'a Path,
    headers: csv::StringRecord,
    reader: csv::Reader<&'a [u8]>,
    expects: &'a str,
}

impl<'a> Sheet<'a> {
    /// `expects` is the hint where a column is missing.
    pub(super) fn open(text: &'a str, path: &'a Path, expects: &'a str) -> Result<Self, Error> {
        let text = crate::document::unmarked(text);
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let headers = reader.headers().map_err(|error| broken(path, &error))?.clone();
        Ok(Self { path, headers, reader, expects })
    }

    /// The names of the columns.
    pub(super) fn headers(&self) -> impl Iterator<Item = &str> {
        self.headers.iter()
    }

    /// The place of a column that must be there.
    pub(super) fn column(&self, column: &str) -> Result<usize, Error> {
        self.optional(column).ok_or_else(|| Error::Column {
            path: self.path.into(),
            column: column.to_owned(),
            found: suggest(column, self.headers.iter()).map(str::to_owned),
            expects: self.expects.to_owned(),
        })
    }

    /// The place of a column that may be there.
    pub(super) fn optional(&self, column: &str) -> Option<usize> {
        self.headers.iter().position(|header| header == column)
    }

    /// Each line in turn, up to the first error.
    pub(super) fn rows(mut self, mut each: impl FnMut(&Row<'_>) -> Result<(), Error>) -> Result<(), Error> {
        let mut record = csv::StringRecord::new();
        while self.reader.read_record(&mut record).map_err(|error| broken(self.path, &error))? {
            let line = record.position().map_or(0, csv::Position::line);
            each(&Row { path: self.path, headers: &self.headers, record: &record, line })?;
        }
        Ok(())
    }
}

/// One line of a [`Sheet`].
pub(super) struct Row<'a> {
    path: &'a Path,
    headers: &'a csv::StringRecord,
    record: &'a csv::StringRecord,
    line: u64,
}

impl Row<'_> {
    /// Line of the file, from 1; the header is line 1.
    pub(super) const fn line(&self) -> u64 {
        self.line
    }

    pub(super) fn text(&self, column: usize) -> &str {
        self.record.get(column).unwrap_or_default()
    }

    /// The error that blames this field.
    pub(super) fn wrong(&self, column: usize, why: impl Into<String>) -> Error {
        Error::Value {
            path: self.path.into(),
            line: self.line,
            column: self.headers.get(column).unwrap_or_default().to_owned(),
            why: why.into(),
        }
    }

    /// A number from 0 up.
    pub(super) fn number(&self, column: usize) -> Result<f64, Error> {
        number(self.text(column)).map_err(|why| self.wrong(column, why))
    }

    /// A whole number from 0 up; `what` is counted.
    pub(super) fn count(&self, column: usize, what: &str) -> Result<u32, Error> {
        let text = self.text(column);
        text.parse().map_err(|_| self.wrong(column, format!("`{text}` is no count of {what}")))
    }

    /// A date in seconds.
    pub(super) fn date(&self, column: usize) -> Result<f64, Error> {
        let text = self.text(column);
        date::seconds(text)
            .ok_or_else(|| self.wrong(column, format!("`{text}` is no time such as 2017-10-09 07:01:55")))
    }

    pub(super) fn id(&self, column: usize) -> Result<JobId, Error> {
        JobId::new(self.text(column)).map_err(|error| self.wrong(column, error.to_string()))
    }

    /// A text that may not be empty.
    pub(super) fn named(&self, column: usize, what: &str) -> Result<&str, Error> {
        match self.text(column) {
            "" => Err(self.wrong(column, format!("{what} has no name"))),
            text => Ok(text),
        }
    }
}

/// A finite number from 0 up, or why it is none.
pub(super) fn number(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=MOST).contains(&value) => Ok(value),
        Ok(value) if value > MOST && value.is_finite() => {
            Err(format!("{} is beyond any real value", short(value)))
        }
        Ok(value) => Err(format!("{} must be finite and 0 or more", short(value))),
        Err(_) => Err(format!("`{text}` is no number")),
    }
}

fn broken(path: &Path, error: &csv::Error) -> Error {
    let line = error.position().map_or(1, csv::Position::line);
    let why = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("the line has {len} fields, the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { err, .. } => format!("field {} is no UTF-8 text", err.field() + 1),
        _ => error.to_string(),
    };
    Error::Line { path: path.into(), line, why }
}

/// The jobs of a file while it is read: those that do no work are counted.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) list: Vec<TraceJob>,
    pub(super) warnings: Vec<Warning>,
    without_work: usize,
}

impl Jobs {
    pub(super) fn push(&mut self, job: TraceJob) {
        if job.gpus == 0 || job.duration_seconds <= 0.0 {
            self.without_work += 1;
        } else {
            self.list.push(job);
        }
    }

    /// Notes that lines were left out, if any were.
    pub(super) fn left_out(&mut self, lines: usize, because: &str) {
        if lines > 0 {
            self.warnings.push(Warning::LeftOut { lines, because: because.to_owned() });
        }
    }

    pub(super) fn assumed(&mut self, what: impl Into<String>) {
        self.warnings.push(Warning::Assumed { what: what.into() });
    }

    /// The trace, with times from the first submission on.
    pub(super) fn into_trace(mut self, path: &Path) -> Result<Trace, Error> {
        if self.without_work > 0 {
            self.warnings.push(Warning::NoWork { jobs: self.without_work });
        }
        let first = self.list.iter().map(|job| job.submit_seconds).fold(f64::INFINITY, f64::min);
        for job in &mut self.list {
            job.submit_seconds -= first;
        }
        let mut trace = Trace::new(name(path), self.list).map_err(|error| match error {
            Error::Job { .. } => error.in_file(path, None),
            other => other,
        })?;
        self.warnings.append(&mut trace.warnings);
        trace.warnings = self.warnings;
        Ok(trace)
    }
}
