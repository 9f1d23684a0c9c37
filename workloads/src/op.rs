//! The ops that a step is made of: each carries the numbers that a device needs to run it.

use elastico_core::Dtype;
use elastico_core::units::Seconds;
use serde::{Deserialize, Serialize};

/// The direction through a differentiable op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pass {
    /// Inputs to outputs.
    Forward,
    /// Gradient of the outputs to gradient of the inputs.
    Backward,
}

/// Which of the three convolutions of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConvolutionPass {
    /// Input and filter to output.
    Forward,
    /// Output gradient and filter to input gradient.
    DataGradient,
    /// Output gradient and input to filter gradient.
    FilterGradient,
}

/// How a stream touches its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// `sum += a[i]`: all traffic is reads.
    Read,
    /// `a[i] = x`: all traffic is writes.
    Write,
    /// `a[i] = b[i]`: half of the traffic each way.
    Copy,
    /// `a[i] = b[i] + x * c[i]` in FP32: two thirds reads (McCalpin's STREAM).
    Triad,
}

/// Which arithmetic pipe a register-only loop presses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pipe {
    /// Matrix multiply-accumulate.
    Tensor,
    /// FP32 fused multiply-add.
    Fp32,
    /// FP64 fused multiply-add.
    Fp64,
}

/// Direction of a copy over the host link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the device.
    HostToDevice,
    /// From the device.
    DeviceToHost,
    /// Both at once, `bytes` each way.
    Both,
}

/// One op of a step, run after the op before it.
///
/// Sizes are elements unless the field says bytes. Each op is one kernel launch, except [`Op::Copy`], [`Op::HostGap`]
/// (none) and [`Op::Launch`] (`count`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// `batch` independent products C\[m,n\] = A\[m,k\] B\[k,n\].
    Gemm {
        /// Rows of A and C.
        m: u64,
        /// Columns of B and C.
        n: u64,
        /// Inner dimension.
        k: u64,
        /// Independent products.
        batch: u64,
        /// Format of A, B and C.
        dtype: Dtype,
    },
    /// A square convolution with padding that keeps height and width before the stride.
    Convolution {
        /// Images.
        batch: u64,
        /// Channels of the input.
        channels_in: u64,
        /// Channels of the output.
        channels_out: u64,
        /// Height and width of the input.
        size: u64,
        /// Height and width of the filter.
        kernel: u64,
        /// Step of the filter; the output has `ceil(size / stride)` rows and columns.
        stride: u64,
        /// Which of the layer's three convolutions.
        pass: ConvolutionPass,
        /// Format of all operands.
        dtype: Dtype,
    },
    /// Fused attention that never writes its scores to memory.
    Attention {
        /// Sequences.
        batch: u64,
        /// Query heads.
        heads: u64,
        /// Key and value heads; divides `heads`.
        kv_heads: u64,
        /// Query positions; 1 when decoding.
        query: u64,
        /// Key and value positions.
        context: u64,
        /// Width of a head.
        head_dim: u64,
        /// Whether a query sees only keys up to its own position.
        causal: bool,
        /// Forward, or backward with recomputation.
        pass: Pass,
        /// Format of all operands.
        dtype: Dtype,
    },
    /// Layer or batch normalisation over the columns of each row.
    Norm {
        /// Rows.
        rows: u64,
        /// Columns, normalised together.
        columns: u64,
        /// Direction.
        pass: Pass,
        /// Format in memory; arithmetic is FP32.
        dtype: Dtype,
    },
    /// Softmax over the columns of each row.
    Softmax {
        /// Rows.
        rows: u64,
        /// Columns, normalised together.
        columns: u64,
        /// Direction.
        pass: Pass,
        /// Format in memory; arithmetic is FP32.
        dtype: Dtype,
    },
    /// A pointwise function: reads `inputs` arrays, writes `outputs` arrays of `elements` each.
    Elementwise {
        /// Length of each array.
        elements: u64,
        /// Arrays read.
        inputs: u32,
        /// Arrays written.
        outputs: u32,
        /// FP32 operations per element.
        flops_per_element: u32,
        /// Format in memory; arithmetic is FP32.
        dtype: Dtype,
    },
    /// Reads rows of a table at random and adds up `pooled` of them at a time.
    Gather {
        /// Rows read, repeats included.
        lookups: u64,
        /// Columns of the table.
        columns: u64,
        /// Rows of the table.
        table_rows: u64,
        /// Rows that are added up into one output row.
        pooled: u64,
        /// Exponent of the Zipf law of the row numbers; 0 is uniform.
        skew: f64,
        /// Format of the table.
        dtype: Dtype,
    },
    /// Adds rows to rows of a table at random, atomically.
    Scatter {
        /// Rows added, repeats included.
        updates: u64,
        /// Columns of the table.
        columns: u64,
        /// Rows of the table.
        table_rows: u64,
        /// Exponent of the Zipf law of the row numbers; 0 is uniform.
        skew: f64,
        /// Format of the table.
        dtype: Dtype,
    },
    /// One AdamW update.
    Adam {
        /// Parameters updated.
        parameters: u64,
        /// Format of weights and gradients; master copy (where the format has 16 bits or fewer) and both moments are FP32.
        dtype: Dtype,
    },
    /// Sweeps a buffer in order; the cursor carries on from step to step and wraps at the end.
    Stream {
        /// Size of the buffer, or of all buffers together, in bytes.
        footprint: u64,
        /// Bytes moved by this op; may be less or more than the footprint.
        bytes: u64,
        /// Reads, writes or both.
        access: Access,
        /// Thread blocks that share the sweep.
        blocks: u64,
    },
    /// A loop that works in registers alone.
    Compute {
        /// Operations in all.
        flops: u64,
        /// The pipe pressed.
        pipe: Pipe,
        /// Format of the operands.
        dtype: Dtype,
        /// Thread blocks.
        blocks: u64,
        /// Warps of each block.
        warps_per_block: u32,
    },
    /// A loop of shared-memory loads.
    SharedMemory {
        /// Bytes asked for by the threads.
        bytes: u64,
        /// Ways of the bank conflict: 1 is none, 32 serialises a warp.
        conflict: u32,
        /// Thread blocks.
        blocks: u64,
        /// Warps of each block.
        warps_per_block: u32,
    },
    /// Atomic 4-byte additions spread evenly over addresses, each address in a sector of its own.
    Atomic {
        /// Additions.
        updates: u64,
        /// Different addresses.
        addresses: u64,
    },
    /// A copy from or to pinned host memory.
    Copy {
        /// Bytes each way.
        bytes: u64,
        /// Direction.
        direction: Direction,
    },
    /// Empty kernels of one block.
    Launch {
        /// How many.
        count: u64,
    },
    /// Blocks that sleep while they hold their slots.
    Resident {
        /// Thread blocks.
        blocks: u64,
        /// Warps of each block.
        warps_per_block: u32,
        /// Shared memory of each block, in bytes.
        shared_bytes: u64,
        /// How long each block sleeps.
        seconds: Seconds,
    },
    /// Host work during which the device waits: data loading, an interpreter, the gap to the next request.
    HostGap {
        /// How long.
        seconds: Seconds,
    },
}

impl Op {
    /// The name of the op, as in files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Gemm { .. } => "gemm",
            Self::Convolution { .. } => "convolution",
            Self::Attention { .. } => "attention",
            Self::Norm { .. } => "norm",
            Self::Softmax { .. } => "softmax",
            Self::Elementwise { .. } => "elementwise",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::Adam { .. } => "adam",
            Self::Stream { .. } => "stream",
            Self::Compute { .. } => "compute",
            Self::SharedMemory { .. } => "shared_memory",
            Self::Atomic { .. } => "atomic",
            Self::Copy { .. } => "copy",
            Self::Launch { .. } => "launch",
            Self::Resident { .. } => "resident",
            Self::HostGap { .. } => "host_gap",
        }
    }

    /// The product (m, n, k, batch) that the op comes down to: a convolution as an implicit product of its patches.
    /// `None` for ops that are no product.
    pub fn gemm_shape(&self) -> Option<(u64, u64, u64, u64)> {
        match *self {
            Self::Gemm { m, n, k, batch, .. } => Some((m, n, k, batch)),
            Self::Convolution { batch, channels_in, channels_out, size, kernel, stride, pass, .. } => {
                let side = size.div_ceil(stride.max(1));
                let pixels = batch.saturating_mul(side).saturating_mul(side);
                let patch = channels_in.saturating_mul(kernel).saturating_mul(kernel);
                Some(match pass {
                    ConvolutionPass::Forward => (pixels, channels_out, patch, 1),
                    ConvolutionPass::DataGradient => (pixels, patch, channels_out, 1),
                    ConvolutionPass::FilterGradient => (patch, channels_out, pixels, 1),
                })
            }
            _ => None,
        }
    }

    /// The ops that carry gradients back through this one; empty where nothing flows back.
    ///
    /// A product needs two products of the same work: one for each operand. That is why a backward pass of products
    /// costs twice its forward pass.
    pub fn gradient(&self) -> Vec<Self> {
        match *self {
            Self::Gemm { m, n, k, batch, dtype } => {
                vec![Self::Gemm { m, n: k, k: n, batch, dtype }, Self::Gemm { m: k, n, k: m, batch, dtype }]
            }
            Self::Convolution {
                batch,
                channels_in,
                channels_out,
                size,
                kernel,
                stride,
                pass: ConvolutionPass::Forward,
                dtype,
            } => [ConvolutionPass::DataGradient, ConvolutionPass::FilterGradient]
                .map(|pass| Self::Convolution {
                    batch,
                    channels_in,
                    channels_out,
                    size,
                    kernel,
                    stride,
                    pass,
                    dtype,
                })
                .to_vec(),
            Self::Attention {
                batch,
                heads,
                kv_heads,
                query,
                context,
                head_dim,
                causal,
                pass: Pass::Forward,
                dtype,
            } => vec![Self::Attention {
                batch,
                heads,
                kv_heads,
                query,
                context,
                head_dim,
                causal,
                pass: Pass::Backward,
                dtype,
            }],
            Self::Norm { rows, columns, pass: Pass::Forward, dtype } => {
                vec![Self::Norm { rows, columns, pass: Pass::Backward, dtype }]
            }
            Self::Softmax { rows, columns, pass: Pass::Forward, dtype } => {
                vec![Self::Softmax { rows, columns, pass: Pass::Backward, dtype }]
            }
            // The gradient of a function of one array reads that array and the gradient; a sum of two hands it on.
            Self::Elementwise { elements, inputs, outputs, flops_per_element, dtype } => {
                vec![Self::Elementwise { elements, inputs: inputs.max(2), outputs, flops_per_element, dtype }]
            }
            Self::Gather { lookups, columns, table_rows, skew, dtype, .. } => {
                vec![Self::Scatter { updates: lookups, columns, table_rows, skew, dtype }]
            }
            _ => Vec::new(),
        }
    }
}
