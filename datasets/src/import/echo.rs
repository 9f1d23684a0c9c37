//! Kernels of a distributed training beside NCCL: Echo (Feng et al., "Echo: Simulating Distributed Training At Scale",
//! arXiv 2412.12487, 2024).

use super::rows::{Place, Rows};
use super::sheet::Sheet;
use super::{bounded_pair_id, facts};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::schema::{IsolatedRow, PairRow};
use elastico_core::{DeviceKind, Outcome, SharingMode, WorkloadKind, median, quantile};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const SOURCE: &str = "echo";
/// The files say 108 SMs and kernels for Ampere, not how much memory the board has.
const DEVICE: &str = "a100";
const NCCL: &str = "nccl";
/// Below this share of overlap a row is `low_overlap`, as in our own measurements.
const OVERLAP: f64 = 0.98;
/// Solo durations of one kernel that are nearer than this (in logs) are one workload.
const SAME_SIZE: f64 = 0.1;
const NANOSECOND: f64 = 1e-9;

/// Imports `merged_features.csv`: one isolated row per kernel instance, and one pair row for each that NCCL overlapped.
///
/// A *step* is one kernel. Instances of one kernel whose solo durations lie near each other (each within 10 % of the next) are
/// repeats of one workload: the layers of a model launch the same kernel again and again, and a split must not tear them
/// apart. The family is the kernel's short name. The co-runner is always `nccl` and was not measured: rows are flagged `one_sided`.
///
/// `overlap_ratio` is the overlapped time over the duration *beside* NCCL. So a share `o` of the duration `d` took place beside it, the rest
/// ran as fast as alone, and with the solo duration `t` the slowdown of the overlapped part is
///
/// ```text
/// slowdown = o d / (t - (1 - o) d)
/// ```
///
/// The published column is `(d / t - 1) / o`, which takes `o` as a share of `t`. Both are `d / t` at full overlap, where this
/// differs from 1 + published by rounding alone. Rows with less than 98 % overlap get the outcome `low_overlap`, which
/// training leaves out by default; the noise of a duration is divided by `o` there.
///
/// # Errors
/// [`Error::Io`], [`Error::CsvColumn`], [`Error::CsvLine`], [`Error::CsvValue`] with file, line and column; a published slowdown
/// that does not follow from its line is one.
pub fn echo(csv: &Path) -> Result<Dataset, Error> {
    let sheet = Sheet::read(
        csv,
        &[
            "id",
            "kShortName",
            "kDemangledName",
            "ground_truth",
            "duration",
            "overlap_ratio",
            "slowdown",
            "Kernel Name",
            "SM",
            "DRAM throughput",
            "Achieved occupancy",
            "L2 hit rate",
        ],
    )?;
    let kernels = read(&sheet)?;
    let names = workloads(&kernels);
    let mut exclusions: BTreeMap<String, u64> = BTreeMap::new();
    let mut rows = Rows::of(csv);
    let mut repeats: BTreeMap<&str, u32> = BTreeMap::new();
    for (kernel, workload) in kernels.iter().zip(&names) {
        let repeat = repeats.entry(workload).or_default();
        rows.alone(isolated_row(kernel, workload, *repeat), Place::Line(kernel.line));
        match kernel.slowdown() {
            None => *exclusions.entry("kernels that NCCL did not overlap".to_owned()).or_default() += 1,
            Some(slowdown) if slowdown.is_finite() && slowdown > 0.0 => {
                rows.beside(pair_row(kernel, workload, *repeat, slowdown), Place::Line(kernel.line));
            }
            Some(_) => {
                let reason = "kernels whose overlapped part would have taken no time: noise at short overlap";
                *exclusions.entry(reason.to_owned()).or_default() += 1;
            }
        }
        *repeat += 1;
    }
    let mut facts = facts(&[
        ("publication", "Feng et al., Echo, arXiv 2412.12487 (2024)"),
        ("repository", "github.com/NetX-lab/Echo-slowdown"),
        ("licence", "MIT"),
        (
            "sharing",
            "streams of one process: kernels of a data-parallel training beside its own NCCL kernels",
        ),
        ("device", "108 SMs, kernels for Ampere; the memory of the board is not stated"),
        ("counters", "Nsight Compute, the kernel alone"),
        ("overlap", "published slowdown = (duration / ground_truth - 1) / overlap_ratio"),
    ]);
    let noise: Vec<f64> = kernels
        .iter()
        .filter(|kernel| kernel.overlap == 0.0)
        .map(|kernel| kernel.beside_ns / kernel.alone_ns)
        .collect();
    if noise.len() > 1 {
        let text = format!(
            "{} kernels without overlap took {:.3} to {:.3} of their solo duration (5th to 95th percentile)",
            noise.len(),
            quantile(&noise, 0.05),
            quantile(&noise, 0.95)
        );
        facts.insert("noise".to_owned(), text);
    }
    rows.into_dataset(SOURCE, &[(csv, &sheet.content)], facts, exclusions)
}

/// One kernel instance.
struct Kernel {
    line: u64,
    id: String,
    short: String,
    demangled: String,
    alone_ns: f64,
    beside_ns: f64,
    overlap: f64,
    multiprocessors: f64,
    dram: f64,
    occupancy: f64,
    /// NaN where the tool gave more than 100 %.
    l2_hit: f64,
}

impl Kernel {
    /// The slowdown of the overlapped part; `None` without overlap.
    fn slowdown(&self) -> Option<f64> {
        let overlapped = self.overlap * self.beside_ns;
        let alone = self.alone_ns - (1.0 - self.overlap) * self.beside_ns;
        (self.overlap > 0.0).then(|| overlapped / alone)
    }
}

fn read(sheet: &Sheet) -> Result<Vec<Kernel>, Error> {
    let mut kernels = Vec::new();
    let mut seen = BTreeSet::new();
    for row in sheet.rows() {
        let id = row.name("id")?;
        if !seen.insert(id.clone()) {
            return Err(row.refuse("id", "occurs twice"));
        }
        let short = row.name("kShortName")?;
        if row.text("Kernel Name") != short {
            return Err(row.refuse("Kernel Name", format!("is another kernel than kShortName `{short}`")));
        }
        let (alone_ns, beside_ns) = (row.positive("ground_truth")?, row.positive("duration")?);
        let (overlap, published) = (row.ratio("overlap_ratio")?, row.finite("slowdown")?);
        let expected = if overlap > 0.0 { (beside_ns / alone_ns - 1.0) / overlap } else { 0.0 };
        if (published - expected).abs() > 1e-6 * (1.0 + expected.abs()) {
            return Err(row.refuse(
                "slowdown",
                format!("is not (duration / ground_truth - 1) / overlap_ratio, which is {expected}"),
            ));
        }
        // Hit rates of several passes can add up to slightly more than all.
        let hit = row.finite("L2 hit rate")?;
        if !(0.0..=110.0).contains(&hit) {
            return Err(row.refuse("L2 hit rate", "is no percentage"));
        }
        kernels.push(Kernel {
            line: row.line(),
            id,
            short,
            demangled: row.text("kDemangledName").to_owned(),
            alone_ns,
            beside_ns,
            overlap,
            multiprocessors: row.count("SM")?,
            dram: row.percent("DRAM throughput")?,
            occupancy: row.percent("Achieved occupancy")?,
            l2_hit: if hit <= 100.0 { hit / 100.0 } else { f64::NAN },
        });
    }
    Ok(kernels)
}

/// The workload of each kernel: short name, which of its variants, and about how long it takes alone.
fn workloads(kernels: &[Kernel]) -> Vec<String> {
    let mut variants: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (index, kernel) in kernels.iter().enumerate() {
        variants.entry((&kernel.short, &kernel.demangled)).or_default().push(index);
    }
    let mut names = vec![String::new(); kernels.len()];
    let mut number: BTreeMap<&str, u32> = BTreeMap::new();
    for ((short, _), mut members) in variants {
        let variant = number.entry(short).or_default();
        *variant += 1;
        members.sort_by(|a, b| kernels[*a].alone_ns.total_cmp(&kernels[*b].alone_ns).then(a.cmp(b)));
        for group in members.chunk_by(|a, b| (kernels[*b].alone_ns / kernels[*a].alone_ns).ln() <= SAME_SIZE)
        {
            let usual = median(&group.iter().map(|index| kernels[*index].alone_ns).collect::<Vec<_>>());
            for index in group {
                names[*index] = format!("{short}.{variant}.{:.1}us", usual / 1000.0);
            }
        }
    }
    names
}

fn isolated_row(kernel: &Kernel, workload: &str, repeat: u32) -> IsolatedRow {
    let status = if kernel.l2_hit.is_nan() { "ncu; an L2 hit rate above 1 was dropped" } else { "ncu" };
    IsolatedRow {
        trial_id: format!("{SOURCE}: kernel {}", kernel.id),
        workload: workload.to_owned(),
        family: kernel.short.clone(),
        kind: WorkloadKind::Training.to_string(),
        device_kind: DeviceKind::Imported.to_string(),
        device: DEVICE.to_owned(),
        source: SOURCE.to_owned(),
        share_ratio: 1.0,
        repeat_total: f64::from(repeat),
        step_seconds: kernel.alone_ns * NANOSECOND,
        steps_total: 1.0,
        step_launches_total: 1.0,
        sm_occupancy_ratio: kernel.occupancy,
        l2_hit_ratio: kernel.l2_hit,
        dram_throughput_ratio: kernel.dram,
        counters_status: status.to_owned(),
        multiprocessors_total: kernel.multiprocessors,
        outcome: Outcome::Ok.to_string(),
        ..IsolatedRow::default()
    }
}

fn pair_row(kernel: &Kernel, workload: &str, repeat: u32, slowdown: f64) -> PairRow {
    let sharing = SharingMode::Streams;
    let alone = kernel.alone_ns * NANOSECOND;
    let (outcome, flags) = if kernel.overlap >= OVERLAP {
        (Outcome::Ok, "one_sided")
    } else {
        (Outcome::LowOverlap, "one_sided;low_overlap")
    };
    PairRow {
        pair_id: bounded_pair_id(workload, NCCL, DEVICE, &sharing),
        trial_id: format!("{SOURCE}: kernel {}", kernel.id),
        repeat_total: f64::from(repeat),
        side: "a".to_owned(),
        subject_workload: workload.to_owned(),
        subject_family: kernel.short.clone(),
        subject_kind: WorkloadKind::Training.to_string(),
        co_runner_workload: NCCL.to_owned(),
        co_runner_family: NCCL.to_owned(),
        co_runner_kind: WorkloadKind::Training.to_string(),
        device_kind: DeviceKind::Imported.to_string(),
        device: DEVICE.to_owned(),
        source: SOURCE.to_owned(),
        sharing: sharing.to_string(),
        sharing_requested: sharing.to_string(),
        subject_share_ratio: 1.0,
        co_runner_share_ratio: 1.0,
        isolated_full_step_seconds: alone,
        isolated_step_seconds: alone,
        colocated_step_seconds: alone * slowdown,
        slowdown_ratio: slowdown,
        partition_effect_ratio: 1.0,
        interference_ratio: slowdown,
        overlap_ratio: kernel.overlap,
        steps_total: 1.0,
        multiprocessors_total: kernel.multiprocessors,
        outcome: outcome.to_string(),
        flags: Some(flags.to_owned()),
        ..PairRow::default()
    }
}
