//! Microsoft's Philly cluster (Jeon et al., ATC 2019): its log of attempts, and the flat list that others made of it.

use super::sheet::{Jobs, Sheet};
use super::{Attempts, Trace, TraceJob, date};
use crate::Error;
use elastico_core::{JobId, WorkloadKind};
use serde::Deserialize;
use serde::de::{Deserializer as _, Error as _, IgnoredAny, SeqAccess, Visitor};
use std::fmt;
use std::io::Read;
use std::path::Path;

/// What the jobs of Philly are called: the lists do not say what they ran.
const WORKLOAD: &str = "philly";

/// Fields that are read; the log has more.
#[derive(Deserialize)]
struct LogJob {
    jobid: String,
    vc: Option<String>,
    submitted_time: Option<String>,
    attempts: Vec<LogAttempt>,
}

#[derive(Deserialize)]
struct LogAttempt {
    start_time: Option<String>,
    end_time: Option<String>,
    #[serde(default)]
    detail: Vec<LogNode>,
}

#[derive(Deserialize)]
struct LogNode {
    #[serde(default)]
    gpus: Vec<IgnoredAny>,
}

/// An attempt that ran.
struct Attempt {
    start: f64,
    end: f64,
    gpus: usize,
}

/// Reads `cluster_job_log`, one job after the other: the whole log is never in memory.
///
/// Times are local to the cluster and taken as written. An attempt without a start or an end did not run to its end
/// and is left out; so is a job that none is left of.
pub(super) fn read_log(log: impl Read, path: &Path, attempts: Attempts) -> Result<Trace, Error> {
    let wrong = |source| Error::Json { path: path.into(), what: "cluster_job_log of Philly", source };
    let mut reader = serde_json::Deserializer::from_reader(log);
    let log = reader
        .deserialize_seq(LogVisitor { split: attempts == Attempts::Split })
        .and_then(|log| reader.end().map(|()| log))
        .map_err(wrong)?;
    let mut jobs = log.jobs;
    jobs.left_out(log.without_attempt, "jobs without an attempt that started and ended on GPUs");
    jobs.assumed(match attempts {
        Attempts::Sum => {
            "a job is the sum of its attempts: their GPU-seconds on the GPUs of the largest (--attempts split keeps them apart)"
        }
        Attempts::Split => "each attempt is a job, submitted when the one before it ended",
    });
    jobs.into_trace(path)
}

#[derive(Default)]
struct Log {
    jobs: Jobs,
    without_attempt: usize,
}

struct LogVisitor {
    split: bool,
}

impl<'de> Visitor<'de> for LogVisitor {
    type Value = Log;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of jobs with jobid, submitted_time and attempts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Log, A::Error> {
        let mut log = Log::default();
        while let Some(job) = list.next_element::<LogJob>()? {
            let made = convert(&job, self.split)
                .map_err(|why| A::Error::custom(format!("job `{}`: {why}", job.jobid.escape_debug())))?;
            if made.is_empty() {
                log.without_attempt += 1;
            }
            for job in made {
                log.jobs.push(job);
            }
        }
        Ok(log)
    }
}

/// The job, or its attempts; none where nothing of it ran.
fn convert(job: &LogJob, split: bool) -> Result<Vec<TraceJob>, String> {
    let mut ran = Vec::new();
    for attempt in &job.attempts {
        let (start, end) = (
            time("start_time", attempt.start_time.as_deref())?,
            time("end_time", attempt.end_time.as_deref())?,
        );
        let gpus = attempt.detail.iter().map(|node| node.gpus.len()).sum();
        if let (Some(start), Some(end)) = (start, end)
            && gpus > 0
        {
            if end < start {
                return Err("an attempt ends before it starts".to_owned());
            }
            ran.push(Attempt { start, end, gpus });
        }
    }
    let Some(largest) = ran.iter().map(|attempt| attempt.gpus).max() else { return Ok(Vec::new()) };
    let submitted = time("submitted_time", job.submitted_time.as_deref())?.ok_or("it was never submitted")?;
    let make = |name: String, gpus: usize, submit: f64, seconds: f64| -> Result<TraceJob, String> {
        let id = JobId::new(name).map_err(|error| error.to_string())?;
        let mut made = TraceJob::new(id, WORKLOAD, gpus as u32, submit, seconds);
        made.kind = Some(WorkloadKind::Training);
        made.tenant = job.vc.clone().filter(|vc| !vc.is_empty());
        Ok(made)
    };
    if !split {
        let gpu_seconds: f64 =
            ran.iter().map(|attempt| (attempt.end - attempt.start) * attempt.gpus as f64).sum();
        return Ok(vec![make(job.jobid.clone(), largest, submitted, gpu_seconds / largest as f64)?]);
    }
    let mut before = submitted;
    let mut made = Vec::new();
    for (index, attempt) in ran.iter().enumerate() {
        let name = format!("{}#{}", job.jobid, index + 1);
        made.push(make(name, attempt.gpus, before, attempt.end - attempt.start)?);
        before = attempt.end.max(before);
    }
    Ok(made)
}

/// A time that may be missing; the log writes that as null, as nothing or as None.
fn time(field: &str, text: Option<&str>) -> Result<Option<f64>, String> {
    match text {
        None | Some("" | "None") => Ok(None),
        Some(text) => match date::seconds(text) {
            Some(seconds) => Ok(Some(seconds)),
            None => Err(format!("{field} `{}` is no time such as 2017-10-09 07:01:55", text.escape_debug())),
        },
    }
}

/// Reads `timestamp,duration,num_gpus,gpu_time,cluster`: submission in local time, seconds of execution.
pub(super) fn parse_flat(text: &str, path: &Path) -> Result<Trace, Error> {
    let expects = "the flat list of Philly has the columns timestamp,duration,num_gpus,gpu_time,cluster";
    let sheet = Sheet::open(text, path, expects)?;
    let (timestamp, duration, gpus) =
        (sheet.column("timestamp")?, sheet.column("duration")?, sheet.column("num_gpus")?);
    let cluster = sheet.optional("cluster");
    let mut jobs = Jobs::default();
    sheet.rows(|row| {
        let id = JobId::new(format!("line-{}", row.line()))
            .map_err(|error| row.wrong(timestamp, error.to_string()))?;
        let (submit, duration) = (row.date(timestamp)?, row.number(duration)?);
        let mut job = TraceJob::new(id, WORKLOAD, row.count(gpus, "GPUs")?, submit, duration);
        job.kind = Some(WorkloadKind::Training);
        job.tenant = cluster.map(|column| row.text(column).to_owned()).filter(|text| !text.is_empty());
        jobs.push(job);
        Ok(())
    })?;
    jobs.into_trace(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    const LOG: &str = r#"[
        {"status": "Pass", "vc": "ee9e8c", "jobid": "application_1", "user": "u", "submitted_time": "2017-10-09 07:00:00",
         "attempts": [
            {"start_time": "2017-10-09 07:01:00", "end_time": "2017-10-09 07:02:00", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
            {"start_time": "2017-10-09 07:10:00", "end_time": "2017-10-09 07:20:00",
             "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}]},
            {"start_time": "2017-10-09 07:30:00", "end_time": "None", "detail": []}]},
        {"status": "Killed", "vc": "ee9e8c", "jobid": "application_2", "user": "u", "submitted_time": "2017-10-09 06:00:00",
         "attempts": []}]"#;

    fn read(text: &str, attempts: Attempts) -> Result<Trace, Error> {
        read_log(text.as_bytes(), Path::new("log.json"), attempts)
    }

    #[test]
    fn attempts_are_summed_without_losing_gpu_seconds_or_kept_apart() {
        let trace = read(LOG, Attempts::Sum).unwrap();
        let [job] = trace.jobs() else { panic!("one job ran") };
        assert_eq!((job.gpus, job.gpu_seconds()), (4, 2.0 * 60.0 + 4.0 * 600.0));
        assert!(trace.warnings[0].to_string().starts_with("left out 1 jobs without an attempt"));
        let trace = read(LOG, Attempts::Split).unwrap();
        let seen: Vec<_> =
            trace.jobs().iter().map(|job| (job.job.as_str(), job.gpus, job.submit_seconds)).collect();
        assert_eq!(seen, [("application_1#1", 2, 0.0), ("application_1#2", 4, 120.0)]);
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, expected) in [
            (LOG.replace("2017-10-09 07:01:00", "yesterday"), "job `application_1`: start_time `yesterday`"),
            (LOG.replace("2017-10-09 07:02:00", "2017-10-09 07:00:30"), "ends before it starts"),
            (LOG.replace("\"attempts\"", "\"attempt\""), "missing field `attempts` at line 7"),
            (LOG.replace("2017-10-09 07:00:00", "None"), "never submitted"),
            (format!("{LOG} x"), "trailing characters at line"),
        ] {
            let error = read(&text, Attempts::Sum).unwrap_err();
            let source = error.source().unwrap().to_string();
            assert!(source.contains(expected) && source.contains("line"), "{source}");
        }
    }

    #[test]
    fn the_flat_list_need_not_be_sorted() {
        let text = "timestamp,duration,num_gpus,gpu_time,cluster\n\
            2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 06:13:03,2951.0,4,11804.0,6214e9\n\
            2017-10-09 06:13:03,0.0,4,0.0,6214e9\n";
        let trace = parse_flat(text, Path::new("p.csv")).unwrap();
        assert_eq!(trace.jobs()[0].gpus, 4);
        assert!((trace.jobs()[1].submit_seconds - 2932.0).abs() < 1e-9);
        assert_eq!(trace.jobs()[1].tenant.as_deref(), Some("11cb48"));
        let warnings: Vec<_> = trace.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        let error =
            parse_flat(&text.replace("06:13:03,2951", "06:73:03,2951"), Path::new("p.csv")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "p.csv, line 3, column `timestamp`: `2017-10-09 06:73:03` is no time such as 2017-10-09 07:01:55"
        );
    }
}
