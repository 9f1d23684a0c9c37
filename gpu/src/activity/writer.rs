//! The recorded process's end: makes the ring, writes, says how it goes.

use super::layout::{MAGIC, Map, NAME_WORDS, NAMES, VERSION, file_bytes, map};
use super::{ActivityError, Record, Status, file_error};
use crate::ring::start_time;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The writing end of a ring; one per process. Dropping it leaves the file for its reader.
#[derive(Debug)]
pub struct Writer {
    map: Arc<Map>,
    path: PathBuf,
    head: u64,
    /// The reader's place when last looked at: the shared word is read only when the ring seems full.
    tail: u64,
    named: BTreeSet<u64>,
}

/// What the process says beside its records; any thread may, while another writes.
#[derive(Debug, Clone)]
pub struct Teller {
    map: Arc<Map>,
}

impl Writer {
    /// Makes the ring of this process in `folder`; a reader sees it only when it is whole.
    ///
    /// # Errors
    /// [`ActivityError::File`].
    pub fn create(folder: &Path, capacity: usize) -> Result<Self, ActivityError> {
        let process = std::process::id();
        let name = format!("activity.{process}.{}", start_time(process).unwrap_or(0));
        let (path, hidden) = (folder.join(&name), folder.join(format!(".{name}")));
        let capacity = capacity.clamp(1, 1 << 22);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&hidden)
            .map_err(file_error("create", &hidden))?;
        // Blocks are allocated here: a write to a mapping without room behind it would kill the program.
        let bytes = file_bytes(capacity) as u64;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
            .or_else(|error| match error {
                rustix::io::Errno::OPNOTSUPP => rustix::fs::ftruncate(&file, bytes),
                other => Err(other),
            })
            .map_err(|error| {
                let _ = std::fs::remove_file(&hidden);
                file_error("size", &hidden)(error.into())
            })?;
        let map = map(&file, &hidden, capacity)?;
        let preamble = &map.header().preamble;
        preamble.process.store(process, Relaxed);
        preamble.capacity.store(capacity as u64, Relaxed);
        preamble.version.store(VERSION, Relaxed);
        preamble.magic.store(MAGIC, Release);
        std::fs::rename(&hidden, &path).map_err(file_error("name", &path))?;
        Ok(Self { map: Arc::new(map), path, head: 0, tail: 0, named: BTreeSet::new() })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A handle for other threads.
    pub fn teller(&self) -> Teller {
        Teller { map: Arc::clone(&self.map) }
    }

    /// Says how recording goes; `code` is CUPTI's result, 0 where there is none.
    pub fn set_status(&self, status: Status, code: u32) {
        self.teller().set_status(status, code);
    }

    /// Writes one record; `false` where the ring was full and the record was only counted.
    pub fn push(&mut self, record: &Record) -> bool {
        let capacity = self.map.capacity() as u64;
        let header = self.map.header();
        if self.head.wrapping_sub(self.tail) >= capacity {
            self.tail = header.reading.tail.load(Acquire);
            if self.head.wrapping_sub(self.tail) >= capacity {
                header.state.dropped.fetch_add(1, Relaxed);
                return false;
            }
        }
        let slot = &self.map.slots()[(self.head % capacity) as usize];
        slot.start.store(record.start, Relaxed);
        slot.end.store(record.end, Relaxed);
        slot.signature.store(record.signature, Relaxed);
        let place = record.kind.bits() << 56 | u64::from(record.context & 0x00ff_ffff) << 32;
        slot.place.store(place | u64::from(record.stream), Relaxed);
        self.head = self.head.wrapping_add(1);
        header.state.head.store(self.head, Release);
        true
    }

    /// Keeps the name of a signature, cut to 120 bytes; the first so many different ones are kept.
    pub fn name(&mut self, signature: u64, name: &[u8]) {
        let place = self.named.len();
        if place >= NAMES || !self.named.insert(signature) {
            return;
        }
        let words = &self.map.header().names[place];
        words[0].store(signature, Relaxed);
        let text = &name[..name.len().min((NAME_WORDS - 1) * 8)];
        for (word, chunk) in words[1..].iter().zip(text.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(bytes), Relaxed);
        }
        self.map.header().state.names.store(place as u32 + 1, Release);
    }
}

impl Teller {
    /// As [`Writer::set_status`].
    pub fn set_status(&self, status: Status, code: u32) {
        let state = &self.map.header().state;
        state.code.store(code, Relaxed);
        state.status.store(status.bits(), Release);
    }

    /// Shows that the process runs.
    pub fn beat(&self) {
        self.map.header().state.heartbeat.fetch_add(1, Relaxed);
    }

    /// CUPTI's version, as `cuptiGetVersion` gives it.
    pub fn set_cupti_version(&self, version: u32) {
        self.map.header().state.cupti_version.store(version, Relaxed);
    }

    /// Whether the process runs under MPS, and how many multiprocessors it sees.
    pub fn set_sharing(&self, under_mps: bool, multiprocessors: u32) {
        let state = &self.map.header().state;
        state.multiprocessors.store(multiprocessors, Relaxed);
        state.mps.store(if under_mps { 2 } else { 1 }, Release);
    }

    /// Counts records that were lost before they came here.
    pub fn add_dropped(&self, count: u64) {
        self.map.header().state.dropped.fetch_add(count, Relaxed);
    }

    /// Counts a record without times.
    pub fn add_untimed(&self) {
        self.map.header().state.untimed.fetch_add(1, Relaxed);
    }
}
