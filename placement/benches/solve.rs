//! Time of a cold solve by size, and of the next round from the prices of the last one.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use elastico_core::Seed;
use elastico_models::Profiles;
use elastico_placement::{
    Allocator, Cluster, Job, Jobs, MeasuredShape, Options, PairOutcome, PairTable, Placement,
};
use std::hint::black_box;
use std::time::Duration;

#[path = "generator.rs"]
mod generator;
use generator::{Size, generate};

fn describe(name: &str, placement: &Placement) -> String {
    format!(
        "{name} value {:.1} bound {:.1} gap {:.3} % calls {} rounds {} pairs {}",
        placement.value,
        placement.bound,
        placement.gap * 100.0,
        placement.prices.calls,
        placement.prices.rounds,
        placement.pairs()
    )
}

fn solve(criterion: &mut Criterion) {
    let sizes = [
        (
            "shapes",
            Size { training: 1_200, inference: 800, gpus: 512, per_node: 8, pools: 2, most_gpus: 32 },
            false,
        ),
        ("pairs", Size { training: 70, inference: 70, gpus: 64, per_node: 8, pools: 1, most_gpus: 4 }, true),
        (
            "pairs",
            Size { training: 500, inference: 500, gpus: 512, per_node: 8, pools: 1, most_gpus: 4 },
            true,
        ),
    ];
    let options = Options::default();
    let profiles = Profiles::default();
    let mut group = criterion.benchmark_group("solve");
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_secs(1));
    for (name, size, shares) in sizes {
        let sharing = if shares { options.sharing.clone() } else { Vec::new() };
        let made = generate(size, Seed(1), &sharing);
        let table = shares.then_some(&made.table);
        let allocator = Allocator::new(made.cluster, options.clone());
        let cold = allocator.solve_with(&made.jobs, &profiles, table, None).expect("the instance is valid");
        let id = format!("{name}/{}x{}@{}", size.training, size.inference, size.gpus);
        let text = describe(&id, &cold);
        group.bench_function(BenchmarkId::new("cold", text), |bencher| {
            bencher.iter(|| black_box(allocator.solve_with(&made.jobs, &profiles, table, None)));
        });
        group.bench_function(BenchmarkId::new("warm", &id), |bencher| {
            bencher
                .iter(|| black_box(allocator.solve_with(&made.jobs, &profiles, table, Some(&cold.prices))));
        });
    }
    group.finish();
}

criterion_group!(benches, solve);
criterion_main!(benches);
