//! What preemptive policies share: a queue in order of priority, and taking GPUs from jobs of lower priority.

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
    /// One round: the most urgent waiting jobs start, and take GPUs from running jobs that are less urgent.
    pub(super) fn serve(&mut self, round: &mut Round<'_, '_>, key: impl Fn(&Round<'_, '_>, usize) -> Key) {
        for job in round.arrived().to_vec() {
            self.0.insert((key(round, job), job));
        }
        // Least urgent first; kept up to date below.
        let mut running: Vec<(Key, usize)> = round.running().map(|job| (key(round, job), job)).collect();
        running.sort_unstable_by(|a, b| b.cmp(a));
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
