//! Against numbers of other simulators, on data that is not part of this repository.

use elastico_simulator::{ClusterSpec, Options, PolicyKind, TimeUnit, Trace, simulate};
use std::path::PathBuf;

#[expect(clippy::print_stdout, reason = "says why nothing is tested")]
pub(super) fn shared(file: &str) -> Option<PathBuf> {
    let root = std::env::var_os("ELASTICO_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")), PathBuf::from);
    let path = root.join("data/traces").join(file);
    if !path.exists() {
        println!("skipped: {file} is not under ELASTICO_SHARED");
        return None;
    }
    Some(path)
}

/// Tiresias' own simulator gives a mean JCT of 178.417 s for FIFO on its 60 jobs and 32 nodes of 4 GPUs.
#[test]
fn fifo_agrees_with_tiresias_on_its_sixty_jobs() {
    let (Some(jobs), Some(nodes)) = (shared("tiresias/60_job.csv"), shared("tiresias/n32g4.csv")) else {
        return;
    };
    let trace = Trace::read_tiresias(&jobs, None).unwrap();
    let cluster = ClusterSpec::read_tiresias(&nodes).unwrap();
    assert_eq!(cluster, "n32g4".parse().unwrap());
    assert_eq!(trace.jobs().len(), 60);
    let result = simulate(&trace, &cluster, &PolicyKind::Fifo, None, &Options::default()).unwrap();
    assert!((result.jct_mean_seconds / 178.417 - 1.0).abs() < 0.01, "{}", result.jct_mean_seconds);
}

#[test]
fn muri_traces_are_read_as_milliseconds_with_a_warning() {
    let Some(jobs) = shared("muri/trace1.csv") else { return };
    let trace = Trace::read_tiresias(&jobs, None).unwrap();
    assert!(trace.warnings.iter().any(|warning| warning.to_string().contains("--time-unit milliseconds")));
    let explicit = Trace::read_tiresias(&jobs, Some(TimeUnit::Milliseconds)).unwrap();
    assert_eq!(explicit.jobs(), trace.jobs());
    assert!((trace.jobs()[0].duration_seconds - 2_868_294.0).abs() < 1e-6);
}
