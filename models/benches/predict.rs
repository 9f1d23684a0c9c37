//! How long predictions take, rows included: one, and as many as a placement round asks for.
//!
//! The peer is Python's onnxruntime on the same file and the same pairs, in turns within one run; it needs numpy and
//! onnxruntime in the workspace's `.venv`. Both sides begin with the profiles in memory: they look up the values of
//! each workload once, put a row of them together for each pair, and predict with all cores. On a machine that has other
//! work to do, the processor time of both, which is printed too, says more than the clock.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench may panic; it prints its ratio, and the tests' helpers why they skip"
)]

#[path = "../tests/it/support.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use elastico_core::{Estimate, Seed, SharingMode};
use elastico_models::{
    Backend, DomainDistance, FeatureSchema, Prediction, Predictor, Profiles, Side, WorkloadProfile, export,
    load_bytes,
};
use rand::RngExt as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WORKLOADS: usize = 300;
const PAIRS: usize = 100_000;
const SHARING: [&str; 4] = ["time_slice", "mps(0.25,0.75)", "mps(0.5,0.5)", "mps(0.75,0.25)"];

/// A file of the size that is shipped: 100 trees with 256 leaves, and the most prototypes.
fn model(profiles: &[&WorkloadProfile], pairs: &[[u32; 3]]) -> (Vec<u8>, FeatureSchema) {
    let schema = FeatureSchema::standard();
    let rows = rows(&schema, profiles, &pairs[..2000]);
    let mut spec = support::model_of(schema, &rows, |prepared| support::forest(prepared, 100, 8));
    let distance = DomainDistance::fit(&spec.schema, &rows, &spec.impute, 128, Seed(1));
    let limit = DomainDistance::limit_for(&distance.distances(&rows), 0.9);
    spec.domain_distance = Some(distance.with_limit(limit));
    (export(&spec).unwrap(), spec.schema)
}

/// Pairs as places of subject, co-runner and sharing mode.
fn pairs() -> Vec<[u32; 3]> {
    let mut random = support::random("pairs");
    let sizes = [WORKLOADS, WORKLOADS, SHARING.len()];
    (0..PAIRS).map(|_| sizes.map(|size| random.random_range(0..size) as u32)).collect()
}

/// What a placement round does: looks each workload up once per side and mode, and puts the rows together.
fn rows(schema: &FeatureSchema, profiles: &[&WorkloadProfile], pairs: &[[u32; 3]]) -> Vec<f32> {
    let modes = SHARING.map(|mode| mode.parse::<SharingMode>().unwrap());
    let sides = |side: Side| {
        modes
            .each_ref()
            .map(|mode| profiles.iter().map(|p| schema.side_values(p, side, mode)).collect::<Vec<_>>())
    };
    let (subjects, co_runners) = (sides(Side::Subject), sides(Side::CoRunner));
    let contexts = modes.each_ref().map(|mode| schema.context_values("h100", mode));
    let mut rows = Vec::with_capacity(pairs.len() * schema.width());
    for [subject, co_runner, mode] in pairs.iter().map(|pair| pair.map(|place| place as usize)) {
        schema.assemble(&subjects[mode][subject], &co_runners[mode][co_runner], &contexts[mode], &mut rows);
    }
    rows
}

fn predict(criterion: &mut Criterion) {
    let (profiles, pairs) = (support::profiles(WORKLOADS), pairs());
    let profiles: Vec<_> = profiles.iter().collect();
    let (bytes, schema) = model(&profiles, &pairs);
    let predictor = load_bytes(&bytes, Backend::Native).unwrap();
    println!("a file of {:.2} MB, {} features", bytes.len() as f64 / 1e6, schema.width());
    {
        let mut group = criterion.benchmark_group("native");
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_secs(2));
        // Pairs in turn: a row that repeats would find its whole path in the cache.
        let mut turns = pairs.iter().cycle();
        let modes = SHARING.map(|mode| mode.parse::<SharingMode>().unwrap());
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("one, encoded from profiles", 1), |bencher| {
            let mut row = Vec::new();
            bencher.iter(|| {
                let [subject, co_runner, mode] = turns.next().expect("a cycle").map(|place| place as usize);
                row.clear();
                schema.encode(profiles[subject], profiles[co_runner], &modes[mode], &mut row);
                predictor.predict(&row)
            });
        });
        let all = rows(&schema, &profiles, &pairs);
        let mut turns = all.chunks_exact(schema.width()).cycle();
        group.bench_function(BenchmarkId::new("one, of a known row", 1), |bencher| {
            bencher.iter(|| predictor.predict(turns.next().expect("a cycle does not end")));
        });
        group.throughput(Throughput::Elements(PAIRS as u64));
        group.bench_function(BenchmarkId::new("rows alone", PAIRS), |bencher| {
            bencher.iter(|| rows(&schema, &profiles, &pairs));
        });
        group.bench_function(BenchmarkId::new("rows and predictions", PAIRS), |bencher| {
            bencher.iter(|| predictor.predict(&rows(&schema, &profiles, &pairs)));
        });
        group.finish();
    }
    beside_python(&bytes, &schema, &profiles, &pairs, &*predictor);
}

/// Runs both in turns and prints the ratio of their times.
fn beside_python(
    bytes: &[u8],
    schema: &FeatureSchema,
    profiles: &[&WorkloadProfile],
    pairs: &[[u32; 3]],
    predictor: &dyn Predictor,
) {
    const REPEATS: usize = 20;
    let Some(python) = support::python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let set = Profiles::new(profiles.iter().map(|profile| (*profile).clone())).unwrap();
    let modes: Vec<_> = SHARING
        .iter()
        .map(|mode| {
            let mode: SharingMode = mode.parse().unwrap();
            let (subject, co_runner) = mode.shares();
            serde_json::json!({"name": mode.family(), "subject": subject, "co_runner": co_runner})
        })
        .collect();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("model.onnx", bytes);
    write("profiles.json", set.to_json().as_bytes());
    write("sharing.json", serde_json::to_string(&modes).unwrap().as_bytes());
    write("pairs.u32", &pairs.iter().flatten().flat_map(|place| place.to_le_bytes()).collect::<Vec<u8>>());
    let Some(mut peer) = Peer::start(&python, folder.path()) else { return };

    let run = || predictor.predict(&rows(schema, profiles, pairs)).unwrap();
    compare(&run(), folder.path());
    let (mut ratios, mut own, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut own_used, mut their_used) = (0.0, 0.0);
    for _ in 0..REPEATS {
        let (start, used) = (Instant::now(), processor_seconds());
        std::hint::black_box(run());
        let seconds = start.elapsed().as_secs_f64();
        own_used += processor_seconds() - used;
        let [their_seconds, used] = peer.seconds();
        their_used += used;
        own.push(seconds);
        theirs.push(their_seconds);
        ratios.push(seconds / their_seconds);
    }
    peer.stop();
    let ratio = Estimate::geometric(&ratios, 0.95).expect("several repeats");
    println!(
        "{PAIRS} predictions, rows included: native {:.1} ms, Python onnxruntime {} {:.1} ms (medians); native / Python {:.3}, \
         95 % interval {:.3} to {:.3}, {REPEATS} repeats in turns",
        elastico_core::median(&own) * 1e3,
        peer.version,
        elastico_core::median(&theirs) * 1e3,
        ratio.point,
        ratio.lower,
        ratio.upper,
    );
    println!(
        "processor time of each: native {:.0} ms, Python {:.0} ms, ratio {:.3}",
        own_used / REPEATS as f64 * 1e3,
        their_used / REPEATS as f64 * 1e3,
        own_used / their_used
    );
}

/// Processor time that this process has used, in clock ticks of 10 ms; NaN where the system does not tell.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in brackets, may hold spaces; user and system time are fields 14 and 15.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks =
        |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(11) + ticks(12)) / 100.0
}

/// Both must have done the same work.
fn compare(own: &[Prediction], folder: &Path) {
    let theirs = std::fs::read(folder.join("peer.f32")).unwrap();
    let theirs: Vec<f32> = theirs.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert_eq!(theirs.len(), 3 * own.len());
    let mut flags = 0;
    for (own, theirs) in own.iter().zip(theirs.chunks_exact(3)) {
        assert!((own.slowdown.get() / f64::from(theirs[0]) - 1.0).abs() < 1e-5, "{own:?} {theirs:?}");
        flags += usize::from(own.in_domain != (theirs[2] > 0.5));
    }
    let inside = own.iter().filter(|prediction| prediction.in_domain).count();
    println!("{inside} of {} rows in the domain, {flags} flags differ", own.len());
    assert!(flags * 10_000 <= own.len(), "only rows at the very limit may be judged differently");
}

struct Peer {
    child: Child,
    answers: std::io::Lines<BufReader<std::process::ChildStdout>>,
    version: String,
}

impl Peer {
    fn start(python: &Path, folder: &Path) -> Option<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/predict_peer.py");
        let mut child = Command::new(python)
            .arg(script)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        if let Some(Ok(version)) = answers.next() {
            return Some(Self { child, answers, version });
        }
        println!("skipped: the peer does not start; it needs numpy and onnxruntime in .venv");
        child.wait().unwrap();
        None
    }

    /// Seconds of one run, on the clock and of the processors.
    fn seconds(&mut self) -> [f64; 2] {
        writeln!(self.child.stdin.as_mut().unwrap(), "go").unwrap();
        let answer = self.answers.next().unwrap().unwrap();
        let mut numbers = answer.split(' ').map(|number| number.parse().unwrap());
        std::array::from_fn(|_| numbers.next().unwrap())
    }

    fn stop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

criterion_group!(benches, predict);
criterion_main!(benches);
