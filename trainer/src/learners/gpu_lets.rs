//! The interference model of gpu-lets (Choi et al., ATC 2022, section 4.3).

use super::fitted::Linear;
use super::least_squares::Normal;
use super::{Fitted, Learner, LearnerOptions, Training};
use crate::Error;
use elastico_core::Seed;

/// slowdown = c₁·L2ₛ + c₂·L2_c + c₃·DRAMₛ + c₄·DRAM_c + c₅ by least squares, where each utilisation is that of the isolated
/// run times the share of the SMs that the side is left.
pub(crate) struct GpuLets;

/// The line over utilisation times share.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Interference {
    /// Utilisation, share and coefficient.
    terms: Vec<(usize, Option<usize>, f64)>,
    bias: f64,
}

impl Interference {
    pub(crate) fn predict(&self, row: &[f32]) -> f64 {
        let sum: f64 = self
            .terms
            .iter()
            .map(|(column, share, weight)| {
                f64::from(row[*column]) * share.map_or(1.0, |share| f64::from(row[share])) * weight
            })
            .sum();
        (sum + self.bias).max(1.0).ln()
    }
}

impl Learner for GpuLets {
    fn fit(&self, training: &Training<'_>, options: &LearnerOptions, _: Seed) -> Result<Fitted, Error> {
        let refuse = |reason: String| Error::Learner { learner: "gpu_lets", reason };
        let column = |name: &str| training.names.iter().position(|known| known == name);
        let mut columns = Vec::new();
        for counter in ["l2_throughput_ratio", "dram_throughput_ratio"] {
            for side in ["subject", "co_runner"] {
                let name = format!("{side}_{counter}");
                let found = column(&name).ok_or_else(|| {
                    refuse(format!(
                        "it needs the L2 and DRAM throughput of both sides, and `{name}` is not a feature here"
                    ))
                })?;
                // A share that never varies is no feature; a common factor goes into the coefficient.
                columns.push((found, column(&format!("{side}_share_ratio"))));
            }
        }
        let mut normal = Normal::new(columns.len() + 1);
        let mut terms = vec![1.0; columns.len() + 1];
        for (index, row) in training.features.iter().enumerate() {
            for (term, (column, share)) in terms.iter_mut().zip(&columns) {
                *term = f64::from(row[*column]) * share.map_or(1.0, |share| f64::from(row[share]));
            }
            normal.add(&terms, training.target[index].exp(), training.weight(index));
        }
        let ridge = options.gpu_lets.ridge * training.features.rows() as f64;
        let mut found = normal
            .solve(ridge)
            .ok_or_else(|| refuse("its four utilisations depend on each other on these rows".to_owned()))?;
        let bias = found.pop().unwrap_or(1.0);
        if columns.iter().all(|(_, share)| share.is_none()) {
            let terms: Vec<(usize, f64)> =
                columns.iter().zip(found).map(|((column, _), weight)| (*column, weight)).collect();
            return Ok(Fitted::Linear(Linear::formula(training.features.width, bias, &terms)));
        }
        let terms =
            columns.into_iter().zip(found).map(|((column, share), weight)| (column, share, weight)).collect();
        Ok(Fitted::Interference(Interference { terms, bias }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learners::tests::Table;

    const NAMES: [&str; 6] = [
        "subject_l2_throughput_ratio",
        "co_runner_l2_throughput_ratio",
        "subject_dram_throughput_ratio",
        "co_runner_dram_throughput_ratio",
        "subject_share_ratio",
        "co_runner_share_ratio",
    ];

    #[test]
    fn the_coefficients_are_found_with_and_without_shares() {
        let law = |row: &[f32], subject: f32, co_runner: f32| {
            let sum = 0.2 * row[0] * subject
                + 0.4 * row[1] * co_runner
                + 0.1 * row[2] * subject
                + 0.6 * row[3] * co_runner;
            (1.05 + f64::from(sum)).ln()
        };
        let shared = Table::random(300, &NAMES, |row| law(row, row[4], row[5]));
        let full = Table::random(300, &NAMES[..4], |row| law(row, 1.0, 1.0));
        for table in [&shared, &full] {
            let fitted = GpuLets.fit(&table.training(), &LearnerOptions::default(), Seed(1)).unwrap();
            for (found, wanted) in fitted.predict(&table.training()).iter().zip(&table.target) {
                assert!((found - wanted).abs() < 1e-5);
            }
            assert_eq!(matches!(fitted, Fitted::Linear(_)), table.names.len() == 4);
        }
    }

    #[test]
    fn the_counter_that_is_missing_is_named() {
        let table = Table::random(20, &NAMES[..3], |_| 0.1);
        let error = GpuLets.fit(&table.training(), &LearnerOptions::default(), Seed(1)).unwrap_err();
        assert!(error.to_string().contains("`co_runner_dram_throughput_ratio`"), "{error}");
    }
}
