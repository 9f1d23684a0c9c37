//! The words of the shared file and where they lie: head, names, records.

#![expect(unsafe_code, reason = "references into the shared mapping")]

use super::{ActivityError, file_error};
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// First word of the file: "activity" in ASCII.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"activity");
/// Raised with every change of the layout.
pub(super) const VERSION: u32 = 1;
/// Most names that are kept; a program with more shows its digests only.
pub(super) const NAMES: usize = 512;
/// Words of a name: 15 of text behind its signature.
pub(super) const NAME_WORDS: usize = 16;

/// Written once, before the file gets its name.
#[repr(C, align(128))]
pub(super) struct Preamble {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    pub(super) process: AtomicU32,
    pub(super) capacity: AtomicU64,
}

/// Written by the recorded process.
#[repr(C, align(128))]
pub(super) struct State {
    /// Next record to write.
    pub(super) head: AtomicU64,
    pub(super) dropped: AtomicU64,
    /// Records that CUPTI could not time.
    pub(super) untimed: AtomicU64,
    pub(super) heartbeat: AtomicU64,
    pub(super) status: AtomicU32,
    pub(super) code: AtomicU32,
    pub(super) cupti_version: AtomicU32,
    /// 0 unknown, 1 without MPS, 2 under MPS.
    pub(super) mps: AtomicU32,
    pub(super) multiprocessors: AtomicU32,
    pub(super) names: AtomicU32,
}

/// Written by the reader.
#[repr(C, align(128))]
pub(super) struct Reading {
    /// Next record to read.
    pub(super) tail: AtomicU64,
}

/// The head of the file.
#[repr(C)]
pub(super) struct Header {
    pub(super) preamble: Preamble,
    pub(super) state: State,
    pub(super) reading: Reading,
    pub(super) names: [[AtomicU64; NAME_WORDS]; NAMES],
}

/// One record; its words are published by the release store of `head`.
#[repr(C)]
pub(super) struct Slot {
    pub(super) start: AtomicU64,
    pub(super) end: AtomicU64,
    pub(super) signature: AtomicU64,
    /// Kind (8 bits), context (24 bits), stream (32 bits).
    pub(super) place: AtomicU64,
}

pub(super) const fn file_bytes(capacity: usize) -> usize {
    size_of::<Header>() + capacity * size_of::<Slot>()
}

/// A mapping of the whole file.
#[derive(Debug)]
pub(super) struct Map {
    raw: MmapRaw,
    capacity: usize,
}

impl Map {
    /// Maps a file that holds `capacity` records.
    pub(super) fn new(file: &File, path: &Path, capacity: usize) -> Result<Self, ActivityError> {
        let bytes = file_bytes(capacity);
        let length = file.metadata().map_err(file_error("inspect", path))?.len();
        if length != bytes as u64 {
            return Err(ActivityError::Foreign {
                path: path.to_owned(),
                reason: format!("it has {length} bytes where {capacity} records need {bytes}"),
            });
        }
        let raw = MmapOptions::new().len(bytes).map_raw(file).map_err(file_error("map", path))?;
        Ok(Self { raw, capacity })
    }

    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    #[expect(clippy::cast_ptr_alignment, reason = "a mapping starts at a page")]
    pub(super) fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned, so aligned for `Header`, and `new` checked that it holds at least a
        // header. It lives as long as `self`, and no process shortens the file after creation. All fields are
        // atomics: any bit pattern is valid and writes by other processes are allowed.
        unsafe { &*self.raw.as_ptr().cast::<Header>() }
    }

    #[expect(
        clippy::cast_ptr_alignment,
        reason = "a mapping starts at a page and the head is a multiple of 128"
    )]
    pub(super) fn slots(&self) -> &[Slot] {
        // SAFETY: `new` checked that `capacity` slots follow the header, whose size is a multiple of 128, so the slots
        // are aligned to 8. Lifetime and contents as in `header`.
        unsafe {
            let first = self.raw.as_ptr().add(size_of::<Header>()).cast::<Slot>();
            std::slice::from_raw_parts(first, self.capacity)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn words_of_two_writers_never_share_a_pair_of_cache_lines() {
        assert_eq!(offset_of!(Header, state) % 128, 0);
        assert_eq!(offset_of!(Header, reading) % 128, 0);
        assert_eq!(offset_of!(Header, names), 384);
        assert_eq!(size_of::<Header>() % 128, 0);
        assert_eq!(size_of::<Slot>(), 32);
    }
}
