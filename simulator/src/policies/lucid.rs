use super::Policy;
use super::estimates::Estimates;
use super::memory_fit_pairs::memory_left;
use super::preemptive::Queue;
use crate::Round;
use elastico_core::Seed;
use std::collections::BTreeSet;

/// Speeds beside a copy of itself from which a job is tiny, and medium; below it is jumbo (Lucid, table 2).
const TINY: f64 = 0.95;
const MEDIUM: f64 = 0.85;

/// The largest sum of two scores: a jumbo job only beside a tiny one.
const MOST: u32 = 2;

/// Lucid (Hu et al., ASPLOS 2023): never preempts; the smallest estimated GPU time first; packs only what would wait
/// otherwise, two jobs of equal GPU count whose share scores add up to at most two and whose memory fits.
///
/// Simplified: the score comes from the planner's slowdown beside a copy of the same workload instead of a decision tree over
/// counters; there is no profiling partition and no time-aware or adaptive packing. Memory that is not stated is taken to fit.
#[derive(Debug)]
pub(super) struct Lucid {
    estimates: Estimates,
    queue: Queue,
}

impl Lucid {
    pub(super) fn new(error_factor: f64, seed: Seed) -> Self {
        Self { estimates: Estimates::new(error_factor, seed), queue: Queue::default() }
    }
}

fn score(round: &Round<'_, '_>, job: usize, pool: usize) -> u32 {
    let speed = round.expect(job, job, pool).map_or(0.0, |[(slowdown, _), _]| 1.0 / slowdown);
    if speed >= TINY {
        0
    } else if speed >= MEDIUM {
        1
    } else {
        2
    }
}

fn best_host(round: &Round<'_, '_>, guest: usize) -> Option<usize> {
    let is_known = |job: usize| round.job(job).memory_bytes.is_some();
    round
        .hosts(round.job(guest).gpus)
        .filter_map(|host| {
            let pool = round.shape_of(host)?.pool;
            let sum = score(round, guest, pool) + score(round, host, pool);
            let knows_memory =
                is_known(guest) && is_known(host) && round.cluster().pools()[pool].memory_bytes.is_some();
            let fits = !knows_memory || memory_left(round, guest, host).is_some();
            (sum <= MOST && fits).then_some((sum, host))
        })
        .min()
        .map(|(_, host)| host)
}

impl Policy for Lucid {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        self.estimates.learn(round);
        let estimates = &self.estimates;
        self.queue.fill(round, |round, job| {
            let gpus = f64::from(round.job(job).gpus);
            ((estimates.duration_seconds(round, job) * gpus).to_bits(), job as u64)
        });
        let mut unfit = BTreeSet::new();
        let guests: Vec<_> = self.queue.first().collect();
        for entry @ (_, guest) in guests {
            let alike = round.alike(guest);
            if unfit.contains(&alike) {
                continue;
            }
            match best_host(round, guest) {
                Some(host) if round.start_beside(guest, host) => self.queue.forget(entry),
                // Memory may be another matter for a job of the same kind.
                _ if round.job(guest).memory_bytes.is_some() => {}
                _ => drop(unfit.insert(alike)),
            }
        }
    }
}
