//! What a run adds up to.

use crate::{ClusterSpec, Options, Tables, Trace};
use elastico_core::{JobId, mean, quantile};
use serde::Serialize;

/// Integrals over the whole run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// GPUs held, times seconds; a shared GPU counts once.
    pub(crate) held_gpu_seconds: f64,
    /// The part of it until the last submission.
    pub(crate) held_while_arriving: f64,
    /// GPUs times the share of their multiprocessors that was busy, times seconds.
    pub(crate) sm_active_gpu_seconds: f64,
    /// The part of it until the last submission.
    pub(crate) sm_active_while_arriving: f64,
    pub(crate) shared_gpu_seconds: f64,
    pub(crate) pairs: u64,
    pub(crate) pairs_over_limit: u64,
    pub(crate) rounds: u64,
}

/// One job of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobOutcome {
    /// Its name.
    pub job: JobId,
    /// What it ran.
    pub workload: String,
    /// GPUs.
    pub gpus: u32,
    /// When it was submitted.
    pub submit_seconds: f64,
    /// When it first ran.
    pub start_seconds: f64,
    /// When it was done.
    pub finish_seconds: f64,
    /// How long it takes alone.
    pub isolated_seconds: f64,
    /// How long it held its GPUs.
    pub running_seconds: f64,
    /// The part of it beside a co-runner.
    pub colocated_seconds: f64,
    /// Work done twice because of restarts.
    pub overhead_seconds: f64,
    /// How often it was taken off its GPUs.
    pub preemptions_total: u32,
}

impl JobOutcome {
    /// Job completion time: submission to finish.
    pub fn jct_seconds(&self) -> f64 {
        self.finish_seconds - self.submit_seconds
    }

    /// Completion time over isolated time: what the job's owner sees. Like rho of finish-time fairness (Mahajan et al.,
    /// Themis, NSDI 2020), but against the whole of its GPUs instead of a fair part of the cluster.
    pub fn stretch_ratio(&self) -> f64 {
        self.jct_seconds() / self.isolated_seconds
    }

    /// Time on its GPUs over isolated time, restarts left out: the slowdown by co-runners, averaged over its life.
    pub fn slowdown_ratio(&self) -> f64 {
        self.running_seconds / (self.isolated_seconds + self.overhead_seconds)
    }
}

/// The result of one run, `elastico.simulation/1`. Times are seconds of simulated time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulation {
    /// `elastico.simulation/1`.
    pub schema: &'static str,
    /// `simulated`: no number here is a measurement.
    pub numbers: &'static str,
    /// Name of the policy.
    pub policy: String,
    /// Name of the trace.
    pub trace: String,
    /// The cluster.
    pub cluster: String,
    /// GPUs of the cluster.
    pub gpus_total: u32,
    /// Offered load while jobs arrive; null where all arrive at once.
    pub load_ratio: Option<f64>,
    /// What moved the jobs of a pair; null without co-location.
    pub truth: Option<String>,
    /// What the policy planned with; null without co-location.
    pub planner: Option<String>,
    /// Jobs, all of which finished.
    pub jobs_total: usize,
    /// Mean completion time.
    pub jct_mean_seconds: f64,
    /// Median completion time.
    pub jct_median_seconds: f64,
    /// 95th percentile of the completion time.
    pub jct_p95_seconds: f64,
    /// 99th percentile of the completion time.
    pub jct_p99_seconds: f64,
    /// First submission to last finish.
    pub makespan_seconds: f64,
    /// Mean time from submission to the first start.
    pub queueing_mean_seconds: f64,
    /// 99th percentile of that time.
    pub queueing_p99_seconds: f64,
    /// GPUs held over all GPUs, over the makespan; a shared GPU counts once.
    pub allocated_ratio: f64,
    /// The same until the last submission, without the drain; null where all arrive at once.
    pub allocated_while_arriving_ratio: Option<f64>,
    /// SM cycles busy over all, over the makespan, a pair capped at 1; null unless every job states its own.
    pub sm_active_ratio: Option<f64>,
    /// The same until the last submission, without the drain.
    pub sm_active_while_arriving_ratio: Option<f64>,
    /// Mean of completion time over isolated time.
    pub stretch_mean_ratio: f64,
    /// 99th percentile of it.
    pub stretch_p99_ratio: f64,
    /// The largest.
    pub stretch_max_ratio: f64,
    /// Mean slowdown of the jobs that ran beside another, averaged over their life; null where none did.
    pub colocated_slowdown_mean_ratio: Option<f64>,
    /// Jobs that ran beside another at some time.
    pub colocated_jobs_total: usize,
    /// Jobs whose slowdown over their life is above the limit.
    pub harmed_jobs_total: usize,
    /// The limit.
    pub harm_limit_ratio: f64,
    /// Pairs formed.
    pub pairs_total: u64,
    /// Pairs formed in which, in truth, one side is slowed beyond the limit.
    pub pairs_over_limit_total: u64,
    /// GPU-seconds on which two jobs ran.
    pub shared_gpu_seconds: f64,
    /// Preemptions.
    pub preemptions_total: u64,
    /// Work that each restart costs.
    pub restart_seconds: f64,
    /// Times the policy was asked.
    pub rounds_total: u64,
    /// One record for each job, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobOutcome>,
}

pub(crate) fn summarise(
    trace: &Trace,
    cluster: ClusterSpec,
    policy: &str,
    tables: Option<&Tables<'_>>,
    options: &Options,
    jobs: &[JobOutcome],
    totals: &Totals,
) -> Simulation {
    let column = |value: fn(&JobOutcome) -> f64| -> Vec<f64> { jobs.iter().map(value).collect() };
    let jct = column(JobOutcome::jct_seconds);
    let queueing = column(|job| job.start_seconds - job.submit_seconds);
    let stretch = column(JobOutcome::stretch_ratio);
    let slowed: Vec<f64> =
        jobs.iter().filter(|job| job.colocated_seconds > 0.0).map(JobOutcome::slowdown_ratio).collect();
    let first = jobs.first().map_or(0.0, |job| job.submit_seconds);
    let makespan = jobs.iter().map(|job| job.finish_seconds).fold(first, f64::max) - first;
    let capacity = f64::from(cluster.gpus());
    let load = trace.load(&cluster);
    let span = trace.span().get();
    let knows_activity = trace.jobs().iter().all(|job| job.sm_active_ratio.is_some());
    Simulation {
        schema: "elastico.simulation/1",
        numbers: "simulated",
        policy: policy.to_owned(),
        trace: trace.name.clone(),
        cluster: cluster.to_string(),
        gpus_total: cluster.gpus(),
        load_ratio: load.is_finite().then_some(load),
        truth: tables.map(|tables| tables.truth.name().to_owned()),
        planner: tables.map(|tables| tables.planner.name().to_owned()),
        jobs_total: jobs.len(),
        jct_mean_seconds: mean(&jct),
        jct_median_seconds: quantile(&jct, 0.5),
        jct_p95_seconds: quantile(&jct, 0.95),
        jct_p99_seconds: quantile(&jct, 0.99),
        makespan_seconds: makespan,
        queueing_mean_seconds: mean(&queueing),
        queueing_p99_seconds: quantile(&queueing, 0.99),
        allocated_ratio: totals.held_gpu_seconds / (capacity * makespan),
        allocated_while_arriving_ratio: (span > 0.0).then(|| totals.held_while_arriving / (capacity * span)),
        sm_active_ratio: knows_activity.then(|| totals.sm_active_gpu_seconds / (capacity * makespan)),
        sm_active_while_arriving_ratio: (knows_activity && span > 0.0)
            .then(|| totals.sm_active_while_arriving / (capacity * span)),
        stretch_mean_ratio: mean(&stretch),
        stretch_p99_ratio: quantile(&stretch, 0.99),
        stretch_max_ratio: stretch.iter().copied().fold(0.0, f64::max),
        colocated_slowdown_mean_ratio: (!slowed.is_empty()).then(|| mean(&slowed)),
        colocated_jobs_total: slowed.len(),
        // The rounding of a life of many segments is no harm.
        harmed_jobs_total: slowed
            .iter()
            .filter(|ratio| **ratio > options.harm_limit_ratio * (1.0 + 1e-9))
            .count(),
        harm_limit_ratio: options.harm_limit_ratio,
        pairs_total: totals.pairs,
        pairs_over_limit_total: totals.pairs_over_limit,
        shared_gpu_seconds: totals.shared_gpu_seconds,
        preemptions_total: jobs.iter().map(|job| u64::from(job.preemptions_total)).sum(),
        restart_seconds: options.restart_seconds,
        rounds_total: totals.rounds,
        jobs: if options.keep_jobs { jobs.to_vec() } else { Vec::new() },
    }
}
