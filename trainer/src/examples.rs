//! From a dataset to rows that can be learnt from.

use crate::features::{Encoder, candidates};
use crate::learners::FEWEST_FAMILIES;
use crate::profiles::Isolated;
use crate::{Error, Groups};
use elastico_core::{DeviceKind, Digest, Outcome, Seed, SharingMode, WorkloadKind};
use elastico_datasets::{Dataset, Licence, SLOWDOWN_RANGE, Table, TextColumn};
use elastico_models::FeatureSchema;
use rand::RngExt as _;
use std::collections::{BTreeMap, BTreeSet};

/// When identities of families become one-hot features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Identities {
    /// Where the dataset has no hardware counters to tell families apart, or fewer than five families, of which nothing can be
    /// concluded about another.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Which rows become examples, and how they are described.
#[derive(Debug, Clone, Default)]
pub struct ExampleOptions {
    /// The device kinds to learn from. `None` demands that the dataset has just one.
    pub device_kinds: Option<Vec<DeviceKind>>,
    /// Also learn from rows that were measured but missed a limit (drift, low overlap, throttled, inconclusive).
    pub include_flagged: bool,
    /// Family one-hots.
    pub identities: Identities,
    /// Learn from rows of several harnesses together. Each then gets a feature of its own (`harness=NAME`).
    pub mix_harnesses: bool,
}

/// Why rows are left out whose slowdown no model file can hold.
fn out_of_range() -> String {
    let (least, most) = SLOWDOWN_RANGE;
    format!("slowdown_ratio outside {least} to {most}")
}

/// Where examples come from, for metadata and cards.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// Digest of the dataset's content.
    pub digest: Digest,
    /// Kinds of devices among the rows, sorted.
    pub device_kinds: Vec<DeviceKind>,
    /// Families of sharing modes among the rows, sorted.
    pub sharing_modes: Vec<String>,
    /// Distinct workloads.
    pub workloads_total: usize,
    /// Distinct unordered pairs of workloads.
    pub pairs_total: usize,
    /// Rows that were left out, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// Sources as the manifest lists them.
    pub sources: Vec<String>,
    /// Under which terms the numbers of each source stand.
    pub licences: Vec<Licence>,
    /// Whether hardware counters are among the features.
    pub has_counters: bool,
}

/// Rows to learn from: one per subject per trial.
///
/// Repeats of one pair stay separate rows. Averaging them would hide from the learner how noisy a pair is, and the
/// groups keep them on one side of each split, so that nothing leaks.
#[derive(Debug, Clone)]
pub struct Examples {
    /// Names and units of the columns.
    pub schema: FeatureSchema,
    /// Row-major, `schema.width()` to a row; NaN = missing.
    pub features: Vec<f32>,
    /// The label.
    pub slowdown: Vec<f64>,
    /// Interval of the label; NaN where none was measured.
    pub interval: Vec<(f64, f64)>,
    /// Weights of mean 1 from the widths of the intervals; absent where no interval was measured.
    pub weights: Option<Vec<f64>>,
    /// What may not be torn apart by a split.
    pub groups: Groups,
    /// Where the rows come from.
    pub origin: Origin,
}

impl Examples {
    /// Reads the rows that can be learnt from.
    ///
    /// Slowdowns outside [`SLOWDOWN_RANGE`] are left out and counted. Features are the fields of both sides from the isolated table (mean over `ok` repeats at the full share), the
    /// shares, and constants of device and sharing mode. A dataset over several devices also gets each side's isolated
    /// speed on every one (`subject_isolated_k80_hertz`). Columns that are missing or constant throughout are dropped. The co-runner of a
    /// row flagged `one_sided` need not be in the isolated table: its features are then missing, all but family and kind.
    ///
    /// # Errors
    /// [`Error::MixedKinds`] unless one kind is there or asked for, [`Error::MixedHarnesses`] unless one harness is there or
    /// mixing asked for, [`Error::MixedLabels`] where slowdowns at a share stand beside slowdowns at the full device, [`Error::Label`] for a row that claims to be usable
    /// and is not, [`Error::Unprofiled`], [`Error::NoExamples`], [`Error::NoFeatures`].
    pub fn from_dataset(dataset: &Dataset, options: &ExampleOptions) -> Result<Self, Error> {
        Self::read(dataset, options, None)
    }

    /// The same with the features of a model, in its order: to calibrate or judge it. A feature that the dataset does not
    /// have is missing in every row.
    ///
    /// # Errors
    /// As [`from_dataset`](Self::from_dataset).
    pub fn for_schema(
        dataset: &Dataset,
        options: &ExampleOptions,
        schema: &FeatureSchema,
    ) -> Result<Self, Error> {
        Self::read(dataset, options, Some(schema))
    }

    fn read(
        dataset: &Dataset,
        options: &ExampleOptions,
        schema: Option<&FeatureSchema>,
    ) -> Result<Self, Error> {
        let columns = Columns::of(&dataset.pairs)?;
        let (rows, left_out) = columns.usable(options)?;
        let isolated = Isolated::of(dataset, options.device_kinds.as_deref())?;
        let identities = match options.identities {
            Identities::Always => true,
            Identities::Never => false,
            Identities::Auto => !isolated.has_counters() || isolated.families_total() < FEWEST_FAMILIES,
        };
        let resolved = columns.resolve(&rows, &isolated)?;
        let groups = columns.groups(&rows);
        let encoder = match schema {
            Some(schema) => Encoder::build(schema.clone(), &isolated, &resolved),
            None => {
                let used = candidates(&isolated, identities)?;
                Encoder::new(&used, &isolated, &resolved, &harness_features(&groups.harnesses))?
            }
        };
        let mut features = Vec::with_capacity(rows.len() * encoder.schema().width());
        for row in &resolved.rows {
            encoder.append(row, &mut features);
        }
        mark_harnesses(&mut features, encoder.schema(), &groups);
        let interval: Vec<(f64, f64)> =
            rows.iter().map(|&row| (columns.lower[row as usize], columns.upper[row as usize])).collect();
        let counters = encoder.schema().names().iter().any(|name| {
            elastico_core::COUNTERS.iter().any(|counter| name.strip_prefix("subject_") == Some(counter.name))
        });
        let origin = Origin {
            digest: dataset.content_digest(),
            device_kinds: resolved.kinds.clone(),
            sharing_modes: resolved.modes(),
            workloads_total: groups.workloads.len(),
            pairs_total: groups.pair.iter().collect::<BTreeSet<_>>().len(),
            left_out,
            sources: dataset.manifest.provenance.iter().map(|origin| origin.source.clone()).collect(),
            licences: dataset.manifest.licences(),
            has_counters: counters,
        };
        Ok(Self {
            schema: encoder.schema().clone(),
            features,
            slowdown: rows.iter().map(|&row| columns.slowdown[row as usize]).collect(),
            weights: weights(&interval),
            interval,
            groups,
            origin,
        })
    }

    /// Rows that were left out because no model file can hold their slowdown. They point to swapped columns or a wrong unit.
    pub fn out_of_range(&self) -> u64 {
        self.origin.left_out.get(&out_of_range()).copied().unwrap_or(0)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.slowdown.len()
    }

    /// One row of features.
    pub fn row(&self, row: usize) -> &[f32] {
        let width = self.schema.width();
        &self.features[row * width..(row + 1) * width]
    }

    /// Whether any row comes from the fluid model rather than from a measurement.
    pub fn is_simulated(&self) -> bool {
        self.origin.device_kinds.iter().any(|kind| !kind.is_measured())
    }

    /// Whole pairs, drawn by the seed, until about `most` rows are taken; all rows where there are no more.
    #[must_use]
    pub fn sample(&self, most: usize, seed: Seed) -> std::borrow::Cow<'_, Self> {
        if self.rows() <= most {
            return std::borrow::Cow::Borrowed(self);
        }
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for pair in &self.groups.pair {
            *counts.entry(*pair).or_default() += 1;
        }
        let mut pairs: Vec<(u32, usize)> = counts.into_iter().collect();
        let mut stream = seed.stream("trainer.sample", &[]);
        for index in (1..pairs.len()).rev() {
            pairs.swap(index, stream.random_range(0..=index));
        }
        let mut taken = 0;
        let kept: BTreeSet<u32> = pairs
            .into_iter()
            .take_while(|(_, count)| {
                let more = taken == 0 || taken + count <= most;
                taken += count;
                more
            })
            .map(|(pair, _)| pair)
            .collect();
        let rows: Vec<u32> =
            (0..self.rows() as u32).filter(|&row| kept.contains(&self.groups.pair[row as usize])).collect();
        let at = || rows.iter().map(|&row| row as usize);
        std::borrow::Cow::Owned(Self {
            schema: self.schema.clone(),
            features: at().flat_map(|row| self.row(row)).copied().collect(),
            slowdown: at().map(|row| self.slowdown[row]).collect(),
            interval: at().map(|row| self.interval[row]).collect(),
            weights: self.weights.as_ref().map(|weights| at().map(|row| weights[row]).collect()),
            groups: self.groups.subset(&rows),
            origin: self.origin.clone(),
        })
    }
}

/// Inverse variance, with the campaign's target half-width of 2 % as a floor under the noise, scaled to mean 1.
fn weights(interval: &[(f64, f64)]) -> Option<Vec<f64>> {
    const FLOOR: f64 = 0.02;
    let half = |&(lower, upper): &(f64, f64)| {
        let half = (upper / lower).ln() / 2.0;
        (lower > 0.0 && half.is_finite() && half >= 0.0).then_some(half)
    };
    let halves: Vec<f64> = interval.iter().filter_map(half).collect();
    if halves.is_empty() {
        return None;
    }
    let usual = elastico_core::median(&halves);
    let raw: Vec<f64> = interval
        .iter()
        .map(|interval| {
            let half = half(interval).unwrap_or(usual);
            1.0 / (half * half + FLOOR * FLOOR)
        })
        .collect();
    let mean = elastico_core::mean(&raw);
    Some(raw.iter().map(|weight| weight / mean).collect())
}

/// Names of the features that tell harnesses apart; none for one harness.
fn harness_features(harnesses: &[String]) -> Vec<String> {
    let several = harnesses.len() > 1;
    harnesses.iter().filter(|_| several).map(|name| format!("harness={name}")).collect()
}

/// Sets the feature of each row's harness: the schema knows no harness and gives 0.
fn mark_harnesses(features: &mut [f32], schema: &FeatureSchema, groups: &Groups) {
    let places: Vec<Option<usize>> =
        groups.harnesses.iter().map(|name| schema.position(&format!("harness={name}"))).collect();
    for (row, harness) in features.chunks_mut(schema.width()).zip(&groups.harness) {
        if let Some(Some(place)) = places.get(*harness as usize) {
            row[*place] = 1.0;
        }
    }
}

/// The columns of `pairs` that matter here.
struct Columns<'a> {
    harness: TextColumn,
    at_share: Vec<bool>,
    subject: &'a TextColumn,
    subject_family: &'a TextColumn,
    co_runner: &'a TextColumn,
    co_runner_family: &'a TextColumn,
    device_kind: &'a TextColumn,
    device: &'a TextColumn,
    sharing: &'a TextColumn,
    outcome: &'a TextColumn,
    slowdown: &'a [f64],
    lower: &'a [f64],
    upper: &'a [f64],
}

/// A row as indices into what was looked up once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resolved {
    pub(crate) subject: u32,
    pub(crate) co_runner: u32,
    pub(crate) device: u32,
    pub(crate) sharing: u32,
}

/// All rows, with profiles by index into [`Isolated`].
pub(crate) struct ResolvedRows {
    pub(crate) rows: Vec<Resolved>,
    pub(crate) devices: Vec<String>,
    pub(crate) sharing: Vec<SharingMode>,
    pub(crate) kinds: Vec<DeviceKind>,
}

impl ResolvedRows {
    fn modes(&self) -> Vec<String> {
        let used: BTreeSet<&str> =
            self.rows.iter().map(|row| self.sharing[row.sharing as usize].family()).collect();
        used.into_iter().map(str::to_owned).collect()
    }
}

const PAIRS: &str = "pairs";

/// The text of a cell that may not be null.
fn word<'a>(column: &'a TextColumn, name: &'static str, row: u32) -> Result<&'a str, Error> {
    column.get(row as usize).ok_or_else(|| Error::Cell {
        table: PAIRS,
        row: row as usize,
        column: name,
        found: "nothing".to_owned(),
    })
}

/// Parses each distinct value once; what cannot be parsed is an error only if a row uses it.
fn parsed<T: std::str::FromStr>(column: &TextColumn) -> Vec<Option<T>> {
    column.values().iter().map(|value| value.parse().ok()).collect()
}

fn bad(column: &TextColumn, name: &'static str, row: u32) -> Error {
    let found = column.get(row as usize).map_or("nothing".to_owned(), |text| format!("`{text}`"));
    Error::Cell { table: PAIRS, row: row as usize, column: name, found }
}

impl<'a> Columns<'a> {
    fn of(pairs: &'a Table) -> Result<Self, Error> {
        Ok(Self {
            harness: pairs.harness(),
            at_share: pairs.flagged("slowdown_at_share"),
            subject: pairs.text("subject_workload")?,
            subject_family: pairs.text("subject_family")?,
            co_runner: pairs.text("co_runner_workload")?,
            co_runner_family: pairs.text("co_runner_family")?,
            device_kind: pairs.text("device_kind")?,
            device: pairs.text("device")?,
            sharing: pairs.text("sharing")?,
            outcome: pairs.text("outcome")?,
            slowdown: pairs.f64("slowdown_ratio")?,
            lower: pairs.f64("slowdown_lower_ratio")?,
            upper: pairs.f64("slowdown_upper_ratio")?,
        })
    }

    /// Rows to learn from, and how many were left out for which reason.
    fn usable(&self, options: &ExampleOptions) -> Result<(Vec<u32>, BTreeMap<String, u64>), Error> {
        let outcomes: Vec<Option<Outcome>> = parsed(self.outcome);
        let kinds: Vec<Option<DeviceKind>> = parsed(self.device_kind);
        let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
        let mut found: BTreeMap<DeviceKind, u64> = BTreeMap::new();
        let mut harnesses: BTreeMap<&str, u64> = BTreeMap::new();
        let mut at_share = 0;
        let mut rows = Vec::new();
        let (least, most) = SLOWDOWN_RANGE;
        for row in 0..self.slowdown.len() as u32 {
            let outcome = self.outcome.code(row as usize).and_then(|code| outcomes[code as usize]);
            let outcome = outcome.ok_or_else(|| bad(self.outcome, "outcome", row))?;
            let kind = self.device_kind.code(row as usize).and_then(|code| kinds[code as usize]);
            let kind = kind.ok_or_else(|| bad(self.device_kind, "device_kind", row))?;
            let usable = outcome == Outcome::Ok || (options.include_flagged && outcome.has_times());
            if !usable {
                *left_out.entry(outcome.as_str().to_owned()).or_default() += 1;
                continue;
            }
            if options.device_kinds.as_ref().is_some_and(|wanted| !wanted.contains(&kind)) {
                *left_out.entry(format!("device kind {kind} not asked for")).or_default() += 1;
                continue;
            }
            let slowdown = self.slowdown[row as usize];
            if !(slowdown.is_finite() && slowdown > 0.0) {
                let column = "slowdown_ratio";
                return Err(Error::Label {
                    row: row as usize,
                    outcome: outcome.as_str().to_owned(),
                    column,
                    value: slowdown,
                });
            }
            if !(least..=most).contains(&slowdown) {
                *left_out.entry(out_of_range()).or_default() += 1;
                continue;
            }
            *found.entry(kind).or_default() += 1;
            *harnesses.entry(word(&self.harness, "source", row)?).or_default() += 1;
            at_share += usize::from(self.at_share[row as usize]);
            rows.push(row);
        }
        if found.len() > 1 && options.device_kinds.is_none() {
            let found: Vec<String> = found.iter().map(|(kind, rows)| format!("{rows} {kind}")).collect();
            return Err(Error::MixedKinds { found: found.join(", ") });
        }
        if at_share > 0 && at_share < rows.len() {
            return Err(Error::MixedLabels { at_share, others: rows.len() - at_share });
        }
        if harnesses.len() > 1 && !options.mix_harnesses {
            let found: Vec<String> =
                harnesses.iter().map(|(name, rows)| format!("{rows} of {name}")).collect();
            return Err(Error::MixedHarnesses { found: found.join(", ") });
        }
        if rows.is_empty() {
            let reasons: Vec<String> =
                left_out.iter().map(|(reason, rows)| format!("{rows} x {reason}")).collect();
            let reason =
                if reasons.is_empty() { "the table is empty".to_owned() } else { reasons.join(", ") };
            return Err(Error::NoExamples { reason });
        }
        Ok((rows, left_out))
    }

    /// Looks up profiles, devices and sharing modes once per distinct combination.
    fn resolve(&self, rows: &[u32], isolated: &Isolated) -> Result<ResolvedRows, Error> {
        let kinds: Vec<Option<DeviceKind>> = parsed(self.device_kind);
        let sharing: Vec<Option<SharingMode>> = parsed(self.sharing);
        let devices = self.device.values().to_vec();
        let mut known: std::collections::HashMap<(u32, u32, u32, bool), u32> =
            std::collections::HashMap::new();
        let mut used_kinds = BTreeSet::new();
        let mut resolved = Vec::with_capacity(rows.len());
        for &row in rows {
            let at = row as usize;
            word(self.device, "device", row)?;
            let device = self.device.code(at).unwrap_or_default();
            let kind_code = self.device_kind.code(at).unwrap_or_default();
            let mode = self.sharing.code(at).filter(|code| sharing[*code as usize].is_some());
            let mode = mode.ok_or_else(|| bad(self.sharing, "sharing", row))?;
            let mut profile = |column: &TextColumn, name: &'static str, co_runner: bool| {
                let workload = word(column, name, row)?;
                let code = column.code(at).unwrap_or_default();
                if let Some(&index) = known.get(&(code, device, kind_code, co_runner)) {
                    return Ok::<u32, Error>(index);
                }
                let kind =
                    kinds[kind_code as usize].ok_or_else(|| bad(self.device_kind, "device_kind", row))?;
                used_kinds.insert(kind);
                let device_name = &devices[device as usize];
                let index = isolated.position(workload, device_name, kind).ok_or_else(|| {
                    Error::Unprofiled { row: at, workload: workload.to_owned(), device: device_name.clone() }
                })?;
                known.insert((code, device, kind_code, co_runner), index);
                Ok(index)
            };
            let subject = profile(self.subject, "subject_workload", false)?;
            let co_runner = profile(self.co_runner, "co_runner_workload", true)?;
            resolved.push(Resolved { subject, co_runner, device, sharing: mode });
        }
        Ok(ResolvedRows {
            rows: resolved,
            devices,
            // Modes that cannot be parsed are used by no row.
            sharing: sharing.into_iter().map(|mode| mode.unwrap_or(SharingMode::Exclusive)).collect(),
            kinds: used_kinds.into_iter().collect(),
        })
    }

    fn groups(&self, rows: &[u32]) -> Groups {
        let (families, [subject_family, co_runner_family]) =
            recode([self.subject_family, self.co_runner_family], rows);
        let (devices, [device]) = recode([self.device], rows);
        let (workloads, [subject, co_runner]) = recode([self.subject, self.co_runner], rows);
        let (modes, [sharing]) = recode([self.sharing], rows);
        let (harnesses, [harness]) = recode([&self.harness], rows);
        let context = (0..rows.len())
            .map(|row| {
                let place = device[row] * modes.len() as u32 + sharing[row];
                place * harnesses.len() as u32 + harness[row]
            })
            .collect();
        let mut pairs: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let keys: Vec<(u32, u32)> =
            subject.iter().zip(&co_runner).map(|(&a, &b)| (a.min(b), a.max(b))).collect();
        for key in &keys {
            pairs.entry(*key).or_default();
        }
        for (index, code) in pairs.values_mut().enumerate() {
            *code = index as u32;
        }
        let pair = keys.iter().map(|key| pairs[key]).collect();
        Groups {
            pair,
            subject_family,
            co_runner_family,
            device,
            subject,
            co_runner,
            context,
            harness,
            families,
            devices,
            workloads,
            harnesses,
        }
    }
}

/// Codes of several columns into one sorted list of the names in use; null counts as the empty name.
fn recode<const N: usize>(columns: [&TextColumn; N], rows: &[u32]) -> (Vec<String>, [Vec<u32>; N]) {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for column in columns {
        let mut seen = vec![false; column.values().len() + 1];
        for &row in rows {
            let code = column.code(row as usize).map_or(column.values().len(), |code| code as usize);
            if !std::mem::replace(&mut seen[code], true) {
                names.insert(column.get(row as usize).unwrap_or(""));
            }
        }
    }
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let codes = columns.map(|column| {
        let translate =
            |name: &str| names.binary_search_by(|known| known.as_str().cmp(name)).unwrap_or(0) as u32;
        let table: Vec<u32> = column.values().iter().map(|value| translate(value)).collect();
        let null = translate("");
        rows.iter().map(|&row| column.code(row as usize).map_or(null, |code| table[code as usize])).collect()
    });
    (names, codes)
}

/// Parses the kind of a workload; anything unknown is an error with its place.
pub(crate) fn workload_kind(
    column: &TextColumn,
    table: &'static str,
    row: usize,
) -> Result<WorkloadKind, Error> {
    let text = column.get(row);
    text.and_then(|text| text.parse().ok()).ok_or_else(|| Error::Cell {
        table,
        row,
        column: "kind",
        found: text.map_or("nothing".to_owned(), |text| format!("`{text}`")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_intervals_weigh_more_and_the_mean_is_one() {
        let weights = weights(&[(1.0, 1.01), (1.0, 1.3), (f64::NAN, f64::NAN)]).unwrap();
        assert!((elastico_core::mean(&weights) - 1.0).abs() < 1e-12);
        assert!(weights[0] > weights[1] && weights[2] < weights[0] && weights[2] > weights[1]);
        assert!(super::weights(&[(f64::NAN, f64::NAN)]).is_none());
    }
}
