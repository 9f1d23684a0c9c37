//! A CSV file whose columns have fixed names.

use super::lines::Cells;
use super::read;
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
        let content = read(file)?;
        let failed = |source| Error::Csv { file: file.to_owned(), source };
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(content.as_slice());
        let header = header_of(&mut reader, file)?;
        let mut columns = Vec::with_capacity(names.len());
        for &name in names {
            let place = column_of(&header, name, file)?.ok_or_else(|| Error::CsvColumn {
                file: file.to_owned(),
                column: name.to_owned(),
                found: list(&header),
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
            let fix = "below the header there is no line; give the file as it was published".to_owned();
            return Err(Error::NothingImported { file: file.to_owned(), fix });
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
                has_mapping: false,
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

    pub(super) fn line(&self) -> u64 {
        self.cells.line
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

    /// A number of a column that the file need not have, above 0.
    pub(super) fn optional(&self, column: &str) -> Result<Option<f64>, Error> {
        let place = self.cells.header.iter().position(|name| name == column);
        place.map(|place| self.cells.positive(place)).transpose()
    }

    /// Refuses the cell of a column that the file need not have, but has.
    pub(super) fn refuse_optional(&self, column: &str, problem: &str) -> Error {
        let place = self.cells.header.iter().position(|name| name == column);
        self.cells.refuse(place.expect("the cell was read"), problem)
    }

    /// A coefficient of a regression on ratios.
    pub(super) fn coefficient(&self, column: &str) -> Result<f64, Error> {
        self.finite(column)?;
        let good = |value: f64| value.abs() <= 1000.0;
        self.cells.number(self.place(column), good, "is no coefficient, which lies within -1000 and 1000")
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
            |count| (1.0..=1e12).contains(&count) && count.fract() == 0.0,
            "is no whole number from 1 to 10^12",
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

/// The first line: it must be there, hold commas between its names, and be text.
pub(super) fn header_of(reader: &mut csv::Reader<&[u8]>, file: &Path) -> Result<csv::StringRecord, Error> {
    let refuse = |reason, fix| Err(Error::Refused { file: file.to_owned(), reason, fix });
    let header = reader.headers().map_err(|source| Error::Csv { file: file.to_owned(), source })?.clone();
    if header.iter().all(str::is_empty) {
        return refuse(
            "it is empty, or its first line is",
            "give a CSV file whose first line names the columns",
        );
    }
    if header.len() == 1 && header[0].contains([';', '\t']) {
        return refuse(
            "its cells are separated by semicolons or tabs",
            "write it with commas between the cells",
        );
    }
    Ok(header)
}

/// Where a column stands; of two with one name nobody could say which is meant.
pub(super) fn column_of(header: &csv::StringRecord, name: &str, file: &Path) -> Result<Option<usize>, Error> {
    let mut places = header.iter().enumerate().filter(|(_, column)| *column == name).map(|(place, _)| place);
    let first = places.next();
    match places.next() {
        None => Ok(first),
        Some(_) => Err(Error::CsvTwice { file: file.to_owned(), column: name.to_owned() }),
    }
}

/// The names of a header for a message.
pub(super) fn list(header: &csv::StringRecord) -> String {
    const MOST: usize = 12;
    let mut names: Vec<String> =
        header.iter().take(MOST).map(|name| format!("`{}`", name.escape_debug())).collect();
    if header.len() > MOST {
        names.push(format!("and {} more", header.len() - MOST));
    }
    names.join(", ")
}
