//! Sweeps: statistics, resuming, threads, and what is refused.

use elastico_core::{Digest, Slowdown};
use elastico_simulator::{SlowdownTable, Sweep, SweepFolder, SweepRun, SweepSummary};
use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const SPEC: &str = r#"schema = "elastico.sweep/1"
baseline = "fifo_backfill"
clusters = ["n2g8"]
loads = [0.8, 1.4]
policies = ["fifo_backfill", "srtf_oracle", "greedy_pairs"]
seeds = 4

[synthetic]
workloads = "workloads.csv"
jobs_per_gpu = 25
inference_share = 0.5
elastic_gpus = [1, 8]
median_seconds = 900

[tables]
truth = "truth.json"
planner = "planner.json"

[scaling]
gpus_per_node = 8
training = { within_node = [0.6, 0.95], across_nodes_loss = 0.2, planner_within_node = 0.7, planner_across_nodes = 0.2 }
inference = { within_node = [0.9, 1.0], across_nodes_loss = 0.2, planner_within_node = 0.95, planner_across_nodes = 0.5 }
"#;

/// A folder with the inputs of the sweep above.
fn inputs() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let workloads = "workload,kind,sm_active_ratio\na,training,0.3\nb,training,0.4\nc,inference,0.2\n";
    fs::write(place.path().join("workloads.csv"), workloads).unwrap();
    for (name, factor) in [("truth", 1.0), ("planner", 1.05)] {
        let mut table = SlowdownTable::new(name);
        for (a, first) in [("a", 1.1), ("b", 1.2), ("c", 1.02)] {
            for (b, second) in [("a", 1.1), ("b", 1.2), ("c", 1.02)] {
                table.set(a, b, Slowdown::new(first * second * factor).unwrap(), None);
            }
        }
        fs::write(place.path().join(format!("{name}.json")), table.to_json().to_string()).unwrap();
    }
    place
}

fn read(place: &Path, spec: &str) -> Sweep {
    Sweep::parse(spec, &place.join("sweep.toml")).unwrap()
}

fn refusal(place: &Path, spec: &str) -> String {
    let error = Sweep::parse(spec, &place.join("sweep.toml")).unwrap_err();
    let hint = elastico_core::Hint::hint(&error).unwrap_or_default();
    format!("{error}; {hint}").replace(&format!("{}/", place.display()), "")
}

fn run(sweep: &Sweep, threads: usize) -> BTreeMap<Digest, SweepRun> {
    let mut runs = BTreeMap::new();
    let is_whole = sweep
        .run(&BTreeMap::new(), NonZeroUsize::new(threads).unwrap(), &AtomicBool::new(false), |run| {
            runs.insert(run.key.clone(), run);
            Ok(())
        })
        .unwrap();
    assert!(is_whole);
    runs
}

fn bytes(summary: &SweepSummary) -> String {
    serde_json::to_string_pretty(summary).unwrap()
}

#[test]
fn any_number_of_threads_gives_the_same_bytes_and_pairs_beat_the_baseline() {
    let place = inputs();
    let sweep = read(place.path(), SPEC);
    assert_eq!(sweep.runs_total(), 2 * 3 * 4);
    let summary = sweep.summary(&run(&sweep, 1));
    assert_eq!(bytes(&summary), bytes(&sweep.summary(&run(&sweep, 3))));

    assert_eq!((summary.runs_done, summary.failed.len(), summary.points.len()), (24, 0, 2));
    let busy = &summary.points[1];
    assert_eq!((busy.load_ratio, busy.gpus_total), (Some(1.4), 16));
    let [baseline, srtf, pairs] = &busy.policies[..] else { panic!("three policies") };
    let own = baseline.ratios["jct_mean_seconds"];
    assert_eq!((own.point, own.lower, own.upper, own.n), (1.0, Some(1.0), Some(1.0), 4));
    assert!(srtf.ratios["jct_mean_seconds"].upper.unwrap() < 1.0);
    assert!(pairs.ratios["throughput_steady_ratio"].lower.unwrap() > 1.0);
    assert!(pairs.differences["sm_active_steady_ratio"].lower.unwrap() > 0.0);
    // The geometric mean of paired ratios is what the runs themselves give.
    let logs: Vec<f64> = (0..4)
        .map(|seed| {
            let of = |policy: &str| {
                let runs = run_of(&sweep, policy, seed);
                runs.metrics["jct_mean_seconds"]
            };
            (of("srtf_oracle") / of("fifo_backfill")).ln()
        })
        .collect();
    let by_hand = (logs.iter().sum::<f64>() / 4.0).exp();
    assert!((srtf.ratios["jct_mean_seconds"].point - by_hand).abs() < 1e-12);
    // Of three policies the best other of the worst is the better of two.
    let best = &baseline.best_others["jct_mean_seconds"];
    let means = |row: &elastico_simulator::PolicySummary| row.means["jct_mean_seconds"].point;
    let wanted = if means(srtf) < means(pairs) { "srtf_oracle" } else { "greedy_pairs" };
    assert_eq!(best.policy, wanted);
    assert!(best.ratio.point > 1.0);
    let names = (summary.truth.as_deref(), summary.planner.as_deref());
    assert_eq!(names, (Some("truth and drawn scaling laws"), Some("planner and a scaling law")));
}

fn run_of(sweep: &Sweep, policy: &str, seed: u64) -> SweepRun {
    let found = run(sweep, 2)
        .into_values()
        .find(|run| (run.policy.as_str(), run.seed, run.load_ratio) == (policy, seed, Some(1.4)));
    found.unwrap()
}

/// Runs into a folder until `most` runs are done.
fn into_folder(sweep: &Sweep, folder: &Path, resume: bool, most: usize) -> BTreeMap<Digest, SweepRun> {
    let mut folder = SweepFolder::open(folder, sweep, resume).unwrap();
    let mut runs = folder.done().clone();
    let known = runs.clone();
    let stop = AtomicBool::new(most == 0);
    let mut count = 0;
    sweep
        .run(&known, NonZeroUsize::MIN, &stop, |run| {
            folder.append(&run)?;
            runs.insert(run.key.clone(), run);
            count += 1;
            if count >= most {
                stop.store(true, Ordering::Relaxed);
            }
            Ok(())
        })
        .unwrap();
    runs
}

#[test]
fn a_sweep_that_was_cut_off_ends_with_the_same_bytes() {
    let place = inputs();
    let sweep = read(place.path(), SPEC);
    let whole = bytes(&sweep.summary(&into_folder(&sweep, &place.path().join("whole"), false, usize::MAX)));
    let folder = place.path().join("cut");
    into_folder(&sweep, &folder, false, 7);
    let journal = folder.join("runs.jsonl");
    let lines = fs::read(&journal).unwrap();
    let count = lines.split(|byte| *byte == b'\n').count() - 1;
    assert!((7..24).contains(&count), "{count}");
    // A kill may tear the last line anywhere.
    for torn in [lines.len() - 1, lines.len() - 200] {
        fs::write(&journal, &lines[..torn]).unwrap();
        let folder = SweepFolder::open(&folder, &sweep, true).unwrap();
        assert_eq!(folder.done().len(), count - 1);
        assert_eq!(fs::read(&journal).unwrap().last(), Some(&b'\n'));
    }
    let again = sweep.summary(&into_folder(&sweep, &folder, true, usize::MAX));
    assert_eq!(bytes(&again), whole);
    // Nothing is left to do.
    let done = SweepFolder::open(&folder, &sweep, true).unwrap().done().clone();
    assert_eq!(sweep.open_total(&done), 0);
    assert_eq!(bytes(&sweep.summary(&done)), whole);
}

#[test]
fn a_folder_is_for_one_sweep_and_one_process() {
    let place = inputs();
    let sweep = read(place.path(), SPEC);
    let folder = place.path().join("out");
    into_folder(&sweep, &folder, false, 1);
    let refused = |sweep: &Sweep, resume| SweepFolder::open(&folder, sweep, resume).unwrap_err().to_string();
    assert!(refused(&sweep, false).ends_with("holds finished runs already"));
    let other = read(place.path(), &SPEC.replace("seeds = 4", "seeds = 5"));
    let text = refused(&other, true);
    assert!(text.ends_with("holds runs of another sweep: `spec.seeds` is 4 there and 5 here"), "{text}");
    // The content of an input counts, not only its name.
    fs::write(
        place.path().join("workloads.csv"),
        "workload,kind,sm_active_ratio\na,training,0.3\nc,inference,0.2\n",
    )
    .unwrap();
    let text = refused(&read(place.path(), SPEC), true);
    assert!(text.contains("`digests.workloads.csv`"), "{text}");

    let open = SweepFolder::open(&folder, &sweep, true).unwrap();
    assert!(refused(&sweep, true).ends_with("is in use by another sweep"));
    // Whoever only reads the runs disturbs nobody.
    assert_eq!(SweepFolder::runs(&folder, &sweep).unwrap(), *open.done());
    drop(open);
    let journal = folder.join("runs.jsonl");
    let line = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, line.replacen("\"seed\"", "\"sed\"", 1)).unwrap();
    let text = refused(&sweep, true);
    assert!(text.contains("runs.jsonl, line 1: no finished run"), "{text}");
}

#[test]
fn runs_are_only_read_from_the_folder_of_the_sweep() {
    let place = inputs();
    let sweep = read(place.path(), SPEC);
    let refused = |name: &str| {
        let error = SweepFolder::runs(&place.path().join(name), &sweep).unwrap_err();
        assert!(elastico_core::Hint::hint(&error).is_some());
        error.to_string()
    };
    assert!(refused("nowhere").ends_with("is not there"));
    assert!(!place.path().join("nowhere").exists());
    assert!(refused("").ends_with("holds no sweep: it lacks sweep.json or runs.jsonl"));
    into_folder(&sweep, &place.path().join("empty"), false, 0);
    assert!(refused("empty").ends_with("has no finished run"));
    let other = read(place.path(), &SPEC.replace("seeds = 4", "seeds = 5"));
    into_folder(&other, &place.path().join("other"), false, 1);
    assert!(refused("other").contains("holds runs of another sweep"));
}

#[test]
fn cells_restrict_the_grid_and_failures_are_listed() {
    let place = inputs();
    let spec = SPEC.replace("[synthetic]", "[[cell]]\n[[cell]]\nclusters = [\"n4g4\"]\nloads = [1.0]\npolicies = [\"fifo_backfill\"]\nseeds = [7]\n[synthetic]");
    assert_eq!(read(place.path(), &spec).runs_total(), 25);

    // Jobs of eight GPUs can never run on a cluster of four that is read from a file of them.
    let trace = "job_id,num_gpu,submit_time,model_name,duration\n0,8,0,a,100\n1,1,10,b,50\n";
    fs::write(place.path().join("jobs.csv"), trace).unwrap();
    let spec = "schema = \"elastico.sweep/1\"\nbaseline = \"fifo\"\nclusters = [\"n1g4\", \"n1g8\"]\npolicies = [\"fifo\"]\nseeds = [0]\n[trace]\nfile = \"jobs.csv\"\ntime_unit = \"s\"\ndraw = \"whole\"\n";
    let sweep = read(place.path(), spec);
    let summary = sweep.summary(&run(&sweep, 2));
    assert_eq!((summary.runs_total, summary.runs_done, summary.failed.len()), (2, 1, 1));
    assert_eq!(summary.failed[0].cluster, "n1g4");
    assert!(summary.failed[0].reason.starts_with("job `0` asks for 8 GPUs"), "{:?}", summary.failed);
    let [small, large] = &summary.points[..] else { panic!("two points") };
    assert_eq!((small.policies[0].runs_failed, small.policies[0].means.len()), (1, 0));
    assert_eq!((large.load_ratio, large.policies[0].means["jct_mean_seconds"].point), (None, 120.0));
}

#[test]
fn a_wrong_description_gets_one_clear_error() {
    let place = inputs();
    let wrong = |from: &str, to: &str| {
        assert!(SPEC.contains(from), "{from}");
        refusal(place.path(), &SPEC.replacen(from, to, 1))
    };
    let all = [
        wrong("loads =", "load ="),
        wrong("jobs_per_gpu", "job_per_gpu"),
        wrong("\"srtf_oracle\"", "\"srtf_orakle\""),
        wrong("sweep/1", "sweep/2"),
        wrong("seeds = 4", "seeds = \"4\""),
        wrong("seeds = 4\n", ""),
        wrong("loads = [0.8, 1.4]", "loads = [0.8, -1.4]"),
        wrong("loads = [0.8, 1.4]\n", ""),
        wrong("baseline = \"fifo_backfill\"", "baseline = \"fifo\""),
        wrong("n2g8", "2x8"),
        wrong("truth.json", "truht.json"),
        wrong("truth = \"truth.json\"\n", ""),
        wrong("inference_share = 0.5", "inference_share = 1.5"),
        wrong("[0.6, 0.95]", "[0.6]"),
        wrong("[0.6, 0.95]", "[0.6, 1.95]"),
        wrong("[synthetic]", "[trace]\nfile = \"x\"\n[synthetic]"),
        wrong("[tables]", "[options]\nrestart_second = 3\n[tables]"),
        wrong("[tables]", "[options]\nrestart_seconds = 1e300\n[tables]"),
        wrong("clusters =", "rivals = [\"las\"]\nclusters ="),
        wrong("clusters =", "rivals = [\"srtf_oracle\", \"srtf_oracle\"]\nclusters ="),
        wrong("seeds = 4", "seeds = [3, 1, 3]"),
        wrong("loads = [0.8, 1.4]", "loads = [0.8, 0.80]"),
        wrong("loads = [0.8, 1.4]", "loads = [0.8, 1e-300]"),
        wrong("[\"n2g8\"]", "[\"n2g8\", \"n02g8\"]"),
        wrong("jobs_per_gpu = 25", "jobs_per_gpu = 1000000000"),
        wrong("median_seconds = 900", "clip_seconds = [1, 1e300]"),
        wrong("baseline =", &format!("name = \"{}\"\nbaseline =", "x".repeat(201))),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn the_guide_shows_a_file_that_is_read() {
    let place = inputs();
    let guide = include_str!("../../../docs/guides/simulate.md");
    let blocks: Vec<&str> =
        guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let [whole, of_trace] = blocks[..] else { panic!("two blocks of TOML in the guide") };
    assert_eq!(read(place.path(), whole).runs_total(), 2 * 3 * 4 * 10 + 2 * 3);
    let jobs = "job_id,num_gpu,submit_time,model_name,duration\n0,4,0,a,100\n1,1,10,b,50\n";
    fs::write(place.path().join("jobs.csv"), jobs).unwrap();
    let start = whole.find("[synthetic]").unwrap();
    let end = whole.find("[tables]").unwrap();
    let with_trace = format!("{}{of_trace}{}", &whole[..start], &whole[end..]);
    assert_eq!(read(place.path(), &with_trace).runs_total(), 246);
}
