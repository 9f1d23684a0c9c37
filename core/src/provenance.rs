//! Where an artefact comes from.

use crate::{DeviceKind, Seed};
use serde::{Deserialize, Serialize};

/// What is needed to tell where numbers come from, and to make them again.
///
/// There is no wall-clock time in it: the artefacts of a simulated device are byte-identical for one seed. Times of
/// real measurements stand in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Version of ElastiCo that wrote the artefact.
    pub elastico_version: String,
    /// What produced the numbers: measured on a device, simulated, or imported.
    pub device_kind: DeviceKind,
    /// The device as asked for, for example `sim:h100`, or the origin of an import.
    pub device: String,
    /// The seed, where randomness took part.
    pub seed: Option<Seed>,
    /// The campaign, file or command that led to it.
    pub source: String,
    /// Digest of the source's content.
    pub source_digest: Option<crate::Digest>,
    /// Free facts: driver, host processor, licence of imported data.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub facts: std::collections::BTreeMap<String, String>,
}
