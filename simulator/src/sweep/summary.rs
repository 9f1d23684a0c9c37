//! Policies against each other: means over seeds, and paired ratios and differences on the same traces.

use super::{Sweep, SweepRun};
use crate::Interval;
use crate::Oracle as _;
use elastico_core::Digest;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a sweep found, `elastico.sweep_summary/1`. It depends on the runs alone, not on their order or their times.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SweepSummary {
    /// `elastico.sweep_summary/1`.
    pub schema: &'static str,
    /// `simulated`: no number here is a measurement.
    pub numbers: &'static str,
    /// What the sweep is called.
    pub name: String,
    /// The policy that ratios and differences are relative to.
    pub baseline: String,
    /// What moved the jobs of a pair, and in other shapes than they ask for; null where no table was given.
    pub truth: Option<String>,
    /// What the policies planned with; null where no table was given.
    pub planner: Option<String>,
    /// Runs of the sweep.
    pub runs_total: usize,
    /// Runs that gave a result.
    pub runs_done: usize,
    /// Runs that gave none, with the reason.
    pub failed: Vec<FailedRun>,
    /// One for each cluster and load, in the order of the sweep.
    pub points: Vec<PointSummary>,
}

/// A run without a result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailedRun {
    /// The cluster.
    pub cluster: String,
    /// The offered load.
    pub load_ratio: Option<f64>,
    /// The policy.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// Why.
    pub reason: String,
}

/// All policies on one cluster at one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PointSummary {
    /// The cluster.
    pub cluster: String,
    /// GPUs of the cluster.
    pub gpus_total: u32,
    /// The offered load; null = the trace's own.
    pub load_ratio: Option<f64>,
    /// In the order of the sweep.
    pub policies: Vec<PolicySummary>,
}

/// One policy on one cluster at one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PolicySummary {
    /// The policy.
    pub policy: String,
    /// Runs that gave a result.
    pub runs_done: usize,
    /// Runs that gave none.
    pub runs_failed: usize,
    /// Mean over seeds of each number of [`crate::Simulation`], and of `harmed_jobs_ratio`.
    pub means: BTreeMap<String, Interval>,
    /// Own over baseline on the same traces, geometric mean.
    pub ratios: BTreeMap<String, Interval>,
    /// Own minus baseline on the same traces, mean.
    pub differences: BTreeMap<String, Interval>,
    /// Own over that of the best of the other policies, for each metric. Which one is best is seen from the same runs, so a
    /// narrow lead over it is worth little.
    pub best_others: BTreeMap<String, Rival>,
}

/// The best of the other policies by one metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rival {
    /// Its name.
    pub policy: String,
    /// Own over that of the rival on the same traces, geometric mean.
    pub ratio: Interval,
}

/// Numbers that ratios are taken of, and whether less is better.
const RATIOS: [(&str, bool); 15] = [
    ("jct_mean_seconds", true),
    ("jct_median_seconds", true),
    ("jct_p95_seconds", true),
    ("jct_p99_seconds", true),
    ("jct_mean_steady_seconds", true),
    ("jct_p99_steady_seconds", true),
    ("makespan_seconds", true),
    ("stretch_mean_ratio", true),
    ("stretch_p99_ratio", true),
    ("throughput_ratio", false),
    ("throughput_while_arriving_ratio", false),
    ("throughput_steady_ratio", false),
    ("sm_active_ratio", false),
    ("sm_active_while_arriving_ratio", false),
    ("sm_active_steady_ratio", false),
];

/// Numbers between 0 and 1 that differences are taken of.
const DIFFERENCES: [&str; 9] = [
    "allocated_ratio",
    "allocated_while_arriving_ratio",
    "sm_active_ratio",
    "sm_active_while_arriving_ratio",
    "sm_active_steady_ratio",
    "throughput_ratio",
    "throughput_while_arriving_ratio",
    "throughput_steady_ratio",
    "harmed_jobs_ratio",
];

/// Results of one policy at one point, by seed.
type BySeed<'a> = BTreeMap<u64, &'a BTreeMap<String, f64>>;

impl Sweep {
    /// Sums up the runs; those that are not there are left out, and counted.
    pub fn summary(&self, runs: &BTreeMap<Digest, SweepRun>) -> SweepSummary {
        let mut failed = Vec::new();
        let mut done = 0;
        // Points and policies in the order in which the plan first names them.
        let mut points: Vec<Point<'_>> = Vec::new();
        for planned in &self.runs {
            let load = planned.load.map(f64::to_bits);
            let known =
                points.iter().position(|point| (point.cluster, point.load) == (planned.cluster, load));
            let index = known.unwrap_or_else(|| {
                points.push(Point { cluster: planned.cluster, load, policies: Vec::new() });
                points.len() - 1
            });
            let policies = &mut points[index].policies;
            let name = planned.policy.name();
            let known = policies.iter().position(|column| column.policy == name);
            let column = known.unwrap_or_else(|| {
                policies.push(PolicyRuns { policy: name, failed: 0, by_seed: BySeed::new() });
                policies.len() - 1
            });
            match runs.get(&planned.key) {
                Some(SweepRun { error: Some(reason), .. }) => {
                    policies[column].failed += 1;
                    failed.push(FailedRun {
                        cluster: self.clusters[planned.cluster].to_string(),
                        load_ratio: planned.load,
                        policy: name.to_owned(),
                        seed: planned.seed,
                        reason: reason.clone(),
                    });
                }
                Some(run) => {
                    done += 1;
                    policies[column].by_seed.insert(planned.seed, &run.metrics);
                }
                None => {}
            }
        }
        let names = self.names();
        SweepSummary {
            schema: "elastico.sweep_summary/1",
            numbers: "simulated",
            name: self.name.clone(),
            baseline: self.baseline.clone(),
            truth: names.clone().map(|(truth, _)| truth),
            planner: names.map(|(_, planner)| planner),
            runs_total: self.runs.len(),
            runs_done: done,
            failed,
            points: points.iter().map(|point| self.point(point)).collect(),
        }
    }

    fn names(&self) -> Option<(String, String)> {
        let run = self.runs.first()?;
        let trace = self.scene.trace(&self.clusters[run.cluster], run.load, run.seed).ok()?;
        let (truth, planner) = self.scene.knowledge(&trace, run.seed).ok()??;
        Some((truth.name().to_owned(), planner.name().to_owned()))
    }

    fn point(&self, point: &Point<'_>) -> PointSummary {
        let cluster = &self.clusters[point.cluster];
        let baseline = point.policies.iter().find(|column| column.policy == self.baseline);
        PointSummary {
            cluster: cluster.to_string(),
            gpus_total: cluster.gpus(),
            load_ratio: point.load.map(f64::from_bits),
            policies: point.policies.iter().map(|own| self.policy(own, baseline, &point.policies)).collect(),
        }
    }

    fn policy(
        &self,
        own: &PolicyRuns<'_>,
        baseline: Option<&PolicyRuns<'_>>,
        all: &[PolicyRuns<'_>],
    ) -> PolicySummary {
        let paired = |name: &str, of: fn(&[f64]) -> Option<Interval>, with: fn(f64, f64) -> f64| {
            let other = baseline?;
            of(&own.with(other, name, with)).map(|interval| (name.to_owned(), interval))
        };
        PolicySummary {
            policy: own.policy.to_owned(),
            runs_done: own.by_seed.len(),
            runs_failed: own.failed,
            means: own.means(),
            ratios: RATIOS
                .iter()
                .filter_map(|(name, _)| paired(name, Interval::geometric, |own, other| own / other))
                .collect(),
            differences: DIFFERENCES
                .iter()
                .filter_map(|name| paired(name, Interval::arithmetic, |own, other| own - other))
                .collect(),
            best_others: RATIOS
                .iter()
                .filter_map(|(name, less)| {
                    let rivals = all.iter().filter(|other| {
                        let is_rival = self
                            .rivals
                            .as_ref()
                            .is_none_or(|rivals| rivals.iter().any(|rival| rival == other.policy));
                        is_rival && other.policy != own.policy
                    });
                    let (rival, _) = rivals
                        .filter_map(|other| Some((other, other.mean(name)?)))
                        .min_by(|a, b| if *less { a.1.total_cmp(&b.1) } else { b.1.total_cmp(&a.1) })?;
                    let ratio = Interval::geometric(&own.with(rival, name, |own, other| own / other))?;
                    Some(((*name).to_owned(), Rival { policy: rival.policy.to_owned(), ratio }))
                })
                .collect(),
        }
    }
}

struct Point<'a> {
    cluster: usize,
    /// Bits of the load.
    load: Option<u64>,
    policies: Vec<PolicyRuns<'a>>,
}

struct PolicyRuns<'a> {
    policy: &'a str,
    failed: usize,
    by_seed: BySeed<'a>,
}

impl PolicyRuns<'_> {
    /// Both values of each seed that both have, put together.
    fn with(&self, other: &Self, metric: &str, with: fn(f64, f64) -> f64) -> Vec<f64> {
        self.by_seed
            .iter()
            .filter_map(|(seed, own)| Some(with(*own.get(metric)?, *other.by_seed.get(seed)?.get(metric)?)))
            .collect()
    }

    fn values(&self, metric: &str) -> Vec<f64> {
        self.by_seed.values().filter_map(|metrics| metrics.get(metric).copied()).collect()
    }

    fn mean(&self, metric: &str) -> Option<f64> {
        Interval::arithmetic(&self.values(metric)).map(|interval| interval.point)
    }

    fn means(&self) -> BTreeMap<String, Interval> {
        let names: std::collections::BTreeSet<&String> =
            self.by_seed.values().flat_map(|metrics| metrics.keys()).collect();
        names
            .into_iter()
            .filter_map(|name| Some((name.clone(), Interval::not_negative(&self.values(name))?)))
            .collect()
    }
}
