//! Where the traces of a sweep come from, and what moves their jobs.

use super::spec::{Scaling, ScalingOf};
use crate::{
    ClusterSpec, Error, Knowledge, MixOptions, SlowdownTable, SpeedTable, SyntheticWorkload, Trace, Warning,
};
use elastico_core::{Seed, WorkloadKind};
use elastico_placement::ScalingLaw;
use rand::RngExt;
use std::collections::BTreeMap;

/// A source of traces.
#[derive(Debug)]
pub(super) enum Source {
    /// The same for every seed.
    Whole(Trace),
    /// Jobs and gaps drawn with replacement.
    Resample(Trace),
    /// So many jobs, drawn without replacement.
    Sample(Trace, usize),
    /// Made from a seed.
    Mix(MixOptions, Vec<SyntheticWorkload>),
}

/// Tables as they are read; those of the planner are complete.
#[derive(Clone, Debug, Default)]
pub(super) struct Inputs {
    pub(super) truth: Option<SlowdownTable>,
    pub(super) planner: Option<SlowdownTable>,
    pub(super) speeds_truth: Option<SpeedTable>,
    pub(super) speeds_planner: Option<SpeedTable>,
    pub(super) scaling: Option<Scaling>,
}

#[derive(Debug)]
pub(super) struct Scene {
    pub(super) source: Source,
    pub(super) inputs: Inputs,
    /// What the source and the tables are, with the digests of their files.
    pub(super) description: serde_json::Value,
}

impl Scene {
    pub(super) const fn description(&self) -> &serde_json::Value {
        &self.description
    }

    pub(super) fn warnings(&self) -> &[Warning] {
        match &self.source {
            Source::Whole(trace) | Source::Resample(trace) | Source::Sample(trace, _) => &trace.warnings,
            Source::Mix(..) => &[],
        }
    }

    /// The trace of a seed at a load.
    pub(super) fn trace(&self, cluster: &ClusterSpec, load: Option<f64>, seed: u64) -> Result<Trace, Error> {
        let trace = match &self.source {
            Source::Whole(trace) => trace.clone(),
            Source::Resample(trace) => trace.resample(Seed(seed))?,
            Source::Sample(trace, jobs) => trace.sample(*jobs, Seed(seed))?,
            Source::Mix(options, workloads) => {
                let load = load.unwrap_or(1.0);
                return Trace::synthetic_mix(options, workloads, load, cluster, Seed(seed));
            }
        };
        load.map_or(Ok(trace.clone()), |load| trace.at_load(load, cluster))
    }

    /// What happens and what is planned with, for one seed. `None` where no table is given.
    pub(super) fn knowledge(
        &self,
        trace: &Trace,
        seed: u64,
    ) -> Result<Option<(Knowledge, Knowledge)>, Error> {
        let Inputs { truth, planner, speeds_truth, speeds_planner, scaling } = self.inputs.clone();
        let (mut speeds_truth, mut speeds_planner) = (speeds_truth, speeds_planner);
        if let Some(scaling) = &scaling {
            let mut drawn = speeds_truth.unwrap_or_else(|| SpeedTable::new("drawn scaling laws"));
            let mut planned = speeds_planner.unwrap_or_else(|| SpeedTable::new("a scaling law"));
            for (workload, kind) in kinds(trace) {
                let of = if kind == Some(WorkloadKind::Inference) {
                    &scaling.inference
                } else {
                    &scaling.training
                };
                drawn.set_law(Some(workload), of.draw(workload, seed), scaling.gpus_per_node)?;
                planned.set_law(Some(workload), of.planned(), scaling.gpus_per_node)?;
            }
            speeds_truth = Some(drawn);
            speeds_planner = Some(planned);
        }
        if truth.is_none() && speeds_truth.is_none() {
            return Ok(None);
        }
        Ok(Some((Knowledge::new(truth, speeds_truth), Knowledge::new(planner, speeds_planner))))
    }
}

/// Workloads with the kind of their first job that states one.
fn kinds(trace: &Trace) -> BTreeMap<&str, Option<WorkloadKind>> {
    let mut kinds = BTreeMap::new();
    for job in trace.jobs() {
        let kind = kinds.entry(job.workload.as_str()).or_insert(None);
        *kind = kind.or(job.kind);
    }
    kinds
}

impl ScalingOf {
    fn draw(&self, workload: &str, seed: u64) -> ScalingLaw {
        let [least, most] = self.within_node;
        let part: f64 = Seed(seed).stream("scaling law", &[workload]).random();
        let within_node = least + (most - least) * part;
        ScalingLaw { within_node, across_nodes: (within_node - self.across_nodes_loss).max(0.0) }
    }

    const fn planned(&self) -> ScalingLaw {
        ScalingLaw { within_node: self.planner_within_node, across_nodes: self.planner_across_nodes }
    }
}
