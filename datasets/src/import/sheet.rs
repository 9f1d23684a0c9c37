//! A CSV file whose columns have fixed names.

use super::lines::Cells;
use crate::error::Error;
use elastico_core::suggest;
use std::path::{Path, PathBuf};

/// A file as read: only the named columns are looked at, in whatever order they stand.
pub(super) struct Sheet {
    file: PathBuf,
    header: csv::StringRecord,
    records: Vec<csv::StringRecord>,
    columns: Vec<(&'static str, usize)>,
    /// The bytes, for the digest of the source.
    pub(super) content: Vec<u8>,
}

impl Sheet {
    /// Reads a file and finds its columns. Some published files end each line with a comma that the header lacks: empty
    /// cells past the header are dropped.
    pub(super) fn read(file: &Path, names: &[&'static str]) -> Result<Self, Error> {
        let content = std::fs::read(file).map_err(Error::io("read", file))?;
        let failed = |source| Error::Csv { file: file.to_owned(), source };
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(content.as_slice());
        let header = reader.headers().map_err(failed)?.clone();
        let mut columns = Vec::with_capacity(names.len());
        for &name in names {
            let place = header.iter().position(|column| column == name).ok_or_else(|| Error::CsvColumn {
                file: file.to_owned(),
                column: name.to_owned(),
                suggestion: suggest(name, header.iter()).map(str::to_owned),
            })?;
            columns.push((name, place));
        }
        let mut records = Vec::new();
        for record in reader.records() {
            let record = record.map_err(failed)?;
            if record.len() < header.len() || record.iter().skip(header.len()).any(|cell| !cell.is_empty()) {
                return Err(Error::CsvLine {
                    file: file.to_owned(),
                    line: record.position().map_or(0, csv::Position::line),
                    found: record.len(),
                    expected: header.len(),
                });
            }
            records.push(record);
        }
        if records.is_empty() {
            return Err(Error::NothingImported { file: file.to_owned() });
        }
        Ok(Self { file: file.to_owned(), header, records, columns, content })
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.records.iter().map(|record| Row {
            columns: &self.columns,
            cells: Cells {
                file: &self.file,
                header: &self.header,
                record,
                line: record.position().map_or(0, csv::Position::line),
            },
        })
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }
}

/// One line; cells are asked for by the names that [`Sheet::read`] was given.
pub(super) struct Row<'a> {
    columns: &'a [(&'static str, usize)],
    cells: Cells<'a>,
}

impl Row<'_> {
    fn place(&self, column: &str) -> usize {
        let found = self.columns.iter().find(|(name, _)| *name == column);
        found.expect("an import asks for the columns that it named").1
    }

    pub(super) fn text(&self, column: &str) -> &str {
        self.cells.get(self.place(column))
    }

    pub(super) fn refuse(&self, column: &str, problem: impl Into<String>) -> Error {
        self.cells.refuse(self.place(column), problem)
    }

    pub(super) fn name(&self, column: &str) -> Result<String, Error> {
        self.cells.name(self.place(column))
    }

    pub(super) fn positive(&self, column: &str) -> Result<f64, Error> {
        self.cells.positive(self.place(column))
    }

    pub(super) fn finite(&self, column: &str) -> Result<f64, Error> {
        self.cells.number(self.place(column), |_| true, "is no finite number")
    }

    pub(super) fn ratio(&self, column: &str) -> Result<f64, Error> {
        self.cells.number(self.place(column), |ratio| (0.0..=1.0).contains(&ratio), "is no number in 0..1")
    }

    /// A percentage as a ratio; above 100 is an error.
    pub(super) fn percent(&self, column: &str) -> Result<f64, Error> {
        let percent = self.cells.number(
            self.place(column),
            |percent| (0.0..=100.0).contains(&percent),
            "is no percentage in 0..100",
        )?;
        Ok(percent / 100.0)
    }

    pub(super) fn count(&self, column: &str) -> Result<f64, Error> {
        self.cells.number(
            self.place(column),
            |count| count >= 1.0 && count.fract() == 0.0,
            "is no whole number above 0",
        )
    }

    /// Numbers above 0, separated by `;`.
    pub(super) fn list(&self, column: &str) -> Result<Vec<f64>, Error> {
        let place = self.place(column);
        self.cells
            .get(place)
            .split(';')
            .map(|text| text.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0))
            .collect::<Option<_>>()
            .ok_or_else(|| self.cells.refuse(place, "is no list of finite numbers above 0, separated by `;`"))
    }
}
