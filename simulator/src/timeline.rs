//! Who held which GPUs when, recorded for a figure.

use crate::places::Place;
use crate::{ClusterSpec, TraceJob};
use elastico_core::{JobId, WorkloadKind};
use serde::Serialize;
use std::collections::BTreeMap;

/// Who held which GPUs when, and how busy the cluster was.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Timeline {
    /// In the order in which they began.
    pub stays: Vec<Stay>,
    held: Vec<Piece>,
    busy: Vec<Piece>,
    gpus: f64,
}

/// One job on its GPUs, from its start, or its restart, to its end there.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stay {
    /// The job.
    pub job: JobId,
    /// What it runs.
    pub workload: String,
    /// Training or inference, where known.
    pub kind: Option<WorkloadKind>,
    /// The pool, as an index into those of the cluster.
    pub pool: usize,
    /// Node and GPU of each, ascending. The simulation counts GPUs of nodes; which of them it was is told here so that no GPU
    /// has two jobs that do not share it.
    pub gpus: Vec<(u32, u32)>,
    /// When it began.
    pub from_seconds: f64,
    /// When it ended.
    pub to_seconds: f64,
    /// Time without progress at its beginning, because it was a restart.
    pub stalled_seconds: f64,
    /// The stay of the job that it joined.
    pub beside: Option<usize>,
}

/// A number that holds for some time.
type Piece = (f64, f64, f64);

impl Timeline {
    /// GPUs held over all GPUs in so many equal parts of the time from the first to the last moment of the run.
    pub fn allocated(&self, bins: usize) -> Vec<f64> {
        self.averages(&self.held, bins)
    }

    /// SM cycles busy over all; jobs that do not state their own count as idle.
    pub fn sm_active(&self, bins: usize) -> Vec<f64> {
        self.averages(&self.busy, bins)
    }

    /// The last moment, seconds from the start of the trace.
    pub fn end_seconds(&self) -> f64 {
        self.held.last().map_or(0.0, |piece| piece.1)
    }

    fn averages(&self, pieces: &[Piece], bins: usize) -> Vec<f64> {
        let mut sums = vec![0.0; bins];
        let width = self.end_seconds() / bins as f64;
        if width <= 0.0 {
            return sums;
        }
        for (from, to, rate) in pieces {
            let last = ((to / width) as usize).min(bins.saturating_sub(1));
            let first = ((from / width) as usize).min(last);
            for (bin, sum) in sums.iter_mut().enumerate().take(last + 1).skip(first) {
                let (begin, end) = (bin as f64 * width, (bin + 1) as f64 * width);
                *sum += rate * (to.min(end) - from.max(begin)).max(0.0);
            }
        }
        sums.iter().map(|sum| sum / (width * self.gpus)).collect()
    }
}

/// Records as the engine goes.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    stays: Vec<Recorded>,
    /// Stays in the order of their beginnings (true) and ends.
    events: Vec<(bool, usize)>,
    open: BTreeMap<usize, usize>,
    held: Vec<Piece>,
    busy: Vec<Piece>,
}

#[derive(Debug)]
struct Recorded {
    job: usize,
    pool: usize,
    place: Place,
    from: f64,
    to: f64,
    stall: f64,
    beside: Option<usize>,
}

impl Recorder {
    /// A job begins; a guest has the place of its host.
    pub(crate) fn begin(
        &mut self,
        job: usize,
        pool: usize,
        place: &Place,
        now: f64,
        stall: f64,
        host: Option<usize>,
    ) {
        let beside = host.and_then(|host| self.open.get(&host).copied());
        let index = self.stays.len();
        self.stays.push(Recorded { job, pool, place: place.clone(), from: now, to: now, stall, beside });
        self.open.insert(job, index);
        self.events.push((true, index));
    }

    pub(crate) fn end(&mut self, job: usize, now: f64) {
        if let Some(index) = self.open.remove(&job) {
            self.stays[index].to = now;
            self.events.push((false, index));
        }
    }

    pub(crate) fn held(&mut self, gpus: f64, from: f64, to: f64) {
        match self.held.last_mut() {
            #[expect(clippy::float_cmp, reason = "the very same number goes on")]
            Some(last) if last.2 == gpus => last.1 = to,
            _ => self.held.push((from, to, gpus)),
        }
    }

    pub(crate) fn busy(&mut self, rate: f64, from: f64, to: f64) {
        self.busy.push((from, to, rate));
    }

    /// Gives every stay GPUs of its nodes: the first that are free, a guest those of its host.
    pub(crate) fn finish(self, jobs: &[TraceJob], cluster: &ClusterSpec) -> Timeline {
        // Jobs on each GPU, by pool, node and GPU.
        let mut users: BTreeMap<(usize, u32, u32), u32> = BTreeMap::new();
        let mut gpus: Vec<Vec<(u32, u32)>> = vec![Vec::new(); self.stays.len()];
        for (begins, index) in self.events {
            let stay = &self.stays[index];
            let pool = stay.pool;
            if !begins {
                for (node, gpu) in &gpus[index] {
                    if let Some(count) = users.get_mut(&(pool, *node, *gpu)) {
                        *count -= 1;
                    }
                }
                continue;
            }
            let own = match stay.beside {
                Some(host) => gpus[host].clone(),
                None => {
                    let mut own = Vec::new();
                    for (node, count) in &stay.place {
                        let free = (0..cluster.pools()[pool].gpus_per_node)
                            .filter(|gpu| users.get(&(pool, *node, *gpu)).is_none_or(|count| *count == 0));
                        own.extend(free.take(*count as usize).map(|gpu| (*node, gpu)));
                    }
                    own.sort_unstable();
                    own
                }
            };
            for (node, gpu) in &own {
                *users.entry((pool, *node, *gpu)).or_default() += 1;
            }
            gpus[index] = own;
        }
        let stays = self.stays.into_iter().zip(gpus).map(|(stay, gpus)| {
            let job = &jobs[stay.job];
            Stay {
                job: job.job.clone(),
                workload: job.workload.clone(),
                kind: job.kind,
                pool: stay.pool,
                gpus,
                from_seconds: stay.from,
                to_seconds: stay.to,
                stalled_seconds: stay.stall.min(stay.to - stay.from),
                beside: stay.beside,
            }
        });
        Timeline { stays: stays.collect(), held: self.held, busy: self.busy, gpus: f64::from(cluster.gpus()) }
    }
}
