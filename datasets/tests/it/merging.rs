use crate::{alone, dataset, provenance, trial};
use elastico_core::{DeviceKind, Hint};
use elastico_datasets::{Dataset, Error, Table};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn of_trials(numbers: &[u8]) -> Dataset {
    let mut numbers = numbers.to_vec();
    numbers.dedup();
    let mut pairs = Vec::new();
    let mut isolated = Vec::new();
    for number in numbers {
        // The slowdown follows from the number: equal trials have equal rows.
        pairs.extend(trial(&format!("t{number}"), DeviceKind::Cpu, 1.0 + f64::from(number)));
        isolated.push(alone(&format!("i{number}"), DeviceKind::Cpu));
    }
    let exclusions = BTreeMap::from([("oom".to_owned(), pairs.len() as u64)]);
    let source = provenance(&format!("s{}", pairs.len() % 3));
    Dataset::new(Table::isolated(&isolated), Table::pairs(&pairs), source, exclusions).unwrap()
}

fn sorted_trials(set: &Dataset) -> Vec<String> {
    let mut rows: Vec<String> = set.pairs.pair_rows().unwrap().map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn merging_is_idempotent_associative_and_commutative_up_to_order(
        a in prop::collection::vec(0_u8..12, 0..8),
        b in prop::collection::vec(0_u8..12, 0..8),
        c in prop::collection::vec(0_u8..12, 0..8),
    ) {
        let merge = |parts: &[&Dataset]| Dataset::merge(parts.iter().map(|part| (*part).clone()).collect()).unwrap();
        // Merging once drops the repeats within one dataset.
        let [a, b, c] = [a, b, c].map(|numbers| merge(&[&of_trials(&numbers)]));
        prop_assert_eq!(&merge(&[&a, &a]), &a);
        let ab = merge(&[&a, &b]);
        prop_assert_eq!(&merge(&[&ab, &b]), &ab);
        prop_assert_eq!(&merge(&[&ab, &a]), &ab);
        prop_assert_eq!(&merge(&[&ab, &c]), &merge(&[&a, &merge(&[&b, &c])]));
        prop_assert_eq!(&merge(&[&ab, &c]), &merge(&[&a, &b, &c]));
        let ba = merge(&[&b, &a]);
        prop_assert_eq!(sorted_trials(&ab), sorted_trials(&ba));
        prop_assert_eq!(ab.manifest.exclusions, ba.manifest.exclusions);
    }
}

#[test]
fn merging_with_itself_changes_no_byte() {
    let set = dataset("s", DeviceKind::Cpu, 5);
    let merged = Dataset::merge(vec![set.clone(), set.clone()]).unwrap();
    assert_eq!(merged, set);
    assert_eq!(merged.content_digest(), set.content_digest());
}

#[test]
fn conflicts_name_both() {
    let left = dataset("left", DeviceKind::Cpu, 3);
    let mut rows: Vec<_> = left.pairs.pair_rows().unwrap().collect();
    rows[3].slowdown_ratio = 9.0;
    let right = Dataset::new(Table::isolated(&[]), Table::pairs(&rows), provenance("right"), BTreeMap::new())
        .unwrap();
    let error = Dataset::merge(vec![left, right]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pairs row trial_id `left 1`, side `b` differs in `slowdown_ratio`: 1.625 in left (dataset 1), 9 in right (dataset 2)"
    );
    assert!(error.hint().is_some());
}

#[test]
fn kinds_mix_only_by_name() {
    let parts = || vec![dataset("m", DeviceKind::Cuda, 1), dataset("s", DeviceKind::Simulated, 1)];
    let error = Dataset::merge(parts()).unwrap_err();
    assert_eq!(error.to_string(), "the datasets hold data of different kinds: cuda, simulated");
    assert!(Dataset::merge_kinds(parts(), &[DeviceKind::Cuda]).is_err());
    let mixed = Dataset::merge_kinds(parts(), &[DeviceKind::Simulated, DeviceKind::Cuda]).unwrap();
    assert_eq!(mixed.manifest.device_kinds, [DeviceKind::Cuda, DeviceKind::Simulated]);
    assert_eq!(mixed.pairs.rows(), 4);
    assert_eq!(mixed.manifest.exclusions_by_reason(), BTreeMap::from([("oom", 4)]));
}

#[test]
fn schema_drift_and_nothing_are_refused() {
    let left = dataset("left", DeviceKind::Cpu, 1);
    let mut right = dataset("right", DeviceKind::Cpu, 1);
    right.manifest.schema = "elastico.dataset/9".into();
    let error = Dataset::merge(vec![left, right]).unwrap_err();
    assert_eq!(error.to_string(), "left has schema `elastico.dataset/2`, right has `elastico.dataset/9`");
    assert!(matches!(Dataset::merge(Vec::new()), Err(Error::NothingToMerge)));
}
