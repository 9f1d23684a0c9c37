//! `elastico whatif`

mod admit;
mod capacity;
mod charge;
mod harmed;
mod pairs;
mod price;
mod robust;
mod size;

use super::place::{OptionalModel, Read, State, profiles_beside};
use super::predict::{Model, warn_of_strangers};
use crate::failure::{Ending, check_limit, usage};
use crate::output::{self, Format, Talk};
use clap::Subcommand;
use elastico_core::{PoolId, Seed, SharingMode, WorkloadId};
use elastico_models::Profiles;
use elastico_placement::whatif::{
    self, PairQuestion, PoolAmounts, RobustOptions, Scenario, Side, Target, Verdict, WhatIf,
};
use elastico_placement::{Basis, Jobs, Options};
use elastico_report::{Column, Table, Value};
use std::path::PathBuf;

/// Every question is answered by solving again; nothing is changed.
///
/// Exit code 0 is a yes, 1 a no or "cannot tell".
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
        /// Candidates, by commas or the option repeated; all profiled training and inference where none is named
        #[arg(long, value_delimiter = ',', value_name = "WORKLOAD")]
        among: Vec<WorkloadId>,
        /// Answers at most
        #[arg(long, default_value_t = 10, value_name = "N")]
        top: usize,
        #[command(flatten)]
        question: Question,
    },
    /// Would these new jobs run? Exit code 0 all of them, 1 not all or cannot tell
    Admit {
        /// The new jobs (TOML, JSON or CSV)
        new: PathBuf,
        #[command(flatten)]
        scene: Scene,
    },
    /// What is a GPU worth, and in which range of capacity?
    Price {
        /// Only this pool
        #[arg(long)]
        pool: Option<PoolId>,
        /// In money per hour, at the rate at which all that is used pays its list price
        #[arg(long)]
        per_hour: bool,
        #[command(flatten)]
        scene: Scene,
    },
    /// What would more or fewer GPUs bring?
    #[command(group = clap::ArgGroup::new("sizes").required(true).multiple(true))]
    Capacity {
        /// GPUs to add, each amount a question of its own; repeat the option for several pools
        #[arg(long, group = "sizes", value_name = "POOL:GPUS,…")]
        add: Vec<PoolAmounts>,
        /// GPUs to remove; `all` empties the pool
        #[arg(long, group = "sizes", value_name = "POOL:GPUS,…")]
        remove: Vec<PoolAmounts>,
        #[command(flatten)]
        scene: Scene,
    },
    /// Who would be worse off? Exit code 0 nobody, 1 somebody
    #[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
    Harmed {
        /// With this limit on slowdowns
        #[arg(long, group = "change", value_name = "SLOWDOWN")]
        to_limit: Option<f64>,
        /// If no job shared a GPU
        #[arg(long, group = "change")]
        without_sharing: bool,
        /// With more GPUs in a pool
        #[arg(long, group = "change", value_name = "POOL:GPUS")]
        add: Vec<PoolAmounts>,
        /// With fewer GPUs in a pool
        #[arg(long, group = "change", value_name = "POOL:GPUS")]
        remove: Vec<PoolAmounts>,
        /// With these new jobs (TOML, JSON or CSV)
        #[arg(long, group = "change", value_name = "FILE")]
        new: Option<PathBuf>,
        #[command(flatten)]
        scene: Scene,
    },
    /// How few nodes of a pool are enough? Exit code 0 so many, 1 no number is
    Size {
        #[command(flatten)]
        goal: Goal,
        /// The pool; may be left out where there is one
        #[arg(long)]
        pool: Option<PoolId>,
        #[command(flatten)]
        scene: Scene,
    },
    /// What if the predictions are wrong? Exit code 0 no pair exceeds its limit at the worst, 1 some may
    Robust {
        /// Largest relative error of a predicted slowdown
        #[arg(long, default_value_t = RobustOptions::default().error, value_name = "RATIO")]
        error: f64,
        /// Random draws
        #[arg(long, default_value_t = RobustOptions::default().draws, value_name = "N")]
        draws: u32,
        /// Seed of the draws
        #[arg(long, default_value_t = RobustOptions::default().seed.0, value_name = "N")]
        seed: u64,
        #[command(flatten)]
        scene: Scene,
    },
    /// What should each tenant pay per hour?
    Charge {
        /// One line for each job instead of each tenant
        #[arg(long)]
        by_job: bool,
        #[command(flatten)]
        scene: Scene,
    },
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Goal {
    /// This part of the jobs runs, 1.0 for all
    #[arg(long, value_name = "RATIO")]
    served: Option<f64>,
    /// The normalised throughputs sum to this
    #[arg(long, value_name = "SUM")]
    throughput: Option<f64>,
    /// The objective is worth this
    #[arg(long, value_name = "VALUE")]
    value: Option<f64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Question {
    #[command(flatten)]
    model: Model,

    /// Workload profiles, from `dataset export --table profiles` [default: those beside the model, `MODEL.profiles.json`]
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,

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
pub(crate) struct Scene {
    #[command(flatten)]
    state: State,

    #[command(flatten)]
    model: OptionalModel,

    /// Form of the answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(command: &Command, talk: Talk) -> anyhow::Result<Ending> {
    match command {
        Command::Pair { a, b, question } => {
            let (profiles, ask) = question.ask(talk)?;
            let predictor = question.model.load()?;
            warn_of_strangers(predictor.as_ref(), [ask.device.as_str()], talk);
            let answer = whatif::pair(a, b, &ask, &profiles, predictor.as_ref())?;
            output::answer(question.format, &answer, &[pairs::pair_table(&answer)])?;
            Ok(yes(answer.verdict == Verdict::Yes))
        }
        Command::Partners { subject, among, top, question } => {
            let (profiles, ask) = question.ask(talk)?;
            let predictor = question.model.load()?;
            warn_of_strangers(predictor.as_ref(), [ask.device.as_str()], talk);
            let mut answer = whatif::partners(subject, among, &ask, &profiles, predictor.as_ref())?;
            let any = answer.partners.iter().any(|partner| partner.verdict == Verdict::Yes);
            answer.partners.truncate(*top);
            output::answer(question.format, &answer, &[pairs::partner_table(&answer)])?;
            Ok(yes(any))
        }
        Command::Admit { new, scene } => {
            let new = Jobs::read(new)?;
            let read = scene.read(&new, talk)?;
            let whatif = scene.solve(&read)?;
            let most = whatif.most_trials(&new)?;
            talk.say(format!(
                "placing anew with the new jobs, then at most {most} times for each that would not run"
            ));
            let answer = whatif.admit(&new)?;
            output::answer(scene.format, &answer, &admit::tables(&answer))?;
            Ok(yes(answer.verdict == Verdict::Yes))
        }
        Command::Price { pool, per_hour, scene } => {
            let read = scene.read(&Jobs::default(), talk)?;
            let whatif = scene.solve(&read)?;
            talk.say(format!("placing anew at most {} times", whatif.most_prices(pool.as_ref())?));
            let answer = whatif.price(pool.as_ref())?;
            if *per_hour && answer.money_per_value.is_none() {
                return Err(price::no_money(read.allocator.cluster()));
            }
            output::answer(scene.format, &answer, &price::tables(&answer, *per_hour))?;
            Ok(Ending::Done)
        }
        Command::Capacity { add, remove, scene } => {
            let read = scene.read(&Jobs::default(), talk)?;
            let answer = scene.solve(&read)?.capacity(add, remove)?;
            output::answer(scene.format, &answer, &capacity::tables(&answer))?;
            Ok(Ending::Done)
        }
        Command::Harmed { to_limit, without_sharing, add, remove, new, scene } => {
            let mut change = Scenario::default();
            change.limit = *to_limit;
            change.without_sharing = *without_sharing;
            change.add.clone_from(add);
            change.remove.clone_from(remove);
            if let Some(new) = new {
                change.jobs = Jobs::read(new)?;
            }
            let read = scene.read(&change.jobs, talk)?;
            let answer = scene.solve(&read)?.harmed(&change)?;
            output::answer(scene.format, &answer, &harmed::tables(&answer))?;
            Ok(yes(answer.harmed == 0))
        }
        Command::Size { goal, pool, scene } => {
            let read = scene.read(&Jobs::default(), talk)?;
            let pool = match (pool, read.allocator.cluster().pool.as_slice()) {
                (Some(pool), _) => pool.clone(),
                (None, [only]) => only.id.clone(),
                (None, pools) => {
                    let ids: Vec<&str> = pools.iter().map(|pool| pool.id.as_str()).collect();
                    return Err(usage(
                        format!("the cluster has {} pools: {}", ids.len(), ids.join(", ")),
                        "choose the one to resize with --pool",
                    ));
                }
            };
            let whatif = scene.solve(&read)?;
            let most = whatif.most_sizes(&pool, goal.target())?;
            talk.say(format!("placing anew for at most {most} sizes"));
            let answer = whatif.size(&pool, goal.target())?;
            output::answer(scene.format, &answer, &size::tables(&answer))?;
            Ok(yes(answer.nodes.is_some()))
        }
        Command::Robust { error, draws, seed, scene } => {
            let read = scene.read(&Jobs::default(), talk)?;
            if read.table.is_none() {
                return Err(usage("without a model nothing is predicted", "name one with --model"));
            }
            talk.say(format!("placing anew for each of {draws} draws and the worst case"));
            let options = RobustOptions { error: *error, draws: *draws, seed: Seed(*seed) };
            let answer = scene.solve(&read)?.robust(options)?;
            output::answer(scene.format, &answer, &robust::tables(&answer))?;
            Ok(yes(answer.worst.breaches == 0))
        }
        Command::Charge { by_job, scene } => {
            let read = scene.read(&Jobs::default(), talk)?;
            let answer = scene.solve(&read)?.charge()?;
            output::answer(scene.format, &answer, &charge::tables(&answer, *by_job))?;
            Ok(Ending::Done)
        }
    }
}

const fn yes(answer: bool) -> Ending {
    if answer { Ending::Done } else { Ending::Negative }
}

impl Goal {
    /// Exactly one is there: clap sees to it.
    fn target(&self) -> Target {
        let served = self.served.map(Target::Served);
        let throughput = || self.throughput.map(Target::Throughput);
        served.or_else(throughput).unwrap_or(Target::Value(self.value.unwrap_or(f64::NAN)))
    }
}

impl Question {
    fn ask(&self, talk: Talk) -> anyhow::Result<(Profiles, PairQuestion)> {
        let Some(profiles) = self.profiles.clone().or_else(|| profiles_beside(&self.model.model, talk))
        else {
            return Err(usage("no profiles lie beside the model", "name some with --profiles"));
        };
        let profiles = Profiles::read(&profiles)?;
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
    /// Reads the state; the predictor is asked about the workloads of the new jobs too.
    fn read(&self, new: &Jobs, talk: Talk) -> anyhow::Result<Read> {
        let predictor = self.model.load()?;
        self.state.read_with(new, &self.model, predictor.as_deref(), talk)
    }

    #[expect(clippy::unused_self, reason = "the scene is what is solved")]
    fn solve<'a>(&self, read: &'a Read) -> Result<WhatIf<'a>, elastico_placement::Error> {
        WhatIf::new(&read.allocator, &read.jobs, &read.profiles, read.table.as_ref())
    }
}

/// The columns of a solution.
fn side_columns() -> Vec<Column> {
    vec![
        Column::number("gpus", "").label("GPUs"),
        Column::number("value", ""),
        Column::number("bound", ""),
        Column::number("gap_ratio", "").label("gap"),
        Column::number("throughput", ""),
        Column::number("running", "").label("run"),
        Column::number("pairs", ""),
        Column::number("waiting", "").label("wait"),
    ]
}

fn side_values(side: &Side) -> Vec<Value> {
    // Large values with three decimals would not leave room for the rest of the line.
    let decimals = if side.bound < 1000.0 { 3 } else { 1 };
    vec![
        Value::Count(u64::from(side.gpus)),
        Value::number(side.value, decimals),
        Value::number(side.bound, decimals),
        Value::number(side.gap, 4),
        Value::number(side.throughput, decimals),
        side.running.into(),
        side.pairs.into(),
        side.waiting.into(),
    ]
}

/// Two solutions, one above the other.
fn sides(schema: &str, title: String, sides: &[(&str, &Side)]) -> Table {
    let columns = [vec![Column::text("state")], side_columns()].concat();
    let mut table = Table::new(schema, title, columns);
    for (name, side) in sides {
        table.push([vec![Value::from(*name)], side_values(side)].concat());
    }
    table
}

/// What the numbers rest on.
fn behind(basis: &Basis) -> String {
    let kinds: Vec<String> = basis.device_kinds.iter().map(ToString::to_string).collect();
    let data =
        if kinds.is_empty() { "the jobs file alone".to_owned() } else { kinds.join(" and ") + " data" };
    let model = basis.model.as_ref().map_or(String::new(), |model| {
        format!(", model {} with bounds at {:.0} %", model.learner, model.conformal_level * 100.0)
    });
    format!("rests on {data}{model}")
}

/// What stands before each title.
fn label(basis: &Basis) -> &'static str {
    if basis.simulated { "simulated: " } else { "" }
}

fn optional(value: Option<f64>, decimals: usize) -> Value {
    value.map_or(Value::Missing, |value| Value::number(value, decimals))
}

/// A change with its sign; what rounds to nothing has none.
fn signed(change: f64) -> String {
    if change.abs() < 5e-4 { "0.000".to_owned() } else { format!("{change:+.3}") }
}
