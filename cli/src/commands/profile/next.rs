//! `elastico profile next`

use super::super::predict::warn_of_strange_sharing;
use super::{Source, open};
use crate::artefacts::Artefacts;
use crate::failure::{Ending, check_limit, usage};
use crate::output::{self, Format, Talk};
use anyhow::Context as _;
use elastico_core::{DeviceName, SharingMode, WorkloadId};
use elastico_datasets::Dataset;
use elastico_models::{ModelSpec, Profiles};
use elastico_placement::Jobs;
use elastico_profiler::{Campaign, DeviceIdentity, Plan};
use elastico_report::{Column, Table, Value};
use elastico_trainer::{Candidates, Measured, NextOptions, Proposal, pairs_among, propose};
use elastico_workloads::Catalogue;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The model file, trained on what was measured so far
    #[arg(long, value_name = "FILE")]
    model: PathBuf,

    /// What was measured so far: isolated runs, and pairs that are not proposed again
    #[arg(long, value_name = "FOLDER", required_unless_present = "profiles")]
    dataset: Option<PathBuf>,

    /// Workload profiles instead of the dataset's, from `dataset export --table profiles`
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,

    #[command(flatten)]
    source: Source,

    /// Which workloads of the catalogue may be paired: ids, families, kinds, or tr_*; with --jobs, those of the jobs
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', default_values_t = ["training".to_owned(), "inference".to_owned()])]
    workloads: Vec<String>,

    /// The device to measure on: `cuda:0`, `sim:h100`
    #[arg(long, value_name = "DEVICE")]
    device: DeviceName,

    /// Sharing modes that each pair is measured under; repeat the option for several
    #[arg(long, value_name = "MODE", default_value = "time_slice")]
    sharing: Vec<SharingMode>,

    /// How many pairs
    #[arg(long, value_name = "PAIRS", value_parser = clap::value_parser!(u32).range(1..))]
    budget: u32,

    /// Jobs (TOML, JSON or CSV): pairs of workloads that occur often come first
    #[arg(long, value_name = "FILE")]
    jobs: Option<PathBuf>,

    /// Most slowdown at which two workloads may share
    #[arg(long, default_value_t = elastico_placement::Options::default().limit, value_name = "SLOWDOWN")]
    limit: f64,

    /// Seed of the campaign; by default one that no run in the dataset had, so that both can be merged
    #[arg(long)]
    seed: Option<u32>,

    /// Write the campaign here instead of to stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Replace a file that exists
    #[arg(long)]
    force: bool,

    /// Choose and say what would be written
    #[arg(long)]
    dry_run: bool,

    /// Print the pairs with their scores; without it, stdout gets the campaign unless --out names a file
    #[arg(long, value_enum)]
    format: Option<Format>,
}

/// One line of the answer.
enum Choice {
    /// A workload that nobody measured alone, with whom it runs instead of another.
    Alone(WorkloadId, WorkloadId),
    Pair(Proposal),
}

impl Choice {
    fn sides(&self) -> (&WorkloadId, &WorkloadId) {
        match self {
            Self::Alone(workload, beside) => (workload, beside),
            Self::Pair(proposal) => (&proposal.subject, &proposal.co_runner),
        }
    }
}

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    check_limit(arguments.limit)?;
    let inputs = [&arguments.dataset, &arguments.profiles, &arguments.jobs, &arguments.source.catalogue];
    let inputs = inputs.into_iter().flatten().chain([&arguments.model]);
    let artefacts =
        Artefacts::files(arguments.out.as_deref().map(|out| ("--out", out)), arguments.force, inputs)?;
    let modes = &arguments.sharing;
    if let Some((_, mode)) = modes.iter().enumerate().find(|(index, mode)| modes[..*index].contains(mode)) {
        return Err(usage(format!("--sharing names {mode} twice"), "name each sharing mode once"));
    }
    let spec = read_model(&arguments.model)?;
    let dataset = arguments.dataset.as_deref().map(Dataset::read).transpose()?;
    let profiles = match (&arguments.profiles, &dataset) {
        (Some(file), _) => Profiles::read(file)?,
        (None, Some(dataset)) => elastico_trainer::profiles(dataset)?,
        (None, None) => return Err(usage("no profiles are known", "give --dataset or --profiles")),
    };
    let catalogue = arguments.source.read()?;
    let frequency = arguments.jobs.as_deref().map(|file| frequency(file, &catalogue, talk)).transpose()?;
    let device = open(&arguments.device, None)?.identity().clone();
    warn_of_another_device(&spec, &device, talk);
    warn_of_strange_sharing(&spec.metadata, &arguments.sharing, talk);

    let workloads = workloads(arguments, &catalogue, frequency.as_ref())?;
    let is_known = |id: &&WorkloadId| {
        let profile = profiles.get(id.as_str(), &device.model);
        profile.is_ok_and(|profile| profile.device_kind == device.kind && !profile.fields.is_empty())
    };
    let (known, unknown): (Vec<&WorkloadId>, Vec<&WorkloadId>) = workloads.iter().partition(is_known);
    let mut pairs = pairs_among(&known.into_iter().cloned().collect::<Vec<_>>(), &arguments.sharing);
    let own = unknown.iter().map(|id| ((*id).clone(), (*id).clone()));
    let all: Vec<_> = pairs.iter().cloned().chain(own).collect();
    let too_large = too_large(arguments, &catalogue, &device, &all)?;
    pairs.retain(|pair| !too_large.contains(pair));

    let budget = arguments.budget as usize;
    let mut choices: Vec<Choice> = Vec::with_capacity(budget);
    for &id in unknown.iter().take(budget) {
        let own = (id.clone(), id.clone());
        // Beside itself it teaches something; beside the idle workload it always fits.
        let beside = if too_large.contains(&own) { null(&catalogue)? } else { id.clone() };
        choices.push(Choice::Alone(id.clone(), beside));
    }
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().take(3).map(|id| id.as_str()).collect();
        talk.say(format!(
            "{} of {} workloads have no isolated run on {} ({}): {} ({}{}); these come first, then run this command again",
            unknown.len(),
            workloads.len(),
            device.model,
            device.kind,
            choices.len(),
            names.join(", "),
            if unknown.len() > names.len() { ", …" } else { "" },
        ));
    }
    let measured = match &dataset {
        Some(dataset) => Measured::of(dataset, &device.model)?,
        None => Measured::default(),
    };
    let open_pairs = pairs.len();
    if choices.len() < budget && (choices.is_empty() || !pairs.is_empty()) {
        let candidates = Candidates {
            pairs: &pairs,
            sharing: &arguments.sharing,
            device: &device.model,
            profiles: &profiles,
            measured: &measured,
            frequency: &frequency.unwrap_or_default(),
        };
        let options =
            NextOptions { budget: budget - choices.len(), limit: arguments.limit, ..NextOptions::default() };
        match propose(&spec, &candidates, &options) {
            // Isolated runs are worth a campaign of their own.
            Err(elastico_trainer::Error::NothingLeft { .. }) if !choices.is_empty() => {}
            proposals => choices.extend(proposals?.into_iter().map(Choice::Pair)),
        }
    }
    if choices.len() < budget {
        talk.say(format!("only {} are left of the {budget} pairs asked for", choices.len()));
    }
    let seed = arguments.seed.unwrap_or_else(|| fresh_seed(dataset.as_ref()));
    let text = campaign(arguments, &choices, open_pairs, seed);
    // What is printed must be a campaign: the reader of campaigns says so.
    Campaign::parse(&text, Path::new("campaign.toml"))?;
    write(arguments, &spec, &device, &choices, &text, &artefacts, talk)?;
    Ok(Ending::Done)
}

fn write(
    arguments: &Arguments,
    spec: &ModelSpec,
    device: &DeviceIdentity,
    choices: &[Choice],
    text: &str,
    artefacts: &Artefacts,
    talk: Talk,
) -> anyhow::Result<()> {
    if let Some(format) = arguments.format {
        output::answer_table(format, &table(spec, device, choices))?;
    }
    match &arguments.out {
        Some(out) if arguments.dry_run => {
            talk.say(format!("would write a campaign of {} pairs to `{}`", choices.len(), out.display()));
        }
        Some(out) => {
            artefacts.prove_writable()?;
            artefacts.write(&[text.as_bytes()])?;
            talk.say(format!("wrote `{}`: {} pairs", out.display(), choices.len()));
            talk.say(format!("measure them: elastico profile run {} --out RUN", out.display()));
        }
        None if arguments.format.is_none() => output::print(text)?,
        None => {}
    }
    Ok(())
}

fn read_model(file: &Path) -> anyhow::Result<ModelSpec> {
    // The loader looks at the size before it reads, and names what is wrong with a file that is no model.
    let context = || format!("cannot use the model `{}`", file.display());
    elastico_models::load(file, elastico_models::Backend::Native).with_context(context)?;
    let bytes = std::fs::read(file).with_context(context)?;
    ModelSpec::from_onnx(&bytes).with_context(context)
}

fn warn_of_another_device(spec: &ModelSpec, device: &DeviceIdentity, talk: Talk) {
    let metadata = &spec.metadata;
    if !metadata.devices.contains(&device.model) || !metadata.device_kinds.contains(&device.kind) {
        let kinds: Vec<&str> = metadata.device_kinds.iter().map(|kind| kind.as_str()).collect();
        talk.say(format!(
            "the model knows {} ({}), not {} ({}): the order is a first guess, train again after a few pairs",
            metadata.devices.join(", "),
            kinds.join(", "),
            device.model,
            device.kind
        ));
    }
}

/// How many jobs of each workload may share; workloads outside the catalogue cannot be measured by a campaign.
fn frequency(file: &Path, catalogue: &Catalogue, talk: Talk) -> anyhow::Result<BTreeMap<WorkloadId, f64>> {
    let mut counts: BTreeMap<WorkloadId, f64> = BTreeMap::new();
    let mut left_out: BTreeSet<WorkloadId> = BTreeSet::new();
    for job in Jobs::read(file)?.job.into_iter().filter(|job| job.allow_sharing) {
        let Some(workload) = job.workload else { continue };
        if catalogue.get(workload.as_str()).is_ok() {
            *counts.entry(workload).or_default() += 1.0;
        } else {
            left_out.insert(workload);
        }
    }
    if let Some(first) = left_out.first() {
        talk.say(format!("{} workloads of the jobs are not in the catalogue ({first}, …)", left_out.len()));
    }
    if counts.is_empty() {
        return Err(usage(
            format!("`{}` has no job with a workload of the catalogue that may share", file.display()),
            "name workloads of the catalogue, add yours with --catalogue, or leave --jobs out",
        ));
    }
    Ok(counts)
}

fn workloads(
    arguments: &Arguments,
    catalogue: &Catalogue,
    frequency: Option<&BTreeMap<WorkloadId, f64>>,
) -> anyhow::Result<Vec<WorkloadId>> {
    if let Some(frequency) = frequency {
        return Ok(frequency.keys().cloned().collect());
    }
    let selected = catalogue.select(&arguments.workloads.join(","))?;
    Ok(selected.into_iter().map(|benchmark| benchmark.id.clone()).collect())
}

/// The pairs that a plan of all of them would skip, seen from either side.
fn too_large(
    arguments: &Arguments,
    catalogue: &Catalogue,
    device: &DeviceIdentity,
    pairs: &[(WorkloadId, WorkloadId)],
) -> anyhow::Result<BTreeSet<(WorkloadId, WorkloadId)>> {
    if pairs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let pairs: Vec<String> =
        pairs.iter().map(|(subject, co_runner)| list([subject.as_str(), co_runner.as_str()])).collect();
    let text = header(arguments, 0) + &format!("pairs = [{}]\n", pairs.join(", "));
    let plan = Plan::new(&Campaign::parse(&text, Path::new("campaign.toml"))?, catalogue, device)?;
    let skipped = plan.skipped.into_iter().filter_map(|skipped| Some((skipped.subject, skipped.co_runner?)));
    Ok(skipped.flat_map(|(a, b)| [(a.clone(), b.clone()), (b, a)]).collect())
}

fn null(catalogue: &Catalogue) -> anyhow::Result<WorkloadId> {
    let null = catalogue.select(elastico_core::WorkloadKind::Null.as_str())?;
    null.first().map(|benchmark| benchmark.id.clone()).context("the catalogue has no idle workload")
}

/// Trials are named by configuration and seed, and a dataset holds each name once.
fn fresh_seed(dataset: Option<&Dataset>) -> u32 {
    let digest = dataset.map(|dataset| dataset.content_digest().as_str()[..7].to_owned());
    digest.and_then(|digits| u32::from_str_radix(&digits, 16).ok()).unwrap_or(1)
}

/// A list of texts in TOML.
fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    toml::Value::from(texts.into_iter().map(str::to_owned).collect::<Vec<_>>()).to_string()
}

fn header(arguments: &Arguments, seed: u32) -> String {
    let modes: Vec<String> = arguments.sharing.iter().map(ToString::to_string).collect();
    let device = toml::Value::from(arguments.device.to_string());
    let sharing = list(modes.iter().map(String::as_str));
    format!(
        "schema = 1\nname = \"next\"\nseed = {seed}\ndevice = {device}\nsharing = {sharing}\n\n[workloads]\n"
    )
}

fn campaign(arguments: &Arguments, choices: &[Choice], open: usize, seed: u32) -> String {
    let alone = choices.iter().filter(|choice| matches!(choice, Choice::Alone(..))).count();
    let mut what = Vec::new();
    if alone > 0 {
        what.push(format!("{alone} workloads without an isolated run"));
    }
    if choices.len() > alone {
        what.push(format!("{} of {open} pairs, those that teach most first", choices.len() - alone));
    }
    let mut text = format!(
        "# `elastico profile next`: {}.\n{}pairs = [\n",
        what.join(", then "),
        header(arguments, seed)
    );
    for choice in choices {
        let (subject, co_runner) = choice.sides();
        let why = match choice {
            Choice::Alone(workload, _) => format!("no isolated run of {workload} yet"),
            Choice::Pair(proposal) => format!("score {:.4}", proposal.score),
        };
        let _ = writeln!(text, "    {}, # {why}", list([subject.as_str(), co_runner.as_str()]));
    }
    text.push_str("]\n");
    text
}

fn table(spec: &ModelSpec, device: &DeviceIdentity, choices: &[Choice]) -> Table {
    let kinds: Vec<&str> = spec.metadata.device_kinds.iter().map(|kind| kind.as_str()).collect();
    let title = format!(
        "to measure next on {} ({}); by {} trained on {} data",
        device.model,
        device.kind,
        spec.metadata.learner,
        kinds.join(" and ")
    );
    let columns = vec![
        Column::text("reason"),
        Column::text("subject"),
        Column::text("co_runner"),
        Column::number("score", ""),
        Column::number("spread_log", "").label("spread"),
        Column::number("traffic", ""),
        Column::number("allowed_ratio", "").label("allowed"),
        Column::number("variety_ratio", "").label("variety"),
        Column::number("slowdown", ""),
        Column::number("slowdown_upper", "").label("upper"),
    ];
    let mut table = Table::new("elastico.profile_next/1", title, columns);
    for choice in choices {
        let (subject, co_runner) = choice.sides();
        let mut cells = vec![
            match choice {
                Choice::Alone(..) => "isolated run",
                Choice::Pair(_) => "pair",
            }
            .into(),
            subject.as_str().into(),
            co_runner.as_str().into(),
        ];
        match choice {
            Choice::Alone(..) => cells.extend(std::iter::repeat_n(Value::Missing, 7)),
            Choice::Pair(pair) => cells.extend([
                Value::number(pair.score, 4),
                Value::number(pair.spread_log, 3),
                Value::number(pair.traffic, 2),
                Value::number(pair.allowed, 2),
                Value::number(pair.variety, 2),
                Value::number(pair.slowdown, 2),
                Value::number(pair.slowdown_upper, 2),
            ]),
        }
        table.push(cells);
    }
    table
}
