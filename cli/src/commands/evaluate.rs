//! `elastico evaluate`

use crate::evaluation_page::{Material, evaluation_page};
use crate::failure::Ending;
use crate::output::{self, Format, Talk};
use elastico_core::Seed;
use elastico_datasets::Dataset;
use elastico_report::{Column, Table, Value};
use elastico_trainer::{EvaluateOptions, Evaluation, Examples, LearnerKind, Split, TrainConfig};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The dataset's folder
    dataset: PathBuf,

    /// Splits: random_pair, unseen_family, unseen_subject, unseen_co_runner, unseen_device
    #[arg(long, value_delimiter = ',', value_name = "SPLIT")]
    splits: Vec<Split>,

    /// Learners: mean, processor_sharing, saturation, gpu_lets, bias_filter, matrix_factorisation, elastic_net,
    /// random_forest, extra_trees, boosting, rule_tree; auto = chosen inside the training part
    #[arg(long, value_delimiter = ',', value_name = "LEARNER")]
    learners: Vec<LearnerKind>,

    /// Settings of the learners, a TOML file; flags go before it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// A slowdown up to this counts as safe to share [default: 1.2]
    #[arg(long, value_name = "SLOWDOWN")]
    limit: Option<f64>,

    /// Seed of folds, forests and bootstrap [default: 0]
    #[arg(long)]
    seed: Option<u64>,

    #[command(flatten)]
    rows: super::train::Rows,

    /// Also write a page: scores, predicted against observed, residuals by family, reliability of the bound, noise
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    /// Replace a page that exists
    #[arg(long, requires = "page")]
    force: bool,

    /// Form of the answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    let mut options = EvaluateOptions::default();
    if let Some(file) = &arguments.config {
        TrainConfig::read(file)?.apply_to_evaluate(&mut options);
    }
    options.limit = arguments.limit.unwrap_or(options.limit);
    options.seed = arguments.seed.map_or(options.seed, Seed);
    if let Some(page) = &arguments.page {
        output::refuse_existing(page, arguments.force, [&arguments.dataset])?;
    }
    if !arguments.splits.is_empty() {
        options.splits.clone_from(&arguments.splits);
    }
    if !arguments.learners.is_empty() {
        options.learners.clone_from(&arguments.learners);
    }
    let dataset = Dataset::read(&arguments.dataset)?;
    let examples = Examples::from_dataset(&dataset, &arguments.rows.options())?;
    talk.say(format!(
        "judging {} learners on {} splits of {} rows ({})",
        options.learners.len(),
        options.splits.len(),
        examples.rows(),
        kinds(&examples),
    ));
    let (evaluation, details) = match &arguments.page {
        Some(page) => {
            output::prove_writable(page)?;
            let (evaluation, details) = elastico_trainer::evaluate_in_detail(&examples, &options)?;
            (evaluation, Some((page, details)))
        }
        None => (elastico_trainer::evaluate(&examples, &options)?, None),
    };
    for gap in gaps(&evaluation) {
        talk.say(gap);
    }
    if let Some((page, details)) = details {
        let material =
            Material { dataset: &dataset, examples: &examples, evaluation: &evaluation, details: &details };
        let html = evaluation_page(&material)?.render()?;
        output::write_file(page, html.as_bytes())?;
        talk.say(format!("wrote `{}` ({} kB)", page.display(), html.len() / 1000));
    }
    let tables = match arguments.format {
        Format::Table => tables(&evaluation),
        Format::Csv | Format::Json => vec![table(&evaluation)],
    };
    output::answer(arguments.format, &evaluation, &tables)?;
    Ok(Ending::Done)
}

/// Where the rows come from, in words.
pub(crate) fn kinds(examples: &Examples) -> String {
    examples.origin.device_kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The judgement as one table, the mean predictor beside every learner.
pub(crate) fn table(evaluation: &Evaluation) -> Table {
    let kinds: Vec<&str> = evaluation.device_kinds.iter().map(|kind| kind.as_str()).collect();
    let mut columns = vec![
        Column::text("split"),
        Column::text("learner"),
        Column::number("n", ""),
        Column::number("mape", "").label("MAPE"),
        Column::number("r2", "").label("R2"),
        Column::number("spearman", "").label("rho"),
        Column::number("safe_precision", "").label("prec"),
        Column::number("safe_recall", "").label("rec"),
    ];
    columns.extend(
        ["rmse", "p95_abs_error", "mape_lower", "mape_upper", "safe_base_rate"]
            .map(|name| Column::number(name, "")),
    );
    let title = format!("scores on {} data, safe = slowdown <= {}", kinds.join(" and "), evaluation.limit);
    let mut table = Table::new(evaluation.schema.clone(), title, columns);
    for row in &evaluation.rows {
        let mut cells = vec![row.split.as_str().into(), row.learner.as_str().into(), Value::Count(row.n)];
        if let Some(scores) = &row.scores {
            let (lower, upper) = scores.mape_interval.unwrap_or((f64::NAN, f64::NAN));
            cells.push(Value::number(scores.mape, 4));
            cells.extend(
                [scores.r2, scores.spearman, scores.safe_precision, scores.safe_recall]
                    .map(|value| optional(value, 2)),
            );
            cells.extend(
                [scores.rmse, scores.p95_abs_error, lower, upper, scores.safe_base_rate]
                    .map(|value| Value::number(value, 3)),
            );
        } else if let Some(decision) = &row.decision {
            cells.extend(std::iter::repeat_n(Value::Missing, 3));
            cells.extend([decision.safe_precision, decision.safe_recall].map(|value| optional(value, 2)));
            cells.extend(std::iter::repeat_n(Value::Missing, 4));
            cells.push(Value::number(decision.safe_base_rate, 3));
        } else {
            continue;
        }
        table.push(cells);
    }
    table
}

/// A table per split for people, 80 columns wide: errors in percent, with their intervals.
fn tables(evaluation: &Evaluation) -> Vec<Table> {
    let kinds: Vec<&str> = evaluation.device_kinds.iter().map(|kind| kind.as_str()).collect();
    let mut splits: Vec<Split> = Vec::new();
    for row in &evaluation.rows {
        if !splits.contains(&row.split) && (row.scores.is_some() || row.decision.is_some()) {
            splits.push(row.split);
        }
    }
    let mut tables = Vec::new();
    for split in splits {
        let rows = || evaluation.rows.iter().filter(|row| row.split == split);
        let base = rows().find_map(|row| Some(row.scores.as_ref()?.safe_base_rate));
        let title = format!(
            "{split} on {} data, safe = slowdown <= {}{}",
            kinds.join(" and "),
            evaluation.limit,
            base.map_or(String::new(), |base| format!(", {:.0} % truly are", 100.0 * base))
        );
        let mut table = Table::new(
            evaluation.schema.clone(),
            title,
            vec![
                Column::text("learner"),
                Column::number("n", ""),
                Column::number("mape", "").label("MAPE %"),
                Column::text("interval").label("95 %"),
                Column::number("r2", "").label("R2"),
                Column::number("spearman", "").label("rho"),
                Column::number("safe_precision", "").label("prec"),
                Column::number("safe_recall", "").label("rec"),
            ],
        );
        for row in rows() {
            let mut cells = vec![row.learner.as_str().into(), Value::Count(row.n)];
            if let Some(scores) = &row.scores {
                let interval = scores.mape_interval.map_or(Value::Missing, |(lower, upper)| {
                    format!("{:.1}–{:.1}", 100.0 * lower, 100.0 * upper).into()
                });
                cells.extend([Value::number(100.0 * scores.mape, 1), interval]);
                cells.extend(
                    [scores.r2, scores.spearman, scores.safe_precision, scores.safe_recall]
                        .map(|value| optional(value, 2)),
                );
            } else if let Some(decision) = &row.decision {
                cells.extend(std::iter::repeat_n(Value::Missing, 4));
                cells.extend([optional(decision.safe_precision, 2), optional(decision.safe_recall, 2)]);
            } else {
                continue;
            }
            table.push(cells);
        }
        tables.push(table);
    }
    tables
}

/// Why some rows have no scores, each reason once.
fn gaps(evaluation: &Evaluation) -> std::collections::BTreeSet<String> {
    evaluation
        .rows
        .iter()
        .filter_map(|row| {
            Some(format!(
                "{}: no scores for {}: {}",
                row.split.as_str(),
                row.learner.as_str(),
                row.reason.as_ref()?
            ))
        })
        .collect()
}

fn optional(value: Option<f64>, decimals: usize) -> Value {
    value.map_or(Value::Missing, |value| Value::number(value, decimals))
}
