//! `elastico explain`

use super::place::{OptionalModel, State};
use crate::failure::Ending;
use crate::output::{self, Format, Talk};
use elastico_placement::Explanation;
use elastico_report::{Column, Table, Value};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The job
    job: String,

    #[command(flatten)]
    state: State,

    #[command(flatten)]
    model: OptionalModel,

    /// Form of the answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    let predictor = arguments.model.load()?;
    let read = arguments.state.read(predictor.as_deref(), talk)?;
    let placement = read.allocator.solve_with(&read.jobs, &read.profiles, read.table.as_ref(), None)?;
    let explanation = read.allocator.explain(
        &placement,
        &read.jobs,
        &read.profiles,
        read.table.as_ref(),
        &arguments.job,
    )?;
    output::answer(arguments.format, &explanation, &tables(&explanation))?;
    Ok(Ending::Done)
}

fn tables(explanation: &Explanation) -> Vec<Table> {
    let state = match (&explanation.assignment, &explanation.waiting) {
        (Some(assignment), _) => assignment.why.clone(),
        (None, Some(waiting)) => format!("waits: {}", waiting.detail),
        (None, None) => "is not placed".to_owned(),
    };
    let mut shapes = Table::new(
        &explanation.schema,
        format!("{} {state}", explanation.job),
        vec![
            Column::text("pool"),
            Column::number("gpus", "").label("GPUs"),
            Column::number("value", ""),
            Column::number("price", ""),
            Column::number("surplus", ""),
            Column::text("dearest").label("dearest part"),
        ],
    );
    for shape in &explanation.shapes {
        let dearest = shape.parts.iter().max_by(|a, b| a.1.total_cmp(b.1));
        shapes.push(vec![
            shape.pool.as_str().into(),
            Value::Count(u64::from(shape.gpus)),
            Value::number(shape.value, 4),
            Value::number(shape.price, 4),
            Value::number(shape.surplus, 4),
            dearest.map_or(Value::Missing, |(resource, _)| resource.as_str().into()),
        ]);
    }
    let mut partners = Table::new(
        &explanation.schema,
        "best co-runners",
        vec![
            Column::text("job"),
            Column::text("sharing"),
            Column::number("slowdown", ""),
            Column::number("upper", ""),
            Column::number("co_runner_slowdown", "").label("its slowdown"),
            Column::number("gain", ""),
        ],
    );
    for partner in &explanation.partners {
        partners.push(vec![
            partner.job.as_str().into(),
            partner.sharing.to_string().into(),
            Value::number(partner.slowdown[0], 2),
            Value::number(partner.upper[0], 2),
            Value::number(partner.slowdown[1], 2),
            Value::number(partner.gain, 4),
        ]);
    }
    vec![shapes, partners]
}
