//! Workload profiles: what the isolated runs say about each workload on each device.

use crate::Error;
use elastico_core::{DeviceKind, FamilyId, WorkloadId, WorkloadKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Isolated performance at one share of the SMs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharePoint {
    /// Share of the SMs, over 0, at most 1.
    pub share_ratio: f64,
    /// Median time of one isolated step at that share, in seconds.
    pub step_seconds: f64,
    /// Values by field name at that share, kept where the full device was never measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, f64>,
}

/// Shares that differ by less are the same.
const SAME_SHARE: f64 = 1e-6;

/// One workload on one device, running alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadProfile {
    /// The workload.
    pub workload: WorkloadId,
    /// Its family, the unit that a split holds out.
    pub family: FamilyId,
    /// What it is for.
    pub kind: WorkloadKind,
    /// The device model, for example `h100`.
    pub device: String,
    /// Whether the numbers are measured or simulated.
    pub device_kind: DeviceKind,
    /// Values by field name; absent = missing. A name outside [`FIELDS`](crate::FIELDS) is one of a feature: lower case, with a
    /// unit at its end, and not one of them mistyped.
    pub fields: BTreeMap<String, f64>,
    /// Isolated performance by share, in any order; may be empty.
    #[serde(default)]
    pub shares: Vec<SharePoint>,
}

impl WorkloadProfile {
    /// The value of a field; `training_ratio` follows from the kind, `step_seconds` from the full share.
    pub fn field(&self, name: &str) -> Option<f64> {
        self.fields.get(name).copied().or_else(|| match name {
            "training_ratio" => Some(f64::from(u8::from(self.kind == WorkloadKind::Training))),
            "step_seconds" => self.shares.iter().find(|p| p.share_ratio >= 1.0).map(|p| p.step_seconds),
            _ => None,
        })
    }

    /// The value of a field for a side that is given this share of the SMs: that of the full device, and where the full
    /// device was never measured, that at the share.
    pub fn field_at(&self, name: &str, share_ratio: f64) -> Option<f64> {
        self.field(name).or_else(|| {
            if name == "step_seconds" {
                return self.step_seconds_at(share_ratio);
            }
            let point =
                self.shares.iter().find(|point| (point.share_ratio - share_ratio).abs() <= SAME_SHARE)?;
            point.fields.get(name).copied()
        })
    }

    /// Time of one isolated step at a share of the SMs, in seconds.
    ///
    /// Between two measured shares it is interpolated linearly in the logarithms of both; outside the measured range it
    /// is unknown.
    pub fn step_seconds_at(&self, share_ratio: f64) -> Option<f64> {
        if share_ratio >= 1.0 - SAME_SHARE {
            return self.field("step_seconds");
        }
        let full = self.field("step_seconds").map(|seconds| (1.0, seconds));
        let points = || self.shares.iter().map(|point| (point.share_ratio, point.step_seconds)).chain(full);
        if let Some((_, seconds)) = points().find(|(share, _)| (share - share_ratio).abs() <= SAME_SHARE) {
            return Some(seconds);
        }
        let below = points().filter(|(share, _)| *share < share_ratio).max_by(|a, b| a.0.total_cmp(&b.0))?;
        let above = points().filter(|(share, _)| *share > share_ratio).min_by(|a, b| a.0.total_cmp(&b.0))?;
        let weight = (share_ratio / below.0).ln() / (above.0 / below.0).ln();
        Some((below.1.ln() * (1.0 - weight) + above.1.ln() * weight).exp())
    }

    /// The partition effect: isolated step time at the share over that at the full device.
    pub fn partition_effect_at(&self, share_ratio: f64) -> Option<f64> {
        Some(self.step_seconds_at(share_ratio)? / self.field("step_seconds")?)
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |field: &str, reason: String| {
            Err(Error::Profile {
                workload: self.workload.to_string(),
                device: self.device.clone(),
                field: field.to_owned(),
                reason,
            })
        };
        if self.device.trim().is_empty() {
            return refuse("device", "is empty".into());
        }
        let at_shares = self.shares.iter().flat_map(|point| &point.fields);
        for name in self.fields.keys().chain(self.shares.iter().flat_map(|point| point.fields.keys())) {
            if let Some(near) = mistyped(name) {
                return refuse(name, format!("is no field of a run alone, did you mean `{near}`?"));
            }
            if crate::schema::check_field(name).is_err() {
                return refuse(
                    name,
                    "is no field: one is lower case and ends in a unit, as `l2_hit_ratio`".into(),
                );
            }
        }
        for (name, value) in self.fields.iter().chain(at_shares) {
            if !value.is_finite() || value.abs() > f64::from(f32::MAX) {
                return refuse(name, format!("is {value:e}, it must be finite"));
            }
            if *value < 0.0 {
                return refuse(name, format!("is {value}, it must not be negative"));
            }
            if *value > 1.0 && is_ratio(name) {
                return refuse(name, format!("is {value:e}, a ratio is at most 1"));
            }
        }
        if self.fields.get("step_seconds").is_some_and(|seconds| *seconds <= 0.0) {
            return refuse("step_seconds", "must be above 0".into());
        }
        for point in &self.shares {
            if !(point.share_ratio > 0.0 && point.share_ratio <= 1.0) {
                return refuse(
                    "share_ratio",
                    format!("is {}, it must be over 0 and at most 1", point.share_ratio),
                );
            }
            if !(point.step_seconds.is_finite() && point.step_seconds > 0.0) {
                return refuse(
                    "step_seconds",
                    format!("at share {} is {}, it must be above 0", point.share_ratio, point.step_seconds),
                );
            }
        }
        Ok(())
    }
}

/// The known field that a name is but for one place: a letter or two more, less, other or swapped.
fn mistyped(name: &str) -> Option<&'static str> {
    let fields = || crate::FIELDS.iter().map(|field| field.name);
    if fields().any(|field| field == name) {
        return None;
    }
    fields().find(|field| {
        let same = |pairs: &mut dyn Iterator<Item = (u8, u8)>| pairs.take_while(|(a, b)| a == b).count();
        let shorter = name.len().min(field.len());
        let start = same(&mut name.bytes().zip(field.bytes()));
        let end = same(&mut name.bytes().rev().zip(field.bytes().rev())).min(shorter - start);
        name.len().max(field.len()) - start - end <= 2
    })
}

/// Whether a known field is a ratio; names of others are free, and so are their values.
fn is_ratio(name: &str) -> bool {
    crate::FIELDS.iter().any(|field| field.name == name && field.unit == "ratio")
}

/// The schema id of the file.
const SCHEMA: &str = "elastico.profiles/1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    profiles: Vec<WorkloadProfile>,
}

/// Profiles by workload and device.
///
/// One set holds a workload at most once per device; simulated and measured numbers of one device model cannot stand in
/// one set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profiles {
    sorted: Vec<WorkloadProfile>,
}

impl Profiles {
    /// Checks and sorts profiles.
    pub fn new(profiles: impl IntoIterator<Item = WorkloadProfile>) -> Result<Self, Error> {
        let mut sorted: Vec<_> = profiles.into_iter().collect();
        for profile in &sorted {
            profile.check()?;
        }
        sorted.sort_by(|a, b| key(a).cmp(&key(b)));
        if let Some([first, second]) =
            sorted.windows(2).find(|pair| key(&pair[0]) == key(&pair[1])).map(|pair| [&pair[0], &pair[1]])
        {
            return Err(Error::Profile {
                workload: first.workload.to_string(),
                device: first.device.clone(),
                field: "workload".into(),
                reason: format!("occurs twice ({} and {})", first.device_kind, second.device_kind),
            });
        }
        Ok(Self { sorted })
    }

    /// The profile of a workload on a device.
    pub fn get(&self, workload: &str, device: &str) -> Result<&WorkloadProfile, Error> {
        self.find(workload, device).ok_or_else(|| {
            let own = self.sorted.iter().filter(|profile| profile.workload.as_str() == workload);
            let devices: Vec<String> = own.map(|profile| profile.device.clone()).collect();
            // Another chip is no typing mistake: only names that are the same but for a letter are suggested.
            let suggestion = if devices.is_empty() {
                elastico_core::suggest(workload, self.sorted.iter().map(|p| p.workload.as_str()))
            } else if elastico_core::chip(device).is_some() {
                None
            } else {
                elastico_core::suggest(device, devices.iter().map(String::as_str))
            };
            Error::UnknownProfile {
                workload: workload.to_owned(),
                device: device.to_owned(),
                suggestion: suggestion.map(str::to_owned),
                devices,
            }
        })
    }

    /// The same for a caller to whom a missing profile is no error: without a search for what could have been meant.
    pub fn find(&self, workload: &str, device: &str) -> Option<&WorkloadProfile> {
        let found = self.sorted.binary_search_by(|profile| key(profile).cmp(&(workload, device)));
        found.ok().map(|index| &self.sorted[index])
    }

    /// All profiles, sorted by workload, then device.
    pub fn iter(&self) -> impl Iterator<Item = &WorkloadProfile> {
        self.sorted.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Reads the JSON text of a file; `file` is named in errors.
    pub fn from_json(text: &str, file: &Path) -> Result<Self, Error> {
        let parsed: File = serde_json::from_str(text).map_err(|error| json_error(&error, file))?;
        if parsed.schema != SCHEMA {
            return Err(Error::Json {
                file: file.display().to_string(),
                line: 1,
                column: 1,
                reason: format!("the schema is `{}`, not `{SCHEMA}`", parsed.schema),
                suggestion: None,
            });
        }
        Self::new(parsed.profiles)
    }

    /// Reads a JSON file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        /// A million workloads take less.
        const MOST_BYTES: u64 = 1 << 32;
        let read = |source| Error::Read { path: path.to_owned(), source };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(read)?;
        // What a device gives never ends.
        std::io::Read::read_to_string(&mut std::io::Read::take(file, MOST_BYTES), &mut text).map_err(read)?;
        // Some editors put the mark of a byte order before the text.
        Self::from_json(text.strip_prefix('\u{feff}').unwrap_or(&text), path)
    }

    /// The JSON text, sorted, so that equal profiles give equal bytes.
    pub fn to_json(&self) -> String {
        let file = File { schema: SCHEMA.to_owned(), profiles: self.sorted.clone() };
        let mut text =
            serde_json::to_string_pretty(&file).expect("profiles hold only strings and finite numbers");
        text.push('\n');
        text
    }
}

fn key(profile: &WorkloadProfile) -> (&str, &str) {
    (profile.workload.as_str(), &profile.device)
}

fn json_error(error: &serde_json::Error, file: &Path) -> Error {
    let message = error.to_string();
    let reason = message.split(" at line ").next().unwrap_or(&message).to_owned();
    // serde writes: unknown field `a`, expected one of `b`, `c`
    let mut quoted = message.split('`').skip(1).step_by(2);
    let suggestion = message
        .starts_with("unknown field")
        .then(|| quoted.next().and_then(|name| elastico_core::suggest(name, quoted)))
        .flatten();
    Error::Json {
        file: file.display().to_string(),
        line: error.line(),
        column: error.column(),
        reason,
        suggestion: suggestion.map(str::to_owned),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use elastico_core::Hint;

    pub(crate) fn profile(workload: &str, device: &str) -> WorkloadProfile {
        WorkloadProfile {
            workload: WorkloadId::new(workload).unwrap(),
            family: FamilyId::new(workload.split('.').next().unwrap()).unwrap(),
            kind: WorkloadKind::Training,
            device: device.into(),
            device_kind: DeviceKind::Simulated,
            fields: BTreeMap::from([("step_seconds".into(), 0.1), ("sm_active_ratio".into(), 0.6)]),
            shares: vec![SharePoint { share_ratio: 0.25, step_seconds: 0.4, fields: BTreeMap::new() }],
        }
    }

    #[test]
    fn json_round_trips_and_is_sorted() {
        let profiles =
            Profiles::new([profile("b.x", "h100"), profile("a.x", "v100"), profile("a.x", "h100")]).unwrap();
        let again = Profiles::from_json(&profiles.to_json(), Path::new("p.json")).unwrap();
        assert_eq!(again, profiles);
        let order: Vec<_> = again.iter().map(|p| (p.workload.as_str(), p.device.as_str())).collect();
        assert_eq!(order, [("a.x", "h100"), ("a.x", "v100"), ("b.x", "h100")]);
        assert_eq!(again.get("a.x", "v100").unwrap().device, "v100");
    }

    #[test]
    fn unknown_names_get_suggestions() {
        let profiles = Profiles::new([profile("tr_block.b8", "h100")]).unwrap();
        let error = profiles.get("tr_blok.b8", "h100").unwrap_err();
        assert!(error.to_string().contains("did you mean `tr_block.b8`"), "{error}");
        let error = profiles.get("tr_block.b8", "h200").unwrap_err();
        assert!(
            error.to_string().ends_with("on h200") && error.hint().unwrap().contains("on h100"),
            "{error}"
        );
        let error = profiles.get("tr_block.b8", "h10").unwrap_err();
        assert!(error.to_string().contains("did you mean `h100`"), "{error}");
        let text = profiles.to_json().replace("sm_active_ratio", "sm_actve_ratio");
        let error = Profiles::from_json(&text, Path::new("p.json")).unwrap_err();
        assert!(error.to_string().contains("did you mean `sm_active_ratio`"), "{error}");
        let text = profiles.to_json().replace("sm_active_ratio", "isolated_k80_hertz");
        Profiles::from_json(&text, Path::new("p.json")).unwrap();
        let text = profiles.to_json().replace("\"family\"", "\"famly\"");
        let error = Profiles::from_json(&text, Path::new("p.json")).unwrap_err();
        assert_eq!(error.hint().as_deref(), Some("write `family`"), "{error}");
        assert!(matches!(error, Error::Json { line: 6, .. }), "{error:?}");
    }

    #[test]
    fn impossible_values_and_duplicates_are_refused() {
        let broken = |change: fn(&mut WorkloadProfile)| {
            let mut bad = profile("a.x", "h100");
            change(&mut bad);
            Profiles::new([bad]).unwrap_err().to_string()
        };
        assert!(
            broken(|p| p.fields.extend([("step_seconds".to_owned(), f64::NAN)]))
                .contains("step_seconds is NaN")
        );
        assert!(broken(|p| p.fields.extend([("step_seconds".to_owned(), 0.0)])).contains("above 0"));
        assert!(broken(|p| p.fields.extend([("l2_hit_ratio".to_owned(), -0.1)])).contains("negative"));
        assert!(broken(|p| p.fields.extend([("l2_hit_ratio".to_owned(), 1e300)])).contains("finite"));
        assert!(broken(|p| p.fields.extend([("l2_hit_ratio".to_owned(), 95.0)])).contains("at most 1"));
        assert!(broken(|p| p.shares[0].share_ratio = 1.5).contains("share_ratio is 1.5"));
        assert!(broken(|p| p.shares[0].step_seconds = f64::INFINITY).contains("step_seconds"));
        assert!(Profiles::new([profile("a.x", "h100"), profile("a.x", "h100")]).is_err());
        assert!(Profiles::from_json("{\"schema\": \"other\", \"profiles\": []}", Path::new("p")).is_err());
    }

    #[test]
    fn shares_are_interpolated_in_logarithms_and_never_extrapolated() {
        let profile = profile("a.x", "h100");
        assert_eq!(profile.step_seconds_at(1.0), Some(0.1));
        assert_eq!(profile.step_seconds_at(0.25), Some(0.4));
        let half = profile.step_seconds_at(0.5).unwrap();
        assert!((half - 0.2).abs() < 1e-12, "1/share in, 1/share out: {half}");
        assert_eq!(profile.step_seconds_at(0.1), None);
        assert!((profile.partition_effect_at(0.25).unwrap() - 4.0).abs() < 1e-12);
    }
}
