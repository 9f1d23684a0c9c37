//! Safe or not, by the readable rules: judged on that decision only.

use super::{Fitted, Learner, LearnerOptions, Training};
use crate::Error;
use crate::rules::{Rule, grow};
use elastico_core::Seed;

pub(crate) struct RuleTree;

/// Grown rules.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decision {
    root: Rule,
}

impl Decision {
    /// The log of 1 for safe; for not safe more than any limit. Neither is a prediction of the slowdown.
    pub(crate) fn predict(&self, rows: &Training<'_>) -> Vec<f64> {
        let says = |row| if self.root.says_safe(rows.names, row) { 0.0 } else { f64::INFINITY };
        rows.features.iter().map(says).collect()
    }
}

impl Learner for RuleTree {
    fn fit(&self, training: &Training<'_>, options: &LearnerOptions, seed: Seed) -> Result<Fitted, Error> {
        let limit = training.limit.ln();
        let safe: Vec<bool> = training.target.iter().map(|target| *target <= limit).collect();
        let root = grow(training.features, training.names, &safe, &options.rule_tree, seed)?;
        Ok(Fitted::Decision(Decision { root }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learners::tests::Table;

    #[test]
    fn a_threshold_is_found() {
        let table = Table::random(400, &["a_ratio", "b_ratio"], |row| if row[0] > 0.6 { 0.5 } else { 0.05 });
        let fitted = RuleTree.fit(&table.training(), &LearnerOptions::default(), Seed(1)).unwrap();
        let limit = table.training().limit.ln();
        for (found, target) in fitted.predict(&table.training()).iter().zip(&table.target) {
            assert_eq!(*found <= limit, *target <= limit);
        }
    }
}
