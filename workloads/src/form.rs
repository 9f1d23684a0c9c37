//! The form of a catalogue file, as it is written by people.

use crate::error::{Error, Place};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

/// Axis values of one table, each with its place in the file.
pub(crate) type AxisTable = BTreeMap<Spanned<String>, Spanned<AxisForm>>;

/// A catalogue of benchmarks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CatalogueForm {
    /// Version of the file format; this is version 1.
    #[schemars(schema_with = "version")]
    pub(crate) schema: Spanned<i64>,
    /// Families of benchmarks.
    #[schemars(with = "Vec<FamilyForm>")]
    pub(crate) family: Vec<Spanned<FamilyForm>>,
}

/// Benchmarks of one structure that are held out together.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FamilyForm {
    /// The first part of each id, for example `tr_block`.
    #[schemars(with = "String")]
    pub(crate) id: Spanned<String>,
    /// The structure that turns axes into a step.
    #[schemars(schema_with = "structures")]
    pub(crate) structure: Spanned<String>,
    /// What the family stands for, in a few words.
    #[schemars(with = "String")]
    pub(crate) summary: Spanned<String>,
    /// Axes that all configurations share; they are left out of the ids.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, AxisForm>")]
    pub(crate) axes: AxisTable,
    /// One table of axes per benchmark; a list of values stands for one benchmark each.
    #[schemars(with = "Vec<BTreeMap<String, AxisForm>>")]
    pub(crate) configurations: Vec<Spanned<AxisTable>>,
}

/// A value of an axis, or a list of values.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, a word or a list of them")]
pub(crate) enum AxisForm {
    /// A size or a count.
    Integer(i64),
    /// A share or an exponent.
    Ratio(f64),
    /// A number format or another word.
    Word(String),
    /// Several values: one benchmark for each, and for each combination with other lists.
    Many(Vec<Self>),
}

fn version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "const": 1 })
}

fn structures(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<_> = crate::STRUCTURES.iter().map(|structure| structure.name).collect();
    json_schema!({ "type": "string", "enum": names })
}

/// A text with the name of its file, to turn offsets into lines.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) text: &'a str,
    pub(crate) file: &'a Path,
}

impl Source<'_> {
    pub(crate) fn place(self, span: Range<usize>) -> Place {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    pub(crate) fn parse(self) -> Result<CatalogueForm, Error> {
        toml::from_str(self.text).map_err(|error| self.refusal(&error))
    }

    /// The parser's refusal, with a suggestion where a field was misspelt.
    fn refusal(self, error: &toml::de::Error) -> Error {
        let place = self.place(error.span().unwrap_or(0..0));
        let message = error.message();
        // serde writes: unknown field `name`, expected one of `a`, `b` (or: expected `a`).
        let mut quoted = message.split('`').skip(1).step_by(2).map(str::to_owned);
        if message.starts_with("unknown field")
            && let Some(field) = quoted.next()
        {
            let known: Vec<_> = quoted.collect();
            let suggestion =
                elastico_core::suggest(&field, known.iter().map(String::as_str)).map(str::to_owned);
            return Error::UnknownField { place, field, suggestion, known };
        }
        Error::Syntax { place, detail: message.lines().collect::<Vec<_>>().join(", ") }
    }
}

/// The JSON schema of a catalogue file, pretty-printed; committed as `catalogue/schema.json`.
pub fn catalogue_schema() -> String {
    let mut schema = schemars::schema_for!(CatalogueForm);
    schema.insert("title".to_owned(), "ElastiCo benchmark catalogue".into());
    let mut text = serde_json::to_string_pretty(&schema).expect("a JSON value has a text form");
    text.push('\n');
    text
}
