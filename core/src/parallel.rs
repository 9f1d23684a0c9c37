//! Independent pieces of work over scoped threads, results in order: the same on any number of cores.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` for ranges of `size` that cover 0..`count`; results in order.
///
/// The ranges do not depend on the number of threads, so neither do sums over them.
pub fn chunks<T: Send>(count: usize, size: usize, work: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let size = size.max(1);
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

/// Calls `work` for 0..`count`, each a piece of its own; results in order.
pub fn map<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    chunks(count, 1, |range| work(range.start))
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_keep_their_order() {
        for count in [0, 1, 100, 2_049] {
            let doubled: Vec<usize> = (0..count).map(|index| index * 2).collect();
            assert_eq!(super::map(count, |index| index * 2), doubled);
            let parts = super::chunks(count, 64, |range| range.map(|index| index * 2).collect::<Vec<_>>());
            assert_eq!(parts.concat(), doubled);
        }
    }
}
