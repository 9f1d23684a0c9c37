//! Matrix products: the vendor's library does them.

use super::{Lowering, Phase};
use crate::launch::call::{Call, View};
use crate::launch::error::LaunchError;
use crate::launch::format::Format;
use crate::launch::plan::{Action, GemmCall};
use crate::op::Op;
use elastico_core::Dtype;

/// What one product is made of, before its result has a place.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) m: u64,
    pub(super) n: u64,
    pub(super) k: u64,
    pub(super) batch: u64,
    pub(super) dtype: Dtype,
}

impl Lowering<'_> {
    pub(super) fn gemm(&mut self, op: &Op) -> Result<(), LaunchError> {
        let Op::Gemm { m, n, k, batch, dtype } = *op else { return Ok(()) };
        self.require("gemm", dtype, needs("gemm", dtype)?)?;
        let product = Product { m, n, k, batch, dtype };
        let format = Format::of(dtype);
        match self.forward_of(op) {
            Some((record, 0)) => {
                // The gradient of A: the gradient of C times B transposed.
                let gradient = self.gradient_of(record, format, m * k * batch);
                let record = &self.records[record];
                let (b, is_transposed) = (record.inputs[1], !record.is_transposed);
                let c = self.output(format, m * n * batch);
                self.multiply(product, (gradient, false), (b, is_transposed), c)
            }
            Some((record, _)) => {
                // The gradient of B: A transposed times the gradient of C.
                let gradient = self.gradient_of(record, format, k * n * batch);
                let (a, b, has_weight) = {
                    let record = &self.records[record];
                    (record.inputs[0], record.inputs[1], record.has_weight)
                };
                // It feeds nothing but the optimiser, or the gradient of an op further back.
                let c = if has_weight {
                    self.weight_gradient(b)
                } else {
                    self.transient("activations", format, m * n * batch)
                };
                self.multiply(product, (a, true), (gradient, false), c)
            }
            None => {
                let a = self.operand(format, m * k * batch);
                let (b, has_weight) = self.right_side(product, a);
                // Weights lie as [out, in], as in most frameworks, and so do keys; values lie as [k, n].
                let is_transposed = has_weight || k <= n || matches!(dtype, Dtype::Fp8 | Dtype::Int8);
                let c = self.output(format, m * n * batch);
                self.multiply(product, (a, false), (b, is_transposed), c)?;
                self.record(op, vec![a, b], c, has_weight, is_transposed);
                Ok(())
            }
        }
    }

    /// B: a weight; for products in batches another result, such as the keys of an attention, if one is large enough.
    /// A gradient that mirrors no forward op multiplies results.
    fn right_side(&mut self, product: Product, a: View) -> (View, bool) {
        let Product { n, k, batch, dtype, .. } = product;
        let (format, elements) = (Format::of(dtype), k * n * batch);
        if self.phase == Phase::Backward {
            return (self.second(format, elements, a), false);
        }
        if batch > 1 {
            let other = self.result(format, elements, Some(a));
            let rest = self.whole(a) >= a.elements + elements;
            if other.is_some() || rest {
                return (self.second(format, elements, a), false);
            }
        }
        (self.weight(format, elements, k), true)
    }

    /// One product. Sums of INT8 products are 32 bits wide and are quantised again.
    fn multiply(
        &mut self,
        product: Product,
        a: (View, bool),
        b: (View, bool),
        c: View,
    ) -> Result<(), LaunchError> {
        let Product { m, n, k, batch, dtype } = product;
        let elements = m * n * batch;
        let sums = if dtype == Dtype::Int8 { self.transient("sums", Format::I32, elements) } else { c };
        self.actions.push(Action::Gemm(GemmCall {
            m,
            n,
            k,
            batch,
            dtype,
            transpose_a: a.1,
            transpose_b: b.1,
            a: a.0.operand(),
            b: b.0.operand(),
            c: sums.operand(),
        }));
        if dtype == Dtype::Int8 {
            let call = Call::new(("pointwise_int8", "requantise_int8"))
                .read(sums)
                .write(c)
                .u64(elements)
                .f32(quantised(k))
                .grid("gemm", [elements.div_ceil(1024), 1, 1])?;
            self.kernel(call);
        }
        Ok(())
    }
}

/// From a sum of `k` products of INT8 steps to steps of the result, such that a product of unit deviation keeps it.
pub(super) fn quantised(k: u64) -> f64 {
    1.0 / (32.0 * (k.max(1) as f64).sqrt())
}

/// The first compute capability whose libraries and tensor pipes take the format.
pub(super) fn needs(op: &'static str, dtype: Dtype) -> Result<(i32, i32), LaunchError> {
    match dtype {
        Dtype::Fp32 | Dtype::Fp16 | Dtype::Int8 => Ok((7, 5)),
        Dtype::Tf32 | Dtype::Bf16 => Ok((8, 0)),
        Dtype::Fp8 => Ok((8, 9)),
        Dtype::Fp64 => Err(LaunchError::Format { op, dtype }),
    }
}
