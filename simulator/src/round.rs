//! What a policy sees and may do.

use crate::engine::Engine;
use crate::places::FreeGpus;
use crate::rates::{Shape, ShapeRate};
use crate::{ClusterSpec, Error, Options, PairSlowdown, TraceJob};

/// What a policy sees and may do at one instant. Jobs are named by their index in order of submission.
///
/// What it sees of speeds and slowdowns is the planner's. A shape or a pair that the truth does not know is not there
/// for a policy: it cannot be simulated.
pub struct Round<'a, 'b> {
    pub(crate) engine: &'a mut Engine<'b>,
}

impl std::fmt::Debug for Round<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Round").field("now", &self.now()).field("free", &self.free_gpus()).finish()
    }
}

impl Round<'_, '_> {
    /// The time, seconds from the start of the trace.
    pub fn now(&self) -> f64 {
        self.engine.now
    }

    /// The cluster.
    pub fn cluster(&self) -> &ClusterSpec {
        self.engine.cluster
    }

    /// What restarts cost, and the other options of the run.
    pub fn options(&self) -> &Options {
        self.engine.options
    }

    /// The trace's record of a job. Its duration is an oracle's knowledge: a policy that uses it should say so.
    pub fn job(&self, job: usize) -> &TraceJob {
        &self.engine.jobs[job]
    }

    /// Jobs that have arrived since the last round.
    pub fn arrived(&self) -> &[usize] {
        &self.engine.entered
    }

    /// Jobs that a failed node has put back into the queue since the last round.
    pub fn returned(&self) -> &[usize] {
        &self.engine.returned
    }

    /// Jobs that have finished since the last round.
    pub fn finished(&self) -> &[usize] {
        &self.engine.left
    }

    /// The first waiting job in order of submission that asks for fewer than `below` GPUs and comes after `after`.
    pub fn first_waiting(&self, below: u32, after: Option<usize>) -> Option<usize> {
        let from = after.map_or(0, |job| job + 1);
        self.engine.waiting.range(..below).filter_map(|(_, queue)| queue.range(from..).next().copied()).min()
    }

    /// Waiting jobs that ask for so many GPUs, in order of submission.
    pub fn waiting_of(&self, gpus: u32) -> impl Iterator<Item = usize> {
        self.engine.waiting.get(&gpus).into_iter().flatten().copied()
    }

    /// All waiting jobs in order of submission.
    pub fn waiting(&self) -> Vec<usize> {
        let mut jobs: Vec<usize> = self.engine.waiting.values().flatten().copied().collect();
        jobs.sort_unstable();
        jobs
    }

    /// The counts of GPUs that waiting jobs ask for, ascending.
    pub fn waiting_sizes(&self) -> impl Iterator<Item = u32> {
        self.engine.waiting.keys().copied()
    }

    /// Jobs that run, in order of submission.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        self.engine.running.iter().copied()
    }

    /// Whether a job runs.
    pub fn is_running(&self, job: usize) -> bool {
        self.engine.states.get(job).is_some_and(|state| state.shape.is_some())
    }

    /// Whether a job waits.
    pub fn is_waiting(&self, job: usize) -> bool {
        self.engine.is_waiting(job)
    }

    /// Where a job runs.
    pub fn shape_of(&self, job: usize) -> Option<Shape> {
        self.engine.states[job].shape
    }

    /// The job on the same GPUs.
    pub fn partner_of(&self, job: usize) -> Option<usize> {
        self.engine.states[job].partner
    }

    /// GPUs that nobody holds.
    pub fn free_gpus(&self) -> u32 {
        self.engine.free_gpus()
    }

    /// GPUs of a pool that nobody holds.
    pub fn free_gpus_of(&self, pool: usize) -> u32 {
        self.engine.free.get(pool).map_or(0, FreeGpus::total)
    }

    /// The shapes that a job can run in, by pool and GPUs: powers of two, the ends of its range, and what it asks for.
    pub fn shapes(&self, job: usize) -> &[ShapeRate] {
        &self.engine.rates.classes[self.engine.states[job].class as usize].shapes
    }

    /// The pools on which a job runs with the GPUs that it asks for, the fastest first.
    pub fn requested(&self, job: usize) -> &[Shape] {
        &self.engine.rates.classes[self.engine.states[job].class as usize].requested
    }

    /// The rate that the planner expects of a job alone: isolated seconds of its trace's duration in each second. `None`
    /// where it cannot run so.
    pub fn rate(&self, job: usize, shape: Shape) -> Option<f64> {
        self.engine.rates.classes[self.engine.states[job].class as usize].planner(shape)
    }

    /// Isolated seconds of work that a job has left, with what it must stand still first: a policy that orders by work
    /// left must see the cost of a restart, or two jobs take turns for ever.
    pub fn remaining_seconds(&self, job: usize) -> f64 {
        let state = &self.engine.states[job];
        let now = self.engine.now;
        state.remaining_at(now) + state.stall_at(now, self.engine.options.restart_seconds)
    }

    /// Isolated seconds of work that a job has done: what a system can count by itself.
    pub fn done_seconds(&self, job: usize) -> f64 {
        self.engine.jobs[job].duration_seconds - self.engine.states[job].remaining_at(self.engine.now)
    }

    /// GPU-seconds that a job has held.
    pub fn attained_gpu_seconds(&self, job: usize) -> f64 {
        let state = &self.engine.states[job];
        let gpus = state.shape.map_or(0, |shape| shape.gpus);
        state.held_gpu_seconds + (self.engine.now - state.updated) * f64::from(gpus)
    }

    /// Whether a job has held GPUs before, so that starting it elsewhere costs a restart.
    pub fn has_run(&self, job: usize) -> bool {
        let state = &self.engine.states[job];
        state.running_seconds > 0.0 || state.shape.is_some()
    }

    /// How often a job has run again so far.
    pub fn restarts(&self, job: usize) -> u32 {
        self.engine.states[job].restarts
    }

    /// Whether there is a place for a shape.
    pub fn fits(&self, shape: Shape) -> bool {
        self.engine.free.get(shape.pool).is_some_and(|free| free.fits(shape.gpus))
    }

    /// Starts a waiting job on as many GPUs as it asks for, in the fastest pool that has them; `false` where none has.
    pub fn try_start(&mut self, job: usize) -> bool {
        let class = self.engine.states[job].class as usize;
        (0..self.engine.rates.classes[class].requested.len()).any(|choice| {
            let shape = self.engine.rates.classes[class].requested[choice];
            self.start(job, shape)
        })
    }

    /// Starts a waiting job; `false` where there is no place for it or it cannot run so.
    pub fn start(&mut self, job: usize, shape: Shape) -> bool {
        self.is_waiting(job) && self.engine.start(job, shape)
    }

    /// The jobs beside which a job of so many GPUs could start: alone on that many, the earliest of each pool and workload.
    pub fn hosts(&self, gpus: u32) -> impl Iterator<Item = usize> {
        let of_size = self.engine.hosts.range((gpus, 0, 0)..=(gpus, usize::MAX, u32::MAX));
        of_size.filter_map(|(_, hosts)| hosts.first().copied())
    }

    /// What the planner expects of two jobs on the same GPUs of a pool: `(slowdown, upper bound)` of each. `None` where the
    /// planner or the truth knows nothing of it.
    pub fn expect(&self, a: usize, b: usize, pool: usize) -> Option<[(f64, f64); 2]> {
        let rates = &self.engine.rates;
        let (of_a, of_b) = (self.engine.workload(a), self.engine.workload(b));
        let is_known = [rates.truth(of_a, of_b, pool), rates.truth(of_b, of_a, pool)];
        if is_known.contains(&None) {
            return None;
        }
        let side = |subject, co_runner| {
            let pair = rates.planner(subject, co_runner, pool)?;
            Some((pair.slowdown.get(), pair.upper.get()))
        };
        Some([side(of_a, of_b)?, side(of_b, of_a)?])
    }

    /// Whether GPUs have become free since the last round.
    pub(crate) fn has_freed(&self) -> bool {
        self.engine.has_freed
    }

    /// Jobs with equal answers run alike: they have the same workload, request and range.
    pub(crate) fn alike(&self, job: usize) -> u32 {
        self.engine.states[job].class
    }

    /// Counts starts, ends and [`touch`](Self::touch).
    pub(crate) fn clock(&self) -> u64 {
        self.engine.nodes.clock()
    }

    /// Says that the nodes of a job are not what they were, for those who ask what has changed.
    pub(crate) fn touch(&mut self, job: usize) {
        let state = &self.engine.states[job];
        if let Some(shape) = state.shape {
            for (node, _) in &state.place {
                self.engine.nodes.touch(shape.pool, *node);
            }
        }
    }

    /// All slowdowns that the planner expects and the truth knows: subject, co-runner and pool.
    pub(crate) fn expected_slowdowns(&self) -> Vec<(&str, &str, usize, PairSlowdown)> {
        self.engine.rates.expected(self.engine.cluster.pools().len())
    }

    /// Puts a waiting job beside one that is alone on its GPUs; `false` where that cannot be.
    pub fn start_beside(&mut self, guest: usize, host: usize) -> bool {
        self.is_waiting(guest) && self.is_running(host) && self.engine.join(guest, host)
    }

    /// Moves a running job to another shape, for the cost of a restart; `false`, and nothing happens, where there is no
    /// place for it. A co-runner keeps the GPUs.
    pub fn resize(&mut self, job: usize, shape: Shape) -> bool {
        self.engine.resize(job, shape)
    }

    /// Takes a running job off its GPUs and puts it back into the queue with the work it has left.
    pub fn preempt(&mut self, job: usize) {
        if self.is_running(job) {
            self.engine.preempt(job);
        }
    }

    /// Asks for a round at a later time even if nothing arrives or finishes.
    pub fn wake_at(&mut self, time: f64) {
        if time > self.engine.now {
            self.engine.wake = Some(self.engine.wake.map_or(time, |wake| wake.min(time)));
        }
    }

    /// Ends the run with an error; what a policy outside this program needs.
    pub fn abort(&mut self, error: Error) {
        self.engine.abort.get_or_insert(error);
    }
}
