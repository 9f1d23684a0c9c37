//! What the owner of the cluster allows and wants.

use crate::Error;
use crate::objective::Objective;
use crate::shapes::ScalingLaw;
use elastico_core::{Seed, SharingMode, WorkloadKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which kinds may share a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PairKinds {
    /// Training beside inference.
    pub training_inference: bool,
    /// Inference beside inference.
    pub inference_inference: bool,
    /// Training beside training.
    pub training_training: bool,
}

impl Default for PairKinds {
    fn default() -> Self {
        Self { training_inference: true, inference_inference: true, training_training: false }
    }
}

impl PairKinds {
    /// Whether jobs of two kinds may share.
    pub fn allow(self, a: WorkloadKind, b: WorkloadKind) -> bool {
        use WorkloadKind::{Inference, Training};
        match (a, b) {
            (Training, Training) => self.training_training,
            (Inference, Inference) => self.inference_inference,
            (Training, Inference) | (Inference, Training) => self.training_inference,
            // Stressors and the null workload are instruments, not jobs.
            _ => false,
        }
    }
}

/// How to place. Every field has a default, so a file or a caller names only what differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Most slowdown that either side of a pair may suffer, compared with the predicted upper bound.
    pub limit: f64,
    /// Sharing modes tried for a pair; empty = no job shares.
    #[schemars(with = "Vec<String>")]
    pub sharing: Vec<SharingMode>,
    /// Which kinds may share a GPU.
    pub pairs: PairKinds,
    /// Whether jobs of different tenants may share a GPU.
    pub share_across_tenants: bool,
    /// What is maximised.
    pub objective: Objective,
    /// How long a job is expected to stay in a shape; a job that runs gives up the part `switch_seconds` / this of the
    /// utility of every other shape.
    pub horizon_seconds: f64,
    /// How training scales where it was not measured.
    pub scaling: ScalingLaw,
    /// Waiting jobs that [`Session::solve`](crate::Session::solve) looks at, those that gain most at the present prices;
    /// absent = all. A single solution looks at all jobs in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<usize>,
    /// Partners of a job that the price search begins with; more are added while they pay.
    pub partners: usize,
    /// Relative gap of the dual at which the price search stops.
    pub tolerance: f64,
    /// Most calls of the price search's oracle.
    pub calls: u32,
    /// Nodes that the exact search of close calls may visit, about a microsecond each; 0 turns it off. It stops at a
    /// gap of 0.1 %.
    pub search: u64,
    /// Seed of the neighbourhoods that the exact search tries.
    #[schemars(with = "u64")]
    pub seed: Seed,
}

impl Default for Options {
    fn default() -> Self {
        let percent =
            |subject_percent, co_runner_percent| SharingMode::Mps { subject_percent, co_runner_percent };
        Self {
            limit: 1.5,
            sharing: vec![
                SharingMode::TimeSlice,
                SharingMode::MPS_UNLIMITED,
                percent(50, 50),
                percent(30, 70),
                percent(70, 30),
            ],
            pairs: PairKinds::default(),
            share_across_tenants: false,
            objective: Objective::default(),
            horizon_seconds: 3600.0,
            scaling: ScalingLaw::default(),
            candidates: None,
            partners: 10,
            tolerance: 1e-4,
            calls: 60,
            search: 100_000,
            seed: Seed(0),
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |field, value: f64, rule| Err(Error::Option { field, value: value.to_string(), rule });
        if !(1.0..=1000.0).contains(&self.limit) {
            return refuse("limit", self.limit, "it must be a slowdown from 1 to 1000");
        }
        if !(self.tolerance > 0.0 && self.tolerance < 1.0) {
            return refuse("tolerance", self.tolerance, "it must be between 0 and 1");
        }
        if !(self.horizon_seconds.is_finite() && self.horizon_seconds > 0.0) {
            return refuse("horizon_seconds", self.horizon_seconds, "it must be a time above 0");
        }
        self.objective.check()?;
        let ratio = |value: f64| (0.0..=1.0).contains(&value);
        if !ratio(self.scaling.within_node) {
            return refuse("scaling.within_node", self.scaling.within_node, "it must be within 0 and 1");
        }
        if !ratio(self.scaling.across_nodes) {
            return refuse("scaling.across_nodes", self.scaling.across_nodes, "it must be within 0 and 1");
        }
        Ok(())
    }
}
