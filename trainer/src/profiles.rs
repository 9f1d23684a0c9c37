//! The isolated table as one profile per workload and device.

use crate::Error;
use crate::examples::workload_kind;
use elastico_core::{COUNTERS, DeviceKind, FamilyId, Outcome, WorkloadId, median};
use elastico_datasets::Dataset;
use elastico_models::{FIELDS, Profiles, SharePoint, WorkloadProfile};
use std::collections::{BTreeMap, BTreeSet};

/// The isolated table as workload profiles: for placement, and for the features of a model.
///
/// A field is the mean over the `ok` repeats at the full share (over flagged ones where none is `ok`); the step time at each share is the median. A workload that
/// was never measured at the full share keeps its fields at each share. A dataset
/// over several devices adds the workload's isolated speed on each of them, for example `isolated_k80_hertz`.
///
/// # Errors
/// [`Error::Cell`] for a row without name, family, kind or device, [`Error::Models`] for a value no measurement can
/// give or a workload that stands there both measured and simulated.
pub fn profiles(dataset: &Dataset) -> Result<Profiles, Error> {
    Ok(Profiles::new(Isolated::of(dataset, None)?.profiles)?)
}

/// Profiles sorted by workload, device and kind.
pub(crate) struct Isolated {
    pub(crate) profiles: Vec<WorkloadProfile>,
    /// Names of the extra fields for the speed on each device.
    pub(crate) speeds: Vec<String>,
}

#[derive(Default)]
struct Sums {
    first_row: usize,
    /// Flagged rows count only where a workload has no `ok` row at all.
    is_ok: bool,
    fields: BTreeMap<&'static str, (f64, u32)>,
    /// By the share in millionths, so that it can be a key.
    shares: BTreeMap<u64, AtShare>,
}

/// What was measured at one share.
#[derive(Default)]
struct AtShare {
    seconds: Vec<f64>,
    fields: BTreeMap<&'static str, (f64, u32)>,
}

/// Takes the finite values of a row into sums and counts.
fn add(sums: &mut BTreeMap<&'static str, (f64, u32)>, fields: &[(&'static str, &[f64])], row: usize) {
    for (name, column) in fields.iter().filter(|(_, column)| column[row].is_finite()) {
        let (sum, count) = sums.entry(name).or_default();
        *sum += column[row];
        *count += 1;
    }
}

fn means(sums: BTreeMap<&'static str, (f64, u32)>) -> BTreeMap<String, f64> {
    sums.into_iter().map(|(name, (sum, count))| (name.to_owned(), sum / f64::from(count))).collect()
}

const TABLE: &str = "isolated";
const SHARE_UNIT: f64 = 1e6;

impl Isolated {
    pub(crate) fn of(dataset: &Dataset, kinds: Option<&[DeviceKind]>) -> Result<Self, Error> {
        let table = &dataset.isolated;
        let workload = table.text("workload")?;
        let family = table.text("family")?;
        let kind = table.text("kind")?;
        let device = table.text("device")?;
        let device_kind = table.text("device_kind")?;
        let outcome = table.text("outcome")?;
        let share = table.f64("share_ratio")?;
        let seconds = table.f64("step_seconds")?;
        let mut fields: Vec<(&'static str, &[f64])> = Vec::new();
        for field in FIELDS {
            if table.columns().iter().any(|column| column.name == field.name) {
                fields.push((field.name, table.f64(field.name)?));
            }
        }
        let mut sums: BTreeMap<(&str, &str, DeviceKind), Sums> = BTreeMap::new();
        for row in 0..table.rows() {
            let is_ok = outcome.get(row) == Some(Outcome::Ok.as_str());
            if !is_ok && !seconds[row].is_finite() {
                continue;
            }
            let cell = |column: &'static str, text: Option<&str>| Error::Cell {
                table: TABLE,
                row,
                column,
                found: text.map_or("nothing".to_owned(), |text| format!("`{text}`")),
            };
            let name = workload.get(row).ok_or_else(|| cell("workload", None))?;
            let on = device.get(row).ok_or_else(|| cell("device", None))?;
            let of: DeviceKind = device_kind
                .get(row)
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| cell("device_kind", device_kind.get(row)))?;
            if kinds.is_some_and(|wanted| !wanted.contains(&of)) {
                continue;
            }
            let fresh = || Sums { first_row: row, is_ok, ..Sums::default() };
            let entry = sums.entry((name, on, of)).or_insert_with(fresh);
            if is_ok && !entry.is_ok {
                *entry = fresh();
            }
            if entry.is_ok && !is_ok {
                continue;
            }
            if seconds[row] > 0.0 && share[row] > 0.0 {
                let at = entry.shares.entry((share[row] * SHARE_UNIT).round() as u64).or_default();
                at.seconds.push(seconds[row]);
                if share[row] < 1.0 {
                    add(&mut at.fields, &fields, row);
                    at.fields.remove("step_seconds");
                }
            }
            if share[row] >= 1.0 {
                add(&mut entry.fields, &fields, row);
            }
        }
        let mut profiles = Vec::with_capacity(sums.len());
        for ((name, on, of), sums) in sums {
            let row = sums.first_row;
            let cell = |column: &'static str, found: String| Error::Cell { table: TABLE, row, column, found };
            let is_full = !sums.fields.is_empty();
            let mut fields = means(sums.fields);
            let mut shares: Vec<SharePoint> = sums
                .shares
                .into_iter()
                .map(|(share, at)| SharePoint {
                    share_ratio: share as f64 / SHARE_UNIT,
                    step_seconds: median(&at.seconds),
                    fields: if is_full { BTreeMap::new() } else { means(at.fields) },
                })
                .collect();
            if let Some(full) = shares.iter().find(|point| point.share_ratio >= 1.0) {
                // The median also at the full share, so that ratios of shares compare like with like.
                fields.insert("step_seconds".to_owned(), full.step_seconds);
            }
            shares.sort_by(|a, b| a.share_ratio.total_cmp(&b.share_ratio));
            profiles.push(WorkloadProfile {
                workload: WorkloadId::new(name).map_err(|error| cell("workload", error.to_string()))?,
                family: FamilyId::new(family.get(row).unwrap_or(""))
                    .map_err(|error| cell("family", error.to_string()))?,
                kind: workload_kind(kind, TABLE, row)?,
                device: on.to_owned(),
                device_kind: of,
                fields,
                shares,
            });
        }
        let mut isolated = Self { profiles, speeds: Vec::new() };
        isolated.add_unmeasured(dataset, kinds)?;
        isolated.add_speeds();
        Ok(isolated)
    }

    /// A profile without fields for each co-runner of a one-sided row that nobody measured alone.
    fn add_unmeasured(&mut self, dataset: &Dataset, kinds: Option<&[DeviceKind]>) -> Result<(), Error> {
        const PAIRS: &str = "pairs";
        let pairs = &dataset.pairs;
        let one_sided = pairs.flagged("one_sided");
        let text = |name| pairs.text(name);
        let (workload, family, kind) =
            (text("co_runner_workload")?, text("co_runner_family")?, text("co_runner_kind")?);
        let (device, device_kind) = (text("device")?, text("device_kind")?);
        let mut added: BTreeMap<(&str, &str, DeviceKind), WorkloadProfile> = BTreeMap::new();
        for row in (0..pairs.rows()).filter(|row| one_sided[*row]) {
            let cell = |column: &'static str, found: String| Error::Cell { table: PAIRS, row, column, found };
            let nothing = |column: &'static str| cell(column, "nothing".to_owned());
            let name = workload.get(row).ok_or_else(|| nothing("co_runner_workload"))?;
            let on = device.get(row).ok_or_else(|| nothing("device"))?;
            let of: DeviceKind = device_kind
                .get(row)
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| nothing("device_kind"))?;
            let wanted = kinds.is_none_or(|wanted| wanted.contains(&of));
            if !wanted || added.contains_key(&(name, on, of)) || self.position(name, on, of).is_some() {
                continue;
            }
            let profile = WorkloadProfile {
                workload: WorkloadId::new(name)
                    .map_err(|error| cell("co_runner_workload", error.to_string()))?,
                family: FamilyId::new(family.get(row).unwrap_or(""))
                    .map_err(|error| cell("co_runner_family", error.to_string()))?,
                kind: workload_kind(kind, PAIRS, row)?,
                device: on.to_owned(),
                device_kind: of,
                fields: BTreeMap::new(),
                shares: Vec::new(),
            };
            added.insert((name, on, of), profile);
        }
        self.profiles.extend(added.into_values());
        self.profiles.sort_by(|a, b| {
            (a.workload.as_str(), &a.device, a.device_kind).cmp(&(
                b.workload.as_str(),
                &b.device,
                b.device_kind,
            ))
        });
        Ok(())
    }

    /// Gives each profile the workload's speed on every device of the same kind.
    fn add_speeds(&mut self) {
        let devices: BTreeSet<&str> = self.profiles.iter().map(|profile| profile.device.as_str()).collect();
        if devices.len() < 2 {
            return;
        }
        let mut speeds: BTreeMap<(&str, DeviceKind), Vec<(String, f64)>> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for profile in &self.profiles {
            if let Some(seconds) = profile.field("step_seconds") {
                let name = speed_name(&profile.device);
                names.insert(name.clone());
                speeds
                    .entry((profile.workload.as_str(), profile.device_kind))
                    .or_default()
                    .push((name, 1.0 / seconds));
            }
        }
        let added: Vec<Vec<(String, f64)>> = self
            .profiles
            .iter()
            .map(|profile| {
                speeds.get(&(profile.workload.as_str(), profile.device_kind)).cloned().unwrap_or_default()
            })
            .collect();
        self.speeds = names.into_iter().collect();
        for (profile, speeds) in self.profiles.iter_mut().zip(added) {
            profile.fields.extend(speeds);
        }
    }

    pub(crate) fn position(&self, workload: &str, device: &str, kind: DeviceKind) -> Option<u32> {
        self.profiles
            .binary_search_by(|profile| {
                (profile.workload.as_str(), profile.device.as_str(), profile.device_kind)
                    .cmp(&(workload, device, kind))
            })
            .ok()
            .map(|index| index as u32)
    }

    pub(crate) fn families_total(&self) -> usize {
        self.profiles.iter().map(|profile| &profile.family).collect::<BTreeSet<_>>().len()
    }

    pub(crate) fn has_counters(&self) -> bool {
        self.profiles.iter().any(|profile| {
            let mut fields = profile.shares.iter().map(|point| &point.fields).chain([&profile.fields]);
            fields.any(|fields| COUNTERS.iter().any(|counter| fields.contains_key(counter.name)))
        })
    }
}

/// `sim:h100` becomes `isolated_h100_hertz`; the names of features allow lower case, digits and `_` only.
fn speed_name(device: &str) -> String {
    let plain: String = device
        .strip_prefix("sim:")
        .unwrap_or(device)
        .chars()
        .map(|letter| {
            let letter = letter.to_ascii_lowercase();
            if letter.is_ascii_alphanumeric() { letter } else { '_' }
        })
        .collect();
    format!("isolated_{plain}_hertz")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_become_plain_names() {
        assert_eq!(speed_name("sim:H100"), "isolated_h100_hertz");
        assert_eq!(speed_name("NVIDIA A100-SXM4"), "isolated_nvidia_a100_sxm4_hertz");
    }
}
