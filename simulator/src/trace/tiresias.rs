//! The job list of Tiresias, Muri, Chronus and ElasticFlow.

use super::{Trace, TraceJob, Warning};
use crate::Error;
use elastico_core::{JobId, suggest};
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
    const fn seconds(self) -> f64 {
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

impl Trace {
    /// Reads a job list with the columns `job_id,num_gpu,submit_time,model_name,duration`; others are ignored.
    ///
    /// Without a `unit` it is inferred, which leaves a warning: a column `resource_time_0` or an implausible median
    /// duration means milliseconds.
    ///
    /// # Errors
    /// A missing column, or a value that cannot be, with line and column.
    pub fn read_tiresias(path: &Path, unit: Option<TimeUnit>) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.into(), source })?;
        Self::parse_tiresias(&text, path, unit)
    }

    /// Like [`Self::read_tiresias`], from a text; `path` is only named in errors.
    ///
    /// # Errors
    /// As [`Self::read_tiresias`].
    pub fn parse_tiresias(text: &str, path: &Path, unit: Option<TimeUnit>) -> Result<Self, Error> {
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let line_error = |line: u64, why: String| Error::Line { path: path.into(), line, why };
        let headers = reader.headers().map_err(|error| line_error(1, why(&error)))?.clone();
        let position = |column: &'static str| {
            headers.iter().position(|header| header.trim_start_matches('\u{feff}') == column).ok_or_else(
                || Error::Column {
                    path: path.into(),
                    column,
                    found: suggest(column, headers.iter()).map(str::to_owned),
                },
            )
        };
        let columns = [
            position("job_id")?,
            position("num_gpu")?,
            position("submit_time")?,
            position("model_name")?,
            position("duration")?,
        ];
        let mut jobs = Vec::new();
        let mut without_work = 0;
        for record in reader.records() {
            let record = record
                .map_err(|error| line_error(error.position().map_or(0, csv::Position::line), why(&error)))?;
            let line = record.position().map_or(0, csv::Position::line);
            let field = |index: usize| record.get(columns[index]).unwrap_or_default();
            let wrong = |index: usize, why: String| Error::Value {
                path: path.into(),
                line,
                column: headers.get(columns[index]).unwrap_or_default().to_owned(),
                why,
            };
            let number = |index: usize| match field(index).parse::<f64>() {
                Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
                Ok(value) => Err(wrong(index, format!("{value} must be finite and 0 or more"))),
                Err(_) => Err(wrong(index, format!("`{}` is no number", field(index)))),
            };
            let gpus = field(1)
                .parse::<u32>()
                .map_err(|_| wrong(1, format!("`{}` is no count of GPUs", field(1))))?;
            let id = JobId::new(field(0)).map_err(|error| wrong(0, error.to_string()))?;
            let job = TraceJob::new(id, field(3), gpus, number(2)?, number(4)?);
            if job.workload.is_empty() {
                return Err(wrong(3, "the workload has no name".to_owned()));
            }
            if job.gpus == 0 || job.duration_seconds <= 0.0 {
                without_work += 1;
            } else {
                jobs.push(job);
            }
        }
        let mut warnings = Vec::new();
        let unit = unit.unwrap_or_else(|| {
            let (assumed, because) = infer(&headers, &jobs);
            warnings.push(Warning::TimeUnit { assumed, because });
            assumed
        });
        for job in &mut jobs {
            job.submit_seconds *= unit.seconds();
            job.duration_seconds *= unit.seconds();
        }
        if without_work > 0 {
            warnings.push(Warning::NoWork { jobs: without_work });
        }
        let name = path
            .file_name()
            .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
        let mut trace = Self::new(name, jobs)?;
        warnings.append(&mut trace.warnings);
        trace.warnings = warnings;
        Ok(trace)
    }
}

fn infer(headers: &csv::StringRecord, jobs: &[TraceJob]) -> (TimeUnit, String) {
    if headers.iter().any(|header| header == "resource_time_0") {
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

/// The message of a CSV error without its own position, which the caller states.
fn why(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("the line has {len} fields, the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { err, .. } => format!("field {} is no UTF-8 text", err.field() + 1),
        _ => error.to_string(),
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
