//! Waiting for the device: precise where it is short, asleep where it is long.

use elastico_gpu::cuda::{CudaError, Event};
use std::time::{Duration, Instant};

/// How long the thread looks without a pause before it begins to pause. Longer than a sleep can be late.
const LOOK: Duration = Duration::from_micros(120);
/// Pause between looks, while being late costs something; and after that.
const PAUSE: Duration = Duration::from_micros(20);
const LONG_PAUSE: Duration = Duration::from_micros(100);
/// When the pauses become long.
const PATIENCE: Duration = Duration::from_millis(5);

/// Lets the sleeps of this thread end within microseconds of their time; the kernel's default adds up to 50.
pub(in crate::worker) fn sharpen() {
    // Where it is refused, sleeps end a little later and the look covers it.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000));
}

/// Waits for an event that does not come before an instant.
///
/// A thread that only spun would take a core from the coordinator and heat the package; one that only slept would see
/// short steps end late.
pub(super) fn wait(event: &Event, not_before: Instant) -> Result<(), CudaError> {
    loop {
        if event.is_complete()? {
            return Ok(());
        }
        let now = Instant::now();
        let ahead = not_before.saturating_duration_since(now);
        let late = now.saturating_duration_since(not_before);
        if ahead > LOOK {
            std::thread::sleep(ahead.saturating_sub(LOOK));
        } else if late > PATIENCE {
            std::thread::sleep(LONG_PAUSE);
        } else if late > LOOK {
            std::thread::sleep(PAUSE);
        } else {
            std::hint::spin_loop();
        }
    }
}

/// The least time that a step may take, from the steps before it.
///
/// Under time-slicing some steps meet a foreign slice and others do not. To expect the last one's time would see a short
/// step end late, and the device would wait for the host.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace(Option<Duration>);

impl Pace {
    /// Takes in the time of a step. The fastest counts, and is forgotten slowly.
    pub(super) fn see(&mut self, step: Duration) {
        self.0 = Some(self.0.map_or(step, |fastest| step.min(fastest.mul_f64(1.02))));
    }

    /// A time that hardly any step undercuts.
    pub(super) fn least(self) -> Duration {
        self.0.map_or(Duration::ZERO, |fastest| fastest / 2)
    }
}

/// Waits for a length of host time, to the microsecond.
pub(super) fn pause(length: Duration) {
    let end = Instant::now() + length;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > LOOK {
            std::thread::sleep(left.saturating_sub(LOOK));
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_follows_the_fastest_steps() {
        let mut pace = Pace::default();
        assert_eq!(pace.least(), Duration::ZERO);
        for step in [3, 1, 3, 3, 1, 3] {
            pace.see(Duration::from_millis(step));
        }
        assert!((500..530).contains(&pace.least().as_micros()), "{pace:?}");
        for _ in 0..200 {
            pace.see(Duration::from_millis(4));
        }
        assert_eq!(pace.least(), Duration::from_millis(2));
    }

    #[test]
    fn pauses_are_as_long_as_asked() {
        let start = Instant::now();
        pause(Duration::from_micros(700));
        assert!(start.elapsed() >= Duration::from_micros(700));
    }
}
