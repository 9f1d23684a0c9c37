//! Loops that press one resource, and the look at a result that keeps them from being optimised away.

use elastico_workloads::Access;
use std::hint::black_box;

/// What a launch costs on a processor: a call through a pointer that touches a few lines, about as long as a kernel
/// launch takes its host.
pub(in crate::worker::cpu) fn empty_kernel(value: f32) -> f32 {
    let mut work = [value; 256];
    for _ in 0..16 {
        for element in black_box(&mut work) {
            *element = *element * 0.75 + 0.125;
        }
    }
    work[255]
}

pub(in crate::worker::cpu) fn sample(values: &[f32]) -> f64 {
    let values = black_box(values);
    values.first().zip(values.last()).map_or(0.0, |(first, last)| f64::from(first + last))
}

/// A sum in eight chains, so that loads and not the latency of additions are the limit.
pub(in crate::worker::cpu) fn sum_of(values: &[f32]) -> f32 {
    let mut sums = [0.0; 8];
    for chunk in values.chunks_exact(8) {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    sums.iter().sum()
}

/// Sweeps on from where the last step stopped; `moved` counts reads and writes.
pub(in crate::worker::cpu) fn stream(
    buffer: &mut [f32],
    cursor: &mut usize,
    moved: usize,
    access: Access,
) -> f64 {
    let arrays = match access {
        Access::Read | Access::Write => 1,
        Access::Copy => 2,
        Access::Triad => 3,
    };
    let length = buffer.len() / arrays;
    let (target, sources) = buffer.split_at_mut(length);
    let mut left = moved / arrays;
    let mut check = 0.0;
    while left > 0 {
        if *cursor >= length {
            *cursor = 0;
        }
        let (from, count) = (*cursor, left.min(length - *cursor));
        let target = &mut target[from..from + count];
        match access {
            Access::Read => check += f64::from(sum_of(black_box(target))),
            Access::Write => target.fill(black_box(0.6)),
            Access::Copy => target.copy_from_slice(&sources[from..from + count]),
            Access::Triad => {
                let (left, right) = sources.split_at(length);
                let pairs = left[from..from + count].iter().zip(&right[from..from + count]);
                for (value, (left, right)) in target.iter_mut().zip(pairs) {
                    *value = left + 0.4 * right;
                }
            }
        }
        check += sample(target);
        *cursor += count;
        left -= count;
    }
    check
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_carries_on_where_it_stopped() {
        let mut buffer: Vec<f32> = (0..12).map(|index| index as f32).collect();
        let mut cursor = 0;
        stream(&mut buffer, &mut cursor, 8, Access::Copy);
        assert_eq!((cursor, &buffer[..6]), (4, &[6.0, 7.0, 8.0, 9.0, 4.0, 5.0][..]));
        stream(&mut buffer, &mut cursor, 8, Access::Copy);
        assert_eq!((cursor, &buffer[..6]), (2, &[6.0, 7.0, 8.0, 9.0, 10.0, 11.0][..]));
    }
}
