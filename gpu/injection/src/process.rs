//! What concerns the process that is the host: its coordinator, its end, its forks, its device.

#![expect(unsafe_code, reason = "calls into libc and libcuda")]

use crate::cupti::already_loaded;
use elastico_gpu::activity::OWNER_VARIABLE;
use elastico_gpu::ring::start_time;
use std::ffi::OsStr;

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSORS: i32 = 16;
/// `CU_DEVICE_ATTRIBUTE_MPS_ENABLED`, new in CUDA 12.2.
const MPS_ENABLED: i32 = 133;

/// The process that started the command, by id and start time.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    process: u32,
    started: u64,
}

impl Owner {
    pub(crate) fn from_environment() -> Option<Self> {
        let text = std::env::var(OWNER_VARIABLE).ok()?;
        let (process, started) = text.split_once('.')?;
        Some(Self { process: process.parse().ok()?, started: started.parse().ok()? })
    }

    pub(crate) fn is_gone(self) -> bool {
        start_time(self.process) != Some(self.started)
    }
}

/// Ends this process at once: the coordinator is gone and nobody else knows about it.
pub(crate) fn end() -> ! {
    // SAFETY: no pointers; SIGKILL to the own process does not return.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
        libc::_exit(137)
    }
}

/// Calls `at_exit` when the process ends in order, and `in_child` in each forked child; once per process.
pub(crate) fn register(at_exit: extern "C" fn(), in_child: extern "C" fn()) {
    // SAFETY: both functions stay loaded: the driver never closes an injected library. `in_child` only stores an
    // atomic, which is allowed between fork and exec.
    unsafe {
        libc::atexit(at_exit);
        libc::pthread_atfork(None, None, Some(to_unsafe(in_child)));
    }
}

const fn to_unsafe(function: extern "C" fn()) -> unsafe extern "C" fn() {
    function
}

/// Keeps the program's signals away from this thread: its handlers expect the program's own threads.
pub(crate) fn block_signals() {
    // SAFETY: the set is filled before it is used, and the old mask is not asked for.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// Whether the process runs under MPS, and the multiprocessors that it sees, of the first visible device.
///
/// To be called when the driver is initialised, which the first record proves.
pub(crate) fn sharing() -> Option<(bool, u32)> {
    let driver = already_loaded(OsStr::new("libcuda.so.1"))?;
    // SAFETY: the symbols have these types in every driver; both calls need no context and write one integer each.
    let answer = unsafe {
        let get: unsafe extern "C" fn(*mut i32, i32) -> u32 = *driver.get(b"cuDeviceGet\0").ok()?;
        let attribute: unsafe extern "C" fn(*mut i32, i32, i32) -> u32 =
            *driver.get(b"cuDeviceGetAttribute\0").ok()?;
        let (mut device, mut multiprocessors, mut mps) = (0, 0, 0);
        let known = get(&raw mut device, 0) == 0
            && attribute(&raw mut multiprocessors, MULTIPROCESSORS, device) == 0
            && attribute(&raw mut mps, MPS_ENABLED, device) == 0;
        known.then_some((mps == 1, multiprocessors as u32))
    };
    // Not closed: the count of a handle that was taken with NOLOAD is the program's.
    std::mem::forget(driver);
    answer
}
