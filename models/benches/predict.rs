//! How long a prediction takes: one row, and a batch as large as a placement round asks for.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench may panic; the prints belong to the tests"
)]

#[path = "../tests/it/support.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use elastico_models::{Backend, export, load_bytes};
use std::time::Duration;

fn predict(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("native");
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    let (spec, rows) = support::model(1000, |prepared| support::forest(prepared, 100, 12));
    let predictor = load_bytes(&export(&spec).unwrap(), Backend::Native).unwrap();
    let width = spec.schema.width();
    for total in [1_usize, 100_000] {
        group.throughput(Throughput::Elements(total as u64));
        // Rows in turn: a row that repeats would find its whole path in the cache.
        let batch: Vec<f32> = rows.iter().copied().cycle().take(total.max(1000) * width).collect();
        let mut turns = batch.chunks_exact(total * width).cycle();
        group.bench_function(BenchmarkId::new("100_trees_of_depth_12", total), |bencher| {
            bencher.iter(|| predictor.predict(turns.next().expect("a cycle does not end")));
        });
    }
    group.finish();
}

criterion_group!(benches, predict);
criterion_main!(benches);
