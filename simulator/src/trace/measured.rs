//! Tables that others measured, as our own: which one a file is, is seen from its content.

use super::{GavelThroughputs, Trace};
use crate::{Error, SlowdownTable, SpeedTable};
use std::path::Path;

impl SpeedTable {
    /// Reads speeds: our own JSON, Gavel's throughput JSON, or a folder of ElasticFlow, whose speeds hold for `device`.
    ///
    /// # Errors
    /// As the reader of the format.
    pub fn read(path: &Path, device: &str) -> Result<Self, Error> {
        if path.is_dir() {
            return Self::read_elasticflow(path, device);
        }
        let text = crate::document::read(path)?;
        if is_gavel(&text) {
            return GavelThroughputs::parse_json(&text, path)?.speeds();
        }
        Self::parse_json(&text, path)
    }
}

impl SlowdownTable {
    /// Reads slowdowns: our own JSON, or Gavel's throughput JSON.
    ///
    /// # Errors
    /// As the reader of the format.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = crate::document::read(path)?;
        if is_gavel(&text) {
            return Ok(GavelThroughputs::parse_json(&text, path)?.slowdowns());
        }
        Self::parse_json(&text, path)
    }
}

/// Ours name their schema; Gavel's has a rate `null` in its first entry.
fn is_gavel(text: &str) -> bool {
    let head = &text[..text.floor_char_boundary(4096)];
    !head.contains("\"schema\"") && head.contains("\"null\"")
}

impl Trace {
    /// The same jobs, free to run on any number of GPUs between the fewest and the most that a table lists for their
    /// workload. A job that the table does not know, or that asks for more or fewer, stays as it is.
    #[must_use]
    pub fn elastic(&self, speeds: &SpeedTable) -> Self {
        let mut elastic = self.clone();
        for job in &mut elastic.jobs {
            if let Some(range) = speeds.listed_gpus(&job.workload)
                && range.contains(&job.gpus)
            {
                job.gpus_min = Some(*range.start());
                job.gpus_max = Some(*range.end());
            }
        }
        elastic
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Oracle, TraceJob};
    use elastico_core::JobId;

    const GAVEL: &str = r#"{"v100": {"('A', 1)": {"null": 10.0, "('B', 1)": [6.0, 2.0], "('C', 1)": [0.0, 0.0]},
        "('A', 2)": {"null": 18.0}, "('A', 4)": {"null": 0.0}, "('B', 1)": {"null": 4.0}, "('C', 1)": {"null": 4.0}}}"#;

    #[test]
    fn gavels_file_is_seen_and_read_as_both_tables() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rates.json");
        std::fs::write(&path, GAVEL).unwrap();
        let speeds = SpeedTable::read(&path, "any").unwrap();
        assert_eq!(speeds.speed("A", Some("v100"), 2), Some(18.0));
        assert_eq!(speeds.speed("A", Some("v100"), 4), None);
        let slowdowns = SlowdownTable::read(&path).unwrap();
        let slowdown = slowdowns.pair("A", "B", Some("v100")).unwrap().slowdown.get();
        assert!((slowdown - 10.0 / 6.0).abs() < 1e-12);
        assert_eq!(slowdowns.pair("A", "C", Some("v100")), None);
        std::fs::write(&path, r#"{"schema": "elastico.speeds/1", "name": "n", "speeds": []}"#).unwrap();
        assert!(SpeedTable::read(&path, "any").is_ok());
        assert!(SlowdownTable::read(&path).is_err());
    }

    #[test]
    fn jobs_that_are_listed_become_elastic() {
        let mut speeds = SpeedTable::new("t");
        for gpus in [1, 2, 8] {
            speeds.set("w", Some("a100"), gpus, f64::from(gpus)).unwrap();
        }
        let job = |name: &str, workload: &str, gpus| {
            TraceJob::new(JobId::new(name).unwrap(), workload, gpus, 0.0, 9.0)
        };
        let trace = Trace::new("t", vec![job("a", "w", 2), job("b", "x", 2), job("c", "w", 16)]).unwrap();
        let ranges: Vec<_> = trace.elastic(&speeds).jobs().iter().map(TraceJob::gpu_range).collect();
        assert_eq!(ranges, [1..=8, 2..=2, 16..=16]);
    }
}
