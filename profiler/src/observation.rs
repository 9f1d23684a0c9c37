//! What one trial yields: a line of the journal.
//!
//! A phase keeps, per side, the start of its counted steps and the time per step of each block, for every kind of
//! device: about 1.5 kB a trial. That is enough to compute every published number again, and for
//! [`Recorded`](crate::devices::recorded::Recorded) to replay the trial through the same protocol.

use crate::device::{SessionReport, Telemetry};
use crate::estimator::Selection;
use elastico_core::units::Bytes;
use elastico_core::{Estimate, Outcome, SharingMode, TrialId, WorkloadId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How one trial went, with all its attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// The trial of the plan.
    pub trial: TrialId,
    /// The cell of the plan.
    pub cell: String,
    /// Which repeat of the cell, from 0.
    pub repeat: u32,
    /// The first side.
    pub subject: WorkloadId,
    /// The second side; absent for an isolated trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub co_runner: Option<WorkloadId>,
    /// The sharing asked for.
    pub sharing: SharingMode,
    /// The sharing that was in effect, as the sides saw it; absent where no side started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<SharingMode>,
    /// How the trial ended.
    pub outcome: Outcome,
    /// Every limit that the kept attempt missed, and remarks such as `not_steady`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// The numbers of the kept attempt; absent where no attempt has times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Counters of a separate repetition: of the subject alone, or of both together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, f64>,
    /// Why counters are missing, or `ok`.
    pub counters_status: String,
    /// What the sides told about themselves; absent where the device knows no more than steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Reported>,
    /// All attempts in order; the kept one is the last that has times.
    pub attempts: Vec<Attempt>,
    /// Seconds that the trial took: wall time, or simulated time on a simulated device.
    pub seconds: f64,
    /// When a measured trial ended, in seconds since 1970; absent for simulated and replayed ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<f64>,
}

/// [`SessionReport`] in the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reported {
    /// SMs of subject and co-runner.
    pub multiprocessors: [Option<u32>; 2],
    /// Most device memory of subject and co-runner, in bytes.
    pub memory_peak: [Option<f64>; 2],
    /// `ok`, or why telemetry is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry_status: Option<String>,
}

impl Reported {
    /// `None` where nothing was told.
    pub(crate) fn of(report: &SessionReport) -> Option<Self> {
        let reported = Self {
            multiprocessors: report.multiprocessors,
            memory_peak: report.memory_peak.map(|bytes| bytes.map(Bytes::get)),
            telemetry_status: report.telemetry_status.clone(),
        };
        (reported != Self::default()).then_some(reported)
    }
}

impl From<&Reported> for SessionReport {
    fn from(reported: &Reported) -> Self {
        Self {
            multiprocessors: reported.multiprocessors,
            memory_peak: reported.memory_peak.map(|bytes| bytes.map(Bytes)),
            telemetry_status: reported.telemetry_status.clone(),
            flags: Vec::new(),
        }
    }
}

/// The numbers of one attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The subject.
    pub subject: SideMeasured,
    /// The co-runner of a pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub co_runner: Option<SideMeasured>,
    /// Share of the co-run window in which both sides had work in flight; absent for isolated trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<f64>,
    /// The larger drift of the two sides: |first / last - 1| of the bracketing isolated runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<f64>,
    /// Clocks and power of the co-run, or of the isolated run.
    pub telemetry: TelemetryRecord,
}

/// The numbers of one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SideMeasured {
    /// Isolated time per step at the side's share, in seconds; in a pair of the bracketing runs.
    pub isolated: Interval,
    /// Co-located time per step in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub colocated: Option<f64>,
    /// Co-located over isolated time at the same share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interference: Option<Interval>,
    /// Steps that count: of the co-run, or of the isolated run.
    pub steps: u32,
    /// Blocks of those steps.
    pub blocks: u32,
}

/// A point and its interval over blocks; the ends are absent where one block has no spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// The point.
    pub point: f64,
    /// Lower end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// Upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
}

impl From<Estimate> for Interval {
    fn from(estimate: Estimate) -> Self {
        let finite = |value: f64| value.is_finite().then_some(value);
        Self { point: estimate.point, lower: finite(estimate.lower), upper: finite(estimate.upper) }
    }
}

/// One try at the trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// How it ended.
    pub outcome: Outcome,
    /// What was seen, for a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Whether the fault came while the sides started, before any phase.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_open: bool,
    /// The timed phases in the order in which they ran, those before a fault included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseRecord>,
}

/// Which sides ran in a recorded phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ran {
    /// The subject alone.
    Subject,
    /// The co-runner alone.
    CoRunner,
    /// Both.
    Both,
}

/// One timed phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseRecord {
    /// Which sides ran.
    pub ran: Ran,
    /// Counted steps of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Track>,
    /// Counted steps of the co-runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub co_runner: Option<Track>,
    /// Share of the window in which both had work in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<f64>,
    /// Clocks and power.
    pub telemetry: TelemetryRecord,
}

/// The counted steps of one side in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Track {
    /// When the first counted step began, in seconds on the session's clock.
    pub start: f64,
    /// Steps before it.
    pub lead: u32,
    /// Counted steps.
    pub steps: u32,
    /// Seconds per step of each block; steps are dealt to blocks by [`block_bounds`](crate::estimator::block_bounds).
    /// Single precision: 6e-8 relative, far below any noise.
    pub blocks: Vec<f32>,
}

impl From<&Selection> for Track {
    fn from(selection: &Selection) -> Self {
        Self {
            start: selection.start,
            lead: selection.lead,
            steps: selection.steps,
            blocks: selection.blocks.iter().map(|block| *block as f32).collect(),
        }
    }
}

/// [`Telemetry`] in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetryRecord {
    /// Mean clock in hertz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<f64>,
    /// Mean memory clock in hertz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_clock: Option<f64>,
    /// Mean power in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<f64>,
    /// Highest temperature of the chip in degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Highest temperature of the memory in degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_temperature: Option<f64>,
    /// Share of the phase in which heat or hardware cut the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<f64>,
    /// Share of the phase in which the power limit cut the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_capped: Option<f64>,
}

impl From<&Telemetry> for TelemetryRecord {
    fn from(telemetry: &Telemetry) -> Self {
        let finite = |value: f64| value.is_finite().then_some(value);
        Self {
            clock: telemetry.clock.and_then(|clock| finite(clock.get())),
            memory_clock: telemetry.memory_clock.and_then(|clock| finite(clock.get())),
            power: telemetry.power.and_then(|power| finite(power.get())),
            temperature: telemetry.temperature.and_then(finite),
            memory_temperature: telemetry.memory_temperature.and_then(finite),
            throttled: telemetry.throttled_ratio.and_then(finite),
            power_capped: telemetry.power_capped_ratio.and_then(finite),
        }
    }
}
