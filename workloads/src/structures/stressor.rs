//! Loops that press one resource, after Bubble-Up (Mars et al., MICRO 2011): each has a duty, so that a subject's
//! sensitivity can be taken at several pressures.

use super::times;
use crate::axes::{Axes, Axis};
use crate::op::{Access, Direction, Op, Pipe};
use crate::program::{Builder, Memory, StepProgram};
use crate::structure::{Refusal, Structure, free};
use elastico_core::units::{Bytes, Seconds};
use elastico_core::{Dtype, WorkloadKind};

const KIND: WorkloadKind = WorkloadKind::Stressor;
const MEBI: u64 = 1 << 20;

const DUTY: Axis =
    Axis::ratio("duty", "u", "share of the time in which the stressor works", (0.01, 1.0), 1.0);
// Eight blocks for each SM of an H100: enough to fill every chip of the table.
const BLOCKS: Axis = Axis::integer("blocks", "n", "thread blocks", 1, 1_000_000).or(1_056);
const WARPS: Axis = Axis::integer("warps", "w", "warps of a block", 1, 32).or(8);

fn press(axes: &Axes, op: Op, buffers: u64) -> StepProgram {
    Builder::new()
        .section("work", [op])
        .duty(axes.ratio("duty"))
        .finish(Memory { buffers: Bytes(buffers as f64), ..Memory::default() })
}

const WORK: Axis = Axis::integer("work", "m", "millions of operations per step", 1, 1_000_000_000).scale(1);

pub(crate) const COMPUTE: Structure = Structure {
    name: "compute",
    kind: KIND,
    meaning: "multiply-adds in registers on the FP32 or the FP64 pipe",
    axes: &[WORK, BLOCKS, WARPS, Axis::dtype(&[Dtype::Fp32, Dtype::Fp64]), DUTY],
    check: free,
    build: |axes| {
        let pipe = if axes.dtype() == Dtype::Fp64 { Pipe::Fp64 } else { Pipe::Fp32 };
        registers(axes, pipe)
    },
};

pub(crate) const TENSOR: Structure = Structure {
    name: "tensor",
    kind: KIND,
    meaning: "matrix multiply-accumulates in registers",
    axes: &[
        WORK,
        BLOCKS,
        WARPS,
        Axis::dtype(&[Dtype::Tf32, Dtype::Fp16, Dtype::Bf16, Dtype::Fp8, Dtype::Int8]),
        DUTY,
    ],
    check: free,
    build: |axes| registers(axes, Pipe::Tensor),
};

fn registers(axes: &Axes, pipe: Pipe) -> StepProgram {
    let flops = times(&[axes.integer("work"), 1_000_000]);
    let (blocks, warps_per_block) = (axes.integer("blocks"), axes.integer("warps") as u32);
    press(axes, Op::Compute { flops, pipe, dtype: axes.dtype(), blocks, warps_per_block }, 0)
}

pub(crate) const STREAM: Structure = Structure {
    name: "stream",
    kind: KIND,
    meaning: "sweeps a buffer much larger than any cache",
    axes: &[
        Axis::choice("access", "reads, writes or both", &["read", "write", "copy", "triad"]),
        Axis::integer("footprint", "f", "buffer in MiB", 1, 1_048_576).shrink(128),
        Axis::integer("moved", "m", "MiB moved per step", 1, 1_048_576).or(2_048).shrink(4),
        BLOCKS,
        DUTY,
    ],
    check: free,
    build: |axes| {
        let access = match axes.choice("access") {
            "write" => Access::Write,
            "copy" => Access::Copy,
            "triad" => Access::Triad,
            _ => Access::Read,
        };
        let footprint = times(&[axes.integer("footprint"), MEBI]);
        let bytes = times(&[axes.integer("moved"), MEBI]);
        press(axes, Op::Stream { footprint, bytes, access, blocks: axes.integer("blocks") }, footprint)
    },
};

pub(crate) const CYCLIC_READ: Structure = Structure {
    name: "cyclic_read",
    kind: KIND,
    meaning: "reads a buffer again and again that may fit into L2",
    axes: &[
        Axis::integer("footprint", "f", "buffer in MiB", 1, 1_024),
        Axis::integer("moved", "m", "MiB read per step", 1, 1_048_576).or(4_096).shrink(8),
        BLOCKS,
        DUTY,
    ],
    check: |axes| {
        if axes.integer("moved") >= axes.integer("footprint") {
            return Ok(());
        }
        Err(Refusal { axis: "moved", why: "a step has to read the whole buffer at least once".to_owned() })
    },
    build: |axes| {
        let footprint = times(&[axes.integer("footprint"), MEBI]);
        let bytes = times(&[axes.integer("moved"), MEBI]);
        let op = Op::Stream { footprint, bytes, access: Access::Read, blocks: axes.integer("blocks") };
        press(axes, op, footprint)
    },
};

pub(crate) const RANDOM_READ: Structure = Structure {
    name: "random_read",
    kind: KIND,
    meaning: "reads rows of a large table at random: DRAM latency and row misses",
    axes: &[
        Axis::integer("footprint", "f", "table in MiB", 1, 1_048_576).shrink(128),
        Axis::integer("row", "r", "bytes of a row", 4, 65_536),
        Axis::integer("lookups", "n", "rows read per step", 1_000, 10_000_000_000).or(4_000_000).scale(1_000),
        DUTY,
    ],
    check: |axes| {
        if axes.integer("row") % 4 == 0 {
            return Ok(());
        }
        Err(Refusal { axis: "row", why: "a row holds whole 4-byte numbers".to_owned() })
    },
    build: |axes| {
        let row = axes.integer("row");
        let footprint = times(&[axes.integer("footprint"), MEBI]);
        let (lookups, pooled) = (axes.integer("lookups"), 32);
        let op = Op::Gather {
            lookups,
            columns: row / 4,
            table_rows: (footprint / row).max(1),
            pooled,
            skew: 0.0,
            dtype: Dtype::Fp32,
        };
        press(
            axes,
            op,
            footprint.saturating_add(times(&[lookups, 8])).saturating_add(times(&[lookups / pooled, row])),
        )
    },
};

pub(crate) const SHARED_MEMORY: Structure = Structure {
    name: "shared_memory",
    kind: KIND,
    meaning: "shared-memory loads with or without bank conflicts",
    axes: &[
        Axis::integer("moved", "m", "MiB asked for per step", 1, 10_000_000).or(16_384).shrink(8),
        Axis::integer("conflict", "k", "ways of the bank conflict", 1, 32),
        BLOCKS,
        WARPS,
        DUTY,
    ],
    check: free,
    build: |axes| {
        let bytes = times(&[axes.integer("moved"), MEBI]);
        let (conflict, blocks) = (axes.integer("conflict") as u32, axes.integer("blocks"));
        let warps_per_block = axes.integer("warps") as u32;
        press(axes, Op::SharedMemory { bytes, conflict, blocks, warps_per_block }, 0)
    },
};

pub(crate) const OCCUPANCY: Structure = Structure {
    name: "occupancy",
    kind: KIND,
    meaning: "blocks that sleep and hold slots: pressure on residency alone",
    axes: &[
        Axis::integer("blocks", "n", "thread blocks", 1, 1_000_000),
        WARPS,
        Axis::integer("shared", "s", "shared memory of a block in KiB", 0, 227).or(0),
        Axis::integer("sleep", "t", "microseconds that a block sleeps", 1, 1_000_000).or(2_000),
        DUTY,
    ],
    check: free,
    build: |axes| {
        let op = Op::Resident {
            blocks: axes.integer("blocks"),
            warps_per_block: axes.integer("warps") as u32,
            shared_bytes: axes.integer("shared") * 1_024,
            seconds: Seconds(axes.integer("sleep") as f64 / 1e6),
        };
        press(axes, op, 0)
    },
};

pub(crate) const LAUNCHES: Structure = Structure {
    name: "launches",
    kind: KIND,
    meaning: "empty kernels one after the other",
    axes: &[Axis::integer("count", "n", "kernels per step", 1, 1_000_000).scale(1), DUTY],
    check: free,
    build: |axes| press(axes, Op::Launch { count: axes.integer("count") }, 0),
};

pub(crate) const ATOMICS: Structure = Structure {
    name: "atomics",
    kind: KIND,
    meaning: "atomic additions on few or many addresses",
    axes: &[
        Axis::integer("updates", "n", "additions per step", 1, 100_000_000_000).or(64_000_000).scale(1_000),
        Axis::integer("addresses", "a", "different addresses", 1, 1_000_000_000).shrink(1),
        DUTY,
    ],
    check: free,
    build: |axes| {
        let (updates, addresses) = (axes.integer("updates"), axes.integer("addresses"));
        press(axes, Op::Atomic { updates, addresses }, times(&[addresses, 32]))
    },
};

pub(crate) const COPY: Structure = Structure {
    name: "copy",
    kind: KIND,
    meaning: "pinned copies over the host link",
    axes: &[
        Axis::choice("direction", "to the device, from it, or both at once", &["h2d", "d2h", "both"]),
        Axis::integer("size", "m", "MiB of one step and direction", 1, 65_536).scale(1),
        DUTY,
    ],
    check: free,
    build: |axes| {
        let bytes = times(&[axes.integer("size"), MEBI]);
        let (direction, buffers) = match axes.choice("direction") {
            "h2d" => (Direction::HostToDevice, 1),
            "d2h" => (Direction::DeviceToHost, 1),
            _ => (Direction::Both, 2),
        };
        press(axes, Op::Copy { bytes, direction }, times(&[bytes, buffers]))
    },
};

pub(crate) const NULL: Structure = Structure {
    name: "idle",
    kind: WorkloadKind::Null,
    meaning: "holds a context and waits: the control of every campaign",
    axes: &[Axis::integer("wait", "t", "microseconds of one step", 100, 1_000_000).or(1_000)],
    check: free,
    build: |axes| {
        let seconds = Seconds(axes.integer("wait") as f64 / 1e6);
        Builder::new().section("wait", [Op::HostGap { seconds }]).finish(Memory::default())
    },
};
