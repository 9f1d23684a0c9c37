//! Living commands: phases with telemetry, parking by signals, counters.

use super::super::counters::{Place, Read, Reading};
use super::super::sharing::Arrangement;
use super::CommandDevice;
use crate::device::{
    Active, CounterReading, Fault, Phase, Session, SessionReport, SessionRequest, Side, Telemetry, Window,
};
use crate::exec::progress::Progress;
use crate::exec::{Guard, Running, StepSource};
use crate::protocol::SOAK_STEPS;
use elastico_core::units::Seconds;
use elastico_core::{Outcome, SharingMode, WorkloadId};
use elastico_gpu::ring::monotonic_nanoseconds;
use std::time::{Duration, Instant};

/// How often records are fetched.
const LOOK: Duration = Duration::from_millis(10);
/// Records of what has ended come at the latest after this: a flush, and one more for a buffer that was not complete.
const DELIVERY: Duration = Duration::from_secs(1);
/// A side that is alone and makes nothing for so long may wait for a lock of the parked one.
const STUCK: Duration = Duration::from_secs(1);
/// So often the parked side is let go on for a moment.
const NUDGES: u32 = 3;
/// Length of the repetition that counters are read in.
const COUNTING: Window = Window { min: Seconds(1.0), min_steps: 10, max: Seconds(20.0) };
/// Length of a look at a pair whose progress cannot be told.
const GLANCE: Duration = Duration::from_secs(2);

pub(super) struct CommandSession<'a> {
    device: &'a mut CommandDevice,
    sides: Vec<Running>,
    arrangement: Arrangement,
    requested: SharingMode,
    subject: WorkloadId,
    epoch: u64,
    memory_before: Option<f64>,
    telemetry_status: Option<String>,
    flags: Vec<&'static str>,
    /// After the sides: it must outlive them.
    _guard: Guard,
}

impl<'a> CommandSession<'a> {
    pub(super) fn new(
        device: &'a mut CommandDevice,
        sides: Vec<Running>,
        guard: Guard,
        arrangement: Arrangement,
        request: &SessionRequest<'_>,
        memory_before: Option<f64>,
        mut flags: Vec<&'static str>,
    ) -> Self {
        for side in &sides {
            let flag = match &side.source {
                StepSource::Kernels { progress: Progress::Weighted(_), .. } => "aperiodic_progress",
                StepSource::Lines(_) => "progress_by_lines",
                _ => continue,
            };
            if !flags.contains(&flag) {
                flags.push(flag);
            }
        }
        Self {
            device,
            sides,
            arrangement,
            requested: request.sharing.clone(),
            subject: request.subject.id.clone(),
            epoch: monotonic_nanoseconds(),
            memory_before,
            telemetry_status: None,
            flags,
            _guard: guard,
        }
    }

    /// Parks the sides that are not wanted, then lets the wanted ones go on.
    fn arrange(&mut self, active: Active) -> Result<(), Fault> {
        if active != Active::Alone(Side::Subject) && self.sides.len() < 2 {
            return Err(Fault {
                outcome: Outcome::Unsupported,
                detail: "the session was opened without a co-runner".to_owned(),
            });
        }
        for side in self.sides.iter_mut().filter(|side| !is_active(active, side.side)) {
            side.park();
        }
        for side in self.sides.iter_mut().filter(|side| is_active(active, side.side)) {
            side.resume();
        }
        Ok(())
    }

    /// Drops what was seen so far: the phase begins now.
    fn begin(&mut self) -> Result<u64, Fault> {
        for side in &mut self.sides {
            side.fetch()?;
            side.forget();
        }
        Ok(monotonic_nanoseconds())
    }

    /// Looks after all sides once; a fault ends the phase.
    fn look(&mut self) -> Result<(), Fault> {
        for side in &mut self.sides {
            side.health()?;
            side.fetch()?;
        }
        self.device.gpu.poller.xid(false).map_or(Ok(()), Err)
    }

    /// Runs one phase; from and to on the clock of the rings.
    fn watch(&mut self, active: Active, window: Window) -> Result<(u64, u64), Fault> {
        self.arrange(active)?;
        let [min, max] = [window.min, window.max].map(|limit| {
            Duration::try_from_secs_f64(limit.get().max(0.0)).unwrap_or(Duration::from_hours(24))
        });
        let max = max.max(min);
        let (mut from, mut start, mut nudges) = (self.begin()?, Instant::now(), 0);
        loop {
            self.look()?;
            let elapsed = start.elapsed();
            let running = || self.sides.iter().filter(|side| is_active(active, side.side));
            let fewest = running().map(Running::count).min().unwrap_or(0);
            if elapsed >= max || (elapsed >= min && fewest >= window.min_steps) {
                break;
            }
            let slow = |side: &Running, least: Duration, steps: f64| {
                least.max(Duration::try_from_secs_f64(steps * side.usual()).unwrap_or(least))
            };
            let hang = self.device.start.hang;
            if let Some(silent) = running().find(|side| side.silence() > slow(side, hang, 10.0)) {
                let what = format!("lives but makes nothing for {:.0} s", silent.silence().as_secs_f64());
                return Err(silent.fault_with_log(Outcome::Hang, &what));
            }
            let is_stuck = running().any(|side| side.silence() > slow(side, STUCK, 5.0));
            if is_stuck && nudges < NUDGES && !matches!(active, Active::Both) {
                nudges += 1;
                self.sides.iter_mut().for_each(Running::nudge);
                // What came until now was not alone.
                from = self.begin()?;
                start = Instant::now();
            }
            std::thread::sleep(LOOK);
        }
        let to = monotonic_nanoseconds();
        let longest = self.sides.iter().map(Running::usual).fold(0.0, f64::max);
        let patience = Duration::try_from_secs_f64(2.0 * longest).unwrap_or(DELIVERY).max(DELIVERY);
        let deadline = Instant::now() + patience;
        let is_missing = |side: &Running| is_active(active, side.side) && !side.knows(to);
        while self.sides.iter().any(is_missing) && Instant::now() < deadline {
            self.look()?;
            std::thread::sleep(LOOK);
        }
        for side in &self.sides {
            let lost = side.lost();
            if lost > 0 {
                let what =
                    format!("made kernels faster than they could be recorded: {lost} records are lost");
                return Err(side.fault(Outcome::Timeout, &what));
            }
        }
        Ok((from, to))
    }

    /// After a fault the commands are of no use: all end, and the device is left as a fresh session needs it.
    fn after<T>(&mut self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.map_err(|fault| {
            self.sides.iter_mut().for_each(Running::end);
            self.device.gpu.blame(fault, &self.arrangement)
        })
    }

    fn telemetry(&mut self, from: u64, to: u64) -> Telemetry {
        let (telemetry, status) = self.device.gpu.poller.window(from, to);
        if self.telemetry_status.as_ref().is_none_or(|known| known == "ok") {
            self.telemetry_status = Some(status);
        }
        telemetry
    }

    /// Notes what the subject takes alone, by which a pair that cannot fit is refused before it starts.
    fn note_memory(&mut self) {
        let gpu = &mut self.device.gpu;
        if let (1, Some(before), Some(now)) = (self.sides.len(), self.memory_before, gpu.poller.memory_used())
        {
            gpu.ledger.note(&self.subject, now - before);
        }
    }

    /// Searches anew for the period of sides that make kernels and no steps: what was learnt was part of their start-up.
    fn learn_again(&mut self, active: Active) {
        for side in self.sides.iter_mut().filter(|side| is_active(active, side.side) && side.count() == 0) {
            let StepSource::Kernels { ring, .. } = side.source else { continue };
            if let Some(period) = crate::exec::progress::find(side.sorted(ring, usize::MAX)) {
                side.source = StepSource::Kernels { ring, progress: Progress::Periodic(period) };
            }
        }
    }

    /// Why the progress of a side cannot be told.
    fn untold(&self) -> Option<Fault> {
        self.sides.iter().find_map(|side| match &side.source {
            StepSource::None(reason) => Some(side.fault(
                Outcome::CountersUnavailable,
                &format!(
                    "shows no progress: {reason}. No slowdown can be given; --progress-pattern counts lines that it prints"
                ),
            )),
            _ => None,
        })
    }

    /// What can be said without progress: clocks, power and counters of each side alone and of both.
    fn glance(&mut self) -> Result<Vec<String>, Fault> {
        let mut seen = Vec::new();
        let mut views = vec![("subject alone", Active::Alone(Side::Subject))];
        if self.sides.len() == 2 {
            views.extend([("co-runner alone", Active::Alone(Side::CoRunner)), ("both", Active::Both)]);
        }
        for (name, active) in views {
            self.arrange(active)?;
            let reading = self.begin_counters();
            let from = self.begin()?;
            let deadline = Instant::now() + GLANCE;
            while Instant::now() < deadline {
                self.look()?;
                std::thread::sleep(LOOK);
            }
            let to = monotonic_nanoseconds();
            let telemetry = self.telemetry(from, to);
            let busy = self.activity(active, from, to).0;
            let (read, _) = self.device.gpu.source.finish(reading, busy);
            let part = |value: Option<f64>, unit: &str, scale: f64| {
                value.map(|value| format!("{:.0} {unit}", value * scale))
            };
            let parts = [
                part(telemetry.clock.map(elastico_core::units::Hertz::get), "MHz", 1e-6),
                part(telemetry.power.map(elastico_core::units::Watts::get), "W", 1.0),
                part(read.values.get("sm_active_ratio").copied(), "% of SM cycles active", 100.0),
                part(read.values.get("dram_throughput_ratio").copied(), "% of DRAM bandwidth", 100.0),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            let parts = if parts.is_empty() { "nothing to be read".to_owned() } else { parts.join(", ") };
            seen.push(format!("{name}: {parts}"));
        }
        Ok(seen)
    }

    /// Share of the time in which the busier of the active sides had kernels or copies running, and launches per second
    /// of all of them; 0 where they cannot be told.
    fn activity(&self, active: Active, from: u64, to: u64) -> (f64, f64) {
        let sides = self.sides.iter().filter(|side| is_active(active, side.side));
        let seen = sides.filter_map(|side| side.activity(from, to));
        seen.fold((0.0, 0.0), |(busy, rate), (more, launches)| {
            (f64::max(busy, more.min(1.0)), rate + launches)
        })
    }

    fn begin_counters(&mut self) -> Reading {
        let gpu = &mut self.device.gpu;
        let place = Place {
            command: &gpu.command,
            options: &gpu.options,
            uuid: &gpu.facts.uuid,
            no_mps: gpu.no_mps.path(),
            cores: gpu.cores.coordinator(),
        };
        gpu.source.begin(&place)
    }
}

fn is_active(active: Active, side: Side) -> bool {
    active == Active::Both || active == Active::Alone(side)
}

impl Session for CommandSession<'_> {
    fn effective_sharing(&self) -> SharingMode {
        // Checked when the sides started, as far as they told.
        self.requested.clone()
    }

    fn run(&mut self, active: Active, window: Window) -> Result<Phase, Fault> {
        if let Some(mut fault) = self.untold() {
            let glance = self.glance();
            fault.detail.push_str(&format!(". Seen: {}", self.after(glance)?.join("; ")));
            return Err(fault);
        }
        let watched = self.watch(active, window);
        let (from, to) = self.after(watched)?;
        let telemetry = self.telemetry(from, to);
        self.note_memory();
        if window.min_steps <= SOAK_STEPS {
            self.learn_again(active);
        }
        let epoch = self.epoch;
        let mut of = |wanted: Side| {
            let side = self.sides.iter_mut().find(|side| side.side == wanted && is_active(active, wanted));
            side.map(|side| side.steps(from, to, epoch)).unwrap_or_default()
        };
        Ok(Phase { subject: of(Side::Subject), co_runner: of(Side::CoRunner), telemetry })
    }

    fn counters(&mut self, active: Active) -> Result<CounterReading, Fault> {
        let reading = self.begin_counters();
        let watched = self.watch(active, COUNTING);
        let (from, to) = self.after(watched)?;
        let (busy, rate) = self.activity(active, from, to);
        let (Read { mut values, status }, is_suspect) = self.device.gpu.source.finish(reading, busy);
        if rate > 0.0 {
            values.entry("launch_rate_hertz").or_insert(rate);
        }
        if busy > 0.0 && matches!(active, Active::Alone(_)) {
            values.entry("kernel_active_ratio").or_insert(busy);
        }
        let flags = if is_suspect { vec!["counters_suspect"] } else { Vec::new() };
        Ok(CounterReading { values, status, flags })
    }

    fn report(&self) -> SessionReport {
        let of = |wanted: Side| self.sides.iter().find(|side| side.side == wanted);
        SessionReport {
            multiprocessors: [Side::Subject, Side::CoRunner].map(|side| {
                let reports = of(side)?.reports();
                reports.iter().map(|report| report.multiprocessors).find(|count| *count > 0)
            }),
            memory_peak: [None, None],
            telemetry_status: self.telemetry_status.clone(),
            flags: self.flags.clone(),
        }
    }
}
