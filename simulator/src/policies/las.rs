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
        let mut fallen = Vec::new();
        while let Some(Reverse((time, job))) = self.falls.peek().copied()
            && f64::from_bits(time) <= round.now()
        {
            self.falls.pop();
            fallen.push(job);
        }
        let started = self.queue.serve(round, &fallen, |round, job| {
            (level(thresholds, round.attained_gpu_seconds(job)) as u64, job as u64)
        });
        for job in started.into_iter().chain(fallen) {
            self.falls.extend(self.next_fall(round, job).map(|time| Reverse((time.to_bits(), job))));
        }
        if let Some(Reverse((time, _))) = self.falls.peek() {
            round.wake_at(f64::from_bits(*time));
        }
    }
}
