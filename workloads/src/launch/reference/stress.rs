//! Stressors: the same numbers from the same counters.

use super::{Arguments, Memory};
use crate::launch::error::LaunchError;
use crate::launch::fill::mixed;
use crate::launch::format::Format;
use crate::launch::plan::Operand;

type Done = Result<(), LaunchError>;

/// Pairs of one thread of `fma`, accumulators of one warp of `tensor`; see `stress.cu`.
const PAIRS: u64 = 8;
const TILES: usize = 8;

/// Where a sweep stands; moves it on.
fn moved_on(memory: &mut Memory, position: Operand, moved: u64, length: u64) -> u64 {
    let at = memory.read(position, Format::U64, 1)[0] as u64;
    memory.write(position, Format::U64, &[((at + moved) % length) as f64, 0.0]);
    at
}

/// The words that each thread visits, in order: (thread, place).
fn visits(at: u64, moved: u64, length: u64, threads: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..moved).map(move |i| (i % threads, (at + i) % length))
}

pub(super) fn stream_read(memory: &mut Memory, arguments: &mut Arguments<'_>) -> Done {
    let (from, length, moved) = (arguments.memory()?, arguments.size()?, arguments.size()?);
    let (position, sink) = (arguments.memory()?, arguments.memory()?);
    let threads = arguments.threads();
    let values = memory.read(from, Format::F32, length * 4);
    let at = moved_on(memory, position, moved, length);
    let mut sums = vec![0.0; threads as usize];
    for (thread, place) in visits(at, moved, length, threads) {
        sums[thread as usize] += values[place as usize * 4..][..4].iter().sum::<f64>();
    }
    memory.write(sink, Format::F32, &sums);
    Ok(())
}

pub(super) fn stream_write(memory: &mut Memory, arguments: &mut Arguments<'_>) -> Done {
    let (to, length, moved) = (arguments.memory()?, arguments.size()?, arguments.size()?);
    let position = arguments.memory()?;
    let at = moved_on(memory, position, moved, length);
    let mut values = memory.read(to, Format::F32, length * 4);
    for (_, place) in visits(at, moved, length, arguments.threads()) {
        let noise = (place as u32).wrapping_mul(0x9e37_79b9);
        for part in 0..4_u32 {
            let word = 0x3f80_0000 | ((noise ^ (part << 20)) >> 9);
            values[place as usize * 4 + part as usize] = f64::from(f32::from_bits(word));
        }
    }
    memory.write(to, Format::F32, &values);
    Ok(())
}

pub(super) fn stream_copy(memory: &mut Memory, arguments: &mut Arguments<'_>) -> Done {
    let (to, from) = (arguments.memory()?, arguments.memory()?);
    let (length, moved, position) = (arguments.size()?, arguments.size()?, arguments.memory()?);
    let at = moved_on(memory, position, moved, length);
    let source = memory.read(from, Format::F32, length * 4);
    let mut values = memory.read(to, Format::F32, length * 4);
    for (_, place) in visits(at, moved, length, arguments.threads()) {
        let place = place as usize * 4;
        values[place..place + 4].copy_from_slice(&source[place..place + 4]);
    }
    memory.write(to, Format::F32, &values);
    Ok(())
}

pub(super) fn stream_triad(memory: &mut Memory, arguments: &mut Arguments<'_>) -> Done {
    let (a, b, c) = (arguments.memory()?, arguments.memory()?, arguments.memory()?);
    let (x, length, moved) = (arguments.number()?, arguments.size()?, arguments.size()?);
    let position = arguments.memory()?;
    let at = moved_on(memory, position, moved, length);
    let (b, c) = (memory.read(b, Format::F32, length * 4), memory.read(c, Format::F32, length * 4));
    let mut values = memory.read(a, Format::F32, length * 4);
    for (_, place) in visits(at, moved, length, arguments.threads()) {
        for i in place as usize * 4..place as usize * 4 + 4 {
            values[i] = b[i] + x * c[i];
        }
    }
    memory.write(a, Format::F32, &values);
    Ok(())
}

pub(super) fn atomics(memory: &mut Memory, arguments: &mut Arguments<'_>) -> Done {
    let (counters, updates, addresses) = (arguments.memory()?, arguments.size()?, arguments.size()?);
    let mut values = memory.read(counters, Format::I32, addresses * 8);
    for (address, value) in values.iter_mut().step_by(8).enumerate() {
        let address = address as u64;
        *value += (updates / addresses + u64::from(address < updates % addresses)) as f64;
    }
    memory.write(counters, Format::I32, &values);
    Ok(())
}

pub(super) fn shared_loads(memory: &mut Memory, arguments: &mut Arguments<'_>) -> Done {
    let (sink, rounds, conflict) = (arguments.memory()?, arguments.size()?, arguments.size()?);
    let [grid, ..] = arguments.call.grid;
    let [block, ..] = arguments.call.block;
    let mut all = Vec::new();
    for index in 0..u64::from(grid) {
        for thread in 0..u64::from(block) {
            let lane = thread % 32;
            let first = lane / conflict + 32 * (lane % conflict);
            let sum = (0..8).fold(0_u32, |sum, i| sum.wrapping_add(mixed(index, first + 32 * i) as u32));
            all.push(f64::from(sum.wrapping_mul(rounds as u32)));
        }
    }
    memory.write(sink, Format::I32, &all);
    Ok(())
}

pub(super) fn fma(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let (sink, rounds, angle) = (arguments.memory()?, arguments.size()?, arguments.number()?);
    let sums: Vec<f64> = (0..arguments.threads())
        .map(|thread| {
            (0..PAIRS)
                .map(|pair| {
                    let bits = mixed(thread, pair);
                    let unit = |bits: u32| f64::from(bits >> 8) / 16_777_216.0;
                    let (mut x, mut y) = (unit(bits as u32) + 0.5, unit((bits >> 32) as u32) - 0.5);
                    for _ in 0..rounds {
                        x -= angle * y;
                        y += angle * x;
                    }
                    x + y
                })
                .sum()
        })
        .collect();
    memory.write(sink, format, &sums);
    Ok(())
}

/// A format of `tensor`: its words, and what they hold.
struct Words {
    keep: u32,
    set: u32,
    format: Format,
}

impl Words {
    fn of(function: &str) -> Option<Self> {
        let (keep, set, format) = match function {
            "tensor_fp16" => (0x83ff_83ff, 0x3c00_3c00, Format::F16),
            "tensor_bf16" => (0x807f_807f, 0x3f80_3f80, Format::Bf16),
            "tensor_tf32" => (0x807f_e000, 0x3f80_0000, Format::F32),
            "tensor_fp8" => (0x8787_8787, 0x3838_3838, Format::E4m3),
            "tensor_int8" => (0x7f7f_7f7f, 0, Format::I8),
            _ => return None,
        };
        Some(Self { keep, set, format })
    }

    /// The elements of a random word.
    fn elements(&self, bits: u64) -> Vec<f64> {
        let bits = bits as u32;
        let mut word = (bits & self.keep) | self.set;
        let mut step = 1.0;
        if self.format == Format::I8 {
            // The sign is the copied bit 6; integers are multiplied as they lie in memory.
            word = (bits & 0x3f3f_3f3f) | ((bits & 0x4040_4040).wrapping_mul(3) & 0xc0c0_c0c0);
            step = super::super::format::INT8_STEP.recip();
        }
        word.to_le_bytes()
            .chunks_exact(self.format.bytes() as usize)
            .map(|bytes| self.format.read(bytes) * step)
            .collect()
    }
}

pub(super) fn tensor(memory: &mut Memory, arguments: &mut Arguments<'_>) -> Done {
    let (sink, rounds) = (arguments.memory()?, arguments.size()?);
    let words = Words::of(arguments.call.function).ok_or_else(|| arguments.error("no such format"))?;
    let mut all = Vec::new();
    for warp in 0..arguments.threads() / 32 {
        // Lane `4 row + word` holds words `word` and `word + 4` of the rows that the fragments of `mma` give it.
        let lane = |row: usize, word: usize| warp * 32 + (4 * (row % 8) + word % 4) as u64;
        let a = |row: usize, word: usize| {
            words.elements(mixed(lane(row, word), (row / 8 + 2 * (word / 4)) as u64))
        };
        let b = |tile: usize, column: usize, word: usize| {
            words.elements(mixed(lane(column, word), (8 + 2 * tile + word / 4) as u64))
        };
        let product = |tile: usize, row: usize, column: usize| -> f64 {
            (0..8)
                .map(|word| a(row, word).iter().zip(b(tile, column, word)).map(|(a, b)| a * b).sum::<f64>())
                .sum()
        };
        let mut products = vec![0.0; TILES * 16 * 8];
        for (index, value) in products.iter_mut().enumerate() {
            *value = product(index / 128, index / 8 % 16, index % 8);
        }
        for lane in 0..32 {
            let mut sum = 0.0;
            for tile in 0..TILES {
                for i in 0..4 {
                    let place = (lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2;
                    let one = products[tile * 128 + place] - products[(tile + 1) % TILES * 128 + place];
                    sum += one * rounds as f64 * (tile + 1) as f64;
                }
            }
            all.push(sum);
        }
    }
    memory.write(sink, Format::F32, &all);
    Ok(())
}
