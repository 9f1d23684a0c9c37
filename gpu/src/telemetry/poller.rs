//! A thread that looks at a device at an even pace.

use super::sample::{Telemetry, TelemetrySample};
use super::window::TelemetryWindow;
use crate::ring::monotonic_nanoseconds;
use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Samples that are kept: twenty minutes at 10 Hz.
const KEPT: usize = 12_000;

/// How long [`TelemetryPoller::window`] waits for a look after the window's end.
const PATIENCE: Duration = Duration::from_millis(500);

/// Looks at a device five times a second, or as often as told, until it is dropped.
///
/// One look is a dozen driver calls on a thread of its own; none of them creates a context. Its cost is in each sample
/// and, as a mean, in each window.
#[derive(Debug)]
pub struct TelemetryPoller {
    history: Arc<History>,
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct History {
    seen: Mutex<Seen>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Seen {
    samples: VecDeque<TelemetrySample>,
    /// When each Xid error was seen, and its number.
    xids: VecDeque<(u64, u64)>,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, telemetry: &mut Telemetry) {
        let sample = telemetry.sample();
        let xids = telemetry.xids();
        let mut seen = self.lock();
        let at = sample.at;
        seen.xids.extend(xids.into_iter().map(|xid| (at, xid)));
        while seen.xids.len() > KEPT {
            seen.xids.pop_front();
        }
        if seen.samples.len() == KEPT {
            seen.samples.pop_front();
        }
        seen.samples.push_back(sample);
        drop(seen);
        self.came.notify_all();
    }
}

impl TelemetryPoller {
    /// The pace that disturbs nothing and still catches a clock that drops.
    pub const DEFAULT_HERTZ: f64 = 5.0;

    /// Starts to look at the device. A pace that is not positive switches it off: no thread, and windows without
    /// values.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn start(telemetry: Telemetry, hertz: f64) -> std::io::Result<Self> {
        let history = Arc::new(History::default());
        if !(hertz.is_finite() && hertz > 0.0) {
            return Ok(Self { history, wake: None, thread: None });
        }
        let pace = Duration::from_secs_f64(1.0 / hertz.min(100.0));
        let (wake, calls) = channel();
        let shared = Arc::clone(&history);
        let mut telemetry = telemetry;
        let thread = std::thread::Builder::new().name("telemetry".to_owned()).spawn(move || {
            loop {
                shared.look(&mut telemetry);
                match calls.recv_timeout(pace) {
                    Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        Ok(Self { history, wake: Some(wake), thread: Some(thread) })
    }

    /// Whether it looks at all.
    pub const fn is_on(&self) -> bool {
        self.wake.is_some()
    }

    /// What was seen from `from` to `to`, in nanoseconds of `CLOCK_MONOTONIC`. Waits for a look after the end, at most
    /// half a second, so that the energy of a short window is right.
    pub fn window(&self, from: u64, to: u64) -> TelemetryWindow {
        if let Some(wake) = &self.wake
            && monotonic_nanoseconds() >= to
        {
            // The thread lives as long as this value, unless it panicked, and then the wait below ends by its limit.
            let _ = wake.send(());
            let seen = self.history.lock();
            let is_early = |seen: &mut Seen| seen.samples.back().is_none_or(|sample| sample.at < to);
            drop(self.history.came.wait_timeout_while(seen, PATIENCE, is_early));
        }
        let mut seen = self.history.lock();
        let xids: Vec<(u64, u64)> = seen.xids.iter().copied().collect();
        let mut window = TelemetryWindow::of(seen.samples.make_contiguous(), &xids, from, to);
        if !self.is_on() {
            for reason in window.missing.values_mut() {
                "telemetry is switched off".clone_into(reason);
            }
        }
        window
    }

    /// The newest sample.
    pub fn latest(&self) -> Option<TelemetrySample> {
        self.history.lock().samples.back().cloned()
    }

    /// Xid errors since a moment, oldest first.
    pub fn xids_since(&self, from: u64) -> Vec<u64> {
        self.history.lock().xids.iter().filter(|(at, _)| *at >= from).map(|(_, xid)| *xid).collect()
    }
}

impl Drop for TelemetryPoller {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed by it.
            let _ = thread.join();
        }
    }
}
