use crate::shared;
use elastico_core::{DeviceKind, Hint};
use elastico_datasets::{Dataset, Error, import, validate};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

pub(crate) fn mapping(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mappings").join(name)
}

pub(crate) fn assert_valid(set: &Dataset) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    set.write(&folder).unwrap();
    assert_eq!(validate(&folder).unwrap(), []);
    assert_eq!(set.manifest.device_kinds, [DeviceKind::Imported]);
}

pub(crate) fn records(csv: &Path) -> Vec<HashMap<String, String>> {
    csv::Reader::from_path(csv).unwrap().deserialize().map(Result::unwrap).collect()
}

fn slowdowns(set: &Dataset) -> BTreeMap<[String; 3], f64> {
    let rows = set.pairs.pair_rows().unwrap();
    let mut all = BTreeMap::new();
    for row in rows {
        let key = [row.device, row.side + &row.subject_workload, row.co_runner_workload];
        assert!(all.insert(key, row.slowdown_ratio).is_none());
    }
    all
}

#[test]
fn gavel_gives_every_published_pair() {
    let (Some(json), Some(csv)) =
        (shared("gavel/simulation_throughputs.json"), shared("gavel/pairs_gavel.csv"))
    else {
        return;
    };
    let set = import::gavel(&json).unwrap();
    assert_valid(&set);
    let found = slowdowns(&set);
    let records = records(&csv);
    assert_eq!((records.len(), found.len(), set.pairs.rows()), (1952, 1952, 1952));
    for record in &records {
        let key =
            [record["gpu"].clone(), record["role"].clone() + &record["victim"], record["aggressor"].clone()];
        let expected: f64 = record["slowdown"].parse().unwrap();
        assert!((found[&key] / expected - 1.0).abs() < 1e-12, "{key:?}: {} {expected}", found[&key]);
    }
    let (flags, devices) = (set.pairs.text("flags").unwrap(), set.pairs.text("device").unwrap());
    let clipped = |device: &str| {
        (0..set.pairs.rows())
            .filter(|row| {
                flags.get(*row) == Some("sharing_unstated;clipped") && devices.get(*row) == Some(device)
            })
            .count()
    };
    let one = records.iter().filter(|record| record["slowdown"] == "1.0").count();
    assert_eq!((clipped("v100"), clipped("p100") + clipped("k80")), (one, 0));
    assert!(one >= 80, "{one}");
    let reasons = set.manifest.exclusions_by_reason();
    assert!(!reasons.contains_key("second copies of a pair that differ from the first"), "{reasons:?}");
    assert!(reasons["pairs not run, or out of memory"] > 0, "{reasons:?}");
    assert!(set.manifest.provenance[0].facts["sharing"].contains("not stated"));

    // The same through the CSV file and its mapping.
    let mapped = import::pairs_csv(&csv, &mapping("gavel.toml")).unwrap();
    assert_valid(&mapped);
    assert_eq!(mapped.pairs.rows(), 1952);
    for (key, slowdown) in slowdowns(&mapped) {
        assert!((found[&key] / slowdown - 1.0).abs() < 1e-12, "{key:?}");
    }
    let pair_ids = |set: &Dataset| {
        let mut ids = set.pairs.text("pair_id").unwrap().values().to_vec();
        ids.sort();
        ids
    };
    assert_eq!(pair_ids(&set), pair_ids(&mapped));
}

#[test]
fn the_physical_file_of_gavel_is_refused() {
    let Some(json) = shared("gavel/physical_cluster_throughputs.json") else { return };
    let error = import::gavel(&json).unwrap_err();
    assert!(
        matches!(error, Error::Suspicious { suspicious, total, .. } if suspicious * 50 > total),
        "{error:?}"
    );
    assert!(error.hint().unwrap().contains("simulation_throughputs.json"));
}

#[test]
fn igniter_imports_by_its_mapping() {
    let Some(csv) = shared("igniter/pairs_igniter.csv") else { return };
    let set = import::pairs_csv(&csv, &mapping("igniter.toml")).unwrap();
    assert_valid(&set);
    assert_eq!(set.pairs.rows(), 1500);
    assert!(set.manifest.exclusions.is_empty());

    let key = |subject: &str, co_runner: &str, share: f64| format!("{subject}|{co_runner}|{share:.2}");
    let mut found = HashMap::new();
    for row in set.pairs.pair_rows().unwrap() {
        assert_eq!(row.flags.as_deref(), Some("slowdown_at_share;interval_one_deviation"));
        assert!(row.isolated_full_step_seconds.is_nan() && row.partition_effect_ratio.is_nan());
        let key = key(&row.subject_workload, &row.co_runner_workload, row.subject_share_ratio);
        found.insert(key, row);
    }
    for record in records(&csv) {
        let number = |name: &str| record[name].parse::<f64>().unwrap();
        let row = &found[&key(&record["victim"], &record["aggressor"], number("victim_share_pct") / 100.0)];
        assert!((row.slowdown_ratio / number("slowdown") - 1.0).abs() < 1e-12);
        assert!((row.isolated_step_seconds / (number("solo") / 1000.0) - 1.0).abs() < 1e-12);
        assert_eq!(row.sharing, format!("mps({},{})", row.subject_share_ratio, row.co_runner_share_ratio));
        assert_eq!(row.side, record["role"]);
        let half = number("coloc_std_ms") / number("solo");
        assert!((row.slowdown_upper_ratio - row.slowdown_ratio - half).abs() < 1e-9);
    }
    // 4 models x 5 batches x 5 shares, with counters as ratios.
    assert_eq!(set.isolated.rows(), 100);
    let hits = set.isolated.f64("l2_throughput_ratio").unwrap();
    assert!(hits.iter().all(|ratio| *ratio > 0.0 && *ratio < 1.0));
    assert!(set.isolated.f64("l2_hit_ratio").unwrap().iter().all(|ratio| ratio.is_nan()));
}

const HEADER: &str = "who,beside,gpu,alone_s,together_s,role\n";

/// Imports a small CSV with columns `who`, `beside`, … and a mapping that `edit` may change.
fn small(rows: &str, edit: impl FnOnce(String) -> String) -> Result<Dataset, Error> {
    let root = tempfile::tempdir().unwrap();
    let (csv, toml) = (root.path().join("pairs.csv"), root.path().join("mapping.toml"));
    std::fs::write(&csv, format!("{HEADER}{rows}")).unwrap();
    let mapping = "schema = \"elastico.pairs_mapping/1\"\nname = \"small\"\n\
        [columns]\nsubject = \"who\"\nco_runner = \"beside\"\ndevice = \"gpu\"\n\
        [constants]\nsharing = \"time_slice\"\nkind = \"inference\"\n\
        [values]\nisolated = \"alone_s\"\ncolocated = \"together_s\"\nunit = \"seconds\"\n";
    std::fs::write(&toml, edit(mapping.to_owned())).unwrap();
    import::pairs_csv(&csv, &toml)
}

#[test]
fn sides_and_repeats_are_derived() {
    let rows = "q,p,g,1,2,\np,q,g,2,3,\np,q,g,2,4,\nq,p,g,1,2.5,\np,p,g,2,5,\np,p,g,2,6,\np,z,g,2,6,\n";
    let set = small(rows, |mapping| mapping).unwrap();
    assert_valid(&set);
    let rows: Vec<(String, String, f64, f64)> = set
        .pairs
        .pair_rows()
        .unwrap()
        .map(|row| (row.side, row.subject_workload, row.repeat_total, row.slowdown_ratio))
        .collect();
    let row =
        |side: &str, subject: &str, repeat, slowdown| (side.to_owned(), subject.to_owned(), repeat, slowdown);
    assert_eq!(
        rows,
        [
            row("a", "p", 0.0, 2.5),
            row("b", "p", 0.0, 3.0),
            row("a", "p", 0.0, 1.5),
            row("b", "q", 0.0, 2.0),
            row("a", "p", 1.0, 2.0),
            row("b", "q", 1.0, 2.5),
        ]
    );
    assert_eq!(set.manifest.exclusions_by_reason(), BTreeMap::from([("lines without the other side", 1)]));
    assert!(matches!(small("p,z,g,2,6,\n", |mapping| mapping), Err(Error::NothingImported { .. })));
}

fn message(rows: &str, edit: impl FnOnce(String) -> String) -> String {
    let error = small(rows, edit).unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let text = error.to_string();
    let place = text.find("pairs.csv").or(text.find("mapping.toml")).unwrap();
    let hint = error.hint().unwrap_or_default();
    format!("{} / {} / {hint}", &text[place..], source.lines().next().unwrap_or_default())
}

#[test]
fn errors_name_line_and_column() {
    let same = |mapping: String| mapping;
    for (rows, expected) in [
        (
            "p,q,g,1,2,\nq,p,g,-1,2,\n",
            "pairs.csv` line 3, column `alone_s`: `-1` is no finite number above 0",
        ),
        ("p,q,g,1,nan,\n", "pairs.csv` line 2, column `together_s`: `nan` is no finite number above 0"),
        ("p,q,g,1,inf,\n", "pairs.csv` line 2, column `together_s`: `inf` is no finite number above 0"),
        ("p,q,g,,2,\n", "pairs.csv` line 2, column `alone_s`: `` is no finite number above 0"),
        ("p,,g,1,2,\n", "pairs.csv` line 2, column `beside`: `` is no name: workload id is empty"),
        (
            "p,q,g,1,2\n",
            "pairs.csv` as CSV / CSV error: record 1 (line: 2, byte: 39): found record with 5 fields",
        ),
    ] {
        let found = message(rows, same);
        assert!(found.starts_with(expected), "{found}");
    }
    for (rows, expected) in [
        (
            "p,q,g,1e-300,1e300,\nq,p,g,1,2,\n",
            "pairs.csv` line 2: `slowdown_ratio` would be inf, must be 0.5 to 1000",
        ),
        (
            "p,q,g,1,2,\nq,p,g,2000,2,\n",
            "pairs.csv` line 3: `slowdown_ratio` would be 0.001, must be 0.5 to 1000",
        ),
        (
            "p,q,g,1,2,\nq,p,g,1e300,2e300,\n",
            "pairs.csv` line 3: `step_seconds` would be 1e300, must be at most 1e9",
        ),
        ("p\u{0},q,g,1,2,\n", "pairs.csv` line 2, column `who`: `p\\u{0}` is no name"),
    ] {
        let found = message(rows, same);
        assert!(found.starts_with(expected) && !found.ends_with("/ "), "{found}");
    }
    let long = message(&format!("{},q,g,1,2,\n", "x".repeat(300)), same);
    assert!(long.contains("…` is no name") && long.len() < 300, "{long}");
    let with = |from: &'static str, to: &'static str| move |mapping: String| mapping.replace(from, to);
    let good = "p,q,g,1,2,a\nq,p,g,1,2,b\n";
    assert!(small(good, same).is_ok());
    for (edit, expected) in [
        (
            ("\"who\"", "\"whom\""),
            "mapping.toml`: `columns.subject` names column `whom`, which the CSV file lacks /  / did you mean `who`?",
        ),
        (("device = \"gpu\"", ""), "mapping.toml`: `device` is neither a column nor a constant"),
        (
            ("co_runner", "corunner"),
            "mapping.toml` as a mapping of pairs / TOML parse error at line 5, column 1 / did you mean `co_runner`?",
        ),
        (("unit = \"seconds\"\n", ""), "mapping.toml`: `values.unit` is missing"),
        (("time_slice", "sometimes"), "mapping.toml`: `sharing` `sometimes` is no sharing mode"),
        (
            ("pairs_mapping/1", "pairs_mapping/2"),
            "mapping.toml`: `schema` must be `elastico.pairs_mapping/1`",
        ),
        (
            ("[values]", "[counters]\nl2_hit_ration = {subject = \"who\", co_runner = \"who\"}\n[values]"),
            "mapping.toml`: `counters.l2_hit_ration` is no isolated column that an import may fill /  / did you mean `l2_hit_ratio`?",
        ),
    ] {
        let found = message(good, with(edit.0, edit.1));
        assert!(found.starts_with(expected), "{found}");
    }
    let found =
        message("p,q,g,1,2,a\nq,z,g,1,2,b\n", with("device", "side = \"role\"\npair = \"gpu\"\ndevice"));
    assert!(found.contains("has nothing that can be imported"), "{found}");
    let root = tempfile::tempdir().unwrap();
    let csv = root.path().join("pairs.csv");
    let toml = root.path().join("mapping.toml");
    std::fs::write(&toml, import::MAPPING_TEMPLATE).unwrap();
    for (content, expected) in [
        ("", "is not imported: it is empty"),
        ("victim;aggressor\na;b\n", "is not imported: its cells are separated by semicolons"),
        ("victim,victim\na,b\n", "has two columns `victim`"),
        ("who,beside\na,b\n", "lacks; it has `who`, `beside`"),
    ] {
        std::fs::write(&csv, content).unwrap();
        let error = import::pairs_csv(&csv, &toml).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let found = message("p,q,g,1,2,a\np,q,g,1,2,b\n", with("device", "side = \"role\"\ndevice"));
    assert!(found.starts_with("pairs.csv` line 3, column `role`: `p` does not mirror line 2"), "{found}");
}
