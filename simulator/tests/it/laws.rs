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

#[test]
fn a_timeline_gives_no_gpu_twice_and_adds_up() {
    let mut jobs: Vec<_> = (0..60)
        .map(|index| {
            let id = JobId::new(format!("j{index}")).unwrap();
            let workload = ["a", "b", "c"][index % 3];
            let mut job = TraceJob::new(id, workload, [1, 1, 2, 4][index % 4], (index * 7) as f64, 90.0);
            job.sm_active_ratio = Some(0.5);
            job
        })
        .collect();
    jobs[5].gpus = 12;
    let trace = Trace::new("t", jobs).unwrap();
    let cluster: ClusterSpec = "n2g8".parse().unwrap();
    let (truth, planner) = tables();
    let tables = Tables { truth: &truth, planner: &planner };
    let options = Options { keep_timeline: true, keep_jobs: true, ..Options::default() };
    for name in ["fifo", "las", "random_pairs"] {
        let policy = PolicyKind::parse(name).unwrap();
        let result = simulate(&trace, &cluster, &policy, Some(&tables), &options).unwrap();
        let timeline = result.timeline.as_ref().unwrap();
        let mut gpu_seconds = 0.0;
        for (index, stay) in timeline.stays.iter().enumerate() {
            gpu_seconds += stay.gpus.len() as f64 * (stay.to_seconds - stay.from_seconds);
            for (other_index, other) in timeline.stays.iter().enumerate().skip(index + 1) {
                let overlaps = stay.from_seconds < other.to_seconds && other.from_seconds < stay.to_seconds;
                let shares = other.gpus.iter().any(|gpu| stay.gpus.contains(gpu));
                let are_pair = other.beside == Some(index) || stay.beside == Some(other_index);
                assert!(!(overlaps && shares) || are_pair, "{name}: {stay:?} and {other:?}");
            }
        }
        let held: f64 = result.jobs.iter().map(|job| job.held_gpu_seconds).sum();
        assert!((gpu_seconds - held).abs() < 1e-6, "{name}: {gpu_seconds} and {held}");
        assert_eq!(timeline.stays.iter().any(|stay| stay.beside.is_some()), name == "random_pairs");
        for (bins, whole) in [
            (timeline.allocated(7), result.allocated_ratio),
            (timeline.sm_active(7), result.sm_active_ratio.unwrap()),
        ] {
            assert!((bins.iter().sum::<f64>() / 7.0 - whole).abs() < 1e-9, "{name}: {bins:?} and {whole}");
        }
        let without = Options { keep_timeline: false, keep_jobs: true, ..Options::default() };
        let plain = simulate(&trace, &cluster, &policy, Some(&tables), &without).unwrap();
        assert_eq!(plain.jobs, result.jobs, "{name}: a record changes nothing");
    }
}
