//! The worker process: runs the steps of one side, or of both where they share a process, and nothing else.
//!
//! The coordinator starts it by exec, speaks to it in JSON lines over stdin and stdout (hello → request → ready →
//! drained), and commands it through the control block of a shared-memory ring, where the worker also writes one record
//! per step. It must not outlive its coordinator: it asks the kernel to die with it, leaves when stdin closes, and
//! leaves when the coordinator's heartbeat in the ring stops.
//!
//! What makes the steps is an engine: cores, one lane on each, or a GPU.
//!
//! A worker that idles (a program without ops) obeys every command, makes no step and writes no record.
//!
//! For tests of the coordinator, and nothing else, the variable `ELASTICO_WORKER_FAULT` makes a worker fail on purpose:
//! `kill`, `stop`, `endless`, `nan` in its third step, `oom` while it prepares, `silent` at its start; `@subject` or
//! `@co_runner` after the word limits it to one side.

mod cpu;
mod cuda;
pub(crate) mod engine;
mod fault;
pub(crate) mod message;
mod obey;

use cpu::CpuEngine;
use elastico_gpu::ring::{Producer, WorkerState};
use engine::{Engine, Failure};
use fault::InjectedFault;
use message::{EngineRequest, PROTOCOL, Reply, Request, Seat, Work};
use obey::{CODE_ORPHAN, leave_code, obey};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

/// The variable that makes a worker something else than one that makes steps, and its one value.
pub(crate) const ROLE: &str = "ELASTICO_WORKER_ROLE";
pub(crate) const SAMPLER: &str = "sampler";
/// Cores of a sampler, so that decoding takes no time from the threads that submit: numbers with commas.
pub(crate) const CORES: &str = "ELASTICO_WORKER_CORES";

/// Samples counters in this process, as CUPTI needs one of its own.
fn sampler() -> ExitCode {
    // A coordinator that dies closes the pipe, and the sampler leaves; this is for one that is stopped for good.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let cores: Vec<usize> =
        std::env::var(CORES).unwrap_or_default().split(',').filter_map(|core| core.parse().ok()).collect();
    if !cores.is_empty()
        && let Err(error) = pin(&cores)
    {
        tracing::warn!(error, "the sampler shares the workers' cores");
    }
    elastico_gpu::cupti::sampler_process::main()
}

/// Runs a worker to its end; the whole of `elastico worker`.
///
/// What goes wrong is said as a JSON line, and left as a code in the ring once there is one.
pub fn main() -> ExitCode {
    if std::env::var_os(ROLE).is_some_and(|role| role == SAMPLER) {
        return sampler();
    }
    // The order matters: from here on the kernel ends this process with its coordinator.
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    let panic_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        panic_hook(info);
        // One lane that unwinds would leave the others waiting for ever.
        std::process::abort();
    }));
    if let Err(error) = bound {
        return refuse(&Failure::crash(format!("cannot bind to the coordinator's life: {error}")));
    }
    if fault::is_silent() {
        std::thread::sleep(Duration::from_hours(1));
    }
    let hello = Reply::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() };
    if say(&hello).is_err() {
        return ExitCode::from(CODE_ORPHAN);
    }
    let request = match read_request() {
        Ok(Some(request)) => request,
        Ok(None) => return ExitCode::from(CODE_ORPHAN),
        Err(detail) => return refuse(&Failure::crash(detail)),
    };
    let served = match &request {
        Request::Work(work) => make_steps(work),
        Request::Inventory { libraries } => cuda::inventory(libraries),
        Request::Probe(work) => cuda::probe(work),
        Request::Examine(work) => cuda::examine(work),
        Request::Time(work) => cuda::time(work),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => refuse(&failure),
    }
}

fn refuse(failure: &Failure) -> ExitCode {
    let reply =
        Reply::Failed { outcome: failure.outcome.as_str().to_owned(), detail: failure.detail.clone() };
    // Nobody reads where the coordinator is gone; the exit code says the rest.
    let _ = say(&reply);
    ExitCode::FAILURE
}

fn say(reply: &Reply) -> std::io::Result<()> {
    let line = serde_json::to_string(reply)?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

fn read_request() -> Result<Option<Request>, String> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => serde_json::from_str(&line).map(Some).map_err(|error| format!("bad request line: {error}")),
        Err(error) => Err(format!("cannot read stdin: {error}")),
    }
}

/// One side with all that its loop needs.
struct Served<E> {
    producer: Producer,
    engine: E,
    is_idle: bool,
    fault: Option<InjectedFault>,
}

fn make_steps(work: &Work) -> Result<(), Failure> {
    if work.cores.is_empty() {
        return Err(Failure::crash("no core to run on"));
    }
    pin(&work.cores).map_err(Failure::crash)?;
    match &work.engine {
        EngineRequest::Cpu { pinned, memory_limit_bytes } => {
            let mut allocated = 0;
            let mut served = Vec::new();
            for seat in &work.seats {
                let (producer, fault) = take_seat(seat)?;
                let refuse_all = fault == Some(InjectedFault::Oom);
                let engine = CpuEngine::build(work, seat, *pinned, *memory_limit_bytes, refuse_all)?;
                allocated += engine.allocated();
                served.push(Served { producer, engine, is_idle: seat.idle, fault });
            }
            let ready = |allocated_bytes| Reply::Ready {
                allocated_bytes,
                peak_resident_bytes: peak_resident(),
                gpu: None,
            };
            let engines = serve(served, work, |_| None, || ready(allocated))?;
            engines.into_iter().for_each(CpuEngine::stop);
        }
        EngineRequest::Cuda(cuda) => cuda::work(work, cuda)?,
    }
    Ok(())
}

fn take_seat(seat: &Seat) -> Result<(Producer, Option<InjectedFault>), Failure> {
    let producer = Producer::open(&seat.ring).map_err(|error| Failure::crash(error.to_string()))?;
    Ok((producer, InjectedFault::read(seat.side)))
}

/// Warms the engines up, says that they are ready, obeys until told to stop, and gives the engines back.
///
/// `core_of` is the core of the thread that serves the side of a place, where it shall have one.
fn serve<E: Engine + Send>(
    mut served: Vec<Served<E>>,
    work: &Work,
    core_of: impl Fn(usize) -> Option<usize> + Sync,
    ready: impl FnOnce() -> Reply,
) -> Result<Vec<E>, Failure> {
    for side in served.iter_mut().filter(|side| !side.is_idle) {
        // Twice, so that the first timed step meets touched pages, trained predictors and settled cursors.
        for _ in 0..2 {
            let warmed =
                side.engine.submit().and_then(|()| side.engine.complete(&|| side.producer.beat()).map(drop));
            if let Err(failure) = warmed {
                leave_code(&side.producer, &failure);
                return Err(failure);
            }
        }
    }
    say(&ready()).map_err(|error| Failure::crash(error.to_string()))?;
    watch_stdin();
    let timeout = Duration::from_secs_f64(work.owner_timeout_seconds);
    let run = |(place, side): (usize, &mut Served<E>)| {
        if let Some(core) = core_of(place) {
            cuda::sharpen();
            if let Err(error) = pin(&[core]) {
                tracing::debug!(error, "a side keeps no core of its own");
            }
        }
        match obey(&mut side.engine, &mut side.producer, side.is_idle, timeout, side.fault) {
            Ok(steps) => steps,
            Err(failure) => {
                // The other side of this process cannot go on either: what failed is shared.
                refuse(&failure);
                leave_code(&side.producer, &failure);
                std::process::exit(1);
            }
        }
    };
    let steps: u64 = std::thread::scope(|scope| {
        let mut sides = served.iter_mut().enumerate();
        let first = sides.next();
        let run = &run;
        let others: Vec<_> = sides.map(|side| scope.spawn(move || run(side))).collect();
        let own = first.map_or(0, run);
        // A thread that panicked has ended the process already.
        own + others.into_iter().map(|other| other.join().unwrap_or(0)).sum::<u64>()
    });
    let mut checksum = 0.0;
    for side in &served {
        side.producer.set_state(WorkerState::Stopped, side.producer.command().1);
        checksum += side.engine.checksum();
    }
    // The coordinator may be gone by now, and then nobody needs the sums.
    let _ = say(&Reply::Drained { steps, checksum, peak_resident_bytes: peak_resident() });
    Ok(served.into_iter().map(|side| side.engine).collect())
}

/// Leaves when the coordinator's end of stdin closes: it is gone, or wants us gone.
fn watch_stdin() {
    std::thread::spawn(|| {
        let mut line = String::new();
        while std::io::stdin().lock().read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            line.clear();
        }
        std::process::exit(CODE_ORPHAN.into());
    });
}

/// Binds the calling thread, and the threads that it starts, to cores.
fn pin(cores: &[usize]) -> Result<(), String> {
    let mut set = CpuSet::new();
    for core in cores {
        if *core >= CpuSet::MAX_CPU {
            return Err(format!("core {core} is beyond the {} that can be named", CpuSet::MAX_CPU));
        }
        set.set(*core);
    }
    sched_setaffinity(None, &set).map_err(|error| format!("cannot run on cores {cores:?}: {error}"))
}

/// The most memory that this process has held, in bytes; 0 where the system does not tell.
fn peak_resident() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        })
        .unwrap_or(0)
        * 1024
}
