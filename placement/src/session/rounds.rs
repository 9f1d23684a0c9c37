//! All jobs of a session at once: their progress, and a whole solution that moves only whom it must.

use super::{Rank, Session};
use crate::Error;
use crate::allocate::Allocator;
use crate::jobs::{Current, Job, Jobs};
use crate::nodes::{PoolNodes, Seat};
use crate::pairing::PairTable;
use crate::placement::{Assignment, NodeGpus, Placement};
use crate::problem::{Choice, Single};
use crate::resources::RESOURCES;
use elastico_core::JobId;
use elastico_models::Profiles;
use std::collections::{BTreeMap, BTreeSet};

/// Jobs that left are forgotten when there are more of them than of those that are here, and at least so many.
const MOST_GONE: usize = 256;

impl<'a> Session<'a> {
    /// Tells how far a job has come: the steps that are left of it, and how long it has waited, the time that it ran not counted.
    ///
    /// Nobody is moved. The objective `srpt` weighs the job by both from now on: when a place becomes free, and in the next
    /// [`solve`](Self::solve).
    ///
    /// # Errors
    /// [`Error::Unknown`] where there is no such job, [`Error::Amount`] for a number that is negative or none.
    pub fn advance(&mut self, job: &str, work_steps_left: f64, waited_seconds: f64) -> Result<(), Error> {
        let at = self.find(job)?;
        for (field, value) in [("work_steps_left", work_steps_left), ("waited_seconds", waited_seconds)] {
            if !value.is_finite() || value < 0.0 {
                let (job, value) = (job.to_owned(), value.to_string());
                return Err(Error::Amount { job, field, value, rule: "it must be a number of at least 0" });
            }
        }
        let waits = self.choices[at] == Choice::Waiting;
        if waits {
            self.waiting.remove(&(Rank(self.surplus(at)), at));
        }
        self.jobs[at].work_steps = Some(work_steps_left);
        self.jobs[at].waited_seconds = waited_seconds;
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
            self.allocator.solve_warm(&jobs, self.profiles, self.table, Some(&self.warm), None)?;
        placement.left_out = left_out;
        self.warm = warm;
        self.table_of_prices = self.warm.prices.table(self.allocator.cluster());
        self.clear();
        self.restore_all(&placement.assignments);
        Ok(placement)
    }

    /// A session that begins with jobs, as after a restart of the scheduler: those that say by `current` how they run are treated
    /// as running, the others as waiting. Returns the placement of all.
    ///
    /// # Errors
    /// As [`Self::new`] and [`Self::solve`]; [`Error::Duplicate`] for two jobs of one name.
    pub fn resume(
        allocator: &'a Allocator,
        profiles: &'a Profiles,
        table: Option<&'a PairTable>,
        jobs: &Jobs,
    ) -> Result<(Self, Placement), Error> {
        let mut session = Self::new(allocator, profiles, table)?;
        let (placement, warm) = allocator.solve_warm(jobs, profiles, table, None, None)?;
        session.warm = warm;
        session.table_of_prices = session.warm.prices.table(allocator.cluster());
        for job in &jobs.job {
            if session.names.contains_key(&job.id) {
                return Err(Error::Duplicate { id: job.id.to_string() });
            }
            session.push(Job { current: None, ..job.clone() });
        }
        session.restore_all(&placement.assignments);
        Ok((session, placement))
    }

    fn restore_all(&mut self, assignments: &[Assignment]) {
        for assignment in assignments {
            self.restore(assignment);
        }
        let waits = |at: &usize| self.choices[*at] == Choice::Waiting;
        let waiting = self.names.values().copied().filter(waits).map(|at| (Rank(self.surplus(at)), at));
        self.waiting = waiting.collect();
    }

    /// Forgets jobs that left between two solutions, when they are many: a session may run for months.
    pub(super) fn forget_the_gone(&mut self) {
        if self.jobs.len() - self.names.len() <= self.names.len().max(MOST_GONE) {
            return;
        }
        let kept: Vec<(JobId, Choice, Vec<Seat>)> = self
            .names
            .iter()
            .map(|(name, at)| (name.clone(), self.choices[*at], self.seats[*at].clone()))
            .collect();
        let numbers: BTreeMap<usize, JobId> =
            self.names.iter().map(|(name, at)| (*at, name.clone())).collect();
        let pairs = self.instance.problem.pairs.clone();
        self.clear();
        for (name, choice, seats) in kept {
            let Some(&at) = self.names.get(&name) else { continue };
            if self.choices[at] != Choice::Waiting {
                continue;
            }
            let choice = match choice {
                Choice::Pair(pair) => {
                    let pair = &pairs[pair];
                    let [a, b] =
                        [pair.a, pair.b].map(|job| numbers.get(&job).and_then(|name| self.names.get(name)));
                    let (Some(&a), Some(&b)) = (a, b) else { continue };
                    self.pair(a, b, pair.pool, pair.value)
                }
                choice => choice,
            };
            self.occupy(at, choice, &seats);
        }
        self.restore_all(&[]);
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
