use super::Policy;
use crate::Round;

/// In order of submission.
#[derive(Debug)]
pub(super) struct Fifo {
    pub(super) backfill: bool,
}

impl Policy for Fifo {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        start_in_order(round, self.backfill);
    }
}

/// Starts waiting jobs in order of submission; with `backfill` past those that do not fit.
pub(super) fn start_in_order(round: &mut Round<'_, '_>, backfill: bool) {
    // A job of as many GPUs as one that did not fit will not fit either.
    let mut below = u32::MAX;
    let mut after = None;
    while round.free_gpus() > 0 {
        let Some(job) = round.first_waiting(below, after) else { return };
        if round.try_start(job) {
            continue;
        }
        if !backfill {
            return;
        }
        below = round.job(job).gpus;
        after = Some(job);
    }
}
