//! Collaborative filtering: workloads known by name, not by features.
//!
//! log slowdown = mean + victimₛ + aggressor_c (bias filter), and + pₛ · q_c with a few factors on each side (matrix
//! factorisation, as in Quasar, Mystic and Gavel), by alternating ridge regressions (Zhou et al. 2008). Each device and
//! sharing mode has effects of its own. What was never seen has no effect: a new workload falls back to the effect of the
//! other side, a new pair of devices to the mean.

use super::least_squares::Normal;
use super::{Fitted, Learner, LearnerOptions, Training};
use crate::{Error, Groups};
use elastico_core::{Seed, Stream};
use rand::RngExt as _;
use std::collections::BTreeMap;

pub(crate) struct BiasFilter;
pub(crate) struct MatrixFactorisation;

/// The effects, by device and sharing mode.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Factors {
    mean: f64,
    contexts: BTreeMap<u32, Context>,
}

/// Of each workload in each role: its effect, then its factors.
#[derive(Debug, Clone, PartialEq, Default)]
struct Context {
    mean: f64,
    subject: BTreeMap<u32, Vec<f64>>,
    co_runner: BTreeMap<u32, Vec<f64>>,
}

/// A row of one context.
#[derive(Debug, Clone, Copy)]
struct Cell {
    subject: u32,
    co_runner: u32,
    target: f64,
    weight: f64,
}

impl Factors {
    pub(crate) fn predict(&self, groups: &Groups) -> Vec<f64> {
        (0..groups.rows())
            .map(|row| {
                self.contexts
                    .get(&groups.context[row])
                    .map_or(self.mean, |context| context.predict(groups.subject[row], groups.co_runner[row]))
            })
            .collect()
    }
}

impl Context {
    fn predict(&self, subject: u32, co_runner: u32) -> f64 {
        let (subject, co_runner) = (self.subject.get(&subject), self.co_runner.get(&co_runner));
        let effect = |side: Option<&Vec<f64>>| side.map_or(0.0, |side| side[0]);
        let product = subject.zip(co_runner).map_or(0.0, |(subject, co_runner)| dot(subject, co_runner));
        self.mean + effect(subject) + effect(co_runner) + product
    }

    fn fit(cells: &[Cell], rank: usize, ridge: f64, sweeps: usize, stream: &mut Stream) -> Self {
        let total: f64 = cells.iter().map(|cell| cell.weight).sum();
        let mean = cells.iter().map(|cell| cell.weight * cell.target).sum::<f64>() / total;
        let mut context = Self { mean, ..Self::default() };
        for cell in cells {
            context.subject.insert(cell.subject, vec![0.0; rank + 1]);
            context.co_runner.insert(cell.co_runner, vec![0.0; rank + 1]);
        }
        // Factors of both sides at 0 are a saddle point: the co-runners start at small random ones.
        for side in context.co_runner.values_mut() {
            side[1..].fill_with(|| 0.2 * (stream.random::<f64>() - 0.5));
        }
        for _ in 0..sweeps {
            let solved = Self::half(cells, mean, ridge, &context.subject, &context.co_runner, |cell| {
                (cell.subject, cell.co_runner)
            });
            context.subject = solved;
            let solved = Self::half(cells, mean, ridge, &context.co_runner, &context.subject, |cell| {
                (cell.co_runner, cell.subject)
            });
            context.co_runner = solved;
        }
        context
    }

    /// Solves one side while the other is held: a ridge regression for each workload on 1 and the factors of its partners.
    fn half(
        cells: &[Cell],
        mean: f64,
        ridge: f64,
        side: &BTreeMap<u32, Vec<f64>>,
        held: &BTreeMap<u32, Vec<f64>>,
        of: impl Fn(&Cell) -> (u32, u32),
    ) -> BTreeMap<u32, Vec<f64>> {
        let width = side.values().next().map_or(1, Vec::len);
        let mut problems: BTreeMap<u32, Normal> =
            side.keys().map(|workload| (*workload, Normal::new(width))).collect();
        let mut row = vec![1.0; width];
        for cell in cells {
            let (own, partner) = of(cell);
            let (Some(problem), Some(partner)) = (problems.get_mut(&own), held.get(&partner)) else {
                continue;
            };
            row[1..].copy_from_slice(&partner[1..]);
            problem.add(&row, cell.target - mean - partner[0], cell.weight);
        }
        problems
            .into_iter()
            .map(|(workload, problem)| {
                // With a ridge above 0 the equations have a solution; without one, no effect is the safe answer.
                let found = problem.solve(ridge).unwrap_or_else(|| vec![0.0; width]);
                (workload, found)
            })
            .collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a[1..].iter().zip(&b[1..]).map(|(a, b)| a * b).sum()
}

fn fit(training: &Training<'_>, rank: usize, ridge: f64, sweeps: usize, seed: Seed) -> Fitted {
    let groups = training.groups;
    let mut cells: BTreeMap<u32, Vec<Cell>> = BTreeMap::new();
    let (mut sum, mut total) = (0.0, 0.0);
    for row in 0..groups.rows() {
        let (target, weight) = (training.target[row], training.weight(row));
        sum += weight * target;
        total += weight;
        cells.entry(groups.context[row]).or_default().push(Cell {
            subject: groups.subject[row],
            co_runner: groups.co_runner[row],
            target,
            weight,
        });
    }
    let contexts = cells
        .into_iter()
        .map(|(code, cells)| {
            let mut stream = seed.stream("trainer.factors", &[&code.to_string()]);
            (code, Context::fit(&cells, rank, ridge, sweeps, &mut stream))
        })
        .collect();
    Fitted::Factors(Factors { mean: sum / total, contexts })
}

impl Learner for BiasFilter {
    fn fit(&self, training: &Training<'_>, options: &LearnerOptions, seed: Seed) -> Result<Fitted, Error> {
        const SWEEPS: usize = 50;
        Ok(fit(training, 0, options.bias_filter.ridge, SWEEPS, seed))
    }
}

impl Learner for MatrixFactorisation {
    fn fit(&self, training: &Training<'_>, options: &LearnerOptions, seed: Seed) -> Result<Fitted, Error> {
        let options = &options.matrix_factorisation;
        Ok(fit(training, options.rank, options.ridge, options.sweeps, seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learners::tests::Table;

    /// Every pair of `count` workloads in two contexts, with a table of rank 2 beside the effects.
    fn table(count: u32, hidden: impl Fn(u32, u32) -> bool) -> (Table, Vec<(u32, u32, f64)>) {
        let value = |s: u32, c: u32, context: u32| {
            let wave = |code: u32, step: f64| (f64::from(code) * step).sin();
            0.3 + 0.1 * f64::from(context)
                + 0.2 * wave(s, 1.3)
                + 0.2 * wave(c, 2.1)
                + 0.3 * wave(s, 0.7) * wave(c, 0.9)
                + 0.2 * wave(s, 2.9) * wave(c, 1.7)
        };
        let mut groups = Groups::default();
        let (mut target, mut held) = (Vec::new(), Vec::new());
        for context in 0..2 {
            for s in 0..count {
                for c in 0..count {
                    if hidden(s, c) {
                        held.push((s, c, value(s, c, context)));
                        continue;
                    }
                    groups.subject.push(s);
                    groups.co_runner.push(c);
                    groups.context.push(context);
                    groups.pair.push(s.min(c) * count + s.max(c));
                    target.push(value(s, c, context));
                }
            }
        }
        (Table { groups, ..Table::of(&["x"], vec![0.0; target.len()], target) }, held)
    }

    fn error(fitted: &Fitted, held: &[(u32, u32, f64)]) -> f64 {
        let half = held.len() / 2;
        let groups = Groups {
            pair: vec![0; held.len()],
            subject: held.iter().map(|cell| cell.0).collect(),
            co_runner: held.iter().map(|cell| cell.1).collect(),
            context: (0..held.len()).map(|row| u32::from(row >= half)).collect(),
            ..Groups::default()
        };
        let Fitted::Factors(factors) = fitted else { panic!("no factors") };
        let errors = factors.predict(&groups).into_iter().zip(held).map(|(p, cell)| (p - cell.2).abs());
        errors.sum::<f64>() / held.len() as f64
    }

    #[test]
    fn a_table_of_rank_two_is_completed() {
        let (table, held) = table(24, |s, c| (s * 7 + c * 5) % 6 == 0);
        let mut options = LearnerOptions::default();
        options.matrix_factorisation.ridge = 1e-3;
        options.matrix_factorisation.rank = 2;
        options.matrix_factorisation.sweeps = 200;
        let factors = MatrixFactorisation.fit(&table.training(), &options, Seed(1)).unwrap();
        let bias = BiasFilter.fit(&table.training(), &options, Seed(1)).unwrap();
        assert!(error(&factors, &held) < 0.01, "{}", error(&factors, &held));
        assert!(error(&bias, &held) > 0.05, "{}", error(&bias, &held));
        let Fitted::Factors(first) = &factors else { panic!() };
        let Fitted::Factors(again) = MatrixFactorisation.fit(&table.training(), &options, Seed(1)).unwrap()
        else {
            panic!()
        };
        assert_eq!(*first, again);
    }

    #[test]
    fn a_new_workload_falls_back_to_the_other_side_then_to_the_mean() {
        let (table, _) = table(12, |_, _| false);
        let Fitted::Factors(factors) =
            BiasFilter.fit(&table.training(), &LearnerOptions::default(), Seed(1)).unwrap()
        else {
            panic!()
        };
        let context = &factors.contexts[&0];
        let effect = context.co_runner[&3][0];
        assert!((context.predict(99, 3) - context.mean - effect).abs() < 1e-12);
        assert!((context.predict(99, 99) - context.mean).abs() < 1e-12);
        let elsewhere = Groups {
            pair: vec![0],
            subject: vec![1],
            co_runner: vec![1],
            context: vec![7],
            ..Groups::default()
        };
        assert!((factors.predict(&elsewhere)[0] - elastico_core::mean(&table.target)).abs() < 1e-12);
    }
}
