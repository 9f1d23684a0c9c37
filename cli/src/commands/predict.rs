//! `elastico predict`

use crate::failure::{Ending, usage};
use crate::output::{self, Format, Talk};
use anyhow::Context as _;
use elastico_core::SharingMode;
use elastico_datasets::{Dataset, TextColumn};
use elastico_models::{
    Backend, LoadOptions, ModelMetadata, Prediction, Predictor, Profiles, WorkloadProfile,
};
use elastico_report::{Column, Table, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Which model, by which back end.
#[derive(Debug, clap::Args)]
pub(crate) struct Model {
    /// The model file
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,

    #[command(flatten)]
    engine: Engine,
}

/// Who evaluates a model.
#[derive(Debug, clap::Args)]
pub(crate) struct Engine {
    /// Who evaluates the model; auto takes ONNX Runtime where a sound library is found
    #[arg(long, value_enum, default_value_t)]
    backend: BackendChoice,

    /// The ONNX Runtime library [default: what ELASTICO_ORT_LIBRARY or ORT_DYLIB_PATH names]
    #[arg(long, value_name = "FILE")]
    ort_library: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum BackendChoice {
    /// ONNX Runtime where a sound library is found, else native
    #[default]
    Auto,
    /// The built-in evaluator
    Native,
    /// ONNX Runtime, or an error
    Ort,
}

impl Model {
    pub(crate) fn load(&self) -> anyhow::Result<Box<dyn Predictor>> {
        self.engine.load(&self.model)
    }
}

impl Engine {
    pub(crate) fn load(&self, model: &Path) -> anyhow::Result<Box<dyn Predictor>> {
        let backend = match self.backend {
            BackendChoice::Auto => Backend::Auto,
            BackendChoice::Native => Backend::Native,
            BackendChoice::Ort => Backend::Ort,
        };
        let options = LoadOptions { backend, library: self.ort_library.clone() };
        elastico_models::load(model, options)
            .with_context(|| format!("cannot use the model `{}`", model.display()))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: Model,

    /// Workload profiles, from `dataset export --table profiles`
    #[arg(long, value_name = "FILE", conflicts_with = "dataset", required_unless_present = "dataset")]
    profiles: Option<PathBuf>,

    /// Predict each pair of a dataset instead
    #[arg(long, value_name = "FOLDER")]
    dataset: Option<PathBuf>,

    /// The subject, with --profiles
    #[arg(long, value_name = "WORKLOAD", requires = "profiles")]
    subject: Option<String>,

    /// The co-runner, with --profiles; each one of the profiles where it is not given
    #[arg(long, value_name = "WORKLOAD", requires = "profiles")]
    co_runner: Option<String>,

    /// The device, with --profiles
    #[arg(long, value_name = "CHIP", requires = "profiles")]
    device: Option<String>,

    /// The sharing mode, with --profiles: time_slice, mps(0.5,0.5), streams …
    #[arg(long, default_value = "time_slice", value_name = "MODE")]
    sharing: SharingMode,

    /// Also print each feature as the model reads it
    #[arg(long)]
    features: bool,

    /// Form of the answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Rows ready for a model, with who is who.
#[derive(Default)]
struct Batch {
    /// Subject, co-runner, sharing mode and device.
    names: Vec<[String; 4]>,
    /// The same modes, parsed.
    sharing: Vec<SharingMode>,
    rows: Vec<f32>,
}

/// Says on which devices the model's numbers are no predictions.
pub(crate) fn warn_of_strangers<'a>(
    predictor: &dyn Predictor,
    devices: impl IntoIterator<Item = &'a str>,
    talk: Talk,
) {
    let metadata = predictor.metadata();
    let strangers: BTreeSet<&str> =
        devices.into_iter().filter(|device| !metadata.knows_device(device)).collect();
    if strangers.is_empty() {
        return;
    }
    talk.say(format!(
        "the model was trained on {}, not on {}: nothing is in its domain there\n\
         hint: measure some 40 pairs there and adapt the model with `elastico train --calibrate`",
        metadata.devices.join(", "),
        strangers.into_iter().collect::<Vec<_>>().join(", ")
    ));
}

/// Says under which sharing modes the model's numbers are no predictions.
pub(crate) fn warn_of_strange_sharing<'a>(
    metadata: &ModelMetadata,
    modes: impl IntoIterator<Item = &'a SharingMode>,
    talk: Talk,
) {
    let strangers: BTreeSet<String> =
        modes.into_iter().filter(|mode| !metadata.knows_sharing(mode)).map(ToString::to_string).collect();
    if strangers.is_empty() {
        return;
    }
    talk.say(format!(
        "the model was trained on pairs under {}, not under {}: nothing is in its domain there\n\
         hint: measure pairs under that sharing mode and train the model anew",
        metadata.sharing_modes.join(", "),
        strangers.into_iter().collect::<Vec<_>>().join(", ")
    ));
}

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    let predictor = arguments.model.load()?;
    let batch = match (&arguments.profiles, &arguments.dataset) {
        (Some(profiles), _) => from_profiles(arguments, profiles, predictor.as_ref())?,
        (None, Some(dataset)) => from_dataset(&Dataset::read(dataset)?, predictor.as_ref())?,
        (None, None) => return Err(usage("nothing to predict", "give --profiles or --dataset")),
    };
    warn_of_strangers(predictor.as_ref(), batch.names.iter().map(|names| names[3].as_str()), talk);
    warn_of_strange_sharing(predictor.metadata(), &batch.sharing, talk);
    let predictions = predictor.predict(&batch.rows)?;
    let mut table = table(&batch, &predictions, predictor.as_ref(), arguments.features);
    if arguments.format == Format::Table {
        lift_constants(&mut table);
    }
    output::answer_table(arguments.format, &table)?;
    Ok(Ending::Done)
}

/// Moves text columns of one value into the headline, where a person reads them once.
fn lift_constants(table: &mut Table) {
    const NUMBERS: usize = 4;
    for column in (0..=NUMBERS).rev() {
        let Some(first) = table.rows.first().map(|row| row[column].clone()) else { return };
        if table.rows.len() > 1 && table.rows.iter().all(|row| row[column] == first) {
            if let Value::Text(text) = &first
                && column != NUMBERS
            {
                table.title.push_str(&format!("; {} {text}", table.columns[column].label));
            }
            table.columns.remove(column);
            table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
}

/// Predictions for every pair of a dataset with the features as the model reads them.
pub(crate) fn dataset_table(dataset: &Dataset, predictor: &dyn Predictor) -> anyhow::Result<Table> {
    let batch = from_dataset(dataset, predictor)?;
    let predictions = predictor.predict(&batch.rows)?;
    Ok(table(&batch, &predictions, predictor, true))
}

fn from_profiles(arguments: &Arguments, file: &Path, predictor: &dyn Predictor) -> anyhow::Result<Batch> {
    let profiles = Profiles::read(file)
        .with_context(|| format!("cannot use the workload profiles `{}`", file.display()))?;
    if profiles.is_empty() {
        return Err(usage(
            format!("`{}` holds no profile", file.display()),
            "write one with `elastico dataset export --table profiles`",
        ));
    }
    let Some(subject) = &arguments.subject else {
        return Err(usage("--profiles needs --subject", "name one of the workloads in the profiles"));
    };
    let device = match &arguments.device {
        Some(device) => device.clone(),
        None => only_device(&profiles, subject)?,
    };
    let subject = profiles.get(subject, &device)?;
    let co_runners: Vec<&WorkloadProfile> = match &arguments.co_runner {
        Some(co_runner) => vec![profiles.get(co_runner, &device)?],
        None => profiles.iter().filter(|profile| profile.device == device).collect(),
    };
    let schema = &predictor.metadata().features;
    let mut batch = Batch::default();
    for co_runner in co_runners {
        schema.encode(subject, co_runner, &arguments.sharing, &mut batch.rows);
        batch.sharing.push(arguments.sharing.clone());
        batch.names.push([
            subject.workload.to_string(),
            co_runner.workload.to_string(),
            arguments.sharing.to_string(),
            device.clone(),
        ]);
    }
    Ok(batch)
}

fn only_device(profiles: &Profiles, workload: &str) -> anyhow::Result<String> {
    let mut devices: Vec<&str> = profiles
        .iter()
        .filter(|profile| profile.workload.as_str() == workload)
        .map(|profile| profile.device.as_str())
        .collect();
    devices.dedup();
    match devices.as_slice() {
        [device] => Ok((*device).to_owned()),
        // The look-up knows the nearest name.
        [] => Ok(profiles.iter().next().map(|profile| profile.device.clone()).unwrap_or_default()),
        _ => Err(usage(
            format!("`{workload}` was profiled on {}", devices.join(", ")),
            "choose one with --device",
        )),
    }
}

/// Every pair of the dataset once per sharing mode and direction; workloads as the isolated rows describe them.
fn from_dataset(dataset: &Dataset, predictor: &dyn Predictor) -> anyhow::Result<Batch> {
    let profiles = elastico_trainer::profiles(dataset)?;
    let pairs = &dataset.pairs;
    let columns =
        ["subject_workload", "co_runner_workload", "device", "sharing"].map(|name| pairs.text(name));
    let [subjects, co_runners, devices, sharing] = columns;
    let (subjects, co_runners, devices, sharing) = (subjects?, co_runners?, devices?, sharing?);
    let mut seen = BTreeSet::new();
    for row in 0..pairs.rows() {
        let text = |column: &TextColumn| column.get(row).unwrap_or_default().to_owned();
        seen.insert((text(devices), text(subjects), text(co_runners), text(sharing)));
    }
    let schema = &predictor.metadata().features;
    let mut batch = Batch::default();
    for (device, subject, co_runner, sharing) in seen {
        let mode: SharingMode = sharing.parse()?;
        schema.encode(
            profiles.get(&subject, &device)?,
            profiles.get(&co_runner, &device)?,
            &mode,
            &mut batch.rows,
        );
        batch.sharing.push(mode);
        batch.names.push([subject, co_runner, sharing, device]);
    }
    Ok(batch)
}

fn table(batch: &Batch, predictions: &[Prediction], predictor: &dyn Predictor, features: bool) -> Table {
    let metadata = predictor.metadata();
    let kinds: Vec<&str> = metadata.device_kinds.iter().map(|kind| kind.as_str()).collect();
    let mut columns = vec![
        Column::text("subject"),
        Column::text("co_runner"),
        Column::text("sharing"),
        Column::text("device"),
        Column::text("numbers"),
        Column::number("slowdown", ""),
        Column::number("slowdown_upper", "").label("upper"),
        Column::text("in_domain"),
    ];
    if features {
        columns.extend(
            metadata.features.features().iter().map(|feature| Column::number(&feature.name, &feature.unit)),
        );
    }
    let title = format!(
        "predicted by {} trained on {} data, upper bound at {}, back end {}",
        metadata.learner,
        kinds.join(" and "),
        metadata.conformal_level,
        predictor.backend(),
    );
    let mut table = Table::new("elastico.prediction/1", title, columns);
    let width = metadata.features.width();
    let rows = batch.names.iter().zip(&batch.sharing).zip(predictions).zip(batch.rows.chunks(width));
    for (((names, sharing), prediction), row) in rows {
        let is_known = metadata.knows_device(&names[3]) && metadata.knows_sharing(sharing);
        let mut cells: Vec<Value> = names.iter().map(|name| name.as_str().into()).collect();
        cells.push(kinds.join(" and ").into());
        cells.extend([
            Value::number(prediction.slowdown.get(), 3),
            Value::number(prediction.upper.get(), 3),
            Value::Flag(prediction.in_domain && is_known),
        ]);
        if features {
            cells.extend(row.iter().map(|value| Value::number(f64::from(*value), 6)));
        }
        table.push(cells);
    }
    table
}
