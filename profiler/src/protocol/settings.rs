//! The settings of the protocol and their defaults.

use super::SOAK_STEPS;
use crate::campaign::{optional_positive, optional_ratio};
use crate::device::Window;
use elastico_core::DeviceKind;
use elastico_core::units::Seconds;
use serde::{Deserialize, Serialize};

/// The `[protocol]` table of a campaign; an absent value depends on the kind of device, see [`Protocol::resolve`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProtocolSettings {
    /// Least length of a timed phase in seconds.
    #[serde(deserialize_with = "optional_positive", skip_serializing_if = "Option::is_none")]
    pub min_seconds: Option<f64>,
    /// Most length of a timed phase in seconds.
    #[serde(deserialize_with = "optional_positive", skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<f64>,
    /// Steps that the slower side makes in a timed phase, unless `max_seconds` is over first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_steps: Option<u32>,
    /// First steps of a phase that do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle_steps: Option<u32>,
    /// Most length of the soak in seconds.
    #[serde(deserialize_with = "optional_positive", skip_serializing_if = "Option::is_none")]
    pub soak_seconds: Option<f64>,
    /// Length of one sub-window of the soak in seconds.
    #[serde(deserialize_with = "optional_positive", skip_serializing_if = "Option::is_none")]
    pub soak_window_seconds: Option<f64>,
    /// Least share of the co-run window in which both sides have work in flight.
    #[serde(deserialize_with = "optional_ratio", skip_serializing_if = "Option::is_none")]
    pub overlap: Option<f64>,
    /// Most difference of the bracketing isolated runs, relative.
    #[serde(deserialize_with = "optional_positive", skip_serializing_if = "Option::is_none")]
    pub drift: Option<f64>,
    /// Most share of a phase in which heat or hardware cut the clock.
    #[serde(deserialize_with = "optional_ratio", skip_serializing_if = "Option::is_none")]
    pub throttled: Option<f64>,
    /// Attempts after the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Seconds after which a trial is ended as a timeout, all its attempts together.
    #[serde(deserialize_with = "optional_positive", skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<f64>,
    /// The sentinel pair is measured after each so many trials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_every: Option<u32>,
    /// Whether counters of both sides together are read in pair trials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corun_counters: Option<bool>,
}

/// The settings of the protocol with all defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Least length of a timed phase in seconds.
    pub min_seconds: f64,
    /// Most length of a timed phase in seconds.
    pub max_seconds: f64,
    /// Steps of the slower side in a timed phase.
    pub min_steps: u32,
    /// First steps of a phase that do not count.
    pub settle_steps: u32,
    /// Length of one sub-window of the soak in seconds.
    pub soak_window_seconds: f64,
    /// Sub-windows that must agree within 1 %.
    pub soak_windows: u32,
    /// Most length of the soak in seconds.
    pub soak_seconds: f64,
    /// Least overlap.
    pub overlap: f64,
    /// Most drift.
    pub drift: f64,
    /// Most throttled share.
    pub throttled: f64,
    /// Attempts after the first.
    pub retries: u32,
    /// Deadline of a trial in seconds.
    pub deadline_seconds: f64,
    /// Trials between two sentinels.
    pub sentinel_every: u32,
    /// Whether pair trials read joint counters.
    pub corun_counters: bool,
}

impl Protocol {
    /// Fills in the defaults.
    ///
    /// | setting | GPU | CPU cores | simulated |
    /// |---|---|---|---|
    /// | `min_seconds`, `max_seconds` | 2, 20 | 1, 5 | 0, 1000 |
    /// | `min_steps`, `settle_steps` | 50, 10 | 50, 10 | 30, 3 |
    /// | `soak_seconds` | 30, until 5 windows agree | 2 | 100, until 2 windows of 4 steps agree |
    /// | `soak_window_seconds` | 0.5 | 0.2 | 0 |
    /// | `overlap`, `drift`, `throttled` | 0.98, 0.02, 0.05 | same | same |
    /// | `retries` | 3 | same | same |
    /// | `deadline_seconds` | 3 x (soak + 5 phases at most) | same | same |
    /// | `sentinel_every` | 20 | same | same |
    /// | `corun_counters` | false: a repetition more | false | true |
    ///
    /// Cores reach their clock within a second, where a GPU's board takes half a minute to warm. A simulated device has
    /// no transients, so its phases are as short as the statistics allow.
    pub fn resolve(settings: &ProtocolSettings, kind: DeviceKind) -> Self {
        let virtual_clock = matches!(kind, DeviceKind::Simulated);
        let pick = |gpu: f64, cpu: f64, simulated: f64| match kind {
            DeviceKind::Simulated => simulated,
            DeviceKind::Cpu => cpu,
            DeviceKind::Cuda | DeviceKind::Recorded | DeviceKind::Imported => gpu,
        };
        let min_seconds = settings.min_seconds.unwrap_or(pick(2.0, 1.0, 0.0));
        let max_seconds = settings.max_seconds.unwrap_or(pick(20.0, 5.0, 1000.0)).max(min_seconds);
        let soak_seconds = settings.soak_seconds.unwrap_or(pick(30.0, 2.0, 100.0));
        Self {
            min_seconds,
            max_seconds,
            min_steps: settings.min_steps.unwrap_or(if virtual_clock { 30 } else { 50 }).max(SOAK_STEPS),
            settle_steps: settings.settle_steps.unwrap_or(if virtual_clock { 3 } else { 10 }).max(1),
            soak_window_seconds: settings.soak_window_seconds.unwrap_or(pick(0.5, 0.2, 0.0)),
            soak_windows: if virtual_clock { 2 } else { 5 },
            soak_seconds,
            overlap: settings.overlap.unwrap_or(0.98),
            drift: settings.drift.unwrap_or(0.02),
            throttled: settings.throttled.unwrap_or(0.05),
            retries: settings.retries.unwrap_or(3),
            deadline_seconds: settings
                .deadline_seconds
                .unwrap_or(3.0 * 5.0_f64.mul_add(max_seconds, soak_seconds)),
            sentinel_every: settings.sentinel_every.unwrap_or(20).max(1),
            corun_counters: settings.corun_counters.unwrap_or(virtual_clock),
        }
    }

    pub(super) fn timed(&self) -> Window {
        Window {
            min: Seconds(self.min_seconds),
            min_steps: self.min_steps + self.settle_steps,
            max: Seconds(self.max_seconds),
        }
    }
}
