//! `elastico evaluate`

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
    let evaluation = elastico_trainer::evaluate(&examples, &options)?;
    for gap in gaps(&evaluation) {
        talk.say(gap);
    }
    output::answer(arguments.format, &evaluation, &[table(&evaluation, arguments.format != Format::Table)])?;
    Ok(Ending::Done)
}

/// Where the rows come from, in words.
pub(crate) fn kinds(examples: &Examples) -> String {
    examples.origin.device_kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The judgement as a table, the mean predictor beside every learner. For people only what fits 80 columns.
pub(crate) fn table(evaluation: &Evaluation, is_complete: bool) -> Table {
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
    if is_complete {
        columns.extend(
            ["rmse", "p95_abs_error", "mape_lower", "mape_upper", "safe_base_rate"]
                .map(|name| Column::number(name, "")),
        );
    }
    let title = format!("scores on {} data, safe = slowdown <= {}", kinds.join(" and "), evaluation.limit);
    let mut table = Table::new(evaluation.schema.clone(), title, columns);
    for row in &evaluation.rows {
        if let Some(decision) = &row.decision {
            let mut cells = vec![
                row.split.as_str().into(),
                row.learner.as_str().into(),
                Value::Count(row.n),
                Value::Missing,
                Value::Missing,
                Value::Missing,
                optional(decision.safe_precision, 2),
                optional(decision.safe_recall, 2),
            ];
            if is_complete {
                cells.extend((0..4).map(|_| Value::Missing));
                cells.push(Value::number(decision.safe_base_rate, 3));
            }
            table.push(cells);
            continue;
        }
        let Some(scores) = &row.scores else { continue };
        let mut cells = vec![
            row.split.as_str().into(),
            row.learner.as_str().into(),
            Value::Count(row.n),
            Value::number(scores.mape, 4),
            optional(scores.r2, 2),
            optional(scores.spearman, 2),
            optional(scores.safe_precision, 2),
            optional(scores.safe_recall, 2),
        ];
        if is_complete {
            let (lower, upper) = scores.mape_interval.unwrap_or((f64::NAN, f64::NAN));
            cells.extend(
                [scores.rmse, scores.p95_abs_error, lower, upper, scores.safe_base_rate]
                    .map(|value| Value::number(value, 3)),
            );
        }
        table.push(cells);
    }
    table
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
