use super::Policy;
use super::fifo::start_in_order;
use crate::Round;
use elastico_core::{Seed, Stream};
use rand::RngExt;

/// Backfill; who still waits joins a random job of its size. The control that shows what knowing slowdowns brings.
#[derive(Debug)]
pub(super) struct RandomPairs {
    random: Stream,
}

impl RandomPairs {
    pub(super) fn new(seed: Seed) -> Self {
        Self { random: seed.stream("random pairs", &[]) }
    }
}

impl Policy for RandomPairs {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        start_in_order(round, true);
        for guest in super::guests(round) {
            let hosts: Vec<usize> = round.hosts(round.job(guest).gpus).collect();
            if !hosts.is_empty() {
                let host = hosts[self.random.random_range(0..hosts.len())];
                round.start_beside(guest, host);
            }
        }
    }
}
