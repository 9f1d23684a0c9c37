//! The job list of Tiresias, Muri, Chronus and ElasticFlow.

use super::sheet::{Jobs, Sheet};
use super::{Trace, TraceFormat, TraceJob, Warning};
use crate::Error;
use elastico_core::WorkloadKind;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// The unit of a file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// Seconds, as Tiresias writes.
    Seconds,
    /// Milliseconds, as Muri writes.
    Milliseconds,
}

impl TimeUnit {
    /// The unit in seconds.
    pub(super) const fn seconds(self) -> f64 {
        match self {
            Self::Seconds => 1.0,
            Self::Milliseconds => 1e-3,
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
        })
    }
}

impl FromStr for TimeUnit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "seconds" | "s" => Ok(Self::Seconds),
            "milliseconds" | "ms" => Ok(Self::Milliseconds),
            _ => Err(format!("`{text}` is no time unit (seconds, milliseconds)")),
        }
    }
}

/// Half of all jobs would run longer than this if the unit were seconds: eleven days. The longest median of the
/// public traces is under two hours.
const IMPLAUSIBLE_MEDIAN: f64 = 1e6;

const EXPECTS: &str = "a job list of the Tiresias family has the columns job_id,num_gpu,submit_time,iterations,model_name,duration,interval";

impl Trace {
    /// Reads a job list with the columns `job_id,num_gpu,submit_time,model_name,duration`; others are ignored, except
    /// for `batch_size` beside `ddl` (ElasticFlow), which becomes part of the workload's name.
    ///
    /// Without a `unit` it is inferred, which leaves a warning: a column `resource_time_0` or an implausible median
    /// duration means milliseconds.
    ///
    /// # Errors
    /// A missing column, or a value that cannot be, with line and column.
    pub fn read_tiresias(path: &Path, unit: Option<TimeUnit>) -> Result<Self, Error> {
        Self::parse_tiresias(&crate::document::read(path)?, path, unit)
    }

    /// Like [`Self::read_tiresias`], from a text; `path` is only named in errors.
    ///
    /// # Errors
    /// As [`Self::read_tiresias`].
    pub fn parse_tiresias(text: &str, path: &Path, unit: Option<TimeUnit>) -> Result<Self, Error> {
        let sheet = Sheet::open(text, path, EXPECTS)?;
        let [job, gpus, submit, model, duration] = [
            sheet.column("job_id")?,
            sheet.column("num_gpu")?,
            sheet.column("submit_time")?,
            sheet.column("model_name")?,
            sheet.column("duration")?,
        ];
        let batch = sheet.optional("ddl").and(sheet.optional("batch_size"));
        let from_muri = sheet.optional("resource_time_0").is_some();
        let mut jobs = Jobs::default();
        sheet.rows(|row| {
            let mut workload = row.named(model, "the workload")?.to_owned();
            if let Some(batch) = batch {
                workload = format!("{workload} (batch size {})", row.count(batch, "samples")?);
            }
            let (submit, duration) = (row.number(submit)?, row.number(duration)?);
            let mut job = TraceJob::new(row.id(job)?, workload, row.count(gpus, "GPUs")?, submit, duration);
            job.kind = Some(WorkloadKind::Training);
            jobs.push(job);
            Ok(())
        })?;
        let unit = unit.unwrap_or_else(|| {
            let (assumed, because) = infer(from_muri, &jobs.list);
            jobs.warnings.push(Warning::TimeUnit { assumed, because });
            assumed
        });
        for job in &mut jobs.list {
            job.submit_seconds *= unit.seconds();
            job.duration_seconds *= unit.seconds();
        }
        let mut trace = jobs.into_trace(path)?;
        trace.format = Some(TraceFormat::Tiresias);
        Ok(trace)
    }
}

fn infer(from_muri: bool, jobs: &[TraceJob]) -> (TimeUnit, String) {
    if from_muri {
        return (TimeUnit::Milliseconds, "the columns resource_time_* are those of Muri".to_owned());
    }
    let durations: Vec<f64> = jobs.iter().map(|job| job.duration_seconds).collect();
    let median = elastico_core::median(&durations);
    if median > IMPLAUSIBLE_MEDIAN {
        (TimeUnit::Milliseconds, format!("half of the jobs run longer than {median}"))
    } else {
        (TimeUnit::Seconds, "the columns are those of Tiresias".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval";

    fn parse(body: &str, unit: Option<TimeUnit>) -> Result<Trace, Error> {
        Trace::parse_tiresias(&format!("{HEADER}\n{body}"), Path::new("jobs.csv"), unit)
    }

    #[test]
    fn the_unit_is_taken_or_inferred_with_a_warning() {
        let body = "0,1,0,606,vgg19,164,30\n1,8,30,133,vgg11,147,23\n";
        let trace = parse(body, Some(TimeUnit::Seconds)).unwrap();
        assert_eq!((trace.jobs().len(), trace.jobs()[1].gpus, trace.warnings.len()), (2, 8, 0));
        let trace = parse(body, Some(TimeUnit::Milliseconds)).unwrap();
        assert!((trace.jobs()[1].submit_seconds - 0.03).abs() < 1e-12);
        let trace = parse(body, None).unwrap();
        assert!(trace.warnings[0].to_string().contains("--time-unit seconds"));
        let trace = parse("0,1,0,606,vgg19,2868294000,30\n", None).unwrap();
        assert!((trace.jobs()[0].duration_seconds - 2_868_294.0).abs() < 1e-6);
    }

    #[test]
    fn errors_name_line_and_column() {
        let texts: Vec<String> = [
            "0,1,0,606,vgg19,164,30\n1,x,30,133,vgg11,147,23\n",
            "0,1,-5,606,vgg19,164,30\n",
            "0,1,0,606,vgg19,NaN,30\n",
            "0,1,0,606,vgg19,inf,30\n",
            "0,1,0\n",
            "0,1,0,606,,164,30\n",
            ",1,0,606,vgg19,164,30\n",
            "0,1,0,606,vgg19,164,30\n0,1,0,606,vgg19,164,30\n",
            "0,0,0,606,vgg19,164,30\n",
        ]
        .into_iter()
        .map(|body| parse(body, Some(TimeUnit::Seconds)).unwrap_err().to_string())
        .collect();
        insta::assert_snapshot!(texts.join("\n"));
        let error = Trace::parse_tiresias("job_id,num_gpus\n", Path::new("jobs.csv"), None).unwrap_err();
        assert_eq!(error.to_string(), "jobs.csv lacks the column `num_gpu`, did you mean `num_gpus`?");
    }
}
