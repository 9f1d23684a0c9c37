//! Choosing a learner and its settings inside the training part, by grouped cross-validation.

use super::{Fitted, LearnerKind, LearnerOptions, Training};
use crate::matrix::Matrix;
use crate::{Error, Split};
use elastico_core::Seed;

/// What was chosen, and by what.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// Never [`LearnerKind::Auto`].
    pub(crate) learner: LearnerKind,
    /// Its settings, without others to choose from.
    pub(crate) options: LearnerOptions,
    /// Everyone that was compared, in the order of the comparison; empty where there was no choice.
    pub(crate) tried: Vec<Tried>,
    /// How rows were held out for the comparison; absent where there was no choice.
    pub(crate) split: Option<Split>,
}

/// One of those that were compared.
#[derive(Debug, Clone)]
pub(crate) struct Tried {
    pub(crate) learner: LearnerKind,
    pub(crate) options: LearnerOptions,
    /// MAPE over the held-out rows, or why there is none.
    pub(crate) mape: Result<f64, String>,
}

impl Choice {
    pub(crate) fn fit(&self, training: &Training<'_>, seed: Seed) -> Result<Fitted, Error> {
        self.learner.learner().fit(training, &self.options, seed)
    }

    /// Who was compared with what result, for metadata and cards; nothing where there was no choice.
    pub(crate) fn sentence(&self) -> Option<String> {
        let split = self.split?;
        // A setting that is the same for all says nothing here.
        let varies = |name: &str, value: &str, learner| {
            let same =
                |tried: &Tried| tried.options.describe(learner).get(name).is_some_and(|other| other == value);
            !self.tried.iter().filter(|tried| tried.learner == learner).all(same)
        };
        let entries: Vec<String> = self
            .tried
            .iter()
            .map(|tried| {
                let settings: Vec<String> = tried
                    .options
                    .describe(tried.learner)
                    .into_iter()
                    .filter(|(name, value)| varies(name, value, tried.learner))
                    .map(|(name, value)| format!(" {name}={value}"))
                    .collect();
                let result = match &tried.mape {
                    Ok(mape) => format!("{:.2} %", 100.0 * mape),
                    Err(reason) => reason.clone(),
                };
                format!("{}{}: {result}", tried.learner, settings.concat())
            })
            .collect();
        Some(format!("by MAPE on {split} folds of the training rows, of {}", entries.join(", ")))
    }
}

/// Those that a kind stands for: itself with each of its settings, or for `auto` every candidate with each of theirs.
fn contenders(kind: LearnerKind, options: &LearnerOptions) -> Vec<(LearnerKind, LearnerOptions)> {
    let kinds = if kind == LearnerKind::Auto { options.candidates.clone() } else { vec![kind] };
    kinds
        .into_iter()
        .flat_map(|kind| options.variants_of(kind).into_iter().map(move |options| (kind, options)))
        .collect()
}

/// Chooses by the MAPE on held-out families of the training rows, on held-out pairs where there is one family. Of equals
/// the first is taken.
///
/// Medians for missing values are those of all training rows; no label of a held-out row is seen.
pub(crate) fn choose(
    kind: LearnerKind,
    training: &Training<'_>,
    options: &LearnerOptions,
    seed: Seed,
) -> Result<Choice, Error> {
    let mut contenders = contenders(kind, options);
    if contenders.len() == 1
        && let Some((learner, options)) = contenders.pop()
    {
        return Ok(Choice { learner, options, tried: Vec::new(), split: None });
    }
    let refuse = |reason: String| Error::Learner { learner: kind.as_str(), reason };
    let (split, folds) = [Split::UnseenFamily, Split::RandomPair]
        .into_iter()
        .find_map(|split| Some((split, split.folds(training.groups, options.inner_folds, seed).ok()?)))
        .ok_or_else(|| {
            refuse("nothing can be held out of these rows to choose by: a single pair".to_owned())
        })?;
    let mut sums: Vec<Result<f64, String>> = vec![Ok(0.0); contenders.len()];
    let mut count = 0.0;
    for fold in &folds {
        let train = Part::of(training, &fold.train);
        let test = Part::of(training, &fold.test);
        count += fold.test.len() as f64;
        for ((learner, options), sum) in contenders.iter().zip(&mut sums) {
            let Ok(so_far) = sum else { continue };
            match learner.learner().fit(&train.training(training), options, seed) {
                Ok(fitted) => {
                    let predicted = fitted.predict(&test.training(training));
                    *so_far += predicted
                        .iter()
                        .zip(&test.target)
                        .map(|(predicted, target)| ((predicted - target).exp() - 1.0).abs())
                        .sum::<f64>();
                }
                Err(error) => *sum = Err(error.to_string()),
            }
        }
    }
    let tried: Vec<Tried> = contenders
        .into_iter()
        .zip(sums)
        .map(|((learner, options), sum)| Tried { learner, options, mape: sum.map(|sum| sum / count) })
        .collect();
    let best = tried
        .iter()
        .filter_map(|tried| Some((tried, *tried.mape.as_ref().ok()?)))
        .filter(|(_, mape)| mape.is_finite())
        .min_by(|a, b| a.1.total_cmp(&b.1));
    let Some((best, _)) = best else {
        let reasons: Vec<&str> =
            tried.iter().filter_map(|tried| tried.mape.as_ref().err()).map(String::as_str).collect();
        return Err(refuse(format!("no candidate can be fitted: {}", reasons.join("; "))));
    };
    let (learner, options) = (best.learner, best.options.clone());
    tracing::debug!(learner = learner.as_str(), candidates = tried.len(), "learner chosen");
    Ok(Choice { learner, options, tried, split: Some(split) })
}

/// Some rows of a training part.
/// Some of the training rows.
pub(super) struct Part {
    features: Matrix,
    target: Vec<f64>,
    weights: Option<Vec<f64>>,
    groups: crate::Groups,
}

impl Part {
    pub(super) fn of(training: &Training<'_>, rows: &[u32]) -> Self {
        let at = || rows.iter().map(|&row| row as usize);
        Self {
            features: Matrix::new(
                training.features.width,
                at().flat_map(|row| training.features.row(row)).copied().collect(),
            ),
            target: at().map(|row| training.target[row]).collect(),
            weights: training.weights.map(|weights| at().map(|row| weights[row]).collect()),
            groups: training.groups.subset(rows),
        }
    }

    pub(super) fn training<'a>(&'a self, whole: &Training<'a>) -> Training<'a> {
        Training {
            features: &self.features,
            target: &self.target,
            weights: self.weights.as_deref(),
            groups: &self.groups,
            ..*whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learners::ForestOptions;
    use crate::learners::tests::Table;

    /// A line over families that lie apart, so that a tree cannot follow to an unseen one.
    fn line() -> Table {
        let mut table = Table::random(300, &["subject_x_ratio", "subject_y_ratio"], |_| 0.0);
        for (index, row) in table.features.values.chunks_mut(2).enumerate() {
            let family = (index % 10) as f32;
            row[0] = family + 0.1 * row[1];
            table.target[index] = 0.2 * f64::from(row[0]);
            table.groups.subject_family[index] = family as u32;
            table.groups.co_runner_family[index] = family as u32;
        }
        table
    }

    #[test]
    fn what_extrapolates_is_chosen_where_families_lie_apart() {
        let table = line();
        let mut options = LearnerOptions {
            candidates: vec![LearnerKind::Mean, LearnerKind::ExtraTrees, LearnerKind::ElasticNet],
            ..LearnerOptions::default()
        };
        options.extra_trees.trees = 10;
        options.elastic_net.penalty = 1e-4;
        let choice = choose(LearnerKind::Auto, &table.training(), &options, Seed(1)).unwrap();
        assert_eq!((choice.learner, choice.split), (LearnerKind::ElasticNet, Some(Split::UnseenFamily)));
        assert_eq!(choice.tried.len(), 3);
    }

    #[test]
    fn of_several_settings_the_better_is_taken_and_one_is_no_choice() {
        let table = Table::random(200, &["a_ratio", "b_ratio"], |row| f64::from(row[0]));
        let of = |min_leaf| LearnerOptions {
            extra_trees: ForestOptions { min_leaf, trees: 10, ..ForestOptions::default() },
            ..LearnerOptions::default()
        };
        let mut options = of(1);
        let alone = choose(LearnerKind::ExtraTrees, &table.training(), &options, Seed(1)).unwrap();
        assert!(alone.tried.is_empty());
        options.variants.insert(LearnerKind::ExtraTrees, vec![of(90), of(2)]);
        let choice = choose(LearnerKind::ExtraTrees, &table.training(), &options, Seed(1)).unwrap();
        assert_eq!(choice.options.extra_trees.min_leaf, 2);
        assert_eq!(choice.tried.len(), 2);
    }

    #[test]
    fn where_no_candidate_fits_each_reason_is_given() {
        let table = Table::random(50, &["subject_batch_total"], |_| 0.1);
        let options = LearnerOptions {
            candidates: vec![LearnerKind::Saturation, LearnerKind::GpuLets],
            ..LearnerOptions::default()
        };
        let error = choose(LearnerKind::Auto, &table.training(), &options, Seed(1)).unwrap_err().to_string();
        assert!(error.contains("no hardware counters") && error.contains("L2 and DRAM"), "{error}");
    }
}
