//! One workload at one setting of its axes.

use crate::axes::{Axes, Value};
use crate::cpu;
use crate::program::{Memory, StepProgram};
use crate::structure::Structure;
use elastico_core::{Dtype, FamilyId, WorkloadId, WorkloadKind};
use std::collections::BTreeMap;

/// The structure of a program of the user's.
const OPAQUE: &str = "opaque";

/// A workload that a device can run: its names and its step.
#[derive(Debug, Clone)]
pub struct Benchmark {
    /// Family and axes, for example `tr_block.b8_s1024_h1024_bf16`.
    pub id: WorkloadId,
    /// The unit that a split holds out.
    pub family: FamilyId,
    /// What it is for.
    pub kind: WorkloadKind,
    /// What the family stands for.
    pub summary: String,
    /// Samples, sequences or requests of one step; 1 where the structure has no batch.
    pub batch: u64,
    /// Format of the work.
    pub dtype: Dtype,
    /// The structure that made the step.
    pub structure: &'static str,
    axes: Axes,
    cpu_axes: Axes,
    program: StepProgram,
    cpu_program: StepProgram,
}

impl Benchmark {
    pub(crate) fn new(
        id: WorkloadId,
        family: FamilyId,
        summary: String,
        structure: &Structure,
        axes: Axes,
        program: StepProgram,
    ) -> Self {
        let cpu_axes = cpu::scaled(structure, &axes);
        let batch = match axes.find("batch") {
            Some(Value::Integer(batch)) => batch,
            _ => 1,
        };
        Self {
            id,
            family,
            kind: structure.kind,
            summary,
            batch,
            dtype: axes.dtype(),
            structure: structure.name,
            cpu_program: (structure.build)(&cpu_axes),
            program,
            axes,
            cpu_axes,
        }
    }

    /// A program of the user's, of which no more than name and kind are known: its step has no ops and its demand is
    /// unknown. It is a family of its own.
    pub fn opaque(id: WorkloadId, kind: WorkloadKind) -> Self {
        let family = FamilyId::new(id.as_str()).expect("ids of workloads and families follow one rule");
        let program =
            StepProgram { ops: Vec::new(), sections: Vec::new(), memory: Memory::default(), duty: 1.0 };
        Self {
            id,
            family,
            kind,
            summary: "a program of the user's".to_owned(),
            batch: 1,
            dtype: Dtype::Fp32,
            structure: OPAQUE,
            axes: Axes::new(Vec::new()),
            cpu_axes: Axes::new(Vec::new()),
            cpu_program: program.clone(),
            program,
        }
    }

    /// Whether it is a program of the user's, see [`Benchmark::opaque`].
    pub fn is_opaque(&self) -> bool {
        self.structure == OPAQUE
    }

    /// One step at the configured size.
    pub fn program(&self) -> &StepProgram {
        &self.program
    }

    /// One step of the same structure that takes milliseconds on one CPU core.
    pub fn cpu_program(&self) -> &StepProgram {
        &self.cpu_program
    }

    /// Every axis with its value, defaults included.
    pub fn axes(&self) -> BTreeMap<String, String> {
        texts(&self.axes)
    }

    /// Every axis of the CPU-sized program with its value.
    pub fn cpu_axes(&self) -> BTreeMap<String, String> {
        texts(&self.cpu_axes)
    }
}

fn texts(axes: &Axes) -> BTreeMap<String, String> {
    axes.iter()
        .map(|(axis, value)| {
            let text = match value {
                Value::Integer(value) => value.to_string(),
                Value::Ratio(value) => value.to_string(),
                Value::Dtype(_) | Value::Choice(_) => value.to_string(),
            };
            (axis.name.to_owned(), text)
        })
        .collect()
}
