use crate::{dataset, provenance, trial};
use elastico_core::{DeviceKind, Hint};
use elastico_datasets::{Dataset, Error, Manifest, Table, export_csv, inspect, pair_summaries, validate};
use std::collections::BTreeMap;
use std::path::Path;

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for path in ["manifest.json", "isolated/part-0.parquet", "pairs/part-0.parquet"] {
        all.insert(path.to_owned(), std::fs::read(folder.join(path)).unwrap());
    }
    all
}

pub(crate) fn edit_manifest<T>(folder: &Path, edit: impl FnOnce(&mut Manifest) -> T) {
    let file = folder.join("manifest.json");
    let mut manifest: Manifest = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    edit(&mut manifest);
    std::fs::write(&file, serde_json::to_vec(&manifest).unwrap()).unwrap();
}

#[test]
fn a_dataset_survives_the_folder_and_is_the_same_bytes_each_time() {
    let root = tempfile::tempdir().unwrap();
    let set = dataset("s", DeviceKind::Simulated, 3);
    let (first, second) = (root.path().join("first"), root.path().join("deep/second"));
    set.write(&first).unwrap();
    let back = Dataset::read(&first).unwrap();
    assert_eq!((&back.isolated, &back.pairs), (&set.isolated, &set.pairs));
    assert_eq!(back.manifest.provenance, set.manifest.provenance);
    assert_eq!(back.manifest.content_digest, set.content_digest());
    assert_eq!(back.manifest.exclusions_by_reason(), BTreeMap::from([("oom", 2)]));
    assert_eq!(back.manifest.device_kinds, [DeviceKind::Simulated]);
    back.write(&second).unwrap();
    assert_eq!(files(&first), files(&second));
    assert_eq!(validate(&first).unwrap(), []);
}

/// Pins the manifest and, by the digests in it, each byte of the parts on every machine.
#[test]
fn bytes_are_the_same_everywhere() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    dataset("s", DeviceKind::Simulated, 3).write(&folder).unwrap();
    insta::assert_snapshot!(std::fs::read_to_string(folder.join("manifest.json")).unwrap());
}

#[test]
fn an_empty_dataset_is_a_dataset() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("empty");
    let set =
        Dataset::new(Table::isolated(&[]), Table::pairs(&[]), provenance("e"), BTreeMap::new()).unwrap();
    set.write(&folder).unwrap();
    assert_eq!(Dataset::read(&folder).unwrap().pairs, set.pairs);
    assert_eq!(validate(&folder).unwrap(), []);
    assert_eq!(inspect(&set).pairs.rows, 0);
}

#[test]
fn replacing_needs_a_dataset_and_leaves_nothing_beside() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    std::fs::create_dir(&folder).unwrap();
    dataset("old", DeviceKind::Cpu, 1).write(&folder).unwrap();
    let new = dataset("new", DeviceKind::Cpu, 2);
    new.write(&folder).unwrap();
    assert_eq!(Dataset::read(&folder).unwrap().pairs, new.pairs);

    assert!(matches!(new.create(&folder), Err(Error::Io { .. })), "it is there");
    for name in ["notes.txt", "pairs/notes.txt", "isolated/mine.parquet"] {
        std::fs::write(folder.join(name), b"mine").unwrap();
        let error = new.write(&folder).unwrap_err();
        assert!(matches!(&error, Error::ForeignFile { file, .. } if file.ends_with(name)), "{error:?}");
        std::fs::remove_file(folder.join(name)).unwrap();
    }

    let foreign = root.path().join("photos");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("cat.jpg"), b"cat").unwrap();
    let error = new.write(&foreign).unwrap_err();
    assert!(matches!(error, Error::NotADataset { .. }), "{error:?}");
    assert_eq!(std::fs::read(foreign.join("cat.jpg")).unwrap(), b"cat");
    let error = new.write(&foreign.join("cat.jpg")).unwrap_err();
    assert!(matches!(error, Error::NotADataset { .. }), "{error:?}");
    assert!(matches!(new.write(&foreign.join("cat.jpg/set")), Err(Error::Io { .. })));

    let mut names: Vec<_> =
        std::fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["photos", "set"]);
}

#[test]
fn parts_are_read_in_the_order_of_their_names() {
    let root = tempfile::tempdir().unwrap();
    let (both, one, two) = (root.path().join("both"), root.path().join("one"), root.path().join("two"));
    let whole = dataset("s", DeviceKind::Cpu, 4);
    whole.write(&both).unwrap();
    let part = |rows: &[usize]| Dataset { pairs: whole.pairs.take(rows), ..whole.clone() };
    part(&[0, 1, 2]).write(&one).unwrap();
    part(&[3, 4, 5, 6, 7]).write(&two).unwrap();
    std::fs::remove_file(both.join("pairs/part-0.parquet")).unwrap();
    assert!(matches!(Dataset::read(&both), Err(Error::Missing { .. })));
    std::fs::rename(one.join("pairs/part-0.parquet"), both.join("pairs/a.parquet")).unwrap();
    std::fs::rename(two.join("pairs/part-0.parquet"), both.join("pairs/b.parquet")).unwrap();
    let error = Dataset::read(&both).unwrap_err();
    assert!(matches!(&error, Error::Unlisted { file } if file.ends_with("pairs/a.parquet")), "{error:?}");
    Dataset::list_parts(&both).unwrap();
    assert_eq!(Dataset::read(&both).unwrap().pairs, whole.pairs);
    assert_eq!(validate(&both).unwrap(), []);

    std::fs::rename(both.join("pairs/a.parquet"), both.join("pairs/c.parquet")).unwrap();
    Dataset::list_parts(&both).unwrap();
    let error = Dataset::read(&both).unwrap_err();
    assert!(matches!(error, Error::ContentChanged { .. }), "{error:?}");
}

/// A pipe with the name of a part would hold a reader up for ever.
#[test]
fn a_pipe_among_the_parts_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("data");
    dataset("s", DeviceKind::Cpu, 4).write(&folder).unwrap();
    let pipe = folder.join("pairs/pipe.parquet");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let error = Dataset::read(&folder).unwrap_err();
    assert!(matches!(&error, Error::NotADataset { path, .. } if *path == pipe), "{error:?}");
}

#[test]
fn manifests_are_refused_by_version_and_place() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    assert!(matches!(Dataset::read(&folder), Err(Error::Io { operation: "read", .. })));
    std::fs::create_dir(&folder).unwrap();
    assert!(matches!(Dataset::read(&folder), Err(Error::NotADataset { .. })));
    let file = folder.join("manifest.json");
    std::fs::write(&file, "{\n  \"schema\": 1}").unwrap();
    assert!(matches!(validate(&folder), Err(Error::Json { line: 2, column: 13, .. })));
    std::fs::write(&file, r#"{"schema": "elastico.dataset/9", "novel": 1}"#).unwrap();
    let error = validate(&folder).unwrap_err();
    assert!(matches!(&error, Error::Version { found, .. } if found == "elastico.dataset/9"), "{error:?}");
    assert!(error.hint().is_some());
    // A dataset of another version may still be replaced.
    dataset("new", DeviceKind::Cpu, 1).write(&folder).unwrap();
    assert_eq!(validate(&folder).unwrap(), []);
}

#[test]
fn unknown_device_kinds_are_no_dataset() {
    let mut rows = trial("t", DeviceKind::Cpu, 2.0);
    rows[1].device_kind = "toaster".into();
    let error = Dataset::new(Table::isolated(&[]), Table::pairs(&rows), provenance("e"), BTreeMap::new());
    let error = error.unwrap_err();
    assert_eq!(error.to_string(), "the pairs table, row 1: `toaster` is no device kind");
}

#[test]
fn csv_has_empty_nulls_and_exact_numbers() {
    let mut rows = trial("t, \"quoted\"", DeviceKind::Cpu, 0.1 + 0.2);
    rows[0].drift_ratio = 1e-300;
    let mut out = Vec::new();
    export_csv(&Table::pairs(&rows), &mut out).unwrap();
    let mut reader = csv::Reader::from_reader(out.as_slice());
    let header = reader.headers().unwrap().clone();
    let records: Vec<_> = reader.records().map(Result::unwrap).collect();
    let cell =
        |row: usize, name: &str| records[row][header.iter().position(|it| it == name).unwrap()].to_owned();
    assert_eq!(header.len(), Table::pairs(&[]).columns().len());
    assert_eq!(cell(0, "trial_id"), "t, \"quoted\"");
    assert_eq!(cell(0, "slowdown_ratio").parse::<f64>().unwrap().to_bits(), (0.1_f64 + 0.2).to_bits());
    assert_eq!(cell(0, "drift_ratio").parse::<f64>().unwrap().to_bits(), 1e-300_f64.to_bits());
    assert_eq!((cell(1, "drift_ratio"), cell(1, "flags")), (String::new(), String::new()));

    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert!(matches!(export_csv(&Table::pairs(&rows), Full), Err(Error::Output { .. })));
}

#[test]
fn summaries_are_geometric_over_ok_trials() {
    let mut rows = Vec::new();
    for (name, slowdown) in [("1", 1.0), ("2", 4.0), ("3", 2.0)] {
        let mut pair = trial(name, DeviceKind::Cpu, slowdown);
        if name == "3" {
            pair[0].outcome = "drift".into();
            pair[1].outcome = "oom".into();
            pair[1].slowdown_ratio = f64::NAN;
        }
        rows.extend(pair);
    }
    let pairs = Table::pairs(&rows);
    let set = Dataset::new(Table::isolated(&[]), pairs, provenance("s"), BTreeMap::new()).unwrap();
    let summaries = pair_summaries(&set).unwrap();
    assert_eq!(summaries.len(), 2);
    let first = &summaries[0];
    assert_eq!((first.side.as_str(), first.subject_workload.as_str(), first.n), ("a", "x", 2));
    assert!((first.slowdown.unwrap() - 2.0).abs() < 1e-12);
    let interval = first.interval.unwrap();
    assert!(interval.n == 2 && interval.lower < 1.0 && interval.upper > 4.0, "{interval:?}");
    assert_eq!(first.outcomes, BTreeMap::from([("ok".to_owned(), 2), ("drift".to_owned(), 1)]));
    assert_eq!(summaries[1].sharing, "mps(0.7,0.3)");

    let view = inspect(&set);
    assert_eq!(
        view.pairs.outcomes,
        BTreeMap::from([("drift".to_owned(), 1), ("ok".to_owned(), 4), ("oom".to_owned(), 1)])
    );
    assert_eq!(view.pairs.sharing.values().sum::<u64>(), 6);
    let null =
        |name: &str| view.pairs.nulls.iter().find(|(column, _)| column == name).map(|(_, share)| *share);
    assert_eq!(
        (null("slowdown_ratio"), null("overlap_ratio"), null("side")),
        (Some(1.0 / 6.0), Some(1.0), None)
    );
}
