//! The ring between real processes, and drivers: stand-ins, and NVIDIA's libraries from wheels.

mod compile;
mod counters;
mod cuda;
mod device;
mod metrics;
mod mig;
mod mps;
mod probes;
mod processes;
mod support;
mod telemetry;
