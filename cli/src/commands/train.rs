//! `elastico train`

use crate::failure::{Ending, usage};
use crate::output::{self, Talk};
use elastico_core::{DeviceKind, Seed};
use elastico_datasets::Dataset;
use elastico_trainer::{
    ExampleOptions, Examples, Identities, LearnerKind, TrainConfig, TrainOptions, Trained,
};
use std::path::{Path, PathBuf};

/// Which rows are learnt from, and how they are described.
#[derive(Debug, clap::Args)]
pub(crate) struct Rows {
    /// Device kinds to learn from, where the dataset has several: cuda, cpu, simulated, recorded, imported
    #[arg(long, value_delimiter = ',', value_name = "KIND")]
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
    #[arg(long, value_name = "SLOWDOWN")]
    limit: Option<f64>,

    /// The share of slowdowns that should lie under the upper bound [default: 0.9]
    #[arg(long, value_name = "RATIO")]
    level: Option<f64>,

    /// Seed of folds and forests [default: 0]
    #[arg(long)]
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
        Ok(options)
    }
}

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    let options = arguments.options()?;
    let card = arguments.card.clone().unwrap_or_else(|| arguments.out.with_extension("md"));
    if card == arguments.out {
        return Err(usage(
            "the model and its card would be the same file",
            "give --out a name that ends in .onnx",
        ));
    }
    for path in [&arguments.out, &card] {
        output::refuse_existing(
            path,
            arguments.force,
            std::iter::once(&arguments.dataset).chain(&arguments.config),
        )?;
    }
    let dataset = Dataset::read(&arguments.dataset)?;
    let examples = Examples::from_dataset(&dataset, &arguments.rows.options())?;
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
    for path in [&arguments.out, &card] {
        output::prove_writable(path)?;
    }
    talk.say(format!("training {what}"));
    let trained = elastico_trainer::train(&examples, &options)?;
    write(&trained, &arguments.out, &card, talk)?;
    if arguments.rules {
        output::print(&elastico_trainer::rules(&examples, options.limit)?.to_string())?;
    }
    Ok(Ending::Done)
}

/// Writes the model and its card.
pub(crate) fn write(trained: &Trained, model: &Path, card: &Path, talk: Talk) -> anyhow::Result<()> {
    output::write_file(model, &trained.onnx)?;
    output::write_file(card, trained.card.as_bytes())?;
    talk.say(format!(
        "wrote `{}` ({} kB) and `{}`",
        model.display(),
        trained.onnx.len() / 1000,
        card.display()
    ));
    Ok(())
}
