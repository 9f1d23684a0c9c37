//! One binary of integration tests: files, back ends, libraries.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and says why it is skipped")]

mod backends;
mod bundled;
mod libraries;
mod malformed;
mod parity;
mod scheduler;
mod specs;
mod support;
