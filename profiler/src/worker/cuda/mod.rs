//! Steps on a GPU: the launch plan of a step program, captured once and replayed with two steps in flight.
//!
//! Everything that takes time or memory happens while the engine is built: compiling, loading, allocating, filling,
//! capturing. The loop then launches graphs and reads events.

mod checks;
mod clock;
mod examine;
mod inspect;
mod load;
mod steps;

pub(super) use clock::sharpen;
pub(super) use examine::{examine, time};
pub(super) use inspect::{inventory, probe};
pub(super) use steps::CudaEngine;

use super::engine::Failure;
use super::fault::InjectedFault;
use super::message::{CudaWork, GpuReport, Reply, Work};
use super::obey::leave_code;
use super::{Served, peak_resident, say, serve, take_seat};
use elastico_core::{Digest, Hint, Outcome};
use elastico_gpu::cubin::CompileError;
use elastico_gpu::cuda::{Context, CudaError, Driver, GreenContext};
use elastico_gpu::gemm::GemmError;
use elastico_workloads::launch::{LaunchError, Target};
use load::Kernels;
use rand::Rng as _;
use std::fmt::Display;

/// Opens the driver and makes a context on the one GPU that this process sees.
fn open(work: &CudaWork) -> Result<Context, Failure> {
    let driver = Driver::load(&work.libraries)?;
    Ok(Context::new(&driver, 0)?)
}

/// What a launch plan is made for: the SMs are those that this side may use.
fn target(context: &Context, multiprocessors: u32) -> Target {
    let facts = context.facts();
    Target { compute_capability: facts.compute_capability, multiprocessors, l2_bytes: facts.l2_bytes }
}

/// Builds an engine for each seat and serves them until told to stop.
pub(super) fn work(work: &Work, cuda: &CudaWork) -> Result<(), Failure> {
    // Claimed first: a failure from here on leaves its code in the ring.
    let mut seats = Vec::new();
    for seat in &work.seats {
        seats.push((seat, take_seat(seat)?));
    }
    let faults: Vec<_> = seats.iter().map(|(_, (_, fault))| *fault).collect();
    let built = build(work, cuda, &faults);
    let (context, engines, report) = match built {
        Ok(built) => built,
        Err(failure) => {
            for (_, (producer, _)) in &seats {
                leave_code(producer, &failure);
            }
            return Err(failure);
        }
    };
    let served = seats
        .into_iter()
        .zip(engines)
        .map(|((seat, (producer, fault)), engine)| Served { producer, engine, is_idle: seat.idle, fault })
        .collect();
    // The driver's own threads have all the cores by now; the ones that submit keep one each.
    let cores = work.cores.clone();
    let allocated = report.allocated_bytes.iter().sum();
    let engines = serve(
        served,
        work,
        |place| cores.get(place * cores.len() / work.seats.len()).copied(),
        || {
            // Memory as it is after the warm-up, when every lazy allocation is made.
            let (free_bytes, total_bytes) = context.memory_info().unwrap_or((0, 0));
            Reply::Ready {
                allocated_bytes: allocated,
                peak_resident_bytes: peak_resident(),
                gpu: Some(Box::new(GpuReport { free_bytes, total_bytes, ..report })),
            }
        },
    )?;
    // Graphs, memory and context go before the process does: an MPS server must see the client leave.
    drop(engines);
    context.synchronize()?;
    Ok(())
}

type Built = (Context, Vec<CudaEngine>, GpuReport);

fn build(work: &Work, cuda: &CudaWork, faults: &[Option<InjectedFault>]) -> Result<Built, Failure> {
    let context = open(cuda)?;
    stage("context made")?;
    let parts: Option<[GreenContext; 2]> = match cuda.split {
        Some([first, second]) => Some(context.split(first, second)?),
        None => None,
    };
    let mut kernels = Kernels::new(&context, cuda);
    let mut engines = Vec::new();
    for (place, seat) in work.seats.iter().enumerate() {
        if faults.get(place).copied().flatten() == Some(InjectedFault::Oom) {
            return Err(Failure::new(Outcome::Oom, "planted: no memory"));
        }
        let stream = match &parts {
            Some(parts) => parts[place.min(1)].stream()?,
            None => context.stream()?,
        };
        let key = [work.trial.as_str(), seat.side.as_str()];
        let seed = elastico_core::Seed(work.seed.stream("inputs", &key).next_u64());
        engines.push(CudaEngine::build(&context, stream, &mut kernels, cuda, &seat.program, seed)?);
    }
    let facts = context.facts();
    let report = GpuReport {
        uuid: facts.uuid.clone(),
        multiprocessors: engines.iter().map(CudaEngine::multiprocessors).collect(),
        allocated_bytes: engines.iter().map(CudaEngine::allocated).collect(),
        mps_enabled: facts.mps_enabled,
        kernels: kernels.digest(),
        ..GpuReport::default()
    };
    Ok((context, engines, report))
}

/// Says how far the worker is, so that one that hangs is known by where.
fn stage(name: &str) -> Result<(), Failure> {
    say(&Reply::Stage { name: name.to_owned() }).map_err(|error| Failure::crash(error.to_string()))
}

/// An error with its remedy, for the journal.
fn told(error: &(impl Display + Hint)) -> String {
    match error.hint() {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    }
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        Self::new(error.outcome(), told(&error))
    }
}

impl From<CompileError> for Failure {
    fn from(error: CompileError) -> Self {
        Self::new(Outcome::Unsupported, told(&error))
    }
}

impl From<GemmError> for Failure {
    fn from(error: GemmError) -> Self {
        let outcome = match &error {
            // The GPU is there; only what needs products cannot run.
            GemmError::Library(_) | GemmError::Version { .. } => Outcome::Unsupported,
            other => other.outcome(),
        };
        Self::new(outcome, told(&error))
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        Self::new(Outcome::Unsupported, told(&error))
    }
}

/// Short digest of several byte strings.
fn short_digest(parts: &[Vec<u8>]) -> String {
    Digest::of(parts.iter()).short().to_owned()
}
