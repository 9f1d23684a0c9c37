//! Tables about what a change does to jobs.

use super::{behind, label, sides, signed};
use elastico_placement::whatif::{Effect, HarmedAnswer, State};
use elastico_report::{Column, Table, Value};

pub(super) fn tables(answer: &HarmedAnswer) -> Vec<Table> {
    let state = sides(
        &answer.schema,
        format!(
            "{}{}: value {}, between {} and {} for certain",
            label(&answer.basis),
            answer.question,
            signed(answer.value_delta),
            signed(answer.value_delta_range[0]),
            signed(answer.value_delta_range[1])
        ),
        &[("now", &answer.before), ("then", &answer.after)],
    );
    let worst = answer
        .worst_ratio
        .map_or(String::new(), |ratio| format!(", the worst keeps {:.0} % of its speed", ratio * 100.0));
    let title = format!(
        "harmed: {}{worst}; helped: {}; past what they bear: {}; {}",
        answer.harmed,
        answer.helped,
        answer.breaches,
        behind(&answer.basis)
    );
    vec![state, effects(&answer.schema, title, &answer.effects)]
}

/// Lines of a table of jobs at most; JSON has all.
const LINES: usize = 30;

pub(super) fn effects(schema: &str, title: impl Into<String>, effects: &[Effect]) -> Table {
    let mut title = title.into();
    if effects.len() > LINES {
        title += &format!("; the worst {LINES} of {}, JSON has all", effects.len());
    }
    let mut table = Table::new(
        schema,
        title,
        vec![
            Column::text("job"),
            Column::text("effect"),
            Column::text("now"),
            Column::text("then"),
            Column::number("ratio", "").label("speed kept"),
            Column::number("slowdown_upper", "").label("upper"),
            Column::text("breach"),
        ],
    );
    for effect in effects.iter().take(LINES) {
        table.push(vec![
            effect.job.as_str().into(),
            effect.kind.as_str().into(),
            place(effect.now.as_ref()),
            place(effect.then.as_ref()),
            effect.ratio.map_or(Value::Missing, |ratio| Value::number(ratio, 3)),
            effect.then.as_ref().map_or(Value::Missing, |then| Value::number(then.slowdown_upper, 2)),
            effect.breach.into(),
        ]);
    }
    table
}

pub(super) fn place(state: Option<&State>) -> Value {
    let Some(state) = state else { return "waits".into() };
    let beside = state.beside.as_ref().map_or(String::new(), |beside| format!(" + {beside}"));
    format!("{} x{}{beside}", state.pool, state.gpus).into()
}
