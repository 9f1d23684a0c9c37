//! Living workers on a GPU: phases with telemetry, counters in a repetition of their own.

use super::counters::{Place, Read, Reading};
use super::sharing::Arrangement;
use super::{CudaDevice, of_side};
use crate::device::{
    Active, CounterReading, Fault, Phase, Session, SessionReport, SessionRequest, Side, Telemetry, Window,
};
use crate::devices::processes::{self, Heart, RawPhase, WorkerProcess, records, span};
use crate::protocol::SOAK_STEPS;
use crate::worker::message::GpuReport;
use elastico_core::SharingMode;
use elastico_core::units::{Bytes, Seconds};
use elastico_gpu::ring::{Step, monotonic_nanoseconds};
use std::time::Duration;

/// Steps that a repetition for counters has at least, and its longest time.
const COUNTED_STEPS: u32 = 10;
const COUNTING_LIMIT: Seconds = Seconds(20.0);
/// Longer steps with the sampler on than this are told.
const OVERHEAD: f64 = 1.01;
/// Time that a worker beside one that failed has to leave by itself: a kill can take an MPS server along.
const GRACE: Duration = Duration::from_secs(5);

pub(super) struct CudaSession<'a> {
    pub(super) device: &'a mut CudaDevice,
    workers: Vec<WorkerProcess>,
    reports: Vec<GpuReport>,
    effective: SharingMode,
    arrangement: Arrangement,
    launches: [u64; 2],
    is_pair: bool,
    epoch: u64,
    /// Seconds per step of both sides in the last timed phase, by which sides ran.
    paces: Vec<(Active, [Option<f64>; 2])>,
    telemetry_status: Option<String>,
    flags: Vec<&'static str>,
    _heart: Heart,
}

impl<'a> CudaSession<'a> {
    pub(super) fn new(
        device: &'a mut CudaDevice,
        workers: Vec<WorkerProcess>,
        reports: Vec<GpuReport>,
        effective: SharingMode,
        arrangement: Arrangement,
        request: &SessionRequest<'_>,
        flags: Vec<&'static str>,
    ) -> Self {
        let launches =
            [Side::Subject, Side::CoRunner].map(|side| of_side(request, side).program().demand().launches);
        Self {
            _heart: Heart::start(&workers),
            device,
            workers,
            reports,
            effective,
            arrangement,
            launches,
            is_pair: request.co_runner.is_some(),
            epoch: monotonic_nanoseconds(),
            paces: Vec::new(),
            telemetry_status: None,
            flags,
        }
    }

    pub(super) fn measure(&mut self, active: Active, window: Window) -> Result<(RawPhase, Telemetry), Fault> {
        let from = monotonic_nanoseconds();
        let timeout = self.device.options.processes.drain_timeout;
        let poller = &mut self.device.poller;
        let measured = processes::measure(&mut self.workers, active, window, timeout, &mut || {
            poller.xid(false).map_or(Ok(()), Err)
        });
        match measured {
            Ok(raw) => {
                let (telemetry, status) = self.device.poller.window(from, monotonic_nanoseconds());
                // The first phase that lacks something says why.
                if self.telemetry_status.as_ref().is_none_or(|known| known == "ok") {
                    self.telemetry_status = Some(status);
                }
                Ok((raw, telemetry))
            }
            Err(fault) => {
                // Workers are of no use after a fault: the healthy one leaves, the other is ended.
                let grace = GRACE.min(self.device.options.processes.stop_timeout);
                for worker in &mut self.workers {
                    worker.end(grace);
                }
                Err(self.device.explain(fault, &self.arrangement))
            }
        }
    }

    /// The report of a side.
    fn report_of(&self, side: Side) -> Option<&GpuReport> {
        let place = usize::from(side == Side::CoRunner);
        (side == Side::Subject || self.is_pair)
            .then(|| self.reports.get(place).or(self.reports.first()))
            .flatten()
    }

    /// How much longer steps took than in the last timed phase of the same sides; the slower side counts.
    fn overhead(&self, active: Active, raw: &RawPhase) -> Option<f64> {
        let (_, before) = self.paces.iter().rev().find(|(known, _)| *known == active)?;
        let now = paces(raw);
        let ratios = before.iter().zip(now).filter_map(|(before, now)| Some(now? / (*before)?));
        ratios.reduce(f64::max)
    }
}

/// Seconds per step of both sides.
fn paces(raw: &RawPhase) -> [Option<f64>; 2] {
    [&raw.subject, &raw.co_runner].map(|steps| match steps.as_slice() {
        [first, .., last] if last.end > first.end => {
            Some((last.end - first.end) as f64 * 1e-9 / (steps.len() - 1) as f64)
        }
        _ => None,
    })
}

/// Share of the phase in which the device worked for either side, at most 1.
fn busy(raw: &RawPhase) -> f64 {
    let of = |steps: &Vec<Step>| {
        let busy: f64 = steps.iter().map(|step| step.busy as f64 * 1e-9).sum();
        span(steps).map_or(0.0, |span| busy / span)
    };
    of(&raw.subject).max(of(&raw.co_runner)).min(1.0)
}

impl Session for CudaSession<'_> {
    fn effective_sharing(&self) -> SharingMode {
        self.effective.clone()
    }

    fn run(&mut self, active: Active, window: Window) -> Result<Phase, Fault> {
        let (raw, telemetry) = self.measure(active, window)?;
        if window.min_steps > SOAK_STEPS {
            self.paces.push((active, paces(&raw)));
        }
        Ok(Phase {
            subject: records(&raw.subject, self.epoch),
            co_runner: records(&raw.co_runner, self.epoch),
            telemetry,
        })
    }

    fn counters(&mut self, active: Active) -> Result<CounterReading, Fault> {
        let device = &mut *self.device;
        let place = Place {
            command: &device.command,
            options: &device.options,
            uuid: &device.facts.uuid,
            no_mps: device.no_mps.path(),
            cores: device.cores.coordinator(),
        };
        let reading = device.source.begin(&place);
        let is_read = !matches!(reading, Reading::None(_));
        let window = Window {
            min: Seconds(self.device.options.counting.as_secs_f64()),
            min_steps: COUNTED_STEPS,
            max: COUNTING_LIMIT,
        };
        let (raw, _) = self.measure(active, window)?;
        let (Read { mut values, mut status }, is_suspect) = self.device.source.finish(reading, busy(&raw));
        let mut flags = Vec::new();
        if is_suspect {
            flags.push("counters_suspect");
        }
        if is_read && let Some(overhead) = self.overhead(active, &raw) {
            status.push_str(&format!("; steps x {overhead:.3} with the sampler"));
            if overhead > OVERHEAD {
                tracing::warn!(overhead, "the sampler slows the workers");
                flags.push("sampler_overhead");
            }
        }
        let sides = [&raw.subject, &raw.co_runner];
        // What no hardware unit is needed for.
        if !values.contains_key("launch_rate_hertz") {
            let rate = |(steps, launches): (&&Vec<Step>, &u64)| {
                Some(steps.len() as f64 * *launches as f64 / span(steps)?)
            };
            let rate: f64 = sides.iter().zip(&self.launches).filter_map(rate).sum();
            values.insert("launch_rate_hertz", rate);
        }
        Ok(CounterReading { values, status, flags })
    }

    fn report(&self) -> SessionReport {
        let sides = [Side::Subject, Side::CoRunner];
        SessionReport {
            multiprocessors: sides.map(|side| Some(self.report_of(side)?.multiprocessors_of(side))),
            memory_peak: sides.map(|side| Some(Bytes(self.report_of(side)?.allocated_of(side) as f64))),
            telemetry_status: self.telemetry_status.clone(),
            flags: self.flags.clone(),
        }
    }
}

impl Drop for CudaSession<'_> {
    fn drop(&mut self) {
        self.workers.iter_mut().for_each(WorkerProcess::stop);
    }
}
