//! Counters of a repetition of their own: PM sampling in a process of its own, or NVML's GPM, or none with the reason.

use super::CudaOptions;
use super::sharing::base_environment;
use crate::worker::{CORES, ROLE, SAMPLER};
use elastico_core::{COUNTERS, Hint};
use elastico_gpu::cupti::sampler_process::{SamplerError, SamplerProcess, SamplerRequest, SamplerTimeouts};
use elastico_gpu::cupti::{SamplerOptions, SamplerReport, suspicion};
use elastico_gpu::gpm::Gpm;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// What counters are read by; found out at the first reading, and again after a failure that may pass.
#[derive(Debug)]
pub(super) enum Source {
    /// Not tried yet.
    Unknown,
    /// PM sampling, in a process that is kept.
    Pm(Box<SamplerProcess>),
    /// GPM, and why not PM sampling.
    Gpm(String),
    /// Neither, and why.
    None(String),
}

/// A reading under way.
pub(super) enum Reading {
    Pm,
    Gpm(Box<Gpm>, String),
    None(String),
}

/// What a reading came to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Read {
    pub(super) values: BTreeMap<&'static str, f64>,
    /// The source and what is amiss, for `counters_status`.
    pub(super) status: String,
}

/// Where the sampler runs.
pub(super) struct Place<'a> {
    pub(super) command: &'a [OsString],
    pub(super) options: &'a CudaOptions,
    pub(super) uuid: &'a str,
    /// A pipe folder without a daemon.
    pub(super) no_mps: &'a Path,
    pub(super) cores: &'a [usize],
}

impl Source {
    /// Begins to read, by the best source that there is.
    pub(super) fn begin(&mut self, place: &Place<'_>) -> Reading {
        if matches!(self, Self::Unknown) {
            *self = match start_sampler(place) {
                Ok(sampler) => Self::Pm(Box::new(sampler)),
                Err(error) => Self::Gpm(refusal(&error)),
            };
        }
        if let Self::Pm(sampler) = self {
            match sampler.begin() {
                Ok(()) => return Reading::Pm,
                // The unit may be another profiler's for now, or the sampler is gone: the next trial tries again.
                Err(error) => {
                    let reason = refusal(&error);
                    *self = Self::Unknown;
                    return Self::Gpm(reason).begin(place);
                }
            }
        }
        match self {
            Self::Gpm(no_pm) => {
                let opened = Gpm::open(&place.options.libraries, place.uuid)
                    .and_then(|mut gpm| gpm.start().map(|()| gpm));
                match opened {
                    Ok(gpm) => Reading::Gpm(Box::new(gpm), no_pm.clone()),
                    Err(error) => {
                        let reason = format!("none: {no_pm}; gpm: {error}");
                        *self = Self::None(reason.clone());
                        Reading::None(reason)
                    }
                }
            }
            Self::None(reason) => Reading::None(reason.clone()),
            Self::Unknown | Self::Pm(_) => Reading::None("none".to_owned()),
        }
    }

    /// Ends the reading. `busy` is the share of the time in which workers had work in flight.
    pub(super) fn finish(&mut self, reading: Reading, busy: f64) -> (Read, bool) {
        let read = match (reading, &mut *self) {
            (Reading::Pm, Self::Pm(sampler)) => match sampler.end() {
                Ok(report) => pm(report),
                Err(error) => {
                    let status = format!("none: {}", refusal(&error));
                    *self = Self::Unknown;
                    Read { values: BTreeMap::new(), status }
                }
            },
            (Reading::Gpm(mut gpm, no_pm), _) => match gpm.finish() {
                Ok(reading) => {
                    let status = format!("gpm{}; {no_pm}", missing(&reading.counters));
                    Read { values: reading.counters, status }
                }
                Err(error) => {
                    Read { values: BTreeMap::new(), status: format!("none: {no_pm}; gpm: {error}") }
                }
            },
            (Reading::None(reason), _) => Read { values: BTreeMap::new(), status: reason },
            (Reading::Pm, _) => {
                Read { values: BTreeMap::new(), status: "none: the sampler is gone".to_owned() }
            }
        };
        let doubt = suspicion(&read.values, busy);
        let is_suspect = doubt.is_some();
        let status = doubt.map_or_else(|| read.status.clone(), |doubt| format!("{}; {doubt}", read.status));
        (Read { status, ..read }, is_suspect)
    }
}

fn refusal(error: &SamplerError) -> String {
    let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("pm: {}: {error}{hint}", error.status())
}

fn start_sampler(place: &Place<'_>) -> Result<SamplerProcess, SamplerError> {
    let Some((program, arguments)) = place.command.split_first() else {
        return Err(SamplerError::Spawn(std::io::ErrorKind::NotFound.into()));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let mut environment = base_environment(Some(place.uuid));
    environment.extend(super::sharing::without_mps(place.no_mps));
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let cores: Vec<String> = place.cores.iter().map(usize::to_string).collect();
    command.env(ROLE, SAMPLER).env(CORES, cores.join(","));
    let timeout = place.options.context_timeout;
    let timeouts = SamplerTimeouts { hello: timeout, prepare: timeout, window: timeout };
    let request = SamplerRequest {
        libraries: place.options.libraries.clone(),
        device: 0,
        options: SamplerOptions { interval: place.options.sampling_interval, ..SamplerOptions::default() },
    };
    SamplerProcess::start(command, &request, timeouts)
}

fn pm(report: SamplerReport) -> Read {
    let status = match report.status() {
        "no_samples" => "none: pm: no sample was decoded".to_owned(),
        "ok" => format!("pm{}", missing(&report.counters)),
        other => format!("pm, {other}{}", missing(&report.counters)),
    };
    Read { values: report.counters, status }
}

/// The counters that a source did not give.
fn missing(values: &BTreeMap<&'static str, f64>) -> String {
    let names: Vec<&str> =
        COUNTERS.iter().map(|counter| counter.name).filter(|name| !values.contains_key(name)).collect();
    if names.is_empty() { String::new() } else { format!(", not {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_names_source_and_gaps() {
        let counters: BTreeMap<&'static str, f64> =
            COUNTERS.iter().map(|counter| (counter.name, 0.5)).collect();
        let report = SamplerReport { samples: 9, counters, ..SamplerReport::default() };
        assert_eq!(pm(report.clone()).status, "pm");
        assert_eq!(pm(SamplerReport { overflow: true, ..report.clone() }).status, "pm, overflow");
        let few = SamplerReport { counters: BTreeMap::from([("sm_active_ratio", 0.5)]), ..report };
        let status = pm(few).status;
        assert!(status.starts_with("pm, not kernel_active_ratio, sm_occupancy_ratio"), "{status}");
        assert_eq!(pm(SamplerReport::default()).status, "none: pm: no sample was decoded");
    }
}
