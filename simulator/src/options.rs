//! What holds for every policy of a comparison.

use crate::Error;
use crate::error::check;
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

impl Options {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check(|| "restart_seconds".to_owned(), self.restart_seconds, 0.0, "0 or more")?;
        check(|| "checkpoint_seconds".to_owned(), self.checkpoint_seconds, 0.0, "0 or more")?;
        if let Some(mtbf) = self.mtbf_seconds {
            check(|| "mtbf_seconds".to_owned(), mtbf, f64::MIN_POSITIVE, "above 0")?;
        }
        check(|| "repair_seconds".to_owned(), self.repair_seconds, f64::MIN_POSITIVE, "above 0")?;
        if let Some(ratio) = self.spread_ratio {
            check(|| "spread_ratio".to_owned(), ratio, 1.0, "1 or more")?;
        }
        check(|| "harm_limit_ratio".to_owned(), self.harm_limit_ratio, 1.0, "1 or more")
    }
}
