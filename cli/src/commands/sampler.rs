//! `elastico sampler`: the process that reads hardware counters.

use elastico_gpu::cupti::sampler_process;
use std::process::ExitCode;

/// Speaks its own protocol on stdin and stdout, and ends with its own code.
pub(crate) fn run() -> ! {
    std::process::exit(i32::from(sampler_process::main() != ExitCode::SUCCESS))
}
