use super::Policy;
use super::fifo::start_in_order;
use crate::Round;

/// Backfill; who still waits joins the job of its size that leaves the least memory free, if both fit. It knows memory and no
/// slowdown, as most device plug-ins that share GPUs do. Jobs and pools that do not state their memory have none to share.
#[derive(Debug)]
pub(super) struct MemoryFitPairs;

/// Memory that a pair leaves free on each GPU; `None` where it does not fit or is not known.
pub(super) fn memory_left(round: &Round<'_, '_>, guest: usize, host: usize) -> Option<f64> {
    let pool = round.shape_of(host)?.pool;
    let there_is = round.cluster().pools()[pool].memory_bytes?;
    let left = there_is - round.job(guest).memory_bytes? - round.job(host).memory_bytes?;
    (left >= 0.0).then_some(left)
}

impl Policy for MemoryFitPairs {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        start_in_order(round, true);
        for guest in super::guests(round) {
            if round.job(guest).memory_bytes.is_none() {
                continue;
            }
            let hosts = round.hosts(round.job(guest).gpus);
            let fitting = hosts.filter_map(|host| Some((memory_left(round, guest, host)?, host)));
            let host = fitting.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            if let Some((_, host)) = host {
                round.start_beside(guest, host);
            }
        }
    }
}
