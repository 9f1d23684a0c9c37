//! The formulae from an op's sizes to its demand.
//!
//! Kernel geometry follows common library practice and is an assumption, not a measurement: products in 128 x 128
//! tiles of 8 warps (CUTLASS "Efficient GEMM"), smaller tiles for fewer rows, the inner dimension split when tiles are
//! too few to fill a device, rasterisation in squares of tiles.

use crate::demand::Demand;
use crate::op::{Access, Direction, Op, Pass, Pipe};
use elastico_core::Dtype;
use elastico_core::units::{Bytes, Flops};

/// Edge of a full output tile of a product.
const TILE: f64 = 128.0;
/// Libraries split work that yields fewer tiles than about one per SM.
const WAVE: f64 = 128.0;
/// A split of the inner dimension keeps at least this much of it.
const SPLIT_DEPTH: f64 = 512.0;
/// Tiles along one side of the square of tiles that are in flight together.
const SWIZZLE: f64 = 12.0;
/// Elements that one block of a pointwise kernel handles: 256 threads, 4 elements each.
const POINTWISE: f64 = 1024.0;
/// The unit of L2 and DRAM traffic.
const SECTOR: f64 = 32.0;
/// Warps of a block in library kernels: 256 threads.
const WARPS: u32 = 8;

fn matrix_work(flops: f64, dtype: Dtype) -> Demand {
    let mut demand = Demand { dtype, ..Demand::default() };
    match dtype {
        Dtype::Fp32 => demand.fp32_flops = Flops(flops),
        Dtype::Fp64 => demand.fp64_flops = Flops(flops),
        _ => demand.tensor_flops = Flops(flops),
    }
    demand
}

/// A kernel that reads and writes each byte once.
fn streaming(read: f64, write: f64, fp32: f64, blocks: f64) -> Demand {
    Demand {
        fp32_flops: Flops(fp32),
        l2_bytes: Bytes(read + write),
        dram_read: Bytes(read),
        dram_write: Bytes(write),
        working_set: Bytes(read + write),
        launches: 1,
        blocks: blocks.ceil().max(1.0) as u64,
        warps_per_block: WARPS,
        ..Demand::default()
    }
}

/// Blocks of a row-wise kernel: four short rows each, or a part of a long row.
fn row_blocks(rows: u64, columns: u64) -> f64 {
    if columns <= 1024 { rows as f64 / 4.0 } else { rows as f64 * columns.div_ceil(16_384) as f64 }
}

/// Edge of the tile for an output of that many rows: a power of two from 16 to 128.
fn tile(rows: f64) -> f64 {
    [16.0, 32.0, 64.0].into_iter().find(|edge| rows <= *edge).unwrap_or(TILE)
}

/// A product whose operands occupy `a`, `b` and `c` bytes in memory (a convolution's patches overlap there).
fn product(m: f64, n: f64, k: f64, batch: f64, (a, b, c): (f64, f64, f64), dtype: Dtype) -> Demand {
    let element = dtype.bytes();
    let (rows, columns) = ((m / tile(m)).ceil().max(1.0), (n / tile(n)).ceil().max(1.0));
    let tiles = batch.max(1.0) * rows * columns;
    let split = (WAVE / tiles).floor().min((k / SPLIT_DEPTH).ceil()).max(1.0);
    let panel = k * element * (tile(m) * SWIZZLE.min(rows) + tile(n) * SWIZZLE.min(columns));
    let reread = batch * element * (m * k * columns + k * n * rows);
    Demand {
        l2_bytes: Bytes(reread + c),
        dram_read: Bytes(a + b),
        dram_write: Bytes(c),
        working_set: Bytes((a + b + c).min(panel * (WAVE / (rows * columns)).min(batch).max(1.0) + c)),
        launches: 1,
        blocks: (tiles * split) as u64,
        warps_per_block: WARPS,
        ..matrix_work(2.0 * m * n * k * batch, dtype)
    }
}

/// Expected number of different rows among `draws` draws from a table under Zipf's law with exponent `skew`.
///
/// Sum over rows of 1 - exp(-draws p). Ranks above 64 are taken in buckets that grow by a tenth, each at its geometric
/// mean.
pub(crate) fn distinct_rows(draws: f64, table: f64, skew: f64) -> f64 {
    if draws <= 0.0 || table <= 0.0 {
        return 0.0;
    }
    if skew == 0.0 {
        return -table * (-draws / table).exp_m1();
    }
    let mut buckets = Vec::with_capacity(256);
    let mut first = 1.0;
    while first <= table {
        let count = if first < 64.0 { 1.0 } else { (first * 0.1).floor() };
        let last = (first + count - 1.0).min(table.floor());
        buckets.push((last - first + 1.0, (first * last).sqrt().powf(-skew)));
        first = last + 1.0;
    }
    let total: f64 = buckets.iter().map(|(count, weight)| count * weight).sum();
    let expected: f64 =
        buckets.iter().map(|(count, weight)| -count * (-draws * weight / total).exp_m1()).sum();
    expected.min(table).min(draws)
}

/// Bytes of one row in whole sectors.
fn row_bytes(columns: u64, dtype: Dtype) -> f64 {
    (columns as f64 * dtype.bytes() / SECTOR).ceil() * SECTOR
}

impl Op {
    /// What the op asks of a device.
    pub fn demand(&self) -> Demand {
        match *self {
            Self::Gemm { m, n, k, batch, dtype } => {
                let (m, n, k, batch) = (m as f64, n as f64, k as f64, batch as f64);
                let size = batch * dtype.bytes();
                product(m, n, k, batch, (m * k * size, k * n * size, m * n * size), dtype)
            }
            Self::Convolution { batch, channels_in, channels_out, size, kernel, stride, pass, dtype } => {
                let (m, n, k, _) = self.gemm_shape().expect("a convolution comes down to a product");
                let element = dtype.bytes();
                let side = size.div_ceil(stride.max(1)) as f64;
                let input = batch as f64 * channels_in as f64 * (size as f64).powi(2) * element;
                let filter = channels_in as f64 * channels_out as f64 * (kernel as f64).powi(2) * element;
                let output = batch as f64 * channels_out as f64 * side * side * element;
                use crate::op::ConvolutionPass as Which;
                let operands = match pass {
                    Which::Forward => (input, filter, output),
                    Which::DataGradient => (output, filter, input),
                    Which::FilterGradient => (input, output, filter),
                };
                product(m as f64, n as f64, k as f64, 1.0, operands, dtype)
            }
            Self::Attention { .. } => self.attention(),
            // Sums of x and x^2, then subtract, scale, multiply and add; backward adds two sums over the row.
            Self::Norm { rows, columns, pass, dtype } => {
                let elements = rows as f64 * columns as f64;
                let bytes = elements * dtype.bytes();
                match pass {
                    Pass::Forward => streaming(bytes, bytes, 8.0 * elements, row_blocks(rows, columns)),
                    Pass::Backward => {
                        streaming(2.0 * bytes, bytes, 14.0 * elements, row_blocks(rows, columns))
                    }
                }
            }
            // Maximum, subtract, exponential, sum, divide; backward: product, row sum, subtract, multiply.
            Self::Softmax { rows, columns, pass, dtype } => {
                let elements = rows as f64 * columns as f64;
                let bytes = elements * dtype.bytes();
                match pass {
                    Pass::Forward => streaming(bytes, bytes, 5.0 * elements, row_blocks(rows, columns)),
                    Pass::Backward => {
                        streaming(2.0 * bytes, bytes, 4.0 * elements, row_blocks(rows, columns))
                    }
                }
            }
            Self::Elementwise { elements, inputs, outputs, flops_per_element, dtype } => {
                let elements = elements as f64;
                let array = elements * dtype.bytes();
                streaming(
                    array * f64::from(inputs),
                    array * f64::from(outputs),
                    elements * f64::from(flops_per_element),
                    elements / POINTWISE,
                )
            }
            Self::Gather { lookups, columns, table_rows, pooled, skew, dtype } => {
                let (lookups, row) = (lookups as f64, row_bytes(columns, dtype));
                let distinct = distinct_rows(lookups, table_rows as f64, skew);
                let outputs = (lookups / pooled.max(1) as f64).ceil();
                let (indices, written) = (lookups * 8.0, outputs * columns as f64 * dtype.bytes());
                Demand {
                    fp32_flops: Flops((lookups - outputs).max(0.0) * columns as f64),
                    l2_bytes: Bytes(lookups * row + indices + written),
                    dram_read: Bytes(distinct * row + indices),
                    dram_write: Bytes(written),
                    working_set: Bytes(distinct * row),
                    // One warp per output row.
                    ..streaming(0.0, 0.0, 0.0, outputs / f64::from(WARPS))
                }
            }
            Self::Scatter { updates, columns, table_rows, skew, dtype } => {
                let (updates, row) = (updates as f64, row_bytes(columns, dtype));
                let distinct = distinct_rows(updates, table_rows as f64, skew);
                let (indices, added) = (updates * 8.0, updates * columns as f64 * dtype.bytes());
                Demand {
                    fp32_flops: Flops(updates * columns as f64),
                    // Each update is a read and a write of its row inside L2.
                    l2_bytes: Bytes(2.0 * updates * row + indices + added),
                    dram_read: Bytes(distinct * row + indices + added),
                    dram_write: Bytes(distinct * row),
                    working_set: Bytes(distinct * row),
                    atomic_chain: (updates / distinct.max(1.0)) as u64,
                    ..streaming(0.0, 0.0, 0.0, updates / f64::from(WARPS))
                }
            }
            // Moments and, for formats of 16 bits or fewer, a master copy in FP32 (Rajbhandari et al., ZeRO, SC20, 3.1).
            // Per parameter and moment a multiply-add pair, then square root, divide, decay and step.
            Self::Adam { parameters, dtype } => {
                let (parameters, element) = (parameters as f64, dtype.bytes());
                let low = if element < 4.0 { element } else { 0.0 };
                let state = if element < 4.0 { 4.0 } else { element } * 3.0;
                streaming(
                    parameters * (state + element),
                    parameters * (state + low),
                    parameters * 14.0,
                    parameters / POINTWISE,
                )
            }
            Self::Stream { footprint, bytes, access, blocks } => {
                let (footprint, moved) = (footprint as f64, bytes as f64);
                let compulsory = moved.min(footprint);
                let read = match access {
                    Access::Read => 1.0,
                    Access::Write => 0.0,
                    Access::Copy => 0.5,
                    Access::Triad => 2.0 / 3.0,
                };
                let flops = match access {
                    // One addition for each 4-byte element read.
                    Access::Read => moved / 4.0,
                    // A multiply and an addition for each 12 bytes.
                    Access::Triad => moved / 6.0,
                    Access::Write | Access::Copy => 0.0,
                };
                Demand {
                    l2_bytes: Bytes(moved),
                    working_set: Bytes(footprint),
                    ..streaming(compulsory * read, compulsory * (1.0 - read), flops, blocks as f64)
                }
            }
            Self::Compute { flops, pipe, dtype, blocks, warps_per_block } => {
                let work = Flops(flops as f64);
                let mut demand = Demand { dtype, launches: 1, blocks, warps_per_block, ..Demand::default() };
                match pipe {
                    // FP32 in place of a tensor format: the CPU-sized program, where FMA units do that work.
                    Pipe::Tensor if dtype != Dtype::Fp32 => demand.tensor_flops = work,
                    Pipe::Tensor | Pipe::Fp32 => demand.fp32_flops = work,
                    Pipe::Fp64 => demand.fp64_flops = work,
                }
                demand
            }
            Self::SharedMemory { bytes, conflict, blocks, warps_per_block } => Demand {
                shared_bytes: Bytes(bytes as f64 * f64::from(conflict.max(1))),
                launches: 1,
                blocks,
                warps_per_block,
                ..Demand::default()
            },
            Self::Atomic { updates, addresses } => {
                let (updates, addresses) = (updates as f64, addresses.max(1) as f64);
                let touched = updates.min(addresses) * SECTOR;
                Demand {
                    // Each update is a read and a write of its sector inside L2.
                    l2_bytes: Bytes(2.0 * updates * SECTOR),
                    dram_read: Bytes(touched),
                    dram_write: Bytes(touched),
                    working_set: Bytes(touched),
                    atomic_chain: (updates / addresses).ceil() as u64,
                    ..streaming(0.0, 0.0, 0.0, updates / POINTWISE)
                }
            }
            Self::Copy { bytes, direction } => {
                let moved = Bytes(bytes as f64);
                let (inward, outward) = match direction {
                    Direction::HostToDevice => (moved, Bytes(0.0)),
                    Direction::DeviceToHost => (Bytes(0.0), moved),
                    Direction::Both => (moved, moved),
                };
                Demand {
                    host_to_device: inward,
                    device_to_host: outward,
                    dram_read: outward,
                    dram_write: inward,
                    l2_bytes: inward + outward,
                    ..Demand::default()
                }
            }
            Self::Launch { count } => {
                Demand { launches: count, blocks: count, warps_per_block: 1, ..Demand::default() }
            }
            Self::Resident { blocks, warps_per_block, seconds, .. } => {
                Demand { resident: seconds, launches: 1, blocks, warps_per_block, ..Demand::default() }
            }
            Self::HostGap { seconds } => Demand { host: seconds, ..Demand::default() },
        }
    }

    /// Fused attention (Dao, FlashAttention-2, 2023): 4 b a q c d FLOPs forward, 2.5 times that backward (five
    /// products in place of two), half where the mask is causal. Keys and values are re-read for each tile of 128
    /// query rows; the query heads of one key head are packed into one tile (grouped-query decoding). With too few
    /// tiles the context is split (Flash-Decoding, 2023).
    fn attention(&self) -> Demand {
        let Self::Attention { batch, heads, kv_heads, query, context, head_dim, causal, pass, dtype } = *self
        else {
            return Demand::default();
        };
        let (element, groups) = (dtype.bytes(), (batch.max(1) * kv_heads.max(1)) as f64);
        let packed = query.max(1) as f64 * heads as f64 / kv_heads.max(1) as f64;
        let (context, width) = (context.max(1) as f64, head_dim as f64);
        // Query i of q at the end of a context of c sees c - q + i keys.
        let seen = if causal { context - (query.max(1) - 1) as f64 / 2.0 } else { context };
        let forward = 4.0 * groups * packed * seen * width;
        let queries = groups * packed * width * element;
        let keys = 2.0 * groups * context * width * element;
        let tiles = (packed / TILE).ceil().max(1.0);
        let split = (WAVE / (groups * tiles)).floor().min((context / 256.0).ceil()).max(1.0);
        // Backward reads Q, K, V, O and dO, and writes dQ, dK and dV.
        let (scale, read, write) = match pass {
            Pass::Forward => (1.0, queries + keys, queries),
            Pass::Backward => (2.5, 3.0 * queries + keys, queries + keys),
        };
        let active = (WAVE / tiles).ceil().min(groups);
        Demand {
            l2_bytes: Bytes(read - keys + write + keys * (tiles * seen / context).max(1.0)),
            dram_read: Bytes(read),
            dram_write: Bytes(write),
            working_set: Bytes(keys / groups * active),
            launches: 1,
            blocks: (groups * tiles * split) as u64,
            warps_per_block: WARPS,
            ..matrix_work(forward * scale, dtype)
        }
    }

    /// Bytes of the arrays that the op writes and a later op reads: what a forward pass has to keep.
    pub(crate) fn output_bytes(&self) -> f64 {
        match self {
            Self::Copy { .. } => 0.0,
            other => other.demand().dram_write.get(),
        }
    }
}

#[cfg(test)]
mod tests;
