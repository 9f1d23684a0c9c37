//! Small least-squares problems over normal equations.

use linfa_linalg::cholesky::SolveCInplace as _;
use ndarray::{Array1, Array2, Axis};

/// Sums of products of the columns of a design with each other and with the target: all that least squares needs.
#[derive(Debug, Clone)]
pub(crate) struct Normal {
    /// AᵀWA.
    pub(crate) gram: Array2<f64>,
    /// AᵀWb.
    pub(crate) moment: Array1<f64>,
}

impl Normal {
    pub(crate) fn new(width: usize) -> Self {
        Self { gram: Array2::zeros((width, width)), moment: Array1::zeros(width) }
    }

    /// Adds one row of the design with its target and weight.
    pub(crate) fn add(&mut self, row: &[f64], target: f64, weight: f64) {
        for (i, a) in row.iter().enumerate() {
            let scaled = weight * a;
            self.moment[i] += scaled * target;
            for (j, b) in row[..=i].iter().enumerate() {
                self.gram[(i, j)] += scaled * b;
            }
        }
    }

    /// Least squares over the columns in `active` with an L2 penalty; `None` where they are dependent.
    fn solve_over(&self, active: &[usize], ridge: f64) -> Option<Vec<f64>> {
        let at = |i: usize, j: usize| self.gram[(active[i.max(j)], active[i.min(j)])];
        let mut gram = Array2::from_shape_fn((active.len(), active.len()), |(i, j)| {
            at(i, j) + if i == j { ridge } else { 0.0 }
        });
        let moment = Array1::from_iter(active.iter().map(|column| self.moment[*column]));
        let found = gram.solvec_into(moment.insert_axis(Axis(1))).ok()?;
        found.iter().all(|value| value.is_finite()).then(|| found.iter().copied().collect())
    }

    /// argmin ‖A·x − b‖² + ridge·‖x‖².
    pub(crate) fn solve(&self, ridge: f64) -> Option<Vec<f64>> {
        self.solve_over(&(0..self.moment.len()).collect::<Vec<_>>(), ridge)
    }

    /// argmin ‖A·x − b‖² over x ≥ 0: the active-set method of Lawson & Hanson (1974, chapter 23), on columns of unit
    /// length so that a tolerance means the same for each.
    pub(crate) fn solve_non_negative(&self) -> Vec<f64> {
        let width = self.moment.len();
        let length: Vec<f64> = (0..width).map(|i| self.gram[(i, i)].sqrt()).collect();
        let unit = Self {
            gram: Array2::from_shape_fn((width, width), |(i, j)| {
                let product = length[i] * length[j];
                if product > 0.0 { self.gram[(i, j)] / product } else { 0.0 }
            }),
            moment: Array1::from_shape_fn(width, |i| {
                if length[i] > 0.0 { self.moment[i] / length[i] } else { 0.0 }
            }),
        };
        let scaled = unit.active_set();
        scaled.iter().zip(&length).map(|(x, length)| if *length > 0.0 { x / length } else { 0.0 }).collect()
    }

    fn active_set(&self) -> Vec<f64> {
        const TOLERANCE: f64 = 1e-10;
        // Dependent columns share what one of them would take; columns have unit length here.
        const RIDGE: f64 = 1e-12;
        let width = self.moment.len();
        let largest = self.moment.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let mut x = vec![0.0; width];
        let mut active: Vec<usize> = Vec::new();
        let mut barred = vec![false; width];
        // Each pass strictly lowers the residual, so that no active set occurs twice; the bound is for rounding.
        for _ in 0..30 * width.max(1) {
            let gradient = |column: usize| {
                let product: f64 = active
                    .iter()
                    .map(|&other| self.gram[(column.max(other), column.min(other))] * x[other])
                    .sum();
                self.moment[column] - product
            };
            let entering = (0..width)
                .filter(|column| !active.contains(column) && !barred[*column])
                .map(|column| (gradient(column), column))
                .filter(|(slope, _)| *slope > TOLERANCE * largest)
                .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            let Some((_, column)) = entering else { break };
            active.push(column);
            active.sort_unstable();
            loop {
                let Some(wanted) = self.solve_over(&active, RIDGE) else {
                    active.retain(|other| *other != column);
                    x[column] = 0.0;
                    barred[column] = true;
                    break;
                };
                let blocking: Vec<usize> = (0..active.len()).filter(|&index| wanted[index] <= 0.0).collect();
                if blocking.is_empty() {
                    for (other, value) in active.iter().zip(&wanted) {
                        x[*other] = *value;
                    }
                    break;
                }
                let step = blocking
                    .iter()
                    .map(|&index| {
                        let here = x[active[index]];
                        here / (here - wanted[index])
                    })
                    .fold(1.0_f64, f64::min);
                for (index, other) in active.iter().enumerate() {
                    x[*other] += step * (wanted[index] - x[*other]);
                }
                // The one that blocks first leaves, and with it what rounding brought down to 0.
                let before = active.len();
                active.retain(|other| x[*other] > 1e-14);
                if active.len() == before {
                    break;
                }
                for (other, value) in x.iter_mut().enumerate() {
                    if !active.contains(&other) {
                        *value = 0.0;
                    }
                }
            }
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn normal(rows: &[Vec<f64>], target: &[f64]) -> Normal {
        let mut normal = Normal::new(rows[0].len());
        for (row, target) in rows.iter().zip(target) {
            normal.add(row, *target, 1.0);
        }
        normal
    }

    #[test]
    fn a_case_done_by_hand() {
        // Without bounds x = (2, -1); with x₂ ≥ 0 the best is the projection on the first column: 3/2.
        let rows = [vec![1.0, 0.0], vec![1.0, 1.0]];
        let normal = normal(&rows, &[2.0, 1.0]);
        let free = normal.solve(0.0).unwrap();
        assert!((free[0] - 2.0).abs() < 1e-12 && (free[1] + 1.0).abs() < 1e-12);
        let bound = normal.solve_non_negative();
        assert!((bound[0] - 1.5).abs() < 1e-9 && bound[1].abs() < 1e-12, "{bound:?}");
    }

    #[test]
    fn dependent_and_empty_columns_do_no_harm() {
        let rows: Vec<Vec<f64>> = (1..6).map(|x| vec![f64::from(x), 2.0 * f64::from(x), 0.0]).collect();
        let target: Vec<f64> = (1..6).map(|x| 3.0 * f64::from(x)).collect();
        let x = normal(&rows, &target).solve_non_negative();
        assert!((x[0] + 2.0 * x[1] - 3.0).abs() < 1e-9 && x[2].abs() < 1e-12, "{x:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]
        /// The conditions of Karush, Kuhn and Tucker: where x is 0 the slope may not be positive, elsewhere it is 0.
        #[test]
        fn the_solution_is_optimal(
            rows in proptest::collection::vec(proptest::collection::vec(-1.0_f64..1.0, 5), 8..30),
            truth in proptest::collection::vec(-1.0_f64..1.0, 5),
        ) {
            let target: Vec<f64> =
                rows.iter().map(|row| row.iter().zip(&truth).map(|(a, b)| a * b).sum()).collect();
            let normal = normal(&rows, &target);
            let x = normal.solve_non_negative();
            for column in 0..5 {
                let slope: f64 = rows
                    .iter()
                    .zip(&target)
                    .map(|(row, target)| {
                        let found: f64 = row.iter().zip(&x).map(|(a, b)| a * b).sum();
                        row[column] * (target - found)
                    })
                    .sum();
                prop_assert!(x[column] >= 0.0);
                prop_assert!(slope < 1e-6, "{slope}");
                prop_assert!(x[column] <= 1e-12 || slope.abs() < 1e-6, "{slope}");
            }
        }
    }
}
