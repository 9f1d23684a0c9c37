//! Clocks, power, energy, temperatures, throttling and errors of a device, through NVML.
//!
//! [`Telemetry`] reads one sample in about a millisecond and without a context; [`TelemetryPoller`] does so five times
//! a second on a thread of its own and sums windows up. What a device cannot tell is `None` with a reason, never 0.
//!
//! NVML sees the device and not a process. `utilization.gpu` is left out on purpose: it says that some kernel ran in
//! the last sixth of a second, and nothing about how much.
//!
//! A clock cut by heat or by hardware spoils a measurement; a clock cut by the power limit is how neighbours slow each
//! other down, and is kept. [`Throttling`] tells them apart.

mod identity;
mod nvml;
mod poller;
mod sample;
mod throttle;
mod window;

pub use identity::TelemetryIdentity;
pub use nvml::TelemetryError;
pub(crate) use nvml::{Place, nvml, reason};
pub use poller::TelemetryPoller;
pub use sample::{Telemetry, TelemetrySample};
pub use throttle::Throttling;
pub use window::TelemetryWindow;
