//! Tables about money.

use super::{behind, label, sides};
use elastico_placement::whatif::{ChargeAnswer, ChargedBy};
use elastico_report::{Column, Table, Value};

pub(super) fn tables(answer: &ChargeAnswer, by_job: bool) -> Vec<Table> {
    let by = match answer.by {
        ChargedBy::ShadowPrice => "shadow price of what is used",
        ChargedBy::ListPrice => "list price, as nothing is short",
    };
    let title = format!(
        "{}hardware {:.2} money per hour = charged {:.2} + idle {:.2}; by {by}",
        label(&answer.basis),
        answer.hardware_per_hour,
        answer.charged_per_hour,
        answer.idle_per_hour
    );
    let mut tables = vec![if by_job { jobs(answer, title) } else { tenants(answer, title) }];
    let mut idle = Table::new(
        &answer.schema,
        "idle",
        vec![Column::text("pool"), Column::number("gpus", "").label("GPUs"), money("money_per_hour")],
    );
    for pool in answer.idle.iter().filter(|pool| pool.gpus > 0.0) {
        idle.push(vec![
            pool.pool.as_str().into(),
            Value::number(pool.gpus, 1),
            Value::number(pool.money_per_hour, 4),
        ]);
    }
    if !idle.rows.is_empty() {
        tables.push(idle);
    }
    tables.push(sides(
        &answer.schema,
        format!("the placement that is paid for; {}", behind(&answer.basis)),
        &[("now", &answer.side)],
    ));
    tables
}

fn money(name: &str) -> Column {
    Column::number(name, "").label("money per hour")
}

fn tenants(answer: &ChargeAnswer, title: String) -> Table {
    let columns = vec![
        Column::text("tenant"),
        Column::number("jobs", "").label("run"),
        Column::number("waiting", "").label("wait"),
        Column::number("gpus", "").label("GPUs"),
        money("money_per_hour"),
        Column::number("list_price_per_hour", "").label("list price"),
    ];
    let mut table = Table::new(&answer.schema, title, columns);
    for tenant in &answer.tenants {
        table.push(vec![
            tenant.tenant.as_deref().unwrap_or("(none)").into(),
            tenant.jobs.into(),
            tenant.waiting.into(),
            Value::number(tenant.gpus, 2),
            Value::number(tenant.money_per_hour, 4),
            Value::number(tenant.list_price_per_hour, 4),
        ]);
    }
    table
}

fn jobs(answer: &ChargeAnswer, title: String) -> Table {
    let columns = vec![
        Column::text("job"),
        Column::text("tenant"),
        Column::text("pool"),
        Column::number("gpus", "").label("GPUs"),
        Column::number("rent", ""),
        money("money_per_hour"),
        Column::number("list_price_per_hour", "").label("list price"),
    ];
    let mut table = Table::new(&answer.schema, title, columns);
    for job in &answer.jobs {
        table.push(vec![
            job.job.as_str().into(),
            job.tenant.as_deref().unwrap_or("(none)").into(),
            job.pool.as_str().into(),
            Value::number(job.gpus, 2),
            Value::number(job.rent, 3),
            Value::number(job.money_per_hour, 4),
            Value::number(job.list_price_per_hour, 4),
        ]);
    }
    table
}
