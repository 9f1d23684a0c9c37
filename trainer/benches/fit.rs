//! Fitting beside scikit-learn and LightGBM, and featurising, at the sizes that the documents state.
//!
//! The peers fit the same prepared rows with the same settings and all cores, in turns within one run; they need numpy,
//! scikit-learn and lightgbm in the workspace's `.venv`. The own time includes imputing and the physics features.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench may panic, and prints its ratios")]

mod made_up;

use criterion::{Criterion, criterion_group, criterion_main};
use elastico_core::{Estimate, Seed};
use elastico_models::{Body, physics, prepare};
use elastico_trainer::{ExampleOptions, Examples, LearnerKind, LearnerOptions, fit};
use made_up::dataset;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROWS: usize = 20_000;
const TEST_ROWS: usize = 5_000;
const REPEATS: usize = 6;
const LIMIT: f64 = 1.2;

/// The first rows to fit on, the others to test on.
fn halves() -> (Examples, Examples) {
    let all = Examples::from_dataset(&dataset(2_000, ROWS + TEST_ROWS), &ExampleOptions::default()).unwrap();
    let part = |rows: std::ops::Range<usize>| {
        let width = all.schema.width();
        Examples {
            features: all.features[rows.start * width..rows.end * width].to_vec(),
            slowdown: all.slowdown[rows.clone()].to_vec(),
            interval: all.interval[rows.clone()].to_vec(),
            groups: all.groups.subset(&rows.map(|row| row as u32).collect::<Vec<_>>()),
            ..all.clone()
        }
    };
    (part(0..ROWS), part(ROWS..all.rows()))
}

/// Prepared rows as the body reads them.
fn prepared(examples: &Examples) -> (usize, Vec<f32>) {
    let spec = physics(&examples.schema);
    let width = examples.schema.width();
    let mut out = Vec::new();
    for row in 0..examples.rows() {
        prepare(&spec, &vec![0.0; width], examples.row(row), &mut out);
    }
    (width + spec.width(), out)
}

fn log_slowdown(examples: &Examples) -> Vec<f64> {
    examples.slowdown.iter().map(|slowdown| slowdown.ln()).collect()
}

/// Mean absolute error of the log slowdown.
fn error(body: &Body, width: usize, rows: &[f32], truth: &[f64]) -> f64 {
    let Body::Forest(forest) = body else { panic!("not a forest") };
    let errors =
        rows.chunks_exact(width).zip(truth).map(|(row, y)| (forest.evaluate(row).unwrap() - y).abs());
    errors.sum::<f64>() / truth.len() as f64
}

/// CPU time of this process, all threads.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

fn beside_python(_: &mut Criterion) {
    let (train, test) = halves();
    let mut settings = LearnerOptions::default();
    settings.extra_trees.trees = 100;
    let (width, rows) = prepared(&train);
    let (_, test_rows) = prepared(&test);
    let truth = log_slowdown(&test);
    assert_eq!((width, train.rows()), (40, ROWS));
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: Vec<u8>| std::fs::write(folder.path().join(name), bytes).unwrap();
    let singles = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let doubles = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    write("x.f32", singles(&rows));
    write("test_x.f32", singles(&test_rows));
    write("y.f64", doubles(&log_slowdown(&train)));
    write("test_y.f64", doubles(&truth));
    let mut described = serde_json::to_value(&settings).unwrap();
    described["width"] = width.into();
    write("settings.json", described.to_string().into_bytes());
    let Some(mut peer) = Peer::start(folder.path()) else { return };
    println!("{}", peer.version);
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for learner in [LearnerKind::ExtraTrees, LearnerKind::Boosting] {
        let name = learner.as_str();
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let mut times: [Vec<f64>; 6] = Default::default();
        let mut errors = (0.0, 0.0);
        for repeat in 0..REPEATS {
            let (start, cpu) = (Instant::now(), cpu_seconds());
            let body = fit(&train, learner, &settings, LIMIT, Seed(repeat as u64)).unwrap();
            let own = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
            let theirs = peer.fit(name);
            let values = [own.0, theirs[0], own.0 / theirs[0], own.1, theirs[1], own.1 / theirs[1]];
            for (all, value) in times.iter_mut().zip(values) {
                all.push(value);
            }
            errors.0 += error(&body, width, &test_rows, &truth) / REPEATS as f64;
            errors.1 += theirs[2] / REPEATS as f64;
        }
        let [wall, their_wall, wall_ratios, cpu, their_cpu, cpu_ratios] = &times;
        for (what, own, theirs, ratios) in
            [("wall", wall, their_wall, wall_ratios), ("CPU", cpu, their_cpu, cpu_ratios)]
        {
            let ratio = Estimate::geometric(ratios, 0.95).expect("several repeats");
            println!(
                "{name} on {ROWS} x {width}, {what}: own {:.2} s, peer {:.2} s (medians); own / peer {:.2}, 95 % interval {:.2} \
                 to {:.2}, {REPEATS} repeats in turns",
                elastico_core::median(own),
                elastico_core::median(theirs),
                ratio.point,
                ratio.lower,
                ratio.upper,
            );
        }
        println!(
            "{name}: error of the log slowdown on {TEST_ROWS} other rows: own {:.4}, peer {:.4}",
            errors.0, errors.1
        );
        // Both must have done the same work.
        assert!((errors.0 / errors.1).ln().abs() < 0.1, "{errors:?}");
    }
    peer.stop();
}

struct Peer {
    child: Child,
    answers: std::io::Lines<BufReader<std::process::ChildStdout>>,
    version: String,
}

impl Peer {
    fn start(folder: &Path) -> Option<Self> {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let python = root.join(".venv/bin/python");
        if !python.exists() {
            println!("skipped: there is no .venv/bin/python");
            return None;
        }
        let mut child = Command::new(python)
            .arg(root.join("trainer/benches/fit_peer.py"))
            .arg(folder)
            // LightGBM's threads wait by spinning, which on a busy machine costs it many times its work.
            .env("OMP_WAIT_POLICY", "passive")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        if let Some(Ok(version)) = answers.next() {
            return Some(Self { child, answers, version });
        }
        println!("skipped: the peer does not start; it needs numpy, scikit-learn and lightgbm in .venv");
        child.wait().unwrap();
        None
    }

    /// Wall seconds, CPU seconds and error.
    fn fit(&mut self, learner: &str) -> [f64; 3] {
        writeln!(self.child.stdin.as_mut().unwrap(), "{learner}").unwrap();
        let answer = self.answers.next().unwrap().unwrap();
        let numbers: Vec<f64> = answer.split(' ').map(|number| number.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    }

    fn stop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
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

criterion_group!(benches, beside_python, featurising);
criterion_main!(benches);
