//! Bringing in what others measured. Imported rows carry the device kind `imported`, whatever was measured on.

mod echo;
mod gavel;
mod gpulets;
mod lines;
mod mapping;
mod miso;
mod pairs;
mod rows;
mod sensitivity;
mod sheet;

pub use echo::echo;
pub use gavel::gavel;
pub use gpulets::gpulets;
pub use mapping::MAPPING_TEMPLATE;
pub use miso::miso;
pub use pairs::pairs_csv;
pub use sensitivity::llm_sensitivity;

use crate::error::Error;
use crate::schema::pair_id;
use elastico_core::{DeviceKind, Digest, Provenance, SharingMode};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

/// No published file of measurements comes near.
const MOST_BYTES: u64 = 1 << 32;

/// Reads a file, or what a pipe brings. A device gives bytes for ever, and is refused.
fn read(file: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::io("read", file)(source);
    let refuse = |problem: &str| Err(failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, problem)));
    let found = file.metadata().map_err(failed)?;
    #[cfg(unix)]
    let is_pipe = std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type());
    #[cfg(not(unix))]
    let is_pipe = false;
    if found.is_dir() {
        return Err(failed(std::io::ErrorKind::IsADirectory.into()));
    }
    if !found.is_file() && !is_pipe {
        return refuse("it is neither a file nor a pipe");
    }
    let mut content = Vec::new();
    let opened = std::fs::File::open(file).map_err(failed)?;
    opened.take(MOST_BYTES + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > MOST_BYTES {
        return refuse("it has more than 4 GiB");
    }
    Ok(content)
}

/// The content without the mark of a byte order that some editors put before UTF-8.
fn without_mark(content: &[u8]) -> &[u8] {
    content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content)
}

/// Refuses a folder that lacks one of the files of its import.
fn need_files(folder: &Path, names: &[String]) -> Result<(), Error> {
    if !folder.is_dir() || names.iter().all(|name| folder.join(name).exists()) {
        return Ok(());
    }
    Err(Error::MissingFiles { folder: folder.to_owned(), needed: names.join(", ") })
}

/// Where an import comes from: the files with their content, in a fixed order.
fn provenance(name: &str, files: &[(&Path, &[u8])], facts: BTreeMap<String, String>) -> Provenance {
    let mut facts = facts;
    // The folder is the importer's own business; the content is pinned by its digest.
    let names: Vec<_> =
        files.iter().filter_map(|(file, _)| Some(file.file_name()?.to_string_lossy())).collect();
    if !names.is_empty() {
        facts.insert("file".to_owned(), names.join(", "));
    }
    Provenance {
        elastico_version: env!("CARGO_PKG_VERSION").to_owned(),
        device_kind: DeviceKind::Imported,
        device: name.to_owned(),
        seed: None,
        source: name.to_owned(),
        source_digest: Some(Digest::of(files.iter().map(|(_, content)| content))),
        facts,
    }
}

/// Facts about a source that is known.
fn facts(facts: &[(&str, &str)]) -> BTreeMap<String, String> {
    facts.iter().map(|(name, fact)| ((*name).to_owned(), (*fact).to_owned())).collect()
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
