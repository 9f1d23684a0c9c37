//! A table in memory: one vector per column of its schema.

use crate::error::Error;
use crate::schema::{Column, ColumnKind, IsolatedRow, PairRow, TableKind};
use crate::text::TextColumn;
use elastico_core::suggest;

/// The values of one column.
#[derive(Debug, Clone)]
pub(crate) enum Values {
    /// NaN is null.
    Number(Vec<f64>),
    Text(TextColumn),
}

impl Values {
    /// A column without a value.
    pub(crate) fn nulls(kind: ColumnKind, rows: usize) -> Self {
        match kind {
            ColumnKind::Number => Self::Number(vec![f64::NAN; rows]),
            ColumnKind::Text => Self::Text(TextColumn::collect(std::iter::repeat_n(None, rows))),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Number(numbers) => numbers.len(),
            Self::Text(texts) => texts.len(),
        }
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Number(numbers) => numbers[row].is_nan(),
            Self::Text(texts) => texts.code(row).is_none(),
        }
    }

    /// The value of a row for people; null is `null`.
    pub(crate) fn show(&self, row: usize) -> String {
        match self {
            Self::Number(numbers) if numbers[row].is_nan() => "null".to_owned(),
            Self::Number(numbers) => numbers[row].to_string(),
            Self::Text(texts) => texts.get(row).unwrap_or("null").to_owned(),
        }
    }

    /// Whether two rows hold the same value; null equals null.
    pub(crate) fn same(&self, left: usize, right: usize) -> bool {
        match self {
            Self::Number(numbers) => number_bits(numbers[left]) == number_bits(numbers[right]),
            Self::Text(texts) => texts.code(left) == texts.code(right),
        }
    }

    pub(crate) fn append(&mut self, other: &Self) {
        match (self, other) {
            (Self::Number(numbers), Self::Number(more)) => numbers.extend_from_slice(more),
            (Self::Text(texts), Self::Text(more)) => texts.append(more),
            _ => unreachable!("both come from one schema"),
        }
    }

    fn take(&self, rows: &[usize]) -> Self {
        match self {
            Self::Number(numbers) => Self::Number(rows.iter().map(|row| numbers[*row]).collect()),
            Self::Text(texts) => Self::Text(texts.take(rows)),
        }
    }
}

/// The bits of a number, with one pattern for every NaN: nulls are equal and hash alike.
pub(crate) fn number_bits(number: f64) -> u64 {
    if number.is_nan() { 0x7ff8_0000_0000_0000 } else { number.to_bits() }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(left), Self::Number(right)) => {
                left.len() == right.len()
                    && left.iter().zip(right).all(|(left, right)| number_bits(*left) == number_bits(*right))
            }
            (Self::Text(left), Self::Text(right)) => left == right,
            _ => false,
        }
    }
}

/// One table of a dataset, columnar. Equal tables hold equal bits; null equals null.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    kind: TableKind,
    rows: usize,
    values: Vec<Values>,
}

impl Table {
    /// The isolated table of these rows.
    pub fn isolated(rows: &[IsolatedRow]) -> Self {
        Self::from_values(TableKind::Isolated, IsolatedRow::columns(rows))
    }

    /// The pairs table of these rows.
    pub fn pairs(rows: &[PairRow]) -> Self {
        Self::from_values(TableKind::Pairs, PairRow::columns(rows))
    }

    pub(crate) fn from_values(kind: TableKind, values: Vec<Values>) -> Self {
        debug_assert_eq!(values.len(), kind.columns().len());
        debug_assert!(values.windows(2).all(|pair| pair[0].len() == pair[1].len()));
        Self { kind, rows: values.first().map_or(0, Values::len), values }
    }

    /// Which table it is.
    pub fn kind(&self) -> TableKind {
        self.kind
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns, in the order of the files.
    pub fn columns(&self) -> &'static [Column] {
        self.kind.columns()
    }

    /// A column of numbers; NaN is null.
    ///
    /// # Errors
    /// [`Error::UnknownColumn`] with a suggestion, or [`Error::WrongKind`] for a column of text.
    pub fn f64(&self, name: &str) -> Result<&[f64], Error> {
        match self.find(name)? {
            Values::Number(numbers) => Ok(numbers),
            Values::Text(_) => Err(self.wrong_kind(name, "text")),
        }
    }

    /// A column of text.
    ///
    /// # Errors
    /// [`Error::UnknownColumn`] with a suggestion, or [`Error::WrongKind`] for a column of numbers.
    pub fn text(&self, name: &str) -> Result<&TextColumn, Error> {
        match self.find(name)? {
            Values::Text(texts) => Ok(texts),
            Values::Number(_) => Err(self.wrong_kind(name, "numbers")),
        }
    }

    /// The rows of an isolated table as structs; `None` for a pairs table.
    pub fn isolated_rows(&self) -> Option<impl Iterator<Item = IsolatedRow>> {
        (self.kind == TableKind::Isolated)
            .then(|| (0..self.rows).map(|row| IsolatedRow::read(&self.values, row)))
    }

    /// The rows of a pairs table as structs; `None` for an isolated table.
    pub fn pair_rows(&self) -> Option<impl Iterator<Item = PairRow>> {
        (self.kind == TableKind::Pairs).then(|| (0..self.rows).map(|row| PairRow::read(&self.values, row)))
    }

    /// The given rows (indices from 0), in the given order.
    ///
    /// # Panics
    /// Where an index is not below [`Self::rows`].
    #[must_use]
    pub fn take(&self, rows: &[usize]) -> Self {
        let values = self.values.iter().map(|values| values.take(rows)).collect();
        Self { kind: self.kind, rows: rows.len(), values }
    }

    pub(crate) fn append(&mut self, other: &Self) {
        for (values, more) in self.values.iter_mut().zip(&other.values) {
            values.append(more);
        }
        self.rows += other.rows;
    }

    /// Each column with its values.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static Column, &Values)> {
        self.columns().iter().zip(&self.values)
    }

    /// A column that the schema is known to have.
    pub(crate) fn values(&self, name: &'static str) -> &Values {
        let index = self.columns().iter().position(|column| column.name == name);
        &self.values[index.expect("the name is one of the schema")]
    }

    /// A column that the schema is known to have, of numbers.
    pub(crate) fn numbers(&self, name: &'static str) -> &[f64] {
        match self.values(name) {
            Values::Number(numbers) => numbers,
            Values::Text(_) => unreachable!("{name} holds numbers in the schema"),
        }
    }

    /// A column that the schema is known to have, of text.
    pub(crate) fn texts(&self, name: &'static str) -> &TextColumn {
        match self.values(name) {
            Values::Text(texts) => texts,
            Values::Number(_) => unreachable!("{name} holds text in the schema"),
        }
    }

    fn find(&self, name: &str) -> Result<&Values, Error> {
        let columns = self.columns();
        columns.iter().position(|column| column.name == name).map(|index| &self.values[index]).ok_or_else(
            || Error::UnknownColumn {
                table: self.kind.as_str(),
                name: name.to_owned(),
                suggestion: suggest(name, columns.iter().map(|column| column.name)),
            },
        )
    }

    fn wrong_kind(&self, name: &str, holds: &'static str) -> Error {
        Error::WrongKind { table: self.kind.as_str(), name: name.to_owned(), holds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::Hint;

    #[test]
    fn unknown_columns_get_a_suggestion() {
        let table = Table::pairs(&[PairRow::default()]);
        let error = table.f64("slowdown_ration").unwrap_err();
        assert_eq!(error.to_string(), "the pairs table has no column `slowdown_ration`");
        assert_eq!(error.hint().as_deref(), Some("did you mean `slowdown_ratio`?"));
        assert!(matches!(table.f64("side"), Err(Error::WrongKind { .. })));
        assert!(matches!(table.text("drift_ratio"), Err(Error::WrongKind { .. })));
    }

    #[test]
    fn a_fresh_row_is_null_where_it_may_be() {
        let table = Table::isolated(&[IsolatedRow::default()]);
        for (column, values) in table.entries() {
            assert!(!column.nullable || values.is_null(0), "{}", column.name);
        }
        assert_eq!(table, Table::isolated(&[IsolatedRow::default()]));
        assert_eq!(table.isolated_rows().unwrap().count(), 1);
        assert!(table.pair_rows().is_none());
    }
}
