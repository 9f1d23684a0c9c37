//! Reading files so that a mistake is answered with its line.

use crate::Error;
use elastico_core::suggest;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// The formats that a file's ending names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Toml,
    Json,
    Csv,
}

pub(crate) fn format_of(path: &Path) -> Result<Format, Error> {
    match path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("toml") => Ok(Format::Toml),
        Some("json") => Ok(Format::Json),
        Some("csv") => Ok(Format::Csv),
        _ => Err(Error::Format { path: path.to_owned() }),
    }
}

pub(crate) fn read(path: &Path) -> Result<String, Error> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    // Some editors begin a file with a mark of the byte order; only JSON minds it.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Line and column of a byte offset, both from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The nearest of the names that serde lists in "unknown field `x`, expected one of `a`, `b`".
fn suggestion(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = quoted.next().filter(|_| message.contains("unknown field"))?;
    suggest(unknown, quoted).map(str::to_owned)
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(", ")
}

pub(crate) fn toml<T: DeserializeOwned>(text: &str, file: &Path) -> Result<T, Error> {
    toml::from_str(text).map_err(|error| {
        let (line, column) = position(text, error.span().map_or(0, |span| span.start));
        Error::Syntax {
            file: file.to_owned(),
            line,
            column,
            message: one_line(error.message()),
            suggestion: suggestion(error.message()),
        }
    })
}

pub(crate) fn json<T: DeserializeOwned>(text: &str, file: &Path) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let cut = message.rfind(" at line ").unwrap_or(message.len());
        Error::Syntax {
            file: file.to_owned(),
            line: error.line(),
            column: error.column(),
            message: one_line(&message[..cut]),
            suggestion: suggestion(&message),
        }
    })
}

/// What a line assigns to a field inside inline tables: `{ field = value, … }`.
fn assigned<'a>(line: &'a str, field: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(field).filter_map(move |(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + field.len()..].trim_start().strip_prefix('=')?;
        let is_word = before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_' && letter != '-');
        let value = after.split([',', '}', ']', '#']).next()?.trim().trim_matches('"');
        is_word.then_some(value)
    })
}

/// The text of a file and how its entries can be found again, for messages about values.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    pub(crate) file: PathBuf,
    pub(crate) text: &'a str,
    pub(crate) format: Format,
    /// The array of tables, for example `job`.
    pub(crate) table: &'static str,
}

impl Source<'_> {
    /// The line of a field of the entry with this index and id. Where the field stands inside a table of the entry, the
    /// line with that value, or the only line with that field.
    fn line(&self, index: usize, id: &str, field: &str, value: &str) -> Option<usize> {
        match self.format {
            Format::Toml => {
                let header = format!("[[{}]]", self.table);
                let mut start = None;
                let mut seen = 0;
                let mut nested: Vec<(usize, &str)> = Vec::new();
                for (number, line) in self.text.lines().enumerate() {
                    let line = line.trim();
                    if line.starts_with(&header) {
                        if start.is_some() {
                            break;
                        }
                        if seen == index {
                            start = Some(number + 1);
                        }
                        seen += 1;
                    } else if start.is_some()
                        && line.strip_prefix(field).is_some_and(|rest| rest.trim_start().starts_with('='))
                    {
                        return Some(number + 1);
                    } else if start.is_some() {
                        nested.extend(assigned(line, field).map(|text| (number + 1, text)));
                    }
                }
                let same =
                    |text: &str| text == value || text.parse::<f64>().ok() == value.parse::<f64>().ok();
                let is_number = value.parse::<f64>().is_ok();
                let found = nested.iter().find(|(_, text)| is_number && same(text)).map(|(line, _)| *line);
                found.or(if let [(line, _)] = nested[..] { Some(line) } else { start })
            }
            Format::Json => {
                let id = format!("\"{id}\"");
                let quoted = format!("\"{field}\"");
                let of_entry = self.text.lines().position(|line| line.contains(&id))?;
                let of_field = self.text.lines().skip(of_entry).position(|line| line.contains(&quoted));
                Some(of_entry + of_field.unwrap_or(0) + 1)
            }
            // Without quoted line breaks a record is a line; the header is the first.
            Format::Csv => Some(index + 2),
        }
    }

    pub(crate) fn refuse(
        &self,
        (index, id): (usize, &str),
        field: &'static str,
        value: impl std::fmt::Display,
        rule: impl Into<String>,
        suggestion: Option<String>,
    ) -> Error {
        let value = value.to_string();
        Error::Value {
            file: self.file.clone(),
            line: self.line(index, id, field, &value),
            item: format!("{} `{id}`", self.table).into(),
            field,
            value: value.into(),
            rule: rule.into().into(),
            suggestion: suggestion.map(Into::into),
        }
    }

    /// Checks that a number is between two.
    pub(crate) fn range(
        &self,
        entry: (usize, &str),
        field: &'static str,
        value: Option<f64>,
        [least, most]: [f64; 2],
        must: &str,
    ) -> Result<(), Error> {
        value.filter(|number| !(least..=most).contains(number)).map_or(Ok(()), |number| {
            let rule = format!("{must} between {least:e} and {most:e}");
            Err(self.refuse(entry, field, format!("{number:e}"), rule, None))
        })
    }

    /// Checks that a number is finite and within the rule.
    pub(crate) fn number(
        &self,
        entry: (usize, &str),
        field: &'static str,
        value: Option<f64>,
        least: f64,
        open: bool,
    ) -> Result<(), Error> {
        match value {
            Some(number) if !number.is_finite() => {
                Err(self.refuse(entry, field, number, "it must be a finite number", None))
            }
            Some(number) if number < least || (open && number <= least) => {
                let word = if open { "above" } else { "at least" };
                Err(self.refuse(entry, field, number, format!("it must be {word} {least}"), None))
            }
            _ => Ok(()),
        }
    }
}
