//! Parts of a trace, and traces put together; everything drawn comes from a seed.

use super::{LEAST_PART, Trace, TraceJob};
use crate::Error;
use crate::error::check;
use elastico_core::{JobId, Seed};
use rand::RngExt;

impl Trace {
    /// `jobs` of the jobs, drawn without replacement, at their own times: the offered load falls with their number.
    ///
    /// # Errors
    /// More jobs than there are, or none.
    pub fn sample(&self, jobs: usize, seed: Seed) -> Result<Self, Error> {
        if jobs == 0 || jobs > self.jobs.len() {
            return Err(Error::Number {
                what: "the number of jobs to sample".to_owned(),
                value: jobs as f64,
                must: "at least 1 and at most the jobs of the trace",
            });
        }
        let mut random = seed.stream("sampled trace", &[&self.name]);
        // Selection sampling (Knuth, TAOCP 3.4.2 S): each subset is equally likely, and the order stays.
        let mut wanted = jobs;
        let mut kept = Vec::with_capacity(jobs);
        for (index, job) in self.jobs.iter().enumerate() {
            let left = self.jobs.len() - index;
            if random.random_range(0..left) < wanted {
                wanted -= 1;
                kept.push(job.clone());
            }
        }
        self.with(kept, format!("{}, {jobs} jobs by seed {}", self.name, seed.0))
    }

    /// The jobs that are submitted from `from` up to, but not at, `to`, both in seconds from the start of the trace.
    ///
    /// # Errors
    /// Limits that are no times, or no job between them.
    pub fn window(&self, from: f64, to: f64) -> Result<Self, Error> {
        check(|| "the start of the window".to_owned(), from, 0.0, "0 or more")?;
        if to.is_nan() || to <= from {
            return Err(Error::Number {
                what: "the end of the window".to_owned(),
                value: to,
                must: "after its start",
            });
        }
        let inside = |job: &&TraceJob| (from..to).contains(&job.submit_seconds);
        let kept = self.jobs.iter().filter(inside).cloned().collect();
        self.with(kept, format!("{}, {from} s to {to} s", self.name))
    }

    /// Both traces at once, each from its own start. Jobs are named `1/…` and `2/…`, so that none clash.
    ///
    /// With a `share`, above 0 and below 1, the second trace gives as many jobs as make that part of all GPU-seconds: they
    /// are drawn from it with replacement, and arrive at random over the span of the first.
    ///
    /// # Errors
    /// A share that cannot be.
    pub fn mix(&self, other: &Self, share: Option<f64>, seed: Seed) -> Result<Self, Error> {
        let mut added = match share {
            None => other.jobs.clone(),
            Some(share) => self.drawn(other, share, seed)?,
        };
        let mut jobs = self.jobs.clone();
        rename(&mut jobs, 1)?;
        rename(&mut added, 2)?;
        jobs.append(&mut added);
        jobs.sort_by(|a, b| a.submit_seconds.total_cmp(&b.submit_seconds));
        let part = share.map(|share| format!(" ({share} of the work)")).unwrap_or_default();
        let mut mixed = Self::new(format!("{} + {}{part}", self.name, other.name), jobs)?;
        mixed.warnings = self.warnings.iter().chain(&other.warnings).cloned().collect();
        Ok(mixed)
    }

    fn drawn(&self, other: &Self, share: f64, seed: Seed) -> Result<Vec<TraceJob>, Error> {
        if !(share > 0.0 && share < 1.0) {
            return Err(Error::Number {
                what: "the share of the second trace".to_owned(),
                value: share,
                must: "above 0 and below 1",
            });
        }
        let own: f64 = self.jobs.iter().map(TraceJob::gpu_seconds).sum();
        let wanted = own * share / (1.0 - share);
        check_count(wanted, other)?;
        let mut random = seed.stream("mixed trace", &[&self.name, &other.name]);
        let first = self.jobs.first().map_or(0.0, |job| job.submit_seconds);
        let span = self.span().get();
        let mut jobs = Vec::new();
        let mut work = 0.0;
        while work < wanted {
            let mut job = other.jobs[random.random_range(0..other.jobs.len())].clone();
            let rest = wanted - work;
            // The last job is cut, so that the share is met to the second.
            if job.gpu_seconds() > rest {
                job.duration_seconds *= rest / job.gpu_seconds();
            }
            // What is left would be lost to rounding.
            if job.duration_seconds < ((first + span) * LEAST_PART).max(f64::MIN_POSITIVE) {
                break;
            }
            work += job.gpu_seconds();
            job.job = JobId::new(format!("{}-{}", jobs.len(), job.job))
                .or_else(|_| JobId::new(jobs.len().to_string()))
                .map_err(|error| Error::Cluster(error.to_string()))?;
            job.submit_seconds = first + span * random.random::<f64>();
            jobs.push(job);
        }
        Ok(jobs)
    }

    fn with(&self, jobs: Vec<TraceJob>, name: String) -> Result<Self, Error> {
        let mut part = Self::new(name, jobs)?;
        part.format = self.format;
        part.warnings.clone_from(&self.warnings);
        Ok(part)
    }
}

/// More jobs than this are a slip: a trace of a million is the largest that is simulated.
const MOST_DRAWN: f64 = 1e7;

fn check_count(wanted: f64, other: &Trace) -> Result<(), Error> {
    let mean = other.jobs.iter().map(TraceJob::gpu_seconds).sum::<f64>() / other.jobs.len() as f64;
    if wanted / mean <= MOST_DRAWN {
        return Ok(());
    }
    Err(Error::Number {
        what: "the number of jobs that the share takes".to_owned(),
        value: (wanted / mean).round(),
        must: "at most ten million; the jobs of the second trace are too small beside the first",
    })
}

fn rename(jobs: &mut [TraceJob], side: u32) -> Result<(), Error> {
    for job in jobs {
        // A name at the limit of length has no room for the prefix.
        let text: String = format!("{side}/{}", job.job).chars().take(200).collect();
        job.job = JobId::new(text).map_err(|error| Error::Cluster(error.to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(name: &str, jobs: usize, seconds: f64) -> Trace {
        let job = |index: usize| {
            TraceJob::new(JobId::new(format!("j{index}")).unwrap(), name, 1, index as f64 * 10.0, seconds)
        };
        Trace::new(name, (0..jobs).map(job).collect()).unwrap()
    }

    #[test]
    fn a_sample_keeps_times_and_order_and_follows_its_seed() {
        let all = trace("t", 100, 60.0);
        let some = all.sample(30, Seed(1)).unwrap();
        assert_eq!(some.jobs().len(), 30);
        assert!(some.jobs().iter().all(|job| all.jobs().contains(job)));
        assert_eq!(some, all.sample(30, Seed(1)).unwrap());
        assert_ne!(some.jobs(), all.sample(30, Seed(2)).unwrap().jobs());
        assert_eq!(all.sample(100, Seed(3)).unwrap().jobs(), all.jobs());
        assert!(all.sample(101, Seed(1)).is_err() && all.sample(0, Seed(1)).is_err());
    }

    #[test]
    fn a_window_is_half_open() {
        let part = trace("t", 10, 60.0).window(20.0, 50.0).unwrap();
        let times: Vec<f64> = part.jobs().iter().map(|job| job.submit_seconds).collect();
        assert_eq!(times, [20.0, 30.0, 40.0]);
        assert!(matches!(trace("t", 10, 60.0).window(95.0, 99.0), Err(Error::NoJobs(_))));
        assert!(trace("t", 10, 60.0).window(5.0, 5.0).is_err());
    }

    #[test]
    fn a_mix_has_the_share_that_was_asked() {
        let (training, inference) = (trace("training", 50, 600.0), trace("inference", 7, 90.0));
        let plain = training.mix(&inference, None, Seed(1)).unwrap();
        assert_eq!(plain.jobs().len(), 57);
        for share in [0.1, 0.5, 0.9] {
            let mixed = training.mix(&inference, Some(share), Seed(1)).unwrap();
            let work = |name: &str| -> f64 {
                mixed.jobs().iter().filter(|job| job.workload == name).map(TraceJob::gpu_seconds).sum()
            };
            let found = work("inference") / (work("inference") + work("training"));
            assert!((found - share).abs() < 1e-9, "{found}");
            assert!((work("training") - 30_000.0).abs() < 1e-6);
            assert_eq!(mixed, training.mix(&inference, Some(share), Seed(1)).unwrap());
        }
        assert!(training.mix(&inference, Some(1.0), Seed(1)).is_err());
    }
}
