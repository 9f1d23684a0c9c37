//! Our own trace: `elastico.trace/1`.

use super::{Trace, TraceFormat, TraceJob};
use crate::Error;
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Serialize)]
struct Written<'a> {
    schema: Schema,
    name: &'a str,
    jobs: &'a [TraceJob],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "schema")]
    _schema: Schema,
    #[serde(default)]
    name: Option<String>,
    jobs: Vec<TraceJob>,
}

#[derive(Serialize, Deserialize)]
enum Schema {
    #[serde(rename = "elastico.trace/1")]
    One,
}

impl Trace {
    /// Reads a trace in ElastiCo's own format.
    ///
    /// # Errors
    /// The file, or the line and column of what is wrong in it.
    pub fn read_json(path: &Path) -> Result<Self, Error> {
        let text = crate::document::read(path)?;
        Self::parse_json(&text, path)
    }

    /// Like [`Self::read_json`], from a text; `path` is only named in errors.
    ///
    /// # Errors
    /// As [`Self::read_json`].
    pub fn parse_json(text: &str, path: &Path) -> Result<Self, Error> {
        let document: Document = crate::document::json(text, path, "trace")?;
        let name = document.name.unwrap_or_else(|| path.display().to_string());
        let mut trace = Self::new(name, document.jobs).map_err(|error| {
            let line = match &error {
                Error::Job { job, .. } => line_of(text, job, 0),
                Error::Duplicate { job, .. } => line_of(text, job, 1),
                _ => None,
            };
            error.in_file(path, line)
        })?;
        trace.format = Some(TraceFormat::Elastico);
        Ok(trace)
    }

    /// The trace in ElastiCo's own format, with the schema first, by which a reader knows it.
    ///
    /// # Errors
    /// None for a valid trace.
    pub fn to_json(&self) -> Result<String, Error> {
        let document = Written { schema: Schema::One, name: &self.name, jobs: &self.jobs };
        serde_json::to_string(&document).map_err(|source| Error::Json {
            path: self.name.clone().into(),
            what: "trace",
            source,
        })
    }
}

/// The line, from 1, on which a job of this name stands, after so many others of that name.
fn line_of(text: &str, job: &str, before: usize) -> Option<u64> {
    let name = serde_json::to_string(job).ok()?;
    let is_value = |place: &usize| {
        let key = text[..*place].trim_end().strip_suffix(':');
        key.is_some_and(|key| key.trim_end().ends_with("\"job\""))
    };
    let place = text.match_indices(&name).map(|(place, _)| place).filter(is_value).nth(before)?;
    Some(text[..place].matches('\n').count() as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_survives_its_own_format() {
        let text = r#"{"schema": "elastico.trace/1", "name": "two", "jobs": [
            {"job": "b", "workload": "conv", "gpus": 2, "submit_seconds": 5.5, "duration_seconds": 60},
            {"job": "a", "workload": "gemm", "gpus": 1, "submit_seconds": 0, "duration_seconds": 90, "sm_active_ratio": 0.5}]}"#;
        let trace = Trace::parse_json(text, Path::new("t.json")).unwrap();
        assert_eq!(trace.jobs()[0].job.as_str(), "a");
        let again = Trace::parse_json(&trace.to_json().unwrap(), Path::new("t.json")).unwrap();
        assert_eq!(again.jobs(), trace.jobs());
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        use std::error::Error as _;
        for (text, expected) in [
            (r#"{"schema": "elastico.trace/2", "jobs": []}"#, "unknown variant `elastico.trace/2`"),
            (r#"{"schema": "elastico.trace/1", "jobs": [{"gpu": 1}]}"#, "unknown field `gpu`"),
        ] {
            let error = Trace::parse_json(text, Path::new("t.json")).unwrap_err();
            let source = error.source().unwrap().to_string();
            assert!(source.contains(expected) && source.contains("line 1 column"), "{source}");
        }
    }

    #[test]
    fn what_a_job_says_is_refused_with_its_file_and_line() {
        const TWO: &str = r#"{"schema": "elastico.trace/1", "name": "two", "jobs": [
            {"job": "a", "workload": "b", "gpus": 1, "submit_seconds": 0, "duration_seconds": 1, "weight": 1},
            {"job": "b", "workload": "conv", "gpus": 2, "submit_seconds": 5, "duration_seconds": 2}]}"#;
        assert!(Trace::parse_json(TWO, Path::new("t.json")).is_ok());
        for (from, to, expected) in [
            ("\": 2}", "\": -1}", ", line 3: duration_seconds of job `b` is -1, it must be above 0"),
            ("\": 2,", "\": 0,", ", line 3: gpus of job `b` is 0, it must be 1 or more"),
            ("\": 1}", "\": 0}", ", line 2: weight of job `a` is 0, it must be above 0, and at most 1e9"),
            ("\"job\": \"a\"", "\"job\" : \"b\"", ", line 3: two jobs are called `b`"),
            (
                "\": 5",
                "\": 1e300",
                ", line 3: submit_seconds of job `b` is 1e300, it must be at most 1e12: is the unit of time right?",
            ),
            (
                "\": 2}",
                "\": 1e308}",
                ", line 3: duration_seconds of job `b` is 1e308, it must be at most 1e12: is the unit of time right?",
            ),
            // Each is possible, but not both.
            (
                "5, \"duration_seconds\": 2",
                "1e12, \"duration_seconds\": 1e-6",
                ", line 3: duration_seconds of job `b` is 0.000001, it must be at least 1e-13 of the last submit_seconds, or it is lost to rounding",
            ),
        ] {
            assert!(TWO.contains(from), "{from}");
            let error = Trace::parse_json(&TWO.replace(from, to), Path::new("t.json")).unwrap_err();
            assert!(
                error.to_string().starts_with("t.json") && error.to_string().ends_with(expected),
                "{error}"
            );
        }
        let none = r#"{"schema": "elastico.trace/1", "jobs": []}"#;
        let error = Trace::parse_json(none, Path::new("t.json")).unwrap_err();
        assert_eq!(error.to_string(), "t.json: there are no jobs");
        assert!(Trace::parse_json(&format!("\u{feff}{TWO}"), Path::new("t.json")).is_ok());
    }
}
