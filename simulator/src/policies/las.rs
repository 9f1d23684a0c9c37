use super::Policy;
use super::preemptive::Queue;
use crate::Round;

/// Least attained service, in queues so that jobs of about the same age do not take turns.
#[derive(Debug)]
pub(super) struct Las {
    thresholds: Vec<f64>,
    queue: Queue,
}

impl Las {
    pub(super) fn new(thresholds: Vec<f64>) -> Self {
        Self { thresholds, queue: Queue::default() }
    }
}

impl Policy for Las {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        let thresholds = &self.thresholds;
        // A job is woken for at its threshold, give or take the rounding of a division.
        let level = |attained: f64| {
            thresholds.iter().filter(|threshold| attained >= **threshold * (1.0 - 1e-9)).count()
        };
        self.queue.serve(round, |round, job| (level(round.attained_gpu_seconds(job)) as u64, job as u64));
        let next = round
            .running()
            .filter_map(|job| {
                let attained = round.attained_gpu_seconds(job);
                let threshold = thresholds.get(level(attained))?;
                let gpus = round.shape_of(job)?.gpus;
                Some((threshold - attained) / f64::from(gpus))
            })
            .reduce(f64::min);
        if let Some(wait) = next {
            let now = round.now();
            round.wake_at((now + wait).max(now.next_up()));
        }
    }
}
