//! Norms, softmax and pointwise functions.

use super::Lowering;
use crate::launch::call::{Call, THREADS, View, typed};
use crate::launch::error::LaunchError;
use crate::launch::format::Format;
use crate::op::{Op, Pass};

/// Longest row of one warp.
const WARP_COLUMNS: u64 = 1024;
/// Part of a very long row that one block has.
const PART_COLUMNS: u64 = 16_384;

impl Lowering<'_> {
    pub(super) fn norm(&mut self, op: &Op) -> Result<(), LaunchError> {
        let Op::Norm { rows, columns, pass, dtype } = *op else { return Ok(()) };
        let (format, elements, flops) = (Format::of(dtype), rows * columns, op.demand().flops().get());
        check_columns("norm", columns)?;
        if pass == Pass::Backward {
            Self::require_trained("norm", format)?;
        }
        // Few long rows would leave most of the device idle.
        let is_split = columns > PART_COLUMNS && rows < 4 * u64::from(self.target.multiprocessors);
        let (x, gradient) = match (pass, self.forward_of(op)) {
            (Pass::Forward, _) => (self.operand(format, elements), None),
            (Pass::Backward, Some((record, _))) => {
                let gradient = self.gradient_of(record, format, elements);
                (self.records[record].inputs[0], Some(gradient))
            }
            (Pass::Backward, None) => {
                let gradient = self.operand(format, elements);
                (self.second(format, elements, gradient), Some(gradient))
            }
        };
        let out = self.output(format, elements);
        if is_split {
            let parts = columns.div_ceil(PART_COLUMNS);
            let partial = self.transient("partial sums", Format::F32, rows * parts * 4);
            let (first, then) = match pass {
                Pass::Forward => (
                    typed!("normalise", "norm_partial", format, "norm")?,
                    typed!("normalise", "norm_apply", format, "norm")?,
                ),
                Pass::Backward => (
                    typed!("normalise", "norm_backward_partial", format, "norm")?,
                    typed!("normalise", "norm_backward_apply", format, "norm")?,
                ),
            };
            let read = |call: Call| match gradient {
                Some(gradient) => call.read(x).read(gradient),
                None => call.read(x),
            };
            let sums = read(Call::new(first)).write(partial).u64(columns);
            self.kernel(sums.flops(flops / 2.0).grid("norm", [rows, parts, 1])?);
            let apply = read(Call::new(then)).write(out).read(partial).u64(columns);
            self.kernel(apply.flops(flops / 2.0).grid("norm", [rows, parts, 1])?);
        } else {
            let function = match (pass, columns <= WARP_COLUMNS) {
                (Pass::Forward, true) => typed!("normalise", "norm_warp", format, "norm"),
                (Pass::Forward, false) => typed!("normalise", "norm_block", format, "norm"),
                (Pass::Backward, true) => typed!("normalise", "norm_backward_warp", format, "norm"),
                (Pass::Backward, false) => typed!("normalise", "norm_backward_block", format, "norm"),
            }?;
            self.by_row("norm", function, x, gradient, out, (rows, columns), flops)?;
        }
        self.record(op, vec![x], out, false, false);
        Ok(())
    }

    pub(super) fn softmax(&mut self, op: &Op) -> Result<(), LaunchError> {
        let Op::Softmax { rows, columns, pass, dtype } = *op else { return Ok(()) };
        let (format, elements, flops) = (Format::of(dtype), rows * columns, op.demand().flops().get());
        check_columns("softmax", columns)?;
        if pass == Pass::Backward {
            Self::require_trained("softmax", format)?;
        }
        let (x, gradient) = match (pass, self.forward_of(op)) {
            (Pass::Forward, _) => (self.operand(format, elements), None),
            // The gradient is a function of the result.
            (Pass::Backward, Some((record, _))) => {
                let gradient = self.gradient_of(record, format, elements);
                (self.records[record].output, Some(gradient))
            }
            (Pass::Backward, None) => {
                let gradient = self.operand(format, elements);
                (self.second(format, elements, gradient), Some(gradient))
            }
        };
        let out = match gradient {
            // A thread reads an element of the gradient before it writes that of the result: one array does for both, as in
            // the fused softmax of large training frameworks, where it is the largest array of all.
            Some(gradient) if self.tensors.last() == Some(&gradient) => gradient,
            _ => self.output(format, elements),
        };
        let function = match (pass, columns <= WARP_COLUMNS) {
            (Pass::Forward, true) => typed!("normalise", "softmax_warp", format, "softmax"),
            (Pass::Forward, false) => typed!("normalise", "softmax_block", format, "softmax"),
            (Pass::Backward, true) => typed!("normalise", "softmax_backward_warp", format, "softmax"),
            (Pass::Backward, false) => typed!("normalise", "softmax_backward_block", format, "softmax"),
        }?;
        self.by_row("softmax", function, x, gradient, out, (rows, columns), flops)?;
        self.record(op, vec![x], out, false, false);
        Ok(())
    }

    /// A kernel with a warp for each short row, else a block.
    #[expect(clippy::too_many_arguments, reason = "the parameters of the kernel, in order")]
    fn by_row(
        &mut self,
        op: &'static str,
        function: (&'static str, &'static str),
        x: View,
        gradient: Option<View>,
        out: View,
        (rows, columns): (u64, u64),
        flops: f64,
    ) -> Result<(), LaunchError> {
        let rows_per_block = if columns <= WARP_COLUMNS { u64::from(THREADS / 32) } else { 1 };
        let mut call = Call::new(function).read(x);
        if let Some(gradient) = gradient {
            call = call.read(gradient);
        }
        let call = call.write(out).u64(rows).u32(columns).flops(flops);
        self.kernel(call.grid(op, [rows.div_ceil(rows_per_block), 1, 1])?);
        Ok(())
    }

    pub(super) fn elementwise(&mut self, op: &Op) -> Result<(), LaunchError> {
        let Op::Elementwise { elements, inputs, outputs, flops_per_element, dtype } = *op else {
            return Ok(());
        };
        let format = Format::of(dtype);
        let inputs = u64::from(inputs);
        let (a, first) = match self.forward_of(op) {
            Some((record, _)) => {
                let gradient = self.gradient_of(record, format, elements);
                (gradient, 1.min(inputs))
            }
            // As many arrays as the latest result holds: the gates of a recurrent cell are one product.
            None => {
                let view = self.operand(format, elements);
                let arrays = (self.whole(view) / elements.max(1)).clamp(1, inputs.max(1));
                (view.take(arrays * elements), arrays.min(inputs))
            }
        };
        let second = inputs - first;
        let b = if second > 0 { self.second(format, second * elements, a) } else { a };
        let out = self.output(format, u64::from(outputs) * elements);
        // The sum takes one multiply-add for each input, the limit four operations.
        let is_bounded = flops_per_element > 1;
        let rounds = (u64::from(flops_per_element) / 2).saturating_sub(inputs + 2);
        let call = Call::new(typed!("pointwise", "pointwise", format, "elementwise")?)
            .read(a)
            .u32(first)
            .read(b.take(second * elements))
            .u32(second)
            .write(out)
            .u32(u64::from(outputs))
            .u64(elements)
            .u32(u64::from(is_bounded))
            .u32(rounds)
            .flops(elements as f64 * f64::from(flops_per_element))
            .grid("elementwise", [elements.div_ceil(1024), 1, 1])?;
        self.kernel(call);
        self.record(op, vec![a], out, false, false);
        Ok(())
    }
}

fn check_columns(op: &'static str, columns: u64) -> Result<(), LaunchError> {
    let limit = u64::from(u32::MAX);
    if columns <= limit {
        return Ok(());
    }
    Err(LaunchError::Size { op, what: "a row", found: columns, limit })
}
