//! One file for each policy, behind one trait with one method.

mod fifo;
mod greedy_pairs;
mod las;
mod preemptive;
mod srtf;

pub use greedy_pairs::GreedyOptions;

use crate::error::check;
use crate::{Error, Round};
use elastico_core::{Seed, suggest};
use serde::Serialize;

/// Decides who runs.
pub trait Policy {
    /// Called after each arrival, finish and wake-up, with everything of that instant already done.
    fn decide(&mut self, round: &mut Round<'_, '_>);
}

/// The policies that have a name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PolicyKind {
    /// In order of submission; the first that does not fit holds up all others.
    Fifo,
    /// In order of submission, but jobs that fit overtake one that does not. Nothing is reserved for it.
    FifoBackfill,
    /// Shortest remaining time first, preemptive. It knows durations up to a factor drawn once for each job.
    Srtf {
        /// Largest factor by which a duration is misjudged, either way; 1 = an oracle.
        error_factor: f64,
        /// Seed of the factors.
        seed: Seed,
    },
    /// Least attained service in queues, preemptive, as discretised 2D-LAS of Tiresias (Gu et al., NSDI 2019).
    Las {
        /// GPU-seconds at which a job falls into the next queue, ascending.
        thresholds_gpu_seconds: Vec<f64>,
    },
    /// Backfill, and jobs of equal GPU counts beside one another where the planner expects a gain and no harm: ElastiCo
    /// without shapes and prices.
    GreedyPairs(GreedyOptions),
}

impl PolicyKind {
    /// The names that parse.
    pub const NAMES: [&'static str; 5] = ["fifo", "fifo_backfill", "srtf", "las", "greedy_pairs"];

    /// The policy of a name with its usual settings.
    ///
    /// # Errors
    /// An unknown name, with the nearest known one.
    pub fn parse(name: &str) -> Result<Self, Error> {
        match name {
            "fifo" => Ok(Self::Fifo),
            "fifo_backfill" => Ok(Self::FifoBackfill),
            "srtf" => Ok(Self::Srtf { error_factor: 1.0, seed: Seed(0) }),
            // One and eight GPU-hours: the first queue holds three of four Philly jobs to their end.
            "las" => Ok(Self::Las { thresholds_gpu_seconds: vec![3600.0, 28_800.0] }),
            "greedy_pairs" => Ok(Self::GreedyPairs(GreedyOptions::default())),
            _ => Err(Error::Policy { name: name.to_owned(), suggestion: suggest(name, Self::NAMES) }),
        }
    }

    /// The name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::FifoBackfill => "fifo_backfill",
            Self::Srtf { .. } => "srtf",
            Self::Las { .. } => "las",
            Self::GreedyPairs(_) => "greedy_pairs",
        }
    }

    /// Whether it puts jobs beside one another, and so needs tables.
    pub const fn colocates(&self) -> bool {
        matches!(self, Self::GreedyPairs(_))
    }

    pub(crate) fn build(&self) -> Result<Box<dyn Policy>, Error> {
        Ok(match self {
            Self::Fifo => Box::new(fifo::Fifo { backfill: false }),
            Self::FifoBackfill => Box::new(fifo::Fifo { backfill: true }),
            Self::Srtf { error_factor, seed } => {
                check(|| "error_factor".to_owned(), *error_factor, 1.0, "1 or more")?;
                Box::new(srtf::Srtf::new(*error_factor, *seed))
            }
            Self::Las { thresholds_gpu_seconds } => {
                let mut above = f64::MIN_POSITIVE;
                for threshold in thresholds_gpu_seconds {
                    check(
                        || "a threshold".to_owned(),
                        *threshold,
                        above,
                        "above 0 and above the one before it",
                    )?;
                    above = threshold.next_up();
                }
                Box::new(las::Las::new(thresholds_gpu_seconds.clone()))
            }
            Self::GreedyPairs(options) => Box::new(greedy_pairs::GreedyPairs::new(options)?),
        })
    }
}
