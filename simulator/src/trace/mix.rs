//! A trace of training and offline inference, made from a seed.

use super::sample::{accumulate, name, standard_normal};
use super::{MOST_SECONDS, Trace, TraceJob};
use crate::error::{check, check_within};
use crate::{ClusterSpec, Error};
use elastico_core::{Seed, WorkloadKind};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// More jobs than any trace has; a larger number is a slip of the finger.
const MOST_JOBS: f64 = 1e7;

/// A workload to draw jobs from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyntheticWorkload {
    /// The key into tables of slowdowns and speeds.
    pub workload: String,
    /// Training or inference.
    pub kind: WorkloadKind,
    /// Share of SM cycles that it keeps busy alone, 0..1, where known.
    pub sm_active_ratio: Option<f64>,
}

impl SyntheticWorkload {
    /// Reads a list: CSV with the columns `workload,kind,sm_active_ratio`, or JSON with these fields.
    ///
    /// # Errors
    /// The line and column, or field, of what is wrong.
    pub fn read(path: &Path) -> Result<Vec<Self>, Error> {
        Self::parse(&crate::document::read(path)?, path)
    }

    /// Like [`Self::read`], from a text; `path` is only named in errors.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Vec<Self>, Error> {
        let text = crate::document::unmarked(text);
        if text.trim_start().starts_with('[') {
            return crate::document::json(text, path, "list of workloads");
        }
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let mut list = Vec::new();
        for row in reader.deserialize() {
            list.push(row.map_err(|error| {
                let line = error.position().map_or(1, csv::Position::line);
                let why = match error.kind() {
                    csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
                    _ => error.to_string(),
                };
                Error::Line { path: path.into(), line, why }
            })?);
        }
        Ok(list)
    }
}

/// How many GPUs a training job asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuShare {
    /// GPUs.
    pub gpus: u32,
    /// How likely, relative to the others.
    pub weight: f64,
}

/// What the share of inference is a share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareOf {
    /// Of the number of jobs.
    #[default]
    Jobs,
    /// Of the GPU-seconds, in expectation.
    GpuSeconds,
}

/// A trace of training and offline inference; every number of it is synthetic.
///
/// Submissions are Poisson. A job is inference with a probability, of a workload drawn evenly from those of its kind;
/// inference asks for one GPU. Durations are log-normal and clipped, for both kinds alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MixOptions {
    /// Jobs for each GPU of the cluster.
    pub jobs_per_gpu: f64,
    /// Share of inference, 0..1.
    pub inference_share: f64,
    /// What it is a share of.
    pub share_of: ShareOf,
    /// GPUs of training jobs; those above a node are cut to it.
    pub training_gpus: Vec<GpuShare>,
    /// Every job may run on any number of GPUs in this range, besides what it asks for; absent = on what it asks for only.
    pub elastic_gpus: Option<[u32; 2]>,
    /// Where given, workloads are drawn unevenly, so that the mean of their SM activity is this within each kind; those of
    /// unknown activity are not drawn. Otherwise each workload of a kind is as likely as another.
    pub sm_active_mean: Option<f64>,
    /// Median of the durations before they are clipped, seconds.
    pub median_seconds: f64,
    /// Deviation of ln duration.
    pub sigma: f64,
    /// Shortest and longest duration, seconds.
    pub clip_seconds: [f64; 2],
}

impl Default for MixOptions {
    /// Half inference by jobs, training on 1, 2, 4 and 8 GPUs as 70, 10, 15 and 5 %, five minutes to six hours.
    fn default() -> Self {
        let gpus = [(1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05)];
        Self {
            jobs_per_gpu: 10.0,
            inference_share: 0.5,
            share_of: ShareOf::Jobs,
            training_gpus: gpus.into_iter().map(|(gpus, weight)| GpuShare { gpus, weight }).collect(),
            elastic_gpus: None,
            sm_active_mean: None,
            median_seconds: 1800.0,
            sigma: 1.2,
            clip_seconds: [300.0, 21_600.0],
        }
    }
}

impl MixOptions {
    /// Refuses what cannot be.
    pub(crate) fn check(&self, workloads: &[SyntheticWorkload]) -> Result<(), Error> {
        let within = |what: &str, value: f64, is_right: bool, must| {
            if is_right { Ok(()) } else { Err(Error::Number { what: what.to_owned(), value, must }) }
        };
        check(|| "jobs_per_gpu".to_owned(), self.jobs_per_gpu, f64::MIN_POSITIVE, "above 0")?;
        let share = self.inference_share;
        within("inference_share", share, (0.0..=1.0).contains(&share), "within 0 and 1")?;
        check_duration("median_seconds", self.median_seconds, f64::MIN_POSITIVE, ABOVE_0)?;
        check(|| "sigma".to_owned(), self.sigma, 0.0, "0 or more")?;
        let [least, most] = self.clip_seconds;
        check_duration("the start of clip_seconds", least, f64::MIN_POSITIVE, ABOVE_0)?;
        check_duration("the end of clip_seconds", most, least, "at least its start, and at most 1e12")?;
        for part in &self.training_gpus {
            check(|| "gpus of training_gpus".to_owned(), f64::from(part.gpus), 1.0, "1 or more")?;
            check(|| "weight of training_gpus".to_owned(), part.weight, 0.0, "0 or more")?;
        }
        if let Some([least, most]) = self.elastic_gpus {
            check(|| "the start of elastic_gpus".to_owned(), f64::from(least), 1.0, "1 or more")?;
            let (least, most) = (f64::from(least), f64::from(most));
            check(|| "the end of elastic_gpus".to_owned(), most, least, "at least its start")?;
        }
        let total: f64 = self.training_gpus.iter().map(|part| part.weight).sum();
        let has = |kind| workloads.iter().any(|workload| workload.kind == kind);
        if share < 1.0 && (total <= 0.0 || !has(WorkloadKind::Training)) {
            return Err(Error::Nothing("training workload, and number of GPUs for it"));
        }
        if share > 0.0 && !has(WorkloadKind::Inference) {
            return Err(Error::Nothing("inference workload"));
        }
        Ok(())
    }

    /// Jobs on a cluster.
    ///
    /// # Errors
    /// More than any trace has.
    pub(crate) fn jobs(&self, cluster: &ClusterSpec) -> Result<usize, Error> {
        let count = (self.jobs_per_gpu * f64::from(cluster.gpus())).ceil();
        let must = "small enough for at most 10 million jobs";
        if count > MOST_JOBS {
            return Err(Error::Number { what: "jobs_per_gpu".to_owned(), value: self.jobs_per_gpu, must });
        }
        Ok(count as usize)
    }

    /// The GPUs below which a draw in 0..1 falls, cut to the node.
    fn gpus(&self, draw: f64, node: u32) -> u32 {
        let total: f64 = self.training_gpus.iter().map(|part| part.weight).sum();
        let mut sum = 0.0;
        let within = self.training_gpus.iter().find(|part| {
            sum += part.weight / total;
            draw < sum
        });
        within.or(self.training_gpus.last()).map_or(1, |part| part.gpus).min(node)
    }

    /// The probability with which a job is inference.
    fn probability(&self, node: u32) -> f64 {
        let share = self.inference_share;
        match self.share_of {
            ShareOf::Jobs => share,
            ShareOf::GpuSeconds => {
                let total: f64 = self.training_gpus.iter().map(|part| part.weight).sum();
                let gpus: f64 = self
                    .training_gpus
                    .iter()
                    .map(|part| f64::from(part.gpus.min(node)) * part.weight / total)
                    .sum();
                // Without training there is nothing to weigh against.
                if share < 1.0 { share * gpus / (1.0 - share + share * gpus) } else { 1.0 }
            }
        }
    }
}

impl Trace {
    /// A synthetic trace of training and inference at an offered load, see [`MixOptions`].
    ///
    /// One seed gives the same jobs in the same order at every load.
    ///
    /// # Errors
    /// A number that cannot be, or no workload of a kind that is drawn.
    pub fn synthetic_mix(
        options: &MixOptions,
        workloads: &[SyntheticWorkload],
        load: f64,
        cluster: &ClusterSpec,
        seed: Seed,
    ) -> Result<Self, Error> {
        options.check(workloads)?;
        let of = |kind| workloads.iter().filter(move |workload| workload.kind == kind).collect::<Vec<_>>();
        let (training, inference) = (of(WorkloadKind::Training), of(WorkloadKind::Inference));
        let chances = match options.sm_active_mean {
            Some(mean) => Some([chances(&training, mean)?, chances(&inference, mean)?]),
            None => None,
        };
        let node = cluster.largest_node();
        let probability = options.probability(node);
        let [shortest, longest] = options.clip_seconds;
        let mut random = seed.stream("synthetic mix", &[]);
        let count = options.jobs(cluster)?;
        let mut jobs = Vec::with_capacity(count);
        for index in 0..count {
            let is_inference = random.random::<f64>() < probability;
            let list = if is_inference { &inference } else { &training };
            let drawn = match &chances {
                None => list[random.random_range(0..list.len())],
                Some(chances) => {
                    let below: f64 = random.random();
                    list[chances[usize::from(is_inference)]
                        .partition_point(|chance| *chance <= below)
                        .min(list.len() - 1)]
                }
            };
            let size: f64 = random.random();
            let gpus = if is_inference { 1 } else { options.gpus(size, node) };
            let gap = -(1.0 - random.random::<f64>()).ln();
            let duration = options.median_seconds * (options.sigma * standard_normal(&mut random)).exp();
            let mut job = TraceJob::new(
                name(index)?,
                drawn.workload.as_str(),
                gpus,
                gap,
                duration.clamp(shortest, longest),
            );
            job.kind = Some(drawn.kind);
            job.sm_active_ratio = drawn.sm_active_ratio;
            if let Some([least, most]) = options.elastic_gpus {
                job.gpus_min = Some(least.min(gpus));
                job.gpus_max = Some(most.max(gpus));
            }
            jobs.push(job);
        }
        accumulate(&mut jobs);
        Self::new(format!("synthetic mix, seed {}", seed.0), jobs)?.at_load(load, cluster)
    }
}

const ABOVE_0: &str = "above 0, and at most 1e12";

fn check_duration(what: &str, value: f64, least: f64, must: &'static str) -> Result<(), Error> {
    check_within(|| what.to_owned(), value, least, MOST_SECONDS, must)
}

/// The chances, summed up, with which workloads are drawn so that their mean activity is `mean`: proportional to
/// exp(tilt · activity), the distribution that departs least from an even one (Jaynes, 1957).
fn chances(workloads: &[&SyntheticWorkload], mean: f64) -> Result<Vec<f64>, Error> {
    let known: Vec<f64> = workloads.iter().filter_map(|workload| workload.sm_active_ratio).collect();
    let least = known.iter().copied().fold(f64::INFINITY, f64::min);
    let most = known.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if workloads.is_empty() {
        return Ok(Vec::new());
    }
    if !(mean > least && mean < most) {
        let what = "sm_active_mean".to_owned();
        return Err(Error::Number {
            what,
            value: mean,
            must: "between the activities of the workloads of a kind",
        });
    }
    let weights = |tilt: f64| -> Vec<f64> {
        let of =
            |workload: &&SyntheticWorkload| workload.sm_active_ratio.map_or(0.0, |own| (tilt * own).exp());
        workloads.iter().map(of).collect()
    };
    let reached = |tilt: f64| {
        let weights = weights(tilt);
        let pairs = weights.iter().zip(workloads);
        let sum: f64 = pairs.map(|(weight, own)| weight * own.sm_active_ratio.unwrap_or(0.0)).sum();
        sum / weights.iter().sum::<f64>()
    };
    // Within these the mean comes as near to either end as any use asks for.
    let (mut low, mut high) = (-500.0, 500.0);
    for _ in 0..100 {
        let tilt = f64::midpoint(low, high);
        if reached(tilt) < mean { low = tilt } else { high = tilt }
    }
    let weights = weights(low);
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    Ok(weights
        .iter()
        .map(|weight| {
            sum += weight / total;
            sum
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workloads() -> Vec<SyntheticWorkload> {
        let text =
            "workload,kind,sm_active_ratio\nresnet,training,0.5\nbert,training,\ndecode,inference,0.2\n";
        SyntheticWorkload::parse(text, Path::new("workloads.csv")).unwrap()
    }

    #[test]
    fn the_shares_are_as_asked_and_the_seed_decides() {
        let cluster: ClusterSpec = "n8g8".parse().unwrap();
        for (share_of, wanted) in [(ShareOf::Jobs, 0.3), (ShareOf::GpuSeconds, 0.5)] {
            let options = MixOptions {
                jobs_per_gpu: 400.0,
                inference_share: wanted,
                share_of,
                elastic_gpus: Some([1, 8]),
                ..MixOptions::default()
            };
            let make = |load, seed| {
                Trace::synthetic_mix(&options, &workloads(), load, &cluster, Seed(seed)).unwrap()
            };
            let trace = make(0.9, 1);
            assert!((trace.load(&cluster) - 0.9).abs() < 1e-9);
            let weight = |job: &&TraceJob| match share_of {
                ShareOf::Jobs => 1.0,
                ShareOf::GpuSeconds => job.gpu_seconds(),
            };
            let of_inference = trace.jobs().iter().filter(|job| job.kind == Some(WorkloadKind::Inference));
            let found = of_inference.map(|job| weight(&job)).sum::<f64>()
                / trace.jobs().iter().map(|job| weight(&job)).sum::<f64>();
            // 25,600 jobs: three deviations of a share of GPU-seconds are below 0.02.
            assert!((found - wanted).abs() < 0.02, "{found}");
            assert!(trace.jobs().iter().all(|job| (300.0..=21_600.0).contains(&job.duration_seconds)));
            assert!(trace.jobs().iter().all(|job| job.gpu_range() == (1..=8)));
            assert_eq!(trace, make(0.9, 1));
            assert_ne!(trace, make(0.9, 2));
            let durations = |trace: &Trace| -> Vec<u64> {
                trace.jobs().iter().map(|job| job.duration_seconds.to_bits()).collect()
            };
            assert_eq!(durations(&trace), durations(&make(1.8, 1)), "the same jobs at every load");
        }
    }

    #[test]
    fn the_mean_activity_is_as_asked() {
        let text =
            "workload,kind,sm_active_ratio\na,training,0.1\nb,training,0.5\nc,training,0.9\nd,training,\n";
        let workloads = SyntheticWorkload::parse(text, Path::new("workloads.csv")).unwrap();
        let cluster: ClusterSpec = "n8g8".parse().unwrap();
        for wanted in [0.25, 0.5, 0.7] {
            let options = MixOptions {
                jobs_per_gpu: 200.0,
                inference_share: 0.0,
                sm_active_mean: Some(wanted),
                ..MixOptions::default()
            };
            let trace = Trace::synthetic_mix(&options, &workloads, 1.0, &cluster, Seed(1)).unwrap();
            let active: Vec<f64> = trace.jobs().iter().filter_map(|job| job.sm_active_ratio).collect();
            assert_eq!(active.len(), trace.jobs().len(), "one of unknown activity was drawn");
            // 12,800 draws of deviation 0.4 at most.
            assert!((elastico_core::mean(&active) - wanted).abs() < 0.01);
        }
        let options =
            MixOptions { inference_share: 0.0, sm_active_mean: Some(0.95), ..MixOptions::default() };
        let refused = Trace::synthetic_mix(&options, &workloads, 1.0, &cluster, Seed(1));
        assert!(refused.unwrap_err().to_string().contains("sm_active_mean is 0.95"));
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        let parse = |text: &str| SyntheticWorkload::parse(text, Path::new("w")).unwrap_err().to_string();
        assert_eq!(
            parse("workload,kind,sm_active_ratio\na,trainin,0.5\n").split(':').next(),
            Some("w, line 2")
        );
        assert!(parse("workload,kin,sm_active_ratio\na,training,0.5\n").contains("kin"));
        assert!(parse("[{\"workload\": 1}]").contains("list of workloads"));
        // What an editor puts before the text changes nothing.
        assert!(parse("\u{feff}[{\"workload\": 1}]").contains("list of workloads"));
        let cluster: ClusterSpec = "n1g8".parse().unwrap();
        let make = |options: &MixOptions| {
            Trace::synthetic_mix(options, &workloads(), 1.0, &cluster, Seed(1)).is_err()
        };
        let usual = MixOptions::default();
        assert!(make(&MixOptions { inference_share: 1.5, ..usual.clone() }));
        assert!(make(&MixOptions { clip_seconds: [9.0, 3.0], ..usual.clone() }));
        assert!(make(&MixOptions { clip_seconds: [9.0, 1e13], ..usual.clone() }));
        assert!(make(&MixOptions { jobs_per_gpu: 1e9, ..usual.clone() }));
        assert!(make(&MixOptions { training_gpus: Vec::new(), ..usual }));
    }
}
