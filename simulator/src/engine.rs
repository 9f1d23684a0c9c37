//! Time moves from event to event; a job's finish is keyed anew when its rate changes.

use crate::failures::{Change, Failures};
use crate::ledger::{State, Totals, Windows};
use crate::metrics::{self, Simulation, Timing};
use crate::nodes::Nodes;
use crate::places::FreeGpus;
use crate::policies::{Policy, PolicyKind};
use crate::rates::Rates;
use crate::tables::Tables;
use crate::timeline::Recorder;
use crate::{ClusterSpec, Error, Options, Round, Trace, TraceJob};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Instant;

/// Runs a trace under a named policy.
///
/// `tables` are needed for co-location, for other devices and for other numbers of GPUs than a job asks for.
///
/// # Errors
/// An option that cannot be, a job that can never run, or co-location without tables.
pub fn simulate(
    trace: &Trace,
    cluster: &ClusterSpec,
    policy: &PolicyKind,
    tables: Option<&Tables<'_>>,
    options: &Options,
) -> Result<Simulation, Error> {
    simulate_timed(trace, cluster, policy, tables, options).map(|(simulation, _)| simulation)
}

/// Like [`simulate`], with how long it took; that is no part of the result, which is the same on every machine.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_timed(
    trace: &Trace,
    cluster: &ClusterSpec,
    policy: &PolicyKind,
    tables: Option<&Tables<'_>>,
    options: &Options,
) -> Result<(Simulation, Timing), Error> {
    if policy.colocates() && tables.is_none() {
        return Err(Error::NoTable { policy: policy.name().to_owned() });
    }
    let mut implementation = policy.build()?;
    let informed =
        tables.filter(|_| policy.is_oracle()).map(|tables| Tables { planner: tables.truth, ..*tables });
    let tables = informed.as_ref().or(tables);
    simulate_with(trace, cluster, policy.name(), implementation.as_mut(), tables, options)
}

/// Runs a trace under a policy of one's own.
///
/// # Errors
/// As [`simulate`], and [`Error::Stuck`] where the policy leaves jobs waiting on an idle cluster, [`Error::NoProgress`] where
/// it moves them so often that none gets on.
pub fn simulate_with(
    trace: &Trace,
    cluster: &ClusterSpec,
    name: &str,
    policy: &mut dyn Policy,
    tables: Option<&Tables<'_>>,
    options: &Options,
) -> Result<(Simulation, Timing), Error> {
    options.check()?;
    let begin = Instant::now();
    let mut engine = Engine::new(trace, cluster, tables, options)?;
    let policy_seconds = engine.run(name, policy)?;
    if engine.unfinished > 0 {
        return Err(Error::Stuck { policy: name.to_owned(), waiting: engine.unfinished });
    }
    let mut simulation = metrics::summarise(trace, cluster, name, tables, &engine);
    simulation.timeline = engine.recorder.take().map(|recorder| recorder.finish(trace.jobs(), cluster));
    let timing = Timing::new(begin.elapsed().as_secs_f64(), &policy_seconds, &engine.totals, trace);
    Ok((simulation, timing))
}

/// Wake-ups in a row with nothing running after which a policy is taken to be stuck.
const MOST_IDLE_WAKES: u32 = 1_000;

/// Wake-ups without an arrival or a finish after which it is looked whether any job makes progress.
const WAKES_TO_LOOK: u32 = 10_000;

/// Failures in a row without a finish after which the jobs are taken to be too long for the nodes.
const MOST_FAILURES: u64 = 1_000_000;

pub(crate) struct Engine<'a> {
    pub(crate) jobs: &'a [TraceJob],
    pub(crate) states: Vec<State>,
    pub(crate) rates: Rates<'a>,
    pub(crate) cluster: &'a ClusterSpec,
    pub(crate) options: &'a Options,
    /// One for each pool.
    pub(crate) free: Vec<FreeGpus>,
    pub(crate) nodes: Nodes,
    pub(crate) now: f64,
    // (time, job, version): times are never negative, so their bits sort as they do.
    pub(crate) finishes: BinaryHeap<Reverse<(u64, usize, u32)>>,
    pub(crate) wake: Option<f64>,
    /// By the GPUs that they ask for, in order of submission.
    pub(crate) waiting: BTreeMap<u32, BTreeSet<usize>>,
    pub(crate) running: BTreeSet<usize>,
    /// Jobs that are alone on their GPUs, by GPUs, pool and workload.
    pub(crate) hosts: BTreeMap<(u32, usize, u32), BTreeSet<usize>>,
    pub(crate) entered: Vec<usize>,
    /// Jobs that a failed node has sent back since the last round.
    pub(crate) returned: Vec<usize>,
    /// Jobs that have finished since the last round.
    pub(crate) left: Vec<usize>,
    /// Whether GPUs have become free since the last round.
    pub(crate) has_freed: bool,
    pub(crate) unfinished: usize,
    pub(crate) windows: Windows,
    pub(crate) totals: Totals,
    /// Bytes that running jobs take.
    pub(crate) memory_bytes: f64,
    /// GPUs that the jobs in the system ask for.
    pub(crate) demand_gpus: u64,
    /// Integral of max(1, demand over GPUs).
    pub(crate) contention: f64,
    pub(crate) abort: Option<Error>,
    /// Only where a timeline is asked for.
    pub(crate) recorder: Option<Recorder>,
    failures: Option<Failures>,
    is_fragmented: bool,
}

impl<'a> Engine<'a> {
    fn new(
        trace: &'a Trace,
        cluster: &'a ClusterSpec,
        tables: Option<&Tables<'a>>,
        options: &'a Options,
    ) -> Result<Self, Error> {
        let jobs = trace.jobs();
        let (rates, classes) = Rates::new(trace, cluster, tables)?;
        let states =
            jobs.iter().zip(classes).map(|(job, class)| State::new(class, job.duration_seconds)).collect();
        Ok(Self {
            jobs,
            states,
            rates,
            cluster,
            options,
            free: cluster.pools().iter().map(FreeGpus::new).collect(),
            nodes: Nodes::new(cluster),
            now: 0.0,
            finishes: BinaryHeap::new(),
            wake: None,
            waiting: BTreeMap::new(),
            running: BTreeSet::new(),
            hosts: BTreeMap::new(),
            entered: Vec::new(),
            returned: Vec::new(),
            left: Vec::new(),
            has_freed: false,
            unfinished: jobs.len(),
            windows: Windows::new(jobs),
            totals: Totals::default(),
            memory_bytes: 0.0,
            demand_gpus: 0,
            contention: 0.0,
            abort: None,
            recorder: options.keep_timeline.then(Recorder::default),
            failures: options.mtbf_seconds.map(|mtbf| Failures::new(cluster, options, mtbf)),
            is_fragmented: false,
        })
    }

    /// Until nothing can change any more. Returns the seconds of real time that each round took the policy.
    fn run(&mut self, name: &str, policy: &mut dyn Policy) -> Result<Vec<f32>, Error> {
        let mut policy_seconds = Vec::new();
        let mut next_arrival = 0;
        let mut idle_wakes = 0;
        let mut failures_since_finish = 0;
        let mut wakes_since_finish = 0;
        let mut work_left = f64::INFINITY;
        while let Some((next, is_wake)) = self.next_event(next_arrival) {
            idle_wakes = if is_wake && self.running.is_empty() { idle_wakes + 1 } else { 0 };
            if idle_wakes > MOST_IDLE_WAKES {
                break;
            }
            if let Some(mtbf) = self.options.mtbf_seconds.filter(|_| failures_since_finish > MOST_FAILURES) {
                return Err(Error::FailTooOften { mtbf_seconds: mtbf, unfinished: self.unfinished });
            }
            self.advance(next);
            wakes_since_finish += u32::from(is_wake);
            if wakes_since_finish == WAKES_TO_LOOK {
                wakes_since_finish = 0;
                let left = self.work_left();
                if left >= work_left {
                    return Err(Error::NoProgress {
                        policy: name.to_owned(),
                        unfinished: self.unfinished,
                        restart_seconds: self.options.restart_seconds,
                    });
                }
                work_left = left;
            }
            while let Some(Reverse((time, job, version))) = self.finishes.peek().copied() {
                if self.states[job].version != version {
                    self.finishes.pop();
                } else if f64::from_bits(time) <= next {
                    self.finishes.pop();
                    self.finish(job);
                    self.totals.events += 1;
                    failures_since_finish = 0;
                    (wakes_since_finish, work_left) = (0, f64::INFINITY);
                } else {
                    break;
                }
            }
            while let Some(change) = self.failures.as_mut().and_then(|failures| failures.pop(next)) {
                self.totals.events += 1;
                match change {
                    Change::Fails { pool, node } => {
                        failures_since_finish += 1;
                        self.fail_node(pool, node);
                    }
                    Change::Back { pool, node } => {
                        self.free[pool].repair(node);
                        self.nodes.touch(pool, node);
                        self.has_freed = true;
                    }
                }
            }
            while self.jobs.get(next_arrival).is_some_and(|job| job.submit_seconds <= next) {
                self.enter(next_arrival);
                next_arrival += 1;
                (wakes_since_finish, work_left) = (0, f64::INFINITY);
                self.totals.events += 1;
            }
            if self.wake.is_some_and(|wake| wake <= next) {
                self.wake = None;
                self.totals.events += 1;
            }
            self.totals.rounds += 1;
            let begin = Instant::now();
            policy.decide(&mut Round { engine: self });
            policy_seconds.push(begin.elapsed().as_secs_f32());
            if let Some(error) = self.abort.take() {
                return Err(error);
            }
            self.entered.clear();
            self.returned.clear();
            self.left.clear();
            self.has_freed = false;
            self.is_fragmented = self.is_fragmented();
        }
        Ok(policy_seconds)
    }

    /// When something happens next, and whether it is only a wake-up.
    fn next_event(&mut self, next_arrival: usize) -> Option<(f64, bool)> {
        while self
            .finishes
            .peek()
            .is_some_and(|Reverse((_, job, version))| self.states[*job].version != *version)
        {
            self.finishes.pop();
        }
        let finish = self.finishes.peek().map(|Reverse((time, ..))| f64::from_bits(*time));
        let arrival = self.jobs.get(next_arrival).map(|job| job.submit_seconds);
        let is_alive = finish.is_some() || arrival.is_some();
        // On an idle cluster that nobody comes to, only a node that comes back can help those who wait.
        let failure = self.failures.as_ref().and_then(|failures| {
            let helps = is_alive || (self.unfinished > 0 && self.free.iter().any(FreeGpus::is_any_down));
            failures.next().filter(|_| helps)
        });
        let wake = self.wake.filter(|_| self.unfinished > 0);
        let other = [finish, arrival, failure].into_iter().flatten().reduce(f64::min);
        match (other, wake) {
            (Some(other), Some(wake)) if wake < other => Some((wake, true)),
            (Some(other), _) => Some((other, false)),
            (None, wake) => wake.map(|wake| (wake, true)),
        }
    }

    fn advance(&mut self, to: f64) {
        let seconds = to - self.now;
        let held: u32 = self.free.iter().map(FreeGpus::held).sum();
        let idle = f64::from(self.free_gpus()) * seconds;
        self.totals.held.add(f64::from(held), self.now, to, &self.windows);
        if let Some(recorder) = &mut self.recorder {
            recorder.held(f64::from(held), self.now, to);
        }
        if self.unfinished > 0 {
            self.totals.idle_gpu_seconds += idle;
            if self.is_fragmented {
                self.totals.stranded_gpu_seconds += idle;
            }
        }
        self.totals.memory_byte_seconds += self.memory_bytes * seconds;
        self.contention += (self.demand_gpus as f64 / f64::from(self.cluster.gpus())).max(1.0) * seconds;
        self.now = to;
    }

    /// Isolated seconds of work that all jobs together have left now.
    fn work_left(&self) -> f64 {
        let left = |state: &State| {
            let rate = if state.shape.is_some() { state.base * state.kept } else { 0.0 };
            state.remaining - rate * (self.now - state.updated - state.stall).max(0.0)
        };
        self.states.iter().map(left).sum()
    }

    pub(crate) fn free_gpus(&self) -> u32 {
        self.free.iter().map(FreeGpus::total).sum()
    }

    /// Whether a job waits that would fit by the number of free GPUs of a pool, but not by its nodes.
    fn is_fragmented(&self) -> bool {
        self.options.spread_ratio.is_none()
            && self.waiting.keys().any(|gpus| {
                self.free.iter().any(|free| free.total() >= *gpus)
                    && !self.free.iter().any(|free| free.fits(*gpus))
            })
    }
}
