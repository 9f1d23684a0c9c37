//! Against Gavel's simulator (Narayanan et al., OSDI 2020), whose rules this file has as a policy of its own.
//!
//! What is particular to it, beside the speeds of its throughput file: jobs start and change GPUs only at the borders of
//! rounds; GPU types are allotted anew only when jobs came or went and 1,920 s have passed; a round ends with the last of
//! its jobs; a restart is free. Its plain FIFO asks for a random type that still has room, but a variable that is left
//! over from a loop makes it the last by name of those with any GPU free, whether the job fits there or not: V100s are
//! promised to 75 GPUs of jobs where there are 36, and these jobs take turns by the time they got.

use super::published::shared;
use elastico_simulator::{
    ClusterSpec, GavelThroughputs, Options, Oracle, Policy, PolicyKind, ReadOptions, Round, Shape,
    Simulation, Tables, Trace, simulate, simulate_with,
};
use std::collections::{BTreeMap, BTreeSet};

const ROUND: f64 = 360.0;
const BETWEEN_ALLOTMENTS: f64 = 1920.0;
/// Every job counts as having run for half a round on each type.
const HEAD_START: f64 = ROUND / 2.0;

#[derive(Clone, Copy, PartialEq)]
enum Choice {
    /// Gavel's `fifo`.
    LastByName,
    /// Gavel's `fifo_perf`.
    Fastest,
}

struct GavelFifo<'a> {
    throughputs: &'a GavelThroughputs,
    choice: Choice,
    active: BTreeSet<usize>,
    has_changed: bool,
    last_allotment: f64,
    border: f64,
    /// Job to pool.
    allotted: BTreeMap<usize, usize>,
    /// Seconds on each pool since the last allotment.
    received: BTreeMap<usize, Vec<f64>>,
    /// Seconds on each pool that the job should have got and did not.
    deficit: BTreeMap<usize, Vec<f64>>,
    ran: Vec<(usize, usize, f64)>,
}

impl<'a> GavelFifo<'a> {
    fn new(throughputs: &'a GavelThroughputs, choice: Choice) -> Self {
        Self {
            throughputs,
            choice,
            active: BTreeSet::new(),
            has_changed: false,
            last_allotment: 0.0,
            border: 0.0,
            allotted: BTreeMap::new(),
            received: BTreeMap::new(),
            deficit: BTreeMap::new(),
            ran: Vec::new(),
        }
    }

    /// Steps per second; 0 where the job cannot run.
    fn speed(&self, round: &Round<'_, '_>, job: usize, pool: usize) -> f64 {
        let device = round.cluster().pools()[pool].device.as_deref().unwrap();
        let job = round.job(job);
        self.throughputs.isolated(device, &job.workload, job.gpus).unwrap_or_default()
    }

    fn allot(&mut self, round: &Round<'_, '_>) {
        let gpus = |job: usize| i64::from(round.job(job).gpus);
        let mut free: Vec<i64> = round.cluster().pools().iter().map(|pool| i64::from(pool.gpus())).collect();
        if self.choice == Choice::Fastest {
            self.allotted.clear();
        }
        let mut queue: Vec<usize> =
            self.active.iter().copied().filter(|job| !self.allotted.contains_key(job)).collect();
        for (job, pool) in self.allotted.clone() {
            if self.active.contains(&job) {
                free[pool] -= gpus(job);
                continue;
            }
            // Who heads the queue gets the type of a job that is done.
            self.allotted.remove(&job);
            if let Some(head) = queue.first().copied()
                && gpus(head) <= free[pool]
                && self.speed(round, head, pool) > 0.0
            {
                queue.remove(0);
                self.allotted.insert(head, pool);
                free[pool] -= gpus(head);
            }
        }
        let mut open: Vec<usize> = (0..free.len()).filter(|pool| free[*pool] > 0).collect();
        for job in queue {
            let fits: Vec<usize> = open.iter().copied().filter(|pool| free[*pool] >= gpus(job)).collect();
            if fits.is_empty() {
                break;
            }
            let pool = match self.choice {
                Choice::LastByName => *open.last().unwrap(),
                // The first of equals.
                Choice::Fastest => *fits
                    .iter()
                    .rev()
                    .max_by(|a, b| self.speed(round, job, **a).total_cmp(&self.speed(round, job, **b)))
                    .unwrap(),
            };
            if self.speed(round, job, pool) > 0.0 {
                self.allotted.insert(job, pool);
                free[pool] -= gpus(job);
                if free[pool] == 0 {
                    open.retain(|other| *other != pool);
                }
            }
        }
    }

    /// Settles what each job got since the last time, and allots anew.
    fn renew(&mut self, round: &Round<'_, '_>) {
        let elapsed = round.now() - self.last_allotment;
        for job in &self.active {
            let pools = round.cluster().pools().len();
            let received = self.received.entry(*job).or_insert_with(|| vec![0.0; pools]);
            let deficit = self.deficit.entry(*job).or_insert_with(|| vec![0.0; pools]);
            for pool in 0..pools {
                let due = if self.allotted.get(job) == Some(&pool) { elapsed } else { 0.0 };
                deficit[pool] += due - received[pool];
                received[pool] = 0.0;
            }
        }
        self.last_allotment = round.now();
        self.allot(round);
        self.has_changed = false;
    }

    /// Who runs in the next round, by the time that each got.
    fn chosen(&self, round: &Round<'_, '_>) -> Vec<(usize, usize)> {
        let mut chosen = Vec::new();
        for (pool, spec) in round.cluster().pools().iter().enumerate() {
            let mut jobs: Vec<usize> =
                self.active.iter().copied().filter(|job| self.allotted.get(job) == Some(&pool)).collect();
            jobs.sort_by(|a, b| {
                let received = |job: &usize| HEAD_START + self.received.get(job).map_or(0.0, |all| all[pool]);
                let deficit = |job: &usize| self.deficit.get(job).map_or(0.0, |all| all[pool]);
                received(a).total_cmp(&received(b)).then(deficit(b).total_cmp(&deficit(a))).then(a.cmp(b))
            });
            let mut left = spec.gpus();
            for job in jobs {
                let gpus = round.job(job).gpus;
                if gpus <= left {
                    left -= gpus;
                    chosen.push((job, pool));
                }
            }
        }
        chosen
    }
}

impl Policy for GavelFifo<'_> {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        if round.running().next().is_some() && round.now() < self.border - 1e-6 {
            round.wake_at(self.border);
            return;
        }
        for (job, pool, seconds) in std::mem::take(&mut self.ran) {
            if let Some(received) = self.received.get_mut(&job) {
                received[pool] += seconds;
            }
        }
        let active: BTreeSet<usize> = round.waiting().into_iter().chain(round.running()).collect();
        self.has_changed |= active != self.active;
        self.active = active;
        for job in &self.active {
            let pools = round.cluster().pools().len();
            self.received.entry(*job).or_insert_with(|| vec![0.0; pools]);
        }
        let is_due = round.now() - self.last_allotment >= BETWEEN_ALLOTMENTS || self.last_allotment == 0.0;
        if self.has_changed && is_due {
            self.renew(round);
        }
        let chosen = self.chosen(round);
        for job in round.running().collect::<Vec<_>>() {
            if !chosen.iter().any(|(other, pool)| *other == job && round.shape_of(job).unwrap().pool == *pool)
            {
                round.preempt(job);
            }
        }
        let mut longest: f64 = 0.0;
        for (job, pool) in chosen {
            let shape = Shape { pool, gpus: round.job(job).gpus };
            if !round.is_running(job) {
                assert!(round.start(job, shape), "the round holds what was chosen");
            }
            // A job does whole steps.
            let speed = self.speed(round, job, pool);
            let seconds = (speed * ROUND).floor() / speed;
            self.ran.push((job, pool, seconds));
            longest =
                longest.max(seconds.min(round.remaining_seconds(job) / round.rate(job, shape).unwrap()));
        }
        if longest > 0.0 {
            self.border = round.now() + longest;
            round.wake_at(self.border);
        }
    }
}

struct Scene {
    trace: Trace,
    throughputs: GavelThroughputs,
}

fn scene(file: &str) -> Option<Scene> {
    let (trace, throughputs) =
        (shared(&format!("gavel/{file}"))?, shared("gavel/simulation_throughputs.json")?);
    let options = ReadOptions { throughputs: Some(throughputs.clone()), ..ReadOptions::default() };
    Some(Scene {
        trace: Trace::read(&trace, &options).unwrap(),
        throughputs: GavelThroughputs::read_json(&throughputs).unwrap(),
    })
}

fn options() -> Options {
    Options { restart_seconds: 0.0, keep_jobs: true, ..Options::default() }
}

fn as_gavel(scene: &Scene, cluster: &str, choice: Choice) -> Simulation {
    let cluster: ClusterSpec = cluster.parse().unwrap();
    let tables = Tables { truth: &scene.throughputs, planner: &scene.throughputs };
    let mut policy = GavelFifo::new(&scene.throughputs, choice);
    simulate_with(&scene.trace, &cluster, "gavel", &mut policy, Some(&tables), &options()).unwrap().0
}

/// Types in the order of their names, as Gavel sorts them; every server has one GPU.
const PHYSICAL: &str = "k80:n36g1,p100:n36g1,v100:n36g1";

/// Gavel's own simulator says 11,484.480 s for `fifo` and 9,343.788 s for `fifo_perf`, with any seed.
#[test]
fn the_physical_trace_takes_as_long_as_in_gavel() {
    let Some(scene) = scene("max_min_fairness.trace") else { return };
    assert_eq!(scene.trace.jobs().len(), 96);
    for (choice, expected) in [(Choice::LastByName, 11_484.480), (Choice::Fastest, 9_343.788)] {
        let result = as_gavel(&scene, PHYSICAL, choice);
        let ratio = result.jct_mean_seconds / expected;
        assert!((ratio - 1.0).abs() < 0.01, "{} is {ratio} of Gavel's", result.jct_mean_seconds);
    }
}

/// Our FIFO lies between Gavel's two: it promises no GPU twice and waits for no round, but a job that got a slow GPU stays
/// on it, where `fifo_perf` moves it to a faster one for free.
#[test]
fn our_fifo_lies_between_gavels() {
    let Some(scene) = scene("max_min_fairness.trace") else { return };
    let tables = Tables { truth: &scene.throughputs, planner: &scene.throughputs };
    let cluster: ClusterSpec = PHYSICAL.parse().unwrap();
    let result = simulate(&scene.trace, &cluster, &PolicyKind::Fifo, Some(&tables), &options()).unwrap();
    assert!((9_343.788..11_484.480).contains(&result.jct_mean_seconds), "{}", result.jct_mean_seconds);
}

#[test]
fn the_oracle_knows_what_gavel_measured() {
    let Some(scene) = scene("small_test.trace") else { return };
    let (a, b) = ("ResNet-18 (batch size 16)", "ResNet-50 (batch size 64)");
    let speed = |device, gpus| scene.throughputs.speed(a, Some(device), gpus);
    assert!(speed("v100", 1) > speed("k80", 1));
    assert_eq!(speed("v100", 3), None);
    let beside = scene.throughputs.pair(a, b, Some("v100")).unwrap();
    assert!((beside.slowdown.get() - 32.353_384_328_946_916 / 20.365_558_661_109_052).abs() < 1e-9);
    assert!(scene.throughputs.pair(a, "GPT-4", Some("v100")).is_none());
}
