//! Each rule of validation, broken on purpose.

use crate::folders::edit_manifest;
use crate::{alone, dataset, provenance, trial};
use elastico_core::{DeviceKind, Digest};
use elastico_datasets::{Dataset, Finding, IsolatedRow, PairRow, Table, validate};
use std::collections::BTreeMap;

fn findings(isolated: &[IsolatedRow], pairs: &[PairRow]) -> Vec<Finding> {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    let (isolated, pairs) = (Table::isolated(isolated), Table::pairs(pairs));
    Dataset::new(isolated, pairs, provenance("s"), BTreeMap::new()).unwrap().write(&folder).unwrap();
    let mut findings = validate(&folder).unwrap();
    for finding in &mut findings {
        finding.file = finding.file.strip_prefix(&folder).unwrap().to_owned();
    }
    findings
}

/// The findings of two good trials of which row 3 (side b of the second) was edited, as text.
fn pair_findings(edit: impl FnOnce(&mut PairRow)) -> Vec<String> {
    let mut rows = [trial("t0", DeviceKind::Cpu, 2.0), trial("t1", DeviceKind::Cpu, 3.0)].concat();
    edit(&mut rows[3]);
    findings(&[], &rows).iter().map(ToString::to_string).collect()
}

fn isolated_findings(edit: impl FnOnce(&mut IsolatedRow)) -> Vec<String> {
    let mut row = alone("i", DeviceKind::Cpu);
    edit(&mut row);
    findings(&[row], &[]).iter().map(ToString::to_string).collect()
}

#[test]
fn good_rows_have_no_findings() {
    assert!(pair_findings(|_| {}).is_empty());
    assert!(isolated_findings(|_| {}).is_empty());
    // A failed trial has no times and needs none.
    let mut rows = trial("t", DeviceKind::Cpu, 2.0);
    for row in &mut rows {
        *row = PairRow { outcome: "oom".into(), slowdown_ratio: f64::NAN, ..row.clone() };
    }
    assert_eq!(findings(&[], &rows), []);
}

#[test]
fn a_one_sided_trial_has_one_row_and_says_so() {
    let one = |flags: Option<&str>| {
        let [row, _] = trial("t", DeviceKind::Cpu, 2.0);
        findings(&[], &[PairRow { flags: flags.map(str::to_owned), ..row }])
    };
    assert_eq!(one(Some("one_sided")), []);
    assert_eq!(one(None).len(), 1);
    let found = pair_findings(|row| row.flags = Some("drift;one_sided".to_owned()));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].ends_with(
            "`flags` is `t1` with two rows, must be without `one_sided` where both sides are there"
        )
    );
    let untimed = |flags: &str| {
        isolated_findings(|row| {
            row.flags = Some(flags.to_owned());
            row.step_seconds = f64::NAN;
        })
    };
    assert!(untimed("no_step_time").is_empty());
    assert_eq!(untimed("drift").len(), 1);
}

#[test]
fn each_pair_rule_is_found_when_broken() {
    let row = "pairs/part-0.parquet: row 3: ";
    let cases: Vec<(Vec<String>, &str)> = vec![
        (pair_findings(|r| r.overlap_ratio = 1.5), "`overlap_ratio` is 1.5, must be in 0..1"),
        (pair_findings(|r| r.throttled_ratio = -0.1), "`throttled_ratio` is -0.1, must be in 0..1"),
        (pair_findings(|r| r.corun_l2_hit_ratio = 98.0), "`corun_l2_hit_ratio` is 98, must be in 0..1"),
        (pair_findings(|r| r.drift_ratio = f64::INFINITY), "`drift_ratio` is inf, must be finite"),
        (pair_findings(|r| r.steps_total = 2.5), "`steps_total` is 2.5, must be a whole number, at least 0"),
        (pair_findings(|r| r.power_watts = -1.0), "`power_watts` is -1, must be finite and at least 0"),
        (
            pair_findings(|r| r.colocated_step_seconds = 0.0),
            "`colocated_step_seconds` is 0, must be finite and above 0",
        ),
        (
            pair_findings(|r| r.slowdown_lower_ratio = 3.5),
            "`slowdown_lower_ratio` is 3.5 with `slowdown_ratio` 3, must be at most `slowdown_ratio`",
        ),
        (
            pair_findings(|r| r.slowdown_upper_ratio = 2.9),
            "`slowdown_ratio` is 3 with `slowdown_upper_ratio` 2.9, must be at most `slowdown_upper_ratio`",
        ),
        (
            pair_findings(|r| r.interference_ratio = 1.5),
            "`slowdown_ratio` is 3 with a product of 3.5999999999999996, must be `partition_effect_ratio` x `interference_ratio` within 1e-6",
        ),
        (pair_findings(|r| r.repeat_total = f64::NAN), "`repeat_total` is null, must be present"),
        (pair_findings(|r| r.source = String::new()), "`source` is null, must be present"),
        (pair_findings(|r| r.outcome = "fine".into()), "`outcome` is `fine`, must be an outcome"),
        (
            pair_findings(|r| r.subject_kind = "toy".into()),
            "`subject_kind` is `toy`, must be a workload kind",
        ),
        (
            pair_findings(|r| r.sharing_requested = "mps(2,3)".into()),
            "`sharing_requested` is `mps(2,3)`, must be a sharing mode",
        ),
        (
            pair_findings(|r| r.sharing = "mps(0.3,0.7)".into()),
            "`sharing` is `mps(0.3,0.7)`, must be the mode of the other side, seen from this side",
        ),
        (
            pair_findings(|r| r.subject_workload = "z".into()),
            "`subject_workload` is `z`, must be `co_runner_workload` of the other side",
        ),
        (
            pair_findings(|r| r.subject_family = "a\nb".into()),
            "`subject_family` is `a\\nb`, must be at most 200 bytes without control characters",
        ),
        (
            pair_findings(|r| r.subject_share_ratio = 0.5),
            "`subject_share_ratio` is 0.5, must be `co_runner_share_ratio` of the other side",
        ),
        (
            pair_findings(|r| r.device = "a100".into()),
            "`device` is a100, must be equal on both sides of the trial",
        ),
        (pair_findings(|r| r.side = "c".into()), "`side` is `c`, must be `a` or `b`"),
        (pair_findings(|r| r.side = "a".into()), "`trial_id` is `t1` side a, must be unique with its side"),
        (
            pair_findings(|r| r.trial_id = "t2".into()),
            "`trial_id` is `t2` with one row, must be a trial of two rows, side a and side b",
        ),
    ];
    for (found, expected) in cases {
        let expected = format!("{row}{expected}");
        assert!(found.contains(&expected), "{expected}\n{found:#?}");
    }
    let missing = pair_findings(|r| (r.slowdown_ratio, r.interference_ratio) = (f64::NAN, f64::NAN));
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(
        missing[0].starts_with(&format!("{row}`slowdown_ratio` is null with outcome ok, must be present")),
        "{missing:?}"
    );
    assert!(
        pair_findings(|r| r.slowdown_ratio = 0.0)
            .contains(&format!("{row}`slowdown_ratio` is 0, must be finite and above 0"))
    );
    // Without the full device the interference stands alone.
    assert!(
        pair_findings(|r| (r.slowdown_ratio, r.partition_effect_ratio) = (f64::NAN, f64::NAN)).is_empty()
    );
}

#[test]
fn each_isolated_rule_is_found_when_broken() {
    let row = "isolated/part-0.parquet: row 0: ";
    for (found, expected) in [
        (
            isolated_findings(|r| r.step_seconds = f64::NAN),
            "`step_seconds` is null with outcome ok, must be present where the outcome has times",
        ),
        (
            isolated_findings(|r| r.step_lower_seconds = 0.75),
            "`step_lower_seconds` is 0.75 with `step_seconds` 0.5, must be at most `step_seconds`",
        ),
        (
            isolated_findings(|r| r.step_upper_seconds = 0.25),
            "`step_seconds` is 0.5 with `step_upper_seconds` 0.25, must be at most `step_upper_seconds`",
        ),
        (
            isolated_findings(|r| r.dram_throughput_ratio = 55.0),
            "`dram_throughput_ratio` is 55, must be in 0..1",
        ),
        (
            isolated_findings(|r| r.counters_status = String::new()),
            "`counters_status` is null, must be present",
        ),
        (isolated_findings(|r| r.kind = "Training".into()), "`kind` is `Training`, must be a workload kind"),
    ] {
        assert_eq!(found, [format!("{row}{expected}")]);
    }
}

#[test]
fn many_findings_of_one_rule_are_counted() {
    let mut rows: Vec<PairRow> =
        (0..50).flat_map(|index| trial(&format!("t{index}"), DeviceKind::Cpu, 2.0)).collect();
    for row in &mut rows {
        row.overlap_ratio = 2.0;
    }
    let findings = findings(&[], &rows);
    assert_eq!(findings.len(), 10);
    assert_eq!(findings.iter().map(|finding| finding.more).sum::<u64>(), 90);
    assert!(findings[9].to_string().ends_with("must be in 0..1 (and 90 more rows)"));
}

#[test]
fn the_manifest_is_held_against_the_rows() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    dataset("s", DeviceKind::Cpu, 2).write(&folder).unwrap();
    edit_manifest(&folder, |manifest| {
        manifest.content_digest = Digest::of(["other"]);
        manifest.pairs_rows = 5;
        manifest.device_kinds = vec![DeviceKind::Cuda];
    });
    let findings = validate(&folder).unwrap();
    let columns: Vec<&str> = findings.iter().map(|finding| finding.column.as_str()).collect();
    assert_eq!(columns, ["pairs_rows", "content_digest", "device_kinds"]);
    assert!(
        findings[0].to_string().ends_with("manifest.json: `pairs_rows` is 5, must be 4, as the parts say")
    );
}
