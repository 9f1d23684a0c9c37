//! The coordinator's one NVML poller: clocks, power, heat, throttling and Xid errors while a phase runs.

use crate::device::{Fault, Telemetry};
use elastico_core::Outcome;
use elastico_core::units::{Hertz, Watts};
use elastico_gpu::libraries::Libraries;
use elastico_gpu::ring::monotonic_nanoseconds;
use elastico_gpu::telemetry::{self, TelemetryIdentity, TelemetryPoller, TelemetryWindow};

/// Xid errors after which the GPU is gone until it is reset: off the bus, NVLink or memory not contained, GSP lost.
const LOST: &[u64] = &[74, 79, 95, 119, 120, 140];

/// The poller of one device, or why there is none.
pub(super) enum Poller {
    Open {
        poller: TelemetryPoller,
        /// Xid errors before this moment are known.
        seen: u64,
        /// Why Xid errors cannot be told.
        no_xids: Option<String>,
    },
    Absent(String),
}

impl Poller {
    /// Opens the device and begins to look, with what it says about the device.
    pub(super) fn open(libraries: &Libraries, uuid: &str, hertz: f64) -> (Self, Option<TelemetryIdentity>) {
        let opened = match telemetry::Telemetry::open(libraries, uuid) {
            Ok(opened) => opened,
            Err(error) => return (Self::Absent(error.to_string()), None),
        };
        let identity = opened.identity();
        let no_xids = opened.xids_missing().map(str::to_owned);
        match TelemetryPoller::start(opened, hertz) {
            Ok(poller) => (Self::Open { poller, seen: monotonic_nanoseconds(), no_xids }, Some(identity)),
            Err(error) => (Self::Absent(format!("no thread for it: {error}")), Some(identity)),
        }
    }

    /// Device memory in use by all processes, in bytes, looked up now.
    pub(super) fn memory_used(&self) -> Option<f64> {
        let Self::Open { poller, .. } = self else { return None };
        let now = monotonic_nanoseconds();
        poller.window(now, now);
        poller.latest()?.memory_used_bytes
    }

    /// The fault that Xid errors since the last call stand for. With `looks` the driver is asked now, not only the last
    /// look.
    pub(super) fn xid(&mut self, looks: bool) -> Option<Fault> {
        let Self::Open { poller, seen, .. } = self else { return None };
        let now = monotonic_nanoseconds();
        if looks {
            poller.window(now, now);
        }
        let xids = poller.xids_since(*seen);
        if xids.is_empty() {
            return None;
        }
        *seen = monotonic_nanoseconds();
        let is_lost = xids.iter().any(|xid| LOST.contains(xid));
        let outcome = if is_lost { Outcome::DeviceLost } else { Outcome::Xid };
        let names: Vec<String> = xids.iter().map(u64::to_string).collect();
        Some(Fault { outcome, detail: format!("the driver reported Xid {}", names.join(", ")) })
    }

    /// What was seen in a phase, and why something was not.
    pub(super) fn window(&self, from: u64, to: u64) -> (Telemetry, String) {
        match self {
            Self::Absent(reason) => (Telemetry::default(), format!("none: {reason}")),
            Self::Open { poller, no_xids, .. } => {
                let window = poller.window(from, to);
                let status = status(&window, no_xids.as_deref());
                (summary(&window), status)
            }
        }
    }
}

fn summary(window: &TelemetryWindow) -> Telemetry {
    // The counter is exact over the phase; the power reading is the mean of some time before it.
    let by_energy =
        window.energy_joules.filter(|_| window.seconds >= 0.5).map(|joules| joules / window.seconds);
    Telemetry {
        clock: window.sm_clock_mean_hertz.map(Hertz),
        memory_clock: window.memory_clock_mean_hertz.map(Hertz),
        power: by_energy.filter(|watts| *watts > 0.0).or(window.power_mean_watts).map(Watts),
        temperature: window.temperature_max_celsius,
        memory_temperature: window.memory_temperature_max_celsius,
        throttled_ratio: window.throttled_ratio,
        power_capped_ratio: window.power_cap_ratio,
    }
}

/// Values that become columns, by the names that the window gives reasons under.
const COLUMNS: &[&str] =
    &["sm_clock", "memory_clock", "power", "temperature", "memory_temperature", "throttle"];

/// Why values are missing, or `ok`.
fn status(window: &TelemetryWindow, no_xids: Option<&str>) -> String {
    let missing = window
        .missing
        .iter()
        .filter(|(name, _)| COLUMNS.iter().any(|column| name.starts_with(column)))
        .map(|(name, reason)| format!("{name}: {reason}"));
    let xids = no_xids.map(|reason| format!("xid: {reason}"));
    let parts: Vec<String> = missing.chain(xids).collect();
    if parts.is_empty() { "ok".to_owned() } else { parts.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_beats_the_power_reading() {
        let window = TelemetryWindow {
            seconds: 2.0,
            energy_joules: Some(600.0),
            power_mean_watts: Some(100.0),
            sm_clock_mean_hertz: Some(1.5e9),
            throttled_ratio: Some(0.25),
            power_cap_ratio: Some(0.5),
            ..TelemetryWindow::default()
        };
        let seen = summary(&window);
        assert_eq!((seen.power, seen.clock), (Some(Watts(300.0)), Some(Hertz(1.5e9))));
        assert_eq!((seen.throttled_ratio, seen.power_capped_ratio), (Some(0.25), Some(0.5)));
        let short = TelemetryWindow { seconds: 0.1, ..window };
        assert_eq!(summary(&short).power, Some(Watts(100.0)));
        assert_eq!(summary(&TelemetryWindow::default()), Telemetry::default());
    }

    #[test]
    fn what_is_missing_has_its_reason() {
        let mut window = TelemetryWindow::default();
        window.missing.insert("power_watts".to_owned(), "no permission".to_owned());
        window.missing.insert("pcie_receive_bytes_per_second".to_owned(), "not supported".to_owned());
        assert_eq!(status(&window, None), "power_watts: no permission");
        window.missing.clear();
        assert_eq!(status(&window, None), "ok");
        assert_eq!(status(&window, Some("no events")), "xid: no events");
        let absent = Poller::Absent("no library".to_owned());
        assert_eq!(absent.window(0, 1).1, "none: no library");
    }
}
