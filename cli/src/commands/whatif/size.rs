//! Tables about the smallest pool.

use super::{behind, label};
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
            let pool = |money: f64| format!(", {money:.2} money per hour for the pool");
            let mut money = answer.money_per_hour.map_or(String::new(), pool);
            if let Some(all) = answer.cluster_money_per_hour.filter(|all| Some(*all) != answer.money_per_hour)
            {
                money += &format!(", {all:.2} for the cluster");
            }
            let proof = match answer.smallest {
                Some(Smallest::Proven) => "; the bound proves that fewer do not",
                Some(Smallest::Neighbours) => {
                    "; one and two fewer were tried and do not, sizes not listed were not tried"
                }
                Some(Smallest::Empty) | None => "",
            };
            let plural = if nodes == 1 { "" } else { "s" };
            let monotone = if answer.monotone { "" } else { "; not every larger size reaches it" };
            format!(
                "{nodes} node{plural} of {} instead of {}{money}{proof}{monotone}",
                answer.pool, answer.nodes_now
            )
        }
        (None, why) => format!("not reachable: {}", why.as_deref().unwrap_or("no size reaches it")),
    };
    let mut table = Table::new(
        &answer.schema,
        format!("{}{goal}: {found}; {}", label(&answer.basis), behind(&answer.basis)),
        vec![
            Column::number("nodes", ""),
            Column::number("pool_gpus", "").label("GPUs"),
            Column::number("value", ""),
            Column::number("bound", ""),
            Column::number("throughput", ""),
            Column::number("running", "").label("run"),
            Column::number("waiting", "").label("wait"),
            Column::text("reached"),
        ],
    );
    for point in &answer.tried {
        let side = &point.side;
        table.push(vec![
            Value::Count(u64::from(point.nodes)),
            Value::Count(u64::from(point.pool_gpus)),
            Value::number(side.value, 3),
            Value::number(side.bound, 3),
            Value::number(side.throughput, 3),
            side.running.into(),
            side.waiting.into(),
            point.reached.into(),
        ]);
    }
    vec![table]
}
