use super::Policy;
use super::preemptive::Queue;
use crate::Round;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Least attained service, in queues so that jobs of about the same age do not take turns.
#[derive(Debug)]
pub(super) struct Las {
    thresholds: Vec<f64>,
    queue: Queue,
    // When a running job reaches its next threshold: (bits of the time, job). One that was preempted since is found out then.
    falls: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Las {
    pub(super) fn new(thresholds: Vec<f64>) -> Self {
        Self { thresholds, queue: Queue::default(), falls: BinaryHeap::new() }
    }

    /// When a running job will reach its next threshold.
    fn next_fall(&self, round: &Round<'_, '_>, job: usize) -> Option<f64> {
        let gpus = round.shape_of(job)?.gpus;
        let attained = round.attained_gpu_seconds(job);
        let threshold = self.thresholds.get(level(&self.thresholds, attained))?;
        let now = round.now();
        Some((now + (threshold - attained) / f64::from(gpus)).max(now.next_up()))
    }
}

/// The queue of a job. It is woken for at its threshold, give or take the rounding of a division.
fn level(thresholds: &[f64], attained: f64) -> usize {
    thresholds.iter().filter(|threshold| attained >= **threshold * (1.0 - 1e-9)).count()
}

impl Policy for Las {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        let thresholds = &self.thresholds;
        let has_fallen =
            self.falls.peek().is_some_and(|Reverse((time, _))| f64::from_bits(*time) <= round.now());
        let started = self.queue.serve(round, has_fallen, |round, job| {
            (level(thresholds, round.attained_gpu_seconds(job)) as u64, job as u64)
        });
        for job in started {
            self.falls.extend(self.next_fall(round, job).map(|time| Reverse((time.to_bits(), job))));
        }
        while let Some(Reverse((time, job))) = self.falls.peek().copied() {
            let time = f64::from_bits(time);
            if time > round.now() {
                round.wake_at(time);
                return;
            }
            self.falls.pop();
            self.falls.extend(self.next_fall(round, job).map(|time| Reverse((time.to_bits(), job))));
        }
    }
}
