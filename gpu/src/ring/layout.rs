//! The words of the shared file and where they lie.
//!
//! Words that different processes write lie on different pairs of cache lines (128 bytes), because x86 fetches lines in
//! pairs: a worker's step must not wait for the line that the coordinator polls.

#![expect(unsafe_code, reason = "what lies in the mapping is vouched for here")]

use super::{RingError, file_error};
use crate::mapping::{self, Failure, Mapping, Words};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// First word of the file: "elastico" in ASCII.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"elastico");
/// Raised with every change of the layout.
pub(super) const VERSION: u32 = 1;
/// Largest ring: 2^22 records are 128 MB.
pub(super) const LIMIT: usize = 1 << 22;

/// Words that are written once, before the worker starts.
#[repr(C, align(128))]
pub(super) struct Preamble {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    pub(super) owner: AtomicU32,
    pub(super) capacity: AtomicU64,
}

/// Words that the coordinator writes.
#[repr(C, align(128))]
pub(super) struct Orders {
    /// Phase number above two bits of command: one word, so that both change together and a futex can wait on it.
    pub(super) command: AtomicU32,
    pub(super) step_target: AtomicU64,
    pub(super) owner_beat: AtomicU64,
    /// Next record to read; the worker's view of free room.
    pub(super) tail: AtomicU64,
}

/// Words that the worker writes.
#[repr(C, align(128))]
pub(super) struct Report {
    pub(super) holder: AtomicU32,
    pub(super) state: AtomicU32,
    pub(super) phase: AtomicU32,
    pub(super) error_code: AtomicU32,
    pub(super) heartbeat: AtomicU64,
    /// Next record to write.
    pub(super) head: AtomicU64,
    pub(super) overflow: AtomicU64,
}

/// The head of the file.
#[repr(C)]
pub(super) struct Header {
    pub(super) preamble: Preamble,
    pub(super) orders: Orders,
    pub(super) report: Report,
}

/// One record; its words are published by the release store of `head`.
#[repr(C)]
pub(super) struct Slot {
    pub(super) phase: AtomicU64,
    pub(super) start: AtomicU64,
    pub(super) end: AtomicU64,
    pub(super) busy: AtomicU64,
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
pub(super) fn map(file: &File, path: &Path, capacity: usize) -> Result<Map, RingError> {
    Map::new(file, capacity).map_err(|failure| match failure {
        Failure::System(action, source) => file_error(action, path)(source),
        Failure::Length(reason) => RingError::Foreign { path: path.to_owned(), reason },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn words_of_two_writers_never_share_a_pair_of_cache_lines() {
        assert_eq!(offset_of!(Header, orders) % 128, 0);
        assert_eq!(offset_of!(Header, report) % 128, 0);
        assert_eq!(size_of::<Header>(), 384);
        assert_eq!(size_of::<Slot>(), 32);
    }
}
