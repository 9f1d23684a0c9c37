//! Traces made from a seed: resampled from a real one, or from scratch.

use super::{MOST_SECONDS, Trace, TraceJob, last_submission, lost_to_rounding};
use crate::error::{check, check_within};
use crate::{ClusterSpec, Error};
use elastico_core::{JobId, Seed};
use rand::{Rng, RngExt};

/// A trace made from scratch; every number of it is synthetic.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticOptions {
    /// Jobs to make.
    pub jobs: usize,
    /// Offered load against `cluster`, above 0.
    pub load: f64,
    /// The cluster that the load is relative to; no job is larger than one of its nodes.
    pub cluster: ClusterSpec,
    /// Workloads to draw from, with the share of SM cycles each keeps busy where known.
    pub workloads: Vec<(String, Option<f64>)>,
    /// Median duration of a job, seconds.
    pub median_seconds: f64,
}

impl Trace {
    /// A synthetic trace: Poisson arrivals, log-normal durations, mostly one-GPU jobs.
    ///
    /// The deviation of ln duration is 1.5, and GPU counts are 1 (85 %), 2, 4 and 8: the Philly list has 93 % one-GPU
    /// jobs and durations whose p50 to p90 ratio of 9.8 means a deviation of 1.8 (Jeon et al., ATC 2019).
    ///
    /// # Errors
    /// No jobs or workloads, or a load or duration that cannot be.
    pub fn synthetic(options: &SyntheticOptions, seed: Seed) -> Result<Self, Error> {
        check(|| "the load".to_owned(), options.load, f64::MIN_POSITIVE, "above 0")?;
        let (median, must) = (options.median_seconds, "above 0, and at most 1e12");
        check_within(|| "the median duration".to_owned(), median, f64::MIN_POSITIVE, MOST_SECONDS, must)?;
        if options.workloads.is_empty() {
            return Err(Error::Nothing("workload"));
        }
        let mut random = seed.stream("synthetic trace", &[]);
        let mut jobs = Vec::with_capacity(options.jobs);
        for index in 0..options.jobs {
            let (workload, sm_active_ratio) =
                &options.workloads[random.random_range(0..options.workloads.len())];
            let gpus = match random.random::<f64>() {
                draw if draw < 0.85 => 1,
                draw if draw < 0.91 => 2,
                draw if draw < 0.96 => 4,
                _ => 8,
            };
            // An exponential gap of mean 1; the load below sets the scale.
            let gap = -(1.0 - random.random::<f64>()).ln();
            let duration = options.median_seconds * (1.5 * standard_normal(&mut random)).exp();
            let gpus = gpus.min(options.cluster.largest_node());
            let mut job = TraceJob::new(name(index)?, workload.as_str(), gpus, gap, duration);
            job.sm_active_ratio = *sm_active_ratio;
            jobs.push(job);
        }
        accumulate(&mut jobs);
        Self::new(format!("synthetic, seed {}", seed.0), jobs)?.at_load(options.load, &options.cluster)
    }

    /// Another trace of the same kind: jobs and gaps between submissions drawn with replacement, independently.
    ///
    /// # Errors
    /// None for a valid trace.
    pub fn resample(&self, seed: Seed) -> Result<Self, Error> {
        let mut random = seed.stream("resampled trace", &[&self.name]);
        let gaps: Vec<f64> =
            self.jobs.windows(2).map(|pair| pair[1].submit_seconds - pair[0].submit_seconds).collect();
        let mut jobs = Vec::with_capacity(self.jobs.len());
        for index in 0..self.jobs.len() {
            let mut job = self.jobs[random.random_range(0..self.jobs.len())].clone();
            job.job = name(index)?;
            job.submit_seconds =
                if index == 0 || gaps.is_empty() { 0.0 } else { gaps[random.random_range(0..gaps.len())] };
            jobs.push(job);
        }
        accumulate(&mut jobs);
        Self::new(format!("{}, resampled with seed {}", self.name, seed.0), jobs)
    }

    /// The same jobs, with times of submission stretched so that the offered load is `load`.
    ///
    /// A trace whose jobs all arrive at once has no gaps to stretch and stays as it is.
    ///
    /// # Errors
    /// A load that is not above 0, or so small that the trace becomes too long for its times to be told apart.
    pub fn at_load(&self, load: f64, cluster: &ClusterSpec) -> Result<Self, Error> {
        check(|| "the load".to_owned(), load, f64::MIN_POSITIVE, "above 0")?;
        let now = self.load(cluster);
        let mut stretched = self.clone();
        if now.is_finite() {
            for job in &mut stretched.jobs {
                job.submit_seconds *= now / load;
            }
            let last_seconds = last_submission(&stretched.jobs);
            let why = if last_seconds <= MOST_SECONDS {
                lost_to_rounding(&stretched.jobs).map(|_| "the shortest jobs are lost to rounding there")
            } else {
                Some("they may be at most 1e12")
            };
            if let Some(why) = why {
                return Err(Error::Stretched { load, last_seconds, why });
            }
        }
        Ok(stretched)
    }
}

/// Turns gaps into times.
pub(super) fn accumulate(jobs: &mut [TraceJob]) {
    let mut now = 0.0;
    for job in jobs {
        now += job.submit_seconds;
        job.submit_seconds = now;
    }
}

pub(super) fn name(index: usize) -> Result<JobId, Error> {
    JobId::new(format!("job-{index}")).map_err(|error| Error::Cluster(error.to_string()))
}

/// Box and Muller 1958.
pub(super) fn standard_normal(random: &mut impl Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> SyntheticOptions {
        SyntheticOptions {
            jobs: 400,
            load: 0.8,
            cluster: "n8g8".parse().unwrap(),
            workloads: vec![("a".into(), Some(0.4)), ("b".into(), None)],
            median_seconds: 600.0,
        }
    }

    #[test]
    fn the_load_is_as_asked_and_the_seed_decides() {
        let trace = Trace::synthetic(&options(), Seed(1)).unwrap();
        assert!((trace.load(&options().cluster) - 0.8).abs() < 1e-9);
        assert_eq!(trace, Trace::synthetic(&options(), Seed(1)).unwrap());
        assert_ne!(trace, Trace::synthetic(&options(), Seed(2)).unwrap());
        let again = trace.at_load(1.6, &options().cluster).unwrap();
        assert!((again.span().get() * 2.0 - trace.span().get()).abs() < 1e-6);
        assert!(trace.at_load(f64::NAN, &options().cluster).is_err());
    }

    #[test]
    fn a_load_beyond_what_times_can_tell_apart_is_refused() {
        let cluster = options().cluster;
        let job =
            |name: &str, submit, duration| TraceJob::new(JobId::new(name).unwrap(), "a", 1, submit, duration);
        let trace = Trace::new("t", vec![job("a", 0.0, 64.0), job("b", 100.0, 1e-3)]).unwrap();
        // 64 GPU-seconds in 100 s on 64 GPUs are a load of 0.01.
        for (load, last, expected) in [
            (1e-16, 1e16, "s, and they may be at most 1e12"),
            (1e-11, 1e11, "s, and the shortest jobs are lost to rounding there"),
        ] {
            let error = trace.at_load(load, &cluster).unwrap_err();
            let Error::Stretched { last_seconds, .. } = &error else { panic!("{error}") };
            assert!((last_seconds / last - 1.0).abs() < 1e-4, "{error}");
            let text = error.to_string();
            assert!(text.starts_with("a load of 1e-1") && text.ends_with(expected), "{text}");
        }
        assert!(trace.at_load(1e-8, &cluster).is_ok());
    }

    #[test]
    fn resampling_draws_only_what_was_there() {
        let trace = Trace::synthetic(&options(), Seed(1)).unwrap();
        let again = trace.resample(Seed(9)).unwrap();
        assert_eq!(again.jobs().len(), trace.jobs().len());
        for job in again.jobs() {
            assert!(trace.jobs().iter().any(|other| (&other.workload, other.duration_seconds.to_bits())
                == (&job.workload, job.duration_seconds.to_bits())));
        }
    }
}
