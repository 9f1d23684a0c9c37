//! Files of schema `elastico.train/1`: how to train and to judge, in TOML.
//!
//! ```toml
//! schema = "elastico.train/1"
//! learner = "auto"                                   # chosen inside the training part
//! candidates = ["saturation", "extra_trees", "boosting"]
//!
//! [extra_trees]
//! min_leaf = [1, 3, 5]                               # a list where one value stands: choose from these
//! ```

use crate::learners::LearnerOptions;
use crate::{Error, EvaluateOptions, LearnerKind, Split, TrainOptions};
use elastico_core::{Seed, suggest};
use serde::Deserialize;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The schema id of the file.
pub const TRAIN_SCHEMA: &str = "elastico.train/1";

/// The most settings of one learner that a file may list: each is fitted once per inner fold.
const MOST_VARIANTS: usize = 64;

/// A file of schema `elastico.train/1`. What it leaves out keeps its default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrainConfig {
    /// Who learns.
    pub learner: Option<LearnerKind>,
    /// Whom `elastico evaluate` judges.
    pub learners: Option<Vec<LearnerKind>>,
    /// The splits to report.
    pub splits: Option<Vec<Split>>,
    /// Seed of folds and learners.
    pub seed: Option<Seed>,
    /// A slowdown up to this counts as safe to share.
    pub limit: Option<f64>,
    /// Share of slowdowns that should lie under the upper bound.
    pub level: Option<f64>,
    /// Largest size of the model file.
    pub max_bytes: Option<usize>,
    /// Most folds of families or devices.
    pub most_folds: Option<usize>,
    /// More rows than this are sampled down, by whole pairs.
    pub most_rows: Option<usize>,
    /// The settings of the learners, and what may be chosen.
    pub settings: LearnerOptions,
}

/// Everything but the tables of the learners.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    schema: String,
    learner: Option<LearnerKind>,
    candidates: Option<Vec<LearnerKind>>,
    learners: Option<Vec<LearnerKind>>,
    splits: Option<Vec<Split>>,
    inner_folds: Option<usize>,
    seed: Option<u64>,
    limit: Option<f64>,
    level: Option<f64>,
    max_bytes: Option<usize>,
    most_folds: Option<usize>,
    most_rows: Option<usize>,
}

/// The fields of [`Head`], for suggestions.
const HEAD: [&str; 12] = [
    "schema",
    "learner",
    "candidates",
    "learners",
    "splits",
    "inner_folds",
    "seed",
    "limit",
    "level",
    "max_bytes",
    "most_folds",
    "most_rows",
];

impl TrainConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Read`], or [`Error::Config`] with line and column.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(file).map_err(|source| Error::Read { file: file.to_owned(), source })?;
        Self::parse(&text, file)
    }

    /// Parses the text of a file; `file` is named in messages.
    ///
    /// # Errors
    /// [`Error::Config`] with line, column, reason and, for a mistyped name, a suggestion.
    pub fn parse(text: &str, file: &Path) -> Result<Self, Error> {
        Source { text, file }.config()
    }

    /// Lays what the file says over options for training.
    pub fn apply_to_train(&self, options: &mut TrainOptions) {
        options.settings.clone_from(&self.settings);
        put(&mut options.learner, self.learner.as_ref());
        put(&mut options.splits, self.splits.as_ref());
        put(&mut options.seed, self.seed.as_ref());
        put(&mut options.limit, self.limit.as_ref());
        put(&mut options.level, self.level.as_ref());
        put(&mut options.max_bytes, self.max_bytes.as_ref());
        put(&mut options.most_folds, self.most_folds.as_ref());
        put(&mut options.most_rows, self.most_rows.as_ref());
    }

    /// Lays what the file says over options for judging. Where it names no `learners`, its `learner` is judged beside the
    /// mean and the others keep their place.
    pub fn apply_to_evaluate(&self, options: &mut EvaluateOptions) {
        options.settings.clone_from(&self.settings);
        if let Some(learner) = self.learner
            && !options.learners.contains(&learner)
        {
            options.learners.push(learner);
        }
        put(&mut options.learners, self.learners.as_ref());
        put(&mut options.splits, self.splits.as_ref());
        put(&mut options.seed, self.seed.as_ref());
        put(&mut options.limit, self.limit.as_ref());
        put(&mut options.most_folds, self.most_folds.as_ref());
        put(&mut options.most_rows, self.most_rows.as_ref());
    }
}

fn put<T: Clone>(slot: &mut T, value: Option<&T>) {
    if let Some(value) = value {
        slot.clone_from(value);
    }
}

fn has_twice<T: PartialEq>(list: &[T]) -> bool {
    list.iter().enumerate().any(|(index, entry)| list[..index].contains(entry))
}

/// The text of a file, to turn offsets into places.
struct Source<'a> {
    text: &'a str,
    file: &'a Path,
}

type Document<'a> = Spanned<DeTable<'a>>;

impl<'a> Source<'a> {
    fn refuse(&self, at: Range<usize>, message: impl Into<String>) -> Error {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let message = message.into();
        // serde names the unknown word first and then all that it knows, each in backticks.
        let mut quoted = message.split('`').skip(1).step_by(2);
        let suggestion = match (message.starts_with("unknown "), quoted.next()) {
            (true, Some(unknown)) => suggest(unknown, quoted).map(str::to_owned),
            _ => None,
        };
        Error::Config {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message,
            suggestion,
        }
    }

    fn refusal(&self, error: &toml::de::Error) -> Error {
        let message = error.message().lines().map(str::trim).collect::<Vec<_>>().join(", ");
        // The words of the language for a number that counts.
        let message = ["usize", "u64", "u32"].into_iter().fold(message, |message, word| {
            message.replace(&format!("expected {word}"), "expected a whole number, not below 0")
        });
        self.refuse(error.span().unwrap_or(0..0), message)
    }

    fn read<T: serde::de::DeserializeOwned>(&self, document: Document<'a>) -> Result<T, Error> {
        T::deserialize(toml::Deserializer::from(document)).map_err(|error| self.refusal(&error))
    }

    fn config(&self) -> Result<TrainConfig, Error> {
        let document = DeTable::parse(self.text).map_err(|error| self.refusal(&error))?;
        let whole = document.span();
        let is_table = |name: &str| LearnerKind::ALL.iter().any(|learner| learner.as_str() == name);
        let (mut head, mut tables) = (DeTable::new(), DeTable::new());
        for (key, value) in document.get_ref() {
            let name = key.get_ref().as_ref();
            if is_table(name) && value.get_ref().is_table() {
                tables.insert(key.clone(), value.clone());
            } else if HEAD.contains(&name) {
                head.insert(key.clone(), value.clone());
            } else {
                let known = HEAD.into_iter().chain(LearnerKind::ALL.map(LearnerKind::as_str));
                let known = known.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                return Err(
                    self.refuse(key.span(), format!("unknown field `{name}`, expected one of {known}"))
                );
            }
        }
        let head_of: Head = self.read(Spanned::new(whole.clone(), head.clone()))?;
        self.check_head(&head, &head_of)?;
        let mut settings = self.settings(&tables, &whole)?;
        put(&mut settings.candidates, head_of.candidates.as_ref());
        put(&mut settings.inner_folds, head_of.inner_folds.as_ref());
        if let (Err(error), Some(at)) = (settings.check(), head.get("candidates")) {
            return Err(self.refuse(at.span(), error.to_string()));
        }
        Ok(TrainConfig {
            learner: head_of.learner,
            learners: head_of.learners,
            splits: head_of.splits,
            seed: head_of.seed.map(Seed),
            limit: head_of.limit,
            level: head_of.level,
            max_bytes: head_of.max_bytes,
            most_folds: head_of.most_folds,
            most_rows: head_of.most_rows,
            settings,
        })
    }

    fn check_head(&self, table: &DeTable<'_>, head: &Head) -> Result<(), Error> {
        let refuse = |field: &str, rule: &str| {
            let at = table.get(field).map_or(0..0, Spanned::span);
            let value = self.text.get(at.clone()).unwrap_or_default();
            Err(self.refuse(at, format!("`{field}` is {value}, it must be {rule}")))
        };
        let outside =
            |value: Option<usize>, range: Range<usize>| value.is_some_and(|value| !range.contains(&value));
        match head {
            Head { schema, .. } if schema != TRAIN_SCHEMA => refuse("schema", &format!("\"{TRAIN_SCHEMA}\"")),
            Head { limit: Some(limit), .. } if !(*limit > 1.0 && limit.is_finite()) => {
                refuse("limit", "a number above 1")
            }
            Head { level: Some(level), .. } if !(*level > 0.5 && *level < 1.0) => {
                refuse("level", "over 0.5 and below 1")
            }
            Head { inner_folds, .. } if outside(*inner_folds, 2..51) => refuse("inner_folds", "2 to 50"),
            Head { most_folds, .. } if outside(*most_folds, 2..1001) => refuse("most_folds", "2 to 1000"),
            Head { most_rows, .. } if outside(*most_rows, 10..100_000_001) => {
                refuse("most_rows", "10 to 100000000")
            }
            Head { max_bytes, .. } if outside(*max_bytes, 1..2_000_000_001) => {
                refuse("max_bytes", "1 to 2000000000")
            }
            Head { learners: Some(list), .. } if list.is_empty() => {
                refuse("learners", "a list of at least one")
            }
            Head { candidates: Some(list), .. } if list.is_empty() => {
                refuse("candidates", "a list of at least one")
            }
            Head { splits: Some(list), .. } if list.is_empty() => refuse("splits", "a list of at least one"),
            Head { candidates: Some(list), .. } if has_twice(list) => {
                refuse("candidates", "a list that names each once")
            }
            Head { learners: Some(list), .. } if has_twice(list) => {
                refuse("learners", "a list that names each once")
            }
            Head { splits: Some(list), .. } if has_twice(list) => {
                refuse("splits", "a list that names each once")
            }
            Head { learner: Some(learner), .. }
                if !learner.is_exportable() && *learner != LearnerKind::Auto =>
            {
                refuse("learner", "one that a model file can hold; `learners` lists whom `evaluate` judges")
            }
            _ => Ok(()),
        }
    }

    /// The tables of the learners. A list where one value stands becomes several settings of that learner.
    fn settings(&self, tables: &DeTable<'a>, whole: &Range<usize>) -> Result<LearnerOptions, Error> {
        let mut first = tables.clone();
        let mut expanded = Vec::new();
        for (key, value) in tables {
            let DeValue::Table(table) = value.get_ref() else { continue };
            let variants = self.expand(table)?;
            let with = |table: &DeTable<'a>| Spanned::new(value.span(), DeValue::Table(table.clone()));
            if let Some(variant) = variants.first() {
                first.insert(key.clone(), with(variant));
            }
            let is_choice = variants.len() > 1;
            expanded.push((key, variants.iter().map(with).collect::<Vec<_>>(), is_choice));
        }
        let read = |tables: &DeTable<'a>| {
            let options: LearnerOptions = self.read(Spanned::new(whole.clone(), tables.clone()))?;
            options.check().map_err(|error| self.located(tables, &error)).map(|()| options)
        };
        let mut settings = read(&first)?;
        for (key, variants, is_choice) in expanded {
            let mut all = Vec::new();
            for variant in variants {
                let mut tables = first.clone();
                tables.insert(key.clone(), variant);
                all.push(read(&tables)?);
            }
            if let (true, Ok(learner)) = (is_choice, key.get_ref().parse::<LearnerKind>()) {
                settings.variants.insert(learner, all);
            }
        }
        Ok(settings)
    }

    /// Every combination of the values in the lists of a table, the first list varying slowest.
    fn expand(&self, table: &DeTable<'a>) -> Result<Vec<DeTable<'a>>, Error> {
        let mut variants = vec![table.clone()];
        for (key, value) in table {
            let DeValue::Array(list) = value.get_ref() else { continue };
            if list.is_empty() {
                return Err(
                    self.refuse(value.span(), format!("`{}` lists nothing to choose from", key.get_ref()))
                );
            }
            let chosen = |variant: &DeTable<'a>, value: &Spanned<DeValue<'a>>| {
                let mut variant = variant.clone();
                variant.insert(key.clone(), value.clone());
                variant
            };
            variants = variants
                .iter()
                .flat_map(|variant| list.iter().map(move |value| chosen(variant, value)))
                .collect();
            if variants.len() > MOST_VARIANTS {
                let message = format!(
                    "the lists give {} settings to choose from, at most {MOST_VARIANTS} are allowed",
                    variants.len()
                );
                return Err(self.refuse(value.span(), message));
            }
        }
        Ok(variants)
    }

    /// The place of a setting outside its range.
    fn located(&self, tables: &DeTable<'a>, error: &Error) -> Error {
        let at = match error {
            Error::Option { learner, field, .. } => {
                tables.get(learner.as_str()).and_then(|table| table.get_ref().get(*field)).map(Spanned::span)
            }
            _ => None,
        };
        self.refuse(at.unwrap_or(0..0), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TrainConfig, Error> {
        TrainConfig::parse(text, Path::new("train.toml"))
    }

    fn refusal(lines: &str) -> String {
        let error = parse(&format!("schema = \"elastico.train/1\"\n{lines}")).unwrap_err();
        let hint = elastico_core::Hint::hint(&error).unwrap_or_default();
        format!("{error} {hint}").trim().to_owned()
    }

    #[test]
    fn what_is_left_out_keeps_its_default() {
        let config = parse("schema = \"elastico.train/1\"").unwrap();
        assert_eq!(config, TrainConfig::default());
        let config = parse("schema = \"elastico.train/1\"\n[random_forest]\ntrees = 7").unwrap();
        assert_eq!((config.settings.random_forest.trees, config.settings.random_forest.min_leaf), (7, 1));
        assert!((config.settings.random_forest.features_ratio - 0.5).abs() < 1e-12);
    }

    #[test]
    fn lists_are_choices() {
        let text = "schema = \"elastico.train/1\"\nlearner = \"auto\"\ncandidates = [\"mean\", \"extra_trees\"]\n\
                    [extra_trees]\nmin_leaf = [1, 3, 5]\nfeatures_ratio = [0.5, 0.7]\n[boosting]\nmonotone = true\n";
        let config = parse(text).unwrap();
        assert_eq!(config.settings.candidates, [LearnerKind::Mean, LearnerKind::ExtraTrees]);
        let found: Vec<(usize, f64)> = config
            .settings
            .variants_of(LearnerKind::ExtraTrees)
            .iter()
            .map(|options| (options.extra_trees.min_leaf, options.extra_trees.features_ratio))
            .collect();
        assert_eq!(found.len(), 6);
        for wanted in [(1, 0.5), (1, 0.7), (3, 0.5), (3, 0.7), (5, 0.5), (5, 0.7)] {
            assert!(found.contains(&wanted), "{found:?}");
        }
        assert!(config.settings.boosting.monotone);
        assert_eq!(config.settings.variants_of(LearnerKind::Boosting).len(), 1);
        let mut options = TrainOptions::default();
        config.apply_to_train(&mut options);
        assert_eq!((options.learner, &options.settings), (LearnerKind::Auto, &config.settings));
    }

    #[test]
    fn mistakes_are_answered_with_their_place() {
        for (lines, wanted) in [
            (
                "lerner = \"mean\"",
                "train.toml:2:1: unknown field `lerner`, expected one of `schema`, `learner`",
            ),
            ("[extra_tree]\ntrees = 3", "did you mean `extra_trees`?"),
            ("[extra_trees]\ntres = 3", "train.toml:3:1: unknown field `tres`, expected one of `trees`"),
            ("[extra_trees]\ntres = 3", "did you mean `trees`?"),
            ("learner = \"boost\"", "train.toml:2:11: unknown variant `boost`"),
            ("learner = \"boostin\"", "did you mean `boosting`?"),
            ("limit = 0.9", "train.toml:2:9: `limit` is 0.9, it must be a number above 1"),
            ("level = 1.0", "train.toml:2:9: `level` is 1.0, it must be over 0.5 and below 1"),
            ("[boosting]\nrounds = 0", "train.toml:3:10: `boosting.rounds` is 0, it must be 1 to 5000"),
            ("[boosting]\nrounds = [100, 0]", "train.toml:3:16: `boosting.rounds` is 0"),
            ("[boosting]\nrounds = []", "train.toml:3:10: `rounds` lists nothing to choose from"),
            ("[boosting]\nrounds = \"many\"", "train.toml:3:10: invalid type: string \"many\""),
            ("[boosting]\nrounds = -1", "train.toml:3:10: invalid value: integer `-1`"),
            ("candidates = [\"bias_filter\"]", "train.toml:2:14: `bias_filter` is no candidate"),
            ("[boosting]\nrounds = -1", "expected a whole number, not below 0"),
            ("candidates = [\"mean\", \"mean\"]", "it must be a list that names each once"),
            ("splits = [\"random_pair\", \"random_pair\"]", "it must be a list that names each once"),
            ("learner = \"rule_tree\"", "it must be one that a model file can hold"),
            ("candidates = []", "train.toml:2:14: `candidates` is [], it must be a list of at least one"),
            ("boosting = 3", "train.toml:2:1: unknown field `boosting`"),
            ("seed = ", "train.toml:2:8"),
        ] {
            let found = refusal(lines);
            assert!(found.contains(wanted), "{lines}: {found}");
        }
        let error = parse("schema = \"elastico.train/2\"").unwrap_err();
        assert!(error.to_string().contains("it must be \"elastico.train/1\""), "{error}");
        let list = (0..9).map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
        let many = refusal(&format!("[boosting]\nleaves = [{list}]\nrounds = [{list}]"));
        assert!(many.contains("the lists give 81 settings"), "{many}");
    }

    #[test]
    fn the_shipped_example_is_sound_and_names_every_setting() {
        let text = include_str!("../examples/train.toml");
        let config = parse(text).unwrap();
        assert_eq!(config.learner, Some(LearnerKind::Auto));
        for learner in LearnerKind::ALL {
            for name in LearnerOptions::default().describe(learner).keys() {
                assert!(text.contains(name.as_str()), "{learner}.{name}");
            }
        }
        assert!(HEAD.iter().all(|name| text.contains(&format!("{name} ="))));
    }
}
