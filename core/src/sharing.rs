//! How two workloads share one device.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How two workloads share one device.
///
/// The text form is used in files and on the command line: `exclusive`, `time_slice`, `mps(0.5,0.5)`,
/// `mig(1g.10gb)`, `streams`, `streams(0.5,0.5)`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SharingMode {
    /// The subject has the device alone.
    Exclusive,
    /// Two processes, the driver alternates between them.
    TimeSlice,
    /// Two processes under the Multi-Process Service, each limited to a percentage of the SMs.
    Mps {
        /// Limit of the subject, 1..=100 percent of the SMs.
        subject_percent: u8,
        /// Limit of the co-runner, 1..=100 percent of the SMs.
        co_runner_percent: u8,
    },
    /// Two instances of one MIG profile.
    Mig {
        /// The profile as `nvidia-smi mig` writes it, for example `3g.40gb`.
        profile: String,
    },
    /// Two streams of one process.
    Streams,
    /// Two streams of one process, each on SMs of its own (green contexts).
    SplitStreams {
        /// Part of the subject, in percent of the SMs.
        subject_percent: u8,
        /// Part of the co-runner; both are at most 100 together.
        co_runner_percent: u8,
    },
}

impl SharingMode {
    /// MPS without limits.
    pub const MPS_UNLIMITED: Self = Self::Mps { subject_percent: 100, co_runner_percent: 100 };

    /// The mode without its parameters: a label, and the one-hot feature of the predictor.
    pub const fn family(&self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::TimeSlice => "time_slice",
            Self::Mps { .. } => "mps",
            Self::Mig { .. } => "mig",
            Self::Streams | Self::SplitStreams { .. } => "streams",
        }
    }

    /// The share of the SMs that each side may use, 0..1, subject first.
    ///
    /// Time-slicing and streams without shares limit nothing. A MIG profile `Kg` has K of 7 slices.
    pub fn shares(&self) -> (f64, f64) {
        match self {
            Self::Exclusive | Self::TimeSlice | Self::Streams => (1.0, 1.0),
            Self::Mps { subject_percent, co_runner_percent }
            | Self::SplitStreams { subject_percent, co_runner_percent } => {
                (f64::from(*subject_percent) / 100.0, f64::from(*co_runner_percent) / 100.0)
            }
            Self::Mig { profile } => {
                let slices = profile.bytes().next().map_or(7, |digit| digit.saturating_sub(b'0'));
                let share = f64::from(slices.clamp(1, 7)) / 7.0;
                (share, share)
            }
        }
    }

    /// The same mode seen from the other side.
    #[must_use]
    pub fn swapped(&self) -> Self {
        match self {
            Self::Mps { subject_percent, co_runner_percent } => {
                Self::Mps { subject_percent: *co_runner_percent, co_runner_percent: *subject_percent }
            }
            Self::SplitStreams { subject_percent, co_runner_percent } => Self::SplitStreams {
                subject_percent: *co_runner_percent,
                co_runner_percent: *subject_percent,
            },
            other => other.clone(),
        }
    }
}

impl fmt::Display for SharingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mps { .. } => {
                let (subject, co_runner) = self.shares();
                f.pad(&format!("mps({subject},{co_runner})"))
            }
            Self::SplitStreams { .. } => {
                let (subject, co_runner) = self.shares();
                f.pad(&format!("streams({subject},{co_runner})"))
            }
            Self::Mig { profile } => f.pad(&format!("mig({profile})")),
            other => f.pad(other.family()),
        }
    }
}

/// A text that names no sharing mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no sharing mode (exclusive, time_slice, mps(0.5,0.5), mig(3g.40gb), streams, streams(0.5,0.5))"
)]
pub struct SharingModeError(pub String);

impl FromStr for SharingMode {
    type Err = SharingModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || SharingModeError(text.to_owned());
        let trimmed = text.trim();
        let (name, arguments) = match trimmed.split_once('(') {
            Some((name, rest)) => (name.trim(), Some(rest.strip_suffix(')').ok_or_else(error)?.trim())),
            None => (trimmed, None),
        };
        match (name, arguments) {
            ("exclusive", None) => Ok(Self::Exclusive),
            ("time_slice", None) => Ok(Self::TimeSlice),
            ("streams", None) => Ok(Self::Streams),
            ("mps", None) => Ok(Self::MPS_UNLIMITED),
            ("mps" | "streams", Some(shares)) => {
                let (subject, co_runner) = shares.split_once(',').ok_or_else(error)?;
                let percent = |share: &str| {
                    let ratio: f64 = share.trim().parse().map_err(|_| error())?;
                    let percent = (ratio * 100.0).round();
                    if (1.0..=100.0).contains(&percent) { Ok(percent as u8) } else { Err(error()) }
                };
                let (subject_percent, co_runner_percent) = (percent(subject)?, percent(co_runner)?);
                if name == "mps" {
                    Ok(Self::Mps { subject_percent, co_runner_percent })
                } else if u16::from(subject_percent) + u16::from(co_runner_percent) <= 100 {
                    Ok(Self::SplitStreams { subject_percent, co_runner_percent })
                } else {
                    // SMs are dealt out, not limited: there are no more than all.
                    Err(error())
                }
            }
            ("mig", Some(profile)) if profile.starts_with(|first: char| ('1'..='7').contains(&first)) => {
                Ok(Self::Mig { profile: profile.to_owned() })
            }
            _ => Err(error()),
        }
    }
}

impl TryFrom<String> for SharingMode {
    type Error = SharingModeError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<SharingMode> for String {
    fn from(mode: SharingMode) -> Self {
        mode.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        for text in [
            "exclusive",
            "time_slice",
            "mps(0.5,0.5)",
            "mps(0.3,0.7)",
            "mps(1,1)",
            "mig(3g.40gb)",
            "streams",
            "streams(0.3,0.5)",
        ] {
            assert_eq!(text.parse::<SharingMode>().unwrap().to_string(), text);
        }
        assert_eq!("mps".parse::<SharingMode>().unwrap(), SharingMode::MPS_UNLIMITED);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "mps(0,1)",
            "mps(0.5)",
            "mps(0.5,nan)",
            "mps(1.2,1)",
            "mig()",
            "mig(9g)",
            "time_slice(1)",
            "mps(0.5,0.5",
            "streams(0.6,0.5)",
        ] {
            assert!(text.parse::<SharingMode>().is_err(), "{text}");
        }
    }

    #[test]
    fn swapping_twice_is_the_same_mode() {
        let mode: SharingMode = "mps(0.3,0.7)".parse().unwrap();
        assert_eq!(mode.swapped().shares(), (0.7, 0.3));
        assert_eq!(mode.swapped().swapped(), mode);
    }
}
