//! How two workloads may share a GPU, and all pairs of jobs that may.

use super::{Instance, Refusal};
use crate::pairing::{Counts, PairTable};
use elastico_core::parallel;
use std::collections::BTreeMap;

/// What a way of sharing does to both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) slowdown: [f64; 2],
    pub(super) upper: [f64; 2],
}

impl Way {
    fn swapped(self) -> Self {
        let turn = |[a, b]: [f64; 2]| [b, a];
        Self { slowdown: turn(self.slowdown), upper: turn(self.upper) }
    }

    /// Whether the other is no better for anybody.
    fn dominates(&self, other: &Self) -> bool {
        let all = |mine: &[f64; 2], theirs: &[f64; 2]| mine[0] <= theirs[0] && mine[1] <= theirs[1];
        all(&self.slowdown, &other.slowdown) && all(&self.upper, &other.upper)
    }
}

/// The ways of every pair of classes on one device: within the domain and the limit, none dominated by another.
#[derive(Clone, Debug, Default)]
pub(super) struct Ways {
    classes: usize,
    /// Where those of a pair begin, by the upper triangle of classes.
    starts: Vec<u32>,
    list: Vec<Way>,
}

impl Ways {
    /// Of the classes that are used.
    pub(super) fn of(table: &PairTable, device: usize, used: &[bool], limit: f64) -> Self {
        let classes = table.classes();
        let mut found = Self { classes, starts: vec![0], list: Vec::new() };
        for a in 0..classes {
            for b in a..classes {
                let first = found.list.len();
                if used[a] && used[b] {
                    for (slowdown, upper) in table.safe(device, a, b, limit) {
                        let way = Way { slowdown: slowdown.map(|ratio| ratio.max(1.0)), upper };
                        if !found.list[first..].iter().any(|kept| kept.dominates(&way)) {
                            found.list.push(way);
                        }
                    }
                }
                found.starts.push(found.list.len() as u32);
            }
        }
        found
    }

    /// From `a`'s view.
    pub(super) fn get(&self, a: usize, b: usize) -> impl Iterator<Item = Way> + Clone {
        let (low, high) = (a.min(b), a.max(b));
        let at = low * (2 * self.classes - low + 1) / 2 + (high - low);
        let ways = &self.list[self.starts[at] as usize..self.starts[at + 1] as usize];
        ways.iter().map(move |way| if a > b { way.swapped() } else { *way })
    }
}

/// A pair of jobs that every rule permits in a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) a: u32,
    pub(super) b: u32,
    pub(super) pool: u32,
    pub(super) value: f64,
}

/// All of them, with the number of pairs that each reason refuses; of many jobs those within blocks, and no reasons.
#[derive(Debug, Default)]
pub(super) struct Offers {
    pub(super) list: Vec<Offer>,
    pub(super) refused: Counts,
    /// Per class the jobs that every rule treats alike; empty where all pairs are listed. `across` finds the others by them.
    pub(super) alike: Vec<Vec<Vec<usize>>>,
}

/// Among more jobs not every pair is listed: neither memory nor the matching would bear it.
const MOST_JOBS: usize = 2_000;

/// About how many pairs are listed then, and how many jobs a block has at least.
const LISTED: usize = 2_000_000;
const LEAST_BLOCK: usize = 128;

/// Jobs that a thread looks at together.
const CHUNK: usize = 32;

impl Offers {
    pub(super) fn of(instance: &Instance<'_>) -> Self {
        if instance.table.is_none() || instance.nodes.is_empty() {
            return Self::default();
        }
        let sharers = instance.sharers();
        if sharers.len() > MOST_JOBS {
            let size = (2 * LISTED / sharers.len()).max(LEAST_BLOCK);
            Self::of_blocks(instance, sharers, size)
        } else {
            Self::of_all(instance)
        }
    }

    /// Looks at every pair of jobs once.
    fn of_all(instance: &Instance<'_>) -> Self {
        let jobs = instance.facts.len();
        let parts = parallel::chunks(jobs, CHUNK, |range| {
            let mut list = Vec::new();
            let mut refused = [0_u64; Refusal::ALL.len()];
            for a in range {
                for b in a + 1..jobs {
                    let before = list.len();
                    let nearest = offer(instance, a, b, &mut list);
                    if let (true, Some(refusal)) = (list.len() == before, nearest) {
                        refused[refusal as usize] += 1;
                    }
                }
            }
            (list, refused)
        });
        let mut offers = Self::default();
        for (list, refused) in parts {
            offers.list.extend(list);
            for (refusal, count) in Refusal::ALL.iter().zip(refused).filter(|(_, count)| *count > 0) {
                *offers.refused.entry(refusal.as_str().to_owned()).or_insert(0) += count;
            }
        }
        offers
    }

    /// Deals the jobs out to blocks, those of a class evenly, and looks at the pairs within them. So every job sees partners
    /// of every class, and what it would gain elsewhere is small.
    pub(super) fn of_blocks(instance: &Instance<'_>, mut sharers: Vec<usize>, size: usize) -> Self {
        let count = sharers.len().div_ceil(size);
        sharers.sort_by_key(|job| (instance.facts[*job].class, *job));
        let mut block = vec![usize::MAX; instance.facts.len()];
        for (at, job) in sharers.iter().enumerate() {
            // Who shares now stays together.
            let beside = instance.facts[*job].beside.map_or(usize::MAX, |other| block[other]);
            block[*job] = if beside == usize::MAX { at % count } else { beside };
        }
        let alike = alike(instance, &sharers);
        let mut blocks = vec![Vec::new(); count];
        sharers.sort_unstable();
        for job in sharers {
            blocks[block[job]].push(job);
        }
        let parts = parallel::map(count, |at| {
            let mut list = Vec::new();
            for (first, a) in blocks[at].iter().enumerate() {
                for b in &blocks[at][first + 1..] {
                    offer(instance, *a, *b, &mut list);
                }
            }
            list
        });
        Self { list: parts.concat(), refused: Counts::default(), alike }
    }
}

/// Per class the jobs of one kind and tenant that take the same in every pool.
fn alike(instance: &Instance<'_>, jobs: &[usize]) -> Vec<Vec<Vec<usize>>> {
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for job in jobs {
        let fact = &instance.facts[*job];
        let mut taken: Vec<Option<u64>> = Vec::new();
        for alone in &fact.alone {
            let Some(alone) = alone else {
                taken.push(None);
                continue;
            };
            taken.extend(alone.amounts[2..].iter().map(|amount| Some(amount.to_bits())));
            taken.extend(alone.halves.iter().map(|half| half.memory.map(f64::to_bits)));
        }
        groups.entry((fact.class, fact.kind, fact.tenant, taken)).or_default().push(*job);
    }
    let mut alike: Vec<Vec<Vec<usize>>> = Vec::new();
    for ((class, ..), jobs) in groups {
        let class = class.unwrap_or(0);
        alike.resize_with(alike.len().max(class + 1), Vec::new);
        alike[class].push(jobs);
    }
    alike
}

/// Adds what two jobs can have together; else why they cannot in the pool that is nearest to it.
fn offer(instance: &Instance<'_>, a: usize, b: usize, list: &mut Vec<Offer>) -> Option<Refusal> {
    let mut nearest: Option<Refusal> = None;
    for pool in 0..instance.nodes.len() {
        match instance.pair_value(a, b, pool) {
            Ok(value) => list.push(Offer { a: a as u32, b: b as u32, pool: pool as u32, value }),
            Err(refusal) => nearest = nearest.max(Some(refusal)),
        }
    }
    nearest
}
