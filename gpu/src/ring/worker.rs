//! The worker's end: obeys, writes, shows that it lives.

use super::layout::{Header, LIMIT, MAGIC, Map, VERSION, file_bytes, map};
use super::{Command, RingError, Step, WorkerState, file_error};
use rustix::thread::futex;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

/// The worker's end of a ring; one per ring.
#[derive(Debug)]
pub struct Producer {
    map: Map,
    path: PathBuf,
    head: u64,
    /// The reader's place when last looked at: the shared word is read only when the ring seems full.
    tail: u64,
}

impl Producer {
    /// Opens a ring and claims its writing end.
    ///
    /// # Errors
    /// [`RingError::Foreign`] or [`RingError::Version`] for a file that is no ring of this version,
    /// [`RingError::Claimed`] where another worker writes already, [`RingError::File`] for the rest.
    pub fn open(path: &Path) -> Result<Self, RingError> {
        let foreign = |reason: String| RingError::Foreign { path: path.to_owned(), reason };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(file_error("open", path))?;
        let length = file.metadata().map_err(file_error("inspect", path))?.len();
        let header = size_of::<Header>() as u64;
        if length < header {
            return Err(foreign(format!("it has {length} bytes, the head alone has {header}")));
        }
        let records = (length - header) as usize / (file_bytes(1) - file_bytes(0));
        if records == 0 || records > LIMIT {
            return Err(foreign(format!("it has room for {records} records")));
        }
        let map = map(&file, path, records)?;
        let preamble = &map.header().preamble;
        let magic = preamble.magic.load(Acquire);
        if magic != MAGIC {
            return Err(foreign(format!("it starts with {magic:#018x}")));
        }
        let found = preamble.version.load(Relaxed);
        if found != VERSION {
            return Err(RingError::Version { path: path.to_owned(), found, expected: VERSION });
        }
        let capacity = preamble.capacity.load(Relaxed);
        if capacity != records as u64 {
            return Err(foreign(format!("it claims {capacity} records and has room for {records}")));
        }
        let report = &map.header().report;
        if let Err(holder) = report.holder.compare_exchange(0, std::process::id(), AcqRel, Acquire) {
            return Err(RingError::Claimed { path: path.to_owned(), holder });
        }
        let head = report.head.load(Relaxed);
        let tail = map.header().orders.tail.load(Acquire);
        Ok(Self { map, path: path.to_owned(), head, tail })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process that made the ring.
    pub fn owner(&self) -> u32 {
        self.map.header().preamble.owner.load(Relaxed)
    }

    /// The command in force and the phase it came with.
    pub fn command(&self) -> (Command, u32) {
        let word = self.map.header().orders.command.load(Acquire);
        (Command::from_bits(word & 3), word >> 2)
    }

    /// Steps after which a run ends by itself; 0 means no target.
    pub fn step_target(&self) -> u64 {
        self.map.header().orders.step_target.load(Relaxed)
    }

    /// The coordinator's heartbeat.
    pub fn owner_beat(&self) -> u64 {
        self.map.header().orders.owner_beat.load(Relaxed)
    }

    /// Sleeps in the kernel until a command of another phase than `phase` is there, at most for `timeout`.
    ///
    /// Returns whether there is one. Nothing spins: a parked worker takes no time from the other side.
    pub fn wait_beyond(&self, phase: u32, timeout: Duration) -> bool {
        let word = &self.map.header().orders.command;
        let seen = word.load(Acquire);
        if seen >> 2 != phase {
            return true;
        }
        let timeout = futex::Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // Time-out, signal and a changed word all mean: look again.
        let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timeout));
        word.load(Acquire) >> 2 != phase
    }

    /// Writes one step; `false` where the ring was full and the step was only counted.
    pub fn push(&mut self, step: Step) -> bool {
        let capacity = self.map.capacity() as u64;
        let header = self.map.header();
        if self.head.wrapping_sub(self.tail) >= capacity {
            self.tail = header.orders.tail.load(Acquire);
            if self.head.wrapping_sub(self.tail) >= capacity {
                header.report.overflow.fetch_add(1, Relaxed);
                return false;
            }
        }
        let slot = &self.map.slots()[(self.head % capacity) as usize];
        slot.phase.store(step.phase.into(), Relaxed);
        slot.start.store(step.start, Relaxed);
        slot.end.store(step.end, Relaxed);
        slot.busy.store(step.busy, Relaxed);
        self.head = self.head.wrapping_add(1);
        header.report.head.store(self.head, Release);
        true
    }

    /// Shows that this process lives.
    pub fn beat(&self) {
        self.map.header().report.heartbeat.fetch_add(1, Relaxed);
    }

    /// Says that the command of `phase` is obeyed and what the worker does now.
    pub fn set_state(&self, state: WorkerState, phase: u32) {
        let report = &self.map.header().report;
        report.heartbeat.fetch_add(1, Relaxed);
        report.state.store(state.bits(), Release);
        report.phase.store(phase, Release);
    }

    /// Leaves a reason for going.
    pub fn fail(&self, error_code: u32) {
        self.map.header().report.error_code.store(error_code, Relaxed);
        self.set_state(WorkerState::Stopped, self.command().1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ring;
    use super::*;

    #[test]
    fn overflow_is_counted_and_old_records_survive() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = Ring::create(folder.path(), "full", 4).unwrap();
        let mut producer = Producer::open(ring.path()).unwrap();
        let step = |start| Step { phase: 1, start, end: start + 1, busy: 1 };
        assert_eq!((0..6).map(|start| producer.push(step(start))).filter(|kept| *kept).count(), 4);
        assert_eq!(ring.status().overflow, 2);
        let mut steps = Vec::new();
        assert_eq!(ring.drain(&mut steps), 4);
        assert_eq!(steps, (0..4).map(step).collect::<Vec<_>>());
        assert!(producer.push(step(9)));
        ring.drain(&mut steps);
        assert_eq!(steps.last(), Some(&step(9)));
    }

    #[test]
    fn commands_carry_their_phase_and_wake_the_sleeper() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = Ring::create(folder.path(), "wake", 4).unwrap();
        let producer = Producer::open(ring.path()).unwrap();
        assert_eq!(producer.command(), (Command::Park, 0));
        assert!(!producer.wait_beyond(0, Duration::from_millis(5)));
        let sleeper = std::thread::spawn(move || {
            let woken = producer.wait_beyond(0, Duration::from_secs(20));
            (woken, producer.command(), producer.step_target())
        });
        std::thread::sleep(Duration::from_millis(20));
        let start = std::time::Instant::now();
        ring.send(Command::Run, 7);
        assert_eq!(sleeper.join().unwrap(), (true, (Command::Run, 1), 7));
        assert!(start.elapsed() < Duration::from_secs(10), "the wake, not the time-out, ended the sleep");
    }

    #[test]
    fn state_heartbeat_and_reason_reach_the_coordinator() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = Ring::create(folder.path(), "state", 4).unwrap();
        let producer = Producer::open(ring.path()).unwrap();
        assert_eq!(ring.status().state, WorkerState::Starting);
        let before = producer.owner_beat();
        ring.beacon().beat();
        assert_eq!(producer.owner_beat(), before + 1);
        let phase = ring.send(Command::Park, 0);
        producer.set_state(WorkerState::Parked, phase);
        let status = ring.status();
        assert_eq!((status.state, status.phase, status.heartbeat), (WorkerState::Parked, phase, 1));
        producer.fail(3);
        assert_eq!((ring.status().state, ring.status().error_code), (WorkerState::Stopped, 3));
        drop(ring);
        assert_eq!(producer.command().0, Command::Stop);
    }

    #[test]
    fn a_second_writer_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let ring = Ring::create(folder.path(), "twice", 4).unwrap();
        let _first = Producer::open(ring.path()).unwrap();
        let error = Producer::open(ring.path()).unwrap_err();
        assert!(
            matches!(error, RingError::Claimed { holder, .. } if holder == std::process::id()),
            "{error}"
        );
    }

    #[test]
    fn foreign_and_damaged_files_are_typed_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let expect_foreign = |bytes: &[u8], part: &str| {
            std::fs::write(&path, bytes).unwrap();
            let error = Producer::open(&path).unwrap_err();
            assert!(matches!(error, RingError::Foreign { .. }), "{error}");
            assert!(error.to_string().contains(part), "{error}");
        };
        expect_foreign(b"", "0 bytes");
        expect_foreign(&[7; 384], "room for 0 records");
        expect_foreign(&[7; 384 + 32 * 4 + 5], "where 4 records need");
        expect_foreign(&[7; 384 + 32 * 4], "starts with 0x0707");

        let ring = Ring::create(folder.path(), "copy", 4).unwrap();
        let good = std::fs::read(ring.path()).unwrap();
        let mut other_version = good.clone();
        other_version[8] = 99;
        std::fs::write(&path, &other_version).unwrap();
        let error = Producer::open(&path).unwrap_err();
        assert!(matches!(error, RingError::Version { found: 99, expected: 1, .. }), "{error}");
        let mut other_capacity = good;
        other_capacity[16] = 200;
        expect_foreign(&other_capacity, "claims 200 records");
        assert!(matches!(
            Producer::open(&folder.path().join("none")),
            Err(RingError::File { action: "open", .. })
        ));
    }
}
