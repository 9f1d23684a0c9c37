//! One worker process from the coordinator's side: started, commanded, watched, ended.

use super::{Environment, Helper, ProcessOptions};
use crate::device::{Fault, Side};
use crate::worker::engine::outcome_of;
use crate::worker::message::{Reply, Request, Work};
use elastico_core::{Hint, Outcome};
use elastico_gpu::ring::{Command as Order, Ring, Step, WorkerState};
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// A living worker. Dropping it ends its whole process group and removes its rings.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    pub(crate) seats: Vec<Seat>,
    helper: Helper,
    is_greeted: bool,
    hang_timeout: Duration,
    stop_timeout: Duration,
}

/// One side of the trial in a worker: its ring, and when it was last heard.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) side: Side,
    /// Whether it makes no steps at all.
    pub(crate) idle: bool,
    pub(crate) ring: Ring,
    heartbeat: u64,
    heard: Instant,
}

impl Seat {
    /// Whether it has obeyed the last command and has nothing in flight.
    pub(crate) fn is_parked(&self) -> bool {
        let status = self.ring.status();
        status.phase == self.ring.phase() && status.state == WorkerState::Parked
    }

    /// Moves the records of the phase `phase` to `steps`; those of earlier phases are of no use any more.
    pub(crate) fn drain(&mut self, phase: u32, steps: &mut Vec<Step>) {
        let known = steps.len();
        self.ring.drain(steps);
        if steps[known..].iter().any(|step| step.phase != phase) {
            let kept: Vec<Step> = steps.drain(known..).filter(|step| step.phase == phase).collect();
            steps.extend(kept);
        }
    }
}

/// The word for a side in messages.
pub(crate) const fn side_name(side: Side) -> &'static str {
    match side {
        Side::Subject => "subject",
        Side::CoRunner => "co-runner",
    }
}

impl WorkerProcess {
    /// Starts the process and hands it its work; [`WorkerProcess::await_ready`] waits for the end of that.
    ///
    /// `sides` are those of the work's seats, whose rings are made here.
    pub(crate) fn start(
        command: &[OsString],
        environment: &Environment,
        options: &ProcessOptions,
        sides: &[Side],
        mut work: Work,
    ) -> Result<Self, Fault> {
        let mut seats = Vec::new();
        for (side, seat) in sides.iter().zip(&mut work.seats) {
            let label = format!("{}{}", seat.side.as_str(), work.trial);
            let ring =
                Ring::create(&options.ring_folder, &label, options.ring_capacity).map_err(|error| {
                    let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
                    let side = seat.side.as_str();
                    Fault {
                        outcome: Outcome::WorkerCrash,
                        detail: format!("no step ring for the {side}: {error}{hint}"),
                    }
                })?;
            ring.path().clone_into(&mut seat.ring);
            seats.push(Seat { side: *side, idle: seat.idle, ring, heartbeat: 0, heard: Instant::now() });
        }
        let who = match sides {
            [side] => format!("the {}'s worker", side_name(*side)),
            _ => "the worker of both sides".to_owned(),
        };
        let helper = Helper::start(who, command, environment, &Request::Work(Box::new(work)))?;
        Ok(Self {
            seats,
            helper,
            is_greeted: false,
            hang_timeout: options.hang_timeout,
            stop_timeout: options.stop_timeout,
        })
    }

    /// Waits until the worker has allocated, touched and warmed up everything; what it says then.
    pub(crate) fn await_ready(&mut self, timeout: Duration) -> Result<Reply, Fault> {
        let deadline = Instant::now() + timeout;
        if !self.is_greeted {
            self.helper.greet(deadline)?;
        }
        let mut purpose = "get ready".to_owned();
        loop {
            match self.helper.reply(deadline, &purpose)? {
                Reply::Stage { name } => purpose = format!("get ready ({name})"),
                reply @ Reply::Ready { .. } => {
                    let now = Instant::now();
                    self.seats.iter_mut().for_each(|seat| seat.heard = now);
                    return Ok(reply);
                }
                other => return Err(self.helper.unexpected(other)),
            }
        }
    }

    /// Waits for the greeting and the first stage: what a hanging driver never comes to.
    pub(crate) fn await_stage(&mut self, timeout: Duration, purpose: &str) -> Result<(), Fault> {
        let deadline = Instant::now() + timeout;
        self.helper.greet(deadline)?;
        self.is_greeted = true;
        match self.helper.reply(deadline, purpose)? {
            Reply::Stage { .. } => Ok(()),
            other => Err(self.helper.unexpected(other)),
        }
    }

    /// A fault unless the process lives and shows it.
    pub(crate) fn health(&mut self) -> Result<(), Fault> {
        let code = |seat: &Seat| {
            let status = seat.ring.status();
            (status.state == WorkerState::Stopped && status.error_code != 0).then_some(status.error_code)
        };
        let left = self.seats.iter().find_map(code);
        if left.is_some() || self.helper.has_ended() {
            // The ring outlives the worker: a code that it left there tells more than its exit status.
            return Err(self.helper.crash(left.and_then(outcome_of)));
        }
        for seat in &mut self.seats {
            let status = seat.ring.status();
            if status.heartbeat != seat.heartbeat {
                seat.heartbeat = status.heartbeat;
                seat.heard = Instant::now();
            } else if seat.heard.elapsed() > self.hang_timeout {
                let silence = seat.heard.elapsed().as_secs_f64();
                let what = format!("lives but shows no sign of it for {silence:.1} s");
                return Err(self.helper.fault(Outcome::Hang, &what));
            }
        }
        Ok(())
    }

    /// A fault of this worker.
    pub(crate) fn fault(&self, outcome: Outcome, what: &str) -> Fault {
        self.helper.fault(outcome, what)
    }

    /// Ends the worker at once.
    pub(crate) fn kill(&mut self) {
        self.helper.kill();
    }

    /// Asks the worker to leave, and ends it where it does not in time.
    pub(crate) fn end(&mut self, grace: Duration) {
        for seat in &mut self.seats {
            seat.ring.send(Order::Stop, 0);
        }
        self.helper.wait_end(grace);
        self.helper.kill();
    }

    /// Asks the worker to leave and gives it the time to free what it holds.
    pub(crate) fn stop(&mut self) {
        for seat in &mut self.seats {
            seat.ring.send(Order::Stop, 0);
        }
        if !self.helper.wait_end(self.stop_timeout) {
            tracing::warn!(worker = self.helper.who(), "a worker does not leave and is killed");
        }
        for reply in self.helper.unread() {
            if let Reply::Drained { steps, peak_resident_bytes, .. } = reply {
                tracing::debug!(steps, peak_resident_bytes, "worker drained");
            }
        }
    }
}
