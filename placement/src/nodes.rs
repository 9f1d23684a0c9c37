//! Slots on nodes: which GPU of which node, largest first, best fit, a pair as one slot.

mod keep;
mod push;

use crate::cluster::Pool;
use crate::dual::Dual;
use crate::instance::Instance;
use crate::problem::{Choice, Problem, Single};
use crate::resources::{Amounts, RESOURCES};
use rand::RngExt;
use std::collections::BTreeSet;

/// GPUs that a job has on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) node: usize,
    pub(crate) gpus: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Node {
    free: Vec<bool>,
    /// Host resources that are left; GPU slots and memory are counted by `free`.
    left: Amounts,
}

impl Node {
    fn free_gpus(&self) -> usize {
        self.free.iter().filter(|free| **free).count()
    }

    /// Whether the host bears `gpus` GPUs of a job that asks `demand` for all of its own.
    fn bears(&self, demand: &Amounts, gpus: usize) -> bool {
        let part = gpus as f64 / demand[0];
        (2..RESOURCES).all(|at| demand[at] * part <= self.left[at] * (1.0 + 1e-12) + 1e-9)
    }

    fn first_free(&self, count: usize) -> Vec<u32> {
        let free = self.free.iter().enumerate().filter(|(_, free)| **free);
        free.take(count).map(|(gpu, _)| gpu as u32).collect()
    }
}

/// The nodes of a pool, and which of them have how many GPUs free.
#[derive(Clone, Debug)]
pub(crate) struct PoolNodes {
    nodes: Vec<Node>,
    by_free: Vec<BTreeSet<usize>>,
    /// What a full node has.
    whole: Amounts,
    /// The host resources that may run out before the GPUs.
    short: Vec<usize>,
}

/// The part of a host resource in use from which on nodes are packed by it too.
const SHORT: f64 = 0.6;

/// Orders that are tried where a host is short and somebody finds no node, as far as jobs times nodes allow.
const PACKINGS: usize = 24;
const WORK: usize = 4_000_000;

impl PoolNodes {
    pub(crate) fn new(pool: &Pool) -> Self {
        let nodes: Vec<Node> = pool
            .gpus_of_nodes()
            .into_iter()
            .map(|gpus| Node { free: vec![true; gpus as usize], left: pool.amounts_of_node(gpus) })
            .collect();
        let largest = nodes.iter().map(|node| node.free.len()).max().unwrap_or(0);
        let mut by_free = vec![BTreeSet::new(); largest + 1];
        for (at, node) in nodes.iter().enumerate() {
            by_free[node.free.len()].insert(at);
        }
        let whole = pool.amounts_of_node(largest as u32);
        Self { nodes, by_free, whole, short: Vec::new() }
    }

    /// Learns what will be taken of the pool in all.
    fn expect(&mut self, used: &Amounts, capacity: &Amounts) {
        self.short = (2..RESOURCES).filter(|at| used[*at] > SHORT * capacity[*at]).collect();
    }

    /// The parts of a node that a demand takes of all that may run out.
    fn size(&self, demand: &Amounts) -> f64 {
        let hosts = self.short.iter().map(|at| demand[*at] / self.whole[*at]);
        demand[0] / self.whole[0].max(1.0) + hosts.sum::<f64>()
    }

    /// How unevenly a node would be filled: the host runs out before the GPUs, or is left without any.
    fn unevenness(&self, node: &Node, demand: &Amounts) -> f64 {
        let gpus = (node.free_gpus() as f64 - demand[0]) / self.whole[0];
        let of = |at: &usize| ((node.left[*at] - demand[*at]) / self.whole[*at] - gpus).abs();
        self.short.iter().map(of).fold(0.0, f64::max) + 0.1 * gpus
    }

    /// GPUs of the largest node.
    fn largest(&self) -> usize {
        self.by_free.len() - 1
    }

    /// Most GPUs that a job may ask for now: those of the freest node, or of all free whole nodes.
    fn most(&self) -> usize {
        let whole = self.by_free[self.largest()].len();
        if whole > 0 {
            return whole * self.largest();
        }
        (1..self.by_free.len()).rev().find(|free| !self.by_free[*free].is_empty()).unwrap_or(0)
    }

    pub(crate) fn occupy(&mut self, seat: &Seat, demand: &Amounts) {
        let node = &mut self.nodes[seat.node];
        let before = node.free_gpus();
        for gpu in &seat.gpus {
            node.free[*gpu as usize] = false;
        }
        let after = node.free_gpus();
        self.by_free[before].remove(&seat.node);
        self.by_free[after].insert(seat.node);
        self.host(seat, demand, 1.0);
    }

    /// Gives back what [`occupy`](Self::occupy) took.
    pub(crate) fn leave(&mut self, seat: &Seat, demand: &Amounts) {
        let node = &mut self.nodes[seat.node];
        let before = node.free_gpus();
        for gpu in &seat.gpus {
            node.free[*gpu as usize] = true;
        }
        self.by_free[before].remove(&seat.node);
        self.by_free[self.nodes[seat.node].free_gpus()].insert(seat.node);
        self.host(seat, demand, -1.0);
    }

    /// Takes host resources of a seat, or with -1 gives them back.
    pub(crate) fn host(&mut self, seat: &Seat, demand: &Amounts, sign: f64) {
        let part = seat.gpus.len() as f64 / demand[0].max(1.0);
        for (left, amount) in self.nodes[seat.node].left.iter_mut().zip(demand).skip(2) {
            *left -= sign * amount * part;
        }
    }

    /// Whether the host of a seat bears more for the same GPU.
    pub(crate) fn bears_more(&self, seat: &Seat, more: &Amounts) -> bool {
        (2..RESOURCES).all(|at| more[at] <= self.nodes[seat.node].left[at] * (1.0 + 1e-12) + 1e-9)
    }

    /// The node with least room left that still fits; over a node, whole nodes only.
    pub(crate) fn seat(&self, demand: &Amounts) -> Option<Vec<Seat>> {
        let (wanted, largest) = (demand[0] as usize, self.largest());
        let fits = |at: &&usize, gpus: usize| self.nodes[**at].bears(demand, gpus);
        let seat = |at: usize, gpus: usize| Seat { node: at, gpus: self.nodes[at].first_free(gpus) };
        if wanted <= largest {
            let mut fitting = self.by_free[wanted..].iter().flatten().filter(|at| fits(at, wanted));
            let node = if self.short.is_empty() {
                fitting.next()
            } else {
                let uneven = |at: &usize| self.unevenness(&self.nodes[*at], demand);
                fitting.min_by(|a, b| uneven(a).total_cmp(&uneven(b)))
            };
            return node.map(|node| vec![seat(*node, wanted)]);
        }
        let count = wanted / largest;
        if self.by_free[largest].len() < count {
            return None;
        }
        let whole = self.by_free[largest].iter().filter(|at| fits(at, largest));
        let seats: Vec<Seat> = whole.take(count).map(|at| seat(*at, largest)).collect();
        (seats.len() == count).then_some(seats)
    }
}

/// A job, or the two of a pair, with what they take together.
#[derive(Clone, Copy, Debug)]
struct Unit<'a> {
    jobs: [Option<usize>; 2],
    choice: Choice,
    pool: usize,
    demand: &'a Amounts,
    value: f64,
}

/// The nodes of every pool and who sits where.
pub(crate) struct Nodes<'a> {
    instance: &'a Instance<'a>,
    problem: &'a Problem,
    pools: Vec<PoolNodes>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) seats: Vec<Vec<Seat>>,
    /// What the choices are worth, less what is lost by those that keep their shape and had to leave their GPUs.
    pub(crate) value: f64,
}

impl<'a> Nodes<'a> {
    pub(crate) fn new(instance: &'a Instance<'a>) -> Self {
        let problem = &instance.problem;
        Self {
            instance,
            problem,
            pools: instance.cluster.pool.iter().map(PoolNodes::new).collect(),
            choices: vec![Choice::Waiting; problem.jobs()],
            seats: vec![Vec::new(); problem.jobs()],
            value: 0.0,
        }
    }

    /// Places the chosen columns on nodes that are empty yet, those that run where they are now, then fills what is left; returns how
    /// many chosen columns found no node at first.
    pub(crate) fn place(&mut self, chosen: &[Choice], dual: &Dual) -> usize {
        let failed = self.pack(chosen, dual, || 1.0);
        if failed > 0 && self.pools.iter().any(|pool| !pool.short.is_empty()) {
            let mut random = self.instance.options.seed.stream("packing", &[]);
            let nodes: usize = self.pools.iter().map(|pool| pool.nodes.len()).sum();
            for _ in 0..(WORK / (nodes * chosen.len()).max(1)).min(PACKINGS) {
                let mut other = Self::new(self.instance);
                other.pack(chosen, dual, || random.random_range(0.6..1.4));
                if other.value > self.value {
                    *self = other;
                }
            }
        }
        failed
    }

    /// Packs in the order of sizes, each times a factor.
    fn pack(&mut self, chosen: &[Choice], dual: &Dual, mut factor: impl FnMut() -> f64) -> usize {
        let (_, used) = self.problem.evaluate(chosen);
        for (pool, nodes) in self.pools.iter_mut().enumerate() {
            nodes.expect(&used[pool], &self.problem.capacity[pool]);
        }
        let mut units: Vec<(f64, f64, usize, Choice)> = Vec::new();
        for (job, choice) in chosen.iter().enumerate() {
            let Some(unit) = self.unit(job, *choice).filter(|unit| unit.jobs[0] == Some(job)) else {
                continue;
            };
            let pool = &self.pools[unit.pool];
            let size = pool.size(unit.demand);
            // Whole nodes go first in any case: they need empty ones.
            let size =
                if unit.demand[0] < pool.whole[0] { size * factor() } else { size + f64::from(u16::MAX) };
            units.push((size, unit.value, job, *choice));
        }
        units.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        if self.instance.knows_seats() {
            units.retain(|(_, _, job, choice)| !self.keep(*job, *choice));
        }
        let mut failed = 0;
        let mut unseated = Vec::new();
        for (_, value, job, choice) in units {
            if !self.take(job, choice) && !self.make_room(job, choice) {
                failed += 1;
                unseated.push((value, job, choice));
            }
        }
        self.push_out(unseated);
        if chosen.iter().enumerate().any(|(job, _)| self.choices[job] == Choice::Waiting) {
            self.fill(dual);
        }
        self.value -= self.lost_by_moving();
        failed
    }

    /// Seats waiting jobs with whatever still fits, best reduced value first; a waiting job may join a lone one.
    fn fill(&mut self, dual: &Dual) {
        let Dual { prices, surplus, .. } = dual;
        // What gives away more than is missing to the bound is in no better placement.
        let least = self.value - dual.bound;
        let mut order: Vec<(f64, usize, Choice)> = Vec::new();
        let most: Vec<f64> = self.pools.iter().map(|pool| pool.most() as f64).collect();
        if most.iter().any(|most| *most > 0.0) {
            for (job, columns) in self.problem.singles.iter().enumerate() {
                if self.choices[job] == Choice::Waiting {
                    let fits = |column: &Single| column.value > 0.0 && column.demand[0] <= most[column.pool];
                    for (at, column) in columns.iter().enumerate().filter(|(_, column)| fits(column)) {
                        let slack = column.reduced(prices) - surplus[job];
                        if slack >= least {
                            order.push((slack, job, Choice::Single(at)));
                        }
                    }
                }
            }
        }
        for (at, pair) in self.problem.pairs.iter().enumerate() {
            if self.choices[pair.a] == Choice::Waiting || self.choices[pair.b] == Choice::Waiting {
                let slack = pair.reduced(prices) - surplus[pair.a] - surplus[pair.b];
                if slack >= least {
                    order.push((slack, pair.a, Choice::Pair(at)));
                }
            }
        }
        order.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, job, choice) in order {
            match choice {
                Choice::Single(_) if self.choices[job] == Choice::Waiting => {
                    self.take(job, choice);
                }
                Choice::Pair(at) => self.join_or_take(at),
                _ => {}
            }
        }
    }

    fn join_or_take(&mut self, at: usize) {
        let problem = self.problem;
        let pair = &problem.pairs[at];
        match (self.choices[pair.a], self.choices[pair.b]) {
            (Choice::Waiting, Choice::Waiting) => {
                self.take(pair.a, Choice::Pair(at));
            }
            (Choice::Single(alone), Choice::Waiting) => self.join(at, pair.a, pair.b, alone),
            (Choice::Waiting, Choice::Single(alone)) => self.join(at, pair.b, pair.a, alone),
            _ => {}
        }
    }

    /// Lets `waiting` share the one GPU of `seated` where the pair is worth more and the node's host can bear it.
    fn join(&mut self, at: usize, seated: usize, waiting: usize, alone: usize) {
        let (pair, single) = (&self.problem.pairs[at], &self.problem.singles[seated][alone]);
        if single.pool != pair.pool || single.demand[0] > 1.0 || pair.value <= single.value {
            return;
        }
        let Some(seat) = self.seats[seated].first().cloned() else { return };
        let node = &mut self.pools[pair.pool].nodes[seat.node];
        let more = |resource: usize| pair.demand[resource] - single.demand[resource];
        if (2..RESOURCES).any(|resource| node.left[resource] < more(resource)) {
            return;
        }
        for resource in 2..RESOURCES {
            node.left[resource] -= more(resource);
        }
        self.value += pair.value - single.value;
        self.choices[seated] = Choice::Pair(at);
        self.choices[waiting] = Choice::Pair(at);
        self.seats[waiting] = vec![seat];
    }

    fn unit(&self, job: usize, choice: Choice) -> Option<Unit<'a>> {
        let problem = self.problem;
        match choice {
            Choice::Waiting => None,
            Choice::Single(at) => {
                let column = &problem.singles[job][at];
                Some(Unit {
                    jobs: [Some(job), None],
                    choice,
                    pool: column.pool,
                    demand: &column.demand,
                    value: column.value,
                })
            }
            Choice::Pair(at) => {
                let pair = &problem.pairs[at];
                Some(Unit {
                    jobs: [Some(pair.a), Some(pair.b)],
                    choice,
                    pool: pair.pool,
                    demand: &pair.demand,
                    value: pair.value,
                })
            }
        }
    }

    /// Puts the unit on seats that are free.
    fn settle(&mut self, unit: &Unit<'_>, seats: &[Seat]) {
        for seat in seats {
            self.pools[unit.pool].occupy(seat, unit.demand);
        }
        for job in unit.jobs.into_iter().flatten() {
            self.choices[job] = unit.choice;
            self.seats[job] = seats.to_vec();
        }
        self.value += unit.value;
    }

    fn take(&mut self, job: usize, choice: Choice) -> bool {
        let Some(unit) = self.unit(job, choice) else { return false };
        let Some(seats) = self.pools[unit.pool].seat(unit.demand) else { return false };
        self.settle(&unit, &seats);
        true
    }
}
