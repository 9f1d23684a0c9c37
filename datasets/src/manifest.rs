//! What a dataset says about itself.

use crate::error::Error;
use elastico_core::{DeviceKind, Digest, Provenance};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The schema id that this version reads and writes.
pub const SCHEMA: &str = "elastico.dataset/2";

/// The versions that can be read, each with its number; the last is [`SCHEMA`].
pub(crate) const READABLE: [(&str, u32); 2] = [("elastico.dataset/1", 1), (SCHEMA, 2)];

/// The manifest of a dataset: `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The schema id, [`SCHEMA`].
    pub schema: String,
    /// Where the numbers come from, sorted. More than one only where a merge was told so.
    pub device_kinds: Vec<DeviceKind>,
    /// Rows of the isolated table.
    pub isolated_rows: u64,
    /// Rows of the pairs table.
    pub pairs_rows: u64,
    /// Digest of the rows, whatever the files that hold them.
    pub content_digest: Digest,
    /// What was left out, by source and reason.
    #[serde(default)]
    pub exclusions: Vec<Exclusion>,
    /// What the numbers came from.
    pub provenance: Vec<Provenance>,
    /// The files as written. A part that is not listed is not read.
    #[serde(default)]
    pub parts: Vec<Part>,
}

/// Rows that were left out for one reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    /// The campaign, file or command, as in the provenance.
    pub source: String,
    /// Why.
    pub reason: String,
    /// How many.
    pub rows: u64,
}

/// One Parquet file of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Path inside the folder, with `/`.
    pub path: String,
    /// Digest of its bytes.
    pub digest: Digest,
}

impl Manifest {
    /// What was left out by reason, over all sources.
    pub fn exclusions_by_reason(&self) -> BTreeMap<&str, u64> {
        let mut reasons = BTreeMap::new();
        for exclusion in &self.exclusions {
            *reasons.entry(exclusion.reason.as_str()).or_default() += exclusion.rows;
        }
        reasons
    }

    /// A name for messages: the first source.
    pub(crate) fn name(&self) -> &str {
        self.provenance.first().map_or("a dataset without provenance", |provenance| &provenance.source)
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("texts and numbers always serialise");
        json.push(b'\n');
        json
    }

    /// Reads the manifest of a folder; the version is checked before the fields, since those may have moved.
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Version {
            schema: String,
        }
        let file = folder.join("manifest.json");
        let bytes = std::fs::read(&file).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound if folder.is_dir() => {
                Error::NotADataset { path: folder.to_owned(), reason: "it has no manifest.json" }
            }
            std::io::ErrorKind::NotADirectory => {
                Error::NotADataset { path: folder.to_owned(), reason: "it is a file" }
            }
            std::io::ErrorKind::NotFound => Error::io("read", folder)(source),
            _ => Error::io("read", &file)(source),
        })?;
        let what = "the manifest of a dataset";
        let version: Version = serde_json::from_slice(&bytes).map_err(Error::json(what, &file))?;
        if !READABLE.iter().any(|(name, _)| *name == version.schema) {
            return Err(Error::Version { file, found: version.schema });
        }
        serde_json::from_slice(&bytes).map_err(Error::json(what, &file))
    }
}
