//! Pairs that are not listed, found by class.
//!
//! Together two jobs are worth no more than each is worth at the slowdown of its class beside the other's. So among the jobs of
//! a class the best partner at given prices is the same for whoever comes, and one look at each job of both classes bounds all
//! their pairs: the work grows with jobs times classes instead of with the square of the jobs.

use super::pairs::Violations;
use super::{Instance, Refusal};
use crate::problem::PriceTable;

/// Partners that are looked at one by one before the bound of the next one stands for the rest. The first is nearly always
/// permitted; tenants, memory, hosts and restarts can forbid it or make it worth less.
const LOOKS: usize = 8;

/// New columns that name the same job, so that not everybody is offered the same few partners.
const NAMED: u8 = 4;

/// A job and what it brings to a pair over its price and surplus.
type Brought = (f64, usize);

/// The prices at which pairs are looked for.
struct At<'p> {
    pool: usize,
    slot: f64,
    /// Per job: what its half of the host costs.
    fixed: &'p [f64],
    surplus: &'p [f64],
}

impl Instance<'_> {
    /// Notes what pairs gain at most over the surplus of both, and the worst of them.
    pub(super) fn across(
        &self,
        prices: &PriceTable,
        surplus: &[f64],
        fixed: &[Vec<f64>],
        seen: &mut Violations,
    ) {
        let mut named = vec![0_u8; self.facts.len()];
        let classes = || self.offers.alike.iter().enumerate();
        for (pool, device) in self.devices.iter().enumerate() {
            let Some(device) = *device else { continue };
            let at = At { pool, slot: prices[pool][0], fixed: &fixed[pool], surplus };
            for (a, of_a) in classes() {
                for (b, of_b) in classes().skip(a) {
                    for way in self.ways[device].get(a, b) {
                        let side = |groups: &[Vec<usize>], side: usize| -> Vec<Vec<Brought>> {
                            let brought = |jobs: &Vec<usize>| {
                                self.brought(jobs, way.slowdown[side], way.upper[side], &at)
                            };
                            groups.iter().map(brought).collect()
                        };
                        self.meet_all(&side(of_a, 0), &side(of_b, 1), &at, &mut named, seen);
                    }
                }
            }
        }
    }

    /// The groups of two classes, each from the job that brings most.
    fn meet_all(
        &self,
        left: &[Vec<Brought>],
        right: &[Vec<Brought>],
        at: &At<'_>,
        named: &mut [u8],
        seen: &mut Violations,
    ) {
        for mine in left {
            for theirs in right {
                let (Some((most, a)), Some((other_most, b))) = (mine.first(), theirs.first()) else {
                    continue;
                };
                if most + other_most <= at.slot {
                    continue;
                }
                // Any other of the group, where both are one job.
                let b = theirs.iter().map(|(_, b)| b).find(|b| *b != a).unwrap_or(b);
                if a == b || !self.is_possible(*a, *b, at.pool) {
                    continue;
                }
                self.meet(mine, theirs, at, named, seen);
                self.meet(theirs, mine, at, named, seen);
            }
        }
    }

    /// Whether jobs like these two may share, but for the limits of their slowdowns.
    fn is_possible(&self, a: usize, b: usize, pool: usize) -> bool {
        matches!(self.pair_value(a, b, pool), Ok(_) | Err(Refusal::Limit | Refusal::OutOfDomain))
    }

    /// What each of the jobs brings to a pair in which it is slowed down so much, the largest first.
    fn brought(&self, jobs: &[usize], slowdown: f64, upper: f64, at: &At<'_>) -> Vec<Brought> {
        let of = |job: usize| {
            let fact = &self.facts[job];
            let alone = fact.alone[at.pool].as_ref().filter(|_| upper <= fact.limit)?;
            let worth = |half: &super::Half| self.worths[job].halved(half.throughput / slowdown, half.stays);
            let best = alone.halves.iter().map(worth).fold(f64::MIN, f64::max);
            Some((best - at.fixed[job] - at.surplus[job], job))
        };
        let mut brought: Vec<Brought> = jobs.iter().filter_map(|job| of(*job)).collect();
        brought.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        brought
    }

    /// The partners of each of `mine` among `theirs`, both from the one that brings most.
    fn meet(
        &self,
        mine: &[Brought],
        theirs: &[Brought],
        at: &At<'_>,
        named: &mut [u8],
        seen: &mut Violations,
    ) {
        let mut first = 0;
        let most_of_theirs = theirs.first().map_or(f64::MIN, |(brings, _)| *brings);
        for (brings, a) in mine.iter().take_while(|(brings, _)| brings + most_of_theirs > at.slot) {
            let (mut found, mut rest) = (0.0_f64, 0.0);
            for (looks, (other_brings, b)) in theirs.iter().filter(|(_, b)| b != a).enumerate() {
                let most = brings + other_brings - at.slot;
                if most <= found {
                    break;
                }
                if looks == LOOKS || most <= seen.least {
                    rest = most;
                    break;
                }
                if let Some((_, over)) = self.over(*a, *b, at) {
                    found = found.max(over);
                }
            }
            seen.worst[*a] = seen.worst[*a].max(found).max(rest);
            if found.max(rest) <= seen.least {
                continue;
            }
            while theirs.get(first).is_some_and(|(_, b)| named[*b] >= NAMED) {
                first += 1;
            }
            for (other_brings, b) in theirs[first..].iter().filter(|(_, b)| b != a).take(LOOKS) {
                if brings + other_brings - at.slot <= seen.least {
                    break;
                }
                if named[*b] < NAMED
                    && let Some((value, over)) = self.over(*a, *b, at)
                    && over > seen.least
                {
                    named[*b] += 1;
                    seen.see(*a, *b, at.pool, value, over);
                    break;
                }
            }
        }
    }

    /// What two jobs are worth together, and by how much that is over their surplus.
    fn over(&self, a: usize, b: usize, at: &At<'_>) -> Option<(f64, f64)> {
        let value = self.pair_value(a.min(b), a.max(b), at.pool).ok()?;
        let price = at.slot + at.fixed[a] + at.fixed[b];
        Some((value, value - price - at.surplus[a] - at.surplus[b]))
    }
}
