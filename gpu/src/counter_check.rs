//! Do the counters count? A load of known size is run, and what the counters saw is compared with it.
//!
//! Counters that read half of the truth, or 0 while the device works, have been seen in the field; a campaign that
//! uses counters checks them once. The load has to run steadily from before the window until after it, so that rates
//! can be compared and the ends of the window do not matter.
//!
//! | counter | is compared with |
//! |---|---|
//! | `dram__bytes_read.sum` ÷ seconds | bytes that the load reads per second; its footprint has to exceed the L2 four times |
//! | `dram__bytes_write.sum` ÷ seconds | bytes that it writes per second |
//! | `fp32_active_ratio` | flop per second ÷ (SMs × flop per clock and SM × clock); an FMA is two flop |
//! | `fp64_active_ratio` | the same with the FP64 pipe |
//! | `tensor_active_ratio` | the same with the dense 16-bit rate; the load has to be a product of matrices from cuBLASLt, for on Hopper `mma.sync` keeps the pipe busy at a part of its rate |
//! | `launch_rate_hertz` | launches per second |
//! | host link bytes, both directions, ÷ seconds | bytes copied per second in both directions |
//! | `sm_active_ratio` | 1, where the load fills every SM |
//!
//! The clock is the counters' own (`sm__cycles_elapsed.avg` ÷ seconds), and NVML's where that is missing.

use crate::cupti::{SamplerReport, Series};
use serde::{Deserialize, Serialize};

/// Two numbers agree that differ by at most so much: a tenth, as DCGM's own tester asks.
pub const TOLERANCE: f64 = 0.1;

/// A load in steady state, per second of the window. 0 for what it does not do.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KnownLoad {
    /// FP32 operations; an FMA is two.
    pub fp32_flop_per_second: f64,
    /// FP64 operations outside of tensor instructions.
    pub fp64_flop_per_second: f64,
    /// Dense FP16 or BF16 tensor operations; a multiplication with addition is two.
    pub tensor_flop_per_second: f64,
    /// Bytes read from device memory.
    pub dram_read_bytes_per_second: f64,
    /// Bytes written to device memory.
    pub dram_write_bytes_per_second: f64,
    /// Bytes copied over the host link, both directions together.
    pub link_bytes_per_second: f64,
    /// Kernel launches.
    pub launches_per_second: f64,
    /// Whether every SM has a warp at all times.
    pub fills_all_sms: bool,
}

/// What one SM can do per clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipeRates {
    /// FP32 flop: two per lane.
    pub fp32: u32,
    /// FP64 flop outside of tensor instructions.
    pub fp64: u32,
    /// Dense FP16 and BF16 tensor flop with FP32 sums.
    pub tensor: u32,
}

/// The rates of a chip as CUPTI names it, from NVIDIA's architecture papers.
///
/// FP32: 64 lanes per SM on Turing and GA100, 128 from GA102 on. Tensor: TU102 130.5 TFLOP/s at 72 SMs and 1.77 GHz;
/// GA100 312 at 108 and 1.41; GA102 149.7 at 84 and 1.74; AD102 362 at 142 and 2.52; GH100 989 at 132 and 1.83; GB100
/// 2250 at 148 and 1.85.
pub fn pipe_rates(chip: &str) -> Option<PipeRates> {
    let rates = |fp32, fp64, tensor| Some(PipeRates { fp32, fp64, tensor });
    match chip.get(..3)? {
        "TU1" => rates(128, 4, 1024),
        "GA1" if chip == "GA100" => rates(128, 64, 2048),
        "GA1" | "AD1" => rates(256, 4, 1024),
        "GH1" => rates(256, 128, 4096),
        "GB1" => rates(256, 128, 8192),
        _ => None,
    }
}

/// The judgement of one counter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CounterVerdict {
    /// The counter, or CUPTI's metric.
    pub counter: &'static str,
    /// What the load should have shown.
    pub expected: f64,
    /// What was seen.
    pub measured: Option<f64>,
    /// Measured ÷ expected − 1.
    pub error_ratio: Option<f64>,
    /// Whether they agree.
    pub verdict: Verdict,
    /// Why there is no judgement.
    pub reason: Option<String>,
}

/// Whether a counter agrees with the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within [`TOLERANCE`].
    Agrees,
    /// Not within it.
    Differs,
    /// There is no value, or no way to say what it should be.
    Unknown,
}

impl CounterVerdict {
    fn new(counter: &'static str, expected: f64, measured: Option<f64>) -> Self {
        let error_ratio = measured.map(|measured| measured / expected - 1.0);
        let (verdict, reason) = match error_ratio {
            Some(error) if error.abs() <= TOLERANCE => (Verdict::Agrees, None),
            Some(_) => (Verdict::Differs, None),
            None => (Verdict::Unknown, Some("the counter gave no value".to_owned())),
        };
        Self { counter, expected, measured, error_ratio, verdict, reason }
    }

    fn unknown(counter: &'static str, measured: Option<f64>, reason: &str) -> Self {
        Self {
            counter,
            expected: f64::NAN,
            measured,
            error_ratio: None,
            verdict: Verdict::Unknown,
            reason: Some(reason.to_owned()),
        }
    }
}

type PerClock = fn(PipeRates) -> u32;

/// Judges the counters that the load drives. `multiprocessors` is what the load's process sees;
/// `nvml_clock_hertz` serves where the counters have no clock.
pub fn check(
    load: &KnownLoad,
    report: &SamplerReport,
    multiprocessors: u32,
    nvml_clock_hertz: Option<f64>,
) -> Vec<CounterVerdict> {
    let clock = clock_hertz(report).or(nvml_clock_hertz);
    let rates = pipe_rates(&report.chip);
    let mut verdicts = Vec::new();
    let pipes: [(&'static str, f64, PerClock); 3] = [
        ("fp32_active_ratio", load.fp32_flop_per_second, |rates| rates.fp32),
        ("fp64_active_ratio", load.fp64_flop_per_second, |rates| rates.fp64),
        ("tensor_active_ratio", load.tensor_flop_per_second, |rates| rates.tensor),
    ];
    for (counter, flop, per_clock) in pipes {
        if flop <= 0.0 {
            continue;
        }
        let measured = report.counters.get(counter).copied();
        verdicts.push(match (clock, rates) {
            (Some(clock), Some(rates)) => {
                let peak = f64::from(multiprocessors) * f64::from(per_clock(rates)) * clock;
                CounterVerdict::new(counter, flop / peak, measured)
            }
            (None, _) => CounterVerdict::unknown(counter, measured, "the clock is not known"),
            (_, None) => {
                CounterVerdict::unknown(counter, measured, "the chip's rates per clock are not known")
            }
        });
    }
    let totals: [(&'static str, f64, Option<f64>); 3] = [
        ("dram__bytes_read.sum", load.dram_read_bytes_per_second, rate_of(report, &["dram__bytes_read.sum"])),
        (
            "dram__bytes_write.sum",
            load.dram_write_bytes_per_second,
            rate_of(report, &["dram__bytes_write.sum"]),
        ),
        (
            "pcie__bytes.sum",
            load.link_bytes_per_second,
            rate_of(report, &["pcie__read_bytes.sum", "pcie__write_bytes.sum"]),
        ),
    ];
    for (counter, expected, measured) in totals {
        if expected > 0.0 {
            verdicts.push(CounterVerdict::new(counter, expected, measured));
        }
    }
    if load.launches_per_second > 0.0 {
        let counter = "launch_rate_hertz";
        let measured = report.counters.get(counter).copied();
        verdicts.push(CounterVerdict::new(counter, load.launches_per_second, measured));
    }
    if load.fills_all_sms {
        let counter = "sm_active_ratio";
        verdicts.push(CounterVerdict::new(counter, 1.0, report.counters.get(counter).copied()));
    }
    verdicts
}

/// The SM clock as the counters saw it.
pub fn clock_hertz(report: &SamplerReport) -> Option<f64> {
    rate_of(report, &["sm__cycles_elapsed.avg"]).filter(|clock| *clock > 0.0)
}

/// Sum per second of the metrics with these names, with or without a unit in front (`PCI.TriageCompute.`). All of them
/// have to be there.
fn rate_of(report: &SamplerReport, names: &[&str]) -> Option<f64> {
    let find = |name: &str| -> Option<&Series> {
        let suffix = format!(".{name}");
        report
            .values
            .iter()
            .find(|(metric, _)| **metric == name || metric.ends_with(&suffix))
            .map(|(_, series)| series)
    };
    let total: f64 = names.iter().map(|name| find(name).map(|series| series.sum)).sum::<Option<f64>>()?;
    (report.seconds > 0.0).then(|| total / report.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn series(sum: f64) -> Series {
        Series { sum, samples: 10, ..Series::default() }
    }

    /// Two seconds of a GH100 with 132 SMs at 1.5 GHz.
    fn report() -> SamplerReport {
        SamplerReport {
            chip: "GH100".to_owned(),
            samples: 10,
            seconds: 2.0,
            values: BTreeMap::from([
                ("sm__cycles_elapsed.avg", series(3e9)),
                ("dram__bytes_read.sum", series(6e12)),
                ("dram__bytes_write.sum", series(1e9)),
                ("PCI.TriageCompute.pcie__read_bytes.sum", series(60e9)),
                ("PCI.TriageCompute.pcie__write_bytes.sum", series(40e9)),
            ]),
            counters: BTreeMap::from([
                ("fp32_active_ratio", 0.9),
                ("tensor_active_ratio", 0.6),
                ("launch_rate_hertz", 1050.0),
                ("sm_active_ratio", 0.97),
            ]),
            ..SamplerReport::default()
        }
    }

    fn verdict(verdicts: &[CounterVerdict], counter: &str) -> CounterVerdict {
        verdicts.iter().find(|verdict| verdict.counter == counter).expect(counter).clone()
    }

    #[test]
    fn known_work_is_found_again() {
        let fp32_peak = 132.0 * 256.0 * 1.5e9;
        let tensor_peak = 132.0 * 4096.0 * 1.5e9;
        let load = KnownLoad {
            fp32_flop_per_second: 0.88 * fp32_peak,
            tensor_flop_per_second: 0.3 * tensor_peak,
            dram_read_bytes_per_second: 3.1e12,
            link_bytes_per_second: 50e9,
            launches_per_second: 1000.0,
            fills_all_sms: true,
            ..KnownLoad::default()
        };
        let verdicts = check(&load, &report(), 132, None);
        assert_eq!(verdicts.len(), 6, "only what the load drives is judged");
        let fp32 = verdict(&verdicts, "fp32_active_ratio");
        assert_eq!(fp32.verdict, Verdict::Agrees);
        assert!((fp32.expected - 0.88).abs() < 1e-9);
        // Twice the truth, as when only one of two pipes is counted.
        let tensor = verdict(&verdicts, "tensor_active_ratio");
        assert_eq!(tensor.verdict, Verdict::Differs);
        assert!((tensor.error_ratio.unwrap() - 1.0).abs() < 1e-9);
        for counter in ["dram__bytes_read.sum", "pcie__bytes.sum", "launch_rate_hertz", "sm_active_ratio"] {
            assert_eq!(verdict(&verdicts, counter).verdict, Verdict::Agrees, "{counter}");
        }
    }

    #[test]
    fn what_cannot_be_judged_says_why() {
        let mut report = report();
        report.values.remove("sm__cycles_elapsed.avg");
        report.values.remove("dram__bytes_read.sum");
        let load = KnownLoad {
            fp32_flop_per_second: 1e12,
            fp64_flop_per_second: 1e12,
            dram_read_bytes_per_second: 1e12,
            ..KnownLoad::default()
        };
        let verdicts = check(&load, &report, 132, None);
        assert!(verdict(&verdicts, "fp32_active_ratio").reason.unwrap().contains("clock"));
        assert!(verdict(&verdicts, "dram__bytes_read.sum").reason.unwrap().contains("no value"));
        // NVML's clock serves; FP64 was not read.
        let verdicts = check(&load, &report, 132, Some(1.5e9));
        assert_eq!(verdict(&verdicts, "fp32_active_ratio").verdict, Verdict::Differs);
        assert_eq!(verdict(&verdicts, "fp64_active_ratio").verdict, Verdict::Unknown);
        report.chip = "GB202".to_owned();
        let verdicts = check(&load, &report, 132, Some(1.5e9));
        assert!(verdict(&verdicts, "fp32_active_ratio").reason.unwrap().contains("rates"));
    }

    #[test]
    fn every_chip_with_a_set_has_rates() {
        for set in crate::cupti::METRIC_SETS {
            assert!(pipe_rates(set.chip).is_some(), "{}", set.chip);
        }
        // The published peaks.
        let peak = |chip, sms: f64, clock: f64| f64::from(pipe_rates(chip).unwrap().tensor) * sms * clock;
        assert!((peak("GH100", 132.0, 1.83e9) / 989e12 - 1.0).abs() < 0.01);
        assert!((peak("GA100", 108.0, 1.41e9) / 312e12 - 1.0).abs() < 0.01);
        assert!((peak("AD102", 142.0, 2.52e9) / 362e12 - 1.0).abs() < 0.02);
        assert!((peak("TU102", 72.0, 1.77e9) / 130.5e12 - 1.0).abs() < 0.01);
    }
}
