//! The folder of a sweep: what determines it, and every finished run, safe against a kill at any moment.

use super::{Sweep, SweepRun};
use crate::Error;
use elastico_core::Digest;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

/// What determines the results.
const INPUTS: &str = "sweep.json";
/// One line for each finished run.
const RUNS: &str = "runs.jsonl";

/// An open folder; no other process can open it.
///
/// `runs.jsonl` has one line for each finished run in the order in which they finished, each synced before the next. A
/// torn last line is dropped when the folder is opened again.
#[derive(Debug)]
pub struct SweepFolder {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines.
    length: u64,
    done: BTreeMap<Digest, SweepRun>,
}

impl SweepFolder {
    /// Opens a folder for a sweep, or makes it; with `resume` it may have runs of the same sweep.
    ///
    /// # Errors
    /// A folder that cannot be written, is in use, holds runs (without `resume`), or runs of another sweep (with what
    /// differs); a line that is no run.
    pub fn open(folder: &Path, sweep: &Sweep, resume: bool) -> Result<Self, Error> {
        let write = |source| Error::Write { path: folder.into(), source };
        std::fs::create_dir_all(folder).map_err(write)?;
        let path = folder.join(RUNS);
        let failed = |source| Error::Write { path: path.clone(), source };
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(refuse(
                    folder,
                    "is in use by another sweep",
                    "wait for it, or choose another folder",
                ));
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let length = whole_lines(&text);
        let inputs = folder.join(INPUTS);
        if length > 0 {
            if !resume {
                return Err(refuse(
                    folder,
                    "holds finished runs already",
                    "go on with them by --resume, or choose another folder",
                ));
            }
            compare(folder, &inputs, &sweep.description)?;
        } else {
            write_whole(&inputs, &sweep.description)?;
        }
        let done = read(&path, &text[..length])?;
        if length < text.len() {
            file.set_len(length as u64).map_err(failed)?;
        }
        Ok(Self { path, file, length: length as u64, done })
    }

    /// The finished runs of a sweep, of a folder that is left as it is. Another process may be adding to it.
    ///
    /// # Errors
    /// A folder that no sweep has made, one of another sweep (with what differs), one without a finished run, or a line
    /// that is no run.
    pub fn runs(folder: &Path, sweep: &Sweep) -> Result<BTreeMap<Digest, SweepRun>, Error> {
        let (path, inputs) = (folder.join(RUNS), folder.join(INPUTS));
        let remedy = "name the folder that `elastico simulate sweep --out` has made";
        if !folder.is_dir() {
            return Err(refuse(folder, "is not there", remedy));
        }
        if !(path.is_file() && inputs.is_file()) {
            return Err(refuse(folder, format!("holds no sweep: it lacks {INPUTS} or {RUNS}"), remedy));
        }
        compare(folder, &inputs, &sweep.description)?;
        let text = std::fs::read(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
        let runs = read(&path, &text[..whole_lines(&text)])?;
        if runs.is_empty() {
            let remedy = "wait for the first run of the sweep to finish, or name another folder";
            return Err(refuse(folder, "has no finished run", remedy));
        }
        Ok(runs)
    }

    /// Finished runs by their keys. A run that failed is no part of it: it is done again.
    pub const fn done(&self) -> &BTreeMap<Digest, SweepRun> {
        &self.done
    }

    /// Appends a run and waits until it is on the disk.
    ///
    /// # Errors
    /// What the system says; then the folder is as before.
    pub fn append(&mut self, run: &SweepRun) -> Result<(), Error> {
        let mut line = serde_json::to_vec(run).map_err(Error::Unwritable)?;
        line.push(b'\n');
        let result = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        if let Err(source) = result {
            // Where even this fails, the torn line is dropped at the next opening.
            let _ = self.file.set_len(self.length);
            return Err(Error::Write { path: self.path.clone(), source });
        }
        self.length += line.len() as u64;
        Ok(())
    }
}

/// Bytes up to the end of the last whole line.
fn whole_lines(text: &[u8]) -> usize {
    text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

fn read(path: &Path, lines: &[u8]) -> Result<BTreeMap<Digest, SweepRun>, Error> {
    let mut done = BTreeMap::new();
    for (index, line) in lines.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let run: SweepRun = serde_json::from_slice(line).map_err(|error| Error::Line {
            path: path.into(),
            line: index as u64 + 1,
            why: format!("no finished run: {error}"),
        })?;
        if run.error.is_none() {
            done.insert(run.key.clone(), run);
        }
    }
    Ok(done)
}

fn refuse(folder: &Path, why: impl Into<String>, remedy: &'static str) -> Error {
    Error::Folder { path: folder.into(), why: why.into(), remedy }
}

/// Refuses a folder of another sweep.
fn compare(folder: &Path, inputs: &Path, own: &Value) -> Result<(), Error> {
    let remedy = "take the sweep that made the folder, or choose another folder";
    let text = crate::document::read(inputs)?;
    let found: Value = crate::document::json(&text, inputs, "description of a sweep")?;
    let mut differences = Vec::new();
    differ(&found, own, "", &mut differences);
    if differences.is_empty() {
        return Ok(());
    }
    let listed = differences.iter().take(4).cloned().collect::<Vec<_>>().join("; ");
    let more = differences.len().saturating_sub(4);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(refuse(folder, format!("holds runs of another sweep: {listed}{more}"), remedy))
}

/// Where two documents differ, each place with both values.
fn differ(there: &Value, here: &Value, place: &str, differences: &mut Vec<String>) {
    if let (Value::Object(there), Value::Object(here)) = (there, here) {
        let names: std::collections::BTreeSet<&String> = there.keys().chain(here.keys()).collect();
        for name in names {
            let inner = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
            let of = |document: &serde_json::Map<String, Value>| document.get(name).cloned();
            let (there, here) = (of(there).unwrap_or(Value::Null), of(here).unwrap_or(Value::Null));
            differ(&there, &here, &inner, differences);
        }
    } else if there != here {
        differences.push(format!("`{place}` is {} there and {} here", shortened(there), shortened(here)));
    }
}

fn shortened(value: &Value) -> String {
    let text = if value.is_null() { "absent".to_owned() } else { value.to_string() };
    if text.chars().count() > 40 { format!("{}…", text.chars().take(39).collect::<String>()) } else { text }
}

/// Writes a document beside its place, syncs it and renames it.
fn write_whole(path: &Path, document: &Value) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.into(), source };
    let beside = path.with_extension("json.part");
    let mut text = serde_json::to_vec_pretty(document).map_err(Error::Unwritable)?;
    text.push(b'\n');
    let mut file = File::create(&beside).map_err(failed)?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&beside, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_differs_is_named_by_its_place() {
        let mut differences = Vec::new();
        let there = json!({"spec": {"seeds": 3, "loads": [1.0]}, "digests": {"a": "x"}});
        let here = json!({"spec": {"seeds": 4, "loads": [1.0]}, "digests": {"b": "x"}});
        differ(&there, &here, "", &mut differences);
        assert_eq!(
            differences,
            [
                "`digests.a` is \"x\" there and absent here",
                "`digests.b` is absent there and \"x\" here",
                "`spec.seeds` is 3 there and 4 here",
            ]
        );
    }
}
