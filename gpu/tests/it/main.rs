//! The ring between real processes, and the probe against stand-in drivers.

mod counters;
mod device;
mod drivers;
mod metrics;
mod mig;
mod mps;
mod processes;
mod support;
mod telemetry;
