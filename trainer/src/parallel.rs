//! Independent pieces of work over scoped threads, results in order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` for 0..`count` on as many threads as the machine has cores; the result does not depend on how many.
pub(crate) fn map<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(count);
    if threads <= 1 {
        return (0..count).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(slot) = slots.get(index) else { break };
                    let value = work(index);
                    if let Ok(mut slot) = slot.lock() {
                        *slot = Some(value);
                    }
                }
            });
        }
    });
    // A panic in `work` has already been carried on by the scope, so each slot is full and no lock poisoned.
    slots.into_iter().filter_map(|slot| slot.into_inner().ok().flatten()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_keep_their_order() {
        assert_eq!(super::map(100, |index| index * 2), (0..100).map(|index| index * 2).collect::<Vec<_>>());
        assert!(super::map(0, |index| index).is_empty());
    }
}
