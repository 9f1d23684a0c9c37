//! `elastico simulate tables`: the truth and the planner of a simulation, from a campaign and a predictor.

use crate::artefacts::Artefacts;
use crate::commands::predict::Model;
use crate::failure::{Ending, check_limit, usage};
use crate::output::{self, Format, Talk};
use anyhow::Context as _;
use elastico_core::{SharingMode, WorkloadId, WorkloadKind, chip};
use elastico_datasets::{Dataset, pair_summaries};
use elastico_models::WorkloadProfile;
use elastico_placement::{Cluster, PairTable};
use elastico_report::{Column, Table, Value};
use elastico_simulator::{ChosenModes, choose_modes};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The campaign's dataset: what happens
    #[arg(value_name = "FOLDER")]
    dataset: PathBuf,

    #[command(flatten)]
    model: Model,

    /// The device, as h100 or sim:h100; needed where the dataset has several
    #[arg(long, value_name = "CHIP")]
    device: Option<String>,

    /// Slowdown up to which a mode counts as safe when one is chosen for a pair
    #[arg(long, default_value_t = 1.5, allow_negative_numbers = true, value_name = "RATIO")]
    limit: f64,

    /// The folder for truth.json, planner.json and workloads.csv
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,

    /// Replace files that are there
    #[arg(long)]
    force: bool,

    /// Form of the answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    check_limit(arguments.limit)?;
    let [truth, planner, workloads] =
        ["truth.json", "planner.json", "workloads.csv"].map(|name| arguments.out.join(name));
    let files = [("--out", truth.as_path()), ("--out", planner.as_path()), ("--out", workloads.as_path())];
    let artefacts = Artefacts::files(files, arguments.force, [&arguments.dataset])?;
    let dataset = Dataset::read(&arguments.dataset)?;
    let predictor = arguments.model.load()?;
    let profiles = elastico_trainer::profiles(&dataset)?;
    let summaries = pair_summaries(&dataset)?;
    let device = one_device(arguments.device.as_deref(), summaries.iter().map(|row| row.device.as_str()))?;
    super::super::predict::warn_of_strangers(predictor.as_ref(), [device.as_str()], talk);

    let mut seen: BTreeMap<(&str, &str), BTreeMap<String, f64>> = BTreeMap::new();
    let mut modes: BTreeSet<SharingMode> = BTreeSet::new();
    for row in summaries.iter().filter(|row| row.device == device) {
        let Some(slowdown) = row.slowdown else { continue };
        let sharing: SharingMode = row.sharing.parse()?;
        // A pair is asked for with the lesser name first, whichever way it was measured.
        modes.extend([sharing.swapped(), sharing.clone()]);
        let key = (row.subject_workload.as_str(), row.co_runner_workload.as_str());
        seen.entry(key).or_default().insert(sharing.to_string(), slowdown);
    }
    let known: Vec<&WorkloadProfile> = profiles
        .iter()
        .filter(|profile| profile.device == device)
        .filter(|profile| matches!(profile.kind, WorkloadKind::Training | WorkloadKind::Inference))
        .collect();
    let ids: Vec<WorkloadId> = known.iter().map(|profile| profile.workload.clone()).collect();
    let cluster = one_gpu(&device)?;
    let modes: Vec<SharingMode> = modes.into_iter().collect();
    let predicted = PairTable::predict(ids.clone(), &cluster, &modes, &profiles, predictor.as_ref())?;
    let lookup = |subject: &WorkloadId, co_runner: &WorkloadId, sharing: &SharingMode| {
        seen.get(&(subject.as_str(), co_runner.as_str()))?.get(&sharing.to_string()).copied()
    };
    let kinds: BTreeSet<&str> = summaries.iter().map(|row| row.device_kind.as_str()).collect();
    let origin = kinds.into_iter().collect::<Vec<_>>().join(" and ");
    let learner = &predictor.metadata().learner;
    let names = [format!("{origin} {device}"), format!("{learner} predictor")];
    let chosen = choose_modes(
        names.each_ref().map(String::as_str),
        &device,
        &ids,
        &predicted,
        lookup,
        arguments.limit,
    )?;
    if chosen.pairs_total == 0 {
        return Err(usage(
            "no pair of the dataset can be predicted",
            "`elastico predict --dataset FOLDER` says what the model knows of it",
        ));
    }
    let mut list = String::from("workload,kind,sm_active_ratio\n");
    for profile in known {
        let active = profile.field("sm_active_ratio").map(|ratio| ratio.to_string()).unwrap_or_default();
        list.push_str(&format!("{},{},{active}\n", profile.workload, profile.kind.as_str()));
    }
    let contents = [
        serde_json::to_vec_pretty(&chosen.truth.to_json())?,
        serde_json::to_vec_pretty(&chosen.planner.to_json())?,
        list.into_bytes(),
    ];
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot make `{}`", arguments.out.display()))?;
    artefacts.write(&contents.each_ref().map(Vec::as_slice))?;
    let out = arguments.out.display();
    talk.say(format!("wrote truth.json, planner.json and workloads.csv to {out}"));
    talk.say(format!(
        "the slowdowns hold on {device}, which the cluster must name: elastico simulate compare --trace FILE --cluster {device}:n8g8 \
         --truth {out}/truth.json --planner {out}/planner.json --policies fifo,elastico; workloads.csv is for [synthetic] of a sweep"
    ));
    output::answer(
        arguments.format,
        &answer(&chosen, arguments),
        &[table(&chosen, &names, arguments.limit)],
    )?;
    Ok(Ending::Done)
}

/// A cluster that has the device; a predictor asks no more of it.
fn one_gpu(device: &str) -> anyhow::Result<Cluster> {
    let text = format!("[[pool]]\nid = \"pool\"\ndevice = \"{device}\"\nnodes = 1\ngpus_per_node = 1\n");
    Ok(Cluster::from_toml(&text, Path::new("cluster.toml"))?)
}

fn one_device<'a>(wanted: Option<&str>, devices: impl Iterator<Item = &'a str>) -> anyhow::Result<String> {
    let devices: BTreeSet<&str> = devices.collect();
    // Campaigns address a simulated GPU as sim:CHIP; the dataset has its chip.
    let wanted = wanted.map(|wanted| wanted.strip_prefix("sim:").unwrap_or(wanted));
    let device = match wanted {
        Some(wanted) if devices.contains(wanted) => Ok(wanted.to_owned()),
        Some(wanted) => Err(usage(
            format!("the dataset has no pairs on `{wanted}`"),
            format!("it has {}", devices.into_iter().collect::<Vec<_>>().join(", ")),
        )),
        None if devices.len() == 1 => Ok(devices.into_iter().collect()),
        None => Err(usage(
            format!("the dataset has pairs on {} devices", devices.len()),
            format!("choose one with --device: {}", devices.into_iter().collect::<Vec<_>>().join(", ")),
        )),
    }?;
    if chip(&device).is_none() {
        return Err(usage(
            format!("the device of the dataset, `{device}`, is no GPU that is known here"),
            "a simulation needs a campaign on a GPU, cuda:N, or on a simulated one such as sim:h100",
        ));
    }
    Ok(device)
}

fn answer(chosen: &ChosenModes, arguments: &Arguments) -> serde_json::Value {
    serde_json::json!({
        "schema": "elastico.simulation-tables/1",
        "folder": arguments.out,
        "pairs_total": chosen.pairs_total,
        "safe_pairs_total": chosen.safe_pairs_total,
        "harmed_sides_total": chosen.harmed_sides_total,
        "error_mean_ratio": chosen.error_mean_ratio,
        "limit_ratio": arguments.limit,
    })
}

fn table(chosen: &ChosenModes, names: &[String; 2], limit: f64) -> Table {
    let mut table = Table::new(
        "elastico.simulation-tables/1",
        format!("truth: {}; planner: {}; limit {limit}", names[0], names[1]),
        vec![Column::text("what"), Column::number("value", "")],
    );
    table.push(vec!["pairs, each under its best mode".into(), chosen.pairs_total.into()]);
    table.push(vec!["of these safe by their upper bounds".into(), chosen.safe_pairs_total.into()]);
    table.push(vec!["sides of these above the limit in truth".into(), chosen.harmed_sides_total.into()]);
    table.push(vec!["mean error of the prediction, ratio".into(), Value::number(chosen.error_mean_ratio, 4)]);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_a_gpu_of_the_dataset() {
        let device = |wanted, devices: &[&str]| {
            one_device(wanted, devices.iter().copied()).map_err(|error| error.to_string())
        };
        assert_eq!(device(None, &["h100"]).as_deref(), Ok("h100"));
        assert_eq!(device(Some("sim:h100"), &["h100", "a100-40gb"]).as_deref(), Ok("h100"));
        for (wanted, devices, expected) in [
            (None, &["cpu"][..], "the device of the dataset, `cpu`, is no GPU that is known here"),
            (Some("cpu"), &["cpu", "h100"], "the device of the dataset, `cpu`, is no GPU that is known here"),
            (Some("v100"), &["h100"], "the dataset has no pairs on `v100`"),
            (None, &["h100", "v100"], "the dataset has pairs on 2 devices"),
        ] {
            assert_eq!(device(wanted, devices), Err(expected.to_owned()));
        }
    }
}
