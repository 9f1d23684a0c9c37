//! Text columns: one dictionary of distinct values and a code per row.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The code of a null.
const NULL: u32 = u32::MAX;

/// A column of text, kept as a dictionary: a million rows need a million `u32` and one `String` per distinct value.
///
/// The dictionary is in order of first occurrence, so equal columns have equal dictionaries. An empty text is null.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextColumn {
    values: Vec<String>,
    codes: Vec<u32>,
}

impl TextColumn {
    /// Encodes texts in order.
    pub(crate) fn collect<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> Self {
        let mut index: Index<'a> = Index::default();
        let mut column = Self { values: Vec::new(), codes: Vec::with_capacity(texts.size_hint().0) };
        // Neighbours are often equal; that saves the hash of most rows.
        let mut previous: (&str, u32) = ("", NULL);
        for text in texts {
            let text = text.unwrap_or("");
            if text.is_empty() {
                previous = ("", NULL);
            } else if text != previous.0 {
                let code = *index.entry(text).or_insert_with(|| {
                    column.values.push(text.to_owned());
                    (column.values.len() - 1) as u32
                });
                previous = (text, code);
            }
            column.codes.push(previous.1);
        }
        column
    }

    /// The text of a row; `None` is null, or a row past the end.
    pub fn get(&self, row: usize) -> Option<&str> {
        self.code(row).map(|code| self.values[code as usize].as_str())
    }

    /// The code of a row: an index into [`Self::values`]. `None` is null, or a row past the end.
    pub fn code(&self, row: usize) -> Option<u32> {
        self.codes.get(row).copied().filter(|code| *code != NULL)
    }

    /// The distinct values, in order of first occurrence.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// The code of a text, if it occurs. Linear in the number of distinct values.
    pub fn code_of(&self, text: &str) -> Option<u32> {
        self.values.iter().position(|value| value == text).map(|code| code as u32)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// Codes of all rows; null is `u32::MAX`.
    pub(crate) fn codes(&self) -> &[u32] {
        &self.codes
    }

    /// Texts of all rows in order.
    pub fn iter(&self) -> impl Iterator<Item = Option<&str>> {
        (0..self.len()).map(|row| self.get(row))
    }

    /// Adds the rows of another column.
    pub(crate) fn append(&mut self, other: &Self) {
        let mut index: Index<'_> =
            self.values.iter().enumerate().map(|(code, value)| (value.as_str(), code as u32)).collect();
        let mut added = Vec::new();
        let known = self.values.len();
        let translated: Vec<u32> = other
            .values
            .iter()
            .map(|value| {
                *index.entry(value).or_insert_with(|| {
                    added.push(value.clone());
                    (known + added.len() - 1) as u32
                })
            })
            .collect();
        self.values.extend(added);
        self.codes
            .extend(other.codes.iter().map(|code| translated.get(*code as usize).copied().unwrap_or(NULL)));
    }

    /// The given rows, in the given order.
    pub(crate) fn take(&self, rows: &[usize]) -> Self {
        let mut translated = vec![NULL; self.values.len()];
        let mut taken = Self { values: Vec::new(), codes: Vec::with_capacity(rows.len()) };
        for &row in rows {
            let code = self.codes[row];
            if code == NULL {
                taken.codes.push(NULL);
                continue;
            }
            let new = &mut translated[code as usize];
            if *new == NULL {
                *new = taken.values.len() as u32;
                taken.values.push(self.values[code as usize].clone());
            }
            taken.codes.push(*new);
        }
        taken
    }
}

type Index<'a> = HashMap<&'a str, u32, BuildHasherDefault<WordHasher>>;

/// A multiply-rotate hash of eight bytes at a time: the default hasher resists chosen keys, which costs half of the
/// reading time, and the worst that chosen keys can do here is to read slowly.
#[derive(Default)]
struct WordHasher(u64);

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let word = u64::from_le_bytes(word.try_into().expect("chunks_exact gives eight bytes"));
            self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
        }
        let mut last = [0; 8];
        let rest = words.remainder();
        last[..rest.len()].copy_from_slice(rest);
        let word = u64::from_le_bytes(last) ^ ((bytes.len() as u64) << 56);
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    }

    fn finish(&self) -> u64 {
        (self.0 ^ (self.0 >> 32)).wrapping_mul(MULTIPLIER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts() -> impl Strategy<Value = Vec<Option<String>>> {
        prop::collection::vec(prop::option::of("[a-d]{1,2}"), 0..40)
    }

    fn column(texts: &[Option<String>]) -> TextColumn {
        TextColumn::collect(texts.iter().map(Option::as_deref))
    }

    #[test]
    fn empty_text_is_null() {
        let column = TextColumn::collect([Some("a"), None, Some(""), Some("a")].into_iter());
        assert_eq!(column.iter().collect::<Vec<_>>(), [Some("a"), None, None, Some("a")]);
        assert_eq!(column.get(4), None);
        assert_eq!(column.values(), ["a"]);
    }

    proptest! {
        #[test]
        fn appending_is_collecting_the_chain(first in texts(), second in texts()) {
            let mut appended = column(&first);
            appended.append(&column(&second));
            let chain: Vec<_> = first.iter().chain(&second).cloned().collect();
            prop_assert_eq!(&appended, &column(&chain));
            let reversed: Vec<usize> = (0..chain.len()).rev().collect();
            let expected: Vec<_> = chain.iter().rev().cloned().collect();
            prop_assert_eq!(appended.take(&reversed), column(&expected));
        }
    }
}
