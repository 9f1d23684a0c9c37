//! A cluster that is kept: jobs come and go one at a time, and each is answered at once.

mod answer;
mod rounds;

pub use answer::{SESSION_SCHEMA, SessionAnswer};

use crate::allocate::Allocator;
use crate::instance::Instance;
use crate::jobs::Job;
use crate::nodes::{PoolNodes, Seat};
use crate::pairing::PairTable;
use crate::placement::{Assignment, Waiting};
use crate::problem::{Choice, PriceTable};
use crate::report::Teller;
use crate::resources::{Amounts, RESOURCES};
use crate::warm::Warm;
use crate::{Error, Prices};
use elastico_core::JobId;
use elastico_models::Profiles;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// It runs, or runs otherwise than before.
    Runs(Box<Assignment>),
    /// It waits.
    Waits(Waiting),
}

/// Jobs on a cluster, placed as they come at the prices of the last full solution.
///
/// A new job takes the shape that is worth most at these prices and for which there is room, alone or beside a job that has a
/// GPU for itself; nobody else is moved. When a job ends, its co-runner keeps the GPU, and waiting jobs move up. Prices
/// move little from event to event (with 20 % of the jobs exchanged the old ones are within 0.3 % of the new bound), so
/// [`solve`](Self::solve) is for now and then: it places all jobs anew and says who moves. [`advance`](Self::advance) tells
/// it before how far the jobs have come.
///
/// The same events in the same order give the same answers.
pub struct Session<'a> {
    allocator: &'a Allocator,
    profiles: &'a Profiles,
    table: Option<&'a PairTable>,
    instance: Instance<'a>,
    warm: Warm,
    table_of_prices: PriceTable,
    nodes: Vec<PoolNodes>,
    used: Vec<Amounts>,
    jobs: Vec<Job>,
    choices: Vec<Choice>,
    seats: Vec<Vec<Seat>>,
    /// Jobs that are here, by name.
    names: BTreeMap<JobId, usize>,
    /// Jobs that have one GPU for themselves.
    alone: BTreeSet<usize>,
    /// Jobs that wait, those that gain most at the prices first.
    waiting: BTreeSet<(Rank, usize)>,
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("jobs", &self.names.len())
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

/// Orders by falling surplus.
#[derive(Clone, Copy, PartialEq)]
struct Rank(f64);

impl Eq for Rank {}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0)
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Where a job may start.
enum Place {
    Alone { single: usize },
    Beside { other: usize, pool: usize, value: f64 },
}

impl<'a> Session<'a> {
    /// Waiting jobs that are tried when room was made, the best first.
    const MOST_TRIES: usize = 64;

    /// A session without jobs; prices are zero until [`solve`](Self::solve).
    ///
    /// `table` answers for pairs of the workloads that it knows; all others run alone.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn new(
        allocator: &'a Allocator,
        profiles: &'a Profiles,
        table: Option<&'a PairTable>,
    ) -> Result<Self, Error> {
        allocator.options().check()?;
        let instance = Instance::open(allocator.cluster(), allocator.options(), profiles, table);
        let pools = &allocator.cluster().pool;
        Ok(Self {
            allocator,
            profiles,
            table,
            instance,
            warm: Warm::default(),
            table_of_prices: vec![[0.0; RESOURCES]; pools.len()],
            nodes: pools.iter().map(PoolNodes::new).collect(),
            used: vec![[0.0; RESOURCES]; pools.len()],
            jobs: Vec::new(),
            choices: Vec::new(),
            seats: Vec::new(),
            names: BTreeMap::new(),
            alone: BTreeSet::new(),
            waiting: BTreeSet::new(),
        })
    }

    /// The prices of the last full solution.
    pub const fn prices(&self) -> &Prices {
        &self.warm.prices
    }

    /// Jobs that are here, running or waiting.
    pub fn jobs(&self) -> usize {
        self.names.len()
    }

    /// A job comes. Nobody is moved for it. Returns what becomes of it, and after it its co-runner, where it joins one: that job
    /// goes on running, slower and under the sharing mode of the pair.
    ///
    /// # Errors
    /// [`Error::Duplicate`] for the name of a job that is here already, [`Error::Job`] where the objective asks for what it does
    /// not say, [`Error::Amount`] for a job that says that it runs: [`Self::resume`] takes these.
    pub fn submit(&mut self, job: Job) -> Result<Vec<Decision>, Error> {
        if self.names.contains_key(&job.id) {
            return Err(Error::Duplicate { id: job.id.to_string() });
        }
        if let Some(current) = &job.current {
            return Err(Error::Amount {
                job: job.id.to_string(),
                field: "current",
                value: format!("{} of {}", current.gpus, current.pool),
                rule: "a job that comes does not run yet; those that run are given at the start",
            });
        }
        self.allocator.options().objective.check_jobs(std::slice::from_ref(&job))?;
        let at = self.push(job);
        Ok(if self.start(at) {
            let changed = std::iter::once(at).chain(self.co_runner(at));
            changed.map(|job| self.runs(job)).collect()
        } else {
            let waiting = self.teller().wait(&self.used, at);
            self.waiting.insert((Rank(self.surplus(at)), at));
            vec![Decision::Waits(waiting.arriving())]
        })
    }

    /// Who is on the same GPU.
    fn co_runner(&self, job: usize) -> Option<usize> {
        let Choice::Pair(at) = self.choices[job] else { return None };
        let pair = &self.instance.problem.pairs[at];
        Some(pair.a + pair.b - job)
    }

    /// A job ends, or is withdrawn. Returns who runs otherwise because of it: its co-runner, and those that waited.
    ///
    /// # Errors
    /// [`Error::Unknown`] where there is no such job.
    pub fn finish(&mut self, job: &str) -> Result<Vec<Decision>, Error> {
        let at = self.find(job)?;
        self.names.remove(job);
        let mut changed = Vec::new();
        match self.choices[at] {
            Choice::Waiting => {
                self.waiting.remove(&(Rank(self.surplus(at)), at));
                self.forget_the_gone();
                return Ok(Vec::new());
            }
            Choice::Single(_) => self.release(at),
            Choice::Pair(pair) => {
                let pair = &self.instance.problem.pairs[pair];
                let (other, pool) = (pair.a + pair.b - at, pair.pool);
                let seats = self.seats[at].clone();
                self.release(at);
                let single =
                    self.single_in(other, pool).expect("a pair is made of jobs with a shape of one GPU");
                self.occupy(other, Choice::Single(single), &seats);
                changed.push(other);
            }
        }
        for job in self.fill() {
            // A co-runner that it joined runs otherwise than before.
            for job in std::iter::once(job).chain(self.co_runner(job)) {
                if !changed.contains(&job) {
                    changed.push(job);
                }
            }
        }
        let decisions = changed.into_iter().map(|job| self.runs(job)).collect();
        self.forget_the_gone();
        Ok(decisions)
    }

    fn find(&self, job: &str) -> Result<usize, Error> {
        self.names
            .get(job)
            .copied()
            .ok_or_else(|| Error::unknown("job", job, self.names.keys().map(JobId::as_str)))
    }

    fn push(&mut self, job: Job) -> usize {
        let at = self.instance.push(&job, self.profiles);
        self.names.insert(job.id.clone(), at);
        self.jobs.push(job);
        self.choices.push(Choice::Waiting);
        self.seats.push(Vec::new());
        at
    }

    /// The best at the prices: value less price, alone.
    fn surplus(&self, job: usize) -> f64 {
        let columns = self.instance.problem.singles[job].iter();
        columns.map(|column| column.reduced(&self.table_of_prices)).fold(f64::NEG_INFINITY, f64::max)
    }

    fn single_in(&self, job: usize, pool: usize) -> Option<usize> {
        self.instance.problem.singles[job]
            .iter()
            .position(|column| column.pool == pool && column.demand[0] <= 1.0)
    }

    fn pair(&mut self, a: usize, b: usize, pool: usize, value: f64) -> Choice {
        let pair = self.instance.pair(a.min(b), a.max(b), pool, value);
        self.instance.problem.pairs.push(pair);
        Choice::Pair(self.instance.problem.pairs.len() - 1)
    }

    fn demand(&self, job: usize, choice: Choice) -> Option<(usize, Amounts)> {
        match choice {
            Choice::Waiting => None,
            Choice::Single(at) => {
                let column = &self.instance.problem.singles[job][at];
                Some((column.pool, column.demand))
            }
            Choice::Pair(at) => {
                let pair = &self.instance.problem.pairs[at];
                Some((pair.pool, pair.demand))
            }
        }
    }

    /// Puts the job, of a pair both, on seats that are free.
    fn occupy(&mut self, job: usize, choice: Choice, seats: &[Seat]) {
        let Some((pool, demand)) = self.demand(job, choice) else { return };
        for seat in seats {
            self.nodes[pool].occupy(seat, &demand);
        }
        self.used[pool].iter_mut().zip(&demand).for_each(|(used, amount)| *used += amount);
        let both = match choice {
            Choice::Pair(at) => vec![self.instance.problem.pairs[at].a, self.instance.problem.pairs[at].b],
            _ => vec![job],
        };
        let is_alone = both.len() == 1 && demand[0] <= 1.0;
        for job in both {
            self.choices[job] = choice;
            self.seats[job] = seats.to_vec();
            if is_alone {
                self.alone.insert(job);
            }
        }
    }

    /// Takes the job, of a pair both, from its seats.
    fn release(&mut self, job: usize) {
        let choice = self.choices[job];
        let Some((pool, demand)) = self.demand(job, choice) else { return };
        for seat in std::mem::take(&mut self.seats[job]) {
            self.nodes[pool].leave(&seat, &demand);
        }
        self.used[pool].iter_mut().zip(&demand).for_each(|(used, amount)| *used -= amount);
        self.alone.remove(&job);
        self.choices[job] = Choice::Waiting;
        if let Choice::Pair(at) = choice {
            let pair = &self.instance.problem.pairs[at];
            let other = pair.a + pair.b - job;
            self.choices[other] = Choice::Waiting;
            self.seats[other].clear();
        }
    }

    /// Gives the job the best place for which there is room.
    fn start(&mut self, job: usize) -> bool {
        let prices = &self.table_of_prices;
        let mut options: Vec<(f64, Place)> = Vec::new();
        for (at, column) in self.instance.problem.singles[job].iter().enumerate() {
            if column.value > 0.0 {
                options.push((column.reduced(prices), Place::Alone { single: at }));
            }
        }
        for &other in &self.alone {
            let Choice::Single(at) = self.choices[other] else { continue };
            let alone = &self.instance.problem.singles[other][at];
            let pool = alone.pool;
            let Ok(value) = self.instance.pair_value(job.min(other), job.max(other), pool) else { continue };
            let more = self.more(job, other, pool, &alone.demand);
            // The slot is paid for already; what the other loses is taken off.
            let host: f64 = (2..RESOURCES).map(|at| prices[pool][at] * more[at]).sum();
            let gain = value - alone.value - host;
            if gain > 0.0 && self.nodes[pool].bears_more(&self.seats[other][0], &more) {
                options.push((gain, Place::Beside { other, pool, value }));
            }
        }
        // A stable sort: of equals alone before beside, and each in the order of shapes and jobs.
        options.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, place) in options {
            match place {
                Place::Beside { other, pool, value } => {
                    let seats = self.seats[other].clone();
                    self.release(other);
                    let choice = self.pair(job, other, pool, value);
                    self.occupy(job, choice, &seats);
                    return true;
                }
                Place::Alone { single } => {
                    let column = &self.instance.problem.singles[job][single];
                    if let Some(seats) = self.nodes[column.pool].seat(&column.demand) {
                        self.occupy(job, Choice::Single(single), &seats);
                        return true;
                    }
                }
            }
        }
        false
    }

    /// What a pair takes more than the job that is there.
    fn more(&self, job: usize, other: usize, pool: usize, alone: &Amounts) -> Amounts {
        let mut more = self.instance.pair_demand(job.min(other), job.max(other), pool);
        more.iter_mut().zip(alone).for_each(|(more, amount)| *more -= amount);
        more
    }

    /// Lets waiting jobs move up.
    fn fill(&mut self) -> Vec<usize> {
        let tried: Vec<(Rank, usize)> = self.waiting.iter().take(Self::MOST_TRIES).copied().collect();
        let mut started = Vec::new();
        for entry in tried {
            if self.start(entry.1) {
                self.waiting.remove(&entry);
                started.push(entry.1);
            }
        }
        started
    }

    fn runs(&self, job: usize) -> Decision {
        let (seats, choice) = (&self.seats[job], self.choices[job]);
        let assignment = self.teller().assign(seats, job, choice);
        Decision::Runs(Box::new(assignment.expect("the job runs")))
    }

    fn teller(&self) -> Teller<'_> {
        let (instance, prices) = (&self.instance, &self.table_of_prices);
        Teller { instance, cluster: instance.cluster, jobs: &self.jobs, prices }
    }
}
