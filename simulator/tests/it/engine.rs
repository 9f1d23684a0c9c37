//! Pools, shapes, plans, costs and failures, small enough for pencil and paper.

use elastico_core::{JobId, Seed, Slowdown};
use elastico_placement::ScalingLaw;
use elastico_simulator::{
    ClusterSpec, Error, JobOutcome, Knowledge, Options, Policy, Round, Shape, Simulation, SlowdownTable,
    SpeedTable, Tables, Target, Trace, TraceJob, simulate_with,
};

fn job(name: &str, gpus: u32, submit: f64, duration: f64) -> TraceJob {
    TraceJob::new(JobId::new(name).unwrap(), name.trim_end_matches(char::is_numeric), gpus, submit, duration)
}

/// A policy that is one function.
struct Script<F>(F);

impl<F: FnMut(&mut Round<'_, '_>)> Policy for Script<F> {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        (self.0)(round);
    }
}

fn knowledge() -> Knowledge {
    let mut slowdowns = SlowdownTable::new("pairs");
    for (subject, co_runner, slowdown) in [("a", "b", 1.25), ("b", "a", 2.0)] {
        slowdowns.set(subject, co_runner, Slowdown::new(slowdown).unwrap(), None);
    }
    let mut speeds = SpeedTable::new("speeds");
    for (device, speed) in [("fast", 4.0), ("slow", 1.0)] {
        for workload in ["a", "b"] {
            speeds.set(workload, Some(device), 1, speed).unwrap();
        }
    }
    speeds.set_law(None, ScalingLaw { within_node: 0.5, across_nodes: 0.5 }, 4).unwrap();
    Knowledge::new(Some(slowdowns), Some(speeds))
}

fn run(
    cluster: &str,
    jobs: Vec<TraceJob>,
    options: &Options,
    policy: impl FnMut(&mut Round<'_, '_>),
) -> Result<Simulation, Error> {
    let (cluster, trace) = (cluster.parse().unwrap(), Trace::new("by hand", jobs).unwrap());
    let truth = knowledge();
    let tables = Tables { truth: &truth, planner: &truth };
    simulate_with(&trace, &cluster, "script", &mut Script(policy), Some(&tables), options)
        .map(|(simulation, _)| simulation)
}

fn kept() -> Options {
    Options { restart_seconds: 10.0, keep_jobs: true, ..Options::default() }
}

fn start_all(round: &mut Round<'_, '_>) {
    for job in round.waiting() {
        round.try_start(job);
    }
}

fn finishes(result: &Simulation) -> Vec<f64> {
    result.jobs.iter().map(|job| job.finish_seconds).collect()
}

#[test]
fn a_job_runs_as_fast_as_its_device_and_takes_the_fastest_pool_first() {
    let mut slow = job("a0", 1, 0.0, 100.0);
    slow.device = Some("slow".into());
    let mut second = job("a1", 1, 0.0, 100.0);
    second.device = Some("slow".into());
    let anywhere = job("b0", 1, 0.0, 100.0);
    let result = run("slow:n1g2,fast:n1g1", vec![slow, second, anywhere], &kept(), start_all).unwrap();
    // The first takes the only fast GPU; a job without device takes as long anywhere.
    assert_eq!(finishes(&result), [25.0, 100.0, 100.0]);
    let mut unknown = job("c0", 1, 0.0, 100.0);
    unknown.device = Some("slow".into());
    let error = run("fast:n1g1", vec![unknown], &kept(), start_all).unwrap_err();
    assert_eq!(
        error.to_string(),
        "job `c0` cannot run on this cluster: no speed of `c` is known on 1 GPUs against those of a slow"
    );
}

#[test]
fn an_elastic_job_runs_in_any_shape_of_its_range_and_a_resize_costs_a_restart() {
    let mut elastic = job("a0", 1, 0.0, 100.0);
    elastic.gpus_max = Some(4);
    let shape = |gpus| Shape { pool: 0, gpus };
    let result = run("n1g4", vec![elastic.clone()], &kept(), |round| {
        if round.now() == 0.0 {
            assert!(!round.start(0, shape(8)) && round.rate(0, shape(8)).is_none());
            assert_eq!(
                round.shapes(0).iter().map(|rate| rate.rate).collect::<Vec<_>>(),
                [1.0, 2.0_f64.sqrt(), 2.0]
            );
            assert!(round.start(0, shape(1)));
            round.wake_at(20.0);
        } else if round.now() == 20.0 {
            assert!(round.resize(0, shape(4)));
        }
    })
    .unwrap();
    // 20 s of work at rate 1, 10 s of restart, 80 s at rate 2.
    assert_eq!(finishes(&result), [70.0]);
    assert_eq!((result.reconfigurations_total, result.preemptions_total), (1, 0));
    assert_eq!(result.reconfiguration_seconds, 10.0);
    assert_eq!(result.jobs[0].held_gpu_seconds, 20.0 + 50.0 * 4.0);
    assert_eq!(result.throughput_ratio, 100.0 / (4.0 * 70.0));
    assert_eq!(result.slowdown_max_ratio, 1.0);
}

#[test]
fn jobs_of_equal_gpu_counts_pair_and_the_restart_of_one_slows_the_other() {
    let jobs = vec![job("a0", 2, 0.0, 100.0), job("b0", 2, 0.0, 50.0)];
    let result = run("n1g2", jobs, &kept(), |round| {
        if round.now() == 0.0 {
            assert!(round.start(0, Shape { pool: 0, gpus: 2 }));
            assert!(round.start_beside(1, 0));
        }
    })
    .unwrap();
    // b at half speed for 100 s, by when a has done 80.
    assert_eq!(finishes(&result), [120.0, 100.0]);
    assert_eq!((result.allocated_ratio, result.shared_gpu_seconds), (1.0, 200.0));
    assert_eq!(result.jobs.iter().map(JobOutcome::slowdown_ratio).collect::<Vec<_>>(), [1.2, 2.0]);
}

#[test]
fn a_plan_keeps_what_does_not_change() {
    let jobs = vec![job("a0", 2, 0.0, 100.0), job("a1", 1, 0.0, 100.0), job("b0", 1, 0.0, 100.0)];
    let one = Shape { pool: 0, gpus: 1 };
    let two = Shape { pool: 0, gpus: 2 };
    let result = run("n1g3", jobs, &kept(), |round| {
        if round.now() == 0.0 {
            let plan = [(2, Target::Beside(1, one)), (1, Target::Alone(one)), (0, Target::Alone(two))];
            assert!(round.apply(&plan).is_empty());
            round.wake_at(10.0);
        } else if round.now() == 10.0 {
            // The roles of the pair are turned around: nothing happens.
            let plan = [(2, Target::Alone(one)), (1, Target::Beside(2, one)), (0, Target::Alone(two))];
            assert!(round.apply(&plan).is_empty());
            assert_eq!(round.partner_of(2), Some(1));
            round.wake_at(20.0);
        } else if round.now() == 20.0 {
            // The large one goes, the pair is split: one of them keeps its GPU, the other moves.
            let plan = [(0, Target::Wait), (1, Target::Alone(one)), (2, Target::Alone(one))];
            assert!(round.apply(&plan).is_empty());
            assert_eq!((round.partner_of(1), round.free_gpus()), (None, 1));
        } else if !round.waiting().is_empty() {
            // No place as long as both small ones run.
            let unplaced = round.apply(&[(0, Target::Alone(two))]);
            assert_eq!(unplaced.is_empty(), round.free_gpus() == 0 || round.now() > 104.0);
        }
    })
    .unwrap();
    let preemptions: Vec<_> = result.jobs.iter().map(|job| job.preemptions_total).collect();
    assert_eq!(preemptions, [1, 0, 1]);
    // a1 has done 16 by 20 s and goes on alone; b0 has done 10, stands still for 10 s, and has 90 left.
    assert_eq!(finishes(&result), [104.0 + 10.0 + 80.0, 104.0, 120.0]);
}

#[test]
fn a_failed_node_takes_the_work_since_the_last_checkpoint() {
    let options = Options {
        checkpoint_seconds: 30.0,
        mtbf_seconds: Some(400.0),
        repair_seconds: 50.0,
        seed: Seed(3),
        ..kept()
    };
    let jobs = (0..6).map(|index| job(&format!("a{index}"), 1, 0.0, 200.0)).collect::<Vec<_>>();
    let result = run("n3g2", jobs.clone(), &options, start_all).unwrap();
    assert!(result.node_failures_total > 0 && result.lost_seconds > 0.0);
    for job in &result.jobs {
        let work = job.isolated_seconds + job.lost_seconds;
        assert!((job.running_seconds - job.overhead_seconds - work).abs() < 1e-6, "{job:?}");
        assert!(job.lost_seconds <= 30.0 * f64::from(job.failures_total));
        assert_eq!(job.failures_total, job.reconfigurations_total);
    }
    // What was lost is no throughput.
    let work = result.throughput_ratio * 6.0 * result.makespan_seconds;
    assert!((work - 1200.0).abs() < 1e-6, "{work}");
    let nothing_lost = run("n3g2", jobs, &Options { checkpoint_seconds: 0.0, ..options }, start_all).unwrap();
    assert_eq!(nothing_lost.lost_seconds, 0.0);
}

#[test]
fn a_fragmented_cluster_says_so_and_a_spread_job_is_slow() {
    // Nodes of two. At 10 s one GPU of each is free, and the job of two waits from 20 s to 100 s.
    let jobs = || {
        let ones = [10.0, 100.0, 100.0].into_iter().enumerate();
        let mut jobs: Vec<_> =
            ones.map(|(index, seconds)| job(&format!("a{index}"), 1, 0.0, seconds)).collect();
        jobs.push(job("b0", 2, 20.0, 30.0));
        jobs
    };
    let compact = run("n2g2", jobs(), &kept(), start_all).unwrap();
    assert_eq!(finishes(&compact)[3], 130.0);
    // Idle: one GPU for 10 s, two for 10 s, the stranded two for 80 s, two for 30 s.
    assert_eq!(compact.fragmentation_ratio, Some(160.0 / 250.0));
    let spread = Options { spread_ratio: Some(1.5), ..kept() };
    let wide = run("n2g2", jobs(), &spread, start_all).unwrap();
    assert_eq!((finishes(&wide)[3], wide.fragmentation_ratio), (65.0, Some(0.0)));
}

#[test]
fn memory_counts_where_all_is_known() {
    let mut only = job("a0", 2, 0.0, 100.0);
    only.memory_bytes = Some(20e9);
    let cluster: ClusterSpec = "h100:n1g4".parse().unwrap();
    let bytes = cluster.pools()[0].memory_bytes.unwrap();
    let result = run("h100:n1g4", vec![only], &kept(), start_all).unwrap();
    assert_eq!(result.memory_ratio, Some(20e9 * 2.0 / (4.0 * bytes)));
}

#[test]
fn restarts_that_eat_all_progress_end_the_run() {
    let trace = Trace::new("t", vec![job("a", 1, 0.0, 100.0), job("c", 1, 0.0, 100.0)]).unwrap();
    let cluster: ClusterSpec = "n1g1".parse().unwrap();
    let options = Options { restart_seconds: 30.0, ..Options::default() };
    let turns = |seconds: f64| {
        let mut on = 0;
        let mut policy = Script(|round: &mut Round<'_, '_>| {
            for job in round.running().collect::<Vec<_>>() {
                round.preempt(job);
            }
            on = 1 - on;
            if !(round.is_waiting(on) && round.try_start(on)) {
                let _ = round.is_waiting(1 - on) && round.try_start(1 - on);
            }
            round.wake_at(round.now() + seconds);
        });
        simulate_with(&trace, &cluster, "turns", &mut policy, None, &options)
    };
    let error = turns(1.0).unwrap_err();
    assert!(matches!(error, Error::NoProgress { unfinished: 2, .. }), "{error}");
    // Turns that are a little longer than a restart are slow, and end.
    assert!(turns(30.01).is_ok());
}
