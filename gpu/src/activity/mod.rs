//! A ring of kernel and copy records in shared memory: what an unmodified program did on the device.
//!
//! The injected library makes one ring per process, as the [`Writer`]; the coordinator finds the rings of all
//! processes of a command in one folder and reads them as [`Reader`]s. As in [`ring`](crate::ring) every word is an
//! atomic, a full ring drops the new record and counts it, and neither end ever waits for the other.
//!
//! ```
//! use elastico_gpu::activity::{Folder, Kind, Record, Status, Writer};
//!
//! let place = tempfile::tempdir().unwrap();
//! let mut writer = Writer::create(place.path(), 64)?;
//! writer.set_status(Status::Recording, 0);
//! let kernel = Record { start: 1_000, end: 2_000, signature: 7, kind: Kind::Kernel, context: 1, stream: 2 };
//! writer.push(&kernel);
//!
//! let mut folder = Folder::new(place.path());
//! folder.look()?;
//! let ring = &mut folder.rings[0];
//! assert_eq!((ring.process(), ring.report().status), (std::process::id(), Status::Recording));
//! let mut records = Vec::new();
//! ring.drain(&mut records);
//! assert_eq!(records, [kernel]);
//! # Ok::<(), elastico_gpu::activity::ActivityError>(())
//! ```

mod layout;
mod reader;
mod writer;

pub use reader::{Folder, Reader, Report};
pub use writer::{Teller, Writer};

use elastico_core::Hint;
use std::path::{Path, PathBuf};

/// Environment: the folder in which each process makes its ring; without it the injected library does nothing.
pub const FOLDER_VARIABLE: &str = "ELASTICO_ACTIVITY_FOLDER";
/// Environment: records of a ring; default [`CAPACITY`].
pub const CAPACITY_VARIABLE: &str = "ELASTICO_ACTIVITY_CAPACITY";
/// Environment: CUPTI as a file, used where the program has not loaded one of its own.
pub const CUPTI_VARIABLE: &str = "ELASTICO_ACTIVITY_CUPTI";
/// Environment: `pid.start_time` of the coordinator; the injected library ends a process whose coordinator is gone.
pub const OWNER_VARIABLE: &str = "ELASTICO_ACTIVITY_OWNER";

/// Records of a ring unless told otherwise: 4 MB, more than a second of the highest launch rates.
pub const CAPACITY: usize = 1 << 17;

/// What a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// One kernel.
    Kernel,
    /// One copy.
    Copy,
    /// One launch of a captured graph, all its nodes together.
    Graph,
}

impl Kind {
    const fn bits(self) -> u64 {
        match self {
            Self::Kernel => 0,
            Self::Copy => 1,
            Self::Graph => 2,
        }
    }

    const fn from_bits(bits: u64) -> Self {
        match bits {
            1 => Self::Copy,
            2 => Self::Graph,
            _ => Self::Kernel,
        }
    }
}

/// One kernel, copy or graph launch, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When the device began.
    pub start: u64,
    /// When the device was done.
    pub end: u64,
    /// Digest of what ran: name, grid and block of a kernel, direction and size of a copy.
    pub signature: u64,
    /// What it was.
    pub kind: Kind,
    /// CUPTI's number of the context; the low 24 bits are kept.
    pub context: u32,
    /// CUPTI's number of the stream.
    pub stream: u32,
}

/// How the recording of one process goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The library is loaded and not ready yet.
    Starting,
    /// Records come.
    Recording,
    /// Another subscriber holds CUPTI: a profiler inside the program, or one around it.
    Taken,
    /// No CUPTI could be loaded.
    Absent,
    /// The driver does not permit recording.
    Forbidden,
    /// CUPTI refused with the code that stands beside the status.
    Refused,
    /// The process ended in order and all its records are here.
    Finished,
}

impl Status {
    const fn bits(self) -> u32 {
        match self {
            Self::Starting => 0,
            Self::Recording => 1,
            Self::Taken => 2,
            Self::Absent => 3,
            Self::Forbidden => 4,
            Self::Refused => 5,
            Self::Finished => 6,
        }
    }

    const fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Starting,
            1 => Self::Recording,
            2 => Self::Taken,
            3 => Self::Absent,
            4 => Self::Forbidden,
            6 => Self::Finished,
            _ => Self::Refused,
        }
    }

    /// The status of a CUPTI result that is not success.
    pub const fn of_cupti(code: u32) -> Self {
        match code {
            // 12 is how CUPTI before 12.x names a second subscriber.
            12 | 39 => Self::Taken,
            35 | 40 => Self::Forbidden,
            _ => Self::Refused,
        }
    }

    /// Whether no records can come from this process.
    pub const fn is_silent(self) -> bool {
        matches!(self, Self::Taken | Self::Absent | Self::Forbidden | Self::Refused)
    }
}

/// Why a ring of activity records cannot be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActivityError {
    /// A file or folder could not be used.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no ring of this version.
    #[error("{} is no activity ring: {reason}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What gave it away.
        reason: String,
    },
}

impl Hint for ActivityError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Foreign { .. } => {
                Some("use `elastico` and `libelastico_injection.so` of the same build".to_owned())
            }
            Self::File { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => Some(
                "give the container a larger shared memory (docker run --shm-size=1g), or free some"
                    .to_owned(),
            ),
            Self::File { .. } => None,
        }
    }
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ActivityError {
    move |source| ActivityError::File { action, path: path.to_owned(), source }
}

/// The digest that records carry as their signature: 64-bit FNV-1a over the bytes, then over the numbers.
///
/// It has to be the same in every process of a host, so no keyed hash will do.
pub fn signature(name: &[u8], numbers: &[u64]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    let named = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| mix(hash, *byte));
    numbers.iter().flat_map(|number| number.to_le_bytes()).fold(named, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_kind_survive_the_file() {
        for bits in 0..7 {
            assert_eq!(Status::from_bits(bits).bits(), bits);
        }
        for kind in [Kind::Kernel, Kind::Copy, Kind::Graph] {
            assert_eq!(Kind::from_bits(kind.bits()), kind);
        }
        assert_eq!(Status::from_bits(99), Status::Refused);
        assert_eq!(Status::of_cupti(39), Status::Taken);
        assert_eq!(Status::of_cupti(35), Status::Forbidden);
        assert!(Status::of_cupti(999).is_silent());
    }

    #[test]
    fn signatures_tell_name_and_numbers_apart() {
        // The published test vector of FNV-1a.
        assert_eq!(signature(b"a", &[]), 0xaf63_dc4c_8601_ec8c);
        let base = signature(b"gemm", &[1, 2, 3]);
        assert_ne!(base, signature(b"gemm", &[1, 2, 4]));
        assert_ne!(base, signature(b"gemn", &[1, 2, 3]));
        assert_eq!(base, signature(b"gemm", &[1, 2, 3]));
    }
}
