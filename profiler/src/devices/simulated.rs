//! Simulated GPUs: a fluid event model. Its numbers are computed, never measured.
//!
//! # The model
//!
//! **An op alone.** From its demand (FLOPs by pipe, L2, DRAM and link bytes, launches, blocks) follow the seconds
//! `c_k` for which it would keep each resource `k` of the full chip busy at the rate that good kernels reach. At SM
//! share `p` and relative clock `f`, with `w` the share of the SMs that its blocks can fill:
//!
//! ```text
//! T = max( c_pipe / (min(p, w) f),  c_L2 / (min(p, w) f),  c_DRAM / min(1, 2 min(p, w), warps / 8),  c_link,
//!          launches x issue )
//!     + launches x gap + atomic chain + sleep + host
//! ```
//!
//! **L2.** Compulsory traffic always reaches DRAM; re-reads do where they miss. With working set `W`, capacity `C` and
//! the part `C'` of it that is left beside the other side (in proportion to both working sets once they exceed `C`):
//! `miss = e + (1 - e) s (1 - min(1, C' / min(W, C)))`, self-eviction `e = 0.15 (1 - C / W)` for `W > C`, and
//! sensitivity `s` falling from 0.6 (resident sets) to 0.1 (tiled streams).
//!
//! **Two ops.** With `u_k = c_k / T` the usage of each resource, both progress at speeds `r` that are max-min fair under
//! `u_k r + u'_k r' <= 1` for every `k`: tensor, FMA and FP64 pipes, shared memory, L2, DRAM, either direction of the
//! link, and block slots. Memory-bound time is stretched by `1 + 0.25 rho^2` with the other side's DRAM load `rho`.
//! * `mps(p, q)` caps `min(p, w)` and shares everything else; `streams` shares the launching thread too.
//! * `time_slice` has one resource, the SMs' time, of which 4 % are lost to switches while both sides have kernels.
//! * `mig(Kg…)` gives each side K/7 of pipes, L2 and DRAM; only link and power are shared.
//!
//! **Power.** `P = 0.12 + sum a_k u_k r` over the board's limit; above 1 the clock falls to
//! `f = ((1 - fixed) / clocked)^(1 / 2.5)`, which slows pipes and L2 but not DRAM.
//!
//! **Two programs.** Between the ends of ops both sides progress steadily, so a co-run is a sequence of events over
//! pairs of ops. The co-runner starts at four offsets, evenly over its step. Idle parts of a duty cycle follow the busy
//! time of the step.
//!
//! **Noise**, so that the statistics have work to do: per process 0.3 % on all its times (where its memory came to
//! lie), per pair trial 1 % of the excess of each slowdown over 1, per step 0.5 %. All of it follows from seed and
//! trial id, and not from the order of trials.
//!
//! # What it leaves out
//! Tail waves, partial slices (a kernel shorter than a slice waits for a whole foreign slice on a real device), TLBs,
//! instruction caches, DRAM refresh and row conflicts, thermal drift. Constants stand beside their source in `cost` and
//! `contention`; those that are assumptions say so.

mod contention;
mod cost;
mod events;

use crate::Error;
use crate::device::{
    Active, CounterReading, Device, DeviceIdentity, Fault, Phase, Session, SessionRequest, Side, StepRecord,
    Telemetry, Window,
};
use contention::Sharing;
use cost::{Compiled, Rates};
use elastico_core::units::{Hertz, Watts};
use elastico_core::{COUNTERS, DeviceKind, DeviceName, Outcome, SharingMode, Stream, chip};
use elastico_workloads::Benchmark;
use events::{Alone, CoRun};
use rand::Rng;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Version of the model: results of two versions are not alike.
pub const MODEL: &str = "fluid-1";

const STEP_NOISE: f64 = 0.005;
const PROCESS_NOISE: f64 = 0.003;
const EXCESS_NOISE: f64 = 0.01;

/// A simulated chip.
///
/// Programs and pairs are computed once and kept, so one `Simulated` serves one catalogue: a workload's id names it.
#[derive(Debug)]
pub struct Simulated {
    identity: DeviceIdentity,
    rates: Rates,
    programs: BTreeMap<String, Rc<Compiled>>,
    alone: BTreeMap<(String, SharingMode, bool), Rc<Alone>>,
    pairs: BTreeMap<(String, String, SharingMode), Rc<CoRun>>,
}

impl Simulated {
    /// The chip of a name from [`elastico_core::CHIPS`].
    ///
    /// # Errors
    /// [`Error::NoDevice`] where there is no such chip.
    pub fn new(name: &str) -> Result<Self, Error> {
        let Some(chip) = chip(name) else {
            let reason = format!("sim:{name}")
                .parse::<DeviceName>()
                .map_or_else(|error| error.to_string(), |_| String::new());
            return Err(Error::NoDevice { device: format!("sim:{name}"), reason });
        };
        let facts = BTreeMap::from([
            ("chip".to_owned(), chip.product.to_owned()),
            ("chip_source".to_owned(), chip.source.to_owned()),
            ("model".to_owned(), MODEL.to_owned()),
        ]);
        let identity = DeviceIdentity {
            kind: DeviceKind::Simulated,
            model: chip.name.to_owned(),
            memory: chip.memory,
            facts,
        };
        let rates = Rates::of(chip);
        Ok(Self {
            identity,
            rates,
            programs: BTreeMap::new(),
            alone: BTreeMap::new(),
            pairs: BTreeMap::new(),
        })
    }

    fn program(&mut self, benchmark: &Benchmark) -> Rc<Compiled> {
        if let Some(known) = self.programs.get(benchmark.id.as_str()) {
            return Rc::clone(known);
        }
        let compiled = Rc::new(Compiled::new(benchmark.program(), &self.rates));
        self.programs.insert(benchmark.id.to_string(), Rc::clone(&compiled));
        compiled
    }

    fn alone(&mut self, benchmark: &Benchmark, mode: &SharingMode, second: bool) -> Rc<Alone> {
        let key = (benchmark.id.to_string(), mode.clone(), second);
        if let Some(known) = self.alone.get(&key) {
            return Rc::clone(known);
        }
        let program = self.program(benchmark);
        let alone = Rc::new(Alone::new(&program, &self.rates, &Sharing::of(mode), usize::from(second)));
        self.alone.insert(key, Rc::clone(&alone));
        alone
    }

    fn pair(&mut self, subject: &Benchmark, co_runner: &Benchmark, mode: &SharingMode) -> Rc<CoRun> {
        let key = (subject.id.to_string(), co_runner.id.to_string(), mode.clone());
        if let Some(known) = self.pairs.get(&key) {
            return Rc::clone(known);
        }
        let sides = [self.alone(subject, mode, false), self.alone(co_runner, mode, true)];
        let pair = Rc::new(events::co_run([&sides[0], &sides[1]], &self.rates, &Sharing::of(mode)));
        self.pairs.insert(key, Rc::clone(&pair));
        pair
    }
}

impl Device for Simulated {
    fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    fn open<'a>(&'a mut self, request: &SessionRequest<'_>) -> Result<Box<dyn Session + 'a>, Fault> {
        let footprint = self.program(request.subject).footprint
            + request.co_runner.map_or(0.0, |co_runner| self.program(co_runner).footprint);
        if footprint > self.identity.memory.get() {
            let detail =
                format!("{:.1} GB do not fit {:.1} GB", footprint / 1e9, self.identity.memory.get() / 1e9);
            return Err(Fault { outcome: Outcome::Oom, detail });
        }
        let mut noise = Noise(request.seed.stream("simulated", &[request.trial.as_str()]));
        let mut side = |alone: Rc<Alone>| {
            let factor = PROCESS_NOISE.mul_add(noise.normal(), 1.0);
            Running { step: alone.step * factor, alone }
        };
        let subject = side(self.alone(request.subject, request.sharing, false));
        let mut sides = vec![subject];
        let mut pair = None;
        let mut slowdowns = [1.0; 2];
        if let Some(co_runner) = request.co_runner {
            sides.push(side(self.alone(co_runner, request.sharing, true)));
            let known = self.pair(request.subject, co_runner, request.sharing);
            for (slowdown, exact) in slowdowns.iter_mut().zip(known.slowdowns) {
                *slowdown = (exact - 1.0).mul_add(EXCESS_NOISE.mul_add(noise.normal(), 1.0), 1.0);
            }
            pair = Some(known);
        }
        Ok(Box::new(Simulation {
            sharing: request.sharing.clone(),
            sides,
            pair,
            slowdowns,
            noise,
            clock: 0.0,
        }))
    }
}

/// Normal numbers to about 3.5 deviations, four sums of four 16-bit uniforms (Irwin and Hall) per draw.
#[derive(Debug)]
struct Noise(Stream);

impl Noise {
    fn normal(&mut self) -> f64 {
        let bits = self.0.next_u64();
        let sum: u64 = (0..4).map(|word| bits >> (16 * word) & 0xffff).sum();
        // Four uniforms have mean 2 and variance 1/3.
        (sum as f64 / 65_536.0 - 1.999_969_482) * 3.0_f64.sqrt()
    }
}

/// One side of a session.
#[derive(Debug)]
struct Running {
    /// Isolated seconds of a step of this very process.
    step: f64,
    alone: Rc<Alone>,
}

#[derive(Debug)]
struct Simulation {
    sharing: SharingMode,
    sides: Vec<Running>,
    pair: Option<Rc<CoRun>>,
    slowdowns: [f64; 2],
    noise: Noise,
    clock: f64,
}

impl Simulation {
    fn index(&self, side: Side) -> Result<usize, Fault> {
        let index = usize::from(side == Side::CoRunner);
        if index < self.sides.len() {
            Ok(index)
        } else {
            let detail = "an isolated session has no co-runner".to_owned();
            Err(Fault { outcome: Outcome::WorkerCrash, detail })
        }
    }

    /// Steps from now on: all that begin before `end`, or as many as `steps`.
    fn steps(&mut self, step: f64, end: f64) -> Vec<StepRecord> {
        let mut now = self.clock;
        let mut records = Vec::with_capacity(((end - now) / step) as usize + 2);
        while now < end {
            let start = now;
            now += step * STEP_NOISE.mul_add(self.noise.normal(), 1.0);
            records.push(StepRecord { start, end: now });
        }
        records
    }
}

impl Session for Simulation {
    fn effective_sharing(&self) -> SharingMode {
        self.sharing.clone()
    }

    fn run(&mut self, active: Active, window: Window) -> Result<Phase, Fault> {
        let mut steps = [f64::NAN; 2];
        match active {
            Active::Alone(side) => {
                let index = self.index(side)?;
                steps[index] = self.sides[index].step;
            }
            Active::Both => {
                for side in [Side::Subject, Side::CoRunner] {
                    let index = self.index(side)?;
                    steps[index] = self.sides[index].step * self.slowdowns[index];
                }
            }
        }
        let slowest = steps.iter().copied().fold(0.0, f64::max);
        // Half a step less than whole ones: a step that starts is finished.
        let enough = (f64::from(window.min_steps) - 0.5) * slowest;
        let end = self.clock + enough.max(window.min.get()).min(window.max.get());
        let mut records: [Vec<StepRecord>; 2] = Default::default();
        for (record, step) in records.iter_mut().zip(steps) {
            if step.is_finite() {
                *record = self.steps(step, end);
            }
        }
        let last = records.iter().filter_map(|record| record.last()).map(|step| step.end);
        self.clock = last.fold(end, f64::max);
        let (clock, power) = match (active, &self.pair) {
            (Active::Both, Some(pair)) => (pair.clock, pair.power),
            (Active::Alone(Side::CoRunner), _) => (self.sides[1].alone.clock, self.sides[1].alone.power),
            _ => (self.sides[0].alone.clock, self.sides[0].alone.power),
        };
        let telemetry = Telemetry {
            clock: Some(Hertz(clock)),
            power: Some(Watts(power)),
            // The power limit is a channel of contention, not a fault of the cooling.
            throttled_ratio: Some(0.0),
            ..Telemetry::default()
        };
        let [subject, co_runner] = records;
        Ok(Phase { subject, co_runner, telemetry })
    }

    fn counters(&mut self, active: Active) -> Result<CounterReading, Fault> {
        let values = match (active, &self.pair) {
            (Active::Both, Some(pair)) => pair.counters.clone(),
            (Active::Both, None) => {
                let detail = "an isolated session has no co-runner".to_owned();
                return Err(Fault { outcome: Outcome::WorkerCrash, detail });
            }
            (Active::Alone(side), _) => self.sides[self.index(side)?].alone.counters.clone(),
        };
        let complete = COUNTERS.iter().all(|counter| values.contains_key(counter.name));
        let status = match (active, complete) {
            (Active::Both, _) | (_, true) => "ok",
            (_, false) => "no L2 traffic, so no hit rate",
        };
        Ok(CounterReading { values, status: status.to_owned(), ..CounterReading::default() })
    }
}
