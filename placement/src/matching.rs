//! Who shares with whom at given prices: a fractional matching with its certificate.
//!
//! The linear relaxation of matching on a general graph is an assignment on the bipartite double cover with half the
//! gains (Balinski 1965); where the graph is bipartite already, it is the assignment itself. The assignment is solved
//! exactly by successive shortest augmenting paths (Jonker & Volgenant 1987, sparse), and its duals are the certificate.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// An edge with what it gains over both jobs alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) gain: f64,
    /// Index of the pair column.
    pub(crate) pair: usize,
}

/// A matching and its certificate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matching {
    /// Chosen edges (index into the edges) with 1 or, on the double cover, 1/2.
    pub(crate) chosen: Vec<(usize, f64)>,
    /// Per node, such that the two ends of every edge sum to its gain at least. Their sum bounds every matching.
    pub(crate) price: Vec<f64>,
}

/// Two colours such that every edge joins different ones, if there are such.
fn colours(nodes: usize, edges: &[Edge]) -> Option<Vec<bool>> {
    let mut start = vec![0_usize; nodes + 1];
    for edge in edges {
        start[edge.a + 1] += 1;
        start[edge.b + 1] += 1;
    }
    for node in 0..nodes {
        start[node + 1] += start[node];
    }
    let mut fill = start.clone();
    let mut next = vec![0_usize; edges.len() * 2];
    for edge in edges {
        for (from, to) in [(edge.a, edge.b), (edge.b, edge.a)] {
            next[fill[from]] = to;
            fill[from] += 1;
        }
    }
    let mut colour: Vec<Option<bool>> = vec![None; nodes];
    let mut stack = Vec::new();
    for root in 0..nodes {
        if colour[root].is_some() {
            continue;
        }
        colour[root] = Some(false);
        stack.push(root);
        while let Some(node) = stack.pop() {
            let other = !colour[node].unwrap_or(false);
            for &neighbour in &next[start[node]..start[node + 1]] {
                match colour[neighbour] {
                    None => {
                        colour[neighbour] = Some(other);
                        stack.push(neighbour);
                    }
                    Some(seen) if seen != other => return None,
                    Some(_) => {}
                }
            }
        }
    }
    Some(colour.into_iter().map(|colour| colour.unwrap_or(false)).collect())
}

/// The fractional matching with most gain; gains are positive.
pub(crate) fn match_edges(nodes: usize, edges: &[Edge]) -> Matching {
    if edges.is_empty() {
        return Matching { chosen: Vec::new(), price: vec![0.0; nodes] };
    }
    let colours = colours(nodes, edges);
    let part = if colours.is_some() { 1.0 } else { 0.5 };
    let mut arcs: Vec<(usize, usize, f64, usize)> = Vec::with_capacity(edges.len() * 2);
    for (index, edge) in edges.iter().enumerate() {
        if let Some(colours) = &colours {
            let (left, right) = if colours[edge.a] { (edge.b, edge.a) } else { (edge.a, edge.b) };
            arcs.push((left, right, edge.gain, index));
        } else {
            arcs.push((edge.a, edge.b, edge.gain * 0.5, index));
            arcs.push((edge.b, edge.a, edge.gain * 0.5, index));
        }
    }
    arcs.sort_by_key(|arc| (arc.0, arc.1));
    let (profit, price, matched) = assign(nodes, &arcs);
    Matching {
        chosen: matched.into_iter().map(|arc| (arcs[arc].3, part)).collect(),
        price: profit.iter().zip(&price).map(|(profit, price)| profit + price).collect(),
    }
}

/// A person and the way to it, the nearest first in the heap.
#[derive(Clone, Copy, PartialEq)]
struct Reached {
    distance: f64,
    person: usize,
}

impl Eq for Reached {}

impl Ord for Reached {
    fn cmp(&self, other: &Self) -> Ordering {
        other.distance.total_cmp(&self.distance).then(other.person.cmp(&self.person))
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
    /// An object that nobody has.
    Object(usize),
    /// A person that gives its object up.
    Person(usize),
}

/// Persons and objects are numbered alike. Returns profits, prices, and the matched arcs.
///
/// Persons enter one by one. Matched arcs are tight, persons without an object have profit 0 and objects without a
/// person price 0, before and after each; so the result is optimal and profits and prices are its dual.
fn assign(nodes: usize, arcs: &[(usize, usize, f64, usize)]) -> (Vec<f64>, Vec<f64>, Vec<usize>) {
    let mut start = vec![0_usize; nodes + 1];
    for arc in arcs {
        start[arc.0 + 1] += 1;
    }
    for node in 0..nodes {
        start[node + 1] += start[node];
    }
    let mut profit = vec![0.0_f64; nodes];
    let mut price = vec![0.0_f64; nodes];
    let mut arc_of: Vec<Option<usize>> = vec![None; nodes];
    let mut holder: Vec<Option<usize>> = vec![None; nodes];
    let mut to_object = vec![f64::INFINITY; nodes];
    let mut via = vec![usize::MAX; nodes];
    let (mut objects, mut persons): (Vec<usize>, Vec<(usize, f64)>) = (Vec::new(), Vec::new());
    let mut heap = BinaryHeap::new();
    for root in (0..nodes).filter(|node| start[*node] < start[node + 1]) {
        let best =
            arcs[start[root]..start[root + 1]].iter().map(|arc| arc.2 - price[arc.1]).fold(0.0, f64::max);
        profit[root] = best;
        if best <= 0.0 {
            continue;
        }
        let mut end = (best, End::Person(root));
        heap.push(Reached { distance: 0.0, person: root });
        while let Some(Reached { distance, person }) = heap.pop() {
            if distance >= end.0 {
                break;
            }
            // A person is known by its object; an entry that a shorter way has overtaken is stale.
            if arc_of[person].is_some_and(|arc| to_object[arcs[arc].1] < distance) {
                continue;
            }
            persons.push((person, distance));
            if distance + profit[person] < end.0 {
                end = (distance + profit[person], End::Person(person));
            }
            let (first, profit_of) = (start[person], profit[person]);
            for (offset, &(_, object, gain, _)) in arcs[first..start[person + 1]].iter().enumerate() {
                let at = first + offset;
                let reached = distance + (profit_of + price[object] - gain).max(0.0);
                if reached >= to_object[object] || reached >= end.0 {
                    continue;
                }
                if to_object[object].is_infinite() {
                    objects.push(object);
                }
                to_object[object] = reached;
                via[object] = at;
                match holder[object] {
                    None => end = (reached, End::Object(object)),
                    Some(arc) => heap.push(Reached { distance: reached, person: arcs[arc].0 }),
                }
            }
        }
        heap.clear();
        for (person, distance) in persons.drain(..) {
            if distance < end.0 {
                profit[person] = (profit[person] - (end.0 - distance)).max(0.0);
            }
        }
        for object in objects.drain(..) {
            if to_object[object] < end.0 {
                price[object] += end.0 - to_object[object];
            }
            to_object[object] = f64::INFINITY;
        }
        let mut object = match end.1 {
            End::Object(object) => object,
            End::Person(person) if person == root => continue,
            End::Person(person) => {
                let Some(arc) = arc_of[person].take() else { continue };
                arcs[arc].1
            }
        };
        loop {
            let arc = via[object];
            let person = arcs[arc].0;
            holder[object] = Some(arc);
            let Some(before) = arc_of[person].replace(arc) else { break };
            object = arcs[before].1;
        }
    }
    (profit, price, arc_of.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::Seed;
    use rand::RngExt;

    fn best(nodes: usize, edges: &[Edge]) -> f64 {
        fn go(edges: &[Edge], at: usize, used: &mut Vec<bool>) -> f64 {
            let Some(edge) = edges.get(at) else { return 0.0 };
            let without = go(edges, at + 1, used);
            if used[edge.a] || used[edge.b] {
                return without;
            }
            used[edge.a] = true;
            used[edge.b] = true;
            let with = edge.gain + go(edges, at + 1, used);
            used[edge.a] = false;
            used[edge.b] = false;
            without.max(with)
        }
        go(edges, 0, &mut vec![false; nodes])
    }

    #[test]
    fn certificate_bounds_every_matching_and_is_tight_on_bipartite_graphs() {
        let mut random = Seed(5).stream("matching", &[]);
        for round in 0..60 {
            let bipartite = round % 2 == 0;
            let nodes = 8;
            let mut edges = Vec::new();
            for a in 0..nodes {
                for b in a + 1..nodes {
                    let allowed = !bipartite || (a < 4 && b >= 4);
                    if allowed && random.random_range(0.0..1.0) < 0.5 {
                        edges.push(Edge { a, b, gain: random.random_range(0.1..1.0), pair: 0 });
                    }
                }
            }
            let matching = match_edges(nodes, &edges);
            for edge in &edges {
                assert!(matching.price[edge.a] + matching.price[edge.b] >= edge.gain - 1e-12);
            }
            let (bound, optimum): (f64, f64) = (matching.price.iter().sum(), best(nodes, &edges));
            let primal: f64 = matching.chosen.iter().map(|(edge, part)| part * edges[*edge].gain).sum();
            assert!(bound >= optimum - 1e-12);
            assert!((bound - primal).abs() < 1e-9, "{bound} {primal}");
            if bipartite {
                assert!((bound - optimum).abs() < 1e-9);
            }
        }
    }
}
