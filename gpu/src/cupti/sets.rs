//! The table of metrics, one single-pass set per chip.

use super::metrics::{Metric, MetricSet, Reduce};

/// A percentage that feeds a counter.
const fn ratio(counter: &'static str, name: &'static str) -> Metric {
    Metric { name, counter: Some(counter), reduce: Reduce::Mean, scale: 0.01 }
}

/// A hit rate, weighted by the traffic that it is a rate of.
const fn hits(name: &'static str, traffic: &'static str) -> Metric {
    Metric { name, counter: Some("l2_hit_ratio"), reduce: Reduce::WeightedBy(traffic), scale: 0.01 }
}

/// A count whose rate feeds a counter.
const fn rate(counter: &'static str, name: &'static str) -> Metric {
    Metric { name, counter: Some(counter), reduce: Reduce::Rate, scale: 1.0 }
}

/// A metric that is kept under its own name only: for the self-test and for the joint vector of a co-run.
const fn plain(name: &'static str) -> Metric {
    Metric { name, counter: None, reduce: Reduce::Mean, scale: 1.0 }
}

macro_rules! pct {
    ($name:literal) => {
        concat!($name, ".avg.pct_of_peak_sustained_elapsed")
    };
}

const DRAM_READ: Metric = plain("dram__bytes_read.sum");
const DRAM_WRITE: Metric = plain("dram__bytes_write.sum");
const SM_CYCLES: Metric = plain("sm__cycles_elapsed.avg");

/// Why FP64 is absent on graphics chips.
const FP64_ROTATES: (&str, &str) =
    ("fp64_active_ratio", "the FP64 pipe needs a further three passes on this chip");

/// One set per chip that was checked against CUPTI's host API. H100, H200 and GH200 are GH100; B200 is GB100; L4 and
/// L40 are AD104 and AD102; A100 is GA100; A10 and A40 are GA102; T4 is TU104.
pub const METRIC_SETS: &[MetricSet] = &[GH100, GB100, AD102, GA100, GA102, TU102];

const GH100: MetricSet = MetricSet {
    chip: "GH100",
    metrics: &[
        ratio("sm_active_ratio", pct!("TPC.TriageCompute.sm__cycles_active")),
        ratio("kernel_active_ratio", pct!("FE_B.TriageCompute.gr__cycles_active")),
        ratio("sm_occupancy_ratio", pct!("TPC.TriageCompute.tpc__warps_active_shader_cs_realtime")),
        ratio("tensor_active_ratio", pct!("TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime")),
        ratio("fp32_active_ratio", pct!("TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime")),
        ratio("fp64_active_ratio", pct!("TPC.TriageCompute.sm__pipe_fp64_cycles_active_realtime")),
        ratio("l2_throughput_ratio", pct!("LTS.TriageCompute.lts__throughput")),
        hits(
            "LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.pct",
            pct!("LTS.TriageCompute.lts__throughput"),
        ),
        ratio("dram_throughput_ratio", pct!("FBSP.TriageCompute.dramc__throughput")),
        ratio("copy_active_ratio", pct!("PCI.TriageCompute.pcie__read_bytes")),
        ratio("copy_active_ratio", pct!("PCI.TriageCompute.pcie__write_bytes")),
        rate("launch_rate_hertz", "FE_A.TriageCompute.gr__dispatch_count.sum"),
        DRAM_READ,
        DRAM_WRITE,
        SM_CYCLES,
        plain("PCI.TriageCompute.pcie__read_bytes.sum"),
        plain("PCI.TriageCompute.pcie__write_bytes.sum"),
        plain(pct!("TPC.TriageCompute.sm__inst_executed_realtime")),
        plain(pct!("TPC.TriageCompute.sm__inst_executed_pipe_alu_realtime")),
        plain(pct!("SM_A.TriageCompute.l1tex__data_pipe_lsu_wavefronts_mem_shared")),
        plain(pct!("FBSP.TriageCompute.dramc__read_throughput")),
        plain(pct!("FBSP.TriageCompute.dramc__write_throughput")),
        plain(pct!("FE_A.TriageCompute.gpu__gr_cycles_active_cmd_ctxsw")),
        plain(pct!("FE_A.TriageCompute.gr__compute_cycles_active_queue_sync")),
        plain(pct!("FE_A.TriageCompute.gr__compute_cycles_active_queue_async")),
        plain("FE_B.TriageCompute.gr__ctas_launched_realtime.sum"),
        plain(pct!("TPC.TriageCompute.tpc__sm_rf_registers_allocated_shader_cs_realtime")),
        plain(pct!("TPC.TriageCompute.tpc__l1tex_mem_shared_data_compute_bytes_allocated_realtime")),
    ],
    absent: &[],
};

const GB100: MetricSet = MetricSet {
    chip: "GB100",
    metrics: &[
        ratio("sm_active_ratio", pct!("TPC.TriageCompute.sm__cycles_active")),
        ratio("kernel_active_ratio", pct!("FE_B.TriageCompute.gr__cycles_active")),
        ratio("sm_occupancy_ratio", pct!("TPC.TriageCompute.tpc__warps_active_shader_cs_realtime")),
        ratio("tensor_active_ratio", pct!("TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime")),
        ratio("fp32_active_ratio", pct!("TPC.TriageCompute.sm__pipe_fma_cycles_active_realtime")),
        ratio("fp64_active_ratio", pct!("TPC.TriageCompute.sm__pipe_fp64_cycles_active_realtime")),
        ratio("l2_throughput_ratio", pct!("LTS.TriageCompute.lts__throughput")),
        hits(
            "LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.pct",
            pct!("LTS.TriageCompute.lts__throughput"),
        ),
        ratio("dram_throughput_ratio", pct!("FBSP.TriageCompute.dram__throughput")),
        ratio("copy_active_ratio", pct!("PCI.TriageCompute.pcie__read_bytes")),
        ratio("copy_active_ratio", pct!("PCI.TriageCompute.pcie__write_bytes")),
        rate("launch_rate_hertz", "FE_A.TriageCompute.gr__dispatch_count.sum"),
        DRAM_READ,
        DRAM_WRITE,
        SM_CYCLES,
        plain("PCI.TriageCompute.pcie__read_bytes.sum"),
        plain("PCI.TriageCompute.pcie__write_bytes.sum"),
        plain(pct!("TPC.TriageCompute.sm__inst_executed_realtime")),
        plain(pct!("TPC.TriageCompute.sm__inst_executed_pipe_alu_realtime")),
        plain(pct!("SM_A.TriageCompute.l1tex__data_pipe_lsu_wavefronts_mem_shared")),
        plain(pct!("FBSP.TriageCompute.dram__read_throughput")),
        plain(pct!("FBSP.TriageCompute.dram__write_throughput")),
        plain(pct!("FE_A.TriageCompute.gpu__gr_cycles_active_cmd_ctxsw")),
        plain(pct!("FE_A.TriageCompute.gr__compute_cycles_active_queue_sync")),
        plain(pct!("FE_A.TriageCompute.gr__compute_cycles_active_queue_async")),
        plain("FE_B.TriageCompute.gr__ctas_launched_realtime.sum"),
        plain(pct!("TPC.TriageCompute.tpc__sm_rf_registers_allocated_shader_cs_realtime")),
        plain(pct!("TPC.TriageCompute.tpc__l1tex_mem_shared_data_compute_bytes_allocated_realtime")),
    ],
    absent: &[],
};

const AD102: MetricSet = MetricSet {
    chip: "AD102",
    metrics: &[
        ratio("sm_active_ratio", pct!("sm__cycles_active")),
        ratio("kernel_active_ratio", pct!("gr__cycles_active")),
        ratio("sm_occupancy_ratio", pct!("sm__warps_active_realtime")),
        ratio("tensor_active_ratio", pct!("sm__pipe_tensor_cycles_active_realtime")),
        ratio("fp32_active_ratio", pct!("sm__inst_executed_pipe_fmaheavy_realtime")),
        ratio("fp32_active_ratio", pct!("sm__inst_executed_pipe_fmalite_realtime")),
        ratio("l2_throughput_ratio", pct!("LTS.TriageAC.lts__throughput")),
        hits("lts__average_t_sector_hit_rate_realtime.pct", pct!("LTS.TriageAC.lts__throughput")),
        ratio("dram_throughput_ratio", pct!("dram__throughput")),
        ratio("copy_active_ratio", pct!("pcie__read_bytes")),
        ratio("copy_active_ratio", pct!("pcie__write_bytes")),
        rate("launch_rate_hertz", "gr__dispatch_count.sum"),
        DRAM_READ,
        DRAM_WRITE,
        SM_CYCLES,
        plain("pcie__read_bytes.sum"),
        plain("pcie__write_bytes.sum"),
        plain(pct!("sm__inst_executed_realtime")),
        plain(pct!("sm__inst_executed_pipe_alu_realtime")),
        plain(pct!("l1tex__data_pipe_lsu_wavefronts_mem_shared")),
        plain(pct!("dram__read_throughput")),
        plain(pct!("dram__write_throughput")),
        plain(pct!("gpu__gr_cycles_active_cmd_ctxsw")),
        plain(pct!("gr__compute_cycles_active_queue_sync")),
        plain(pct!("gr__compute_cycles_active_queue_async")),
        plain("gr__ctas_launched.sum"),
        plain(pct!("tpc__sm_rf_registers_allocated_shader_cs_realtime")),
        plain(pct!("tpc__l1tex_mem_shared_data_compute_bytes_allocated_realtime")),
    ],
    absent: &[FP64_ROTATES],
};

const GA100: MetricSet = MetricSet {
    chip: "GA100",
    metrics: &[
        ratio("sm_active_ratio", pct!("sm__cycles_active")),
        ratio("kernel_active_ratio", pct!("gr__cycles_active")),
        ratio("sm_occupancy_ratio", pct!("sm__warps_active_realtime")),
        ratio("tensor_active_ratio", pct!("sm__pipe_tensor_cycles_active_realtime")),
        ratio("fp32_active_ratio", pct!("sm__inst_executed_pipe_fma_realtime")),
        ratio("fp64_active_ratio", pct!("sm__pipe_fp64_cycles_active")),
        // The throughput of lts__ takes nine passes here; sectors looked up are its main part.
        ratio("l2_throughput_ratio", pct!("lts__t_sectors")),
        ratio("dram_throughput_ratio", pct!("dram__throughput")),
        ratio("copy_active_ratio", pct!("pcie__read_bytes")),
        ratio("copy_active_ratio", pct!("pcie__write_bytes")),
        rate("launch_rate_hertz", "gr__dispatch_count.sum"),
        DRAM_READ,
        DRAM_WRITE,
        SM_CYCLES,
        plain("pcie__read_bytes.sum"),
        plain("pcie__write_bytes.sum"),
        plain(pct!("sm__inst_executed_realtime")),
        plain(pct!("sm__inst_executed_pipe_alu_realtime")),
        plain(pct!("l1tex__data_pipe_lsu_wavefronts_mem_shared")),
        plain(pct!("dram__read_throughput")),
        plain(pct!("dram__write_throughput")),
        plain(pct!("gr__compute_cycles_active_queue_sync")),
        plain(pct!("gr__compute_cycles_active_queue_async")),
    ],
    absent: &[("l2_hit_ratio", "the L2 hit rate takes two passes on this chip")],
};

const GA102: MetricSet = MetricSet {
    chip: "GA102",
    metrics: &[
        ratio("sm_active_ratio", pct!("sm__cycles_active")),
        ratio("kernel_active_ratio", pct!("gr__cycles_active")),
        ratio("sm_occupancy_ratio", pct!("sm__warps_active_realtime")),
        ratio("tensor_active_ratio", pct!("sm__pipe_tensor_cycles_active_realtime")),
        ratio("fp32_active_ratio", pct!("sm__inst_executed_pipe_fmaheavy_realtime")),
        ratio("fp32_active_ratio", pct!("sm__inst_executed_pipe_fmalite_realtime")),
        ratio("l2_throughput_ratio", pct!("LTS.TriageAC.lts__throughput")),
        hits("lts__average_t_sector_hit_rate_realtime.pct", pct!("LTS.TriageAC.lts__throughput")),
        ratio("dram_throughput_ratio", pct!("dram__throughput")),
        ratio("copy_active_ratio", pct!("pcie__read_bytes")),
        ratio("copy_active_ratio", pct!("pcie__write_bytes")),
        rate("launch_rate_hertz", "gr__dispatch_count.sum"),
        DRAM_READ,
        DRAM_WRITE,
        SM_CYCLES,
        plain("pcie__read_bytes.sum"),
        plain("pcie__write_bytes.sum"),
        plain(pct!("sm__inst_executed_realtime")),
        plain(pct!("sm__inst_executed_pipe_alu_realtime")),
        plain(pct!("l1tex__data_pipe_lsu_wavefronts_mem_shared")),
        plain(pct!("dram__read_throughput")),
        plain(pct!("dram__write_throughput")),
        plain(pct!("gr__compute_cycles_active_queue_sync")),
        plain(pct!("gr__compute_cycles_active_queue_async")),
        plain("gr__ctas_launched.sum"),
        plain(pct!("tpc__sm_rf_registers_allocated_shader_cs_realtime")),
    ],
    absent: &[FP64_ROTATES],
};

const TU102: MetricSet = MetricSet {
    chip: "TU102",
    metrics: &[
        ratio("sm_active_ratio", pct!("SM.TriageA.sm__cycles_active")),
        ratio("kernel_active_ratio", pct!("FE_A.TriageA.gr__cycles_active")),
        ratio("sm_occupancy_ratio", pct!("TPC.TriageA.tpc__warps_active_shader_cs_realtime")),
        ratio("fp32_active_ratio", pct!("SM.TriageA.sm__inst_executed_pipe_fma_realtime")),
        ratio("fp64_active_ratio", pct!("sm__pipe_fp64_cycles_active")),
        ratio("l2_throughput_ratio", pct!("LTS.TriageA.lts__throughput")),
        // Reads only: the one hit rate that is sampled on this chip.
        hits(
            "LTS.TriageA.lts__average_t_sector_op_read_realtime_hit_rate.pct",
            pct!("LTS.TriageA.lts__throughput"),
        ),
        ratio("dram_throughput_ratio", pct!("FBPA.TriageA.dramc__throughput")),
        ratio("copy_active_ratio", pct!("PCI.TriageA.pcie__read_bytes")),
        ratio("copy_active_ratio", pct!("PCI.TriageA.pcie__write_bytes")),
        rate("launch_rate_hertz", "HUB.TriageA.gr__dispatch_count.sum"),
        DRAM_READ,
        DRAM_WRITE,
        SM_CYCLES,
        // FP16 and tensor instructions share this pipe, so it is no tensor counter.
        plain(pct!("SM.TriageA.sm__pipe_shared_cycles_active_realtime")),
        plain("PCI.TriageA.pcie__read_bytes.sum"),
        plain("PCI.TriageA.pcie__write_bytes.sum"),
        plain(pct!("SM.TriageA.sm__inst_executed_realtime")),
        plain(pct!("SM.TriageA.sm__inst_executed_pipe_alu_realtime")),
        plain(pct!("SM.TriageA.l1tex__data_pipe_lsu_wavefronts_mem_shared")),
        plain(pct!("FBPA.TriageA.dramc__read_throughput")),
        plain(pct!("FBPA.TriageA.dramc__write_throughput")),
        plain(pct!("HUB.TriageA.gr__dispatch_cycles_active_queue_sync")),
        plain(pct!("HUB.TriageA.gr__dispatch_cycles_active_queue_async")),
        plain("gr__ctas_launched.sum"),
    ],
    absent: &[("tensor_active_ratio", "the tensor pipe takes two passes on this chip")],
};

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::COUNTERS;
    use std::collections::BTreeSet;

    #[test]
    fn each_counter_is_fed_or_absent_with_a_reason() {
        for set in METRIC_SETS {
            let fed: BTreeSet<&str> = set.metrics.iter().filter_map(|metric| metric.counter).collect();
            let absent: BTreeSet<&str> = set.absent.iter().map(|(counter, _)| *counter).collect();
            assert!(fed.is_disjoint(&absent), "{}", set.chip);
            let all: BTreeSet<&str> = fed.union(&absent).copied().collect();
            let known: BTreeSet<&str> = COUNTERS.iter().map(|counter| counter.name).collect();
            assert_eq!(all, known, "{}", set.chip);
        }
    }

    #[test]
    fn names_are_unique_and_weights_are_in_the_set() {
        for set in METRIC_SETS {
            let names: BTreeSet<&str> = set.names().into_iter().collect();
            assert_eq!(names.len(), set.metrics.len(), "{}", set.chip);
            for metric in set.metrics {
                if let Reduce::WeightedBy(weight) = metric.reduce {
                    assert!(names.contains(weight), "{}: {weight}", set.chip);
                }
                let is_percent = metric.name.contains(".pct");
                let expected = if metric.counter.is_some() && is_percent { 0.01 } else { 1.0 };
                assert!((metric.scale - expected).abs() < f64::EPSILON, "{}", metric.name);
            }
        }
    }
}
