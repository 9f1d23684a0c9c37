//! What no other shape of the pool makes useless.

use super::Shape;

/// Whether `a` is at least as fast as `b` and takes no more of anything that could be short.
///
/// Device memory counts only with one GPU: alone a shape has its GPUs whole, and a pair has one GPU. An amount of 0 is
/// unknown, which is not less than a known one.
fn covers(a: &Shape, b: &Shape, with_memory: bool) -> bool {
    let (of_a, of_b) = (&a.resources, &b.resources);
    let in_pairs = with_memory && b.gpus == 1;
    let known = of_a.gpu_memory_bytes > 0.0 || of_b.gpu_memory_bytes <= 0.0;
    a.step_seconds <= b.step_seconds
        && of_a.gpu_slots <= of_b.gpu_slots
        && of_a.host_cores <= of_b.host_cores
        && of_a.host_memory_bytes <= of_b.host_memory_bytes
        && of_a.network_bytes_per_second <= of_b.network_bytes_per_second
        && (!in_pairs || (a.gpus == 1 && known && of_a.gpu_memory_bytes <= of_b.gpu_memory_bytes))
}

/// Whether another of the shapes makes this one useless; of equals the first stays.
pub(super) fn is_covered(shapes: &[Shape], at: usize, with_memory: bool) -> bool {
    let shape = &shapes[at];
    shapes.iter().enumerate().any(|(other_at, other)| {
        other_at != at
            && covers(other, shape, with_memory)
            && (other_at < at || !covers(shape, other, with_memory))
            && other.is_whole() == shape.is_whole()
            && other.pool == shape.pool
    })
}

/// Keeps the Pareto front of the pool whose shapes begin at `first`, and the shape in which the job runs now: only that one
/// costs no restart.
pub(super) fn prune(shapes: &mut Vec<Shape>, first: usize, is_current: impl Fn(&Shape) -> bool) {
    let of_pool = &shapes[first..];
    let is_useless = |at: usize| is_covered(of_pool, at, true) && !is_current(&of_pool[at]);
    let useless: Vec<usize> = (0..of_pool.len()).filter(|at| is_useless(*at)).map(|at| first + at).collect();
    // From the end, so that the others keep their place.
    for at in useless.into_iter().rev() {
        shapes.remove(at);
    }
}
