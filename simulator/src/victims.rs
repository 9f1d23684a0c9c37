//! Whom to take GPUs from.

use crate::Round;
use crate::engine::Engine;
use crate::rates::Shape;
use std::collections::BTreeMap;

impl Round<'_, '_> {
    /// The least work of jobs among `candidates` (running, alone on their GPUs) whose GPUs would let `job` start with the
    /// GPUs that it asks for, or `None` where all of them together would not. Candidates that come first are taken first.
    pub fn victims(&self, job: usize, candidates: &[usize]) -> Option<Vec<usize>> {
        self.requested(job).iter().find_map(|shape| victims_in(self.engine, *shape, candidates))
    }
}

fn victims_in(engine: &Engine<'_>, shape: Shape, candidates: &[usize]) -> Option<Vec<usize>> {
    let free = &engine.free[shape.pool];
    let (gpus, size) = (shape.gpus, free.size());
    let of_pool = |job: &&usize| engine.states[**job].shape.is_some_and(|other| other.pool == shape.pool);
    let candidates = candidates.iter().filter(of_pool).copied();
    if gpus <= size {
        // On each node take candidates in order until the job fits; the node that costs the fewest GPUs, then jobs, wins.
        let mut open: BTreeMap<u32, (u32, u32, Vec<usize>)> = BTreeMap::new();
        for candidate in candidates {
            let state = &engine.states[candidate];
            for (node, count) in &state.place {
                let entry = open.entry(*node).or_insert_with(|| (free.of_node(*node), 0, Vec::new()));
                if entry.0 < gpus {
                    entry.0 += count;
                    entry.1 += state.shape.map_or(0, |shape| shape.gpus);
                    entry.2.push(candidate);
                }
            }
        }
        let best = open.into_iter().filter(|(_, (free, ..))| *free >= gpus);
        return best
            .min_by_key(|(node, (_, cost, victims))| (*cost, victims.len(), *node))
            .map(|(_, (_, _, victims))| victims);
    }
    // A job over nodes: take candidates in order until enough nodes are whole.
    let (whole, rest) = ((gpus / size) as usize, gpus % size);
    let mut frees: Vec<u32> = (0..free.nodes()).map(|node| free.of_node(node)).collect();
    let mut full = frees.iter().filter(|free| **free == size).count();
    let mut victims = Vec::new();
    for candidate in candidates {
        for (node, count) in &engine.states[candidate].place {
            let free = &mut frees[*node as usize];
            *free += count;
            full += usize::from(*free == size);
        }
        victims.push(candidate);
        let is_rest_there = || rest == 0 || frees.iter().any(|free| *free < size && *free >= rest);
        if full > whole || (full == whole && is_rest_there()) {
            return Some(victims);
        }
    }
    None
}
