//! A large cluster as several small ones.

use super::market::Market;
use crate::rates::Shape;
use crate::{ClusterSpec, Round, Target};
use elastico_placement::Error;

/// Jobs and nodes are dealt out to equal cells, each of which is solved by itself: POP (Narayanan et al., SOSP 2021). With
/// many small jobs little is lost, and the time grows with the cluster instead of its square.
///
/// A cell is a part of the capacity, not of the nodes: where its jobs are put is up to the whole cluster. A job stays in the
/// cell that its number says, but for the guest of a pair, which is in the cell of its host.
#[derive(Debug)]
pub(super) struct Cells {
    cells: Vec<Market>,
}

/// A job with what a unit of its rate is worth, and its shapes with their rates.
pub(super) struct Candidate {
    pub(super) job: usize,
    pub(super) weight: f64,
    pub(super) shapes: Vec<(Shape, f64)>,
}

impl Cells {
    pub(super) fn new(options: &super::ElasticoOptions, cluster: &ClusterSpec) -> Self {
        // No cell may be without a node of some pool.
        let fewest = cluster.pools().iter().map(|pool| pool.nodes).min().unwrap_or(1);
        let wanted = (f64::from(cluster.gpus()) / options.cell_gpus).round();
        let count = wanted.clamp(1.0, f64::from(fewest.max(1))) as u32;
        Self { cells: (0..count).map(|cell| Market::new(options, cluster, cell, count)).collect() }
    }

    /// Learns of workloads that have not been here before.
    pub(super) fn meet(&mut self, round: &Round<'_, '_>) {
        self.cells.iter_mut().for_each(|cell| cell.meet(round));
    }

    /// What one GPU of a pool costs a job at the prices of the last solution.
    pub(super) fn slot_price(&self, job: usize, pool: usize) -> f64 {
        self.cells[job % self.cells.len()].slot_price(pool)
    }

    /// Every candidate gets a target, but for those that are larger than a cell: they stay as they are.
    pub(super) fn solve(
        &mut self,
        round: &Round<'_, '_>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<(usize, Target)>, Error> {
        let count = self.cells.len();
        let mut dealt: Vec<Vec<Candidate>> = (0..count).map(|_| Vec::new()).collect();
        for candidate in candidates {
            // The lesser number of a pair is its home: both must be in one cell.
            let home =
                round.partner_of(candidate.job).map_or(candidate.job, |other| other.min(candidate.job));
            dealt[home % count].push(candidate);
        }
        let mut targets = Vec::new();
        for (cell, dealt) in self.cells.iter_mut().zip(dealt) {
            targets.extend(cell.solve(round, &dealt)?);
        }
        targets.sort_unstable_by_key(|(job, _)| *job);
        Ok(targets)
    }
}
