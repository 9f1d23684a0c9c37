//! The ring between real processes, and the probe against stand-in drivers.

mod counters;
mod device;
mod drivers;
mod metrics;
mod mps;
mod processes;
mod stand_ins;
mod support;
mod telemetry;
