//! Fitting and featurising, at the sizes that the documents state.

use criterion::{Criterion, criterion_group, criterion_main};
use elastico_core::{DeviceKind, Provenance, Seed};
use elastico_datasets::{Dataset, IsolatedRow, PairRow, Table};
use elastico_trainer::{
    EvaluateOptions, ExampleOptions, Examples, LearnerKind, LearnerOptions, Split, evaluate,
};
use rand::RngExt as _;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

/// Workloads in families of four, with counters, and `rows` rows of pairs.
fn dataset(workloads: usize, rows: usize) -> Dataset {
    let mut stream = Seed(1).stream("bench", &[]);
    let mut isolated = Vec::new();
    for index in 0..workloads {
        let mut ratio = || stream.random::<f64>();
        isolated.push(IsolatedRow {
            trial_id: format!("alone_{index}"),
            workload: format!("workload_{index:03}"),
            family: format!("family_{:02}", index / 4),
            kind: if index % 2 == 0 { "training" } else { "inference" }.into(),
            device_kind: "simulated".into(),
            device: "h100".into(),
            source: "bench".into(),
            share_ratio: 1.0,
            step_seconds: 0.01 + ratio(),
            batch_total: (index % 7) as f64 + 1.0,
            step_dram_bytes: 1e9 * ratio(),
            step_l2_bytes: 4e9 * ratio(),
            working_set_bytes: 1e8 * ratio(),
            kernel_active_ratio: ratio(),
            sm_active_ratio: ratio(),
            sm_occupancy_ratio: ratio(),
            tensor_active_ratio: ratio(),
            l2_throughput_ratio: ratio(),
            l2_hit_ratio: ratio(),
            dram_throughput_ratio: ratio(),
            launch_rate_hertz: 1e4 * ratio(),
            counters_status: "ok".into(),
            outcome: "ok".into(),
            ..IsolatedRow::default()
        });
    }
    let pairs: Vec<PairRow> = (0..rows)
        .map(|row| {
            let subject = &isolated[row % workloads];
            let co_runner = &isolated[(row / workloads * 7 + row) % workloads];
            let load = subject.sm_active_ratio + co_runner.sm_active_ratio;
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
                slowdown_ratio: load.max(1.0) * (1.0 + 0.03 * stream.random::<f64>()),
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

fn fits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("extra_trees");
    group.sample_size(10).warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_secs(1));
    for (rows, trees) in [(2_000, 30), (20_000, 10)] {
        let examples = Examples::from_dataset(&dataset(64, rows), &ExampleOptions::default()).expect("rows");
        let width = examples.schema.width();
        // One device of two folds would fit twice; five folds of random pairs fit five times on four fifths.
        let options = EvaluateOptions {
            splits: vec![Split::RandomPair],
            learners: vec![LearnerKind::ExtraTrees],
            settings: LearnerOptions::default().with_trees(trees),
            ..EvaluateOptions::default()
        };
        group.bench_function(
            format!("five folds of {rows} rows x {width} raw features, {trees} trees"),
            |bench| {
                bench.iter(|| evaluate(black_box(&examples), &options));
            },
        );
    }
    group.finish();
}

fn featurising(criterion: &mut Criterion) {
    let dataset = dataset(200, 1_000_000);
    let mut group = criterion.benchmark_group("examples");
    group.sample_size(10).warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_secs(1));
    group.bench_function("1,000,000 rows", |bench| {
        bench.iter(|| Examples::from_dataset(black_box(&dataset), &ExampleOptions::default()));
    });
    group.finish();
}

criterion_group!(benches, fits, featurising);
criterion_main!(benches);
