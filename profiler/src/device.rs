//! What a device has to offer so that the protocol can measure on it.
//!
//! Everything above this trait is the same code for a GPU, for CPU cores, for the simulated chips and for a replayed
//! journal.

use elastico_core::units::{Bytes, Hertz, Seconds, Watts};
use elastico_core::{DeviceKind, Outcome, Seed, SharingMode, TrialId};
use elastico_workloads::Benchmark;
use std::collections::BTreeMap;

/// What a device is.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceIdentity {
    /// Whether its numbers are measured or simulated.
    pub kind: DeviceKind,
    /// The model, as in the dataset's `device` column: a chip name, or `cpu`.
    pub model: String,
    /// Memory that the two sides share.
    pub memory: Bytes,
    /// Facts for the provenance: driver, host processor, constants of the model.
    pub facts: BTreeMap<String, String>,
}

/// One of the two sides of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The first side of the trial.
    Subject,
    /// The second side of the trial.
    CoRunner,
}

/// Which sides run in a phase; the other side is parked: its context lives, its stream is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Active {
    /// One side alone.
    Alone(Side),
    /// Both sides.
    Both,
}

/// When a phase may end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Run at least this long.
    pub min: Seconds,
    /// Run until the slowest active side has made this many steps, but never past `max`.
    pub min_steps: u32,
    /// Stop here in any case.
    pub max: Seconds,
}

/// Start and end of one step on the session's clock, which both sides share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRecord {
    /// When the step was submitted, in seconds.
    pub start: f64,
    /// When it was complete, in seconds.
    pub end: f64,
}

/// What was seen in one phase.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Phase {
    /// Steps of the subject, in order; empty where it was parked.
    pub subject: Vec<StepRecord>,
    /// Steps of the co-runner, in order; empty where it was parked.
    pub co_runner: Vec<StepRecord>,
    /// Clocks, power and throttling during the phase.
    pub telemetry: Telemetry,
}

/// Clocks, power and heat over one phase; `None` where the device cannot tell.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Telemetry {
    /// Mean SM or core clock.
    pub clock: Option<Hertz>,
    /// Mean memory clock.
    pub memory_clock: Option<Hertz>,
    /// Mean board power: energy over time where the board counts its energy.
    pub power: Option<Watts>,
    /// Highest temperature of the chip in degrees Celsius.
    pub temperature: Option<f64>,
    /// Highest temperature of the memory in degrees Celsius.
    pub memory_temperature: Option<f64>,
    /// Share of the phase in which heat or hardware cut the clock.
    pub throttled_ratio: Option<f64>,
    /// Share of the phase in which the power limit cut the clock: a channel of contention, not a fault.
    pub power_capped_ratio: Option<f64>,
}

/// Counters of one separate repetition, by the names of [`elastico_core::COUNTERS`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CounterReading {
    /// Values that could be read. A missing counter is absent, never 0.
    pub values: BTreeMap<&'static str, f64>,
    /// What read them and why others are missing, or `ok`.
    pub status: String,
    /// Remarks on the trial, from [`elastico_datasets::FLAGS`].
    pub flags: Vec<&'static str>,
}

/// What the sides of a session told about themselves, beside their steps.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SessionReport {
    /// SMs that each side could use, subject first; `None` where the device has none or there is no such side.
    pub multiprocessors: [Option<u32>; 2],
    /// Device memory that each side took at most, subject first.
    pub memory_peak: [Option<Bytes>; 2],
    /// `ok`, or why telemetry is missing; absent where the device's kind has none of it.
    pub telemetry_status: Option<String>,
    /// Remarks on the trial, from [`elastico_datasets::FLAGS`].
    pub flags: Vec<&'static str>,
}

/// Something went wrong in a trial; the campaign records it and goes on, unless the device is lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{outcome}: {detail}")]
pub struct Fault {
    /// The class of the fault.
    pub outcome: Outcome,
    /// What was seen, for the journal.
    pub detail: String,
}

/// What a session is opened for.
#[derive(Debug, Clone, Copy)]
pub struct SessionRequest<'a> {
    /// The trial, for names of processes and for random streams.
    pub trial: &'a TrialId,
    /// The first side.
    pub subject: &'a Benchmark,
    /// The second side; `None` for an isolated trial.
    pub co_runner: Option<&'a Benchmark>,
    /// The requested sharing.
    pub sharing: &'a SharingMode,
    /// The campaign's seed.
    pub seed: Seed,
}

/// A place where trials run.
pub trait Device {
    /// What the device is.
    fn identity(&self) -> &DeviceIdentity;

    /// Takes the device for measuring until this value is dropped: two campaigns on one device would measure each other.
    ///
    /// # Errors
    /// A [`Fault`] where another process has it.
    fn claim(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Starts fresh processes for both sides, allocates, warms up, and parks them.
    ///
    /// # Errors
    /// A [`Fault`] where a side cannot start: out of memory, a crash, a missing capability.
    fn open<'a>(&'a mut self, request: &SessionRequest<'_>) -> Result<Box<dyn Session + 'a>, Fault>;
}

/// Two living sides of one trial.
pub trait Session {
    /// The sharing that is in effect, as the sides see it.
    fn effective_sharing(&self) -> SharingMode;

    /// Lets the active sides run until the window is over, then drains and parks them.
    ///
    /// # Errors
    /// A [`Fault`] for a crash, a hang, a passed deadline or a lost device.
    fn run(&mut self, active: Active, window: Window) -> Result<Phase, Fault>;

    /// Reads counters in a repetition of their own, never in a timed phase.
    ///
    /// # Errors
    /// A [`Fault`] where the repetition itself failed; counters that cannot be had are no fault.
    fn counters(&mut self, active: Active) -> Result<CounterReading, Fault>;

    /// What the sides told about themselves so far; nothing where the device knows no more than steps.
    fn report(&self) -> SessionReport {
        SessionReport::default()
    }
}
