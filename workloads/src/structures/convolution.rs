//! Stacks of convolutions.

use super::{
    INFERENCE, InferenceStep, MATRIX, Optimiser, TrainingStep, inference, pointwise, times, training,
};
use crate::axes::Axis;
use crate::op::{ConvolutionPass, Op, Pass};
use crate::structure::{Refusal, Structure, free};
use elastico_core::{Dtype, WorkloadKind};

pub(crate) const TRAINING: Structure = Structure {
    name: "convolution_training",
    kind: WorkloadKind::Training,
    meaning: "residual blocks of two convolutions at one resolution: forward, backward, momentum SGD",
    axes: &[
        Axis::integer("batch", "b", "images per step", 1, 65_536).scale(1),
        Axis::integer("channels", "c", "channels of each layer", 8, 8_192).shrink(16),
        Axis::integer("image", "i", "height and width in pixels", 4, 4_096).shrink(8),
        Axis::integer("blocks", "n", "residual blocks", 1, 256).or(2).shrink(1),
        Axis::integer("kernel", "k", "height and width of the filters", 1, 11).or(3),
        Axis::integer("gap", "g", "host time before a step, in microseconds", 0, 1_000_000).or(300),
        Axis::dtype(MATRIX),
    ],
    check: free,
    build: |axes| {
        let (batch, channels, size) =
            (axes.integer("batch"), axes.integer("channels"), axes.integer("image"));
        let (kernel, dtype) = (axes.integer("kernel"), axes.dtype());
        let layer =
            Layer { batch, channels_in: channels, channels_out: channels, size, kernel, stride: 1, dtype };
        let blocks = axes.integer("blocks");
        let forward = (0..blocks)
            .flat_map(|_| {
                let mut ops = layer.with_norm();
                ops.extend(layer.with_norm());
                ops.push(pointwise(times(&[batch, channels, size, size]), 2, 1, dtype));
                ops
            })
            .collect();
        training(TrainingStep {
            gap: axes.integer("gap"),
            input: times(&[batch, 3, size, size]),
            forward,
            // Two filters, and scale and shift of two norms.
            parameters: times(&[blocks, 2]).saturating_mul(
                times(&[channels, channels, kernel, kernel]).saturating_add(times(&[2, channels])),
            ),
            tables: 0,
            optimiser: Optimiser::Momentum,
            dtype,
        })
    },
};

pub(crate) const VISION: Structure = Structure {
    name: "vision_inference",
    kind: WorkloadKind::Inference,
    meaning: "four stages of convolutions that halve the image and double the channels, then a classifier",
    axes: &[
        Axis::integer("batch", "b", "images per request", 1, 65_536).or(1).scale(1),
        Axis::integer("image", "i", "height and width in pixels after the stem", 8, 4_096).shrink(16),
        Axis::integer("channels", "c", "channels of the first stage", 8, 2_048).shrink(8),
        Axis::integer("layers", "l", "convolutions of a stage", 1, 128).shrink(1),
        Axis::integer("gap", "g", "host time before a request, in microseconds", 0, 1_000_000).or(200),
        Axis::dtype(INFERENCE),
    ],
    check: |axes| {
        if axes.integer("image") % 8 == 0 {
            return Ok(());
        }
        Err(Refusal {
            axis: "image",
            why: "three stages halve it, so it has to be a multiple of 8".to_owned(),
        })
    },
    build: |axes| {
        let (batch, image, channels) =
            (axes.integer("batch"), axes.integer("image"), axes.integer("channels"));
        let (layers, dtype) = (axes.integer("layers"), axes.dtype());
        let mut forward = Vec::new();
        let mut weights = 0.0;
        for stage in 0..4_u32 {
            let (size, wide) = (image >> stage, channels << stage);
            for index in 0..layers {
                // The first convolution of a later stage halves the image and doubles the channels.
                let enters = index == 0 && stage > 0;
                let layer = Layer {
                    batch,
                    channels_in: if enters { wide / 2 } else { wide },
                    channels_out: wide,
                    size: if enters { size * 2 } else { size },
                    kernel: 3,
                    stride: if enters { 2 } else { 1 },
                    dtype,
                };
                forward.push(layer.convolution());
                // Norms are folded into the filters; what is left is bias and rectification.
                forward.push(pointwise(times(&[batch, wide, size, size]), 1, 2, dtype));
                weights += (layer.channels_in * wide * 9) as f64 * dtype.bytes();
            }
        }
        const CLASSES: u64 = 1_000;
        forward.push(Op::Gemm { m: batch, n: CLASSES, k: channels << 3, batch: 1, dtype });
        forward.push(Op::Softmax { rows: batch, columns: CLASSES, pass: Pass::Forward, dtype });
        weights += (CLASSES * (channels << 3)) as f64 * dtype.bytes();
        inference(InferenceStep {
            gap: axes.integer("gap"),
            input: times(&[batch, 3, 4, image, image]),
            output: times(&[batch, 4, CLASSES]),
            forward,
            weights,
            cache: 0.0,
        })
    },
};

#[derive(Clone, Copy)]
struct Layer {
    batch: u64,
    channels_in: u64,
    channels_out: u64,
    size: u64,
    kernel: u64,
    stride: u64,
    dtype: Dtype,
}

impl Layer {
    fn convolution(self) -> Op {
        let Self { batch, channels_in, channels_out, size, kernel, stride, dtype } = self;
        let pass = ConvolutionPass::Forward;
        Op::Convolution { batch, channels_in, channels_out, size, kernel, stride, pass, dtype }
    }

    /// Convolution, batch norm (one row per channel) and rectification.
    fn with_norm(self) -> Vec<Op> {
        let pixels = times(&[self.batch, self.size, self.size]);
        vec![
            self.convolution(),
            Op::Norm { rows: self.channels_out, columns: pixels, pass: Pass::Forward, dtype: self.dtype },
            pointwise(times(&[pixels, self.channels_out]), 1, 1, self.dtype),
        ]
    }
}
