//! The compiled form of a graph and its evaluation over blocks of rows.

use super::kernels::{Source, least, map, select, truth, zip};
use super::product::Weights;
use super::trees::Trees;
use crate::predictor::Outputs;

/// Rows that run through the plan together: all matrices of a block fit the second-level cache, and each tree is fetched
/// once for this many rows.
const BLOCK: usize = 64;
/// Rows for which a thread of its own pays.
const ROWS_OF_THREAD: usize = 2048;

/// A matrix that the plan computes; one stretch of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    /// Columns before this matrix in the arena.
    pub(super) offset: usize,
    /// Columns of it.
    pub(super) width: usize,
}

/// What an element-wise operator reads: a computed matrix or a constant row; width 1 spreads over all columns.
#[derive(Debug, Clone)]
pub(super) enum Operand {
    Slot(Slot),
    Row(Vec<f32>),
}

impl Operand {
    pub(super) fn width(&self) -> usize {
        match self {
            Self::Slot(slot) => slot.width,
            Self::Row(row) => row.len(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    GreaterOrEqual,
    LessOrEqual,
    And,
}

/// One operator. Truth values are 1 and 0.
#[derive(Debug, Clone)]
pub(super) enum Step {
    IsNaN(Slot),
    Relu(Slot),
    Exp(Slot),
    Log(Slot),
    Copy(Slot),
    Least(Slot),
    Clip(Slot, f32, f32),
    Binary(Binary, Operand, Operand),
    Where(Slot, Operand, Operand),
    Columns(Slot, Vec<u32>),
    Concat(Vec<Slot>),
    Product(Slot, Weights),
    Trees(Slot, Trees),
}

/// A graph as a list of steps, each writing a matrix of the arena that no earlier step has written.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) input: Slot,
    pub(super) steps: Vec<(Step, Slot)>,
    pub(super) outputs: [Slot; 3],
    /// Columns of the whole arena.
    pub(super) width: usize,
}

/// The matrices computed so far and the one being computed.
struct Arena<'a> {
    done: &'a [f32],
    rows: usize,
}

impl Arena<'_> {
    fn matrix(&self, slot: Slot) -> &[f32] {
        &self.done[slot.offset * self.rows..][..slot.width * self.rows]
    }

    fn source<'a>(&'a self, operand: &'a Operand) -> Source<'a> {
        match operand {
            Operand::Slot(slot) => Source::Rows { values: self.matrix(*slot), width: slot.width },
            Operand::Row(row) => Source::Same(row),
        }
    }
}

impl Plan {
    pub(crate) fn input_width(&self) -> usize {
        self.input.width
    }

    /// Evaluates whole rows, many of them on all cores.
    pub(crate) fn run(&self, rows: &[f32]) -> Outputs {
        let total = rows.len() / self.input.width;
        let most = total / ROWS_OF_THREAD;
        let threads = if most < 2 {
            1
        } else {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(most)
        };
        if threads == 1 {
            return self.run_here(rows);
        }
        let part = total.div_ceil(threads).next_multiple_of(BLOCK) * self.input.width;
        let mut parts = Vec::new();
        std::thread::scope(|scope| {
            let (first, others) = rows.split_at(part.min(rows.len()));
            let start = |rows| {
                let work = move || self.run_here(rows);
                (rows, std::thread::Builder::new().spawn_scoped(scope, work).ok())
            };
            let others: Vec<_> = others.chunks(part).map(start).collect();
            parts.push(self.run_here(first));
            parts.extend(others.into_iter().map(|(rows, thread)| match thread {
                // A panic there goes on here.
                Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // The system had no thread to give.
                None => self.run_here(rows),
            }));
        });
        let mut outputs = Outputs::with_capacity(total);
        for part in &parts {
            outputs.append(part);
        }
        outputs
    }

    fn run_here(&self, rows: &[f32]) -> Outputs {
        let total = rows.len() / self.input.width;
        let block = BLOCK.min(total);
        let mut arena = vec![0.0_f32; self.width * block];
        let mut outputs = Outputs::with_capacity(total);
        for chunk in rows.chunks(block.max(1) * self.input.width) {
            let height = chunk.len() / self.input.width;
            arena[self.input.offset * height..][..chunk.len()].copy_from_slice(chunk);
            for (step, target) in &self.steps {
                let (done, rest) = arena.split_at_mut(target.offset * height);
                step.run(&Arena { done, rows: height }, &mut rest[..target.width * height], target.width);
            }
            let [slowdown, upper, in_domain] =
                self.outputs.map(|slot| slot.offset * height..(slot.offset + 1) * height);
            outputs.push(&arena[slowdown], &arena[upper], &arena[in_domain]);
        }
        outputs
    }
}

impl Step {
    fn run(&self, arena: &Arena<'_>, out: &mut [f32], width: usize) {
        match self {
            Self::IsNaN(a) => map(arena.matrix(*a), out, |x| truth(x.is_nan())),
            Self::Relu(a) => map(arena.matrix(*a), out, |x| x.max(0.0)),
            Self::Exp(a) => map(arena.matrix(*a), out, f32::exp),
            Self::Log(a) => map(arena.matrix(*a), out, f32::ln),
            Self::Copy(a) => out.copy_from_slice(arena.matrix(*a)),
            Self::Clip(a, low, high) => map(arena.matrix(*a), out, |x| x.max(*low).min(*high)),
            Self::Least(a) => {
                for (row, out) in arena.matrix(*a).chunks_exact(a.width).zip(out) {
                    *out = least(row);
                }
            }
            Self::Binary(operator, a, b) => {
                let (a, b) = (arena.source(a), arena.source(b));
                match operator {
                    Binary::Add => zip(a, b, out, width, |x, y| x + y),
                    Binary::Sub => zip(a, b, out, width, |x, y| x - y),
                    Binary::Mul => zip(a, b, out, width, |x, y| x * y),
                    Binary::Div => zip(a, b, out, width, |x, y| x / y),
                    Binary::Max => zip(a, b, out, width, f32::max),
                    Binary::GreaterOrEqual => zip(a, b, out, width, |x, y| truth(x >= y)),
                    Binary::LessOrEqual => zip(a, b, out, width, |x, y| truth(x <= y)),
                    Binary::And => zip(a, b, out, width, |x, y| truth(x != 0.0 && y != 0.0)),
                }
            }
            Self::Where(condition, a, b) => {
                select(arena.matrix(*condition), arena.source(a), arena.source(b), out, width);
            }
            Self::Columns(a, columns) => {
                for (row, out) in arena.matrix(*a).chunks_exact(a.width).zip(out.chunks_exact_mut(width)) {
                    for (out, column) in out.iter_mut().zip(columns) {
                        *out = row[*column as usize];
                    }
                }
            }
            Self::Concat(parts) => {
                let mut start = 0;
                for part in parts {
                    let rows = arena.matrix(*part).chunks_exact(part.width);
                    for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
                        out[start..start + part.width].copy_from_slice(row);
                    }
                    start += part.width;
                }
            }
            Self::Product(a, weights) => weights.multiply(arena.matrix(*a), out),
            Self::Trees(a, trees) => trees.run(arena.matrix(*a), a.width, out),
        }
    }
}
