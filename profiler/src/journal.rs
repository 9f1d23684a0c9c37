//! The journal: one line per trial, appended and never changed.
//!
//! The first line says under which conditions it was begun. Each result is written as one line and synchronised
//! before the next trial starts; on a simulated device, whose results come back identically, every 64 lines. A process
//! that dies while it writes leaves a line without an end, which is cut off when the journal is opened again.
//!
//! Each line ends with a digest of itself, its last field: a digit that changed on a disk, in a transfer or by hand is
//! found when the journal is read. Lines without one, of earlier versions, are read all the same.

use crate::Error;
use crate::device::DeviceIdentity;
use crate::observation::Observation;
use crate::plan::Plan;
use elastico_core::{DeviceKind, Digest, Seed};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Version of the journal's format.
pub const SCHEMA: &str = "elastico.journal/1";

/// Name of the journal in a campaign's folder.
pub const FILE: &str = "journal.jsonl";

/// The conditions under which a journal was begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// `elastico.journal/1`.
    pub schema: String,
    /// Digest of the campaign.
    pub campaign: Digest,
    /// Digest of the plan.
    pub plan: Digest,
    /// The campaign's seed.
    pub seed: Seed,
    /// Version of this program.
    pub version: String,
    /// What kind of numbers the device yields.
    pub device_kind: DeviceKind,
    /// The device's model.
    pub model: String,
    /// Memory of the device in bytes.
    pub memory: f64,
    /// Driver, host processor, constants of the model.
    pub facts: BTreeMap<String, String>,
}

impl Header {
    /// The conditions of now.
    pub fn new(plan: &Plan, device: &DeviceIdentity) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            campaign: plan.header.campaign.clone(),
            plan: Digest::of([plan.to_jsonl()]),
            seed: plan.header.seed,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device_kind: device.kind,
            model: device.model.clone(),
            memory: device.memory.get(),
            facts: device.facts.clone(),
        }
    }

    /// The first condition that differs from that of `now`.
    fn changed(&self, now: &Self) -> Option<Error> {
        let device = |header: &Self| {
            let facts: Vec<String> =
                header.facts.iter().map(|(key, value)| format!("{key} {value}")).collect();
            format!("{} {} ({})", header.device_kind, header.model, facts.join(", "))
        };
        let pairs = [
            ("device", device(self), device(now)),
            ("version", self.version.clone(), now.version.clone()),
            ("campaign", self.campaign.short().to_owned(), now.campaign.short().to_owned()),
            ("plan", self.plan.short().to_owned(), now.plan.short().to_owned()),
        ];
        let (what, before, now) = pairs.into_iter().find(|(_, before, now)| before != now)?;
        Some(Error::Changed { what, before, now })
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Header(Box<Header>),
    Observation(Box<Observation>),
}

/// What stands in a journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// The conditions; those of the last forced resume, if there was one. Absent where not even the header is whole.
    pub header: Option<Header>,
    /// Observations in the order in which they were made.
    pub observations: Vec<Observation>,
    /// Length in bytes up to the last whole line.
    pub whole: u64,
    /// Whether a torn line follows.
    pub is_torn: bool,
}

/// Reads a journal without touching it.
///
/// # Errors
/// [`Error::Read`], or [`Error::Corrupt`] where a line other than the last is damaged.
pub fn read(path: &Path) -> Result<Content, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::read(path, source))?;
    parse(&bytes, path)
}

/// What stands before the digest at the end of a line.
const SEAL: &str = ",\"digest\":\"";
/// Hexadecimal digits of a line's digest: a chance of 4e-15 that damage goes unseen.
const SEAL_DIGITS: usize = 12;

/// Adds the digest to a JSON object.
fn seal(object: &str) -> String {
    let body = object.strip_suffix('}').unwrap_or(object);
    format!("{body}{SEAL}{}\"}}", Digest::of([body]).short())
}

/// Takes the digest off a line: the object without it, and whether it fits; `None` for a line that has none.
fn unseal(line: &[u8]) -> Option<(Vec<u8>, bool)> {
    let body = line.strip_suffix(b"\"}")?;
    let (body, digest) = body.split_at_checked(body.len().checked_sub(SEAL_DIGITS)?)?;
    let body = body.strip_suffix(SEAL.as_bytes())?;
    let fits = Digest::of([body]).short().as_bytes() == digest;
    Some(([body, b"}"].concat(), fits))
}

fn parse(bytes: &[u8], path: &Path) -> Result<Content, Error> {
    let mut content = Content { header: None, observations: Vec::new(), whole: 0, is_torn: false };
    let mut rest = bytes;
    let mut number = 0;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        number += 1;
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        let (object, fits) = unseal(line).unwrap_or_else(|| (line.to_vec(), true));
        if !fits && !after.is_empty() {
            let reason = "the line was changed after it was written: its digest does not fit".to_owned();
            return Err(Error::Corrupt { path: path.to_owned(), line: number, reason });
        }
        let line = object.as_slice();
        let parsed = serde_json::from_slice::<Line>(line);
        match parsed {
            // A power cut can leave a last line of the right length and wrong content.
            _ if !fits => {
                content.is_torn = true;
                return Ok(content);
            }
            Ok(Line::Header(header)) if header.schema == SCHEMA => content.header = Some(*header),
            Ok(Line::Header(header)) => {
                let reason = format!("the schema is `{}`, this version reads `{SCHEMA}`", header.schema);
                return Err(Error::Corrupt { path: path.to_owned(), line: number, reason });
            }
            Ok(Line::Observation(observation)) if content.header.is_some() => {
                content.observations.push(*observation);
            }
            Err(_) if after.is_empty() => {
                content.is_torn = true;
                return Ok(content);
            }
            Ok(Line::Observation(_)) => {
                let reason = "a result stands before the header".to_owned();
                return Err(Error::Corrupt { path: path.to_owned(), line: number, reason });
            }
            Err(_) => {
                // The untagged error says only that nothing fits; that of the likelier form says what is wrong.
                let reason = serde_json::from_slice::<Observation>(line).err().map_or_else(
                    || "not a line of a journal".to_owned(),
                    |error| format!("the line is damaged: {error}"),
                );
                return Err(Error::Corrupt { path: path.to_owned(), line: number, reason });
            }
        }
        content.whole += end as u64 + 1;
        rest = after;
    }
    content.is_torn = !rest.is_empty();
    Ok(content)
}

/// Where lines go; a trait so that a full disk can be tested.
pub(crate) trait Sink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes all that was appended durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts off what lies behind `length`.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Sink for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.seek(SeekFrom::Start(length)).map(|_| ())
    }
}

/// A journal that is being written.
pub struct Journal {
    path: PathBuf,
    sink: Box<dyn Sink>,
    length: u64,
    unsynced: u32,
    sync_every: u32,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("path", &self.path)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens or begins the journal of a folder; a torn last line is cut off.
    ///
    /// # Errors
    /// [`Error::Changed`] where it was begun under other conditions and `force` is not set; errors of reading and
    /// writing.
    pub fn open(folder: &Path, header: &Header, force: bool) -> Result<(Self, Vec<Observation>), Error> {
        let path = folder.join(FILE);
        let is_new = !path.exists();
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|source| Error::write(&path, source))?;
        let content = if is_new {
            Content { header: None, observations: Vec::new(), whole: 0, is_torn: false }
        } else {
            read(&path)?
        };
        let changed = content.header.as_ref().and_then(|before| before.changed(header));
        if let Some(error) = changed.filter(|_| !force) {
            return Err(error);
        }
        let sync_every = if header.device_kind == DeviceKind::Simulated { 64 } else { 1 };
        let mut journal = Self { path, sink: Box::new(file), length: content.whole, unsynced: 0, sync_every };
        journal.sink.cut(content.whole).map_err(|source| Error::write(&journal.path, source))?;
        if content.header.as_ref() != Some(header) {
            journal.append(header, "header")?;
            journal.sync()?;
            // The name of a new file is durable only with its folder.
            File::open(folder)
                .and_then(|folder| folder.sync_all())
                .map_err(|source| Error::write(folder, source))?;
        }
        Ok((journal, content.observations))
    }

    /// Appends the result of a trial and returns it as it will be read back.
    ///
    /// # Errors
    /// [`Error::Append`]; the journal then ends with the result before.
    pub fn add(&mut self, observation: &Observation) -> Result<Observation, Error> {
        let line = self.append(observation, observation.trial.as_str())?;
        self.unsynced += 1;
        if self.unsynced >= self.sync_every {
            self.sync()?;
        }
        // Decisions must not depend on whether a number went through its decimal form.
        let (object, _) = unseal(line.trim_end().as_bytes()).unwrap_or_default();
        serde_json::from_slice(&object).map_err(|error| Error::Corrupt {
            path: self.path.clone(),
            line: 0,
            reason: format!("a result cannot be read back: {error}"),
        })
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn sync(&mut self) -> Result<(), Error> {
        self.unsynced = 0;
        self.sink.sync().map_err(|source| Error::write(&self.path, source))
    }

    fn append(&mut self, line: &impl Serialize, trial: &str) -> Result<String, Error> {
        let object = serde_json::to_string(line).expect("journal lines are plain data with text keys");
        let mut text = seal(&object);
        text.push('\n');
        if let Err(source) = self.sink.append(text.as_bytes()) {
            // Should this fail too, the torn line is cut off when the journal is opened again.
            let _ = self.sink.cut(self.length);
            return Err(Error::Append { path: self.path.clone(), trial: trial.to_owned(), source });
        }
        self.length += text.len() as u64;
        Ok(text)
    }
}

/// Takes the lock of a file, which is made where it is not there; `None` where another process holds it. The lock ends with
/// the file handle, or with the process.
pub(crate) fn lock_file(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The right to write to a folder; given back when dropped, or when the process dies.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the open file holds the lock")] File);

impl Lock {
    /// Takes the lock of a folder.
    ///
    /// # Errors
    /// [`Error::Locked`] where another process holds it.
    pub fn take(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("lock");
        match lock_file(&path) {
            Ok(Some(file)) => Ok(Self(file)),
            Ok(None) => Err(Error::Locked(folder.to_owned())),
            Err(source) => Err(Error::write(&path, source)),
        }
    }

    /// Whether some process holds the lock of a folder.
    pub fn is_held(folder: &Path) -> bool {
        // Taking it and giving it back at once needs no file to be created.
        folder.join("lock").exists() && matches!(Self::take(folder), Err(Error::Locked(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::Hint;

    /// A disk with room for so many bytes.
    struct SmallDisk {
        file: File,
        room: usize,
    }

    impl Sink for SmallDisk {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            let fits = bytes.len().min(self.room);
            self.file.write_all(&bytes[..fits])?;
            self.room -= fits;
            if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }
        fn sync(&mut self) -> io::Result<()> {
            self.file.sync()
        }
        fn cut(&mut self, length: u64) -> io::Result<()> {
            self.file.cut(length)
        }
    }

    fn header() -> Header {
        Header {
            schema: SCHEMA.to_owned(),
            campaign: Digest::of(["c"]),
            plan: Digest::of(["p"]),
            seed: Seed(1),
            version: "1".to_owned(),
            device_kind: DeviceKind::Cpu,
            model: "cpu".to_owned(),
            memory: 1e9,
            facts: BTreeMap::from([("processor".to_owned(), "x".to_owned())]),
        }
    }

    fn observation(repeat: u32) -> Observation {
        let text = format!(
            r#"{{"trial":"a.r{repeat}","cell":"a","repeat":{repeat},"subject":"w","sharing":"exclusive","outcome":"hang","counters_status":"not read: hang","attempts":[],"seconds":0.1}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn what_is_added_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, before) = Journal::open(folder.path(), &header(), false).unwrap();
        assert!(before.is_empty());
        for repeat in 0..3 {
            assert_eq!(journal.add(&observation(repeat)).unwrap(), observation(repeat));
        }
        drop(journal);
        let (_, read) = Journal::open(folder.path(), &header(), false).unwrap();
        assert_eq!(read, (0..3).map(observation).collect::<Vec<_>>());
    }

    /// Whatever byte a crash stops at, the whole lines before it survive and the rest is cut off.
    #[test]
    fn a_torn_line_is_cut_off_at_every_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let (mut journal, _) = Journal::open(folder.path(), &header(), false).unwrap();
        (0..2).for_each(|repeat| drop(journal.add(&observation(repeat)).unwrap()));
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        let ends: Vec<usize> =
            bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
        for cut in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let (_, read) = Journal::open(folder.path(), &header(), false).unwrap();
            let whole = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
            assert_eq!(read.len(), whole, "cut at {cut}");
            let after = std::fs::read(&path).unwrap();
            assert_eq!(after, bytes[..ends[whole]], "cut at {cut}");
        }
    }

    #[test]
    fn other_conditions_are_refused_unless_forced() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path(), &header(), false).unwrap();
        journal.add(&observation(0)).unwrap();
        drop(journal);
        for (changed, what) in [
            (Header { version: "2".to_owned(), ..header() }, "version"),
            (Header { campaign: Digest::of(["other"]), ..header() }, "campaign"),
            (Header { model: "other".to_owned(), ..header() }, "device"),
            (Header { facts: BTreeMap::new(), ..header() }, "device"),
        ] {
            let error = Journal::open(folder.path(), &changed, false).unwrap_err();
            assert!(matches!(&error, Error::Changed { what: found, .. } if *found == what), "{error}");
            assert!(error.hint().unwrap().contains("--force"));
        }
        let forced = Header { version: "2".to_owned(), ..header() };
        let (_, kept) = Journal::open(folder.path(), &forced, true).unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!(read(&folder.path().join(FILE)).unwrap().header, Some(forced));
    }

    #[test]
    fn a_full_disk_loses_one_result_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path(), &header(), false).unwrap();
        journal.add(&observation(0)).unwrap();
        let path = folder.path().join(FILE);
        let mut file = OpenOptions::new().write(true).open(&path).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        journal.sink = Box::new(SmallDisk { file, room: 50 });
        let error = journal.add(&observation(1)).unwrap_err();
        assert!(error.to_string().starts_with("cannot append trial a.r1 to"), "{error}");
        assert!(error.hint().unwrap().contains("free space"));
        let content = read(&path).unwrap();
        assert_eq!(content.observations, [observation(0)]);
        assert!(!content.is_torn);
    }

    #[test]
    fn damage_in_the_middle_is_an_error_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let (mut journal, _) = Journal::open(folder.path(), &header(), false).unwrap();
        (0..3).for_each(|repeat| drop(journal.add(&observation(repeat)).unwrap()));
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap().replace("\"a.r1\"", "\"a.r1");
        std::fs::write(&path, text).unwrap();
        let error = read(&path).unwrap_err();
        assert!(matches!(error, Error::Corrupt { line: 3, .. }), "{error}");
    }

    /// Every digit of a middle line: a changed one is never taken for a measurement.
    #[test]
    fn a_changed_digit_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let (mut journal, _) = Journal::open(folder.path(), &header(), false).unwrap();
        (0..3).for_each(|repeat| drop(journal.add(&observation(repeat)).unwrap()));
        drop(journal);
        let good = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = good.lines().collect();
        let digits = lines[2].bytes().enumerate().filter(|(_, byte)| byte.is_ascii_digit());
        for (at, digit) in digits {
            let mut line = lines[2].as_bytes().to_vec();
            line[at] = if digit == b'7' { b'8' } else { b'7' };
            let line = String::from_utf8(line).unwrap();
            std::fs::write(&path, [lines[0], lines[1], &line, lines[3], ""].join("\n")).unwrap();
            let error = read(&path).unwrap_err();
            assert!(matches!(error, Error::Corrupt { line: 3, .. }), "byte {at}: {error}");
        }
        // The last line cannot be told from a write that a power cut broke: it is measured again.
        std::fs::write(&path, good.replace("\"repeat\":2", "\"repeat\":9")).unwrap();
        let content = read(&path).unwrap();
        assert!(content.is_torn && content.observations.len() == 2);
    }

    #[test]
    fn lines_of_earlier_versions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let plain =
            [serde_json::to_string(&header()).unwrap(), serde_json::to_string(&observation(0)).unwrap()];
        std::fs::write(&path, plain.join("\n") + "\n").unwrap();
        assert_eq!(read(&path).unwrap().observations, [observation(0)]);
    }

    #[test]
    fn a_folder_has_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let held = Lock::take(folder.path()).unwrap();
        assert!(matches!(Lock::take(folder.path()), Err(Error::Locked(_))));
        assert!(Lock::is_held(folder.path()));
        drop(held);
        assert!(!Lock::is_held(folder.path()));
        Lock::take(folder.path()).unwrap();
    }
}
