//! What sets each policy apart, on clusters of a few GPUs.

use elastico_core::{JobId, Slowdown};
use elastico_placement::ScalingLaw;
use elastico_simulator::{
    Knowledge, Options, PolicyKind, Simulation, SlowdownTable, SpeedTable, Tables, Trace, TraceJob, simulate,
};

fn job(name: &str, gpus: u32, submit: f64, duration: f64) -> TraceJob {
    TraceJob::new(JobId::new(name).unwrap(), name.trim_end_matches(char::is_numeric), gpus, submit, duration)
}

/// `tiny` hardly notices a co-runner, `jumbo` suffers; `lead` gains ten times from the fast device, `mild` a fifth.
fn run(policy: &str, cluster: &str, jobs: Vec<TraceJob>) -> Simulation {
    let mut slowdowns = SlowdownTable::new("pairs");
    for (subject, co_runner, slowdown) in
        [("tiny", "tiny", 1.02), ("tiny", "jumbo", 1.1), ("jumbo", "tiny", 1.1), ("jumbo", "jumbo", 2.5)]
    {
        slowdowns.set(subject, co_runner, Slowdown::new(slowdown).unwrap(), None);
    }
    let mut speeds = SpeedTable::new("speeds");
    for (workload, fast) in [("lead", 10.0), ("mild", 1.2)] {
        speeds.set(workload, Some("fast"), 1, fast).unwrap();
        speeds.set(workload, Some("slow"), 1, 1.0).unwrap();
    }
    speeds.set_law(None, ScalingLaw { within_node: 1.0, across_nodes: 1.0 }, 4).unwrap();
    let knowledge = Knowledge::new(Some(slowdowns), Some(speeds));
    let tables = Tables { truth: &knowledge, planner: &knowledge };
    let trace = Trace::new("by hand", jobs).unwrap();
    let options = Options { restart_seconds: 0.0, keep_jobs: true, ..Options::default() };
    let policy = PolicyKind::parse(policy).unwrap();
    simulate(&trace, &cluster.parse().unwrap(), &policy, Some(&tables), &options).unwrap()
}

fn finishes(result: &Simulation) -> Vec<f64> {
    result.jobs.iter().map(|job| job.finish_seconds).collect()
}

#[test]
fn best_fit_takes_the_largest_and_shortest_job_first_the_shortest() {
    let jobs = || {
        vec![
            job("a0", 2, 0.0, 10.0),
            job("b0", 1, 1.0, 40.0),
            job("b1", 1, 1.0, 50.0),
            job("b2", 2, 2.0, 45.0),
        ]
    };
    assert_eq!(finishes(&run("best_fit", "n1g2", jobs())), [10.0, 95.0, 105.0, 55.0]);
    assert_eq!(finishes(&run("sjf_oracle", "n1g2", jobs())), [10.0, 50.0, 60.0, 105.0]);
}

#[test]
fn pollux_and_sia_give_an_elastic_job_the_gpus_that_nobody_wants() {
    for policy in ["pollux", "sia"] {
        let mut elastic = job("a0", 1, 0.0, 400.0);
        elastic.gpus_max = Some(4);
        let alone = run(policy, "n1g4", vec![elastic.clone()]);
        assert_eq!(finishes(&alone), [100.0], "{policy}");
        // From the round at 60 s on there are two, and two GPUs each do the most for the sum of both.
        let mut second = job("b0", 1, 50.0, 80.0);
        second.gpus_max = Some(4);
        let both = run(policy, "n1g4", vec![elastic, second]);
        assert_eq!(finishes(&both)[1], 100.0, "{policy}");
        assert!(both.reconfigurations_total >= 2, "{policy}");
    }
}

#[test]
fn gavel_gives_the_fast_device_to_who_gains_most() {
    let mut jobs = vec![job("mild0", 1, 0.0, 7200.0), job("lead0", 1, 0.0, 7200.0)];
    for job in &mut jobs {
        job.device = Some("slow".into());
    }
    let fair = finishes(&run("gavel", "fast:n1g1,slow:n1g1", jobs.clone()));
    // In order of submission the wrong one has the fast GPU.
    let first = finishes(&run("fifo", "fast:n1g1,slow:n1g1", jobs));
    assert_eq!(first, [6000.0, 7200.0]);
    assert!(fair[1] < 1800.0 && fair[0] < 7200.0, "{fair:?}");
}

#[test]
fn lucid_puts_a_jumbo_job_beside_a_tiny_one_only() {
    let jobs = |second| vec![job("jumbo0", 1, 0.0, 110.0), job(second, 1, 0.0, 10.0)];
    // Shorter first: it has the GPU when the other one joins.
    let shared = run("lucid", "n1g1", jobs("tiny0"));
    assert_eq!(finishes(&shared), [111.0, 11.0]);
    let apart = run("lucid", "n1g1", jobs("jumbo1"));
    assert_eq!((finishes(&apart), apart.pairs_total), (vec![120.0, 10.0], 0));
}

#[test]
fn muri_groups_only_where_there_is_too_little_and_it_pays() {
    let pair = run("muri", "n1g1", vec![job("tiny0", 1, 0.0, 100.0), job("tiny1", 1, 0.0, 100.0)]);
    assert_eq!((finishes(&pair), pair.pairs_total), (vec![102.0, 102.0], 1));
    let roomy = run("muri", "n1g2", vec![job("tiny0", 1, 0.0, 100.0), job("tiny1", 1, 0.0, 100.0)]);
    assert_eq!((finishes(&roomy), roomy.pairs_total), (vec![100.0, 100.0], 0));
    let bad = run("muri", "n1g1", vec![job("jumbo0", 1, 0.0, 100.0), job("jumbo1", 1, 0.0, 100.0)]);
    assert_eq!(bad.pairs_total, 0);
}

#[test]
fn memory_decides_where_nothing_else_is_known_and_space_is_shared_in_gavel_where_it_pays() {
    let sized = |name, gigabytes: f64| {
        let mut job = job(name, 1, 0.0, 100.0);
        job.memory_bytes = Some(gigabytes * 1e9);
        job
    };
    let small = run("memory_fit_pairs", "h100:n1g1", vec![sized("jumbo0", 40.0), sized("jumbo1", 30.0)]);
    // It cannot see that this pair is slower than taking turns.
    assert_eq!((small.pairs_total, small.harmed_jobs_total), (1, 2));
    let large = run("memory_fit_pairs", "h100:n1g1", vec![sized("tiny0", 60.0), sized("tiny1", 50.0)]);
    assert_eq!(large.pairs_total, 0);
    let pairs = |workload: &str| {
        let jobs = (0..2).map(|index| job(&format!("{workload}{index}"), 1, 0.0, 1000.0)).collect();
        run("gavel_pairs", "n1g1", jobs).pairs_total
    };
    assert_eq!((pairs("tiny"), pairs("jumbo")), (1, 0));
}
