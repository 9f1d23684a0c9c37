//! Waiting for the device: precise where it is short, asleep where it is long.

use elastico_gpu::cuda::{CudaError, Event};
use std::time::{Duration, Instant};

/// The last part of a wait, in which the thread looks without a pause. Longer than a sleep can be late.
const LOOK: Duration = Duration::from_micros(120);
/// Pause between looks once a wait is longer than expected.
const PAUSE: Duration = Duration::from_micros(50);
/// Pause once it is much longer: nothing is lost any more.
const LONG_PAUSE: Duration = Duration::from_micros(500);

/// Lets the sleeps of this thread end within microseconds of their time; the kernel's default adds up to 50.
pub(in crate::worker) fn sharpen() {
    // Where it is refused, sleeps end a little later and the look covers it.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000));
}

/// Waits for an event that is expected at an instant.
///
/// A thread that only spun would take a core from the coordinator and heat the package; one that only slept would see
/// short steps end late.
pub(super) fn wait(event: &Event, expected: Instant) -> Result<(), CudaError> {
    loop {
        if event.is_complete()? {
            return Ok(());
        }
        let now = Instant::now();
        let ahead = expected.saturating_duration_since(now);
        let late = now.saturating_duration_since(expected);
        if ahead > LOOK {
            std::thread::sleep(ahead.saturating_sub(LOOK));
        } else if late > 20 * LOOK {
            std::thread::sleep(LONG_PAUSE);
        } else if late > LOOK {
            std::thread::sleep(PAUSE);
        } else {
            std::hint::spin_loop();
        }
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
