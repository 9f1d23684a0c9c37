//! The dataset from outside: folders, damage, merging, validation, imports.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

mod damage;
mod folders;
mod imports;
mod merging;
mod others;
mod rules;

use elastico_core::{DeviceKind, Digest, Provenance, Seed, SharingMode};
use elastico_datasets::{Dataset, IsolatedRow, PairRow, Table, pair_id};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Public measurements, which are not committed; `None` where they are absent.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("ELASTICO_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")), PathBuf::from);
    let path = root.join("data/colocation").join(path);
    if path.exists() {
        Some(path)
    } else {
        println!("skipped: {} is absent; set ELASTICO_SHARED", path.display());
        None
    }
}

pub(crate) fn provenance(source: &str) -> Provenance {
    Provenance {
        elastico_version: "0.1.0".into(),
        device_kind: DeviceKind::Simulated,
        device: "sim:v100".into(),
        seed: Some(Seed(7)),
        source: source.into(),
        source_digest: Some(Digest::of([source])),
        facts: BTreeMap::new(),
    }
}

/// Both rows of a good trial of `a` and `b`.
pub(crate) fn trial(name: &str, kind: DeviceKind, slowdown: f64) -> [PairRow; 2] {
    let sharing: SharingMode = "mps(0.3,0.7)".parse().unwrap();
    let row = |side: &str, subject: &str, co_runner: &str, sharing: SharingMode| PairRow {
        pair_id: pair_id(subject, co_runner, "v100", &sharing),
        trial_id: name.into(),
        side: side.into(),
        subject_workload: subject.into(),
        subject_family: subject.into(),
        subject_kind: "training".into(),
        co_runner_workload: co_runner.into(),
        co_runner_family: co_runner.into(),
        co_runner_kind: "training".into(),
        device_kind: kind.to_string(),
        device: "v100".into(),
        source: "test".into(),
        sharing: sharing.to_string(),
        sharing_requested: sharing.to_string(),
        subject_share_ratio: sharing.shares().0,
        co_runner_share_ratio: sharing.shares().1,
        slowdown_ratio: slowdown,
        slowdown_lower_ratio: slowdown * 0.9,
        slowdown_upper_ratio: slowdown * 1.1,
        partition_effect_ratio: slowdown / 1.25,
        interference_ratio: 1.25,
        outcome: "ok".into(),
        ..PairRow::default()
    };
    [row("a", "x", "y", sharing.clone()), row("b", "y", "x", sharing.swapped())]
}

pub(crate) fn alone(name: &str, kind: DeviceKind) -> IsolatedRow {
    IsolatedRow {
        trial_id: name.into(),
        workload: "x".into(),
        family: "x".into(),
        kind: "training".into(),
        device_kind: kind.to_string(),
        device: "v100".into(),
        source: "test".into(),
        share_ratio: 1.0,
        step_seconds: 0.5,
        counters_status: "ok".into(),
        l2_hit_ratio: 0.25,
        outcome: "ok".into(),
        ..IsolatedRow::default()
    }
}

/// `n` trials with slowdowns from 1.5 on.
pub(crate) fn dataset(source: &str, kind: DeviceKind, n: usize) -> Dataset {
    let pairs: Vec<PairRow> = (0..n)
        .flat_map(|index| trial(&format!("{source} {index}"), kind, 1.5 + index as f64 / 8.0))
        .collect();
    let exclusions = BTreeMap::from([("oom".to_owned(), 2)]);
    let isolated = [alone(&format!("{source} x"), kind)];
    Dataset::new(Table::isolated(&isolated), Table::pairs(&pairs), provenance(source), exclusions).unwrap()
}

/// The generated reference is the committed one. `ELASTICO_UPDATE=1` writes it.
#[test]
fn reference_is_current() {
    let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/dataset.md"));
    let text = elastico_datasets::reference();
    if std::env::var_os("ELASTICO_UPDATE").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(&file).unwrap_or_default() == text,
        "docs/reference/dataset.md is stale: run this test with ELASTICO_UPDATE=1"
    );
}
