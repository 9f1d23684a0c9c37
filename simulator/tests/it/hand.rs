//! Runs small enough to check with pencil and paper.

use elastico_core::{Hint, JobId, Slowdown};
use elastico_simulator::{
    ClusterSpec, Error, Options, Policy, PolicyKind, Round, Simulation, SlowdownTable, Tables, Trace,
    TraceJob, simulate, simulate_with,
};

fn job(name: &str, workload: &str, gpus: u32, submit: f64, duration: f64) -> TraceJob {
    let mut job = TraceJob::new(JobId::new(name).unwrap(), workload, gpus, submit, duration);
    job.sm_active_ratio = Some(0.6);
    job
}

fn run(policy: &str, cluster: &str, jobs: Vec<TraceJob>, tables: Option<&Tables<'_>>) -> Simulation {
    let options =
        Options { restart_seconds: 5.0, keep_jobs: true, harm_limit_ratio: 1.2, ..Options::default() };
    let cluster: ClusterSpec = cluster.parse().unwrap();
    let trace = Trace::new("by hand", jobs).unwrap();
    simulate(&trace, &cluster, &PolicyKind::parse(policy).unwrap(), tables, &options).unwrap()
}

fn finishes(result: &Simulation) -> Vec<f64> {
    result.jobs.iter().map(|job| job.finish_seconds).collect()
}

fn table(slowdowns: &[(&str, &str, f64)]) -> SlowdownTable {
    let mut table = SlowdownTable::new("truth");
    for (subject, co_runner, slowdown) in slowdowns {
        table.set(subject, co_runner, Slowdown::new(*slowdown).unwrap(), None);
    }
    table
}

#[test]
fn fifo_holds_up_the_queue_and_backfill_does_not() {
    let jobs =
        || vec![job("a", "x", 3, 0.0, 100.0), job("b", "x", 2, 1.0, 50.0), job("c", "x", 1, 2.0, 10.0)];
    let strict = run("fifo", "n1g4", jobs(), None);
    assert_eq!(finishes(&strict), [100.0, 150.0, 110.0]);
    assert_eq!(strict.queueing_mean_seconds, (0.0 + 99.0 + 98.0) / 3.0);
    let backfill = run("fifo_backfill", "n1g4", jobs(), None);
    assert_eq!(finishes(&backfill), [100.0, 150.0, 12.0]);
    // 300 + 100 + 10 GPU-seconds on 4 GPUs for 150 s.
    assert!((backfill.allocated_ratio - 410.0 / 600.0).abs() < 1e-12);
    assert!((backfill.sm_active_ratio.unwrap() - 0.6 * 410.0 / 600.0).abs() < 1e-12);
}

#[test]
fn a_job_never_spans_nodes_that_it_need_not() {
    let jobs = vec![job("a", "x", 1, 0.0, 10.0), job("b", "x", 2, 0.0, 100.0), job("c", "x", 2, 1.0, 5.0)];
    // Two nodes of two: `a` and `b` sit on different nodes, so `c` waits for `a`, though it needs no more than is free.
    let result = run("fifo", "n2g2", jobs, None);
    assert_eq!(finishes(&result), [10.0, 100.0, 15.0]);
}

#[test]
fn srtf_preempts_and_charges_the_restart() {
    let result = run(
        "srtf_oracle",
        "n1g1",
        vec![job("long", "x", 1, 0.0, 100.0), job("short", "x", 1, 40.0, 10.0)],
        None,
    );
    assert_eq!(finishes(&result), [115.0, 50.0]);
    assert_eq!((result.preemptions_total, result.jobs[0].overhead_seconds), (1, 5.0));
    assert_eq!(result.jobs[0].running_seconds, 105.0);
}

#[test]
fn srtf_takes_the_cheapest_node_for_a_larger_job() {
    let jobs = vec![
        job("a", "x", 1, 0.0, 100.0),
        job("b", "x", 1, 0.0, 200.0),
        job("c", "x", 2, 0.0, 300.0),
        job("d", "x", 2, 10.0, 20.0),
    ];
    let result = run("srtf_oracle", "n2g2", jobs, None);
    // Either node costs two GPUs; that of `c` costs one restart instead of two.
    assert_eq!(result.jobs[3].finish_seconds, 30.0);
    assert_eq!(result.jobs.iter().map(|job| job.preemptions_total).collect::<Vec<_>>(), [0, 0, 1, 0]);
}

#[test]
fn las_lets_the_young_pass_the_old() {
    let jobs = vec![job("old", "x", 1, 0.0, 5000.0), job("young", "x", 1, 3000.0, 1000.0)];
    let result = run("las", "n1g1", jobs, None);
    // At 3,600 GPU-seconds the old one falls into the second queue; 5 s of restart.
    assert_eq!(finishes(&result), [6005.0, 4600.0]);
}

#[test]
fn a_pair_runs_at_the_rates_of_the_truth_and_its_slot_counts_once() {
    let truth = table(&[("a", "a", 9.0), ("a", "b", 1.25), ("b", "a", 1.6), ("b", "b", 9.0)]);
    let planner = table(&[("a", "a", 9.0), ("a", "b", 1.2), ("b", "a", 1.3), ("b", "b", 9.0)]);
    let jobs = || vec![job("a", "a", 1, 0.0, 100.0), job("b", "b", 1, 20.0, 25.0)];
    let result = run("greedy_pairs", "n1g1", jobs(), Some(&Tables { truth: &truth, planner: &planner }));
    // Together from 20 s: b needs 25 x 1.6 = 40 s; a has done 20 + 40/1.25 = 52, so it ends at 60 + 48.
    assert_eq!(finishes(&result), [108.0, 60.0]);
    assert_eq!((result.pairs_total, result.pairs_over_limit_total), (1, 1));
    assert_eq!((result.harmed_jobs_total, result.colocated_jobs_total), (1, 2));
    assert_eq!(result.allocated_ratio, 1.0);
    // 0.6 alone for 68 s, 0.6/1.25 + 0.6/1.6 together for 40 s.
    let active = (0.6 * 68.0 + (0.6 / 1.25 + 0.6 / 1.6) * 40.0) / 108.0;
    assert!((result.sm_active_ratio.unwrap() - active).abs() < 1e-12);
    assert_eq!(result.shared_gpu_seconds, 40.0);
    // A planner that fears the pair keeps them apart.
    let careful = table(&[("a", "b", 1.6), ("b", "a", 1.6)]);
    let apart = run("greedy_pairs", "n1g1", jobs(), Some(&Tables { truth: &truth, planner: &careful }));
    assert_eq!((finishes(&apart), apart.pairs_total), (vec![100.0, 125.0], 0));
}

#[test]
fn the_guest_keeps_the_gpu_when_the_host_is_done() {
    let truth = table(&[("a", "a", 1.25)]);
    let tables = Tables { truth: &truth, planner: &truth };
    let jobs = vec![
        job("host", "a", 1, 0.0, 40.0),
        job("guest", "a", 1, 0.0, 60.0),
        job("third", "a", 1, 51.0, 1000.0),
    ];
    let result = run("greedy_pairs", "n1g1", jobs, Some(&tables));
    // The pair runs 50 s; the guest has 20 left and is joined at 51 s by the third with 19 to go.
    assert_eq!(result.jobs[0].finish_seconds, 50.0);
    assert!((result.jobs[1].finish_seconds - (51.0 + 19.0 * 1.25)).abs() < 1e-9);
    assert_eq!(result.pairs_total, 2);
}

#[test]
fn errors_say_what_to_do() {
    let trace = Trace::new("t", vec![job("a", "x", 9, 0.0, 1.0)]).unwrap();
    let cluster: ClusterSpec = "n2g4".parse().unwrap();
    let error = simulate(&trace, &cluster, &PolicyKind::Fifo, None, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "job `a` asks for 9 GPUs, the largest pool has 8");
    assert!(error.hint().is_some());
    let pools: ClusterSpec = "v100:n1g4,k80:n2g8".parse().unwrap();
    for (gpus, devices, expected) in [
        (
            8,
            ["v100", "p100"],
            "asks for 8 GPUs and may run on v100, p100 only, the largest pool of these has 4",
        ),
        (17, ["v100", "k80"], "asks for 17 GPUs, the largest pool has 16"),
        (1, ["h100", "p100"], "may run on h100, p100 only, and the cluster has no pool of these"),
    ] {
        let mut bound = job("a", "x", gpus, 0.0, 1.0);
        bound.devices = devices.map(str::to_owned).to_vec();
        let trace = Trace::new("t", vec![bound]).unwrap();
        let error = simulate(&trace, &pools, &PolicyKind::Fifo, None, &Options::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("job `a` {expected}"));
    }
    assert!(PolicyKind::parse("fifoo").unwrap_err().to_string().contains("did you mean `fifo`?"));
    let elastico = PolicyKind::parse("greedy_pairs").unwrap();
    let small = Trace::new("t", vec![job("a", "x", 1, 0.0, 1.0)]).unwrap();
    assert!(matches!(
        simulate(&small, &cluster, &elastico, None, &Options::default()),
        Err(Error::NoTable { .. })
    ));
    let wrong = Options { restart_seconds: f64::NAN, ..Options::default() };
    assert!(matches!(simulate(&small, &cluster, &PolicyKind::Fifo, None, &wrong), Err(Error::Number { .. })));
}

#[test]
fn a_policy_that_starts_nothing_is_found_out() {
    struct Idle;
    impl Policy for Idle {
        fn decide(&mut self, _: &mut Round<'_, '_>) {}
    }
    let trace = Trace::new("t", vec![job("a", "x", 1, 0.0, 1.0)]).unwrap();
    let cluster: ClusterSpec = "n1g1".parse().unwrap();
    let error = simulate_with(&trace, &cluster, "idle", &mut Idle, None, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "1 jobs wait for ever under the policy `idle`");
}

#[test]
fn the_result_is_as_before() {
    let truth = table(&[("a", "b", 1.25), ("b", "a", 1.25)]);
    let tables = Tables { truth: &truth, planner: &truth };
    let mut result = run(
        "greedy_pairs",
        "n1g1",
        vec![job("a", "a", 1, 0.0, 100.0), job("b", "b", 1, 20.0, 40.0)],
        Some(&tables),
    );
    result.jobs.truncate(1);
    insta::assert_json_snapshot!(result);
}
