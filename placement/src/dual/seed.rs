//! The first pair columns: who would be with whom if jobs bid for each other at the prices that hold without pairs.
//!
//! An auction (Bertsekas 1988) on the double cover of the graph, as the matching is, with a coarse step: its prices say
//! which jobs everybody wants, so the columns of a job are those that suit it and that it can have. By gain alone all
//! jobs would name the same few partners.

use super::Start;
use crate::instance::{Instance, push_top};
use crate::problem::PriceTable;
use std::collections::VecDeque;

/// Steps of a bid between nothing and what an average job would give for its best partner.
const STEPS: f64 = 24.0;

/// Bids per job after which the prices are good enough.
const MOST_BIDS: usize = 64;

/// Who a job can have, and what both gain by half.
#[derive(Clone, Copy)]
struct Arc {
    partner: u32,
    gain: f64,
}

/// Adds the first columns to the problem. Returns what each job gains, as far as the bids tell.
pub(super) fn seed_pairs(instance: &mut Instance<'_>, prices: &PriceTable, surplus: &[f64]) -> Vec<f64> {
    let jobs = instance.problem.jobs();
    let costs = instance.pair_costs(prices);
    let gain = |a: usize, b: usize, pool: usize, value: f64| {
        value - prices[pool][0] - costs[pool][a] - costs[pool][b] - surplus[a] - surplus[b]
    };
    let mut starts = vec![0_u32; jobs + 1];
    let mut best = vec![0.0_f64; jobs];
    instance.each_pair(|a, b, pool, value| {
        let gain = gain(a, b, pool, value);
        if gain > 0.0 {
            for job in [a, b] {
                starts[job + 1] += 1;
                best[job] = best[job].max(gain);
            }
        }
    });
    for job in 0..jobs {
        starts[job + 1] += starts[job];
    }
    let mut fill = starts.clone();
    let mut arcs = vec![Arc { partner: 0, gain: 0.0 }; starts[jobs] as usize];
    instance.each_pair(|a, b, pool, value| {
        let gain = gain(a, b, pool, value) * 0.5;
        if gain > 0.0 {
            for (job, partner) in [(a, b), (b, a)] {
                arcs[fill[job] as usize] = Arc { partner: partner as u32, gain };
                fill[job] += 1;
            }
        }
    });
    let willing = best.iter().filter(|best| **best > 0.0).count().max(1);
    let step = best.iter().sum::<f64>() / willing as f64 * 0.5 / STEPS;
    let arcs_of = |job: usize| &arcs[starts[job] as usize..starts[job + 1] as usize];
    let wanted = bid(jobs, arcs_of, step);
    let expected: Vec<f64> = (0..jobs)
        .map(|job| {
            let left = arcs_of(job).iter().map(|arc| arc.gain - wanted[arc.partner as usize]);
            wanted[job] + left.fold(0.0, f64::max)
        })
        .collect();
    let keep = instance.options.partners.max(2);
    let mut lists: Vec<Vec<(f64, usize, usize, f64)>> = vec![Vec::new(); jobs];
    instance.each_pair(|a, b, pool, value| {
        let slack = gain(a, b, pool, value) - expected[a] - expected[b];
        for (job, partner) in [(a, b), (b, a)] {
            push_top(&mut lists[job], keep, (slack, partner, pool, value));
        }
    });
    let mut found: Vec<(usize, usize, usize, f64)> = Vec::new();
    for (job, list) in lists.into_iter().enumerate() {
        found.extend(
            list.into_iter()
                .map(|(_, partner, pool, value)| (job.min(partner), job.max(partner), pool, value)),
        );
    }
    found.sort_by_key(|pair| (pair.0, pair.1, pair.2));
    found.dedup_by_key(|pair| (pair.0, pair.1, pair.2));
    let columns = found.into_iter().map(|(a, b, pool, value)| instance.pair(a, b, pool, value));
    instance.problem.pairs = columns.collect();
    expected.iter().zip(surplus).map(|(expected, surplus)| expected + surplus).collect()
}

/// Adds the columns of an earlier solution that are still permitted.
pub(super) fn known_pairs(instance: &mut Instance<'_>, start: &Start<'_>) {
    let mut columns = Vec::with_capacity(start.pairs.len());
    for &(a, b, pool) in start.pairs {
        if let Ok(value) = instance.pair_value(a, b, pool) {
            columns.push(instance.pair(a.min(b), a.max(b), pool, value));
        }
    }
    instance.problem.pairs = columns;
}

/// What every job is wanted for: the prices of an auction in which each bids for one partner.
fn bid<'a>(jobs: usize, arcs_of: impl Fn(usize) -> &'a [Arc], step: f64) -> Vec<f64> {
    let mut prices = vec![0.0_f64; jobs];
    let mut holder: Vec<Option<usize>> = vec![None; jobs];
    let mut queue: VecDeque<usize> = (0..jobs).filter(|job| !arcs_of(*job).is_empty()).collect();
    for _ in 0..jobs * MOST_BIDS {
        let Some(job) = queue.pop_front() else { break };
        // To stay alone is the second choice at least.
        let (mut best, mut second, mut partner) = (0.0_f64, 0.0_f64, None);
        for arc in arcs_of(job) {
            let net = arc.gain - prices[arc.partner as usize];
            if net > best {
                second = best;
                (best, partner) = (net, Some(arc.partner as usize));
            } else if net > second {
                second = net;
            }
        }
        if let Some(partner) = partner {
            prices[partner] += best - second + step;
            queue.extend(holder[partner].replace(job));
        }
    }
    prices
}
