//! Tables about sizes of pools.

use super::{behind, label, optional, sides};
use elastico_placement::whatif::{Bottleneck, CapacityAnswer};
use elastico_report::{Column, Table, Value};

pub(super) fn tables(answer: &CapacityAnswer) -> Vec<Table> {
    let mut solutions = vec![("now".to_owned(), &answer.before)];
    solutions.extend(answer.steps.iter().map(|step| (format!("{} {:+}", step.pool, step.gpus), &step.after)));
    let solutions: Vec<_> = solutions.iter().map(|(name, side)| (name.as_str(), *side)).collect();
    let short: Vec<String> = answer.short.iter().map(in_words).collect();
    let short = if short.is_empty() {
        "nothing is short now".to_owned()
    } else {
        format!("short now: {}", short.join(", "))
    };
    let states = sides(
        &answer.schema,
        format!("{}{short}; {}", label(&answer.basis), behind(&answer.basis)),
        &solutions,
    );
    let mut worth = Table::new(
        &answer.schema,
        "what it is worth; the marginal value is that of the GPUs since the step before; `short now` is all that has a \
            price, `short then` the one part that most of that state's value is paid for: a pool that grows counts for more",
        vec![
            Column::text("change"),
            Column::number("value_delta", "").label("value"),
            Column::number("value_delta_least", "").label("at least"),
            Column::number("value_delta_most", "").label("at most"),
            Column::number("marginal_per_gpu", "").label("marginal per GPU"),
            Column::number("marginal_per_money", "").label("per money per hour"),
            Column::text("bottleneck").label("short then"),
        ],
    );
    for step in &answer.steps {
        worth.push(vec![
            format!("{} {:+}", step.pool, step.gpus).into(),
            Value::number(step.value_delta, 3),
            Value::number(step.value_delta_range[0], 3),
            Value::number(step.value_delta_range[1], 3),
            Value::number(step.marginal_per_gpu, 3),
            optional(step.marginal_per_money, 3),
            step.bottleneck.as_ref().map_or("nothing".to_owned(), in_words).into(),
        ]);
    }
    vec![states, worth]
}

fn in_words(bottleneck: &Bottleneck) -> String {
    format!("{} of {}", bottleneck.resource, bottleneck.pool)
}
