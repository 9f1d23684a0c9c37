//! Whom to take GPUs from.

use crate::Round;
use crate::engine::Engine;
use crate::rates::Shape;

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
    let of_pool = |job: &usize| engine.states[*job].shape.is_some_and(|other| other.pool == shape.pool);
    let candidates = || candidates.iter().copied().filter(of_pool);
    if gpus <= size {
        return victims_on_one_node(engine, shape, candidates);
    }
    // A job over nodes: take candidates in order until enough nodes are whole.
    let (whole, rest) = ((gpus / size) as usize, gpus % size);
    let mut frees: Vec<u32> = (0..free.nodes()).map(|node| free.of_node(node)).collect();
    let mut full = frees.iter().filter(|free| **free == size).count();
    let mut victims = Vec::new();
    for candidate in candidates() {
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

/// On each node candidates in order until the job fits. The node that costs the fewest GPUs wins, then the fewest jobs, then
/// the one whose last victim comes first among the candidates.
fn victims_on_one_node<I: Iterator<Item = usize>>(
    engine: &Engine<'_>,
    shape: Shape,
    candidates: impl Fn() -> I,
) -> Option<Vec<usize>> {
    #[derive(Clone, Copy)]
    struct Node {
        free: u32,
        cost: u32,
        victims: u32,
        last: usize,
    }
    let free = &engine.free[shape.pool];
    let mut nodes: Vec<Node> = (0..free.nodes())
        .map(|node| Node { free: free.of_node(node), cost: 0, victims: 0, last: 0 })
        .collect();
    for (index, candidate) in candidates().enumerate() {
        let state = &engine.states[candidate];
        for (node, count) in &state.place {
            let node = &mut nodes[*node as usize];
            if node.free < shape.gpus {
                node.free += count;
                node.cost += state.shape.map_or(0, |shape| shape.gpus);
                node.victims += 1;
                node.last = index;
            }
        }
    }
    let fitting = nodes.iter().enumerate().filter(|(_, node)| node.free >= shape.gpus && node.victims > 0);
    let (best, Node { last, .. }) = fitting.min_by_key(|(_, node)| (node.cost, node.victims, node.last))?;
    let is_there = |job: &usize| engine.states[*job].place.iter().any(|(node, _)| *node as usize == best);
    Some(candidates().take(last + 1).filter(is_there).collect())
}
