//! Laws that hold for every trace, cluster and policy, looked at in every round.

use crate::policies::Policy;
use crate::{
    ClusterSpec, GreedyOptions, Knowledge, Options, PolicyKind, Round, SlowdownTable, SpeedTable, Tables,
    Trace, TraceJob, simulate_with,
};
use elastico_core::{JobId, Seed, Slowdown};
use elastico_placement::ScalingLaw;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A policy that is looked over after each of its rounds.
struct Watched {
    policy: Box<dyn Policy>,
    now: f64,
}

impl Policy for Watched {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        assert!(round.now() >= self.now, "time runs backwards");
        self.now = round.now();
        self.policy.decide(round);
        let engine = &*round.engine;
        let mut held: BTreeMap<(usize, u32), u32> = BTreeMap::new();
        for (job, state) in engine.states.iter().enumerate() {
            assert_eq!(state.shape.is_some(), engine.running.contains(&job));
            let Some(shape) = state.shape else {
                assert!(state.place.is_empty() && state.partner.is_none());
                continue;
            };
            assert!(!engine.is_waiting(job));
            assert!(engine.jobs[job].gpu_range().contains(&shape.gpus));
            if let Some(partner) = state.partner {
                let other = &engine.states[partner];
                assert_eq!((other.partner, other.shape), (Some(job), state.shape));
                assert_ne!(other.place.is_empty(), state.place.is_empty(), "one of a pair holds the GPUs");
            } else {
                // A gang has all its GPUs.
                assert_eq!(state.place.iter().map(|(_, gpus)| gpus).sum::<u32>(), shape.gpus);
            }
            for (node, gpus) in &state.place {
                *held.entry((shape.pool, *node)).or_default() += gpus;
            }
        }
        for (pool, spec) in engine.cluster.pools().iter().enumerate() {
            let of_pool: u32 =
                held.iter().filter(|((other, _), _)| *other == pool).map(|(_, gpus)| gpus).sum();
            assert_eq!(of_pool, engine.free[pool].held());
            for node in 0..spec.nodes {
                let used = held.get(&(pool, node)).copied().unwrap_or(0);
                let free = engine.free[pool].of_node(node);
                assert!(
                    used + free == spec.gpus_per_node || (used, free) == (0, 0),
                    "a failed node is empty"
                );
            }
        }
        let free = engine.free_gpus() + held.values().sum::<u32>();
        assert!(free <= engine.cluster.gpus());
    }
}

fn traces() -> impl Strategy<Value = Trace> {
    let job = (0usize..3, 1u32..=8, 0.0f64..500.0, 0.5f64..300.0, 0u32..4);
    prop::collection::vec(job, 1..50).prop_map(|jobs| {
        let jobs = jobs
            .into_iter()
            .enumerate()
            .map(|(index, (workload, gpus, submit, duration, kind))| {
                let id = JobId::new(format!("job-{index}")).unwrap();
                // Mostly small, some over two nodes.
                let gpus = if gpus > 5 { gpus } else { 1 + gpus / 4 };
                let mut job = TraceJob::new(id, ["a", "b", "c"][workload], gpus, submit.floor(), duration);
                job.sm_active_ratio = Some(0.9);
                job.memory_bytes = Some(3e10 * f64::from(kind + 1) / 2.0);
                if kind % 2 == 1 {
                    (job.gpus_min, job.gpus_max) = (Some(1), Some(8));
                }
                if kind == 2 {
                    job.device = Some("v100".into());
                }
                job
            })
            .collect();
        Trace::new("random", jobs).unwrap()
    })
}

fn knowledge(name: &str, factor: f64) -> Knowledge {
    let mut slowdowns = SlowdownTable::new(name);
    let mut speeds = SpeedTable::new(name);
    for (row, subject) in ["a", "b", "c"].into_iter().enumerate() {
        for (column, co_runner) in ["a", "b", "c"].into_iter().enumerate() {
            let slowdown = 1.0 + factor * (0.17 * row as f64 + 0.11 * column as f64);
            slowdowns.set(subject, co_runner, Slowdown::new(slowdown).unwrap(), None);
        }
        speeds.set(subject, Some("v100"), 1, 3.0).unwrap();
        speeds.set(subject, Some("k80"), 1, 1.0 + 0.5 * row as f64).unwrap();
    }
    speeds.set_law(None, ScalingLaw { within_node: 0.8, across_nodes: 0.5 }, 4).unwrap();
    Knowledge::new(Some(slowdowns), Some(speeds))
}

fn policies() -> Vec<PolicyKind> {
    let mut policies: Vec<_> =
        PolicyKind::NAMES.iter().map(|name| PolicyKind::parse(name).unwrap()).collect();
    policies.push(PolicyKind::Las { thresholds_gpu_seconds: vec![20.0, 100.0] });
    policies.push(PolicyKind::GreedyPairs(GreedyOptions { limit_ratio: 2.0, least_stp: 0.5 }));
    policies
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn work_and_gpu_seconds_are_conserved(
        trace in traces(),
        nodes in 2u32..5,
        pools in 1usize..3,
        fails in any::<bool>(),
        spreads in any::<bool>(),
    ) {
        let text = [format!("v100:n{nodes}g4"), format!("v100:n{nodes}g4,k80:n1g2")];
        let cluster: ClusterSpec = text[pools - 1].parse().unwrap();
        let (truth, planner) = (knowledge("truth", 1.0), knowledge("planner", 0.9));
        let tables = Tables { truth: &truth, planner: &planner };
        let options = Options {
            restart_seconds: 3.0,
            checkpoint_seconds: 20.0,
            mtbf_seconds: fails.then_some(2000.0),
            repair_seconds: 100.0,
            spread_ratio: spreads.then_some(1.2),
            seed: Seed(7),
            keep_jobs: true,
            ..Options::default()
        };
        for policy in policies() {
            let mut watched = Watched { policy: policy.build().unwrap(), now: 0.0 };
            let (result, _) =
                simulate_with(&trace, &cluster, policy.name(), &mut watched, Some(&tables), &options).unwrap();
            prop_assert_eq!(result.jobs.len(), trace.jobs().len());
            let capacity = f64::from(cluster.gpus()) * result.makespan_seconds;
            // GPUs held, counted job by job: a shared GPU is in two jobs' time, so it comes off once.
            let held = result.allocated_ratio * capacity;
            let by_job: f64 = result.jobs.iter().map(|job| job.held_gpu_seconds).sum();
            prop_assert!((held - (by_job - result.shared_gpu_seconds)).abs() <= 1e-6 * held, "{policy:?}: {held} {by_job}");
            prop_assert!(result.allocated_ratio <= 1.0 + 1e-9);
            prop_assert!(result.sm_active_ratio.unwrap() <= result.allocated_ratio + 1e-9);
            prop_assert!(result.memory_ratio.unwrap() > 0.0);
            // All work is done, once.
            let asked: f64 = trace.jobs().iter().map(TraceJob::gpu_seconds).sum();
            let done = result.throughput_ratio * capacity;
            prop_assert!((done - asked).abs() <= 1e-6 * asked, "{policy:?}: {done} of {asked}");
            for job in &result.jobs {
                prop_assert!(job.finish_seconds.is_finite() && job.start_seconds >= job.submit_seconds);
                prop_assert!(job.running_seconds <= job.finish_seconds - job.start_seconds + 1e-6);
                // A job that is preempted while it stands still has not paid the whole restart.
                prop_assert!(job.overhead_seconds <= 3.0 * f64::from(job.reconfigurations_total) + 1e-6);
                prop_assert!(job.lost_seconds <= 20.0 * 8.0 * f64::from(job.failures_total) + 1e-6);
                prop_assert!(job.contention_ratio >= 1.0);
                let slowdown = job.slowdown_ratio();
                if job.colocated_seconds <= 0.0 {
                    prop_assert!((slowdown - 1.0).abs() < 1e-6, "{policy:?}: {job:?}");
                } else {
                    // The mildest pair of the table slows by nothing, the worst by 1.56.
                    prop_assert!((1.0 - 1e-6..=1.56 + 1e-6).contains(&slowdown), "{policy:?}: {job:?}");
                }
            }
        }
    }
}
