//! What trees say about a family that they do not know, where they know few.

use super::fitted::ShrunkFit;
use super::mean::weighted_mean;
use super::{Fitted, Training};

/// From fewer families than this nothing is concluded about another one. Trees that say nothing about new families still beat
/// the mean on each of n held-out families with probability 2⁻ⁿ; from five on that is less than 0.05 (one-sided sign test).
///
/// iGniter's table shows the case: with three of its four families known, trees miss the fourth by 3.7 %, the mean by 3.05 %.
pub(crate) const FEWEST_FAMILIES: usize = 5;

/// Gives rows of unknown families the mean where fewer than [`FEWEST_FAMILIES`] are known. Rows of two known families keep
/// their prediction.
///
/// Families are known by their indicators; without such features the fit comes back as it is.
pub(crate) fn cautious(base: Fitted, training: &Training<'_>) -> Fitted {
    if !few_are_known(training) {
        return base;
    }
    let families = known_families(training);
    Fitted::Shrunk(Box::new(ShrunkFit { base, families, center: weighted_mean(training), factor: 0.0 }))
}

/// Whether families are known by their indicators, and fewer than [`FEWEST_FAMILIES`] of them.
pub(crate) fn few_are_known(training: &Training<'_>) -> bool {
    let names: std::collections::BTreeSet<&str> = known_families(training)
        .iter()
        .filter_map(|&column| training.names[column].split_once("_family=").map(|(_, name)| name))
        .collect();
    (1..FEWEST_FAMILIES).contains(&names.len())
}

/// Columns of the families that occur in the rows: the indicator of a family that was held out stands there too, but 0
/// throughout.
fn known_families(training: &Training<'_>) -> Vec<usize> {
    (0..training.names.len())
        .filter(|&column| training.names[column].contains("_family="))
        .filter(|&column| training.features.iter().any(|row| row[column] > 0.0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learners::tests::Table;
    use crate::learners::{LearnerKind, LearnerOptions};
    use elastico_core::Seed;

    /// Rows of families paired with themselves, each family with its own level.
    fn fitted(families: usize, learner: LearnerKind) -> (Table, Fitted) {
        let names: Vec<String> = ["subject", "co_runner"]
            .iter()
            .flat_map(|side| (0..families).map(move |family| format!("{side}_family={family}")))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let rows = 40 * families;
        let values = (0..rows)
            .flat_map(|row| {
                (0..2 * families).map(move |column| f32::from(u8::from(column % families == row % families)))
            })
            .collect();
        let target = (0..rows).map(|row| 0.1 * (row % families) as f64).collect();
        let table = Table::of(&names, values, target);
        let fitted = learner.learner().fit(&table.training(), &LearnerOptions::default(), Seed(1)).unwrap();
        (table, fitted)
    }

    #[test]
    fn an_unknown_family_gets_the_mean_of_few_and_no_other_row_does() {
        for learner in [LearnerKind::ExtraTrees, LearnerKind::RandomForest, LearnerKind::Boosting] {
            let (mut table, fitted) = fitted(4, learner);
            assert!(matches!(fitted, Fitted::Shrunk(_)), "{learner}");
            let known = fitted.predict(&table.training());
            let worst =
                known.iter().zip(&table.target).map(|(log, target)| (log - target).abs()).fold(0.0, f64::max);
            assert!(worst < 0.01, "{learner}: {worst}");
            let center = weighted_mean(&table.training());
            for row in 0..table.features.rows() {
                table.features.values[row * 8..row * 8 + 4].fill(0.0);
            }
            let unknown = fitted.predict(&table.training());
            assert!(unknown.iter().all(|log| (log - center).abs() < 1e-12), "{learner}");
        }
    }

    #[test]
    fn five_families_are_believed() {
        let (_, fitted) = fitted(FEWEST_FAMILIES, LearnerKind::ExtraTrees);
        assert!(matches!(fitted, Fitted::Forest(_)));
    }
}
