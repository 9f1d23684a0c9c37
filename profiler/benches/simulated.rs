//! How fast trials go on a simulated chip, without a journal. Figures in the commit that changed them.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use elastico_profiler::devices::simulated::Simulated;
use elastico_profiler::{Campaign, Device, Plan, Role, protocol};
use elastico_workloads::Catalogue;
use std::path::Path;

/// Repeats 0 to 2 of random pairs of the whole catalogue, first repeats on a device that knows no pair yet.
fn pair_trials(criterion: &mut Criterion) {
    let catalogue = Catalogue::bundled();
    let mut group = criterion.benchmark_group("pair_trials");
    group.sample_size(10);
    let pairs = 500;
    let text = format!(
        "schema = 1\nname = \"bench\"\ndevice = \"sim:h100\"\nsharing = [\"mps\"]\nmax_pairs = {pairs}\n[workloads]\nsubjects = [\"*\"]\n"
    );
    let campaign = Campaign::parse(&text, Path::new("bench.toml")).expect("the text is a campaign");
    let plan = Plan::new(&campaign, &catalogue, Simulated::new("h100").expect("a chip").identity())
        .expect("the catalogue has pairs");
    let cells: Vec<_> = plan.cells.iter().filter(|cell| cell.role == Role::Pair).collect();
    group.throughput(Throughput::Elements(3 * cells.len() as u64));
    group.bench_function(BenchmarkId::new("three_repeats", pairs), |bencher| {
        bencher.iter(|| {
            let mut device = Simulated::new("h100").expect("a chip");
            for repeat in 0..3 {
                for cell in &cells {
                    let trial = cell.trial(repeat);
                    let subject = catalogue.get(cell.subject.as_str()).expect("planned");
                    let co_runner =
                        cell.co_runner.as_ref().map(|id| catalogue.get(id.as_str()).expect("planned"));
                    let observation = protocol::measure(
                        &mut device,
                        &trial,
                        subject,
                        co_runner,
                        &plan.header.protocol,
                        plan.header.level,
                        plan.header.seed,
                    );
                    assert!(observation.measured.is_some());
                }
            }
        });
    });
    group.finish();
}

criterion_group!(benches, pair_trials);
criterion_main!(benches);
