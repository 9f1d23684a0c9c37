//! Two ops at once on one chip: the rates at which both progress.

use super::cost::{OpCost, Rates};
use elastico_core::SharingMode;

/// Share of a time slice lost to the switch: slices of about 2 ms, switches of 50 to 100 us under load (published
/// traces of time-sliced contexts).
const SWITCH_RATIO: f64 = 0.04;
/// Stretch of memory-bound time by queueing behind the other side's DRAM traffic, at full traffic; an assumption.
const QUEUEING: f64 = 0.25;
/// Share of an op's re-reads that its own streaming evicts when its working set is far above L2.
const SELF_EVICTION: f64 = 0.15;
/// Board power at rest over the limit (H100: about 80 of 700 W).
const IDLE_POWER: f64 = 0.12;
/// Power of a fully busy resource over the limit; a large bf16 product alone just reaches the limit, as measured.
const TENSOR_POWER: f64 = 0.78;
const FMA_POWER: f64 = 0.62;
const FP64_POWER: f64 = 0.66;
const L2_POWER: f64 = 0.10;
const DRAM_POWER: f64 = 0.30;
/// Dynamic power follows the clock to this power in the range below boost (voltage falls with the clock).
const POWER_EXPONENT: f64 = 2.5;
/// The clock is never cut below this share of boost.
const LOWEST_CLOCK: f64 = 0.5;

/// Resources that two sides compete for; 3 is shared memory and 8 the block slots, which nothing else asks about.
const RESOURCES: usize = 9;
const TENSOR: usize = 0;
const FMA: usize = 1;
const FP64: usize = 2;
const L2: usize = 4;
const DRAM: usize = 5;
const TO_DEVICE: usize = 6;
const TO_HOST: usize = 7;

/// How two sides share the chip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sharing {
    /// SM shares.
    pub(super) shares: [f64; 2],
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Kernels of both sides are resident together.
    Together,
    /// One issuing thread for both sides.
    OneProcess,
    /// One side at a time.
    Alternating,
    /// Each side has pipes, L2 and DRAM of its own.
    Partitioned,
}

impl Sharing {
    pub(super) fn of(mode: &SharingMode) -> Self {
        let (subject, co_runner) = mode.shares();
        let kind = match mode {
            SharingMode::TimeSlice => Kind::Alternating,
            SharingMode::Mig { .. } => Kind::Partitioned,
            SharingMode::Streams | SharingMode::SplitStreams { .. } => Kind::OneProcess,
            SharingMode::Exclusive | SharingMode::Mps { .. } => Kind::Together,
        };
        Self { shares: [subject, co_runner], kind }
    }

    fn memory_share(&self, side: usize) -> f64 {
        if self.kind == Kind::Partitioned { self.shares[side] } else { 1.0 }
    }
}

/// What one op does in one surrounding.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Running {
    /// Seconds that the op takes.
    pub(super) seconds: f64,
    /// Share of that time in which it keeps each resource of the full device busy.
    usage: [f64; RESOURCES],
    /// Share of that time in which a kernel runs.
    pub(super) kernel: f64,
    /// Share of that time in which a kernel or copy runs.
    pub(super) active: f64,
    /// Share of that time in which the launching thread is busy.
    issue: f64,
    /// Bytes from or to DRAM.
    pub(super) dram_bytes: f64,
    pub(super) clock: f64,
    pub(super) power: f64,
}

/// Two ops together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Together {
    /// Progress of each side relative to the op alone at its share.
    pub(super) rates: [f64; 2],
    pub(super) sm_active: f64,
    /// DRAM bytes per second.
    pub(super) dram: f64,
    /// L2 bytes per second.
    pub(super) l2: f64,
    pub(super) clock: f64,
    pub(super) power: f64,
}

/// One op under an SM share, part of L2, a clock and a stretch of its memory time.
fn run(cost: &OpCost, rates: &Rates, share: f64, memory: f64, l2: f64, clock: f64, stretch: f64) -> Running {
    let chip = rates.chip;
    let reach = cost.reach(share);
    let memory_reach = cost.memory_reach(share, f64::from(chip.warps_per_sm)).min(memory);
    let hot = cost.working_set.min(chip.l2.get() * memory).max(1.0);
    let over = cost.working_set / (chip.l2.get() * memory);
    let evicted = SELF_EVICTION * (1.0 - 1.0 / over.max(1.0));
    // Small sets depend on staying resident; large ones re-read along panels that are hot only for a moment.
    let sensitivity = if over <= 1.0 { 0.6 } else { 0.1 + 0.5 / over };
    let lost = 1.0 - (l2 / hot).min(1.0);
    let missed = evicted + (1.0 - evicted) * sensitivity * lost;
    let dram = cost.reread.mul_add(missed, cost.dram);
    // L2 answers all SMs together at its own rate; fewer SMs ask for less.
    let l2_reach = reach.min(memory);
    let parts = [
        cost.tensor / (reach * clock),
        cost.fma / (reach * clock),
        cost.fp64 / (reach * clock),
        cost.shared / (reach * clock),
        cost.l2 / (l2_reach * clock) * stretch,
        dram / memory_reach * stretch,
        cost.to_device,
        cost.to_host,
    ];
    let kernel = parts[..TO_DEVICE].iter().copied().fold(0.0, f64::max);
    let copies = parts[TO_DEVICE].max(parts[TO_HOST]);
    let busy = kernel.max(copies);
    let seconds = busy.max(cost.issue) + cost.latency + cost.host;
    if seconds <= 0.0 {
        return Running { clock, power: IDLE_POWER, ..Running::default() };
    }
    let usage = [
        cost.tensor / clock / seconds,
        cost.fma / clock / seconds,
        cost.fp64 / clock / seconds,
        cost.shared / clock / seconds,
        cost.l2 / clock / seconds,
        dram / seconds,
        cost.to_device / seconds,
        cost.to_host / seconds,
        // Sleeping blocks hold their slots for all of their latency.
        cost.slots.min(share) * (kernel + cost.latency) / seconds,
    ];
    let running = if cost.launches > 0.0 { (kernel + cost.latency).min(seconds) } else { 0.0 };
    Running {
        seconds,
        usage,
        kernel: running / seconds,
        active: running.max(copies) / seconds,
        issue: cost.issue / seconds,
        dram_bytes: dram * rates.dram,
        clock,
        power: 0.0,
    }
}

/// Power over the limit at boost clock for a usage of each resource.
fn power(usage: &[f64; RESOURCES]) -> (f64, f64) {
    let clocked = TENSOR_POWER * usage[TENSOR]
        + FMA_POWER * usage[FMA]
        + FP64_POWER * usage[FP64]
        + L2_POWER * usage[L2];
    (IDLE_POWER + DRAM_POWER * usage[DRAM], clocked)
}

/// The clock over boost at which the power meets the limit, and the power then.
fn capped((fixed, clocked): (f64, f64)) -> (f64, f64) {
    if fixed + clocked <= 1.0 {
        return (1.0, fixed + clocked);
    }
    let clock = ((1.0 - fixed) / clocked).powf(1.0 / POWER_EXPONENT).clamp(LOWEST_CLOCK, 1.0);
    (clock, (fixed + clocked * clock.powf(POWER_EXPONENT)).min(1.0))
}

/// One op alone at its share of the chip.
pub(super) fn alone(cost: &OpCost, rates: &Rates, sharing: &Sharing, side: usize) -> Running {
    let (share, memory) = (sharing.shares[side], sharing.memory_share(side));
    let l2 = rates.chip.l2.get() * memory;
    let first = run(cost, rates, share, memory, l2, 1.0, 1.0);
    let (clock, level) = capped(power(&first.usage));
    let mut running = if clock < 1.0 { run(cost, rates, share, memory, l2, clock, 1.0) } else { first };
    running.power = level;
    running
}

/// Both ops at once.
pub(super) fn together(
    costs: [&OpCost; 2],
    alone: [&Running; 2],
    rates: &Rates,
    sharing: &Sharing,
) -> Together {
    let chip = rates.chip;
    let parted = sharing.kind == Kind::Partitioned;
    let alternating = sharing.kind == Kind::Alternating;
    let l2 = l2_split(costs, chip.l2.get(), sharing);
    let mut clock = 1.0;
    let mut state = [Running::default(); 2];
    let mut speed = [1.0; 2];
    let mut level = IDLE_POWER;
    for _ in 0..2 {
        for side in 0..2 {
            let other = alone[1 - side].usage[DRAM].min(1.0);
            let stretch = if parted || alternating { 1.0 } else { QUEUEING.mul_add(other * other, 1.0) };
            let (share, memory) = (sharing.shares[side], sharing.memory_share(side));
            let mut now = run(costs[side], rates, share, memory, l2[side], clock, stretch);
            // A neighbour never makes an op faster than it is alone.
            if now.seconds < alone[side].seconds {
                let scale = now.seconds / alone[side].seconds;
                now.usage.iter_mut().for_each(|usage| *usage *= scale);
                now.issue *= scale;
                now.seconds = alone[side].seconds;
            }
            state[side] = now;
        }
        speed = fair(&state, sharing);
        let mut usage = [0.0; RESOURCES];
        for (total, resource) in usage.iter_mut().zip(0..RESOURCES) {
            *total = state[0].usage[resource] * speed[0] + state[1].usage[resource] * speed[1];
        }
        (clock, level) = capped(power(&usage));
        if clock >= 1.0 {
            break;
        }
    }
    let progress: [f64; 2] = std::array::from_fn(|side| {
        if state[side].seconds > 0.0 {
            (speed[side] * alone[side].seconds / state[side].seconds).min(1.0)
        } else {
            1.0
        }
    });
    // Both sides at once on an SM count once: inclusion and exclusion with independent placement.
    let covers: [f64; 2] = std::array::from_fn(|side| {
        costs[side].reach(sharing.shares[side]) * (state[side].kernel * speed[side]).min(1.0)
    });
    let sm_active = if alternating || parted {
        (covers[0] + covers[1]).min(1.0)
    } else {
        1.0 - (1.0 - covers[0]) * (1.0 - covers[1])
    };
    let per_second = |amount: [f64; 2]| -> f64 {
        (0..2)
            .map(|side| {
                if state[side].seconds > 0.0 { amount[side] * speed[side] / state[side].seconds } else { 0.0 }
            })
            .sum()
    };
    Together {
        rates: progress,
        sm_active,
        dram: per_second([state[0].dram_bytes, state[1].dram_bytes]),
        l2: per_second([costs[0].bytes_l2, costs[1].bytes_l2]),
        clock,
        power: level,
    }
}

/// L2 bytes that each side's working set can hold: all it wants if both fit, else in proportion to what each wants.
fn l2_split(costs: [&OpCost; 2], l2: f64, sharing: &Sharing) -> [f64; 2] {
    match sharing.kind {
        Kind::Partitioned => [l2 * sharing.shares[0], l2 * sharing.shares[1]],
        // Each slice refills L2 in microseconds, far below the slice.
        Kind::Alternating => [l2, l2],
        Kind::Together | Kind::OneProcess => {
            let want = costs.map(|cost| cost.working_set.min(l2));
            let total = want[0] + want[1];
            if total <= l2 { [l2, l2] } else { want.map(|wanted| l2 * wanted / total) }
        }
    }
}

/// Max-min fair speeds of both sides, 0..1 of their own unhindered speed.
fn fair(state: &[Running; 2], sharing: &Sharing) -> [f64; 2] {
    let mut demands: [[f64; RESOURCES + 2]; 2] = [[0.0; RESOURCES + 2]; 2];
    for (demand, side) in demands.iter_mut().zip(state) {
        match sharing.kind {
            Kind::Alternating => demand[RESOURCES] = side.kernel / (1.0 - SWITCH_RATIO),
            Kind::Together | Kind::OneProcess => demand[..RESOURCES].copy_from_slice(&side.usage),
            Kind::Partitioned => {}
        }
        // All sides share the host link, whatever shares the SMs.
        demand[TO_DEVICE] = side.usage[TO_DEVICE];
        demand[TO_HOST] = side.usage[TO_HOST];
        if sharing.kind == Kind::OneProcess {
            demand[RESOURCES + 1] = side.issue;
        }
    }
    // A side alone on the device pays no switch.
    if state.iter().any(|side| side.kernel == 0.0) {
        demands[0][RESOURCES] = 0.0;
        demands[1][RESOURCES] = 0.0;
    }
    let best = |side: usize, other_speed: f64| {
        let mut speed = 1.0_f64;
        for (own, other) in demands[side].iter().zip(&demands[1 - side]) {
            if *own > 0.0 {
                speed = speed.min((1.0 - other * other_speed).max(0.5) / own);
            }
        }
        speed
    };
    // Both sides at once, not one after the other, so that neither is favoured.
    let mut speed = [1.0; 2];
    for _ in 0..4 {
        speed = [best(0, speed[1]), best(1, speed[0])];
    }
    let peak =
        demands[0].iter().zip(&demands[1]).map(|(a, b)| a * speed[0] + b * speed[1]).fold(1.0, f64::max);
    [speed[0] / peak, speed[1] / peak]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn op() -> impl Strategy<Value = OpCost> {
        let amount = || prop_oneof![Just(0.0), 1e-7_f64..1e-3];
        (
            [amount(), amount(), amount(), amount(), amount(), amount()],
            amount(),
            1e3_f64..1e10,
            0.01_f64..1.0,
            0.05_f64..1.0,
        )
            .prop_map(|(parts, host, working_set, width, occupancy)| OpCost {
                tensor: parts[0],
                fma: parts[1],
                l2: parts[2],
                dram: parts[3],
                reread: parts[4],
                to_device: parts[5],
                issue: 2e-6,
                latency: 1e-6,
                host,
                working_set,
                width,
                occupancy: occupancy * width,
                slots: 0.4 * occupancy * width,
                launches: 1.0,
                bytes_l2: 1e6,
                ..OpCost::default()
            })
    }

    fn modes() -> impl Strategy<Value = SharingMode> {
        prop_oneof![
            Just("time_slice"),
            Just("mps(1,1)"),
            Just("mps(0.5,0.5)"),
            Just("mps(0.3,0.9)"),
            Just("streams"),
            Just("mig(3g.40gb)")
        ]
        .prop_map(|text| text.parse().unwrap())
    }

    proptest! {
        /// No resource is used above its peak, no side gains from a neighbour, and sides that swap swap their rates.
        #[test]
        fn contention_conserves_and_is_symmetric(a in op(), b in op(), mode in modes()) {
            let rates = Rates::of(elastico_core::chip("h100").unwrap());
            let sharing = Sharing::of(&mode);
            let (a_alone, b_alone) = (alone(&a, &rates, &sharing, 0), alone(&b, &rates, &sharing, 1));
            let pair = together([&a, &b], [&a_alone, &b_alone], &rates, &sharing);
            for rate in pair.rates {
                prop_assert!(rate > 0.0 && rate <= 1.0, "{:?}", pair);
            }
            prop_assert!(pair.dram <= rates.dram * (1.0 + 1e-9) || mode.family() == "mig", "{:?}", pair);
            prop_assert!(pair.power <= 1.0 + 1e-9 && pair.clock <= 1.0);
            prop_assert!((0.0..=1.0).contains(&pair.sm_active));
            for (cost, running, rate) in [(&a, &a_alone, pair.rates[0]), (&b, &b_alone, pair.rates[1])] {
                let tensor = cost.tensor * rate / running.seconds;
                prop_assert!(tensor <= 1.0 + 1e-9);
            }
            let swapped = Sharing::of(&mode.swapped());
            let mirror = together([&b, &a], [&b_alone, &a_alone], &rates, &swapped);
            prop_assert!((mirror.rates[0] - pair.rates[1]).abs() < 1e-9 && (mirror.rates[1] - pair.rates[0]).abs() < 1e-9);
        }

        /// Together the tensor pipe never does more than its peak.
        #[test]
        fn pipes_never_exceed_their_peak(a in op(), b in op()) {
            let rates = Rates::of(elastico_core::chip("a100-80gb").unwrap());
            let sharing = Sharing::of(&SharingMode::MPS_UNLIMITED);
            let (a_alone, b_alone) = (alone(&a, &rates, &sharing, 0), alone(&b, &rates, &sharing, 1));
            let pair = together([&a, &b], [&a_alone, &b_alone], &rates, &sharing);
            let use_of = |part: fn(&OpCost) -> f64| {
                part(&a) * pair.rates[0] / a_alone.seconds + part(&b) * pair.rates[1] / b_alone.seconds
            };
            prop_assert!(use_of(|cost| cost.tensor) <= 1.0 + 1e-6);
            prop_assert!(use_of(|cost| cost.fma) <= 1.0 + 1e-6);
            prop_assert!(use_of(|cost| cost.l2) <= 1.0 + 1e-6);
            prop_assert!(use_of(|cost| cost.dram) <= 1.0 + 1e-6);
            prop_assert!(use_of(|cost| cost.to_device) <= 1.0 + 1e-6);
        }
    }
}
