//! Any CSV log, by a mapping of its columns.

use super::sheet::{Jobs, Row, Sheet};
use super::{ReadOptions, Trace, TraceJob};
use crate::Error;
use elastico_core::{JobId, WorkloadKind, suggest};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const SCHEMA: &str = "elastico.trace_mapping/1";

/// A mapping file to start from, with a comment for each field; the tests read a trace by it.
pub const MAPPING_TEMPLATE: &str = include_str!("../../mappings/template.toml");

/// Mappings that are known by name.
pub const PRESETS: [(&str, &str); 4] = [
    ("acme", include_str!("../../mappings/acme.toml")),
    ("helios", include_str!("../../mappings/helios.toml")),
    ("lucid", include_str!("../../mappings/lucid.toml")),
    ("alibaba-spot", include_str!("../../mappings/alibaba-spot.toml")),
];

/// Columns by which a preset is recognised, the most particular first.
const MARKS: [(&str, &[&str]); 4] = [
    ("acme", &["job_id", "gpu_num", "type", "state", "submit_time", "duration"]),
    ("helios", &["job_id", "vc", "jobname", "gpu_num", "node_num", "submit_time", "duration"]),
    ("lucid", &["job_id", "vc", "jobname", "gpu_num", "submit_time", "duration"]),
    ("alibaba-spot", &["gpu_model", "gpu_request", "worker_num", "submit_time", "duration"]),
];

/// The preset for a header.
pub(super) fn preset_for(header: &[&str]) -> Option<&'static str> {
    let fits = |marks: &[&str]| marks.iter().all(|mark| header.contains(mark));
    MARKS.into_iter().find(|(_, marks)| fits(marks)).map(|(name, _)| name)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mapping {
    schema: String,
    columns: Columns,
    #[serde(default)]
    times: Times,
    #[serde(default)]
    constants: Constants,
    /// What the file's own words for kinds mean.
    #[serde(default)]
    kinds: BTreeMap<String, WorkloadKind>,
    /// Lines to keep: column to allowed texts.
    #[serde(default)]
    filter: BTreeMap<String, Vec<String>>,
    /// What a reader of the result has to know.
    #[serde(default)]
    notes: Vec<String>,
}

/// Names of CSV columns.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Columns {
    job: Option<String>,
    workload: Option<String>,
    kind: Option<String>,
    gpus: String,
    workers: Option<String>,
    submit: String,
    duration: Option<String>,
    start: Option<String>,
    end: Option<String>,
    tenant: Option<String>,
    device: Option<String>,
    memory_bytes: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Times {
    /// Of submit, start and end.
    #[serde(default)]
    instants: Instant,
    #[serde(default)]
    duration: DurationUnit,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Instant {
    /// `2017-10-09 07:01:55`
    Date,
    #[default]
    Seconds,
    Milliseconds,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DurationUnit {
    #[default]
    Seconds,
    Milliseconds,
    Minutes,
    Hours,
}

impl DurationUnit {
    const fn seconds(self) -> f64 {
        match self {
            Self::Milliseconds => 1e-3,
            Self::Seconds => 1.0,
            Self::Minutes => 60.0,
            Self::Hours => 3600.0,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Constants {
    workload: Option<String>,
    kind: Option<WorkloadKind>,
}

/// Reads a log by the mapping of the options.
pub(super) fn parse(text: &str, path: &Path, options: &ReadOptions) -> Result<Trace, Error> {
    let Some(name) = &options.mapping else {
        return Err(Error::Needs {
            path: path.into(),
            what: "has columns that nothing says the meaning of".to_owned(),
            remedy: format!("give --mapping with a TOML file or one of {}", preset_names()),
        });
    };
    let mapping = read_mapping(name)?;
    Reader::new(&mapping, text, path, name)?.read(path)
}

fn preset_names() -> String {
    PRESETS.map(|(name, _)| name).join(", ")
}

/// A preset by its name, or else a file.
fn read_mapping(name: &str) -> Result<Mapping, Error> {
    let wrong =
        |why: String, remedy: &str| Error::Mapping { name: name.to_owned(), why, remedy: remedy.to_owned() };
    let text = match PRESETS.into_iter().find(|(preset, _)| *preset == name) {
        Some((_, text)) => text.to_owned(),
        None if Path::new(name).exists() => crate::document::read(Path::new(name))?,
        None => {
            let near = suggest(name, PRESETS.map(|(preset, _)| preset))
                .map(|near| format!(", did you mean `{near}`?"));
            let why = format!("there is neither such a file nor such a preset{}", near.unwrap_or_default());
            return Err(wrong(why, &format!("presets are {}", preset_names())));
        }
    };
    let start = "start from `elastico trace template`";
    let mapping: Mapping =
        toml::from_str(&text).map_err(|error| wrong(error.to_string().trim_end().to_owned(), start))?;
    if mapping.schema != SCHEMA {
        return Err(wrong(format!("its schema is `{}`, not `{SCHEMA}`", mapping.schema), start));
    }
    let columns = &mapping.columns;
    if columns.duration.is_none() && (columns.start.is_none() || columns.end.is_none()) {
        return Err(wrong("it names neither `duration` nor both `start` and `end`".to_owned(), start));
    }
    if columns.workload.is_none() && mapping.constants.workload.is_none() {
        return Err(wrong("it names no `workload`, neither as a column nor as a constant".to_owned(), start));
    }
    Ok(mapping)
}

/// A mapping whose columns are found.
struct Reader<'a> {
    mapping: &'a Mapping,
    sheet: Sheet<'a>,
    places: Places,
}

struct Places {
    job: Option<usize>,
    workload: Option<usize>,
    kind: Option<usize>,
    gpus: usize,
    workers: Option<usize>,
    submit: usize,
    duration: Option<usize>,
    start: Option<usize>,
    end: Option<usize>,
    tenant: Option<usize>,
    device: Option<usize>,
    memory_bytes: Option<usize>,
    filter: Vec<(usize, Vec<String>)>,
}

impl<'a> Reader<'a> {
    fn new(mapping: &'a Mapping, text: &'a str, path: &'a Path, name: &str) -> Result<Self, Error> {
        let sheet = Sheet::open(text, path, "each column that the mapping names must be in the header")?;
        let columns = &mapping.columns;
        let optional =
            |column: &Option<String>| column.as_deref().map(|column| sheet.column(column)).transpose();
        let filter = mapping
            .filter
            .iter()
            .map(|(column, texts)| Ok((sheet.column(column)?, texts.clone())))
            .collect::<Result<Vec<_>, Error>>()?;
        if let Some((column, _)) = mapping.filter.iter().find(|(_, texts)| texts.is_empty()) {
            return Err(Error::Mapping {
                name: name.to_owned(),
                why: format!("the filter of `{column}` lets nothing through"),
                remedy: "list the texts to keep".to_owned(),
            });
        }
        let places = Places {
            job: optional(&columns.job)?,
            workload: optional(&columns.workload)?,
            kind: optional(&columns.kind)?,
            gpus: sheet.column(&columns.gpus)?,
            workers: optional(&columns.workers)?,
            submit: sheet.column(&columns.submit)?,
            duration: optional(&columns.duration)?,
            start: optional(&columns.start)?,
            end: optional(&columns.end)?,
            tenant: optional(&columns.tenant)?,
            device: optional(&columns.device)?,
            memory_bytes: optional(&columns.memory_bytes)?,
            filter,
        };
        Ok(Self { mapping, sheet, places })
    }

    fn read(self, path: &Path) -> Result<Trace, Error> {
        let Self { mapping, sheet, places } = self;
        let mut jobs = Jobs::default();
        let (mut filtered, mut unfinished) = (0, 0);
        sheet.rows(|row| {
            if places.filter.iter().any(|(column, texts)| !texts.iter().any(|text| text == row.text(*column)))
            {
                filtered += 1;
                return Ok(());
            }
            match job(mapping, &places, row)? {
                Some(job) => jobs.push(job),
                None => unfinished += 1,
            }
            Ok(())
        })?;
        jobs.left_out(filtered, "lines that the filter of the mapping does not let through");
        jobs.left_out(unfinished, "jobs without a start, an end or a duration");
        for note in &mapping.notes {
            jobs.assumed(note);
        }
        jobs.into_trace(path)
    }
}

/// The job of a line; none where its time is not known.
fn job(mapping: &Mapping, places: &Places, row: &Row<'_>) -> Result<Option<TraceJob>, Error> {
    let instant = |column: usize| match mapping.times.instants {
        Instant::Date => row.date(column),
        Instant::Seconds => row.number(column),
        Instant::Milliseconds => Ok(row.number(column)? / 1000.0),
    };
    let missing = |column: usize| matches!(row.text(column), "" | "None" | "NULL" | "nan" | "NaN");
    let seconds = if let Some(column) = places.duration {
        if missing(column) {
            return Ok(None);
        }
        row.number(column)? * mapping.times.duration.seconds()
    } else {
        let (Some(start), Some(end)) = (places.start, places.end) else { return Ok(None) };
        if missing(start) || missing(end) {
            return Ok(None);
        }
        let seconds = instant(end)? - instant(start)?;
        if seconds < 0.0 {
            return Err(row.wrong(end, "the job ends before it starts"));
        }
        seconds
    };
    let (gpus, share) = gpus(places, row)?;
    let id = match places.job {
        Some(column) => row.id(column)?,
        None => JobId::new(format!("line-{}", row.line()))
            .map_err(|error| row.wrong(places.gpus, error.to_string()))?,
    };
    let workload = match places.workload {
        Some(column) => row.named(column, "the workload")?,
        None => mapping.constants.workload.as_deref().unwrap_or_default(),
    };
    let mut job = TraceJob::new(id, workload, gpus, instant(places.submit)?, seconds);
    job.gpu_share_ratio = share;
    let text = |column: Option<usize>| column.map(|column| row.text(column)).filter(|text| !text.is_empty());
    job.kind = text(places.kind).and_then(|word| mapping.kinds.get(word)).copied().or(mapping.constants.kind);
    job.tenant = text(places.tenant).map(str::to_owned);
    job.devices = text(places.device).map(str::to_owned).into_iter().collect();
    job.memory_bytes = places.memory_bytes.map(|column| row.number(column)).transpose()?;
    Ok(Some(job))
}

/// GPUs of all workers, and the part of one GPU where it is less than one.
fn gpus(places: &Places, row: &Row<'_>) -> Result<(u32, Option<f64>), Error> {
    let each = row.number(places.gpus)?;
    let workers = places.workers.map_or(Ok(1), |column| row.count(column, "workers"))?;
    if each > 0.0 && each < 1.0 {
        return if workers == 1 {
            Ok((1, Some(each)))
        } else {
            Err(row.wrong(
                places.gpus,
                format!("{workers} workers with {each} of a GPU each are not known here"),
            ))
        };
    }
    let all = each * f64::from(workers);
    if each.fract() != 0.0 || all > f64::from(u32::MAX) {
        return Err(row.wrong(places.gpus, format!("`{}` is no count of GPUs", row.text(places.gpus))));
    }
    Ok((all as u32, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, mapping: Option<&str>) -> Result<Trace, Error> {
        let options = ReadOptions { mapping: mapping.map(str::to_owned), ..ReadOptions::default() };
        Trace::parse(text, Path::new("log.csv"), &options)
    }

    const HELIOS: &str = "job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n\
        1,u1,vcA,train,8,32,1,COMPLETED,2020-04-01 00:10:00,2020-04-01 00:10:05,2020-04-01 00:12:05,120,5\n\
        2,u1,vcB,debug,0,4,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:00:09,9,0\n\
        3,u2,vcB,eval,1,4,1,CANCELLED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 01:00:00,3600,0\n";
    const LUCID: &str = "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration\n\
        1,u1,vcA,train,8,32,COMPLETED,2020-09-01 00:10:00,120\n";
    const ACME: &str = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n\
        dlctk,u1,1.0,8,128,Pretrain,COMPLETED,2023-03-01 00:00:17+08:00,2023-03-01 00:00:18+08:00,2023-03-01 01:00:18+08:00,3600,1.0,28800.0\n\
        dlctl,u1,1.0,1,16,Evaluation,FAILED,2023-03-01 00:00:37+08:00,2023-03-01 00:00:38+08:00,2023-03-01 00:01:38+08:00,60,1.0,60.0\n";
    const SPOT: &str = "gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n\
        A10,8,1,4,100,600,HP\nH800,8,8,2,160,60,Spot\nA10,8,0.5,1,200,60,Spot\n";

    #[test]
    fn presets_are_recognised_and_named() {
        let trace = read(HELIOS, None).unwrap();
        let seen: Vec<_> =
            trace.jobs().iter().map(|job| (job.job.as_str(), job.gpus, job.submit_seconds)).collect();
        assert_eq!(seen, [("3", 1, 0.0), ("1", 8, 600.0)]);
        assert!(
            trace.warnings[0].to_string().ends_with("say so with --mapping helios"),
            "{}",
            trace.warnings[0]
        );
        let trace = read(LUCID, None).unwrap();
        assert_eq!(
            (trace.jobs()[0].duration_seconds, trace.jobs()[0].tenant.as_deref()),
            (120.0, Some("vcA"))
        );
        let trace = read(ACME, None).unwrap();
        assert!((trace.jobs()[1].submit_seconds - 20.0).abs() < 1e-9);
        assert_eq!(
            trace.jobs().iter().map(|job| job.kind).collect::<Vec<_>>(),
            [Some(WorkloadKind::Training), Some(WorkloadKind::Inference)]
        );
        let trace = read(SPOT, None).unwrap();
        assert_eq!(
            (trace.jobs()[1].gpus, trace.jobs()[1].devices.as_slice()),
            (16, ["H800".to_owned()].as_slice())
        );
        assert_eq!(trace.jobs()[2].gpu_share_ratio, Some(0.5));
    }

    #[test]
    fn the_template_reads_and_mistakes_in_a_mapping_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let log = "id,model,queue,gpus,submitted,seconds,state\n7,bert,prod,2,2024-01-01 00:00:00,60,done\n\
                   8,bert,prod,2,2024-01-01 00:00:00,60,failed\n";
        let trace = read(log, Some(&write("m.toml", MAPPING_TEMPLATE))).unwrap();
        assert_eq!((trace.jobs().len(), trace.jobs()[0].gpus), (1, 2));
        for (name, from, to, expected) in [
            ("a", "seconds\"", "second\"", "lacks the column `second`, did you mean `seconds`?"),
            ("b", "gpus =", "gpu =", "unknown field `gpu`"),
            ("c", "trace_mapping/1", "trace_mapping/2", "its schema is"),
            ("d", "duration = \"seconds\" ", "# ", "neither `duration` nor both"),
            ("e", "[\"done\"]", "[]", "lets nothing through"),
        ] {
            let text = MAPPING_TEMPLATE.replacen(from, to, 1);
            assert_ne!(text, MAPPING_TEMPLATE, "{from}");
            let error = read(log, Some(&write(name, &text))).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
        let error = read(log, Some("helio")).unwrap_err().to_string();
        assert!(error.contains("did you mean `helios`?"), "{error}");
    }
}
