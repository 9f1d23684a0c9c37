//! A number with its interval, and the few statistics behind it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A point with a two-sided interval and the number of independent values behind it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// The point estimate.
    pub point: f64,
    /// Lower end of the interval.
    pub lower: f64,
    /// Upper end of the interval.
    pub upper: f64,
    /// Nominal two-sided coverage, for example 0.95.
    pub level: f64,
    /// Independent values: repeats in fresh processes, not steps, since steps of one run are autocorrelated.
    pub n: u32,
}

impl Estimate {
    /// The geometric mean of positive ratios with Student's t interval on their logarithms.
    ///
    /// `None` for fewer than two values, or where one is not finite and above 0: one value has no interval.
    pub fn geometric(values: &[f64], level: f64) -> Option<Self> {
        if values.iter().any(|value| !(value.is_finite() && *value > 0.0)) {
            return None;
        }
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let on_logs = Self::arithmetic(&logs, level)?;
        Some(Self {
            point: on_logs.point.exp(),
            lower: on_logs.lower.exp(),
            upper: on_logs.upper.exp(),
            ..on_logs
        })
    }

    /// The mean with Student's t interval. `None` for fewer than two values, or where one is not finite.
    pub fn arithmetic(values: &[f64], level: f64) -> Option<Self> {
        if values.len() < 2 || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let point = mean(values);
        let standard_error = sample_deviation(values) / (values.len() as f64).sqrt();
        let half = student_t_quantile(f64::midpoint(1.0, level), (values.len() - 1) as f64) * standard_error;
        Some(Self { point, lower: point - half, upper: point + half, level, n: values.len() as u32 })
    }

    /// Half the width of the interval relative to the point.
    pub fn half_width_ratio(&self) -> f64 {
        (self.upper - self.lower) / (2.0 * self.point.abs())
    }

    /// Whether the interval holds `value`.
    pub fn contains(&self, value: f64) -> bool {
        self.lower <= value && value <= self.upper
    }

    /// Where the interval lies against a reference; never more than the noise supports.
    pub fn verdict(&self, reference: f64) -> Verdict {
        if self.lower > reference {
            Verdict::Above
        } else if self.upper < reference {
            Verdict::Below
        } else {
            Verdict::Undecided
        }
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = f.precision().unwrap_or(3);
        crate::text::pad(
            f,
            &format!("{:.precision$} [{:.precision$}, {:.precision$}]", self.point, self.lower, self.upper),
        )
    }
}

/// Where an interval lies against a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Wholly above it.
    Above,
    /// Wholly below it.
    Below,
    /// The interval holds it.
    Undecided,
}

/// The mean; `NaN` for no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sample standard deviation (n - 1); `NaN` for fewer than two values.
pub fn sample_deviation(values: &[f64]) -> f64 {
    let center = mean(values);
    let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
    (squares / (values.len() as f64 - 1.0)).sqrt()
}

/// The quantile `q` in 0..=1 with linear interpolation (type 7 of Hyndman & Fan 1996); `NaN` for no values.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    let position = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let (_, low, rest) = sorted.select_nth_unstable_by(below, f64::total_cmp);
    let low = *low;
    let high = rest.iter().copied().min_by(f64::total_cmp).unwrap_or(low);
    low + (high - low) * (position - below as f64)
}

/// The median; `NaN` for no values.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The quantile of Student's t distribution for `probability` in 0.5..1 and `freedom` >= 1, to about 1e-9.
///
/// Inverts the distribution by bisection; the distribution is the regularised incomplete beta function
/// (Press et al., "Numerical Recipes", 3rd ed., section 6.4 and 6.14.3).
pub fn student_t_quantile(probability: f64, freedom: f64) -> f64 {
    let upper_tail = 1.0 - probability;
    let tail = |t: f64| 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5);
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    while tail(high) > upper_tail && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if tail(middle) > upper_tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// I_x(a, b) by the continued fraction of Lentz.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(x, a, b) / a
    } else {
        1.0 - front * beta_fraction(1.0 - x, b, a) / b
    }
}

fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let guard = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..500 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for term in [even, odd] {
            d = 1.0 / guard(1.0 + term * d);
            c = guard(1.0 + term / c);
            fraction *= c * d;
        }
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    fraction
}

/// ln Γ by Lanczos' approximation (g = 7, n = 9).
fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + 7.5;
    let series = COEFFICIENTS[1..]
        .iter()
        .enumerate()
        .fold(COEFFICIENTS[0], |sum, (index, coefficient)| sum + coefficient / (x + index as f64 + 1.0));
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + series.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn student_t_matches_the_table() {
        // R: qt(c(.975, .975, .975, .95, .995), c(1, 2, 9, 4, 30))
        for (probability, freedom, expected) in [
            (0.975, 1.0, 12.706_204_736),
            (0.975, 2.0, 4.302_652_730),
            (0.975, 9.0, 2.262_157_163),
            (0.95, 4.0, 2.131_846_786),
            (0.995, 30.0, 2.749_995_654),
        ] {
            let got = student_t_quantile(probability, freedom);
            assert!((got - expected).abs() < 1e-6, "{freedom}: {got}");
        }
    }

    #[test]
    fn quantiles_match_numpy() {
        let values = [3.0, 1.0, 2.0, 10.0];
        assert!((median(&values) - 2.5).abs() < 1e-12);
        assert!((quantile(&values, 0.95) - 8.95).abs() < 1e-12);
        assert!((quantile(&values, 0.0) - 1.0).abs() < 1e-12);
        assert!((quantile(&values, 1.0) - 10.0).abs() < 1e-12);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn one_value_has_no_interval() {
        assert!(Estimate::geometric(&[1.1], 0.95).is_none());
        assert!(Estimate::geometric(&[1.1, f64::NAN], 0.95).is_none());
        assert!(Estimate::geometric(&[1.1, -1.0], 0.95).is_none());
    }

    #[test]
    fn verdict_says_no_more_than_the_interval() {
        let estimate = Estimate { point: 1.2, lower: 1.1, upper: 1.3, level: 0.95, n: 3 };
        assert_eq!(estimate.verdict(1.0), Verdict::Above);
        assert_eq!(estimate.verdict(1.25), Verdict::Undecided);
        assert_eq!(estimate.verdict(1.4), Verdict::Below);
    }

    /// 2,000 samples of 4 log-normal ratios: the 95 % interval holds the truth in 95 % +- 2 % (4 sigma).
    #[test]
    fn interval_covers_the_truth() {
        use crate::Seed;
        use rand_chacha::rand_core::Rng;
        let mut stream = Seed(3).stream("coverage", &[]);
        let mut uniform = || (stream.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut hits = 0;
        for _ in 0..2000 {
            let values: Vec<f64> = (0..4)
                .map(|_| {
                    let normal =
                        (-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
                    1.5 * (0.05 * normal).exp()
                })
                .collect();
            hits += i32::from(Estimate::geometric(&values, 0.95).unwrap().contains(1.5));
        }
        assert!((1860..=1940).contains(&hits), "{hits}");
    }

    proptest! {
        #[test]
        fn interval_holds_its_point_and_scales(values in prop::collection::vec(0.5_f64..3.0, 2..12), factor in 0.1_f64..10.0) {
            let estimate = Estimate::geometric(&values, 0.95).unwrap();
            prop_assert!(estimate.contains(estimate.point));
            let scaled: Vec<f64> = values.iter().map(|value| value * factor).collect();
            let scaled = Estimate::geometric(&scaled, 0.95).unwrap();
            prop_assert!((scaled.point / (estimate.point * factor) - 1.0).abs() < 1e-9);
            prop_assert!((scaled.half_width_ratio() - estimate.half_width_ratio()).abs() < 1e-9);
        }
    }
}
