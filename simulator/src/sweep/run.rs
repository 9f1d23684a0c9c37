//! One run, and all of them on several threads.

use super::{PlannedRun, Sweep};
use crate::{Error, Options, Simulation, Tables, Timing, simulate_timed};
use elastico_core::{Digest, Seed};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

/// A finished run: one line of `runs.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SweepRun {
    /// Digest of all that determines the result.
    pub key: Digest,
    /// The cluster.
    pub cluster: String,
    /// The offered load; null = the trace's own.
    pub load_ratio: Option<f64>,
    /// The policy.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// The numbers of [`Simulation`] by their names, and `harmed_jobs_ratio`; those that are not known are absent. Empty
    /// where the run failed.
    pub metrics: BTreeMap<String, f64>,
    /// Why there is no result.
    pub error: Option<String>,
    /// How long it took; no part of the result.
    pub timing: Option<RunTiming>,
}

/// Real time that a run took on the machine that ran it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RunTiming {
    /// The whole run.
    pub wall_seconds: f64,
    /// In the policy, over all rounds.
    pub policy_seconds: f64,
    /// In the policy, median round.
    pub policy_p50_seconds: f64,
    /// In the policy, 99th percentile of the rounds.
    pub policy_p99_seconds: f64,
    /// Events for each second.
    pub events_per_second: f64,
}

impl From<Timing> for RunTiming {
    fn from(timing: Timing) -> Self {
        Self {
            wall_seconds: timing.wall_seconds,
            policy_seconds: timing.policy_seconds,
            policy_p50_seconds: timing.policy_p50_seconds,
            policy_p99_seconds: timing.policy_p99_seconds,
            events_per_second: timing.events_per_second,
        }
    }
}

impl Sweep {
    /// Does every run whose key is not in `done`, on so many threads. `each` gets a run as soon as it is finished, in no
    /// particular order; its error ends the sweep. A run that fails is a result with its reason.
    ///
    /// Once `stop` is set no further run begins. Returns whether all runs are done.
    ///
    /// # Errors
    /// That of `each`.
    pub fn run(
        &self,
        done: &BTreeMap<Digest, SweepRun>,
        threads: NonZeroUsize,
        stop: &AtomicBool,
        mut each: impl FnMut(SweepRun) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let mut open: Vec<&PlannedRun> =
            self.runs.iter().filter(|run| !done.contains_key(&run.key)).collect();
        // Seed by seed over the whole grid: what is done so far is a sample of what is left, and of every policy.
        open.sort_by_key(|run| run.seed);
        let next = AtomicUsize::new(0);
        let mut finished = 0;
        std::thread::scope(|scope| {
            let (sender, results) = mpsc::channel();
            for _ in 0..threads.get().min(open.len()) {
                let (sender, next, open) = (sender.clone(), &next, &open);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let Some(run) = open.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                        // Nobody listens any more after an error.
                        if sender.send(self.finish(run)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            for run in results {
                finished += 1;
                each(run)?;
            }
            Ok(finished == open.len())
        })
    }

    /// Runs that are not in `done`.
    pub fn open_total(&self, done: &BTreeMap<Digest, SweepRun>) -> usize {
        self.runs.iter().filter(|run| !done.contains_key(&run.key)).count()
    }

    fn finish(&self, run: &PlannedRun) -> SweepRun {
        let (metrics, error, timing) = match self.simulate(run) {
            Ok((simulation, timing)) => (metrics(&simulation), None, Some(timing.into())),
            Err(error) => (BTreeMap::new(), Some(chain(&error)), None),
        };
        SweepRun {
            key: run.key.clone(),
            cluster: self.clusters[run.cluster].to_string(),
            load_ratio: run.load,
            policy: run.policy.name().to_owned(),
            seed: run.seed,
            metrics,
            error,
            timing,
        }
    }

    fn simulate(&self, run: &PlannedRun) -> Result<(Simulation, Timing), Error> {
        let cluster = &self.clusters[run.cluster];
        let trace = self.scene.trace(cluster, run.load, run.seed)?;
        let knowledge = self.scene.knowledge(&trace, run.seed)?;
        let tables = knowledge.as_ref().map(|(truth, planner)| Tables { truth, planner });
        let options = Options { seed: Seed(run.seed), ..self.options.clone() };
        simulate_timed(&trace, cluster, &run.policy, tables.as_ref(), &options)
    }
}

/// The numbers of a result by their names.
fn metrics(simulation: &Simulation) -> BTreeMap<String, f64> {
    let Ok(Value::Object(fields)) = serde_json::to_value(simulation) else { return BTreeMap::new() };
    let mut metrics: BTreeMap<String, f64> =
        fields.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect();
    let harmed = simulation.harmed_jobs_total as f64 / simulation.jobs_total as f64;
    metrics.insert("harmed_jobs_ratio".to_owned(), harmed);
    metrics
}

/// An error with its causes, in one line.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
