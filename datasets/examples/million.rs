//! Generates a million pair rows, writes, reads and validates them, and prints seconds and the peak of memory.
//!
//! `cargo run --release -p elastico-datasets --example million -- [rows] [folder]`. A folder is
//! kept, and only read when it is there. The numbers are made up.

#![allow(clippy::print_stdout, reason = "an example tells what it found")]

use elastico_core::{DeviceKind, Provenance, Seed, SharingMode};
use elastico_datasets::{Dataset, Error, PairRow, Table, pair_id, validate};
use std::collections::BTreeMap;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows: usize = arguments.next().map_or(Ok(1_000_000), |rows| rows.parse())?;
    let kept = arguments.next().map(std::path::PathBuf::from);
    // Reading in a process of its own: the peak of the generation must not hide that of the reading.
    if let Some(folder) = kept.as_ref().filter(|folder| folder.exists()) {
        return Ok(read(folder)?);
    }
    let root = tempfile::tempdir()?;
    let folder = kept.unwrap_or_else(|| root.path().join("million"));
    let begin = Instant::now();
    let dataset = generate(rows)?;
    println!("generate  {:6.2} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    dataset.write(&folder)?;
    println!("write     {:6.2} s", begin.elapsed().as_secs_f64());
    let size = std::fs::metadata(folder.join("pairs/part-0.parquet"))?.len();
    println!("file      {:6.1} MB, peak so far {:.0} MB", size as f64 / 1e6, peak_megabytes());
    drop(dataset);
    let status = std::process::Command::new(std::env::current_exe()?).arg("0").arg(&folder).status()?;
    if status.success() { Ok(()) } else { Err("the reading process failed".into()) }
}

fn read(folder: &std::path::Path) -> Result<(), Error> {
    let begin = Instant::now();
    let dataset = Dataset::read(folder)?;
    println!(
        "read      {:6.2} s, {} rows, peak {:.0} MB",
        begin.elapsed().as_secs_f64(),
        dataset.pairs.rows(),
        peak_megabytes()
    );
    drop(dataset);
    let begin = Instant::now();
    let findings = validate(folder)?;
    println!(
        "validate  {:6.2} s (it reads by itself), {} findings, peak {:.0} MB",
        begin.elapsed().as_secs_f64(),
        findings.len(),
        peak_megabytes()
    );
    Ok(())
}

/// The kernel's high-water mark of this process; NaN where there is none to read.
fn peak_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| kilobytes / 1e3)
}

fn generate(rows: usize) -> Result<Dataset, Error> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    // A hash per cell: noise that does not compress, as measured numbers do not.
    let noise = |row: usize, column: u8| {
        let mut hasher = DefaultHasher::new();
        (row, column).hash(&mut hasher);
        (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
    };
    let workloads: Vec<String> =
        (0..120).map(|index| format!("family_{}.b{}_bf16", index % 12, 1 << (index % 7))).collect();
    let pairs: Vec<PairRow> = (0..rows / 2)
        .flat_map(|trial| {
            let (first, second) = (trial % 120, trial / 120 % 120);
            let share = [30, 50, 70][trial / 14_400 % 3];
            let sharing = SharingMode::Mps { subject_percent: share, co_runner_percent: 100 - share };
            [("a", first, second, sharing.clone()), ("b", second, first, sharing.swapped())].map(
                |(side, subject, co_runner, sharing)| {
                    let row = 2 * trial + usize::from(side == "b");
                    let (partition, interference) = (1.0 + noise(row, 0), 1.0 + noise(row, 1));
                    let alone = 0.01 * (1.0 + noise(row, 2));
                    let (subject, co_runner) = (&workloads[subject], &workloads[co_runner]);
                    let family = |workload: &str| workload.split('.').next().unwrap_or_default().to_owned();
                    PairRow {
                        pair_id: pair_id(subject, co_runner, "h100", &sharing),
                        trial_id: format!("campaign-{trial:08x}"),
                        side: side.to_owned(),
                        subject_workload: subject.clone(),
                        subject_family: family(subject),
                        subject_kind: "training".to_owned(),
                        co_runner_workload: co_runner.clone(),
                        co_runner_family: family(co_runner),
                        co_runner_kind: "training".to_owned(),
                        device_kind: DeviceKind::Simulated.to_string(),
                        device: "h100".to_owned(),
                        source: "example".to_owned(),
                        sharing: sharing.to_string(),
                        sharing_requested: sharing.to_string(),
                        subject_share_ratio: sharing.shares().0,
                        co_runner_share_ratio: sharing.shares().1,
                        isolated_full_step_seconds: alone,
                        isolated_step_seconds: alone * partition,
                        colocated_step_seconds: alone * partition * interference,
                        slowdown_ratio: partition * interference,
                        slowdown_lower_ratio: partition * interference * (1.0 - 0.01 * noise(row, 3)),
                        slowdown_upper_ratio: partition * interference * (1.0 + 0.01 * noise(row, 4)),
                        blocks_total: 20.0,
                        partition_effect_ratio: partition,
                        interference_ratio: interference,
                        overlap_ratio: 0.98 + 0.02 * noise(row, 5),
                        drift_ratio: 0.02 * noise(row, 6),
                        steps_total: (1000.0 * noise(row, 7)).floor(),
                        corun_sm_active_ratio: noise(row, 8),
                        corun_dram_throughput_ratio: noise(row, 9),
                        corun_l2_hit_ratio: noise(row, 10),
                        clock_hertz: 1.5e9 + 1e8 * noise(row, 11),
                        power_watts: 300.0 + 100.0 * noise(row, 12),
                        throttled_ratio: 0.0,
                        outcome: "ok".to_owned(),
                        flags: (row % 10 == 0).then(|| "made_up".to_owned()),
                        ..PairRow::default()
                    }
                },
            )
        })
        .collect();
    let provenance = Provenance {
        elastico_version: env!("CARGO_PKG_VERSION").to_owned(),
        device_kind: DeviceKind::Simulated,
        device: "sim:h100".to_owned(),
        seed: Some(Seed(0)),
        source: "example".to_owned(),
        source_digest: None,
        facts: BTreeMap::from([("note".to_owned(), "made up to measure speed".to_owned())]),
    };
    Dataset::new(Table::isolated(&[]), Table::pairs(&pairs), provenance, BTreeMap::new())
}
