//! Stressors, copies and launches.

use super::{Draft, Lowering};
use crate::launch::call::{Call, MOST_BLOCKS, THREADS, View};
use crate::launch::error::LaunchError;
use crate::launch::fill::Fill;
use crate::launch::format::Format;
use crate::launch::plan::{Action, CopyCall, Place};
use crate::op::{Access, Direction, Op, Pipe};
use elastico_core::Dtype;

/// Bytes of one load of a stream.
const WORD: u64 = 16;
/// Multiply-adds of one round of a thread: eight pairs, see `stress.cu`.
const FMA_ROUND: u64 = 16;
/// Products of one round of a warp, and operations of one product of words: 16 x 8 results, 8 words deep.
const TENSOR_ROUND: u64 = 16;
/// Loads of one round of a thread.
const LOADS_ROUND: u64 = 8;
/// How far a pair turns in one round, in radians.
const ANGLE: f64 = 0.1;

impl Lowering<'_> {
    fn words(&mut self, bytes: u64) -> View {
        let fill = Fill::Normal { dtype: Dtype::Fp32, deviation: 1.0 };
        let buffer = self.buffer("stream", bytes, fill);
        View { buffer, offset: 0, elements: (bytes / WORD).max(1) * 4, format: Format::F32 }
    }

    /// Where threads leave a number, so that no work can be left out.
    fn sink(&mut self, threads: u64, format: Format) -> View {
        let buffer = self.buffer("sink", threads * format.bytes(), Fill::Zero);
        View { buffer, offset: 0, elements: threads, format }
    }

    pub(super) fn stream(
        &mut self,
        footprint: u64,
        bytes: u64,
        access: Access,
        blocks: u64,
    ) -> Result<(), LaunchError> {
        let arrays = match access {
            Access::Read | Access::Write => 1,
            Access::Copy => 2,
            Access::Triad => 3,
        };
        // Words of one array, and of one array in this step.
        let length = (footprint / arrays / WORD).max(1);
        let moved = (bytes / arrays / WORD).max(1);
        let buffers: Vec<_> = (0..arrays).map(|_| self.words(length * WORD)).collect();
        let position = self.buffer("position", 16, Fill::Zero);
        let position = View { buffer: position, offset: 0, elements: 2, format: Format::U64 };
        let blocks = blocks.max(1);
        let call = match access {
            Access::Read => {
                // A buffer that L2 may hold is read past the first-level cache; a larger one is not kept anywhere.
                let function =
                    if footprint > 2 * self.target.l2_bytes { "stream_read" } else { "cyclic_read" };
                let sink = self.sink(blocks * u64::from(THREADS), Format::F32);
                let call = Call::new(("stress", function)).read(buffers[0]).u64(length).u64(moved);
                call.write(position).write(sink).flops(4.0 * moved as f64)
            }
            Access::Write => {
                Call::new(("stress", "stream_write")).write(buffers[0]).u64(length).u64(moved).write(position)
            }
            Access::Copy => {
                let call = Call::new(("stress", "stream_copy")).write(buffers[0]).read(buffers[1]);
                call.u64(length).u64(moved).write(position)
            }
            Access::Triad => {
                let call = Call::new(("stress", "stream_triad")).write(buffers[0]);
                let call = call.read(buffers[1]).read(buffers[2]).f32(0.5);
                call.u64(length).u64(moved).write(position).flops(8.0 * moved as f64)
            }
        };
        self.kernel(call.grid("stream", [blocks, 1, 1])?);
        Ok(())
    }

    pub(super) fn compute(&mut self, op: &Op) -> Result<(), LaunchError> {
        let Op::Compute { flops, pipe, dtype, blocks, warps_per_block } = *op else { return Ok(()) };
        let (blocks, warps) = (blocks.max(1), u64::from(warps_per_block.clamp(1, 32)));
        let threads = blocks * warps * 32;
        let rounds = |each: u64, units: u64| (flops as f64 / (each * units) as f64).round().max(1.0) as u64;
        let tensor = |each: u64, function| {
            (function, rounds(each * TENSOR_ROUND, blocks * warps), each * TENSOR_ROUND)
        };
        let (function, rounds, each) = match (pipe, dtype) {
            (Pipe::Fp64, _) => ("fma_fp64", rounds(2 * FMA_ROUND, threads), 64 * FMA_ROUND),
            (Pipe::Fp32, _) | (Pipe::Tensor, Dtype::Fp32) => {
                ("fma_fp32", rounds(2 * FMA_ROUND, threads), 64 * FMA_ROUND)
            }
            // 16 x 8 results; k is 8 words of one, two or four elements.
            (Pipe::Tensor, Dtype::Tf32) => tensor(2 * 16 * 8 * 8, "tensor_tf32"),
            (Pipe::Tensor, Dtype::Fp16) => tensor(2 * 16 * 8 * 16, "tensor_fp16"),
            (Pipe::Tensor, Dtype::Bf16) => tensor(2 * 16 * 8 * 16, "tensor_bf16"),
            (Pipe::Tensor, Dtype::Fp8) => tensor(2 * 16 * 8 * 32, "tensor_fp8"),
            (Pipe::Tensor, Dtype::Int8) => tensor(2 * 16 * 8 * 32, "tensor_int8"),
            (Pipe::Tensor, Dtype::Fp64) => return Err(LaunchError::Format { op: "compute", dtype }),
        };
        if pipe == Pipe::Tensor && dtype != Dtype::Fp32 {
            self.require("compute", dtype, super::products::needs("compute", dtype)?)?;
        }
        let format = if pipe == Pipe::Fp64 { Format::F64 } else { Format::F32 };
        let sink = self.sink(threads, format);
        let call = Call::new(("stress", function)).write(sink).u64(rounds);
        let call = match (pipe, dtype) {
            (Pipe::Fp64, _) => call.f64(ANGLE),
            (Pipe::Fp32, _) | (Pipe::Tensor, Dtype::Fp32) => call.f32(ANGLE),
            _ => call,
        };
        let call = call.block(warps as u32 * 32).flops((rounds * each * blocks * warps) as f64);
        self.kernel(call.grid("compute", [blocks, 1, 1])?);
        Ok(())
    }

    pub(super) fn shared_memory(
        &mut self,
        bytes: u64,
        conflict: u32,
        blocks: u64,
        warps_per_block: u32,
    ) -> Result<(), LaunchError> {
        let (blocks, warps) = (blocks.max(1), u64::from(warps_per_block.clamp(1, 32)));
        let threads = blocks * warps * 32;
        let rounds = (bytes as f64 / (4 * LOADS_ROUND * threads) as f64).round().max(1.0) as u64;
        let sink = self.sink(threads, Format::I32);
        let call = Call::new(("stress", "shared_loads"))
            .write(sink)
            .u64(rounds)
            .u32(u64::from(conflict.clamp(1, 32)))
            .block(warps as u32 * 32)
            .grid("shared_memory", [blocks, 1, 1])?;
        self.kernel(call);
        Ok(())
    }

    pub(super) fn atomic(&mut self, updates: u64, addresses: u64) -> Result<(), LaunchError> {
        let addresses = addresses.max(1);
        let buffer = self.buffer("counters", addresses * 32, Fill::Zero);
        let counters = View { buffer, offset: 0, elements: addresses * 8, format: Format::I32 };
        let call = Call::new(("stress", "atomics")).write(counters).u64(updates).u64(addresses);
        self.kernel(call.grid("atomic", [updates.div_ceil(1024), 1, 1])?);
        Ok(())
    }

    pub(super) fn launches(&mut self, count: u64) -> Result<(), LaunchError> {
        let limit = 1_000_000;
        if count > limit {
            return Err(LaunchError::Size { op: "launch", what: "a count", found: count, limit });
        }
        let call = Call::new(("stress", "empty")).block(32).grid("launch", [1, 1, 1])?;
        for _ in 0..count {
            self.kernel(call.clone());
        }
        Ok(())
    }

    pub(super) fn resident(
        &mut self,
        blocks: u64,
        warps_per_block: u32,
        shared_bytes: u64,
        seconds: f64,
    ) -> Result<(), LaunchError> {
        // What a block may have at most since Ampere; Hopper's 227 KiB and the smaller limits of older chips.
        let limit = match self.target.compute_capability {
            (7, _) => 64 << 10,
            (8, 0 | 7) => 163 << 10,
            (8 | 12, _) => 99 << 10,
            _ => 227 << 10,
        };
        if shared_bytes > limit {
            let what = "the shared memory of a block";
            return Err(LaunchError::Size { op: "resident", what, found: shared_bytes, limit });
        }
        let call = Call::new(("stress", "resident"))
            .u64((seconds.max(0.0) * 1e9).round() as u64)
            .block(warps_per_block.clamp(1, 32) * 32)
            .shared(shared_bytes as u32)
            .grid("resident", [blocks.clamp(1, MOST_BLOCKS), 1, 1])?;
        self.kernel(call);
        Ok(())
    }

    /// Copies go between a pinned and a device buffer of their own: what is copied is as random as all else, and no
    /// kernel waits for a number in it.
    pub(super) fn copy(&mut self, bytes: u64, direction: Direction) {
        let bytes = bytes.max(1);
        let overlapped = direction == Direction::Both;
        if matches!(direction, Direction::HostToDevice | Direction::Both) {
            let from = self.pinned("host source", bytes);
            let to = self.buffer("copy target", bytes, Fill::Normal { dtype: Dtype::Fp16, deviation: 1.0 });
            self.actions.push(Action::Copy(CopyCall { from, to, bytes, overlapped }));
        }
        if matches!(direction, Direction::DeviceToHost | Direction::Both) {
            let from = self.buffer("copy source", bytes, Fill::Normal { dtype: Dtype::Fp16, deviation: 1.0 });
            let to = self.pinned("host target", bytes);
            self.actions.push(Action::Copy(CopyCall { from, to, bytes, overlapped }));
        }
    }

    fn pinned(&mut self, label: &'static str, bytes: u64) -> usize {
        self.buffers.push(Draft {
            label,
            bytes,
            place: Place::Pinned,
            fill: Fill::Bytes,
            is_transient: false,
        });
        self.buffers.len() - 1
    }
}
