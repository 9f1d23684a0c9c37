//! From CUPTI's buffers to the ring.

#![expect(unsafe_code, reason = "callbacks that CUPTI calls, and the state that they share")]

use crate::cupti::Cupti;
use crate::process::{self, Owner};
use elastico_gpu::activity::{CAPACITY, CAPACITY_VARIABLE, FOLDER_VARIABLE, Record, Status, Teller, Writer};
use elastico_gpu::ring::monotonic_nanoseconds;
use std::panic::catch_unwind;
use std::path::Path;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often complete buffers are fetched.
const PERIOD: Duration = Duration::from_millis(100);
/// Bytes of a buffer: some 300 kernels. A buffer comes only when all its records are complete, so small ones come soon.
const BUFFER: usize = 64 << 10;
/// Spare buffers that are kept.
const SPARE: usize = 64;

/// A buffer as CUPTI wants it: aligned to 8.
type Words = [u64; BUFFER / 8];

/// The recording of one process; made once and never freed, because CUPTI's threads may look at it at any time.
struct Recorder {
    process: u32,
    cupti: Cupti,
    writer: Mutex<Writer>,
    teller: Teller,
    /// What takes CUPTI's clock to `CLOCK_MONOTONIC`; 0 where CUPTI asks for that clock itself.
    offset: AtomicI64,
    own_clock: AtomicBool,
    spare: Mutex<Vec<usize>>,
    seen: AtomicBool,
}

static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(null_mut());
static REGISTERED: AtomicBool = AtomicBool::new(false);
/// Set in a forked child.
static SILENT: AtomicBool = AtomicBool::new(false);
static ENDING: AtomicBool = AtomicBool::new(false);

fn recorder() -> Option<&'static Recorder> {
    if SILENT.load(Relaxed) {
        return None;
    }
    // SAFETY: null, or a box that was leaked.
    unsafe { RECORDER.load(Acquire).as_ref() }
}

/// Starts recording in this process; does nothing where nobody asked for it, or where it records already.
pub(crate) fn start() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()) else { return };
    let process = std::process::id();
    // SAFETY: as in `recorder`.
    if unsafe { RECORDER.load(Acquire).as_ref() }.is_some_and(|known| known.process == process) {
        return;
    }
    let capacity =
        std::env::var(CAPACITY_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(CAPACITY);
    let Ok(writer) = Writer::create(Path::new(&folder), capacity) else { return };
    let teller = writer.teller();
    let Some(cupti) = Cupti::load() else { return teller.set_status(Status::Absent, 0) };
    teller.set_cupti_version(cupti.version());
    let recorder = Box::leak(Box::new(Recorder {
        process,
        cupti,
        writer: Mutex::new(writer),
        teller: teller.clone(),
        offset: AtomicI64::new(0),
        own_clock: AtomicBool::new(true),
        spare: Mutex::new(Vec::new()),
        seen: AtomicBool::new(false),
    }));
    RECORDER.store(recorder, Release);
    SILENT.store(false, Relaxed);
    match cupti.start(Some(requested), Some(completed), Some(clock)) {
        Ok(own_clock) => {
            recorder.own_clock.store(own_clock, Relaxed);
            recorder.align();
            teller.set_status(Status::Recording, 0);
        }
        Err(code) => {
            SILENT.store(true, Relaxed);
            return teller.set_status(Status::of_cupti(code), code);
        }
    }
    if !REGISTERED.swap(true, Relaxed) {
        process::register(at_exit, in_child);
    }
    let owner = Owner::from_environment();
    // Without the thread records come when buffers are full, and at the end.
    let _ = std::thread::Builder::new().name("elastico".to_owned()).spawn(move || {
        let _ = catch_unwind(|| fetch(recorder, owner));
    });
}

/// Fetches complete buffers ten times a second.
fn fetch(recorder: &Recorder, owner: Option<Owner>) {
    process::block_signals();
    let mut sharing_told = false;
    while !ENDING.load(Relaxed) {
        std::thread::sleep(PERIOD);
        if owner.is_some_and(Owner::is_gone) {
            process::end();
        }
        recorder.teller.beat();
        recorder.align();
        recorder.cupti.flush(false);
        recorder.teller.add_dropped(recorder.cupti.dropped());
        if !sharing_told && recorder.seen.load(Relaxed) {
            sharing_told = true;
            if let Some((under_mps, multiprocessors)) = process::sharing() {
                recorder.teller.set_sharing(under_mps, multiprocessors);
            }
        }
    }
}

impl Recorder {
    /// Takes both clocks as nearly at once as can be, where CUPTI keeps its own.
    fn align(&self) {
        if self.own_clock.load(Relaxed) {
            return;
        }
        let reading = || {
            let before = monotonic_nanoseconds();
            let there = self.cupti.now()?;
            let after = monotonic_nanoseconds();
            Some((after - before, before.midpoint(after).wrapping_sub(there).cast_signed()))
        };
        if let Some((_, offset)) = (0..5).filter_map(|_| reading()).min() {
            self.offset.store(offset, Relaxed);
        }
    }

    fn take(&self, buffer: *mut u8, valid: usize) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = self.offset.load(Relaxed);
        self.cupti.read(buffer, valid, |seen| {
            if seen.record.end == 0 {
                return self.teller.add_untimed();
            }
            let there = |instant: u64| instant.wrapping_add_signed(offset);
            let record =
                Record { start: there(seen.record.start), end: there(seen.record.end), ..seen.record };
            writer.name(record.signature, seen.name);
            writer.push(&record);
            self.seen.store(true, Relaxed);
        });
    }

    /// An empty buffer; null where there is no memory.
    fn lend(&self) -> *mut u8 {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let layout = std::alloc::Layout::new::<Words>();
        match spare {
            Some(address) => with_exposed_provenance_mut(address),
            // SAFETY: the layout is not empty.
            None => unsafe { std::alloc::alloc(layout) },
        }
    }

    fn give_back(&self, buffer: *mut u8) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE {
            spare.push(buffer.expose_provenance());
        } else {
            // SAFETY: every buffer comes from `lend`, with this layout.
            unsafe { std::alloc::dealloc(buffer, std::alloc::Layout::new::<Words>()) };
        }
    }
}

extern "C" fn clock() -> u64 {
    monotonic_nanoseconds()
}

unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    let lent = catch_unwind(|| recorder().map_or(null_mut(), Recorder::lend)).unwrap_or(null_mut());
    // SAFETY: CUPTI hands three valid places. A null buffer of size 0 makes it drop records.
    unsafe {
        *buffer = lent;
        *size = if lent.is_null() { 0 } else { BUFFER };
        *most_records = 0;
    }
}

unsafe extern "C" fn completed(
    _: cudarc::driver::sys::CUcontext,
    _: u32,
    buffer: *mut u8,
    _: usize,
    valid: usize,
) {
    let _ = catch_unwind(|| {
        if let Some(recorder) = recorder()
            && !buffer.is_null()
        {
            recorder.take(buffer, valid);
            recorder.give_back(buffer);
        }
    });
}

extern "C" fn at_exit() {
    let _ = catch_unwind(|| {
        if let Some(recorder) = recorder().filter(|recorder| recorder.process == std::process::id()) {
            ENDING.store(true, Relaxed);
            recorder.cupti.flush(true);
            recorder.teller.add_dropped(recorder.cupti.dropped());
            recorder.teller.set_status(Status::Finished, 0);
        }
    });
}

extern "C" fn in_child() {
    SILENT.store(true, Relaxed);
}
