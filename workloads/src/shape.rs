//! Ops as texts.

use crate::op::Op;
use std::fmt;

/// The name and sizes, for example `gemm 8192x3072x1024 bf16`.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.name(), self.shape()))
    }
}

impl Op {
    /// The sizes as a text, without the name.
    pub fn shape(&self) -> String {
        fn lower(value: impl fmt::Debug) -> String {
            let mut text = String::new();
            for letter in format!("{value:?}").chars() {
                if letter.is_uppercase() && !text.is_empty() {
                    text.push(' ');
                }
                text.extend(letter.to_lowercase());
            }
            text
        }
        match *self {
            Self::Gemm { m, n, k, batch: 1, dtype } => format!("{m}x{n}x{k} {dtype}"),
            Self::Gemm { m, n, k, batch, dtype } => format!("{batch} of {m}x{n}x{k} {dtype}"),
            Self::Convolution { batch, channels_in, channels_out, size, kernel, stride, pass, dtype } => {
                format!(
                    "{} {batch}x{size}x{size}, {channels_in} to {channels_out}, {kernel}x{kernel}/{stride} {dtype}",
                    lower(pass)
                )
            }
            Self::Attention { batch, heads, kv_heads, query, context, head_dim, causal, pass, dtype } => {
                let mask = if causal { " causal" } else { "" };
                format!(
                    "{}{mask} {batch}x{heads}/{kv_heads} heads, {query} on {context}, width {head_dim} {dtype}",
                    lower(pass)
                )
            }
            Self::Norm { rows, columns, pass, dtype } | Self::Softmax { rows, columns, pass, dtype } => {
                format!("{} {rows}x{columns} {dtype}", lower(pass))
            }
            Self::Elementwise { elements, inputs, outputs, dtype, .. } => {
                format!("{elements}, {inputs} in {outputs} out {dtype}")
            }
            Self::Gather { lookups, columns, table_rows, pooled, skew, dtype } => {
                format!("{lookups} of {table_rows}x{columns}, pooled {pooled}, skew {skew} {dtype}")
            }
            Self::Scatter { updates, columns, table_rows, skew, dtype } => {
                format!("{updates} into {table_rows}x{columns}, skew {skew} {dtype}")
            }
            Self::Adam { parameters, dtype } => format!("{parameters} {dtype}"),
            Self::Stream { footprint, bytes, access, blocks } => {
                format!("{} {bytes} B of {footprint} B, {blocks} blocks", lower(access))
            }
            Self::Compute { flops, pipe, dtype, blocks, warps_per_block } => {
                format!("{} {flops} {dtype}, {blocks}x{warps_per_block} warps", lower(pipe))
            }
            Self::SharedMemory { bytes, conflict, blocks, warps_per_block } => {
                format!("{bytes} B, {conflict}-way, {blocks}x{warps_per_block} warps")
            }
            Self::Atomic { updates, addresses } => format!("{updates} on {addresses}"),
            Self::Copy { bytes, direction } => format!("{} {bytes} B", lower(direction)),
            Self::Launch { count } => format!("{count}"),
            Self::Resident { blocks, warps_per_block, shared_bytes, seconds } => {
                format!("{blocks}x{warps_per_block} warps, {shared_bytes} B each, {seconds:.1}")
            }
            Self::HostGap { seconds } => format!("{seconds:.1}"),
        }
    }
}
