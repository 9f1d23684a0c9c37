//! A campaign that comes back from another machine.

use crate::failure::usage;
use anyhow::Context as _;
use elastico_datasets::Dataset;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Name of the archive that the campaign script leaves.
const ARCHIVE: &str = "campaign.tar.gz";
/// What the dataset is made of; the archive's own Parquet files are not trusted but made again from these.
const NEEDED: [&str; 2] = ["plan.jsonl", "journal.jsonl"];
/// A journal of a million trials is smaller.
const LIMIT: u64 = 4 << 30;

/// Assembles the dataset of a campaign's journal: a folder of a run, a folder that holds the archive, or the archive.
pub(super) fn read(source: &Path) -> anyhow::Result<Dataset> {
    let archive: PathBuf = if source.is_dir() {
        if source.join(NEEDED[1]).exists() {
            return Ok(elastico_profiler::assemble(source)?);
        }
        source.join(ARCHIVE)
    } else {
        source.to_owned()
    };
    if !archive.is_file() {
        return Err(usage(
            format!("`{}` holds no campaign: neither {} nor {ARCHIVE} is there", source.display(), NEEDED[1]),
            "name the folder of `profile run --out`, or what profiler/gpu-campaign.sh left",
        ));
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    unpack(&archive, folder.path())?;
    Ok(elastico_profiler::assemble(folder.path())?)
}

/// Takes out the two files by name, wherever they lie in the archive, and nothing else.
fn unpack(archive: &Path, folder: &Path) -> anyhow::Result<()> {
    let unreadable = || format!("cannot read the archive `{}`", archive.display());
    let file = File::open(archive).with_context(unreadable)?;
    let mut entries = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let mut found = Vec::new();
    for entry in entries.entries().with_context(unreadable)? {
        let entry = entry.with_context(unreadable)?;
        let path = entry.path().with_context(unreadable)?.into_owned();
        let Some(name) = NEEDED.into_iter().find(|name| path.file_name().is_some_and(|last| last == *name))
        else {
            continue;
        };
        if found.contains(&name) {
            return Err(usage(
                format!("the archive `{}` holds more than one {name}", archive.display()),
                "unpack it and name one of the folders",
            ));
        }
        if entry.header().entry_type() != tar::EntryType::Regular || entry.size() > LIMIT {
            return Err(usage(
                format!("`{}` in the archive `{}` is no plain file", path.display(), archive.display()),
                "pack the folder of the run again",
            ));
        }
        let mut target = File::create(folder.join(name)).context("cannot unpack the archive")?;
        std::io::copy(&mut entry.take(LIMIT), &mut target).with_context(unreadable)?;
        found.push(name);
    }
    match NEEDED.into_iter().find(|name| !found.contains(name)) {
        None => Ok(()),
        Some(missing) => Err(usage(
            format!("the archive `{}` holds no {missing}", archive.display()),
            "it has to hold the folder of one run",
        )),
    }
}
