use super::Policy;
use super::fifo::start_in_order;
use crate::error::check;
use crate::{Error, Round};
use serde::Serialize;
use std::collections::BTreeSet;

/// When the policy puts two jobs beside one another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GreedyOptions {
    /// Both upper bounds of the slowdown must stay at or under this.
    pub limit_ratio: f64,
    /// The expected system throughput of the pair must be at least this; 1 = taking turns.
    pub least_stp: f64,
}

impl Default for GreedyOptions {
    fn default() -> Self {
        Self { limit_ratio: 1.5, least_stp: 1.1 }
    }
}

/// Backfill first; who still waits joins the running job of its size with which the planner expects the most.
///
/// Pairs form only while jobs wait: on an idle cluster sharing would slow both sides for nothing.
#[derive(Debug)]
pub(super) struct GreedyPairs {
    options: GreedyOptions,
}

impl GreedyPairs {
    pub(super) fn new(options: &GreedyOptions) -> Result<Self, Error> {
        check(|| "limit_ratio".to_owned(), options.limit_ratio, 1.0, "1 or more")?;
        check(|| "least_stp".to_owned(), options.least_stp, 0.0, "0 or more")?;
        Ok(Self { options: options.clone() })
    }

    fn best_host(&self, round: &Round<'_, '_>, guest: usize) -> Option<usize> {
        let limit = self.options.limit_ratio;
        let mut best: Option<(f64, usize)> = None;
        for host in round.hosts(round.job(guest).gpus) {
            let Some(shape) = round.shape_of(host) else { continue };
            let Some(sides) = round.expect(guest, host, shape.pool) else { continue };
            let stp: f64 = sides.iter().map(|(slowdown, _)| 1.0 / slowdown).sum();
            let is_harmless = sides.iter().all(|(_, upper)| *upper <= limit);
            if is_harmless && stp >= self.options.least_stp && best.is_none_or(|(value, _)| stp > value) {
                best = Some((stp, host));
            }
        }
        best.map(|(_, host)| host)
    }
}

impl Policy for GreedyPairs {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        start_in_order(round, true);
        // Nobody left for one is nobody left for all of its kind: joining only takes hosts away.
        let mut unfit = BTreeSet::new();
        for guest in super::guests(round) {
            let alike = round.alike(guest);
            if unfit.contains(&alike) {
                continue;
            }
            let host = self.best_host(round, guest);
            if !host.is_some_and(|host| round.start_beside(guest, host)) {
                unfit.insert(alike);
            }
        }
    }
}
