//! What the CUDA driver loads into a program that is profiled without changes.
//!
//! `libcuda` opens the file of `CUDA_INJECTION64_PATH` inside `cuInit` and calls `InitializeInjection`. This library then
//! records kernels, copies and graph launches through CUPTI's activity API and writes them to a ring of
//! [`elastico_gpu::activity`] in the folder of `ELASTICO_ACTIVITY_FOLDER`; without that variable it does nothing.
//!
//! It is a guest. It never ends the program (unless the coordinator that started the program is gone), never waits,
//! never writes to its streams, and no panic leaves it. Where CUPTI is absent, taken or forbidden it says so in the
//! ring and gets out of the way. A forked child records nothing: its CUDA state is not usable either. CUPTI is never
//! finalised or unloaded, because both crash when they race with other threads.

mod cupti;
mod process;
mod recorder;

use std::panic::catch_unwind;

/// Called by the driver inside `cuInit`; 1 tells it that all is well, which is so even where nothing is recorded.
#[expect(unsafe_code, reason = "the driver looks the symbol up by this name")]
// SAFETY: no other library of the process defines this symbol for linking; the driver finds it by dlsym in this one.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> i32 {
    // Standard error belongs to the program: the hook of this library's own copy of std stays silent.
    std::panic::set_hook(Box::new(|_| {}));
    let _ = catch_unwind(recorder::start);
    1
}
