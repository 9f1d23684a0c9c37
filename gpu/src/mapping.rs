//! A file in shared memory: one head, then slots of one kind.

#![expect(unsafe_code, reason = "references into the shared mapping")]

use memmap2::{MmapOptions, MmapRaw};
use std::fmt;
use std::fs::File;
use std::io;
use std::marker::PhantomData;

/// What may lie in a mapping that other processes write to.
///
/// # Safety
/// Every field is an atomic, or an array or `repr(C)` struct of such: any bit pattern is valid and writes by others are allowed.
/// No alignment is above a page's.
pub(crate) unsafe trait Words {}

/// A mapping of the whole file. Dropping it unmaps; it does not remove the file.
pub(crate) struct Mapping<H, S> {
    raw: MmapRaw,
    capacity: usize,
    content: PhantomData<fn() -> (H, S)>,
}

/// Why a file cannot be mapped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The system refused: what was tried, and what it said.
    System(&'static str, io::Error),
    /// The file has another length than the slots need; the reason in words.
    Length(String),
}

/// Bytes of a file with so many slots.
pub(crate) const fn file_bytes<H, S>(capacity: usize) -> usize {
    size_of::<H>() + capacity * size_of::<S>()
}

impl<H, S> fmt::Debug for Mapping<H, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("raw", &self.raw).field("capacity", &self.capacity).finish()
    }
}

impl<H: Words, S: Words> Mapping<H, S> {
    /// Maps a file that holds `capacity` slots.
    pub(crate) fn new(file: &File, capacity: usize) -> Result<Self, Failure> {
        // The slots follow the head without a gap.
        const { assert!(size_of::<H>().is_multiple_of(align_of::<S>())) };
        let bytes = file_bytes::<H, S>(capacity);
        let length = file.metadata().map_err(|error| Failure::System("inspect", error))?.len();
        if length != bytes as u64 {
            return Err(Failure::Length(format!(
                "it has {length} bytes where {capacity} records need {bytes}"
            )));
        }
        let raw =
            MmapOptions::new().len(bytes).map_raw(file).map_err(|error| Failure::System("map", error))?;
        Ok(Self { raw, capacity, content: PhantomData })
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn header(&self) -> &H {
        // SAFETY: the mapping is page-aligned, so aligned for `H`, and `new` checked that it holds at least a head. It
        // lives as long as `self`, and no process shortens the file after creation. `Words` vouches for the contents.
        unsafe { &*self.raw.as_ptr().cast::<H>() }
    }

    pub(crate) fn slots(&self) -> &[S] {
        // SAFETY: `new` checked that `capacity` slots follow the head, whose size keeps their alignment. Lifetime and
        // contents as in `header`.
        unsafe {
            let first = self.raw.as_ptr().add(size_of::<H>()).cast::<S>();
            std::slice::from_raw_parts(first, self.capacity)
        }
    }
}
