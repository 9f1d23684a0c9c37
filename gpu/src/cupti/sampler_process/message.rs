//! The JSON lines between coordinator and sampler.

use crate::cupti::{METRIC_SETS, SamplerOptions, SamplerReport, Series};
use crate::libraries::Libraries;
use elastico_core::COUNTERS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Raised with every change of the messages.
pub(super) const PROTOCOL: u32 = 1;

/// What to sample.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplerRequest {
    /// Where the libraries are.
    pub libraries: Libraries,
    /// The device, as the sampler's process counts it.
    pub device: usize,
    /// Interval and buffers.
    pub options: SamplerOptions,
}

/// What will be sampled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// CUPTI's version, 130001 for 13.0.
    pub cupti_version: u32,
    /// CUPTI's name of the chip.
    pub chip: String,
    /// The chip whose set of metrics is used.
    pub base: String,
    /// CUPTI's names of the metrics.
    pub metrics: Vec<String>,
    /// Counters that cannot be had, each with its reason.
    pub absent: BTreeMap<String, String>,
}

/// What the coordinator asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Request {
    Prepare { request: SamplerRequest },
    Start,
    Stop,
    Bye,
}

/// What the sampler answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Reply {
    Hello { protocol: u32, version: String },
    Ready { ready: Ready },
    Started,
    Report { report: WireReport },
    Refused { status: String, detail: String, hint: Option<String> },
    Bye,
}

impl Reply {
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Ready { .. } => "ready",
            Self::Started => "started",
            Self::Report { .. } => "report",
            Self::Refused { .. } => "refused",
            Self::Bye => "bye",
        }
    }
}

/// [`SamplerReport`] with owned names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireReport {
    chip: String,
    samples: u64,
    discarded: u64,
    seconds: f64,
    overflow: bool,
    gaps: u64,
    values: BTreeMap<String, Series>,
    counters: BTreeMap<String, f64>,
    absent: BTreeMap<String, String>,
    ended_early: Option<String>,
}

fn owned<T>(map: BTreeMap<&'static str, T>) -> BTreeMap<String, T> {
    map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The table's own copy of a name. Both processes are the same program, so every name is known.
fn known<T>(
    map: BTreeMap<String, T>,
    find: impl Fn(&str) -> Option<&'static str>,
) -> BTreeMap<&'static str, T> {
    map.into_iter().filter_map(|(name, value)| Some((find(&name)?, value))).collect()
}

fn counter(name: &str) -> Option<&'static str> {
    COUNTERS.iter().map(|counter| counter.name).find(|known| *known == name)
}

fn metric(name: &str) -> Option<&'static str> {
    METRIC_SETS.iter().flat_map(|set| set.metrics).map(|metric| metric.name).find(|known| *known == name)
}

impl From<SamplerReport> for WireReport {
    fn from(report: SamplerReport) -> Self {
        Self {
            chip: report.chip,
            samples: report.samples,
            discarded: report.discarded,
            seconds: report.seconds,
            overflow: report.overflow,
            gaps: report.gaps,
            values: owned(report.values),
            counters: owned(report.counters),
            absent: owned(report.absent),
            ended_early: report.ended_early,
        }
    }
}

impl From<WireReport> for SamplerReport {
    fn from(report: WireReport) -> Self {
        Self {
            chip: report.chip,
            samples: report.samples,
            discarded: report.discarded,
            seconds: report.seconds,
            overflow: report.overflow,
            gaps: report.gaps,
            values: known(report.values, metric),
            counters: known(report.counters, counter),
            absent: known(report.absent, counter),
            ended_early: report.ended_early,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_wire() {
        let report = SamplerReport {
            chip: "GH100".to_owned(),
            samples: 3,
            discarded: 1,
            seconds: 0.003,
            overflow: true,
            gaps: 2,
            values: BTreeMap::from([(
                "dram__bytes_read.sum",
                Series { mean: 0.1, std: 0.3, sum: 1e9, samples: 3 },
            )]),
            counters: BTreeMap::from([("sm_active_ratio", 0.1 + 0.2)]),
            absent: BTreeMap::from([("l2_hit_ratio", "no traffic".to_owned())]),
            ended_early: Some("a reason".to_owned()),
        };
        let line = serde_json::to_string(&Reply::Report { report: report.clone().into() }).unwrap();
        assert!(!line.contains('\n'));
        let Reply::Report { report: back } = serde_json::from_str(&line).unwrap() else { panic!("{line}") };
        assert_eq!(SamplerReport::from(back), report);
    }
}
