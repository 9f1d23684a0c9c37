//! Time and certified gap of cold and warm solutions, with HiGHS on the same instances; arrivals at kept prices.
//!
//! HiGHS runs where `.venv/bin/python` of the repository has highspy (`pip install highspy numpy`). It solves the linear
//! relaxation alone: no rounding, no places on nodes.

#![allow(clippy::print_stdout, reason = "gaps and peers belong beside the times")]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use elastico_core::{JobId, Seed};
use elastico_models::Profiles;
use elastico_placement::{
    Allocator, Cluster, Job, Jobs, MeasuredShape, Options, PairOutcome, PairTable, Placement, Session,
    ShapeFamily,
};
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[path = "generator.rs"]
mod generator;
use generator::{Generated, Size, generate};

/// That of the `elastico` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const fn size(training: usize, inference: usize, gpus: u32, pools: u32, most_gpus: u32) -> Size {
    Size { training, inference, gpus, per_node: 8, pools, most_gpus }
}

fn describe(name: &str, placement: &Placement) -> String {
    format!(
        "{name} gap {:.4} % of the bound, {} oracle calls, {} pairs",
        placement.gap * 100.0,
        placement.prices.calls,
        placement.pairs()
    )
}

/// Seconds and optimum of the linear relaxation by HiGHS.
fn highs(name: &str, made: &Generated, options: &Options) -> Option<(f64, f64)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../.venv/bin/python");
    let mut text = String::new();
    for pool in &made.cluster.pool {
        writeln!(text, "{},{}", pool.id, pool.gpu_count()).ok()?;
    }
    text.push('\n');
    for (index, job) in made.jobs.job.iter().enumerate() {
        let family = ShapeFamily::of(job, &made.cluster, &Profiles::default(), options.scaling);
        for shape in &family.shapes {
            let pool = made.cluster.pool.iter().position(|pool| pool.id == shape.pool)?;
            writeln!(text, "{index},{pool},{},{}", shape.gpus, job.weight * shape.normalized_throughput)
                .ok()?;
        }
    }
    let file = std::env::temp_dir().join(format!("elastico-{name}.csv"));
    std::fs::write(&file, text.trim_end()).ok()?;
    let answer = Command::new(python).arg(root.join("benches/highs.py")).arg(&file).output().ok()?;
    let _ = std::fs::remove_file(&file);
    let text = String::from_utf8(answer.stdout).ok()?;
    // HiGHS greets on stdout.
    let (seconds, optimum) = text.trim().lines().last()?.split_once(' ')?;
    Some((seconds.parse().ok()?, optimum.parse().ok()?))
}

fn shapes(criterion: &mut Criterion) {
    let options = Options::default();
    let profiles = Profiles::default();
    let mut group = criterion.benchmark_group("shapes");
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_secs(2));
    for (name, size) in [
        ("180-jobs-64-gpus", size(100, 80, 64, 2, 128)),
        ("2000-jobs-512-gpus", size(1_200, 800, 512, 2, 128)),
        ("20000-jobs-4096-gpus", size(12_000, 8_000, 4_096, 2, 128)),
        ("100000-jobs-16384-gpus", size(60_000, 40_000, 16_384, 2, 128)),
    ] {
        let made = generate(size, Seed(1), &[]);
        let allocator = Allocator::new(made.cluster.clone(), options.clone());
        let solve =
            |earlier| allocator.solve_with(&made.jobs, &profiles, None, earlier).expect("a valid instance");
        let cold = solve(None);
        println!("{}", describe(name, &cold));
        group.bench_function(BenchmarkId::new("cold", name), |bencher| {
            bencher.iter(|| black_box(solve(None)));
        });
        group.bench_function(BenchmarkId::new("warm", name), |bencher| {
            bencher.iter(|| black_box(solve(Some(&cold.prices))));
        });
        if made.jobs.job.len() <= 20_000
            && let Some((seconds, optimum)) = highs(name, &made, &options)
        {
            let begin = Instant::now();
            black_box(solve(None));
            let ours = begin.elapsed().as_secs_f64();
            println!(
                "HiGHS {name}: {:.0} ms for the linear relaxation alone, {:.1} x ours; our bound is {:.4} % above its optimum",
                seconds * 1e3,
                seconds / ours,
                100.0 * (cold.bound / optimum - 1.0)
            );
        }
    }
    group.finish();
}

fn pairs(criterion: &mut Criterion) {
    let options = Options::default();
    let profiles = Profiles::default();
    let mut group = criterion.benchmark_group("pairs");
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_secs(2));
    for (name, size) in [
        ("70+70-jobs-64-gpus", size(70, 70, 64, 1, 4)),
        ("150+150-jobs-64-gpus", size(150, 150, 64, 1, 4)),
        ("500+500-jobs-512-gpus", size(500, 500, 512, 1, 4)),
        ("1000+1000-jobs-512-gpus", size(1_000, 1_000, 512, 1, 4)),
    ] {
        let made = generate(size, Seed(1), &options.sharing);
        let allocator = Allocator::new(made.cluster.clone(), options.clone());
        let solve =
            |table| allocator.solve_with(&made.jobs, &profiles, table, None).expect("a valid instance");
        let joint = solve(Some(&made.table));
        let exclusive = solve(None);
        let sequential = sequential(&allocator, &made.jobs, &made.table, &exclusive);
        println!("{}", describe(name, &joint));
        println!(
            "{name}: joint {:.4} of its bound, shapes first and pairs afterwards {:.4}, exclusive {:.4}",
            joint.value / joint.bound,
            sequential.value / joint.bound,
            exclusive.value / joint.bound
        );
        group.bench_function(BenchmarkId::new("cold", name), |bencher| {
            bencher.iter(|| black_box(solve(Some(&made.table))));
        });
    }
    // Many jobs of few workloads.
    let name = "6000-jobs-of-200-workloads-3000-gpus";
    let made = repeated(&generate(size(100, 100, 3_000, 1, 4), Seed(1), &options.sharing), 30);
    let allocator = Allocator::new(made.cluster.clone(), options.clone());
    let solve = || {
        let solved = allocator.solve_with(&made.jobs, &profiles, Some(&made.table), None);
        solved.expect("a valid instance")
    };
    println!("{}", describe(name, &solve()));
    group.bench_function(BenchmarkId::new("cold", name), |bencher| bencher.iter(|| black_box(solve())));
    group.finish();
}

/// So many jobs of each workload, with weights of their own.
fn repeated(made: &Generated, times: usize) -> Generated {
    let mut repeated = Generated { jobs: Jobs { job: Vec::new() }, ..made.clone() };
    for round in 0..times {
        for (at, job) in made.jobs.job.iter().enumerate() {
            let mut job = job.clone();
            job.id = JobId::new(format!("{}-{round}", job.id)).expect("a plain name");
            job.weight *= 0.5 + ((at * 31 + round * 17) % 97) as f64 / 97.0;
            repeated.jobs.job.push(job);
        }
    }
    repeated
}

/// Shapes without a thought of pairs, then the best pairs of jobs in these shapes; who waits asks for one GPU.
fn sequential(allocator: &Allocator, jobs: &Jobs, table: &PairTable, exclusive: &Placement) -> Placement {
    let mut fixed = jobs.clone();
    for job in &mut fixed.job {
        match exclusive.assignment(job.id.as_str()) {
            Some(assignment) => {
                (job.gpus_min, job.gpus_max) = (assignment.shape.gpus, Some(assignment.shape.gpus));
                job.pools = vec![assignment.pool.clone()];
            }
            None => (job.gpus_min, job.gpus_max) = (1, Some(1)),
        }
        let (least, most) = (job.gpus_min, job.most_gpus());
        // The reference stays the job's fastest single GPU, so that values compare.
        job.shape.retain(|shape| shape.gpus == 1 || (least..=most).contains(&shape.gpus));
    }
    allocator.solve_with(&fixed, &Profiles::default(), Some(table), None).expect("a valid instance")
}

fn arrivals(_: &mut Criterion) {
    let options = Options::default();
    let made = generate(size(2_500, 2_500, 4_096, 2, 4), Seed(1), &[]);
    time_arrivals("4,096 GPUs, no pairs", &made, None, &options);
    // As a cluster has it: thousands of jobs of a few dozen workloads.
    let mut made = generate(size(2_000, 2_000, 4_096, 2, 4), Seed(1), &[]);
    let classes = generate(size(32, 32, 64, 2, 4), Seed(2), &options.sharing);
    for (at, job) in made.jobs.job.iter_mut().enumerate() {
        let of_kind = classes.jobs.job.iter().filter(|class| class.kind == job.kind);
        job.workload = of_kind.cycle().nth(at % 32).and_then(|class| class.workload.clone());
    }
    time_arrivals("4,096 GPUs, with pairs", &made, Some(&classes.table), &options);
}

fn time_arrivals(name: &str, made: &Generated, table: Option<&PairTable>, options: &Options) {
    let allocator = Allocator::new(made.cluster.clone(), options.clone());
    let profiles = Profiles::default();
    let mut session = Session::new(&allocator, &profiles, table).expect("valid options");
    for job in &made.jobs.job {
        session.submit(job.clone()).expect("a new job");
    }
    session.solve().expect("a valid instance");
    let mut seconds: Vec<f64> = Vec::new();
    for job in made.jobs.job.iter().cycle().take(10_000) {
        session.finish(job.id.as_str()).expect("the job is here");
        let begin = Instant::now();
        black_box(session.submit(job.clone()).expect("the job left"));
        seconds.push(begin.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let at = |share: f64| seconds[(share * (seconds.len() - 1) as f64) as usize] * 1e6;
    println!("arrival, {name}: median {:.0} us, p99 {:.0} us (n 10,000)", at(0.5), at(0.99));
}

/// Rounds of a simulator: 64 GPUs, 150 jobs with pairs, one job exchanged before each.
fn rounds(_: &mut Criterion) {
    let options = Options::default();
    let made = generate(size(75, 75, 64, 1, 4), Seed(1), &options.sharing);
    let allocator = Allocator::new(made.cluster.clone(), options);
    let profiles = Profiles::default();
    let mut session = Session::new(&allocator, &profiles, Some(&made.table)).expect("valid options");
    for job in &made.jobs.job {
        session.submit(job.clone()).expect("a new job");
    }
    session.solve().expect("a valid instance");
    let mut seconds: Vec<f64> = Vec::new();
    let (mut gap, mut restarts) = (0.0_f64, 0);
    for job in made.jobs.job.iter().cycle().take(300) {
        session.finish(job.id.as_str()).expect("the job is here");
        session.submit(job.clone()).expect("the job left");
        let begin = Instant::now();
        let placement = black_box(session.solve().expect("a valid instance"));
        seconds.push(begin.elapsed().as_secs_f64());
        gap = gap.max(placement.gap);
        restarts += placement.assignments.iter().filter(|run| run.restarts).count();
    }
    seconds.sort_by(f64::total_cmp);
    let at = |share: f64| seconds[(share * (seconds.len() - 1) as f64) as usize] * 1e3;
    println!(
        "round at 64 GPUs, 150 jobs, pairs: median {:.1} ms, p99 {:.1} ms, largest gap {:.3} %, {:.2} restarts a round (n 300)",
        at(0.5),
        at(0.99),
        gap * 100.0,
        restarts as f64 / 300.0
    );
}

criterion_group!(benches, shapes, pairs, arrivals, rounds);
criterion_main!(benches);
