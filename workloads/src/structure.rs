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
#[expect(clippy::unnecessary_wraps, reason = "it stands where other structures have a check")]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axes::{Domain, Value};
    use crate::cpu;
    use proptest::prelude::*;

    /// A point of an axis' domain; integers are spread evenly over their magnitudes.
    fn at(axis: &Axis, unit: f64) -> Value {
        let pick = |count: usize| ((unit * count as f64) as usize).min(count - 1);
        match axis.domain {
            Domain::Integer { min, max } => {
                let (low, high) = ((min.max(1) as f64).ln(), (max as f64).ln());
                Value::Integer(((low + unit * (high - low)).exp().round() as u64).clamp(min, max))
            }
            Domain::Ratio { min, max } => Value::Ratio(((min + unit * (max - min)) * 100.0).round() / 100.0),
            Domain::Dtype(known) => Value::Dtype(known[pick(known.len())]),
            Domain::Choice(known) => Value::Choice(known[pick(known.len())]),
        }
    }

    proptest! {
        /// Any axes in their domains that pass the check make a step with finite demands, also CPU-sized.
        #[test]
        fn every_point_of_every_structure_builds(
            which in 0..STRUCTURES.len(),
            units in proptest::collection::vec(0.0..1.0_f64, 16),
        ) {
            let structure = &STRUCTURES[which];
            let values = structure.axes.iter().zip(&units).map(|(axis, unit)| (axis, at(axis, *unit)));
            let axes = Axes::new(values.collect());
            prop_assume!((structure.check)(&axes).is_ok());
            let small = (structure.build)(&cpu::scaled(structure, &axes));
            for program in [&(structure.build)(&axes), &small] {
                let demand = program.demand();
                prop_assert!(!program.ops.is_empty());
                prop_assert!(demand.l2_bytes.get().is_finite() && demand.flops().get().is_finite());
                prop_assert!(program.footprint().get().is_finite());
                prop_assert!(program.ops.len() < 10_000);
            }
            prop_assert!(small.footprint().get() <= (structure.build)(&axes).footprint().get().max(600e6) * 2.0);
        }
    }
}
