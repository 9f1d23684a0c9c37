//! What `place`, `explain` and `whatif` say to people, on states small enough to know the answer.

use super::elastico;
use std::fs;

const CLUSTER: &str = "[[pool]]\nid = \"p\"\ndevice = \"h100\"\nnodes = 1\ngpus_per_node = 2\nprice_per_gpu_hour = 3\n\
    [[pool]]\nid = \"q\"\ndevice = \"h100\"\nnodes = 1\ngpus_per_node = 1\nprice_per_gpu_hour = 1\n";

/// A job that runs and is worth less than one that comes.
const JOBS: &str = "[[job]]\nid = \"runs\"\ngpus_min = 2\npools = [\"p\"]\nshape = [{ gpus = 2, step_seconds = 1 }]\n\
    current = { pool = \"p\", gpus = 2 }\n\
    [[job]]\nid = \"comes\"\nweight = 9\ngpus_min = 2\npools = [\"p\"]\nshape = [{ gpus = 2, step_seconds = 1 }]\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("cluster.toml"), CLUSTER).expect("the folder is ours");
    fs::write(folder.path().join("jobs.toml"), JOBS).expect("the folder is ours");
    folder
}

const STATE: &str = "--cluster cluster.toml --jobs jobs.toml";

#[test]
fn who_must_stop_is_seen_in_every_form() {
    let folder = folder();
    let (code, table, _) = elastico(folder.path(), &format!("-q place {STATE}"));
    assert_eq!(code, Some(0), "{table}");
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("1 job on 2 GPUs, 0 pairs, 1 waiting, 1 of them must stop;"), "{table}");
    assert!(words.contains("runs now, must stop") || table.contains("runs now,"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let (_, csv, _) = elastico(folder.path(), &format!("-q place {STATE} --format csv"));
    assert!(csv.contains("job,reason,stops,entry_slot_price,detail\nruns,priced_out,true,"), "{csv}");
    let (_, json, _) = elastico(folder.path(), &format!("-q place {STATE} --format json"));
    let placement: elastico_placement::Placement = serde_json::from_str(&json).expect("a placement");
    assert!(placement.waiting[0].stops && placement.timings.is_some());
    let (_, why, _) = elastico(folder.path(), &format!("-q explain runs {STATE}"));
    assert!(
        why.split_whitespace().collect::<Vec<_>>().join(" ").contains("it runs now and must stop"),
        "{why}"
    );
}

#[test]
fn an_explanation_says_where_the_job_runs_and_in_which_shape() {
    let folder = folder();
    let (_, why, _) = elastico(folder.path(), &format!("-q explain comes {STATE}"));
    assert!(why.starts_with("comes runs on p, node 0, GPUs 0,1: 2 GPUs alone"), "{why}");
    assert!(why.contains("in use") && why.contains("yes"), "{why}");
}

#[test]
fn questions_say_how_often_they_solve_and_what_it_costs() {
    let folder = folder();
    let new = "[[job]]\nid = \"big\"\nmemory_bytes = 200e9\nshape = [{ step_seconds = 1 }]\n";
    fs::write(folder.path().join("new.toml"), new).expect("the folder is ours");
    let (code, answer, talk) = elastico(folder.path(), &format!("whatif admit new.toml {STATE}"));
    assert_eq!(code, Some(1), "{talk}");
    assert!(talk.contains("placing anew with the new jobs, then at most "), "{talk}");
    let words = answer.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("needs 200 GB of device memory, a GPU has "), "{answer}");
    assert!(!words.contains("more nodes of"), "{answer}");
    let (_, answer, talk) = elastico(folder.path(), &format!("whatif size --pool p --served 1 {STATE}"));
    assert!(talk.contains("placing anew for at most "), "{talk}");
    let words = answer.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("2 nodes of p instead of 1, 12.00 money per hour for the pool, 13.00 for the cluster"),
        "{answer}"
    );
    let (code, _, talk) = elastico(folder.path(), &format!("whatif price {STATE}"));
    assert!(code == Some(0) && talk.contains("placing anew at most "), "{talk}");
}
