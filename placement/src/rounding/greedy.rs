//! Passes over the columns: giving up what is over capacity, taking what fits and gains.

use super::{Column, Rounded, Rounder};
use crate::problem::{Choice, fits};
use crate::resources::{RESOURCES, cost};

impl Rounder<'_> {
    /// Gives up what loses least per relief until nothing is over capacity.
    pub(super) fn repair(&self, state: &mut Rounded) {
        let over = |state: &Rounded, pool: usize, resource: usize| {
            state.used[pool][resource] > self.capacity[pool][resource] * (1.0 + 1e-9) + 1e-9
        };
        loop {
            let mut all = (0..state.used.len()).flat_map(|pool| (0..RESOURCES).map(move |at| (pool, at)));
            let Some((pool, resource)) = all.find(|(pool, at)| over(state, *pool, *at)) else { return };
            let mut offers: Vec<(f64, usize, Choice)> =
                (0..self.problem.jobs()).filter_map(|job| self.relief(state, job, pool, resource)).collect();
            offers.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            for (_, job, to) in offers {
                if !over(state, pool, resource) {
                    break;
                }
                // A partner that was left waiting has nothing to give, and a place elsewhere may be gone.
                if state.choices[job] == Choice::Waiting {
                    continue;
                }
                self.release(state, job);
                if let Choice::Single(at) = to {
                    let column = &self.problem.singles[job][at];
                    if column.pool == pool || self.room(state, column.pool, &column.demand) {
                        self.set(state, Column::Single(job, at));
                    }
                }
            }
        }
    }

    /// What the job can give up of a resource of a pool at the least loss per relief, and for what.
    fn relief(
        &self,
        state: &Rounded,
        job: usize,
        pool: usize,
        resource: usize,
    ) -> Option<(f64, usize, Choice)> {
        let (of, demand, value) = self.demand(job, state.choices[job])?;
        if of != pool || demand[resource] <= 0.0 {
            return None;
        }
        let net = value - cost(&self.prices[pool], demand);
        let mut best = (net.max(0.0) / demand[resource], job, Choice::Waiting);
        if let Choice::Single(current) = state.choices[job] {
            for (at, column) in self.problem.singles[job].iter().enumerate() {
                if at == current || (column.pool != pool && !self.room(state, column.pool, &column.demand)) {
                    continue;
                }
                let relief =
                    demand[resource] - if column.pool == pool { column.demand[resource] } else { 0.0 };
                let score = (net - column.reduced(self.prices)).max(0.0) / relief;
                if relief > 0.0 && score < best.0 {
                    best = (score, job, Choice::Single(at));
                }
            }
        }
        Some(best)
    }

    /// Passes over all columns and takes each that fits and gains, until a pass finds none.
    pub(super) fn fill(&self, state: &mut Rounded, order: &[Column]) {
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

    /// Whether the GPUs alone forbid the column: what most columns of a long queue fail at.
    fn lacks_gpus(&self, state: &Rounded, column: Column) -> bool {
        let (pool, gpus, jobs) = match column {
            Column::Single(job, at) => {
                let single = &self.problem.singles[job][at];
                (single.pool, single.demand[0], [job, job])
            }
            Column::Pair(at) => {
                let pair = &self.problem.pairs[at];
                (pair.pool, pair.demand[0], [pair.a, pair.b])
            }
        };
        let waits = |job: usize| state.choices[job] == Choice::Waiting;
        waits(jobs[0]) && waits(jobs[1]) && state.used[pool][0] + gpus > self.capacity[pool][0] + 1e-6
    }

    /// `most_lost` bounds what any one job gives away at present.
    fn try_column(&self, state: &mut Rounded, column: Column, most_lost: f64) -> bool {
        if self.lacks_gpus(state, column) {
            return false;
        }
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
}
