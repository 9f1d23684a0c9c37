//! One phase: let the active sides run until the window is over, drain them, park them.

use super::WorkerProcess;
use super::worker::Seat;
use crate::device::{Active, Fault, Side, StepRecord, Window};
use elastico_core::Outcome;
use elastico_gpu::ring::{Command, Step};
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the coordinator looks: rarely, because it may take its time from the cores that it measures.
const LOOK: Duration = Duration::from_millis(10);
/// How often the coordinator shows its workers that it lives.
const BEAT: Duration = Duration::from_millis(250);

/// The raw steps of one phase.
#[derive(Debug, Default)]
pub(crate) struct RawPhase {
    pub(crate) subject: Vec<Step>,
    pub(crate) co_runner: Vec<Step>,
}

/// Shows workers that their coordinator lives, from a thread of its own, until dropped.
#[derive(Debug)]
pub(crate) struct Heart(Option<(Sender<()>, JoinHandle<()>)>);

impl Heart {
    /// Beats for all seats of all workers.
    pub(crate) fn start(workers: &[WorkerProcess]) -> Self {
        let seats = workers.iter().flat_map(|worker| &worker.seats);
        let beacons: Vec<_> = seats.map(|seat| seat.ring.beacon()).collect();
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                for beacon in &beacons {
                    beacon.beat();
                }
            }
        });
        Self(Some((stop, thread)))
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// The sides that run, in order; a fault where the session has no such side.
fn active_sides(workers: &[WorkerProcess], active: Active) -> Result<Vec<Side>, Fault> {
    let wanted = match active {
        Active::Alone(side) => vec![side],
        Active::Both => vec![Side::Subject, Side::CoRunner],
    };
    let has = |side: &Side| workers.iter().flat_map(|worker| &worker.seats).any(|seat| seat.side == *side);
    if wanted.iter().all(has) {
        return Ok(wanted);
    }
    Err(Fault {
        outcome: Outcome::Unsupported,
        detail: "the session was opened without a co-runner".to_owned(),
    })
}

/// Runs one phase. `sample` is called every few milliseconds while it runs, and ends it with the fault that it gives.
pub(crate) fn measure(
    workers: &mut [WorkerProcess],
    active: Active,
    window: Window,
    drain_timeout: Duration,
    sample: &mut dyn FnMut() -> Result<(), Fault>,
) -> Result<RawPhase, Fault> {
    for worker in &mut *workers {
        worker.health()?;
    }
    let sides = active_sides(workers, active)?;
    let [min, max] = [window.min, window.max]
        .map(|limit| Duration::try_from_secs_f64(limit.get().max(0.0)).unwrap_or(Duration::from_hours(24)));
    let max = max.max(min);
    let mut steps: BTreeMap<Side, (u32, Vec<Step>)> = BTreeMap::new();
    let start = Instant::now();
    for seat in seats(workers, &sides) {
        steps.insert(seat.side, (seat.ring.send(Command::Run, 0), Vec::new()));
    }
    loop {
        let elapsed = start.elapsed();
        let mut fewest = u32::MAX;
        for worker in &mut *workers {
            worker.health()?;
            for seat in &mut worker.seats {
                if let Some((phase, records)) = steps.get_mut(&seat.side) {
                    seat.drain(*phase, records);
                    if !seat.idle {
                        fewest = fewest.min(records.len() as u32);
                    }
                }
            }
        }
        if elapsed >= max || (elapsed >= min && fewest >= window.min_steps) {
            break;
        }
        sample()?;
        let limit = if elapsed < min { min } else { max };
        std::thread::sleep(LOOK.min(limit.saturating_sub(elapsed)).max(Duration::from_micros(100)));
    }
    for seat in seats(workers, &sides) {
        seat.ring.send(Command::Park, 0);
    }
    park(workers, &sides, drain_timeout)?;
    for worker in workers {
        for seat in &mut worker.seats {
            if let Some((phase, records)) = steps.get_mut(&seat.side) {
                seat.drain(*phase, records);
            }
        }
        let lost = worker.seats.iter().map(|seat| seat.ring.status().overflow).max().unwrap_or(0);
        if lost > 0 {
            let what = format!("made steps faster than they were fetched: {lost} records are lost");
            return Err(worker.fault(Outcome::Timeout, &what));
        }
    }
    let mut of = |side| steps.remove(&side).map(|(_, records)| records).unwrap_or_default();
    Ok(RawPhase { subject: of(Side::Subject), co_runner: of(Side::CoRunner) })
}

/// The seats of some sides.
fn seats<'a>(workers: &'a mut [WorkerProcess], sides: &'a [Side]) -> impl Iterator<Item = &'a mut Seat> {
    workers.iter_mut().flat_map(|worker| &mut worker.seats).filter(move |seat| sides.contains(&seat.side))
}

/// Waits until nothing is in flight any more.
fn park(workers: &mut [WorkerProcess], sides: &[Side], timeout: Duration) -> Result<(), Fault> {
    let deadline = Instant::now() + timeout;
    loop {
        let mut waiting = false;
        for worker in &mut *workers {
            worker.health()?;
            let active = worker.seats.iter().filter(|seat| sides.contains(&seat.side));
            waiting |= active.into_iter().any(|seat| !seat.is_parked());
            if waiting && Instant::now() >= deadline {
                return Err(worker.fault(Outcome::Timeout, "lives but does not finish its step"));
            }
        }
        if !waiting {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Steps on a clock that begins at `epoch`, in seconds.
pub(crate) fn records(steps: &[Step], epoch: u64) -> Vec<StepRecord> {
    let seconds = |instant: u64| instant.saturating_sub(epoch) as f64 * 1e-9;
    steps.iter().map(|step| StepRecord { start: seconds(step.start), end: seconds(step.end) }).collect()
}

/// From the first start to the last end, in seconds; `None` without steps.
pub(crate) fn span(steps: &[Step]) -> Option<f64> {
    let (first, last) = (steps.first()?, steps.last()?);
    let span = last.end.saturating_sub(first.start) as f64 * 1e-9;
    (span > 0.0).then_some(span)
}
