//! Tables about prices.

use super::{behind, label, optional, sides};
use crate::failure::usage;
use elastico_placement::Cluster;
use elastico_placement::whatif::{Marginal, PriceAnswer};
use elastico_report::{Column, Table, Value};

pub(super) fn tables(answer: &PriceAnswer, per_hour: bool) -> Vec<Table> {
    let rate = if per_hour { answer.money_per_value.unwrap_or(1.0) } else { 1.0 };
    let unit = if per_hour { "money per hour" } else { "units of the objective" };
    let mut prices = Table::new(
        &answer.schema,
        format!("{}prices of one unit, in {unit}; 0 = surplus", label(&answer.basis)),
        vec![
            Column::text("pool"),
            Column::text("resource"),
            Column::number("price", ""),
            Column::number("one_less", "").label("one less"),
            Column::number("one_more", "").label("one more"),
            Column::text("holds").label("holds from..to"),
            Column::number("used_ratio", "").label("used"),
            Column::number("list_price_ratio", "").label("of list price"),
        ],
    );
    let marginal = |marginal: Option<Marginal>| optional(marginal.map(|one| one.value * rate), 3);
    for price in &answer.prices {
        let to = price.holds_to.map_or("more".to_owned(), |to| format!("{:.0}", to / price.unit));
        prices.push(vec![
            price.pool.as_str().into(),
            price.resource.as_str().into(),
            Value::number(price.price * rate, 3),
            marginal(price.one_less),
            marginal(price.one_more),
            format!("{:.0}..{to}", price.holds_from / price.unit).into(),
            Value::number(price.used_ratio, 2),
            optional(price.list_price_ratio, 2),
        ]);
    }
    let mut ranges = Table::new(
        &answer.schema,
        "what one unit changes for certain: the gaps of the solutions leave it between these",
        vec![
            Column::text("pool"),
            Column::text("resource"),
            Column::number("one_less_least", "").label("less, at least"),
            Column::number("one_less_most", "").label("at most"),
            Column::number("one_more_least", "").label("more, at least"),
            Column::number("one_more_most", "").label("at most"),
        ],
    );
    for price in answer.prices.iter().filter(|price| price.one_more.is_some()) {
        let end = |marginal: Option<Marginal>, at: usize| {
            optional(marginal.map(|one| one.value_range[at] * rate), 3)
        };
        ranges.push(vec![
            price.pool.as_str().into(),
            price.resource.as_str().into(),
            end(price.one_less, 0),
            end(price.one_less, 1),
            end(price.one_more, 0),
            end(price.one_more, 1),
        ]);
    }
    let title = format!(
        "solved {} times; a price holds where it foretells the bound to {:.4} %; {}",
        answer.solves,
        answer.holds_within_ratio * 100.0,
        behind(&answer.basis)
    );
    vec![prices, ranges, sides(&answer.schema, title, &[("now", &answer.side)])]
}

/// Why there is no money in the answer.
pub(super) fn no_money(cluster: &Cluster) -> anyhow::Error {
    match cluster.pool.iter().find(|pool| pool.price_per_gpu_hour.is_none()) {
        Some(pool) => elastico_placement::Error::NoListPrice { pool: pool.id.to_string() }.into(),
        None => usage("nothing is short, so that nothing has a price", "ask without --per-hour"),
    }
}
