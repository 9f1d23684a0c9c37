//! Against Muri's simulator (Zhao et al., SIGCOMM 2022), whose rules for SRTF and SRSF this file has as a policy.
//!
//! What is particular to it: at every arrival and finish all GPUs are given out anew, in order of what jobs have left (SRTF:
//! seconds, SRSF: GPU-seconds); a job that does not fit is passed over; moving a job is free. The numbers are those of its
//! own program with its two overheads set to none (1.5 % on every iteration, and some seconds off every running job at
//! *every* event, whether it moved or not).

use super::published::shared;
use elastico_simulator::{
    ClusterSpec, Options, Policy, PolicyKind, Round, TimeUnit, Trace, simulate, simulate_with,
};

#[derive(Clone, Copy)]
enum Left {
    Seconds,
    GpuSeconds,
}

struct Anew(Left);

impl Policy for Anew {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        for job in round.running().collect::<Vec<_>>() {
            round.preempt(job);
        }
        let mut jobs = round.waiting();
        let left = |job: usize| {
            let gpus = match self.0 {
                Left::Seconds => 1.0,
                Left::GpuSeconds => f64::from(round.job(job).gpus),
            };
            round.remaining_seconds(job) * gpus
        };
        let order: Vec<f64> = jobs.iter().map(|job| left(*job)).collect();
        let mut ranks: Vec<usize> = (0..jobs.len()).collect();
        ranks.sort_by(|a, b| order[*a].total_cmp(&order[*b]));
        jobs = ranks.into_iter().map(|rank| jobs[rank]).collect();
        for job in jobs {
            if round.free_gpus() == 0 {
                break;
            }
            round.try_start(job);
        }
    }
}

#[test]
fn a_contended_trace_takes_as_long_as_in_muri() {
    let (Some(trace), Some(nodes)) = (shared("muri/trace1.csv"), shared("muri/n8g8.csv")) else { return };
    let trace = Trace::read_tiresias(&trace, Some(TimeUnit::Milliseconds)).unwrap();
    let cluster = ClusterSpec::read_tiresias(&nodes).unwrap();
    let options = Options { restart_seconds: 0.0, ..Options::default() };
    for (left, jct, makespan) in
        [(Left::Seconds, 1_333_933.079, 25_776_868.4), (Left::GpuSeconds, 952_242.121, 25_662_719.3)]
    {
        let (result, _) = simulate_with(&trace, &cluster, "anew", &mut Anew(left), None, &options).unwrap();
        let ratios = [result.jct_mean_seconds / jct, result.makespan_seconds / makespan];
        assert!(ratios.iter().all(|ratio| (ratio - 1.0).abs() < 1e-4), "{ratios:?} of Muri's");
    }
}

/// Our own SRTF and SRSF leave a running job where it is unless a more urgent one needs its GPUs, and no placement is thrown
/// away: they may be better than Muri's rule, not much worse.
#[test]
fn our_policies_are_as_good_without_moving_jobs() {
    let (Some(trace), Some(nodes)) = (shared("muri/trace1.csv"), shared("muri/n8g8.csv")) else { return };
    let trace = Trace::read_tiresias(&trace, Some(TimeUnit::Milliseconds)).unwrap();
    let cluster = ClusterSpec::read_tiresias(&nodes).unwrap();
    let options = Options { restart_seconds: 0.0, ..Options::default() };
    for (policy, jct) in [("srtf_oracle", 1_333_933.079), ("srsf", 952_242.121)] {
        let policy = PolicyKind::parse(policy).unwrap();
        let result = simulate(&trace, &cluster, &policy, None, &options).unwrap();
        let ratio = result.jct_mean_seconds / jct;
        assert!((0.9..1.02).contains(&ratio), "{} is {ratio} of Muri's", policy.name());
    }
}
