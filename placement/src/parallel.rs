//! Work over chunks of jobs on all cores, with the same result on any number of them.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Jobs of a chunk: fixed, so that sums over chunks do not depend on the number of threads.
const CHUNK: usize = 2_048;

/// Calls `work` for ranges that cover 0..`count`; results in order.
pub(crate) fn chunks<T: Send>(count: usize, work: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    chunks_of(count, CHUNK, work)
}

/// The same for ranges of another size, where a job is more work.
pub(crate) fn chunks_of<T: Send>(
    count: usize,
    size: usize,
    work: impl Fn(Range<usize>) -> T + Sync,
) -> Vec<T> {
    let total = count.div_ceil(size);
    let range = |chunk: usize| chunk * size..((chunk + 1) * size).min(count);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(total);
    if threads <= 1 {
        return (0..total).map(|chunk| work(range(chunk))).collect();
    }
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<T>>> = (0..total).map(|_| Mutex::new(None)).collect();
    let run = || {
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = slots.get(chunk) else { break };
            let value = work(range(chunk));
            if let Ok(mut slot) = slot.lock() {
                *slot = Some(value);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    // A panic in `work` has already been carried on by the scope, so each slot is full and no lock poisoned.
    slots.into_iter().filter_map(|slot| slot.into_inner().ok().flatten()).collect()
}

/// The same for one result per item.
pub(crate) fn map<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let mut parts = chunks(count, |range| range.map(&work).collect::<Vec<T>>());
    if parts.len() == 1 { parts.swap_remove(0) } else { parts.into_iter().flatten().collect() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_keep_their_order() {
        for count in [0, 1, 2_048, 2_049, 10_000] {
            assert_eq!(
                super::map(count, |index| index * 2),
                (0..count).map(|index| index * 2).collect::<Vec<_>>()
            );
        }
    }
}
