//! Convolutions, straight from their definition.

use super::{Arguments, Memory};
use crate::launch::error::LaunchError;
use crate::launch::format::{Format, INT8_STEP};

type Done = Result<(), LaunchError>;

struct Layer {
    batch: usize,
    channels_in: usize,
    channels_out: usize,
    size: usize,
    side: usize,
    kernel: usize,
    stride: usize,
}

impl Layer {
    fn read(arguments: &mut Arguments<'_>) -> Result<Self, LaunchError> {
        let mut size = || arguments.size().map(|size| size as usize);
        Ok(Self {
            batch: size()?,
            channels_in: size()?,
            channels_out: size()?,
            size: size()?,
            side: size()?,
            kernel: size()?,
            stride: size()?,
        })
    }

    const fn input(&self) -> usize {
        self.batch * self.size * self.size * self.channels_in
    }

    const fn output(&self) -> usize {
        self.batch * self.side * self.side * self.channels_out
    }

    const fn filter(&self) -> usize {
        self.channels_out * self.kernel * self.kernel * self.channels_in
    }

    /// Calls `each` with the index of every (input, filter, output) element that meet.
    fn each(&self, mut each: impl FnMut(usize, usize, usize)) {
        let padding = (self.kernel - 1) / 2;
        let taps = self.kernel * self.kernel;
        for pixel in 0..self.batch * self.side * self.side {
            let (image, row, column) =
                (pixel / (self.side * self.side), pixel / self.side % self.side, pixel % self.side);
            for tap in 0..taps {
                let down = row * self.stride + tap / self.kernel;
                let across = column * self.stride + tap % self.kernel;
                let inside = padding..padding + self.size;
                if !inside.contains(&down) || !inside.contains(&across) {
                    continue;
                }
                let from =
                    ((image * self.size + down - padding) * self.size + across - padding) * self.channels_in;
                for out in 0..self.channels_out {
                    for channel in 0..self.channels_in {
                        let filter = (out * taps + tap) * self.channels_in + channel;
                        each(from + channel, filter, pixel * self.channels_out + out);
                    }
                }
            }
        }
    }
}

/// INT8 products are sums of steps.
fn product_step(format: Format) -> f64 {
    if format == Format::I8 { INT8_STEP.powi(-2) } else { 1.0 }
}

pub(super) fn forward(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let (x, filter, y) = (arguments.memory()?, arguments.memory()?, arguments.memory()?);
    let layer = Layer::read(arguments)?;
    let scale = arguments.number()? * product_step(format);
    let x = memory.read(x, format, layer.input() as u64);
    let filter = memory.read(filter, format, layer.filter() as u64);
    let mut result = vec![0.0; layer.output()];
    layer.each(|input, tap, output| result[output] += x[input] * filter[tap] * scale);
    memory.write(y, format, &result);
    Ok(())
}

pub(super) fn data(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let (y, filter, x) = (arguments.memory()?, arguments.memory()?, arguments.memory()?);
    let layer = Layer::read(arguments)?;
    let scale = arguments.number()? * product_step(format);
    let y = memory.read(y, format, layer.output() as u64);
    let filter = memory.read(filter, format, layer.filter() as u64);
    let mut result = vec![0.0; layer.input()];
    layer.each(|input, tap, output| result[input] += y[output] * filter[tap] * scale);
    memory.write(x, format, &result);
    Ok(())
}

pub(super) fn filter(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let (x, y, partial) = (arguments.memory()?, arguments.memory()?, arguments.memory()?);
    let layer = Layer::read(arguments)?;
    let splits = arguments.size()? as usize;
    let part = (layer.batch * layer.side * layer.side).div_ceil(splits);
    let x = memory.read(x, format, layer.input() as u64);
    let y = memory.read(y, format, layer.output() as u64);
    let mut result = vec![0.0; splits * layer.filter()];
    let step = product_step(format);
    layer.each(|input, tap, output| {
        let split = output / layer.channels_out / part;
        result[split * layer.filter() + tap] += x[input] * y[output] * step;
    });
    memory.write(partial, Format::F32, &result);
    Ok(())
}

pub(super) fn reduce(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let (partial, out) = (arguments.memory()?, arguments.memory()?);
    let (elements, splits, scale) = (arguments.size()?, arguments.size()?, arguments.number()?);
    let parts = memory.read(partial, Format::F32, elements * splits);
    let sums: Vec<f64> = (0..elements as usize)
        .map(|i| parts[i..].iter().step_by(elements as usize).sum::<f64>() * scale)
        .collect();
    memory.write(out, format, &sums);
    Ok(())
}
