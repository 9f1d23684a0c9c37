//! What holds for every policy of a comparison.

use crate::Error;
use crate::error::{check, check_within};
use elastico_core::Seed;
use serde::Serialize;

/// Costs and limits; all costs are charged to the jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Options {
    /// Time for which a job holds its GPUs without progress when it runs again, after a preemption, a change of its shape
    /// or a failure, seconds.
    pub restart_seconds: f64,
    /// Running time between two checkpoints, seconds. A preempted job loses nothing; on a node that fails the work since
    /// the last checkpoint is lost. 0 = nothing is ever lost.
    pub checkpoint_seconds: f64,
    /// Mean time between failures of one node, seconds, exponential; absent = none fails.
    pub mtbf_seconds: Option<f64>,
    /// Time for which a failed node is away, seconds.
    pub repair_seconds: f64,
    /// Where given, a job that finds no place on as few nodes as can be is spread over more, and is slowed by this factor;
    /// absent = it waits.
    pub spread_ratio: Option<f64>,
    /// Seed of the failures.
    pub seed: Seed,
    /// A job whose co-runners slow it by more than this over its life counts as harmed.
    pub harm_limit_ratio: f64,
    /// Keep one record for each job in the result.
    pub keep_jobs: bool,
    /// Keep who held which GPUs when; no part of what determines a result.
    #[serde(skip)]
    pub keep_timeline: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            restart_seconds: 30.0,
            checkpoint_seconds: 0.0,
            mtbf_seconds: None,
            repair_seconds: 3600.0,
            spread_ratio: None,
            seed: Seed(0),
            harm_limit_ratio: 1.5,
            keep_jobs: false,
            keep_timeline: false,
        }
    }
}

/// Thirty years, in seconds.
const MOST_COST: f64 = 1e9;

impl Options {
    pub(crate) fn check(&self) -> Result<(), Error> {
        // Larger ones would take the clock to where it no longer tells times apart.
        let within =
            |what: &str, value, least, most, must| check_within(|| what.to_owned(), value, least, most, must);
        let (cost, time) = ("0 or more, and at most 1e9", "above 0, and at most 1e9");
        within("restart_seconds", self.restart_seconds, 0.0, MOST_COST, cost)?;
        within("checkpoint_seconds", self.checkpoint_seconds, 0.0, MOST_COST, cost)?;
        if let Some(mtbf) = self.mtbf_seconds {
            check(|| "mtbf_seconds".to_owned(), mtbf, f64::MIN_POSITIVE, "above 0")?;
        }
        within("repair_seconds", self.repair_seconds, f64::MIN_POSITIVE, MOST_COST, time)?;
        if let Some(ratio) = self.spread_ratio {
            within("spread_ratio", ratio, 1.0, 1e6, "1 or more, and at most a million")?;
        }
        check(|| "harm_limit_ratio".to_owned(), self.harm_limit_ratio, 1.0, "1 or more")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_have_limits() {
        assert!(Options::default().check().is_ok());
        for (options, expected) in [
            (
                Options { restart_seconds: 1e300, ..Options::default() },
                "restart_seconds is 1e300, it must be 0 or more, and at most 1e9",
            ),
            (
                Options { checkpoint_seconds: -1.0, ..Options::default() },
                "checkpoint_seconds is -1, it must be 0 or more, and at most 1e9",
            ),
            (
                Options { repair_seconds: f64::NAN, ..Options::default() },
                "repair_seconds is NaN, it must be above 0, and at most 1e9",
            ),
            (
                Options { spread_ratio: Some(f64::INFINITY), ..Options::default() },
                "spread_ratio is inf, it must be 1 or more, and at most a million",
            ),
        ] {
            assert_eq!(options.check().unwrap_err().to_string(), expected);
        }
    }
}
