//! Utilisation tables and constants of gpu-lets (Choi et al., "Serving Heterogeneous Machine Learning Models on Multi-GPU
//! Servers with Spatio-Temporal Sharing", USENIX ATC 2022).

use super::rows::{Place, Rows};
use super::sheet::Sheet;
use super::{facts, need_files};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::schema::IsolatedRow;
use elastico_core::{DeviceKind, Outcome, WorkloadKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const SOURCE: &str = "gpulets";
/// Prefix of the files, and the device.
const DEVICES: [(&str, &str); 2] = [("2080ti", "rtx2080ti"), ("3080", "rtx3080")];

/// Imports a folder with `{2080ti,3080}_UTIL.csv` and `{2080ti,3080}_INT_MODEL_CONSTANT.csv`: isolated rows with counters and without
/// times. The constants of the published interference model become facts of the provenance.
///
/// `avg_duration(ms)` is no time of a step: the script that wrote it averages over the *kernels* of a batch (4.8 us for a
/// LeNet), and it stands in milliseconds for the 2080 Ti and in microseconds for the 3080. It is left out and the rows are flagged
/// `no_step_time`. `SM_util(%)` is ncu's busiest compute pipe and has no column here. `mem_util(%)` is its `Memory [%]`,
/// the busiest of L1, L2 and DRAM; the model's authors use it as the utilisation of DRAM, and so do these rows, flagged
/// `memory_pipeline`. The measurements of pairs behind the constants were not published.
///
/// # Errors
/// [`Error::Io`], [`Error::CsvColumn`], [`Error::CsvLine`], [`Error::CsvValue`] with file, line and column.
pub fn gpulets(folder: &Path) -> Result<Dataset, Error> {
    let mut facts = facts(&[
        ("publication", "Choi et al., gpu-lets, USENIX ATC 2022"),
        ("repository", "github.com/casys-kaist/glet"),
        ("licence", "none stated"),
        ("shipping", "forbidden"),
        ("sharing", "MPS; no pair is published"),
        ("counters", "Nsight Compute, mean over the kernels of a batch weighted by their durations"),
    ]);
    let needed = DEVICES
        .iter()
        .flat_map(|(prefix, _)| [format!("{prefix}_UTIL.csv"), format!("{prefix}_INT_MODEL_CONSTANT.csv")]);
    need_files(folder, &needed.collect::<Vec<_>>())?;
    let mut rows = Rows::of(folder);
    let mut sheets = Vec::new();
    for (prefix, device) in DEVICES {
        let table = Sheet::read(
            &folder.join(format!("{prefix}_UTIL.csv")),
            &["bench", "batch", "l2_util(%)", "mem_util(%)", "achieved occupancy"],
        )?;
        let mut seen = BTreeSet::new();
        for row in table.rows() {
            let (family, batch) = (row.name("bench")?, row.count("batch")?);
            let workload = format!("{family}-b{batch}");
            if !seen.insert(workload.clone()) {
                return Err(row.refuse("batch", format!("occurs twice for {family}")));
            }
            let (l2, memory) = (row.percent("l2_util(%)")?, row.percent("mem_util(%)")?);
            if memory < l2 {
                return Err(
                    row.refuse("mem_util(%)", "is below l2_util(%), so it is not the busiest memory unit")
                );
            }
            let place = Place::Keys(format!("{prefix}_UTIL.csv line {}", row.line()));
            let alone = IsolatedRow {
                trial_id: format!("{SOURCE}: {workload} @ {device}"),
                workload,
                family,
                kind: WorkloadKind::Inference.to_string(),
                device_kind: DeviceKind::Imported.to_string(),
                device: device.to_owned(),
                source: SOURCE.to_owned(),
                share_ratio: 1.0,
                batch_total: batch,
                sm_occupancy_ratio: row.percent("achieved occupancy")?,
                l2_throughput_ratio: l2,
                dram_throughput_ratio: memory,
                counters_status: "ncu".to_owned(),
                outcome: Outcome::Ok.to_string(),
                flags: Some("no_step_time;memory_pipeline".to_owned()),
                ..IsolatedRow::default()
            };
            rows.alone(alone, place);
        }
        let names = ["l2_util_m1", "l2_util_m2", "dram_util_m1", "dram_util_m2", "constant"];
        let constants = Sheet::read(&folder.join(format!("{prefix}_INT_MODEL_CONSTANT.csv")), &names)?;
        // One line is read; a file without one was refused.
        if let Some(row) = constants.rows().next() {
            let [l2, other_l2, dram, other_dram, constant] = names.map(|name| row.coefficient(name));
            let text = format!(
                "slowdown = {} x L2 of the subject + {} x L2 of the co-runner + {} x DRAM of the subject + {} x DRAM of the \
                 co-runner + {}, utilisations as ratios times the share of the SMs",
                l2?, other_l2?, dram?, other_dram?, constant?
            );
            facts.insert(format!("constants_{device}"), text);
        }
        sheets.extend([table, constants]);
    }
    let files: Vec<(&Path, &[u8])> =
        sheets.iter().map(|sheet| (sheet.file(), sheet.content.as_slice())).collect();
    rows.into_dataset(SOURCE, &files, facts, BTreeMap::new())
}
