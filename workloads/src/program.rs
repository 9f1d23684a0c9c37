//! A step as a flat list of ops.

use crate::demand::Demand;
use crate::op::Op;
use elastico_core::units::{Bytes, Seconds};
use serde::{Deserialize, Serialize};

/// Where the ops of one part of a step begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// What the part is: `forward`, `backward`, `optimiser` …
    pub name: String,
    /// Index of its first op.
    pub first: usize,
}

/// Device memory that a workload holds, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Parameters in the format of the work, embedding tables included.
    pub weights: Bytes,
    /// Gradients of the parameters.
    pub gradients: Bytes,
    /// Moments and master copies.
    pub optimiser: Bytes,
    /// Outputs kept for the backward pass, or the largest pair of layer outputs in inference.
    pub activations: Bytes,
    /// Key-value caches.
    pub cache: Bytes,
    /// Staging and stressor buffers.
    pub buffers: Bytes,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> Bytes {
        self.weights + self.gradients + self.optimiser + self.activations + self.cache + self.buffers
    }
}

/// One unit of progress: ops in the order in which they run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepProgram {
    /// The ops, each after the one before it.
    pub ops: Vec<Op>,
    /// Named parts, by index of their first op.
    pub sections: Vec<Section>,
    /// Device memory held from start to end.
    pub memory: Memory,
    /// Share of each period in which the device may be busy, above 0 and at most 1.
    ///
    /// The device resolves it: after a step that took `t` it idles for `t (1 - duty) / duty`, so that a slower device
    /// keeps the share.
    pub duty: f64,
}

impl StepProgram {
    /// What the whole step asks of a device.
    pub fn demand(&self) -> Demand {
        self.ops.iter().map(Op::demand).sum()
    }

    /// Device memory that the workload holds.
    pub fn footprint(&self) -> Bytes {
        self.memory.total()
    }

    /// The named parts and their ops, in order.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &[Op])> {
        self.sections.iter().enumerate().map(|(index, section)| {
            let end = self.sections.get(index + 1).map_or(self.ops.len(), |next| next.first);
            (section.name.as_str(), self.ops.get(section.first..end).unwrap_or_default())
        })
    }

    /// How long one step would take on one ordinary CPU core; sizes the CPU programs and nothing else.
    pub fn cpu_estimate(&self) -> Seconds {
        self.ops.iter().map(Op::cpu_estimate).sum()
    }
}

/// Collects ops into a program.
#[derive(Debug)]
pub(crate) struct Builder {
    program: StepProgram,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            program: StepProgram {
                ops: Vec::new(),
                sections: Vec::new(),
                memory: Memory::default(),
                duty: 1.0,
            },
        }
    }

    /// Adds a part; an empty one is left out.
    pub(crate) fn section(mut self, name: &str, ops: impl IntoIterator<Item = Op>) -> Self {
        let first = self.program.ops.len();
        self.program.ops.extend(ops);
        if self.program.ops.len() > first {
            self.program.sections.push(Section { name: name.to_owned(), first });
        }
        self
    }

    pub(crate) fn duty(mut self, duty: f64) -> Self {
        self.program.duty = duty;
        self
    }

    pub(crate) fn finish(self, memory: Memory) -> StepProgram {
        StepProgram { memory, ..self.program }
    }
}
