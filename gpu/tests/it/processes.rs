//! The ring between two threads and between two processes.

use elastico_gpu::ring::{Command, Producer, Ring, Step, WorkerState, monotonic_nanoseconds, remove_stale};
use std::path::Path;
use std::time::{Duration, Instant};

/// Set for the child: the ring to write to. The parent runs this same test binary as the worker.
const RING: &str = "ELASTICO_TEST_RING";
const COUNT: u64 = 200_000;

/// Writes `COUNT` steps, waiting where the ring is full, then obeys until told to stop.
fn produce(path: &Path) {
    let mut producer = Producer::open(path).expect("the parent made the ring");
    let mut obeyed = 0;
    while !producer.wait_beyond(obeyed, Duration::from_secs(20)) {}
    let (command, phase) = producer.command();
    assert_eq!(command, Command::Run);
    producer.set_state(WorkerState::Running, phase);
    obeyed = phase;
    for index in 0..COUNT {
        let step = Step { phase, start: index, end: index * 3, busy: !index };
        while !producer.push(step) {
            std::thread::yield_now();
        }
        producer.beat();
    }
    producer.set_state(WorkerState::Parked, phase);
    while !producer.wait_beyond(obeyed, Duration::from_secs(20)) {}
    assert_eq!(producer.command().0, Command::Stop);
}

fn consume(ring: &mut Ring) {
    let phase = ring.send(Command::Run, 0);
    let mut steps = Vec::new();
    let deadline = Instant::now() + Duration::from_mins(1);
    while steps.len() < COUNT as usize {
        if ring.drain(&mut steps) == 0 {
            std::thread::yield_now();
        }
        assert!(Instant::now() < deadline, "{} of {COUNT} steps, {:?}", steps.len(), ring.status());
    }
    for (index, step) in (0..COUNT).zip(&steps) {
        assert_eq!(*step, Step { phase, start: index, end: index * 3, busy: !index });
    }
    assert!(ring.status().heartbeat >= COUNT);
    ring.send(Command::Stop, 0);
}

#[test]
fn two_threads_lose_and_tear_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = Ring::create(folder.path(), "threads", 64).unwrap();
    let path = ring.path().to_owned();
    let worker = std::thread::spawn(move || produce(&path));
    consume(&mut ring);
    worker.join().unwrap();
}

#[test]
fn two_processes_lose_and_tear_nothing() {
    if let Some(path) = std::env::var_os(RING) {
        return produce(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut ring = Ring::create(folder.path(), "processes", 64).unwrap();
    let mut worker = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::two_processes_lose_and_tear_nothing", "--nocapture"])
        .env(RING, ring.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    consume(&mut ring);
    assert!(worker.wait().unwrap().success());
}

#[test]
fn the_clock_is_one_for_all_and_runs_forward() {
    let first = monotonic_nanoseconds();
    std::thread::sleep(Duration::from_millis(2));
    let second = std::thread::spawn(monotonic_nanoseconds).join().unwrap();
    assert!(second - first >= 2_000_000);
}

#[test]
fn a_killed_coordinator_leaves_a_ring_that_the_next_one_sweeps() {
    const FOLDER: &str = "ELASTICO_TEST_FOLDER";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let _ring = Ring::create(Path::new(&folder), "left", 8).unwrap();
        std::process::abort();
    }
    let folder = tempfile::tempdir().unwrap();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::a_killed_coordinator_leaves_a_ring_that_the_next_one_sweeps"])
        .env(FOLDER, folder.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success());
    assert_eq!(remove_stale(folder.path()).unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
