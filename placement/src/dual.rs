//! Prices of jobs and pairs together, with pair columns found as they pay.

use crate::bundle::{Answer, Planes, Stop, minimise};
use crate::instance::{Instance, push_top};
use crate::problem::PriceTable;

/// Prices with a bound that holds for every pair, considered or not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dual {
    pub(crate) prices: PriceTable,
    pub(crate) answer: Answer,
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
pub(crate) fn solve(instance: &mut Instance<'_>, warm: Option<&PriceTable>) -> Dual {
    let (tolerance, calls) = (instance.options.tolerance, instance.options.calls);
    let shares = !instance.sharers().is_empty();
    // While columns are still being added, a rough answer shows as well which ones pay.
    let rough = Stop { tolerance: if shares { tolerance.max(2e-3) } else { tolerance }, calls };
    let mut planes = Planes::default();
    let alone = minimise(&instance.problem, warm, &mut planes, rough);
    let mut dual = Dual {
        prices: alone.prices,
        bound: alone.upper,
        lower: alone.lower,
        calls: alone.calls,
        surplus: alone.answer.surplus.clone(),
        answer: alone.answer,
        rounds: 0,
    };
    if !shares {
        return finish(dual);
    }
    seed_pairs(instance, &dual.prices, &dual.surplus);
    let mut best: Option<Dual> = None;
    let mut fine = false;
    for round in 0..12 {
        let stop = if fine { Stop { tolerance, calls } } else { rough };
        let from = if round == 0 && warm.is_some() { warm } else { Some(&dual.prices) };
        let solved = minimise(&instance.problem, from, &mut planes, stop);
        dual.calls += solved.calls;
        dual.rounds = round + 1;
        dual.lower = dual.lower.max(solved.lower);
        dual.prices.clone_from(&solved.prices);
        dual.surplus.clone_from(&solved.answer.surplus);
        dual.answer = solved.answer;
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
    finish(best)
}

fn finish(mut dual: Dual) -> Dual {
    // Sums of many floats: the bound must err upwards.
    dual.bound *= 1.0 + 1e-10;
    dual
}

/// The first columns: for each job its best partners by gain, and those that suit it better than they suit others.
///
/// By gain alone every job would name the same few partners, the ones that everybody wants.
fn seed_pairs(instance: &mut Instance<'_>, prices: &PriceTable, surplus: &[f64]) {
    let jobs = instance.problem.jobs();
    let costs = instance.pair_costs(prices);
    let gain = |a: usize, b: usize, pool: usize, value: f64| {
        value - prices[pool][0] - costs[pool][a] - costs[pool][b] - surplus[a] - surplus[b]
    };
    let (mut sums, mut counts) = (vec![0.0_f64; jobs], vec![0_u32; jobs]);
    instance.each_pair(|a, b, pool, value| {
        let gain = gain(a, b, pool, value);
        for job in [a, b] {
            sums[job] += gain;
            counts[job] += 1;
        }
    });
    let mean: Vec<f64> =
        sums.iter().zip(&counts).map(|(sum, count)| sum / f64::from((*count).max(1))).collect();
    let keep = instance.options.partners.max(2);
    let mut by_gain: Vec<Vec<(f64, usize, usize, f64)>> = vec![Vec::new(); jobs];
    let mut by_fit = by_gain.clone();
    instance.each_pair(|a, b, pool, value| {
        let gain = gain(a, b, pool, value);
        for (job, partner) in [(a, b), (b, a)] {
            push_top(&mut by_gain[job], keep / 2, (gain, partner, pool, value));
            push_top(&mut by_fit[job], keep - keep / 2, (gain - mean[partner], partner, pool, value));
        }
    });
    let mut found: Vec<(usize, usize, usize, f64)> = Vec::new();
    for (job, lists) in by_gain.into_iter().zip(by_fit).enumerate() {
        let both = lists.0.into_iter().chain(lists.1);
        found.extend(both.map(|(_, partner, pool, value)| (job.min(partner), job.max(partner), pool, value)));
    }
    found.sort_by_key(|pair| (pair.0, pair.1, pair.2));
    found.dedup_by_key(|pair| (pair.0, pair.1, pair.2));
    let columns: Vec<_> =
        found.into_iter().map(|(a, b, pool, value)| instance.pair(a, b, pool, value)).collect();
    instance.problem.pairs = columns;
}
