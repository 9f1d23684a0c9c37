//! How large the buffers of a lane are: as different as the workload's memory is, as far as the ration lasts.

use super::task::{Needs, Task};

/// 32-bit words from one address of [`Task::Atomic`] to the next: one cache line.
pub(super) const ADDRESS_STRIDE: usize = 16;

/// Buffer sizes of one lane.
#[derive(Debug)]
pub(super) struct Sizes {
    /// The largest need of one task.
    pub(super) most: Needs,
    /// What the tasks would take if none shared memory with another.
    sum: Needs,
    /// State and row numbers, which tasks never share.
    own_bytes: u64,
}

/// Elements that a task takes from one buffer.
pub(super) type Which = fn(&Needs) -> usize;

/// The cyclic buffers, with the size of an element and whether all lanes share it.
const CYCLIC: [(Which, u64, bool); 6] = [
    (|needs| needs.weights, 4, true),
    (|needs| needs.double_weights, 8, true),
    (|needs| needs.inputs, 4, false),
    (|needs| needs.outputs, 4, false),
    (|needs| needs.double_inputs, 8, false),
    (|needs| needs.double_outputs, 8, false),
];

impl Sizes {
    pub(super) fn of(tasks: &[Task]) -> Self {
        let (mut most, mut sum, mut own_bytes) = (Needs::default(), Needs::default(), 0);
        for needs in tasks.iter().map(Task::needs) {
            macro_rules! gather {
                ($($field:ident),*) => {
                    $(
                        most.$field = most.$field.max(needs.$field);
                        sum.$field = sum.$field.saturating_add(needs.$field);
                    )*
                };
            }
            gather!(
                weights,
                inputs,
                outputs,
                double_weights,
                double_inputs,
                double_outputs,
                scratch,
                table,
                stream,
                copy,
                addresses
            );
            own_bytes += 4 * (needs.state + needs.indices) as u64;
        }
        Self { most, sum, own_bytes }
    }

    /// How far, from 0 to 1, the cyclic buffers may grow from the largest need towards the sum of all.
    pub(super) fn growth(lanes: &[Self], limit: u64) -> f64 {
        let (mut fixed, mut extra) = (0_u64, 0_u64);
        for (index, sizes) in lanes.iter().enumerate() {
            let most = &sizes.most;
            fixed += sizes.own_bytes
                + 4 * (most.scratch + most.table + most.stream + 2 * most.copy) as u64
                + if index == 0 { 4 * (most.addresses * ADDRESS_STRIDE) as u64 } else { 0 };
            for (which, bytes, shared) in CYCLIC {
                if index == 0 || !shared {
                    fixed += which(most) as u64 * bytes;
                    extra += (which(&sizes.sum) - which(most)) as u64 * bytes;
                }
            }
        }
        if extra == 0 { 0.0 } else { (limit.saturating_sub(fixed) as f64 / extra as f64).min(1.0) }
    }

    pub(super) fn stretched(&self, which: impl Fn(&Needs) -> usize, growth: f64) -> usize {
        let most = which(&self.most);
        // A thousandth less than allowed, for the rounding of many buffers.
        most + ((which(&self.sum) - most) as f64 * growth * 0.999) as usize
    }
}
