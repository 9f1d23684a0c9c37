//! What a placement rests on.

use elastico_core::{DeviceKind, Digest};
use elastico_models::Predictor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The model that judged the pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelIdentity {
    /// What was trained.
    pub learner: String,
    /// Digest of the data that it was trained on.
    #[schemars(with = "Option<String>")]
    pub training_digest: Option<Digest>,
    /// Digest of its ordered feature list.
    #[schemars(with = "String")]
    pub features_digest: Digest,
    /// The kinds of devices that its data come from.
    #[schemars(with = "Vec<String>")]
    pub device_kinds: Vec<DeviceKind>,
    /// The devices that it was trained on; what it says of others is outside its domain.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Nominal coverage of the upper bounds.
    pub conformal_level: f64,
}

impl ModelIdentity {
    /// Whether the model was trained on this chip.
    pub(crate) fn knows_device(&self, chip: &str) -> bool {
        elastico_models::knows_device(&self.devices, chip)
    }

    /// The identity of a predictor's model.
    pub fn of(predictor: &dyn Predictor) -> Self {
        let metadata = predictor.metadata();
        Self {
            learner: metadata.learner.clone(),
            training_digest: metadata.training_digest.clone(),
            features_digest: metadata.features_digest.clone(),
            device_kinds: metadata.device_kinds.clone(),
            devices: metadata.devices.clone(),
            conformal_level: metadata.conformal_level,
        }
    }
}

/// What a result rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Basis {
    /// Version of ElastiCo.
    pub elastico_version: String,
    /// The model, where pairs were judged.
    pub model: Option<ModelIdentity>,
    /// The kinds of devices behind profiles and model.
    #[schemars(with = "BTreeSet<String>")]
    pub device_kinds: BTreeSet<DeviceKind>,
    /// Whether any of it is simulated: such a result is no measurement.
    pub simulated: bool,
}

impl Basis {
    pub(crate) fn new(kinds: impl IntoIterator<Item = DeviceKind>, model: Option<ModelIdentity>) -> Self {
        let of_model = model.iter().flat_map(|model| model.device_kinds.iter().copied());
        let device_kinds: BTreeSet<DeviceKind> = kinds.into_iter().chain(of_model).collect();
        Self {
            elastico_version: env!("CARGO_PKG_VERSION").to_owned(),
            simulated: device_kinds.contains(&DeviceKind::Simulated),
            model,
            device_kinds,
        }
    }
}
