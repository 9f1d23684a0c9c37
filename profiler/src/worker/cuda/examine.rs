//! Every kernel against its reference, and how well the driver's clocks and launches can be timed.

use super::super::engine::{Engine, Failure};
use super::super::message::{CudaWork, Examined, Reply, Timing};
use super::inspect::answer;
use super::load::Kernels;
use super::steps::CudaEngine;
use super::target;
use elastico_core::{Dtype, Seed};
use elastico_gpu::cuda::Context;
use elastico_workloads::launch::{Check, LaunchError, LaunchPlan, checks};
use elastico_workloads::{Memory, Op, Pipe, StepProgram};
use std::time::Instant;

/// Launches of an empty kernel that are timed together.
const LAUNCHES: u64 = 2000;
/// Pairs of events that are compared for the clock's resolution.
const PAIRS: usize = 200;
/// Steps whose time is taken by both clocks.
const STEPS: u32 = 50;

/// Runs all checks and says what came of them.
pub(in crate::worker) fn examine(work: &CudaWork) -> Result<(), Failure> {
    let context = super::open(work)?;
    let mut kernels = Kernels::new(&context, work);
    let mut examined = Vec::new();
    for check in checks() {
        let (error, problem) = match run(&context, &mut kernels, work, &check) {
            Ok(error) => (Some(error), None),
            Err(Verdict::NotHere(reason)) => (None, Some(reason)),
            // After a fault of the device no other check says anything.
            Err(Verdict::Broken(failure)) => return Err(failure),
            Err(Verdict::Wrong(error)) => (Some(excess(&error)), Some(error.to_string())),
        };
        examined.push(Examined { name: check.name, error, problem });
    }
    answer(&Reply::Examined { checks: examined })
}

/// Times events and launches.
pub(in crate::worker) fn time(work: &CudaWork) -> Result<(), Failure> {
    let context = super::open(work)?;
    let mut kernels = Kernels::new(&context, work);
    answer(&Reply::Timed(Timing {
        event_resolution_seconds: event_resolution(&context)?,
        launch_seconds: launch_time(&context, &mut kernels, work)?,
        event_over_host: event_over_host(&context, &mut kernels, work)?,
    }))
}

/// Why a check has no good result.
enum Verdict {
    /// The GPU has no such instructions.
    NotHere(String),
    /// Wrong numbers, or a plan that cannot be.
    Wrong(LaunchError),
    Broken(Failure),
}

impl From<Failure> for Verdict {
    fn from(failure: Failure) -> Self {
        Self::Broken(failure)
    }
}

/// By how much an error is beyond what is allowed; JSON has no infinity.
fn excess(error: &LaunchError) -> f64 {
    match error {
        LaunchError::Mismatch { error, tolerance, .. } if *tolerance > 0.0 => {
            (error / tolerance).min(f64::MAX)
        }
        _ => f64::MAX,
    }
}

/// The difference to the reference over what is allowed.
fn run(context: &Context, kernels: &mut Kernels<'_>, work: &CudaWork, check: &Check) -> Result<f64, Verdict> {
    let stream = context.stream().map_err(Failure::from)?;
    let plan = match check.plan(&target(context, stream.multiprocessors())) {
        Ok(plan) => plan,
        Err(error @ LaunchError::Capability { .. }) => return Err(Verdict::NotHere(error.to_string())),
        Err(error) => return Err(Verdict::Wrong(error)),
    };
    let mut engine = CudaEngine::of_plan(context, stream, kernels, work, &plan)?;
    for _ in 0..check.steps {
        engine.submit()?;
        engine.complete(&|| ())?;
    }
    let contents = engine.loaded().contents(&plan)?;
    match check.compare(&plan, &contents) {
        Ok(error) => Ok(error / check.tolerance),
        Err(error) => Err(Verdict::Wrong(error)),
    }
}

/// The smallest time between two events that is not 0.
fn event_resolution(context: &Context) -> Result<f64, Failure> {
    let stream = context.stream()?;
    let mut least = f64::INFINITY;
    for _ in 0..PAIRS {
        let (first, second) = (context.event()?, context.event()?);
        stream.record(&first)?;
        stream.record(&second)?;
        second.synchronize()?;
        let seconds = second.seconds_since(&first)?;
        if seconds > 0.0 {
            least = least.min(seconds);
        }
    }
    Ok(if least.is_finite() { least } else { 0.0 })
}

fn engine(
    context: &Context,
    kernels: &mut Kernels<'_>,
    work: &CudaWork,
    op: Op,
) -> Result<CudaEngine, Failure> {
    let program = StepProgram { ops: vec![op], sections: Vec::new(), memory: Memory::default(), duty: 1.0 };
    let stream = context.stream()?;
    let plan = LaunchPlan::new(&program, &target(context, stream.multiprocessors()), Seed(1))?;
    CudaEngine::of_plan(context, stream, kernels, work, &plan)
}

/// Host time of one launch, in a queue that the device empties as fast.
fn launch_time(context: &Context, kernels: &mut Kernels<'_>, work: &CudaWork) -> Result<f64, Failure> {
    let mut engine = engine(context, kernels, work, Op::Launch { count: LAUNCHES })?;
    engine.submit()?;
    engine.complete(&|| ())?;
    let start = Instant::now();
    engine.submit()?;
    let seconds = start.elapsed().as_secs_f64() / LAUNCHES as f64;
    engine.complete(&|| ())?;
    Ok(seconds)
}

/// Time of many steps by events over their time by the host's clock; 1 but for what lies between steps.
fn event_over_host(context: &Context, kernels: &mut Kernels<'_>, work: &CudaWork) -> Result<f64, Failure> {
    let blocks = u64::from(u32::try_from(context.facts().multiprocessors).unwrap_or(1).max(1));
    let op = Op::Compute {
        // About a millisecond on any data centre GPU.
        flops: 50_000_000 * blocks,
        pipe: Pipe::Fp32,
        dtype: Dtype::Fp32,
        blocks,
        warps_per_block: 8,
    };
    let mut engine = engine(context, kernels, work, op)?;
    for _ in 0..3 {
        engine.submit()?;
        engine.complete(&|| ())?;
    }
    let mut busy = 0;
    let depth = engine.depth() as u32;
    for _ in 0..depth {
        engine.submit()?;
    }
    engine.complete(&|| ())?;
    let start = Instant::now();
    for _ in 0..STEPS {
        engine.submit()?;
        busy += engine.complete(&|| ())?;
    }
    let host = start.elapsed().as_secs_f64();
    for _ in 1..depth {
        engine.complete(&|| ())?;
    }
    Ok(busy as f64 * 1e-9 / host)
}
