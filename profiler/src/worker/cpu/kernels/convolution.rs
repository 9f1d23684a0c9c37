//! Convolutions as products over patches.

use super::BLOCK;
use elastico_gpu::product::{Matrix, Real};

/// Which of the three products of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker::cpu) enum ConvolutionKind {
    Forward,
    Data,
    Filter,
}

/// The sizes of a convolution for one lane: an implicit product over patches, as channels-last frameworks do it.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker::cpu) struct Convolution {
    pub(in crate::worker::cpu) kind: ConvolutionKind,
    /// Output pixels, all images together.
    pub(in crate::worker::cpu) pixels: usize,
    pub(in crate::worker::cpu) channels_in: usize,
    pub(in crate::worker::cpu) channels_out: usize,
    /// Height and width of the input.
    pub(in crate::worker::cpu) size: usize,
    pub(in crate::worker::cpu) kernel: usize,
    pub(in crate::worker::cpu) stride: usize,
}

impl Convolution {
    const fn patch(&self) -> usize {
        self.kernel * self.kernel * self.channels_in
    }

    /// The part of the image that one lane walks over, with the rows that its last patch needs.
    const fn image(&self) -> usize {
        self.pixels * self.stride * self.stride * self.channels_in + self.reach()
    }

    /// Elements from the start of a patch to its end.
    const fn reach(&self) -> usize {
        (self.kernel - 1) * self.size * self.channels_in + self.kernel * self.channels_in
    }

    pub(in crate::worker::cpu) const fn weights(&self) -> usize {
        match self.kind {
            ConvolutionKind::Filter => 0,
            _ => self.patch() * self.channels_out,
        }
    }

    pub(in crate::worker::cpu) const fn inputs(&self) -> usize {
        let outer = self.pixels * self.channels_out;
        match self.kind {
            ConvolutionKind::Forward => self.image(),
            ConvolutionKind::Data => outer,
            ConvolutionKind::Filter => self.image() + outer,
        }
    }

    pub(in crate::worker::cpu) const fn outputs(&self) -> usize {
        match self.kind {
            ConvolutionKind::Forward => self.pixels * self.channels_out,
            ConvolutionKind::Data => self.image(),
            ConvolutionKind::Filter => self.patch() * self.channels_out,
        }
    }

    pub(in crate::worker::cpu) const fn scratch(&self) -> usize {
        BLOCK * self.patch()
    }

    /// Starts of the contiguous segments of one pixel's patch, and their length.
    fn segments(&self, pixel: usize) -> (impl Iterator<Item = usize>, usize) {
        let start = pixel * self.stride * self.stride * self.channels_in;
        let pitch = self.size * self.channels_in;
        ((0..self.kernel).map(move |row| start + row * pitch), self.kernel * self.channels_in)
    }

    fn collect(&self, first: usize, image: &[f32], patches: &mut [f32]) {
        for (offset, patch) in patches.chunks_exact_mut(self.patch()).enumerate() {
            let (starts, length) = self.segments(first + offset);
            for (start, part) in starts.zip(patch.chunks_exact_mut(length)) {
                part.copy_from_slice(&image[start..start + length]);
            }
        }
    }

    fn spread(&self, first: usize, patches: &[f32], image: &mut [f32]) {
        for (offset, patch) in patches.chunks_exact(self.patch()).enumerate() {
            let (starts, length) = self.segments(first + offset);
            for (start, part) in starts.zip(patch.chunks_exact(length)) {
                for (sum, value) in image[start..start + length].iter_mut().zip(part) {
                    *sum += value;
                }
            }
        }
    }

    pub(in crate::worker::cpu) fn run(
        &self,
        weights: &[f32],
        input: &[f32],
        output: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (patch, outer) = (self.patch(), self.channels_out);
        if self.kind != ConvolutionKind::Forward {
            output.fill(0.0);
        }
        for first in (0..self.pixels).step_by(BLOCK) {
            let rows = BLOCK.min(self.pixels - first);
            let patches = &mut scratch[..rows * patch];
            match self.kind {
                ConvolutionKind::Forward => {
                    self.collect(first, input, patches);
                    let (patches, filter) =
                        (Matrix::new(&*patches, rows, patch), Matrix::new(weights, patch, outer));
                    f32::multiply(patches, filter, 0.0, &mut output[first * outer..]);
                }
                ConvolutionKind::Data => {
                    let gradient = Matrix::new(&input[first * outer..], rows, outer);
                    let filter = Matrix::new(weights, patch, outer);
                    f32::multiply(gradient, filter.transposed(), 0.0, patches);
                    self.spread(first, patches, output);
                }
                ConvolutionKind::Filter => {
                    let (image, gradients) = input.split_at(self.image());
                    self.collect(first, image, patches);
                    let gradient = Matrix::new(&gradients[first * outer..], rows, outer);
                    f32::multiply(Matrix::new(&*patches, rows, patch).transposed(), gradient, 1.0, output);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::numbers;
    use super::*;

    #[test]
    fn convolution_products_are_adjoint() {
        let convolution = |kind| Convolution {
            kind,
            pixels: 70,
            channels_in: 3,
            channels_out: 5,
            size: 9,
            kernel: 3,
            stride: 1,
        };
        let forward = convolution(ConvolutionKind::Forward);
        let scratch = &mut vec![0.0; forward.scratch()];
        let (image, filter) = (numbers(forward.inputs()), numbers(forward.weights()));
        let gradient: Vec<f32> = numbers(forward.outputs()).iter().rev().copied().collect();
        let mut out = vec![0.0; forward.outputs()];
        forward.run(&filter, &image, &mut out, scratch);
        let dot = |left: &[f32], right: &[f32]| {
            left.iter().zip(right).map(|(left, right)| f64::from(left * right)).sum::<f64>()
        };
        let expected = dot(&out, &gradient);
        let data = convolution(ConvolutionKind::Data);
        let mut back = vec![0.0; data.outputs()];
        data.run(&filter, &gradient, &mut back, scratch);
        assert!((dot(&back, &image) - expected).abs() < 1e-3);
        let by_filter = convolution(ConvolutionKind::Filter);
        let mut filter_gradient = vec![0.0; by_filter.outputs()];
        by_filter.run(&[], &[image.clone(), gradient].concat(), &mut filter_gradient, scratch);
        assert!((dot(&filter_gradient, &filter) - expected).abs() < 1e-3);
    }
}
