//! Whole campaigns: what a stand-in's numbers must be, and what a kill leaves.

use super::Scene;
use elastico_core::Outcome;
use elastico_datasets::Dataset;
use std::time::{Duration, Instant};

const PAIR: [&str; 2] = ["st_fma.m10k_n66", "st_dram.read"];
const LIMITS: &str = "drift = 0.1\noverlap = 0.9\n";

#[test]
fn a_campaign_finds_what_the_board_does() {
    let Some(scene) = Scene::new("kernel_microseconds * 2500") else { return };
    scene.limited_campaign(PAIR, &["time_slice", "mps(0.5,0.5)"], 0, LIMITS);
    let ended = scene.play();
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    println!("{}", ended.output);
    scene.assert_clean();
    let folder = scene.run_folder().join("dataset");
    assert_eq!(elastico_datasets::validate(&folder).unwrap(), []);
    let dataset = Dataset::read(&folder).unwrap();
    let pairs: Vec<_> = dataset.pairs.pair_rows().unwrap().collect();
    assert!(pairs.iter().all(|row| row.device == "stand-in-h200" && row.device_kind == "cuda"));
    let good = |row: &&elastico_datasets::PairRow| row.outcome == "ok" || row.outcome == "inconclusive";
    let has = |row: &elastico_datasets::PairRow, flag: &str| {
        row.flags.as_deref().is_some_and(|flags| flags.contains(flag))
    };
    let near = |rows: Vec<&elastico_datasets::PairRow>, expected: f64, what: &str| {
        assert!(rows.len() >= 2, "{what}: {} rows", rows.len());
        let mut ratios: Vec<f64> = rows.iter().map(|row| row.interference_ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ratios.len() / 2];
        assert!((median / expected - 1.0).abs() < 0.15, "{what}: {ratios:?}");
    };
    let select = |null: bool, sharing: &str| {
        pairs
            .iter()
            .filter(good)
            .filter(|row| has(row, "null_pair") == null && row.sharing.starts_with(sharing))
            .collect::<Vec<_>>()
    };
    near(select(false, "time_slice"), 2.0, "two processes alternate");
    near(select(true, "time_slice"), 1.0, "an idle context costs nothing");
    near(select(false, "mps"), 1.0, "shares that fit beside each other do not interfere on this board");
    for row in select(false, "mps") {
        let expected = 1.0 / row.subject_share_ratio;
        assert!((row.partition_effect_ratio / expected - 1.0).abs() < 0.15, "{row:?}");
    }
    let isolated: Vec<_> = dataset.isolated.isolated_rows().unwrap().collect();
    assert!(isolated.iter().any(|row| row.counters_status.starts_with("pm") && row.sm_active_ratio > 0.0));
    assert!(isolated.iter().all(|row| row.multiprocessors_total > 0.0 && row.memory_clock_hertz > 0.0));
}

#[test]
fn a_killed_coordinator_leaves_no_daemon_and_its_campaign_goes_on() {
    let Some(scene) = Scene::new("") else { return };
    scene.campaign(PAIR, &["mps(0.5,0.5)"], 3);
    let mut coordinator = scene.start();
    let start = Instant::now();
    let journal = scene.run_folder().join("journal.jsonl");
    let lines = || std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    while lines() < 2 || !has_daemon(&scene) {
        assert!(start.elapsed() < Duration::from_mins(1), "no trial is done");
        std::thread::sleep(Duration::from_millis(20));
    }
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    // The daemon is no child of the coordinator's: it outlives it.
    let ended = scene.play();
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    scene.assert_clean();
    let seen = scene.observations();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|seen| seen.outcome == Outcome::Ok), "{seen:?}");
    assert_eq!(elastico_datasets::validate(&scene.run_folder().join("dataset")).unwrap(), []);
}

fn has_daemon(scene: &Scene) -> bool {
    scene.processes().iter().any(|(_, command)| command.contains("nvidia-cuda-mps-control"))
}

#[test]
fn another_gpu_under_the_same_name_is_refused() {
    let Some(scene) = Scene::new("") else { return };
    scene.campaign(PAIR, &["time_slice"], 1);
    assert_eq!(scene.play().code, Some(0));
    scene.rewrite("kernel_microseconds", "name Stand-in H100\nkernel_microseconds");
    scene.campaign(PAIR, &["time_slice"], 2);
    let ended = scene.play();
    assert_eq!(ended.code, Some(2), "{}", ended.output);
    assert!(ended.output.contains("the device changed since the journal was begun"), "{}", ended.output);
}

#[test]
fn two_gpus_are_measured_at_once_and_merged() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        println!("skipped: two GPUs at once need two cores");
        return;
    }
    let Some(scene) = Scene::new("devices 2") else { return };
    let devices = "[\"cuda:0\", \"cuda:1\"]\nat_once = true";
    scene.campaign_on(devices, PAIR, &["time_slice"], 2, "drift = 5.0\noverlap = 0.01\n");
    let ended = scene.play();
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    scene.assert_clean();
    let folder = scene.run_folder();
    let parts = ["cuda-0", "cuda-1"].map(|name| Dataset::read(&folder.join(name).join("dataset")).unwrap());
    let merged = Dataset::read(&folder.join("dataset")).unwrap();
    assert_eq!(merged.pairs.rows(), parts.iter().map(|part| part.pairs.rows()).sum::<usize>());
    assert_eq!(elastico_datasets::validate(&folder.join("dataset")).unwrap(), []);
    // At once: the second device's first trial is told before the first device's last.
    let order: Vec<&str> =
        ended.output.lines().filter(|line| line.starts_with("cuda:")).map(|line| &line[..6]).collect();
    assert_eq!(order.len(), 4, "{}", ended.output);
    let first = |device: &str| order.iter().position(|seen| *seen == device).unwrap();
    let last = |device: &str| order.iter().rposition(|seen| *seen == device).unwrap();
    assert!(first("cuda:0") < last("cuda:1") && first("cuda:1") < last("cuda:0"), "{order:?}");
}
