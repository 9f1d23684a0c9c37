//! The file that describes a sweep, `elastico.sweep/1`.

use crate::error::{check, short};
use crate::policies::PolicyKind;
use crate::{Attempts, Error, MixOptions, Options, ReadOptions, TimeUnit, TraceFormat};
use elastico_core::suggest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// The document as it is written; paths are relative to it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    #[serde(rename = "schema")]
    _schema: Schema,
    pub(super) name: Option<String>,
    pub(super) baseline: Policy,
    pub(super) rivals: Option<Vec<Policy>>,
    #[serde(default)]
    clusters: Vec<String>,
    #[serde(default)]
    loads: Vec<f64>,
    #[serde(default)]
    policies: Vec<Policy>,
    seeds: Option<Seeds>,
    #[serde(default)]
    cell: Vec<Cell>,
    pub(super) trace: Option<TraceSection>,
    pub(super) synthetic: Option<SyntheticSection>,
    #[serde(default)]
    pub(super) tables: TablesSection,
    pub(super) scaling: Option<Scaling>,
    #[serde(default)]
    pub(super) options: OptionsSection,
}

#[derive(Debug, Deserialize)]
enum Schema {
    #[serde(rename = "elastico.sweep/1")]
    One,
}

/// A policy by its name.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Policy(pub(super) PolicyKind);

impl TryFrom<String> for Policy {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        PolicyKind::parse(&name).map(Self)
    }
}

/// How many seeds from 0 on, or which.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "seeds are a number of seeds, or a list of them")]
enum Seeds {
    Count(u16),
    List(Vec<u64>),
}

/// A part of the grid; what it does not say is as at the top of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    clusters: Option<Vec<String>>,
    loads: Option<Vec<f64>>,
    policies: Option<Vec<Policy>>,
    seeds: Option<Seeds>,
}

/// A part of the grid with nothing left open. No loads = the trace's own.
#[derive(Debug)]
pub(super) struct Grid {
    pub(super) clusters: Vec<String>,
    pub(super) loads: Vec<Option<f64>>,
    pub(super) policies: Vec<PolicyKind>,
    pub(super) seeds: Vec<u64>,
}

/// What becomes of the jobs of a file under another seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Draw {
    /// Jobs and gaps are drawn with replacement.
    #[default]
    Resample,
    /// `sample` jobs are drawn without replacement.
    Sample,
    /// The trace as it is: one seed.
    Whole,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceSection {
    pub(super) file: String,
    format: Option<String>,
    time_unit: Option<String>,
    pub(super) throughputs: Option<String>,
    #[serde(default = "v100")]
    durations_on: String,
    pub(super) profiles: Option<String>,
    pub(super) mapping: Option<String>,
    pub(super) from_seconds: Option<f64>,
    pub(super) to_seconds: Option<f64>,
    #[serde(default)]
    pub(super) draw: Draw,
    pub(super) sample: Option<usize>,
    #[serde(default)]
    pub(super) elastic: bool,
}

fn v100() -> String {
    ReadOptions::default().device
}

impl TraceSection {
    /// How the file is read, without its paths.
    pub(super) fn options(&self) -> Result<ReadOptions, String> {
        Ok(ReadOptions {
            format: self.format.as_deref().map(str::parse::<TraceFormat>).transpose()?,
            time_unit: self.time_unit.as_deref().map(str::parse::<TimeUnit>).transpose()?,
            device: self.durations_on.clone(),
            attempts: Attempts::Sum,
            ..ReadOptions::default()
        })
    }
}

/// Where the workloads come from, and how jobs are made of them: the fields of [`MixOptions`].
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SyntheticSection {
    pub(super) workloads: String,
    jobs_per_gpu: f64,
    inference_share: f64,
    share_of: crate::ShareOf,
    training_gpus: Vec<crate::GpuShare>,
    elastic_gpus: Option<[u32; 2]>,
    sm_active_mean: Option<f64>,
    median_seconds: f64,
    sigma: f64,
    clip_seconds: [f64; 2],
}

impl Default for SyntheticSection {
    fn default() -> Self {
        let usual = MixOptions::default();
        Self {
            workloads: "workloads.csv".to_owned(),
            jobs_per_gpu: usual.jobs_per_gpu,
            inference_share: usual.inference_share,
            share_of: usual.share_of,
            training_gpus: usual.training_gpus,
            elastic_gpus: usual.elastic_gpus,
            sm_active_mean: usual.sm_active_mean,
            median_seconds: usual.median_seconds,
            sigma: usual.sigma,
            clip_seconds: usual.clip_seconds,
        }
    }
}

impl SyntheticSection {
    pub(super) fn options(&self) -> MixOptions {
        MixOptions {
            jobs_per_gpu: self.jobs_per_gpu,
            inference_share: self.inference_share,
            share_of: self.share_of,
            training_gpus: self.training_gpus.clone(),
            elastic_gpus: self.elastic_gpus,
            sm_active_mean: self.sm_active_mean,
            median_seconds: self.median_seconds,
            sigma: self.sigma,
            clip_seconds: self.clip_seconds,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TablesSection {
    pub(super) truth: Option<String>,
    pub(super) planner: Option<String>,
    pub(super) speeds_truth: Option<String>,
    pub(super) speeds_planner: Option<String>,
    /// The device of a folder of ElasticFlow.
    pub(super) speeds_on: Option<String>,
}

/// Laws of scaling that are drawn anew for each seed and workload, beside the one that the policies plan with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scaling {
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// Of training, and of workloads of no known kind.
    pub training: ScalingOf,
    /// Of inference.
    pub inference: ScalingOf,
}

/// How speed grows with GPUs: `gpus ^ within_node` within a node, then `nodes ^ across_nodes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScalingOf {
    /// The exponent within a node that happens is drawn evenly between these.
    pub within_node: [f64; 2],
    /// The one over nodes is lower by this, and at least 0.
    pub across_nodes_loss: f64,
    /// The exponent within a node that policies plan with.
    pub planner_within_node: f64,
    /// The exponent over nodes that policies plan with.
    pub planner_across_nodes: f64,
}

impl Scaling {
    pub(super) fn check(&self) -> Result<(), Error> {
        check(|| "gpus_per_node".to_owned(), f64::from(self.gpus_per_node), 1.0, "1 or more")?;
        for (kind, of) in [("training", &self.training), ("inference", &self.inference)] {
            let [least, most] = of.within_node;
            let numbers = [
                ("the start of within_node", least),
                ("the end of within_node", most),
                ("across_nodes_loss", of.across_nodes_loss),
                ("planner_within_node", of.planner_within_node),
                ("planner_across_nodes", of.planner_across_nodes),
            ];
            for (name, value) in numbers {
                if !(0.0..=1.0).contains(&value) {
                    let what = format!("{name} of {kind}");
                    return Err(Error::Number { what, value, must: "within 0 and 1" });
                }
            }
            check(|| format!("the end of within_node of {kind}"), most, least, "at least its start")?;
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct OptionsSection {
    restart_seconds: f64,
    checkpoint_seconds: f64,
    mtbf_seconds: Option<f64>,
    repair_seconds: f64,
    spread_ratio: Option<f64>,
    harm_limit_ratio: f64,
}

impl Default for OptionsSection {
    fn default() -> Self {
        let usual = Options::default();
        Self {
            restart_seconds: usual.restart_seconds,
            checkpoint_seconds: usual.checkpoint_seconds,
            mtbf_seconds: usual.mtbf_seconds,
            repair_seconds: usual.repair_seconds,
            spread_ratio: usual.spread_ratio,
            harm_limit_ratio: usual.harm_limit_ratio,
        }
    }
}

impl OptionsSection {
    pub(super) fn options(&self) -> Options {
        Options {
            restart_seconds: self.restart_seconds,
            checkpoint_seconds: self.checkpoint_seconds,
            mtbf_seconds: self.mtbf_seconds,
            repair_seconds: self.repair_seconds,
            spread_ratio: self.spread_ratio,
            harm_limit_ratio: self.harm_limit_ratio,
            ..Options::default()
        }
    }
}

impl Document {
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        toml(text, path)
    }

    /// The parts of the grid, in the order of the file.
    pub(super) fn grids(&self) -> Result<Vec<Grid>, String> {
        let grids = self.parts()?;
        let rivals = || self.rivals.iter().flatten().map(|rival| rival.0.name());
        if let Some(rival) = twice(rivals()) {
            return Err(format!("the rival `{rival}` is listed twice"));
        }
        let runs = |name: &str| grids.iter().flat_map(|grid| &grid.policies).any(|own| own.name() == name);
        if let Some(rival) = rivals().find(|rival| !runs(rival)) {
            return Err(format!("the rival `{rival}` is not among the policies"));
        }
        if let Some(name) = self.name.as_ref().filter(|name| name.chars().count() > LONGEST_NAME) {
            let length = name.chars().count();
            return Err(format!("the name has {length} characters, it may have {LONGEST_NAME}"));
        }
        Ok(grids)
    }

    fn parts(&self) -> Result<Vec<Grid>, String> {
        let cells = if self.cell.is_empty() { vec![Cell::default()] } else { self.cell.clone() };
        cells
            .into_iter()
            .enumerate()
            .map(|(index, cell)| {
                let place =
                    || if self.cell.is_empty() { String::new() } else { format!(" of cell {}", index + 1) };
                let missing = |what: &str| format!("no {what}{} are given", place());
                let clusters = cell.clusters.unwrap_or_else(|| self.clusters.clone());
                let loads = cell.loads.unwrap_or_else(|| self.loads.clone());
                let policies = cell.policies.unwrap_or_else(|| self.policies.clone());
                let seeds = match cell.seeds.or_else(|| self.seeds.clone()) {
                    Some(Seeds::Count(count)) => (0..u64::from(count)).collect(),
                    Some(Seeds::List(list)) => list,
                    None => Vec::new(),
                };
                for (what, is_empty) in [
                    ("clusters", clusters.is_empty()),
                    ("policies", policies.is_empty()),
                    ("seeds", seeds.is_empty()),
                ] {
                    if is_empty {
                        return Err(missing(what));
                    }
                }
                if let Some(load) = loads.iter().find(|load| !(load.is_finite() && **load > 0.0)) {
                    return Err(format!("a load{} is {}, it must be above 0", place(), short(*load)));
                }
                let doubled =
                    |what: &str, name: String| format!("the {what} {name}{} is listed twice", place());
                if let Some(load) = twice(loads.iter().map(|load| load.to_bits())) {
                    return Err(doubled("load", short(f64::from_bits(load))));
                }
                if let Some(seed) = twice(seeds.iter().copied()) {
                    return Err(doubled("seed", seed.to_string()));
                }
                if let Some(policy) = twice(policies.iter().map(|policy| policy.0.name())) {
                    return Err(doubled("policy", format!("`{policy}`")));
                }
                if !policies.iter().any(|policy| policy.0.name() == self.baseline.0.name()) {
                    return Err(format!(
                        "the baseline `{}` is not among the policies{}",
                        self.baseline.0.name(),
                        place()
                    ));
                }
                Ok(Grid {
                    clusters,
                    loads: if loads.is_empty() { vec![None] } else { loads.into_iter().map(Some).collect() },
                    policies: policies.into_iter().map(|policy| policy.0).collect(),
                    seeds,
                })
            })
            .collect()
    }
}

/// Characters of a name, as of every other name.
const LONGEST_NAME: usize = 200;

/// The first that was there before.
fn twice<T: Ord + Clone>(items: impl IntoIterator<Item = T>) -> Option<T> {
    let mut known = BTreeSet::new();
    items.into_iter().find(|item| !known.insert(item.clone()))
}

/// Reads a document so that a mistake is answered with its line, its column and the nearest field.
fn toml<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, Error> {
    toml::from_str(text).map_err(|error| {
        let start = text.floor_char_boundary(error.span().map_or(0, |span| span.start));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let message = error.message();
        let mut quoted = message.split('`').skip(1).step_by(2);
        let unknown = quoted.next().filter(|_| message.contains("unknown field"));
        Error::Sweep {
            path: path.into(),
            place: Some((
                text[..start].matches('\n').count() + 1,
                text[line_start..start].chars().count() + 1,
            )),
            why: message.lines().map(str::trim).collect::<Vec<_>>().join(", "),
            suggestion: unknown.and_then(|unknown| suggest(unknown, quoted)).map(str::to_owned),
        }
    })
}
