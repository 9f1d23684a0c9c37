//! Bringing in what others measured. Imported rows carry the device kind `imported`, whatever was measured on.

mod gavel;
mod lines;
mod mapping;
mod pairs;

pub use gavel::gavel;
pub use pairs::pairs_csv;

use crate::schema::pair_id;
use elastico_core::{DeviceKind, Digest, Provenance, SharingMode};
use std::collections::BTreeMap;
use std::path::Path;

/// Where an import comes from.
fn provenance(name: &str, file: &Path, content: &[u8], facts: BTreeMap<String, String>) -> Provenance {
    let mut facts = facts;
    if let Some(file) = file.file_name() {
        // The folder is the importer's own business; the content is pinned by its digest.
        facts.insert("file".to_owned(), file.to_string_lossy().into_owned());
    }
    Provenance {
        elastico_version: env!("CARGO_PKG_VERSION").to_owned(),
        device_kind: DeviceKind::Imported,
        device: name.to_owned(),
        seed: None,
        source: name.to_owned(),
        source_digest: Some(Digest::of([content])),
        facts,
    }
}

/// An id of a trial for people, or its digest where names are long.
fn trial_id(source: &str, pair_id: &str, discriminator: &str, repeat: usize) -> String {
    let separator = if discriminator.is_empty() { "" } else { " " };
    let readable = format!("{source}: {pair_id}{separator}{discriminator} #{repeat}");
    if readable.len() <= 200 { readable } else { format!("{source}#{}", Digest::of([readable]).short()) }
}

/// An id of an isolated run.
fn isolated_trial_id(source: &str, workload: &str, device: &str, share_percent: u8) -> String {
    let share = f64::from(share_percent) / 100.0;
    let readable = format!("{source}: {workload} @ {device} {share}");
    if readable.len() <= 200 { readable } else { format!("{source}#{}", Digest::of([readable]).short()) }
}

/// A pair id that fits the limit of ids.
fn bounded_pair_id(subject: &str, co_runner: &str, device: &str, sharing: &SharingMode) -> String {
    let readable = pair_id(subject, co_runner, device, sharing);
    if readable.len() <= 150 { readable } else { format!("pair#{}", Digest::of([readable]).short()) }
}
