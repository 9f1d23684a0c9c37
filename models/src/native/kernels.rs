//! Element-wise operators over blocks of rows, written so that the compiler can use vector instructions.

/// What an operator reads: a row for each row, or the same for all; one value stands for all columns.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Rows { values: &'a [f32], width: usize },
    Same(&'a [f32]),
}

impl<'a> Source<'a> {
    fn width(self) -> usize {
        match self {
            Self::Rows { width, .. } => width,
            Self::Same(values) => values.len(),
        }
    }

    fn row(self, row: usize) -> &'a [f32] {
        match self {
            Self::Rows { values, width } => &values[row * width..][..width],
            Self::Same(values) => values,
        }
    }
}

pub(super) fn truth(holds: bool) -> f32 {
    f32::from(u8::from(holds))
}

pub(super) fn map(values: &[f32], out: &mut [f32], function: impl Fn(f32) -> f32) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = function(*value);
    }
}

/// Joins two operands; `out` has rows of `width` values.
pub(super) fn zip(
    a: Source<'_>,
    b: Source<'_>,
    out: &mut [f32],
    width: usize,
    function: impl Fn(f32, f32) -> f32,
) {
    let is_wide = |source: Source<'_>| source.width() == width;
    match (a, b) {
        // One stretch of memory each: no row is looked at alone.
        (Source::Rows { values: a, width: wa }, Source::Rows { values: b, width: wb })
            if wa == width && wb == width =>
        {
            for ((out, x), y) in out.iter_mut().zip(a).zip(b) {
                *out = function(*x, *y);
            }
        }
        (Source::Rows { values, width: wide }, Source::Same([y])) if wide == width => {
            map(values, out, |x| function(x, *y));
        }
        _ => {
            for (index, out) in out.chunks_exact_mut(width).enumerate() {
                let (x, y) = (a.row(index), b.row(index));
                if is_wide(a) && is_wide(b) {
                    for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
                        *out = function(*x, *y);
                    }
                } else {
                    for (column, out) in out.iter_mut().enumerate() {
                        *out = function(pick(x, column), pick(y, column));
                    }
                }
            }
        }
    }
}

/// Takes `a` where the condition is not 0, else `b`.
pub(super) fn select(conditions: &[f32], a: Source<'_>, b: Source<'_>, out: &mut [f32], width: usize) {
    let is_wide = a.width() == width && b.width() == width;
    for (index, (condition, out)) in
        conditions.chunks_exact(width).zip(out.chunks_exact_mut(width)).enumerate()
    {
        let (a, b) = (a.row(index), b.row(index));
        if is_wide {
            for (((out, holds), a), b) in out.iter_mut().zip(condition).zip(a).zip(b) {
                *out = if *holds == 0.0 { *b } else { *a };
            }
        } else {
            for (column, (out, holds)) in out.iter_mut().zip(condition).enumerate() {
                *out = if *holds == 0.0 { pick(b, column) } else { pick(a, column) };
            }
        }
    }
}

/// The least value; infinity for none. NaN is passed over.
pub(super) fn least(row: &[f32]) -> f32 {
    // Eight running minima: one alone would wait for itself at every value.
    let less = |a: f32, b: f32| if b < a { b } else { a };
    let (chunks, rest) = row.as_chunks::<8>();
    let mut lanes = [f32::INFINITY; 8];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = less(*lane, *value);
        }
    }
    lanes.into_iter().chain(rest.iter().copied()).fold(f32::INFINITY, less)
}

fn pick(row: &[f32], column: usize) -> f32 {
    if row.len() == 1 { row[0] } else { row[column] }
}
