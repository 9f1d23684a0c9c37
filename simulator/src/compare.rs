//! Policies against each other on the same traces.

use crate::{ClusterSpec, Error, Options, PolicyKind, Simulation, Tables, Trace, simulate};
use elastico_core::{Estimate, mean};
use serde::Serialize;

/// Coverage of the intervals.
const LEVEL: f64 = 0.95;

/// Several policies on several traces, `elastico.comparison/1`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// `elastico.comparison/1`.
    pub schema: &'static str,
    /// `simulated`: no number here is a measurement.
    pub numbers: &'static str,
    /// The policy that ratios are relative to: the first.
    pub baseline: String,
    /// The cluster.
    pub cluster: String,
    /// Names of the traces, one for each seed.
    pub traces: Vec<String>,
    /// What moved the jobs of a pair; null without co-location.
    pub truth: Option<String>,
    /// What the policy planned with; null without co-location.
    pub planner: Option<String>,
    /// One row for each policy, in the order given.
    pub rows: Vec<ComparisonRow>,
    /// Every run, by policy and then by trace.
    pub runs: Vec<Simulation>,
}

/// One policy over all traces: means of what each run gave, and ratios to the baseline on the same trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonRow {
    /// The policy.
    pub policy: String,
    /// Traces behind the row.
    pub traces_total: usize,
    /// Mean completion time, mean over traces.
    pub jct_mean_seconds: f64,
    /// 99th percentile of the completion time, mean over traces.
    pub jct_p99_seconds: f64,
    /// Makespan, mean over traces.
    pub makespan_seconds: f64,
    /// Queueing, mean over traces.
    pub queueing_mean_seconds: f64,
    /// GPUs held over all GPUs, mean over traces.
    pub allocated_ratio: f64,
    /// SM cycles busy over all, mean over traces; null unless every job of every trace states its own.
    pub sm_active_ratio: Option<f64>,
    /// GPUs held over all GPUs until the last submission, mean over traces: the drain of a long last job says little
    /// about a policy.
    pub allocated_while_arriving_ratio: Option<f64>,
    /// SM cycles busy over all until the last submission, mean over traces.
    pub sm_active_while_arriving_ratio: Option<f64>,
    /// Completion time over isolated time, mean over traces.
    pub stretch_mean_ratio: f64,
    /// Harmed jobs, sum over traces.
    pub harmed_jobs_total: usize,
    /// Preemptions, sum over traces.
    pub preemptions_total: u64,
    /// Pairs, sum over traces.
    pub pairs_total: u64,
    /// Mean completion time over the baseline's; under 1 is better.
    pub jct_mean_ratio: PairedRatio,
    /// 99th percentile of the completion time over the baseline's.
    pub jct_p99_ratio: PairedRatio,
    /// Makespan over the baseline's.
    pub makespan_ratio: PairedRatio,
}

/// A ratio of two policies on the same traces.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PairedRatio {
    /// Geometric mean over traces.
    pub point: f64,
    /// Lower end of the 95 % interval over traces; null for one trace.
    pub lower: Option<f64>,
    /// Upper end of the interval; null for one trace.
    pub upper: Option<f64>,
    /// Traces behind it.
    pub n: usize,
}

impl PairedRatio {
    fn of(ratios: &[f64]) -> Self {
        let estimate = Estimate::geometric(ratios, LEVEL);
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        Self {
            point: mean(&logs).exp(),
            lower: estimate.map(|estimate| estimate.lower),
            upper: estimate.map(|estimate| estimate.upper),
            n: ratios.len(),
        }
    }
}

/// Runs every policy on every trace. The first policy is the baseline; make the traces of one kind by
/// [`Trace::resample`] or [`Trace::synthetic`] with several seeds.
///
/// # Errors
/// As [`simulate`], or no policy or trace at all.
pub fn compare(
    traces: &[Trace],
    cluster: &ClusterSpec,
    policies: &[PolicyKind],
    tables: Option<&Tables<'_>>,
    options: &Options,
) -> Result<Comparison, Error> {
    let baseline = policies.first().ok_or(Error::Nothing("policy"))?;
    if traces.is_empty() {
        return Err(Error::Nothing("trace"));
    }
    let mut runs = Vec::with_capacity(policies.len() * traces.len());
    for policy in policies {
        for trace in traces {
            runs.push(simulate(trace, cluster, policy, tables, options)?);
        }
    }
    let rows = runs.chunks(traces.len()).map(|own| row(own, &runs[..traces.len()])).collect();
    let named = runs.iter().find(|run| run.truth.is_some());
    Ok(Comparison {
        schema: "elastico.comparison/1",
        numbers: "simulated",
        baseline: baseline.name().to_owned(),
        cluster: cluster.to_string(),
        traces: traces.iter().map(|trace| trace.name.clone()).collect(),
        truth: named.and_then(|run| run.truth.clone()),
        planner: named.and_then(|run| run.planner.clone()),
        rows,
        runs,
    })
}

fn row(own: &[Simulation], baseline: &[Simulation]) -> ComparisonRow {
    let average = |value: fn(&Simulation) -> f64| mean(&own.iter().map(value).collect::<Vec<_>>());
    let ratio = |value: fn(&Simulation) -> f64| {
        let ratios: Vec<f64> =
            own.iter().zip(baseline).map(|(own, other)| value(own) / value(other)).collect();
        PairedRatio::of(&ratios)
    };
    let known = |value: fn(&Simulation) -> Option<f64>| {
        let values: Option<Vec<f64>> = own.iter().map(value).collect();
        values.map(|values| mean(&values))
    };
    ComparisonRow {
        policy: own[0].policy.clone(),
        traces_total: own.len(),
        jct_mean_seconds: average(|run| run.jct_mean_seconds),
        jct_p99_seconds: average(|run| run.jct_p99_seconds),
        makespan_seconds: average(|run| run.makespan_seconds),
        queueing_mean_seconds: average(|run| run.queueing_mean_seconds),
        allocated_ratio: average(|run| run.allocated_ratio),
        sm_active_ratio: known(|run| run.sm_active_ratio),
        allocated_while_arriving_ratio: known(|run| run.allocated_while_arriving_ratio),
        sm_active_while_arriving_ratio: known(|run| run.sm_active_while_arriving_ratio),
        stretch_mean_ratio: average(|run| run.stretch_mean_ratio),
        harmed_jobs_total: own.iter().map(|run| run.harmed_jobs_total).sum(),
        preemptions_total: own.iter().map(|run| run.preemptions_total).sum(),
        pairs_total: own.iter().map(|run| run.pairs_total).sum(),
        jct_mean_ratio: ratio(|run| run.jct_mean_seconds),
        jct_p99_ratio: ratio(|run| run.jct_p99_seconds),
        makespan_ratio: ratio(|run| run.makespan_seconds),
    }
}
