//! Convolutions as implicit products: patches are gathered into shared memory and never written out, as vendor libraries
//! do.

use super::Lowering;
use super::products::{needs, quantised};
use crate::launch::call::{Call, View};
use crate::launch::error::LaunchError;
use crate::launch::format::Format;
use crate::op::{ConvolutionPass, Op};
use elastico_core::Dtype;

/// Edge of a block's tile.
const TILE: u64 = 64;
/// A part of a split sum over pixels has at least this many.
const SPLIT_PIXELS: u64 = 512;
/// Most FP32 elements of the partial sums of a filter gradient: 64 MiB.
const MOST_PARTIAL: u64 = 16 << 20;

/// The function of that name for a format of arithmetic.
macro_rules! by_dtype {
    ($name:literal, $dtype:expr) => {
        match $dtype {
            Dtype::Fp32 => Ok((concat!("convolution", "_fp32"), concat!($name, "_fp32"))),
            Dtype::Tf32 => Ok((concat!("convolution", "_tf32"), concat!($name, "_tf32"))),
            Dtype::Fp16 => Ok((concat!("convolution", "_fp16"), concat!($name, "_fp16"))),
            Dtype::Bf16 => Ok((concat!("convolution", "_bf16"), concat!($name, "_bf16"))),
            Dtype::Fp8 => Ok((concat!("convolution", "_fp8"), concat!($name, "_fp8"))),
            Dtype::Int8 => Ok((concat!("convolution", "_int8"), concat!($name, "_int8"))),
            Dtype::Fp64 => Err(LaunchError::Format { op: "convolution", dtype: $dtype }),
        }
    };
}

impl Lowering<'_> {
    pub(super) fn convolution(&mut self, op: &Op) -> Result<(), LaunchError> {
        let Op::Convolution { batch, channels_in, channels_out, size, kernel, stride, pass, dtype } = *op
        else {
            return Ok(());
        };
        self.require("convolution", dtype, needs("convolution", dtype)?)?;
        if pass != ConvolutionPass::Forward {
            Self::require_trained("convolution", Format::of(dtype))?;
        }
        let (kernel, stride) = (kernel.max(1), stride.max(1));
        let side = size.div_ceil(stride);
        let format = Format::of(dtype);
        let patch = channels_in * kernel * kernel;
        let (pixels_in, pixels_out) = (batch * size * size, batch * side * side);
        let (input, output, filter) =
            (pixels_in * channels_in, pixels_out * channels_out, patch * channels_out);
        for (what, found) in [("an image", pixels_in), ("a patch", patch), ("the channels", channels_out)] {
            let limit = 1 << 30;
            if found > limit {
                return Err(LaunchError::Size { op: "convolution", what, found, limit });
            }
        }
        let sizes = |call: Call| {
            call.u32(batch).u32(channels_in).u32(channels_out).u32(size).u32(side).u32(kernel).u32(stride)
        };
        let scale = if dtype == Dtype::Int8 { quantised(patch) / 32.0 } else { 1.0 };
        let flops = op.demand().flops().get();
        let forward = self.forward_of(op);
        match pass {
            ConvolutionPass::Forward => {
                let x = self.operand(format, input);
                let weight = self.weight(format, filter, patch);
                let y = self.output(format, output);
                let call = Call::new(by_dtype!("convolution_forward", dtype)?);
                let call = sizes(call.read(x).read(weight).write(y)).f32(scale).block(128).flops(flops);
                let grid = [pixels_out.div_ceil(TILE), channels_out.div_ceil(TILE), 1];
                self.kernel(call.grid("convolution", grid)?);
                self.record(op, vec![x, weight], y, true, false);
            }
            ConvolutionPass::DataGradient => {
                let (gradient, weight) = match forward {
                    Some((record, _)) => {
                        let gradient = self.gradient_of(record, format, output);
                        (gradient, self.records[record].inputs[1])
                    }
                    None => (self.operand(format, output), self.weight(format, filter, patch)),
                };
                let dx = self.output(format, input);
                let call = Call::new(by_dtype!("convolution_data", dtype)?);
                let call =
                    sizes(call.read(gradient).read(weight).write(dx)).f32(scale).block(128).flops(flops);
                let grid = [pixels_in.div_ceil(TILE), channels_in.div_ceil(TILE), 1];
                self.kernel(call.grid("convolution", grid)?);
            }
            ConvolutionPass::FilterGradient => {
                let (x, gradient, out) = match forward {
                    Some((record, _)) => {
                        let gradient = self.gradient_of(record, format, output);
                        let (x, weight) = {
                            let record = &self.records[record];
                            (record.inputs[0], record.inputs[1])
                        };
                        (x, gradient, self.weight_gradient(weight))
                    }
                    None => {
                        let gradient = self.operand(format, output);
                        let x = self.second(format, input, gradient);
                        (x, gradient, self.output(format, filter))
                    }
                };
                let tiles = channels_out.div_ceil(TILE) * patch.div_ceil(TILE);
                let wanted = (4 * u64::from(self.target.multiprocessors)).div_ceil(tiles);
                let most = (MOST_PARTIAL / filter.max(1)).min(pixels_out.div_ceil(SPLIT_PIXELS));
                let splits = wanted.min(most).max(1);
                let partial: View = self.transient("partial sums", Format::F32, splits * filter);
                let call = Call::new(by_dtype!("convolution_filter", dtype)?);
                let call =
                    sizes(call.read(x).read(gradient).write(partial)).u32(splits).block(128).flops(flops);
                let grid = [channels_out.div_ceil(TILE), patch.div_ceil(TILE), splits];
                self.kernel(call.grid("convolution", grid)?);
                let reduce = Call::new(by_dtype!("convolution_reduce", dtype)?)
                    .read(partial)
                    .write(out)
                    .u64(filter)
                    .u32(splits)
                    .f32(scale);
                self.kernel(reduce.grid("convolution", [filter.div_ceil(256), 1, 1])?);
            }
        }
        Ok(())
    }
}
