//! `elastico demo`: every room of the house once, in the order in which a value flows.

use super::{place, predict, profile};
use crate::failure::{Ending, environment, usage};
use crate::output::{self, Talk};
use crate::page::{Material, page};
use anyhow::Context as _;
use elastico_core::Seed;
use elastico_datasets::Dataset;
use elastico_models::Backend;
use elastico_placement::{Allocator, Cluster, Jobs, Options};
use elastico_profiler::{Campaign, RunOptions, Stopped};
use elastico_report::{Column, Table, Value};
use elastico_trainer::{
    EvaluateOptions, Evaluation, ExampleOptions, Examples, LearnerKind, LearnerOptions, Split, TrainOptions,
    Trained,
};
use elastico_workloads::Catalogue;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SIMULATED: &str = include_str!("../../demo/simulated.toml");
const CPU: &str = include_str!("../../demo/cpu.toml");
const CLUSTER: &str = include_str!("../../demo/cluster.toml");
const JOBS: &str = include_str!("../../demo/jobs.toml");

/// A slowdown up to this counts as safe to share, in the demo.
const LIMIT: f64 = 1.5;
/// Smaller than the defaults, so that two cores are done within a minute: rows, trees, and folds of families.
const ROWS: usize = 3000;
const TREES: usize = 80;
const FOLDS: usize = 7;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder for everything that the demo makes
    #[arg(long, value_name = "FOLDER", default_value = "out/demo")]
    out: PathBuf,

    /// Replace the folder of an earlier demo
    #[arg(long)]
    force: bool,

    /// Leave out the pairs that really run on CPU cores
    #[arg(long)]
    no_cpu: bool,

    /// Say what would be done
    #[arg(long)]
    dry_run: bool,
}

/// Marks a folder that the demo made, and that it may therefore replace.
const MARK: &str = ".elastico-demo";

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    let out = &arguments.out;
    if arguments.dry_run {
        talk.say(format!("would measure, train, place and report into `{}`", out.display()));
        return Ok(Ending::Done);
    }
    prepare(out, arguments.force)?;
    let started = Instant::now();
    let step = |text: &str| talk.say(format!("[{:>5.1} s] {text}", started.elapsed().as_secs_f64()));
    let quiet = Talk::new(true);

    let catalogue = Catalogue::bundled();
    for (name, text) in [
        ("campaign.toml", SIMULATED),
        ("campaign-cpu.toml", CPU),
        ("cluster.toml", CLUSTER),
        ("jobs.toml", JOBS),
    ] {
        output::write_file(&out.join(name), text.as_bytes())?;
    }

    step("measuring pairs on a simulated H100");
    let Some(dataset) = campaign(SIMULATED, &out.join("run"), &out.join("dataset"), &catalogue, quiet)?
    else {
        return Ok(Ending::Interrupted);
    };
    step(&format!("{} simulated trials of pairs", dataset.pairs.rows() / 2));
    let cpu = if arguments.no_cpu {
        None
    } else {
        step("measuring two pairs on CPU cores, for real");
        match campaign(CPU, &out.join("run-cpu"), &out.join("dataset-cpu"), &catalogue, quiet) {
            Ok(Some(cpu)) => Some(cpu),
            Ok(None) => return Ok(Ending::Interrupted),
            Err(error) => {
                talk.say(format!("the CPU pairs are left out: {error:#}"));
                None
            }
        }
    };

    step("judging learners on splits that do not leak");
    let examples = Examples::from_dataset(&dataset, &ExampleOptions::default())?;
    let (evaluation, trained, rules) = learn(&examples)?;
    output::write_file(&out.join("evaluation.json"), &serde_json::to_vec_pretty(&evaluation)?)?;
    output::write_file(&out.join("model.onnx"), &trained.onnx)?;
    output::write_file(&out.join("MODEL.md"), trained.card.as_bytes())?;
    step(&format!("trained {} on {} rows", trained.metadata.learner, examples.rows()));

    let profiles = elastico_trainer::profiles(&dataset)?;
    output::write_file(&out.join("profiles.json"), profiles.to_json().as_bytes())?;
    let predictor = elastico_models::load(&out.join("model.onnx"), Backend::Auto)?;
    let predictions = predict::dataset_table(&dataset, predictor.as_ref())?;
    output::write_file(&out.join("predictions.csv"), predictions.to_csv()?.as_bytes())?;

    let cluster = Cluster::from_toml(CLUSTER, Path::new("cluster.toml"))?;
    let jobs = Jobs::from_toml(JOBS, Path::new("jobs.toml"))?;
    let options = Options { limit: LIMIT, ..Options::default() };
    let allocator = Allocator::new(cluster.clone(), options);
    let placement = allocator.solve(&jobs, &profiles, Some(predictor.as_ref()))?;
    output::write_file(&out.join("placement.json"), &place::json(&placement)?)?;
    step(&format!(
        "placed {} jobs on {} GPUs, {} pairs, at most {:.2} % from the best",
        placement.assignments.len(),
        placement.gpus_used(),
        placement.pairs(),
        placement.gap * 100.0
    ));

    let html = page(&Material {
        title: "ElastiCo demo".to_owned(),
        datasets: std::iter::once(&dataset).chain(&cpu).collect(),
        evaluation: Some(&evaluation),
        predictions: &trained.predictions,
        rules: Some(rules),
        placement: Some((&placement, &cluster)),
        catalogue: &catalogue,
        limit: LIMIT,
    })?
    .render()?;
    output::write_file(&out.join("report.html"), html.as_bytes())?;
    step("done; GPU numbers are simulated, CPU numbers are measured");
    output::print(&whereabouts(out).to_text(80)?)?;
    next(out, talk);
    Ok(Ending::Done)
}

/// Makes an empty folder, or empties that of an earlier demo; never one that holds anything else.
fn prepare(out: &Path, force: bool) -> anyhow::Result<()> {
    let is_empty = match std::fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(error).with_context(|| format!("cannot look into `{}`", out.display())),
    };
    if !is_empty {
        if !out.join(MARK).exists() {
            return Err(usage(
                format!("`{}` holds files that no demo made", out.display()),
                "choose another folder with --out",
            ));
        }
        if !force {
            return Err(usage(
                format!("`{}` holds an earlier demo", out.display()),
                "replace it with --force, or choose another folder with --out",
            ));
        }
        std::fs::remove_dir_all(out).with_context(|| format!("cannot empty `{}`", out.display()))?;
    }
    std::fs::create_dir_all(out)
        .and_then(|()| std::fs::write(out.join(MARK), b""))
        .with_context(|| format!("cannot write into `{}`", out.display()))
}

/// Runs one campaign; `None` where the user interrupted it.
fn campaign(
    text: &str,
    folder: &Path,
    dataset: &Path,
    catalogue: &Catalogue,
    talk: Talk,
) -> anyhow::Result<Option<Dataset>> {
    let campaign = Campaign::parse(text, Path::new("campaign.toml"))?;
    let reports = profile::measure(&campaign, catalogue, folder, RunOptions::default(), talk)?;
    if reports.iter().any(|report| report.stopped == Stopped::Interrupted) {
        return Ok(None);
    }
    let measured = Dataset::read(&folder.join("dataset"))?;
    if measured.pairs.rows() == 0 {
        return Err(environment(
            "no pair could be measured",
            "`elastico doctor` says what this machine can do",
        ));
    }
    measured.write(dataset)?;
    Ok(Some(measured))
}

fn learn(examples: &Examples) -> anyhow::Result<(Evaluation, Trained, String)> {
    let options = EvaluateOptions {
        splits: vec![Split::RandomPair, Split::UnseenFamily],
        learners: vec![LearnerKind::Mean, LearnerKind::ProcessorSharing, LearnerKind::ElasticNet],
        limit: LIMIT,
        seed: Seed(1),
        most_folds: FOLDS,
        most_rows: ROWS,
        ..EvaluateOptions::default()
    };
    let mut evaluation = elastico_trainer::evaluate(examples, &options)?;
    let train_options = TrainOptions {
        limit: LIMIT,
        seed: Seed(1),
        splits: vec![Split::RandomPair, Split::UnseenFamily],
        most_folds: FOLDS,
        most_rows: ROWS,
        settings: LearnerOptions::default().with_trees(TREES),
        ..TrainOptions::default()
    };
    let trained = elastico_trainer::train(examples, &train_options)?;
    // The exported learner was judged while it was trained; the others stand beside it.
    let own = trained.evaluation.rows.iter().filter(|row| row.learner == train_options.learner).cloned();
    evaluation.rows.extend(own);
    evaluation.rows.sort_by_key(|row| (row.split, row.learner));
    let rules = elastico_trainer::rules(examples, LIMIT)?.to_string();
    Ok((evaluation, trained, rules))
}

fn whereabouts(out: &Path) -> Table {
    let mut table = Table::new("elastico.demo/1", "", vec![Column::text("what"), Column::text("where")]);
    for (what, name) in [
        ("the report, open it in a browser", "report.html"),
        ("the predictor", "model.onnx"),
        ("its card", "MODEL.md"),
        ("the placement", "placement.json"),
        ("the simulated dataset", "dataset/"),
        ("the dataset measured on CPU cores", "dataset-cpu/"),
    ] {
        let path = out.join(name);
        let value = if path.exists() { Value::from(path.display().to_string()) } else { Value::Missing };
        table.push(vec![what.into(), value]);
    }
    table
}

fn next(out: &Path, talk: Talk) {
    let out = out.display();
    talk.say(format!(
        "next:\n  elastico whatif partners tr_block.b8_s1024_h1024_bf16 --model {out}/model.onnx --profiles {out}/profiles.json\n  \
         elastico whatif capacity --add h100:4,8 --cluster {out}/cluster.toml --jobs {out}/jobs.toml --profiles {out}/profiles.json --model {out}/model.onnx\n  \
         elastico doctor"
    ));
}
