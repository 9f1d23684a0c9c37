//! All jobs of a session at once: their progress, and a whole solution that moves only whom it must.

use super::{Rank, Session};
use crate::Error;
use crate::jobs::{Current, Job, Jobs};
use crate::nodes::{PoolNodes, Seat};
use crate::placement::{Assignment, NodeGpus, Placement};
use crate::problem::{Choice, Single};
use crate::resources::RESOURCES;
use elastico_core::JobId;
use std::collections::BTreeSet;

/// Jobs that left are forgotten when there are more of them than of those that are here, and at least so many.
const MOST_GONE: usize = 256;

impl Session<'_> {
    /// Tells how far a job has come: the steps that are left of it, and how long it has waited, the time that it ran not counted.
    ///
    /// Nobody is moved. The objective `srpt` weighs the job by both from now on: when a place becomes free, and in the next
    /// [`solve`](Self::solve). Steps and seconds that are negative or no number count as 0.
    ///
    /// # Errors
    /// [`Error::Unknown`] where there is no such job.
    pub fn advance(&mut self, job: &str, work_steps_left: f64, waited_seconds: f64) -> Result<(), Error> {
        let at = self.find(job)?;
        let waits = self.choices[at] == Choice::Waiting;
        if waits {
            self.waiting.remove(&(Rank(self.surplus(at)), at));
        }
        self.jobs[at].work_steps = Some(work_steps_left.max(0.0));
        self.jobs[at].waited_seconds = waited_seconds.max(0.0);
        self.instance.reweigh(at, &self.jobs[at]);
        if let Choice::Pair(pair) = self.choices[at] {
            let pair = &self.instance.problem.pairs[pair];
            let worth = self.instance.pair_value(pair.a, pair.b, pair.pool);
            if let (Ok(value), Choice::Pair(pair)) = (worth, self.choices[at]) {
                self.instance.problem.pairs[pair].value = value;
            }
        }
        if waits {
            self.waiting.insert((Rank(self.surplus(at)), at));
        }
        Ok(())
    }

    /// Places all jobs anew, starting from the prices that are there.
    ///
    /// A job that keeps its shape keeps its GPUs too. It is moved within its pool only where somebody that was chosen finds no
    /// room otherwise and gains more than the restart costs; its assignment then says `restarts`. With the option `candidates`
    /// only so many of the waiting jobs are looked at, those that gain most at the present prices; the others go on waiting,
    /// are not listed, and `left_out` counts them.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn solve(&mut self) -> Result<Placement, Error> {
        let most = self.allocator.options().candidates.unwrap_or(usize::MAX);
        let mut here: Vec<usize> = self.waiting.iter().take(most).map(|(_, at)| *at).collect();
        let left_out = self.waiting.len() - here.len();
        here.extend(self.names.values().copied().filter(|at| self.choices[*at] != Choice::Waiting));
        here.sort_unstable();
        let with_current = |at: &usize| Job { current: self.current(*at), ..self.jobs[*at].clone() };
        let jobs = Jobs { job: here.iter().map(with_current).collect() };
        let (mut placement, warm) =
            self.allocator.solve_warm(&jobs, self.profiles, self.table, Some(&self.warm))?;
        placement.left_out = left_out;
        self.warm = warm;
        self.table_of_prices = self.warm.prices.table(self.allocator.cluster());
        self.clear();
        for assignment in &placement.assignments {
            self.restore(assignment);
        }
        let waits = |at: &usize| self.choices[*at] == Choice::Waiting;
        let waiting = self.names.values().copied().filter(waits).map(|at| (Rank(self.surplus(at)), at));
        self.waiting = waiting.collect();
        Ok(placement)
    }

    /// Nobody runs and nobody is ranked; jobs that left are forgotten, when they are many.
    fn clear(&mut self) {
        let pools = &self.allocator.cluster().pool;
        self.nodes = pools.iter().map(PoolNodes::new).collect();
        self.used = vec![[0.0; RESOURCES]; pools.len()];
        self.alone.clear();
        self.waiting.clear();
        self.instance.problem.pairs.clear();
        let gone = self.jobs.len() - self.names.len();
        if gone <= self.names.len().max(MOST_GONE) {
            self.choices.fill(Choice::Waiting);
            self.seats.iter_mut().for_each(Vec::clear);
            return;
        }
        let here: BTreeSet<usize> = self.names.values().copied().collect();
        let jobs = std::mem::take(&mut self.jobs).into_iter().enumerate();
        let jobs: Vec<Job> = jobs.filter(|(at, _)| here.contains(at)).map(|(_, job)| job).collect();
        self.instance.clear();
        self.names.clear();
        self.choices.clear();
        self.seats.clear();
        for job in jobs {
            self.push(job);
        }
    }

    fn restore(&mut self, assignment: &Assignment) {
        let Some(&at) = self.names.get(&assignment.job) else { return };
        if self.choices[at] != Choice::Waiting {
            return;
        }
        let Some(pool) = self.allocator.cluster().pool.iter().position(|pool| pool.id == assignment.pool)
        else {
            return;
        };
        let seats: Vec<Seat> = assignment
            .nodes
            .iter()
            .map(|node| Seat { node: node.node as usize, gpus: node.gpus.clone() })
            .collect();
        let other = assignment.beside.as_ref().and_then(|beside| self.names.get(&beside.job).copied());
        if let Some(other) = other {
            if let Ok(value) = self.instance.pair_value(at, other, pool) {
                let choice = self.pair(at, other, pool, value);
                self.occupy(at, choice, &seats);
            }
        } else {
            let family = self.instance.family(at);
            let (columns, shapes) = (&self.instance.problem.singles[at], &family.shapes);
            // Two shapes of as many GPUs may differ in their settings; one that was kept only because it ran is none of a new job.
            let same = |column: &Single| shapes[column.shape] == assignment.shape;
            let alike =
                |column: &Single| column.pool == pool && column.demand[0] as u32 == assignment.shape.gpus;
            let single = columns.iter().position(same).or_else(|| columns.iter().position(alike));
            if let Some(single) = single {
                self.occupy(at, Choice::Single(single), &seats);
            }
        }
    }

    /// How the job runs now, as the next solution must know it.
    fn current(&self, job: usize) -> Option<Current> {
        let family = self.instance.family(job);
        let (shape, beside): (_, Option<JobId>) = match self.choices[job] {
            Choice::Waiting => return None,
            Choice::Single(at) => (&family.shapes[self.instance.problem.singles[job][at].shape], None),
            Choice::Pair(at) => {
                let pair = &self.instance.problem.pairs[at];
                let other = pair.a + pair.b - job;
                let chosen = self.instance.pair_choice(job, other, pair.pool).ok()?;
                (&family.shapes[chosen.shapes[0]], Some(self.jobs[other].id.clone()))
            }
        };
        let nodes = self.seats[job].iter();
        let nodes = nodes.map(|seat| NodeGpus { node: seat.node as u32, gpus: seat.gpus.clone() });
        Some(Current {
            beside,
            nodes: nodes.collect(),
            settings: shape.settings.clone(),
            ..Current::new(shape.pool.clone(), shape.gpus)
        })
    }
}
