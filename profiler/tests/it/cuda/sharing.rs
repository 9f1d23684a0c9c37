//! Each mode is in effect, or the trial says that it is not.

use super::Scene;
use elastico_core::Outcome;
use elastico_profiler::Observation;

const PAIR: [&str; 2] = ["st_fma.m10k_n66", "st_dram.read"];

fn detail(observation: &Observation) -> &str {
    observation.attempts.last().and_then(|attempt| attempt.detail.as_deref()).unwrap_or("")
}

#[test]
fn a_time_sliced_pair_meets_no_daemon_and_reports_what_it_saw() {
    let Some(scene) = Scene::new("") else { return };
    let seen = &scene.trials(PAIR, "time_slice", 1)[0];
    assert_eq!(seen.outcome, Outcome::Ok, "{:?}", seen.attempts);
    assert_eq!(seen.effective.as_ref(), Some(&seen.sharing));
    let reported = seen.reported.as_ref().unwrap();
    assert_eq!(reported.multiprocessors, [Some(132), Some(132)]);
    assert!(reported.memory_peak.iter().all(|bytes| bytes.is_some_and(|bytes| bytes > 0.0)), "{reported:?}");
    let telemetry = seen.measured.as_ref().unwrap().telemetry;
    assert!(
        telemetry.clock.is_some_and(|clock| clock > 1e9) && telemetry.temperature.is_some(),
        "{telemetry:?}"
    );
    assert!(telemetry.memory_clock.is_some() && telemetry.power.is_some(), "{telemetry:?}");
}

#[test]
fn an_mps_pair_runs_under_a_daemon_of_our_own_which_is_stopped() {
    let Some(scene) = Scene::new("") else { return };
    let seen = &scene.trials(PAIR, "mps(0.3,0.7)", 1)[0];
    assert_eq!(seen.outcome, Outcome::Ok, "{:?}", seen.attempts);
    assert_eq!(seen.effective.as_ref(), Some(&seen.sharing));
    let seen = seen.reported.as_ref().unwrap().multiprocessors.map(Option::unwrap);
    assert!(seen.iter().all(|sms| (38..=42).contains(sms) || (90..=94).contains(sms)), "{seen:?}");
}

#[test]
fn a_percentage_without_effect_is_not_mislabelled() {
    let Some(scene) = Scene::new("ignore_percentage 1") else { return };
    let seen = &scene.trials(PAIR, "mps(0.3,0.7)", 1)[0];
    assert_eq!(seen.outcome, Outcome::Unsupported);
    assert!(seen.measured.is_none() && seen.attempts.len() == 1);
    assert!(detail(seen).contains("the percentage is not in effect"), "{}", detail(seen));
}

#[test]
fn a_daemon_that_the_driver_does_not_use_is_an_mps_fault() {
    let Some(scene) = Scene::new("mps_disabled 1") else { return };
    let seen = &scene.trials(PAIR, "mps(0.5,0.5)", 1)[0];
    assert_eq!(seen.outcome, Outcome::MpsFault);
    assert_eq!(seen.attempts.len(), 2, "retried once");
    assert!(detail(seen).contains("a context without MPS"), "{}", detail(seen));
}

#[test]
fn two_instances_make_a_mig_pair_and_one_does_not() {
    let one = "mig MIG-11111111-2222-3333-4444-555555555501 3g.71gb 60 70000000000";
    let two = "mig MIG-11111111-2222-3333-4444-555555555502 3g.71gb 60 70000000000";
    let Some(scene) = Scene::new(one) else { return };
    let seen = &scene.trials(PAIR, "mig(3g.71gb)", 1)[0];
    assert_eq!(seen.outcome, Outcome::Unsupported);
    assert!(detail(seen).contains("needs 2 instances of profile 3g.71gb, the GPU has 1"), "{}", detail(seen));
    drop(scene);
    let Some(scene) = Scene::new(&format!("{one}\n{two}")) else { return };
    let seen = &scene.trials(PAIR, "mig(3g.71gb)", 1)[0];
    assert_eq!(seen.outcome, Outcome::Ok, "{:?}", seen.attempts);
    assert_eq!(seen.reported.as_ref().unwrap().multiprocessors, [Some(60), Some(60)]);
}

#[test]
fn streams_share_one_process() {
    let Some(scene) = Scene::new("") else { return };
    let seen = &scene.trials(PAIR, "streams", 1)[0];
    assert_eq!(seen.outcome, Outcome::Ok, "{:?}", seen.attempts);
    assert!(seen.measured.as_ref().unwrap().overlap.unwrap() > 0.9);
}

#[test]
fn green_contexts_divide_the_sms() {
    let Some(scene) = Scene::new("") else { return };
    let seen = &scene.trials(PAIR, "streams(0.5,0.5)", 1)[0];
    assert_eq!(seen.outcome, Outcome::Ok, "{:?}", seen.attempts);
    let sms = seen.reported.as_ref().unwrap().multiprocessors.map(Option::unwrap);
    assert!(sms.iter().all(|sms| (58..=74).contains(sms)) && sms.iter().sum::<u32>() <= 132, "{sms:?}");
    let shares = seen.effective.as_ref().unwrap().shares();
    assert!((shares.0 - f64::from(sms[0]) / 132.0).abs() < 0.01, "{shares:?} for {sms:?}");
}
