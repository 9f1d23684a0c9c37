//! stdout is data, stderr is talk.

use anyhow::Context as _;
use clap::ValueEnum;
use elastico_report::Table;
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

/// The form of the data on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people, at the width of the terminal.
    #[default]
    Table,
    /// For programs, with a schema id.
    Json,
    /// For spreadsheets.
    Csv,
}

/// Writes one answer to stdout in the asked form.
///
/// JSON is the whole answer; table and CSV are the tables, one after the other.
pub(crate) fn answer<T: Serialize>(format: Format, value: &T, tables: &[Table]) -> anyhow::Result<()> {
    let mut text = match format {
        Format::Json => serde_json::to_string_pretty(value).context("cannot write the answer as JSON")?,
        Format::Table => join(tables.iter().map(|table| table.to_text(terminal_width())))?,
        Format::Csv => join(tables.iter().map(Table::to_csv))?,
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    print(&text)
}

/// Writes one table to stdout in the asked form.
pub(crate) fn answer_table(format: Format, table: &Table) -> anyhow::Result<()> {
    answer(format, &table.to_json()?, std::slice::from_ref(table))
}

fn join(texts: impl Iterator<Item = Result<String, elastico_report::Error>>) -> anyhow::Result<String> {
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// Writes text to stdout.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).context("cannot write to stdout")?;
    stdout.flush().context("cannot write to stdout")
}

/// Writes an artefact: beside, fsync, rename.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    elastico_datasets::write_atomic(path, bytes)?;
    Ok(())
}

/// What is said on stderr, unless `--quiet`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Talk {
    quiet: bool,
}

impl Talk {
    pub(crate) const fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// One line of talk.
    pub(crate) fn say(self, line: impl AsRef<str>) {
        if !self.quiet {
            // Talk that cannot be heard must not end the work.
            let _ = writeln!(io::stderr().lock(), "{}", line.as_ref());
        }
    }

    /// Whether a progress bar makes sense.
    pub(crate) fn has_terminal(self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    pub(crate) const fn is_quiet(self) -> bool {
        self.quiet
    }
}

/// Writes an error, even with `--quiet`.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Colour only on a terminal, and never against `NO_COLOR`.
pub(crate) fn colour_on_stderr() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// What text for people is written on: how wide, and whether in colour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paper {
    pub(crate) width: usize,
    pub(crate) has_colour: bool,
}

/// A colour of the terminal's own palette.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Colour {
    Green,
    Yellow,
    Red,
}

impl Paper {
    /// stdout as it is.
    pub(crate) fn stdout() -> Self {
        let has_colour =
            io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { width: terminal_width().into(), has_colour }
    }

    /// The text in a colour, where there is any.
    pub(crate) fn paint(self, text: &str, colour: Colour) -> String {
        if !self.has_colour {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Red => 31,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Columns of the terminal, 80 where stdout is none.
fn terminal_width() -> u16 {
    std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok())
        .unwrap_or_else(|| terminal_size::terminal_size_of(io::stdout()).map_or(80, |(width, _)| width.0))
}
