//! From prices to an integral solution: repair, fill, and an exact search of the close calls.

use crate::bundle::Answer;
use crate::dual::Dual;
use crate::problem::{Choice, PriceTable, Problem, Single, fits};
use crate::resources::{Amounts, RESOURCES};
use elastico_core::parallel;

mod greedy;
mod merge;
mod search;

/// An integral solution and what it uses.
#[derive(Clone, Debug)]
pub(crate) struct Rounded {
    pub(crate) choices: Vec<Choice>,
    pub(crate) used: Vec<Amounts>,
    pub(crate) value: f64,
}

/// A column with its reduced value, in the order in which a greedy pass tries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    Single(usize, usize),
    Pair(usize),
}

/// Jobs that a thread looks at together.
const CHUNK: usize = 2_048;

/// The gap from which on another start is not tried.
const CLOSE: f64 = 1e-4;

/// What the search may use.
pub(crate) struct Rounder<'a> {
    pub(crate) problem: &'a Problem,
    prices: &'a PriceTable,
    surplus: &'a [f64],
    bound: f64,
    /// Capacity per pool, perhaps less than the pool has.
    capacity: Vec<Amounts>,
    /// Per job: its pair columns by slack, the tightest first.
    near: Vec<Vec<(f64, usize)>>,
}

impl<'a> Rounder<'a> {
    pub(crate) fn new(problem: &'a Problem, dual: &'a Dual, capacity: Vec<Amounts>) -> Self {
        let (prices, surplus) = (&dual.prices, &dual.surplus[..]);
        let mut near: Vec<Vec<(f64, usize)>> = vec![Vec::new(); problem.jobs()];
        for (at, pair) in problem.pairs.iter().enumerate() {
            let slack = pair.reduced(prices) - surplus[pair.a] - surplus[pair.b];
            near[pair.a].push((slack, at));
            near[pair.b].push((slack, at));
        }
        for list in &mut near {
            list.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        }
        Self { problem, prices, surplus, bound: dual.bound, capacity, near }
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

    /// The columns that may be in a solution worth more than `value`, the least slack first: a solution with a column that gives
    /// away more of the bound than that is worth less (variable fixing by reduced costs).
    fn order(&self, value: f64) -> Vec<Column> {
        let least = value - self.bound - 1e-9 * self.bound.abs();
        let singles = parallel::chunks(self.problem.jobs(), CHUNK, |jobs| {
            let mut found = Vec::new();
            for job in jobs {
                for (at, column) in self.problem.singles[job].iter().enumerate() {
                    let slack = column.reduced(self.prices) - self.surplus[job];
                    if slack >= least {
                        found.push((slack, Column::Single(job, at)));
                    }
                }
            }
            found
        });
        let mut all: Vec<(f64, Column)> = singles.concat();
        for (at, column) in self.problem.pairs.iter().enumerate() {
            let slack = column.reduced(self.prices) - self.surplus[column.a] - self.surplus[column.b];
            if slack >= least {
                all.push((slack, Column::Pair(at)));
            }
        }
        // The rest of a long queue gives away more than any of those that could take part.
        let most = 2 * self.problem.jobs() + 10_000;
        if all.len() > most {
            all.select_nth_unstable_by(most, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            all.truncate(most);
        }
        all.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        all.into_iter().map(|(_, column)| column).collect()
    }

    /// A feasible solution from the oracle's choices, and what it chose at other prices.
    pub(crate) fn round(&self, answer: &Answer, others: &[Vec<Choice>]) -> Rounded {
        let (value, used) = self.problem.evaluate(&answer.choices);
        let mut state = Rounded { choices: answer.choices.clone(), used, value };
        self.repair(&mut state);
        self.merge(&mut state, others);
        let order = self.order(state.value);
        self.fill(&mut state, &order);
        if self.bound - state.value <= CLOSE * self.bound {
            return state;
        }
        let empty = Rounded {
            choices: vec![Choice::Waiting; self.problem.jobs()],
            used: vec![[0.0; RESOURCES]; self.problem.capacity.len()],
            value: 0.0,
        };
        let mut greedy = empty;
        self.fill(&mut greedy, &order);
        let mut best = if greedy.value > state.value { greedy } else { state };
        self.merge(&mut best, others);
        best
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
}
