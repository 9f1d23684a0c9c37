//! `elastico doctor`

use crate::failure::Ending;
use crate::output::{self, Format};
use elastico_gpu::probe::{Check, ProbeOptions, Status, probe};
use elastico_report::{Column, Table, Value};
use serde::Serialize;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Form of the answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Answer {
    schema: &'static str,
    abilities: Vec<Ability>,
    checks: Vec<Check>,
}

/// What a user may want to do, and whether this machine can.
#[derive(Serialize)]
struct Ability {
    command: &'static str,
    possible: bool,
    reason: String,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    let mut checks = probe(&ProbeOptions::default());
    checks.push(onnx_runtime());
    let abilities = abilities(&checks);
    let blocked = checks.iter().any(|check| check.status == Status::Blocked);
    let tables = [ability_table(&abilities), check_table(&checks)];
    output::answer(arguments.format, &Answer { schema: "elastico.doctor/1", abilities, checks }, &tables)?;
    Ok(if blocked { Ending::Negative } else { Ending::Done })
}

/// ONNX Runtime is optional: the native back end reads the same files.
fn onnx_runtime() -> Check {
    let (status, finding, fix) = match elastico_models::runtime_library(None) {
        Ok(path) => (Status::Ok, format!("`{}`", path.display()), None),
        Err(error) => (
            if matches!(error, elastico_models::Error::LibraryMissing { .. }) {
                Status::Absent
            } else {
                Status::Warn
            },
            format!("{error}; the native back end is used"),
            elastico_core::Hint::hint(&error),
        ),
    };
    Check { id: "onnx_runtime.library".to_owned(), area: "models", status, finding, fix }
}

fn abilities(checks: &[Check]) -> Vec<Ability> {
    let state = |prefix: &str| {
        checks
            .iter()
            .filter(|check| check.id.starts_with(prefix))
            .max_by_key(|check| check.status)
            .map(|check| (check.status, check.finding.clone()))
    };
    let usable = |prefix: &str| match state(prefix) {
        Some((Status::Ok | Status::Warn, finding)) => (true, finding),
        Some((_, finding)) => (false, finding),
        None => (false, "not looked at".to_owned()),
    };
    let (cuda, why_cuda) = usable("cuda.");
    let (cpu, why_cpu) = usable("host.cores");
    let (counters, why_counters) = usable("counters.");
    let (mps, why_mps) = usable("mps.");
    let ability = |command, possible, reason| Ability { command, possible, reason };
    vec![
        ability("profile run on sim:<chip>", true, "the fluid model needs no device".to_owned()),
        ability("profile run on cpu", cpu, why_cpu),
        ability(
            "profile run on cuda:N",
            false,
            if cuda { "this version measures on cpu and sim only".to_owned() } else { why_cuda },
        ),
        ability("hardware counters", cuda && counters, why_counters),
        ability("sharing by MPS", cuda && mps, why_mps),
        ability("train, predict, place, simulate", true, "need no device".to_owned()),
    ]
}

fn ability_table(abilities: &[Ability]) -> Table {
    let mut table = Table::new(
        "elastico.doctor/1",
        "what this machine can do",
        vec![Column::text("command"), Column::text("possible"), Column::text("reason")],
    );
    for ability in abilities {
        table.push(vec![
            ability.command.into(),
            Value::Flag(ability.possible),
            ability.reason.as_str().into(),
        ]);
    }
    table
}

fn check_table(checks: &[Check]) -> Table {
    let mut table = Table::new(
        "elastico.doctor/1",
        "what was looked at",
        vec![Column::text("check"), Column::text("status"), Column::text("finding"), Column::text("fix")],
    );
    for check in checks {
        table.push(vec![
            check.id.as_str().into(),
            check.status.as_str().into(),
            check.finding.as_str().into(),
            check.fix.as_deref().map_or(Value::Missing, Value::from),
        ]);
    }
    table
}
