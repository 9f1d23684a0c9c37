//! A made-up dataset: workloads drawn at random, slowdowns by a law with saturation and noise.

use elastico_core::{DeviceKind, Provenance, Seed};
use elastico_datasets::{Dataset, IsolatedRow, PairRow, Table};
use rand::RngExt as _;
use std::collections::BTreeMap;

/// Workloads in families of four, and `rows` rows of pairs. Prepared rows have 40 columns: 18 raw ones (seven counters, the
/// step time and the kind of both sides) and 22 physics features.
pub(crate) fn dataset(workloads: usize, rows: usize) -> Dataset {
    let mut stream = Seed(1).stream("bench", &[]);
    let mut isolated = Vec::new();
    for index in 0..workloads {
        let mut ratio = || stream.random::<f64>();
        isolated.push(IsolatedRow {
            trial_id: format!("alone_{index}"),
            workload: format!("workload_{index:05}"),
            family: format!("family_{:04}", index / 4),
            kind: if index % 2 == 0 { "training" } else { "inference" }.into(),
            device_kind: "simulated".into(),
            device: "h100".into(),
            source: "bench".into(),
            share_ratio: 1.0,
            step_seconds: 0.01 + ratio(),
            kernel_active_ratio: ratio(),
            sm_active_ratio: ratio(),
            tensor_active_ratio: ratio(),
            fp32_active_ratio: ratio(),
            fp64_active_ratio: ratio(),
            l2_throughput_ratio: ratio(),
            dram_throughput_ratio: ratio(),
            counters_status: "ok".into(),
            outcome: "ok".into(),
            ..IsolatedRow::default()
        });
    }
    let pairs: Vec<PairRow> = (0..rows)
        .map(|row| {
            let subject = &isolated[row % workloads];
            let co_runner = &isolated[(row / workloads * 7 + row * 3 + 1) % workloads];
            let excess = |s: f64, c: f64| (s + c - 1.0).max(0.0);
            let law = 1.0
                + 0.5 * excess(subject.sm_active_ratio, co_runner.sm_active_ratio)
                + 0.8 * excess(subject.dram_throughput_ratio, co_runner.dram_throughput_ratio)
                + 0.3 * subject.l2_throughput_ratio * co_runner.l2_throughput_ratio;
            PairRow {
                trial_id: format!("trial_{row}"),
                side: "a".into(),
                subject_workload: subject.workload.clone(),
                subject_family: subject.family.clone(),
                co_runner_workload: co_runner.workload.clone(),
                co_runner_family: co_runner.family.clone(),
                device_kind: "simulated".into(),
                device: "h100".into(),
                sharing: "time_slice".into(),
                slowdown_ratio: law * (1.0 + 0.06 * (stream.random::<f64>() - 0.5)),
                outcome: "ok".into(),
                ..PairRow::default()
            }
        })
        .collect();
    let provenance = Provenance {
        elastico_version: "0.0.0".into(),
        device_kind: DeviceKind::Simulated,
        device: "sim:h100".into(),
        seed: None,
        source: "bench".into(),
        source_digest: None,
        facts: BTreeMap::new(),
    };
    Dataset::new(Table::isolated(&isolated), Table::pairs(&pairs), provenance, BTreeMap::new())
        .expect("the rows are sound")
}
