//! Readable rules: may this pair share, by a small decision tree of linfa.

use crate::evaluate::{Prepared, check_limit};
use crate::learners::RuleTreeOptions;
use crate::matrix::{Matrix, medians};
use crate::{Error, Examples, Split};
use elastico_core::parallel;
use elastico_core::{DeviceKind, Seed};
use elastico_models::physics;
use linfa::Dataset;
use linfa::traits::Fit as _;
use linfa_trees::{DecisionTree, SplitQuality, TreeNode};
use ndarray::{Array1, Array2};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The schema id of the JSON form.
pub const RULES_SCHEMA: &str = "elastico.rules/1";

/// A decision tree that says whether a pair is safe to share.
///
/// A second opinion to read, not a predictor to place by: it has at most four questions in a row. `Display` prints it as
/// nested if and else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// [`RULES_SCHEMA`].
    pub schema: String,
    /// Kinds of devices of the rows.
    pub device_kinds: Vec<DeviceKind>,
    /// Safe is a slowdown up to this.
    pub limit: f64,
    /// Rows.
    pub n: u64,
    /// Share of rows that are safe.
    pub safe_base_rate: f64,
    /// How the rows were held out that precision and recall are from.
    pub split: Split,
    /// Of the held-out rows called safe, the share that is; absent where none is called so.
    pub safe_precision: Option<f64>,
    /// Of the held-out safe rows, the share called so; absent where there is none.
    pub safe_recall: Option<f64>,
    /// The tree of all rows.
    pub root: Rule,
}

/// A question, or a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Rule {
    /// Is the feature at most the threshold?
    If {
        /// Raw or physics feature.
        feature: String,
        /// The threshold.
        at_most: f64,
        /// Where it is.
        then: Box<Self>,
        /// Where it is not.
        otherwise: Box<Self>,
    },
    /// The end.
    Verdict {
        /// Safe to share.
        safe: bool,
        /// Rows that end here.
        support: u64,
        /// Share of them for which the verdict is right.
        purity: f64,
    },
}

const MOST_FOLDS: usize = 5;

/// Fits rules for "slowdown at most `limit`" and judges them on held-out families (on held-out pairs where there is one
/// family).
///
/// # Errors
/// [`Error::Setting`] for a limit of 1 or less, [`Error::NoSplit`] for a single pair, [`Error::Learner`] from linfa.
pub fn rules(examples: &Examples, limit: f64) -> Result<Rules, Error> {
    check_limit(limit)?;
    let seed = Seed(0);
    let groups = &examples.groups;
    let (split, folds) = match Split::UnseenFamily.folds(groups, MOST_FOLDS, seed) {
        Ok(folds) => (Split::UnseenFamily, folds),
        Err(_) => (
            Split::RandomPair,
            Split::RandomPair
                .folds(groups, MOST_FOLDS, seed)
                .map_err(|reason| Error::NoSplit { rows: examples.rows(), reason })?,
        ),
    };
    let all: Vec<u32> = (0..examples.rows() as u32).collect();
    // The last piece of work is the tree of all rows.
    let mut grown = parallel::map(folds.len() + 1, |index| {
        let train = folds.get(index).map_or(&all, |fold| &fold.train);
        grow_on(examples, train, limit, seed)
    });
    let root = grown.pop().ok_or(Error::NoSplit { rows: 0, reason: "there are no rows".to_owned() })??.0;
    let (mut called, mut safe, mut hit) = (0_u64, 0_u64, 0_u64);
    for (fold, grown) in folds.iter().zip(grown) {
        let (tree, impute) = grown?;
        let prepared = Prepared::new(examples, &physics(&examples.schema), &impute, &fold.test);
        for (features, &row) in prepared.features.iter().zip(&fold.test) {
            let is_safe = examples.slowdown[row as usize] <= limit;
            let says_safe = tree.says_safe(&prepared.names, features);
            called += u64::from(says_safe);
            safe += u64::from(is_safe);
            hit += u64::from(says_safe && is_safe);
        }
    }
    let share = |whole: u64| (whole > 0).then(|| hit as f64 / whole as f64);
    let base = examples.slowdown.iter().filter(|slowdown| **slowdown <= limit).count();
    Ok(Rules {
        schema: RULES_SCHEMA.to_owned(),
        device_kinds: examples.origin.device_kinds.clone(),
        limit,
        n: examples.rows() as u64,
        safe_base_rate: base as f64 / examples.rows() as f64,
        split,
        safe_precision: share(called),
        safe_recall: share(safe),
        root,
    })
}

/// At most `most` of the rows, drawn by the seed.
fn sample(rows: usize, most: usize, seed: Seed) -> Vec<u32> {
    let mut drawn: Vec<u32> = (0..rows as u32).collect();
    if rows > most {
        let mut stream = seed.stream("trainer.rules", &[]);
        for index in 0..most {
            let other = stream.random_range(index..rows);
            drawn.swap(index, other);
        }
        drawn.truncate(most);
        drawn.sort_unstable();
    }
    drawn
}

/// Grows on a sample of the rows, and counts support and purity on all of them.
pub(crate) fn grow(
    features: &Matrix,
    names: &[String],
    safe: &[bool],
    options: &RuleTreeOptions,
    seed: Seed,
) -> Result<Rule, Error> {
    let sample = sample(safe.len(), options.most_rows, seed);
    let records = Array2::from_shape_fn((sample.len(), features.width), |(row, column)| {
        f64::from(features.row(sample[row] as usize)[column])
    });
    let labels = Array1::from_iter(sample.iter().map(|&row| safe[row as usize]));
    let least = (sample.len() as f64 * options.min_leaf_ratio).max(5.0) as f32;
    let tree = DecisionTree::params()
        .split_quality(SplitQuality::Gini)
        .max_depth(Some(options.max_depth))
        .min_weight_leaf(least)
        .min_weight_split(2.0 * least)
        .fit(&Dataset::new(records, labels))
        .map_err(|error| Error::Learner { learner: "rule_tree", reason: error.to_string() })?;
    let reached: Vec<u32> = (0..safe.len() as u32).collect();
    Ok(convert(tree.root_node(), names, features, safe, &reached).simplified())
}

/// Grows on some rows of the examples. Also returns the medians for missing values.
fn grow_on(examples: &Examples, rows: &[u32], limit: f64, seed: Seed) -> Result<(Rule, Vec<f32>), Error> {
    let impute = medians(&examples.features, examples.schema.width(), rows);
    let prepared = Prepared::new(examples, &physics(&examples.schema), &impute, rows);
    let safe: Vec<bool> = rows.iter().map(|&row| examples.slowdown[row as usize] <= limit).collect();
    let rule = grow(&prepared.features, &prepared.names, &safe, &RuleTreeOptions::default(), seed)?;
    Ok((rule, impute))
}

fn convert(
    node: &TreeNode<f64, bool>,
    names: &[String],
    features: &Matrix,
    truth: &[bool],
    reached: &[u32],
) -> Rule {
    if let (false, [Some(left), Some(right)]) = (node.is_leaf(), &node.children()[..]) {
        let (column, threshold, _) = node.split();
        let (below, above): (Vec<u32>, Vec<u32>) =
            reached.iter().partition(|&&row| f64::from(features.row(row as usize)[column]) <= threshold);
        return Rule::If {
            feature: names[column].clone(),
            at_most: threshold,
            then: Box::new(convert(left, names, features, truth, &below)),
            otherwise: Box::new(convert(right, names, features, truth, &above)),
        };
    }
    let safe = reached.iter().filter(|row| truth[**row as usize]).count();
    // The verdict follows all rows that end here, not only the sampled ones; a draw is not safe.
    let verdict = 2 * safe > reached.len();
    let right = if verdict { safe } else { reached.len() - safe };
    Rule::Verdict {
        safe: verdict,
        support: reached.len() as u64,
        purity: if reached.is_empty() { 1.0 } else { right as f64 / reached.len() as f64 },
    }
}

impl Rule {
    /// A question whose answers lead to the same verdict is no question.
    fn simplified(self) -> Self {
        let Self::If { feature, at_most, then, otherwise } = self else { return self };
        let (then, otherwise) = (then.simplified(), otherwise.simplified());
        match (&then, &otherwise) {
            (
                Self::Verdict { safe: a, support: m, purity: p },
                Self::Verdict { safe: b, support: n, purity: q },
            ) if a == b => {
                let right = p * *m as f64 + q * *n as f64;
                Self::Verdict { safe: *a, support: m + n, purity: right / ((m + n) as f64).max(1.0) }
            }
            _ => Self::If { feature, at_most, then: Box::new(then), otherwise: Box::new(otherwise) },
        }
    }

    pub(crate) fn says_safe(&self, names: &[String], row: &[f32]) -> bool {
        match self {
            Self::Verdict { safe, .. } => *safe,
            Self::If { feature, at_most, then, otherwise } => {
                let column = names.iter().position(|name| name == feature);
                let value = column.map_or(f64::NAN, |column| f64::from(row[column]));
                if value <= *at_most { then } else { otherwise }.says_safe(names, row)
            }
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        match self {
            Self::Verdict { safe, support, purity } => {
                let verdict = if *safe { "safe" } else { "not safe" };
                writeln!(f, "{indent}{verdict}  ({support} rows, {:.0} % of them)", 100.0 * purity)
            }
            Self::If { feature, at_most, then, otherwise } => {
                writeln!(f, "{indent}if {feature} <= {}", significant(*at_most))?;
                then.write(f, depth + 1)?;
                writeln!(f, "{indent}else")?;
                otherwise.write(f, depth + 1)
            }
        }
    }
}

/// Four significant digits, without a tail of zeros.
fn significant(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e6).contains(&size) {
        return format!("{value:.3e}");
    }
    let digits = if size < 1.0 { 4 } else { 3_usize.saturating_sub(size.log10() as usize) };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<&str> = self.device_kinds.iter().map(|kind| kind.as_str()).collect();
        writeln!(
            f,
            "safe to share = slowdown at most {} ({} {} rows, {:.0} % are safe)",
            self.limit,
            self.n,
            kinds.join(" and "),
            100.0 * self.safe_base_rate
        )?;
        let percent =
            |value: Option<f64>| value.map_or("none".to_owned(), |value| format!("{:.0} %", 100.0 * value));
        writeln!(
            f,
            "held out by {}: precision {}, recall {}",
            self.split,
            percent(self.safe_precision),
            percent(self.safe_recall)
        )?;
        self.root.write(f, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.25, "1.25"),
            (123.456, "123.5"),
            (0.123_456, "0.1235"),
            (4.2e9, "4.200e9"),
            (2.0, "2"),
        ] {
            assert_eq!(significant(value), text);
        }
    }

    #[test]
    fn equal_verdicts_are_merged() {
        let verdict = |safe, support| Box::new(Rule::Verdict { safe, support, purity: 0.5 });
        let question = |then, otherwise| Rule::If { feature: "x".into(), at_most: 1.0, then, otherwise };
        let merged = question(verdict(true, 10), Box::new(question(verdict(true, 4), verdict(true, 6))));
        assert_eq!(merged.simplified(), Rule::Verdict { safe: true, support: 20, purity: 0.5 });
        let kept = question(verdict(true, 1), verdict(false, 1));
        assert_eq!(kept.clone().simplified(), kept);
    }
}
