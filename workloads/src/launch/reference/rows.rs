//! Pointwise functions, optimisers, norms, softmax and tables.

use super::{Arguments, Memory};
use crate::launch::error::LaunchError;
use crate::launch::format::{Format, INT8_STEP};

type Done = Result<(), LaunchError>;

pub(super) fn pointwise(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let (a, first) = (arguments.memory()?, arguments.size()?);
    let (b, second) = (arguments.memory()?, arguments.size()?);
    let (out, outputs, elements) = (arguments.memory()?, arguments.size()?, arguments.size()?);
    let (is_bounded, rounds) = (arguments.size()? != 0, arguments.size()?);
    let mut inputs = memory.read(a, format, first * elements);
    inputs.extend(memory.read(b, format, second * elements));
    let count = elements as usize;
    let one: Vec<f64> = (0..count)
        .map(|i| {
            let mut sum = inputs[i..].iter().step_by(count.max(1)).fold(0.0, |sum, value| sum * 0.75 + value);
            if !is_bounded {
                return sum;
            }
            for _ in 0..rounds {
                sum = sum * 0.9375 + 0.0625 * inputs[i];
            }
            2.0 * sum / (1.0 + sum.abs())
        })
        .collect();
    let all: Vec<f64> = (0..outputs)
        .flat_map(|output| one.iter().map(move |value| if output % 2 == 1 { 0.5 * value } else { *value }))
        .collect();
    memory.write(out, format, &all);
    Ok(())
}

pub(super) fn requantise(memory: &mut Memory, arguments: &mut Arguments<'_>) -> Done {
    let (sums, out) = (arguments.memory()?, arguments.memory()?);
    let (elements, scale) = (arguments.size()?, arguments.number()?);
    let values: Vec<f64> =
        memory.read(sums, Format::I32, elements).iter().map(|sum| sum * scale * INT8_STEP).collect();
    memory.write(out, Format::I8, &values);
    Ok(())
}

fn clipped(gradient: f64) -> f64 {
    gradient.clamp(-1e4, 1e4)
}

pub(super) fn adam(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let (weight, master) = (arguments.memory()?, arguments.memory()?);
    let (mean, square, gradient) = (arguments.memory()?, arguments.memory()?, arguments.memory()?);
    let (elements, rate) = (arguments.size()?, arguments.number()?);
    let mut w = memory.read(master, Format::F32, elements);
    let mut m = memory.read(mean, Format::F32, elements);
    let mut v = memory.read(square, Format::F32, elements);
    for (i, gradient) in memory.read(gradient, format, elements).into_iter().enumerate() {
        let g = clipped(gradient);
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.999 * v[i] + 0.001 * g * g;
        w[i] -= rate * (m[i] / (v[i].sqrt() + 1e-8) + 0.01 * w[i]);
    }
    memory.write(mean, Format::F32, &m);
    memory.write(square, Format::F32, &v);
    memory.write(master, Format::F32, &w);
    memory.write(weight, format, &w);
    Ok(())
}

pub(super) fn momentum(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let (weight, master) = (arguments.memory()?, arguments.memory()?);
    let (velocity, gradient) = (arguments.memory()?, arguments.memory()?);
    let (elements, rate) = (arguments.size()?, arguments.number()?);
    let mut w = memory.read(master, Format::F32, elements);
    let mut v = memory.read(velocity, Format::F32, elements);
    for (i, gradient) in memory.read(gradient, format, elements).into_iter().enumerate() {
        v[i] = 0.9 * v[i] + clipped(gradient);
        w[i] -= rate * v[i] / (1.0 + v[i].abs());
    }
    memory.write(velocity, Format::F32, &v);
    memory.write(master, Format::F32, &w);
    memory.write(weight, format, &w);
    Ok(())
}

/// Sums of x, x^2, dy and dy x.
fn sums(x: &[f64], y: Option<&[f64]>) -> [f64; 4] {
    let mut sums = [0.0; 4];
    for (i, value) in x.iter().enumerate() {
        sums[0] += value;
        sums[1] += value * value;
        if let Some(y) = y {
            sums[2] += y[i];
            sums[3] += y[i] * value;
        }
    }
    sums
}

fn normalised(x: &[f64], y: Option<&[f64]>, sums: [f64; 4], columns: usize) -> Vec<f64> {
    let count = columns as f64;
    let mean = sums[0] / count;
    let scale = 1.0 / ((sums[1] / count - mean * mean).max(0.0) + 1e-5).sqrt();
    let mean_y = sums[2] / count;
    let mean_yx = scale * (sums[3] / count - mean * mean_y);
    x.iter()
        .enumerate()
        .map(|(i, x)| {
            let hat = (x - mean) * scale;
            y.map_or(hat, |y| (y[i] - mean_y - hat * mean_yx) * scale)
        })
        .collect()
}

pub(super) fn norm(
    memory: &mut Memory,
    arguments: &mut Arguments<'_>,
    format: Format,
    backward: bool,
) -> Done {
    let x = arguments.memory()?;
    let y = if backward { Some(arguments.memory()?) } else { None };
    let (out, rows, columns) = (arguments.memory()?, arguments.size()?, arguments.size()?);
    let x = memory.read(x, format, rows * columns);
    let y = y.map(|y| memory.read(y, format, rows * columns));
    let width = columns as usize;
    let result: Vec<f64> = (0..rows as usize)
        .flat_map(|row| {
            let part = row * width..(row + 1) * width;
            let (x, y) = (&x[part.clone()], y.as_deref().map(|y| &y[part]));
            normalised(x, y, sums(x, y), width)
        })
        .collect();
    memory.write(out, format, &result);
    Ok(())
}

/// The part of a row that block `part` of `parts` has.
fn part_of(columns: u64, part: u64, parts: u64) -> std::ops::Range<usize> {
    let length = columns.div_ceil(parts);
    let begin = (part * length).min(columns);
    begin as usize..(begin + length).min(columns) as usize
}

pub(super) fn norm_partial(
    memory: &mut Memory,
    arguments: &mut Arguments<'_>,
    format: Format,
    backward: bool,
) -> Done {
    let x = arguments.memory()?;
    let y = if backward { Some(arguments.memory()?) } else { None };
    let (partial, columns) = (arguments.memory()?, arguments.size()?);
    let [rows, parts, _] = arguments.call.grid.map(u64::from);
    let x = memory.read(x, format, rows * columns);
    let y = y.map(|y| memory.read(y, format, rows * columns));
    let mut all = Vec::new();
    for row in 0..rows as usize {
        for part in 0..parts {
            let columns_of = part_of(columns, part, parts);
            let first = row * columns as usize;
            let range = first + columns_of.start..first + columns_of.end;
            all.extend(sums(&x[range.clone()], y.as_deref().map(|y| &y[range])));
        }
    }
    memory.write(partial, Format::F32, &all);
    Ok(())
}

pub(super) fn norm_apply(
    memory: &mut Memory,
    arguments: &mut Arguments<'_>,
    format: Format,
    backward: bool,
) -> Done {
    let x = arguments.memory()?;
    let y = if backward { Some(arguments.memory()?) } else { None };
    let (out, partial, columns) = (arguments.memory()?, arguments.memory()?, arguments.size()?);
    let [rows, parts, _] = arguments.call.grid.map(u64::from);
    let x = memory.read(x, format, rows * columns);
    let y = y.map(|y| memory.read(y, format, rows * columns));
    let partial = memory.read(partial, Format::F32, rows * parts * 4);
    let width = columns as usize;
    let mut result = Vec::with_capacity(x.len());
    for row in 0..rows as usize {
        let mut total = [0.0; 4];
        for part in partial[row * parts as usize * 4..].chunks_exact(4).take(parts as usize) {
            for (total, value) in total.iter_mut().zip(part) {
                *total += value;
            }
        }
        let range = row * width..(row + 1) * width;
        result.extend(normalised(&x[range.clone()], y.as_deref().map(|y| &y[range]), total, width));
    }
    memory.write(out, format, &result);
    Ok(())
}

pub(super) fn softmax(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let (x, out) = (arguments.memory()?, arguments.memory()?);
    let (rows, columns) = (arguments.size()?, arguments.size()?);
    let mut values = memory.read(x, format, rows * columns);
    for row in values.chunks_exact_mut(columns.max(1) as usize) {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|value| (value - most).exp()).sum();
        for value in row {
            *value = (*value - most).exp() / sum;
        }
    }
    memory.write(out, format, &values);
    Ok(())
}

pub(super) fn softmax_backward(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let (p, y, out) = (arguments.memory()?, arguments.memory()?, arguments.memory()?);
    let (rows, columns) = (arguments.size()?, arguments.size()?);
    let p = memory.read(p, format, rows * columns);
    let mut values = memory.read(y, format, rows * columns);
    let width = columns.max(1) as usize;
    for (y, p) in values.chunks_exact_mut(width).zip(p.chunks_exact(width)) {
        let sum: f64 = y.iter().zip(p).map(|(y, p)| y * p).sum();
        for (y, p) in y.iter_mut().zip(p) {
            *y = p * (*y - sum);
        }
    }
    memory.write(out, format, &values);
    Ok(())
}

pub(super) fn gather(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let (table, indices, out) = (arguments.memory()?, arguments.memory()?, arguments.memory()?);
    let (lookups, pooled, columns) = (arguments.size()?, arguments.size()?, arguments.size()?);
    let width = columns as usize;
    let rows = memory.read(indices, Format::U64, lookups);
    let table_elements = (memory.buffers[table.buffer].len() as u64 - table.offset) / format.bytes();
    let table = memory.read(table, format, table_elements);
    let result: Vec<f64> = rows
        .chunks(pooled as usize)
        .flat_map(|rows| {
            let mut sum = vec![0.0; width];
            for row in rows {
                for (sum, value) in sum.iter_mut().zip(&table[*row as usize * width..]) {
                    *sum += value;
                }
            }
            sum
        })
        .collect();
    memory.write(out, format, &result);
    Ok(())
}

pub(super) fn scatter(memory: &mut Memory, arguments: &mut Arguments<'_>, format: Format) -> Done {
    let (table, indices, updates) = (arguments.memory()?, arguments.memory()?, arguments.memory()?);
    let (count, available, columns) = (arguments.size()?, arguments.size()?, arguments.size()?);
    let (rate, state) = (arguments.number()?, arguments.memory()?);
    let width = columns as usize;
    let rows = memory.read(indices, Format::U64, count);
    let updates = memory.read(updates, format, available * columns);
    let elements = (memory.buffers[table.buffer].len() as u64 - table.offset) / format.bytes();
    let mut values = memory.read(table, format, elements);
    let mut steps = memory.read(state, Format::I32, 1)[0];
    let rate = if steps % 2.0 == 0.0 { rate } else { -rate };
    for (update, row) in rows.iter().enumerate() {
        let from = update % available as usize * width;
        for (column, add) in updates[from..from + width].iter().enumerate() {
            values[*row as usize * width + column] += rate * add;
        }
    }
    steps += 1.0;
    memory.write(table, format, &values);
    memory.write(state, Format::I32, &[steps, 0.0]);
    Ok(())
}
