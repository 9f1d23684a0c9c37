//! Which columns trees look at.

use super::few_families::few_are_known;
use super::{PhysicsUse, Training};
use crate::matrix::Matrix;
use std::borrow::Cow;

/// The columns that trees may split on: all, or the raw ones, which come first. Trees on either are exported alike, since
/// the graph computes the physics features in any case.
pub(crate) fn of_trees<'a>(training: &Training<'a>, physics: PhysicsUse) -> Cow<'a, Matrix> {
    let all = training.features;
    let raw = training.raw.clamp(1, all.width);
    let drop = match physics {
        PhysicsUse::Always => false,
        PhysicsUse::Never => true,
        PhysicsUse::Auto => few_are_known(training),
    };
    if drop && raw < all.width {
        Cow::Owned(Matrix::new(raw, all.iter().flat_map(|row| &row[..raw]).copied().collect()))
    } else {
        Cow::Borrowed(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learners::tests::Table;

    /// Indicators of two families as raw features, and a sum behind them.
    fn table() -> Table {
        let names = ["subject_family=a", "co_runner_family=b", "sm_active_sum_ratio"];
        let mut table = Table::of(&names, vec![1.0, 0.0, 7.0, 0.0, 1.0, 8.0], vec![0.1, 0.2]);
        table.raw = 2;
        table
    }

    #[test]
    fn few_families_are_told_apart_by_what_was_measured_alone() {
        let table = table();
        let raw = Matrix::new(2, vec![1.0, 0.0, 0.0, 1.0]);
        assert_eq!(*of_trees(&table.training(), PhysicsUse::Auto), raw);
        assert_eq!(*of_trees(&table.training(), PhysicsUse::Never), raw);
        assert_eq!(*of_trees(&table.training(), PhysicsUse::Always), table.features);
    }

    #[test]
    fn without_indicators_everything_is_looked_at() {
        let mut table = table();
        table.names[0] = "subject_sm_active_ratio".to_owned();
        table.names[1] = "co_runner_sm_active_ratio".to_owned();
        assert_eq!(*of_trees(&table.training(), PhysicsUse::Auto), table.features);
    }
}
