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
        let mut trace = Self::new(name, document.jobs)?;
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
        let negative = r#"{"schema": "elastico.trace/1", "jobs": [
            {"job": "b", "workload": "conv", "gpus": 2, "submit_seconds": 0, "duration_seconds": -1}]}"#;
        let error = Trace::parse_json(negative, Path::new("t.json")).unwrap_err();
        assert_eq!(error.to_string(), "duration_seconds of job `b` is -1, it must be above 0");
    }
}
