//! Time moves from event to event; a job's finish is keyed anew when its rate changes.

use crate::cluster::{FreeGpus, Place};
use crate::error::check;
use crate::metrics::{self, JobOutcome, Simulation, Totals};
use crate::policies::{Policy, PolicyKind};
use crate::tables::{DensePairs, Tables};
use crate::{ClusterSpec, Error, Trace, TraceJob};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// What holds for every policy of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Options {
    /// Work that a preempted job must do again when it restarts, seconds.
    pub restart_seconds: f64,
    /// A job whose time on its GPUs is above this times its isolated time counts as harmed.
    pub harm_limit_ratio: f64,
    /// Keep one record for each job in the result.
    pub keep_jobs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { restart_seconds: 30.0, harm_limit_ratio: 1.2, keep_jobs: false }
    }
}

/// Runs a trace under a named policy.
///
/// `tables` are needed for co-location and ignored by policies that do not co-locate.
///
/// # Errors
/// An option that cannot be, a job larger than the cluster, or co-location without tables.
pub fn simulate(
    trace: &Trace,
    cluster: &ClusterSpec,
    policy: &PolicyKind,
    tables: Option<&Tables<'_>>,
    options: &Options,
) -> Result<Simulation, Error> {
    let tables = if policy.colocates() { Some(tables.ok_or(Error::NoTable("co-location"))?) } else { None };
    let mut implementation = policy.build()?;
    simulate_with(trace, cluster, policy.name(), implementation.as_mut(), tables, options)
}

/// Runs a trace under a policy of one's own.
///
/// # Errors
/// As [`simulate`], and [`Error::Stuck`] where the policy leaves jobs waiting on an idle cluster.
pub fn simulate_with(
    trace: &Trace,
    cluster: &ClusterSpec,
    name: &str,
    policy: &mut dyn Policy,
    tables: Option<&Tables<'_>>,
    options: &Options,
) -> Result<Simulation, Error> {
    check(|| "restart_seconds".to_owned(), options.restart_seconds, 0.0, "0 or more")?;
    check(|| "harm_limit_ratio".to_owned(), options.harm_limit_ratio, 1.0, "1 or more")?;
    if let Some(job) = trace.jobs().iter().find(|job| job.gpus > cluster.gpus()) {
        return Err(Error::TooLarge { job: job.job.to_string(), gpus: job.gpus, capacity: cluster.gpus() });
    }
    let mut engine = Engine::new(trace, *cluster, tables, options);
    engine.run(policy);
    if engine.unfinished > 0 {
        return Err(Error::Stuck { policy: name.to_owned(), waiting: engine.unfinished });
    }
    Ok(metrics::summarise(trace, *cluster, name, tables, options, &engine.outcomes(), &engine.totals))
}

/// What one job is doing.
#[derive(Clone, Debug, Default)]
struct State {
    workload: u32,
    /// Isolated seconds of work left at `updated`.
    remaining: f64,
    /// Isolated seconds of work for each second; 0 = not running.
    rate: f64,
    updated: f64,
    version: u32,
    running_seconds: f64,
    colocated_seconds: f64,
    overhead_seconds: f64,
    started: Option<f64>,
    finished: Option<f64>,
    preemptions: u32,
    /// The GPUs that it holds; empty for the guest of a pair.
    place: Place,
    partner: Option<usize>,
}

struct Engine<'a> {
    jobs: &'a [TraceJob],
    states: Vec<State>,
    pairs: DensePairs,
    options: &'a Options,
    nodes: u32,
    gpus_per_node: u32,
    free: FreeGpus,
    now: f64,
    // (time, job, version): times are never negative, so their bits sort as they do.
    finishes: BinaryHeap<Reverse<(u64, usize, u32)>>,
    wake: Option<f64>,
    waiting: BTreeMap<u32, BTreeSet<usize>>,
    running: BTreeSet<usize>,
    // One-GPU jobs that are alone on their GPU, by workload.
    hosts: BTreeMap<u32, BTreeSet<usize>>,
    entered: Vec<usize>,
    unfinished: usize,
    last_submit: f64,
    totals: Totals,
}

impl<'a> Engine<'a> {
    fn new(
        trace: &'a Trace,
        cluster: ClusterSpec,
        tables: Option<&Tables<'_>>,
        options: &'a Options,
    ) -> Self {
        let jobs = trace.jobs();
        let mut names: Vec<&str> = jobs.iter().map(|job| job.workload.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let states = jobs
            .iter()
            .map(|job| State {
                workload: names.binary_search(&job.workload.as_str()).unwrap_or_default() as u32,
                remaining: job.duration_seconds,
                ..State::default()
            })
            .collect();
        Self {
            jobs,
            states,
            pairs: tables.map(|tables| DensePairs::new(&names, tables)).unwrap_or_default(),
            options,
            nodes: cluster.nodes,
            gpus_per_node: cluster.gpus_per_node,
            free: FreeGpus::new(cluster),
            now: 0.0,
            finishes: BinaryHeap::new(),
            wake: None,
            waiting: BTreeMap::new(),
            running: BTreeSet::new(),
            hosts: BTreeMap::new(),
            entered: Vec::new(),
            unfinished: jobs.len(),
            last_submit: jobs.last().map_or(0.0, |job| job.submit_seconds),
            totals: Totals::default(),
        }
    }

    fn run(&mut self, policy: &mut dyn Policy) {
        let mut next_arrival = 0;
        loop {
            while self
                .finishes
                .peek()
                .is_some_and(|Reverse((_, job, version))| self.states[*job].version != *version)
            {
                self.finishes.pop();
            }
            let finish = self.finishes.peek().map(|Reverse((time, ..))| f64::from_bits(*time));
            let arrival = self.jobs.get(next_arrival).map(|job| job.submit_seconds);
            // A wake-up matters only while something can still change.
            let wake = if finish.is_some() || arrival.is_some() { self.wake } else { None };
            let Some(next) = [finish, arrival, wake].into_iter().flatten().reduce(f64::min) else { break };
            self.advance(next);
            while let Some(Reverse((time, job, version))) = self.finishes.peek().copied() {
                if self.states[job].version != version {
                    self.finishes.pop();
                } else if f64::from_bits(time) <= next {
                    self.finishes.pop();
                    self.finish(job);
                } else {
                    break;
                }
            }
            while self.jobs.get(next_arrival).is_some_and(|job| job.submit_seconds <= next) {
                self.enter(next_arrival);
                next_arrival += 1;
            }
            if self.wake.is_some_and(|wake| wake <= next) {
                self.wake = None;
            }
            self.totals.rounds += 1;
            policy.decide(&mut Round { engine: self });
            self.entered.clear();
        }
    }

    fn advance(&mut self, to: f64) {
        let held = f64::from(self.nodes * self.gpus_per_node - self.free.total());
        self.totals.held_gpu_seconds += held * (to - self.now);
        self.totals.held_while_arriving += held * (to.min(self.last_submit) - self.now).max(0.0);
        self.now = to;
    }

    fn enter(&mut self, job: usize) {
        self.waiting.entry(self.jobs[job].gpus).or_default().insert(job);
        self.entered.push(job);
    }

    fn leave_queue(&mut self, job: usize) {
        let gpus = self.jobs[job].gpus;
        if let Some(queue) = self.waiting.get_mut(&gpus) {
            queue.remove(&job);
            if queue.is_empty() {
                self.waiting.remove(&gpus);
            }
        }
    }

    /// Brings a job's work up to now at the rate it has had. Both sides of a pair must be settled together.
    fn settle(&mut self, job: usize) {
        let state = &mut self.states[job];
        let elapsed = self.now - state.updated;
        let arriving = (self.now.min(self.last_submit) - state.updated).max(0.0);
        state.updated = self.now;
        if state.rate <= 0.0 || elapsed <= 0.0 {
            return;
        }
        state.remaining = (state.remaining - elapsed * state.rate).max(0.0);
        state.running_seconds += elapsed;
        let own = self.jobs[job].sm_active_ratio.map(|ratio| ratio * state.rate);
        match state.partner {
            None => {
                let gpus = f64::from(self.jobs[job].gpus);
                let busy = own.unwrap_or(0.0).min(1.0) * gpus;
                self.totals.sm_active_gpu_seconds += busy * elapsed;
                self.totals.sm_active_while_arriving += busy * arriving;
            }
            Some(partner) => {
                state.colocated_seconds += elapsed;
                // A pair's slot counts once and is full at 1: the side that holds the GPU adds both.
                if !state.place.is_empty() {
                    let other =
                        self.jobs[partner].sm_active_ratio.map(|ratio| ratio * self.states[partner].rate);
                    let busy = (own.unwrap_or(0.0) + other.unwrap_or(0.0)).min(1.0);
                    self.totals.sm_active_gpu_seconds += busy * elapsed;
                    self.totals.sm_active_while_arriving += busy * arriving;
                    self.totals.shared_gpu_seconds += elapsed;
                }
            }
        }
    }

    /// Gives a job a rate and keys its finish anew; the old event stays in the heap and is skipped by its version.
    fn set_rate(&mut self, job: usize, rate: f64) {
        let state = &mut self.states[job];
        state.rate = rate;
        state.version += 1;
        if rate > 0.0 {
            let finish = self.now + state.remaining / rate;
            self.finishes.push(Reverse((finish.to_bits(), job, state.version)));
        }
    }

    fn begin(&mut self, job: usize) {
        self.leave_queue(job);
        self.running.insert(job);
        let state = &mut self.states[job];
        state.updated = self.now;
        state.started.get_or_insert(self.now);
    }

    fn offer_host(&mut self, job: usize) {
        if self.jobs[job].gpus == 1 {
            self.hosts.entry(self.states[job].workload).or_default().insert(job);
        }
    }

    fn withdraw_host(&mut self, job: usize) {
        let workload = self.states[job].workload;
        if let Some(hosts) = self.hosts.get_mut(&workload) {
            hosts.remove(&job);
            if hosts.is_empty() {
                self.hosts.remove(&workload);
            }
        }
    }

    fn start(&mut self, job: usize) -> bool {
        let Some(place) = self.free.take(self.jobs[job].gpus) else { return false };
        self.begin(job);
        self.states[job].place = place;
        self.set_rate(job, 1.0);
        self.offer_host(job);
        true
    }

    fn join(&mut self, guest: usize, host: usize) -> bool {
        let (a, b) = (self.states[guest].workload, self.states[host].workload);
        let (Some(of_guest), Some(of_host)) = (self.pairs.truth(a, b), self.pairs.truth(b, a)) else {
            return false;
        };
        let is_free = self.hosts.get(&b).is_some_and(|hosts| hosts.contains(&host));
        if self.jobs[guest].gpus != 1 || !is_free {
            return false;
        }
        self.settle(host);
        self.withdraw_host(host);
        self.begin(guest);
        self.states[guest].partner = Some(host);
        self.states[host].partner = Some(guest);
        self.set_rate(guest, of_guest.slowdown.normalized_throughput());
        self.set_rate(host, of_host.slowdown.normalized_throughput());
        self.totals.pairs += 1;
        let limit = self.options.harm_limit_ratio;
        if of_guest.slowdown.get() > limit || of_host.slowdown.get() > limit {
            self.totals.pairs_over_limit += 1;
        }
        true
    }

    /// Takes a job off its GPUs; its partner stays and keeps the GPU.
    fn remove(&mut self, job: usize) {
        self.settle(job);
        let partner = self.states[job].partner.take();
        let mut place = std::mem::take(&mut self.states[job].place);
        if let Some(partner) = partner {
            // The holder of the GPU accounts for both sides, so it is settled while both have their old rates.
            self.settle(partner);
            if self.states[partner].place.is_empty() {
                self.states[partner].place = std::mem::take(&mut place);
            }
            self.states[partner].partner = None;
            self.set_rate(partner, 1.0);
            self.offer_host(partner);
        } else {
            self.withdraw_host(job);
            self.free.give_back(&place);
        }
        self.running.remove(&job);
        self.set_rate(job, 0.0);
    }

    fn finish(&mut self, job: usize) {
        self.remove(job);
        self.states[job].remaining = 0.0;
        self.states[job].finished = Some(self.now);
        self.unfinished -= 1;
    }

    fn outcomes(&self) -> Vec<JobOutcome> {
        self.jobs
            .iter()
            .zip(&self.states)
            .map(|(job, state)| {
                let finished = state.finished.unwrap_or(f64::NAN);
                JobOutcome {
                    job: job.job.clone(),
                    workload: job.workload.clone(),
                    gpus: job.gpus,
                    submit_seconds: job.submit_seconds,
                    start_seconds: state.started.unwrap_or(f64::NAN),
                    finish_seconds: finished,
                    isolated_seconds: job.duration_seconds,
                    running_seconds: state.running_seconds,
                    colocated_seconds: state.colocated_seconds,
                    overhead_seconds: state.overhead_seconds,
                    preemptions_total: state.preemptions,
                }
            })
            .collect()
    }
}

/// What a policy sees and may do at one instant. Jobs are named by their index in order of submission.
pub struct Round<'a, 'b> {
    engine: &'a mut Engine<'b>,
}

impl std::fmt::Debug for Round<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Round")
            .field("now", &self.engine.now)
            .field("free", &self.engine.free.total())
            .finish()
    }
}

impl Round<'_, '_> {
    /// The time, seconds from the start of the trace.
    pub const fn now(&self) -> f64 {
        self.engine.now
    }

    /// The trace's record of a job. Its duration is an oracle's knowledge: a policy that uses it should say so.
    pub fn job(&self, job: usize) -> &TraceJob {
        &self.engine.jobs[job]
    }

    /// Jobs that have arrived since the last round.
    pub fn arrived(&self) -> &[usize] {
        &self.engine.entered
    }

    /// The first waiting job in order of submission that asks for fewer than `below` GPUs and comes after `after`.
    pub fn first_waiting(&self, below: u32, after: Option<usize>) -> Option<usize> {
        let from = after.map_or(0, |job| job + 1);
        self.engine.waiting.range(..below).filter_map(|(_, queue)| queue.range(from..).next().copied()).min()
    }

    /// Waiting jobs of a size, in order of submission.
    pub fn waiting_of(&self, gpus: u32) -> impl Iterator<Item = usize> {
        self.engine.waiting.get(&gpus).into_iter().flatten().copied()
    }

    /// Jobs that run, in order of submission.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        self.engine.running.iter().copied()
    }

    /// Whether a job runs.
    pub fn is_running(&self, job: usize) -> bool {
        self.engine.running.contains(&job)
    }

    /// GPUs that nobody holds.
    pub const fn free_gpus(&self) -> u32 {
        self.engine.free.total()
    }

    /// Isolated seconds of work that a job has left.
    pub fn remaining_seconds(&self, job: usize) -> f64 {
        let state = &self.engine.states[job];
        (state.remaining - state.rate * (self.engine.now - state.updated)).max(0.0)
    }

    /// GPU-seconds that a job has held.
    pub fn attained_gpu_seconds(&self, job: usize) -> f64 {
        let state = &self.engine.states[job];
        let running = if state.rate > 0.0 { self.engine.now - state.updated } else { 0.0 };
        (state.running_seconds + running) * f64::from(self.engine.jobs[job].gpus)
    }

    /// Starts a waiting job on GPUs of its own; `false` where they do not fit.
    pub fn try_start(&mut self, job: usize) -> bool {
        let is_waiting =
            self.engine.waiting.get(&self.engine.jobs[job].gpus).is_some_and(|queue| queue.contains(&job));
        is_waiting && self.engine.start(job)
    }

    /// The co-runners that a job could join: a running one-GPU job for each workload, the earliest.
    pub fn hosts(&self) -> impl Iterator<Item = usize> {
        self.engine.hosts.values().filter_map(|hosts| hosts.first().copied())
    }

    /// What the planner expects of a pair: `(slowdown, upper bound)` of the guest and of the host. `None` where the
    /// planner or the truth knows nothing of it: such a pair cannot be simulated.
    pub fn expect(&self, guest: usize, host: usize) -> Option<[(f64, f64); 2]> {
        let (a, b) = (self.engine.states[guest].workload, self.engine.states[host].workload);
        self.engine.pairs.truth(a, b)?;
        self.engine.pairs.truth(b, a)?;
        let side = |subject, co_runner| {
            let pair = self.engine.pairs.planner(subject, co_runner)?;
            Some((pair.slowdown.get(), pair.upper.get()))
        };
        Some([side(a, b)?, side(b, a)?])
    }

    /// Puts a waiting one-GPU job beside a running one; `false` where that cannot be.
    pub fn try_join(&mut self, guest: usize, host: usize) -> bool {
        let is_waiting = self.engine.waiting.get(&1).is_some_and(|queue| queue.contains(&guest));
        is_waiting && guest != host && self.engine.join(guest, host)
    }

    /// Takes a running job off its GPUs and puts it back into the queue with the work it has left.
    pub fn preempt(&mut self, job: usize) {
        if self.engine.running.contains(&job) {
            self.engine.remove(job);
            // Charged here and not at the restart: a policy that orders by work left must see it, or two jobs take
            // turns for ever.
            let restart = self.engine.options.restart_seconds;
            let state = &mut self.engine.states[job];
            state.preemptions += 1;
            state.remaining += restart;
            state.overhead_seconds += restart;
            let gpus = self.engine.jobs[job].gpus;
            self.engine.waiting.entry(gpus).or_default().insert(job);
        }
    }

    /// The least work of jobs among `candidates` (running, alone on their GPUs) whose GPUs would let `job` start, or
    /// `None` where all of them together would not. Candidates that come first are taken first.
    pub fn victims(&self, job: usize, candidates: &[usize]) -> Option<Vec<usize>> {
        let engine = &*self.engine;
        let gpus = engine.jobs[job].gpus;
        let node_of = |node: u32| engine.free.of_node(node);
        if gpus <= engine.gpus_per_node {
            // On each node take candidates in order until the job fits; the node that costs the fewest GPUs, then jobs, wins.
            let mut open: BTreeMap<u32, (u32, u32, Vec<usize>)> = BTreeMap::new();
            for candidate in candidates {
                for (node, count) in &engine.states[*candidate].place {
                    let entry = open.entry(*node).or_insert_with(|| (node_of(*node), 0, Vec::new()));
                    if entry.0 < gpus {
                        entry.0 += count;
                        entry.1 += engine.jobs[*candidate].gpus;
                        entry.2.push(*candidate);
                    }
                }
            }
            let best = open.into_iter().filter(|(_, (free, ..))| *free >= gpus);
            return best
                .min_by_key(|(node, (_, cost, victims))| (*cost, victims.len(), *node))
                .map(|(_, (_, _, victims))| victims);
        }
        // A job over nodes: take candidates in order until enough nodes are whole.
        let mut free: BTreeMap<u32, u32> = BTreeMap::new();
        let mut victims = Vec::new();
        let size = engine.gpus_per_node;
        let (whole, rest) = ((gpus / size) as usize, gpus % size);
        let fits = |freed: &BTreeMap<u32, u32>| {
            let frees: Vec<u32> = (0..engine.nodes)
                .map(|node| node_of(node) + freed.get(&node).copied().unwrap_or(0))
                .collect();
            let full = frees.iter().filter(|free| **free == size).count();
            full > whole
                || (full == whole && (rest == 0 || frees.iter().any(|free| *free < size && *free >= rest)))
        };
        for candidate in candidates {
            for (node, count) in &engine.states[*candidate].place {
                *free.entry(*node).or_default() += count;
            }
            victims.push(*candidate);
            if fits(&free) {
                return Some(victims);
            }
        }
        None
    }

    /// Asks for a round at a later time even if nothing arrives or finishes.
    pub fn wake_at(&mut self, time: f64) {
        if time > self.engine.now {
            self.engine.wake = Some(self.engine.wake.map_or(time, |wake| wake.min(time)));
        }
    }
}
