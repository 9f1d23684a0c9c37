//! Laws that hold for every trace and policy.

use elastico_core::{JobId, Seed, Slowdown};
use elastico_simulator::{
    ClusterSpec, Options, PolicyKind, SlowdownTable, Tables, Trace, TraceJob, simulate,
};
use proptest::prelude::*;

fn traces() -> impl Strategy<Value = Trace> {
    let job = (0usize..3, 1u32..=8, 0.0f64..500.0, 0.5f64..300.0);
    prop::collection::vec(job, 1..60).prop_map(|jobs| {
        let jobs = jobs
            .into_iter()
            .enumerate()
            .map(|(index, (workload, gpus, submit, duration))| {
                let id = JobId::new(format!("job-{index}")).unwrap();
                // Mostly small, some over two nodes.
                let gpus = if gpus > 5 { gpus } else { 1 + gpus / 4 };
                let mut job = TraceJob::new(id, ["a", "b", "c"][workload], gpus, submit.floor(), duration);
                job.sm_active_ratio = Some(0.9);
                job
            })
            .collect();
        Trace::new("random", jobs).unwrap()
    })
}

fn tables() -> (SlowdownTable, SlowdownTable) {
    let (mut truth, mut planner) = (SlowdownTable::new("truth"), SlowdownTable::new("planner"));
    for (row, subject) in ["a", "b", "c"].into_iter().enumerate() {
        for (column, co_runner) in ["a", "b", "c"].into_iter().enumerate() {
            let slowdown = 1.0 + 0.17 * row as f64 + 0.11 * column as f64;
            truth.set(subject, co_runner, Slowdown::new(slowdown).unwrap(), None);
            planner.set(subject, co_runner, Slowdown::new(slowdown * 0.95).unwrap(), None);
        }
    }
    (truth, planner)
}

fn policies() -> Vec<PolicyKind> {
    let mut policies: Vec<_> =
        PolicyKind::NAMES.iter().map(|name| PolicyKind::parse(name).unwrap()).collect();
    policies.push(PolicyKind::Srtf { error_factor: 2.0, seed: Seed(3) });
    policies.push(PolicyKind::Las { thresholds_gpu_seconds: vec![20.0, 100.0] });
    policies
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_same_seed_gives_the_same_bytes(trace in traces()) {
        let cluster = ClusterSpec::new(3, 4).unwrap();
        let (truth, planner) = tables();
        let tables = Tables { truth: &truth, planner: &planner };
        for policy in policies() {
            let run = || serde_json::to_string(&simulate(&trace, &cluster, &policy, Some(&tables), &Options::default()).unwrap()).unwrap();
            prop_assert_eq!(run(), run());
        }
    }

    #[test]
    fn strict_fifo_starts_in_order(trace in traces()) {
        let cluster = ClusterSpec::new(2, 4).unwrap();
        let options = Options { keep_jobs: true, ..Options::default() };
        let result = simulate(&trace, &cluster, &PolicyKind::Fifo, None, &options).unwrap();
        prop_assert!(result.jobs.is_sorted_by(|a, b| a.start_seconds <= b.start_seconds));
    }
}
