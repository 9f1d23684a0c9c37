//! Jobs per second of the engine, trace in memory: 20,000 synthetic jobs on 64 nodes of 8 GPUs, 2,000 for policies that solve
//! a program in each round.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use elastico_core::{Seed, Slowdown};
use elastico_simulator::{
    ClusterSpec, Options, PolicyKind, SlowdownTable, SyntheticOptions, Tables, Trace, simulate,
};
use std::hint::black_box;

/// Policies that solve a program or a matching in each round.
const SOLVERS: [&str; 5] = ["gavel", "gavel_pairs", "pollux", "sia", "muri"];

fn speed(criterion: &mut Criterion) {
    let cluster: ClusterSpec = "n64g8".parse().expect("a valid cluster");
    let mut group = criterion.benchmark_group("jobs");
    group.sample_size(10);
    let mut table = SlowdownTable::new("table");
    for (subject, co_runner, slowdown) in [("a", "a", 1.1), ("a", "b", 1.3), ("b", "a", 1.2), ("b", "b", 1.7)]
    {
        table.set(subject, co_runner, Slowdown::new(slowdown).expect("above 0"), None);
    }
    let tables = Tables { truth: &table, planner: &table };
    for load in [0.7, 1.1] {
        for name in PolicyKind::NAMES {
            let jobs = if SOLVERS.contains(&name) { 2_000 } else { 20_000 };
            let options = SyntheticOptions {
                jobs,
                load,
                cluster: cluster.clone(),
                workloads: vec![("a".into(), Some(0.3)), ("b".into(), Some(0.6))],
                median_seconds: 900.0,
            };
            let trace = Trace::synthetic(&options, Seed(1)).expect("valid options");
            let policy = PolicyKind::parse(name).expect("a known name");
            group.throughput(Throughput::Elements(jobs as u64));
            group.bench_function(format!("{name}/load={load}"), |bencher| {
                bencher.iter(|| {
                    simulate(black_box(&trace), &cluster, &policy, Some(&tables), &Options::default())
                        .expect("a valid run")
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, speed);
criterion_main!(benches);
