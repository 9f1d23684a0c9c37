//! The ordered list of features that a model reads, and how a pair becomes a row of them.

mod difference;
mod source;

pub use difference::SchemaDifference;
pub(crate) use source::check_field;

use crate::{Error, FIELDS, WorkloadProfile};
use elastico_core::{Digest, SharingMode, chip};
use serde::{Deserialize, Serialize};
use source::{ContextSource, DEVICE, SHARING, SideSource, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One feature of a pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Name with its side, for example `co_runner_dram_throughput_ratio`.
    pub name: String,
    /// Unit, for example `ratio`, `bytes` or `bytes/s`.
    pub unit: String,
}

/// The two sides of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one whose slowdown is predicted.
    Subject,
    /// The one beside it.
    CoRunner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Subject,
    CoRunner,
    Context,
}

/// A stretch of the row that is copied from one group of values.
#[derive(Debug, Clone, Copy)]
struct Run {
    group: Group,
    start: usize,
    length: usize,
}

/// Ordered features with units.
///
/// Names and their values, where `SIDE` is `subject` or `co_runner`:
/// - `SIDE_share_ratio`: the share of the SMs that the sharing mode leaves to that side;
/// - `SIDE_partition_effect_ratio`: isolated step time at that share over that at the full device, from the profile's
///   shares;
/// - `SIDE_family=NAME`: 1 if that side is of this family, else 0;
/// - `SIDE_workload=NAME`: 1 if that side is this workload, else 0;
/// - `SIDE_FIELD`: a field of the profile, of [`FIELDS`] or of any other name with a unit at its end, for example
///   `subject_isolated_k80_hertz`;
/// - `device_sm_total`, `device_l2_bytes`, `device_memory_bytes`, `device_dram_bandwidth_bytes` (per second),
///   `device_fp32_flops`, `device_half_flops` (per second): constants of the subject's chip;
/// - `sharing_time_slice_ratio`, `sharing_mps_ratio`, `sharing_mig_ratio`, `sharing_streams_ratio`: 1 for the mode;
/// - `harness=NAME`: 1 for rows of this measuring harness. A profile does not know it: [`encode`](Self::encode) gives 0,
///   whoever has rows of several harnesses fills it in.
///
/// A value that is unknown is NaN in the row.
///
/// ```
/// use elastico_models::FeatureSchema;
///
/// let names = ["subject_sm_active_ratio", "co_runner_sm_active_ratio", "device_l2_bytes", "sharing_mps_ratio"];
/// let schema = FeatureSchema::new(&names.map(String::from))?;
/// assert_eq!(schema.width(), 4);
/// let error = FeatureSchema::new(&["device_l2_byte".to_owned()]).unwrap_err();
/// assert!(error.to_string().contains("did you mean `device_l2_bytes`?"));
/// # Ok::<(), elastico_models::Error>(())
/// ```
#[derive(Clone)]
pub struct FeatureSchema {
    features: Vec<Feature>,
    names: Vec<String>,
    sides: [Vec<SideSource>; 2],
    context: Vec<ContextSource>,
    runs: Vec<Run>,
}

impl FeatureSchema {
    /// Checks names against the naming rule; units follow from the names.
    pub fn new(names: &[String]) -> Result<Self, Error> {
        let refuse = |name: &str, reason: &str| {
            Err(Error::FeatureName { name: name.to_owned(), reason: reason.to_owned(), suggestion: None })
        };
        if names.is_empty() {
            return refuse("", "a model needs at least one feature");
        }
        if names.len() > MAX_WIDTH {
            return Err(Error::TooLarge {
                what: "a feature list",
                found: names.len() as u64,
                limit: MAX_WIDTH as u64,
            });
        }
        let mut seen = BTreeSet::new();
        let (features, names_kept) = (Vec::new(), names.to_vec());
        let mut schema = Self {
            features,
            names: names_kept,
            sides: [Vec::new(), Vec::new()],
            context: Vec::new(),
            runs: Vec::new(),
        };
        for name in names {
            if !seen.insert(name) {
                return refuse(name, "it occurs twice");
            }
            schema.push(name)?;
        }
        Ok(schema)
    }

    /// The features that can be made from [`FIELDS`] for both sides, with shares, device and sharing mode.
    pub fn standard() -> Self {
        let mut names = Vec::new();
        for side in ["subject", "co_runner"] {
            names.extend(FIELDS.iter().map(|field| format!("{side}_{}", field.name)));
            names.push(format!("{side}_share_ratio"));
        }
        names.extend(DEVICE.iter().map(|(name, ..)| (*name).to_owned()));
        names.extend(SHARING.iter().map(|(name, _)| (*name).to_owned()));
        Self::new(&names).expect("the fixed names follow the rule")
    }

    fn push(&mut self, name: &str) -> Result<(), Error> {
        let (source, unit) = source::parse(name)?;
        let (group, start) = match source {
            Source::Side(side, source) => {
                let sources = &mut self.sides[usize::from(side == Side::CoRunner)];
                sources.push(source);
                let group = if side == Side::Subject { Group::Subject } else { Group::CoRunner };
                (group, sources.len() - 1)
            }
            Source::Context(source) => {
                self.context.push(source);
                (Group::Context, self.context.len() - 1)
            }
        };
        match self.runs.last_mut() {
            Some(run) if run.group == group && run.start + run.length == start => run.length += 1,
            _ => self.runs.push(Run { group, start, length: 1 }),
        }
        self.features.push(Feature { name: name.to_owned(), unit: unit.to_owned() });
        Ok(())
    }

    /// The features in order.
    pub fn features(&self) -> &[Feature] {
        &self.features
    }

    /// The names in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Where a feature stands.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.features.iter().position(|feature| feature.name == name)
    }

    /// How many features a row has.
    pub fn width(&self) -> usize {
        self.features.len()
    }

    /// Names the ordered list with its units: two models with one digest read the same rows.
    pub fn digest(&self) -> Digest {
        Digest::of(self.features.iter().flat_map(|feature| [&feature.name, &feature.unit]))
    }

    /// Appends the row of one pair, NaN where a value is unknown.
    ///
    /// `sharing` is seen from the subject's side; the device constants are those of the subject's device.
    pub fn encode(
        &self,
        subject: &WorkloadProfile,
        co_runner: &WorkloadProfile,
        sharing: &SharingMode,
        out: &mut Vec<f32>,
    ) {
        let subject_values = self.side_values(subject, Side::Subject, sharing);
        let co_runner_values = self.side_values(co_runner, Side::CoRunner, sharing);
        let context = self.context_values(&subject.device, sharing);
        self.assemble(&subject_values, &co_runner_values, &context, out);
    }

    /// The values of one side, looked up once per workload, side and sharing mode; see [`assemble`](Self::assemble).
    ///
    /// `SIDE_share_ratio` and `SIDE_partition_effect_ratio` depend on the sharing mode, and so do the fields of a workload
    /// that was never measured at the full device.
    pub fn side_values(&self, profile: &WorkloadProfile, side: Side, sharing: &SharingMode) -> Vec<f32> {
        let (subject_share, co_runner_share) = sharing.shares();
        let (share, sources) = match side {
            Side::Subject => (subject_share, &self.sides[0]),
            Side::CoRunner => (co_runner_share, &self.sides[1]),
        };
        let value = |source: &SideSource| match source {
            SideSource::Share => Some(share),
            SideSource::Partition => profile.partition_effect_at(share),
            SideSource::Family(family) => {
                Some(f64::from(u8::from(profile.family.as_str().eq_ignore_ascii_case(family))))
            }
            SideSource::Workload(workload) => {
                Some(f64::from(u8::from(profile.workload.as_str().eq_ignore_ascii_case(workload))))
            }
            SideSource::Field(name) => profile.field_at(name, share),
        };
        sources.iter().map(|source| narrow(value(source))).collect()
    }

    /// The values of device and sharing mode, looked up once per both; NaN for a device that is no chip of the table.
    pub fn context_values(&self, device: &str, sharing: &SharingMode) -> Vec<f32> {
        let chip = chip(device.strip_prefix("sim:").unwrap_or(device));
        let value = |source: &ContextSource| match source {
            ContextSource::Device(constant) => chip.map(constant),
            ContextSource::Sharing(family) => Some(f64::from(u8::from(sharing.family() == *family))),
            ContextSource::Harness => Some(0.0),
        };
        self.context.iter().map(|source| narrow(value(source))).collect()
    }

    /// The constants of a device by the names of the features that read them; empty for a device that is no chip of the
    /// table.
    pub fn device_constants(&self, device: &str) -> BTreeMap<String, f64> {
        let Some(chip) = chip(device.strip_prefix("sim:").unwrap_or(device)) else { return BTreeMap::new() };
        DEVICE
            .iter()
            .filter(|(name, ..)| self.position(name).is_some())
            .map(|(name, _, constant)| ((*name).to_owned(), constant(chip)))
            .collect()
    }

    /// Appends one row from values that were looked up before: copies of slices, without a look-up.
    ///
    /// # Panics
    /// Where a slice is shorter than what [`side_values`](Self::side_values) or
    /// [`context_values`](Self::context_values) of this schema gave.
    pub fn assemble(&self, subject: &[f32], co_runner: &[f32], context: &[f32], out: &mut Vec<f32>) {
        for run in &self.runs {
            let values = match run.group {
                Group::Subject => subject,
                Group::CoRunner => co_runner,
                Group::Context => context,
            };
            out.extend_from_slice(&values[run.start..run.start + run.length]);
        }
    }

    /// How this list differs from the wanted one, or `None` where both are equal.
    pub fn difference(&self, wanted: &Self) -> Option<SchemaDifference> {
        if self.features == wanted.features {
            return None;
        }
        let only = |a: &Self, b: &Self| {
            let known: BTreeSet<_> = b.features.iter().map(|f| (&f.name, &f.unit)).collect();
            a.features
                .iter()
                .filter(|f| !known.contains(&(&f.name, &f.unit)))
                .map(|f| f.name.clone())
                .collect::<Vec<_>>()
        };
        let missing = only(wanted, self);
        let extra = only(self, wanted);
        let rest = |schema: &Self, without: &[String]| {
            let names = schema.features.iter().map(|f| f.name.clone());
            names.filter(|name| !without.contains(name)).collect::<Vec<_>>()
        };
        let reordered = rest(self, &extra)
            .into_iter()
            .zip(rest(wanted, &missing))
            .filter(|(have, want)| have != want)
            .map(|(have, _)| have)
            .collect();
        Some(SchemaDifference { missing, extra, reordered })
    }

    /// Refuses a list that is not the wanted one.
    ///
    /// # Errors
    /// [`Error::SchemaMismatch`] with the difference.
    pub fn require(&self, wanted: &Self) -> Result<(), Error> {
        match self.difference(wanted) {
            None => Ok(()),
            Some(difference) => Err(Error::SchemaMismatch { difference: Box::new(difference) }),
        }
    }
}

/// The most features of one model: ten times the standard list, small enough for a block of rows to stay in cache.
pub(crate) const MAX_WIDTH: usize = 4096;

fn narrow(value: Option<f64>) -> f32 {
    value.map(|value| value as f32).filter(|value| value.is_finite()).unwrap_or(f32::NAN)
}

impl fmt::Debug for FeatureSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FeatureSchema").field(&self.names()).finish()
    }
}

impl PartialEq for FeatureSchema {
    fn eq(&self, other: &Self) -> bool {
        self.features == other.features
    }
}

impl Eq for FeatureSchema {}

impl Serialize for FeatureSchema {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.features.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FeatureSchema {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let features = Vec::<Feature>::deserialize(deserializer)?;
        let names: Vec<_> = features.iter().map(|feature| feature.name.clone()).collect();
        let schema = Self::new(&names).map_err(D::Error::custom)?;
        match schema.features.iter().zip(&features).find(|(ours, theirs)| ours != theirs) {
            None => Ok(schema),
            Some((ours, theirs)) => Err(D::Error::custom(format!(
                "`{}` is in {}, the file says {}",
                ours.name, ours.unit, theirs.unit
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::profile;

    fn schema(names: &[&str]) -> FeatureSchema {
        FeatureSchema::new(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_pair_becomes_a_row_in_the_order_of_the_names() {
        let schema = schema(&[
            "device_l2_bytes",
            "co_runner_sm_active_ratio",
            "subject_sm_active_ratio",
            "subject_family=gemm",
            "subject_share_ratio",
            "co_runner_share_ratio",
            "subject_partition_effect_ratio",
            "co_runner_training_ratio",
            "sharing_mps_ratio",
            "sharing_streams_ratio",
            "subject_isolated_k80_hertz",
            "co_runner_workload=copy.x",
            "subject_workload=copy.x",
            "harness=gavel",
        ]);
        let subject = profile("gemm.x", "v100");
        let mut co_runner = profile("copy.x", "v100");
        co_runner.fields.insert("sm_active_ratio".into(), 0.9);
        let mut row = Vec::new();
        schema.encode(&subject, &co_runner, &"mps(0.25,0.75)".parse().unwrap(), &mut row);
        let wanted = [6_291_456.0, 0.9, 0.6, 1.0, 0.25, 0.75, 4.0, 1.0, 1.0, 0.0];
        assert_eq!(row[..10], wanted.map(|value: f64| value as f32));
        assert!(row[10].is_nan(), "an absent field is NaN");
        assert_eq!(row[11..], [1.0, 0.0, 0.0]);
        let values = schema.context_values("no chip", &SharingMode::Streams);
        assert!(values[0].is_nan());
        assert_eq!(values[1..], [0.0, 1.0, 0.0]);
    }

    #[test]
    fn standard_rows_are_a_few_slices() {
        let standard = FeatureSchema::standard();
        assert_eq!(standard.width(), 2 * (FIELDS.len() + 1) + 10);
        assert_eq!(standard.runs.len(), 3);
    }

    #[test]
    fn names_outside_the_rule_are_refused() {
        for name in [
            "",
            "speed",
            "subject_speed",
            "subject_Step_seconds",
            "subject_family=",
            "harness= ",
            "co_runner_workload=",
            "device_x_bytes",
        ] {
            assert!(FeatureSchema::new(&[name.to_owned()]).is_err(), "{name}");
        }
        assert!(FeatureSchema::new(&[]).is_err());
        assert!(FeatureSchema::new(&["device_sm_total".to_owned(), "device_sm_total".to_owned()]).is_err());
        let error = FeatureSchema::new(&["co_runner_sm_active_rati".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("did you mean `co_runner_sm_active_ratio`"), "{error}");
    }

    #[test]
    fn differences_are_listed() {
        let have = schema(&["subject_a_ratio", "subject_b_ratio", "subject_c_ratio"]);
        let want = schema(&["subject_b_ratio", "subject_a_ratio", "subject_d_ratio"]);
        let difference = have.difference(&want).unwrap();
        assert_eq!(
            difference.to_string(),
            "missing subject_d_ratio; extra subject_c_ratio; reordered subject_a_ratio, subject_b_ratio"
        );
        assert!(have.difference(&have).is_none());
        assert!(have.require(&want).is_err());
        assert_ne!(have.digest(), want.digest());
    }

    #[test]
    fn serde_keeps_the_list_and_checks_units() {
        let have = schema(&["subject_a_ratio", "device_l2_bytes"]);
        let text = serde_json::to_string(&have).unwrap();
        assert_eq!(serde_json::from_str::<FeatureSchema>(&text).unwrap(), have);
        assert!(serde_json::from_str::<FeatureSchema>(&text.replace("\"ratio\"", "\"percent\"")).is_err());
    }
}
