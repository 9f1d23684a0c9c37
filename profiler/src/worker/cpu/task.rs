//! From the ops of a step to what one lane does: sizes split over the lanes, once, before anything is timed.

use super::kernels::{Attention, Convolution, ConvolutionKind};
use elastico_core::Dtype;
use elastico_workloads::{Access, ConvolutionPass, Direction, Op, Pass, Pipe};
use std::time::Duration;

/// One lane's part of one op. Sizes are FP32 elements unless the field says otherwise.
#[derive(Debug, Clone, Copy)]
pub(super) enum Task {
    Products {
        products: usize,
        shape: (usize, usize, usize),
        is_double: bool,
    },
    Convolution(Convolution),
    Attention(Attention),
    Norm {
        rows: usize,
        columns: usize,
        backward: bool,
    },
    Softmax {
        rows: usize,
        columns: usize,
        backward: bool,
    },
    Elementwise {
        elements: usize,
        inputs: usize,
        outputs: usize,
        flops: usize,
    },
    Gather {
        lookups: usize,
        columns: usize,
        rows: usize,
        pooled: usize,
        skew: f64,
    },
    Scatter {
        updates: usize,
        columns: usize,
        rows: usize,
        skew: f64,
    },
    Adam {
        parameters: usize,
    },
    Stream {
        footprint: usize,
        moved: usize,
        access: Access,
    },
    /// Register loops: passes over one bundle of accumulators.
    Fma {
        passes: usize,
        is_double: bool,
    },
    /// Products of a tile that stays in the first-level cache: where a processor multiplies fastest.
    Tile {
        products: usize,
    },
    /// Loads that all hit the first-level cache.
    Loads {
        loads: usize,
    },
    Atomic {
        updates: usize,
        addresses: usize,
    },
    Copy {
        elements: usize,
        both: bool,
    },
    /// Tiny calls, made by the first lane alone: launching is serial.
    Launch {
        count: usize,
    },
    /// Every lane sleeps: slots are held and nothing is done.
    Sleep {
        time: Duration,
    },
    /// The host works and the device waits.
    HostGap {
        time: Duration,
    },
    /// Another lane's work.
    Nothing,
}

/// Edge of the tile of [`Task::Tile`]: three of them are 48 KB.
pub(super) const TILE: usize = 64;
/// Accumulators of one bundle of [`Task::Fma`]: enough independent chains to fill the pipes.
pub(super) const BUNDLE: usize = 32;
/// Elements of the buffer of [`Task::Loads`]: 16 KB.
pub(super) const LOADS: usize = 4096;
/// Most elements of one copy buffer: 32 MB; longer copies go around.
pub(super) const COPY: usize = 1 << 23;
/// Most row numbers that are drawn in advance for one op.
pub(super) const INDICES: usize = 1 << 22;

/// Elements that a task reads and writes, by buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) weights: usize,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) double_weights: usize,
    pub(super) double_inputs: usize,
    pub(super) double_outputs: usize,
    pub(super) scratch: usize,
    pub(super) table: usize,
    pub(super) stream: usize,
    pub(super) copy: usize,
    /// Held for this op alone.
    pub(super) state: usize,
    pub(super) indices: usize,
    pub(super) addresses: usize,
}

/// This lane's part of `total`: the first lanes take the rest of the division.
const fn part(total: u64, lane: usize, lanes: usize) -> usize {
    let (total, lanes) = (total as usize, lanes);
    total / lanes + (lane < total % lanes) as usize
}

/// FP32 elements that stand for one element of a format: doubles are two, smaller formats are widened to one.
fn width(dtype: Dtype) -> u64 {
    if dtype == Dtype::Fp64 { 2 } else { 1 }
}

const fn floats(bytes: u64) -> u64 {
    bytes.div_ceil(4)
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::ZERO)
}

/// Work, in seconds of one core, below which an op is left to the first lane: meeting costs tens of microseconds.
///
/// So it is on a GPU: a small kernel does not fill the device, and a share slows it little.
const SPLIT_SECONDS: f64 = 1e-4;

/// Whether the lanes share the op. Rates of one ordinary core: 20 GFLOP/s and 10 GB/s.
pub(super) fn is_split(op: &Op, lanes: usize) -> bool {
    let demand = op.demand();
    let flops = demand.tensor_flops + demand.fp32_flops + demand.fp64_flops;
    let moved = demand.l2_bytes + demand.shared_bytes;
    lanes > 1 && flops.get() / 20e9 + moved.get() / 10e9 >= SPLIT_SECONDS
}

impl Task {
    /// What lane `lane` of `lanes` does of `op`.
    pub(super) fn of(op: &Op, lane: usize, lanes: usize) -> Self {
        match (is_split(op, lanes), lane) {
            (true, _) => Self::new(op, lane, lanes),
            (false, 0) => Self::new(op, 0, 1),
            (false, _) => Self::Nothing,
        }
    }

    /// Lane `lane`'s part of an op that `lanes` share.
    fn new(op: &Op, lane: usize, lanes: usize) -> Self {
        let part = |total: u64| part(total, lane, lanes);
        let task = match *op {
            Op::Gemm { m, n, k, batch, dtype } => {
                let is_double = dtype == Dtype::Fp64;
                let whole = (m as usize, n as usize, k as usize);
                if batch >= lanes as u64 {
                    Self::Products { products: part(batch), shape: whole, is_double }
                } else {
                    // The longer side is split: a lane that had all columns would pack all of B for its few rows.
                    let shape =
                        if m >= n { (part(m), whole.1, whole.2) } else { (whole.0, part(n), whole.2) };
                    Self::Products { products: batch as usize, shape, is_double }
                }
            }
            Op::Convolution { batch, channels_in, channels_out, size, kernel, stride, pass, .. } => {
                let side = size.div_ceil(stride.max(1));
                Self::Convolution(Convolution {
                    kind: match pass {
                        ConvolutionPass::Forward => ConvolutionKind::Forward,
                        ConvolutionPass::DataGradient => ConvolutionKind::Data,
                        ConvolutionPass::FilterGradient => ConvolutionKind::Filter,
                    },
                    pixels: part(batch * side * side),
                    channels_in: channels_in as usize,
                    channels_out: channels_out as usize,
                    size: size as usize,
                    kernel: kernel.max(1) as usize,
                    stride: stride.max(1) as usize,
                })
            }
            Op::Attention { batch, heads, kv_heads, query, context, head_dim, causal, pass, .. } => {
                Self::Attention(Attention {
                    heads: part(batch * heads),
                    group: (heads / kv_heads.max(1)).max(1) as usize,
                    query: query as usize,
                    context: context as usize,
                    width: head_dim as usize,
                    causal,
                    backward: pass == Pass::Backward,
                })
            }
            Op::Norm { rows, columns, pass, dtype } => Self::Norm {
                rows: part(rows * width(dtype)),
                columns: columns as usize,
                backward: pass == Pass::Backward,
            },
            Op::Softmax { rows, columns, pass, dtype } => Self::Softmax {
                rows: part(rows * width(dtype)),
                columns: columns as usize,
                backward: pass == Pass::Backward,
            },
            Op::Elementwise { elements, inputs, outputs, flops_per_element, dtype } => Self::Elementwise {
                elements: part(elements * width(dtype)),
                inputs: inputs as usize,
                outputs: outputs as usize,
                flops: flops_per_element as usize,
            },
            Op::Gather { lookups, columns, table_rows, pooled, skew, dtype } => Self::Gather {
                lookups: part(lookups),
                columns: (columns * width(dtype)) as usize,
                rows: part(table_rows).max(1),
                pooled: pooled.max(1) as usize,
                skew,
            },
            Op::Scatter { updates, columns, table_rows, skew, dtype } => Self::Scatter {
                updates: part(updates),
                columns: (columns * width(dtype)) as usize,
                rows: part(table_rows).max(1),
                skew,
            },
            Op::Adam { parameters, dtype } => Self::Adam { parameters: part(parameters * width(dtype)) },
            Op::Stream { footprint, bytes, access, .. } => {
                Self::Stream { footprint: part(floats(footprint)).max(3), moved: part(floats(bytes)), access }
            }
            Op::Compute { flops, pipe: Pipe::Tensor, dtype, .. } if dtype != Dtype::Fp64 => {
                Self::Tile { products: part(flops.div_ceil(2 * (TILE as u64).pow(3))) }
            }
            Op::Compute { flops, pipe, dtype, .. } => Self::Fma {
                passes: part(flops.div_ceil(2 * BUNDLE as u64)),
                is_double: pipe == Pipe::Fp64 || dtype == Dtype::Fp64,
            },
            Op::SharedMemory { bytes, conflict, .. } => {
                Self::Loads { loads: part(floats(bytes).saturating_mul(u64::from(conflict.max(1)))) }
            }
            Op::Atomic { updates, addresses } => {
                Self::Atomic { updates: part(updates), addresses: addresses.max(1) as usize }
            }
            Op::Copy { bytes, direction } => {
                Self::Copy { elements: part(floats(bytes)), both: direction == Direction::Both }
            }
            Op::Launch { count } if lane == 0 => Self::Launch { count: count as usize },
            Op::Resident { seconds, .. } => Self::Sleep { time: duration(seconds.get()) },
            Op::HostGap { seconds } if lane == 0 => Self::HostGap { time: duration(seconds.get()) },
            Op::Launch { .. } | Op::HostGap { .. } => Self::Nothing,
        };
        if task.is_empty() { Self::Nothing } else { task }
    }

    /// Whether the division left nothing for this lane.
    const fn is_empty(&self) -> bool {
        match *self {
            Self::Products { products, shape: (m, n, k), .. } => products == 0 || m == 0 || n == 0 || k == 0,
            Self::Convolution(convolution) => {
                convolution.pixels == 0 || convolution.channels_in == 0 || convolution.channels_out == 0
            }
            Self::Attention(attention) => {
                attention.heads == 0 || attention.query == 0 || attention.context == 0 || attention.width == 0
            }
            Self::Norm { rows, columns, .. } | Self::Softmax { rows, columns, .. } => {
                rows == 0 || columns == 0
            }
            Self::Elementwise { elements, .. } => elements == 0,
            Self::Gather { lookups: count, columns, .. } | Self::Scatter { updates: count, columns, .. } => {
                count == 0 || columns == 0
            }
            _ => false,
        }
    }

    /// What it reads and writes.
    pub(super) fn needs(&self) -> Needs {
        let none = Needs::default();
        match *self {
            Self::Products { products, shape: (m, n, k), is_double } => {
                let (weights, inputs, outputs) = (products * k * n, products * m * k, products * m * n);
                if is_double {
                    Needs { double_weights: weights, double_inputs: inputs, double_outputs: outputs, ..none }
                } else {
                    Needs { weights, inputs, outputs, ..none }
                }
            }
            Self::Convolution(convolution) => Needs {
                weights: convolution.weights(),
                inputs: convolution.inputs(),
                outputs: convolution.outputs(),
                scratch: convolution.scratch(),
                ..none
            },
            Self::Attention(attention) => Needs {
                inputs: attention.inputs(),
                outputs: attention.outputs(),
                scratch: attention.scratch(),
                ..none
            },
            Self::Norm { rows, columns, backward } | Self::Softmax { rows, columns, backward } => {
                let inputs = rows * columns * if backward { 2 } else { 1 };
                Needs { inputs, outputs: rows * columns, ..none }
            }
            Self::Elementwise { elements, inputs, outputs, .. } => {
                Needs { inputs: elements * inputs, outputs: elements * outputs, ..none }
            }
            Self::Gather { lookups, columns, rows, pooled, .. } => Needs {
                outputs: lookups.div_ceil(pooled) * columns,
                table: rows * columns,
                indices: index_count(lookups),
                ..none
            },
            Self::Scatter { updates, columns, rows, .. } => Needs {
                inputs: updates * columns,
                table: rows * columns,
                indices: index_count(updates),
                ..none
            },
            Self::Adam { parameters } => Needs { inputs: parameters, state: 3 * parameters, ..none },
            Self::Stream { footprint, .. } => Needs { stream: footprint, ..none },
            Self::Atomic { addresses, .. } => Needs { addresses, ..none },
            Self::Copy { elements, .. } => Needs { copy: elements.min(COPY), ..none },
            Self::Tile { .. } => {
                Needs { weights: TILE * TILE, inputs: TILE * TILE, outputs: TILE * TILE, ..none }
            }
            Self::Loads { .. } => Needs { inputs: LOADS, ..none },
            Self::Fma { .. }
            | Self::Launch { .. }
            | Self::Sleep { .. }
            | Self::HostGap { .. }
            | Self::Nothing => none,
        }
    }
}

/// Row numbers drawn in advance for an op of `count` per step: several steps' worth, so that no step repeats the last.
const fn index_count(count: usize) -> usize {
    let wanted = count.saturating_mul(4);
    if wanted <= INDICES {
        wanted
    } else if count > INDICES {
        count
    } else {
        INDICES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lanes_together_do_the_whole_op() {
        let op = Op::Norm { rows: 101, columns: 8, pass: Pass::Forward, dtype: Dtype::Fp32 };
        let rows: usize = (0..3)
            .map(|lane| match Task::new(&op, lane, 3) {
                Task::Norm { rows, .. } => rows,
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(rows, 101);
    }

    #[test]
    fn launches_and_gaps_belong_to_the_first_lane() {
        let op = Op::Launch { count: 7 };
        assert!(matches!(Task::new(&op, 0, 2), Task::Launch { count: 7 }));
        assert!(matches!(Task::new(&op, 1, 2), Task::Nothing));
    }

    #[test]
    fn small_ops_are_left_to_the_first_lane() {
        let gemm = |size| Op::Gemm { m: size, n: size, k: size, batch: 1, dtype: Dtype::Fp32 };
        assert!(is_split(&gemm(256), 2) && !is_split(&gemm(256), 1));
        assert!(!is_split(&gemm(32), 2));
        assert!(matches!(Task::of(&gemm(32), 0, 2), Task::Products { shape: (32, 32, 32), .. }));
        assert!(matches!(Task::of(&gemm(32), 1, 2), Task::Nothing));
        assert!(matches!(Task::of(&gemm(256), 1, 2), Task::Products { shape: (128, 256, 256), .. }));
    }

    #[test]
    fn a_lane_without_work_does_nothing() {
        let op = Op::Gemm { m: 1, n: 1, k: 64, batch: 1, dtype: Dtype::Bf16 };
        assert!(matches!(Task::new(&op, 0, 2), Task::Products { shape: (1, 1, 64), .. }));
        assert!(matches!(Task::new(&op, 1, 2), Task::Nothing));
    }
}
