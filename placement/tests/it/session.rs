//! A session follows its jobs, and moves only whom it must.

use elastico_core::JobId;
use elastico_models::Profiles;
use elastico_placement::{
    Allocator, Cluster, Current, Decision, Job, Jobs, MeasuredShape, NodeGpus, Objective, Options, Session,
    WaitReason, check,
};
use std::collections::BTreeMap;
use std::path::Path;

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn allocator(nodes: u32, options: Options) -> Allocator {
    let text = format!("[[pool]]\nid = \"a\"\ndevice = \"h100\"\nnodes = {nodes}\ngpus_per_node = 4\n");
    Allocator::new(Cluster::from_toml(&text, Path::new("cluster.toml")).unwrap(), options)
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn job(id: &str, gpus: u32, steps: f64) -> Job {
    let mut job = Job::new(JobId::new(id).unwrap(), None);
    (job.gpus_min, job.gpus_max, job.work_steps) = (gpus, Some(gpus), Some(steps));
    job.shape = vec![MeasuredShape::new(gpus, 1.0)];
    job
}

fn is_running(decisions: &[Decision], id: &str) -> bool {
    decisions.iter().any(|decision| matches!(decision, Decision::Runs(run) if run.job.as_str() == id))
}

#[test]
fn progress_and_waiting_decide_who_is_next() {
    let options = Options { objective: Objective::SRPT, ..Options::default() };
    let allocator = allocator(1, options);
    let profiles = Profiles::default();
    let next = |short: (f64, f64), long: (f64, f64)| {
        let mut session = Session::new(&allocator, &profiles, None).unwrap();
        session.submit(job("first", 4, 100.0)).unwrap();
        session.submit(job("short", 4, 1_000.0)).unwrap();
        session.submit(job("long", 4, 10_000.0)).unwrap();
        session.advance("short", short.0, short.1).unwrap();
        session.advance("long", long.0, long.1).unwrap();
        let moved_up = session.finish("first").unwrap();
        assert_eq!(moved_up.len(), 1);
        if is_running(&moved_up, "short") { "short" } else { "long" }
    };
    assert_eq!(next((1_000.0, 0.0), (10_000.0, 0.0)), "short");
    assert_eq!(next((1_000.0, 0.0), (900.0, 0.0)), "long", "it has less left");
    assert_eq!(next((1_000.0, 0.0), (10_000.0, 40_000.0)), "long", "it has waited eleven ageings");
    let mut session = Session::new(&allocator, &profiles, None).unwrap();
    assert!(session.advance("nobody", 1.0, 1.0).is_err());
}

#[test]
fn a_solution_sees_the_progress() {
    let options = Options { objective: Objective::SRPT, ..Options::default() };
    let allocator = allocator(1, options);
    let profiles = Profiles::default();
    let mut session = Session::new(&allocator, &profiles, None).unwrap();
    session.submit(job("runs", 4, 10_000.0)).unwrap();
    session.submit(job("waits", 4, 5_000.0)).unwrap();
    let placement = session.solve().unwrap();
    // Half the work: twice the weight, less the restart.
    assert!(placement.assignment("waits").is_some(), "{placement}");
    session.advance("runs", 4_000.0, 0.0).unwrap();
    session.advance("waits", 5_000.0, 0.0).unwrap();
    let placement = session.solve().unwrap();
    assert!(placement.assignment("runs").is_some(), "{placement}");
}

/// Nodes that each have a GPU of the jobs with these numbers, and what a solution does with a newcomer of four GPUs.
#[test]
fn a_job_is_moved_only_where_another_finds_no_room_otherwise() {
    let allocator = allocator(2, Options::default());
    let profiles = Profiles::default();
    let mut session = Session::new(&allocator, &profiles, None).unwrap();
    let mut places = BTreeMap::new();
    for number in 0..8 {
        let id = format!("j{number}");
        let decisions = session.submit(job(&id, 1, 1e6)).unwrap();
        let [Decision::Runs(run)] = &decisions[..] else { panic!("{id} waits") };
        places.insert(id, run.nodes.clone());
    }
    // One stays on either node.
    let on_node = |node: u32| {
        let mut on = places.iter().filter(|(_, nodes)| nodes[0].node == node).map(|(id, _)| id.clone());
        on.next().unwrap()
    };
    let stay = [on_node(0), on_node(1)];
    for id in places.keys().filter(|id| !stay.contains(id)) {
        session.finish(id).unwrap();
    }
    let placement = session.solve().unwrap();
    for id in &stay {
        let run = placement.assignment(id).unwrap();
        assert!(!run.restarts && run.nodes == places[id], "nobody needs its place: {placement}");
    }
    let decisions = session.submit(job("wide", 4, 1e6)).unwrap();
    let [Decision::Waits(waits)] = &decisions[..] else { panic!("no node is free") };
    assert_eq!(waits.reason, WaitReason::Fragmented);
    let placement = session.solve().unwrap();
    assert_eq!(check(&placement, allocator.cluster()), vec![]);
    assert!(placement.assignment("wide").is_some(), "{placement}");
    let moved: Vec<bool> = stay.iter().map(|id| placement.assignment(id).unwrap().restarts).collect();
    assert_eq!(moved.iter().filter(|moved| **moved).count(), 1, "{placement}");
    for (id, moved) in stay.iter().zip(moved) {
        let run = placement.assignment(id).unwrap();
        assert_eq!(run.nodes != places[id], moved);
        assert_eq!(run.why.contains("on other GPUs"), moved, "{}", run.why);
        // 30 s of an hour.
        assert!((run.value - if moved { 1.0 - 30.0 / 3600.0 } else { 1.0 }).abs() < 1e-12);
    }
    // Nothing has changed since: nobody moves again.
    let again = session.solve().unwrap();
    assert!(again.assignments.iter().all(|run| !run.restarts), "{again}");
}

#[test]
fn a_move_that_costs_more_than_it_brings_is_not_made() {
    let allocator = allocator(2, Options::default());
    let profiles = Profiles::default();
    let mut session = Session::new(&allocator, &profiles, None).unwrap();
    for number in 0..8 {
        let mut job = job(&format!("j{number}"), 1, 1e6);
        (job.weight, job.switch_seconds) = (100.0, 1_800.0);
        session.submit(job).unwrap();
    }
    let placement = session.solve().unwrap();
    let node = |id: &str| placement.assignment(id).unwrap().nodes[0].node;
    let first = node("j0");
    let second = (1..8).map(|number| format!("j{number}")).find(|id| node(id) != first).unwrap();
    for number in 1..8 {
        let id = format!("j{number}");
        if id != second {
            session.finish(&id).unwrap();
        }
    }
    session.submit(job("wide", 4, 1e6)).unwrap();
    let placement = session.solve().unwrap();
    assert!(placement.assignment("wide").is_none(), "worth 1, a move costs 50: {placement}");
    assert!(placement.assignments.iter().all(|run| !run.restarts));
}

#[test]
fn only_the_best_candidates_are_looked_at() {
    let profiles = Profiles::default();
    let solved = |candidates: Option<usize>| {
        let allocator = allocator(2, Options { candidates, ..Options::default() });
        let mut session = Session::new(&allocator, &profiles, None).unwrap();
        for number in 0..8 {
            session.submit(job(&format!("j{number}"), 1, 1e6)).unwrap();
        }
        session.solve().unwrap();
        for number in 8..40 {
            let mut job = job(&format!("j{number}"), 1, 1e6);
            job.weight = f64::from(number);
            session.submit(job).unwrap();
        }
        let placement = session.solve().unwrap();
        assert_eq!(session.jobs(), 40);
        let total = placement.assignments.len() + placement.waiting.len() + placement.left_out;
        assert_eq!(total, 40);
        // Who was left out is here, and moves up when somebody leaves.
        let moved_up = session.finish("j39").unwrap();
        (placement, moved_up.len())
    };
    let (all, _) = solved(None);
    let (few, moved_up) = solved(Some(12));
    assert_eq!((all.left_out, few.left_out), (0, 20));
    assert!((all.value - few.value).abs() < 1e-9, "the eight best are among the twelve");
    assert_eq!(moved_up, 1);
    let (none, _) = solved(Some(0));
    assert_eq!(none.left_out, 32);
    assert_eq!(none.assignments.len(), 8);
}

#[test]
fn a_session_resumes_where_jobs_run_and_restarts_nobody_that_waited() {
    let allocator = allocator(2, Options::default());
    let profiles = Profiles::default();
    let mut runs = job("runs", 1, 1e6);
    let mut current = Current::new("a".parse().unwrap(), 1);
    current.nodes = vec![NodeGpus { node: 1, gpus: vec![2] }];
    runs.current = Some(current.clone());
    let jobs = Jobs { job: vec![job("first", 4, 1e6), runs.clone(), job("last", 2, 1e6)] };
    let (mut session, placement) = Session::resume(&allocator, &profiles, None, &jobs).unwrap();
    assert_eq!(placement.assignment("runs").unwrap().nodes, current.nodes);
    assert!(placement.assignments.len() == 3 && placement.assignments.iter().all(|run| !run.restarts));
    // The same as a placement without a session.
    assert!((placement.value - allocator.solve(&jobs, &profiles, None).unwrap().value).abs() < 1e-12);
    assert_eq!(session.solve().unwrap().assignment("runs").unwrap().nodes, current.nodes);
    session.finish("runs").unwrap();
    assert!(session.submit(runs).is_err(), "a job that comes does not run");
}

#[test]
fn bad_progress_is_refused() {
    let allocator = allocator(1, Options::default());
    let profiles = Profiles::default();
    let mut session = Session::new(&allocator, &profiles, None).unwrap();
    session.submit(job("a", 1, 10.0)).unwrap();
    for (left, waited) in [(-5.0, 0.0), (1.0, -1.0), (f64::NAN, 0.0), (1.0, f64::INFINITY)] {
        assert!(session.advance("a", left, waited).is_err(), "{left} {waited}");
    }
    session.advance("a", 0.0, 0.0).unwrap();
}

#[test]
fn a_worthy_job_without_room_is_told_so() {
    let allocator = allocator(1, Options::default());
    let profiles = Profiles::default();
    let mut session = Session::new(&allocator, &profiles, None).unwrap();
    session.submit(job("a", 4, 10.0)).unwrap();
    let mut big = job("big", 4, 10.0);
    big.weight = 1_000.0;
    let decisions = session.submit(big).unwrap();
    let [Decision::Waits(waits)] = &decisions[..] else { panic!("there is no room: {decisions:?}") };
    assert_eq!(waits.reason, WaitReason::NoRoom);
    assert!(waits.detail().contains("no place for it is free"), "{}", waits.detail());
    assert!(session.solve().unwrap().assignment("big").is_some());
}

#[test]
fn thousands_that_came_and_went_are_forgotten_and_who_runs_stays() {
    let allocator = allocator(2, Options::default());
    let profiles = Profiles::default();
    let mut session = Session::new(&allocator, &profiles, None).unwrap();
    let decisions = session.submit(job("stays", 3, 1e6)).unwrap();
    let [Decision::Runs(stays)] = &decisions[..] else { panic!("there is room") };
    for number in 0..2_000 {
        let id = format!("j{number}");
        assert!(is_running(&session.submit(job(&id, 1, 1e6)).unwrap(), &id));
        session.finish(&id).unwrap();
    }
    assert_eq!(session.jobs(), 1);
    let placement = session.solve().unwrap();
    assert_eq!(placement.assignment("stays").unwrap().nodes, stays.nodes);
}
