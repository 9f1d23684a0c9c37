//! `elastico train`

use crate::artefacts::Artefacts;
use crate::failure::{Ending, usage};
use crate::output::{self, Talk};
use anyhow::Context as _;
use elastico_core::{DeviceKind, Seed};
use elastico_datasets::Dataset;
use elastico_models::Backend;
use elastico_trainer::{
    CalibrateOptions, ExampleOptions, Examples, Identities, LearnerKind, TrainConfig, TrainOptions, Trained,
};
use std::path::{Path, PathBuf};

/// Which rows are learnt from, and how they are described.
#[derive(Debug, clap::Args)]
pub(crate) struct Rows {
    /// Device kinds to learn from, where the dataset has several: cuda, cpu, simulated, recorded, imported
    #[arg(long, value_delimiter = ',', value_name = "KIND", value_parser = kind)]
    kinds: Vec<DeviceKind>,

    /// Also use rows that missed a limit (drift, low overlap, throttled, inconclusive)
    #[arg(long)]
    include_flagged: bool,

    /// Learn from rows of several harnesses together, each with a feature of its own
    #[arg(long)]
    mix_harnesses: bool,

    /// Whether the family itself is a feature: by default only where there are no counters
    #[arg(long, value_enum, default_value_t)]
    identities: IdentityChoice,
}

/// A device kind by its name; a wrong one is answered with all of them.
fn kind(name: &str) -> Result<DeviceKind, String> {
    name.parse().map_err(|_| {
        let known = DeviceKind::ALL.map(DeviceKind::as_str).join(", ");
        format!("there is no such device kind, the known ones are {known}")
    })
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum IdentityChoice {
    /// Only where there are no counters
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Rows {
    pub(crate) fn options(&self) -> ExampleOptions {
        ExampleOptions {
            device_kinds: (!self.kinds.is_empty()).then(|| self.kinds.clone()),
            include_flagged: self.include_flagged,
            mix_harnesses: self.mix_harnesses,
            identities: match self.identities {
                IdentityChoice::Auto => Identities::Auto,
                IdentityChoice::Always => Identities::Always,
                IdentityChoice::Never => Identities::Never,
            },
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The dataset's folder
    dataset: PathBuf,

    /// The model file
    #[arg(long, value_name = "FILE", default_value = "model.onnx")]
    out: PathBuf,

    /// Do not train anew: calibrate this model to what the dataset measures and the model does not know, two to eight co-runs
    /// of each new workload or some 40 pairs on a new device
    #[arg(
        long,
        value_name = "MODEL",
        conflicts_with_all = ["config", "learner", "limit", "level", "mix_harnesses", "identities", "rules"]
    )]
    calibrate: Option<PathBuf>,

    /// The model's card; beside the model where it is not given
    #[arg(long, value_name = "FILE")]
    card: Option<PathBuf>,

    /// Settings of training and learners, a TOML file; flags go before it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Learner: mean, processor_sharing, saturation, gpu_lets, elastic_net, random_forest, extra_trees, boosting; auto =
    /// chosen inside the training part [default: extra_trees]
    #[arg(long)]
    learner: Option<LearnerKind>,

    /// A slowdown up to this counts as safe to share [default: 1.2]
    #[arg(long, value_name = "SLOWDOWN", allow_negative_numbers = true)]
    limit: Option<f64>,

    /// The share of slowdowns that should lie under the upper bound [default: 0.9]
    #[arg(long, value_name = "RATIO", allow_negative_numbers = true)]
    level: Option<f64>,

    /// Seed of folds and forests [default: 0]
    #[arg(long, allow_negative_numbers = true)]
    seed: Option<u64>,

    #[command(flatten)]
    rows: Rows,

    /// Print the rules of a small tree that says where sharing is safe
    #[arg(long)]
    rules: bool,

    /// Replace files that exist
    #[arg(long)]
    force: bool,

    /// Say what would be trained and written
    #[arg(long)]
    dry_run: bool,
}

impl Arguments {
    fn options(&self) -> anyhow::Result<TrainOptions> {
        let mut options = TrainOptions::default();
        if let Some(file) = &self.config {
            TrainConfig::read(file)?.apply_to_train(&mut options);
        }
        options.learner = self.learner.unwrap_or(options.learner);
        options.limit = self.limit.unwrap_or(options.limit);
        options.level = self.level.unwrap_or(options.level);
        options.seed = self.seed.map_or(options.seed, Seed);
        options.check()?;
        Ok(options)
    }
}

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    let card = arguments.card.clone().unwrap_or_else(|| arguments.out.with_extension("md"));
    if arguments.card.is_none() && card == arguments.out {
        return Err(usage(
            "the model and its card would be the same file",
            "give --out a name that ends in .onnx",
        ));
    }
    let artefacts = Artefacts::files(
        [("--out", arguments.out.as_path()), ("--card", &card)],
        arguments.force,
        std::iter::once(&arguments.dataset).chain(&arguments.config).chain(&arguments.calibrate),
    )?;
    if let Some(base) = &arguments.calibrate {
        return calibrate(arguments, base, &artefacts, &card, talk);
    }
    let options = arguments.options()?;
    let dataset = Dataset::read(&arguments.dataset)?;
    let examples = Examples::from_dataset(&dataset, &arguments.rows.options())?;
    say_what_is_out_of_range(&examples, talk);
    let what = format!(
        "{} on {} rows of {} pairs ({}), {} features",
        options.learner.as_str(),
        examples.rows(),
        examples.origin.pairs_total,
        super::evaluate::kinds(&examples),
        examples.schema.width(),
    );
    if arguments.dry_run {
        talk.say(format!("would train {what}"));
        talk.say(format!("would write `{}` and `{}`", arguments.out.display(), card.display()));
        return Ok(Ending::Done);
    }
    artefacts.prove_writable()?;
    talk.say(format!("training {what}"));
    let trained = elastico_trainer::train(&examples, &options)?;
    artefacts.write(&[&trained.onnx, trained.card.as_bytes()])?;
    talk.say(written(&trained.onnx, &arguments.out, &card));
    judged(&trained, talk);
    if arguments.rules {
        output::print(&elastico_trainer::rules(&examples, options.limit)?.to_string())?;
    }
    Ok(Ending::Done)
}

/// Says which rows no model can hold, and where to look for the mistake.
pub(crate) fn say_what_is_out_of_range(examples: &Examples, talk: Talk) {
    let rows = examples.out_of_range();
    if rows == 0 {
        return;
    }
    let (least, most) = elastico_datasets::SLOWDOWN_RANGE;
    talk.say(format!(
        "left out {rows} rows whose slowdown_ratio is outside {least} to {most}, which no model file can hold\n\
         hint: see whether the isolated and the co-located column are swapped, or their units differ"
    ));
}

/// How good it is where it had not seen the rows, and what was given up for the size of the file.
fn judged(trained: &Trained, talk: Talk) {
    let mape = |name: &str| trained.metadata.scores.get(name).and_then(|scores| scores.get("mape")).copied();
    for split in ["unseen_family", "random_pair", "unseen_device"] {
        if let (Some(found), Some(mean)) = (mape(split), mape(&format!("{split}.mean"))) {
            let verdict = if found < mean { "" } else { ": it has learnt nothing that holds there" };
            talk.say(format!(
                "MAPE on {split}: {:.1} %, the mean {:.1} %{verdict}",
                100.0 * found,
                100.0 * mean
            ));
        }
    }
    if let Some(reduced) = trained.metadata.facts.get("reduced") {
        talk.say(format!("the forest is smaller than asked for: {reduced}"));
    }
}

/// Corrects a finished model by a few measurements. A dry run does it too, all but the writing: it takes no time, and says
/// what it would bring.
fn calibrate(
    arguments: &Arguments,
    base: &Path,
    artefacts: &Artefacts,
    card: &Path,
    talk: Talk,
) -> anyhow::Result<Ending> {
    let cannot = || format!("cannot calibrate the model `{}`", base.display());
    // Loading looks at size and seal first, and knows the words for each kind of damage.
    let predictor = elastico_models::load(base, Backend::Native).with_context(cannot)?;
    let dataset = Dataset::read(&arguments.dataset)?;
    let schema = &predictor.metadata().features;
    let rows = ExampleOptions { mix_harnesses: true, ..arguments.rows.options() };
    let examples = Examples::for_schema(&dataset, &rows, schema)?;
    say_what_is_out_of_range(&examples, talk);
    if !arguments.dry_run {
        artefacts.prove_writable()?;
    }
    let options = CalibrateOptions {
        seed: arguments.seed.map_or(CalibrateOptions::default().seed, Seed),
        ..CalibrateOptions::default()
    };
    let bytes = std::fs::read(base).with_context(cannot)?;
    let model = elastico_trainer::calibrate_model(&bytes, &examples, &options).with_context(cannot)?;
    let of = if model.is_new_device { "the new device" } else { "new workloads on" };
    talk.say(format!(
        "{} `{}` ({}) to {of} {}: {} rows of {} pairs ({})",
        if arguments.dry_run { "would calibrate" } else { "calibrated" },
        base.display(),
        model.metadata.learner,
        examples.groups.devices.join(", "),
        model.rows_total,
        model.pairs_total,
        super::evaluate::kinds(&examples),
    ));
    if !model.is_new_device {
        talk.say(format!("new to the model: {}", model.workloads.join(", ")));
    }
    talk.say(match model.mape_after {
        Some(after) => format!(
            "MAPE on these rows {:.1} % before, {:.1} % after (each pair held out in turn)",
            100.0 * model.mape_before,
            100.0 * after
        ),
        None => format!(
            "MAPE on these rows {:.1} % before; with one pair nothing can be held out to say it after",
            100.0 * model.mape_before
        ),
    });
    if model.is_no_better() {
        talk.say("the calibration is no better than the model as it was; measure more pairs, or go on using that one");
    }
    talk.say(format!("upper bound {:.2} x the prediction: {}", model.upper_offset_log.exp(), model.bound));
    if arguments.dry_run {
        talk.say(format!("would write `{}` and `{}`", arguments.out.display(), card.display()));
        return Ok(Ending::Done);
    }
    artefacts.write(&[&model.onnx, model.card.as_bytes()])?;
    talk.say(written(&model.onnx, &arguments.out, card));
    Ok(Ending::Done)
}

fn written(onnx: &[u8], model: &Path, card: &Path) -> String {
    format!("wrote `{}` ({} kB) and `{}`", model.display(), onnx.len() / 1000, card.display())
}
