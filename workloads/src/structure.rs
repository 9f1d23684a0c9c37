//! Structures: the Rust functions that turn axes into a step.

use crate::axes::{Axes, Axis};
use crate::program::StepProgram;
use crate::structures::{convolution, decode, recurrent, sparse, stressor, transformer};
use elastico_core::WorkloadKind;

/// Why a combination of axes makes no step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The axis to change.
    pub(crate) axis: &'static str,
    pub(crate) why: String,
}

/// A kind of step that files can configure by name.
#[derive(Debug, Clone, Copy)]
pub struct Structure {
    /// The name in files.
    pub name: &'static str,
    /// What its workloads are for.
    pub kind: WorkloadKind,
    /// What one step does.
    pub meaning: &'static str,
    /// Its settings, in the order of an id.
    pub axes: &'static [Axis],
    pub(crate) check: fn(&Axes) -> Result<(), Refusal>,
    pub(crate) build: fn(&Axes) -> StepProgram,
}

/// For structures whose axes combine freely.
pub(crate) fn free(_: &Axes) -> Result<(), Refusal> {
    Ok(())
}

/// Every structure, by kind.
pub const STRUCTURES: &[Structure] = &[
    transformer::TRAINING,
    transformer::MLP_TRAINING,
    convolution::TRAINING,
    sparse::RECOMMENDER_TRAINING,
    sparse::GRAPH_TRAINING,
    recurrent::TRAINING,
    transformer::OPTIMISER,
    transformer::PREFILL,
    decode::DECODE,
    decode::EXPERTS,
    convolution::VISION,
    sparse::EMBEDDING,
    transformer::RANKING,
    stressor::COMPUTE,
    stressor::TENSOR,
    stressor::STREAM,
    stressor::CYCLIC_READ,
    stressor::RANDOM_READ,
    stressor::SHARED_MEMORY,
    stressor::OCCUPANCY,
    stressor::LAUNCHES,
    stressor::ATOMICS,
    stressor::COPY,
    stressor::NULL,
];

/// The structure of a name.
pub(crate) fn structure(name: &str) -> Option<&'static Structure> {
    STRUCTURES.iter().find(|structure| structure.name == name)
}
