//! Where activations lie: tensors whose lives do not meet share memory, as under a framework's caching allocator.

use super::lower::Draft;
use super::plan::{Action, Argument, CopyCall, GemmCall, KernelCall};

/// Tensors begin at multiples of this, as allocations of the driver do.
const ALIGNMENT: u64 = 256;

/// The first and last action that touches a tensor.
#[derive(Clone, Copy)]
struct Life {
    first: usize,
    last: usize,
}

/// Places each transient buffer in one arena, first fit in order of their first use. Gives for each buffer its offset
/// there (`None` for those that are not transient) and the size of the arena.
pub(super) fn place(buffers: &[Draft], actions: &[Action]) -> (Vec<Option<u64>>, u64) {
    let mut lives: Vec<Option<Life>> = vec![None; buffers.len()];
    for (index, action) in actions.iter().enumerate() {
        for touch in action.touches() {
            if buffers[touch.buffer].is_transient {
                lives[touch.buffer].get_or_insert(Life { first: index, last: index }).last = index;
            }
        }
    }
    let mut order: Vec<_> =
        lives.iter().enumerate().filter_map(|(index, life)| life.map(|life| (index, life))).collect();
    order.sort_by_key(|(index, life)| (life.first, *index));
    let mut offsets = vec![None; buffers.len()];
    // Live tensors as (begin, end, last use), by begin.
    let mut live: Vec<(u64, u64, usize)> = Vec::new();
    let mut size = 0;
    for (index, life) in order {
        live.retain(|(_, _, last)| *last >= life.first);
        let bytes = buffers[index].bytes.next_multiple_of(ALIGNMENT);
        let mut begin = 0;
        let mut slot = live.len();
        for (position, (taken, end, _)) in live.iter().enumerate() {
            if taken.saturating_sub(begin) >= bytes {
                slot = position;
                break;
            }
            begin = *end;
        }
        live.insert(slot, (begin, begin + bytes, life.last));
        offsets[index] = Some(begin);
        size = size.max(begin + bytes);
    }
    (offsets, size)
}

/// Rewrites buffer numbers: `to[old]` is the new number and the bytes to add to an offset.
pub(super) fn rewrite(actions: &mut [Action], to: &[(usize, u64)]) {
    for action in actions {
        match action {
            Action::Kernel(KernelCall { arguments, touches, .. }) => {
                for argument in arguments {
                    if let Argument::Buffer { index, offset } = argument {
                        let (new, base) = to[*index];
                        (*index, *offset) = (new, *offset + base);
                    }
                }
                for touch in touches {
                    let (new, base) = to[touch.buffer];
                    (touch.buffer, touch.offset) = (new, touch.offset + base);
                }
            }
            Action::Gemm(GemmCall { a, b, c, .. }) => {
                for operand in [a, b, c] {
                    let (new, base) = to[operand.buffer];
                    (operand.buffer, operand.offset) = (new, operand.offset + base);
                }
            }
            Action::Copy(CopyCall { from, to: target, .. }) => {
                *from = to[*from].0;
                *target = to[*target].0;
            }
            Action::HostGap { .. } => {}
        }
    }
}
