//! `elastico trace`

mod arguments;
mod tables;

pub(super) use arguments::{Reading, Selection};

use crate::failure::{Ending, usage};
use crate::output::{self, Format, Talk};
use clap::Subcommand;
use elastico_report::{Column, Table};
use elastico_simulator::{ClusterSpec, MAPPING_TEMPLATE, PRESETS, Trace, TraceFormat};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say what a trace asks for: how much, of what, and when
    Inspect {
        /// The trace
        file: PathBuf,
        #[command(flatten)]
        reading: Reading,
        #[command(flatten)]
        selection: Selection,
        /// Hold the demand against a cluster: n32g4, pools as v100:n9g4,p100:n9g4, a cluster file, or openb's node list
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
        /// Bins of time
        #[arg(long, default_value_t = 40, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
        bins: u16,
        /// Form of the answer
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Write a trace in our own format, whole or a part of it
    Convert {
        /// The trace
        file: PathBuf,
        #[command(flatten)]
        reading: Reading,
        #[command(flatten)]
        selection: Selection,
        /// Where to write it
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Replace what is there
        #[arg(long)]
        force: bool,
    },
    /// List the formats that are read, and what each needs
    Formats {
        /// Form of the answer
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Print a mapping of columns to start from
    Template {
        /// A preset in place of the commented template
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(PRESETS.map(|(name, _)| name)))]
        preset: Option<String>,
    },
}

pub(crate) fn run(command: &Command, talk: Talk) -> anyhow::Result<Ending> {
    match command {
        Command::Inspect { file, reading, selection, cluster, bins, format } => {
            let capacity = cluster.as_deref().map(capacity).transpose()?;
            let trace = selection.apply(reading.read(file)?, reading)?;
            let summary = trace.summary(usize::from(*bins), capacity.as_ref());
            if *format != Format::Json {
                arguments::warn(&trace, talk);
            }
            output::answer(*format, &summary, &tables::summary(&summary))?;
            if summary.span_seconds <= 0.0 && summary.jobs_total > 1 {
                talk.say("all jobs arrive at once: there is no offered load, and no demand over time");
            }
            for finding in &summary.findings {
                talk.say(format!("not right: {finding}"));
            }
            Ok(if summary.findings.is_empty() { Ending::Done } else { Ending::Negative })
        }
        Command::Convert { file, reading, selection, out, force } => {
            convert(file, reading, selection, out, *force, talk)
        }
        Command::Formats { format } => {
            output::answer_table(*format, &formats())?;
            Ok(Ending::Done)
        }
        Command::Template { preset } => {
            let found = preset.as_ref().and_then(|name| PRESETS.iter().find(|(known, _)| known == name));
            output::print(found.map_or(MAPPING_TEMPLATE, |(_, text)| text))?;
            Ok(Ending::Done)
        }
    }
}

fn convert(
    file: &Path,
    reading: &Reading,
    selection: &Selection,
    out: &Path,
    force: bool,
    talk: Talk,
) -> anyhow::Result<Ending> {
    let read: Vec<&Path> = [file].into_iter().chain(reading.inputs()).chain(selection.input()).collect();
    let is_read = |out: PathBuf| read.iter().any(|file| file.canonicalize().is_ok_and(|file| file == out));
    if out.canonicalize().is_ok_and(is_read) {
        return Err(usage(
            "the output is an input",
            "name another file with --out; --force never replaces an input",
        ));
    }
    if out.exists() && !force {
        return Err(usage(
            format!("{} exists", out.display()),
            "name another file with --out, or give --force",
        ));
    }
    let trace = selection.apply(reading.read(file)?, reading)?;
    arguments::warn(&trace, talk);
    let mut text = trace.to_json()?;
    text.push('\n');
    output::write_file(out, text.as_bytes())?;
    talk.say(format!("wrote {} jobs to {}", trace.jobs().len(), out.display()));
    Ok(Ending::Done)
}

/// GPUs of a cluster by type; one without types serves any job.
fn capacity(text: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let cluster = cluster(text)?;
    let mut capacity = BTreeMap::new();
    for pool in cluster.pools() {
        let device = pool.device.clone().unwrap_or_else(|| "any".to_owned());
        *capacity.entry(device).or_default() += u64::from(pool.gpus());
    }
    Ok(capacity)
}

/// A cluster as it is written on the command line. What ends like a file is one.
pub(super) fn cluster(text: &str) -> anyhow::Result<ClusterSpec> {
    let path = Path::new(text);
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let is_file = path.is_file() || ["toml", "json", "csv", "txt"].contains(&ending);
    Ok(if is_file { ClusterSpec::read(path)? } else { text.parse()? })
}

fn formats() -> Table {
    let mut table = Table::new(
        "elastico.trace_formats/1",
        "formats of traces",
        vec![Column::text("format"), Column::text("what it is"), Column::text("needs")],
    );
    for format in TraceFormat::ALL {
        table.push(vec![
            format.name().into(),
            format.describe().into(),
            format.needs().unwrap_or_default().into(),
        ]);
    }
    for (preset, _) in PRESETS {
        table.push(vec![
            "mapped".into(),
            format!("the preset {preset}").into(),
            format!("--mapping {preset}").into(),
        ]);
    }
    table
}

/// A trace that is read for a simulation, with its warnings said.
pub(super) fn read(
    file: &Path,
    reading: &Reading,
    selection: &Selection,
    talk: Talk,
) -> anyhow::Result<Trace> {
    let trace = selection.apply(reading.read(file)?, reading)?;
    arguments::warn(&trace, talk);
    Ok(trace)
}
