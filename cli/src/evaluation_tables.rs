//! An evaluation as tables: for programs all of it, for people at 80 columns what decides.

use elastico_report::{Column, Table, Value};
use elastico_trainer::{BoundRow, Evaluation, FewShotRow, Newcomer, Split};

/// The level that people are shown, where it was asked for.
const LEVEL: f64 = 0.9;

/// The judgement as one table, the mean predictor beside every learner.
pub(crate) fn scores_table(evaluation: &Evaluation) -> Table {
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
    let rest = [
        "rmse",
        "p95_abs_error",
        "mape_lower",
        "mape_upper",
        "safe_base_rate",
        "partner_regret",
        "partner_regret_random",
    ];
    columns.extend(rest.map(|name| Column::number(name, "")));
    let title = format!("scores on {} data, safe = slowdown <= {}", kinds(evaluation), evaluation.limit);
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
            cells.extend(
                [scores.partner_regret, scores.partner_regret_random].map(|value| optional(value, 4)),
            );
        } else if let Some(decision) = &row.decision {
            cells.extend(std::iter::repeat_n(Value::Missing, 3));
            cells.extend([decision.safe_precision, decision.safe_recall].map(|value| optional(value, 2)));
            cells.extend(std::iter::repeat_n(Value::Missing, 4));
            cells.push(Value::number(decision.safe_base_rate, 3));
            cells.extend([Value::Missing, Value::Missing]);
        } else {
            continue;
        }
        table.push(cells);
    }
    table
}

/// All of it for programs: scores, then what else was found, in ratios.
pub(crate) fn csv_tables(evaluation: &Evaluation) -> Vec<Table> {
    let mut tables = vec![scores_table(evaluation)];
    if !evaluation.few_shot.is_empty() {
        let mut columns = vec![Column::text("newcomer"), Column::text("learner")];
        let numbers = [
            "probes",
            "n",
            "draws",
            "mape_before",
            "mape",
            "mape_lower",
            "mape_upper",
            "rmse",
            "r2",
            "p95_abs_error",
        ];
        columns.extend(numbers.map(|name| Column::number(name, "")));
        let mut table = Table::new("elastico.evaluation_few_shot/1", "after a few probes", columns);
        for row in &evaluation.few_shot {
            let scores = &row.scores;
            let (lower, upper) = scores.mape_interval.unwrap_or((f64::NAN, f64::NAN));
            let counts = [u64::from(row.probes), row.n, row.draws].map(Value::Count);
            let mut cells = vec![newcomer(row.newcomer).into(), row.learner.as_str().into()];
            cells.extend(counts);
            cells.extend(
                [row.mape_before, scores.mape, lower, upper, scores.rmse]
                    .map(|value| Value::number(value, 4)),
            );
            cells.extend([optional(scores.r2, 3), Value::number(scores.p95_abs_error, 3)]);
            table.push(cells);
        }
        tables.push(table);
    }
    if !evaluation.bounds.is_empty() {
        let mut columns = vec![Column::text("split"), Column::text("learner")];
        let numbers = [
            "level",
            "achieved_coverage",
            "coverage_lower",
            "coverage_upper",
            "least_coverage",
            "bound_over_measured",
            "offset_log",
            "groups_total",
            "guaranteed_level",
        ];
        columns.extend(numbers.map(|name| Column::number(name, "")));
        let mut table = Table::new("elastico.evaluation_bounds/1", "upper bounds", columns);
        for BoundRow { split, learner, calibration: found } in &evaluation.bounds {
            let (lower, upper) = found.coverage_interval.unwrap_or((f64::NAN, f64::NAN));
            let mut cells =
                vec![split.as_str().into(), learner.as_str().into(), Value::number(found.level, 3)];
            let rest = [
                found.achieved_coverage,
                lower,
                upper,
                found.least_coverage,
                found.bound_over_measured,
                found.offset_log,
            ];
            cells.extend(rest.map(|value| Value::number(value, 4)));
            cells.push(Value::Count(found.groups_total));
            cells.push(Value::number(found.guaranteed_level, 4));
            table.push(cells);
        }
        tables.push(table);
    }
    tables.extend(noise_table(evaluation));
    tables
}

/// For people, 80 columns wide: errors in percent, with their intervals.
pub(crate) fn people_tables(evaluation: &Evaluation) -> Vec<Table> {
    let mut splits: Vec<Split> = Vec::new();
    for row in &evaluation.rows {
        if !splits.contains(&row.split) && (row.scores.is_some() || row.decision.is_some()) {
            splits.push(row.split);
        }
    }
    let mut tables: Vec<Table> = splits.into_iter().map(|split| split_table(evaluation, split)).collect();
    tables.extend(
        [Newcomer::Family, Newcomer::Device].into_iter().filter_map(|of| few_shot_table(evaluation, of)),
    );
    tables.extend(bounds_table(evaluation));
    tables.extend(noise_table(evaluation));
    tables
}

fn split_table(evaluation: &Evaluation, split: Split) -> Table {
    let rows = || evaluation.rows.iter().filter(|row| row.split == split);
    let first = rows().find_map(|row| row.scores.as_ref());
    // Whoever can be fitted is judged on all rows of the split.
    let n = rows().map(|row| row.n).max().unwrap_or_default();
    let mut title = format!(
        "{split} on {n} {} rows; errors in %, safe = slowdown <= {}",
        kinds(evaluation),
        evaluation.limit
    );
    if let Some(scores) = first {
        title.push_str(&format!(", {:.0} % truly are", 100.0 * scores.safe_base_rate));
        if let Some(blind) = scores.partner_regret_random {
            title.push_str(&format!("; regret of a blind choice {:.1} %", 100.0 * blind));
        }
    }
    let mut table = Table::new(
        evaluation.schema.clone(),
        title,
        vec![
            Column::text("learner"),
            Column::number("mape", "").label("MAPE"),
            Column::text("interval").label("95 %"),
            Column::number("r2", "").label("R2"),
            Column::number("spearman", "").label("rho"),
            Column::number("safe_precision", "").label("prec"),
            Column::number("safe_recall", "").label("rec"),
            Column::number("partner_regret", "").label("regret"),
        ],
    );
    for row in rows() {
        let mut cells = vec![row.learner.as_str().into()];
        if let Some(scores) = &row.scores {
            cells.extend([Value::number(100.0 * scores.mape, 1), interval(scores.mape_interval)]);
            cells.extend(
                [scores.r2, scores.spearman, scores.safe_precision, scores.safe_recall]
                    .map(|value| optional(value, 2)),
            );
            cells.push(optional(scores.partner_regret.map(|regret| 100.0 * regret), 1));
        } else if let Some(decision) = &row.decision {
            cells.extend(std::iter::repeat_n(Value::Missing, 4));
            cells.extend([optional(decision.safe_precision, 2), optional(decision.safe_recall, 2)]);
            cells.push(Value::Missing);
        } else {
            continue;
        }
        table.push(cells);
    }
    table
}

/// The learning curves, at each number of probes all learners: the rows that are left to judge differ between numbers.
pub(crate) fn after_probes(evaluation: &Evaluation, of: Newcomer) -> Vec<&FewShotRow> {
    let mut rows: Vec<&FewShotRow> = evaluation.few_shot.iter().filter(|row| row.newcomer == of).collect();
    rows.sort_by_key(|row| row.probes);
    rows
}

pub(crate) fn few_shot_title(of: Newcomer) -> &'static str {
    match of {
        Newcomer::Family => {
            "a new family after so many co-runs of each of its workloads, judged on the pairs left; before = the same pairs by \
             the model without probes"
        }
        Newcomer::Device => {
            "a new device after so many pairs on it, judged on the pairs left; before = the same pairs by the model without \
             them"
        }
    }
}

fn few_shot_table(evaluation: &Evaluation, of: Newcomer) -> Option<Table> {
    let curve = after_probes(evaluation, of);
    let mut table = Table::new(
        "elastico.evaluation_few_shot/1",
        few_shot_title(of),
        vec![
            Column::number("probes", ""),
            Column::text("learner"),
            Column::number("n", ""),
            Column::number("mape_before", "").label("before %"),
            Column::number("mape", "").label("MAPE %"),
            Column::text("interval").label("95 %"),
            Column::number("r2", "").label("R2"),
        ],
    );
    let is_there = !curve.is_empty();
    for row in curve {
        table.push(vec![
            Value::Count(row.probes.into()),
            row.learner.as_str().into(),
            Value::Count(row.n),
            Value::number(100.0 * row.mape_before, 1),
            Value::number(100.0 * row.scores.mape, 1),
            interval(row.scores.mape_interval),
            optional(row.scores.r2, 2),
        ]);
    }
    is_there.then_some(table)
}

/// The bound on unseen families at the usual level.
fn bounds_table(evaluation: &Evaluation) -> Option<Table> {
    let of_families = || evaluation.bounds.iter().filter(|bound| bound.split == Split::UnseenFamily);
    let levels = || of_families().map(|bound| bound.calibration.level);
    let level = levels().find(|level| (level - LEVEL).abs() < 1e-9).or_else(|| levels().next())?;
    let promised = of_families()
        .map(|bound| bound.calibration)
        .find(|found| (found.level - level).abs() < 1e-9)
        .map_or(0.0, |found| found.guaranteed_level);
    let title = format!(
        "upper bound at {:.0} % on unseen families, each against the others (guaranteed on average: {:.0} %)",
        100.0 * level,
        100.0 * promised
    );
    let mut table = Table::new(
        "elastico.evaluation_bounds/1",
        title,
        vec![
            Column::text("learner"),
            Column::number("achieved_coverage", "").label("covered %"),
            Column::text("interval").label("95 %"),
            Column::number("least_coverage", "").label("worst family %"),
            Column::number("bound_over_measured", "").label("bound / measured"),
            Column::number("groups_total", "").label("families"),
        ],
    );
    for bound in of_families().filter(|bound| (bound.calibration.level - level).abs() < 1e-9) {
        let found = &bound.calibration;
        table.push(vec![
            bound.learner.as_str().into(),
            Value::number(100.0 * found.achieved_coverage, 1),
            interval(found.coverage_interval),
            Value::number(100.0 * found.least_coverage, 1),
            Value::number(found.bound_over_measured, 2),
            Value::Count(found.groups_total),
        ]);
    }
    Some(table)
}

fn noise_table(evaluation: &Evaluation) -> Option<Table> {
    let columns = vec![
        Column::text("source").label("measured more than once"),
        Column::number("mape_floor", "").label("floor"),
        Column::number("mape_floor_lower", "").label("from"),
        Column::number("mape_floor_upper", "").label("to"),
        Column::number("cells", "").label("things"),
        Column::number("copies", "").label("copies left out"),
    ];
    let title = "noise floor: the MAPE of a perfect model, as a ratio, with its 95 % interval";
    let mut table = Table::new("elastico.evaluation_noise/1", title, columns);
    for noise in &evaluation.noise {
        let (lower, upper) = noise.interval.unwrap_or((f64::NAN, f64::NAN));
        table.push(vec![
            noise.source.as_str().into(),
            Value::number(noise.mape_floor, 4),
            Value::number(lower, 4),
            Value::number(upper, 4),
            Value::Count(noise.cells),
            Value::Count(noise.copies),
        ]);
    }
    (!evaluation.noise.is_empty()).then_some(table)
}

fn kinds(evaluation: &Evaluation) -> String {
    evaluation.device_kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(" and ")
}

fn newcomer(of: Newcomer) -> &'static str {
    match of {
        Newcomer::Family => "family",
        Newcomer::Device => "device",
    }
}

/// An interval of a ratio in percent.
fn interval(interval: Option<(f64, f64)>) -> Value {
    interval
        .map_or(Value::Missing, |(lower, upper)| format!("{:.1}–{:.1}", 100.0 * lower, 100.0 * upper).into())
}

fn optional(value: Option<f64>, decimals: usize) -> Value {
    value.map_or(Value::Missing, |value| Value::number(value, decimals))
}
