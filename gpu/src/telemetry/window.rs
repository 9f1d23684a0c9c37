//! Samples of a window in a few numbers.

use super::sample::TelemetrySample;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was seen between two moments. Means are over samples, which come at an even pace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TelemetryWindow {
    /// Samples inside the window.
    pub samples: u64,
    /// Length of the window.
    pub seconds: f64,
    /// Mean SM clock.
    pub sm_clock_mean_hertz: Option<f64>,
    /// Lowest SM clock.
    pub sm_clock_min_hertz: Option<f64>,
    /// Mean memory clock.
    pub memory_clock_mean_hertz: Option<f64>,
    /// Lowest memory clock.
    pub memory_clock_min_hertz: Option<f64>,
    /// Mean board power.
    pub power_mean_watts: Option<f64>,
    /// Highest board power.
    pub power_max_watts: Option<f64>,
    /// Energy of the window; the counter is interpolated at its ends.
    pub energy_joules: Option<f64>,
    /// Highest GPU temperature.
    pub temperature_max_celsius: Option<f64>,
    /// Highest memory temperature.
    pub memory_temperature_max_celsius: Option<f64>,
    /// Share of samples with a clock cut by heat.
    pub thermal_ratio: Option<f64>,
    /// Share of samples with a clock cut by hardware.
    pub hardware_ratio: Option<f64>,
    /// Share of samples with a clock cut by heat or by hardware: what spoils a measurement.
    pub throttled_ratio: Option<f64>,
    /// Share of samples with a clock cut by the power limit.
    pub power_cap_ratio: Option<f64>,
    /// Mean traffic from host to device.
    pub pcie_receive_bytes_per_second: Option<f64>,
    /// Mean traffic from device to host.
    pub pcie_send_bytes_per_second: Option<f64>,
    /// Uncorrected memory errors that came in the window.
    pub ecc_uncorrected_total: Option<f64>,
    /// Most memory in use by all programs.
    pub memory_used_max_bytes: Option<f64>,
    /// Xid errors that came in the window.
    pub xids: Vec<u64>,
    /// Mean time that one look took.
    pub cost_mean_seconds: f64,
    /// Why the others are missing, by the name of the sample's field.
    pub missing: BTreeMap<String, String>,
}

impl TelemetryWindow {
    /// Sums up the samples of `[from, to]`, both in nanoseconds of `CLOCK_MONOTONIC`. `samples` are in order of time and
    /// may reach beyond the window; the ones beside its ends serve to interpolate.
    pub fn of(samples: &[TelemetrySample], xids: &[(u64, u64)], from: u64, to: u64) -> Self {
        let inside: Vec<&TelemetrySample> =
            samples.iter().filter(|sample| (from..=to).contains(&sample.at)).collect();
        let all = |read: fn(&TelemetrySample) -> Option<f64>| -> Vec<f64> {
            inside.iter().filter_map(|sample| read(sample)).collect()
        };
        let throttled = |is: fn(super::Throttling) -> bool| {
            let known: Vec<bool> = inside.iter().filter_map(|sample| sample.throttling()).map(is).collect();
            (!known.is_empty()).then(|| known.iter().filter(|is| **is).count() as f64 / known.len() as f64)
        };
        let sm = all(|sample| sample.sm_clock_hertz);
        let memory = all(|sample| sample.memory_clock_hertz);
        let power = all(|sample| sample.power_watts);
        let costs: Vec<f64> = inside.iter().map(|sample| sample.cost_seconds).collect();
        let mut window = Self {
            samples: inside.len() as u64,
            seconds: to.saturating_sub(from) as f64 * 1e-9,
            sm_clock_mean_hertz: mean(&sm),
            sm_clock_min_hertz: least(&sm),
            memory_clock_mean_hertz: mean(&memory),
            memory_clock_min_hertz: least(&memory),
            power_mean_watts: mean(&power),
            power_max_watts: most(&power),
            energy_joules: growth(samples, |sample| sample.energy_joules, from, to),
            temperature_max_celsius: most(&all(|sample| sample.temperature_celsius)),
            memory_temperature_max_celsius: most(&all(|sample| sample.memory_temperature_celsius)),
            thermal_ratio: throttled(|throttling| throttling.thermal),
            hardware_ratio: throttled(|throttling| throttling.hardware),
            throttled_ratio: throttled(super::Throttling::spoils),
            power_cap_ratio: throttled(|throttling| throttling.power_cap),
            pcie_receive_bytes_per_second: mean(&all(|sample| sample.pcie_receive_bytes_per_second)),
            pcie_send_bytes_per_second: mean(&all(|sample| sample.pcie_send_bytes_per_second)),
            ecc_uncorrected_total: errors(samples, from, to),
            memory_used_max_bytes: most(&all(|sample| sample.memory_used_bytes)),
            xids: xids.iter().filter(|(at, _)| (from..=to).contains(at)).map(|(_, xid)| *xid).collect(),
            cost_mean_seconds: mean(&costs).unwrap_or(0.0),
            missing: BTreeMap::new(),
        };
        for sample in &inside {
            window.missing.extend(sample.missing.clone());
        }
        // A field that was missing once and read later is not missing.
        let reads: [(&str, bool); 11] = [
            ("sm_clock_hertz", !sm.is_empty()),
            ("memory_clock_hertz", !memory.is_empty()),
            ("power_watts", !power.is_empty()),
            ("energy_joules", window.energy_joules.is_some()),
            ("temperature_celsius", window.temperature_max_celsius.is_some()),
            ("memory_temperature_celsius", window.memory_temperature_max_celsius.is_some()),
            ("throttle_reasons", window.throttled_ratio.is_some()),
            ("pcie_receive_bytes_per_second", window.pcie_receive_bytes_per_second.is_some()),
            ("pcie_send_bytes_per_second", window.pcie_send_bytes_per_second.is_some()),
            ("ecc_uncorrected_total", window.ecc_uncorrected_total.is_some()),
            ("memory_used_bytes", window.memory_used_max_bytes.is_some()),
        ];
        for (name, is_read) in reads {
            if is_read {
                window.missing.remove(name);
            } else {
                window
                    .missing
                    .entry(name.to_owned())
                    .or_insert_with(|| "no sample fell into the window".to_owned());
            }
        }
        window
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::min)
}

fn most(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

type Read = fn(&TelemetrySample) -> Option<f64>;

/// A counter at a moment, interpolated between the samples beside it; the nearest sample's where there is none beyond.
fn at_moment(samples: &[TelemetrySample], read: Read, moment: u64) -> Option<f64> {
    let known = || samples.iter().filter_map(|sample| Some((sample.at, read(sample)?)));
    let before = known().take_while(|(at, _)| *at <= moment).last();
    let after = known().find(|(at, _)| *at >= moment);
    match (before, after) {
        (Some((start, low)), Some((end, high))) if end > start => {
            Some(low + (high - low) * (moment - start) as f64 / (end - start) as f64)
        }
        (Some((_, value)), _) | (None, Some((_, value))) => Some(value),
        (None, None) => None,
    }
}

/// How much a counter grew. The window has to lie between two samples at least, and a counter never runs backwards.
fn growth(samples: &[TelemetrySample], read: Read, from: u64, to: u64) -> Option<f64> {
    let known = || samples.iter().filter(|sample| read(sample).is_some());
    let (first, last) = (known().next()?, known().next_back()?);
    if first.at >= last.at || to <= first.at || from >= last.at {
        return None;
    }
    let grown = at_moment(samples, read, to)? - at_moment(samples, read, from)?;
    (grown >= 0.0).then_some(grown)
}

/// Errors are whole: the counter after the window less the one before it.
fn errors(samples: &[TelemetrySample], from: u64, to: u64) -> Option<f64> {
    let known = || samples.iter().filter_map(|sample| Some((sample.at, sample.ecc_uncorrected_total?)));
    let before = known().take_while(|(at, _)| *at <= from).last().or_else(|| known().next())?.1;
    let after = known().find(|(at, _)| *at >= to).or_else(|| known().next_back())?.1;
    (after >= before).then_some(after - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// One sample a second from second 10 on: 1500 MHz but for one dip, 300 W.
    fn samples() -> Vec<TelemetrySample> {
        (0..5)
            .map(|index| TelemetrySample {
                at: (10 + index) * SECOND,
                cost_seconds: 0.002,
                sm_clock_hertz: Some(if index == 2 { 1.2e9 } else { 1.5e9 }),
                power_watts: Some(300.0),
                energy_joules: Some(1_000.0 + 300.0 * index as f64),
                temperature_celsius: Some(60.0 + index as f64),
                throttle_reasons: Some(if index == 2 { 0x40 } else { 0x4 }),
                ecc_uncorrected_total: Some(if index >= 3 { 1.0 } else { 0.0 }),
                missing: BTreeMap::from([(
                    "memory_temperature_celsius".to_owned(),
                    "not supported".to_owned(),
                )]),
                ..TelemetrySample::default()
            })
            .collect()
    }

    fn near(value: Option<f64>, expected: f64) {
        assert!(value.is_some_and(|value| (value - expected).abs() < 1e-9), "{value:?} is not {expected}");
    }

    #[test]
    fn a_window_sums_its_samples_up() {
        let xids = [(12 * SECOND, 31), (20 * SECOND, 79)];
        let window =
            TelemetryWindow::of(&samples(), &xids, 10 * SECOND + SECOND / 2, 13 * SECOND + SECOND / 2);
        assert_eq!(window.samples, 3);
        near(window.sm_clock_mean_hertz, 1.4e9);
        near(window.sm_clock_min_hertz, 1.2e9);
        near(window.energy_joules, 900.0);
        near(window.temperature_max_celsius, 63.0);
        near(window.thermal_ratio, 1.0 / 3.0);
        near(window.throttled_ratio, 1.0 / 3.0);
        near(window.hardware_ratio, 0.0);
        near(window.power_cap_ratio, 2.0 / 3.0);
        near(window.ecc_uncorrected_total, 1.0);
        assert_eq!(window.xids, [31]);
        assert!((window.cost_mean_seconds - 0.002).abs() < 1e-12);
        assert_eq!(window.memory_temperature_max_celsius, None);
        assert_eq!(window.missing["memory_temperature_celsius"], "not supported");
        assert!(!window.missing.contains_key("sm_clock_hertz"));
    }

    #[test]
    fn a_window_without_samples_has_reasons_and_no_zeros() {
        let window = TelemetryWindow::of(&samples(), &[], 100 * SECOND, 101 * SECOND);
        assert_eq!((window.samples, window.sm_clock_mean_hertz, window.throttled_ratio), (0, None, None));
        assert_eq!(window.energy_joules, None);
        assert!(window.missing["sm_clock_hertz"].contains("no sample"));
        let window = TelemetryWindow::of(&[], &[], 0, SECOND);
        assert_eq!(window.ecc_uncorrected_total, None);
        assert_eq!(window.missing.len(), 11);
    }

    #[test]
    fn energy_between_two_samples_is_interpolated() {
        let window = TelemetryWindow::of(&samples(), &[], 11 * SECOND, 11 * SECOND + SECOND / 10);
        near(window.energy_joules, 30.0);
    }

    #[test]
    fn a_counter_that_was_reset_tells_nothing() {
        let mut samples = samples();
        samples[4].energy_joules = Some(0.0);
        samples[4].ecc_uncorrected_total = Some(0.0);
        let window = TelemetryWindow::of(&samples, &[], 13 * SECOND, 14 * SECOND);
        assert_eq!((window.energy_joules, window.ecc_uncorrected_total), (None, None));
    }
}
