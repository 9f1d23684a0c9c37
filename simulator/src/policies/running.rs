//! Running jobs, the least urgent first, without reading all of them.

use super::preemptive::Key;

/// Running jobs by an upper bound of their key: what it was when it was last looked at.
///
/// While a job runs its key only falls, or is told anew by [`Running::add`]. So whoever has the largest bound, and still has
/// that key, is the least urgent of all, and nobody below is asked.
#[derive(Debug, Default)]
pub(super) struct Running {
    // Ascending. Jobs are moved by a few places at a time, for which an array is faster than a tree.
    jobs: Vec<(Key, usize)>,
    // By job; of jobs that do not run what it was at last.
    keys: Vec<Key>,
}

impl Running {
    /// A job starts, or its key has changed.
    pub(super) fn add(&mut self, key: Key, job: usize) {
        self.remove(job);
        if self.keys.len() <= job {
            self.keys.resize(job + 1, Key::default());
        }
        self.keys[job] = key;
        let place = self.jobs.partition_point(|other| *other < (key, job));
        self.jobs.insert(place, (key, job));
    }

    /// A job runs no longer.
    pub(super) fn remove(&mut self, job: usize) {
        let entry = self.keys.get(job).map(|key| (*key, job));
        if let Some(Ok(place)) = entry.map(|entry| self.jobs.binary_search(&entry)) {
            self.jobs.remove(place);
        }
    }

    /// Jobs less urgent than a key, equal ones left out, the least urgent first.
    pub(super) fn less_urgent<K: Fn(usize) -> Key>(&mut self, than: Key, key: K) -> LessUrgent<'_, K> {
        LessUrgent { left: self.jobs.len(), running: self, than, key }
    }
}

/// See [`Running::less_urgent`].
pub(super) struct LessUrgent<'a, K> {
    running: &'a mut Running,
    // Jobs that have not been handed out.
    left: usize,
    than: Key,
    key: K,
}

impl<K: Fn(usize) -> Key> Iterator for LessUrgent<'_, K> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        loop {
            let last = self.left.checked_sub(1)?;
            let Running { jobs, keys } = &mut *self.running;
            let (bound, job) = jobs[last];
            if bound.0 <= self.than.0 {
                return None;
            }
            let key = (self.key)(job);
            if key >= bound {
                self.left = last;
                return Some(job);
            }
            let place = jobs[..last].partition_point(|other| *other < (key, job));
            jobs[place..=last].rotate_right(1);
            jobs[place] = (key, job);
            keys[job] = key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn jobs_come_in_the_order_of_their_keys_now() {
        let mut running = Running::default();
        for (job, key) in [(0, 10), (1, 30), (2, 20), (3, 5)] {
            running.add((key, 0), job);
        }
        // Since then 1 has fallen behind 2 and 0.
        let now = [(9, 0), (7, 0), (20, 0), (5, 0)];
        let order: Vec<usize> = running.less_urgent((5, 0), |job| now[job]).collect();
        assert_eq!(order, [2, 0, 1]);
        running.remove(2);
        running.add((50, 0), 3);
        let now = [(9, 0), (7, 0), (0, 0), (50, 0)];
        assert_eq!(running.less_urgent((8, 0), |job| now[job]).collect::<Vec<_>>(), [3, 0]);
    }

    #[test]
    fn nobody_is_asked_below_the_least_urgent() {
        let mut running = Running::default();
        for job in 0..100 {
            running.add((job as u64, 0), job);
        }
        let asked = Cell::new(0);
        let count = |job: usize| {
            asked.set(asked.get() + 1);
            (job as u64, 0)
        };
        assert_eq!(running.less_urgent((3, 0), count).next(), Some(99));
        assert_eq!(asked.get(), 1);
    }
}
