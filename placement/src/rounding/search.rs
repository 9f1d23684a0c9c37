//! Exact search of small neighbourhoods: branch and bound with the dual as the bound.

use super::{Column, Rounded, Rounder};
use crate::problem::Choice;
use crate::resources::RESOURCES;
use elastico_core::{Seed, Stream};
use rand::RngExt;

impl Rounder<'_> {
    /// Searches neighbourhoods exactly: first the closest calls, then those around jobs that give away most.
    pub(crate) fn search(&self, state: &mut Rounded, tolerance: f64, mut nodes: u64, seed: Seed) {
        let bound = self.bound;
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
