//! What is sampled on each chip, and how samples become the counters of the dataset.
//!
//! PM sampling has one pass, and a free choice of names needs up to sixteen. The sets here are chosen so that CUPTI's
//! host API schedules each of them in one; the tests ask it, chip by chip. On Turing, Ampere, Ada, Hopper and
//! Blackwell data-centre chips that takes the names with a unit in front (`TPC.TriageCompute.…`), which were built to
//! be sampled together.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One metric of a set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// CUPTI's name.
    pub name: &'static str,
    /// The column of [`elastico_core::COUNTERS`] that it feeds, if any.
    pub counter: Option<&'static str>,
    /// How its samples become one number.
    pub reduce: Reduce,
    /// Factor from CUPTI's unit to the counter's: 0.01 for percent.
    pub scale: f64,
}

/// How the samples of a window become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// The mean, weighted by the length of the samples.
    Mean,
    /// The mean, weighted by another metric of the set as well: a hit rate of an idle sample says nothing.
    WeightedBy(&'static str),
    /// The sum over the window, per second.
    Rate,
}

/// The metrics that fit one pass of a chip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricSet {
    /// CUPTI's name of the chip.
    pub chip: &'static str,
    /// In order of importance.
    pub metrics: &'static [Metric],
    /// Counters that this chip cannot give in one pass, each with its reason.
    pub absent: &'static [(&'static str, &'static str)],
}

impl MetricSet {
    /// The names, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.metrics.iter().map(|metric| metric.name).collect()
    }
}

/// The set of exactly this chip, as CUPTI names it: `GH100` for H100 and H200.
///
/// ```
/// let set = elastico_gpu::cupti::metric_set("GH100").expect("H200 is a GH100");
/// assert!(set.metrics.iter().any(|metric| metric.counter == Some("tensor_active_ratio")));
/// ```
pub fn metric_set(chip: &str) -> Option<&'static MetricSet> {
    super::METRIC_SETS.iter().find(|set| set.chip == chip)
}

/// Sets whose names a chip without its own may share, nearest first.
pub(super) fn relatives(chip: &str) -> Vec<&'static MetricSet> {
    let order: &[&str] = match chip.get(..3) {
        Some("TU1") => &["TU102"],
        // GA100 is alone in its kind; the others of Ampere are graphics chips.
        Some("GA1") => &["GA102", "AD102"],
        Some("AD1") => &["AD102", "GA102"],
        Some("GH1") => &["GH100"],
        Some("GB1") => &["GB100", "GH100"],
        // Graphics Blackwell has no combined names in CUPTI 13.0; the plain ones are nearest to Ada's.
        Some("GB2") => &["AD102", "GB100"],
        _ => &[],
    };
    order.iter().filter_map(|name| metric_set(name)).collect()
}

/// Statistics of one metric over a window.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Series {
    /// Mean in CUPTI's unit, weighted by the length of the samples.
    pub mean: f64,
    /// Standard deviation over samples, weighted so too.
    pub std: f64,
    /// Plain sum over samples: the total of a `.sum` metric.
    pub sum: f64,
    /// Samples that had a number.
    pub samples: u64,
}

/// Weighted running mean and variance (West 1979).
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    weight: f64,
    mean: f64,
    square: f64,
    sum: f64,
    count: u64,
}

impl Moments {
    fn add(&mut self, value: f64, weight: f64) {
        self.sum += value;
        self.count += 1;
        if weight <= 0.0 {
            return;
        }
        self.weight += weight;
        let delta = value - self.mean;
        self.mean += delta * weight / self.weight;
        self.square += weight * delta * (value - self.mean);
    }

    fn series(&self) -> Option<Series> {
        let variance = if self.weight > 0.0 { (self.square / self.weight).max(0.0) } else { 0.0 };
        (self.count > 0).then_some(Series {
            mean: self.mean,
            std: variance.sqrt(),
            sum: self.sum,
            samples: self.count,
        })
    }
}

/// How many intervals the first sample may last: it begins where the monitor was switched on.
const FIRST_AT_MOST: f64 = 4.0;

/// Collects decoded samples of one window.
#[derive(Debug, Clone)]
pub struct Collector {
    metrics: Vec<&'static Metric>,
    /// For each metric the index of the one that weighs it.
    weights: Vec<Option<usize>>,
    moments: Vec<Moments>,
    weighted: Vec<Moments>,
    expected_nanoseconds: f64,
    last_end: Option<u64>,
    samples: u64,
    discarded: u64,
    nanoseconds: u64,
    gaps: u64,
}

impl Collector {
    /// Collects samples of these metrics. A hole between samples longer than half of `expected_nanoseconds` is a gap;
    /// 0 takes the length of the sample itself, for triggers that follow a clock.
    pub fn new(metrics: &[&'static Metric], expected_nanoseconds: u64) -> Self {
        let weights = metrics
            .iter()
            .map(|metric| match metric.reduce {
                Reduce::WeightedBy(name) => metrics.iter().position(|other| other.name == name),
                Reduce::Mean | Reduce::Rate => None,
            })
            .collect();
        Self {
            metrics: metrics.to_vec(),
            weights,
            moments: vec![Moments::default(); metrics.len()],
            weighted: vec![Moments::default(); metrics.len()],
            expected_nanoseconds: expected_nanoseconds as f64,
            last_end: None,
            samples: 0,
            discarded: 0,
            nanoseconds: 0,
            gaps: 0,
        }
    }

    /// Adds the sample between two timestamps in nanoseconds, its values in the order of the metrics.
    ///
    /// Discarded and counted are samples without length, samples that end before the last one did, and a first one
    /// that reaches back to before the start. A value that is no number is left out.
    pub fn add(&mut self, start: u64, end: u64, values: &[f64]) {
        let length = end.saturating_sub(start) as f64;
        let reaches_back = self.last_end.is_none()
            && (start == 0
                || (self.expected_nanoseconds > 0.0 && length > FIRST_AT_MOST * self.expected_nanoseconds));
        if end <= start || reaches_back || self.last_end.is_some_and(|last| end <= last) {
            self.discarded += 1;
            return;
        }
        if let Some(last) = self.last_end {
            let expected = if self.expected_nanoseconds > 0.0 { self.expected_nanoseconds } else { length };
            // Neighbours may overlap by some nanoseconds of their clocks.
            if start.saturating_sub(last) as f64 > expected / 2.0 {
                self.gaps += 1;
            }
        }
        self.last_end = Some(end);
        self.samples += 1;
        self.nanoseconds += end - start;
        for (index, value) in values.iter().enumerate().take(self.metrics.len()) {
            if !value.is_finite() {
                continue;
            }
            self.moments[index].add(*value, length);
            let weight = self.weights[index].and_then(|other| values.get(other)).copied().unwrap_or(0.0);
            if weight.is_finite() {
                self.weighted[index].add(*value, length * weight);
            }
        }
    }

    /// Time covered by samples, in seconds.
    pub fn seconds(&self) -> f64 {
        self.nanoseconds as f64 * 1e-9
    }

    /// Samples kept, samples discarded and gaps seen.
    pub const fn counts(&self) -> (u64, u64, u64) {
        (self.samples, self.discarded, self.gaps)
    }

    /// Each metric's statistics, in CUPTI's units.
    pub fn values(&self) -> BTreeMap<&'static str, Series> {
        let pairs = self.metrics.iter().zip(&self.moments);
        pairs.filter_map(|(metric, moments)| Some((metric.name, moments.series()?))).collect()
    }

    /// The counters of the dataset, ratios 0..1 and rates in hertz. A counter without a valid value is left out.
    pub fn counters(&self) -> BTreeMap<&'static str, f64> {
        let mut parts: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for (index, metric) in self.metrics.iter().enumerate() {
            if let (Some(counter), Some(value)) = (metric.counter, self.reduced(index)) {
                parts.entry(counter).or_default().push(value * metric.scale);
            }
        }
        parts
            .into_iter()
            .filter_map(|(counter, values)| Some((counter, combine(counter, &values)?)))
            .filter_map(|(counter, value)| Some((counter, in_range(counter, value)?)))
            .collect()
    }

    fn reduced(&self, index: usize) -> Option<f64> {
        let plain = &self.moments[index];
        if plain.count == 0 {
            return None;
        }
        match self.metrics[index].reduce {
            Reduce::Mean => Some(plain.mean),
            // Without traffic there is no hit rate.
            Reduce::WeightedBy(_) => (self.weighted[index].weight > 0.0).then_some(self.weighted[index].mean),
            Reduce::Rate => (self.nanoseconds > 0).then(|| plain.sum / self.seconds()),
        }
    }
}

/// One number from the metrics that feed one counter: the busier direction of the host link, else their mean (the two
/// FMA pipes of Ampere and Ada are equally wide).
fn combine(counter: &str, values: &[f64]) -> Option<f64> {
    match counter {
        "copy_active_ratio" => values.iter().copied().reduce(f64::max),
        _ => (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64),
    }
}

/// Refuses what cannot be: no number, a negative one, or a ratio far above 1. Ratios up to 5 % above are cut to 1, for
/// counters and clock are not read in the same cycle.
pub(crate) fn in_range(counter: &str, value: f64) -> Option<f64> {
    if !value.is_finite() || value < 0.0 {
        return None;
    }
    if !counter.ends_with("_ratio") {
        return Some(value);
    }
    (value <= 1.05).then(|| value.min(1.0))
}

/// Whether counters contradict a device that is known to work, and how.
///
/// After some Xid errors the counters read 0 while kernels run; `busy_ratio` is the share of the window in which the
/// workers had work in flight.
pub fn suspicion(counters: &BTreeMap<&'static str, f64>, busy_ratio: f64) -> Option<String> {
    if busy_ratio < 0.05 {
        return None;
    }
    let read = |name| counters.get(name).copied();
    for name in ["sm_active_ratio", "kernel_active_ratio"] {
        if read(name).is_some_and(|value| value < 1e-4) {
            return Some(format!(
                "{name} is 0 although work was in flight {:.0} % of the time",
                busy_ratio * 100.0
            ));
        }
    }
    match (read("sm_active_ratio"), read("sm_occupancy_ratio")) {
        // A resident warp makes its SM active, so occupancy cannot exceed it.
        (Some(active), Some(occupancy)) if occupancy > active + 0.05 => {
            Some(format!("sm_occupancy_ratio {occupancy:.3} exceeds sm_active_ratio {active:.3}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Metric =
        Metric { name: "busy", counter: Some("sm_active_ratio"), reduce: Reduce::Mean, scale: 0.01 };
    const TRAFFIC: Metric =
        Metric { name: "traffic", counter: Some("l2_throughput_ratio"), reduce: Reduce::Mean, scale: 0.01 };
    const HITS: Metric = Metric {
        name: "hits",
        counter: Some("l2_hit_ratio"),
        reduce: Reduce::WeightedBy("traffic"),
        scale: 0.01,
    };
    const LAUNCHES: Metric =
        Metric { name: "launches", counter: Some("launch_rate_hertz"), reduce: Reduce::Rate, scale: 1.0 };
    const READ: Metric =
        Metric { name: "read", counter: Some("copy_active_ratio"), reduce: Reduce::Mean, scale: 0.01 };
    const WRITE: Metric =
        Metric { name: "write", counter: Some("copy_active_ratio"), reduce: Reduce::Mean, scale: 0.01 };
    const HEAVY: Metric =
        Metric { name: "heavy", counter: Some("fp32_active_ratio"), reduce: Reduce::Mean, scale: 0.01 };
    const LITE: Metric =
        Metric { name: "lite", counter: Some("fp32_active_ratio"), reduce: Reduce::Mean, scale: 0.01 };

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-12, "{value} is not {expected}");
    }

    #[test]
    fn means_are_weighted_by_time_and_hit_rates_by_traffic() {
        let mut collector = Collector::new(&[&BUSY, &TRAFFIC, &HITS, &LAUNCHES], 1_000_000);
        // 1 ms full with a hit rate of 80 % at half the traffic, then 3 ms idle with no hit rate at all.
        collector.add(1_000_000, 2_000_000, &[100.0, 50.0, 80.0, 6.0]);
        collector.add(2_000_000, 5_000_000, &[0.0, 0.0, 0.0, 2.0]);
        let counters = collector.counters();
        near(counters["sm_active_ratio"], 0.25);
        near(counters["l2_throughput_ratio"], 0.125);
        near(counters["l2_hit_ratio"], 0.8);
        near(counters["launch_rate_hertz"], 8.0 / 0.004);
        let busy = collector.values()["busy"];
        near(busy.mean, 25.0);
        // Weights 1 and 3: variance = (1 * 75^2 + 3 * 25^2) / 4.
        near(busy.std, 1875.0_f64.sqrt());
        near(busy.sum, 100.0);
        near(collector.seconds(), 0.004);
        assert_eq!(collector.counts(), (2, 0, 0));
    }

    #[test]
    fn the_busier_direction_and_the_mean_of_two_pipes() {
        let mut collector = Collector::new(&[&READ, &WRITE, &HEAVY, &LITE], 0);
        collector.add(10, 20, &[40.0, 10.0, 60.0, 20.0]);
        let counters = collector.counters();
        near(counters["copy_active_ratio"], 0.4);
        near(counters["fp32_active_ratio"], 0.4);
    }

    #[test]
    fn holes_and_bad_samples_are_counted_and_bad_numbers_left_out() {
        let mut collector = Collector::new(&[&BUSY], 100);
        // From before the start, twice; one that counts; one without a number; a hole; an overlap of two clocks; one
        // from the past; one without length.
        collector.add(0, 100, &[50.0]);
        collector.add(100, 600, &[50.0]);
        collector.add(600, 700, &[50.0]);
        collector.add(740, 840, &[f64::NAN]);
        collector.add(1140, 1240, &[50.0]);
        collector.add(1235, 1340, &[50.0]);
        collector.add(1140, 1240, &[50.0]);
        collector.add(1400, 1400, &[50.0]);
        assert_eq!(collector.counts(), (4, 4, 1));
        assert_eq!(collector.values()["busy"].samples, 3);
        // A clock's trigger has no expected length: the sample's own is taken.
        let mut collector = Collector::new(&[&BUSY], 0);
        collector.add(100, 200, &[50.0]);
        collector.add(260, 360, &[50.0]);
        assert_eq!(collector.counts(), (2, 0, 1));
    }

    #[test]
    fn nothing_sampled_gives_nothing() {
        let collector = Collector::new(&[&BUSY, &HITS, &LAUNCHES], 0);
        assert!(collector.counters().is_empty() && collector.values().is_empty());
        let mut idle = Collector::new(&[&TRAFFIC, &HITS], 0);
        idle.add(1, 2, &[0.0, 0.0]);
        assert!(!idle.counters().contains_key("l2_hit_ratio"), "no traffic has no hit rate");
    }

    #[test]
    fn impossible_values_are_missing_and_not_zero() {
        assert_eq!(in_range("sm_active_ratio", 1.02), Some(1.0));
        assert_eq!(in_range("sm_active_ratio", 1.2), None);
        assert_eq!(in_range("sm_active_ratio", -0.1), None);
        assert_eq!(in_range("sm_active_ratio", f64::NAN), None);
        assert_eq!(in_range("launch_rate_hertz", 1e6), Some(1e6));
    }

    #[test]
    fn silent_counters_beside_working_workers_are_suspect() {
        let counters = |active, occupancy| {
            BTreeMap::from([("sm_active_ratio", active), ("sm_occupancy_ratio", occupancy)])
        };
        assert!(suspicion(&counters(0.0, 0.0), 0.9).unwrap().contains("90 %"));
        assert_eq!(suspicion(&counters(0.0, 0.0), 0.0), None);
        assert_eq!(suspicion(&counters(0.7, 0.3), 0.9), None);
        assert!(suspicion(&counters(0.2, 0.6), 0.9).unwrap().contains("exceeds"));
        assert_eq!(suspicion(&BTreeMap::new(), 0.9), None);
    }
}
