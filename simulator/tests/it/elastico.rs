//! ElastiCo and its ablations on a synthetic backlog.

use elastico_core::{Seed, Slowdown};
use elastico_placement::ScalingLaw;
use elastico_simulator::{
    ClusterSpec, ElasticoOptions, Knowledge, Options, PolicyKind, Simulation, SlowdownTable, SpeedTable,
    SyntheticOptions, Tables, Trace, TraceJob, simulate,
};

/// Half of the workloads go well together; whoever meets `d` suffers more than anybody bears.
fn slowdowns(name: &str, error: f64) -> SlowdownTable {
    let mut table = SlowdownTable::new(name);
    let base = [("a", 1.05), ("b", 1.1), ("c", 1.25), ("d", 1.9)];
    for (subject, own) in base {
        for (co_runner, pressure) in base {
            let slowdown = Slowdown::new(1.0 + (own * pressure - 1.0) * error).unwrap();
            table.set(subject, co_runner, slowdown, None);
        }
    }
    table
}

fn knowledge(name: &str, error: f64, exponent: f64) -> Knowledge {
    let mut speeds = SpeedTable::new("a law");
    let law = ScalingLaw { within_node: exponent, across_nodes: 0.2 };
    speeds.set_law(None, law, 8).unwrap();
    Knowledge::new(Some(slowdowns(name, error)), Some(speeds))
}

fn cluster() -> ClusterSpec {
    "n2g8".parse().unwrap()
}

fn backlog() -> Trace {
    let options = SyntheticOptions {
        jobs: 160,
        load: 2.0,
        cluster: cluster(),
        workloads: ["a", "b", "c", "d"].map(|name| (name.to_owned(), Some(0.4))).to_vec(),
        median_seconds: 900.0,
    };
    let jobs = Trace::synthetic(&options, Seed(5)).unwrap().jobs().to_vec();
    let elastic = |mut job: TraceJob| {
        (job.gpus_min, job.gpus_max) = (Some(1), Some(8));
        job
    };
    Trace::new("backlog", jobs.into_iter().map(elastic).collect()).unwrap()
}

fn run(name: &str) -> Simulation {
    let (truth, planner) = (knowledge("truth", 1.0, 0.8), knowledge("planner", 0.97, 0.7));
    let tables = Tables { truth: &truth, planner: &planner };
    let policy = PolicyKind::parse(name).unwrap();
    assert_eq!(policy.name(), name);
    let options = Options { harm_limit_ratio: 1.6, ..Options::default() };
    simulate(&backlog(), &cluster(), &policy, Some(&tables), &options).unwrap()
}

#[test]
fn shapes_and_pairs_each_shorten_the_queue() {
    let [fifo, whole, no_pairs, no_shapes, greedy, sequential] = [
        "fifo",
        "elastico",
        "elastico_no_pairs",
        "elastico_no_shapes",
        "elastico_no_prices",
        "elastico_sequential",
    ]
    .map(run);
    let jct = |run: &Simulation| run.jct_mean_seconds;
    assert!(jct(&whole) < 0.5 * jct(&fifo), "{} against {}", jct(&whole), jct(&fifo));
    assert!(jct(&whole) < 0.95 * jct(&no_pairs), "{} against {}", jct(&whole), jct(&no_pairs));
    assert!(jct(&whole) < 0.9 * jct(&no_shapes), "{} against {}", jct(&whole), jct(&no_shapes));
    assert!(jct(&whole) < 1.05 * jct(&greedy), "{} against {}", jct(&whole), jct(&greedy));
    assert!(jct(&whole) < 1.05 * jct(&sequential), "{} against {}", jct(&whole), jct(&sequential));
    assert_eq!(no_pairs.pairs_total, 0);
    assert!(whole.pairs_total > 0 && greedy.pairs_total > 0 && sequential.pairs_total > 0);
    for run in [whole, no_pairs, no_shapes, greedy, sequential] {
        assert_eq!(run.pairs_over_limit_total, 0, "{}", run.policy);
        assert_eq!(run.harmed_jobs_total, 0, "{}", run.policy);
    }
}

#[test]
fn the_oracle_plans_with_the_truth_and_says_so() {
    let [usual, oracle] = ["elastico", "elastico_oracle"].map(run);
    assert_eq!(usual.planner.as_deref(), Some("planner and a law"));
    assert_eq!(oracle.planner, oracle.truth);
}

#[test]
fn the_same_run_twice_gives_the_same_bytes() {
    for name in ["elastico", "elastico_noisy"] {
        let [first, second] = [name, name].map(|name| serde_json::to_string(&run(name)).unwrap());
        assert_eq!(first, second, "{name}");
    }
}

#[test]
fn nonsense_is_refused() {
    let refuse = |change: fn(&mut ElasticoOptions), what: &str| {
        let mut options = ElasticoOptions::default();
        change(&mut options);
        let truth = knowledge("truth", 1.0, 0.8);
        let tables = Tables { truth: &truth, planner: &truth };
        let policy = PolicyKind::Elastico(options);
        let found = simulate(&backlog(), &cluster(), &policy, Some(&tables), &Options::default());
        let error = found.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    refuse(|options| options.urgency = 1.5, "urgency is 1.5, it must be within 0 and 1");
    refuse(|options| options.limit_ratio = f64::NAN, "limit_ratio");
    refuse(|options| options.error_factor = 0.5, "error_factor");
    refuse(|options| options.cell_gpus = 0.0, "cell_gpus");
}

#[test]
fn a_job_larger_than_a_cell_runs_all_the_same() {
    let (truth, planner) = (knowledge("truth", 1.0, 0.8), knowledge("planner", 1.0, 0.8));
    let tables = Tables { truth: &truth, planner: &planner };
    let mut jobs = backlog().jobs().to_vec();
    (jobs[3].gpus, jobs[3].gpus_min, jobs[3].gpus_max) = (16, None, None);
    let trace = Trace::new("one large", jobs).unwrap();
    let policy = PolicyKind::Elastico(ElasticoOptions { cell_gpus: 8.0, ..ElasticoOptions::default() });
    let done = simulate(&trace, &cluster(), &policy, Some(&tables), &Options::default());
    assert_eq!(done.unwrap().jobs_total, 160);
}
