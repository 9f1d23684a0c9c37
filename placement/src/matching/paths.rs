//! The assignment of persons to objects by shortest augmenting paths, from any duals.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// No arc.
pub(super) const NONE: u32 = u32::MAX;

/// A person, an object, what they gain together, and the edge that they stand for.
pub(super) type Arc = ([u32; 2], f64, u32);

/// An arc as one of its ends sees it; those of a node lie side by side.
#[derive(Clone, Copy, Default)]
struct Way {
    gain: f64,
    partner: u32,
    arc: u32,
}

/// The two sides of the graph, numbered alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Person = 0,
    Object = 1,
}

/// A node and the way to it, the nearest first in the heap.
#[derive(Clone, Copy, PartialEq)]
struct Reached {
    distance: f64,
    node: u32,
}

impl Eq for Reached {}

impl Ord for Reached {
    fn cmp(&self, other: &Self) -> Ordering {
        other.distance.total_cmp(&self.distance).then(other.node.cmp(&self.node))
    }
}

impl PartialOrd for Reached {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Where a shortest path ends.
#[derive(Clone, Copy)]
enum End {
    /// A node of the other side that nobody has.
    Free(u32),
    /// A node of this side that gives up what it has.
    GivesUp(u32),
}

/// A matching that grows, with its duals.
///
/// Matched arcs are tight and no arc is over, before and after each path. At the end nodes without an arc have potential 0: so
/// the matching is optimal and the potentials are its dual.
pub(super) struct Paths<'a> {
    arcs: &'a [Arc],
    /// Per side and node: where its arcs begin in `lists`.
    starts: [Vec<u32>; 2],
    lists: [Vec<Way>; 2],
    /// Profits of persons and prices of objects.
    pub(super) potential: [Vec<f64>; 2],
    /// Per side and node: its arc in the matching.
    pub(super) matched: [Vec<u32>; 2],
    distance: Vec<f64>,
    via: Vec<u32>,
    heap: BinaryHeap<Reached>,
    passed: Vec<(u32, f64)>,
    touched: Vec<u32>,
}

impl<'a> Paths<'a> {
    /// Nobody is matched, and all potentials are 0.
    pub(super) fn new(nodes: usize, arcs: &'a [Arc]) -> Self {
        let lists = [0, 1].map(|side| {
            let mut starts = vec![0_u32; nodes + 1];
            for (ends, ..) in arcs {
                starts[ends[side] as usize + 1] += 1;
            }
            for node in 0..nodes {
                starts[node + 1] += starts[node];
            }
            let mut fill = starts.clone();
            let mut list = vec![Way::default(); arcs.len()];
            for (at, (ends, gain, _)) in arcs.iter().enumerate() {
                let next = &mut fill[ends[side] as usize];
                list[*next as usize] = Way { gain: *gain, partner: ends[1 - side], arc: at as u32 };
                *next += 1;
            }
            (starts, list)
        });
        let [(starts_a, list_a), (starts_b, list_b)] = lists;
        Self {
            arcs,
            starts: [starts_a, starts_b],
            lists: [list_a, list_b],
            potential: [vec![0.0; nodes], vec![0.0; nodes]],
            matched: [vec![NONE; nodes], vec![NONE; nodes]],
            distance: vec![f64::INFINITY; nodes],
            via: vec![NONE; nodes],
            heap: BinaryHeap::new(),
            passed: Vec::new(),
            touched: Vec::new(),
        }
    }

    fn nodes(&self) -> usize {
        self.distance.len()
    }

    fn arcs_of(&self, side: Side, node: usize) -> &[Way] {
        let starts = &self.starts[side as usize];
        &self.lists[side as usize][starts[node] as usize..starts[node + 1] as usize]
    }

    /// The least profits that go with the prices.
    pub(super) fn balance_persons(&mut self) {
        for person in 0..self.nodes() {
            let prices = &self.potential[1];
            let ways = self.arcs_of(Side::Person, person).iter();
            let best = ways.map(|way| way.gain - prices[way.partner as usize]);
            self.potential[0][person] = best.fold(0.0, f64::max);
        }
    }

    /// Matches the arcs that were matched before and are still tight.
    pub(super) fn keep(&mut self, was_matched: impl Fn(usize, usize) -> bool) {
        for person in 0..self.nodes() {
            let found = self.arcs_of(Side::Person, person).iter().copied().find(|way| {
                let object = way.partner as usize;
                // Both are the same difference, so a tight arc is equal to the last bit.
                self.matched[1][object] == NONE
                    && way.gain - self.potential[1][object] >= self.potential[0][person]
                    && was_matched(person, way.arc as usize)
            });
            if let Some(Way { partner, arc, .. }) = found {
                self.matched[0][person] = arc;
                self.matched[1][partner as usize] = arc;
            }
        }
    }

    /// Matches every person with a profit, then every object with a price, or brings them to 0.
    pub(super) fn solve(&mut self) {
        for side in [Side::Person, Side::Object] {
            for node in 0..self.nodes() {
                if self.matched[side as usize][node] == NONE && self.potential[side as usize][node] > 0.0 {
                    self.enter(side, node as u32);
                }
            }
        }
    }

    /// Finds the node a partner, or the one that gives up its own at the least loss.
    fn enter(&mut self, side: Side, root: u32) {
        let (mine, other) = (side as usize, 1 - side as usize);
        let mut end = (self.potential[mine][root as usize], End::GivesUp(root));
        self.heap.push(Reached { distance: 0.0, node: root });
        while let Some(Reached { distance, node }) = self.heap.pop() {
            if distance >= end.0 {
                break;
            }
            let own = self.matched[mine][node as usize];
            // A node is reached by way of its partner; an entry that a shorter way has overtaken is stale.
            if own != NONE && self.distance[self.arcs[own as usize].0[other] as usize] < distance {
                continue;
            }
            self.passed.push((node, distance));
            let potential = self.potential[mine][node as usize];
            if distance + potential < end.0 {
                end = (distance + potential, End::GivesUp(node));
            }
            let starts = &self.starts[mine];
            for at in starts[node as usize]..starts[node as usize + 1] {
                let Way { gain, partner, arc } = self.lists[mine][at as usize];
                let partner = partner as usize;
                let reached = distance + (potential + self.potential[other][partner] - gain).max(0.0);
                if reached >= self.distance[partner] || reached >= end.0 {
                    continue;
                }
                if self.distance[partner].is_infinite() {
                    self.touched.push(partner as u32);
                }
                self.distance[partner] = reached;
                self.via[partner] = arc;
                match self.matched[other][partner] {
                    NONE => end = (reached, End::Free(partner as u32)),
                    taken => {
                        let node = self.arcs[taken as usize].0[mine];
                        self.heap.push(Reached { distance: reached, node });
                    }
                }
            }
        }
        self.heap.clear();
        for (node, distance) in self.passed.drain(..) {
            if distance < end.0 {
                let potential = &mut self.potential[mine][node as usize];
                *potential = (*potential - (end.0 - distance)).max(0.0);
            }
        }
        for node in self.touched.drain(..) {
            let distance = std::mem::replace(&mut self.distance[node as usize], f64::INFINITY);
            if distance < end.0 {
                self.potential[other][node as usize] += end.0 - distance;
            }
        }
        self.augment(mine, root, end.1);
    }

    /// Everybody on the path takes the next one's partner.
    fn augment(&mut self, mine: usize, root: u32, end: End) {
        let other = 1 - mine;
        let mut partner = match end {
            End::Free(partner) => partner,
            End::GivesUp(node) if node == root => return,
            End::GivesUp(node) => {
                let arc = std::mem::replace(&mut self.matched[mine][node as usize], NONE);
                self.arcs[arc as usize].0[other]
            }
        };
        loop {
            let arc = self.via[partner as usize];
            let node = self.arcs[arc as usize].0[mine];
            self.matched[other][partner as usize] = arc;
            let before = std::mem::replace(&mut self.matched[mine][node as usize], arc);
            if before == NONE {
                return;
            }
            partner = self.arcs[before as usize].0[other];
        }
    }
}
