//! Prices of jobs and pairs together, with pair columns found as they pay.

mod seed;

use crate::bundle::{Answer, Planes, Stop, minimise};
use crate::instance::Instance;
use crate::matching::Matcher;
use crate::problem::{Choice, PriceTable};

/// What an earlier solution tells.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start<'a> {
    pub(crate) prices: Option<&'a PriceTable>,
    /// Pair columns that were of use: two jobs and a pool.
    pub(crate) pairs: &'a [(usize, usize, usize)],
    /// What each job gained; empty where it is not known.
    pub(crate) surplus: &'a [f64],
}

/// Answers of the oracle that are kept for the rounding.
const KEPT: usize = 12;

/// Prices with a bound that holds for every pair, considered or not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dual {
    pub(crate) prices: PriceTable,
    pub(crate) answer: Answer,
    /// What the oracle chose at other prices on the way, the last ones, where pairs are among it.
    pub(crate) others: Vec<Vec<Choice>>,
    /// Per job: what it gains at least at the prices; covers every column.
    pub(crate) surplus: Vec<f64>,
    /// No placement is worth more.
    pub(crate) bound: f64,
    /// No bound of this kind can be below it.
    pub(crate) lower: f64,
    pub(crate) calls: u32,
    /// Rounds in which pair columns were added.
    pub(crate) rounds: u32,
}

/// Solves the dual of the instance and leaves the useful pair columns in its problem.
pub(crate) fn solve(instance: &mut Instance<'_>, start: &Start<'_>) -> Dual {
    let (tolerance, calls) = (instance.options.tolerance, instance.options.calls);
    let shares = !instance.sharers().is_empty();
    // While columns are still being added, a rough answer shows as well which ones pay.
    let rough = Stop { tolerance: if shares { tolerance.max(2e-3) } else { tolerance }, calls };
    let (mut planes, mut matcher) = (Planes::default(), Matcher::default());
    let mut dual = Dual::default();
    let mut fine = shares && start.prices.is_some() && !start.pairs.is_empty();
    if fine {
        seed::known_pairs(instance, start);
        matcher.expect(start.surplus);
        dual.prices = start.prices.cloned().unwrap_or_default();
    } else {
        let alone = minimise(&instance.problem, start.prices, &mut planes, &mut matcher, rough);
        dual.prices = alone.prices;
        (dual.bound, dual.lower, dual.calls) = (alone.upper, alone.lower, alone.calls);
        dual.surplus.clone_from(&alone.answer.surplus);
        dual.answer = alone.answer;
        if !shares {
            return finish(dual);
        }
        let expected = seed::seed_pairs(instance, &dual.prices, &dual.surplus);
        matcher.expect(&expected);
    }
    let mut others = Vec::new();
    let mut best: Option<Dual> = None;
    for round in 0..12 {
        let stop = if fine { Stop { tolerance, calls } } else { rough };
        let from = if round == 0 { start.prices.or(Some(&dual.prices)) } else { Some(&dual.prices) };
        let solved = minimise(&instance.problem, from, &mut planes, &mut matcher, stop);
        dual.calls += solved.calls;
        dual.rounds = round + 1;
        dual.lower = dual.lower.max(solved.lower);
        dual.prices.clone_from(&solved.prices);
        dual.surplus.clone_from(&solved.answer.surplus);
        dual.answer = solved.answer;
        others.extend(solved.others);
        let least = tolerance * 0.1 * solved.upper / instance.problem.jobs().max(1) as f64;
        let (worst, missing) = instance.violations(&dual.prices, &dual.surplus, 4, least);
        // Half of the worst violation at both ends covers every pair.
        let covered: Vec<f64> =
            dual.surplus.iter().zip(&worst).map(|(surplus, over)| surplus + over * 0.5).collect();
        let bound = instance.problem.capacity_cost(&dual.prices) + covered.iter().sum::<f64>();
        if best.as_ref().is_none_or(|best| bound < best.bound) {
            best = Some(Dual { bound, surplus: covered, ..dual.clone() });
        }
        let excess = worst.iter().sum::<f64>() * 0.5;
        let known: std::collections::BTreeSet<(usize, usize, usize)> =
            instance.problem.pairs.iter().map(|pair| (pair.a, pair.b, pair.pool)).collect();
        let new: Vec<_> =
            missing.into_iter().filter(|pair| !known.contains(&(pair.0, pair.1, pair.2))).collect();
        if new.is_empty() || excess <= tolerance * 0.5 * bound {
            if fine {
                break;
            }
            fine = true;
        }
        for (a, b, pool, value) in new {
            let pair = instance.pair(a, b, pool, value);
            instance.problem.pairs.push(pair);
        }
    }
    let (calls, rounds, lower) = (dual.calls, dual.rounds, dual.lower);
    let mut best = best.unwrap_or(dual);
    (best.calls, best.rounds, best.lower) = (calls, rounds, lower);
    best.others = others.split_off(others.len().saturating_sub(KEPT));
    finish(best)
}

fn finish(mut dual: Dual) -> Dual {
    // Sums of many floats: the bound must err upwards.
    dual.bound *= 1.0 + 1e-10;
    dual
}
