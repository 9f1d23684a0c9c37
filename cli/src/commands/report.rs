//! `elastico report`

use crate::artefacts::Artefacts;
use crate::failure::{Ending, check_limit, usage};
use crate::output::Talk;
use crate::page::{Material, page};
use anyhow::Context as _;
use elastico_datasets::Dataset;
use elastico_placement::{Cluster, Placement};
use elastico_trainer::Evaluation;
use elastico_workloads::Catalogue;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Datasets' folders; each gets figures of its own
    #[arg(required = true, num_args = 1..)]
    datasets: Vec<PathBuf>,

    /// Scores, from `evaluate --format json`
    #[arg(long, value_name = "FILE")]
    evaluation: Option<PathBuf>,

    /// A placement, from `place --out`
    #[arg(long, value_name = "FILE", requires = "cluster")]
    placement: Option<PathBuf>,

    /// The cluster of the placement
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,

    /// The page
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,

    /// Title of the page
    #[arg(long, default_value = "ElastiCo report")]
    title: String,

    /// A slowdown up to this counts as safe to share
    #[arg(long, default_value_t = 1.2, value_name = "SLOWDOWN")]
    limit: f64,

    /// Replace a file that exists
    #[arg(long)]
    force: bool,

    /// Say what would be written
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    let others = [&arguments.evaluation, &arguments.placement, &arguments.cluster];
    let inputs = arguments.datasets.iter().chain(others.into_iter().flatten());
    let artefacts = Artefacts::files([("--out", arguments.out.as_path())], arguments.force, inputs)?;
    check_limit(arguments.limit)?;
    let datasets =
        arguments.datasets.iter().map(|folder| Dataset::read(folder)).collect::<Result<Vec<_>, _>>()?;
    let evaluation: Option<Evaluation> =
        arguments.evaluation.as_deref().map(|file| read_json(file, "an evaluation")).transpose()?;
    if let (Some(evaluation), Some(file)) = (&evaluation, &arguments.evaluation) {
        check(evaluation, file)?;
    }
    let placement: Option<Placement> =
        arguments.placement.as_deref().map(|file| read_json(file, "a placement")).transpose()?;
    let cluster = arguments.cluster.as_deref().map(Cluster::read).transpose()?;
    let catalogue = Catalogue::bundled();
    let html = page(&Material {
        title: arguments.title.clone(),
        datasets: datasets.iter().collect(),
        evaluation: evaluation.as_ref(),
        predictions: &[],
        rules: None,
        placement: placement.as_ref().zip(cluster.as_ref()),
        catalogue: &catalogue,
        limit: arguments.limit,
    })?
    .render()?;
    if arguments.dry_run {
        talk.say(format!("would write `{}` ({} kB)", arguments.out.display(), html.len() / 1000));
        return Ok(Ending::Done);
    }
    artefacts.write(&[html.as_bytes()])?;
    talk.say(format!("wrote `{}` ({} kB)", arguments.out.display(), html.len() / 1000));
    Ok(Ending::Done)
}

/// Optional scores that are damaged read as absent; a row must have either scores or a reason.
fn check(evaluation: &Evaluation, file: &Path) -> anyhow::Result<()> {
    if evaluation.schema != elastico_trainer::EVALUATION_SCHEMA {
        return Err(usage(
            format!(
                "`{}` has schema `{}`, this version reads `{}`",
                file.display(),
                evaluation.schema,
                elastico_trainer::EVALUATION_SCHEMA
            ),
            "make it again with `elastico evaluate --format json`",
        ));
    }
    match evaluation.rows.iter().position(|row| row.scores.is_none() && row.reason.is_none()) {
        Some(row) => Err(usage(
            format!("`{}`, rows[{row}]: scores are missing or damaged", file.display()),
            "make it again with `elastico evaluate --format json`",
        )),
        None => Ok(()),
    }
}

fn read_json<T: serde::de::DeserializeOwned>(file: &Path, what: &str) -> anyhow::Result<T> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("`{}` is not {what}", file.display()))
}
