//! Kernels around a step: filling buffers, marking the time, adding up contents.

use super::LaunchPlan;
use super::call::{Call, THREADS, View};
use super::error::LaunchError;
use super::fill::{Fill, mixed, normal_factor};
use super::format::Format;
use super::plan::{Action, Buffer, KernelCall, Place};
use elastico_core::Dtype;

/// Blocks of a fill kernel: enough for every chip, and each goes around.
const BLOCKS: u64 = 2048;

/// Whether a kernel can write the contents of the buffer.
pub(super) fn is_filled_by_kernel(buffer: &Buffer) -> bool {
    buffer.place == Place::Device
        && match buffer.fill {
            Fill::Zero => true,
            Fill::Normal { dtype, .. } => dtype != Dtype::Fp64,
            Fill::Positive { dtype, .. } => matches!(dtype, Dtype::Fp32 | Dtype::Tf32),
            Fill::Rows { .. } | Fill::Bytes | Fill::Held => false,
        }
}

/// The calls that fill the device buffers of a plan.
pub(super) fn fills(plan: &LaunchPlan) -> Result<Vec<Action>, LaunchError> {
    let mut calls = Vec::new();
    for (index, buffer) in plan.buffers.iter().enumerate().filter(|(_, buffer)| is_filled_by_kernel(buffer)) {
        let view = |format: Format| View {
            buffer: index,
            offset: 0,
            elements: buffer.bytes / format.bytes(),
            format,
        };
        let key = plan.key(index);
        let (out, call) = match buffer.fill {
            Fill::Normal { dtype, deviation } => {
                let function = match dtype {
                    Dtype::Fp16 => "fill_normal_fp16",
                    Dtype::Bf16 => "fill_normal_bf16",
                    Dtype::Fp8 => "fill_normal_fp8",
                    Dtype::Int8 => "fill_normal_int8",
                    _ => "fill_normal_fp32",
                };
                let out = view(Format::of(dtype));
                let call = Call::new(("fill", function)).write(out).u64(out.elements).u64(key);
                (out, call.f32(f64::from(normal_factor(deviation))))
            }
            Fill::Positive { largest, .. } => {
                let out = view(Format::F32);
                let call = Call::new(("fill", "fill_positive_fp32")).write(out).u64(out.elements).u64(key);
                (out, call.f32(largest))
            }
            _ => {
                let out = view(Format::I32);
                (out, Call::new(("fill", "fill_zero")).write(out).u64(out.elements))
            }
        };
        let blocks = out.elements.div_ceil(u64::from(THREADS)).min(BLOCKS);
        calls.push(Action::Kernel(call.grid("fill", [blocks, 1, 1])?));
    }
    Ok(calls)
}

/// A call that writes the device's clock, in nanoseconds, to `slot` of an array of `unsigned long long` at the start of a
/// buffer.
pub fn mark_call(buffer: usize, slot: u32) -> KernelCall {
    let slots = View { buffer, offset: 0, elements: u64::from(slot) + 1, format: Format::U64 };
    let call = Call::new(("fill", "mark")).write(slots).u32(u64::from(slot)).block(32);
    call.grid("mark", [1, 1, 1]).expect("one block is a grid")
}

/// A call that adds the [`checksum`] of the first `words` 32-bit words of buffer `from` to the `unsigned long long` at the
/// start of buffer `sum`.
pub fn checksum_call(from: usize, words: u64, sum: usize) -> KernelCall {
    let view = |buffer, elements, format| View { buffer, offset: 0, elements, format };
    let call = Call::new(("fill", "checksum")).read(view(from, words, Format::I32)).u64(words);
    let call = call.write(view(sum, 1, Format::U64));
    let blocks = words.div_ceil(u64::from(THREADS)).min(BLOCKS);
    call.grid("checksum", [blocks, 1, 1]).expect("at most 2048 blocks are a grid")
}

/// The checksum of contents by the same formula as the kernel: a hash of each whole 32-bit word and its place, added up.
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(4).zip(0..).fold(0, |sum, (word, place)| {
        let word = word.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        sum.wrapping_add(mixed(word, place))
    })
}
