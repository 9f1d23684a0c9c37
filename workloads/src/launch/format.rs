//! Number formats in memory: to and from `f64`, bit for bit as the kernels convert.

use elastico_core::Dtype;

/// The value of one step of an INT8 number: quantised values span -4 to 4.
pub(super) const INT8_STEP: f64 = 1.0 / 32.0;

/// How a number lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    F64,
    F32,
    F16,
    Bf16,
    /// E4M3 without infinities (Micikevicius et al., "FP8 formats for deep learning", 2022).
    E4m3,
    /// A step of 1/32.
    I8,
    /// Counters and sums of INT8 products.
    I32,
    /// Row numbers and positions; as `f64` exact below 2^53.
    U64,
    /// Bytes that nobody computes with.
    Raw,
}

impl Format {
    pub(super) const fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Fp64 => Self::F64,
            Dtype::Fp32 | Dtype::Tf32 => Self::F32,
            Dtype::Fp16 => Self::F16,
            Dtype::Bf16 => Self::Bf16,
            Dtype::Fp8 => Self::E4m3,
            Dtype::Int8 => Self::I8,
        }
    }

    pub(super) const fn bytes(self) -> u64 {
        match self {
            Self::F64 | Self::U64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::E4m3 | Self::I8 | Self::Raw => 1,
        }
    }

    /// Reads one element; `bytes` has its size.
    pub(super) fn read(self, bytes: &[u8]) -> f64 {
        let word = bytes.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        match self {
            Self::F64 => f64::from_bits(word),
            Self::F32 => f64::from(f32::from_bits(word as u32)),
            Self::F16 => small(word as u32, 5, 10, true),
            Self::Bf16 => f64::from(f32::from_bits((word as u32) << 16)),
            Self::E4m3 => small(word as u32, 4, 3, false),
            Self::I8 => f64::from((word as u8).cast_signed()) * INT8_STEP,
            Self::I32 => f64::from((word as u32).cast_signed()),
            Self::U64 => word as f64,
            Self::Raw => f64::from(word as u8),
        }
    }

    /// Rounds and writes one element; `bytes` has its size.
    pub(super) fn write(self, value: f64, bytes: &mut [u8]) {
        let word = match self {
            Self::F64 => value.to_bits(),
            Self::F32 => u64::from((value as f32).to_bits()),
            Self::F16 => rounded(value, 5, 10, true),
            Self::Bf16 => rounded(value, 8, 7, true),
            Self::E4m3 => rounded(value, 4, 3, false),
            Self::I8 => u64::from((value / INT8_STEP).round_ties_even().clamp(-127.0, 127.0) as i8 as u8),
            Self::I32 => u64::from(value as i64 as u32),
            Self::U64 => value as u64,
            Self::Raw => u64::from(value as u8),
        };
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = (word >> (8 * index)) as u8;
        }
    }

    pub(super) fn write_single(self, value: f32, bytes: &mut [u8]) {
        self.write(f64::from(value), bytes);
    }
}

/// Decodes a float of 1 sign, `exponent` and `mantissa` bits.
fn small(word: u32, exponent: u32, mantissa: u32, has_infinity: bool) -> f64 {
    let sign = if word >> (exponent + mantissa) & 1 == 1 { -1.0 } else { 1.0 };
    let power = word >> mantissa & ((1 << exponent) - 1);
    let fraction = f64::from(word & ((1 << mantissa) - 1)) / f64::from(1 << mantissa);
    let bias = (1 << (exponent - 1)) - 1;
    let largest = (1 << exponent) - 1;
    if has_infinity && power == largest {
        return if fraction == 0.0 { sign * f64::INFINITY } else { f64::NAN };
    }
    if !has_infinity && power == largest && word & ((1 << mantissa) - 1) == (1 << mantissa) - 1 {
        return f64::NAN;
    }
    if power == 0 {
        return sign * fraction * f64::from(1 - bias).exp2();
    }
    sign * (1.0 + fraction) * f64::from(power.cast_signed() - bias).exp2()
}

/// Encodes to nearest, ties to even. Without infinities the largest number stands for all beyond it.
fn rounded(value: f64, exponent: i32, mantissa: i32, has_infinity: bool) -> u64 {
    let sign = u64::from(value.is_sign_negative()) << (exponent + mantissa);
    let bias = (1 << (exponent - 1)) - 1;
    let most = (1_u64 << (exponent + mantissa)) - if has_infinity { 1 << mantissa } else { 2 };
    if value.is_nan() {
        return sign | ((1_u64 << (exponent + mantissa)) - 1);
    }
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return sign;
    }
    if magnitude.is_infinite() {
        return sign | most;
    }
    // The exponent of the result, never below that of subnormal numbers.
    let power = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    let step = f64::from(power - mantissa).exp2();
    let units = (magnitude / step).round_ties_even() as u64;
    // A carry into the exponent comes out right, because the encoding is monotone.
    let code = ((u64::from((power + bias - 1) as u32)) << mantissa) + units;
    sign | code.min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(format: Format, value: f64) -> f64 {
        let mut bytes = vec![0; format.bytes() as usize];
        format.write(value, &mut bytes);
        format.read(&bytes)
    }

    #[test]
    fn every_code_survives_a_round_trip() {
        for (format, codes) in [(Format::F16, 65_536_u32), (Format::Bf16, 65_536), (Format::E4m3, 256)] {
            for code in 0..codes {
                let bytes = code.to_le_bytes();
                let value = format.read(&bytes[..format.bytes() as usize]);
                if !value.is_nan() {
                    assert_eq!(through(format, value).to_bits(), value.to_bits(), "{format:?} {code:#x}");
                }
            }
        }
    }

    #[test]
    fn rounding_by_hand() {
        let ulp = 2_f64.powi(-10);
        for (format, value, wanted) in [
            (Format::F16, 1.0 + 0.5 * ulp, 1.0),
            (Format::F16, 1.0 + 1.5 * ulp, 1.0 + 2.0 * ulp),
            (Format::F16, 65_520.0, f64::INFINITY),
            (Format::F16, 2_f64.powi(-24), 2_f64.powi(-24)),
            (Format::F16, 2_f64.powi(-26), 0.0),
            (Format::E4m3, 1e9, 448.0),
            (Format::E4m3, -449.0, -448.0),
            (Format::E4m3, 0.002, 2_f64.powi(-9)),
            (Format::Bf16, 1.005, 1.0 + 2_f64.powi(-7)),
            (Format::I8, 100.0, 127.0 / 32.0),
            (Format::I8, 0.04, 1.0 / 32.0),
            (Format::I32, -5.0, -5.0),
        ] {
            assert_eq!(through(format, value).to_bits(), wanted.to_bits(), "{format:?} {value}");
        }
    }
}
