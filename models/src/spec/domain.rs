//! Medians and ranges of training rows: what imputes, and the box of the domain.

use crate::Error;

/// A value may lie outside the training range by this share of the range and still count as inside.
pub const DOMAIN_TOLERANCE_RATIO: f32 = 0.05;

/// Medians and ranges of training rows; see [`fit_domain`].
#[derive(Debug, Clone, PartialEq)]
pub struct Domain {
    /// Median of the present values; 0 for a column without any.
    pub impute: Vec<f32>,
    /// Least present value.
    pub lower: Vec<f32>,
    /// Largest present value.
    pub upper: Vec<f32>,
    /// Whether a value was missing.
    pub missing: Vec<bool>,
}

impl Domain {
    /// Whether each value of a raw row lies within its range, widened by [`DOMAIN_TOLERANCE_RATIO`]; a missing value does
    /// exactly where one was missing before. It is what a model file computes, but for its distance.
    ///
    /// # Panics
    /// Where the row has more values than the domain has columns.
    pub fn contains(&self, row: &[f32]) -> bool {
        row.iter().enumerate().all(|(column, value)| {
            let (lower, upper) = widened(self.lower[column], self.upper[column]);
            if value.is_nan() { self.missing[column] } else { *value >= lower && *value <= upper }
        })
    }
}

/// A range with its tolerance, within what the graph can hold.
pub(crate) fn widened(lower: f32, upper: f32) -> (f32, f32) {
    let slack = ((upper - lower) * DOMAIN_TOLERANCE_RATIO).max(lower.abs().max(upper.abs()) * 1e-6);
    ((lower - slack).max(-f32::MAX), (upper + slack).min(f32::MAX / 2.0))
}

/// Medians and ranges of the columns of row-major training rows; NaN = missing.
pub fn fit_domain(rows: &[f32], width: usize) -> Result<Domain, Error> {
    if width == 0 || rows.is_empty() || !rows.len().is_multiple_of(width) {
        return Err(Error::Rows { length: rows.len(), width });
    }
    let mut domain = Domain { impute: Vec::new(), lower: Vec::new(), upper: Vec::new(), missing: Vec::new() };
    for column in 0..width {
        let mut values: Vec<f32> = rows.iter().copied().skip(column).step_by(width).collect();
        if let Some(row) = values.iter().position(|value| value.is_infinite()) {
            return Err(Error::RowValue { row, feature: format!("feature {column}") });
        }
        let total = values.len();
        values.retain(|value| !value.is_nan());
        values.sort_unstable_by(f32::total_cmp);
        domain.missing.push(values.len() < total);
        domain.impute.push(values.get(values.len() / 2).copied().unwrap_or(0.0));
        domain.lower.push(values.first().copied().unwrap_or(0.0));
        domain.upper.push(values.last().copied().unwrap_or(0.0));
    }
    Ok(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_ranges_and_missing_columns() {
        let nan = f32::NAN;
        let domain = fit_domain(&[1.0, nan, 3.0, nan, 2.0, nan], 2).unwrap();
        assert_eq!(domain.impute, [2.0, 0.0]);
        assert_eq!((domain.lower[0], domain.upper[0]), (1.0, 3.0));
        assert_eq!(domain.missing, [false, true]);
        assert!(
            domain.contains(&[3.05, nan]) && !domain.contains(&[3.2, nan]) && !domain.contains(&[nan, nan])
        );
        assert!(matches!(fit_domain(&[1.0, 2.0, 3.0], 2), Err(Error::Rows { length: 3, width: 2 })));
        assert!(matches!(fit_domain(&[1.0, f32::INFINITY], 1), Err(Error::RowValue { row: 1, .. })));
    }
}
