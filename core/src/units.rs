//! Physical quantities as newtypes over `f64`, in base SI units.
//!
//! `Display` honours precision and prints an engineering prefix: `format!("{:.1}", Bytes(1.5e9))` is `1.5 GB`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Div, Mul, Sub};

macro_rules! unit {
    ($(#[$meta:meta])* $name:ident, $symbol:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl $name {
            /// The bare number in the base unit.
            pub const fn get(self) -> f64 {
                self.0
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl Mul<f64> for $name {
            type Output = Self;
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }

        /// The ratio of two quantities of one unit is a bare number.
        impl Div for $name {
            type Output = f64;
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
                Self(quantities.map(|quantity| quantity.0).sum())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                engineering(f, self.0, $symbol)
            }
        }
    };
}

unit!(
    /// A duration.
    Seconds,
    "s"
);
unit!(
    /// An amount of data or memory. Decimal prefixes: 1 GB is 1e9 bytes.
    Bytes,
    "B"
);
unit!(
    /// A rate or a clock.
    Hertz,
    "Hz"
);
unit!(
    /// Floating point operations; a fused multiply-add counts two.
    Flops,
    "FLOP"
);
unit!(
    /// Floating point operations per second.
    FlopsPerSecond,
    "FLOP/s"
);
unit!(
    /// Data per second.
    BytesPerSecond,
    "B/s"
);
unit!(
    /// Electrical power.
    Watts,
    "W"
);
unit!(
    /// Energy.
    Joules,
    "J"
);

fn engineering(f: &mut fmt::Formatter<'_>, value: f64, symbol: &str) -> fmt::Result {
    const PREFIXES: [(f64, &str); 8] =
        [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u")];
    let size = value.abs();
    let (scale, prefix) = PREFIXES.into_iter().find(|(scale, _)| size >= *scale).unwrap_or(if size > 0.0 {
        (1e-9, "n")
    } else {
        (1.0, "")
    });
    let precision = f.precision().unwrap_or(2);
    crate::text::pad(f, &format!("{:.precision$} {prefix}{symbol}", value / scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_takes_prefix_precision_and_width() {
        assert_eq!(Bytes(1.5e9).to_string(), "1.50 GB");
        assert_eq!(format!("{:.0}", FlopsPerSecond(9.89e14)), "989 TFLOP/s");
        assert_eq!(format!("{:.1}", Seconds(0.0123)), "12.3 ms");
        assert_eq!(format!("{:.1}", Seconds(3e-8)), "30.0 ns");
        assert_eq!(format!("{:>10.0}", Seconds(0.0)), "       0 s");
    }

    #[test]
    fn arithmetic_keeps_the_unit() {
        let total: Bytes = [Bytes(1.0), Bytes(2.0)].into_iter().sum();
        assert_eq!(total * 2.0 - Bytes(1.0), Bytes(5.0));
        assert!((Seconds(3.0) / Seconds(2.0) - 1.5).abs() < f64::EPSILON);
    }
}
