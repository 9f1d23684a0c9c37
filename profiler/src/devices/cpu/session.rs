//! Two living workers: phases, telemetry, counters.

use super::CpuOptions;
use super::cores::Placing;
use crate::device::{Active, CounterReading, Fault, Phase, Session, SessionRequest, Side, Telemetry, Window};
use crate::devices::processes::{self, Heart, RawPhase, WorkerProcess, records, span};
use elastico_core::SharingMode;
use elastico_core::units::{Hertz, Seconds};
use elastico_gpu::ring::monotonic_nanoseconds;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often clocks are read.
const SAMPLE: Duration = Duration::from_millis(200);
/// Length of the repetition that counters are read in.
const COUNTING: Window = Window { min: Seconds(0.3), min_steps: 5, max: Seconds(5.0) };

pub(super) struct CpuSession {
    workers: Vec<WorkerProcess>,
    peaks: Vec<u64>,
    placing: Placing,
    launches: [u64; 2],
    epoch: u64,
    drain_timeout: Duration,
    _heart: Heart,
}

impl CpuSession {
    /// `peaks` are the resident bytes of the workers.
    pub(super) fn new(
        options: &CpuOptions,
        workers: Vec<WorkerProcess>,
        peaks: Vec<u64>,
        placing: Placing,
        request: &SessionRequest<'_>,
    ) -> Self {
        let launches = [Some(request.subject), request.co_runner]
            .map(|side| side.map_or(0, |side| side.cpu_program().demand().launches));
        Self {
            _heart: Heart::start(&workers),
            workers,
            peaks,
            placing,
            launches,
            epoch: monotonic_nanoseconds(),
            drain_timeout: options.processes.drain_timeout,
        }
    }

    fn measure(&mut self, active: Active, window: Window) -> Result<(RawPhase, Telemetry), Fault> {
        let mut clocks = Vec::new();
        let mut sampled: Option<Instant> = None;
        let placing = &self.placing;
        let mut sample = || {
            if sampled.is_none_or(|last| last.elapsed() >= SAMPLE) {
                sampled = Some(Instant::now());
                clocks.extend(clock(placing));
            }
            Ok(())
        };
        let measured = processes::measure(&mut self.workers, active, window, self.drain_timeout, &mut sample);
        // Workers are of no use after a fault: both groups end at once, not only when the session is dropped.
        let raw = measured.inspect_err(|_| self.workers.iter_mut().for_each(WorkerProcess::kill))?;
        let mean = clocks.iter().sum::<f64>() / clocks.len() as f64;
        let clock = (mean > 0.0).then_some(Hertz(mean));
        Ok((raw, Telemetry { clock, ..Telemetry::default() }))
    }
}

impl Session for CpuSession {
    fn effective_sharing(&self) -> SharingMode {
        self.placing.effective.clone()
    }

    fn run(&mut self, active: Active, window: Window) -> Result<Phase, Fault> {
        let (raw, telemetry) = self.measure(active, window)?;
        Ok(Phase {
            subject: records(&raw.subject, self.epoch),
            co_runner: records(&raw.co_runner, self.epoch),
            telemetry,
        })
    }

    /// A processor shared with others tells little without privileges: the share of time with work in flight and the
    /// rate of launches come from the workers' own records, of one side or, for launches, of both together.
    fn counters(&mut self, active: Active) -> Result<CounterReading, Fault> {
        let (raw, _) = self.measure(active, COUNTING)?;
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
        let peaks: Vec<String> =
            self.peaks.iter().map(|bytes| format!("{:.0} MB", *bytes as f64 / 1e6)).collect();
        let status = format!(
            "cpu: only kernel_active_ratio (one side alone) and launch_rate_hertz can be told without hardware \
             counters; peak resident memory {}",
            peaks.join(" and ")
        );
        Ok(CounterReading { values, status, ..CounterReading::default() })
    }
}

impl Drop for CpuSession {
    fn drop(&mut self) {
        self.workers.iter_mut().for_each(WorkerProcess::stop);
    }
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
