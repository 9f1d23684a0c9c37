//! From step records to numbers: which steps count, blocks, and the slowdown of one trial.
//!
//! **Time per step.** In a closed loop the next step is submitted while the last one runs, so the time that a step
//! takes from the device is the interval between two completions, `end[i] - end[i-1]`. Intervals are grouped into
//! blocks of consecutive steps (a tenth of the window each), and the value of a block is its length over its steps:
//! the time per unit of work. Under time-slicing the steps of one window are bimodal (some meet a foreign slice, some
//! none), and their median would show no slowdown at all; the quotient does.
//!
//! **Blocks, not steps,** are the independent values within a trial, since neighbouring steps are autocorrelated.
//!
//! **Slowdown of one trial.** With `c` the logarithms of the co-run blocks, `b1` and `b2` those of the bracketing
//! isolated runs:
//!
//! ```text
//! log s = mean(c) - (mean(b1) + mean(b2)) / 2
//! var   = var(c)/n_c + (var(b1)/n_1 + var(b2)/n_2) / 4
//! ```
//!
//! and the interval is Student's t with the Welch-Satterthwaite degrees of freedom.

use crate::device::StepRecord;
use elastico_core::{Estimate, mean, sample_deviation, student_t_quantile};

/// Blocks that a window is cut into, where it has enough steps.
pub const BLOCKS: usize = 10;

/// The steps of one side that count in one phase.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// Completion of the last step before the first counted one, on the session's clock.
    pub start: f64,
    /// Steps before the counted ones.
    pub lead: u32,
    /// Counted steps.
    pub steps: u32,
    /// Seconds per step of each block.
    pub blocks: Vec<f64>,
}

impl Selection {
    /// The geometric mean of the blocks with its interval; without one where there is a single block.
    pub fn step_seconds(&self, level: f64) -> Option<Estimate> {
        geometric(&self.blocks, level).or_else(|| {
            let point = *self.blocks.first().filter(|block| **block > 0.0)?;
            (self.blocks.len() == 1).then_some(Estimate {
                point,
                lower: f64::NAN,
                upper: f64::NAN,
                level,
                n: 1,
            })
        })
    }
}

/// The counted steps of one side: past `settle`, and wholly within `from..=to`.
///
/// `None` where fewer than two steps count.
pub fn select(steps: &[StepRecord], settle: u32, from: f64, to: f64) -> Option<Selection> {
    let tolerance = 1e-9 * to.abs().max(1e-3);
    let mut first = (settle.max(1)) as usize;
    while first < steps.len() && steps[first - 1].end < from - tolerance {
        first += 1;
    }
    let mut last = steps.len();
    while last > first && steps[last - 1].end > to + tolerance {
        last -= 1;
    }
    let count = last.checked_sub(first).filter(|count| *count >= 2)?;
    let end = |counted: usize| steps[first + counted - 1].end;
    let blocks = block_bounds(count as u32)
        .map(|(low, high)| (end(high as usize) - end(low as usize)) / f64::from(high - low))
        .collect();
    Some(Selection { start: end(0), lead: first as u32, steps: count as u32, blocks })
}

/// First and last step, exclusive, of each block of a window with so many steps; at least two steps a block.
pub fn block_bounds(steps: u32) -> impl Iterator<Item = (u32, u32)> {
    let blocks = (steps / 2).clamp(1, BLOCKS as u32);
    (0..blocks).map(move |block| (block * steps / blocks, (block + 1) * steps / blocks))
}

/// The window in which both sides are past their first steps and neither has stopped; `None` where there is none.
pub fn both_busy(subject: &[StepRecord], co_runner: &[StepRecord], settle: u32) -> Option<(f64, f64)> {
    let open = |steps: &[StepRecord]| Some(steps.get((settle.max(1) as usize) - 1)?.end);
    let from = open(subject)?.max(open(co_runner)?);
    let to = subject.last()?.end.min(co_runner.last()?.end);
    (to > from).then_some((from, to))
}

/// Share of `from..to` in which both sides have work in flight.
pub fn overlap_ratio(subject: &[StepRecord], co_runner: &[StepRecord], from: f64, to: f64) -> f64 {
    let (mut i, mut j, mut both) = (0, 0, 0.0);
    while let (Some(a), Some(b)) = (subject.get(i), co_runner.get(j)) {
        // Two steps in flight of one side overlap; the later one counts from the end of the earlier.
        let a_start = if i > 0 { a.start.max(subject[i - 1].end) } else { a.start };
        let b_start = if j > 0 { b.start.max(co_runner[j - 1].end) } else { b.start };
        both += (a.end.min(b.end).min(to) - a_start.max(b_start).max(from)).max(0.0);
        if a.end <= b.end { i += 1 } else { j += 1 }
    }
    // Sums of thousands of small terms end a few ulp beside 1.
    (both / (to - from)).clamp(0.0, 1.0)
}

/// Co-located over isolated time per step, with an interval over the blocks of this trial.
///
/// `None` where a phase has no block. With too few blocks for a spread the interval is `NaN`.
pub fn slowdown(co_run: &[f64], before: &[f64], after: &[f64], level: f64) -> Option<Estimate> {
    if [co_run, before, after].iter().any(|blocks| geometric_mean(blocks).is_none()) {
        return None;
    }
    let terms = [(co_run, 1.0), (before, 0.25), (after, 0.25)].map(|(blocks, weight)| {
        let logs: Vec<f64> = blocks.iter().map(|block| block.ln()).collect();
        let variance = weight * sample_deviation(&logs).powi(2) / logs.len() as f64;
        (mean(&logs), variance, logs.len() as f64 - 1.0)
    });
    let point = terms[0].0 - f64::midpoint(terms[1].0, terms[2].0);
    let variance: f64 = terms.iter().map(|term| term.1).sum();
    let n = co_run.len() as u32;
    let (lower, upper) = if variance == 0.0 {
        (point, point)
    } else {
        let freedom = variance.powi(2) / terms.iter().map(|(_, v, f)| v.powi(2) / f).sum::<f64>();
        let half = cached_t(f64::midpoint(1.0, level), freedom) * variance.sqrt();
        (point - half, point + half)
    };
    Some(Estimate { point: point.exp(), lower: lower.exp(), upper: upper.exp(), level, n })
}

/// [`Estimate::geometric`] with the quantile from a table.
pub fn geometric(values: &[f64], level: f64) -> Option<Estimate> {
    let log_mean = geometric_mean(values)?.ln();
    if values.len() < 2 {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let error = sample_deviation(&logs) / (logs.len() as f64).sqrt();
    let half = cached_t(f64::midpoint(1.0, level), logs.len() as f64 - 1.0) * error;
    let [point, lower, upper] = [log_mean, log_mean - half, log_mean + half].map(f64::exp);
    Some(Estimate { point, lower, upper, level, n: logs.len() as u32 })
}

/// The geometric mean of positive numbers; `None` for none, or where one is not finite and above 0.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let usable = !values.is_empty() && values.iter().all(|value| value.is_finite() && *value > 0.0);
    usable.then(|| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// Student's quantile for fractional degrees of freedom, between the two whole ones by the reciprocal.
///
/// The exact inversion costs 20 us; a campaign asks for thousands of nearly equal ones.
fn cached_t(probability: f64, freedom: f64) -> f64 {
    if !freedom.is_finite() {
        return f64::NAN;
    }
    thread_local! {
        static TABLE: std::cell::RefCell<std::collections::BTreeMap<(u64, u32), f64>> =
            const { std::cell::RefCell::new(std::collections::BTreeMap::new()) };
    }
    let whole = |freedom: u32| {
        TABLE.with_borrow_mut(|table| {
            *table
                .entry((probability.to_bits(), freedom))
                .or_insert_with(|| student_t_quantile(probability, f64::from(freedom)))
        })
    };
    let freedom = freedom.clamp(1.0, 1e6);
    let below = freedom.floor();
    let (low, high) = (whole(below as u32), whole(below as u32 + 1));
    let fraction = (1.0 / below - 1.0 / freedom) / (1.0 / below - 1.0 / (below + 1.0));
    low + (high - low) * fraction
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::Seed;
    use proptest::prelude::*;
    use rand::Rng;

    fn back_to_back(durations: impl IntoIterator<Item = f64>) -> Vec<StepRecord> {
        let mut clock = 0.0;
        durations
            .into_iter()
            .map(|duration| {
                let start = clock;
                clock += duration;
                StepRecord { start, end: clock }
            })
            .collect()
    }

    fn normal(stream: &mut elastico_core::Stream) -> f64 {
        let mut uniform = || (stream.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        (-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
    }

    #[test]
    fn blocks_partition_the_steps() {
        for steps in 2..200 {
            let bounds: Vec<_> = block_bounds(steps).collect();
            assert_eq!(bounds[0].0, 0);
            assert_eq!(bounds.last().unwrap().1, steps);
            assert!(bounds.windows(2).all(|pair| pair[0].1 == pair[1].0));
            assert!(bounds.iter().all(|(low, high)| high - low >= 2));
        }
    }

    /// Half of the steps meet a foreign slice of 2 ms: the time per unit of work doubles, the median step does not.
    #[test]
    fn bimodal_steps_show_their_slowdown() {
        let co_run = back_to_back((0..200).map(|i| if i % 2 == 0 { 1e-3 } else { 3e-3 }));
        let alone = back_to_back((0..200).map(|_| 1e-3));
        let co_run = select(&co_run, 2, 0.0, 1e9).unwrap();
        let alone = select(&alone, 2, 0.0, 1e9).unwrap();
        let estimate = slowdown(&co_run.blocks, &alone.blocks, &alone.blocks, 0.95).unwrap();
        assert!((estimate.point - 2.0).abs() < 0.02, "{estimate}");
    }

    #[test]
    fn pipelined_steps_count_once() {
        // Two in flight: submitted two steps ahead, one completion each millisecond.
        let steps: Vec<StepRecord> = (0..50)
            .map(|i| StepRecord { start: f64::from(i) * 1e-3, end: f64::from(i + 2) * 1e-3 })
            .collect();
        let selection = select(&steps, 5, 0.0, 1e9).unwrap();
        assert!(selection.blocks.iter().all(|block| (block - 1e-3).abs() < 1e-12));
        let (from, to) = both_busy(&steps, &steps, 5).unwrap();
        assert!((overlap_ratio(&steps, &steps, from, to) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn steps_outside_the_common_window_do_not_count() {
        // The co-runner stops half-way; after that the subject runs at double speed.
        let subject = back_to_back((0..100).map(|_| 2e-3).chain((0..100).map(|_| 1e-3)));
        let co_runner = back_to_back((0..100).map(|_| 2e-3));
        let (from, to) = both_busy(&subject, &co_runner, 10).unwrap();
        let selection = select(&subject, 10, from, to).unwrap();
        assert_eq!(selection.steps, 90);
        assert!(selection.blocks.iter().all(|block| (block - 2e-3).abs() < 1e-12));
        assert!(both_busy(&subject, &co_runner[..5], 10).is_none());
    }

    #[test]
    fn gaps_of_one_side_lower_the_overlap() {
        let busy = back_to_back((0..100).map(|_| 1e-3));
        let half: Vec<StepRecord> = (0..100)
            .map(|i| StepRecord { start: f64::from(i) * 1e-3, end: f64::from(i) * 1e-3 + 0.5e-3 })
            .collect();
        let (from, to) = both_busy(&busy, &half, 5).unwrap();
        assert!((overlap_ratio(&busy, &half, from, to) - 0.5).abs() < 0.02);
    }

    /// 2,000 trials with planted slowdown and independent noise: the 95 % interval holds the truth in 95 % +- 2 %
    /// (4 sigma), also with unequal noise in the phases.
    #[test]
    fn the_interval_covers_a_planted_slowdown() {
        for (planted, co_noise, noise) in [(1.0, 0.02, 0.02), (1.7, 0.05, 0.01), (3.0, 0.01, 0.04)] {
            let mut stream = Seed(11).stream("coverage", &[]);
            let mut hits = 0;
            let mut sum = 0.0;
            for _ in 0..2000 {
                let mut run = |scale: f64, noise: f64| {
                    let steps =
                        back_to_back((0..62).map(|_| 1e-3 * scale * (noise * normal(&mut stream)).exp()));
                    select(&steps, 2, 0.0, 1e9).unwrap().blocks
                };
                let estimate =
                    slowdown(&run(planted, co_noise), &run(1.0, noise), &run(1.0, noise), 0.95).unwrap();
                hits += i32::from(estimate.contains(planted));
                sum += estimate.point;
            }
            assert!((1860..=1945).contains(&hits), "planted {planted}: {hits} of 2000");
            assert!((sum / 2000.0 / planted - 1.0).abs() < 2e-3, "planted {planted}: mean {}", sum / 2000.0);
        }
    }

    #[test]
    fn the_table_agrees_with_the_exact_quantile() {
        let values = [1.0, 1.1, 0.95, 1.02];
        let (fast, exact) = (geometric(&values, 0.95).unwrap(), Estimate::geometric(&values, 0.95).unwrap());
        assert!((fast.lower - exact.lower).abs() < 1e-12 && (fast.upper - exact.upper).abs() < 1e-12);
        for freedom in [1.0, 2.5, 7.3, 40.2] {
            let error = cached_t(0.975, freedom) / student_t_quantile(0.975, freedom) - 1.0;
            assert!(error.abs() < 0.02, "{freedom}: {error}");
        }
    }

    proptest! {
        /// Without noise the planted slowdown comes back exactly, whatever the units and the speeds are.
        #[test]
        fn a_planted_slowdown_is_recovered(planted in 0.9_f64..8.0, step in 1e-5_f64..1.0, drift in 0.98_f64..1.02) {
            let run = |scale: f64| select(&back_to_back((0..40).map(|_| step * scale)), 3, 0.0, 1e9).unwrap().blocks;
            let estimate = slowdown(&run(planted * drift.sqrt()), &run(1.0), &run(drift), 0.95).unwrap();
            prop_assert!((estimate.point / planted - 1.0).abs() < 1e-9);
        }

        #[test]
        fn selection_stays_within_the_window(durations in prop::collection::vec(1e-4_f64..1e-2, 5..80), from in 0.0_f64..0.1, length in 0.0_f64..0.3) {
            let steps = back_to_back(durations);
            if let Some(selection) = select(&steps, 2, from, from + length) {
                prop_assert!(selection.start >= from - 1e-6);
                let bounds: Vec<_> = block_bounds(selection.steps).collect();
                let total: f64 = selection.blocks.iter().zip(&bounds).map(|(block, (low, high))| block * f64::from(high - low)).sum();
                prop_assert!(selection.start + total <= from + length + 1e-6);
            }
        }
    }
}
