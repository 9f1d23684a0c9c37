//! Integrals over time, and what one job is doing.

use crate::places::Place;
use crate::{Shape, TraceJob};

/// The stretches of time that numbers are given for besides the whole run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    /// From the first to the last submission.
    pub(crate) arriving: [f64; 2],
    /// The same without its first and last tenth.
    pub(crate) steady: [f64; 2],
}

impl Windows {
    pub(crate) fn new(jobs: &[TraceJob]) -> Self {
        let first = jobs.first().map_or(0.0, |job| job.submit_seconds);
        let last = jobs.last().map_or(0.0, |job| job.submit_seconds);
        let edge = (last - first) / 10.0;
        Self { arriving: [first, last], steady: [first + edge, last - edge] }
    }
}

/// An amount over the whole run, while jobs arrive, and over the steady window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Integral {
    pub(crate) total: f64,
    pub(crate) arriving: f64,
    pub(crate) steady: f64,
}

impl Integral {
    /// Adds `rate` for each second between `from` and `to`.
    pub(crate) fn add(&mut self, rate: f64, from: f64, to: f64, windows: &Windows) {
        let overlap = |window: [f64; 2]| (to.min(window[1]) - from.max(window[0])).max(0.0);
        self.total += rate * (to - from);
        self.arriving += rate * overlap(windows.arriving);
        self.steady += rate * overlap(windows.steady);
    }

    /// Takes an amount back at one instant.
    pub(crate) fn take_back(&mut self, amount: f64, at: f64, windows: &Windows) {
        let within = |window: [f64; 2]| if (window[0]..=window[1]).contains(&at) { amount } else { 0.0 };
        self.total -= amount;
        self.arriving -= within(windows.arriving);
        self.steady -= within(windows.steady);
    }
}

/// What a run adds up to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// GPUs held, times seconds; a shared GPU counts once.
    pub(crate) held: Integral,
    /// GPUs times the share of their multiprocessors that was busy, times seconds.
    pub(crate) sm_active: Integral,
    /// Isolated seconds of work done, times the GPUs that the job asks for.
    pub(crate) work: Integral,
    /// Bytes taken, times seconds.
    pub(crate) memory_byte_seconds: f64,
    /// GPUs in service that nobody held, times seconds.
    pub(crate) idle_gpu_seconds: f64,
    /// The part of it while a job waited that would have fit by number, but not by nodes.
    pub(crate) stranded_gpu_seconds: f64,
    pub(crate) shared_gpu_seconds: f64,
    pub(crate) pairs: u64,
    pub(crate) pairs_over_limit: u64,
    pub(crate) rounds: u64,
    pub(crate) events: u64,
    pub(crate) node_failures: u64,
}

/// What one job is doing. Numbers hold at `updated`.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) class: u32,
    /// Changes whenever its finish is keyed anew.
    pub(crate) version: u32,
    /// Isolated seconds of work left.
    pub(crate) remaining: f64,
    /// `remaining` at the last checkpoint.
    pub(crate) saved: f64,
    /// When it began to make progress on its present GPUs.
    pub(crate) progress_since: f64,
    /// Seconds for which it still holds its GPUs without progress.
    pub(crate) stall: f64,
    /// Isolated seconds of work for each second, alone on its present GPUs.
    pub(crate) base: f64,
    /// The part of `base` that a co-runner leaves.
    pub(crate) kept: f64,
    pub(crate) updated: f64,
    /// Where it runs; none = it does not.
    pub(crate) shape: Option<Shape>,
    /// The GPUs that it holds; empty for the guest of a pair.
    pub(crate) place: Place,
    pub(crate) partner: Option<usize>,
    pub(crate) started: f64,
    pub(crate) finished: f64,
    /// Integral of the contention for the cluster at its submission, and then over its life.
    pub(crate) contention: f64,
    pub(crate) running_seconds: f64,
    pub(crate) stalled_seconds: f64,
    pub(crate) colocated_seconds: f64,
    /// How long its work would have taken on the same GPUs without co-runners.
    pub(crate) alone_seconds: f64,
    pub(crate) held_gpu_seconds: f64,
    pub(crate) lost_seconds: f64,
    pub(crate) preemptions: u32,
    pub(crate) restarts: u32,
    pub(crate) failures: u32,
}

impl State {
    pub(crate) fn new(class: u32, work: f64) -> Self {
        Self {
            class,
            version: 0,
            remaining: work,
            saved: work,
            progress_since: 0.0,
            stall: 0.0,
            base: 0.0,
            kept: 1.0,
            updated: 0.0,
            shape: None,
            place: Place::new(),
            partner: None,
            started: f64::NAN,
            finished: f64::NAN,
            contention: 0.0,
            running_seconds: 0.0,
            stalled_seconds: 0.0,
            colocated_seconds: 0.0,
            alone_seconds: 0.0,
            held_gpu_seconds: 0.0,
            lost_seconds: 0.0,
            preemptions: 0,
            restarts: 0,
            failures: 0,
        }
    }

    pub(crate) fn rate(&self) -> f64 {
        self.base * self.kept
    }

    /// Time that it must hold GPUs without progress before it goes on, at a later time.
    pub(crate) fn stall_at(&self, now: f64, restart: f64) -> f64 {
        match self.shape {
            Some(_) => (self.stall - (now - self.updated)).max(0.0),
            None if self.running_seconds > 0.0 => restart,
            None => 0.0,
        }
    }

    /// Isolated seconds of work left at a later time.
    pub(crate) fn remaining_at(&self, now: f64) -> f64 {
        if self.shape.is_none() {
            return self.remaining;
        }
        let progress = (now - self.updated - self.stall).max(0.0);
        (self.remaining - progress * self.rate()).max(0.0)
    }

    /// Brings it up to `now`.
    pub(crate) fn settle(&mut self, now: f64, checkpoint: f64) -> Option<(f64, f64)> {
        let from = std::mem::replace(&mut self.updated, now);
        let elapsed = now - from;
        let shape = self.shape.filter(|_| elapsed > 0.0)?;
        let stalled = self.stall.min(elapsed);
        self.stall -= stalled;
        self.stalled_seconds += stalled;
        self.running_seconds += elapsed;
        self.held_gpu_seconds += elapsed * f64::from(shape.gpus);
        if self.partner.is_some() {
            self.colocated_seconds += elapsed;
        }
        let begin = from + stalled;
        let progress = now - begin;
        if progress <= 0.0 {
            return None;
        }
        if checkpoint > 0.0 {
            let count = ((now - self.progress_since) / checkpoint).floor();
            let last = self.progress_since + count * checkpoint;
            if last > begin {
                self.saved = (self.remaining - (last - begin) * self.rate()).max(0.0);
            }
        }
        self.remaining = (self.remaining - progress * self.rate()).max(0.0);
        self.alone_seconds += progress * self.kept;
        Some((begin, self.rate()))
    }
}
