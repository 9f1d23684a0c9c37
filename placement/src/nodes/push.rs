//! Seats go by size, the value decides who stays: a chosen job without a seat takes that of others on one node that are worth less.

use super::{Node, Nodes, Unit};
use crate::problem::Choice;
use crate::resources::{Amounts, RESOURCES};

/// Choices without a seat for which others are pushed out, the most valuable first.
const MOST: usize = 32;

/// Who must leave a node, and what they are worth.
struct Leave<'a> {
    lost: f64,
    node: usize,
    units: Vec<Unit<'a>>,
}

impl<'a> Nodes<'a> {
    /// Seats what pays of the choices that found no seat; those that are pushed out are seated elsewhere where there is room.
    pub(super) fn push_out(&mut self, mut unseated: Vec<(f64, usize, Choice)>) {
        unseated.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut known: Vec<Option<Vec<Vec<Unit<'a>>>>> = vec![None; self.pools.len()];
        for (_, job, choice) in unseated.into_iter().take(MOST) {
            let Some(unit) = self.unit(job, choice) else { continue };
            if unit.jobs.into_iter().flatten().any(|job| self.choices[job] != Choice::Waiting) {
                continue;
            }
            let residents = known[unit.pool].get_or_insert_with(|| self.residents(unit.pool));
            let Some(leave) = self.cheapest(&unit, residents) else { continue };
            known[unit.pool] = None;
            for gone in &leave.units {
                self.unseat(gone);
            }
            let gpus = self.pools[unit.pool].nodes[leave.node].first_free(unit.demand[0] as usize);
            self.settle(&unit, &[super::Seat { node: leave.node, gpus }]);
            for gone in leave.units {
                if let Some(job) = gone.jobs[0] {
                    self.take(job, gone.choice);
                }
            }
        }
    }

    fn unseat(&mut self, unit: &Unit<'_>) {
        let seats = unit.jobs[0].map(|job| self.seats[job].clone()).unwrap_or_default();
        for seat in &seats {
            self.pools[unit.pool].leave(seat, unit.demand);
        }
        for job in unit.jobs.into_iter().flatten() {
            self.choices[job] = Choice::Waiting;
            self.seats[job].clear();
        }
        self.value -= unit.value;
    }

    /// The node on which room for the unit costs least, where that is less than the unit is worth.
    fn cheapest(&self, unit: &Unit<'_>, residents: &[Vec<Unit<'a>>]) -> Option<Leave<'a>> {
        let wanted = unit.demand[0] as usize;
        let mut best: Option<Leave<'a>> = None;
        for (at, node) in self.pools[unit.pool].nodes.iter().enumerate() {
            let most = best.as_ref().map_or(unit.value, |best| best.lost);
            if wanted == 0 || node.free.len() < wanted {
                continue;
            }
            if let Some((lost, units)) = make_way(node, unit.demand, &residents[at], most) {
                best = Some(Leave { lost, node: at, units });
            }
        }
        best
    }
}

/// Who leaves a node so that the demand fits, worth less than `most` together: the cheapest per GPU first, and of these nobody
/// that need not go.
fn make_way<'a>(
    node: &Node,
    demand: &Amounts,
    residents: &[Unit<'a>],
    most: f64,
) -> Option<(f64, Vec<Unit<'a>>)> {
    let fits = |gone: &[Unit<'a>]| {
        let gpus: f64 = gone.iter().map(|unit| unit.demand[0]).sum();
        let host = |at: usize| gone.iter().map(|unit| unit.demand[at]).sum::<f64>() + node.left[at];
        node.free_gpus() as f64 + gpus >= demand[0]
            && (2..RESOURCES).all(|at| demand[at] <= host(at) * (1.0 + 1e-12) + 1e-9)
    };
    let mut order = residents.to_vec();
    order.sort_by(|a, b| {
        (a.value / a.demand[0]).total_cmp(&(b.value / b.demand[0])).then(a.jobs.cmp(&b.jobs))
    });
    let mut gone: Vec<Unit<'a>> = Vec::new();
    let mut rest = order.into_iter();
    while !fits(&gone) {
        gone.push(rest.next()?);
    }
    gone.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.jobs.cmp(&b.jobs)));
    let mut at = 0;
    while at < gone.len() {
        let unit = gone.remove(at);
        if !fits(&gone) {
            gone.insert(at, unit);
            at += 1;
        }
    }
    let lost: f64 = gone.iter().map(|unit| unit.value).sum();
    (lost < most).then_some((lost, gone))
}
