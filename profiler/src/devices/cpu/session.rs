//! Two living workers: phases, telemetry, counters.

use super::CpuOptions;
use super::cores::Placing;
use super::process::WorkerProcess;
use crate::device::{
    Active, CounterReading, Fault, Phase, Session, SessionRequest, Side, StepRecord, Telemetry, Window,
};
use elastico_core::units::{Hertz, Seconds};
use elastico_core::{Outcome, SharingMode};
use elastico_gpu::ring::{Command, Step, monotonic_nanoseconds};
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the coordinator looks: rarely, because it takes its time from the cores that it measures.
const LOOK: Duration = Duration::from_millis(10);
/// How often clocks are read.
const SAMPLE: Duration = Duration::from_millis(200);
/// How often the coordinator shows its workers that it lives.
const BEAT: Duration = Duration::from_millis(250);
/// Length of the repetition that counters are read in.
const COUNTING: Window = Window { min: Seconds(0.3), min_steps: 5, max: Seconds(5.0) };

pub(super) struct CpuSession {
    subject: WorkerProcess,
    co_runner: Option<WorkerProcess>,
    placing: Placing,
    launches: [u64; 2],
    epoch: u64,
    drain_timeout: Duration,
    heart: Option<(Sender<()>, JoinHandle<()>)>,
}

/// The raw steps of one phase.
struct Raw {
    subject: Vec<Step>,
    co_runner: Vec<Step>,
    telemetry: Telemetry,
}

impl CpuSession {
    pub(super) fn new(
        options: &CpuOptions,
        subject: WorkerProcess,
        co_runner: Option<WorkerProcess>,
        placing: Placing,
        request: &SessionRequest<'_>,
    ) -> Self {
        let beacons: Vec<_> = [Some(&subject), co_runner.as_ref()]
            .into_iter()
            .flatten()
            .map(|worker| worker.ring.beacon())
            .collect();
        let (stop, stopped) = channel::<()>();
        let heart = std::thread::spawn(move || {
            while stopped.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                for beacon in &beacons {
                    beacon.beat();
                }
            }
        });
        let launches = [Some(request.subject), request.co_runner]
            .map(|side| side.map_or(0, |side| side.cpu_program().demand().launches));
        Self {
            subject,
            co_runner,
            placing,
            launches,
            epoch: monotonic_nanoseconds(),
            drain_timeout: options.drain_timeout,
            heart: Some((stop, heart)),
        }
    }

    fn workers(&mut self) -> impl Iterator<Item = &mut WorkerProcess> {
        std::iter::once(&mut self.subject).chain(&mut self.co_runner)
    }

    fn active(&mut self, active: Active) -> Result<Vec<&mut WorkerProcess>, Fault> {
        let chosen: Vec<_> = self
            .workers()
            .filter(|worker| match active {
                Active::Both => true,
                Active::Alone(side) => worker.side == side,
            })
            .collect();
        let wanted = if active == Active::Both { 2 } else { 1 };
        if chosen.len() == wanted {
            return Ok(chosen);
        }
        Err(Fault {
            outcome: Outcome::Unsupported,
            detail: "the session was opened without a co-runner".to_owned(),
        })
    }

    fn measure(&mut self, active: Active, window: Window) -> Result<Raw, Fault> {
        for worker in self.workers() {
            worker.health()?;
        }
        let [min, max] = [window.min, window.max].map(|limit| {
            Duration::try_from_secs_f64(limit.get().max(0.0)).unwrap_or(Duration::from_hours(24))
        });
        let max = max.max(min);
        let mut steps: BTreeMap<Side, Vec<Step>> = BTreeMap::new();
        let mut clocks = Vec::new();
        let start = Instant::now();
        let mut phases = BTreeMap::new();
        for worker in self.active(active)? {
            phases.insert(worker.side, worker.ring.send(Command::Run, 0));
            steps.insert(worker.side, Vec::new());
        }
        let mut sampled: Option<Instant> = None;
        loop {
            let elapsed = start.elapsed();
            let mut fewest = u32::MAX;
            for worker in self.workers() {
                worker.health()?;
                if let Some(records) = steps.get_mut(&worker.side) {
                    worker.drain(phases[&worker.side], records);
                    if !worker.idle {
                        fewest = fewest.min(records.len() as u32);
                    }
                }
            }
            if elapsed >= max || (elapsed >= min && fewest >= window.min_steps) {
                break;
            }
            if sampled.is_none_or(|last| last.elapsed() >= SAMPLE) {
                sampled = Some(Instant::now());
                clocks.extend(clock(&self.placing));
            }
            let limit = if elapsed < min { min } else { max };
            std::thread::sleep(LOOK.min(limit.saturating_sub(elapsed)).max(Duration::from_micros(100)));
        }
        for worker in self.active(active)? {
            worker.ring.send(Command::Park, 0);
        }
        let deadline = Instant::now() + self.drain_timeout;
        loop {
            let mut waiting = false;
            for worker in self.active(active)? {
                worker.health()?;
                waiting |= !worker.is_parked();
                if waiting && Instant::now() >= deadline {
                    return Err(worker.fault(Outcome::Timeout, "lives but does not finish its step"));
                }
            }
            if !waiting {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for worker in self.active(active)? {
            let records = steps.entry(worker.side).or_default();
            worker.drain(phases[&worker.side], records);
            let lost = worker.ring.status().overflow;
            if lost > 0 {
                return Err(worker.fault(
                    Outcome::Timeout,
                    &format!("made steps faster than they were fetched: {lost} records are lost"),
                ));
            }
        }
        let mean = clocks.iter().sum::<f64>() / clocks.len() as f64;
        let telemetry =
            Telemetry { clock: (mean > 0.0).then_some(Hertz(mean)), power: None, throttled_ratio: None };
        Ok(Raw {
            subject: steps.remove(&Side::Subject).unwrap_or_default(),
            co_runner: steps.remove(&Side::CoRunner).unwrap_or_default(),
            telemetry,
        })
    }

    /// Workers are of no use after a fault: both groups end at once, not only when the session is dropped.
    fn after<T>(&mut self, result: Result<T, Fault>) -> Result<T, Fault> {
        if result.is_err() {
            for worker in self.workers() {
                worker.kill();
            }
        }
        result
    }
}

impl Session for CpuSession {
    fn effective_sharing(&self) -> SharingMode {
        self.placing.effective.clone()
    }

    fn run(&mut self, active: Active, window: Window) -> Result<Phase, Fault> {
        let measured = self.measure(active, window);
        let raw = self.after(measured)?;
        let epoch = self.epoch;
        let seconds = |instant: u64| instant.saturating_sub(epoch) as f64 * 1e-9;
        let records = |steps: Vec<Step>| {
            steps
                .iter()
                .map(|step| StepRecord { start: seconds(step.start), end: seconds(step.end) })
                .collect()
        };
        Ok(Phase {
            subject: records(raw.subject),
            co_runner: records(raw.co_runner),
            telemetry: raw.telemetry,
        })
    }

    /// A processor shared with others tells little without privileges: the share of time with work in flight and the
    /// rate of launches come from the workers' own records, of one side or, for launches, of both together.
    fn counters(&mut self, active: Active) -> Result<CounterReading, Fault> {
        let measured = self.measure(active, COUNTING);
        let raw = self.after(measured)?;
        let mut values = BTreeMap::new();
        let rates = [(&raw.subject, self.launches[0]), (&raw.co_runner, self.launches[1])]
            .map(|(steps, launches)| span(steps).map(|span| steps.len() as f64 * launches as f64 / span));
        let rate: f64 = rates.into_iter().flatten().sum();
        values.insert("launch_rate_hertz", rate);
        if let Active::Alone(side) = active {
            let steps = if side == Side::Subject { &raw.subject } else { &raw.co_runner };
            let busy: f64 = steps.iter().map(|step| step.busy as f64 * 1e-9).sum();
            if let Some(span) = span(steps) {
                values.insert("kernel_active_ratio", (busy / span).clamp(0.0, 1.0));
            }
        }
        let peaks: Vec<String> = self
            .workers()
            .map(|worker| format!("{:.0} MB", worker.peak_resident_bytes as f64 / 1e6))
            .collect();
        let status = format!(
            "cpu: only kernel_active_ratio (one side alone) and launch_rate_hertz can be told without hardware \
             counters; peak resident memory {}",
            peaks.join(" and ")
        );
        Ok(CounterReading { values, status })
    }
}

impl Drop for CpuSession {
    fn drop(&mut self) {
        for worker in self.workers() {
            worker.stop();
        }
        if let Some((stop, heart)) = self.heart.take() {
            drop(stop);
            let _ = heart.join();
        }
    }
}

/// From the first start to the last end, in seconds; `None` without steps.
fn span(steps: &[Step]) -> Option<f64> {
    let (first, last) = (steps.first()?, steps.last()?);
    let span = last.end.saturating_sub(first.start) as f64 * 1e-9;
    (span > 0.0).then_some(span)
}

/// Mean clock of the cores in use, in hertz; `None` where neither cpufreq nor cpuinfo tells it.
///
/// In a virtual machine cpuinfo gives the nominal clock, whatever the host does.
fn clock(placing: &Placing) -> Option<f64> {
    let cores = [Side::Subject, Side::CoRunner].into_iter().flat_map(|side| placing.of(side));
    let readings: Option<Vec<f64>> = cores
        .map(|core| {
            let path = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq");
            Some(std::fs::read_to_string(path).ok()?.trim().parse::<f64>().ok()? * 1e3)
        })
        .collect();
    let readings = readings.filter(|readings| !readings.is_empty()).or_else(|| {
        let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        let clocks: Vec<f64> = text
            .lines()
            .filter_map(|line| line.split_once(':').filter(|(name, _)| name.trim() == "cpu MHz"))
            .filter_map(|(_, value)| Some(value.trim().parse::<f64>().ok()? * 1e6))
            .collect();
        (!clocks.is_empty()).then_some(clocks)
    })?;
    Some(readings.iter().sum::<f64>() / readings.len() as f64)
}
