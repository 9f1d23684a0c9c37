//! Tables about a placement: narrow ones for people, wide ones for programs.

use elastico_placement::{Assignment, Placement, WaitReason, Waiting};
use elastico_report::{Column, Table, Value};
use std::collections::BTreeMap;

/// Who runs, who waits, and the prices: at 80 columns each job is one line.
pub(crate) fn for_people(placement: &Placement) -> Vec<Table> {
    let mut running = Table::new(
        &placement.schema,
        "who runs where",
        vec![
            Column::text("job"),
            Column::text("pool"),
            Column::text("place").label("node:GPUs"),
            Column::text("beside"),
            Column::text("sharing"),
            Column::number("slowdown_upper", "").label("upper"),
        ],
    );
    for assignment in &placement.assignments {
        let beside = assignment.beside.as_ref();
        running.push(vec![
            assignment.job.as_str().into(),
            assignment.pool.as_str().into(),
            assignment.places().into(),
            beside.map_or(Value::Missing, |beside| beside.job.as_str().into()),
            beside.map_or(Value::Missing, |beside| beside.sharing.to_string().into()),
            beside.map_or(Value::Missing, |beside| Value::number(beside.slowdown_upper, 2)),
        ]);
    }
    let mut tables = vec![pools(placement)];
    if !placement.assignments.is_empty() {
        tables.push(running);
    }
    tables.push(prices(placement));
    tables.extend(waiting(placement));
    tables
}

/// The same with all that a job has in a line of its own.
pub(crate) fn for_programs(placement: &Placement) -> Vec<Table> {
    let mut running = Table::new(
        &placement.schema,
        title(placement),
        vec![
            Column::text("job"),
            Column::text("pool"),
            Column::text("place"),
            Column::number("gpus", ""),
            Column::text("beside"),
            Column::text("sharing"),
            Column::number("slowdown", ""),
            Column::number("slowdown_upper", ""),
            Column::number("step_seconds", "s"),
            Column::number("value", ""),
            Column::number("price", ""),
            Column::text("restarts"),
        ],
    );
    for assignment in &placement.assignments {
        let beside = assignment.beside.as_ref();
        running.push(vec![
            assignment.job.as_str().into(),
            assignment.pool.as_str().into(),
            places(assignment).into(),
            Value::Count(u64::from(assignment.shape.gpus)),
            beside.map_or(Value::Missing, |beside| beside.job.as_str().into()),
            beside.map_or(Value::Missing, |beside| beside.sharing.to_string().into()),
            beside.map_or(Value::Missing, |beside| Value::number(beside.slowdown, 2)),
            beside.map_or(Value::Missing, |beside| Value::number(beside.slowdown_upper, 2)),
            Value::number(assignment.step_seconds, 6),
            Value::number(assignment.value, 3),
            Value::number(assignment.price, 3),
            assignment.restarts.into(),
        ]);
    }
    let mut waits = Table::new(
        &placement.schema,
        "waiting",
        vec![
            Column::text("job"),
            Column::text("reason"),
            Column::text("stops"),
            Column::number("entry_slot_price", ""),
            Column::text("detail"),
        ],
    );
    for job in &placement.waiting {
        waits.push(vec![
            job.job.as_str().into(),
            job.reason.as_str().into(),
            job.stops.into(),
            job.entry.as_ref().map_or(Value::Missing, |entry| Value::number(entry.entry_slot_price, 4)),
            job.detail().into(),
        ]);
    }
    let mut tables = vec![running, prices(placement)];
    if !placement.waiting.is_empty() {
        tables.push(waits);
    }
    tables
}

fn title(placement: &Placement) -> String {
    format!("{}{}", if placement.basis.simulated { "simulated: " } else { "" }, placement.summary())
}

fn places(assignment: &Assignment) -> String {
    let places = assignment.nodes.iter().map(|node| {
        let gpus: Vec<String> = node.gpus.iter().map(ToString::to_string).collect();
        format!("{}:{}", node.node, gpus.join(","))
    });
    places.collect::<Vec<_>>().join(" ")
}

/// What each pool does.
fn pools(placement: &Placement) -> Table {
    let mut table = Table::new(
        &placement.schema,
        title(placement),
        vec![
            Column::text("pool"),
            Column::number("gpus", "").label("GPUs used"),
            Column::number("jobs", ""),
            Column::number("pairs", ""),
            Column::number("restarts", ""),
            Column::number("value", ""),
        ],
    );
    let mut pools: BTreeMap<&str, Vec<&Assignment>> = BTreeMap::new();
    for assignment in &placement.assignments {
        pools.entry(assignment.pool.as_str()).or_default().push(assignment);
    }
    for (pool, jobs) in pools {
        let paired = jobs.iter().filter(|job| job.beside.is_some()).count();
        let alone = jobs.iter().filter(|job| job.beside.is_none()).map(|job| u64::from(job.shape.gpus));
        table.push(vec![
            pool.into(),
            Value::Count(alone.sum::<u64>() + paired as u64 / 2),
            jobs.len().into(),
            (paired / 2).into(),
            jobs.iter().filter(|job| job.restarts).count().into(),
            Value::number(jobs.iter().map(|job| job.value).sum(), 3),
        ]);
    }
    table
}

fn prices(placement: &Placement) -> Table {
    let mut prices = Table::new(
        &placement.schema,
        "prices, in units of the objective",
        vec![
            Column::text("pool"),
            Column::text("resource"),
            Column::number("value_per_unit", "").label("price"),
            Column::number("capacity", ""),
            Column::number("used_ratio", "").label("used"),
        ],
    );
    for price in &placement.prices.prices {
        prices.push(vec![
            price.pool.as_str().into(),
            price.resource.as_str().into(),
            Value::number(price.value_per_unit, 4),
            Value::number(price.capacity, 0),
            Value::number(price.used_ratio, 2),
        ]);
    }
    prices
}

/// Who waits, a line each, and before it what their reasons mean. Of jobs that can never run the sentence is what helps, and it
/// is often the same for many.
fn waiting(placement: &Placement) -> Vec<Table> {
    let (never, later): (Vec<&Waiting>, Vec<&Waiting>) =
        placement.waiting.iter().partition(|job| job.reason == WaitReason::NoShape);
    let mut tables = Vec::new();
    if !never.is_empty() {
        let mut table = Table::new(
            &placement.schema,
            format!("{} can never run on this cluster", never.len()),
            vec![Column::number("jobs", ""), Column::text("first"), Column::text("detail").label("why")],
        );
        let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for job in never {
            reasons.entry(job.detail()).or_default().push(job.job.as_str());
        }
        for (detail, jobs) in reasons {
            table.push(vec![jobs.len().into(), jobs[0].into(), detail.into()]);
        }
        tables.push(table);
    }
    if !later.is_empty() {
        let reasons: std::collections::BTreeSet<WaitReason> = later.iter().map(|job| job.reason).collect();
        let words: Vec<String> =
            reasons.into_iter().map(|reason| format!("{} = {}", reason.as_str(), meaning(reason))).collect();
        let mut table = Table::new(
            &placement.schema,
            format!("{} wait{}; {}", later.len(), if later.len() == 1 { "s" } else { "" }, words.join("; ")),
            vec![
                Column::text("job"),
                Column::text("reason"),
                Column::text("pool"),
                Column::number("gpus", "").label("GPUs"),
                Column::number("value", "").label("worth"),
                Column::number("price", "").label("costs"),
                Column::number("entry_slot_price", "").label("alone at"),
            ],
        );
        for job in later {
            let Some(entry) = &job.entry else { continue };
            let stops = if job.stops { "; runs now, must stop" } else { "" };
            table.push(vec![
                job.job.as_str().into(),
                format!("{}{stops}", job.reason.as_str()).into(),
                entry.pool.as_str().into(),
                Value::Count(u64::from(entry.gpus)),
                Value::number(entry.value, 3),
                Value::number(entry.price, 3),
                Value::number(entry.entry_slot_price, 3),
            ]);
        }
        tables.push(table);
    }
    tables
}

const fn meaning(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::PricedOut => "alone it costs more than it is worth",
        WaitReason::Tie => "worth its price, but no placement found that runs it is worth more",
        WaitReason::Fragmented => "GPUs are free, but not as it needs them on nodes",
        WaitReason::NoRoom => "no place is free, and arrivals move nobody",
        _ => "it has no shape here",
    }
}
