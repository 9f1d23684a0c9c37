//! A language model beside four stressors: the sensitivity table of a fork of `gpu-util-interference` (method: Elvinger et al.,
//! "Understanding GPU Resource Interference One Level Deeper", `SoCC` 2025).

use super::rows::{Place, Rows};
use super::sheet::{Row, Sheet};
use super::{bounded_pair_id, facts, trial_id};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::schema::{IsolatedRow, PairRow};
use elastico_core::{CHIPS, DeviceKind, Outcome, SharingMode, WorkloadKind, chip, median, suggest};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const SOURCE: &str = "llm_sensitivity";
const LEVEL: f64 = 0.95;

/// Imports `llm_stressor_sensitivity.csv`: one pair row per phase, batch, length and stressor, and the runs alone as isolated rows.
///
/// A *step* is one run of the phase: a prefill of the prompt, or the decoding of all its tokens. The slowdown is the ratio of the medians of the
/// runs. Its 95 % interval is the bootstrap of that ratio over the runs of both sides, not drawn but added up over all
/// resamples (medians of odd numbers of runs have few values), so that it needs no seed; flagged `interval_bootstrap`. With five runs it
/// spans nearly all of them. The stressors have no row of their own: `one_sided`.
///
/// The stress kernels come from a thread of the measuring program; whether vLLM ran in the same process is not said, so `streams` is a
/// guess, flagged `sharing_unstated`. Stressed prefills cluster at about 34, 100 and 200 ms whatever the stressor: they
/// waited for whole stress kernels, which says little about a resource.
///
/// # Errors
/// [`Error::Io`], [`Error::CsvColumn`], [`Error::CsvLine`], [`Error::CsvValue`] with file, line and column; a published value that
/// does not follow from its runs is one.
pub fn llm_sensitivity(csv: &Path) -> Result<Dataset, Error> {
    let sheet = Sheet::read(
        csv,
        &[
            "file",
            "gpu",
            "model",
            "quantization",
            "batch",
            "seq_len",
            "phase",
            "stressor",
            "baseline_ms",
            "stressed_ms",
            "sigma_as_published",
            "baseline_runs_ms",
            "stressed_runs_ms",
        ],
    )?;
    // The sessions of each workload on each device: the same baseline serves all stressors of one.
    let mut sessions: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut rows = Rows::of(csv);
    for row in sheet.rows() {
        let subject = Subject::read(&row)?;
        let files = sessions.entry((subject.workload.clone(), subject.device.clone())).or_default();
        let file = row.name("file")?;
        let known = files.iter().position(|known| *known == file);
        let session = known.unwrap_or(files.len());
        let alone = Runs::read(&row, "baseline_ms", "baseline_runs_ms")?;
        if known.is_none() {
            files.push(file);
            rows.alone(isolated_row(&subject, session, &alone), Place::Line(row.line()));
        }
        let stressor = row.name("stressor")?;
        if !seen.insert((subject.workload.clone(), subject.device.clone(), session, stressor.clone())) {
            return Err(row.refuse("stressor", format!("occurs twice for {}", subject.workload)));
        }
        // The published file states the slowdown once more; it is optional here.
        if let Some(stated) = row.optional("slowdown")?
            && (stated * alone.median / row.positive("stressed_ms")? - 1.0).abs() > 1e-3
        {
            return Err(row.refuse_optional("slowdown", "is not stressed_ms / baseline_ms"));
        }
        let beside = Runs::read(&row, "stressed_ms", "stressed_runs_ms")?;
        let published = 1.0 + row.finite("sigma_as_published")?;
        let slowdown = beside.median / alone.median;
        if (published / slowdown - 1.0).abs() > 1e-3 {
            return Err(row.refuse(
                "sigma_as_published",
                format!("is not stressed_ms / baseline_ms - 1, which is {}", slowdown - 1.0),
            ));
        }
        rows.beside(pair_row(&subject, &stressor, session, &alone, &beside), Place::Line(row.line()));
    }
    let facts = facts(&[
        (
            "repository",
            "github.com/wangpeiwen/gpu-util-interference, a fork of eth-easl/gpu-util-interference",
        ),
        ("publication", "none; method of Elvinger et al., SoCC 2025"),
        ("licence", "MIT"),
        ("sharing", "stress kernels from a thread of the measuring program; recorded as streams, not stated"),
        ("quality", "one machine, one model, unthrottled stressors, not peer reviewed"),
        ("interval", "bootstrap of the ratio of medians over the runs, added up over all resamples, 95 %"),
    ]);
    rows.into_dataset(SOURCE, &[(csv, &sheet.content)], facts, BTreeMap::new())
}

struct Subject {
    workload: String,
    family: String,
    device: String,
    batch: f64,
}

impl Subject {
    fn read(row: &Row<'_>) -> Result<Self, Error> {
        let (model, phase) = (row.name("model")?, row.text("phase"));
        if !matches!(phase, "prefill" | "decode") {
            return Err(row.refuse("phase", "is no phase (prefill, decode)"));
        }
        let (batch, length) = (row.count("batch")?, row.count("seq_len")?);
        let family = format!("{model}.{phase}");
        let workload = format!("{family}.b{batch}_s{length}_{}", row.name("quantization")?);
        let device = row.name("gpu")?;
        if chip(&device).is_none() {
            let near = suggest(&device, CHIPS.iter().map(|chip| chip.name));
            let near = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
            return Err(row.refuse("gpu", format!("is no GPU that ElastiCo knows{near}")));
        }
        Ok(Self { workload, family, device, batch })
    }
}

/// Repeated runs in milliseconds, sorted.
struct Runs {
    values: Vec<f64>,
    median: f64,
}

impl Runs {
    fn read(row: &Row<'_>, stated: &str, runs: &str) -> Result<Self, Error> {
        let mut values = row.list(runs)?;
        values.sort_by(f64::total_cmp);
        let median = median(&values);
        let published = row.positive(stated)?;
        if (published / median - 1.0).abs() > 1e-6 {
            return Err(row.refuse(stated, format!("is not the median of {runs}, which is {median}")));
        }
        Ok(Self { values, median })
    }

    /// Every value that the median of a resample can take, with its probability; `None` for an even number of runs, whose
    /// median need not be one of them.
    ///
    /// The median of a resample of n is at most the k-th value where at least (n + 1) / 2 draws are, each with
    /// probability k / n.
    fn resampled_medians(&self) -> Option<Vec<(f64, f64)>> {
        let n = self.values.len();
        if n.is_multiple_of(2) || n < 3 {
            return None;
        }
        let at_most = |k: usize| {
            let p = k as f64 / n as f64;
            (n.div_ceil(2)..=n).map(|hits| binomial(n, hits, p)).sum::<f64>()
        };
        Some(
            self.values
                .iter()
                .enumerate()
                .map(|(index, value)| (*value, at_most(index + 1) - at_most(index)))
                .collect(),
        )
    }
}

fn binomial(n: usize, hits: usize, p: f64) -> f64 {
    let ways: f64 = (0..hits).map(|index| (n - index) as f64 / (index + 1) as f64).product();
    ways * p.powf(hits as f64) * (1.0 - p).powf((n - hits) as f64)
}

/// The central interval of a discrete distribution.
fn interval(mut values: Vec<(f64, f64)>) -> (f64, f64) {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let tail = (1.0 - LEVEL) / 2.0;
    let quantile = |wanted: f64| {
        let mut sum = 0.0;
        let found = values.iter().find(|(_, probability)| {
            sum += probability;
            sum >= wanted
        });
        found.or(values.last()).map_or(f64::NAN, |(value, _)| *value)
    };
    (quantile(tail), quantile(1.0 - tail))
}

fn ratio_interval(alone: &Runs, beside: &Runs) -> (f64, f64) {
    let (Some(alone), Some(beside)) = (alone.resampled_medians(), beside.resampled_medians()) else {
        return (f64::NAN, f64::NAN);
    };
    let ratios =
        beside.iter().flat_map(|(above, p)| alone.iter().map(move |(below, q)| (above / below, p * q)));
    interval(ratios.collect())
}

fn flags(fixed: &str, has_interval: bool) -> Option<String> {
    let words = [fixed, if has_interval { "interval_bootstrap" } else { "" }];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(";"))
}

fn isolated_row(subject: &Subject, session: usize, alone: &Runs) -> IsolatedRow {
    let (lower, upper) = alone.resampled_medians().map_or((f64::NAN, f64::NAN), interval);
    IsolatedRow {
        trial_id: format!("{SOURCE}: {} @ {} #{session}", subject.workload, subject.device),
        workload: subject.workload.clone(),
        family: subject.family.clone(),
        kind: WorkloadKind::Inference.to_string(),
        device_kind: DeviceKind::Imported.to_string(),
        device: subject.device.clone(),
        source: SOURCE.to_owned(),
        share_ratio: 1.0,
        repeat_total: session as f64,
        step_seconds: alone.median / 1000.0,
        step_lower_seconds: lower / 1000.0,
        step_upper_seconds: upper / 1000.0,
        steps_total: alone.values.len() as f64,
        batch_total: subject.batch,
        counters_status: "not published".to_owned(),
        outcome: Outcome::Ok.to_string(),
        flags: flags("", lower.is_finite()),
        ..IsolatedRow::default()
    }
}

fn pair_row(subject: &Subject, stressor: &str, session: usize, alone: &Runs, beside: &Runs) -> PairRow {
    let sharing = SharingMode::Streams;
    let co_runner = format!("stress_{stressor}");
    let pair_id = bounded_pair_id(&subject.workload, &co_runner, &subject.device, &sharing);
    let slowdown = beside.median / alone.median;
    let (lower, upper) = ratio_interval(alone, beside);
    PairRow {
        trial_id: trial_id(SOURCE, &pair_id, "", session),
        pair_id,
        repeat_total: session as f64,
        side: "a".to_owned(),
        subject_workload: subject.workload.clone(),
        subject_family: subject.family.clone(),
        subject_kind: WorkloadKind::Inference.to_string(),
        co_runner_workload: co_runner.clone(),
        co_runner_family: co_runner,
        co_runner_kind: WorkloadKind::Stressor.to_string(),
        device_kind: DeviceKind::Imported.to_string(),
        device: subject.device.clone(),
        source: SOURCE.to_owned(),
        sharing: sharing.to_string(),
        sharing_requested: sharing.to_string(),
        subject_share_ratio: 1.0,
        co_runner_share_ratio: 1.0,
        isolated_full_step_seconds: alone.median / 1000.0,
        isolated_step_seconds: alone.median / 1000.0,
        colocated_step_seconds: beside.median / 1000.0,
        slowdown_ratio: slowdown,
        slowdown_lower_ratio: lower,
        slowdown_upper_ratio: upper,
        partition_effect_ratio: 1.0,
        interference_ratio: slowdown,
        steps_total: beside.values.len() as f64,
        outcome: Outcome::Ok.to_string(),
        flags: flags("one_sided;sharing_unstated", lower.is_finite()),
        ..PairRow::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against all 5^5 resamples.
    #[test]
    fn the_medians_of_resamples_are_added_up_exactly() {
        let runs = Runs { values: vec![1.0, 2.0, 3.0, 4.0, 9.0], median: 3.0 };
        let found = runs.resampled_medians().unwrap();
        let mut counts = [0_u32; 5];
        for code in 0..5_usize.pow(5) {
            let mut draws: Vec<usize> = (0..5).map(|place| code / 5_usize.pow(place) % 5).collect();
            draws.sort_unstable();
            counts[draws[2]] += 1;
        }
        for ((_, probability), count) in found.iter().zip(counts) {
            assert!((probability - f64::from(count) / 3125.0).abs() < 1e-12);
        }
        assert_eq!(interval(found), (1.0, 9.0));
        assert!(Runs { values: vec![1.0, 2.0], median: 1.5 }.resampled_medians().is_none());
    }
}
