//! Each scripted fault through the whole protocol: its outcome, its retry, an intact journal, nothing left behind.

use super::{Scene, stand_ins};
use elastico_core::Outcome;
use elastico_profiler::Observation;

const PAIR: [&str; 2] = ["st_fma.m10k_n66", "st_dram.read"];

fn detail(observation: &Observation, attempt: usize) -> &str {
    observation.attempts[attempt].detail.as_deref().unwrap_or("")
}

/// One trial under a script.
fn trial(script: &str, sharing: &str) -> Option<Observation> {
    Some(Scene::new(script)?.trials(PAIR, sharing, 1).remove(0))
}

/// One trial whose first attempt ends with an outcome and a detail, and whose second is good.
fn recovers(script: &str, sharing: &str, outcome: Outcome, part: &str) {
    if let Some(seen) = trial(script, sharing) {
        assert_recovered(&seen, outcome, part);
    }
}

fn assert_recovered(seen: &Observation, outcome: Outcome, part: &str) {
    assert_eq!(seen.attempts.len(), 2, "{:?}", seen.attempts);
    assert_eq!(seen.attempts[0].outcome, outcome, "{:?}", seen.attempts[0]);
    assert!(detail(seen, 0).contains(part), "{}", detail(seen, 0));
    assert_eq!(seen.outcome, Outcome::Ok, "{:?}", seen.attempts[1]);
    assert!(seen.measured.is_some());
}

fn refused(scene: Option<Scene>, part: &str) {
    let Some(scene) = scene else { return };
    scene.campaign(PAIR, &["time_slice"], 1);
    let ended = scene.play();
    assert_eq!(ended.code, Some(3), "{}", ended.output);
    assert!(ended.output.contains(part), "{}", ended.output);
    assert!(!scene.run_folder().exists(), "nothing was begun");
    scene.assert_clean();
}

#[test]
fn without_a_usable_driver_nothing_begins() {
    refused(Scene::new("init_result 100"), "no device");
    refused(Scene::new("driver_version 12080"), "serves CUDA 12.8");
    let lacking = stand_ins("stand-ins-old", &["-DWITHOUT_cuGraphLaunch"]);
    refused(lacking.and_then(|folder| Scene::with("", folder)), "has no function `cuGraphLaunch`");
}

#[test]
fn memory_that_runs_out_is_told_and_not_retried() {
    let Some(seen) = trial("fault cuMemAlloc 2 process co_runner", "time_slice") else { return };
    assert_eq!((seen.outcome, seen.attempts.len()), (Outcome::Oom, 1), "{:?}", seen.attempts);
    assert!(
        detail(&seen, 0).contains("bytes for") && detail(&seen, 0).contains("co-runner"),
        "{}",
        detail(&seen, 0)
    );
    // Both buffers fit, and leave no room for the contexts.
    let catalogue = elastico_workloads::Catalogue::bundled();
    let footprint = |id: &str| catalogue.get(id).unwrap().program().footprint().get();
    let memory = PAIR.map(footprint).iter().sum::<f64>() + 1e9;
    let Some(scene) = Scene::new(&format!("memory {memory:.0}")) else { return };
    let seen = &scene.trials(PAIR, "time_slice", 1)[0];
    assert_eq!((seen.outcome, seen.attempts.len()), (Outcome::OomPredicted, 1), "{:?}", seen.attempts);
}

#[test]
fn a_launch_failure_costs_one_attempt() {
    recovers(
        "fault cuGraphLaunch 700 after 40 process co_runner once",
        "time_slice",
        Outcome::WorkerCrash,
        "CUDA error 700",
    );
}

#[test]
fn a_step_that_never_ends_is_a_hang() {
    recovers(
        "fault cuGraphLaunch hang after 40 process subject once",
        "time_slice",
        Outcome::Hang,
        "no sign",
    );
}

#[test]
fn a_context_that_does_not_come_is_a_hang() {
    recovers(
        "fault cuDevicePrimaryCtxRetain hang process subject once",
        "time_slice",
        Outcome::Hang,
        "does not get a context in time",
    );
}

#[test]
fn a_client_that_the_server_ended_gets_a_new_daemon() {
    recovers(
        "fault cuGraphLaunch 810 after 40 process subject once",
        "mps(0.5,0.5)",
        Outcome::MpsFault,
        "810",
    );
}

#[test]
fn a_hanging_daemon_is_given_up_and_ended() {
    for (script, part) in [("mps_start hang", "does not start"), ("mps_control hang", "does not start")] {
        let Some(seen) = trial(script, "mps(0.5,0.5)") else { return };
        assert_eq!((seen.outcome, seen.attempts.len()), (Outcome::MpsFault, 2), "{:?}", seen.attempts);
        assert!(detail(&seen, 1).contains(part), "{}", detail(&seen, 1));
    }
}

#[test]
fn an_xid_ends_the_attempt() {
    // The clock starts when the coordinator opens NVML: in the middle of a first attempt of four seconds.
    let Some(mut scene) = Scene::new("xid 31 after 2000") else { return };
    scene.seconds = 0.8;
    assert_recovered(&scene.trials(PAIR, "time_slice", 1)[0], Outcome::Xid, "Xid 31");
}

#[test]
fn heat_is_flagged_and_kept() {
    let Some(seen) = trial("throttle 0 0x40\nclock 0 1200", "time_slice") else { return };
    assert_eq!((seen.outcome, seen.attempts.len()), (Outcome::Throttled, 2), "{:?}", seen.attempts);
    assert!(seen.flags.iter().any(|flag| flag == "throttled"), "{:?}", seen.flags);
    let telemetry = seen.measured.unwrap().telemetry;
    assert_eq!((telemetry.throttled, telemetry.clock), (Some(1.0), Some(1.2e9)), "{telemetry:?}");
}

#[test]
fn a_lost_device_stops_the_campaign_and_is_measured_again() {
    let script = "fault cuGraphLaunch 214 after 40 process subject";
    let Some(scene) = Scene::new(script) else { return };
    scene.campaign(PAIR, &["time_slice"], 2);
    let ended = scene.play();
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    assert!(ended.output.contains("DeviceLost"), "{}", ended.output);
    let seen = scene.observations();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].outcome, seen[0].attempts.len()), (Outcome::DeviceLost, 1), "{:?}", seen[0].attempts);
    scene.assert_clean();
    scene.rewrite(script, "# mended");
    let ended = scene.play();
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    let seen = scene.observations();
    assert_eq!(seen.len(), 3, "the lost trial again, and one more");
    assert_eq!(seen[1].trial, seen[0].trial);
    assert_eq!(seen[1].outcome, Outcome::Ok, "{:?}", seen[1].attempts);
}

#[test]
fn counters_that_cannot_be_had_say_why_and_times_stand() {
    for (script, part) in [
        ("deny counters\ngpm 0", "none: pm: "),
        ("perfmon_busy 1\ngpm 0", "busy"),
        ("deny counters", "gpm"),
        ("", "pm"),
    ] {
        let Some(scene) = Scene::new(script) else { return };
        scene.campaign(PAIR, &["time_slice"], 3);
        let ended = scene.play();
        assert_eq!(ended.code, Some(0), "{}", ended.output);
        let seen = scene.observations();
        let isolated = seen.iter().find(|seen| seen.co_runner.is_none()).expect("one of three is isolated");
        assert_eq!(isolated.outcome, Outcome::Ok, "{:?}", isolated.attempts);
        assert!(isolated.counters_status.contains(part), "{script}: {}", isolated.counters_status);
        assert_eq!(
            isolated.counters.contains_key("sm_active_ratio"),
            !script.contains("gpm 0"),
            "{script}: {:?}",
            isolated.counters
        );
    }
}
