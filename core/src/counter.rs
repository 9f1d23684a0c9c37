//! The counters that every device reports under one name, and what other tools call them.

/// One hardware counter: a column of the dataset and, with `subject_` or `co_runner_` before it, a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// Column name, `subsystem_property_unit`.
    pub name: &'static str,
    /// Unit of the value; ratios are 0..1.
    pub unit: &'static str,
    /// What it counts.
    pub meaning: &'static str,
    /// The DCGM field, or empty.
    pub dcgm: &'static str,
    /// The CUPTI or ncu metric on Hopper, or empty.
    pub cupti: &'static str,
}

/// All counters, in the order of the dataset's columns.
pub const COUNTERS: &[Counter] = &[
    Counter {
        name: "kernel_active_ratio",
        unit: "ratio",
        meaning: "share of time in which at least one kernel or copy of the workload was running",
        dcgm: "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        cupti: "gr__cycles_active.avg.pct_of_peak_sustained_elapsed",
    },
    Counter {
        name: "sm_active_ratio",
        unit: "ratio",
        meaning: "cycles with at least one warp resident, mean over SMs",
        dcgm: "DCGM_FI_PROF_SM_ACTIVE",
        cupti: "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    },
    Counter {
        name: "sm_occupancy_ratio",
        unit: "ratio",
        meaning: "resident warps over the most that fit, mean over SMs and time",
        dcgm: "DCGM_FI_PROF_SM_OCCUPANCY",
        cupti: "sm__warps_active.avg.pct_of_peak_sustained_elapsed",
    },
    Counter {
        name: "tensor_active_ratio",
        unit: "ratio",
        meaning: "cycles in which the tensor pipe was busy",
        dcgm: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        cupti: "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    },
    Counter {
        name: "fp32_active_ratio",
        unit: "ratio",
        meaning: "cycles in which the FMA and ALU pipes were busy",
        dcgm: "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
        cupti: "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed",
    },
    Counter {
        name: "fp64_active_ratio",
        unit: "ratio",
        meaning: "cycles in which the FP64 pipe was busy",
        dcgm: "DCGM_FI_PROF_PIPE_FP64_ACTIVE",
        cupti: "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed",
    },
    Counter {
        name: "l2_throughput_ratio",
        unit: "ratio",
        meaning: "L2 traffic over the peak L2 bandwidth",
        dcgm: "",
        cupti: "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    },
    Counter {
        name: "l2_hit_ratio",
        unit: "ratio",
        meaning: "L2 sector look-ups that hit",
        dcgm: "",
        cupti: "lts__average_t_sector_hit_rate_realtime.pct",
    },
    Counter {
        name: "dram_throughput_ratio",
        unit: "ratio",
        meaning: "DRAM traffic over the peak DRAM bandwidth",
        dcgm: "DCGM_FI_PROF_DRAM_ACTIVE",
        cupti: "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    },
    Counter {
        name: "copy_active_ratio",
        unit: "ratio",
        meaning: "host link traffic over the peak of one direction, the busier direction",
        dcgm: "DCGM_FI_PROF_PCIE_TX_BYTES, DCGM_FI_PROF_PCIE_RX_BYTES",
        cupti: "pcie__read_bytes.sum, pcie__write_bytes.sum",
    },
    Counter {
        name: "launch_rate_hertz",
        unit: "hertz",
        meaning: "kernel launches per second",
        dcgm: "",
        cupti: "gr__dispatch_count.sum",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_carry_their_unit() {
        let mut names: Vec<_> = COUNTERS.iter().map(|counter| counter.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNTERS.len());
        assert!(COUNTERS.iter().all(|counter| counter.name.ends_with(counter.unit)));
    }
}
