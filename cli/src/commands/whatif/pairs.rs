//! Tables about pairs.

use elastico_placement::whatif::{PairAnswer, PartnersAnswer, Verdict};
use elastico_report::{Column, Table, Value};

pub(super) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Yes => "yes",
        Verdict::No => "no",
        Verdict::CannotTell => "cannot tell",
    }
}

pub(super) fn pair_table(answer: &PairAnswer) -> Table {
    let label = if answer.basis.simulated { "simulated: " } else { "" };
    let mut table = Table::new(
        &answer.schema,
        format!(
            "{label}{} beside {} on {} under {:.2}x: {}; binds: {}",
            answer.a,
            answer.b,
            answer.device,
            answer.limit,
            verdict(answer.verdict),
            answer.binds
        ),
        vec![
            Column::text("sharing"),
            Column::number("a_slowdown", "").label("A"),
            Column::number("a_upper", "").label("A upper"),
            Column::number("b_slowdown", "").label("B"),
            Column::number("b_upper", "").label("B upper"),
            Column::number("stp", "").label("STP"),
            Column::text("in_domain"),
            Column::text("verdict"),
        ],
    );
    for way in &answer.ways {
        table.push(vec![
            way.sharing.to_string().into(),
            Value::number(way.slowdown[0], 2),
            Value::number(way.upper[0], 2),
            Value::number(way.slowdown[1], 2),
            Value::number(way.upper[1], 2),
            Value::number(way.stp, 2),
            Value::Flag(way.in_domain),
            verdict(way.verdict).into(),
        ]);
    }
    table
}

pub(super) fn partner_table(answer: &PartnersAnswer) -> Table {
    let simulated = answer.partners.iter().any(|partner| partner.basis.simulated);
    let mut table = Table::new(
        &answer.schema,
        format!("{}co-runners for {}", if simulated { "simulated: " } else { "" }, answer.subject),
        vec![
            Column::text("co_runner").whole(),
            Column::text("verdict"),
            Column::text("sharing"),
            Column::number("slowdown", "").label("slowed").spare(),
            Column::number("upper", ""),
            Column::number("co_runner_slowdown", "").label("its own").spare(),
        ],
    );
    for partner in &answer.partners {
        let best = partner.ways.first();
        let number = |value: Option<f64>| value.map_or(Value::Missing, |value| Value::number(value, 2));
        table.push(vec![
            partner.b.as_str().into(),
            verdict(partner.verdict).into(),
            best.map_or(Value::Missing, |way| way.sharing.to_string().into()),
            number(best.map(|way| way.slowdown[0])),
            number(best.map(|way| way.upper[0])),
            number(best.map(|way| way.slowdown[1])),
        ]);
    }
    table
}
