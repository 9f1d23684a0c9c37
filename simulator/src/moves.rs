//! What happens to jobs: they come, start, join, leave, finish, and fall with their node.

use crate::Shape;
use crate::engine::Engine;
use crate::places::Place;
use std::cmp::Reverse;

impl Engine<'_> {
    pub(crate) fn enter(&mut self, job: usize) {
        self.queue(job);
        self.entered.push(job);
        self.demand_gpus += u64::from(self.jobs[job].gpus);
        self.states[job].contention = self.contention;
    }

    fn queue(&mut self, job: usize) {
        self.waiting.entry(self.jobs[job].gpus).or_default().insert(job);
    }

    pub(crate) fn is_waiting(&self, job: usize) -> bool {
        let gpus = self.jobs.get(job).map(|job| job.gpus);
        gpus.and_then(|gpus| self.waiting.get(&gpus)).is_some_and(|queue| queue.contains(&job))
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

    /// Brings a job and its co-runner up to now, at the rates that they have had.
    fn settle(&mut self, job: usize) {
        let state = &self.states[job];
        let from = state.updated;
        let Some(shape) = state.shape.filter(|_| self.now > from) else {
            self.states[job].updated = self.now;
            return;
        };
        let partner = state.partner;
        let checkpoint = self.options.checkpoint_seconds;
        let mut parts = [None, None];
        for (part, side) in parts.iter_mut().zip([Some(job), partner]) {
            let Some(side) = side else { continue };
            let Some((begin, rate)) = self.states[side].settle(self.now, checkpoint) else { continue };
            let asked = f64::from(self.jobs[side].gpus);
            self.totals.work.add(rate * asked, begin, self.now, &self.windows);
            let busy = self.jobs[side].sm_active_ratio.unwrap_or(0.0) * asked * rate;
            *part = Some((begin, busy));
        }
        // The GPUs of a pair count once, and no GPU is busier than 1.
        let gpus = f64::from(shape.gpus);
        if partner.is_some() {
            self.totals.shared_gpu_seconds += gpus * (self.now - from);
        }
        match parts {
            [Some((begin, busy)), None] | [None, Some((begin, busy))] => {
                self.busy(busy.min(gpus), begin, self.now);
            }
            [Some(a), Some(b)] => {
                let (first, second) = if a.0 <= b.0 { (a, b) } else { (b, a) };
                self.busy(first.1.min(gpus), first.0, second.0);
                self.busy((a.1 + b.1).min(gpus), second.0, self.now);
            }
            [None, None] => {}
        }
    }

    /// So many GPUs' worth of multiprocessors are busy for some time.
    fn busy(&mut self, rate: f64, from: f64, to: f64) {
        self.totals.sm_active.add(rate, from, to, &self.windows);
        if let Some(recorder) = &mut self.recorder {
            recorder.busy(rate, from, to);
        }
    }

    /// Keys a job's finish anew; the old event stays in the heap and is skipped by its version.
    fn key_finish(&mut self, job: usize) {
        let state = &mut self.states[job];
        state.version += 1;
        if state.shape.is_some() {
            let finish = self.now + state.stall + state.remaining / state.rate();
            self.finishes.push(Reverse((finish.to_bits(), job, state.version)));
        }
    }

    /// A waiting job runs from now on; `place` is empty for the guest of a pair.
    fn begin(&mut self, job: usize, shape: Shape, base: f64, place: Place, host: Option<usize>) {
        self.leave_queue(job);
        self.running.insert(job);
        self.memory_bytes += self.memory_of(job, shape);
        let state = &mut self.states[job];
        state.updated = self.now;
        if state.started.is_nan() {
            state.started = self.now;
        }
        state.stall = state.stall_at(self.now, self.options.restart_seconds);
        if state.running_seconds > 0.0 {
            state.restarts += 1;
        }
        state.progress_since = self.now + state.stall;
        state.saved = state.remaining;
        state.shape = Some(shape);
        state.place = place;
        state.base = base;
        state.kept = 1.0;
        let stall = state.stall;
        if let Some(recorder) = &mut self.recorder {
            let place = &self.states[host.unwrap_or(job)].place;
            recorder.begin(job, shape.pool, place, self.now, stall, host);
        }
    }

    fn memory_of(&self, job: usize, shape: Shape) -> f64 {
        self.jobs[job].memory_bytes.unwrap_or(0.0) * f64::from(shape.gpus)
    }

    fn host_key(&self, job: usize) -> Option<(u32, usize, u32)> {
        let state = &self.states[job];
        let shape = state.shape?;
        Some((shape.gpus, shape.pool, self.rates.classes[state.class as usize].workload))
    }

    fn offer_host(&mut self, job: usize) {
        if let Some(key) = self.host_key(job) {
            self.hosts.entry(key).or_default().insert(job);
        }
    }

    fn withdraw_host(&mut self, job: usize) {
        let Some(key) = self.host_key(job) else { return };
        if let Some(hosts) = self.hosts.get_mut(&key) {
            hosts.remove(&job);
            if hosts.is_empty() {
                self.hosts.remove(&key);
            }
        }
    }

    pub(crate) fn workload(&self, job: usize) -> u32 {
        self.rates.classes[self.states[job].class as usize].workload
    }

    /// The slowdown factor of a place.
    fn spread(&self, shape: Shape, place: &Place) -> f64 {
        let needed = shape.gpus.div_ceil(self.free[shape.pool].size()) as usize;
        if place.len() > needed { self.options.spread_ratio.unwrap_or(1.0) } else { 1.0 }
    }

    pub(crate) fn start(&mut self, job: usize, shape: Shape) -> bool {
        let Some(rate) = self.rates.classes[self.states[job].class as usize].truth(shape) else {
            return false;
        };
        let free = &mut self.free[shape.pool];
        let mut place = free.take(shape.gpus);
        if place.is_none() && self.options.spread_ratio.is_some() {
            place = free.take_spread(shape.gpus);
        }
        let Some(place) = place else { return false };
        let base = rate / self.spread(shape, &place);
        self.nodes.add(job, shape.pool, &place);
        self.begin(job, shape, base, place, None);
        self.key_finish(job);
        self.offer_host(job);
        true
    }

    pub(crate) fn join(&mut self, guest: usize, host: usize) -> bool {
        let Some(shape) = self.states[host].shape.filter(|_| self.states[host].partner.is_none()) else {
            return false;
        };
        let Some(rate) = self.rates.classes[self.states[guest].class as usize].truth(shape) else {
            return false;
        };
        let (a, b) = (self.workload(guest), self.workload(host));
        let (Some(of_guest), Some(of_host)) =
            (self.rates.truth(a, b, shape.pool), self.rates.truth(b, a, shape.pool))
        else {
            return false;
        };
        let base = rate / self.spread(shape, &self.states[host].place);
        self.settle(host);
        self.withdraw_host(host);
        self.begin(guest, shape, base, Place::new(), Some(host));
        self.states[guest].partner = Some(host);
        self.states[host].partner = Some(guest);
        self.states[guest].kept = of_guest.slowdown.normalized_throughput();
        self.states[host].kept = of_host.slowdown.normalized_throughput();
        self.key_finish(guest);
        self.key_finish(host);
        self.totals.pairs += 1;
        let limit = self.options.harm_limit_ratio;
        if of_guest.slowdown.get() > limit || of_host.slowdown.get() > limit {
            self.totals.pairs_over_limit += 1;
        }
        true
    }

    /// Takes a job off its GPUs; its co-runner stays and keeps the GPUs.
    fn remove(&mut self, job: usize) {
        self.settle(job);
        if let Some(recorder) = &mut self.recorder {
            recorder.end(job, self.now);
        }
        self.has_freed = true;
        let place = std::mem::take(&mut self.states[job].place);
        if let Some(shape) = self.states[job].shape {
            self.nodes.remove(job, shape.pool, &place);
        }
        if let Some(partner) = self.states[job].partner.take() {
            let other = &mut self.states[partner];
            if other.place.is_empty() {
                if let Some(shape) = other.shape {
                    self.nodes.add(partner, shape.pool, &place);
                }
                other.place = place;
            }
            other.partner = None;
            other.kept = 1.0;
            self.key_finish(partner);
            self.offer_host(partner);
        } else {
            self.withdraw_host(job);
            if let Some(shape) = self.states[job].shape {
                self.free[shape.pool].give_back(&place);
            }
        }
        self.running.remove(&job);
        if let Some(shape) = self.states[job].shape.take() {
            self.memory_bytes -= self.memory_of(job, shape);
        }
        self.key_finish(job);
    }

    /// Takes a running job off its GPUs and puts it back into the queue.
    pub(crate) fn stop(&mut self, job: usize) {
        self.remove(job);
        self.queue(job);
    }

    pub(crate) fn preempt(&mut self, job: usize) {
        self.stop(job);
        self.states[job].preemptions += 1;
    }

    /// Gives a running job another shape, if there is a place for it once its own GPUs are free.
    pub(crate) fn resize(&mut self, job: usize, shape: Shape) -> bool {
        let Some(current) = self.states[job].shape else { return false };
        if self.rates.classes[self.states[job].class as usize].truth(shape).is_none() {
            return false;
        }
        let is_paired = self.states[job].partner.is_some();
        let is_spread_allowed = self.options.spread_ratio.is_some();
        let would_fit = |engine: &Self| {
            let free = &engine.free[shape.pool];
            free.fits(shape.gpus) || (is_spread_allowed && free.total() >= shape.gpus)
        };
        let fits = if is_paired || shape.pool != current.pool {
            would_fit(self)
        } else {
            let place = std::mem::take(&mut self.states[job].place);
            self.free[current.pool].give_back(&place);
            let fits = would_fit(self);
            self.free[current.pool].hold(&place);
            self.states[job].place = place;
            fits
        };
        if fits {
            self.stop(job);
            return self.start(job, shape);
        }
        false
    }

    pub(crate) fn finish(&mut self, job: usize) {
        self.remove(job);
        let state = &mut self.states[job];
        state.remaining = 0.0;
        state.finished = self.now;
        state.contention = self.contention - state.contention;
        self.left.push(job);
        self.unfinished -= 1;
        self.demand_gpus -= u64::from(self.jobs[job].gpus);
    }

    /// A node goes, and with it every job that has a GPU on it.
    pub(crate) fn fail_node(&mut self, pool: usize, node: u32) {
        self.totals.node_failures += 1;
        let mut fallen = Vec::new();
        for job in &self.running {
            let state = &self.states[*job];
            let is_here = state.shape.is_some_and(|shape| shape.pool == pool)
                && state.place.iter().any(|(other, _)| *other == node);
            if is_here {
                fallen.extend([Some(*job), state.partner].into_iter().flatten());
            }
        }
        for job in fallen {
            self.stop(job);
            self.returned.push(job);
            let state = &mut self.states[job];
            state.failures += 1;
            if self.options.checkpoint_seconds > 0.0 {
                let lost = state.saved - state.remaining;
                state.lost_seconds += lost;
                state.remaining = state.saved;
                let work = lost * f64::from(self.jobs[job].gpus);
                self.totals.work.take_back(work, self.now, &self.windows);
            }
        }
        self.free[pool].fail(node);
    }
}
