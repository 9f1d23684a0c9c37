//! Tables about the smallest pool.

use super::{label, side_columns, side_values};
use elastico_placement::whatif::{SizeAnswer, Smallest, Target};
use elastico_report::{Column, Table, Value};

pub(super) fn tables(answer: &SizeAnswer) -> Vec<Table> {
    let goal = match answer.target {
        Target::Served(ratio) => format!("{:.0} % of the jobs served", ratio * 100.0),
        Target::Throughput(sum) => format!("a throughput of {sum}"),
        Target::Value(value) => format!("a value of {value}"),
        _ => "the target".to_owned(),
    };
    let found = match (answer.nodes, &answer.why_not) {
        (Some(nodes), _) => {
            let money =
                answer.money_per_hour.map_or(String::new(), |money| format!(", {money:.2} money per hour"));
            let proof = match answer.smallest {
                Some(Smallest::Proven) => "; the bound proves that fewer do not",
                Some(Smallest::Neighbours) => "; fewer were tried and do not",
                Some(Smallest::Empty) | None => "",
            };
            let monotone = if answer.monotone { "" } else { "; not every larger size reaches it" };
            format!(
                "{nodes} nodes of {} instead of {}{money}{proof}{monotone}",
                answer.pool, answer.nodes_now
            )
        }
        (None, why) => format!("not reachable: {}", why.as_deref().unwrap_or("no size reaches it")),
    };
    let columns = [vec![Column::number("nodes", "")], side_columns(), vec![Column::text("reached")]].concat();
    let mut table = Table::new(&answer.schema, format!("{}{goal}: {found}", label(&answer.basis)), columns);
    for point in &answer.tried {
        let ends = [vec![Value::Count(u64::from(point.nodes))], vec![point.reached.into()]];
        table.push([ends[0].clone(), side_values(&point.side), ends[1].clone()].concat());
    }
    vec![table]
}
