//! What policies by priority share: a queue in order of it, and taking GPUs from jobs of lower priority.

use crate::Round;
use std::collections::BTreeSet;

/// Smaller is more urgent. The bits of a non-negative number sort as it does.
pub(super) type Key = (u64, u64);

/// Candidates looked at past one that cannot start: deep enough to fill gaps, shallow enough for long queues.
const DEPTH: usize = 64;

/// Waiting jobs by priority. A waiting job's priority does not change.
#[derive(Debug, Default)]
pub(super) struct Queue(BTreeSet<(Key, usize)>);

impl Queue {
    /// One round: the most urgent waiting jobs start where there is room.
    pub(super) fn fill(&mut self, round: &mut Round<'_, '_>, key: impl Fn(&Round<'_, '_>, usize) -> Key) {
        self.learn(round, &key);
        if round.free_gpus() > 0 {
            self.start(round, Vec::new(), key);
        }
    }

    /// One round: the most urgent waiting jobs start, and take GPUs from running jobs that are less urgent.
    pub(super) fn serve(&mut self, round: &mut Round<'_, '_>, key: impl Fn(&Round<'_, '_>, usize) -> Key) {
        self.learn(round, &key);
        if self.0.is_empty() {
            return;
        }
        // Least urgent first.
        let mut running: Vec<(Key, usize)> = round.running().map(|job| (key(round, job), job)).collect();
        running.sort_unstable_by(|a, b| b.cmp(a));
        self.start(round, running, key);
    }

    /// The most urgent waiting jobs that the last round looked at.
    pub(super) fn first(&self) -> Vec<usize> {
        self.0.iter().take(DEPTH).map(|(_, job)| *job).collect()
    }

    /// Takes a job out that was started without the queue.
    pub(super) fn forget(&mut self, job: usize) {
        self.0.retain(|(_, other)| *other != job);
    }

    fn learn(&mut self, round: &Round<'_, '_>, key: &impl Fn(&Round<'_, '_>, usize) -> Key) {
        for job in round.arrived().iter().chain(round.returned()) {
            self.0.insert((key(round, *job), *job));
        }
    }

    /// `running` is sorted, the least urgent first, and kept so.
    fn start(
        &mut self,
        round: &mut Round<'_, '_>,
        mut running: Vec<(Key, usize)>,
        key: impl Fn(&Round<'_, '_>, usize) -> Key,
    ) {
        let mut after: Option<(Key, usize)> = None;
        let mut depth = 0;
        // The smallest demand that found no place: as many GPUs or more will find none at a lower priority.
        let mut below = u32::MAX;
        while depth < DEPTH && below > 1 {
            let next = match after {
                None => self.0.first().copied(),
                Some(last) => self
                    .0
                    .range((std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded))
                    .next()
                    .copied(),
            };
            let Some((urgency, job)) = next else { break };
            if round.job(job).gpus >= below {
                after = Some((urgency, job));
                depth += 1;
                continue;
            }
            if !round.try_start(job) {
                let candidates: Vec<usize> = running
                    .iter()
                    .take_while(|(other, _)| other.0 > urgency.0)
                    .map(|(_, other)| *other)
                    .collect();
                let Some(victims) = round.victims(job, &candidates) else {
                    below = round.job(job).gpus;
                    after = Some((urgency, job));
                    depth += 1;
                    continue;
                };
                for victim in victims {
                    round.preempt(victim);
                    running.retain(|(_, other)| *other != victim);
                    self.0.insert((key(round, victim), victim));
                }
                if !round.try_start(job) {
                    after = Some((urgency, job));
                    depth += 1;
                    continue;
                }
            }
            self.0.remove(&(urgency, job));
            let entry = (key(round, job), job);
            let place = running.partition_point(|other| *other > entry);
            running.insert(place, entry);
        }
    }
}
