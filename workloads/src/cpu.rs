//! CPU-sized programs: the same structure with smaller axes.
//!
//! The `cpu` device runs the ops for real on one core per worker, so a step has to take milliseconds and a worker may
//! not fill the host. Axes are halved in turn, so that the proportions of a configuration, and with them the
//! differences within a family, survive; formats become FP32, which is what a core computes in.

use crate::axes::{Axes, CpuRule, Value};
use crate::op::Op;
use crate::program::StepProgram;
use crate::structure::Structure;
use elastico_core::Dtype;
use elastico_core::units::{Bytes, Seconds};
use std::collections::BTreeMap;

/// The longest step by the estimate, for the largest configurations; the real core may be twice as slow or as fast.
const LONGEST: f64 = 10e-3;
/// The same for the smallest.
const LONGEST_OF_SMALL: f64 = 3e-3;
/// A shorter step would be mostly bookkeeping.
const SHORTEST: f64 = 1.5e-3;
/// Memory of a worker, so that two of them fit beside everything else.
const LARGEST: Bytes = Bytes(400e6);

/// The axes of the CPU-sized program.
pub(crate) fn scaled(structure: &Structure, axes: &Axes) -> Axes {
    let mut current = axes.clone();
    if let Some(Value::Dtype(dtype)) = axes.find("dtype")
        && dtype != Dtype::Fp64
    {
        current = current.with("dtype", Value::Dtype(Dtype::Fp32));
    }
    let work = |program: &StepProgram| program.ops.iter().map(Op::cpu_work).sum::<f64>();
    let memory = |program: &StepProgram| program.footprint().get();
    // A large configuration stays larger than a small one: the limit grows with the seventh root of the work.
    let longest =
        (3e-3 * (work(&(structure.build)(axes)) / 0.1).powf(1.0 / 7.0)).clamp(LONGEST_OF_SMALL, LONGEST);
    current = shrink(structure, current, work, longest);
    current = shrink(structure, current, memory, LARGEST.get());
    // 2^30 covers every domain; the loop ends when the step is long enough or the axis is used up.
    for _ in 0..30 {
        if work(&(structure.build)(&current)) >= SHORTEST {
            break;
        }
        let Some(larger) = grown(structure, &current) else { break };
        let program = (structure.build)(&larger);
        if work(&program) > longest || memory(&program) > LARGEST.get() {
            break;
        }
        current = larger;
    }
    current
}

/// Halves axes in turn until `measure` is at most `limit` or nothing helps.
fn shrink(structure: &Structure, axes: Axes, measure: impl Fn(&StepProgram) -> f64, limit: f64) -> Axes {
    let mut current = axes;
    let mut size = measure(&(structure.build)(&current));
    let mut halvings: BTreeMap<&str, u32> = BTreeMap::new();
    while size > limit {
        // The axis halved least comes first, among equals the one declared first. An axis that does not reduce the
        // measure by a twentieth stays as it is.
        let next = current
            .iter()
            .filter_map(|(axis, value)| {
                let (Value::Integer(value), CpuRule::Shrink(floor) | CpuRule::Scale(floor)) =
                    (value, axis.cpu)
                else {
                    return None;
                };
                let half = value / 2;
                if half < floor || half == 0 {
                    return None;
                }
                let smaller = current.with(axis.name, Value::Integer(half));
                (structure.check)(&smaller).ok()?;
                let reduced = measure(&(structure.build)(&smaller));
                (reduced < size * 0.95).then_some((axis.name, smaller, reduced))
            })
            .min_by_key(|(name, ..)| halvings.get(name).copied().unwrap_or(0));
        let Some((name, smaller, reduced)) = next else { break };
        *halvings.entry(name).or_default() += 1;
        (current, size) = (smaller, reduced);
    }
    current
}

/// The axes with the one that scales doubled.
fn grown(structure: &Structure, axes: &Axes) -> Option<Axes> {
    let (axis, value) = axes.iter().find(|(axis, _)| matches!(axis.cpu, CpuRule::Scale(_)))?;
    let Value::Integer(value) = value else { return None };
    let larger = axes.with(axis.name, Value::Integer(value.checked_mul(2)?));
    (structure.check)(&larger).ok()?;
    Some(larger)
}

impl Op {
    /// How long the op would take on one ordinary core, host gaps included.
    pub(crate) fn cpu_estimate(&self) -> Seconds {
        match *self {
            Self::HostGap { seconds } => seconds,
            _ => Seconds(self.cpu_work()),
        }
    }

    /// Seconds of work on one ordinary core: 20 GFLOP/s in blocked products, 15 in register loops, 3 G scalar
    /// operations per second, 8 GB/s from memory, 20 from the first cache, 40 ns per random row, 6 ns per atomic, half a
    /// microsecond per launch. Round numbers for sizing, no claim about any machine.
    fn cpu_work(&self) -> f64 {
        let demand = self.demand();
        let memory = demand.dram_bytes().get() / 8e9;
        match *self {
            Self::Gemm { .. } | Self::Convolution { .. } | Self::Attention { .. } => {
                (demand.flops().get() / 20e9).max(memory)
            }
            Self::Norm { .. } | Self::Softmax { .. } | Self::Elementwise { .. } | Self::Adam { .. } => {
                (demand.fp32_flops.get() / 3e9).max(memory)
            }
            Self::Gather { lookups, .. } => lookups as f64 * 40e-9 + demand.l2_bytes.get() / 8e9,
            Self::Scatter { updates, .. } => updates as f64 * 40e-9 + demand.l2_bytes.get() / 8e9,
            Self::Stream { bytes, .. } => bytes as f64 / 8e9,
            Self::Compute { .. } => {
                (demand.tensor_flops + demand.fp32_flops).get() / 15e9 + demand.fp64_flops.get() / 8e9
            }
            Self::SharedMemory { .. } => demand.shared_bytes.get() / 20e9,
            Self::Atomic { updates, .. } => updates as f64 * 6e-9,
            Self::Copy { .. } => (demand.host_to_device + demand.device_to_host).get() / 8e9,
            Self::Launch { count } => count as f64 * 0.5e-6,
            Self::Resident { seconds, .. } => seconds.get(),
            Self::HostGap { .. } => 0.0,
        }
    }
}
