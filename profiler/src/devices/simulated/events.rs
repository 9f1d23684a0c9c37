//! Two step programs beside each other: events are the ends of ops, between them both sides progress steadily.

use super::contention::{Running, Sharing, Together, alone, together};
use super::cost::{Compiled, OpCost, Rates};
use std::collections::BTreeMap;

/// Steps of the slower side per start offset.
const STEPS: u32 = 2;
/// Start offsets of the co-runner, evenly over its step: processes start at no particular phase.
const OFFSETS: u32 = 4;
/// Events after which an offset is ended; only a fast side whose single ops outlast many steps comes near it.
const MAX_EVENTS: u32 = 200_000;

/// A program alone at a share of the chip.
#[derive(Debug, Clone)]
pub(super) struct Alone {
    classes: Vec<OpCost>,
    running: Vec<Running>,
    order: Vec<u32>,
    duty: f64,
    /// Seconds of one step.
    pub(super) step: f64,
    pub(super) clock: f64,
    pub(super) power: f64,
    pub(super) counters: BTreeMap<&'static str, f64>,
}

impl Alone {
    pub(super) fn new(program: &Compiled, rates: &Rates, sharing: &Sharing, side: usize) -> Self {
        let running: Vec<Running> =
            program.classes.iter().map(|class| alone(class, rates, sharing, side)).collect();
        let busy: f64 = program.order.iter().map(|class| running[*class as usize].seconds).sum();
        let step = busy / program.duty;
        let chip = rates.chip;
        let mut sums = Sums::default();
        for class in &program.order {
            let (cost, now) = (&program.classes[*class as usize], &running[*class as usize]);
            sums.add(cost, now, sharing.shares[side]);
        }
        let counters = sums.counters(step, rates);
        // While the host pauses the board rests.
        let rest = (step - busy).max(0.0);
        let mean = |of: fn(&Running) -> f64, resting: f64| {
            let weighted: f64 = program
                .order
                .iter()
                .map(|class| of(&running[*class as usize]) * running[*class as usize].seconds)
                .sum();
            (weighted + resting * rest) / step
        };
        Self {
            clock: chip.clock.get() * mean(|now| now.clock, 1.0),
            power: chip.power.get() * mean(|now| now.power, 0.12),
            classes: program.classes.clone(),
            running,
            order: program.order.clone(),
            duty: program.duty,
            step,
            counters,
        }
    }

    fn seconds(&self, op: usize) -> f64 {
        match self.order.get(op) {
            Some(class) => self.running[*class as usize].seconds,
            None => self.idle(),
        }
    }

    fn idle(&self) -> f64 {
        self.step * (1.0 - self.duty)
    }

    /// Ops of a step, the idle part of a duty cycle as one more.
    fn len(&self) -> usize {
        self.order.len() + usize::from(self.duty < 1.0)
    }
}

/// Time-weighted sums behind the counters of one program.
#[derive(Default)]
struct Sums {
    kernel: f64,
    sm: f64,
    occupancy: f64,
    tensor: f64,
    fma: f64,
    fp64: f64,
    l2: f64,
    dram: f64,
    to_device: f64,
    to_host: f64,
    launches: f64,
}

impl Sums {
    fn add(&mut self, cost: &OpCost, now: &Running, share: f64) {
        self.kernel += now.active * now.seconds;
        self.sm += cost.reach(share) * now.kernel * now.seconds;
        self.occupancy += cost.occupancy.min(share) * now.kernel * now.seconds;
        // Busy cycles: the work over the pipe's achievable rate at the clock in force.
        self.tensor += cost.tensor / now.clock;
        self.fma += cost.fma / now.clock;
        self.fp64 += cost.fp64 / now.clock;
        self.l2 += cost.bytes_l2;
        self.dram += now.dram_bytes;
        self.to_device += cost.bytes_to_device;
        self.to_host += cost.bytes_to_host;
        self.launches += cost.launches;
    }

    fn counters(&self, step: f64, rates: &Rates) -> BTreeMap<&'static str, f64> {
        let ratio = |value: f64| (value / step).clamp(0.0, 1.0);
        let link = rates.chip.link_bandwidth.get();
        let mut counters = BTreeMap::from([
            ("kernel_active_ratio", ratio(self.kernel)),
            ("sm_active_ratio", ratio(self.sm)),
            ("sm_occupancy_ratio", ratio(self.occupancy)),
            ("tensor_active_ratio", ratio(self.tensor)),
            ("fp32_active_ratio", ratio(self.fma)),
            ("fp64_active_ratio", ratio(self.fp64)),
            ("l2_throughput_ratio", ratio(self.l2 / rates.l2_peak)),
            ("dram_throughput_ratio", ratio(self.dram / rates.chip.dram_bandwidth.get())),
            ("copy_active_ratio", ratio(self.to_device.max(self.to_host) / link)),
            ("launch_rate_hertz", self.launches / step),
        ]);
        // Without L2 traffic there is no hit rate, and absent is not 0.
        if self.l2 > 0.0 {
            counters.insert("l2_hit_ratio", (1.0 - self.dram / self.l2).clamp(0.0, 1.0));
        }
        counters
    }
}

/// Both programs beside each other, in the long run.
#[derive(Debug, Clone)]
pub(super) struct CoRun {
    /// Co-located over isolated time per step.
    pub(super) slowdowns: [f64; 2],
    pub(super) clock: f64,
    pub(super) power: f64,
    pub(super) counters: BTreeMap<&'static str, f64>,
}

/// One side on its way through its program.
struct Cursor<'a> {
    side: &'a Alone,
    op: usize,
    /// Isolated seconds of the current op still to do.
    left: f64,
    step_start: f64,
    /// Factor of the progress in the idle part: its length follows the busy time of this very step.
    pace: f64,
    steps: u32,
}

impl<'a> Cursor<'a> {
    fn at(side: &'a Alone, fraction: f64) -> Self {
        let mut into = fraction * side.step;
        let mut op = 0;
        while op + 1 < side.len() && into >= side.seconds(op) {
            into -= side.seconds(op);
            op += 1;
        }
        let left = (side.seconds(op) - into).max(0.0);
        Self { side, op, left, step_start: -(fraction * side.step), pace: 1.0, steps: 0 }
    }

    /// The class of the current op; none in the idle part.
    fn class(&self) -> Option<usize> {
        self.side.order.get(self.op).map(|class| *class as usize)
    }

    fn advance(&mut self, now: f64) {
        self.op += 1;
        self.pace = 1.0;
        if self.op >= self.side.len() {
            self.op = 0;
            self.steps += 1;
            self.step_start = now;
        } else if self.op == self.side.order.len() {
            let busy = (now - self.step_start).max(1e-12);
            let duty = self.side.duty;
            self.pace = self.side.idle() / (busy * (1.0 - duty) / duty);
        }
        self.left = self.side.seconds(self.op);
    }

    /// Isolated seconds of work done since the start.
    fn done(&self, start_left: f64) -> f64 {
        let into: f64 = (0..self.op).map(|op| self.side.seconds(op)).sum::<f64>()
            + self.side.seconds(self.op)
            - self.left;
        f64::from(self.steps) * self.side.step + into - start_left
    }
}

/// Rates of all combinations of ops that occur, computed when first met.
struct Table<'a> {
    sides: [&'a Alone; 2],
    rates: &'a Rates,
    sharing: &'a Sharing,
    known: Vec<Option<Together>>,
    /// Seconds spent in each combination.
    dwell: Vec<f64>,
    pause: (OpCost, Running),
}

impl<'a> Table<'a> {
    fn new(sides: [&'a Alone; 2], rates: &'a Rates, sharing: &'a Sharing) -> Self {
        let size = (sides[0].classes.len() + 1) * (sides[1].classes.len() + 1);
        let cost = OpCost::pause(1.0);
        let running = alone(&cost, rates, sharing, 0);
        Self {
            sides,
            rates,
            sharing,
            known: vec![None; size],
            dwell: vec![0.0; size],
            pause: (cost, running),
        }
    }

    fn index(&self, classes: [Option<usize>; 2]) -> usize {
        let [first, second] = [0, 1].map(|side| classes[side].unwrap_or(self.sides[side].classes.len()));
        first * (self.sides[1].classes.len() + 1) + second
    }

    fn get(&mut self, classes: [Option<usize>; 2]) -> (usize, [f64; 2]) {
        let index = self.index(classes);
        let found = self.known[index].get_or_insert_with(|| {
            let part = |side: usize| {
                classes[side].map_or((&self.pause.0, &self.pause.1), |class| {
                    (&self.sides[side].classes[class], &self.sides[side].running[class])
                })
            };
            let (a, b) = (part(0), part(1));
            together([a.0, b.0], [a.1, b.1], self.rates, self.sharing)
        });
        (index, found.rates)
    }
}

/// Lets both programs run beside each other.
///
/// For each start offset the slower side makes [`STEPS`] steps; a side's slowdown is the time that passed over the
/// isolated seconds of work that it did in it. While one op of the slow side outlasts whole steps of the fast side,
/// the joint motion is periodic, and whole periods are taken at once.
pub(super) fn co_run(sides: [&Alone; 2], rates: &Rates, sharing: &Sharing) -> CoRun {
    let mut table = Table::new(sides, rates, sharing);
    let slow = usize::from(sides[1].step > sides[0].step);
    let (mut time, mut work) = (0.0, [0.0; 2]);
    for offset in 0..OFFSETS {
        let fraction = (f64::from(offset) + 0.5) / f64::from(OFFSETS);
        let mut cursors = [Cursor::at(sides[0], 0.0), Cursor::at(sides[1], 0.0)];
        // The slower side starts at the beginning of a step, so that it ends with one.
        cursors[1 - slow] = Cursor::at(sides[1 - slow], fraction);
        let starts = [cursors[0].done(0.0), cursors[1].done(0.0)];
        let mut now = 0.0;
        let mut events = 0;
        while cursors[slow].steps < STEPS && events < MAX_EVENTS {
            events += 1;
            if cursors[1 - slow].op == 0 && cursors[slow].left > 3.0 * sides[1 - slow].step {
                now = whole_periods(&mut cursors, slow, &mut table, now);
            }
            let (index, pair) = table.get([cursors[0].class(), cursors[1].class()]);
            let speeds = [pair[0] * cursors[0].pace, pair[1] * cursors[1].pace];
            let ends = [cursors[0].left / speeds[0], cursors[1].left / speeds[1]];
            let passed = ends[0].min(ends[1]);
            now += passed;
            table.dwell[index] += passed;
            for side in 0..2 {
                if ends[side] <= passed * (1.0 + 1e-12) {
                    cursors[side].advance(now);
                } else {
                    cursors[side].left -= passed * speeds[side];
                }
            }
        }
        time += now;
        for side in 0..2 {
            work[side] += cursors[side].done(starts[side]);
        }
    }
    let slowdowns = [0, 1].map(|side| if work[side] > 0.0 { (time / work[side]).max(1.0) } else { 1.0 });
    summary(slowdowns, &table, time)
}

/// Skips periods of the fast side within one op of the slow side, all but the last.
fn whole_periods(cursors: &mut [Cursor<'_>; 2], slow: usize, table: &mut Table<'_>, now: f64) -> f64 {
    let fast = 1 - slow;
    let fresh = cursors[fast].side.seconds(0);
    if (cursors[fast].left - fresh).abs() > 1e-12 * fresh {
        return now;
    }
    let slow_class = cursors[slow].class();
    let (mut period, mut slow_work) = (0.0, 0.0);
    let mut spent: Vec<(usize, f64)> = Vec::with_capacity(cursors[fast].side.len());
    for op in 0..cursors[fast].side.len() {
        let class = cursors[fast].side.order.get(op).map(|class| *class as usize);
        let classes = if fast == 0 { [class, slow_class] } else { [slow_class, class] };
        let (index, pair) = table.get(classes);
        let passed = if class.is_some() {
            cursors[fast].side.seconds(op) / pair[fast]
        } else {
            period * (1.0 - cursors[fast].side.duty) / cursors[fast].side.duty
        };
        period += passed;
        slow_work += passed * pair[slow] * cursors[slow].pace;
        spent.push((index, passed));
    }
    let periods = (cursors[slow].left / slow_work).floor() - 1.0;
    if periods < 1.0 {
        return now;
    }
    for (index, passed) in spent {
        table.dwell[index] += passed * periods;
    }
    cursors[slow].left -= periods * slow_work;
    cursors[fast].steps += periods as u32;
    cursors[fast].step_start = periods.mul_add(period, now);
    periods.mul_add(period, now)
}

fn summary(slowdowns: [f64; 2], table: &Table<'_>, time: f64) -> CoRun {
    let chip = table.rates.chip;
    let mean = |of: fn(&Together) -> f64| {
        let weighted: f64 = table
            .known
            .iter()
            .zip(&table.dwell)
            .filter_map(|(pair, dwell)| Some(of(pair.as_ref()?) * dwell))
            .sum();
        weighted / time
    };
    let (dram, l2) = (mean(|pair| pair.dram), mean(|pair| pair.l2));
    let mut counters = BTreeMap::from([
        ("sm_active_ratio", mean(|pair| pair.sm_active).clamp(0.0, 1.0)),
        ("dram_throughput_ratio", (dram / chip.dram_bandwidth.get()).clamp(0.0, 1.0)),
        ("l2_throughput_ratio", (l2 / table.rates.l2_peak).clamp(0.0, 1.0)),
    ]);
    if l2 > 0.0 {
        counters.insert("l2_hit_ratio", (1.0 - dram / l2).clamp(0.0, 1.0));
    }
    CoRun {
        slowdowns,
        clock: chip.clock.get() * mean(|pair| pair.clock),
        power: chip.power.get() * mean(|pair| pair.power),
        counters,
    }
}
