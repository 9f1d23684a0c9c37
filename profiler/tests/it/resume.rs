//! A run that was killed anywhere comes to the same dataset as one that was not.

use crate::{campaign, files, run_simulated, small};
use elastico_core::{Hint, Seed};
use elastico_profiler::devices::simulated::Simulated;
use elastico_profiler::{Campaign, Error, RunOptions, Stopped, assemble, run, run_all, status};
use elastico_workloads::Catalogue;
use rand::Rng;
use std::sync::atomic::{AtomicBool, Ordering};

const RESUME: RunOptions<'_> = RunOptions { resume: true, force: false, interrupted: None };

#[test]
fn a_journal_cut_at_any_byte_resumes_to_the_same_dataset() {
    let whole = tempfile::tempdir().unwrap();
    let report = run_simulated(&small(), whole.path(), &RunOptions::default());
    assert_eq!(report.stopped, Stopped::Complete);
    let expected = files(&whole.path().join("dataset"));
    let journal = std::fs::read(whole.path().join("journal.jsonl")).unwrap();

    let mut stream = Seed(5).stream("cuts", &[]);
    for _ in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let cut = (stream.next_u64() % (journal.len() as u64 + 1)) as usize;
        std::fs::write(folder.path().join("journal.jsonl"), &journal[..cut]).unwrap();
        let report = run_simulated(&small(), folder.path(), &RESUME);
        assert_eq!(report.stopped, Stopped::Complete);
        assert!(files(&folder.path().join("dataset")) == expected, "cut at byte {cut} of {}", journal.len());
        assert!(std::fs::read(folder.path().join("journal.jsonl")).unwrap() == journal, "cut at byte {cut}");
    }
}

#[test]
fn an_interrupted_run_saves_its_results_and_goes_on() {
    let whole = tempfile::tempdir().unwrap();
    run_simulated(&small(), whole.path(), &RunOptions::default());

    let folder = tempfile::tempdir().unwrap();
    let catalogue = Catalogue::bundled();
    let mut resume = false;
    loop {
        let flag = AtomicBool::new(false);
        let mut seen = 0;
        let mut device = Simulated::new("h100").unwrap();
        let options = RunOptions { resume, force: false, interrupted: Some(&flag) };
        let report = run(&small(), &catalogue, &mut device, folder.path(), &options, &mut |progress| {
            seen += 1;
            assert!(progress.done <= progress.total);
            if seen == 40 {
                flag.store(true, Ordering::Relaxed);
            }
        })
        .unwrap();
        assert_eq!(report.measured, seen);
        resume = true;
        if report.stopped == Stopped::Complete {
            break;
        }
        assert_eq!((report.stopped, seen), (Stopped::Interrupted, 40));
        // What is there is a dataset already.
        assemble(folder.path()).unwrap();
    }
    assert!(files(&folder.path().join("dataset")) == files(&whole.path().join("dataset")));
}

#[test]
fn a_budget_ends_the_run_and_may_grow() {
    let text = small().to_toml();
    let limited = campaign(&format!("{text}[budget]\nmax_trials = 10\n"));
    let folder = tempfile::tempdir().unwrap();
    let report = run_simulated(&limited, folder.path(), &RunOptions::default());
    assert_eq!((report.stopped, report.measured), (Stopped::Budget, 10));
    assert!(report.status.open > 0);
    let report = run_simulated(&small(), folder.path(), &RESUME);
    assert_eq!(report.stopped, Stopped::Complete);
    let whole = tempfile::tempdir().unwrap();
    run_simulated(&small(), whole.path(), &RunOptions::default());
    assert!(files(&folder.path().join("dataset")) == files(&whole.path().join("dataset")));
}

#[test]
fn a_folder_with_results_is_neither_overwritten_nor_mixed() {
    let folder = tempfile::tempdir().unwrap();
    run_simulated(&small(), folder.path(), &RunOptions::default());
    let catalogue = Catalogue::bundled();
    let mut device = Simulated::new("h100").unwrap();
    let mut again = |campaign: &Campaign, options: &RunOptions<'_>| {
        run(campaign, &catalogue, &mut device, folder.path(), options, &mut |_| {})
    };
    let error = again(&small(), &RunOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Exists(_)));
    assert!(error.hint().unwrap().contains("profile resume"));
    let reseeded = campaign(&small().to_toml().replace("seed = 11", "seed = 12"));
    let error = again(&reseeded, &RESUME).unwrap_err();
    assert!(matches!(error, Error::Changed { what: "campaign", .. }), "{error}");
    let error = status(&folder.path().join("nowhere")).unwrap_err();
    assert!(matches!(error, Error::NoCampaign { missing: "plan.jsonl", .. }));
}

#[test]
fn the_numbers_of_a_campaign_hold_together() {
    let folder = tempfile::tempdir().unwrap();
    let report = run_simulated(&small(), folder.path(), &RunOptions::default());
    let dataset = assemble(folder.path()).unwrap();
    let pairs: Vec<_> = dataset.pairs.pair_rows().unwrap().collect();
    assert_eq!(pairs.len() % 2, 0);
    let mut nulls = 0;
    for row in pairs.iter().filter(|row| row.outcome == "ok") {
        let product = row.partition_effect_ratio * row.interference_ratio;
        assert!((row.slowdown_ratio / product - 1.0).abs() < 1e-12);
        assert!(
            (row.colocated_step_seconds / row.isolated_step_seconds / row.interference_ratio - 1.0).abs()
                < 1e-9
        );
        assert!(
            row.slowdown_lower_ratio <= row.slowdown_ratio && row.slowdown_ratio <= row.slowdown_upper_ratio
        );
        assert!(row.interference_ratio > 0.985, "{row:?}");
        assert!(row.overlap_ratio >= 0.98 && row.drift_ratio <= 0.02);
        if row.sharing == "time_slice" {
            assert!((row.partition_effect_ratio - 1.0).abs() < 1e-15);
        } else {
            assert!(row.partition_effect_ratio > 0.98, "{row:?}");
        }
        if row.flags.as_deref().is_some_and(|flags| flags.contains("null_pair")) {
            nulls += 1;
            assert!((row.interference_ratio - 1.0).abs() < 0.01, "{row:?}");
        }
    }
    assert!(nulls >= 2 * 2 * 3, "{nulls} null rows");
    assert!(elastico_datasets::validate(&folder.path().join("dataset")).unwrap().is_empty());
    let state = report.status;
    assert_eq!(state.open, 0);
    assert_eq!(state.done, state.total);
    let isolated: Vec<_> = dataset.isolated.isolated_rows().unwrap().collect();
    assert!(isolated.iter().all(|row| row.outcome != "ok" || row.step_seconds > 0.0));
    assert!(isolated.iter().any(|row| (row.share_ratio - 0.5).abs() < 1e-9));
}

#[test]
fn several_devices_get_a_folder_each() {
    let text = small().to_toml().replace("\"sim:h100\"", "[\"sim:h100\", \"sim:a100-80gb\"]");
    let both = campaign(&text);
    let folder = tempfile::tempdir().unwrap();
    let catalogue = Catalogue::bundled();
    let go = |options: &RunOptions<'_>| {
        run_all(&both, &catalogue, folder.path(), options, &elastico_profiler::devices::open, &mut |_| {})
    };
    let reports = go(&RunOptions::default()).unwrap();
    assert_eq!(reports.len(), 2);
    let parts = ["sim-h100", "sim-a100-80gb"].map(|name| assemble(&folder.path().join(name)).unwrap());
    assert_ne!(parts[0].content_digest(), parts[1].content_digest());
    let merged = elastico_datasets::Dataset::merge(parts.into()).unwrap();
    assert_eq!(elastico_datasets::Dataset::read(&folder.path().join("dataset")).unwrap().pairs, merged.pairs);
    assert_eq!(elastico_profiler::status_all(folder.path()).unwrap().len(), 2);
    assert!(matches!(go(&RunOptions::default()), Err(Error::Exists(_))));
    assert_eq!(Campaign::read(&folder.path().join("campaign.toml")).unwrap(), both);
    assert!(go(&RESUME).unwrap().iter().all(|report| report.measured == 0));
}
