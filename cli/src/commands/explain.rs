//! `elastico explain`

use super::place::{OptionalModel, State};
use crate::failure::Ending;
use crate::output::{self, Format, Talk};
use elastico_placement::{Explanation, Resource, Settings};
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
    let read = arguments.state.read(&arguments.model, predictor.as_deref(), talk)?;
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
    let label = if explanation.basis.simulated { "simulated: " } else { "" };
    let state = match (&explanation.assignment, &explanation.waiting) {
        (Some(assignment), _) => {
            let places = assignment.places_in_words();
            format!("runs on {}, {places}: {}", assignment.pool, assignment.why)
        }
        (None, Some(waiting)) => format!("waits: {}", waiting.detail()),
        (None, None) => "is not placed".to_owned(),
    };
    let certificate = format!(
        "value {:.3}, bound {:.3}, gap {:.2} %",
        explanation.value,
        explanation.bound,
        explanation.gap * 100.0
    );
    let mut tables = vec![shapes(explanation, format!("{label}{} {state} ({certificate})", explanation.job))];
    if let Some(resource) = explanation.binding.filter(|_| !explanation.holders.is_empty()) {
        tables.push(holders(explanation, resource));
    }
    if !explanation.dropped.is_empty() {
        let columns =
            vec![Column::text("pool"), Column::number("gpus", "").label("GPUs"), Column::text("reason")];
        let mut dropped = Table::new(&explanation.schema, "what cannot be", columns);
        for shape in &explanation.dropped {
            let gpus = shape.gpus.map_or(Value::Missing, |gpus| Value::Count(u64::from(gpus)));
            dropped.push(vec![shape.pool.as_str().into(), gpus, shape.reason.as_str().into()]);
        }
        tables.push(dropped);
    }
    if !explanation.partners.is_empty() || !explanation.refused_partners.is_empty() {
        tables.push(partners(explanation));
    }
    if !explanation.partners.is_empty() {
        tables.push(obstacles(explanation));
    }
    tables
}

fn shapes(explanation: &Explanation, title: String) -> Table {
    let mut columns = vec![
        Column::text("pool"),
        Column::number("gpus", "").label("GPUs"),
        Column::number("value", ""),
        Column::number("price", ""),
        Column::number("surplus", ""),
        Column::text("dearest").label("dearest part"),
        Column::text("origin").label("performance"),
    ];
    let with_use = explanation.shapes.iter().any(|shape| shape.in_use);
    if with_use {
        columns.push(Column::text("in_use"));
    }
    let with_settings = explanation.shapes.iter().any(|shape| !shape.settings.is_empty());
    if with_settings {
        columns.push(Column::text("settings"));
    }
    let mut shapes = Table::new(&explanation.schema, title, columns);
    for shape in &explanation.shapes {
        let dearest = shape.parts.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let mut cells = vec![
            shape.pool.as_str().into(),
            Value::Count(u64::from(shape.gpus)),
            Value::number(shape.value, 3),
            Value::number(shape.price, 3),
            Value::number(shape.surplus, 3),
            dearest.map_or(Value::Missing, |(resource, _)| resource.as_str().into()),
            format!("{:?}", shape.origin).to_lowercase().into(),
        ];
        if with_use {
            let words = match (shape.in_use, shape.only_in_pair) {
                (true, true) => "only in the pair",
                (true, false) => "yes",
                (false, _) => "",
            };
            cells.push(words.into());
        }
        if with_settings {
            cells.push(in_words(&shape.settings).into());
        }
        shapes.push(cells);
    }
    shapes
}

fn holders(explanation: &Explanation, resource: Resource) -> Table {
    let enters = explanation.entry.as_ref().filter(|_| explanation.waiting.is_some());
    let enters = enters.map_or(String::new(), |entry| {
        format!(
            "; alone it enters when a GPU costs {:.3} instead of {:.3}",
            entry.entry_slot_price, entry.slot_price
        )
    });
    let columns = vec![
        Column::text("job"),
        Column::number("amount", ""),
        Column::number("value", ""),
        Column::number("price", ""),
        Column::number("surplus", ""),
    ];
    let title = format!("who holds {resource}, the first to give way first{enters}");
    let mut holders = Table::new(&explanation.schema, title, columns);
    for holder in &explanation.holders {
        holders.push(vec![
            holder.job.as_str().into(),
            Value::number(holder.amount, 1),
            Value::number(holder.value, 3),
            Value::number(holder.price, 3),
            Value::number(holder.surplus, 3),
        ]);
    }
    holders
}

fn partners(explanation: &Explanation) -> Table {
    if explanation.partners.is_empty() {
        // A title without rows would read as if something were missing.
        let mut none = Table::new(
            &explanation.schema,
            "no co-runner is allowed",
            vec![Column::text("reason"), Column::number("jobs", "")],
        );
        for (reason, count) in &explanation.refused_partners {
            none.push(vec![reason.as_str().into(), Value::Count(*count)]);
        }
        return none;
    }
    let refused: Vec<String> =
        explanation.refused_partners.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let refused =
        if refused.is_empty() { String::new() } else { format!("; refused: {}", refused.join(", ")) };
    let mut partners = Table::new(
        &explanation.schema,
        format!("best co-runners; gain = worth of the pair less that of the better of both alone{refused}"),
        vec![
            Column::text("job"),
            Column::text("pool"),
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
            partner.pool.as_str().into(),
            partner.sharing.to_string().into(),
            Value::number(partner.slowdown[0], 2),
            Value::number(partner.upper[0], 2),
            Value::number(partner.slowdown[1], 2),
            Value::number(partner.gain, 3),
        ]);
    }
    partners
}

/// Where the co-runners are, and what keeps each pair from being.
fn obstacles(explanation: &Explanation) -> Table {
    let with_settings = explanation
        .partners
        .iter()
        .any(|partner| !partner.settings.is_empty() || !partner.co_runner_settings.is_empty());
    let mut columns = vec![
        Column::text("job"),
        Column::text("now").label("where it is"),
        Column::number("lacks", "").label("pair lacks"),
    ];
    if with_settings {
        columns.extend(["settings", "its_settings"].map(Column::text));
    }
    let title = "what keeps them from it: lacks = surplus of all concerned as they are, less that with the pair and \
        those left behind alone; about 0 is a tie";
    let mut table = Table::new(&explanation.schema, title, columns);
    for partner in &explanation.partners {
        let mut cells = vec![
            partner.job.as_str().into(),
            partner.now().into(),
            partner.lacks.map_or(Value::Missing, |lacks| Value::number(lacks, 3)),
        ];
        if with_settings {
            cells.extend(
                [&partner.settings, &partner.co_runner_settings].map(|settings| in_words(settings).into()),
            );
        }
        table.push(cells);
    }
    table
}

fn in_words(settings: &Settings) -> String {
    settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}
