//! Clusters x loads x policies x seeds over one source of traces.
//!
//! A [`Sweep`] is read from a file ([`Sweep::read`]) or put together ([`Sweep::of_trace`]); [`Sweep::run`] goes over all
//! its runs on several threads, [`SweepFolder`] keeps what is done where a kill cannot harm it, and [`Sweep::summary`] holds
//! the policies against each other, in pairs on the same traces.

mod folder;
mod read;
mod run;
mod scene;
mod spec;
mod summary;

pub use folder::SweepFolder;
pub use run::{RunTiming, SweepRun};
pub use spec::{Scaling, ScalingOf};
pub use summary::{FailedRun, PointSummary, PolicySummary, Rival, SweepSummary};

use crate::{ClusterSpec, Error, Knowledge, Options, PolicyKind, Trace};
use elastico_core::Digest;
use scene::Scene;
use std::collections::BTreeSet;

/// Everything that a sweep needs, in memory.
#[derive(Debug)]
pub struct Sweep {
    /// What it is called.
    name: String,
    baseline: String,
    /// Whom the best other policy is chosen among; absent = all others.
    rivals: Option<Vec<String>>,
    clusters: Vec<ClusterSpec>,
    scene: Scene,
    options: Options,
    runs: Vec<PlannedRun>,
    /// All that determines the results, for people to compare.
    description: serde_json::Value,
}

/// One run that is to be done.
#[derive(Clone, Debug)]
struct PlannedRun {
    /// Digest of all that determines its result.
    key: Digest,
    /// Index into the clusters.
    cluster: usize,
    /// The offered load; absent = the trace's own.
    load: Option<f64>,
    policy: PolicyKind,
    seed: u64,
}

/// A part of the grid whose clusters are known.
struct Part {
    clusters: Vec<usize>,
    loads: Vec<Option<f64>>,
    policies: Vec<PolicyKind>,
    seeds: Vec<u64>,
}

impl Sweep {
    /// All runs of the parts, each once, seeds innermost.
    fn plan(
        parts: &[Part],
        clusters: &[ClusterSpec],
        scene: &Scene,
        options: &Options,
    ) -> Result<Vec<PlannedRun>, Error> {
        let text = |value: serde_json::Result<String>| value.map_err(Error::Unwritable);
        let options = text(serde_json::to_string(options))?;
        let inputs = scene.description().to_string();
        let mut runs = Vec::new();
        let mut known = BTreeSet::new();
        for part in parts {
            for cluster in &part.clusters {
                let of_cluster = text(serde_json::to_string(&clusters[*cluster]))?;
                for load in &part.loads {
                    for policy in &part.policies {
                        let of_policy = text(serde_json::to_string(policy))?;
                        for seed in &part.seeds {
                            let key = Digest::of([
                                VERSION,
                                inputs.as_str(),
                                options.as_str(),
                                of_cluster.as_str(),
                                load.map(|load| load.to_string()).unwrap_or_default().as_str(),
                                of_policy.as_str(),
                                seed.to_string().as_str(),
                            ]);
                            if known.insert(key.clone()) {
                                let policy = policy.clone();
                                runs.push(PlannedRun {
                                    key,
                                    cluster: *cluster,
                                    load: *load,
                                    policy,
                                    seed: *seed,
                                });
                            }
                        }
                    }
                }
            }
        }
        Ok(runs)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Files and folders that it was read from, as its description names them; none of a sweep in memory.
    pub fn inputs(&self) -> Vec<&str> {
        let digests = self.description["digests"].as_object();
        digests.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    /// All runs.
    pub fn runs_total(&self) -> usize {
        self.runs.len()
    }

    /// For each cluster the trace and the tables of its first run. One that cannot be made fails its runs, with the reason.
    pub(crate) fn first_scenes(
        &self,
    ) -> impl Iterator<Item = (Trace, &ClusterSpec, Option<(Knowledge, Knowledge)>)> {
        self.clusters.iter().enumerate().filter_map(|(index, cluster)| {
            let run = self.runs.iter().find(|run| run.cluster == index)?;
            let trace = self.scene.trace(cluster, run.load, run.seed).ok()?;
            let knowledge = self.scene.knowledge(&trace, run.seed).ok()?;
            Some((trace, cluster, knowledge))
        })
    }

    /// What the readers had to assume.
    pub fn warnings(&self) -> &[crate::Warning] {
        self.scene.warnings()
    }
}

/// Results of another version are other results.
const VERSION: &str = env!("CARGO_PKG_VERSION");
