//! Progress of an unmodified program, from the sequence of its kernels.
//!
//! A program that trains or serves repeats itself: the same kernels come again in each iteration. [`find`] looks for
//! that period in records of the program running alone and chooses an *anchor*, a signature that comes a constant number
//! of times in each period; from then on one step is one period, counted by its anchor. The same count applies to the
//! co-run, where times differ and the sequence does not.
//!
//! **How.** For a candidate anchor the records between two of its occurrences form a segment, and a segment is seen as a
//! bag: how often which signature. Order inside a segment does not matter, so that streams may interleave as they like.
//! The rounded mean bag is the reference; a segment within a tenth of it is regular. A candidate is good where regular
//! segments hold nine tenths of the records and of the device time. Of the good ones the shortest period wins. Kernels
//! that are rare (logging, an evaluation now and then) make a few segments irregular and do no harm; where they take
//! more than a hundredth of the time and come regularly themselves, the longer period that holds them is taken.
//!
//! Where nothing repeats, [`Weights`] measures progress in device time: each signature is worth its mean duration in the
//! isolated run, and a step is a fixed sum of that. It is right as far as the program does the same work in both runs.

use crate::device::StepRecord;
use std::collections::{BTreeMap, HashMap};

/// Periods that must be seen before one is believed.
pub const MIN_PERIODS: usize = 6;
/// Most occurrences of the anchor in one period.
const MOST_PER_PERIOD: u32 = 8;
/// Most difference of a regular segment from the reference, relative to its size.
const TOLERANCE: f64 = 0.1;
/// Least share of records and of device time in regular segments.
const COVERAGE: f64 = 0.9;
/// Share of device time from which kernels outside the period are worth a longer one.
const WORTH: f64 = 0.01;
/// Candidates tried of those that come equally often.
const ALIKE: usize = 3;

/// One record of one process, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When the device began.
    pub start: u64,
    /// When it was done.
    pub end: u64,
    /// What ran.
    pub signature: u64,
}

/// A period, and how to count it.
#[derive(Debug, Clone, PartialEq)]
pub struct Period {
    /// The signature that is counted.
    pub anchor: u64,
    /// How often it comes in one period.
    pub per_period: u32,
    /// Records of one period.
    pub records: u32,
    /// Seconds of one period, the median.
    pub seconds: f64,
    /// Periods seen.
    pub periods: u32,
    /// Share of the records that lie in regular periods.
    pub regular_ratio: f64,
}

/// Device time of each signature in the isolated run.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// Mean seconds by signature.
    pub seconds: BTreeMap<u64, f64>,
    /// Worth of a signature that the isolated run did not have: the mean over all records.
    pub unknown: f64,
    /// Device seconds of one step.
    pub step: f64,
}

/// How a side's progress is told from its records.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// By its period.
    Periodic(Period),
    /// By device time, for want of a period.
    Weighted(Weights),
}

/// Events as dense numbers, so that a bag is a vector.
struct Sequence {
    ids: Vec<u32>,
    signatures: Vec<u64>,
    counts: Vec<usize>,
    durations: Vec<u64>,
    ends: Vec<u64>,
}

impl Sequence {
    fn new(events: &[Event]) -> Self {
        let mut known: HashMap<u64, u32> = HashMap::new();
        let (mut signatures, mut counts) = (Vec::new(), Vec::new());
        let ids = events
            .iter()
            .map(|event| {
                let id = *known.entry(event.signature).or_insert_with(|| {
                    signatures.push(event.signature);
                    counts.push(0);
                    signatures.len() as u32 - 1
                });
                counts[id as usize] += 1;
                id
            })
            .collect();
        let durations = events.iter().map(|event| event.end.saturating_sub(event.start)).collect();
        let ends = events.iter().map(|event| event.end).collect();
        Self { ids, signatures, counts, durations, ends }
    }
}

/// A candidate that was good.
struct Judged {
    id: u32,
    per_period: u32,
    size: f64,
    records_ratio: f64,
    periods: usize,
    median: f64,
    /// Relative spread of the periods' lengths.
    spread: f64,
    /// The signature outside the reference that takes most time, and its share of it.
    outside: Option<(u32, f64)>,
}

/// The period of records in order of their ends; `None` where nothing repeats at least [`MIN_PERIODS`] times up to the
/// last records.
///
/// A start-up before the periods may take up to half of the records.
pub fn find(events: &[Event]) -> Option<Period> {
    let sequence = Sequence::new(events);
    let mut best: Option<Judged> = None;
    for per_period in 1..=MOST_PER_PERIOD {
        best = shortest(&sequence, per_period);
        if best.is_some() {
            break;
        }
    }
    let mut best = best?;
    if let Some((id, share)) = best.outside
        && share > WORTH
        && let Some(longer) = judge(&sequence, id, 1)
        && longer.outside.is_none_or(|(_, left)| left < share)
    {
        best = longer;
    }
    Some(Period {
        anchor: sequence.signatures[best.id as usize],
        per_period: best.per_period,
        records: best.size as u32,
        seconds: best.median,
        periods: best.periods as u32,
        regular_ratio: best.records_ratio,
    })
}

/// The good candidate with the shortest period; of equals the steadiest.
fn shortest(sequence: &Sequence, per_period: u32) -> Option<Judged> {
    let mut candidates: Vec<u32> = (0..sequence.counts.len() as u32)
        .filter(|id| sequence.counts[*id as usize] > MIN_PERIODS * per_period as usize)
        .collect();
    // The most frequent first: the shorter period makes the longer ones unnecessary.
    candidates.sort_by_key(|id| (std::cmp::Reverse(sequence.counts[*id as usize]), *id));
    let mut best: Option<Judged> = None;
    let (mut level, mut alike) = (0, 0);
    for id in candidates {
        let count = sequence.counts[id as usize];
        alike = if count == level { alike + 1 } else { 0 };
        level = count;
        if alike >= ALIKE {
            continue;
        }
        let expected = (sequence.ids.len() * per_period as usize) as f64 / count as f64;
        if best.as_ref().is_some_and(|best| expected > 1.5 * best.size) {
            break;
        }
        if let Some(judged) = judge(sequence, id, per_period)
            && best.as_ref().is_none_or(|best| (judged.size, judged.spread) < (best.size, best.spread))
        {
            best = Some(judged);
        }
    }
    best
}

/// Segments between every `per_period`-th occurrence of `id`, and whether they are one bag again and again.
fn judge(sequence: &Sequence, id: u32, per_period: u32) -> Option<Judged> {
    let occurrences = sequence.ids.iter().enumerate().filter(|(_, other)| **other == id).map(|(at, _)| at);
    // Counted from the last one back, so that an irregular start-up cannot shift the count.
    let mut bounds: Vec<usize> = occurrences.collect();
    bounds.reverse();
    let mut bounds: Vec<usize> = bounds.into_iter().step_by(per_period as usize).collect();
    bounds.reverse();
    if bounds.len() <= MIN_PERIODS {
        return None;
    }
    let kinds = sequence.signatures.len();
    let segments = |from: usize| bounds.windows(2).skip(from).map(|pair| (pair[0] + 1, pair[1] + 1));
    let mean = |regular: &dyn Fn(usize) -> bool| {
        let (mut sums, mut count) = (vec![0_u32; kinds], 0_u32);
        for (index, (from, to)) in segments(0).enumerate() {
            if regular(index) {
                count += 1;
                sequence.ids[from..to].iter().for_each(|id| sums[*id as usize] += 1);
            }
        }
        let rounded = |sum: &u32| (f64::from(*sum) / f64::from(count.max(1))).round();
        sums.iter().map(rounded).collect::<Vec<f64>>()
    };
    let distances = |reference: &[f64]| -> Vec<f64> {
        let whole: f64 = reference.iter().sum();
        let mut bag = vec![0_u32; kinds];
        segments(0)
            .map(|(from, to)| {
                sequence.ids[from..to].iter().for_each(|id| bag[*id as usize] += 1);
                let (mut differs, mut met) = (0.0, 0.0);
                for id in &sequence.ids[from..to] {
                    let count = std::mem::take(&mut bag[*id as usize]);
                    if count > 0 {
                        differs += (f64::from(count) - reference[*id as usize]).abs();
                        met += reference[*id as usize];
                    }
                }
                (differs + whole - met) / whole.max(1.0)
            })
            .collect()
    };
    // A start-up in the window pulls the mean; the segments that are near it give a better one.
    let rough = distances(&mean(&|_| true));
    let reference = mean(&|index| rough[index] <= 0.5);
    let size: f64 = reference.iter().sum();
    let distance = distances(&reference);

    // What comes before the first regular segment is start-up.
    let first = distance.iter().position(|distance| *distance <= TOLERANCE)?;
    let (mut records, mut time, mut periods) = ([0_usize; 2], [0_u64; 2], 0);
    let mut outside: BTreeMap<u32, u64> = BTreeMap::new();
    for ((from, to), distance) in segments(first).zip(&distance[first..]) {
        let duration: u64 = sequence.durations[from..to].iter().sum();
        records[1] += to - from;
        time[1] += duration;
        if *distance <= TOLERANCE {
            records[0] += to - from;
            time[0] += duration;
            periods += 1;
        }
        for at in (from..to).filter(|at| reference[sequence.ids[*at] as usize] == 0.0) {
            *outside.entry(sequence.ids[at]).or_default() += sequence.durations[at];
        }
    }
    let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 1.0 };
    let records_ratio = ratio(records[0] as f64, records[1] as f64);
    let time_ratio = ratio(time[0] as f64, time[1] as f64);
    let last = bounds.last().copied().unwrap_or(0);
    let goes_on = ((sequence.ids.len() - 1 - last) as f64) < 2.5 * size.max(1.0);
    let is_good = size >= 1.0
        && periods >= MIN_PERIODS
        && records_ratio >= COVERAGE
        && time_ratio >= COVERAGE
        && goes_on
        && records[1] * 2 >= sequence.ids.len();
    if !is_good {
        return None;
    }
    let mut lengths: Vec<f64> = segments(first)
        .zip(&distance[first..])
        .filter(|(_, distance)| **distance <= TOLERANCE)
        .map(|((from, to), _)| sequence.ends[to - 1].saturating_sub(sequence.ends[from - 1]) as f64 * 1e-9)
        .collect();
    lengths.sort_by(f64::total_cmp);
    let median = lengths[lengths.len() / 2];
    let spread = ratio(lengths[lengths.len() * 3 / 4] - lengths[lengths.len() / 4], median);
    let outside = outside
        .into_iter()
        .max_by_key(|(id, time)| (*time, *id))
        .map(|(id, duration)| (id, ratio(duration as f64, time[1] as f64)));
    Some(Judged { id, per_period, size, records_ratio, periods, median, spread, outside })
}

impl Weights {
    /// Worth of each signature in records of the isolated run, and a step of `step` seconds of device time.
    ///
    /// `None` where the records have no duration.
    pub fn new(events: &[Event], step: f64) -> Option<Self> {
        let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for event in events {
            let (sum, count) = sums.entry(event.signature).or_default();
            *sum += event.end.saturating_sub(event.start) as f64 * 1e-9;
            *count += 1.0;
        }
        let total: f64 = sums.values().map(|(sum, _)| sum).sum();
        let seconds = sums.into_iter().map(|(signature, (sum, count))| (signature, sum / count)).collect();
        (total > 0.0).then(|| Self { seconds, unknown: total / events.len() as f64, step })
    }
}

impl Progress {
    /// Steps from records in order of their ends, on a clock that begins at `epoch`.
    ///
    /// The first anchor only opens. A step begins where the one before it ended; after a pause of the program longer than
    /// three periods it begins with its first record, so that the pause counts as idle.
    pub fn steps(&self, events: &[Event], epoch: u64) -> Vec<StepRecord> {
        let seconds = |instant: u64| instant.saturating_sub(epoch) as f64 * 1e-9;
        let mut steps = Vec::new();
        let mut before: Option<u64> = None;
        let mut begun: Option<u64> = None;
        let mut done = 0.0;
        for event in events {
            begun = Some(begun.map_or(event.start, |begun: u64| begun.min(event.start)));
            let (worth, whole) = self.worth(event);
            done += worth;
            // Sums of many small terms end a little below the whole.
            if done < whole * (1.0 - 1e-9) {
                continue;
            }
            done = if matches!(self, Self::Periodic(_)) { 0.0 } else { (done - whole).max(0.0) % whole };
            if let Some(last) = before {
                let paused = (event.end.saturating_sub(last)) as f64 * 1e-9 > 3.0 * self.usual();
                let start = if paused { begun.unwrap_or(last).max(last) } else { last };
                steps.push(StepRecord { start: seconds(start), end: seconds(event.end) });
            }
            before = Some(event.end);
            begun = None;
        }
        steps
    }

    /// What one record adds, and what makes a step.
    pub(super) fn worth(&self, event: &Event) -> (f64, f64) {
        match self {
            Self::Periodic(period) => {
                (f64::from(u8::from(event.signature == period.anchor)), f64::from(period.per_period))
            }
            Self::Weighted(weights) => {
                (weights.seconds.get(&event.signature).copied().unwrap_or(weights.unknown), weights.step)
            }
        }
    }

    /// Seconds that a step takes alone.
    pub fn usual(&self) -> f64 {
        match self {
            Self::Periodic(period) => period.seconds,
            Self::Weighted(weights) => weights.step,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Back to back, each as long as its signature says, a little apart.
    fn sequence(signatures: impl IntoIterator<Item = u64>) -> Vec<Event> {
        let mut clock = 1_000_000;
        signatures
            .into_iter()
            .map(|signature| {
                let start = clock;
                clock += 10_000 + 1_000 * (signature % 50);
                Event { start, end: clock, signature }
            })
            .collect()
    }

    fn repeated(body: &[u64], times: usize) -> Vec<u64> {
        body.iter().copied().cycle().take(body.len() * times).collect()
    }

    #[test]
    fn a_plain_loop_is_found_with_its_length() {
        let period = find(&sequence(repeated(&[1, 2, 3, 2, 4, 2, 2, 5], 20))).unwrap();
        assert_eq!((period.records, period.per_period), (8, 1));
        assert!([1, 3, 4, 5].contains(&period.anchor), "{period:?}");
        assert!(period.regular_ratio > 0.99 && period.periods >= 18, "{period:?}");
        let expected = 8.0 * 10e-6 + f64::from(1 + 2 + 3 + 2 + 4 + 2 + 2 + 5) * 1e-6;
        assert!((period.seconds / expected - 1.0).abs() < 1e-6, "{period:?} {expected}");
    }

    #[test]
    fn one_kernel_again_and_again_is_a_step_each() {
        let period = find(&sequence(repeated(&[9], 30))).unwrap();
        assert_eq!((period.anchor, period.records, period.per_period), (9, 1, 1));
    }

    #[test]
    fn a_period_without_a_kernel_of_its_own_counts_pairs() {
        let period = find(&sequence(repeated(&[1, 1, 2, 2], 20))).unwrap();
        assert_eq!((period.records, period.per_period), (4, 2));
        assert_eq!(Progress::Periodic(period).steps(&sequence(repeated(&[1, 1, 2, 2], 10)), 0).len(), 9);
    }

    /// Logging every tenth iteration, an evaluation in the midst, and a start-up of other kernels.
    #[test]
    fn noise_warm_up_and_evaluation_do_no_harm() {
        let body: Vec<u64> = (100..140).chain([104, 104, 107]).collect();
        let mut signatures: Vec<u64> = (0..200).map(|at| 1_000 + at * 7 % 83).collect();
        for iteration in 0..60 {
            signatures.extend(&body);
            if iteration % 10 == 9 {
                signatures.extend([7, 8]);
            }
            if iteration == 30 {
                // Forward kernels only, as an evaluation runs them.
                signatures.extend(repeated(&body[..15], 5));
            }
        }
        let period = find(&sequence(signatures.iter().copied())).unwrap();
        assert_eq!((period.records, period.per_period), (43, 1), "{period:?}");
        let steps = Progress::Periodic(period).steps(&sequence(signatures), 0);
        assert!((59..=64).contains(&steps.len()), "{}", steps.len());
    }

    /// Layers are a period of their own, but the kernels around them belong to the step.
    #[test]
    fn a_step_of_equal_layers_is_the_step_not_the_layer() {
        let mut body = vec![1, 2];
        body.extend(repeated(&[10, 11, 12, 13, 14, 15], 24));
        body.extend([30, 31, 49, 49, 49, 49]);
        let period = find(&sequence(repeated(&body, 12))).unwrap();
        assert_eq!(period.records as usize, body.len(), "{period:?}");
    }

    #[test]
    fn what_does_not_repeat_has_no_period() {
        assert_eq!(find(&[]), None);
        assert_eq!(find(&sequence([1, 2, 3])), None);
        // Too few periods.
        assert_eq!(find(&sequence(repeated(&[1, 2, 3], 4))), None);
        let mut state = 12_345_u64;
        let chaos = (0..3_000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % 9
        });
        assert_eq!(find(&sequence(chaos)), None);
        // A loop that has ended.
        let over = repeated(&[1, 2, 3], 30).into_iter().chain((0..60).map(|at| 100 + at));
        assert_eq!(find(&sequence(over)), None);
    }

    #[test]
    fn a_pause_counts_as_idle() {
        let mut events = sequence(repeated(&[1, 2], 20));
        for event in &mut events[21..] {
            event.start += 50_000_000;
            event.end += 50_000_000;
        }
        let progress = Progress::Periodic(find(&events[..20]).unwrap());
        let steps = progress.steps(&events, 0);
        assert!(steps.iter().all(|step| step.end - step.start < 1e-4), "{steps:?}");
        assert_eq!(steps.len(), 19);
    }

    #[test]
    fn without_a_period_steps_are_equal_work() {
        let events = sequence((0..500).map(|at| at * at % 37));
        let weights = Weights::new(&events, 1e-3).unwrap();
        let progress = Progress::Weighted(weights);
        let steps = progress.steps(&events, 0);
        let total: f64 = events.iter().map(|event| (event.end - event.start) as f64 * 1e-9).sum();
        assert!((steps.len() as f64 - total / 1e-3).abs() <= 2.0, "{} {total}", steps.len());
        // The same work at half the speed takes twice as long a step.
        let slow: Vec<Event> = events
            .iter()
            .map(|event| Event { start: event.start * 2, end: event.end * 2, ..*event })
            .collect();
        let slowed = progress.steps(&slow, 0);
        assert_eq!(slowed.len(), steps.len());
        let mean =
            |steps: &[StepRecord]| (steps[steps.len() - 1].end - steps[0].end) / (steps.len() - 1) as f64;
        assert!((mean(&slowed) / mean(&steps) - 2.0).abs() < 1e-6);
        assert_eq!(Weights::new(&[], 1.0), None);
    }

    /// Shuffles neighbours, as two streams do.
    fn interleave(mut signatures: Vec<u64>, swaps: &[usize]) -> Vec<u64> {
        for swap in swaps {
            let at = swap % (signatures.len() - 1);
            signatures.swap(at, at + 1);
        }
        signatures
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever the body, the found period is a whole number of bodies, or of an inner loop of it.
        #[test]
        fn any_loop_is_found(body in prop::collection::vec(0_u64..40, 1..60), times in 12_usize..40) {
            let period = find(&sequence(repeated(&body, times)));
            let period = period.expect("a loop repeats");
            // Counting the anchor makes equal steps: the same number in each half.
            let steps = Progress::Periodic(period.clone()).steps(&sequence(repeated(&body, 2 * times)), 0);
            let length = |steps: &[StepRecord]| steps[steps.len() - 1].end - steps[0].start;
            let (early, late) = steps.split_at(steps.len() / 2);
            prop_assert!((length(early) / early.len() as f64 / (length(late) / late.len() as f64) - 1.0).abs() < 0.25,
                "{period:?}");
        }

        /// A start-up, swapped neighbours and rare strangers leave the period as it is.
        #[test]
        fn noise_does_not_change_the_period(
            body in prop::collection::btree_set(0_u64..1_000, 30..60),
            startup in prop::collection::vec(2_000_u64..3_000, 0..200),
            swaps in prop::collection::vec(0_usize..100_000, 0..20),
            strangers in prop::collection::vec((0_usize..1_000, 5_000_u64..5_005), 0..6),
        ) {
            let body: Vec<u64> = body.into_iter().collect();
            let mut looped = interleave(repeated(&body, 30), &swaps);
            for (at, stranger) in strangers {
                looped.insert(at % looped.len(), stranger);
            }
            let events = sequence(startup.into_iter().chain(looped));
            let period = find(&events).expect("the loop is still there");
            prop_assert_eq!(period.records as usize, body.len());
            prop_assert_eq!(period.per_period, 1);
        }

        /// Steps never overlap, and lie within the records.
        #[test]
        fn steps_are_in_order(signatures in prop::collection::vec(0_u64..5, 1..400)) {
            let events = sequence(signatures);
            let weighted = Weights::new(&events, 3e-5).map(Progress::Weighted);
            let periodic = find(&events).map(Progress::Periodic);
            for progress in weighted.into_iter().chain(periodic) {
                let steps = progress.steps(&events, 0);
                prop_assert!(steps.windows(2).all(|pair| pair[0].end <= pair[1].start + 1e-12));
                prop_assert!(steps.iter().all(|step| step.start < step.end));
                let whole = progress.worth(&events[0]).1;
                let most = events.iter().map(|event| progress.worth(event).0).sum::<f64>() / whole;
                prop_assert!(steps.len() as f64 <= most, "{} {most}", steps.len());
            }
        }
    }
}
