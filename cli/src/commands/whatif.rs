//! `elastico whatif`

use super::place::{OptionalModel, State};
use super::predict::{Model, warn_of_strangers};
use crate::failure::{Ending, check_limit, usage};
use crate::output::{self, Format, Talk};
use clap::Subcommand;
use elastico_core::{PoolId, SharingMode, WorkloadId};
use elastico_models::Profiles;
use elastico_placement::Options;
use elastico_placement::whatif::{self, Change, PairAnswer, PairQuestion, PartnersAnswer, Verdict, WhatIf};
use elastico_report::{Column, Table, Value};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Can these two share a GPU? Exit code 0 yes, 1 no or cannot tell
    Pair {
        /// One workload
        a: WorkloadId,
        /// The other
        b: WorkloadId,
        #[command(flatten)]
        question: Question,
    },
    /// Who should share a GPU with this workload?
    Partners {
        /// The workload
        subject: WorkloadId,
        /// Candidates; all profiled workloads where none is named
        #[arg(long, value_delimiter = ',', value_name = "WORKLOAD")]
        among: Vec<WorkloadId>,
        /// Answers at most
        #[arg(long, default_value_t = 10, value_name = "N")]
        top: usize,
        #[command(flatten)]
        question: Question,
    },
    /// What would more GPUs bring?
    Add {
        #[command(flatten)]
        gpus: Gpus,
    },
    /// What would fewer GPUs cost?
    Remove {
        #[command(flatten)]
        gpus: Gpus,
    },
    /// What would be lost if no job shared a GPU?
    WithoutSharing {
        #[command(flatten)]
        scene: Scene,
    },
    /// What would another limit on slowdowns bring?
    Limit {
        /// The new limit
        slowdown: f64,
        #[command(flatten)]
        scene: Scene,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Question {
    #[command(flatten)]
    model: Model,

    /// Workload profiles, from `dataset export --table profiles`
    #[arg(long, value_name = "FILE")]
    profiles: PathBuf,

    /// The chip; the one of the profiles where they know just one
    #[arg(long, value_name = "CHIP")]
    device: Option<String>,

    /// Sharing modes to try; repeat the option for several
    #[arg(long, value_name = "MODE")]
    sharing: Vec<SharingMode>,

    /// Most slowdown that either side may suffer
    #[arg(long, default_value_t = Options::default().limit, value_name = "SLOWDOWN")]
    limit: f64,

    /// Form of the answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Gpus {
    /// The pool
    pool: PoolId,
    /// How many GPUs
    count: u32,
    #[command(flatten)]
    scene: Scene,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Scene {
    #[command(flatten)]
    state: State,

    #[command(flatten)]
    model: OptionalModel,

    /// Form of the answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method is tied to one lifetime, the closure to any"
)]
pub(crate) fn run(command: &Command, talk: Talk) -> anyhow::Result<Ending> {
    match command {
        Command::Pair { a, b, question } => {
            let (profiles, ask) = question.ask()?;
            let predictor = question.model.load()?;
            warn_of_strangers(predictor.as_ref(), [ask.device.as_str()], talk);
            let answer = whatif::pair(a, b, &ask, &profiles, predictor.as_ref())?;
            output::answer(question.format, &answer, &[pair_table(&answer)])?;
            Ok(if answer.verdict == Verdict::Yes { Ending::Done } else { Ending::Negative })
        }
        Command::Partners { subject, among, top, question } => {
            let (profiles, ask) = question.ask()?;
            let predictor = question.model.load()?;
            warn_of_strangers(predictor.as_ref(), [ask.device.as_str()], talk);
            let mut answer = whatif::partners(subject, among, &ask, &profiles, predictor.as_ref())?;
            let any = answer.partners.iter().any(|partner| partner.verdict == Verdict::Yes);
            answer.partners.truncate(*top);
            output::answer(question.format, &answer, &[partner_table(&answer)])?;
            Ok(if any { Ending::Done } else { Ending::Negative })
        }
        Command::Add { gpus } => {
            gpus.scene.ask(talk, |scene| scene.capacity(&[(gpus.pool.clone(), i64::from(gpus.count))]))
        }
        Command::Remove { gpus } => {
            gpus.scene.ask(talk, |scene| scene.capacity(&[(gpus.pool.clone(), -i64::from(gpus.count))]))
        }
        Command::WithoutSharing { scene } => scene.ask(talk, |state| state.without_sharing()),
        Command::Limit { slowdown, scene } => scene.ask(talk, |state| state.limit(*slowdown)),
    }
}

impl Question {
    fn ask(&self) -> anyhow::Result<(Profiles, PairQuestion)> {
        let profiles = Profiles::read(&self.profiles)?;
        let device = match &self.device {
            Some(device) => device.clone(),
            None => {
                let devices: std::collections::BTreeSet<&str> =
                    profiles.iter().map(|profile| profile.device.as_str()).collect();
                match devices.iter().collect::<Vec<_>>().as_slice() {
                    [device] => (**device).to_owned(),
                    _ => {
                        let known: Vec<&str> = devices.into_iter().collect();
                        return Err(usage(
                            format!("the profiles know {} devices: {}", known.len(), known.join(", ")),
                            "choose one with --device",
                        ));
                    }
                }
            }
        };
        let mut question = PairQuestion::on(device, &Options { limit: self.limit, ..Options::default() });
        check_limit(self.limit)?;
        if !self.sharing.is_empty() {
            question.sharing.clone_from(&self.sharing);
        }
        Ok((profiles, question))
    }
}

impl Scene {
    fn ask(
        &self,
        talk: Talk,
        question: impl FnOnce(&WhatIf<'_>) -> Result<Change, elastico_placement::Error>,
    ) -> anyhow::Result<Ending> {
        let predictor = self.model.load()?;
        let read = self.state.read(predictor.as_deref(), talk)?;
        let scene = WhatIf::new(&read.allocator, &read.jobs, &read.profiles, read.table.as_ref())?;
        let change = question(&scene)?;
        output::answer(self.format, &change, &[change_table(&change)])?;
        Ok(Ending::Done)
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Yes => "yes",
        Verdict::No => "no",
        Verdict::CannotTell => "cannot tell",
    }
}

fn pair_table(answer: &PairAnswer) -> Table {
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

fn partner_table(answer: &PartnersAnswer) -> Table {
    let simulated = answer.partners.iter().any(|partner| partner.basis.simulated);
    let mut table = Table::new(
        &answer.schema,
        format!("{}co-runners for {}", if simulated { "simulated: " } else { "" }, answer.subject),
        vec![
            Column::text("co_runner"),
            Column::text("verdict"),
            Column::text("sharing").label("best sharing"),
            Column::number("slowdown", ""),
            Column::number("upper", ""),
            Column::number("co_runner_slowdown", "").label("its slowdown"),
            Column::number("stp", "").label("STP"),
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
            number(best.map(|way| way.stp)),
        ]);
    }
    table
}

fn change_table(change: &Change) -> Table {
    let label = if change.basis.simulated { "simulated: " } else { "" };
    let mut table = Table::new(
        &change.schema,
        format!(
            "{label}{}: value {:+.4}, between {:+.4} and {:+.4} for certain",
            change.question, change.value_delta, change.value_delta_range[0], change.value_delta_range[1]
        ),
        vec![
            Column::text("side"),
            Column::number("gpus", "").label("GPUs"),
            Column::number("value", ""),
            Column::number("bound", ""),
            Column::number("gap", ""),
            Column::number("running", "jobs"),
            Column::number("pairs", ""),
            Column::number("waiting", "jobs"),
        ],
    );
    for (name, side) in [("before", &change.before), ("after", &change.after)] {
        table.push(vec![
            name.into(),
            Value::Count(u64::from(side.gpus)),
            Value::number(side.value, 4),
            Value::number(side.bound, 4),
            Value::number(side.gap, 5),
            side.running.into(),
            side.pairs.into(),
            side.waiting.into(),
        ]);
    }
    table
}
