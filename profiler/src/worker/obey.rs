//! The loop of one side: commands from the ring, steps to the engine, records back.

use super::engine::{Engine, Failure, code_of};
use super::fault::InjectedFault;
use elastico_gpu::ring::{Command, Producer, Step, WorkerState, monotonic_nanoseconds};
use std::time::{Duration, Instant};

/// How long a parked worker sleeps at a time: it shows ten times a second that it lives.
const NAP: Duration = Duration::from_millis(100);
/// Exit code of a worker whose coordinator is gone.
pub(super) const CODE_ORPHAN: u8 = 11;
/// Most steps in flight of any engine.
const MOST_IN_FLIGHT: usize = 8;

/// Obeys the ring's commands until told to stop; returns the steps made.
pub(super) fn obey(
    engine: &mut dyn Engine,
    producer: &mut Producer,
    is_idle: bool,
    owner_timeout: Duration,
    fault: Option<InjectedFault>,
) -> Result<u64, Failure> {
    let mut owner = Owner::new(producer, owner_timeout);
    let mut steps = 0_u64;
    loop {
        let (command, phase) = producer.command();
        match command {
            Command::Stop => return Ok(steps),
            Command::Park => {
                engine.check()?;
                producer.set_state(WorkerState::Parked, phase);
            }
            Command::Run if is_idle => producer.set_state(WorkerState::Running, phase),
            Command::Run => {
                producer.set_state(WorkerState::Running, phase);
                steps += run(engine, producer, phase, steps, &mut owner, fault)?;
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

/// Makes steps until the command changes or the target is reached, then drains what is in flight.
fn run(
    engine: &mut dyn Engine,
    producer: &mut Producer,
    phase: u32,
    before: u64,
    owner: &mut Owner,
    fault: Option<InjectedFault>,
) -> Result<u64, Failure> {
    let target = producer.step_target();
    let depth = engine.depth().clamp(1, MOST_IN_FLIGHT);
    let mut starts = [0_u64; MOST_IN_FLIGHT];
    let (mut submitted, mut completed) = (0_u64, 0_u64);
    loop {
        while producer.command() == (Command::Run, phase)
            && submitted - completed < depth as u64
            && (target == 0 || submitted < target)
        {
            if let Some(fault) = fault.filter(|_| before + submitted == 2) {
                fault.strike(producer, engine);
            }
            starts[submitted as usize % MOST_IN_FLIGHT] = monotonic_nanoseconds();
            engine.submit()?;
            submitted += 1;
        }
        if submitted == completed {
            return Ok(completed);
        }
        let busy = engine.complete(&|| producer.beat())?;
        let start = starts[completed as usize % MOST_IN_FLIGHT];
        producer.push(Step { phase, start, end: monotonic_nanoseconds(), busy });
        completed += 1;
        owner.check(producer);
    }
}

/// Leaves a failure in the ring; the message goes over stdout.
pub(super) fn leave_code(producer: &Producer, failure: &Failure) {
    producer.fail(code_of(failure.outcome));
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
