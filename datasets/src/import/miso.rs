//! The response of training jobs to MIG slices: MISO (Li et al., "MISO: Exploiting Multi-Instance GPU Capability on
//! Multi-Tenant GPU Clusters", `SoCC` 2022).

use super::rows::{Place, Rows};
use super::sheet::{Row, Sheet};
use super::{facts, need_files};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::schema::IsolatedRow;
use elastico_core::{DeviceKind, Outcome, WorkloadKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const SOURCE: &str = "miso";
const DEVICE: &str = "a100-40gb";
const BYTES_PER_MIB: f64 = 1_048_576.0;

/// Imports a folder with `mig_step_times.csv` and `solo_utilisation.csv`: isolated rows per MIG slice, no pairs.
///
/// `share_ratio` is the compute share of the slice, `1g` = 1/7 to `7g` = 1. That is no share of memory: `3g` and `4g` have half of
/// it both, and `1g` an eighth. Utilisation, power and memory were read alone on the whole GPU without MIG (108 SMs; a `7g`
/// slice has 98) and stand at the rows of share 1. Utilisation is NVML's, flagged `counters_nvml`. The interval of a
/// step is its 5th to 95th percentile, flagged `interval_quantiles`.
///
/// The matrices `unet_*_data.npy` are refused: each column is scaled by its own maximum and bears no name of a job, so neither
/// a time nor a slowdown can be read from them.
///
/// # Errors
/// [`Error::Refused`] for a matrix, [`Error::Io`], [`Error::CsvColumn`], [`Error::CsvLine`] and [`Error::CsvValue`] with file,
/// line and column.
pub fn miso(folder: &Path) -> Result<Dataset, Error> {
    if folder.extension().is_some_and(|extension| extension == "npy") {
        return Err(Error::Refused {
            file: folder.to_owned(),
            reason: "each column of these matrices is scaled by its own maximum and names no job, so no time and no \
                     slowdown can be recovered",
            fix: "import the folder that holds mig_step_times.csv and solo_utilisation.csv",
        });
    }
    need_files(folder, &["mig_step_times.csv".to_owned(), "solo_utilisation.csv".to_owned()])?;
    let steps = Sheet::read(
        &folder.join("mig_step_times.csv"),
        &["model", "batch", "mig_slice", "mig_mem_gb", "n_steps", "median_step_s", "p5_step_s", "p95_step_s"],
    )?;
    let solo = Sheet::read(
        &folder.join("solo_utilisation.csv"),
        &["model", "batch", "util_sm_pct", "util_mem_pct", "power_w", "memory_mib"],
    )?;
    let mut counters = BTreeMap::new();
    for row in solo.rows() {
        let (family, workload, _) = workload(&row)?;
        let utilisation = [row.percent("util_sm_pct")?, row.percent("util_mem_pct")?];
        let values = (utilisation, row.positive("power_w")?, row.positive("memory_mib")? * BYTES_PER_MIB);
        if counters.insert(workload, values).is_some() {
            return Err(row.refuse("batch", format!("occurs twice for model {family}")));
        }
    }

    let mut rows = Rows::of(folder);
    let mut seen = BTreeSet::new();
    for row in steps.rows() {
        let (family, workload, batch) = workload(&row)?;
        let slice = row.text("mig_slice");
        let slices = match slice {
            "1g" | "2g" | "3g" | "4g" | "7g" => f64::from(slice.as_bytes()[0] - b'0'),
            _ => return Err(row.refuse("mig_slice", "is no MIG slice (1g, 2g, 3g, 4g, 7g)")),
        };
        let memory = row.count("mig_mem_gb")?;
        if !seen.insert((workload.clone(), slice.to_owned())) {
            return Err(row.refuse("mig_slice", format!("occurs twice for {workload}")));
        }
        let (median, low, high) =
            (row.positive("median_step_s")?, row.positive("p5_step_s")?, row.positive("p95_step_s")?);
        if !(low <= median && median <= high) {
            return Err(row.refuse("median_step_s", "is not between p5_step_s and p95_step_s"));
        }
        let whole = slice == "7g";
        let solo = if whole { counters.remove(&workload) } else { None };
        let ([busy, memory_busy], watts, bytes) = solo.unwrap_or(([f64::NAN; 2], f64::NAN, f64::NAN));
        let status = match (whole, solo) {
            (_, Some(_)) => "nvidia-smi, alone on the whole GPU without MIG",
            (true, None) => "not published",
            (false, None) => "not read in a slice",
        };
        let flags = if solo.is_some() { "interval_quantiles;counters_nvml" } else { "interval_quantiles" };
        let mut place = format!("mig_step_times.csv line {}", row.line());
        if solo.is_some() {
            place.push_str(", or its line of solo_utilisation.csv");
        }
        let alone = IsolatedRow {
            trial_id: format!("{SOURCE}: {workload} @ {DEVICE} mig({slice}.{memory}gb)"),
            workload,
            family,
            kind: WorkloadKind::Training.to_string(),
            device_kind: DeviceKind::Imported.to_string(),
            device: DEVICE.to_owned(),
            source: SOURCE.to_owned(),
            share_ratio: slices / 7.0,
            step_seconds: median,
            step_lower_seconds: low,
            step_upper_seconds: high,
            steps_total: row.count("n_steps")?,
            batch_total: batch,
            footprint_bytes: bytes,
            kernel_active_ratio: busy,
            dram_throughput_ratio: memory_busy,
            counters_status: status.to_owned(),
            power_watts: watts,
            outcome: Outcome::Ok.to_string(),
            flags: Some(flags.to_owned()),
            ..IsolatedRow::default()
        };
        rows.alone(alone, Place::Keys(place));
    }
    let exclusions = BTreeMap::from([(
        "solo readings of a workload without a full slice".to_owned(),
        counters.len() as u64,
    )]);
    let facts = facts(&[
        ("publication", "Li et al., MISO, SoCC 2022"),
        ("repository", "github.com/boringlee24/socc22-miso"),
        ("licence", "MIT"),
        ("sharing", "one job per MIG slice, the others empty: shapes, no pairs"),
        ("share", "compute slices / 7; memory is 1/8, 2/8, 4/8, 4/8, 8/8 for 1g, 2g, 3g, 4g, 7g"),
        ("counters", "nvidia-smi utilization.gpu and utilization.memory, mean of 5 s, whole GPU without MIG"),
    ]);
    let files: [(&Path, &[u8]); 2] = [(steps.file(), &steps.content), (solo.file(), &solo.content)];
    rows.into_dataset(SOURCE, &files, facts, exclusions)
}

/// Family, id and batch size.
fn workload(row: &Row<'_>) -> Result<(String, String, f64), Error> {
    let (family, batch) = (row.name("model")?, row.count("batch")?);
    let workload = format!("{family}-b{batch}");
    Ok((family, workload, batch))
}
