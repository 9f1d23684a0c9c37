//! Means and paired comparisons over traces.

use elastico_core::{Estimate, mean};
use serde::Serialize;

/// Coverage of the intervals.
const LEVEL: f64 = 0.95;

/// A number over several traces with its 95 % interval (Student's t); the traces are the independent units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The mean; of ratios the geometric one.
    pub point: f64,
    /// Lower end; null for one trace, or where a ratio is 0.
    pub lower: Option<f64>,
    /// Upper end; null for one trace, or where a ratio is 0.
    pub upper: Option<f64>,
    /// Traces behind it.
    pub n: usize,
}

impl Interval {
    /// The mean of values, or of paired differences. `None` for no values.
    pub(crate) fn arithmetic(values: &[f64]) -> Option<Self> {
        let estimate = Estimate::arithmetic(values, LEVEL);
        Self::of(values, mean(values), estimate)
    }

    /// As [`Self::arithmetic`], of a quantity that cannot be below 0: its interval neither is, unless a value is.
    pub(crate) fn not_negative(values: &[f64]) -> Option<Self> {
        let mut interval = Self::arithmetic(values)?;
        if values.iter().all(|value| *value >= 0.0) {
            interval.lower = interval.lower.map(|lower| lower.max(0.0));
        }
        Some(interval)
    }

    /// The geometric mean of positive ratios, with its interval from their logarithms. `None` for no values, or where one is
    /// no ratio.
    pub(crate) fn geometric(ratios: &[f64]) -> Option<Self> {
        if ratios.iter().any(|ratio| !(ratio.is_finite() && *ratio > 0.0)) {
            return None;
        }
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        Self::of(ratios, mean(&logs).exp(), Estimate::geometric(ratios, LEVEL))
    }

    fn of(values: &[f64], point: f64, estimate: Option<Estimate>) -> Option<Self> {
        (!values.is_empty()).then(|| Self {
            point,
            lower: estimate.map(|estimate| estimate.lower),
            upper: estimate.map(|estimate| estimate.upper),
            n: values.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_t_distribution() {
        // R: t.test(c(1, 2, 4))$conf.int is -1.461250 to 6.127917.
        let found = Interval::arithmetic(&[1.0, 2.0, 4.0]).unwrap();
        assert!((found.lower.unwrap() + 1.461_250).abs() < 1e-5, "{found:?}");
        assert!((found.upper.unwrap() - 6.127_917).abs() < 1e-5, "{found:?}");
        let seconds = Interval::not_negative(&[1.0, 2.0, 4.0]).unwrap();
        assert_eq!((seconds.lower, seconds.upper), (Some(0.0), found.upper));
        let ratio = Interval::geometric(&[0.5, 2.0]).unwrap();
        assert!((ratio.point - 1.0).abs() < 1e-12 && ratio.lower.unwrap() < 0.5);
        let one = Interval::geometric(&[3.0]).unwrap();
        assert!((one.point - 3.0).abs() < 1e-12);
        assert_eq!((one.lower, one.n), (None, 1));
        assert!(Interval::geometric(&[]).is_none() && Interval::geometric(&[1.0, 0.0]).is_none());
    }
}
