//! Who runs keeps its GPUs: it is seated elsewhere only where somebody that was chosen finds no room otherwise.

use super::{Node, Nodes, PoolNodes, Seat, Unit};
use crate::problem::Choice;
use crate::resources::Amounts;

/// Nodes on which room for one unit is looked for, those with least to move first.
const TRIES: usize = 8;

impl PoolNodes {
    /// Whether the seats are free and their hosts bear the demand.
    fn has_room(&self, seats: &[Seat], demand: &Amounts) -> bool {
        seats.iter().all(|seat| {
            self.nodes.get(seat.node).is_some_and(|node| {
                let is_free = |gpu: &u32| node.free.get(*gpu as usize).copied().unwrap_or(false);
                seat.gpus.iter().all(is_free) && node.bears(demand, seat.gpus.len())
            })
        })
    }
}

impl<'a> Nodes<'a> {
    /// Seats the choice where the job, or one of the pair, sits now.
    pub(super) fn keep(&mut self, job: usize, choice: Choice) -> bool {
        let Some(unit) = self.unit(job, choice) else { return false };
        let mut owners: Vec<usize> = unit.jobs.into_iter().flatten().collect();
        if let [a, b] = owners[..]
            && self.instance.pair_choice(a, b, unit.pool).is_ok_and(|pair| pair.restarts == [true, false])
        {
            // The one that the pair counts as staying goes first.
            owners.reverse();
        }
        for owner in owners {
            let Some(held) = self.instance.held(owner) else { continue };
            let gpus: usize = held.seats.iter().map(|seat| seat.gpus.len()).sum();
            if held.pool == unit.pool
                && gpus == unit.demand[0] as usize
                && self.pools[unit.pool].has_room(&held.seats, unit.demand)
            {
                self.settle(&unit, &held.seats);
                return true;
            }
        }
        false
    }

    /// Seats a choice for which there are GPUs, but not where it needs them, by moving as little as possible of what sits there
    /// to other nodes of the pool; only where that gains more than the moves cost.
    pub(super) fn make_room(&mut self, job: usize, choice: Choice) -> bool {
        if !self.instance.knows_seats() {
            return false;
        }
        let Some(unit) = self.unit(job, choice) else { return false };
        let (wanted, largest) = (unit.demand[0] as usize, self.pools[unit.pool].largest());
        let nodes = &self.pools[unit.pool].nodes;
        if wanted == 0 || nodes.iter().map(Node::free_gpus).sum::<usize>() < wanted {
            return false;
        }
        let (count, each) = if wanted <= largest { (1, wanted) } else { (wanted / largest, largest) };
        let residents = self.residents(unit.pool);
        let mut order: Vec<(usize, usize)> = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let free = node.free_gpus();
            let movable: usize = residents[at].iter().map(|unit| unit.demand[0] as usize).sum();
            if free + movable >= each {
                order.push((each.saturating_sub(free), at));
            }
        }
        order.sort_unstable();
        if count > 1 {
            let chosen: Vec<usize> = order.iter().take(count).map(|(_, at)| *at).collect();
            return chosen.len() == count && self.clear(&unit, &chosen, each, &residents);
        }
        order.iter().take(TRIES).any(|(_, at)| self.clear(&unit, &[*at], each, &residents))
    }

    /// Per node of a pool: who has no GPU elsewhere.
    pub(super) fn residents(&self, pool: usize) -> Vec<Vec<Unit<'a>>> {
        let mut residents = vec![Vec::new(); self.pools[pool].nodes.len()];
        for (job, seats) in self.seats.iter().enumerate() {
            if let [seat] = seats.as_slice()
                && let Some(unit) = self.unit(job, self.choices[job])
                && unit.pool == pool
                && unit.jobs[0] == Some(job)
            {
                residents[seat.node].push(unit);
            }
        }
        residents
    }

    /// Frees `each` GPUs of every one of the nodes for the unit, and seats who was there elsewhere; nothing changes where that
    /// fails or does not pay.
    fn clear(&mut self, unit: &Unit<'a>, nodes: &[usize], each: usize, residents: &[Vec<Unit<'a>>]) -> bool {
        let pool = unit.pool;
        let mut leaving: Vec<Unit<'a>> = Vec::new();
        for node in nodes {
            let mut here = residents[*node].clone();
            here.sort_by(|a, b| a.demand[0].total_cmp(&b.demand[0]).then(a.jobs.cmp(&b.jobs)));
            let mut missing = each.saturating_sub(self.pools[pool].nodes[*node].free_gpus());
            while missing > 0 && !here.is_empty() {
                let enough = here.iter().position(|unit| unit.demand[0] as usize >= missing);
                let goes = here.remove(enough.unwrap_or(here.len() - 1));
                missing = missing.saturating_sub(goes.demand[0] as usize);
                leaving.push(goes);
            }
        }
        let before = self.pools[pool].clone();
        for goes in &leaving {
            for seat in goes.jobs[0].map_or(&[][..], |job| &self.seats[job]) {
                self.pools[pool].leave(seat, goes.demand);
            }
        }
        let seat = |node: &usize| Seat { node: *node, gpus: self.pools[pool].nodes[*node].first_free(each) };
        let target: Vec<Seat> = nodes.iter().map(seat).collect();
        let mut arrived = Vec::new();
        let mut cost = 0.0;
        if self.pools[pool].has_room(&target, unit.demand) {
            for seat in &target {
                self.pools[pool].occupy(seat, unit.demand);
            }
            leaving.sort_by(|a, b| b.demand[0].total_cmp(&a.demand[0]));
            for goes in &leaving {
                let Some(seats) = self.pools[pool].seat(goes.demand) else { break };
                for seat in &seats {
                    self.pools[pool].occupy(seat, goes.demand);
                }
                for job in goes.jobs.into_iter().flatten() {
                    let lost = |seats: &[Seat]| self.instance.moved(job, goes.choice, seats).unwrap_or(0.0);
                    cost += lost(&seats) - lost(&self.seats[job]);
                }
                arrived.push(seats);
            }
        }
        if arrived.is_empty() || arrived.len() < leaving.len() || cost >= unit.value {
            self.pools[pool] = before;
            return false;
        }
        for (goes, seats) in leaving.iter().zip(arrived) {
            for job in goes.jobs.into_iter().flatten() {
                self.seats[job].clone_from(&seats);
            }
        }
        for job in unit.jobs.into_iter().flatten() {
            self.choices[job] = unit.choice;
            self.seats[job].clone_from(&target);
        }
        self.value += unit.value;
        true
    }

    /// What all lose that keep their shape on other GPUs.
    pub(super) fn lost_by_moving(&self) -> f64 {
        if !self.instance.knows_seats() {
            return 0.0;
        }
        let lost = |job: usize| self.instance.moved(job, self.choices[job], &self.seats[job]);
        (0..self.choices.len()).filter_map(lost).sum()
    }
}
