//! Does this GPU compute right, can it be timed, and do its counters count?

use super::counters::Place;
use super::session::CudaSession;
use super::sharing::base_environment;
use super::{CudaDevice, Source};
use crate::device::{Active, Device, Fault, SessionRequest, Side, Window};
use crate::devices::processes::{Helper, span};
use crate::plan::Trial;
use crate::protocol::{self, Protocol, ProtocolSettings};
use crate::worker::message::{CudaWork, Examined, Reply, Request, Timing};
use elastico_core::units::Seconds;
use elastico_core::{DeviceKind, Seed, SharingMode, TrialId};
use elastico_gpu::counter_check::{self, CounterVerdict, KnownLoad, Verdict};
use elastico_workloads::{Benchmark, Catalogue};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Version of the report.
const SCHEMA: &str = "elastico.self_test/1";
/// Time that all kernels, their compilation included, may take.
const EXAMINATION: Duration = Duration::from_mins(3);
/// Steps of a load under the sampler, at least; and its longest time.
const LOAD_STEPS: u32 = 10;
const LOAD_LIMIT: Seconds = Seconds(10.0);
/// The subject of the null pair.
const NULL_SUBJECT: &str = "st_fma.m60k";
/// How far from 1 the null pair may be.
const NULL_TOLERANCE: f64 = 0.01;
/// How far the sum of event times may be from the host's time of the same steps.
const CLOCK_TOLERANCE: f64 = 0.02;

/// What a self-test found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SelfTest {
    /// `elastico.self_test/1`.
    pub schema: &'static str,
    /// The device's model.
    pub device: String,
    /// Whether nothing is wrong. What cannot be had on this machine, counters for example, is not wrong.
    pub passed: bool,
    /// What is wrong, in words.
    pub problems: Vec<String>,
    /// Every kernel against its reference on the CPU.
    pub kernels: Vec<KernelCheck>,
    /// Smallest time between two events that is not 0, in seconds.
    pub event_resolution_seconds: f64,
    /// Time of many steps by events over their time by the host's clock.
    pub event_over_host_ratio: f64,
    /// Host time of one launch, in seconds.
    pub launch_seconds: f64,
    /// Interference beside an idle context, with its interval: must hold 1.
    pub null_pair: Option<NullPair>,
    /// Counters against loads of known size; empty where there are none.
    pub counters: Vec<CounterVerdict>,
    /// What read the counters, or why nothing did.
    pub counters_status: String,
}

/// One kernel check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelCheck {
    /// Op and format.
    pub name: String,
    /// Difference to the reference over what is allowed: up to 1 is right. Null where the GPU has no such instructions.
    pub error_ratio: Option<f64>,
    /// Why it is wrong, or was left out.
    pub reason: Option<String>,
}

/// The null pair.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NullPair {
    /// Co-located over isolated step time.
    pub interference_ratio: f64,
    /// Lower end.
    pub lower_ratio: Option<f64>,
    /// Upper end.
    pub upper_ratio: Option<f64>,
}

/// Examines a GPU: kernels, clocks, null pair, counters. Takes about a minute.
///
/// # Errors
/// A [`Fault`] where the GPU cannot be used at all; what is merely wrong is in the report.
pub fn self_test(device: &mut CudaDevice, catalogue: &Catalogue) -> Result<SelfTest, Fault> {
    let kernels = device.check_kernels()?;
    let timing = device.time()?;
    let mut problems = Vec::new();
    for check in kernels.iter().filter(|check| check.error_ratio.is_some_and(|error| error > 1.0)) {
        problems
            .push(check.reason.clone().unwrap_or_else(|| format!("`{}` computes wrong numbers", check.name)));
    }
    if (timing.event_over_host - 1.0).abs() > CLOCK_TOLERANCE {
        problems.push(format!(
            "steps take {:.3} times as long by events as by the host's clock",
            timing.event_over_host
        ));
    }
    let null_pair = match device.null_pair(catalogue) {
        Ok(pair) => {
            let holds_one = pair.lower_ratio.is_none_or(|lower| lower <= 1.0)
                && pair.upper_ratio.is_none_or(|upper| upper >= 1.0);
            if !holds_one && (pair.interference_ratio - 1.0).abs() > NULL_TOLERANCE {
                problems.push(format!("an idle context costs: interference {:.3}", pair.interference_ratio));
            }
            Some(pair)
        }
        Err(reason) => {
            problems.push(format!("the null pair cannot be measured: {reason}"));
            None
        }
    };
    let (counters, counters_status) = match device.known_loads(catalogue) {
        Ok(verdicts) => (verdicts, "pm".to_owned()),
        Err(reason) => (Vec::new(), format!("none: {reason}")),
    };
    for verdict in counters.iter().filter(|verdict| verdict.verdict == Verdict::Differs) {
        problems.push(format!(
            "{} is {:.3} where the load makes it {:.3}",
            verdict.counter,
            verdict.measured.unwrap_or(f64::NAN),
            verdict.expected
        ));
    }
    Ok(SelfTest {
        schema: SCHEMA,
        device: device.identity().model.clone(),
        passed: problems.is_empty(),
        problems,
        kernels,
        event_resolution_seconds: timing.event_resolution_seconds,
        event_over_host_ratio: timing.event_over_host,
        launch_seconds: timing.launch_seconds,
        null_pair,
        counters,
        counters_status,
    })
}

/// A benchmark by name, or why there is none.
fn benchmark<'a>(catalogue: &'a Catalogue, id: &str) -> Result<&'a Benchmark, String> {
    catalogue.get(id).map_err(|error| error.to_string())
}

impl CudaDevice {
    /// Runs every kernel once at a small size, in a process of its own, and compares with the reference on the CPU.
    ///
    /// # Errors
    /// A [`Fault`] where the GPU cannot be used; wrong numbers are in the answer.
    pub fn check_kernels(&self) -> Result<Vec<KernelCheck>, Fault> {
        self.ask(Request::Examine, |reply| match reply {
            Reply::Examined { checks } => Ok(checks
                .into_iter()
                .map(|Examined { name, error, problem }| KernelCheck {
                    name,
                    error_ratio: error,
                    reason: problem,
                })
                .collect()),
            other => Err(other),
        })
    }

    fn time(&self) -> Result<Timing, Fault> {
        self.ask(Request::Time, |reply| match reply {
            Reply::Timed(timing) => Ok(timing),
            other => Err(other),
        })
    }

    /// Asks a process of its own, away from MPS.
    fn ask<T>(
        &self,
        request: impl FnOnce(CudaWork) -> Request,
        take: impl FnOnce(Reply) -> Result<T, Reply>,
    ) -> Result<T, Fault> {
        let mut environment = base_environment(Some(&self.facts.uuid));
        environment.extend(self.no_mps());
        let request = request(self.cuda_work());
        let mut helper = Helper::start("the examiner".to_owned(), &self.command, &environment, &request)?;
        helper.greet(Instant::now() + self.options.context_timeout)?;
        let reply = helper.reply(Instant::now() + EXAMINATION, "finish its checks")?;
        take(reply).map_err(|other| helper.unexpected(other))
    }

    fn null_pair(&mut self, catalogue: &Catalogue) -> Result<NullPair, String> {
        let subject = benchmark(catalogue, NULL_SUBJECT)?;
        let null = catalogue
            .iter()
            .find(|benchmark| benchmark.kind == elastico_core::WorkloadKind::Null)
            .ok_or("the catalogue has no null workload")?;
        let length = self.options.counting.as_secs_f64();
        let settings = ProtocolSettings {
            min_seconds: Some(length),
            max_seconds: Some(5.0 * length),
            soak_seconds: Some(3.0 * length),
            soak_window_seconds: Some(0.2 * length),
            retries: Some(1),
            ..ProtocolSettings::default()
        };
        let trial = Trial {
            id: TrialId::new("self_test.null").map_err(|error| error.to_string())?,
            cell: "self_test".to_owned(),
            repeat: 0,
            subject: subject.id.clone(),
            co_runner: Some(null.id.clone()),
            sharing: SharingMode::TimeSlice,
        };
        let protocol = Protocol::resolve(&settings, DeviceKind::Cuda);
        let seen = protocol::measure(self, &trial, subject, Some(null), &protocol, 0.95, Seed(1));
        let interference = seen.measured.as_ref().and_then(|measured| measured.subject.interference);
        let interval = interference.ok_or_else(|| {
            let detail = seen.attempts.last().and_then(|attempt| attempt.detail.clone()).unwrap_or_default();
            format!("{}: {detail}", seen.outcome)
        })?;
        Ok(NullPair {
            interference_ratio: interval.point,
            lower_ratio: interval.lower,
            upper_ratio: interval.upper,
        })
    }

    /// Counters while loads run whose size is known.
    fn known_loads(&mut self, catalogue: &Catalogue) -> Result<Vec<CounterVerdict>, String> {
        let mut verdicts: Vec<CounterVerdict> = Vec::new();
        type Known = fn(&Benchmark, f64) -> KnownLoad;
        let loads: [(&str, Known); 4] = [
            ("st_dram.copy", |benchmark, rate| KnownLoad {
                dram_read_bytes_per_second: rate * benchmark.program().demand().dram_read.get(),
                dram_write_bytes_per_second: rate * benchmark.program().demand().dram_write.get(),
                ..KnownLoad::default()
            }),
            ("st_fma.m60k", |benchmark, rate| KnownLoad {
                fp32_flop_per_second: rate * benchmark.program().demand().fp32_flops.get(),
                ..KnownLoad::default()
            }),
            ("st_fp64.m20k", |benchmark, rate| KnownLoad {
                fp64_flop_per_second: rate * benchmark.program().demand().fp64_flops.get(),
                ..KnownLoad::default()
            }),
            ("st_launch.n500", |benchmark, rate| KnownLoad {
                launches_per_second: rate * benchmark.program().demand().launches as f64,
                ..KnownLoad::default()
            }),
        ];
        for (id, known) in loads {
            verdicts.extend(self.known_load(benchmark(catalogue, id)?, known)?);
        }
        Ok(verdicts)
    }

    fn known_load(
        &mut self,
        subject: &Benchmark,
        known: impl Fn(&Benchmark, f64) -> KnownLoad,
    ) -> Result<Vec<CounterVerdict>, String> {
        let trial = TrialId::new("self_test.load").map_err(|error| error.to_string())?;
        let multiprocessors = u32::try_from(self.facts.multiprocessors).unwrap_or(0);
        let request = SessionRequest {
            trial: &trial,
            subject,
            co_runner: None,
            sharing: &SharingMode::Exclusive,
            seed: Seed(1),
        };
        let mut session = self.begin(&request).map_err(|fault| fault.to_string())?;
        session.known_load(|rate| known(subject, rate), multiprocessors)
    }
}

impl CudaSession<'_> {
    /// Runs the subject from before the sampler's window until after it, and judges what the sampler saw.
    fn known_load(
        &mut self,
        known: impl Fn(f64) -> KnownLoad,
        multiprocessors: u32,
    ) -> Result<Vec<CounterVerdict>, String> {
        let active = Active::Alone(Side::Subject);
        let window = Window {
            min: Seconds(self.device.options.counting.as_secs_f64()),
            min_steps: LOAD_STEPS,
            max: LOAD_LIMIT,
        };
        // Clocks and caches settle first.
        self.measure(active, window).map_err(|fault| fault.to_string())?;
        let device = &mut *self.device;
        let place = Place {
            command: &device.command,
            options: &device.options,
            uuid: &device.facts.uuid,
            no_mps: device.no_mps.path(),
            cores: device.cores.coordinator(),
        };
        let reading = device.source.begin(&place);
        let measured = self.measure(active, window);
        let report = match (&mut self.device.source, reading) {
            (Source::Pm(sampler), super::counters::Reading::Pm) => {
                sampler.end().map_err(|error| error.to_string())?
            }
            (_, super::counters::Reading::Gpm(_, no_pm)) => return Err(no_pm),
            (_, super::counters::Reading::None(reason)) => return Err(reason),
            (_, super::counters::Reading::Pm) => return Err("the sampler is gone".to_owned()),
        };
        let (raw, telemetry) = measured.map_err(|fault| fault.to_string())?;
        let span = span(&raw.subject).ok_or("the load made no steps")?;
        let rate = raw.subject.len() as f64 / span;
        // The sampler's window holds the launch and the drain of the load too, when nothing ran.
        let covered = if report.seconds > 0.0 { (span / report.seconds).min(1.0) } else { 1.0 };
        let clock = telemetry.clock.map(elastico_core::units::Hertz::get);
        Ok(counter_check::check(&known(rate * covered), &report, multiprocessors, clock))
    }
}
