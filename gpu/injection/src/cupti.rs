//! The few calls of CUPTI's activity API, looked up at run time.
//!
//! The program may have a CUPTI of its own (PyTorch links one); that one is used, because two in one process get in each
//! other's way. All record layouts that are read here have kept their first fields from CUDA 11 to 13, and only those
//! fields are touched.

#![expect(unsafe_code, reason = "calls into CUPTI")]

use cudarc::cupti::sys::{
    CUpti_Activity, CUpti_ActivityGraphTrace2, CUpti_ActivityKernel10, CUpti_ActivityKind,
    CUpti_ActivityMemcpy6, CUpti_BuffersCallbackCompleteFunc, CUpti_BuffersCallbackRequestFunc,
    CUpti_CallbackFunc, CUpti_SubscriberHandle, CUpti_TimestampCallbackFunc,
};
use elastico_gpu::activity::{CUPTI_VARIABLE, Kind, Record, signature};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, OsStr, OsString};
use std::ptr::{addr_of, null_mut};

/// CUPTI returns its results as C integers; the codes of newer versions must not be an invalid enum.
type Code = u32;

const KERNEL: u32 = CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL as u32;
const SERIAL_KERNEL: u32 = CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_KERNEL as u32;
const COPY: u32 = CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY as u32;
const GRAPH: u32 = CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE as u32;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
const FORCED: u32 = 1;

/// Sonames of a CUPTI that the program may have loaded, and of one that the loader may find, newest first.
const NAMES: [&str; 7] = [
    "libcupti.so.13",
    "libcupti.so.12",
    "libcupti.so.11.8",
    "libcupti.so.11.7",
    "libcupti.so.11.6",
    "libcupti.so.11.2",
    "libcupti.so",
];

/// The calls that are needed; the two options are missing in old versions.
#[derive(Clone, Copy)]
pub(crate) struct Cupti {
    get_version: unsafe extern "C" fn(*mut u32) -> Code,
    subscribe:
        unsafe extern "C" fn(*mut CUpti_SubscriberHandle, CUpti_CallbackFunc, *mut core::ffi::c_void) -> Code,
    unsubscribe: unsafe extern "C" fn(CUpti_SubscriberHandle) -> Code,
    enable: unsafe extern "C" fn(u32) -> Code,
    register:
        unsafe extern "C" fn(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc) -> Code,
    next_record: unsafe extern "C" fn(*mut u8, usize, *mut *mut CUpti_Activity) -> Code,
    dropped: unsafe extern "C" fn(*mut core::ffi::c_void, u32, *mut usize) -> Code,
    flush: unsafe extern "C" fn(u32) -> Code,
    timestamp: unsafe extern "C" fn(*mut u64) -> Code,
    register_timestamp: Option<unsafe extern "C" fn(CUpti_TimestampCallbackFunc) -> Code>,
}

impl Cupti {
    /// The program's own CUPTI, the one of the environment, or one that the loader finds.
    pub(crate) fn load() -> Option<Self> {
        let loaded = NAMES.iter().find_map(|name| already_loaded(OsStr::new(name)));
        let named = || std::env::var_os(CUPTI_VARIABLE).filter(|path| !path.is_empty());
        let found = loaded
            .or_else(|| named().and_then(|path: OsString| open(&path)))
            .or_else(|| NAMES.iter().find_map(|name| open(OsStr::new(name))))?;
        let calls = Self::of(&found);
        // Never closed: its threads and the functions below live as long as the process.
        std::mem::forget(found);
        calls
    }

    fn of(library: &Library) -> Option<Self> {
        // SAFETY: each symbol is read at the type that CUPTI's header gives it; results are C enums, read as integers of
        // the same size. The library is never unloaded.
        unsafe {
            Some(Self {
                get_version: *library.get(b"cuptiGetVersion\0").ok()?,
                subscribe: *library.get(b"cuptiSubscribe\0").ok()?,
                unsubscribe: *library.get(b"cuptiUnsubscribe\0").ok()?,
                enable: *library.get(b"cuptiActivityEnable\0").ok()?,
                register: *library.get(b"cuptiActivityRegisterCallbacks\0").ok()?,
                next_record: *library.get(b"cuptiActivityGetNextRecord\0").ok()?,
                dropped: *library.get(b"cuptiActivityGetNumDroppedRecords\0").ok()?,
                flush: *library.get(b"cuptiActivityFlushAll\0").ok()?,
                timestamp: *library.get(b"cuptiGetTimestamp\0").ok()?,
                register_timestamp: library
                    .get(b"cuptiActivityRegisterTimestampCallback\0")
                    .ok()
                    .map(|symbol| *symbol),
            })
        }
    }

    /// CUPTI's own number of its version; 0 where it will not say.
    pub(crate) fn version(&self) -> u32 {
        let mut version = 0;
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.get_version)(&raw mut version) };
        if code == 0 { version } else { 0 }
    }

    /// Takes CUPTI for this process and starts recording. `own_clock` tells whether records come on the clock of
    /// `timestamp`.
    pub(crate) fn start(
        &self,
        requested: CUpti_BuffersCallbackRequestFunc,
        completed: CUpti_BuffersCallbackCompleteFunc,
        timestamp: CUpti_TimestampCallbackFunc,
    ) -> Result<bool, Code> {
        let check = |code: Code| if code == 0 { Ok(()) } else { Err(code) };
        let mut subscriber: CUpti_SubscriberHandle = null_mut();
        // SAFETY: the handle is written by the call; no callback is ever enabled, so the function is never called, and
        // it is one that may be.
        check(unsafe { (self.subscribe)(&raw mut subscriber, Some(ignore), null_mut()) })?;
        let recording = || {
            // SAFETY: the clock reads no memory, and CUPTI keeps the pointer of a function that is never unloaded.
            let own_clock =
                self.register_timestamp.is_some_and(|register| unsafe { register(timestamp) } == 0);
            // SAFETY: both functions follow CUPTI's contract and are never unloaded.
            check(unsafe { (self.register)(requested, completed) })?;
            for kind in [KERNEL, COPY] {
                // SAFETY: no pointers.
                check(unsafe { (self.enable)(kind) })?;
            }
            // One record for a whole graph launch: tracing its nodes slows the launch down. Without it come the nodes.
            // SAFETY: no pointers.
            let _ = unsafe { (self.enable)(GRAPH) };
            Ok(own_clock)
        };
        recording().inspect_err(|_| {
            // SAFETY: the handle is the one that `subscribe` gave.
            let _ = unsafe { (self.unsubscribe)(subscriber) };
        })
    }

    /// Delivers buffers whose records are all complete; `forced` delivers the others, too.
    pub(crate) fn flush(&self, forced: bool) {
        // SAFETY: no pointers. Its result tells nothing that the missing records do not.
        let _ = unsafe { (self.flush)(if forced { FORCED } else { 0 }) };
    }

    /// CUPTI's clock now, in nanoseconds.
    pub(crate) fn now(&self) -> Option<u64> {
        let mut now = 0;
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.timestamp)(&raw mut now) };
        (code == 0).then_some(now)
    }

    /// Reads all records of a buffer that CUPTI has just completed.
    pub(crate) fn read(&self, buffer: *mut u8, valid: usize, mut each: impl FnMut(Seen<'_>)) {
        if valid == 0 {
            return;
        }
        let mut record: *mut CUpti_Activity = null_mut();
        let mut next = || {
            // SAFETY: buffer and size are those of the completion callback; the pointer is valid for the call.
            let code = unsafe { (self.next_record)(buffer, valid, &raw mut record) };
            (code == 0 && !record.is_null()).then_some(record)
        };
        while let Some(record) = next() {
            // SAFETY: each record that CUPTI hands out lies in the buffer and is of the type of its kind, which is its
            // first word. Fields are read in place, unaligned, as some versions pack them.
            let seen = unsafe {
                match record.cast::<u32>().read_unaligned() {
                    KERNEL | SERIAL_KERNEL => Some(kernel(record.cast())),
                    COPY => Some(copy(record.cast())),
                    GRAPH => Some(graph(record.cast())),
                    _ => None,
                }
            };
            if let Some(seen) = seen {
                each(seen);
            }
        }
    }

    /// Records that CUPTI dropped since the last call.
    pub(crate) fn dropped(&self) -> u64 {
        let mut count = 0;
        // SAFETY: context and stream are ignored; the pointer is valid for the call.
        let code = unsafe { (self.dropped)(null_mut(), 0, &raw mut count) };
        if code == 0 { count as u64 } else { 0 }
    }
}

/// A record on CUPTI's clock, and the name of what ran.
pub(crate) struct Seen<'a> {
    pub(crate) record: Record,
    pub(crate) name: &'a [u8],
}

macro_rules! field {
    ($record:ident.$field:ident) => {
        addr_of!((*$record).$field).read_unaligned()
    };
}

// SAFETY: the caller hands a kernel record.
unsafe fn kernel<'a>(record: *const CUpti_ActivityKernel10) -> Seen<'a> {
    // SAFETY: fields up to the name are the same in all versions; the name is a C string that CUPTI keeps while the
    // module is loaded, and is used before the callback returns.
    unsafe {
        let name = field!(record.name);
        let name = if name.is_null() { &b"?"[..] } else { CStr::from_ptr(name).to_bytes() };
        let shape = [
            field!(record.gridX),
            field!(record.gridY),
            field!(record.gridZ),
            field!(record.blockX),
            field!(record.blockY),
            field!(record.blockZ),
        ];
        let record = Record {
            start: field!(record.start),
            end: field!(record.end),
            signature: signature(name, &shape.map(|extent| u64::from(extent as u32))),
            kind: Kind::Kernel,
            context: field!(record.contextId),
            stream: field!(record.streamId),
        };
        Seen { record, name }
    }
}

// SAFETY: the caller hands a copy record.
unsafe fn copy<'a>(record: *const CUpti_ActivityMemcpy6) -> Seen<'a> {
    // SAFETY: fields up to the stream are the same in all versions.
    unsafe {
        let direction = field!(record.copyKind);
        let name: &[u8] = match direction {
            1 => b"copy host to device",
            2 => b"copy device to host",
            8 => b"copy on device",
            _ => b"copy",
        };
        let record = Record {
            start: field!(record.start),
            end: field!(record.end),
            signature: signature(name, &[direction.into(), field!(record.bytes)]),
            kind: Kind::Copy,
            context: field!(record.contextId),
            stream: field!(record.streamId),
        };
        Seen { record, name }
    }
}

// SAFETY: the caller hands a record of a graph launch.
unsafe fn graph<'a>(record: *const CUpti_ActivityGraphTrace2) -> Seen<'a> {
    // SAFETY: fields up to the stream are the same in both versions of the record.
    unsafe {
        let record = Record {
            start: field!(record.start),
            end: field!(record.end),
            signature: signature(b"graph", &[field!(record.graphId).into()]),
            kind: Kind::Graph,
            context: field!(record.contextId),
            stream: field!(record.streamId),
        };
        Seen { record, name: b"graph" }
    }
}

/// A library that the process has loaded already.
pub(crate) fn already_loaded(name: &OsStr) -> Option<Library> {
    // SAFETY: nothing is loaded, so no initialiser runs.
    unsafe { Library::open(Some(name), RTLD_NOW | libc::RTLD_NOLOAD) }.ok()
}

fn open(name: &OsStr) -> Option<Library> {
    // SAFETY: CUPTI's initialisers do nothing that the program could not do itself; local, so that its symbols do not
    // stand in for those of another version that the program loads later.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }.ok()
}

extern "C" fn ignore(
    _: *mut core::ffi::c_void,
    _: cudarc::cupti::sys::CUpti_CallbackDomain,
    _: u32,
    _: *const core::ffi::c_void,
) {
}
