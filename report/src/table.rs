//! One set of rows, four renderings.

use crate::Error;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, TableStyle, Width};
use serde::Serialize;
use serde_json::{Map, json};
use std::fmt::Write as _;
use std::str::FromStr;

/// How stdout is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Text for a person.
    #[default]
    Table,
    /// One JSON object with a schema id and rows.
    Json,
    /// RFC 4180 with a header line.
    Csv,
}

impl FromStr for Format {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "table" => Ok(Self::Table),
            "json" => Ok(Self::Json),
            "csv" => Ok(Self::Csv),
            _ => Err(Error::Format(text.to_owned())),
        }
    }
}

/// On which side a column's values stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    /// Texts.
    #[default]
    Left,
    /// Numbers.
    Right,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// The key in JSON and CSV, for example `jct_mean_seconds`.
    pub name: String,
    /// The heading for people; the name with blanks for underscores where none is set.
    pub label: String,
    /// The unit, empty for none.
    pub unit: String,
    /// Side of the values.
    pub align: Align,
    /// Whether its texts are names that must not be broken.
    #[serde(skip)]
    whole: bool,
    /// Whether it is left out of text that has no room for all.
    #[serde(skip)]
    spare: bool,
}

impl Column {
    /// A column of texts.
    pub fn text(name: impl Into<String>) -> Self {
        let name = name.into();
        let label = name.replace('_', " ");
        Self { name, label, unit: String::new(), align: Align::Left, whole: false, spare: false }
    }

    /// A column of numbers. A unit at the end of the name is left out of the heading, which states it in brackets.
    pub fn number(name: impl Into<String>, unit: impl Into<String>) -> Self {
        let (text, unit) = (Self::text(name), unit.into());
        let word = match unit.as_str() {
            "s" => " seconds",
            "B" => " bytes",
            "Hz" => " hertz",
            "W" => " watts",
            "J" => " joules",
            "ratio" => " ratio",
            _ => "",
        };
        let label = text.label.strip_suffix(word).unwrap_or(&text.label).to_owned();
        Self { label, unit, align: Align::Right, ..text }
    }

    /// Sets the heading for people.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Its texts are never broken, however long.
    #[must_use]
    pub const fn whole(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Text that is too narrow for all columns leaves it out, the last such one first.
    #[must_use]
    pub const fn spare(mut self) -> Self {
        self.spare = true;
        self
    }

    fn heading(&self) -> String {
        if self.unit.is_empty() { self.label.clone() } else { format!("{} ({})", self.label, self.unit) }
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number with the decimals that a person sees; JSON and CSV carry it whole.
    Number {
        /// The number; not finite = shown as missing.
        value: f64,
        /// Decimals in text.
        decimals: usize,
    },
    /// A whole number.
    Count(u64),
    /// Yes or no.
    Flag(bool),
    /// Nothing is known.
    Missing,
}

impl Value {
    /// A number shown with some decimals; NaN and infinities are missing.
    pub const fn number(value: f64, decimals: usize) -> Self {
        if value.is_finite() { Self::Number { value, decimals } } else { Self::Missing }
    }

    fn for_people(&self) -> String {
        match self {
            Self::Text(text) => printable(text),
            Self::Number { value, decimals } if value.is_finite() => {
                let text = format!("{value:.decimals$}");
                // What rounds to nothing has no sign.
                let nothing =
                    text.strip_prefix('-').filter(|rest| rest.chars().all(|digit| "0.".contains(digit)));
                nothing.map(str::to_owned).unwrap_or(text)
            }
            Self::Count(count) => count.to_string(),
            Self::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
            Self::Number { .. } | Self::Missing => "–".to_owned(),
        }
    }

    fn for_machines(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number { value, .. } if value.is_finite() => value.to_string(),
            Self::Count(count) => count.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Number { .. } | Self::Missing => String::new(),
        }
    }

    fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number { value, .. } if value.is_finite() => json!(value),
            Self::Count(count) => json!(count),
            Self::Flag(flag) => json!(flag),
            Self::Number { .. } | Self::Missing => serde_json::Value::Null,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// Rows under typed columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Schema id of the JSON form, for example `elastico.prediction/1`.
    pub schema: String,
    /// What the rows are; empty = no title.
    pub title: String,
    /// Columns in order.
    pub columns: Vec<Column>,
    /// Rows, each with one value for a column.
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    /// A table without rows.
    pub fn new(schema: impl Into<String>, title: impl Into<String>, columns: Vec<Column>) -> Self {
        Self { schema: schema.into(), title: title.into(), columns, rows: Vec::new() }
    }

    /// Adds a row; its length is checked when the table is rendered.
    pub fn push(&mut self, row: Vec<Value>) {
        self.rows.push(row);
    }

    /// The table in a format: for people at a width in characters, else complete.
    ///
    /// # Errors
    /// A row that does not fit the columns.
    pub fn render(&self, format: Format, width: u16) -> Result<String, Error> {
        match format {
            Format::Table => self.to_text(width),
            Format::Csv => self.to_csv(),
            Format::Json => Ok(format!("{:#}\n", self.to_json()?)),
        }
    }

    /// Text of at most `width` characters in a line. A table that cannot fit is written record by record.
    ///
    /// # Errors
    /// A row that does not fit the columns.
    pub fn to_text(&self, width: u16) -> Result<String, Error> {
        self.check()?;
        let mut text = String::new();
        if !self.title.is_empty() {
            for line in wrapped(&printable(&self.title), usize::from(width)) {
                let _ = writeln!(text, "{line}");
            }
        }
        if self.rows.is_empty() {
            text.push_str("(no rows)\n");
            return Ok(text);
        }
        let least: usize =
            self.columns.iter().enumerate().map(|(index, column)| self.least_width(index, column) + 2).sum();
        if least + self.columns.len() > usize::from(width) {
            if let Some(spare) = self.columns.iter().rposition(|column| column.spare) {
                let mut narrow = Self { title: String::new(), ..self.clone() };
                narrow.columns.remove(spare);
                for row in &mut narrow.rows {
                    row.remove(spare);
                }
                return Ok(text + &narrow.to_text(width)?);
            }
            self.write_records(&mut text);
            return Ok(text);
        }
        let mut table = comfy_table::Table::new();
        let rule = comfy_table::LineStyle::none().fill('─').junction(' ');
        table.load_style(TableStyle::new().header_separator(rule));
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        table.set_header(self.columns.iter().map(Column::heading));
        for row in &self.rows {
            table.add_row(row.iter().map(Value::for_people));
        }
        for (index, column) in self.columns.iter().enumerate() {
            let least = self.least_width(index, column) as u16 + 2;
            if let Some(target) = table.column_mut(index) {
                target.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
                if column.align == Align::Right {
                    target.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        for line in table.lines() {
            let line = line.strip_prefix(' ').unwrap_or(&line);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        Ok(text)
    }

    /// Numbers never wrap, texts and headings do between words.
    fn least_width(&self, index: usize, column: &Column) -> usize {
        // A space that does not break holds a number and its interval together.
        let is_gap = |letter: char| letter.is_whitespace() && letter != '\u{a0}';
        let words = |text: &str| text.split(is_gap).map(|word| word.chars().count()).max().unwrap_or(0);
        let content = self.rows.iter().map(|row| {
            let text = row[index].for_people();
            match (column.align, column.whole) {
                (Align::Right, _) => text.chars().count(),
                (Align::Left, true) => words(&text),
                (Align::Left, false) => words(&text).min(24),
            }
        });
        content.max().unwrap_or(0).max(words(&column.heading()))
    }

    fn write_records(&self, text: &mut String) {
        let headings: Vec<String> = self.columns.iter().map(Column::heading).collect();
        let widest = headings.iter().map(|heading| heading.chars().count()).max().unwrap_or(0);
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                text.push('\n');
            }
            for (heading, value) in headings.iter().zip(row) {
                let _ = writeln!(text, "{heading:<widest$}  {}", value.for_people());
            }
        }
    }

    /// RFC 4180 with the column names as header.
    ///
    /// # Errors
    /// A row that does not fit the columns.
    pub fn to_csv(&self) -> Result<String, Error> {
        self.check()?;
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(self.columns.iter().map(|column| &column.name))?;
        for row in &self.rows {
            writer.write_record(row.iter().map(Value::for_machines))?;
        }
        let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// `{"schema": …, "title": …, "units": {column: unit}, "rows": [{column: value}]}`; missing is null.
    ///
    /// # Errors
    /// A row that does not fit the columns.
    pub fn to_json(&self) -> Result<serde_json::Value, Error> {
        self.check()?;
        let rows: Vec<serde_json::Value> = self
            .rows
            .iter()
            .map(|row| {
                let pairs = self.columns.iter().zip(row);
                pairs
                    .map(|(column, value)| (column.name.clone(), value.to_json()))
                    .collect::<Map<_, _>>()
                    .into()
            })
            .collect();
        let units: Map<_, _> = self
            .columns
            .iter()
            .filter(|column| !column.unit.is_empty())
            .map(|column| (column.name.clone(), json!(column.unit)))
            .collect();
        Ok(json!({ "schema": self.schema, "title": self.title, "units": units, "rows": rows }))
    }

    /// Headings, and rows of text with the alignment of each value: what the page shows.
    pub(crate) fn to_html_parts(&self) -> Result<HtmlTable, Error> {
        self.check()?;
        let is_right = |column: &Column| column.align == Align::Right;
        Ok(HtmlTable {
            title: self.title.clone(),
            headings: self.columns.iter().map(|column| (column.heading(), is_right(column))).collect(),
            rows: self
                .rows
                .iter()
                .map(|row| {
                    row.iter()
                        .zip(&self.columns)
                        .map(|(value, column)| (value.for_people(), is_right(column)))
                        .collect()
                })
                .collect(),
        })
    }

    fn check(&self) -> Result<(), Error> {
        let expected = self.columns.len();
        match self.rows.iter().position(|row| row.len() != expected) {
            None => Ok(()),
            Some(row) => {
                Err(Error::Row { table: self.title.clone(), row, found: self.rows[row].len(), expected })
            }
        }
    }
}

/// What the page's template needs of a table.
#[derive(Debug, Serialize)]
pub(crate) struct HtmlTable {
    title: String,
    headings: Vec<(String, bool)>,
    rows: Vec<Vec<(String, bool)>>,
}

/// Control characters would move the cursor of a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

/// Lines of at most `width` characters, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a first line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(
            "elastico.prediction/1",
            "Predictions, simulated h100",
            vec![
                Column::text("subject_workload"),
                Column::text("co_runner_workload"),
                Column::number("slowdown_ratio", ""),
                Column::number("step_seconds", "s"),
                Column::text("in_domain"),
            ],
        );
        table.push(vec![
            "tr_block.b8_s1024".into(),
            "stream.dram, \"hot\"".into(),
            Value::number(1.23456, 2),
            Value::number(0.01234, 4),
            true.into(),
        ]);
        table.push(vec![
            "conv".into(),
            "null".into(),
            Value::number(f64::NAN, 2),
            Value::number(2.5, 4),
            false.into(),
        ]);
        table
    }

    #[test]
    fn text_is_as_before_at_three_widths() {
        let table = sample();
        let texts: Vec<String> =
            [80, 60, 40].map(|width| format!("width {width}\n{}", table.to_text(width).unwrap())).into();
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn no_line_is_wider_than_asked() {
        for width in [60, 80, 120] {
            for line in sample().to_text(width).unwrap().lines() {
                assert!(line.chars().count() <= usize::from(width), "{line}");
            }
        }
    }

    #[test]
    fn names_stay_whole_and_spare_columns_go_first() {
        let mut table = sample();
        table.columns[0] = Column::text("subject_workload").whole();
        table.columns[2] = Column::number("slowdown_ratio", "").spare();
        table.columns[3] = Column::number("step_seconds", "s").spare();
        table.rows[0][0] = "a_name_of_more_than_thirty_letters".into();
        table.rows[0][2] = Value::number(-0.001, 2);
        let wide = table.to_text(120).unwrap();
        assert!(wide.contains("step (s)") && wide.contains(" 0.00") && !wide.contains("-0.00"), "{wide}");
        let narrow = table.to_text(75).unwrap();
        assert!(narrow.contains("a_name_of_more_than_thirty_letters "), "{narrow}");
        assert!(!narrow.contains("step (s)") && narrow.contains("in domain"), "{narrow}");
        assert_eq!(narrow.matches("Predictions").count(), 1);
        assert!(table.to_csv().unwrap().contains("step_seconds"));
    }

    #[test]
    fn machines_get_whole_numbers_and_null() {
        let table = sample();
        let json = table.to_json().unwrap();
        assert_eq!(json["schema"], "elastico.prediction/1");
        assert_eq!(json["rows"][0]["slowdown_ratio"], 1.23456);
        assert!(json["rows"][1]["slowdown_ratio"].is_null());
        assert_eq!(json["units"]["step_seconds"], "s");
        let csv = table.to_csv().unwrap();
        assert!(csv.contains("1.23456") && csv.contains("\"stream.dram, \"\"hot\"\"\""), "{csv}");
        assert!(csv.lines().nth(2).unwrap().contains("conv,null,,2.5,false"));
    }

    #[test]
    fn a_ragged_row_and_an_unknown_format_are_refused() {
        let mut table = sample();
        table.push(vec![Value::Missing]);
        assert!(matches!(table.to_csv(), Err(Error::Row { row: 2, found: 1, expected: 5, .. })));
        assert!(matches!("xml".parse::<Format>(), Err(Error::Format(_))));
    }
}
