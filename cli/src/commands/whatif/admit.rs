//! Tables about new jobs.

use super::pairs::verdict;
use super::{behind, harmed, label, optional, sides, signed};
use elastico_placement::whatif::{Admission, AdmitAnswer, Verdict};
use elastico_report::{Column, Table, Value};

pub(super) fn tables(answer: &AdmitAnswer) -> Vec<Table> {
    let run = answer.jobs.iter().filter(|job| job.verdict == Verdict::Yes).count();
    let mut jobs = Table::new(
        &answer.schema,
        format!(
            "{}{run} of {} new jobs would run: {}",
            label(&answer.basis),
            answer.jobs.len(),
            verdict(answer.verdict)
        ),
        vec![
            Column::text("job"),
            Column::text("runs"),
            Column::text("how"),
            Column::number("slowdown_upper", "").label("upper"),
            Column::number("value", ""),
            Column::number("price", ""),
            Column::number("entry_slot_price", "").label("alone at"),
        ],
    );
    for job in &answer.jobs {
        let state = job.state.as_ref();
        jobs.push(vec![
            job.job.as_str().into(),
            if job.never && job.verdict == Verdict::No { "never" } else { verdict(job.verdict) }.into(),
            harmed::place(state),
            optional(state.map(|state| state.slowdown_upper), 2),
            optional(job.value, 3),
            optional(job.price, 3),
            optional(job.entry.as_ref().map(|entry| entry.entry_slot_price), 3),
        ]);
    }
    let mut tables = vec![
        jobs,
        sides(
            &answer.schema,
            format!(
                "value {}, between {} and {} for certain; {}",
                signed(answer.value_delta),
                signed(answer.value_delta_range[0]),
                signed(answer.value_delta_range[1]),
                behind(&answer.basis)
            ),
            &[("without", &answer.before), ("with", &answer.after)],
        ),
    ];
    tables
        .extend(answer.jobs.iter().filter(|job| job.verdict != Verdict::Yes).map(|job| why_not(answer, job)));
    if !answer.harmed.is_empty() {
        tables.push(harmed::effects(&answer.schema, "jobs that would pay for it", &answer.harmed));
    }
    tables
}

fn why_not(answer: &AdmitAnswer, job: &Admission) -> Table {
    let binds = job.binding.map_or(String::new(), |resource| format!("; binds: {resource}"));
    let refused: Vec<String> =
        job.refused_partners.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let refused =
        if refused.is_empty() { String::new() } else { format!("; no co-runner: {}", refused.join(", ")) };
    let mut table = Table::new(
        &answer.schema,
        format!("{}: {}{binds}{refused}", job.job, job.why),
        vec![
            Column::text("change").label("what would let it in"),
            Column::text("admits"),
            Column::number("cost_to_others", "").label("cost to others"),
            Column::number("money_per_hour", "").label("money per hour"),
            Column::text("displaced").label("would stop"),
        ],
    );
    for remedy in &job.remedies {
        let displaced: Vec<&str> = remedy.displaced.iter().map(elastico_core::JobId::as_str).collect();
        table.push(vec![
            remedy.change.as_str().into(),
            remedy.admits.into(),
            optional(remedy.cost_to_others, 3),
            optional(remedy.money_per_hour, 2),
            displaced.join(" ").into(),
        ]);
    }
    for dropped in &job.forbidden {
        let need = dropped.remedy.as_ref().unwrap_or(&dropped.reason);
        let change = format!("on {}: {need}", dropped.pool);
        table.push(vec![change.into(), Value::Missing, Value::Missing, Value::Missing, Value::Missing]);
    }
    if job.verdict == Verdict::CannotTell {
        let measure = "measure its workload, or give it a `shape` in the jobs file";
        table.push(vec![measure.into(), Value::Missing, Value::Missing, Value::Missing, Value::Missing]);
    }
    table
}
