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
        self.start(round, false, key);
    }

    /// One round: the most urgent waiting jobs start, and take GPUs from running jobs that are less urgent. Returns who started.
    ///
    /// `has_changed` says that a running job may have become less urgent since the last round.
    pub(super) fn serve(
        &mut self,
        round: &mut Round<'_, '_>,
        has_changed: bool,
        key: impl Fn(&Round<'_, '_>, usize) -> Key,
    ) -> Vec<usize> {
        // Where no GPU came free and running jobs only became more urgent, who could not start then cannot now: only somebody
        // who is new can. With the queue before it empty or blocked, its own place is all that matters.
        if let ([job], false, false) = (round.arrived(), has_changed, round.has_freed()) {
            let job = *job;
            if round.try_start(job) {
                return vec![job];
            }
            let urgency = key(round, job);
            if Running::default().victims(round, urgency, job, &key).is_none() {
                self.0.insert((urgency, job));
                return Vec::new();
            }
        }
        self.start(round, true, key)
    }

    /// The most urgent waiting jobs.
    pub(super) fn first(&self) -> impl Iterator<Item = (Key, usize)> {
        self.0.iter().take(DEPTH).copied()
    }

    /// Takes a job out that was started without the queue.
    pub(super) fn forget(&mut self, entry: (Key, usize)) {
        self.0.remove(&entry);
    }

    fn start(
        &mut self,
        round: &mut Round<'_, '_>,
        preempts: bool,
        key: impl Fn(&Round<'_, '_>, usize) -> Key,
    ) -> Vec<usize> {
        let mut started = Vec::new();
        for job in round.arrived().iter().chain(round.returned()) {
            self.0.insert((key(round, *job), *job));
        }
        if !preempts && round.free_gpus() == 0 {
            return started;
        }
        let mut running = Running::default();
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
            let gpus = round.job(job).gpus;
            if gpus < below {
                let mut is_started = round.try_start(job);
                if !is_started
                    && preempts
                    && let Some(victims) = running.victims(round, urgency, job, &key)
                {
                    for victim in victims {
                        round.preempt(victim);
                        self.0.insert((key(round, victim), victim));
                    }
                    is_started = round.try_start(job);
                }
                if is_started {
                    self.0.remove(&(urgency, job));
                    running.add((urgency, job));
                    started.push(job);
                    continue;
                }
                below = gpus;
            }
            after = Some((urgency, job));
            depth += 1;
        }
        started
    }
}

/// Running jobs, the least urgent first; looked at only once one of them might have to go.
#[derive(Debug, Default)]
struct Running(Option<Vec<(Key, usize)>>);

impl Running {
    fn victims(
        &mut self,
        round: &Round<'_, '_>,
        urgency: Key,
        job: usize,
        key: impl Fn(&Round<'_, '_>, usize) -> Key,
    ) -> Option<Vec<usize>> {
        let running = self.0.get_or_insert_with(|| {
            let mut running: Vec<_> = round.running().map(|job| (key(round, job), job)).collect();
            running.sort_unstable_by(|a, b| b.cmp(a));
            running
        });
        let end = running.partition_point(|(other, _)| other.0 > urgency.0);
        let gpus_of = |job: usize| round.shape_of(job).map_or(0, |shape| shape.gpus);
        let mut gpus = round.free_gpus();
        let wanted = round.job(job).gpus;
        let is_enough = running[..end].iter().any(|(_, other)| {
            gpus += gpus_of(*other);
            gpus >= wanted
        });
        if !is_enough {
            return None;
        }
        let candidates: Vec<usize> = running[..end].iter().map(|(_, job)| *job).collect();
        let victims = round.victims(job, &candidates)?;
        running.retain(|(_, other)| !victims.contains(other));
        Some(victims)
    }

    fn add(&mut self, entry: (Key, usize)) {
        if let Some(running) = &mut self.0 {
            let place = running.partition_point(|other| *other > entry);
            running.insert(place, entry);
        }
    }
}
