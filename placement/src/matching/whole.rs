//! A whole matching from a half-integral one.
//!
//! What is chosen by half forms paths and cycles. On each of them the best whole matching is found exactly; only cycles of
//! odd length lose by it, and they are what the linear relaxation gains over whole matchings.

use super::{Edge, Matching};

impl Matching {
    /// Edges no two of which share a node, with as much gain as the paths and cycles allow.
    pub(crate) fn whole(&self, nodes: usize, edges: &[Edge]) -> Vec<usize> {
        let mut weight = vec![0.0_f64; edges.len()];
        for (edge, part) in &self.chosen {
            weight[*edge] += part;
        }
        let mut chosen = Vec::new();
        // At most two edges at each node: one of it as a person, one as an object.
        let mut at_node: Vec<[Option<usize>; 2]> = vec![[None; 2]; nodes];
        for (edge, weight) in weight.into_iter().enumerate().filter(|(_, weight)| *weight > 0.0) {
            if weight > 0.75 {
                chosen.push(edge);
                continue;
            }
            for node in [edges[edge].a, edges[edge].b] {
                let slot = usize::from(at_node[node][0].is_some());
                at_node[node][slot] = Some(edge);
            }
        }
        let mut seen = vec![false; edges.len()];
        let is_end = |node: &usize| at_node[*node][0].is_some() && at_node[*node][1].is_none();
        // Paths from their ends; what is left then are cycles.
        for start in (0..nodes).filter(is_end).chain(0..nodes) {
            let Some(mut edge) = at_node[start].into_iter().flatten().find(|edge| !seen[*edge]) else {
                continue;
            };
            let (mut node, mut line) = (start, Vec::new());
            loop {
                seen[edge] = true;
                line.push(edge);
                node = edges[edge].a + edges[edge].b - node;
                match at_node[node].into_iter().flatten().find(|edge| !seen[*edge]) {
                    Some(next) => edge = next,
                    None => break,
                }
            }
            if node == start && line.len() > 1 {
                // The first and the last edge of a cycle share a node: one of them is out.
                let (without_last, a) = best_of_path(&line[..line.len() - 1], edges);
                let (without_first, b) = best_of_path(&line[1..], edges);
                chosen.extend(if a >= b { without_last } else { without_first });
            } else {
                chosen.extend(best_of_path(&line, edges).0);
            }
        }
        chosen
    }
}

/// The edges of a path with most gain of which no two are neighbours, and that gain.
fn best_of_path(line: &[usize], edges: &[Edge]) -> (Vec<usize>, f64) {
    let mut best = vec![0.0_f64; line.len() + 1];
    for at in 0..line.len() {
        let before = if at > 0 { best[at - 1] } else { 0.0 };
        best[at + 1] = best[at].max(before + edges[line[at]].gain);
    }
    let mut chosen = Vec::new();
    let mut left = line.len();
    while left > 0 {
        if best[left] > best[left - 1] {
            chosen.push(line[left - 1]);
            left = left.saturating_sub(2);
        } else {
            left -= 1;
        }
    }
    (chosen, best[line.len()])
}
