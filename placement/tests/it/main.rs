//! Files, messages and answers as a user sees them.

use elastico_core::Hint;
use elastico_models::Profiles;
use elastico_placement::whatif::WhatIf;
use elastico_placement::{Allocator, Cluster, Error, Jobs, Options, WaitReason, check, schemas};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn example() -> (Allocator, Jobs) {
    let cluster = Cluster::read(&folder("examples/cluster.toml")).unwrap();
    let jobs = Jobs::read(&folder("examples/jobs.toml")).unwrap();
    (Allocator::new(cluster, Options::default()), jobs)
}

fn told(error: &Error) -> String {
    error.hint().map_or(error.to_string(), |hint| format!("{error}\nhint: {hint}"))
}

#[test]
fn committed_schemas_are_current() {
    for (name, text) in schemas() {
        let path = folder("schemas").join(name);
        if std::env::var_os("ELASTICO_WRITE_SCHEMAS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(committed, text, "{name} is stale: run the tests with ELASTICO_WRITE_SCHEMAS=1");
    }
}

#[test]
fn the_examples_are_placed_as_they_were() {
    let (allocator, jobs) = example();
    let placement = allocator.solve(&jobs, &Profiles::default(), None).unwrap();
    assert!(check(&placement, allocator.cluster()).is_empty());
    insta::assert_snapshot!(placement);
}

#[test]
fn an_explanation_names_shapes_prices_and_what_binds() {
    let (allocator, jobs) = example();
    let placement = allocator.solve(&jobs, &Profiles::default(), None).unwrap();
    let why = allocator.explain(&placement, &jobs, &Profiles::default(), None, "pretrain").unwrap();
    insta::assert_snapshot!(why);
    let error = allocator.explain(&placement, &jobs, &Profiles::default(), None, "pretran").unwrap_err();
    insta::assert_snapshot!(told(&error), @r"
    there is no job `pretran`
    hint: did you mean `pretrain`?
    ");
}

#[test]
fn capacity_is_solved_again() {
    let (allocator, jobs) = example();
    let profiles = Profiles::default();
    let whatif = WhatIf::new(&allocator, &jobs, &profiles, None).unwrap();
    let pool = allocator.cluster().pool[0].id.clone();
    let change = whatif.capacity(&[(pool.clone(), -12)]).unwrap();
    assert!(change.value_delta < 0.0);
    assert_eq!(change.after.gpus, 20);
    let value = change.capacity[0].value_per_gpu.unwrap();
    assert!((value + change.value_delta / 12.0).abs() < 1e-12);
    insta::assert_snapshot!(change);
}

#[test]
fn nothing_to_place_and_nowhere_to_place_are_answers() {
    let (allocator, jobs) = example();
    let profiles = Profiles::default();
    let empty = allocator.solve(&Jobs::default(), &profiles, None).unwrap();
    assert_eq!((empty.value, empty.gap), (0.0, 0.0));
    let nowhere =
        Allocator::new(Cluster::default(), Options::default()).solve(&jobs, &profiles, None).unwrap();
    assert_eq!(nowhere.waiting.len(), jobs.job.len());
    assert!(nowhere.waiting.iter().all(|waiting| waiting.reason == WaitReason::NoShape));
}

#[test]
fn a_forged_placement_is_caught() {
    let (allocator, jobs) = example();
    let good = allocator.solve(&jobs, &Profiles::default(), None).unwrap();
    let mut doubled = good.clone();
    let seat = doubled.assignments[0].nodes.clone();
    let pool = doubled.assignments[0].pool.clone();
    doubled.assignments[2].nodes =
        vec![elastico_placement::NodeGpus { node: seat[0].node, gpus: vec![seat[0].gpus[0]] }];
    doubled.assignments[2].pool = pool;
    assert!(check(&doubled, allocator.cluster()).iter().any(|violation| violation.rule.contains("2 jobs")));
    let mut outside = good.clone();
    outside.assignments[0].nodes[0].node = 99;
    assert!(!check(&outside, allocator.cluster()).is_empty());
    let mut boasting = good;
    boasting.value = boasting.bound * 2.0;
    assert!(!check(&boasting, allocator.cluster()).is_empty());
}

#[test]
fn mistakes_are_answered_with_their_line() {
    let file = Path::new("jobs.toml");
    let toml = |text: &str| told(&Jobs::from_toml(text, file).unwrap_err());
    let texts = [
        toml("[[job]]\nid = \"a\"\nwieght = 1.0\nworkload = \"w\"\n"),
        toml("[[job]]\nid = \"a\"\nworkload = \"w\"\n\n[[job]]\nid = \"b\"\nworkload = \"w\"\nweight = -1\n"),
        toml("[[job]]\nid = \"a\"\nworkload = \"w\"\nwork_steps = nan\n"),
        toml("[[job]]\nid = \"a\"\nworkload = \"w\"\n[[job]]\nid = \"a\"\nworkload = \"w\"\n"),
        toml("[[job]]\nid = \"a\"\n"),
        toml("[[job]]\nid = \"a\"\ngpus_min = -1\n"),
        toml("[[job]]\nid = \"a\"\nshape = [{ gpus = 1 }]\n"),
        told(&Jobs::from_csv("id,workload,wieght\na,w,1\n", Path::new("jobs.csv")).unwrap_err()),
        told(&Jobs::from_csv("id,workload,weight\na,w,1\nb,w,heavy\n", Path::new("jobs.csv")).unwrap_err()),
        told(&Jobs::from_csv("id,workload,weight\na,w,1\nb,w,inf\n", Path::new("jobs.csv")).unwrap_err()),
        told(
            &Jobs::from_json("{\"job\": [{\"id\": \"a\", \"jib\": 1}]}", Path::new("jobs.json")).unwrap_err(),
        ),
        told(&Jobs::read(Path::new("jobs.yaml")).unwrap_err()),
        told(
            &Cluster::from_toml(
                "[[pool]]\nid = \"p\"\ndevice = \"h10\"\nnodes = 1\ngpus_per_node = 8\n",
                Path::new("cluster.toml"),
            )
            .unwrap_err(),
        ),
    ];
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn the_three_formats_say_the_same() {
    let file = Path::new("jobs");
    let toml =
        Jobs::from_toml("[[job]]\nid = \"a\"\nworkload = \"w\"\nweight = 2\ntenant = \"t\"\n", file).unwrap();
    let csv = Jobs::from_csv("id,workload,weight,tenant,kind\na,w,2,t,\n", file).unwrap();
    let json = Jobs::from_json(&serde_json::to_string(&toml).unwrap(), file).unwrap();
    assert_eq!(toml, csv);
    assert_eq!(toml, json);
    assert_eq!(Jobs::from_json(&serde_json::to_string(&toml.job).unwrap(), file).unwrap(), toml);
}
