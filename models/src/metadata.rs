//! What a model file says about itself.

use crate::FeatureSchema;
use elastico_core::{DeviceKind, Digest, SharingMode, chip};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema id of the metadata.
pub(crate) const SCHEMA: &str = "elastico.model/1";
/// Whether a schema id is of a later version than ours.
pub(crate) fn is_newer(schema: &str) -> bool {
    let version = |schema: &str| schema.strip_prefix("elastico.model/")?.parse::<u32>().ok();
    version(schema) > version(SCHEMA)
}

/// The key of the metadata in the ONNX file; its value is the JSON of [`ModelMetadata`].
pub(crate) const KEY: &str = "elastico.metadata";

/// What a model reads, what it was trained on, and how well it does.
///
/// It stands as JSON under `elastico.metadata` in the file's `metadata_props`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelMetadata {
    /// `elastico.model/1`.
    pub schema: String,
    /// Version of ElastiCo that trained the model.
    pub elastico_version: String,
    /// The learner, for example `extra_trees`.
    pub learner: String,
    /// Raw features in the order of the input's columns.
    pub features: FeatureSchema,
    /// [`FeatureSchema::digest`] of `features`.
    pub features_digest: Digest,
    /// Least and largest training value of each raw feature, in their order.
    #[serde(default)]
    pub training_ranges: Vec<(f32, f32)>,
    /// Features that the graph derives from the raw ones.
    pub physics_features: Vec<String>,
    /// Device models in the training data.
    pub devices: Vec<String>,
    /// Of each known device of `devices`, the values of the features that name a constant of the device: what a
    /// scheduler without the table of chips writes into its rows.
    #[serde(default)]
    pub device_constants: BTreeMap<String, BTreeMap<String, f64>>,
    /// Whether the training data were measured, simulated or imported.
    pub device_kinds: Vec<DeviceKind>,
    /// Families of sharing modes in the training data, as [`elastico_core::SharingMode::family`] names them.
    pub sharing_modes: Vec<String>,
    /// The share of slowdowns that should lie under `slowdown_upper`.
    pub conformal_level: f64,
    /// The share that did, on held-out groups; `None` if it was not measured.
    pub achieved_coverage: Option<f64>,
    /// The bound's distance from the point in log slowdown.
    pub upper_offset_log: f64,
    /// Content digest of the training dataset.
    pub training_digest: Option<Digest>,
    /// Rows that the model was fitted on.
    pub training_rows_total: u64,
    /// Scores by split and metric.
    pub scores: BTreeMap<String, BTreeMap<String, f64>>,
    /// What few-shot calibration starts from; absent in a file of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior: Option<Prior>,
    /// Free facts: hyperparameters, seed, licence of the data.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

impl ModelMetadata {
    /// Metadata that know the features and the learner; the rest is to be filled in.
    ///
    /// Export sets `schema`, `features`, `features_digest`, `training_ranges`, `physics_features`, `device_constants` and
    /// `upper_offset_log` from the model itself.
    pub fn new(features: FeatureSchema, learner: impl Into<String>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            elastico_version: env!("CARGO_PKG_VERSION").to_owned(),
            learner: learner.into(),
            features_digest: features.digest(),
            features,
            training_ranges: Vec::new(),
            physics_features: Vec::new(),
            devices: Vec::new(),
            device_constants: BTreeMap::new(),
            device_kinds: Vec::new(),
            sharing_modes: Vec::new(),
            conformal_level: 0.9,
            achieved_coverage: None,
            upper_offset_log: 0.0,
            training_digest: None,
            training_rows_total: 0,
            scores: BTreeMap::new(),
            prior: None,
            facts: BTreeMap::new(),
        }
    }

    /// Whether the model was trained, or calibrated, on this device. Two names of one chip are one device.
    ///
    /// A model does not transfer: on a device that it does not know its numbers are no predictions, whatever the domain of
    /// its features says. A model that names no device at all is taken at its word everywhere.
    pub fn knows_device(&self, device: &str) -> bool {
        knows_device(&self.devices, device)
    }

    /// Whether the training data held this family of sharing modes: under another one the model's numbers are no
    /// predictions either. A model that names no mode at all is taken at its word.
    pub fn knows_sharing(&self, mode: &SharingMode) -> bool {
        self.sharing_modes.is_empty() || self.sharing_modes.iter().any(|known| known == mode.family())
    }

    /// What no model of this version says about itself, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        /// More than the logarithm of the widest span of slowdowns, 0.5 to 1000.
        const MOST_OFFSET_LOG: f64 = 7.7;
        let between = |name: &str, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(format!("its {name} is {value:e}, not {least} to {most}"))
        };
        between("upper_offset_log", self.upper_offset_log, 0.0, MOST_OFFSET_LOG)?;
        between("conformal_level", self.conformal_level, 0.0, 1.0)?;
        between("achieved_coverage", self.achieved_coverage.unwrap_or(0.0), 0.0, 1.0)?;
        let Some(prior) = &self.prior else { return Ok(()) };
        for offset in prior.upper_offset_log_by_probes.values() {
            between("upper_offset_log_by_probes", *offset, 0.0, MOST_OFFSET_LOG)?;
        }
        for belief in prior.belief_by_probes.values() {
            between("belief_by_probes", *belief, 0.0, 1.0)?;
        }
        for variance in prior.variances.values() {
            between("variances", *variance, 0.0, f64::from(f32::MAX))?;
        }
        Ok(())
    }
}

/// Whether a device is among those of a model; see [`ModelMetadata::knows_device`].
pub fn knows_device(devices: &[String], device: &str) -> bool {
    let name = |device: &str| chip(device).map_or(device.to_lowercase(), |chip| chip.name.to_owned());
    let asked = name(device);
    devices.is_empty() || devices.iter().any(|known| name(known) == asked)
}

/// Whom a model knows, and how far it was off where it did not: the prior of its calibration to new workloads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prior {
    /// Families in the training data, sorted.
    pub families: Vec<String>,
    /// Workloads in the training data, sorted.
    pub workloads: Vec<String>,
    /// Variances of the log residuals of held-out families by what causes them: `subject_family`, `subject`,
    /// `co_runner_family`, `co_runner` and `noise`.
    pub variances: BTreeMap<String, f64>,
    /// By the number of probes of each new workload: the bound's distance from the point in log slowdown.
    pub upper_offset_log_by_probes: BTreeMap<u32, f64>,
    /// By the number of probes of each new workload: how far their offsets are believed, 0 to 1. Wholly where it is absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub belief_by_probes: BTreeMap<u32, f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_known_by_each_of_its_names_and_no_other_is() {
        let features = FeatureSchema::new(&["subject_sm_active_ratio".to_owned()]).unwrap();
        let mut metadata = ModelMetadata::new(features, "mean");
        assert!(metadata.knows_device("h100"));
        metadata.devices = vec!["h100".to_owned(), "cpu of this machine".to_owned()];
        assert!(metadata.knows_device("H100") && metadata.knows_device("cpu of this machine"));
        assert!(!metadata.knows_device("a100") && !metadata.knows_device("h1000"));
    }

    #[test]
    fn a_sharing_mode_is_known_by_its_family_and_numbers_have_their_range() {
        let features = FeatureSchema::new(&["subject_sm_active_ratio".to_owned()]).unwrap();
        let mut metadata = ModelMetadata::new(features, "mean");
        let mps = SharingMode::Mps { subject_percent: 30, co_runner_percent: 70 };
        assert!(metadata.knows_sharing(&SharingMode::Streams), "it names none");
        metadata.sharing_modes = vec!["mps".to_owned()];
        assert!(metadata.knows_sharing(&mps) && !metadata.knows_sharing(&SharingMode::Streams));
        metadata.check().unwrap();
        metadata.upper_offset_log = 1e300;
        assert_eq!(metadata.check().unwrap_err(), "its upper_offset_log is 1e300, not 0 to 7.7");
    }
}
