//! One look at a device.

use super::identity::{TelemetryIdentity, megahertz};
use super::nvml::{Place, TelemetryError, nvml, reason};
use super::throttle::Throttling;
use crate::libraries::Libraries;
use crate::ring::monotonic_nanoseconds;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor,
};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// "GPU has fallen off the bus", what a lost device would report if it could.
const XID_LOST: u64 = 79;

/// At most so many events are taken at once, should a broken device produce them without end.
const MOST_EVENTS: usize = 64;

/// One device under watch. For a MIG instance memory is the instance's; clocks, power, temperatures and errors are the
/// whole GPU's, for nothing else exists.
#[derive(Debug)]
pub struct Telemetry {
    nvml: &'static Nvml,
    place: Place,
    events: Result<EventSet<'static>, String>,
    /// The last byte counters of the host link: rates are differences.
    link: Mutex<Option<Link>>,
    asks_throughput: bool,
}

/// What was seen at one moment. SI units.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TelemetrySample {
    /// Nanoseconds of `CLOCK_MONOTONIC`, in the middle of the look.
    pub at: u64,
    /// How long the look took.
    pub cost_seconds: f64,
    /// SM clock.
    pub sm_clock_hertz: Option<f64>,
    /// Memory clock.
    pub memory_clock_hertz: Option<f64>,
    /// Board power; the driver's own average over up to a second.
    pub power_watts: Option<f64>,
    /// Energy since the driver was loaded.
    pub energy_joules: Option<f64>,
    /// GPU temperature.
    pub temperature_celsius: Option<f64>,
    /// Memory temperature.
    pub memory_temperature_celsius: Option<f64>,
    /// NVML's bits; see [`Throttling`].
    pub throttle_reasons: Option<u64>,
    /// Host to device, since the sample before.
    pub pcie_receive_bytes_per_second: Option<f64>,
    /// Device to host, since the sample before.
    pub pcie_send_bytes_per_second: Option<f64>,
    /// Uncorrected memory errors since the driver was loaded.
    pub ecc_uncorrected_total: Option<f64>,
    /// Memory in use by all programs.
    pub memory_used_bytes: Option<f64>,
    /// Why the others are missing, by the name of the field.
    pub missing: BTreeMap<String, String>,
}

impl TelemetrySample {
    /// The throttle bits, sorted.
    pub fn throttling(&self) -> Option<Throttling> {
        self.throttle_reasons.map(Throttling::from_bits)
    }
}

/// Byte counters of the host link at a time.
#[derive(Debug, Clone, Copy)]
struct Link {
    at: u64,
    receive: u64,
    send: u64,
}

impl Telemetry {
    /// Opens a device by index, `GPU-…` or `MIG-…`.
    ///
    /// # Errors
    /// [`TelemetryError`] where NVML cannot be used or knows no such device.
    pub fn open(libraries: &Libraries, device: &str) -> Result<Self, TelemetryError> {
        let nvml = nvml(libraries)?;
        let place = Place::find(nvml, device)?;
        // A device without events is watched all the same.
        let events = nvml.create_event_set().map_err(|error| reason(&error)).and_then(|set| {
            place
                .board
                .register_events(EventTypes::CRITICAL_XID_ERROR, set)
                .map_err(|error| reason(&error.error))
        });
        Ok(Self { nvml, place, events, link: Mutex::new(None), asks_throughput: false })
    }

    /// Whether to ask for the host link's throughput where the driver has no byte counters. That call waits 20 ms in
    /// the driver for each direction, so it is off by default.
    #[must_use]
    pub const fn with_pcie_throughput(mut self, asks: bool) -> Self {
        self.asks_throughput = asks;
        self
    }

    /// What stays the same.
    pub fn identity(&self) -> TelemetryIdentity {
        TelemetryIdentity::read(self.nvml, &self.place)
    }

    /// Why Xid errors cannot be seen, if they cannot.
    pub fn xids_missing(&self) -> Option<&str> {
        self.events.as_ref().err().map(String::as_str)
    }

    /// Xid errors since the last call, without waiting. A lost device reports 79, "fallen off the bus".
    pub fn xids(&mut self) -> Vec<u64> {
        let Ok(events) = &self.events else { return Vec::new() };
        let mut found = Vec::new();
        while found.len() < MOST_EVENTS {
            match events.wait(0) {
                Ok(event) => found.extend(event.event_data.map(|xid| match xid {
                    XidError::Value(value) => value,
                    XidError::Unknown => 999,
                })),
                Err(NvmlError::GpuLost) => {
                    found.push(XID_LOST);
                    // It will say so for ever.
                    self.events = Err(reason(&NvmlError::GpuLost));
                    break;
                }
                // Nothing has come, or nothing can be asked.
                Err(_) => break,
            }
        }
        found
    }

    /// Looks at the device.
    pub fn sample(&self) -> TelemetrySample {
        let start = monotonic_nanoseconds();
        let board = &self.place.board;
        let mut missing = BTreeMap::new();
        let mut keep = |name: &str, result: Result<f64, NvmlError>| {
            result.inspect_err(|error| drop(missing.insert(name.to_owned(), reason(error)))).ok()
        };
        let mut sample = TelemetrySample {
            sm_clock_hertz: keep("sm_clock_hertz", board.clock_info(Clock::SM).map(megahertz)),
            memory_clock_hertz: keep("memory_clock_hertz", board.clock_info(Clock::Memory).map(megahertz)),
            power_watts: keep(
                "power_watts",
                board.power_usage().map(|milliwatts| f64::from(milliwatts) * 1e-3),
            ),
            energy_joules: keep(
                "energy_joules",
                board.total_energy_consumption().map(|millijoules| millijoules as f64 * 1e-3),
            ),
            temperature_celsius: keep(
                "temperature_celsius",
                board.temperature(TemperatureSensor::Gpu).map(f64::from),
            ),
            ecc_uncorrected_total: keep(
                "ecc_uncorrected_total",
                board
                    .total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
                    .map(|errors| errors as f64),
            ),
            memory_used_bytes: keep(
                "memory_used_bytes",
                self.place.device.memory_info().map(|memory| memory.used as f64),
            ),
            ..TelemetrySample::default()
        };
        match board.current_throttle_reasons() {
            Ok(reasons) => sample.throttle_reasons = Some(reasons.bits()),
            Err(error) => drop(missing.insert("throttle_reasons".to_owned(), reason(&error))),
        }
        sample.missing = missing;
        self.read_fields(&mut sample);
        let end = monotonic_nanoseconds();
        sample.at = start.midpoint(end);
        sample.cost_seconds = (end - start) as f64 * 1e-9;
        sample
    }

    /// Memory temperature and link traffic, which are fields with numbers.
    fn read_fields(&self, sample: &mut TelemetrySample) {
        let ids = [
            FieldId(field_id::NVML_FI_DEV_MEMORY_TEMP),
            FieldId(field_id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES),
            FieldId(field_id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES),
        ];
        let mut values = match self.place.board.field_values_for(&ids) {
            Ok(values) => values.into_iter().map(|value| value.and_then(|sample| sample.value)).collect(),
            Err(error) => vec![Err(error)],
        }
        .into_iter();
        let mut next = || values.next().unwrap_or(Err(NvmlError::NotSupported));
        match next() {
            Ok(value) => sample.memory_temperature_celsius = Some(number(&value)),
            Err(error) => {
                sample.missing.insert("memory_temperature_celsius".to_owned(), reason(&error));
            }
        }
        let (receive, send) = (next(), next());
        let rates = self.link_rates(receive, send).or_else(|why| self.asked_rates(why));
        match rates {
            Ok((receive, send)) => {
                sample.pcie_receive_bytes_per_second = Some(receive);
                sample.pcie_send_bytes_per_second = Some(send);
            }
            Err(why) => {
                for name in ["pcie_receive_bytes_per_second", "pcie_send_bytes_per_second"] {
                    sample.missing.insert(name.to_owned(), why.clone());
                }
            }
        }
    }

    /// Rates from the counters and those of the sample before.
    fn link_rates(
        &self,
        receive: Result<SampleValue, NvmlError>,
        send: Result<SampleValue, NvmlError>,
    ) -> Result<(f64, f64), String> {
        let now = match (receive, send) {
            (Ok(SampleValue::U64(receive)), Ok(SampleValue::U64(send))) => {
                Link { at: monotonic_nanoseconds(), receive, send }
            }
            (Err(error), _) | (_, Err(error)) => return Err(reason(&error)),
            // At full speed 32 bits wrap several times between two looks.
            _ => return Err("the driver's byte counters of the link are too narrow".to_owned()),
        };
        let before = self.link.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        let Some(before) = before else { return Err("the first sample has no rate".to_owned()) };
        rates_between(before, now).ok_or_else(|| "the byte counters of the link were reset".to_owned())
    }

    fn asked_rates(&self, why: String) -> Result<(f64, f64), String> {
        if !self.asks_throughput {
            return Err(why);
        }
        let read = |counter| {
            self.place
                .board
                .pcie_throughput(counter)
                .map(|kilobytes| f64::from(kilobytes) * 1024.0)
                .map_err(|error| reason(&error))
        };
        Ok((read(PcieUtilCounter::Receive)?, read(PcieUtilCounter::Send)?))
    }
}

fn rates_between(before: Link, now: Link) -> Option<(f64, f64)> {
    let seconds = now.at.checked_sub(before.at).filter(|time| *time > 0)? as f64 * 1e-9;
    let receive = now.receive.checked_sub(before.receive)? as f64 / seconds;
    let send = now.send.checked_sub(before.send)? as f64 / seconds;
    Some((receive, send))
}

fn number(value: &SampleValue) -> f64 {
    match *value {
        SampleValue::F64(value) => value,
        SampleValue::U32(value) => f64::from(value),
        SampleValue::U64(value) => value as f64,
        SampleValue::I64(value) => value as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_rates_are_differences_over_time() {
        let before = Link { at: 1_000_000_000, receive: 100, send: 50 };
        let now = Link { at: 1_500_000_000, receive: 1_100, send: 50 };
        assert_eq!(rates_between(before, now), Some((2_000.0, 0.0)));
        assert_eq!(rates_between(now, before), None, "time runs forward");
        let reset = Link { at: 2_000_000_000, receive: 0, send: 0 };
        assert_eq!(rates_between(now, reset), None);
    }
}
