//! The tables of the page.

use super::{capital, group, name, percent};
use crate::evaluation_tables::{after_probes, few_shot_title};
use elastico_report::{Column, Table, Value};
use elastico_trainer::{Evaluation, EvaluationRow, LearnerKind, Newcomer, Split};

/// All learners of one split: baselines first, then by error.
pub(super) fn scores(evaluation: &Evaluation, split: Split) -> Table {
    let rows = || evaluation.rows.iter().filter(|row| row.split == split);
    let mape = |row: &EvaluationRow| row.scores.as_ref().map_or(f64::INFINITY, |scores| scores.mape);
    let mean = evaluation.row(split, LearnerKind::Mean).map(mape);
    let simple = evaluation.best_formula(split);
    let mut sorted: Vec<&EvaluationRow> =
        rows().filter(|row| row.scores.is_some() || row.decision.is_some()).collect();
    sorted.sort_by(|a, b| {
        let key = |row: &EvaluationRow| {
            (row.learner != LearnerKind::Mean, Some(row.learner) != simple, row.scores.is_none())
        };
        key(a).cmp(&key(b)).then(mape(a).total_cmp(&mape(b)))
    });
    let mut title =
        format!("Baselines first, then by error; safe = slowdown of at most {}", evaluation.limit);
    let blind = rows().find_map(|row| row.scores.as_ref()?.partner_regret_random);
    if let Some(blind) = blind {
        title.push_str(&format!("; a co-runner drawn blindly has a regret of {}", percent(blind)));
    }
    let mut table = Table::new(
        "elastico.evaluation_table/1",
        title,
        vec![
            Column::text("learner"),
            Column::number("n", ""),
            Column::number("mape", "%").label("mean error"),
            Column::text("interval").label("95 % interval"),
            Column::number("against_mean", "").label("error / that of the mean"),
            Column::number("r2", "").label("R2"),
            Column::number("p95_abs_error", "").label("P95 of abs. error"),
            Column::number("spearman", "").label("rank correlation"),
            Column::number("safe_precision", "").label("safe precision"),
            Column::number("safe_recall", "").label("safe recall"),
            Column::number("safe_base_rate", "").label("truly safe"),
            Column::number("partner_regret", "%").label("regret"),
        ],
    );
    for row in sorted {
        let mut label = name(row.learner);
        if row.learner == LearnerKind::Mean {
            label.push_str(" (baseline)");
        } else if Some(row.learner) == simple {
            label.push_str(" (best simple baseline)");
        }
        let optional = |value: Option<f64>| value.map_or(Value::Missing, |value| Value::number(value, 2));
        if let Some(scores) = &row.scores {
            table.push(vec![
                label.into(),
                Value::Count(row.n),
                Value::number(100.0 * scores.mape, 1),
                interval(scores.mape_interval),
                optional(mean.filter(|mean| mean.is_finite()).map(|mean| scores.mape / mean)),
                optional(scores.r2),
                Value::number(scores.p95_abs_error, 2),
                optional(scores.spearman),
                optional(scores.safe_precision),
                optional(scores.safe_recall),
                Value::number(scores.safe_base_rate, 2),
                scores.partner_regret.map_or(Value::Missing, |regret| Value::number(100.0 * regret, 1)),
            ]);
        } else if let Some(decision) = &row.decision {
            let mut cells = vec![label.into(), Value::Count(row.n)];
            cells.extend(std::iter::repeat_n(Value::Missing, 6));
            cells.extend([
                optional(decision.safe_precision),
                optional(decision.safe_recall),
                Value::number(decision.safe_base_rate, 2),
                Value::Missing,
            ]);
            table.push(cells);
        }
    }
    table
}

/// The learning curve of the learner whose points are drawn, the mean and the best simple formula beside it.
pub(super) fn few_shot(evaluation: &Evaluation, of: Newcomer, shown: LearnerKind) -> Option<Table> {
    let split = match of {
        Newcomer::Family => Split::UnseenFamily,
        Newcomer::Device => Split::UnseenDevice,
    };
    let simple = evaluation.best_formula(split);
    let mut curve = after_probes(evaluation, of);
    curve.retain(|row| {
        row.learner == LearnerKind::Mean || row.learner == shown || Some(row.learner) == simple
    });
    let mut table = Table::new(
        "elastico.evaluation_few_shot/1",
        capital(few_shot_title(of)),
        vec![
            Column::number("probes", ""),
            Column::text("learner"),
            Column::number("n", ""),
            Column::number("mape_before", "%").label("error without probes"),
            Column::number("mape", "%").label("mean error"),
            Column::text("interval").label("95 % interval"),
            Column::number("r2", "").label("R2"),
            Column::number("p95_abs_error", "").label("P95 of abs. error"),
        ],
    );
    let is_there = !curve.is_empty();
    for row in curve {
        table.push(vec![
            Value::Count(row.probes.into()),
            name(row.learner).into(),
            Value::Count(row.n),
            Value::number(100.0 * row.mape_before, 1),
            Value::number(100.0 * row.scores.mape, 1),
            interval(row.scores.mape_interval),
            row.scores.r2.map_or(Value::Missing, |value| Value::number(value, 2)),
            Value::number(row.scores.p95_abs_error, 2),
        ]);
    }
    is_there.then_some(table)
}

/// Upper bounds of the learner whose points are drawn, level by level.
pub(super) fn bounds(evaluation: &Evaluation, split: Split, shown: LearnerKind) -> Option<Table> {
    let mut table = Table::new(
        "elastico.evaluation_bounds/1",
        format!("The upper bound of {}, each {} against the bound of the others", name(shown), group(split)),
        vec![
            Column::number("level", "%"),
            Column::number("achieved_coverage", "%").label("covered"),
            Column::text("interval").label("95 % interval"),
            Column::number("least_coverage", "%").label(format!("covered in the worst {}", group(split))),
            Column::number("bound_over_measured", "").label("bound / measured"),
            Column::number("guaranteed_level", "%").label("guaranteed on average"),
        ],
    );
    let rows: Vec<_> =
        evaluation.bounds.iter().filter(|bound| bound.split == split && bound.learner == shown).collect();
    for bound in &rows {
        let found = &bound.calibration;
        table.push(vec![
            Value::number(100.0 * found.level, 0),
            Value::number(100.0 * found.achieved_coverage, 1),
            interval(found.coverage_interval),
            Value::number(100.0 * found.least_coverage, 1),
            Value::number(found.bound_over_measured, 2),
            Value::number(100.0 * found.guaranteed_level, 1),
        ]);
    }
    (!rows.is_empty()).then_some(table)
}

fn interval(interval: Option<(f64, f64)>) -> Value {
    interval.map_or(Value::Missing, |(lower, upper)| {
        format!("{:.1} to {:.1} %", 100.0 * lower, 100.0 * upper).into()
    })
}
