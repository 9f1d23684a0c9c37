//! Whether results are numbers, looked at while the side is parked: a faulty GPU must not count as a fast one.

use super::super::engine::Failure;
use super::load::Loaded;
use elastico_core::Dtype;
use elastico_workloads::launch::{Action, LaunchPlan, Place};

/// Results that are looked at, the last written first.
const MOST_RESULTS: usize = 16;
/// Elements of each that are read, from its start and from its end.
const ELEMENTS: u64 = 64;

/// A result that nothing overwrites later in the step.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Output {
    buffer: usize,
    offset: u64,
    bytes: u64,
    dtype: Dtype,
}

/// The results of one side.
#[derive(Debug)]
pub(super) struct Checks {
    outputs: Vec<Output>,
    scratch: Vec<u8>,
    checksum: f64,
}

impl Checks {
    pub(super) fn new(plan: &LaunchPlan) -> Self {
        let mut covered: Vec<(usize, u64, u64)> = Vec::new();
        let mut outputs = Vec::new();
        for action in plan.actions.iter().rev() {
            let dtype = result_of(action);
            for touch in action.touches().into_iter().filter(|touch| touch.is_written) {
                let (begin, end) = (touch.offset, touch.offset + touch.bytes);
                let is_last = covered
                    .iter()
                    .all(|(buffer, from, to)| *buffer != touch.buffer || end <= *from || *to <= begin);
                let is_device =
                    plan.buffers.get(touch.buffer).is_some_and(|buffer| buffer.place == Place::Device);
                if let Some(dtype) = dtype.filter(|_| is_last && is_device)
                    && outputs.len() < MOST_RESULTS
                {
                    outputs.push(Output { buffer: touch.buffer, offset: begin, bytes: touch.bytes, dtype });
                }
                covered.push((touch.buffer, begin, end));
            }
        }
        Self { outputs, scratch: vec![0; (ELEMENTS * 8) as usize], checksum: 0.0 }
    }

    pub(super) const fn checksum(&self) -> f64 {
        self.checksum
    }

    /// Reads a part of each result.
    pub(super) fn run(&mut self, loaded: &Loaded) -> Result<(), Failure> {
        let mut sum = 0.0;
        for output in &self.outputs {
            let size = output.dtype.bytes() as u64;
            let part = (ELEMENTS * size).min(output.bytes / size * size);
            for offset in [0, output.bytes / size * size - part] {
                let bytes = &mut self.scratch[..part as usize];
                loaded.memory(output.buffer)?.read(output.offset + offset, bytes)?;
                for element in bytes.chunks_exact(size as usize) {
                    let value = number(output.dtype, element);
                    if !value.is_finite() {
                        return Err(Failure::crash("computed numbers that are not finite"));
                    }
                    sum += value;
                }
            }
        }
        self.checksum = sum;
        Ok(())
    }
}

/// The format of what an action writes; `None` where it is no float.
fn result_of(action: &Action) -> Option<Dtype> {
    match action {
        Action::Gemm(call) if call.dtype != Dtype::Int8 => Some(call.dtype),
        Action::Kernel(call) => {
            let (_, suffix) = call.function.rsplit_once('_')?;
            [Dtype::Fp64, Dtype::Fp32, Dtype::Fp16, Dtype::Bf16]
                .into_iter()
                .find(|dtype| dtype.as_str() == suffix)
        }
        _ => None,
    }
}

/// The value of one element; formats of 8 bits are taken as finite.
fn number(dtype: Dtype, bytes: &[u8]) -> f64 {
    let word = bytes.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    match dtype {
        Dtype::Fp64 => f64::from_bits(word),
        Dtype::Fp32 | Dtype::Tf32 => f64::from(f32::from_bits(word as u32)),
        Dtype::Bf16 => f64::from(f32::from_bits((word as u32) << 16)),
        Dtype::Fp16 => half(word as u16),
        Dtype::Fp8 | Dtype::Int8 => word as f64,
    }
}

/// IEEE binary16.
fn half(word: u16) -> f64 {
    let sign = if word >> 15 == 1 { -1.0 } else { 1.0 };
    let (power, fraction) = (i32::from(word >> 10 & 0x1f), f64::from(word & 0x3ff) / 1024.0);
    sign * match power {
        0 => fraction * (-14_f64).exp2(),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction) * f64::from(power - 15).exp2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_become_numbers() {
        for (word, value) in [(0x3c00, 1.0), (0xc000, -2.0), (0x7bff, 65_504.0), (0x0001, (-24_f64).exp2())] {
            assert_eq!(half(word), value);
        }
        assert!(half(0x7c00).is_infinite() && half(0x7e00).is_nan());
        assert_eq!(number(Dtype::Bf16, &[0x80, 0x3f]), 1.0);
        assert_eq!(number(Dtype::Fp32, &1.5_f32.to_le_bytes()), 1.5);
    }
}
