//! How two workloads may share a GPU, and all pairs of jobs that may.

use super::{Instance, Refusal};
use crate::pairing::{Counts, PairTable};
use elastico_core::parallel;

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

/// All of them, with the number of pairs that each reason refuses.
#[derive(Debug, Default)]
pub(super) struct Offers {
    pub(super) list: Vec<Offer>,
    pub(super) refused: Counts,
}

/// Among more jobs the pairs are looked through anew each time: a list of them would not fit in memory.
const MOST_JOBS: usize = 4_000;

impl Offers {
    /// Looks at every pair of jobs once; `None` where there are too many.
    pub(super) fn of(instance: &Instance<'_>) -> Option<Self> {
        let jobs = instance.facts.len();
        if jobs > MOST_JOBS {
            return None;
        }
        let pools = instance.nodes.len();
        if instance.table.is_none() || pools == 0 {
            return Some(Self::default());
        }
        let parts = parallel::chunks(jobs, 32, |range| {
            let mut list = Vec::new();
            let mut refused = [0_u64; Refusal::ALL.len()];
            for a in range {
                for b in a + 1..jobs {
                    let mut nearest: Option<Refusal> = None;
                    let mut is_permitted = false;
                    for pool in 0..pools {
                        match instance.pair_value(a, b, pool) {
                            Ok(value) => {
                                list.push(Offer { a: a as u32, b: b as u32, pool: pool as u32, value });
                                is_permitted = true;
                            }
                            Err(refusal) => nearest = nearest.max(Some(refusal)),
                        }
                    }
                    if let (false, Some(refusal)) = (is_permitted, nearest) {
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
        Some(offers)
    }
}
