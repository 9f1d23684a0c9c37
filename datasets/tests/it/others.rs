//! Imports of fixed formats: against the published files, and on small ones that are wrong on purpose.

use crate::imports::{assert_valid, mapping, records};
use crate::shared;
use elastico_core::Hint;
use elastico_datasets::{Dataset, Error, IsolatedRow, PairRow, import, inspect};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn isolated(set: &Dataset) -> BTreeMap<String, IsolatedRow> {
    set.isolated.isolated_rows().unwrap().map(|row| (row.trial_id.clone(), row)).collect()
}

fn pairs(set: &Dataset) -> Vec<PairRow> {
    set.pairs.pair_rows().unwrap().collect()
}

fn near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 1e-12
}

fn number(record: &std::collections::HashMap<String, String>, name: &str) -> f64 {
    record[name].parse().unwrap()
}

#[test]
fn miso_gives_shapes_and_counters_at_the_full_slice() {
    let Some(folder) = shared("miso") else { return };
    let set = import::miso(&folder).unwrap();
    assert_valid(&set);
    let steps = records(&folder.join("mig_step_times.csv"));
    let rows = isolated(&set);
    assert_eq!((steps.len(), rows.len(), set.isolated.rows(), set.pairs.rows()), (145, 145, 145, 0));
    let trial = |record: &std::collections::HashMap<String, String>, slice: &str, memory: &str| {
        format!("miso: {}-b{} @ a100-40gb mig({slice}.{memory}gb)", record["model"], record["batch"])
    };
    for record in &steps {
        let row = &rows[&trial(record, &record["mig_slice"], &record["mig_mem_gb"])];
        let slices: f64 = record["mig_slice"].trim_end_matches('g').parse().unwrap();
        assert!(
            near(row.share_ratio, slices / 7.0) && near(row.step_seconds, number(record, "median_step_s"))
        );
        assert!(near(row.batch_total, number(record, "batch")));
        assert_eq!(row.kernel_active_ratio.is_nan(), slices < 7.0);
    }
    let solo = records(&folder.join("solo_utilisation.csv"));
    let mut found = 0;
    for record in &solo {
        // `dummy` has no step times.
        let Some(row) = rows.get(&trial(record, "7g", "40")) else { continue };
        found += 1;
        assert!(near(row.kernel_active_ratio * 100.0, number(record, "util_sm_pct")));
        assert!(near(row.power_watts, number(record, "power_w")));
        assert!(near(row.footprint_bytes, number(record, "memory_mib") * 1024.0 * 1024.0));
    }
    assert_eq!((found, solo.len()), (32, 33));
    assert_eq!(set.manifest.exclusions[0].rows, 1);

    let error = import::miso(&folder.join("unet_input_data.npy")).unwrap_err();
    assert!(error.to_string().contains("scaled by its own maximum"), "{error}");
    assert!(error.hint().unwrap().contains("mig_step_times.csv"));
}

#[test]
fn echo_gives_one_sided_rows_by_the_overlapped_part() {
    let Some(csv) = shared("echo_slowdown/merged_features.csv") else { return };
    let set = import::echo(&csv).unwrap();
    assert_valid(&set);
    let (records, rows) = (records(&csv), pairs(&set));
    let by_trial: BTreeMap<String, &PairRow> = rows.iter().map(|row| (row.trial_id.clone(), row)).collect();
    assert_eq!(set.isolated.rows(), 619);
    let (mut full, mut short) = (0, 0);
    for record in &records {
        let (alone, beside) = (number(record, "ground_truth"), number(record, "duration"));
        let overlap = number(record, "overlap_ratio");
        let Some(row) = by_trial.get(&format!("echo: kernel {}", record["id"])) else { continue };
        // The time beside NCCL and the time alone add up to what was measured.
        let work = overlap * beside / row.slowdown_ratio + (1.0 - overlap) * beside;
        assert!((work / alone - 1.0).abs() < 1e-9);
        if overlap >= 0.98 {
            full += 1;
            assert_eq!(row.outcome, "ok");
            if overlap >= 1.0 {
                // The published column agrees where nothing is divided.
                assert!((row.slowdown_ratio - 1.0 - number(record, "slowdown")).abs() < 1e-9);
            }
        } else {
            short += 1;
            assert_eq!(
                (row.outcome.as_str(), row.flags.as_deref()),
                ("low_overlap", Some("one_sided;low_overlap"))
            );
        }
    }
    let reasons = set.manifest.exclusions_by_reason();
    assert_eq!(full, 320);
    assert_eq!(reasons["kernels that NCCL did not overlap"], 215);
    assert_eq!(full + short + reasons.values().sum::<u64>() as usize, 619);
    // The layers of the model launch the same kernels: a split must not tear them apart.
    let workloads = set.isolated.text("workload").unwrap().values().len();
    assert!((60..120).contains(&workloads), "{workloads}");
    assert_eq!(set.isolated.text("family").unwrap().values().len(), 26);
    assert!(set.manifest.provenance[0].facts["noise"].starts_with("215 kernels"));
    let inspection = inspect(&set);
    assert_eq!(inspection.pairs.flags["one_sided"], set.pairs.rows() as u64);
    assert_eq!(inspection.pairs.harnesses, BTreeMap::from([("echo".to_owned(), set.pairs.rows() as u64)]));
}

#[test]
fn the_language_model_gets_a_ratio_of_medians_inside_its_interval() {
    let Some(csv) = shared("llm_sensitivity_mlwd/llm_stressor_sensitivity.csv") else { return };
    let set = import::llm_sensitivity(&csv).unwrap();
    assert_valid(&set);
    let (records, rows) = (records(&csv), pairs(&set));
    assert_eq!((records.len(), rows.len()), (56, 56));
    for (record, row) in records.iter().zip(&rows) {
        assert!((row.slowdown_ratio / number(record, "slowdown") - 1.0).abs() < 1e-9);
        assert!(
            row.slowdown_lower_ratio < row.slowdown_ratio && row.slowdown_ratio < row.slowdown_upper_ratio
        );
        assert!(row.subject_workload.contains(&record["phase"]) && row.co_runner_kind == "stressor");
    }
    // The wide one: five runs from 34 to 151 ms.
    assert!(rows[0].slowdown_lower_ratio < 1.2 && rows[0].slowdown_upper_ratio > 4.0);
    // Both batches, three lengths, two phases; batch 1 with length 32 was measured twice.
    assert_eq!(set.isolated.rows(), 14);
    assert_eq!(rows.iter().filter(|row| row.repeat_total > 0.0).count(), 8);
    assert_eq!(set.isolated.text("workload").unwrap().values().len(), 12);
}

#[test]
fn gpulets_gives_counters_without_times_and_constants_as_facts() {
    let Some(folder) = shared("gpulet") else { return };
    let set = import::gpulets(&folder).unwrap();
    assert_valid(&set);
    assert_eq!((set.isolated.rows(), set.pairs.rows()), (180, 0));
    assert!(set.isolated.f64("step_seconds").unwrap().iter().all(|seconds| seconds.is_nan()));
    let row = &isolated(&set)["gpulets: bert-b4 @ rtx2080ti"];
    assert!((row.l2_throughput_ratio - 0.140_061_916).abs() < 1e-6);
    assert!((row.dram_throughput_ratio - 0.303_156_195).abs() < 1e-6);
    let facts = &set.manifest.provenance[0].facts;
    assert!(facts["constants_rtx3080"].contains("-0.179887"), "{facts:?}");
    let licences = set.manifest.licences();
    assert_eq!((licences.len(), licences[0].may_ship), (1, false));
}

#[test]
fn licences_are_known_and_a_matrix_is_no_list_of_pairs() {
    if let Some(csv) = shared("igniter/pairs_igniter.csv") {
        let set = import::pairs_csv(&csv, &mapping("igniter.toml")).unwrap();
        assert!(!set.manifest.licences()[0].may_ship);
        assert!(set.pairs.flagged("slowdown_at_share").iter().all(|flagged| *flagged));
    }
    if let Some(csv) = shared("gavel/pairs_gavel.csv") {
        let set = import::pairs_csv(&csv, &mapping("gavel.toml")).unwrap();
        assert!(set.manifest.licences()[0].may_ship);
    }
    if let Some(csv) = shared("eva/contention_matrix.csv") {
        let error = import::pairs_csv(&csv, &mapping("template.toml")).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert!(error.hint().unwrap().contains("host"));
    }
}

/// A folder with these files, each named with its content.
fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(root.path().join(name), content).unwrap();
    }
    let path = root.path().to_owned();
    (root, path)
}

/// The message from the file's name on, with the hint.
fn message(result: Result<Dataset, Error>) -> String {
    let error = result.unwrap_err();
    let text = error.to_string();
    let name = text.find(".csv`").map_or(0, |end| text[..end].rfind('/').map_or(0, |slash| slash + 1));
    format!("{} / {}", &text[name..], error.hint().unwrap_or_default())
}

#[test]
fn the_template_imports_a_file_of_ones_own() {
    let csv = "victim,aggressor,victim_family,aggressor_family,solo_ms,coloc_ms\n\
        a,b,A,B,10,12\nb,a,B,A,5,7\n";
    let (_root, path) = folder(&[("my.csv", csv), ("my.toml", import::MAPPING_TEMPLATE)]);
    let set = import::pairs_csv(&path.join("my.csv"), &path.join("my.toml")).unwrap();
    assert_valid(&set);
    assert_eq!(set.pairs.f64("slowdown_ratio").unwrap(), [1.2, 1.4]);
    // Every line that is commented out is a field that exists.
    let full: String = import::MAPPING_TEMPLATE
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(field)
                if field.starts_with('[') || field.contains(" = ") && !field.starts_with("one_sided") =>
            {
                format!("{field}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    std::fs::write(path.join("full.toml"), full).unwrap();
    let text = message(import::pairs_csv(&path.join("my.csv"), &path.join("full.toml")));
    assert!(!text.contains("as a mapping"), "{text}");

    let alone = import::MAPPING_TEMPLATE.replace("# one_sided = true ", "one_sided = true ");
    std::fs::write(path.join("alone.toml"), alone).unwrap();
    std::fs::write(path.join("my.csv"), csv.replace("b,a,B,A,5,7\n", "a,b,A,B,10,13\n")).unwrap();
    assert!(import::pairs_csv(&path.join("my.csv"), &path.join("my.toml")).is_err());
    let set = import::pairs_csv(&path.join("my.csv"), &path.join("alone.toml")).unwrap();
    assert_valid(&set);
    assert_eq!(set.pairs.f64("slowdown_ratio").unwrap(), [1.2, 1.3]);
    assert_eq!(set.pairs.f64("repeat_total").unwrap(), [0.0, 1.0]);
}

#[test]
fn wrong_cells_of_miso_are_named() {
    let steps = "model,batch,mig_slice,mig_mem_gb,n_steps,median_step_s,p5_step_s,p95_step_s\n\
        bert,2,7g,40,10,0.5,0.4,0.6\nbert,2,1g,5,10,2.5,2.4,2.6\n";
    let solo = "model,batch,util_sm_pct,util_mem_pct,power_w,memory_mib\nbert,2,70,30,160,6347\n";
    let import = |steps: &str, solo: &str| {
        let (_root, path) = folder(&[("mig_step_times.csv", steps), ("solo_utilisation.csv", solo)]);
        import::miso(&path)
    };
    assert_valid(&import(steps, solo).unwrap());
    for (steps, solo, expected) in [
        (
            steps.replace("1g", "5g"),
            solo.to_owned(),
            "mig_step_times.csv` line 3, column `mig_slice`: `5g` is no MIG slice",
        ),
        (
            steps.replace("1g", "7g"),
            solo.to_owned(),
            "mig_step_times.csv` line 3, column `mig_slice`: `7g` occurs twice",
        ),
        (
            steps.replace("2.5,2.4", "2.3,2.4"),
            solo.to_owned(),
            "mig_step_times.csv` line 3, column `median_step_s`: `2.3` is not between",
        ),
        (
            steps.replace("0.5,", "-1,"),
            solo.to_owned(),
            "mig_step_times.csv` line 2, column `median_step_s`: `-1` is no finite number above 0",
        ),
        (
            steps.replace("median_step_s", "median_s"),
            solo.to_owned(),
            "mig_step_times.csv` has no column `median_step_s`",
        ),
        (
            steps.replace(",2.4,2.6", ",2.4"),
            solo.to_owned(),
            "mig_step_times.csv` line 3: 7 cells, the header has 8",
        ),
        (
            steps.replace("2.6", "2.6,x"),
            solo.to_owned(),
            "mig_step_times.csv` line 3: 9 cells, the header has 8",
        ),
        (
            steps.to_owned(),
            solo.replace("70", "101"),
            "solo_utilisation.csv` line 2, column `util_sm_pct`: `101` is no percentage in 0..100",
        ),
        (
            steps.to_owned(),
            format!("{solo}bert,2,1,1,1,1\n"),
            "solo_utilisation.csv` line 3, column `batch`: `2` occurs twice",
        ),
        (
            steps.lines().next().unwrap().to_owned() + "\n",
            solo.to_owned(),
            "mig_step_times.csv` has nothing that can be imported",
        ),
    ] {
        let found = message(import(&steps, &solo));
        assert!(found.starts_with(expected) && !found.ends_with("/ "), "{found}");
    }
    let (watts, found) = (
        solo.replace("160", "1e300"),
        "mig_step_times.csv line 2, or its line of solo_utilisation.csv: `power_watts`",
    );
    assert!(message(import(steps, &watts)).contains(found));
    assert!(matches!(import::miso(Path::new("/nowhere")), Err(Error::Io { .. })));
    let (_root, path) = folder(&[("mig_step_times.csv", steps)]);
    let found = message(import::miso(&path));
    assert!(
        found.ends_with("name the folder that holds mig_step_times.csv, solo_utilisation.csv"),
        "{found}"
    );
}

#[test]
fn wrong_cells_of_echo_are_named() {
    let header = "id,kShortName,kDemangledName,ground_truth,duration,overlap_ratio,slowdown,ID,Kernel Name,SM,\
        DRAM throughput,Achieved occupancy,L2 hit rate\n";
    let import = |rows: &str| {
        let (_root, path) = folder(&[("echo.csv", &format!("{header}{rows}"))]);
        import::echo(&path.join("echo.csv"))
    };
    let good = "1,k,k<float>,1000,1500,1,0.5,0,k,108,50,60,100.9\n2,k,k<float>,1050,1050,0,0,1,k,108,50,60,70\n\
        3,k,k<float>,9000,8000,0.5,-0.2222222222,2,k,108,50,60,70\n";
    let set = import(good).unwrap();
    assert_valid(&set);
    let rows = pairs(&set);
    // The third: 4000 of 8000 ns beside NCCL did what takes 5000 alone.
    assert_eq!(rows.iter().map(|row| row.slowdown_ratio).collect::<Vec<_>>(), [1.5, 0.8]);
    assert_eq!(set.isolated.text("workload").unwrap().values(), ["k.1.1.0us", "k.1.9.0us"]);
    assert!(set.isolated.f64("l2_hit_ratio").unwrap()[0].is_nan());
    for (from, to, expected) in [
        ("1500,1,0.5", "1500,1,0.6", "echo.csv` line 2, column `slowdown`: `0.6` is not (duration"),
        ("1500,1,", "1500,1.5,", "echo.csv` line 2, column `overlap_ratio`: `1.5` is no number in 0..1"),
        ("0,k,108", "0,other,108", "echo.csv` line 2, column `Kernel Name`: `other` is another kernel"),
        ("2,k,k<", "1,k,k<", "echo.csv` line 3, column `id`: `1` occurs twice"),
        ("k,108", "k,1e300", "echo.csv` line 2, column `SM`: `1e300` is no whole number"),
        ("100.9", "170", "echo.csv` line 2, column `L2 hit rate`: `170` is no percentage"),
    ] {
        let found = message(import(&good.replacen(from, to, 1)));
        assert!(found.starts_with(expected) && found.contains("correct column"), "{found}");
    }
}

#[test]
fn wrong_cells_of_the_sensitivity_table_are_named() {
    let header = "file,gpu,model,quantization,batch,seq_len,phase,stressor,baseline_ms,stressed_ms,\
        sigma_as_published,baseline_runs_ms,stressed_runs_ms\n";
    let import = |rows: &str| {
        let (_root, path) = folder(&[("llm.csv", &format!("{header}{rows}"))]);
        import::llm_sensitivity(&path.join("llm.csv"))
    };
    let good = "f,v100,m,fp16,1,32,decode,bw,2,3,0.5,1;2;3,2;3;4\n";
    let set = import(good).unwrap();
    assert_valid(&set);
    let row = &pairs(&set)[0];
    assert_eq!((row.slowdown_ratio, row.steps_total), (1.5, 3.0));
    assert!(pairs(&import(&good.replace("1;2;3", "1;3")).unwrap())[0].slowdown_upper_ratio.is_nan());
    for (from, to, expected) in [
        ("decode", "decoding", "llm.csv` line 2, column `phase`: `decoding` is no phase (prefill, decode)"),
        ("0.5,", "0.7,", "llm.csv` line 2, column `sigma_as_published`: `0.7` is not stressed_ms"),
        ("bw,2,", "bw,2.5,", "llm.csv` line 2, column `baseline_ms`: `2.5` is not the median of"),
        ("1;2;3", "1;x;3", "llm.csv` line 2, column `baseline_runs_ms`: `1;x;3` is no list"),
        ("v100", "NaN", "llm.csv` line 2, column `gpu`: `NaN` is no GPU that ElastiCo knows"),
        (
            "v100",
            "v10",
            "llm.csv` line 2, column `gpu`: `v10` is no GPU that ElastiCo knows, did you mean `v100`?",
        ),
        ("1,32", "1,1e300", "llm.csv` line 2, column `seq_len`: `1e300` is no whole number"),
    ] {
        let found = message(import(&good.replace(from, to)));
        assert!(found.starts_with(expected), "{found}");
    }
    let found = message(import(&format!("{good}{good}")));
    assert!(found.starts_with("llm.csv` line 3, column `stressor`: `bw` occurs twice"), "{found}");
}

#[test]
fn wrong_cells_of_gpulets_are_named() {
    let table = "bench,batch,l2_util(%),mem_util(%),achieved occupancy\nbert,4,14,30,24,\n";
    let constants = "l2_util_m1,l2_util_m2,dram_util_m1,dram_util_m2,constant\n0.1,0.2,0.3,0.4,0.9\n";
    let import = |table: &str, constants: &str| {
        let (_root, path) = folder(&[
            ("2080ti_UTIL.csv", table),
            ("2080ti_INT_MODEL_CONSTANT.csv", constants),
            ("3080_UTIL.csv", table),
            ("3080_INT_MODEL_CONSTANT.csv", constants),
        ]);
        import::gpulets(&path)
    };
    // Each line of the published tables ends with a comma too many.
    assert_valid(&import(table, constants).unwrap());
    for (table, constants, expected) in [
        (
            table.replace("14,30", "34,30"),
            constants.to_owned(),
            "2080ti_UTIL.csv` line 2, column `mem_util(%)`: `30` is below l2_util(%)",
        ),
        (
            table.to_owned(),
            constants.replace("0.9", "x"),
            "2080ti_INT_MODEL_CONSTANT.csv` line 2, column `constant`: `x` is no finite number",
        ),
        (
            table.to_owned(),
            constants.replace("0.9", "1e300"),
            "2080ti_INT_MODEL_CONSTANT.csv` line 2, column `constant`: `1e300` is no coefficient",
        ),
        (table.replace("batch", "size"), constants.to_owned(), "2080ti_UTIL.csv` has no column `batch`"),
    ] {
        let found = message(import(&table, &constants));
        assert!(found.starts_with(expected), "{found}");
    }
}
