//! What policies by priority share: a queue in order of it, and taking GPUs from jobs of lower priority.

use super::running::Running;
use crate::Round;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Smaller is more urgent. The bits of a non-negative number sort as it does.
pub(super) type Key = (u64, u64);

/// Candidates looked at past one that cannot start: deep enough to fill gaps, shallow enough for long queues.
const DEPTH: usize = 64;

/// Least urgent jobs looked at before all of them: among few a victim of the right size is often found.
const FIRST: usize = 16;

/// Jobs by priority. A waiting job's priority does not change.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeSet<(Key, usize)>,
    // Only where jobs are preempted.
    running: Running,
    // Jobs for which no victims were found, and the round's clock then.
    blocked: BTreeMap<usize, u64>,
}

impl Queue {
    /// One round: the most urgent waiting jobs start where there is room.
    pub(super) fn fill(&mut self, round: &mut Round<'_, '_>, key: impl Fn(&Round<'_, '_>, usize) -> Key) {
        self.start(round, false, None, key);
    }

    /// One round: the most urgent waiting jobs start, and take GPUs from running jobs that are less urgent. Returns who started.
    ///
    /// `fallen` may have become less urgent since the last round; all other running jobs have not.
    pub(super) fn serve(
        &mut self,
        round: &mut Round<'_, '_>,
        fallen: &[usize],
        key: impl Fn(&Round<'_, '_>, usize) -> Key,
    ) -> Vec<usize> {
        for job in round.finished().iter().chain(round.returned()) {
            self.running.remove(*job);
        }
        for job in fallen.iter().copied() {
            if round.is_running(job) {
                self.running.add(key(round, job), job);
                round.touch(job);
            }
        }
        // Where no GPU came free and running jobs only became more urgent, who could not start then cannot now: only somebody
        // who is new can. With the queue before it empty or blocked, its own place is all that matters.
        if let ([job], true, false) = (round.arrived(), fallen.is_empty(), round.has_freed()) {
            let job = *job;
            let urgency = key(round, job);
            if round.try_start(job) {
                self.running.add(urgency, job);
                return vec![job];
            }
            let Some(victims) = self.victims(round, urgency, job, &key) else {
                self.waiting.insert((urgency, job));
                return Vec::new();
            };
            // Nobody before it starts, so that its victims stay what they are until its turn.
            return self.start(round, true, Some((job, victims)), key);
        }
        self.start(round, true, None, key)
    }

    /// The most urgent waiting jobs.
    pub(super) fn first(&self) -> impl Iterator<Item = (Key, usize)> {
        self.waiting.iter().take(DEPTH).copied()
    }

    /// Takes a job out that was started without the queue.
    pub(super) fn forget(&mut self, entry: (Key, usize)) {
        self.waiting.remove(&entry);
    }

    fn start(
        &mut self,
        round: &mut Round<'_, '_>,
        preempts: bool,
        mut found: Option<(usize, Vec<usize>)>,
        key: impl Fn(&Round<'_, '_>, usize) -> Key,
    ) -> Vec<usize> {
        let mut started = Vec::new();
        for job in round.arrived().iter().chain(round.returned()) {
            self.waiting.insert((key(round, *job), *job));
        }
        if !preempts && round.free_gpus() == 0 {
            return started;
        }
        let mut after = Bound::Unbounded;
        let mut depth = 0;
        // The smallest demand that found no place: as many GPUs or more will find none at a lower priority.
        let mut below = u32::MAX;
        while below > 1 {
            let next = self.waiting.range((after, Bound::Unbounded)).take(DEPTH - depth).find(|entry| {
                let is_smaller = round.job(entry.1).gpus < below;
                if !is_smaller {
                    after = Bound::Excluded(**entry);
                    depth += 1;
                }
                is_smaller
            });
            let Some((urgency, job)) = next.copied() else { break };
            let mut is_started = round.try_start(job);
            if !is_started && preempts {
                let victims = match found.take_if(|(of, _)| *of == job) {
                    Some((_, victims)) => Some(victims),
                    None => self.victims(round, urgency, job, &key),
                };
                if let Some(victims) = victims {
                    for victim in victims {
                        round.preempt(victim);
                        self.running.remove(victim);
                        self.waiting.insert((key(round, victim), victim));
                    }
                    is_started = round.try_start(job);
                }
            }
            if is_started {
                self.waiting.remove(&(urgency, job));
                if preempts {
                    self.running.add(urgency, job);
                    self.blocked.remove(&job);
                }
                started.push(job);
            } else {
                below = round.job(job).gpus;
                after = Bound::Excluded((urgency, job));
                depth += 1;
            }
        }
        started
    }

    /// The least work of less urgent jobs that would let a job start.
    fn victims(
        &mut self,
        round: &Round<'_, '_>,
        urgency: Key,
        job: usize,
        key: impl Fn(&Round<'_, '_>, usize) -> Key,
    ) -> Option<Vec<usize>> {
        let since = self.blocked.get(&job).copied();
        let key = |other: usize| key(round, other);
        let may_go = |other: usize| Some(key(other)).filter(|other| other.0 > urgency.0);
        // From the cheapest question to the dearest.
        let victims = if since.is_some() {
            round.victims_since(job, since, may_go)
        } else if !round.has_enough(job, self.running.less_urgent(urgency, key)) {
            None
        } else if let Some(victim) =
            round.only_victim(job, self.running.less_urgent(urgency, key).take(FIRST))
        {
            Some(vec![victim])
        } else {
            round.victims_since(job, None, may_go)
        };
        if victims.is_none() {
            self.blocked.insert(job, round.clock());
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::Policy;
    use crate::{ClusterSpec, Options, PolicyKind, SyntheticOptions, Trace, simulate, simulate_with};
    use elastico_core::Seed;

    type KeyOf = fn(&Round<'_, '_>, usize) -> Key;

    /// The same rule in as many words: every round asks every job, and remembers nothing but the queue.
    struct AskEverybody {
        waiting: BTreeSet<(Key, usize)>,
        key: KeyOf,
    }

    impl Policy for AskEverybody {
        fn decide(&mut self, round: &mut Round<'_, '_>) {
            let key = self.key;
            let new: Vec<usize> = round.arrived().iter().chain(round.returned()).copied().collect();
            self.waiting.extend(new.into_iter().map(|job| (key(round, job), job)));
            let mut below = u32::MAX;
            let mut depth = 0;
            let mut after = Bound::Unbounded;
            while let Some(entry) = self.waiting.range((after, Bound::Unbounded)).next().copied() {
                let (urgency, job) = entry;
                let gpus = round.job(job).gpus;
                if gpus < below {
                    let mut is_started = round.try_start(job);
                    let may_go = |other| Some(key(round, other)).filter(|other| other.0 > urgency.0);
                    if !is_started && let Some(victims) = round.victims(job, may_go) {
                        for victim in victims {
                            round.preempt(victim);
                            self.waiting.insert((key(round, victim), victim));
                        }
                        is_started = round.try_start(job);
                    }
                    if is_started {
                        self.waiting.remove(&entry);
                        continue;
                    }
                    below = gpus;
                }
                after = Bound::Excluded(entry);
                depth += 1;
                if depth == DEPTH {
                    break;
                }
            }
        }
    }

    #[test]
    fn what_is_remembered_changes_no_decision() {
        let cluster: ClusterSpec = "n6g8".parse().unwrap();
        let least_left =
            |round: &Round<'_, '_>, job: usize| (round.remaining_seconds(job).to_bits(), job as u64);
        let least_service = |round: &Round<'_, '_>, job: usize| {
            let gpus = f64::from(round.job(job).gpus);
            ((round.remaining_seconds(job) * gpus).to_bits(), job as u64)
        };
        let keys: [(&str, KeyOf); 2] = [("srtf_oracle", least_left), ("srsf", least_service)];
        for (seed, (name, key)) in (0..6).flat_map(|seed| keys.map(|key| (seed, key))) {
            let options = SyntheticOptions {
                jobs: 300,
                load: 1.4,
                cluster: cluster.clone(),
                workloads: vec![("a".into(), None)],
                median_seconds: 900.0,
            };
            let trace = Trace::synthetic(&options, Seed(seed)).unwrap();
            // Restarts, and nodes that fail and come back.
            let options = Options {
                restart_seconds: 20.0,
                mtbf_seconds: (seed % 2 == 0).then_some(200_000.0),
                ..Options::default()
            };
            let ours = simulate(&trace, &cluster, &PolicyKind::parse(name).unwrap(), None, &options).unwrap();
            let mut policy = AskEverybody { waiting: BTreeSet::new(), key };
            let (theirs, _) = simulate_with(&trace, &cluster, name, &mut policy, None, &options).unwrap();
            assert!(ours.preemptions_total > 50, "{ours:?}");
            assert_eq!(
                serde_json::to_string(&ours).unwrap(),
                serde_json::to_string(&theirs).unwrap(),
                "{name}, seed {seed}"
            );
        }
    }
}
