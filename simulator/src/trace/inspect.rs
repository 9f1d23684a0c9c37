//! What a trace asks for: how much, of what, and when.

use super::{Trace, TraceFormat, TraceJob, Warning};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Half of all jobs of no public trace run longer than a month; a unit is wrong.
const IMPLAUSIBLE_MEDIAN_SECONDS: f64 = 30.0 * 86_400.0;
/// Names that a finding lists.
const NAMED: usize = 3;
/// The GPU type of jobs that run on any, and of a cluster that does not name one.
const ANY: &str = "any";

/// A trace in numbers; all of it is counted, nothing is simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TraceSummary {
    /// `elastico.trace_summary/1`.
    pub schema: &'static str,
    /// The file, or how the trace was made.
    pub name: String,
    /// The format that it was read from.
    pub format: Option<TraceFormat>,
    /// Jobs.
    pub jobs_total: usize,
    /// Lines or jobs of the file that are not among them.
    pub left_out_total: usize,
    /// Time between the first and the last submission.
    pub span_seconds: f64,
    /// Kinds of work that differ by name.
    pub workloads_total: usize,
    /// Tenants; 0 where the trace names none.
    pub tenants_total: usize,
    /// Jobs by GPUs.
    pub gpu_counts: Vec<GpuCount>,
    /// Half of the jobs run no longer, alone.
    pub duration_p50_seconds: f64,
    /// Nine of ten run no longer.
    pub duration_p90_seconds: f64,
    /// 99 of 100 run no longer.
    pub duration_p99_seconds: f64,
    /// The longest.
    pub duration_max_seconds: f64,
    /// All work, GPU-seconds; a part of a GPU counts as that part.
    pub gpu_seconds: f64,
    /// Standard deviation over mean of the gaps between submissions; 1 for a Poisson process. Absent below three jobs.
    pub gap_variation_ratio: Option<f64>,
    /// Submissions in the busiest bin over the mean of all bins; absent where all arrive at once.
    pub arrivals_peak_ratio: Option<f64>,
    /// Length of a bin of time.
    pub bin_seconds: f64,
    /// Demand by the devices that jobs may run on.
    pub devices: Vec<DeviceDemand>,
    /// What cannot be right: jobs that never fit, units that cannot be.
    pub findings: Vec<String>,
    /// What the reader assumed and left out.
    pub warnings: Vec<Warning>,
}

/// Jobs with as many GPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GpuCount {
    /// GPUs; 0 stands for a part of one.
    pub gpus: u32,
    /// Jobs.
    pub jobs_total: usize,
    /// Their part of all jobs.
    pub jobs_ratio: f64,
    /// Their part of all GPU-seconds.
    pub gpu_seconds_ratio: f64,
}

/// What is asked of some GPU types. Demand is the number of GPUs that would be busy if no job ever waited.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeviceDemand {
    /// The types that will do, joined by `|`; `any` where the trace does not say.
    pub device: String,
    /// The device on which the durations are meant, where the trace names one.
    pub durations_on: Option<String>,
    /// Jobs.
    pub jobs_total: usize,
    /// Their work, GPU-seconds.
    pub gpu_seconds: f64,
    /// GPUs of these types in the cluster, where one was given.
    pub capacity_gpus: Option<u64>,
    /// Offered load: GPU-seconds over those that the capacity has during the span. Absent without a cluster or a span.
    pub load_ratio: Option<f64>,
    /// Largest demand at any instant, GPUs.
    pub peak_gpus: f64,
    /// Mean demand in each bin of time, GPUs.
    pub demand_gpus: Vec<f64>,
    /// Part of the span in which the demand exceeds the capacity; absent without a cluster.
    pub over_capacity_ratio: Option<f64>,
}

impl Trace {
    /// Counts what the trace asks for, in `bins` bins of time, at least one.
    ///
    /// `capacity` has the GPUs of a cluster by type. A type that is called `any` serves every job.
    pub fn summary(&self, bins: usize, capacity: Option<&BTreeMap<String, u64>>) -> TraceSummary {
        let bins = bins.max(1);
        let span = self.span().get();
        let jobs = self.jobs();
        let mut durations: Vec<f64> = jobs.iter().map(|job| job.duration_seconds).collect();
        durations.sort_by(f64::total_cmp);
        let mut groups: BTreeMap<String, Vec<&TraceJob>> = BTreeMap::new();
        for job in jobs {
            groups.entry(group(job)).or_default().push(job);
        }
        let devices: Vec<DeviceDemand> =
            groups.iter().map(|(device, jobs)| demand(device, jobs, span, bins, capacity)).collect();
        let mut findings = impossible(&groups, capacity);
        if quantile(&durations, 0.5) > IMPLAUSIBLE_MEDIAN_SECONDS {
            findings.push(format!(
                "half of the jobs run longer than {:.0} days: is the unit of time right?",
                quantile(&durations, 0.5) / 86_400.0
            ));
        }
        TraceSummary {
            schema: "elastico.trace_summary/1",
            name: self.name.clone(),
            format: self.format,
            jobs_total: jobs.len(),
            left_out_total: self.warnings.iter().map(Warning::left_out).sum(),
            span_seconds: span,
            workloads_total: jobs.iter().map(|job| &job.workload).collect::<BTreeSet<_>>().len(),
            tenants_total: jobs.iter().filter_map(|job| job.tenant.as_ref()).collect::<BTreeSet<_>>().len(),
            gpu_counts: gpu_counts(jobs),
            duration_p50_seconds: quantile(&durations, 0.5),
            duration_p90_seconds: quantile(&durations, 0.9),
            duration_p99_seconds: quantile(&durations, 0.99),
            duration_max_seconds: quantile(&durations, 1.0),
            gpu_seconds: jobs.iter().map(TraceJob::gpu_seconds).sum(),
            gap_variation_ratio: gap_variation(jobs),
            arrivals_peak_ratio: arrivals_peak(jobs, span, bins),
            bin_seconds: span / bins as f64,
            devices,
            findings,
            warnings: self.warnings.clone(),
        }
    }
}

/// The devices that will do, as one text.
fn group(job: &TraceJob) -> String {
    if job.devices.is_empty() { ANY.to_owned() } else { job.devices.join("|") }
}

/// GPUs of a cluster that serve a group.
fn capacity_of(group: &str, capacity: &BTreeMap<String, u64>) -> u64 {
    let serves = |device: &str| group == ANY || device == ANY || group.split('|').any(|name| name == device);
    capacity.iter().filter(|(device, _)| serves(device)).map(|(_, gpus)| gpus).sum()
}

fn gpu_counts(jobs: &[TraceJob]) -> Vec<GpuCount> {
    let mut counts: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
    let mut total = 0.0;
    for job in jobs {
        let gpus = if job.gpu_share_ratio.is_some() { 0 } else { job.gpus };
        let (number, seconds) = counts.entry(gpus).or_default();
        *number += 1;
        *seconds += job.gpu_seconds();
        total += job.gpu_seconds();
    }
    counts
        .into_iter()
        .map(|(gpus, (number, seconds))| GpuCount {
            gpus,
            jobs_total: number,
            jobs_ratio: number as f64 / jobs.len() as f64,
            gpu_seconds_ratio: seconds / total,
        })
        .collect()
}

fn demand(
    device: &str,
    jobs: &[&TraceJob],
    span: f64,
    bins: usize,
    capacity: Option<&BTreeMap<String, u64>>,
) -> DeviceDemand {
    let capacity = capacity.map(|capacity| capacity_of(device, capacity));
    let gpu_seconds: f64 = jobs.iter().map(|job| job.gpu_seconds()).sum();
    // The demand rises at a submission and falls when the job would be done; falls come first at one instant.
    let mut changes: Vec<(f64, f64)> = Vec::with_capacity(jobs.len() * 2);
    for job in jobs {
        let gpus = f64::from(job.gpus) * job.gpu_share_ratio.unwrap_or(1.0);
        changes.push((job.submit_seconds, gpus));
        changes.push((job.submit_seconds + job.duration_seconds, -gpus));
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut walk = Walk { bins: vec![0.0; bins], width: span / bins as f64, over: 0.0 };
    let limit = capacity.map_or(f64::INFINITY, |gpus| gpus as f64);
    let (mut now, mut level, mut peak) = (0.0, 0.0_f64, 0.0_f64);
    for (time, change) in changes {
        walk.spend(now, time.min(span), level, limit);
        now = time;
        level += change;
        peak = peak.max(level);
    }
    let lasts = span > 0.0;
    DeviceDemand {
        device: device.to_owned(),
        durations_on: jobs.first().and_then(|job| job.device.clone()),
        jobs_total: jobs.len(),
        gpu_seconds,
        capacity_gpus: capacity,
        load_ratio: capacity.filter(|gpus| lasts && *gpus > 0).map(|gpus| gpu_seconds / (gpus as f64 * span)),
        peak_gpus: peak,
        demand_gpus: walk.bins,
        over_capacity_ratio: capacity.filter(|_| lasts).map(|_| walk.over / span),
    }
}

/// Demand over time, gathered into bins.
struct Walk {
    bins: Vec<f64>,
    width: f64,
    /// Seconds above the limit.
    over: f64,
}

impl Walk {
    fn spend(&mut self, from: f64, to: f64, level: f64, limit: f64) {
        if to <= from || self.width <= 0.0 {
            return;
        }
        // Parts of GPUs leave a rest of rounding.
        if level > limit + 1e-6 {
            self.over += to - from;
        }
        let last = self.bins.len() - 1;
        let place = |time: f64| ((time / self.width) as usize).min(last);
        for bin in place(from)..=place(to) {
            let start = from.max(bin as f64 * self.width);
            let end = if bin == last { to } else { to.min((bin + 1) as f64 * self.width) };
            self.bins[bin] += level * (end - start).max(0.0) / self.width;
        }
    }
}

/// Jobs that no GPUs of the cluster will ever hold.
fn impossible(
    groups: &BTreeMap<String, Vec<&TraceJob>>,
    capacity: Option<&BTreeMap<String, u64>>,
) -> Vec<String> {
    let Some(capacity) = capacity else { return Vec::new() };
    let mut findings = Vec::new();
    for (device, jobs) in groups {
        let gpus = capacity_of(device, capacity);
        let too_large: Vec<&&TraceJob> = jobs.iter().filter(|job| u64::from(job.gpus) > gpus).collect();
        if too_large.is_empty() {
            continue;
        }
        let names: Vec<&str> = too_large.iter().take(NAMED).map(|job| job.job.as_str()).collect();
        let more = if too_large.len() > NAMED { ", …" } else { "" };
        let kind = if device == ANY { String::new() } else { format!("{device} ") };
        let count = too_large.len();
        let ask = if count == 1 { "job asks" } else { "jobs ask" };
        findings.push(format!(
            "{count} {ask} for more {kind}GPUs than the {gpus} there are: {}{more}",
            names.join(", ")
        ));
    }
    findings
}

fn gap_variation(jobs: &[TraceJob]) -> Option<f64> {
    let gaps: Vec<f64> =
        jobs.windows(2).map(|pair| pair[1].submit_seconds - pair[0].submit_seconds).collect();
    if gaps.len() < 2 {
        return None;
    }
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / (gaps.len() - 1) as f64;
    (mean > 0.0).then(|| variance.sqrt() / mean)
}

fn arrivals_peak(jobs: &[TraceJob], span: f64, bins: usize) -> Option<f64> {
    if span <= 0.0 {
        return None;
    }
    let first = jobs.first()?.submit_seconds;
    let mut counts = vec![0_usize; bins];
    for job in jobs {
        let bin = ((job.submit_seconds - first) / span * bins as f64) as usize;
        counts[bin.min(bins - 1)] += 1;
    }
    let most = counts.into_iter().max()?;
    Some(most as f64 * bins as f64 / jobs.len() as f64)
}

/// The nearest rank in sorted values.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).or(sorted.last()).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::JobId;

    fn job(name: &str, gpus: u32, submit: f64, duration: f64) -> TraceJob {
        TraceJob::new(JobId::new(name).unwrap(), "w", gpus, submit, duration)
    }

    #[test]
    fn demand_is_what_would_be_busy_if_nobody_waited() {
        let mut typed = job("c", 1, 100.0, 50.0);
        typed.devices = vec!["A".into(), "B".into()];
        let trace = Trace::new("t", vec![job("a", 2, 0.0, 50.0), job("b", 4, 25.0, 1000.0), typed]).unwrap();
        let capacity = BTreeMap::from([("A".to_owned(), 3), ("C".to_owned(), 2)]);
        let summary = trace.summary(4, Some(&capacity));
        let [typed, any] = summary.devices.as_slice() else { panic!("two groups") };
        assert_eq!((typed.device.as_str(), typed.capacity_gpus), ("A|B", Some(3)));
        assert_eq!(any.demand_gpus, [2.0, 6.0, 4.0, 4.0]);
        assert_eq!((any.peak_gpus, any.capacity_gpus, any.over_capacity_ratio), (6.0, Some(5), Some(0.25)));
        assert_eq!(any.load_ratio, Some(4100.0 / 500.0));
        assert!(summary.findings.is_empty(), "{:?}", summary.findings);
        let none = BTreeMap::from([("C".to_owned(), 3)]);
        let findings = trace.summary(4, Some(&none)).findings;
        assert_eq!(
            findings,
            [
                "1 job asks for more A|B GPUs than the 0 there are: c",
                "1 job asks for more GPUs than the 3 there are: b"
            ]
        );
    }

    #[test]
    fn nonsense_is_said_aloud() {
        let trace = Trace::new("t", vec![job("a", 1, 0.0, 1e8), job("b", 1, 0.0, 1e8)]).unwrap();
        let findings = trace.summary(10, None).findings;
        assert!(findings[0].contains("is the unit of time right?"), "{findings:?}");
        // That all arrive at once is common, a batch to be drained.
        assert_eq!(findings.len(), 1, "{findings:?}");
    }
}
