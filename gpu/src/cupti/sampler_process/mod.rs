//! The process that samples counters, and the coordinator's side of it.
//!
//! CUPTI takes one subscriber per process, cannot be unloaded and may crash, so it lives in a process of its own, whose
//! whole life is [`main`]. The two speak JSON lines, one request and one reply at a time:
//! `hello` ← · `prepare` → `ready` or `refused` · `start` → `started` or `refused` · `stop` → `report` · `bye` →.
//! Windows may be repeated. The monitor is taken at `start` and given back at `stop`, so that nothing is held between
//! windows; `prepare` takes it once for a moment, so that a refusal is known before the first trial.
//!
//! [`SamplerProcess`] waits for each reply with a limit. Whatever happens to the sampler is a [`SamplerError`] with a
//! word for `counters_status`; it is never the failure of a trial.

mod client;
mod message;
mod server;

pub use client::{SamplerError, SamplerProcess, SamplerTimeouts};
pub use message::{Ready, SamplerRequest};
pub use server::{main, serve};
