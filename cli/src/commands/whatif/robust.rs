//! Tables about wrong predictions.

use super::{behind, label, sides};
use elastico_placement::whatif::{RobustAnswer, Spread};
use elastico_report::{Column, Table, Value};

pub(super) fn tables(answer: &RobustAnswer) -> Vec<Table> {
    let safe = answer.safe_error.map_or("no pair rests on a prediction".to_owned(), |error| {
        format!("no pair exceeds its limit up to an error of {:.1} %", error * 100.0)
    });
    let mut spread = Table::new(
        &answer.schema,
        format!(
            "{}slowdowns off by up to {:.1} %, {} draws, {} pairs: {safe}",
            label(&answer.basis),
            answer.error * 100.0,
            answer.draws,
            answer.pairs
        ),
        vec![
            Column::text("what"),
            Column::number("mean", ""),
            Column::number("low", "").label("5 % below"),
            Column::number("high", "").label("5 % above"),
            Column::number("worst", "").label("worst case"),
        ],
    );
    let worst = &answer.worst;
    for (name, values, worst, decimals) in [
        ("value of the present placement", answer.value, worst.value, 3),
        ("regret against one that knew, ratio", answer.regret, worst.regret, 4),
        ("pairs over their limit", answer.breaches, worst.breaches as f64, 1),
    ] {
        let Spread { mean, low, high } = values;
        let mut row = vec![Value::from(name)];
        row.extend([mean, low, high, worst].map(|value| Value::number(value, decimals)));
        spread.push(row);
    }
    let mut tables = vec![
        spread,
        sides(
            &answer.schema,
            format!(
                "in the worst case the regret is at most {:.2} % of the bound; `re-placed` is the best placement for those \
                slowdowns, which may be worth more than was predicted: all that is not paired now is faster there; {}",
                answer.worst.regret_most * 100.0,
                behind(&answer.basis)
            ),
            &[("predicted", &answer.before), ("re-placed", &answer.worst.resolved)],
        ),
    ];
    if !answer.jobs.is_empty() {
        let mut jobs = Table::new(
            &answer.schema,
            "jobs slowed down more than they bear",
            vec![Column::text("job"), Column::number("draws_ratio", "").label("of the draws")],
        );
        for job in &answer.jobs {
            jobs.push(vec![job.job.as_str().into(), Value::number(job.draws_ratio, 2)]);
        }
        tables.push(jobs);
    }
    tables
}
