//! What is known about one workload before it meets a co-runner.

use elastico_core::COUNTERS;

/// One workload-level feature; with `subject_` or `co_runner_` before its name it is a feature of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The column of the isolated table, `subsystem_property_unit`.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// What it is.
    pub meaning: &'static str,
}

const fn field(name: &'static str, unit: &'static str, meaning: &'static str) -> Field {
    Field { name, unit, meaning }
}

const OWN: [Field; 14] = [
    field("training_ratio", "ratio", "1 = training, 0 = anything else"),
    field("batch_total", "total", "samples in one step"),
    field("step_seconds", "seconds", "median time of one isolated step at the full device"),
    field("step_tensor_flops_total", "total", "operations of one step on the tensor pipe"),
    field("step_fp32_flops_total", "total", "operations of one step on the FP32 pipe"),
    field("step_fp64_flops_total", "total", "operations of one step on the FP64 pipe"),
    field("step_l2_bytes", "bytes", "traffic of one step through L2, re-reads included"),
    field("step_dram_bytes", "bytes", "compulsory DRAM traffic of one step"),
    field("step_copy_bytes", "bytes", "host link traffic of one step, both directions"),
    field("step_launches_total", "total", "kernel launches of one step"),
    field("step_host_seconds", "seconds", "host time of one step during which the device idles"),
    field("working_set_bytes", "bytes", "data that one kernel re-uses, the claim on L2"),
    field("footprint_bytes", "bytes", "device memory held"),
    field("power_watts", "watts", "board power while running alone"),
];

const WIDTH: usize = OWN.len() + COUNTERS.len();

const ALL: [Field; WIDTH] = {
    let mut all = [OWN[0]; WIDTH];
    let mut index = 0;
    while index < WIDTH {
        all[index] = if index < OWN.len() {
            OWN[index]
        } else {
            let counter = COUNTERS[index - OWN.len()];
            Field { name: counter.name, unit: counter.unit, meaning: counter.meaning }
        };
        index += 1;
    }
    all
};

/// All workload-level features: the demands of one step, then every counter of [`COUNTERS`].
pub const FIELDS: &[Field] = &ALL;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_end_in_their_unit() {
        let mut names: Vec<_> = FIELDS.iter().map(|field| field.name).collect();
        assert!(FIELDS.iter().all(|field| field.name.ends_with(field.unit)));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIELDS.len());
        assert!(names.contains(&"dram_throughput_ratio"));
    }
}
