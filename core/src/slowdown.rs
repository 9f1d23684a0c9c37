//! The label: how much slower beside a co-runner.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Co-located time per unit of work ÷ isolated time per unit of work at the full device.
///
/// At least 1 up to measurement noise, so values a little under 1 are legal. It splits into two kept factors:
/// slowdown = *partition effect* (isolated at the share ÷ isolated at the full device) × *interference* (co-located ÷
/// isolated at the share).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Slowdown(f64);

/// A number that cannot be a slowdown.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{0} is no slowdown: it must be finite and above 0")]
pub struct SlowdownError(pub f64);

impl Slowdown {
    /// No slowdown at all.
    pub const NONE: Self = Self(1.0);

    /// Checks and wraps a ratio.
    ///
    /// # Errors
    /// [`SlowdownError`] unless the ratio is finite and above 0.
    pub fn new(ratio: f64) -> Result<Self, SlowdownError> {
        if ratio.is_finite() && ratio > 0.0 { Ok(Self(ratio)) } else { Err(SlowdownError(ratio)) }
    }

    /// The ratio.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// 1 / slowdown: the share of its isolated speed that the subject keeps.
    pub fn normalized_throughput(self) -> f64 {
        1.0 / self.0
    }
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = f.precision().unwrap_or(2);
        crate::text::pad(f, &format!("{:.precision$}x", self.0))
    }
}

impl TryFrom<f64> for Slowdown {
    type Error = SlowdownError;
    fn try_from(ratio: f64) -> Result<Self, SlowdownError> {
        Self::new(ratio)
    }
}

impl From<Slowdown> for f64 {
    fn from(slowdown: Slowdown) -> Self {
        slowdown.0
    }
}

/// System throughput: the sum of normalized throughputs, in jobs' worth of progress per unit of time.
///
/// Source: Eyerman & Eeckhout, "System-level performance metrics for multiprogram workloads", IEEE Micro 2008, eq. 3.
pub fn stp(slowdowns: &[Slowdown]) -> f64 {
    slowdowns.iter().map(|slowdown| slowdown.normalized_throughput()).sum()
}

/// Average normalized turnaround time: the mean slowdown. `NaN` for no slowdown at all.
///
/// Source: Eyerman & Eeckhout 2008, eq. 2.
pub fn antt(slowdowns: &[Slowdown]) -> f64 {
    slowdowns.iter().map(|slowdown| slowdown.get()).sum::<f64>() / slowdowns.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finite_positive_ratios_are_slowdowns() {
        assert!(Slowdown::new(0.98).is_ok());
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Slowdown::new(bad).is_err());
        }
        assert!(serde_json::from_str::<Slowdown>("-2.0").is_err());
        assert_eq!(Slowdown::new(1.234).unwrap().to_string(), "1.23x");
    }
}
