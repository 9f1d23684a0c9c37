//! The columns: one list per table defines the row struct, the schema and the conversions between them.

use crate::table::Values;
use crate::text::TextColumn;
use elastico_core::SharingMode;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// 64-bit floats; null is NaN in memory.
    Number,
    /// Text.
    Text,
}

impl ColumnKind {
    /// The Parquet type, for messages and the reference.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Number => "f64",
            Self::Text => "text",
        }
    }
}

/// What values a column may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Any text.
    Any,
    /// A text without control characters, at most 200 bytes.
    Name,
    /// `a` or `b`.
    Side,
    /// A name of [`elastico_core::WorkloadKind`].
    WorkloadKind,
    /// A name of [`elastico_core::DeviceKind`].
    DeviceKind,
    /// A text form of [`SharingMode`].
    Sharing,
    /// A name of [`elastico_core::Outcome`].
    Outcome,
    /// 0..=1.
    Ratio,
    /// Finite and above 0.
    Positive,
    /// Finite and at least 0.
    NotNegative,
    /// A whole number, at least 0.
    Count,
    /// Any finite number.
    Finite,
}

impl Check {
    /// The rule in words, as findings and the reference state it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any text",
            Self::Name => "at most 200 bytes without control characters",
            Self::Side => "`a` or `b`",
            Self::WorkloadKind => "a workload kind",
            Self::DeviceKind => "a device kind",
            Self::Sharing => "a sharing mode",
            Self::Outcome => "an outcome",
            Self::Ratio => "in 0..1",
            Self::Positive => "finite and above 0",
            Self::NotNegative => "finite and at least 0",
            Self::Count => "a whole number, at least 0",
            Self::Finite => "finite",
        }
    }
}

/// One column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name, `subsystem_property_unit`.
    pub name: &'static str,
    /// What it holds.
    pub kind: ColumnKind,
    /// Unit; empty for text.
    pub unit: &'static str,
    /// Whether a row may lack it.
    pub nullable: bool,
    /// What values it may hold.
    pub check: Check,
    /// What it tells.
    pub meaning: &'static str,
    /// Where its values come from.
    pub source: &'static str,
    /// The version of the schema that brought it. Files of an older one lack it, which reads as null.
    pub since: u32,
}

/// Which of the two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableKind {
    /// One row per workload x device x share x repeat.
    Isolated,
    /// One row per subject per trial.
    Pairs,
}

impl TableKind {
    /// Both, in the order of the manifest.
    pub const ALL: [Self; 2] = [Self::Isolated, Self::Pairs];

    /// The name of the table and of its folder.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Isolated => "isolated",
            Self::Pairs => "pairs",
        }
    }

    /// Its columns, in the order of the files.
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Self::Isolated => ISOLATED,
            Self::Pairs => PAIRS,
        }
    }

    /// The columns that identify a row.
    pub(crate) const fn key(self) -> &'static [&'static str] {
        match self {
            Self::Isolated => &["trial_id", "workload", "share_ratio", "repeat_total"],
            Self::Pairs => &["trial_id", "side"],
        }
    }
}

/// A field of a row struct.
trait Cell: Sized {
    const KIND: ColumnKind;
    fn column<'a>(cells: impl Iterator<Item = &'a Self>) -> Values
    where
        Self: 'a;
    fn read(values: &Values, row: usize) -> Self;
    /// The number in the field; `None` for text.
    fn number_mut(&mut self) -> Option<&mut f64> {
        None
    }
}

impl Cell for f64 {
    const KIND: ColumnKind = ColumnKind::Number;

    fn column<'a>(cells: impl Iterator<Item = &'a Self>) -> Values {
        Values::Number(cells.copied().collect())
    }

    fn read(values: &Values, row: usize) -> Self {
        match values {
            Values::Number(numbers) => numbers[row],
            Values::Text(_) => Self::NAN,
        }
    }

    fn number_mut(&mut self) -> Option<&mut f64> {
        Some(self)
    }
}

impl Cell for Option<String> {
    const KIND: ColumnKind = ColumnKind::Text;

    fn column<'a>(cells: impl Iterator<Item = &'a Self>) -> Values {
        Values::Text(TextColumn::collect(cells.map(Self::as_deref)))
    }

    fn read(values: &Values, row: usize) -> Self {
        match values {
            Values::Text(texts) => texts.get(row).map(str::to_owned),
            Values::Number(_) => None,
        }
    }
}

impl Cell for String {
    const KIND: ColumnKind = ColumnKind::Text;

    fn column<'a>(cells: impl Iterator<Item = &'a Self>) -> Values {
        Values::Text(TextColumn::collect(cells.map(|cell| Some(cell.as_str()))))
    }

    fn read(values: &Values, row: usize) -> Self {
        Option::read(values, row).unwrap_or_default()
    }
}

macro_rules! cell {
    (type Text) => { String };
    (type OptionalText) => { Option<String> };
    (type Number) => { f64 };
    (type OptionalNumber) => { f64 };
    (nullable Text) => { false };
    (nullable OptionalText) => { true };
    (nullable Number) => { false };
    (nullable OptionalNumber) => { true };
    (default Text) => { String::new() };
    (default OptionalText) => { None };
    (default Number) => { 0.0 };
    (default OptionalNumber) => { f64::NAN };
    (since) => { 1 };
    (since $version:literal) => { $version };
}

macro_rules! table {
    ($(#[$meta:meta])* $row:ident, $list:ident {
        $($kind:ident $field:ident: $unit:literal, $check:ident, $meaning:literal, $source:literal $(, since $since:literal)?;)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $row {
            $(#[doc = $meaning] pub $field: cell!(type $kind),)*
        }

        /// Nullable columns are null, the other numbers 0, the other texts empty (which counts as null).
        impl Default for $row {
            fn default() -> Self {
                Self { $($field: cell!(default $kind),)* }
            }
        }

        impl $row {
            /// One vector per column, in the order of the schema.
            pub(crate) fn columns(rows: &[Self]) -> Vec<Values> {
                vec![$(Cell::column(rows.iter().map(|row| &row.$field)),)*]
            }

            /// The field of a column of numbers.
            #[allow(dead_code, reason = "imports set isolated fields by name; pairs share the macro")]
            pub(crate) fn number_mut(&mut self, name: &str) -> Option<&mut f64> {
                $(if stringify!($field) == name {
                    return Cell::number_mut(&mut self.$field);
                })*
                None
            }

            /// The row of a table of this kind.
            pub(crate) fn read(columns: &[Values], row: usize) -> Self {
                let mut columns = columns.iter();
                let mut next = || columns.next().expect("a table has the columns of its schema");
                Self { $($field: Cell::read(next(), row),)* }
            }
        }

        const $list: &[Column] = &[$(Column {
            name: stringify!($field),
            kind: <cell!(type $kind) as Cell>::KIND,
            unit: $unit,
            nullable: cell!(nullable $kind),
            check: Check::$check,
            meaning: $meaning,
            source: $source,
            since: cell!(since $($since)?),
        },)*];
    };
}

table! {
    /// One workload alone on a device at one share in one repeat. `f64::NAN` is null.
    IsolatedRow, ISOLATED {
        Text trial_id: "", Name, "the trial that the row comes from", "plan";
        Text workload: "", Name, "id of the workload: one benchmark at one setting of its axes", "plan";
        Text family: "", Name, "workloads that share a structure; the unit that a split holds out", "plan";
        Text kind: "", WorkloadKind, "`training`, `inference`, `stressor` or `null`", "plan";
        Text device_kind: "", DeviceKind, "where the numbers come from: `cuda`, `cpu`, `simulated`, `recorded` or `imported`", "device";
        Text device: "", Name, "model of the device: a chip name, or `cpu`", "device";
        Text source: "", Name, "digest of the campaign, or name of the import, which is then the harness", "plan";
        Number share_ratio: "ratio", Ratio, "share of the SMs (or cores) that the workload may use; 1 is the full device", "plan";
        Number repeat_total: "count", Count, "index of the repeat in fresh processes, from 0", "plan";
        OptionalNumber step_seconds: "seconds", Positive, "median duration of a step; present where the outcome has times", "step records";
        OptionalNumber step_lower_seconds: "seconds", Positive, "lower end of the interval of the step's duration", "step records";
        OptionalNumber step_upper_seconds: "seconds", Positive, "upper end of the interval of the step's duration", "step records";
        OptionalNumber steps_total: "count", Count, "steps that were timed", "step records";
        OptionalNumber batch_total: "count", Count, "samples or sequences in one step", "workload";
        OptionalNumber step_tensor_flops_total: "count", NotNegative, "floating point operations of one step on the tensor pipes", "workload, analytic";
        OptionalNumber step_fp32_flops_total: "count", NotNegative, "floating point operations of one step on the FP32 pipes", "workload, analytic";
        OptionalNumber step_fp64_flops_total: "count", NotNegative, "floating point operations of one step on the FP64 pipes", "workload, analytic";
        OptionalNumber step_l2_bytes: "bytes", NotNegative, "L2 traffic of one step, re-reads included", "workload, analytic";
        OptionalNumber step_dram_bytes: "bytes", NotNegative, "compulsory DRAM traffic of one step", "workload, analytic";
        OptionalNumber step_copy_bytes: "bytes", NotNegative, "traffic of one step between host and device", "workload, analytic";
        OptionalNumber step_launches_total: "count", NotNegative, "kernel launches of one step", "workload, analytic";
        OptionalNumber step_host_seconds: "seconds", NotNegative, "host time of one step in which the device waits", "workload, analytic";
        OptionalNumber working_set_bytes: "bytes", NotNegative, "bytes that one step touches again and again", "workload, analytic";
        OptionalNumber footprint_bytes: "bytes", NotNegative, "device memory that the workload holds", "workload or device";
        OptionalNumber kernel_active_ratio: "ratio", Ratio, "share of time in which at least one kernel or copy of the workload was running", "counter repetition";
        OptionalNumber sm_active_ratio: "ratio", Ratio, "cycles with at least one warp resident, mean over SMs", "counter repetition";
        OptionalNumber sm_occupancy_ratio: "ratio", Ratio, "resident warps over the most that fit, mean over SMs and time", "counter repetition";
        OptionalNumber tensor_active_ratio: "ratio", Ratio, "cycles in which the tensor pipe was busy", "counter repetition";
        OptionalNumber fp32_active_ratio: "ratio", Ratio, "cycles in which the FMA and ALU pipes were busy", "counter repetition";
        OptionalNumber fp64_active_ratio: "ratio", Ratio, "cycles in which the FP64 pipe was busy", "counter repetition";
        OptionalNumber l2_throughput_ratio: "ratio", Ratio, "L2 traffic over the peak L2 bandwidth", "counter repetition";
        OptionalNumber l2_hit_ratio: "ratio", Ratio, "L2 sector look-ups that hit", "counter repetition";
        OptionalNumber dram_throughput_ratio: "ratio", Ratio, "DRAM traffic over the peak DRAM bandwidth", "counter repetition";
        OptionalNumber copy_active_ratio: "ratio", Ratio, "host link traffic over the peak of one direction, the busier direction", "counter repetition";
        OptionalNumber launch_rate_hertz: "hertz", NotNegative, "kernel launches per second", "counter repetition";
        Text counters_status: "", Name, "`ok` (simulated), `pm` or `gpm` (what a GPU was read by), or why counters are null", "counter repetition";
        OptionalNumber clock_hertz: "hertz", Positive, "mean SM or core clock while the steps were timed", "telemetry";
        OptionalNumber power_watts: "watts", NotNegative, "mean board power while the steps were timed: energy over time where the board counts its energy", "telemetry";
        OptionalNumber memory_clock_hertz: "hertz", Positive, "mean memory clock while the steps were timed", "telemetry", since 2;
        OptionalNumber temperature_celsius: "celsius", Finite, "highest temperature of the GPU while the steps were timed", "telemetry", since 2;
        OptionalNumber memory_temperature_celsius: "celsius", Finite, "highest temperature of the memory while the steps were timed", "telemetry", since 2;
        OptionalNumber throttled_ratio: "ratio", Ratio, "share of the timed phase in which heat or hardware cut the clock", "telemetry", since 2;
        OptionalNumber power_capped_ratio: "ratio", Ratio, "share of the timed phase in which the power limit cut the clock", "telemetry", since 2;
        OptionalNumber multiprocessors_total: "count", Count, "SMs that the worker could use", "worker", since 2;
        OptionalNumber memory_peak_bytes: "bytes", NotNegative, "device memory that the worker allocated, without its context", "worker", since 2;
        OptionalText telemetry_status: "", Any, "`ok`, or why columns of the telemetry are null", "telemetry", since 2;
        Text outcome: "", Outcome, "how the trial ended", "protocol";
        OptionalText flags: "", Any, "what to know about the row, separated by `;`", "protocol or import";
    }
}

table! {
    /// How one subject ran beside its co-runner in one trial. `f64::NAN` is null.
    PairRow, PAIRS {
        Text pair_id: "", Name, "the unordered pair on one device under one sharing mode", "plan";
        Text trial_id: "", Name, "one co-run; both of its rows carry it", "plan";
        Number repeat_total: "count", Count, "index of the repeat in fresh processes, from 0", "plan";
        Number attempt_total: "count", Count, "index of the attempt that the row is of", "protocol";
        Text side: "", Side, "`a` or `b`: which side of the trial the subject was", "plan";
        Text subject_workload: "", Name, "the workload whose slowdown the row tells", "plan";
        Text subject_family: "", Name, "its family", "plan";
        Text subject_kind: "", WorkloadKind, "its kind", "plan";
        Text co_runner_workload: "", Name, "the workload beside it", "plan";
        Text co_runner_family: "", Name, "the family of the co-runner", "plan";
        Text co_runner_kind: "", WorkloadKind, "the kind of the co-runner", "plan";
        Text device_kind: "", DeviceKind, "where the numbers come from: `cuda`, `cpu`, `simulated`, `recorded` or `imported`", "device";
        Text device: "", Name, "model of the device: a chip name, or `cpu`", "device";
        Text source: "", Name, "digest of the campaign, or name of the import, which is then the harness", "plan";
        Text sharing: "", Sharing, "the sharing mode in effect, from this subject's view", "device";
        Text sharing_requested: "", Sharing, "the sharing mode that was asked for, from this subject's view", "plan";
        Number subject_share_ratio: "ratio", Ratio, "share of the SMs that the subject may use", "device";
        Number co_runner_share_ratio: "ratio", Ratio, "share of the SMs that the co-runner may use", "device";
        OptionalNumber isolated_full_step_seconds: "seconds", Positive, "step of the subject alone at the full device", "isolated trials";
        OptionalNumber isolated_step_seconds: "seconds", Positive, "step of the subject alone at its share, in the runs that bracket the co-run", "step records";
        OptionalNumber colocated_step_seconds: "seconds", Positive, "step of the subject beside the co-runner, inside the window in which both were busy", "step records";
        OptionalNumber slowdown_ratio: "ratio", Positive, "the label: co-located step / isolated step at the full device", "derived";
        OptionalNumber slowdown_lower_ratio: "ratio", Positive, "lower end of the interval over the blocks of this trial", "derived";
        OptionalNumber slowdown_upper_ratio: "ratio", Positive, "upper end of the interval over the blocks of this trial", "derived";
        OptionalNumber blocks_total: "count", Count, "blocks of steps behind that interval", "step records";
        OptionalNumber partition_effect_ratio: "ratio", Positive, "isolated step at the share / isolated step at the full device", "derived";
        OptionalNumber interference_ratio: "ratio", Positive, "co-located step / isolated step at the share", "derived";
        OptionalNumber overlap_ratio: "ratio", Ratio, "share of the co-run window in which both sides were busy", "step records";
        OptionalNumber drift_ratio: "ratio", Finite, "relative difference of the isolated runs before and after the co-run", "step records";
        OptionalNumber steps_total: "count", Count, "steps of the subject that were timed in the window", "step records";
        OptionalNumber corun_sm_active_ratio: "ratio", Ratio, "`sm_active_ratio` of the device during the co-run, both sides together", "counter repetition";
        OptionalNumber corun_dram_throughput_ratio: "ratio", Ratio, "`dram_throughput_ratio` of the device during the co-run, both sides together", "counter repetition";
        OptionalNumber corun_l2_hit_ratio: "ratio", Ratio, "`l2_hit_ratio` of the device during the co-run, both sides together", "counter repetition";
        OptionalNumber clock_hertz: "hertz", Positive, "mean SM or core clock during the co-run", "telemetry";
        OptionalNumber power_watts: "watts", NotNegative, "mean board power during the co-run: energy over time where the board counts its energy", "telemetry";
        OptionalNumber throttled_ratio: "ratio", Ratio, "share of the co-run in which heat or hardware cut the clock", "telemetry";
        OptionalNumber memory_clock_hertz: "hertz", Positive, "mean memory clock during the co-run", "telemetry", since 2;
        OptionalNumber temperature_celsius: "celsius", Finite, "highest temperature of the GPU during the co-run", "telemetry", since 2;
        OptionalNumber memory_temperature_celsius: "celsius", Finite, "highest temperature of the memory during the co-run", "telemetry", since 2;
        OptionalNumber power_capped_ratio: "ratio", Ratio, "share of the co-run in which the power limit cut the clock", "telemetry", since 2;
        OptionalNumber multiprocessors_total: "count", Count, "SMs that the subject's worker could use", "worker", since 2;
        OptionalNumber memory_peak_bytes: "bytes", NotNegative, "device memory that the subject's worker allocated, without its context", "worker", since 2;
        OptionalText counters_status: "", Any, "what the `corun_` counters were read by, or why they are null", "counter repetition", since 2;
        OptionalText telemetry_status: "", Any, "`ok`, or why columns of the telemetry are null", "telemetry", since 2;
        Text outcome: "", Outcome, "how the trial ended", "protocol";
        OptionalText flags: "", Any, "what to know about the row, separated by `;`", "protocol or import";
    }
}

/// A word in the `flags` column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    /// The word.
    pub name: &'static str,
    /// What it tells.
    pub meaning: &'static str,
}

/// The flags of the measuring protocol and of imports, each with its meaning. Any other word is a finding, except in
/// imported rows, whose mapping may name its own.
pub const FLAGS: &[Flag] = &[
    Flag { name: "throttled", meaning: "heat or hardware cut the clock for too large a share of the phase" },
    Flag {
        name: "low_overlap",
        meaning: "both sides were busy together for too small a share of the window",
    },
    Flag {
        name: "drift",
        meaning: "the isolated runs before and after the co-run differ by more than the limit",
    },
    Flag { name: "not_steady", meaning: "step times or clocks had not settled when the soak was over" },
    Flag { name: "counters_failed", meaning: "the repetition for counters failed; the times stand" },
    Flag { name: "sampler_overhead", meaning: "steps took over 1 % longer while counters were sampled" },
    Flag { name: "counters_suspect", meaning: "counters say that the device idled while workers made steps" },
    Flag {
        name: "few_cores",
        meaning: "submitting threads shared their cores: launch-bound rows are unreliable",
    },
    Flag {
        name: "memory_leaked",
        meaning: "device memory of an earlier session was still taken when this one began",
    },
    Flag {
        name: "aperiodic_progress",
        meaning: "the program's kernels repeat no sequence: a step is a fixed sum of device time of its isolated run",
    },
    Flag {
        name: "progress_by_lines",
        meaning: "a step is a line of the program's output, timed when it was read",
    },
    Flag {
        name: "sharing_unverified",
        meaning: "the program did not tell its SMs and MPS, so that `sharing` is what was asked for",
    },
    Flag {
        name: "null_pair",
        meaning: "a control: the co-runner is an idle context, the interference must be 1",
    },
    Flag { name: "sentinel", meaning: "the pair that is measured again and again to see the device drift" },
    Flag {
        name: "no_isolated_full",
        meaning: "there is no good isolated trial at the full device, so the slowdown is null",
    },
    Flag {
        name: "sharing_unstated",
        meaning: "the source does not say how the device was shared; `sharing` is a documented guess",
    },
    Flag {
        name: "clipped",
        meaning: "the co-located rate equals the isolated one to the last digit, so it was capped there",
    },
    Flag {
        name: "slowdown_at_share",
        meaning: "the isolated time at the full device is unknown: `slowdown_ratio` is the interference alone",
    },
    Flag {
        name: "one_sided",
        meaning: "only this side was measured: the trial has no row of its co-runner, which may have no isolated row either",
    },
    Flag {
        name: "no_step_time",
        meaning: "the source gives counters and no time of a step, so `step_seconds` is null",
    },
    Flag {
        name: "counters_nvml",
        meaning: "`kernel_active_ratio` and `dram_throughput_ratio` are NVML's utilisation of GPU and memory: shares of time",
    },
    Flag {
        name: "memory_pipeline",
        meaning: "`dram_throughput_ratio` is the busiest of L1, L2 and DRAM; DRAM is at most that",
    },
    Flag { name: "interval_bootstrap", meaning: "the interval is a bootstrap over the runs of this row" },
    Flag {
        name: "interval_quantiles",
        meaning: "the interval is the 5th to 95th percentile of the steps, not an interval of their median",
    },
    Flag {
        name: "interval_one_deviation",
        meaning: "the interval is one standard deviation of the repeats to each side, not a confidence interval",
    },
];

/// The id of an unordered pair on one device under one sharing mode.
///
/// Both orders of one pair give one id: names are sorted and the mode is turned with them.
///
/// ```
/// use elastico_datasets::pair_id;
/// let mode = "mps(0.3,0.7)".parse()?;
/// let swapped = "mps(0.7,0.3)".parse()?;
/// assert_eq!(pair_id("b", "a", "v100", &mode), pair_id("a", "b", "v100", &swapped));
/// assert_eq!(pair_id("b", "a", "v100", &mode), "a + b @ v100 mps(0.7,0.3)");
/// # Ok::<(), elastico_core::SharingModeError>(())
/// ```
pub fn pair_id(subject: &str, co_runner: &str, device: &str, sharing: &SharingMode) -> String {
    let here = (subject, co_runner, sharing.to_string());
    let there = (co_runner, subject, sharing.swapped().to_string());
    let (first, second, sharing) = here.min(there);
    format!("{first} + {second} @ {device} {sharing}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::COUNTERS;

    #[test]
    fn counters_stand_in_the_isolated_table_in_their_order() {
        let start = ISOLATED.iter().position(|column| column.name == COUNTERS[0].name).unwrap();
        for (column, counter) in ISOLATED[start..].iter().zip(COUNTERS) {
            assert_eq!(
                (column.name, column.unit, column.meaning),
                (counter.name, counter.unit, counter.meaning)
            );
            assert!(column.nullable && column.kind == ColumnKind::Number);
        }
        assert_eq!(ISOLATED[start + COUNTERS.len()].name, "counters_status");
    }

    #[test]
    fn numbers_carry_their_unit_in_the_name() {
        for column in TableKind::ALL.iter().flat_map(|kind| kind.columns()) {
            let suffix = if column.unit == "count" { "total" } else { column.unit };
            assert!(column.name.ends_with(suffix), "{column:?}");
            assert_eq!(column.unit.is_empty(), column.kind == ColumnKind::Text, "{column:?}");
        }
    }

    #[test]
    fn rows_survive_the_table() {
        let row = PairRow {
            trial_id: "t".into(),
            flags: Some("x".into()),
            slowdown_ratio: 1.5,
            ..PairRow::default()
        };
        let back = PairRow::read(&PairRow::columns(std::slice::from_ref(&row)), 0);
        assert_eq!(format!("{row:?}"), format!("{back:?}"));
    }
}
