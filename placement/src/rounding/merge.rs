//! Parts of other solutions that make one better.
//!
//! At the best prices several solutions are equally good, and each uses more or less than there is. Where two of them differ,
//! the jobs fall into groups that hang together by their pairs; any group can be taken over alone. Groups together use up
//! what is left to the last slot, at almost no loss: this is how the fractional optimum, a mean of these solutions, becomes whole.

use super::{Rounded, Rounder};
use crate::problem::{Choice, fits};
use crate::resources::{Amounts, RESOURCES};

/// Groups among which two are looked for that only together fit and gain.
const MOST_PAIRED: usize = 300;

/// Jobs that change together, and what that brings.
struct Group {
    jobs: Vec<usize>,
    value: f64,
    used: Vec<Amounts>,
}

impl Rounder<'_> {
    /// The present solution, changed only where that gains: first as far as it fits, then with groups of the one that was found.
    ///
    /// Where it may be worth less by `within`, these groups are taken over only where it would be worth less than that, so that
    /// nobody changes for a gain that no other search would confirm.
    pub(crate) fn keep(&self, present: &[Choice], found: &Rounded, within: f64) -> Rounded {
        let (value, used) = self.problem.evaluate(present);
        let mut state = Rounded { choices: present.to_vec(), used, value };
        self.repair(&mut state);
        if within <= 0.0 {
            self.merge(&mut state, std::slice::from_ref(&found.choices));
            if state.value >= found.value {
                return state;
            }
        }
        let order = self.order(state.value);
        self.fill(&mut state, &order);
        if state.value < found.value - within {
            self.merge(&mut state, std::slice::from_ref(&found.choices));
        }
        state
    }

    /// Takes groups of the others over until none gains.
    pub(super) fn merge(&self, state: &mut Rounded, others: &[Vec<Choice>]) {
        for _ in 0..4 {
            let before = state.value;
            for other in others.iter().rev() {
                self.merge_one(state, other);
            }
            if state.value <= before {
                return;
            }
        }
    }

    fn merge_one(&self, state: &mut Rounded, other: &[Choice]) {
        let mut groups = self.groups(state, other);
        let gain = |group: &Group| group.value;
        groups.sort_by(|a, b| gain(b).total_cmp(&gain(a)).then(a.jobs.cmp(&b.jobs)));
        let mut left = Vec::new();
        for group in groups {
            if group.value > 0.0 && self.bears(state, &[&group]) {
                Self::take_over(state, &group, other);
            } else {
                left.push(group);
            }
        }
        left.sort_by(|a, b| self.net(b).total_cmp(&self.net(a)).then(a.jobs.cmp(&b.jobs)));
        left.truncate(MOST_PAIRED);
        // One that brings more than there is room for, with one that makes room.
        let mut taken = vec![false; left.len()];
        for first in 0..left.len() {
            if taken[first] || left[first].value <= 0.0 {
                continue;
            }
            let least = 1e-12 * state.value.abs();
            let with = |second: &usize| {
                !taken[*second]
                    && *second != first
                    && left[first].value + left[*second].value > least
                    && self.bears(state, &[&left[first], &left[*second]])
            };
            let second = (0..left.len())
                .filter(with)
                .max_by(|a, b| left[*a].value.total_cmp(&left[*b].value).then(b.cmp(a)));
            if let Some(second) = second {
                for group in [first, second] {
                    Self::take_over(state, &left[group], other);
                    taken[group] = true;
                }
            }
        }
    }

    /// What a group brings, less the price of what it uses.
    fn net(&self, group: &Group) -> f64 {
        let cost =
            group.used.iter().zip(self.prices).map(|(used, prices)| {
                used.iter().zip(prices).map(|(amount, price)| amount * price).sum::<f64>()
            });
        group.value - cost.sum::<f64>()
    }

    fn bears(&self, state: &Rounded, groups: &[&Group]) -> bool {
        state.used.iter().enumerate().all(|(pool, used)| {
            let mut sum = *used;
            for group in groups {
                sum.iter_mut().zip(&group.used[pool]).for_each(|(sum, amount)| *sum += amount);
            }
            fits(&sum, &self.capacity[pool])
        })
    }

    fn take_over(state: &mut Rounded, group: &Group, other: &[Choice]) {
        for job in &group.jobs {
            state.choices[*job] = other[*job];
        }
        state.value += group.value;
        for (used, change) in state.used.iter_mut().zip(&group.used) {
            used.iter_mut().zip(change).for_each(|(used, amount)| *used += amount);
        }
    }

    /// The jobs with another choice, by what hangs together.
    fn groups(&self, state: &Rounded, other: &[Choice]) -> Vec<Group> {
        let jobs = self.problem.jobs();
        let mut group_of = vec![usize::MAX; jobs];
        let mut groups = Vec::new();
        for root in 0..jobs {
            if state.choices[root] == other[root] || group_of[root] != usize::MAX {
                continue;
            }
            let mut group =
                Group { jobs: vec![root], value: 0.0, used: vec![[0.0; RESOURCES]; self.capacity.len()] };
            group_of[root] = groups.len();
            let mut at = 0;
            while at < group.jobs.len() {
                let job = group.jobs[at];
                for (choice, sign) in [(state.choices[job], -1.0), (other[job], 1.0)] {
                    if let Choice::Pair(pair) = choice {
                        let partner = self.partner(job, pair);
                        if group_of[partner] == usize::MAX {
                            group_of[partner] = groups.len();
                            group.jobs.push(partner);
                        }
                        // Both sides are in the group; the pair counts once.
                        if self.problem.pairs[pair].a != job {
                            continue;
                        }
                    }
                    if let Some((pool, demand, value)) = self.demand(job, choice) {
                        group.value += sign * value;
                        let used = group.used[pool].iter_mut().zip(demand);
                        used.for_each(|(used, amount)| *used += sign * amount);
                    }
                }
                at += 1;
            }
            groups.push(group);
        }
        groups
    }
}
