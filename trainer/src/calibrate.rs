//! The one-sided upper bound: by how much a point must be raised so that new families stay under it.
//!
//! # What is guaranteed
//! Families are the exchangeable unit, not rows. With K held-out families, the offset is the quantile at the level of their
//! out-of-fold log residuals, each family with the mass 1/K. Hierarchical conformal prediction (Lee, Barber & Willett 2023)
//! gives each the mass 1/(K + 1) and promises the level itself; with ten families that is nearly their largest residual, a
//! bound that covers 99 % where 90 % were asked for, and with fewer than nine there is none. The same argument promises for
//! 1/K at least level · K/(K + 1): if the next family is exchangeable with these, one of its rows lies under the bound with
//! that probability, on average over families. No more is promised: not for each family, not for another device or sharing
//! mode, and only up to the difference between the model of all families and those that left one out.
//!
//! What was achieved is measured beside it: each family against the offset of the others.

use crate::evaluate::OutOfFold;
use crate::{Error, Examples};
use serde::{Deserialize, Serialize};

/// The bound and how well it held.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The share of slowdowns that should lie under the bound.
    pub level: f64,
    /// Added to the predicted log slowdown; at least 0.
    pub offset_log: f64,
    /// Share of rows under the bound, each family against the offset of the other families, mean over families.
    pub achieved_coverage: f64,
    /// The lowest such share of one family.
    pub least_coverage: f64,
    /// 95 % interval of `achieved_coverage` by bootstrap over families; absent with fewer than three.
    #[serde(default)]
    pub coverage_interval: Option<(f64, f64)>,
    /// How tight it is: mean of bound ÷ measured over families, each with the offset of the others.
    #[serde(default)]
    pub bound_over_measured: f64,
    /// Families (or folds) that took part.
    pub groups_total: u64,
    /// The coverage that is promised on average over new groups exchangeable with these: level · K ÷ (K + 1).
    pub guaranteed_level: f64,
}

/// Calibrates on out-of-fold residuals, grouped by fold.
pub(crate) fn calibrate(
    predictions: &OutOfFold,
    examples: &Examples,
    level: f64,
) -> Result<Calibration, Error> {
    check_level(level)?;
    Ok(of_groups(&by_fold(predictions, examples), level))
}

fn by_fold(predictions: &OutOfFold, examples: &Examples) -> Vec<Vec<f64>> {
    let mut groups: Vec<Vec<f64>> = vec![Vec::new(); predictions.held_out.len()];
    for (residual, fold) in predictions.residuals(examples).into_iter().zip(&predictions.fold) {
        groups[*fold as usize].push(residual);
    }
    groups.retain(|group| !group.is_empty());
    groups
}

pub(crate) fn check_level(level: f64) -> Result<(), Error> {
    if level > 0.5 && level < 1.0 {
        Ok(())
    } else {
        Err(Error::Setting { what: "`level`", value: level, range: "a share over 0.5 and below 1" })
    }
}

fn of_groups(groups: &[Vec<f64>], level: f64) -> Calibration {
    let all: Vec<&Vec<f64>> = groups.iter().collect();
    let offset_log = offset(&all, level);
    let offsets = held_offsets(groups, level);
    let coverage: Vec<f64> =
        groups.iter().zip(&offsets).map(|(group, offset)| covered(group, *offset)).collect();
    let excess = |(group, offset): (&Vec<f64>, &f64)| {
        elastico_core::mean(&group.iter().map(|residual| (offset - residual).exp()).collect::<Vec<_>>())
    };
    let excess: Vec<f64> = groups.iter().zip(&offsets).map(excess).collect();
    Calibration {
        level,
        offset_log,
        achieved_coverage: elastico_core::mean(&coverage),
        coverage_interval: crate::metrics::mean_interval(&coverage, elastico_core::Seed(0)),
        bound_over_measured: elastico_core::mean(&excess),
        least_coverage: coverage.iter().copied().fold(1.0, f64::min),
        groups_total: groups.len() as u64,
        guaranteed_level: level * groups.len() as f64 / (groups.len() as f64 + 1.0),
    }
}

/// Of each group the offset of the others.
fn held_offsets(groups: &[Vec<f64>], level: f64) -> Vec<f64> {
    if groups.len() < 2 {
        return groups.iter().map(|_| offset_of_groups(groups, level)).collect();
    }
    (0..groups.len())
        .map(|held| {
            let others: Vec<&Vec<f64>> =
                groups.iter().enumerate().filter(|(index, _)| *index != held).map(|(_, g)| g).collect();
            offset(&others, level)
        })
        .collect()
}

/// The offset of the upper bound of such groups of log residuals.
pub(crate) fn offset_of_groups(groups: &[Vec<f64>], level: f64) -> f64 {
    offset(&groups.iter().collect::<Vec<_>>(), level)
}

fn covered(residuals: &[f64], offset: f64) -> f64 {
    residuals.iter().filter(|residual| **residual <= offset).count() as f64 / residuals.len() as f64
}

/// The weighted quantile of the residuals, each group with the same mass.
fn offset(groups: &[&Vec<f64>], level: f64) -> f64 {
    let mass = 1.0 / groups.len() as f64;
    let mut weighted: Vec<(f64, f64)> = groups
        .iter()
        .flat_map(|group| group.iter().map(|residual| (*residual, mass / group.len() as f64)))
        .collect();
    weighted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut reached = 0.0;
    // The tolerance absorbs the rounding of the sum, not a share of a row.
    let found = weighted.iter().find(|(_, weight)| {
        reached += weight;
        reached >= level - 1e-9
    });
    let residual = found.or(weighted.last()).map_or(0.0, |(residual, _)| *residual);
    residual.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::Seed;
    use proptest::prelude::*;

    #[test]
    fn few_families_promise_less() {
        let groups = vec![vec![0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]];
        let calibration = of_groups(&groups, 0.9);
        assert_eq!((calibration.offset_log, calibration.guaranteed_level), (0.8, 0.45));
        let ten: Vec<Vec<f64>> = (0..10).map(|index| vec![f64::from(index) / 10.0]).collect();
        let calibration = of_groups(&ten, 0.9);
        assert!((calibration.offset_log - 0.8).abs() < 1e-12);
        assert!((calibration.guaranteed_level - 9.0 / 11.0).abs() < 1e-12);
    }

    #[test]
    fn a_new_family_is_covered_as_often_as_promised() {
        // Families differ in their offset, rows of one family are alike: the case where row-wise conformal fails.
        let mut stream = Seed(7).stream("test", &[]);
        let mut family = || {
            let shift: f64 = stream.random::<f64>() + stream.random::<f64>();
            (0..20).map(|_| shift + 0.1 * stream.random::<f64>()).collect::<Vec<f64>>()
        };
        let trials = 400;
        let coverage: f64 = (0..trials)
            .map(|_| {
                let groups: Vec<Vec<f64>> = (0..12).map(|_| family()).collect();
                covered(&family(), of_groups(&groups, 0.9).offset_log)
            })
            .sum::<f64>()
            / f64::from(trials);
        // Twelve families promise 0.9 · 12/13; what they reach on average lies between that and the level.
        assert!((0.83..0.93).contains(&coverage), "{coverage}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]
        #[test]
        fn the_offset_covers_what_it_was_made_from(
            groups in proptest::collection::vec(proptest::collection::vec(-1.0_f64..1.0, 1..20), 1..15),
            level in 0.6_f64..0.99,
        ) {
            let calibration = of_groups(&groups, level);
            let share = groups.iter().map(|group| covered(group, calibration.offset_log)).sum::<f64>()
                / groups.len() as f64;
            prop_assert!(share >= level - 1e-6);
            prop_assert!(calibration.offset_log >= 0.0);
            prop_assert!((0.0..=1.0).contains(&calibration.achieved_coverage));
        }
    }

    #[test]
    fn levels_outside_the_range_are_refused() {
        for level in [0.5, 1.0, f64::NAN] {
            assert!(check_level(level).is_err());
        }
    }
}
