//! Who shares with whom at given prices: a fractional matching with its certificate.
//!
//! The linear relaxation of matching on a general graph is an assignment on the bipartite double cover with half the
//! gains (Balinski 1965); where the graph is bipartite already, it is the assignment itself. The assignment is solved
//! exactly by successive shortest augmenting paths (Jonker & Volgenant 1987, sparse), and its duals are the certificate.
//!
//! From call to call the gains of all edges move together, and few edges come. So the duals of the call before are the start:
//! what is still tight stays matched, and only who is out of balance is matched anew, first from the one side, then from the other.

mod paths;
mod whole;

use paths::{NONE, Paths, Side};

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

/// Matchings of one graph whose gains change from call to call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matcher {
    is_bipartite: bool,
    /// Per node: its potential as an object in the call before, what it gains alone included.
    potential: Vec<f64>,
    /// Per node: the pair in which it was a person; in a bipartite graph, on either side.
    pair: Vec<Option<usize>>,
    /// Before the first call: what each node is expected to gain.
    expected: Vec<f64>,
}

impl Matcher {
    /// What each node is expected to gain, before the first call; nothing where it is not known.
    pub(crate) fn expect(&mut self, gained: &[f64]) {
        self.expected = gained.to_vec();
    }

    /// The fractional matching with most gain; gains are positive. `alone` is what each node gains alone, over which the edges
    /// gain what they gain; it moves from call to call, and the sum of both less than either.
    pub(crate) fn solve(&mut self, alone: &[f64], edges: &[Edge]) -> Matching {
        let nodes = alone.len();
        if edges.is_empty() {
            self.potential.clear();
            self.pair.clear();
            return Matching { chosen: Vec::new(), price: vec![0.0; nodes] };
        }
        let colours = colours(nodes, edges);
        let is_bipartite = colours.is_some();
        let part = if is_bipartite { 1.0 } else { 0.5 };
        let mut arcs = Vec::with_capacity(if is_bipartite { edges.len() } else { edges.len() * 2 });
        for (index, edge) in edges.iter().enumerate() {
            if let Some(colours) = &colours {
                let (left, right) = if colours[edge.a] { (edge.b, edge.a) } else { (edge.a, edge.b) };
                arcs.push(([left as u32, right as u32], edge.gain, index as u32));
            } else {
                arcs.push(([edge.a as u32, edge.b as u32], edge.gain * 0.5, index as u32));
                arcs.push(([edge.b as u32, edge.a as u32], edge.gain * 0.5, index as u32));
            }
        }
        let mut paths = Paths::new(nodes, &arcs);
        if self.potential.is_empty() && self.expected.len() == nodes {
            self.potential.extend(self.expected.iter().map(|gained| gained * part));
            self.is_bipartite = is_bipartite;
        }
        if is_bipartite == self.is_bipartite && self.potential.len() == nodes {
            for (node, price) in paths.potential[Side::Object as usize].iter_mut().enumerate() {
                *price = (self.potential[node] - alone[node] * part).max(0.0);
            }
        }
        paths.balance_persons();
        if self.pair.len() == nodes {
            paths.keep(|person, arc| self.pair[person] == Some(edges[arcs[arc].2 as usize].pair));
        }
        paths.solve();
        let Paths { potential: [profit, price], matched: [arc_of, _], .. } = paths;
        self.is_bipartite = is_bipartite;
        self.potential.clear();
        self.potential.extend((0..nodes).map(|node| {
            // In a bipartite graph a node is on one side, and may be on the other in the next call.
            alone[node] * part + price[node] + if is_bipartite { profit[node] } else { 0.0 }
        }));
        self.pair.clear();
        self.pair.resize(nodes, None);
        let mut chosen = Vec::new();
        for (person, &arc) in arc_of.iter().enumerate().filter(|(_, arc)| **arc != NONE) {
            let ([_, object], _, edge) = arcs[arc as usize];
            let pair = Some(edges[edge as usize].pair);
            self.pair[person] = pair;
            if is_bipartite {
                self.pair[object as usize] = pair;
            }
            chosen.push((edge as usize, part));
        }
        Matching { chosen, price: profit.iter().zip(&price).map(|(profit, price)| profit + price).collect() }
    }
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
            let matching = Matcher::default().solve(&vec![0.0; nodes], &edges);
            for edge in &edges {
                assert!(matching.price[edge.a] + matching.price[edge.b] >= edge.gain - 1e-12);
            }
            let (bound, optimum): (f64, f64) = (matching.price.iter().sum(), best(nodes, &edges));
            let primal: f64 = matching.chosen.iter().map(|(edge, part)| part * edges[*edge].gain).sum();
            assert!(bound >= optimum - 1e-12);
            assert!((bound - primal).abs() < 1e-9, "{bound} {primal}");
            let whole = matching.whole(nodes, &edges);
            let mut taken = vec![false; nodes];
            for edge in &whole {
                for node in [edges[*edge].a, edges[*edge].b] {
                    assert!(!std::mem::replace(&mut taken[node], true), "node {node} twice");
                }
            }
            let gained: f64 = whole.iter().map(|edge| edges[*edge].gain).sum();
            assert!(gained <= optimum + 1e-9 && gained >= primal * 2.0 / 3.0 - 1e-9, "{gained} {primal}");
            if bipartite {
                assert!((bound - optimum).abs() < 1e-9);
                assert!((gained - optimum).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn a_start_from_the_call_before_changes_nothing() {
        let mut random = Seed(6).stream("matching", &[]);
        for round in 0..30 {
            let nodes = 40;
            let is_bipartite = round % 2 == 0;
            let mut values: Vec<(usize, usize, f64)> = Vec::new();
            let mut alone: Vec<f64> = (0..nodes).map(|_| random.random_range(0.0..1.0)).collect();
            let mut price = 0.5;
            let mut warm = Matcher::default();
            for _ in 0..12 {
                for _ in 0..20 {
                    let (a, b) = (random.random_range(0..nodes / 2), random.random_range(0..nodes / 2));
                    let (a, b) = if is_bipartite { (a, b + nodes / 2) } else { (a, b.max(a + 1)) };
                    values.push((a, b, random.random_range(0.5..3.0)));
                }
                price *= random.random_range(0.7_f64..1.35);
                for alone in &mut alone {
                    *alone = (*alone * random.random_range(0.8_f64..1.2)).min(1.0);
                }
                let edges: Vec<Edge> = values
                    .iter()
                    .enumerate()
                    .map(|(pair, (a, b, value))| Edge {
                        a: *a,
                        b: *b,
                        gain: value - price - alone[*a] - alone[*b],
                        pair,
                    })
                    .filter(|edge| edge.gain > 0.0)
                    .collect();
                let (cold, warm) = (Matcher::default().solve(&alone, &edges), warm.solve(&alone, &edges));
                for edge in &edges {
                    assert!(warm.price[edge.a] + warm.price[edge.b] >= edge.gain - 1e-12);
                }
                let sum = |matching: &Matching| matching.price.iter().sum::<f64>();
                let gained: f64 = warm.chosen.iter().map(|(edge, part)| part * edges[*edge].gain).sum();
                assert!((sum(&warm) - sum(&cold)).abs() < 1e-9, "{} {}", sum(&warm), sum(&cold));
                assert!((sum(&warm) - gained).abs() < 1e-9, "{} {gained}", sum(&warm));
            }
        }
    }
}
