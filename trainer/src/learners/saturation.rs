//! The saturation formula: a workload is slowed where a resource is asked for more than it has, and by what else the
//! co-runner presses on.

use super::fitted::Linear;
use super::least_squares::Normal;
use super::{Fitted, Learner, LearnerOptions, Training};
use crate::Error;
use elastico_core::Seed;

/// slowdown = 1 + Σ wᵣ · max(sᵣ + cᵣ − 1, 0) + Σ vₚ · cₚ with w, v ≥ 0, in the manner of roofline models and of the
/// contention terms of iGniter (Xu et al., TPDS 2023).
///
/// Weighted non-negative least squares. The interval of a row is one of its logarithm, so the weight is divided by the
/// square of the slowdown.
pub(crate) struct Saturation;

/// Whether a feature is the saturation of a resource or a bounded pressure of the co-runner.
fn is_term(name: &str) -> bool {
    name.ends_with("_saturation_ratio")
        || (name.starts_with("co_runner_")
            && (name.ends_with("_active_ratio") || name.ends_with("_throughput_ratio")))
}

impl Learner for Saturation {
    fn fit(&self, training: &Training<'_>, _: &LearnerOptions, _: Seed) -> Result<Fitted, Error> {
        let columns: Vec<usize> =
            (0..training.names.len()).filter(|&column| is_term(&training.names[column])).collect();
        if columns.is_empty() {
            return Err(Error::Learner {
                learner: "saturation",
                reason: "no feature says how busy a resource is: there are no hardware counters".to_owned(),
            });
        }
        let mut normal = Normal::new(columns.len());
        let mut terms = vec![0.0; columns.len()];
        for (index, row) in training.features.iter().enumerate() {
            for (term, column) in terms.iter_mut().zip(&columns) {
                *term = f64::from(row[*column]);
            }
            let slowdown = training.target[index].exp();
            normal.add(&terms, slowdown - 1.0, training.weight(index) / slowdown.powi(2));
        }
        let weights = normal.solve_non_negative();
        let terms: Vec<(usize, f64)> = columns.into_iter().zip(weights).collect();
        Ok(Fitted::Linear(Linear::formula(training.features.width, 1.0, &terms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learners::tests::Table;

    #[test]
    fn the_law_that_made_the_rows_is_found() {
        let table = Table::random(
            300,
            &["sm_active_saturation_ratio", "co_runner_dram_throughput_ratio", "subject_batch_total"],
            |row| f64::from(1.0 + 0.8 * row[0] + 0.3 * row[1]).ln(),
        );
        let fitted = Saturation.fit(&table.training(), &LearnerOptions::default(), Seed(1)).unwrap();
        let Fitted::Linear(linear) = fitted else { panic!("not linear") };
        for (found, wanted) in linear.weights.iter().zip([0.8, 0.3, 0.0]) {
            assert!((found - wanted).abs() < 1e-5, "{:?}", linear.weights);
        }
    }

    #[test]
    fn without_counters_it_says_so() {
        let table = Table::random(10, &["subject_batch_total"], |_| 0.1);
        let error = Saturation.fit(&table.training(), &LearnerOptions::default(), Seed(1)).unwrap_err();
        assert!(error.to_string().contains("no hardware counters"), "{error}");
    }
}
