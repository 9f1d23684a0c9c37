//! `elastico dataset`

use crate::artefacts::Artefacts;
use crate::failure::Ending;
use crate::output::{self, Format, Talk};
use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use elastico_core::DeviceKind;
use elastico_datasets::{Dataset, DatasetInspection, TableInspection};
use elastico_report::{Column, Table, Value};
use serde::Serialize;
use std::path::{Path, PathBuf};

mod campaign;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Count what a dataset holds
    Inspect {
        /// The dataset's folder
        dataset: PathBuf,
        /// Form of the answer
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Check each value against the schema; exit code 1 where a rule is broken
    Validate {
        /// The dataset's folder
        dataset: PathBuf,
        /// Form of the answer
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Put datasets together; merging one twice changes nothing
    Merge {
        /// Datasets' folders
        #[arg(required = true, num_args = 1..)]
        datasets: Vec<PathBuf>,
        /// The new dataset's folder
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
        /// Device kinds that may stand together: cuda, cpu, simulated, recorded, imported
        #[arg(long, value_delimiter = ',', value_name = "KIND")]
        mix: Vec<DeviceKind>,
        /// Replace a dataset that exists
        #[arg(long)]
        force: bool,
        /// Say what would be written
        #[arg(long)]
        dry_run: bool,
    },
    /// Read measurements made by others
    #[command(subcommand)]
    Import(Import),
    /// Write a table as CSV, or the isolated rows as workload profiles
    Export {
        /// The dataset's folder
        dataset: PathBuf,
        /// What to write
        #[arg(long, value_enum, default_value_t = Exported::Pairs)]
        table: Exported,
        /// The file; stdout where it is not given
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Replace a file that exists
        #[arg(long)]
        force: bool,
    },
}

/// Where an import goes.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// The new dataset's folder
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Replace a dataset that exists
    #[arg(long)]
    force: bool,
    /// Say what would be written
    #[arg(long)]
    dry_run: bool,
}

impl Target {
    /// Reads after it is clear that the answer may be written.
    fn import<E>(
        &self,
        inputs: &[&PathBuf],
        read: impl FnOnce() -> Result<Dataset, E>,
        talk: Talk,
    ) -> anyhow::Result<Ending>
    where
        anyhow::Error: From<E>,
    {
        let artefacts = Artefacts::dataset(&self.out, self.force, inputs.iter().copied())?;
        let dataset = read()?;
        for licence in dataset.manifest.licences().iter().filter(|licence| !licence.may_ship) {
            talk.say(format!(
                "{}: licence {}; keep these numbers, and models of them, to yourself",
                licence.source, licence.licence
            ));
        }
        write(&dataset, &artefacts, &self.out, self.dry_run, talk)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// A measured campaign, from its folder or from what profiler/gpu-campaign.sh brought back; adds a datasheet
    Campaign {
        /// The folder of a run, a folder with campaign.tar.gz, or the archive itself
        source: PathBuf,
        #[command(flatten)]
        target: Target,
    },
    /// Any CSV of pairs, by a mapping of its columns (--help prints a mapping to start from)
    #[command(after_long_help = format!("A mapping to start from:\n\n{}", elastico_datasets::import::MAPPING_TEMPLATE))]
    Pairs {
        /// The CSV file
        file: PathBuf,
        /// Which column is what (TOML); `--help` prints one to start from
        #[arg(long, value_name = "FILE")]
        mapping: PathBuf,
        #[command(flatten)]
        target: Target,
    },
    /// Gavel's simulation_throughputs.json: training pairs on K80, P100 and V100
    Gavel {
        /// The JSON file
        file: PathBuf,
        #[command(flatten)]
        target: Target,
    },
    /// MISO's step times on MIG slices of an A100, alone: shapes, no pairs
    Miso {
        /// The folder with mig_step_times.csv and solo_utilisation.csv
        folder: PathBuf,
        #[command(flatten)]
        target: Target,
    },
    /// Echo's merged_features.csv: kernels of a training beside NCCL, one side only
    Echo {
        /// The CSV file
        file: PathBuf,
        #[command(flatten)]
        target: Target,
    },
    /// llm_stressor_sensitivity.csv: a language model beside four stressors, one side only
    LlmSensitivity {
        /// The CSV file
        file: PathBuf,
        #[command(flatten)]
        target: Target,
    },
    /// Utilisation tables and model constants of gpu-lets: counters of models alone, no times and no pairs
    Gpulets {
        /// The folder with the *_UTIL.csv and *_INT_MODEL_CONSTANT.csv files
        folder: PathBuf,
        #[command(flatten)]
        target: Target,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Exported {
    /// One row per subject per trial
    Pairs,
    /// One row per workload, device, share and repeat
    Isolated,
    /// What `place` and `predict` read about each workload (JSON)
    Profiles,
}

pub(crate) fn run(command: &Command, talk: Talk) -> anyhow::Result<Ending> {
    match command {
        Command::Inspect { dataset, format } => inspect(dataset, *format),
        Command::Validate { dataset, format } => validate(dataset, *format, talk),
        Command::Merge { datasets, out, mix, force, dry_run } => {
            let artefacts = Artefacts::dataset(out, *force, datasets)?;
            let parts = datasets.iter().map(|folder| Dataset::read(folder)).collect::<Result<Vec<_>, _>>()?;
            let merged =
                if mix.is_empty() { Dataset::merge(parts)? } else { Dataset::merge_kinds(parts, mix)? };
            write(&merged, &artefacts, out, *dry_run, talk)
        }
        Command::Import(import) => bring_in(import, talk),
        Command::Export { dataset, table, out, force } => {
            let artefacts = Artefacts::files(out.as_deref().map(|out| ("--out", out)), *force, [dataset])?;
            export(dataset, *table, &artefacts, out.as_deref(), talk)
        }
    }
}

fn bring_in(import: &Import, talk: Talk) -> anyhow::Result<Ending> {
    use elastico_datasets::import as from;
    match import {
        Import::Campaign { source, target } => {
            let mut sheet = String::new();
            let read = || {
                let dataset = campaign::read(source)?;
                sheet = elastico_datasets::datasheet(&dataset)?;
                anyhow::Ok(dataset)
            };
            let ending = target.import(&[source], read, talk)?;
            if !target.dry_run {
                let path = target.out.join("DATASET.md");
                output::write_file(&path, sheet.as_bytes())?;
                talk.say(format!("wrote `{}`", path.display()));
            }
            Ok(ending)
        }
        Import::Pairs { file, mapping, target } => {
            target.import(&[file, mapping], || from::pairs_csv(file, mapping), talk)
        }
        Import::Gavel { file, target } => target.import(&[file], || from::gavel(file), talk),
        Import::Miso { folder, target } => target.import(&[folder], || from::miso(folder), talk),
        Import::Echo { file, target } => target.import(&[file], || from::echo(file), talk),
        Import::LlmSensitivity { file, target } => {
            target.import(&[file], || from::llm_sensitivity(file), talk)
        }
        Import::Gpulets { folder, target } => target.import(&[folder], || from::gpulets(folder), talk),
    }
}

fn inspect(folder: &Path, format: Format) -> anyhow::Result<Ending> {
    let inspection = elastico_datasets::inspect(&Dataset::read(folder)?);
    output::answer(format, &inspection, &[counts(&inspection)])?;
    Ok(Ending::Done)
}

fn counts(inspection: &DatasetInspection) -> Table {
    let kinds: Vec<&str> = inspection.device_kinds.iter().map(|kind| kind.as_str()).collect();
    let mut table = Table::new(
        inspection.schema,
        format!("{} data, content {}", kinds.join(" and "), &inspection.content_digest[..12]),
        vec![Column::text("table"), Column::text("what"), Column::text("value"), Column::number("rows", "")],
    );
    for (name, part) in [("isolated", &inspection.isolated), ("pairs", &inspection.pairs)] {
        table.push(vec![name.into(), "rows".into(), "all".into(), Value::Count(part.rows)]);
        for (what, values) in groups(part) {
            for (value, rows) in values {
                table.push(vec![name.into(), what.into(), value.as_str().into(), Value::Count(*rows)]);
            }
        }
        let (whole, some): (Vec<_>, Vec<_>) = part.nulls.iter().partition(|(_, share)| *share >= 1.0);
        for (column, share) in some {
            let nulls = (share * part.rows as f64).round() as u64;
            table.push(vec![name.into(), "null".into(), column.as_str().into(), Value::Count(nulls)]);
        }
        if !whole.is_empty() {
            let columns = format!("{} columns", whole.len());
            table.push(vec![name.into(), "null throughout".into(), columns.into(), Value::Count(part.rows)]);
        }
    }
    for (reason, rows) in &inspection.exclusions {
        table.push(vec!["–".into(), "left out".into(), reason.as_str().into(), Value::Count(*rows)]);
    }
    table
}

fn groups(part: &TableInspection) -> [(&'static str, &std::collections::BTreeMap<String, u64>); 5] {
    [
        ("outcome", &part.outcomes),
        ("device", &part.devices),
        ("harness", &part.harnesses),
        ("sharing", &part.sharing),
        ("flag", &part.flags),
    ]
}

fn validate(folder: &Path, format: Format, talk: Talk) -> anyhow::Result<Ending> {
    #[derive(Serialize)]
    struct Answer<'a> {
        schema: &'static str,
        dataset: &'a Path,
        findings: Vec<elastico_datasets::Finding>,
    }
    let findings = elastico_datasets::validate(folder)?;
    let mut table = Table::new(
        "elastico.findings/1",
        "",
        vec![
            Column::text("file"),
            Column::number("row", ""),
            Column::text("column"),
            Column::text("value"),
            Column::text("rule"),
            Column::number("more", "rows"),
        ],
    );
    for finding in &findings {
        table.push(vec![
            finding.file.display().to_string().into(),
            finding.row.map_or(Value::Missing, Value::Count),
            finding.column.as_str().into(),
            finding.value.as_str().into(),
            finding.rule.as_str().into(),
            Value::Count(finding.more),
        ]);
    }
    let ending = if findings.is_empty() {
        talk.say(format!("`{}` keeps every rule of the schema", folder.display()));
        Ending::Done
    } else {
        Ending::Negative
    };
    if format != Format::Table || ending == Ending::Negative {
        output::answer(
            format,
            &Answer { schema: "elastico.findings/1", dataset: folder, findings },
            &[table],
        )?;
    }
    Ok(ending)
}

/// Writes a dataset and says what is in it.
fn write(
    dataset: &Dataset,
    artefacts: &Artefacts,
    out: &Path,
    dry_run: bool,
    talk: Talk,
) -> anyhow::Result<Ending> {
    let counts = format!(
        "{} isolated and {} pair rows, content {}",
        dataset.isolated.rows(),
        dataset.pairs.rows(),
        dataset.manifest.content_digest.short()
    );
    if dry_run {
        talk.say(format!("would write `{}`: {counts}", out.display()));
        return Ok(Ending::Done);
    }
    artefacts.write_dataset(dataset)?;
    talk.say(format!("wrote `{}`: {counts}", out.display()));
    for (reason, rows) in dataset.manifest.exclusions_by_reason() {
        talk.say(format!("  left out {rows}: {reason}"));
    }
    Ok(Ending::Done)
}

fn export(
    folder: &Path,
    table: Exported,
    artefacts: &Artefacts,
    out: Option<&Path>,
    talk: Talk,
) -> anyhow::Result<Ending> {
    let dataset = Dataset::read(folder)?;
    let text = match table {
        Exported::Pairs => csv(&dataset.pairs)?,
        Exported::Isolated => csv(&dataset.isolated)?,
        Exported::Profiles => elastico_trainer::profiles(&dataset)?.to_json(),
    };
    match out {
        Some(path) => {
            artefacts.write(&[text.as_bytes()])?;
            talk.say(format!("wrote `{}`", path.display()));
        }
        None => output::print(&text)?,
    }
    Ok(Ending::Done)
}

fn csv(table: &elastico_datasets::Table) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    elastico_datasets::export_csv(table, &mut bytes)?;
    String::from_utf8(bytes).context("a CSV of UTF-8 texts is UTF-8")
}
