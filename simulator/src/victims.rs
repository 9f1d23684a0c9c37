//! Whom to take GPUs from.

use crate::Round;
use crate::engine::Engine;
use crate::rates::Shape;
use std::cmp::Reverse;

impl Round<'_, '_> {
    /// The least work of running jobs, alone on their GPUs, whose GPUs would let `job` start with the GPUs that it asks for.
    /// `None` where there are none.
    ///
    /// `key` is `None` for jobs that may not go; of the others those of the greatest key go first, then the latest. On each
    /// node they go until the job fits; the node that costs the fewest GPUs wins, then the fewest jobs, then the one whose last
    /// job would have gone first. Of a job over nodes they go in order until enough nodes are whole.
    pub fn victims<K: Ord + Copy>(&self, job: usize, key: impl Fn(usize) -> Option<K>) -> Option<Vec<usize>> {
        self.victims_since(job, None, key)
    }

    /// As [`victims`](Self::victims), where there were none when the clock stood at `since` and jobs have only ceased to be
    /// ones that may go: then only nodes that have changed are looked at.
    pub(crate) fn victims_since<K: Ord + Copy>(
        &self,
        job: usize,
        since: Option<u64>,
        key: impl Fn(usize) -> Option<K>,
    ) -> Option<Vec<usize>> {
        self.requested(job).iter().find_map(|shape| {
            if shape.gpus <= self.engine.free[shape.pool].size() {
                victims_on_one_node(self.engine, *shape, since, &key)
            } else {
                victims_over_nodes(self.engine, *shape, &key)
            }
        })
    }

    /// The answer of [`victims`](Self::victims) where it is easily seen from the first of `candidates`, which come in the order
    /// in which they would go: one job, the first to go on its node, that frees no more than any victims must.
    pub(crate) fn only_victim(&self, job: usize, candidates: impl Iterator<Item = usize>) -> Option<usize> {
        let shape = *self.requested(job).first()?;
        let free = &self.engine.free[shape.pool];
        let lacks = shape.gpus.checked_sub(free.largest()).filter(|lacks| *lacks > 0)?;
        let mut seen = Vec::new();
        for candidate in candidates {
            let state = &self.engine.states[candidate];
            if state.shape.is_none_or(|other| other.pool != shape.pool) {
                continue;
            }
            match state.place.as_slice() {
                [(node, count)]
                    if *count == lacks
                        && free.of_node(*node) + count >= shape.gpus
                        && !seen.contains(node) =>
                {
                    return Some(candidate);
                }
                place => seen.extend(place.iter().map(|(node, _)| *node)),
            }
        }
        None
    }

    /// Whether the free GPUs and those of `candidates` are as many as a job asks for; else there are no victims among them.
    pub(crate) fn has_enough(&self, job: usize, candidates: impl IntoIterator<Item = usize>) -> bool {
        let mut gpus = self.free_gpus();
        let wanted = self.job(job).gpus;
        gpus >= wanted
            || candidates.into_iter().any(|other| {
                gpus += self.shape_of(other).map_or(0, |shape| shape.gpus);
                gpus >= wanted
            })
    }
}

fn victims_over_nodes<K: Ord + Copy>(
    engine: &Engine<'_>,
    shape: Shape,
    key: impl Fn(usize) -> Option<K>,
) -> Option<Vec<usize>> {
    let free = &engine.free[shape.pool];
    let (whole, rest) = ((shape.gpus / free.size()) as usize, shape.gpus % free.size());
    let is_here = |job: &usize| engine.states[*job].shape.is_some_and(|other| other.pool == shape.pool);
    let here = engine.running.iter().copied().filter(is_here);
    let mut candidates: Vec<(K, usize)> = here.filter_map(|job| Some((key(job)?, job))).collect();
    candidates.sort_unstable_by(|a, b| b.cmp(a));
    let mut frees: Vec<u32> = (0..free.nodes()).map(|node| free.of_node(node)).collect();
    let mut full = frees.iter().filter(|count| **count == free.size()).count();
    let mut victims = Vec::new();
    for (_, candidate) in candidates {
        for (node, count) in &engine.states[candidate].place {
            let left = &mut frees[*node as usize];
            *left += count;
            full += usize::from(*left == free.size());
        }
        victims.push(candidate);
        let is_rest_there = || rest == 0 || frees.iter().any(|count| *count < free.size() && *count >= rest);
        if full > whole || (full == whole && is_rest_there()) {
            return Some(victims);
        }
    }
    None
}

fn victims_on_one_node<K: Ord + Copy>(
    engine: &Engine<'_>,
    shape: Shape,
    since: Option<u64>,
    key: impl Fn(usize) -> Option<K>,
) -> Option<Vec<usize>> {
    let free = &engine.free[shape.pool];
    let mut best = None;
    let mut victims = Vec::new();
    let mut here: Vec<(K, usize, u32)> = Vec::new();
    for (node, jobs) in engine.nodes.changed_since(shape.pool, since) {
        let lacks = shape.gpus.saturating_sub(free.of_node(node));
        if lacks == 0 || jobs.iter().map(|(_, count)| count).sum::<u32>() < lacks {
            continue;
        }
        here.clear();
        here.extend(jobs.iter().filter_map(|(job, count)| Some((key(*job)?, *job, *count))));
        if here.iter().map(|(.., count)| count).sum::<u32>() < lacks {
            continue;
        }
        here.sort_unstable_by(|a, b| b.cmp(a));
        let mut freed = 0;
        let needed = here.iter().take_while(|(.., count)| {
            let is_needed = freed < lacks;
            freed += count;
            is_needed
        });
        let needed = needed.count();
        let (last_key, last, _) = here[needed - 1];
        let gpus_of = |job: usize| engine.states[job].shape.map_or(0, |shape| shape.gpus);
        let cost: u32 = here[..needed].iter().map(|(_, job, _)| gpus_of(*job)).sum();
        let rank = (cost, needed, Reverse((last_key, last)), node);
        if best.is_none_or(|best| rank < best) {
            best = Some(rank);
            victims.clear();
            victims.extend(here[..needed].iter().map(|(_, job, _)| *job));
        }
    }
    best.map(|_| victims)
}
