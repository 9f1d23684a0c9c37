//! The words of the shared file and where they lie.
//!
//! Words that different processes write lie on different pairs of cache lines (128 bytes), because x86 fetches lines in
//! pairs: a worker's step must not wait for the line that the coordinator polls.

#![expect(unsafe_code, reason = "references into the shared mapping")]

use super::{RingError, file_error};
use memmap2::{MmapOptions, MmapRaw};
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

pub(super) const fn file_bytes(capacity: usize) -> usize {
    size_of::<Header>() + capacity * size_of::<Slot>()
}

/// A mapping of the whole file. Dropping it unmaps; it does not remove the file.
#[derive(Debug)]
pub(super) struct Map {
    raw: MmapRaw,
    capacity: usize,
}

impl Map {
    /// Maps a file that holds `capacity` records.
    pub(super) fn new(file: &File, path: &Path, capacity: usize) -> Result<Self, RingError> {
        let bytes = file_bytes(capacity);
        let length = file.metadata().map_err(file_error("inspect", path))?.len();
        if length != bytes as u64 {
            return Err(RingError::Foreign {
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
        // SAFETY: `new` checked that `capacity` slots follow the header; the header's size is a multiple of 128, so
        // the slots are aligned to 8. Lifetime and contents as in `header`.
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
        assert_eq!(offset_of!(Header, orders) % 128, 0);
        assert_eq!(offset_of!(Header, report) % 128, 0);
        assert_eq!(size_of::<Header>(), 384);
        assert_eq!(size_of::<Slot>(), 32);
    }
}
