//! From prices to an integral solution: repair, fill, and an exact search of the close calls.

use crate::bundle::Answer;
use crate::problem::{Choice, PriceTable, Problem, Single, fits};
use crate::resources::{Amounts, RESOURCES};
use elastico_core::{Seed, Stream};
use rand::RngExt;

/// An integral solution and what it uses.
#[derive(Clone, Debug)]
pub(crate) struct Rounded {
    pub(crate) choices: Vec<Choice>,
    pub(crate) used: Vec<Amounts>,
    pub(crate) value: f64,
}

/// A column with its reduced value, in the order in which a greedy pass tries them.
#[derive(Clone, Copy, Debug)]
enum Column {
    Single(usize, usize),
    Pair(usize),
}

/// What the search may use.
pub(crate) struct Rounder<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) prices: &'a PriceTable,
    pub(crate) surplus: &'a [f64],
    /// Capacity per pool, perhaps less than the pool has.
    capacity: Vec<Amounts>,
    /// Per job: its pair columns by slack, the tightest first.
    near: Vec<Vec<(f64, usize)>>,
}

impl<'a> Rounder<'a> {
    pub(crate) fn new(
        problem: &'a Problem,
        prices: &'a PriceTable,
        surplus: &'a [f64],
        capacity: Vec<Amounts>,
    ) -> Self {
        let mut near: Vec<Vec<(f64, usize)>> = vec![Vec::new(); problem.jobs()];
        for (at, pair) in problem.pairs.iter().enumerate() {
            let slack = pair.reduced(prices) - surplus[pair.a] - surplus[pair.b];
            near[pair.a].push((slack, at));
            near[pair.b].push((slack, at));
        }
        for list in &mut near {
            list.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        }
        Self { problem, prices, surplus, capacity, near }
    }

    fn partner(&self, job: usize, pair: usize) -> usize {
        self.problem.pairs[pair].a + self.problem.pairs[pair].b - job
    }

    /// The most valuable column that pairs both in the pool.
    fn joins(&self, a: usize, b: usize, pool: usize) -> Option<usize> {
        let columns = self.near[a].iter().map(|(_, at)| *at);
        columns.into_iter().find(|at| self.partner(a, *at) == b && self.problem.pairs[*at].pool == pool)
    }

    fn demand(&self, job: usize, choice: Choice) -> Option<(usize, &Amounts, f64)> {
        match choice {
            Choice::Waiting => None,
            Choice::Single(at) => {
                let column = &self.problem.singles[job][at];
                Some((column.pool, &column.demand, column.value))
            }
            Choice::Pair(at) => {
                let column = &self.problem.pairs[at];
                Some((column.pool, &column.demand, column.value))
            }
        }
    }

    fn give(&self, state: &mut Rounded, job: usize, choice: Choice, sign: f64) {
        if let Some((pool, demand, value)) = self.demand(job, choice) {
            state.value += sign * value;
            for (used, amount) in state.used[pool].iter_mut().zip(demand) {
                *used += sign * amount;
            }
        }
    }

    /// Takes the job out; a partner is left waiting.
    fn release(&self, state: &mut Rounded, job: usize) -> Option<usize> {
        let choice = state.choices[job];
        self.give(state, job, choice, -1.0);
        state.choices[job] = Choice::Waiting;
        if let Choice::Pair(at) = choice {
            let column = &self.problem.pairs[at];
            let partner = column.a + column.b - job;
            state.choices[partner] = Choice::Waiting;
            return Some(partner);
        }
        None
    }

    fn set(&self, state: &mut Rounded, column: Column) {
        match column {
            Column::Single(job, at) => {
                state.choices[job] = Choice::Single(at);
                self.give(state, job, Choice::Single(at), 1.0);
            }
            Column::Pair(at) => {
                let pair = &self.problem.pairs[at];
                state.choices[pair.a] = Choice::Pair(at);
                state.choices[pair.b] = Choice::Pair(at);
                self.give(state, pair.a, Choice::Pair(at), 1.0);
            }
        }
    }

    fn room(&self, state: &Rounded, pool: usize, demand: &Amounts) -> bool {
        let mut sum = state.used[pool];
        sum.iter_mut().zip(demand).for_each(|(used, amount)| *used += amount);
        fits(&sum, &self.capacity[pool])
    }

    /// The job's most valuable single shape that fits.
    fn best_single(&self, state: &Rounded, job: usize) -> Option<usize> {
        let columns = self.problem.singles[job].iter().enumerate();
        columns
            .filter(|(_, column)| column.value > 0.0 && self.room(state, column.pool, &column.demand))
            .max_by(|a, b| {
                let net = |column: &Single| column.reduced(self.prices);
                net(a.1).total_cmp(&net(b.1)).then(b.0.cmp(&a.0))
            })
            .map(|(at, _)| at)
    }

    /// Finds the best place for a job that lost its own: alone, or with a job that waits or is alone.
    fn settle(&self, state: &mut Rounded, orphan: usize) {
        let single = self.best_single(state, orphan);
        let alone = single.map_or(-self.surplus[orphan], |at| {
            self.problem.singles[orphan][at].reduced(self.prices) - self.surplus[orphan]
        });
        let mut best = (alone, None);
        for &(slack, at) in &self.near[orphan] {
            let partner = self.partner(orphan, at);
            if !matches!(state.choices[partner], Choice::Pair(_)) {
                let score = slack + self.loss(state, partner);
                if score > best.0 {
                    best = (score, Some((partner, at)));
                }
            }
        }
        if let Some((partner, at)) = best.1 {
            let before = state.choices[partner];
            self.release(state, partner);
            let pair = &self.problem.pairs[at];
            if self.room(state, pair.pool, &pair.demand) {
                self.set(state, Column::Pair(at));
                return;
            }
            if let Choice::Single(at) = before {
                self.set(state, Column::Single(partner, at));
            }
        }
        if let Some(at) = single.filter(|at| {
            let column = &self.problem.singles[orphan][*at];
            self.room(state, column.pool, &column.demand)
        }) {
            self.set(state, Column::Single(orphan, at));
        }
    }

    fn order(&self) -> Vec<Column> {
        let mut all: Vec<(f64, Column)> = Vec::new();
        for (job, columns) in self.problem.singles.iter().enumerate() {
            for (at, column) in columns.iter().enumerate() {
                let slack = column.reduced(self.prices) - self.surplus[job];
                all.push((slack, Column::Single(job, at)));
            }
        }
        for (at, column) in self.problem.pairs.iter().enumerate() {
            let slack = column.reduced(self.prices) - self.surplus[column.a] - self.surplus[column.b];
            all.push((slack, Column::Pair(at)));
        }
        // A stable sort: equal slack keeps the order of the jobs.
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.into_iter().map(|(_, column)| column).collect()
    }

    /// A feasible solution from the oracle's choices.
    pub(crate) fn round(&self, answer: &Answer) -> Rounded {
        let order = self.order();
        let (value, used) = self.problem.evaluate(&answer.choices);
        let mut state = Rounded { choices: answer.choices.clone(), used, value };
        self.repair(&mut state);
        self.fill(&mut state, &order);
        let empty = Rounded {
            choices: vec![Choice::Waiting; self.problem.jobs()],
            used: vec![[0.0; RESOURCES]; self.problem.capacity.len()],
            value: 0.0,
        };
        let mut greedy = empty;
        self.fill(&mut greedy, &order);
        if greedy.value > state.value { greedy } else { state }
    }

    /// Gives up what loses least per relief until nothing is over capacity.
    fn repair(&self, state: &mut Rounded) {
        loop {
            let over = state.used.iter().enumerate().find_map(|(pool, used)| {
                let capacity = &self.capacity[pool];
                (0..RESOURCES)
                    .find(|at| used[*at] > capacity[*at] * (1.0 + 1e-9) + 1e-9)
                    .map(|resource| (pool, resource))
            });
            let Some((pool, resource)) = over else { return };
            let mut best: Option<(f64, usize, Choice)> = None;
            for (job, choice) in state.choices.iter().enumerate() {
                let Some((of, demand, value)) = self.demand(job, *choice) else { continue };
                if of != pool || demand[resource] <= 0.0 {
                    continue;
                }
                let net = value - crate::resources::cost(&self.prices[pool], demand);
                let mut offer = |loss: f64, relief: f64, to: Choice| {
                    let score = loss.max(0.0) / relief;
                    if relief > 0.0 && best.as_ref().is_none_or(|best| score < best.0) {
                        best = Some((score, job, to));
                    }
                };
                offer(net, demand[resource], Choice::Waiting);
                if let Choice::Single(current) = choice {
                    for (at, column) in self.problem.singles[job].iter().enumerate() {
                        if at == *current
                            || (column.pool != pool && !self.room(state, column.pool, &column.demand))
                        {
                            continue;
                        }
                        let left = if column.pool == pool { column.demand[resource] } else { 0.0 };
                        let other = column.reduced(self.prices);
                        offer(net - other, demand[resource] - left, Choice::Single(at));
                    }
                }
            }
            let Some((_, job, to)) = best else { return };
            self.release(state, job);
            if let Choice::Single(at) = to {
                self.set(state, Column::Single(job, at));
            }
        }
    }

    /// Passes over all columns and takes each that fits and gains, until a pass finds none.
    fn fill(&self, state: &mut Rounded, order: &[Column]) {
        for _ in 0..6 {
            let mut changed = false;
            let losses = (0..self.problem.jobs()).map(|job| self.loss(state, job));
            let most_lost = losses.fold(0.0, f64::max);
            for &column in order {
                changed |= self.try_column(state, column, most_lost);
            }
            if !changed {
                return;
            }
        }
    }

    /// `most_lost` bounds what any one job gives away at present.
    fn try_column(&self, state: &mut Rounded, column: Column, most_lost: f64) -> bool {
        let (pool, demand, value, jobs) = match column {
            Column::Single(job, at) => {
                let single = &self.problem.singles[job][at];
                (single.pool, &single.demand, single.value, [job, job])
            }
            Column::Pair(at) => {
                let pair = &self.problem.pairs[at];
                (pair.pool, &pair.demand, pair.value, [pair.a, pair.b])
            }
        };
        let mut freed = state.used[pool];
        let mut lost = 0.0;
        let mut orphans = [None, None];
        let together = matches!(state.choices[jobs[0]], Choice::Pair(_))
            && state.choices[jobs[0]] == state.choices[jobs[1]];
        let count = if together || jobs[0] == jobs[1] { 1 } else { 2 };
        for (side, &job) in jobs.iter().enumerate().take(count) {
            if let Some((of, amounts, worth)) = self.demand(job, state.choices[job]) {
                lost += worth;
                if of == pool {
                    freed.iter_mut().zip(amounts).for_each(|(used, amount)| *used -= amount);
                }
                if let Choice::Pair(at) = state.choices[job] {
                    let other = self.problem.pairs[at].a + self.problem.pairs[at].b - job;
                    if !jobs.contains(&other) {
                        orphans[side] = Some(other);
                    }
                }
            }
        }
        let most_back: f64 = orphans
            .iter()
            .flatten()
            .map(|job| self.problem.singles[*job].iter().map(|single| single.value).fold(0.0, f64::max))
            .sum();
        // An orphan may take up a job that gives away more than the rest of the change does.
        let widens = orphans.iter().any(Option::is_some) && {
            let slack = match column {
                Column::Single(job, at) => {
                    self.problem.singles[job][at].reduced(self.prices) - self.surplus[job]
                }
                Column::Pair(at) => {
                    let pair = &self.problem.pairs[at];
                    pair.reduced(self.prices) - self.surplus[pair.a] - self.surplus[pair.b]
                }
            };
            let losses: f64 = jobs.iter().take(count).map(|job| self.loss(state, *job)).sum();
            losses + slack + most_lost > 0.0
        };
        let least = 1e-12 * value.abs();
        if value + most_back <= lost + least && !widens {
            return false;
        }
        freed.iter_mut().zip(demand).for_each(|(used, amount)| *used += amount);
        if !fits(&freed, &self.capacity[pool]) {
            return false;
        }
        if orphans.iter().all(Option::is_none) {
            self.release(state, jobs[0]);
            self.release(state, jobs[1]);
            self.set(state, column);
            return true;
        }
        let mut trial = state.clone();
        self.release(&mut trial, jobs[0]);
        self.release(&mut trial, jobs[1]);
        self.set(&mut trial, column);
        // Two broken pairs leave two jobs that may suit each other: a 2-opt step.
        if let [Some(a), Some(b)] = orphans
            && let Some(at) = self.joins(a, b, pool)
            && self.room(&trial, pool, &self.problem.pairs[at].demand)
        {
            self.set(&mut trial, Column::Pair(at));
            orphans = [None, None];
        }
        for orphan in orphans.into_iter().flatten() {
            // The first orphan may have taken up the second.
            if trial.choices[orphan] == Choice::Waiting {
                self.settle(&mut trial, orphan);
            }
        }
        if trial.value > state.value + least {
            *state = trial;
            return true;
        }
        false
    }

    /// Searches neighbourhoods exactly: first the closest calls, then those around jobs that give away most.
    pub(crate) fn search(&self, state: &mut Rounded, bound: f64, tolerance: f64, mut nodes: u64, seed: Seed) {
        let useful: Vec<usize> =
            (0..self.problem.jobs()).filter(|job| !self.problem.singles[*job].is_empty()).collect();
        let mut random = seed.stream("placement search", &[]);
        let size = 40.min(useful.len());
        let mut round = 0_u32;
        while nodes > 0 && size > 0 && bound - state.value > tolerance * bound && round < 2_000 {
            let mut core: Vec<usize> = if round == 0 {
                let mut ties: Vec<(f64, usize)> = useful.iter().map(|job| (self.tie(*job), *job)).collect();
                ties.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                ties.into_iter().take(size).map(|(_, job)| job).collect()
            } else {
                self.neighbourhood(state, &useful, &mut random)
            };
            // Who shares with one of them is searched too, so that a pair can be broken.
            let partners: Vec<usize> = core
                .iter()
                .filter_map(|job| match state.choices[*job] {
                    Choice::Pair(at) => Some(self.partner(*job, at)),
                    _ => None,
                })
                .collect();
            core.extend(partners);
            core.sort_unstable();
            core.dedup();
            let budget = if round == 0 { nodes / 4 + 1 } else { 2_000.min(nodes) };
            let (visited, complete) = self.search_core(state, &core, budget);
            nodes = nodes.saturating_sub(visited.max(50));
            if complete && core.len() == useful.len() {
                return;
            }
            round += 1;
        }
    }

    /// What the job's present column gives away of the bound.
    fn loss(&self, state: &Rounded, job: usize) -> f64 {
        match state.choices[job] {
            Choice::Waiting => self.surplus[job],
            Choice::Single(at) => self.surplus[job] - self.problem.singles[job][at].reduced(self.prices),
            Choice::Pair(at) => {
                let pair = &self.problem.pairs[at];
                self.surplus[pair.a] + self.surplus[pair.b] - pair.reduced(self.prices)
            }
        }
    }

    /// Jobs around one that gives away much: those that would suit it, who they are with now, and some others.
    fn neighbourhood(&self, state: &Rounded, useful: &[usize], random: &mut Stream) -> Vec<usize> {
        let draw = |random: &mut Stream| useful[random.random_range(0..useful.len())];
        // The worst of a few, so that the same job is not searched over and over.
        let start = (0..6)
            .map(|_| draw(random))
            .max_by(|a, b| self.loss(state, *a).total_cmp(&self.loss(state, *b)).then(b.cmp(a)));
        let wanted = random.random_range(8..22_usize).min(useful.len());
        let mut core: Vec<usize> = start.into_iter().collect();
        let mut at = 0;
        while at < core.len() && core.len() < wanted {
            let job = core[at];
            let suits = self.near[job].iter().take(4).map(|(_, pair)| self.partner(job, *pair));
            let with = match state.choices[job] {
                Choice::Pair(pair) => Some(self.partner(job, pair)),
                _ => None,
            };
            for other in with.into_iter().chain(suits) {
                if !core.contains(&other) {
                    core.push(other);
                }
            }
            at += 1;
        }
        core.truncate(wanted);
        for _ in 0..4 {
            let other = draw(random);
            if !core.contains(&other) {
                core.push(other);
            }
        }
        core
    }

    /// How close the job's second-best column is to its best.
    fn tie(&self, job: usize) -> f64 {
        let mut reduced: Vec<f64> =
            self.problem.singles[job].iter().map(|column| column.reduced(self.prices)).chain([0.0]).collect();
        reduced.sort_by(|a, b| b.total_cmp(a));
        let best = self.surplus[job].max(reduced[0]);
        reduced.iter().map(|reduced| best - reduced).find(|gap| *gap > 1e-12 * best.abs()).unwrap_or(0.0)
    }

    /// Branch and bound over the jobs of the core, everyone else staying. Returns visited nodes and whether complete.
    fn search_core(&self, state: &mut Rounded, core: &[usize], budget: u64) -> (u64, bool) {
        let mut base = state.clone();
        for job in core {
            self.release(&mut base, *job);
        }
        let mut rank = vec![usize::MAX; self.problem.jobs()];
        for (at, job) in core.iter().enumerate() {
            rank[*job] = at;
        }
        let mut pairs: Vec<Vec<(f64, usize)>> = vec![Vec::new(); core.len()];
        for (at, pair) in self.problem.pairs.iter().enumerate() {
            let (a, b) = (rank[pair.a], rank[pair.b]);
            if a != usize::MAX && b != usize::MAX {
                let slack = pair.reduced(self.prices) - self.surplus[pair.a] - self.surplus[pair.b];
                pairs[a.min(b)].push((slack, at));
            }
        }
        // Options of each job by how little of the bound they give away.
        let options: Vec<Vec<(f64, Option<Column>)>> = core
            .iter()
            .zip(pairs)
            .map(|(job, pairs)| {
                let singles = self.problem.singles[*job].iter().enumerate().map(|(at, column)| {
                    let slack = column.reduced(self.prices) - self.surplus[*job];
                    (slack, Some(Column::Single(*job, at)))
                });
                let pairs = pairs.into_iter().map(|(slack, at)| (slack, Some(Column::Pair(at))));
                let mut all: Vec<_> = singles.chain(pairs).chain([(-self.surplus[*job], None)]).collect();
                all.sort_by(|a, b| b.0.total_cmp(&a.0));
                all
            })
            .collect();
        let spare: f64 = self
            .prices
            .iter()
            .enumerate()
            .map(|(pool, prices)| {
                let of = |at: usize| {
                    if prices[at] > 0.0 {
                        prices[at] * (self.capacity[pool][at] - base.used[pool][at])
                    } else {
                        0.0
                    }
                };
                (0..RESOURCES).map(of).sum::<f64>()
            })
            .sum();
        let most = base.value + spare + core.iter().map(|job| self.surplus[*job]).sum::<f64>();
        let mut search = Search {
            rounder: self,
            core,
            options: &options,
            best: state.clone(),
            left: budget,
            improved: false,
        };
        search.descend(&mut base, 0, most);
        let visited = budget - search.left;
        let complete = search.left > 0;
        if search.improved {
            *state = search.best;
        }
        (visited, complete)
    }
}

struct Search<'a> {
    rounder: &'a Rounder<'a>,
    core: &'a [usize],
    options: &'a [Vec<(f64, Option<Column>)>],
    best: Rounded,
    left: u64,
    improved: bool,
}

impl Search<'_> {
    /// `most` bounds what the rest of this branch can reach.
    fn descend(&mut self, state: &mut Rounded, depth: usize, most: f64) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let threshold = self.best.value + 1e-10 * self.best.value.abs() + 1e-12;
        if depth == self.core.len() {
            if state.value > threshold {
                self.best = state.clone();
                self.improved = true;
            }
            return;
        }
        if most <= threshold {
            return;
        }
        let job = self.core[depth];
        if state.choices[job] != Choice::Waiting {
            self.descend(state, depth + 1, most);
            return;
        }
        for (slack, column) in &self.options[depth] {
            let most = most + slack;
            if most <= self.best.value + 1e-10 * self.best.value.abs() + 1e-12 || self.left == 0 {
                return;
            }
            match *column {
                None => self.descend(state, depth + 1, most),
                Some(column) => {
                    let (pool, demand, free) = match column {
                        Column::Single(job, at) => {
                            let single = &self.rounder.problem.singles[job][at];
                            (single.pool, &single.demand, true)
                        }
                        Column::Pair(at) => {
                            let pair = &self.rounder.problem.pairs[at];
                            let other = pair.a + pair.b - job;
                            (pair.pool, &pair.demand, state.choices[other] == Choice::Waiting)
                        }
                    };
                    if free && self.rounder.room(state, pool, demand) {
                        self.rounder.set(state, column);
                        self.descend(state, depth + 1, most);
                        self.rounder.release(state, job);
                    }
                }
            }
        }
    }
}
