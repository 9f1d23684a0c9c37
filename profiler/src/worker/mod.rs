//! The worker process of the CPU device: runs the steps of one side and nothing else.
//!
//! The coordinator starts it by exec, speaks to it in JSON lines over stdin and stdout (hello → prepare → ready →
//! drained), and commands it through the control block of a shared-memory ring, where the worker also writes one record
//! per step. It must not outlive its coordinator: it asks the kernel to die with it, leaves when stdin closes, and
//! leaves when the coordinator's heartbeat in the ring stops.
//!
//! A worker that idles (the null workload) obeys every command, makes no step and writes no record.
//!
//! For tests of the coordinator, and nothing else, the variable `ELASTICO_WORKER_FAULT` makes a worker fail on purpose:
//! `kill`, `stop`, `endless`, `nan` in its third step, `oom` while it prepares, `silent` at its start; `@subject` or
//! `@co_runner` after the word limits it to one side.

mod arena;
mod fault;
mod kernels;
mod lane;
pub(crate) mod message;
mod sizes;
mod task;
mod team;

use arena::Ration;
use elastico_gpu::ring::{Command, Producer, Step, WorkerState, monotonic_nanoseconds};
use fault::InjectedFault;
use message::{PROTOCOL, Prepare, Reply};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use team::Team;

/// How long a parked worker sleeps at a time: it shows ten times a second that it lives.
const NAP: Duration = Duration::from_millis(100);

/// Left in the ring and as exit code, so that the coordinator can say why.
pub(crate) const CODE_NUMBERS: u32 = 10;
const CODE_ORPHAN: u8 = 11;

/// Runs a worker to its end; the whole of `elastico worker`.
///
/// Everything that goes wrong before the first step is said as a JSON line, everything after it in the ring and on
/// stderr.
pub fn main() -> ExitCode {
    // The order matters: from here on the kernel ends this process with its coordinator.
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    let panic_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        panic_hook(info);
        // One lane that unwinds would leave the others waiting for ever.
        std::process::abort();
    }));
    if let Err(error) = bound {
        return refuse(&failed("worker_crash", format!("cannot bind to the coordinator's life: {error}")));
    }
    if fault::is_silent() {
        std::thread::sleep(Duration::from_hours(1));
    }
    let hello = Reply::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() };
    if say(&hello).is_err() {
        return ExitCode::from(CODE_ORPHAN);
    }
    let prepare = match read_prepare() {
        Ok(Some(prepare)) => prepare,
        Ok(None) => return ExitCode::from(CODE_ORPHAN),
        Err(detail) => return refuse(&failed("worker_crash", detail)),
    };
    match serve(&prepare) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reply) => refuse(&reply),
    }
}

fn failed(outcome: &str, detail: String) -> Reply {
    Reply::Failed { outcome: outcome.to_owned(), detail }
}

fn refuse(reply: &Reply) -> ExitCode {
    // Nobody reads where the coordinator is gone; the exit code says the rest.
    let _ = say(reply);
    ExitCode::FAILURE
}

fn say(reply: &Reply) -> std::io::Result<()> {
    let line = serde_json::to_string(reply)?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

fn read_prepare() -> Result<Option<Prepare>, String> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => serde_json::from_str(&line).map(Some).map_err(|error| format!("bad prepare line: {error}")),
        Err(error) => Err(format!("cannot read stdin: {error}")),
    }
}

fn serve(prepare: &Prepare) -> Result<(), Reply> {
    let fault = InjectedFault::read(prepare.side);
    if prepare.cores.is_empty() {
        return Err(failed("worker_crash", "no core to run on".to_owned()));
    }
    pin(&prepare.cores).map_err(|error| failed("worker_crash", error))?;
    let mut producer =
        Producer::open(&prepare.ring).map_err(|error| failed("worker_crash", error.to_string()))?;
    let mut ration = Ration::new(prepare.memory_limit_bytes);
    if fault == Some(InjectedFault::Oom) {
        ration.refuse_all();
    }
    let oom = |error: arena::OutOfMemory| failed("oom", error.to_string());
    let mut team = Team::start(prepare, &mut ration).map_err(oom)?;
    if !prepare.idle {
        // Twice, so that the first timed step meets touched pages, trained predictors and settled cursors.
        for _ in 0..2 {
            team.step(&|| producer.beat());
        }
    }
    let ready = Reply::Ready {
        lanes: prepare.cores.len(),
        allocated_bytes: ration.used(),
        peak_resident_bytes: peak_resident(),
    };
    say(&ready).map_err(|error| failed("worker_crash", error.to_string()))?;
    watch_stdin();
    let steps = obey(prepare, &mut producer, &mut team, fault);
    producer.set_state(WorkerState::Stopped, producer.command().1);
    let drained = Reply::Drained { steps, checksum: team.checksum(), peak_resident_bytes: peak_resident() };
    team.stop();
    // The coordinator may be gone by now, and then nobody needs the sums.
    let _ = say(&drained);
    Ok(())
}

/// Obeys the ring's commands until told to stop; returns the steps made.
fn obey(prepare: &Prepare, producer: &mut Producer, team: &mut Team, fault: Option<InjectedFault>) -> u64 {
    let mut owner = Owner::new(producer, Duration::from_secs_f64(prepare.owner_timeout_seconds));
    let mut steps = 0_u64;
    loop {
        let (command, phase) = producer.command();
        match command {
            Command::Stop => return steps,
            Command::Park => {
                if !team.checksum().is_finite() {
                    producer.fail(CODE_NUMBERS);
                    std::process::exit(CODE_NUMBERS.cast_signed());
                }
                producer.set_state(WorkerState::Parked, phase);
            }
            Command::Run if prepare.idle => producer.set_state(WorkerState::Running, phase),
            Command::Run => {
                producer.set_state(WorkerState::Running, phase);
                let target = producer.step_target();
                let mut made = 0;
                while producer.command() == (Command::Run, phase) && (target == 0 || made < target) {
                    if let Some(fault) = fault.filter(|_| steps == 2) {
                        fault.strike(producer, team);
                    }
                    let start = monotonic_nanoseconds();
                    let busy = team.step(&|| producer.beat());
                    producer.push(Step { phase, start, end: monotonic_nanoseconds(), busy });
                    made += 1;
                    steps += 1;
                    owner.check(producer);
                }
                if producer.command() == (Command::Run, phase) {
                    producer.set_state(WorkerState::Parked, phase);
                }
            }
        }
        while !producer.wait_beyond(phase, NAP) {
            producer.beat();
            owner.check(producer);
        }
    }
}

/// The coordinator's heartbeat as last seen.
struct Owner {
    beat: u64,
    seen: Instant,
    timeout: Duration,
}

impl Owner {
    fn new(producer: &Producer, timeout: Duration) -> Self {
        Self { beat: producer.owner_beat(), seen: Instant::now(), timeout }
    }

    /// Ends the process where the coordinator has not beaten for too long.
    fn check(&mut self, producer: &Producer) {
        let beat = producer.owner_beat();
        if beat != self.beat {
            self.beat = beat;
            self.seen = Instant::now();
        } else if self.seen.elapsed() > self.timeout {
            producer.fail(CODE_ORPHAN.into());
            std::process::exit(CODE_ORPHAN.into());
        }
    }
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
