//! How far a forest is believed about a family that it does not know.

use super::fitted::ShrunkFit;
use super::select::Part;
use super::{Fitted, Training};
use crate::{Error, Split};
use elastico_core::{Seed, mean, sample_deviation};

/// Most folds by which the factor is found.
const FOLDS: usize = 5;

/// Draws a fit toward the mean for rows of unknown families, by the factor that held-out families of the training rows
/// show to be right. Rows of two known families keep their prediction.
///
/// Families are known by their indicators, so without such features, or with too few families to hold one out, the fit
/// comes back as it is. `rehearse` fits the same on a part of the rows, as small as it likes.
pub(crate) fn shrunk(
    base: Fitted,
    training: &Training<'_>,
    seed: Seed,
    rehearse: impl Fn(&Training<'_>) -> Result<Fitted, Error>,
) -> Result<Fitted, Error> {
    let families = known_families(training);
    let Ok(folds) = Split::UnseenFamily.folds(training.groups, FOLDS, seed) else { return Ok(base) };
    if families.is_empty() || folds.iter().any(|fold| fold.train.is_empty()) {
        return Ok(base);
    }
    let mut held = Vec::new();
    for fold in &folds {
        let (train, test) = (Part::of(training, &fold.train), Part::of(training, &fold.test));
        let train = train.training(training);
        let center = harmonic_mean(&train);
        let test = test.training(training);
        let predicted = rehearse(&train)?.predict(&test);
        held.push(
            predicted.into_iter().zip(test.target).map(|(log, target)| (center, log, *target)).collect(),
        );
    }
    let center = harmonic_mean(training);
    Ok(Fitted::Shrunk(Box::new(ShrunkFit { base, families, center, factor: cautious_factor(&held) })))
}

/// The least factor whose MAPE is not above that of the best by more than the standard error of their difference over the
/// folds (the one-standard-error rule of Breiman et al. 1984, section 3.4.3, paired): with few families, what looks like
/// knowledge is mostly chance. Rows are (mean, prediction, measured), all logarithms.
fn cautious_factor(held: &[Vec<(f64, f64, f64)>]) -> f64 {
    const STEPS: u32 = 20;
    let folds: Vec<&Vec<(f64, f64, f64)>> = held.iter().filter(|rows| !rows.is_empty()).collect();
    if folds.len() < 2 {
        return 0.0;
    }
    let errors = |factor: f64| -> Vec<f64> {
        let of_row = |(center, log, target): &(f64, f64, f64)| {
            ((center + factor * (log - center) - target).exp() - 1.0).abs()
        };
        folds.iter().map(|rows| mean(&rows.iter().map(of_row).collect::<Vec<_>>())).collect()
    };
    let tried: Vec<(f64, Vec<f64>)> = (0..=STEPS)
        .map(|step| f64::from(step) / f64::from(STEPS))
        .map(|factor| (factor, errors(factor)))
        .collect();
    let Some((_, best)) = tried.iter().min_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1))) else { return 0.0 };
    let is_as_good = |(_, errors): &&(f64, Vec<f64>)| {
        let excess: Vec<f64> = errors.iter().zip(best).map(|(error, best)| error - best).collect();
        mean(&excess) <= sample_deviation(&excess) / (excess.len() as f64).sqrt()
    };
    tried.iter().find(is_as_good).map_or(0.0, |(factor, _)| *factor)
}

/// Columns of the families that occur in the rows: the indicator of a family that was held out stands there too, but 0
/// throughout.
fn known_families(training: &Training<'_>) -> Vec<usize> {
    (0..training.names.len())
        .filter(|&column| training.names[column].contains("_family="))
        .filter(|&column| training.features.iter().any(|row| row[column] > 0.0))
        .collect()
}

/// Log of the harmonic mean of the slowdowns: the mean of normalized throughput, as the forests have it.
fn harmonic_mean(training: &Training<'_>) -> f64 {
    let (sum, total) = training.target.iter().enumerate().fold((0.0, 0.0), |(sum, total), (row, target)| {
        let weight = training.weight(row);
        (sum + weight * (-target).exp(), total + weight)
    });
    -(sum / total).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learners::tests::Table;
    use crate::learners::{LearnerKind, LearnerOptions};

    #[test]
    fn predictions_that_hold_are_believed_and_others_are_not() {
        let rows = |law: &dyn Fn(f64) -> f64| -> Vec<(f64, f64, f64)> {
            (0..9).map(|x| 0.1 * f64::from(x)).map(|x| (0.4, x, law(x))).collect()
        };
        let (right, wrong) = (rows(&|x| x), rows(&|x| 0.8 - x));
        assert!(cautious_factor(&[right.clone(), right.clone(), right.clone()]) > 0.9);
        assert!(cautious_factor(&[wrong.clone(), wrong.clone()]).abs() < 1e-12);
        assert!(cautious_factor(&[right.clone(), wrong]).abs() < 1e-12, "they disagree");
        assert!(cautious_factor(&[right]).abs() < 1e-12, "one family proves nothing");
    }

    /// Four families whose slowdown is a matter of chance: nothing carries over from one to another.
    #[test]
    fn an_unknown_family_gets_the_mean_where_nothing_carries_over() {
        let names = ["subject_family=a", "subject_family=b", "subject_family=c", "subject_family=d"];
        let level = [0.0, 0.9, 0.1, 0.7];
        let rows = 200;
        let values = (0..rows)
            .flat_map(|row| (0..4).map(move |family| f32::from(u8::from(row % 4 == family))))
            .collect();
        let target = (0..rows).map(|row| level[row % 4]).collect();
        let mut table = Table::of(&names, values, target);
        table.groups.subject_family = (0..rows as u32).map(|row| row % 4).collect();
        table.groups.co_runner_family.clone_from(&table.groups.subject_family);
        // Both sides are of one family here, so each indicator stands twice.
        table.names.push("co_runner_family=a".to_owned());
        let mut options = LearnerOptions::default();
        options.extra_trees.shrink = true;
        let mut widened = Vec::new();
        for row in table.features.iter() {
            widened.extend_from_slice(row);
            widened.push(1.0);
        }
        table.features = crate::matrix::Matrix::new(5, widened);
        let fitted = LearnerKind::ExtraTrees.learner().fit(&table.training(), &options, Seed(1)).unwrap();
        let Fitted::Shrunk(shrunk) = &fitted else { panic!("not shrunk") };
        assert!(shrunk.factor < 0.2, "{}", shrunk.factor);
        let known = fitted.predict(&table.training());
        assert!(
            known.iter().zip(&table.target).all(|(log, target)| (log - target).abs() < 0.01),
            "{known:?}"
        );
    }
}
