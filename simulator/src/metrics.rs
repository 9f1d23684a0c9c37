//! What a run adds up to.

use crate::engine::Engine;
use crate::ledger::{State, Totals};
use crate::{ClusterSpec, Options, Tables, Timeline, Trace, TraceJob};
use elastico_core::{JobId, mean, quantile};
use serde::Serialize;

/// One job of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobOutcome {
    /// Its name.
    pub job: JobId,
    /// What it ran.
    pub workload: String,
    /// GPUs that it asked for.
    pub gpus: u32,
    /// When it was submitted.
    pub submit_seconds: f64,
    /// When it first ran.
    pub start_seconds: f64,
    /// When it was done.
    pub finish_seconds: f64,
    /// How long it takes alone.
    pub isolated_seconds: f64,
    /// How long it held GPUs.
    pub running_seconds: f64,
    /// The part of it beside a co-runner.
    pub colocated_seconds: f64,
    /// The part of it without progress, because of restarts.
    pub overhead_seconds: f64,
    /// How long its work would have taken on the same GPUs without co-runners.
    pub alone_seconds: f64,
    /// Isolated seconds of work that it did twice because a node failed.
    pub lost_seconds: f64,
    /// GPU-seconds that it held.
    pub held_gpu_seconds: f64,
    /// GPUs asked for by all jobs in the system over all GPUs, at least 1, averaged over its life.
    pub contention_ratio: f64,
    /// How often the policy took it off its GPUs.
    pub preemptions_total: u32,
    /// How often it ran again, in whatever shape.
    pub reconfigurations_total: u32,
    /// How often its node failed.
    pub failures_total: u32,
}

impl JobOutcome {
    fn new(job: &TraceJob, state: &State) -> Self {
        Self {
            job: job.job.clone(),
            workload: job.workload.clone(),
            gpus: job.gpus,
            submit_seconds: job.submit_seconds,
            start_seconds: state.started,
            finish_seconds: state.finished,
            isolated_seconds: job.duration_seconds,
            running_seconds: state.running_seconds,
            colocated_seconds: state.colocated_seconds,
            overhead_seconds: state.stalled_seconds,
            alone_seconds: state.alone_seconds,
            lost_seconds: state.lost_seconds,
            held_gpu_seconds: state.held_gpu_seconds,
            contention_ratio: contention(job, state),
            preemptions_total: state.preemptions,
            reconfigurations_total: state.restarts,
            failures_total: state.failures,
        }
    }

    /// Job completion time: submission to finish.
    pub fn jct_seconds(&self) -> f64 {
        self.finish_seconds - self.submit_seconds
    }

    /// Completion time over isolated time: what the job's owner sees.
    pub fn stretch_ratio(&self) -> f64 {
        self.jct_seconds() / self.isolated_seconds
    }

    /// Time of progress on its GPUs over the time that the same work takes there alone: the slowdown by co-runners,
    /// averaged over its life. Restarts, waiting and another number of GPUs are no part of it.
    pub fn slowdown_ratio(&self) -> f64 {
        (self.running_seconds - self.overhead_seconds) / self.alone_seconds
    }

    /// Finish-time fairness rho (Mahajan et al., Themis, NSDI 2020, section 4): completion time over the time that the job
    /// would have had with an equal part of the cluster, which is its isolated time times the contention. Above 1 it got less
    /// than its part. The contention is that of this run, as in Gavel's and Shockwave's simulators.
    pub fn fairness_ratio(&self) -> f64 {
        self.stretch_ratio() / self.contention_ratio
    }
}

fn jct(job: &TraceJob, state: &State) -> f64 {
    state.finished - job.submit_seconds
}

fn contention(job: &TraceJob, state: &State) -> f64 {
    let life = jct(job, state);
    // A life too short to be told from the clock has met nobody.
    if life > 0.0 { (state.contention / life).max(1.0) } else { 1.0 }
}

/// The result of one run, `elastico.simulation/1`. Times are seconds of simulated time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
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
    /// What moved the jobs of a pair, and in other shapes than they ask for; null where no table was given.
    pub truth: Option<String>,
    /// What the policy planned with; null where no table was given.
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
    /// Mean completion time of the jobs submitted in the steady window: arrivals without their first and last tenth of time.
    /// Null where nobody was.
    pub jct_mean_steady_seconds: Option<f64>,
    /// 99th percentile of it.
    pub jct_p99_steady_seconds: Option<f64>,
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
    /// The same in the steady window.
    pub sm_active_steady_ratio: Option<f64>,
    /// Work done over what all GPUs could do, over the makespan: isolated seconds times the GPUs that the job asks for,
    /// over GPUs times time. Above the allocated ratio where GPUs are shared well or jobs run on fewer GPUs.
    pub throughput_ratio: f64,
    /// The same until the last submission; null where all arrive at once.
    pub throughput_while_arriving_ratio: Option<f64>,
    /// The same in the steady window.
    pub throughput_steady_ratio: Option<f64>,
    /// GPU memory taken over all, over the makespan; null unless every job and every pool states its own.
    pub memory_ratio: Option<f64>,
    /// GPU-seconds in service that nobody held while a job waited that would have fit by their number but not by their
    /// nodes, over all that nobody held; null where none was idle.
    pub fragmentation_ratio: Option<f64>,
    /// Mean of completion time over isolated time.
    pub stretch_mean_ratio: f64,
    /// 99th percentile of it.
    pub stretch_p99_ratio: f64,
    /// The largest.
    pub stretch_max_ratio: f64,
    /// Mean finish-time fairness rho, see [`JobOutcome::fairness_ratio`].
    pub fairness_mean_ratio: f64,
    /// The largest.
    pub fairness_max_ratio: f64,
    /// Jobs over all jobs whose rho is above 1.1, as Gavel and Sia count the unfairly treated.
    pub unfair_jobs_ratio: f64,
    /// Mean slowdown by co-runners over all jobs, see [`JobOutcome::slowdown_ratio`].
    pub slowdown_mean_ratio: f64,
    /// The largest.
    pub slowdown_max_ratio: f64,
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
    /// Ordered pairs of workloads on a device that the policy asked for and the truth does not know; such pairs are refused.
    pub pairs_unknown_total: usize,
    /// GPU-seconds on which two jobs ran.
    pub shared_gpu_seconds: f64,
    /// Preemptions.
    pub preemptions_total: u64,
    /// How often a job ran again: after a preemption, a failure, or in another shape.
    pub reconfigurations_total: u64,
    /// Seconds that jobs held GPUs without progress because of that, summed over jobs.
    pub reconfiguration_seconds: f64,
    /// Node failures.
    pub node_failures_total: u64,
    /// Isolated seconds of work lost by them, summed over jobs.
    pub lost_seconds: f64,
    /// The costs and limits of the run.
    pub options: Options,
    /// Times the policy was asked.
    pub rounds_total: u64,
    /// One record for each job, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobOutcome>,
    /// Who held which GPUs when, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

/// Times of real time: how long a run took on this machine. No part of the result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Timing {
    /// The whole run.
    pub wall_seconds: f64,
    /// In the policy, over all rounds.
    pub policy_seconds: f64,
    /// In the policy, median round.
    pub policy_p50_seconds: f64,
    /// In the policy, 99th percentile of the rounds.
    pub policy_p99_seconds: f64,
    /// Arrivals, finishes, wake-ups and failures for each second of the run.
    pub events_per_second: f64,
    /// Jobs for each second of the run.
    pub jobs_per_second: f64,
}

impl Timing {
    pub(crate) fn new(wall_seconds: f64, rounds: &[f32], totals: &Totals, trace: &Trace) -> Self {
        let rounds: Vec<f64> = rounds.iter().copied().map(f64::from).collect();
        Self {
            wall_seconds,
            policy_seconds: rounds.iter().sum(),
            policy_p50_seconds: quantile(&rounds, 0.5),
            policy_p99_seconds: quantile(&rounds, 0.99),
            events_per_second: totals.events as f64 / wall_seconds,
            jobs_per_second: trace.jobs().len() as f64 / wall_seconds,
        }
    }
}

pub(crate) fn summarise(
    trace: &Trace,
    cluster: &ClusterSpec,
    policy: &str,
    tables: Option<&Tables<'_>>,
    engine: &Engine<'_>,
) -> Simulation {
    let (options, totals) = (engine.options, &engine.totals);
    let both = || engine.jobs.iter().zip(&engine.states);
    let column = |value: fn(&TraceJob, &State) -> f64| -> Vec<f64> {
        both().map(|(job, state)| value(job, state)).collect()
    };
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let jcts = column(jct);
    let queueing = column(|job, state| state.started - job.submit_seconds);
    let stretch = column(|job, state| jct(job, state) / job.duration_seconds);
    let fairness = column(|job, state| jct(job, state) / job.duration_seconds / contention(job, state));
    let slowdown = column(|_, state| (state.running_seconds - state.stalled_seconds) / state.alone_seconds);
    let slowed: Vec<f64> = both()
        .zip(&slowdown)
        .filter(|((_, state), _)| state.colocated_seconds > 0.0)
        .map(|(_, slowdown)| *slowdown)
        .collect();
    let [steady_from, steady_to] = engine.windows.steady;
    let steady: Vec<f64> = both()
        .filter(|(job, _)| (steady_from..=steady_to).contains(&job.submit_seconds))
        .map(|(job, state)| jct(job, state))
        .collect();
    let has_steady = steady_to > steady_from && !steady.is_empty();
    let first = engine.windows.arriving[0];
    let makespan = engine.states.iter().map(|state| state.finished).fold(first, f64::max) - first;
    let capacity = f64::from(cluster.gpus());
    let load = trace.load(cluster);
    let span = trace.span().get();
    let over = |amount: f64, seconds: f64| (seconds > 0.0).then(|| amount / (capacity * seconds));
    let knows_activity = trace.jobs().iter().all(|job| job.sm_active_ratio.is_some());
    let active = |amount: f64, seconds: f64| over(amount, seconds).filter(|_| knows_activity);
    let knows_memory = trace.jobs().iter().all(|job| job.memory_bytes.is_some());
    let memory: Option<f64> = cluster
        .pools()
        .iter()
        .map(|pool| pool.memory_bytes.map(|bytes| bytes * f64::from(pool.gpus())))
        .sum::<Option<f64>>()
        .filter(|_| knows_memory);
    let count = |value: fn(&State) -> u32| engine.states.iter().map(|state| u64::from(value(state))).sum();
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
        jobs_total: jcts.len(),
        jct_mean_seconds: mean(&jcts),
        jct_median_seconds: quantile(&jcts, 0.5),
        jct_p95_seconds: quantile(&jcts, 0.95),
        jct_p99_seconds: quantile(&jcts, 0.99),
        jct_mean_steady_seconds: has_steady.then(|| mean(&steady)),
        jct_p99_steady_seconds: has_steady.then(|| quantile(&steady, 0.99)),
        makespan_seconds: makespan,
        queueing_mean_seconds: mean(&queueing),
        queueing_p99_seconds: quantile(&queueing, 0.99),
        allocated_ratio: totals.held.total / (capacity * makespan),
        allocated_while_arriving_ratio: over(totals.held.arriving, span),
        sm_active_ratio: active(totals.sm_active.total, makespan),
        sm_active_while_arriving_ratio: active(totals.sm_active.arriving, span),
        sm_active_steady_ratio: active(totals.sm_active.steady, steady_to - steady_from),
        throughput_ratio: totals.work.total / (capacity * makespan),
        throughput_while_arriving_ratio: over(totals.work.arriving, span),
        throughput_steady_ratio: over(totals.work.steady, steady_to - steady_from),
        memory_ratio: memory.map(|bytes| totals.memory_byte_seconds / (bytes * makespan)),
        fragmentation_ratio: (totals.idle_gpu_seconds > 0.0)
            .then(|| totals.stranded_gpu_seconds / totals.idle_gpu_seconds),
        stretch_mean_ratio: mean(&stretch),
        stretch_p99_ratio: quantile(&stretch, 0.99),
        stretch_max_ratio: largest(&stretch),
        fairness_mean_ratio: mean(&fairness),
        fairness_max_ratio: largest(&fairness),
        unfair_jobs_ratio: fairness.iter().filter(|rho| **rho > 1.1).count() as f64 / fairness.len() as f64,
        slowdown_mean_ratio: mean(&slowdown),
        slowdown_max_ratio: largest(&slowdown),
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
        pairs_unknown_total: engine.rates.unknown(),
        shared_gpu_seconds: totals.shared_gpu_seconds,
        preemptions_total: count(|state| state.preemptions),
        reconfigurations_total: count(|state| state.restarts),
        reconfiguration_seconds: engine.states.iter().map(|state| state.stalled_seconds).sum(),
        node_failures_total: totals.node_failures,
        lost_seconds: engine.states.iter().map(|state| state.lost_seconds).sum(),
        options: options.clone(),
        rounds_total: totals.rounds,
        jobs: if options.keep_jobs {
            both().map(|(job, state)| JobOutcome::new(job, state)).collect()
        } else {
            Vec::new()
        },
        timeline: None,
    }
}
