//! Who runs is moved only where it gains more than the restart costs.

use elastico_core::{SharingMode, WorkloadId};
use elastico_models::Profiles;
use elastico_placement::{
    Allocator, Cluster, Jobs, Objective, Options, PairOutcome, PairTable, Placement, check,
};
use proptest::prelude::*;
use std::path::Path;

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn solve(pools: &str, jobs: &str, options: Options, table: Option<&PairTable>) -> Placement {
    let allocator = Allocator::new(Cluster::from_toml(pools, Path::new("cluster.toml")).unwrap(), options);
    let jobs = Jobs::from_toml(jobs, Path::new("jobs.toml")).unwrap();
    let placement = allocator.solve_with(&jobs, &Profiles::default(), table, None).unwrap();
    assert_eq!(check(&placement, allocator.cluster()), vec![]);
    placement
}

fn pool(id: &str, device: &str, gpus: u32) -> String {
    format!("[[pool]]\nid = \"{id}\"\ndevice = \"{device}\"\nnodes = 1\ngpus_per_node = {gpus}\n")
}

/// One job of one GPU, twice as fast in pool `fast`, with what follows.
fn mover(rest: &str) -> String {
    format!(
        "[[job]]\nid = \"j\"\nshape = [{{ pool = \"slow\", step_seconds = 2.0 }}, {{ pool = \"fast\", step_seconds = 1.0 }}]\n{rest}"
    )
}

fn two_pools() -> String {
    pool("slow", "a100-80gb", 4) + &pool("fast", "h100", 4)
}

fn objectives() -> impl Strategy<Value = Objective> {
    prop_oneof![
        Just(Objective::Throughput),
        Just(Objective::Log),
        Just(Objective::SRPT),
        Just(Objective::Power { p: -2.0 })
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn where_all_is_equal_nothing_moves(objective in objectives(), pools in prop::collection::vec(0_usize..2, 1..9)) {
        let cluster = pool("east", "h100", 8) + &pool("west", "h100", 8);
        let jobs: Vec<String> = pools.iter().enumerate().map(|(job, at)| format!(
            "[[job]]\nid = \"j{job}\"\nwork_steps = 9000\nshape = [{{ step_seconds = 1.0 }}]\ncurrent = {{ pool = \"{}\" }}\n",
            ["east", "west"][*at]
        )).collect();
        let placement = solve(&cluster, &jobs.concat(), Options { objective, ..Options::default() }, None);
        prop_assert_eq!(placement.assignments.len(), pools.len());
        prop_assert!(placement.assignments.iter().all(|assignment| !assignment.restarts));
    }
}

#[test]
fn a_job_moves_for_more_than_the_restart_costs() {
    let moved = |rest: &str, horizon_seconds: f64| {
        let placement =
            solve(&two_pools(), &mover(rest), Options { horizon_seconds, ..Options::default() }, None);
        let assignment = &placement.assignments[0];
        assert_eq!(assignment.restarts, assignment.pool.as_str() == "fast" && rest.contains("slow"));
        (assignment.pool.as_str() == "fast", assignment.value)
    };
    let (is_fast, value) = moved("current = { pool = \"slow\" }\nswitch_seconds = 360\n", 3600.0);
    assert!(is_fast && (value - 0.9).abs() < 1e-12, "a tenth of the horizon is lost: {value}");
    // The slow pool has half the speed: the restart must not take half of the horizon.
    let (is_fast, value) = moved("current = { pool = \"slow\" }\nswitch_seconds = 1900\n", 3600.0);
    assert!(!is_fast && (value - 0.5).abs() < 1e-12);
    assert!(moved("current = { pool = \"slow\" }\nswitch_seconds = 1700\n", 3600.0).0);
    assert!(!moved("current = { pool = \"slow\" }\nswitch_seconds = 36000\n", 3600.0).0);
    // The job leaves before it would have gained.
    assert!(!moved("work_steps = 50\ncurrent = { pool = \"slow\" }\n", 3600.0).0);
    assert!(moved("work_steps = 500\ncurrent = { pool = \"slow\" }\n", 3600.0).0);
    // Who waits is started where it is fastest, and pays nothing.
    assert_eq!(moved("switch_seconds = 36000\n", 3600.0), (true, 1.0));
    assert_eq!(moved("current = { pool = \"fast\" }\nswitch_seconds = 36000\n", 3600.0), (true, 1.0));
}

#[test]
fn the_current_shape_is_tried_even_where_another_covers_it() {
    let jobs = |seconds: f64| {
        format!(
            "[[job]]\nid = \"j\"\ngpus_max = 4\nswitch_seconds = {seconds}\ncurrent = {{ pool = \"slow\", gpus = 3 }}\n\
             shape = [{{ gpus = 1, step_seconds = 2.0 }}, {{ gpus = 2, step_seconds = 1.0 }}, {{ gpus = 3, step_seconds = 1.1 }}, \
             {{ gpus = 4, step_seconds = 1.2 }}]\n"
        )
    };
    let pools = pool("slow", "h100", 4);
    let stays = solve(&pools, &jobs(900.0), Options::default(), None);
    assert_eq!((stays.assignments[0].shape.gpus, stays.assignments[0].restarts), (3, false));
    let moves = solve(&pools, &jobs(30.0), Options::default(), None);
    assert_eq!((moves.assignments[0].shape.gpus, moves.assignments[0].restarts), (2, true));
}

#[test]
fn settings_that_differ_are_another_shape() {
    let jobs = |settings: &str| {
        format!(
            "[[job]]\nid = \"j\"\ncurrent = {{ pool = \"p\"{settings} }}\n\
             shape = [{{ step_seconds = 1.0, settings = {{ BATCH = 64, MODE = \"bf16\" }} }}]\n"
        )
    };
    let restarts = |settings: &str| {
        let placement = solve(&pool("p", "h100", 1), &jobs(settings), Options::default(), None);
        let json = serde_json::to_string(&placement.assignments[0].shape).unwrap();
        assert!(json.contains(r#""settings":{"BATCH":64,"MODE":"bf16"}"#), "{json}");
        placement.assignments[0].restarts
    };
    assert!(!restarts(""));
    assert!(!restarts(", settings = { BATCH = 64, MODE = \"bf16\" }"));
    assert!(restarts(", settings = { BATCH = 32, MODE = \"bf16\" }"));
}

#[test]
fn joining_a_running_job_restarts_only_who_joins() {
    let table = PairTable::from_fn(
        ["a", "b"].map(|name| WorkloadId::new(name).unwrap()),
        ["h100".to_owned()],
        &[SharingMode::TimeSlice],
        |_, _, _, mode| {
            let slowdown = [1.25, 1.25];
            Some(PairOutcome { sharing: mode.clone(), slowdown, upper: slowdown, in_domain: true })
        },
    );
    let jobs = |of_a: &str, of_b: &str| {
        let job = |id: &str, rest: &str| {
            format!(
                "[[job]]\nid = \"{id}\"\nkind = \"inference\"\nworkload = \"{id}\"\nmemory_bytes = 1e9\n\
                 shape = [{{ step_seconds = 1.0 }}]\n{rest}"
            )
        };
        job("a", of_a) + &job("b", of_b)
    };
    let solve = |of_a: &str, of_b: &str| {
        let options = Options { sharing: vec![SharingMode::TimeSlice], ..Options::default() };
        let placement = solve(&pool("p", "h100", 1), &jobs(of_a, of_b), options, Some(&table));
        assert_eq!(placement.pairs(), 1);
        let restarts = ["a", "b"].map(|job| placement.assignment(job).unwrap().restarts);
        (restarts, placement.value)
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} and {b}");
    let (runs, dear) = ("current = { pool = \"p\" }\n", "current = { pool = \"p\" }\nswitch_seconds = 720\n");
    let (restarts, value) = solve(runs, "");
    assert_eq!(restarts, [false, false]);
    near(value, 1.6);
    // Both run alone: one must come to the other, the one for which it is cheaper.
    let (restarts, value) = solve(dear, runs);
    assert_eq!(restarts, [false, true]);
    near(value, 0.8 + 0.8 * (1.0 - 30.0 / 3600.0));
    assert_eq!(solve(runs, dear).0, [true, false]);
    // Both are together already.
    let (restarts, value) = solve("current = { pool = \"p\", beside = \"b\" }\n", dear);
    assert_eq!(restarts, [false, false]);
    near(value, 1.6);
}
