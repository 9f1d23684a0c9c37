//! A million jobs on 16,384 GPUs under FIFO: how long it takes, and how much memory.
//!
//! `cargo run --release -p elastico-simulator --example under_load [JOBS] [POLICY] [LOAD] [CLUSTER]`
#![expect(clippy::print_stdout, reason = "an example answers on standard output")]

use elastico_core::{Seed, Slowdown};
use elastico_simulator::{
    ClusterSpec, Error, Options, PolicyKind, SlowdownTable, SyntheticOptions, Tables, Trace, simulate_timed,
};

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let jobs = arguments.next().and_then(|jobs| jobs.parse().ok()).unwrap_or(1_000_000);
    let policy = PolicyKind::parse(arguments.next().as_deref().unwrap_or("fifo"))?;
    let load = arguments.next().and_then(|load| load.parse().ok()).unwrap_or(0.9);
    let cluster: ClusterSpec = arguments.next().as_deref().unwrap_or("n2048g8").parse()?;
    let options = SyntheticOptions {
        jobs,
        load,
        cluster: cluster.clone(),
        workloads: vec![("a".into(), Some(0.3)), ("b".into(), Some(0.6))],
        median_seconds: 900.0,
    };
    let trace = Trace::synthetic(&options, Seed(1))?;
    let mut table = SlowdownTable::new("table");
    for (subject, co_runner, slowdown) in [("a", "a", 1.1), ("a", "b", 1.3), ("b", "a", 1.2), ("b", "b", 1.7)]
    {
        // A slowdown above 0 is one.
        if let Ok(slowdown) = Slowdown::new(slowdown) {
            table.set(subject, co_runner, slowdown, None);
        }
    }
    let tables = Tables { truth: &table, planner: &table };
    let (result, timing) = simulate_timed(&trace, &cluster, &policy, Some(&tables), &Options::default())?;
    println!(
        "{} of {jobs} jobs on {} at load {load}: {:.2} s, {:.0} jobs/s, {:.0} events/s; JCT mean {:.0} s (simulated)",
        result.policy,
        result.cluster,
        timing.wall_seconds,
        timing.jobs_per_second,
        timing.events_per_second,
        result.jct_mean_seconds
    );
    println!(
        "{} rounds took the policy {:.3} s, {:.0} rounds/s; p50 {:.2} us, p99 {:.2} us",
        result.rounds_total,
        timing.policy_seconds,
        result.rounds_total as f64 / timing.policy_seconds,
        timing.policy_p50_seconds * 1e6,
        timing.policy_p99_seconds * 1e6
    );
    #[cfg(target_os = "linux")]
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
        println!("{peak}");
    }
    Ok(())
}
