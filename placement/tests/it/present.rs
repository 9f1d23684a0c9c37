//! What jobs say about the present is held to what can be, and to what a better placement must bring.

use elastico_models::Profiles;
use elastico_placement::{Allocator, Cluster, Jobs, Options, check};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const CLUSTER: &str =
    "[[pool]]\nid = \"a\"\ndevice = \"h100\"\nnodes = 2\ngpus_per_node = 8\nhost_cores = 6\n";

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn cluster() -> Cluster {
    Cluster::from_toml(CLUSTER, Path::new("cluster.toml")).unwrap()
}

fn read(currents: &[&str]) -> Result<Jobs, String> {
    let job = |(at, current): (usize, &&str)| {
        let current = if current.is_empty() { String::new() } else { format!("current = {{ {current} }}\n") };
        format!("[[job]]\nid = \"j{at}\"\n{current}shape = [{{ step_seconds = 1.0 }}]\n")
    };
    let text = currents.iter().enumerate().map(job).collect::<Vec<_>>().concat();
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("present-{}", FILES.fetch_add(1, Relaxed)));
    let path = folder.join("jobs.toml");
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|error| error.to_string())?;
    Jobs::read_on(&path, &cluster()).map_err(|error| error.to_string())
}

#[test]
fn a_present_that_cannot_be_is_refused_with_its_line() {
    for (currents, words) in [
        (vec!["pool = \"zz\", gpus = 3"], "pool `zz`, the cluster has no such pool"),
        (vec!["pool = \"a\", gpus = 17"], "the pool has 16"),
        (vec!["pool = \"a\", nodes = [{ node = 7, gpus = [0] }]"], "the pool has 2 nodes"),
        (vec!["pool = \"a\", nodes = [{ node = 1, gpus = [9] }]"], "the node has 8"),
        (vec!["pool = \"a\", nodes = [{ node = 1, gpus = [] }]"], "no GPU of it is named"),
        (vec!["pool = \"a\", nodes = [{ node = 1, gpus = [2, 3] }]"], "its nodes name 2"),
        (vec!["pool = \"a\", gpus = 2, nodes = [{ node = 1, gpus = [2, 2] }]"], "named twice"),
        (
            vec!["pool = \"a\", gpus = 2, nodes = [{ node = 1, gpus = [2] }, { node = 1, gpus = [3] }]"],
            "named twice",
        ),
        (vec!["pool = \"a\", beside = \"ghost\""], "there is no such job"),
        (vec!["pool = \"a\", beside = \"j1\"", ""], "it waits"),
        (vec!["pool = \"a\", beside = \"j1\"", "pool = \"a\", beside = \"j2\"", ""], "runs beside `j2`"),
        (
            vec![
                "pool = \"a\", nodes = [{ node = 0, gpus = [1] }]",
                "pool = \"a\", nodes = [{ node = 0, gpus = [1] }]",
            ],
            "job `j0` has that GPU",
        ),
        (
            vec!["pool = \"a\", gpus = 8", "pool = \"a\", gpus = 8", "pool = \"a\""],
            "with the jobs before it that is 17 GPUs, the pool has 16",
        ),
        (
            vec![
                "pool = \"a\", gpus = 15",
                "pool = \"a\", nodes = [{ node = 1, gpus = [7] }]",
                "pool = \"a\", beside = \"j3\"",
                "pool = \"a\"",
            ],
            "that is 17 GPUs",
        ),
        (
            vec!["pool = \"a\", beside = \"j2\"", "pool = \"a\", beside = \"j2\"", "pool = \"a\""],
            "job `j0` runs beside it already",
        ),
    ] {
        let error = read(&currents).expect_err(words);
        assert!(error.contains(words) && error.contains("jobs.toml:"), "{words}: {error}");
    }
    let good = ["pool = \"a\", nodes = [{ node = 0, gpus = [1] }]", "pool = \"a\"", ""];
    assert!(read(&good).is_ok());
    let pair = [
        "pool = \"a\", beside = \"j1\", nodes = [{ node = 0, gpus = [1] }]",
        "pool = \"a\", nodes = [{ node = 0, gpus = [1] }]",
    ];
    assert!(read(&pair).is_ok(), "{:?}", read(&pair));
    // A pair has one GPU, whoever of both names the other.
    let full = ["pool = \"a\", gpus = 14", "pool = \"a\", beside = \"j2\"", "pool = \"a\"", "pool = \"a\""];
    assert!(read(&full).is_ok(), "{:?}", read(&full));
    let both = ["pool = \"a\", gpus = 15", "pool = \"a\", beside = \"j2\"", "pool = \"a\", beside = \"j1\""];
    assert!(read(&both).is_ok(), "{:?}", read(&both));
}

/// Who loses its GPUs is no job like the others that wait.
#[test]
fn a_job_that_must_stop_is_told_from_one_that_waits() {
    let text = "[[job]]\nid = \"runs\"\nhost_cores = 0\ngpus_min = 16\nshape = [{ gpus = 16, step_seconds = 1 }]\n\
         current = { pool = \"a\", gpus = 16 }\n\
         [[job]]\nid = \"comes\"\nhost_cores = 0\nweight = 5\ngpus_min = 16\nshape = [{ gpus = 16, step_seconds = 1 }]\n\
         [[job]]\nid = \"small\"\nweight = 0.01\nshape = [{ step_seconds = 1 }]\n\
         [[job]]\nid = \"gone\"\npools = [\"b\"]\nshape = [{ step_seconds = 1 }]\ncurrent = { pool = \"b\" }\n";
    let jobs = Jobs::from_toml(text, Path::new("jobs.toml")).unwrap();
    let allocator = Allocator::new(cluster(), Options::default());
    let placement = allocator.solve(&jobs, &Profiles::default(), None).unwrap();
    let stops: Vec<(&str, bool, bool)> = placement
        .waiting
        .iter()
        .map(|job| (job.job.as_str(), job.stops, job.detail().ends_with("; it runs now and must stop")))
        .collect();
    assert_eq!(stops, [("runs", true, true), ("small", false, false), ("gone", true, true)], "{placement}");
    assert!(placement.summary().starts_with("1 job on 16 GPUs, 0 pairs, 3 waiting, 2 of them must stop;"));
    // A file says it too, and once.
    let json = serde_json::to_value(&placement).unwrap();
    assert_eq!((&json["waiting"][0]["stops"], &json["waiting"][1]["stops"]), (&true.into(), &false.into()));
    let again: elastico_placement::Placement = serde_json::from_value(json).unwrap();
    assert_eq!(again, placement);
    let why = allocator.explain(&placement, &jobs, &Profiles::default(), None, "runs").unwrap();
    assert!(why.to_string().contains("it runs now and must stop"), "{why}");
}

#[test]
fn pools_that_the_cluster_lacks_are_named() {
    let jobs = Jobs::from_toml(
        "[[job]]\nid = \"j\"\npools = [\"zzz\"]\nshape = [{ pool = \"aa\", step_seconds = 1.0 }]\n",
        Path::new("jobs.toml"),
    )
    .unwrap();
    let words = jobs.unknown_pools(&cluster());
    assert_eq!(words.len(), 2, "{words:?}");
    assert!(words.iter().any(|words| words.contains("`zzz`, which `pools` of job `j` names")), "{words:?}");
}

#[test]
fn extreme_numbers_are_refused() {
    for (field, words) in [
        ("weight = 1e13", "weight is 1e13, it must be 0, or between 1e-9 and 1e12"),
        ("weight = 1e-300", "weight is 1e-300"),
        ("shape = [{ step_seconds = 5e-324 }]", "step_seconds is 5e-324"),
        ("shape = [{ throughput_hertz = 1e300 }]", "throughput_hertz is 1e300"),
    ] {
        let shape = if field.starts_with("shape") { "" } else { "shape = [{ step_seconds = 1.0 }]\n" };
        let text = format!("[[job]]\nid = \"j\"\n{field}\n{shape}");
        let error = Jobs::from_toml(&text, Path::new("jobs.toml")).expect_err(field).to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(
        Jobs::from_toml(
            "[[job]]\nid = \"j\"\nweight = 0\nshape = [{ step_seconds = 1 }]\n",
            Path::new("j.toml")
        )
        .is_ok()
    );
}

/// Seats go by size; a job that is worth more than those that sit takes their place.
#[test]
fn who_is_worth_most_finds_a_node() {
    let text = "[[job]]\nid = \"wide\"\ngpus_min = 4\nshape = [{ gpus = 4, step_seconds = 1.0 }]\n\
         [[job]]\nid = \"wide2\"\ngpus_min = 4\nshape = [{ gpus = 4, step_seconds = 1.0 }]\n\
         [[job]]\nid = \"heavy\"\nweight = 100\nhost_cores = 4\nshape = [{ step_seconds = 1.0 }]\n";
    let jobs = Jobs::from_toml(text, Path::new("jobs.toml")).unwrap();
    let placement =
        Allocator::new(cluster(), Options::default()).solve(&jobs, &Profiles::default(), None).unwrap();
    assert_eq!(check(&placement, &cluster()), vec![]);
    assert!((placement.value - 101.0).abs() < 1e-9, "{placement}");
}

/// Two answers of equal value: the one that is there stays.
#[test]
fn nobody_moves_for_nothing() {
    let job = |at: usize| {
        let (node, gpu) = (1 - at / 6, (at % 6) + 2);
        format!(
            "[[job]]\nid = \"j{at}\"\ngpus_max = 2\nhost_cores = 1\n\
             shape = [{{ step_seconds = 1.0 }}, {{ gpus = 2, step_seconds = 0.6 }}]\n\
             current = {{ pool = \"a\", nodes = [{{ node = {node}, gpus = [{gpu}] }}] }}\n"
        )
    };
    let text = (0..12).map(job).collect::<Vec<_>>().concat();
    let jobs = Jobs::from_toml(&text, Path::new("jobs.toml")).unwrap();
    let placement =
        Allocator::new(cluster(), Options::default()).solve(&jobs, &Profiles::default(), None).unwrap();
    assert!(placement.assignments.iter().all(|run| !run.restarts), "{placement}");
}
