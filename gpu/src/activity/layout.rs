//! The words of the shared file and where they lie: head, names, records.

#![expect(unsafe_code, reason = "what lies in the mapping is vouched for here")]

use super::{ActivityError, file_error};
use crate::mapping::{self, Failure, Mapping, Words};
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

// SAFETY: atomics, and `repr(C)` structs of them, throughout.
unsafe impl Words for Header {}
// SAFETY: as above.
unsafe impl Words for Slot {}

/// A mapping of the whole file.
pub(super) type Map = Mapping<Header, Slot>;

pub(super) const fn file_bytes(capacity: usize) -> usize {
    mapping::file_bytes::<Header, Slot>(capacity)
}

/// Maps a file that holds `capacity` records.
pub(super) fn map(file: &File, path: &Path, capacity: usize) -> Result<Map, ActivityError> {
    Map::new(file, capacity).map_err(|failure| match failure {
        Failure::System(action, source) => file_error(action, path)(source),
        Failure::Length(reason) => ActivityError::Foreign { path: path.to_owned(), reason },
    })
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
