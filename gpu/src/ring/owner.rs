//! The coordinator's end: creates, commands, reads, removes.

use super::layout::{LIMIT, MAGIC, Map, VERSION, file_bytes, map};
use super::{Command, RingError, Step, WorkerState, file_error};
use rustix::thread::futex;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const PREFIX: &str = "elastico-ring";

/// The coordinator's end of a ring. Dropping it tells the worker to stop and removes the file.
#[derive(Debug)]
pub struct Ring {
    map: Arc<Map>,
    path: PathBuf,
    phase: u32,
    tail: u64,
}

/// What the worker says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerStatus {
    /// What it is doing.
    pub state: WorkerState,
    /// The phase whose command it has obeyed.
    pub phase: u32,
    /// Counts up while it lives.
    pub heartbeat: u64,
    /// Steps written since the ring was made.
    pub steps: u64,
    /// Steps that found the ring full and are lost.
    pub overflow: u64,
    /// 0, or the worker's reason for leaving.
    pub error_code: u32,
}

impl Ring {
    /// Creates a ring of `capacity` records in `folder`, best a memory file system such as `/dev/shm`.
    ///
    /// The file's name carries this process's id and start time, by which [`remove_stale`] knows whose it was.
    ///
    /// # Errors
    /// [`RingError::Capacity`], [`RingError::NoRoom`], or [`RingError::File`].
    pub fn create(folder: &Path, label: &str, capacity: usize) -> Result<Self, RingError> {
        if capacity == 0 || capacity > LIMIT {
            return Err(RingError::Capacity { capacity, limit: LIMIT });
        }
        let bytes = file_bytes(capacity) as u64;
        if let Ok(volume) = rustix::fs::statvfs(folder) {
            let free = volume.f_bavail.saturating_mul(volume.f_frsize);
            // Some file systems report neither blocks nor room.
            if volume.f_blocks > 0 && free < bytes {
                return Err(RingError::NoRoom { folder: folder.to_owned(), free, needed: bytes });
            }
        }
        let label: String = label.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        let owner = std::process::id();
        let started = start_time(owner).unwrap_or(0);
        let mut attempt = 0_u32;
        let (path, file) = loop {
            let path = folder.join(format!("{PREFIX}.{owner}.{started}.{label}.{attempt}"));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < 10_000 => {
                    attempt += 1;
                }
                Err(error) => return Err(file_error("create", &path)(error)),
            }
        };
        let made = (|| {
            file.set_len(bytes).map_err(file_error("size", &path))?;
            map(&file, &path, capacity)
        })();
        let map = match made {
            Ok(map) => map,
            Err(error) => {
                // The error that matters is the one above; a file that stays is stale and is swept later.
                let _ = std::fs::remove_file(&path);
                return Err(error);
            }
        };
        let preamble = &map.header().preamble;
        preamble.owner.store(owner, Relaxed);
        preamble.capacity.store(capacity as u64, Relaxed);
        preamble.version.store(VERSION, Relaxed);
        preamble.magic.store(MAGIC, Release);
        Ok(Self { map: Arc::new(map), path, phase: 0, tail: 0 })
    }

    /// The file, for the worker to open.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives a command under a new phase number, wakes the worker, and returns the number.
    ///
    /// With [`Command::Run`] the worker parks itself after `step_target` steps; 0 means no target.
    pub fn send(&mut self, command: Command, step_target: u64) -> u32 {
        // Two bits of the word are the command; after 2^30 phases the number starts again.
        self.phase = (self.phase + 1) & (u32::MAX >> 2);
        let orders = &self.map.header().orders;
        orders.step_target.store(step_target, Relaxed);
        orders.owner_beat.fetch_add(1, Relaxed);
        orders.command.store((self.phase << 2) | command.bits(), Release);
        // A futex wake on a mapped word fails only for an unmapped one; a missed wake costs one time-out.
        let _ = futex::wake(&orders.command, futex::Flags::empty(), i32::MAX as u32);
        self.phase
    }

    /// The number of the last command.
    pub const fn phase(&self) -> u32 {
        self.phase
    }

    /// What the worker says about itself.
    pub fn status(&self) -> WorkerStatus {
        let report = &self.map.header().report;
        // `phase` is stored after `state` with release, so a new phase implies its state.
        let phase = report.phase.load(Acquire);
        WorkerStatus {
            state: WorkerState::from_bits(report.state.load(Acquire)),
            phase,
            heartbeat: report.heartbeat.load(Relaxed),
            steps: report.head.load(Relaxed),
            overflow: report.overflow.load(Relaxed),
            error_code: report.error_code.load(Relaxed),
        }
    }

    /// Moves all records that are there to the end of `steps` and returns how many they were.
    pub fn drain(&mut self, steps: &mut Vec<Step>) -> usize {
        let capacity = self.map.capacity() as u64;
        let head = self.map.header().report.head.load(Acquire);
        // An honest writer is never further ahead; a damaged word must not make us read for ever.
        let available = head.wrapping_sub(self.tail).min(capacity);
        steps.reserve(available as usize);
        let slots = self.map.slots();
        for index in 0..available {
            let slot = &slots[(self.tail.wrapping_add(index) % capacity) as usize];
            steps.push(Step {
                phase: slot.phase.load(Relaxed) as u32,
                start: slot.start.load(Relaxed),
                end: slot.end.load(Relaxed),
                busy: slot.busy.load(Relaxed),
            });
        }
        self.tail = self.tail.wrapping_add(available);
        self.map.header().orders.tail.store(self.tail, Release);
        available as usize
    }

    /// A handle by which another thread can show the worker that the coordinator lives.
    pub fn beacon(&self) -> Beacon {
        Beacon { map: Arc::clone(&self.map) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.send(Command::Stop, 0);
        // Already gone is as good; anything else is swept as stale once this process is gone.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Shows the worker that its coordinator lives.
#[derive(Debug, Clone)]
pub struct Beacon {
    map: Arc<Map>,
}

impl Beacon {
    /// Counts the coordinator's heartbeat up.
    pub fn beat(&self) {
        self.map.header().orders.owner_beat.fetch_add(1, Relaxed);
    }
}

/// Removes rings in `folder` whose coordinator is gone, and returns them.
///
/// # Errors
/// [`RingError::File`] where the folder cannot be listed; a ring that cannot be removed is left for its owner.
pub fn remove_stale(folder: &Path) -> Result<Vec<PathBuf>, RingError> {
    let entries = std::fs::read_dir(folder).map_err(file_error("look for", folder))?;
    let mut removed = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((owner, started)) = name.to_str().and_then(owner_of) else { continue };
        let lives = start_time(owner).is_some_and(|actual| started == 0 || actual == started);
        if !lives && std::fs::remove_file(entry.path()).is_ok() {
            removed.push(entry.path());
        }
    }
    removed.sort();
    Ok(removed)
}

/// Process id and start time from a ring's file name.
fn owner_of(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('.')?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Start time of a living process in clock ticks since boot: with the id it names a process for good.
pub fn start_time(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The command name is in parentheses and may hold blanks; field 22 is the 20th after it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_start_time_is_known_and_names_are_read_back() {
        let own = std::process::id();
        let started = start_time(own).unwrap();
        assert!(started > 0);
        assert_eq!(owner_of(&format!("{PREFIX}.{own}.{started}.a.0")), Some((own, started)));
        assert_eq!(owner_of("elastico-ring.x.1"), None);
        assert_eq!(owner_of("other.1.1"), None);
    }

    #[test]
    fn only_rings_of_dead_processes_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let ring = Ring::create(folder.path(), "alive", 4).unwrap();
        let own = std::process::id();
        // Our id with another start time: the id was given again.
        let recycled = folder.path().join(format!("{PREFIX}.{own}.1.old.0"));
        let dead = folder.path().join(format!("{PREFIX}.4194999.77.old.0"));
        let foreign = folder.path().join("notes.txt");
        for path in [&recycled, &dead, &foreign] {
            std::fs::write(path, b"x").unwrap();
        }
        let mut expected = vec![recycled, dead];
        expected.sort();
        assert_eq!(remove_stale(folder.path()).unwrap(), expected);
        assert!(ring.path().exists() && foreign.exists());
        let path = ring.path().to_owned();
        drop(ring);
        assert!(!path.exists());
    }

    #[test]
    fn impossible_capacities_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for capacity in [0, LIMIT + 1, usize::MAX] {
            let error = Ring::create(folder.path(), "x", capacity).unwrap_err();
            assert!(matches!(error, RingError::Capacity { .. }), "{error}");
        }
        let missing = folder.path().join("missing");
        assert!(matches!(Ring::create(&missing, "x", 4), Err(RingError::File { .. })));
    }
}
