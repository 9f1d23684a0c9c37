//! The worker process on its own: what `elastico worker` runs.
//!
//! The tests of the CPU device start it, and so can a program that embeds the device without the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    elastico_profiler::worker::main()
}
