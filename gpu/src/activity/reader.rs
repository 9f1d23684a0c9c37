//! The coordinator's end: finds the rings of all processes of a command, and reads them.

use super::layout::{Header, MAGIC, Map, NAME_WORDS, VERSION, file_bytes, map};
use super::{ActivityError, Kind, Record, Status, file_error};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The reading end of one process's ring.
#[derive(Debug)]
pub struct Reader {
    map: Map,
    path: PathBuf,
    tail: u64,
}

/// What a process says about its recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// How it goes.
    pub status: Status,
    /// CUPTI's result where it does not go; 0 otherwise.
    pub code: u32,
    /// CUPTI's version; 0 where none is loaded.
    pub cupti_version: u32,
    /// Counts up ten times a second while the process runs.
    pub heartbeat: u64,
    /// Records written.
    pub records: u64,
    /// Records lost: the ring was full, or CUPTI had no buffer.
    pub dropped: u64,
    /// Records that CUPTI could not time.
    pub untimed: u64,
    /// Whether it runs under MPS; `None` until the process has a context.
    pub under_mps: Option<bool>,
    /// Multiprocessors that it sees; 0 until the process has a context.
    pub multiprocessors: u32,
}

impl Reader {
    /// Opens the ring of another process.
    ///
    /// # Errors
    /// [`ActivityError::Foreign`] for a file that is no ring of this version, [`ActivityError::File`] for the rest.
    pub fn open(path: &Path) -> Result<Self, ActivityError> {
        let foreign = |reason: String| ActivityError::Foreign { path: path.to_owned(), reason };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(file_error("open", path))?;
        let length = file.metadata().map_err(file_error("inspect", path))?.len() as usize;
        if length <= size_of::<Header>() {
            return Err(foreign(format!(
                "it has {length} bytes, the head alone has {}",
                size_of::<Header>()
            )));
        }
        let records = (length - size_of::<Header>()) / (file_bytes(1) - file_bytes(0));
        let map = map(&file, path, records)?;
        let preamble = &map.header().preamble;
        let magic = preamble.magic.load(Acquire);
        if magic != MAGIC {
            return Err(foreign(format!("it starts with {magic:#018x}")));
        }
        let version = preamble.version.load(Relaxed);
        if version != VERSION {
            return Err(foreign(format!("it is of version {version}, this program reads version {VERSION}")));
        }
        Ok(Self { map, path: path.to_owned(), tail: 0 })
    }

    /// The process that writes.
    pub fn process(&self) -> u32 {
        self.map.header().preamble.process.load(Relaxed)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the process says.
    pub fn report(&self) -> Report {
        let state = &self.map.header().state;
        let mps = state.mps.load(Acquire);
        Report {
            status: Status::from_bits(state.status.load(Acquire)),
            code: state.code.load(Relaxed),
            cupti_version: state.cupti_version.load(Relaxed),
            heartbeat: state.heartbeat.load(Relaxed),
            records: state.head.load(Relaxed),
            dropped: state.dropped.load(Relaxed),
            untimed: state.untimed.load(Relaxed),
            under_mps: (mps != 0).then_some(mps == 2),
            multiprocessors: state.multiprocessors.load(Relaxed),
        }
    }

    /// Moves all records that are there to the end of `records` and returns how many they were.
    pub fn drain(&mut self, records: &mut Vec<Record>) -> usize {
        let capacity = self.map.capacity() as u64;
        let head = self.map.header().state.head.load(Acquire);
        // An honest writer is never further ahead; a damaged word must not make us read for ever.
        let available = head.wrapping_sub(self.tail).min(capacity);
        records.reserve(available as usize);
        let slots = self.map.slots();
        for index in 0..available {
            let slot = &slots[(self.tail.wrapping_add(index) % capacity) as usize];
            let place = slot.place.load(Relaxed);
            records.push(Record {
                start: slot.start.load(Relaxed),
                end: slot.end.load(Relaxed),
                signature: slot.signature.load(Relaxed),
                kind: Kind::from_bits(place >> 56),
                context: (place >> 32) as u32 & 0x00ff_ffff,
                stream: place as u32,
            });
        }
        self.tail = self.tail.wrapping_add(available);
        self.map.header().reading.tail.store(self.tail, Release);
        available as usize
    }

    /// The names that the process has written, by signature.
    pub fn names(&self) -> BTreeMap<u64, String> {
        let header = self.map.header();
        let count = (header.state.names.load(Acquire) as usize).min(header.names.len());
        header.names[..count]
            .iter()
            .map(|words| {
                let text: Vec<u8> = words[1..NAME_WORDS]
                    .iter()
                    .flat_map(|word| word.load(Relaxed).to_le_bytes())
                    .take_while(|byte| *byte != 0)
                    .collect();
                (words[0].load(Relaxed), String::from_utf8_lossy(&text).into_owned())
            })
            .collect()
    }
}

/// The rings of all processes of one command.
#[derive(Debug)]
pub struct Folder {
    /// The rings found so far, in the order in which they were found.
    pub rings: Vec<Reader>,
    path: PathBuf,
    known: BTreeSet<OsString>,
}

impl Folder {
    /// The rings of `path`, none of them opened yet.
    pub fn new(path: &Path) -> Self {
        Self { rings: Vec::new(), path: path.to_owned(), known: BTreeSet::new() }
    }

    /// Opens the rings that have come since the last look, and returns how many.
    ///
    /// # Errors
    /// [`ActivityError`] where the folder cannot be read or a ring is of another version.
    pub fn look(&mut self) -> Result<usize, ActivityError> {
        let before = self.rings.len();
        let entries = std::fs::read_dir(&self.path).map_err(file_error("look into", &self.path))?;
        let mut names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let is_ring = name.to_str().is_some_and(|name| name.starts_with("activity."));
            if is_ring && self.known.insert(name.clone()) {
                self.rings.push(Reader::open(&self.path.join(&name))?);
            }
        }
        Ok(self.rings.len() - before)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Writer;
    use super::*;

    fn record(start: u64) -> Record {
        Record { start, end: start + 5, signature: start * 3, kind: Kind::Copy, context: 77, stream: 1 << 30 }
    }

    #[test]
    fn records_names_and_state_reach_the_reader() {
        let place = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(place.path(), 8).unwrap();
        let mut folder = Folder::new(place.path());
        assert_eq!(folder.look().unwrap(), 1);
        assert_eq!(folder.look().unwrap(), 0);
        let ring = &mut folder.rings[0];
        assert_eq!(ring.report().status, Status::Starting);
        assert_eq!(ring.report().under_mps, None);
        writer.set_status(Status::Recording, 0);
        writer.name(3, b"gemm");
        writer.name(3, b"again");
        writer.name(4, &[b'x'; 300]);
        let teller = writer.teller();
        teller.set_cupti_version(130_000);
        teller.set_sharing(true, 66);
        teller.beat();
        teller.add_untimed();
        assert!((1..4).all(|start| writer.push(&record(start))));
        let mut records = Vec::new();
        assert_eq!(ring.drain(&mut records), 3);
        assert_eq!(records, (1..4).map(record).collect::<Vec<_>>());
        let expected = Report {
            status: Status::Recording,
            code: 0,
            cupti_version: 130_000,
            heartbeat: 1,
            records: 3,
            dropped: 0,
            untimed: 1,
            under_mps: Some(true),
            multiprocessors: 66,
        };
        assert_eq!(ring.report(), expected);
        assert_eq!(ring.names(), BTreeMap::from([(3, "gemm".to_owned()), (4, "x".repeat(120))]));
    }

    #[test]
    fn a_full_ring_counts_what_it_loses() {
        let place = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(place.path(), 4).unwrap();
        let mut ring = Reader::open(writer.path()).unwrap();
        assert_eq!((0..6).filter(|start| writer.push(&record(*start))).count(), 4);
        assert_eq!(ring.report().dropped, 2);
        let mut records = Vec::new();
        ring.drain(&mut records);
        assert!(writer.push(&record(9)));
        ring.drain(&mut records);
        assert_eq!(records.len(), 5);
        assert_eq!(records[4], record(9));
    }

    #[test]
    fn foreign_files_are_typed_errors() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("activity.1.1");
        for (bytes, part) in [(vec![0; 10], "10 bytes"), (vec![7; file_bytes(4)], "starts with 0x0707")] {
            std::fs::write(&path, bytes).unwrap();
            let error = Reader::open(&path).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let writer = Writer::create(place.path(), 4).unwrap();
        let mut bytes = std::fs::read(writer.path()).unwrap();
        bytes[8] = 9;
        std::fs::write(&path, bytes).unwrap();
        assert!(Reader::open(&path).unwrap_err().to_string().contains("version 9"));
        assert!(Writer::create(&place.path().join("missing"), 4).is_err());
        assert!(Folder::new(&place.path().join("missing")).look().is_err());
    }
}
