//! Counters through NVML's GPU performance monitoring (GPM), on Hopper and later.
//!
//! GPM reads another unit than CUPTI does: it has no exclusive owner and works beside DCGM. It is the fallback where PM
//! sampling is not permitted or the monitor is held. It compares two samples, so one window is one
//! [`Gpm::start`] and one [`Gpm::finish`]; there is nothing in between to drain.
//!
//! L2 and launch counters do not exist here. Context switches do, and are the best direct evidence of time slicing.

#![expect(unsafe_code, reason = "some metric numbers are beyond the wrapper's enum")]

use crate::cupti::in_range;
use crate::libraries::Libraries;
use crate::ring::monotonic_nanoseconds;
use crate::telemetry::{Place, TelemetryError, nvml, reason};
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::{GpmSample, Nvml};
use nvml_wrapper_sys::bindings as sys;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem;

/// What is asked of every window: the number, the column, and what the value is.
const METRICS: &[(u32, &str, Kind)] = &[
    (sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_GRAPHICS_UTIL, "kernel_active_ratio", Kind::Percent),
    (sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL, "sm_active_ratio", Kind::Percent),
    (sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_OCCUPANCY, "sm_occupancy_ratio", Kind::Percent),
    (sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_ANY_TENSOR_UTIL, "tensor_active_ratio", Kind::Percent),
    (sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_FP32_UTIL, "fp32_active_ratio", Kind::Percent),
    (sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_FP64_UTIL, "fp64_active_ratio", Kind::Percent),
    (sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_DRAM_BW_UTIL, "dram_throughput_ratio", Kind::Percent),
    (sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_PCIE_RX_PER_SEC, "copy_active_ratio", Kind::Link),
    (sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_PCIE_TX_PER_SEC, "copy_active_ratio", Kind::Link),
    (
        sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_GR0_CTXSW_ACTIVE_PCT,
        "context_switch_active_ratio",
        Kind::SwitchPercent,
    ),
    (sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_GR0_CTXSW_REQUESTS, "context_switches_total", Kind::Switches),
];

/// Counters of [`elastico_core::COUNTERS`] that GPM does not have.
const ABSENT: [&str; 3] = ["l2_throughput_ratio", "l2_hit_ratio", "launch_rate_hertz"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A percentage of time or of a peak.
    Percent,
    /// Bytes per second of the host link.
    Link,
    SwitchPercent,
    Switches,
}

/// What GPM told about a window.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpmReading {
    /// Length of the window.
    pub seconds: f64,
    /// Counters by the names of [`elastico_core::COUNTERS`].
    pub counters: BTreeMap<&'static str, f64>,
    /// Share of time in which the device switched between contexts.
    pub context_switch_active_ratio: Option<f64>,
    /// Context switches that were asked for.
    pub context_switches_total: Option<f64>,
    /// Why the others are missing.
    pub missing: BTreeMap<&'static str, String>,
}

/// One device under GPM.
#[derive(Debug)]
pub struct Gpm {
    nvml: &'static Nvml,
    place: Place,
    /// The GPU instance, where the device is a MIG instance.
    instance: Option<u32>,
    first: Option<First>,
}

struct First {
    sample: GpmSample<'static>,
    at: u64,
}

impl std::fmt::Debug for First {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("First").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Gpm {
    /// Opens a device by index, `GPU-…` or `MIG-…`.
    ///
    /// # Errors
    /// [`TelemetryError::Unsupported`] before Hopper; otherwise as [`crate::telemetry::Telemetry::open`].
    pub fn open(libraries: &Libraries, device: &str) -> Result<Self, TelemetryError> {
        let nvml = nvml(libraries)?;
        let place = Place::find(nvml, device)?;
        match place.board.gpm_support() {
            Ok(true) => {}
            Ok(false) => {
                return Err(unsupported(&"GPM needs a GPU of the Hopper generation or later"));
            }
            Err(error) => return Err(unsupported(&reason(&error))),
        }
        let instance = if place.is_instance {
            Some(instance_number(nvml, &place).map_err(|error| unsupported(&reason(&error)))?)
        } else {
            None
        };
        Ok(Self { nvml, place, instance, first: None })
    }

    /// Opens a window. A window that was open is dropped.
    ///
    /// # Errors
    /// [`TelemetryError::Unsupported`] with NVML's reason.
    pub fn start(&mut self) -> Result<(), TelemetryError> {
        let sample = self.sample()?;
        self.first = Some(First { sample, at: monotonic_nanoseconds() });
        Ok(())
    }

    /// Closes the window and reads it.
    ///
    /// # Errors
    /// [`TelemetryError::Unsupported`] with NVML's reason, and where no window is open.
    pub fn finish(&mut self) -> Result<GpmReading, TelemetryError> {
        let first = self.first.take().ok_or_else(|| unsupported(&"no window is open"))?;
        let second = self.sample()?;
        let nanoseconds = monotonic_nanoseconds().saturating_sub(first.at);
        let answers = ask(self.nvml, &first.sample, &second).map_err(|error| unsupported(&reason(&error)))?;
        Ok(read(&answers, link_bytes_per_second(&self.place), nanoseconds as f64 * 1e-9))
    }

    fn sample(&self) -> Result<GpmSample<'static>, TelemetryError> {
        let board = &self.place.board;
        match self.instance {
            Some(instance) => board.gpm_mig_sample(instance),
            None => board.gpm_sample(),
        }
        .map_err(|error| unsupported(&reason(&error)))
    }
}

fn unsupported(reason: &impl ToString) -> TelemetryError {
    TelemetryError::Unsupported { what: "GPM", reason: reason.to_string() }
}

/// The GPU instance that a MIG handle belongs to.
fn instance_number(nvml: &Nvml, place: &Place) -> Result<u32, NvmlError> {
    let call = nvml
        .lib()
        .nvmlDeviceGetGpuInstanceId
        .as_ref()
        .map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
    let mut number = 0;
    // SAFETY: the handle is NVML's own and `number` is valid for the write.
    nvml_try(unsafe { call(place.device.handle(), &raw mut number) })?;
    Ok(number)
}

/// One answer: the value and the unit that NVML names, or its error.
type Answer = Result<(f64, String), NvmlError>;

/// Compares two samples; one answer per entry of [`METRICS`].
fn ask(nvml: &Nvml, first: &GpmSample<'_>, second: &GpmSample<'_>) -> Result<Vec<Answer>, NvmlError> {
    let call = nvml
        .lib()
        .nvmlGpmMetricsGet
        .as_ref()
        .map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
    // SAFETY: a struct of numbers and pointers, for which zero is a value. It is ten kilobytes.
    let mut request: Box<sys::nvmlGpmMetricsGet_t> = unsafe { Box::new(mem::zeroed()) };
    request.version = sys::NVML_GPM_METRICS_GET_VERSION;
    request.numMetrics = METRICS.len() as u32;
    // SAFETY: the handles are only lent to the call below, while both samples live.
    unsafe {
        request.sample1 = first.handle();
        request.sample2 = second.handle();
    }
    for (slot, (number, ..)) in request.metrics.iter_mut().zip(METRICS) {
        slot.metricId = *number;
    }
    // SAFETY: the request is whole, has as many metrics as it says, and the samples are of this library.
    nvml_try(unsafe { call(&raw mut *request) })?;
    Ok(request
        .metrics
        .iter()
        .take(METRICS.len())
        .map(|metric| {
            nvml_try(metric.nvmlReturn)?;
            let unit = metric.metricInfo.unit;
            let unit = if unit.is_null() {
                String::new()
            } else {
                // SAFETY: not null, so a C string of the library's own.
                unsafe { CStr::from_ptr(unit) }.to_string_lossy().into_owned()
            };
            Ok((metric.value, unit))
        })
        .collect())
}

/// Sorts the answers into columns. `link` is the peak of one direction of the host link.
fn read(answers: &[Answer], link: Option<f64>, seconds: f64) -> GpmReading {
    let mut reading = GpmReading { seconds, ..GpmReading::default() };
    for counter in ABSENT {
        reading.missing.insert(counter, "GPM has no such counter".to_owned());
    }
    for ((_, name, kind), answer) in METRICS.iter().zip(answers) {
        match answer.as_ref().map_err(reason).and_then(|(value, unit)| convert(*kind, *value, unit, link)) {
            Ok(value) => match kind {
                Kind::SwitchPercent => reading.context_switch_active_ratio = Some(value),
                Kind::Switches => reading.context_switches_total = Some(value),
                // The busier direction of the link.
                Kind::Percent | Kind::Link => {
                    let kept = reading.counters.entry(name).or_insert(value);
                    *kept = kept.max(value);
                }
            },
            Err(why) => {
                reading.missing.entry(name).or_insert(why);
            }
        }
    }
    // One direction of the link is enough to be there.
    let counters = &reading.counters;
    reading.missing.retain(|name, _| !counters.contains_key(name));
    reading
}

fn convert(kind: Kind, value: f64, unit: &str, link: Option<f64>) -> Result<f64, String> {
    let ratio = match kind {
        Kind::Switches => {
            return if value.is_finite() && value >= 0.0 {
                Ok(value)
            } else {
                Err(format!("GPM gave {value}"))
            };
        }
        Kind::Percent | Kind::SwitchPercent => value / 100.0,
        Kind::Link => {
            let peak = link.ok_or("the speed of the host link is unknown")?;
            value * bytes_of(unit) / peak
        }
    };
    in_range("_ratio", ratio)
        .ok_or_else(|| format!("GPM gave {value} {unit}, which cannot be").replace(" ,", ","))
}

/// Bytes in one unit of a rate. NVML documents MiB per second and names the unit in the answer.
fn bytes_of(unit: &str) -> f64 {
    let unit = unit.to_ascii_lowercase();
    if unit.starts_with("gib") || unit.starts_with("gb") {
        1_073_741_824.0
    } else if unit.starts_with("kib") || unit.starts_with("kb") {
        1024.0
    } else if unit.starts_with('b') {
        1.0
    } else {
        1_048_576.0
    }
}

/// The peak of one direction of the host link as it runs now.
fn link_bytes_per_second(place: &Place) -> Option<f64> {
    let generation = place.board.current_pcie_link_gen().ok()?;
    let lanes = place.board.current_pcie_link_width().ok()?;
    link_peak(generation, lanes)
}

/// Line rate less the line code: 8b/10b to generation 2, 128b/130b from 3, flits of 242 in 256 bytes from 6.
fn link_peak(generation: u32, lanes: u32) -> Option<f64> {
    let (transfers, code) = match generation {
        1 => (2.5e9, 0.8),
        2 => (5e9, 0.8),
        3 => (8e9, 128.0 / 130.0),
        4 => (16e9, 128.0 / 130.0),
        5 => (32e9, 128.0 / 130.0),
        6 => (64e9, 242.0 / 256.0),
        _ => return None,
    };
    (lanes > 0).then(|| transfers * code / 8.0 * f64::from(lanes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::COUNTERS;

    fn answers(change: impl Fn(&str, usize) -> Option<Answer>) -> Vec<Answer> {
        METRICS
            .iter()
            .enumerate()
            .map(|(index, (_, name, _))| change(name, index).unwrap_or(Ok((50.0, "%".to_owned()))))
            .collect()
    }

    #[test]
    fn every_counter_is_read_or_known_to_be_absent() {
        let reading = read(&answers(|_, _| None), Some(1e9), 2.0);
        for counter in COUNTERS {
            let is_read = reading.counters.contains_key(counter.name);
            assert_ne!(is_read, reading.missing.contains_key(counter.name), "{}", counter.name);
        }
        assert!((reading.counters["sm_active_ratio"] - 0.5).abs() < 1e-12);
        assert_eq!(reading.context_switches_total, Some(50.0));
        assert_eq!(reading.context_switch_active_ratio, Some(0.5));
    }

    #[test]
    fn the_busier_direction_of_the_link_counts_in_its_own_unit() {
        let link = |name: &str, index: usize| {
            (name == "copy_active_ratio").then(|| match index % 2 {
                0 => Ok((100.0, "MiB/s".to_owned())),
                _ => Ok((300.0, String::new())),
            })
        };
        let reading = read(&answers(link), Some(1_048_576_000.0), 1.0);
        assert!((reading.counters["copy_active_ratio"] - 0.3).abs() < 1e-12);
        assert!(read(&answers(link), None, 1.0).missing["copy_active_ratio"].contains("speed"));
        assert!((bytes_of("B/s") - 1.0).abs() < 1e-12 && (bytes_of("KiB/s") - 1024.0).abs() < 1e-12);
    }

    #[test]
    fn impossible_values_are_missing_with_a_reason() {
        let reading = read(
            &answers(|name, _| match name {
                "sm_active_ratio" => Some(Ok((f64::NAN, "%".to_owned()))),
                "tensor_active_ratio" => Some(Ok((180.0, "%".to_owned()))),
                "fp64_active_ratio" => Some(Err(NvmlError::NotSupported)),
                "context_switches_total" => Some(Ok((-1.0, String::new()))),
                _ => None,
            }),
            Some(1e9),
            1.0,
        );
        for name in ["sm_active_ratio", "tensor_active_ratio", "fp64_active_ratio"] {
            assert!(!reading.counters.contains_key(name), "{name}");
        }
        assert!(reading.missing["tensor_active_ratio"].contains("180"));
        assert_eq!(reading.missing["fp64_active_ratio"], "not supported on this device");
        assert_eq!(reading.context_switches_total, None);
    }

    #[test]
    fn link_peaks_follow_the_generation() {
        let gigabytes = |generation, lanes| link_peak(generation, lanes).unwrap() / 1e9;
        assert!((gigabytes(5, 16) - 63.015).abs() < 0.01);
        assert!((gigabytes(4, 16) - 31.508).abs() < 0.01);
        assert!((gigabytes(3, 8) - 7.877).abs() < 0.01);
        assert_eq!(link_peak(0, 16), None);
        assert_eq!(link_peak(5, 0), None);
    }
}
