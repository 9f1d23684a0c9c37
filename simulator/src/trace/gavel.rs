//! The traces of Gavel and Shockwave: what to run for how many steps.

use super::sheet::{self, Jobs};
use super::{GavelThroughputs, ReadOptions, Trace, TraceJob};
use crate::Error;
use elastico_core::{JobId, WorkloadKind};
use std::path::Path;

/// Columns between tabs, in the three forms there are: older traces of Gavel, its current ones, and Shockwave's. The
/// names are those of Gavel's own parser; the files have no header.
pub(super) const COLUMNS: [&[&str]; 3] = [
    &[
        "job_type",
        "command",
        "num_steps_arg",
        "needs_data_dir",
        "total_steps",
        "arrival_time",
        "scale_factor",
    ],
    &[
        "job_type",
        "command",
        "working_directory",
        "num_steps_arg",
        "needs_data_dir",
        "total_steps",
        "scale_factor",
        "priority_weight",
        "SLO",
        "arrival_time",
    ],
    &[
        "job_type",
        "command",
        "working_directory",
        "num_steps_arg",
        "needs_data_dir",
        "total_steps",
        "scale_factor",
        "mode",
        "priority_weight",
        "SLO",
        "duration",
        "arrival_time",
    ],
];

/// One line between tabs.
struct Line<'a> {
    path: &'a Path,
    number: u64,
    columns: &'static [&'static str],
    fields: Vec<&'a str>,
}

impl Line<'_> {
    /// A field by its name; empty where this form has no such column.
    fn text(&self, column: &str) -> &str {
        let place = self.columns.iter().position(|name| *name == column);
        place.and_then(|place| self.fields.get(place)).copied().unwrap_or_default()
    }

    fn has(&self, column: &str) -> bool {
        self.columns.contains(&column)
    }

    fn wrong(&self, column: &str, why: String) -> Error {
        Error::Value { path: self.path.into(), line: self.number, column: column.to_owned(), why }
    }

    fn quantity(&self, column: &str) -> Result<f64, Error> {
        sheet::number(self.text(column)).map_err(|why| self.wrong(column, why))
    }
}

/// Reads the lines. Durations are steps over steps per second on the device of the options, or else Shockwave's own.
pub(super) fn parse(text: &str, path: &Path, options: &ReadOptions) -> Result<Trace, Error> {
    let throughputs = options.throughputs.as_deref().map(GavelThroughputs::read_json).transpose()?;
    if let Some(throughputs) = &throughputs {
        throughputs.check_device(&options.device)?;
    }
    let mut jobs = Jobs::default();
    let mut columns: Option<&'static [&'static str]> = None;
    let (mut unknown, mut impossible) = (0, 0);
    let mut index = 0;
    for (number, text) in (1..).zip(crate::document::unmarked(text).lines()) {
        if text.trim().is_empty() {
            continue;
        }
        let fields: Vec<&str> = text.split('\t').map(str::trim).collect();
        let expected = match columns {
            Some(columns) => columns,
            None => form(fields.len(), path, number)?,
        };
        columns = Some(expected);
        if fields.len() != expected.len() {
            let why = format!("the line has {} columns, those above have {}", fields.len(), expected.len());
            return Err(Error::Line { path: path.into(), line: number, why });
        }
        let line = Line { path, number, columns: expected, fields };
        let job_type = line.text("job_type");
        if job_type.is_empty() {
            return Err(line.wrong("job_type", "the workload has no name".to_owned()));
        }
        let scale = line.text("scale_factor");
        let gpus: u32 = scale
            .parse()
            .map_err(|_| line.wrong("scale_factor", format!("`{scale}` is no count of GPUs")))?;
        let steps = line.quantity("total_steps")?;
        let arrival = line.quantity("arrival_time")?;
        // Gavel numbers its jobs by their lines, from 0.
        let id = JobId::new(index.to_string()).map_err(|error| line.wrong("job_type", error.to_string()))?;
        index += 1;
        let (duration, device) = match &throughputs {
            Some(throughputs) => match throughputs.isolated(&options.device, job_type, gpus) {
                None => {
                    unknown += 1;
                    continue;
                }
                Some(0.0) => {
                    impossible += 1;
                    continue;
                }
                Some(rate) => (steps / rate, Some(options.device.clone())),
            },
            None if line.has("duration") => (line.quantity("duration")?, None),
            None => {
                return Err(Error::Needs {
                    path: path.into(),
                    what: "has steps but no durations".to_owned(),
                    remedy: "give Gavel's throughput file with --throughputs: simulation_throughputs.json lies beside its traces".to_owned(),
                });
            }
        };
        let mut job = TraceJob::new(id, job_type, gpus, arrival, duration);
        job.kind = Some(WorkloadKind::Training);
        job.device = device;
        if line.has("priority_weight") {
            job.weight = line.quantity("priority_weight")?;
        }
        jobs.push(job);
    }
    jobs.left_out(unknown, "jobs whose type and scale are not in the throughput file");
    jobs.left_out(
        impossible,
        &format!("jobs that do not run on {} (rate 0 in the throughput file)", options.device),
    );
    if throughputs.is_none() && !jobs.list.is_empty() {
        jobs.assumed(
            "took the column duration: seconds on the requested GPUs, of a device that the file does not name",
        );
    }
    jobs.into_trace(path)
}

fn form(columns: usize, path: &Path, line: u64) -> Result<&'static [&'static str], Error> {
    COLUMNS.into_iter().find(|form| form.len() == columns).ok_or_else(|| Error::Line {
        path: path.into(),
        line,
        why: format!("the line has {columns} columns between tabs, traces of Gavel have 7, 10 or 12"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rows: &[&str]) -> String {
        rows.iter().map(|row| row.replace('|', "\t") + "\n").collect()
    }

    const RATES: &str = r#"{"v100": {"('LM (batch size 5)', 1)": {"null": 10.0}, "('LM (batch size 5)', 2)": {"null": 0.0}}}"#;

    fn options(folder: &tempfile::TempDir) -> ReadOptions {
        let file = folder.path().join("rates.json");
        std::fs::write(&file, RATES).unwrap();
        ReadOptions { throughputs: Some(file), ..ReadOptions::default() }
    }

    #[test]
    fn the_three_forms_say_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(&folder);
        let forms = [
            lines(&["LM (batch size 5)|run|-n|1|600|0|1", "LM (batch size 5)|run|-n|1|50|30.5|1"]),
            lines(&[
                "LM (batch size 5)|run|d|-n|1|600|1|1|-1|0",
                "LM (batch size 5)|run|d|-n|1|50|1|1|-1|30.5",
            ]),
            lines(&[
                "LM (batch size 5)|run|d|-n|1|600|1|gns|1|-1|77|0",
                "LM (batch size 5)|run|d|-n|1|50|1|static|1|-1|77|30.5",
            ]),
        ];
        for form in forms {
            let trace = parse(&form, Path::new("a.trace"), &options).unwrap();
            let job = &trace.jobs()[1];
            assert_eq!((job.job.as_str(), job.duration_seconds, job.submit_seconds), ("1", 5.0, 30.5));
            assert_eq!(job.device.as_deref(), Some("v100"));
        }
    }

    #[test]
    fn what_the_table_lacks_is_counted_and_what_shockwave_says_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(&folder);
        let text = lines(&[
            "LM (batch size 5)|run|-n|1|600|0|1",
            "LM (batch size 5)|run|-n|1|600|0|2",
            "LM (batch size 5)|run|-n|1|600|0|4",
        ]);
        let trace = parse(&text, Path::new("a.trace"), &options).unwrap();
        let warnings: Vec<String> = trace.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "left out 1 jobs whose type and scale are not in the throughput file",
                "left out 1 jobs that do not run on v100 (rate 0 in the throughput file)"
            ]
        );
        let strict = ReadOptions { strict: true, ..options };
        assert!(matches!(Trace::parse(&text, Path::new("a.trace"), &strict), Err(Error::Strict { .. })));
        let text = lines(&["LM (batch size 5)|run|d|-n|1|600|4|gns|1|-1|1418|0"]);
        let trace = parse(&text, Path::new("a.trace"), &ReadOptions::default()).unwrap();
        assert_eq!((trace.jobs()[0].gpus, trace.jobs()[0].duration_seconds), (4, 1418.0));
    }

    #[test]
    fn errors_name_line_and_column() {
        let parse = |rows: &[&str]| {
            parse(&lines(rows), Path::new("a.trace"), &ReadOptions::default()).unwrap_err().to_string()
        };
        let texts = [
            parse(&["LM|run|-n|1|600|0|1"]),
            parse(&["LM|run|d|-n|1|600|4|gns|1|-1|1418|0", "LM|run|d"]),
            parse(&["LM|run|d|-n|1|600|four|gns|1|-1|1418|0"]),
            parse(&["LM|run|d|-n|1|600|4|gns|1|-1|1418|-3"]),
            parse(&["LM|run|d|-n|1|NaN|4|gns|1|-1|1418|0"]),
            parse(&["|run|d|-n|1|1|4|gns|1|-1|1418|0"]),
            parse(&["a|b"]),
            parse(&[""]),
        ];
        insta::assert_snapshot!(texts.join("\n"));
    }
}
