//! From the start of a command to steady progress.

use super::command::{Running, StartOptions, StepSource};
use super::progress::{Event, MIN_PERIODS, Period, Progress, Weights, find};
use crate::device::Fault;
use elastico_core::Outcome;
use std::time::{Duration, Instant};

/// Records that are searched for a period.
const SEARCHED: usize = 200_000;
/// How often they are.
const SEARCH: Duration = Duration::from_millis(400);
/// Length of a step, by wall time, where nothing repeats.
const QUANTUM: f64 = 0.05;

/// A period that was found, and since when it is.
struct Found {
    ring: usize,
    period: Period,
    since: Instant,
}

/// Waits until the side's progress is periodic and steady, and sets its source of steps.
///
/// The side must run alone. Where its kernels repeat nothing within a quarter of the longest start-up, its progress is
/// weighed by device time; where they cannot be recorded, lines of output are its steps, or nothing is.
///
/// # Errors
/// A [`Fault`] where the command ends, or uses no GPU.
pub(crate) fn await_steady(side: &mut Running, options: &StartOptions) -> Result<(), Fault> {
    let start = Instant::now();
    let quarter = (options.startup / 4).max(Duration::from_secs(2)).min(options.startup);
    let (mut first_kernel, mut searched): (Option<Instant>, Option<Instant>) = (None, None);
    let mut found: Option<Found> = None;
    loop {
        side.health()?;
        side.fetch()?;
        let busiest = side.busiest();
        if busiest.is_some() && first_kernel.is_none() {
            first_kernel = Some(Instant::now());
        }
        if let Some(ring) = busiest
            && searched.is_none_or(|searched| searched.elapsed() >= SEARCH)
        {
            let now_found = find_lately(side.sorted(ring, SEARCHED), options.hold);
            searched = Some(Instant::now());
            found = match (now_found, found) {
                (Some(period), Some(before)) if is_same(&before, ring, &period) => {
                    Some(Found { period, ..before })
                }
                (Some(period), _) => Some(Found { ring, period, since: Instant::now() }),
                (None, _) => None,
            };
            if let Some(found) = &found
                && found.since.elapsed() >= options.hold
            {
                let progress = Progress::Periodic(found.period.clone());
                side.source = StepSource::Kernels { ring: found.ring, progress };
                return Ok(());
            }
        }
        let silent = side.why_silent().or_else(|| {
            options.injection.is_none().then(|| "recording of kernels was not asked for".to_owned())
        });
        let waited = start.elapsed();
        let is_late = waited >= options.startup;
        if let Some(reason) = silent {
            if options.pattern.is_some() {
                if let Some(seconds) = line_pace(&side.ticks()) {
                    side.source = StepSource::Lines(seconds);
                    return Ok(());
                }
                if is_late {
                    let what = format!(
                        "printed no {MIN_PERIODS} lines that match --progress-pattern within {:.0} s, and {reason}",
                        waited.as_secs_f64()
                    );
                    return Err(side.fault_with_log(Outcome::Unsupported, &what));
                }
            } else if waited >= quarter {
                side.source = StepSource::None(reason);
                return Ok(());
            }
        } else if let Some(first) = first_kernel {
            // A period that is being watched gets its time.
            let has_time = found.is_some() && !is_late;
            if (first.elapsed() >= quarter || is_late) && !has_time {
                let ring = busiest.unwrap_or(0);
                let weights = weigh(side.sorted(ring, SEARCHED));
                let what = "made kernels whose time cannot be told, so that its progress is unknown";
                let weights = weights.ok_or_else(|| side.fault(Outcome::CountersUnavailable, what))?;
                side.source = StepSource::Kernels { ring, progress: Progress::Weighted(weights) };
                return Ok(());
            }
        } else if is_late {
            let what = format!(
                "made no kernel within {:.0} s: did it use the GPU? If its start takes longer, give --startup more seconds",
                waited.as_secs_f64()
            );
            return Err(side.fault_with_log(Outcome::Unsupported, &what));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The period of all records, or of their last half, quarter or eighth where that is long enough: a start-up may have
/// made more kernels than many iterations do.
fn find_lately(events: &[Event], least: Duration) -> Option<Period> {
    [1, 2, 4, 8].into_iter().find_map(|part| {
        let late = &events[events.len() - events.len() / part..];
        let span = late.last()?.end.saturating_sub(late.first()?.end);
        (part == 1 || span >= least.as_nanos() as u64).then(|| find(late)).flatten()
    })
}

/// The same anchor, or another one of the same period.
fn is_same(before: &Found, ring: usize, period: &Period) -> bool {
    let old = &before.period;
    before.ring == ring
        && old.records.abs_diff(period.records) * 10 <= old.records.max(period.records)
        && (old.anchor == period.anchor || (old.seconds / period.seconds - 1.0).abs() < 0.2)
}

/// Seconds between matching lines, once there are enough.
fn line_pace(ticks: &[u64]) -> Option<f64> {
    let last = ticks.get(ticks.len().checked_sub(MIN_PERIODS + 1)?..)?;
    let span = last.last()?.saturating_sub(*last.first()?);
    Some(span as f64 * 1e-9 / MIN_PERIODS as f64)
}

/// Weights from records of the program alone, with steps of about [`QUANTUM`] of wall time.
fn weigh(events: &[Event]) -> Option<Weights> {
    let (first, last) = (events.first()?, events.last()?);
    let wall = last.end.saturating_sub(first.start) as f64 * 1e-9;
    let device: f64 = events.iter().map(|event| event.end.saturating_sub(event.start) as f64 * 1e-9).sum();
    let longest = events.iter().map(|event| event.end.saturating_sub(event.start)).max()? as f64 * 1e-9;
    Weights::new(events, (QUANTUM * device / wall).max(4.0 * longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_of_lines_is_that_of_the_last_ones() {
        assert_eq!(line_pace(&[1, 2, 3]), None);
        let mut ticks = vec![0, 1_000_000_000];
        ticks.extend((0..=MIN_PERIODS as u64).map(|at| 2_000_000_000 + at * 50_000_000));
        assert!((line_pace(&ticks).unwrap() - 0.05).abs() < 1e-9);
    }

    #[test]
    fn a_long_start_up_does_not_hide_the_loop() {
        let event =
            |at: u64, signature| Event { start: at * 1_000_000, end: at * 1_000_000 + 900_000, signature };
        let started: Vec<Event> = (0..4_000).map(|at| event(at, at * at % 1_009 + 100)).collect();
        let looped = (4_000..5_000).map(|at| event(at, at % 5));
        let events: Vec<Event> = started.into_iter().chain(looped).collect();
        assert_eq!(find(&events), None);
        let period = find_lately(&events, Duration::from_millis(500)).unwrap();
        assert_eq!((period.records, period.per_period), (5, 1));
        assert_eq!(find_lately(&events, Duration::from_secs(9)), None);
    }

    #[test]
    fn steps_without_a_period_have_a_length_of_their_own() {
        let events: Vec<Event> = (0..1_000)
            .map(|at| Event { start: at * 1_000_000, end: at * 1_000_000 + 500_000, signature: at % 17 })
            .collect();
        let weights = weigh(&events).unwrap();
        assert!((weights.step - 0.025).abs() < 1e-3, "{}", weights.step);
        assert!(weigh(&[]).is_none());
    }
}
