//! Files, messages and answers as a user sees them.

mod families;
mod present;
mod published;
mod session;
mod switching;

use elastico_core::{DeviceKind, FamilyId, Hint, Slowdown, WorkloadId, WorkloadKind};
use elastico_models::{FeatureSchema, ModelMetadata, Prediction, Predictor, Profiles, WorkloadProfile};
use elastico_placement::whatif::{PairQuestion, Scenario, Verdict, WhatIf, pair, partners};
use elastico_placement::{Allocator, Cluster, Error, Jobs, Options, WaitReason, check, schemas};
use std::path::{Path, PathBuf};

mod whatif;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
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
        assert!(committed == text, "{name} is stale: run the tests with ELASTICO_WRITE_SCHEMAS=1");
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

/// Editors on Windows begin a file with it.
#[test]
fn a_mark_of_the_byte_order_is_skipped() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("marked");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in [
        ("jobs.json", r#"[{"id": "a", "shape": [{"step_seconds": 1}]}]"#),
        ("jobs.toml", "[[job]]\nid = \"a\"\nshape = [{ step_seconds = 1 }]\n"),
        ("jobs.csv", "id,step_seconds\na,1\n"),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, format!("\u{feff}{text}")).unwrap();
        assert_eq!(Jobs::read(&path).unwrap().job[0].id.as_str(), "a", "{name}");
    }
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

/// Slowdown of the subject = 1 + the co-runner's demand, and 5 % more as the upper bound; demands over 2 are unknown.
struct Law(ModelMetadata);

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
impl Law {
    fn new() -> Self {
        let names = ["subject_sm_active_ratio", "co_runner_sm_active_ratio", "subject_share_ratio"];
        let schema = FeatureSchema::new(&names.map(str::to_owned)).unwrap();
        let mut metadata = ModelMetadata::new(schema, "law");
        metadata.device_kinds = vec![DeviceKind::Simulated];
        Self(metadata)
    }
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
impl Predictor for Law {
    fn metadata(&self) -> &ModelMetadata {
        &self.0
    }

    fn backend(&self) -> &'static str {
        "law"
    }

    fn predict(&self, rows: &[f32]) -> Result<Vec<Prediction>, elastico_models::Error> {
        let of_row = |row: &[f32]| {
            let slowdown = (1.0 + f64::from(row[1])) / f64::from(row[2]).max(0.5);
            Prediction {
                slowdown: Slowdown::new(slowdown).unwrap(),
                upper: Slowdown::new(slowdown * 1.05).unwrap(),
                in_domain: row[0] <= 0.95 && row[1] <= 0.95,
            }
        };
        Ok(rows.chunks_exact(3).map(of_row).collect())
    }
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn profiled(name: &str, kind: WorkloadKind, demand: f64, footprint: f64) -> WorkloadProfile {
    WorkloadProfile {
        workload: WorkloadId::new(name).unwrap(),
        family: FamilyId::new("family").unwrap(),
        kind,
        device: "h100".to_owned(),
        device_kind: DeviceKind::Simulated,
        fields: [("step_seconds", 0.1), ("sm_active_ratio", demand), ("footprint_bytes", footprint)]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        shares: Vec::new(),
    }
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn profiles() -> Profiles {
    Profiles::new([
        profiled("train", WorkloadKind::Training, 0.3, 30e9),
        profiled("light", WorkloadKind::Inference, 0.1, 10e9),
        profiled("heavy", WorkloadKind::Inference, 0.9, 10e9),
        profiled("large", WorkloadKind::Inference, 0.1, 70e9),
        profiled("strange", WorkloadKind::Inference, 0.99, 1e9),
    ])
    .unwrap()
}

#[test]
fn pairs_are_judged_by_both_upper_bounds_memory_and_domain() {
    let id = |name: &str| WorkloadId::new(name).unwrap();
    let question = PairQuestion::on("h100", &Options::default());
    let ask = |a: &str, b: &str| pair(&id(a), &id(b), &question, &profiles(), &Law::new());
    let light = ask("train", "light").unwrap();
    assert_eq!(light.verdict, Verdict::Yes);
    assert!((light.ways[0].slowdown[0] - 1.1).abs() < 1e-6 && (light.ways[0].slowdown[1] - 1.3).abs() < 1e-6);
    assert!(light.basis.simulated);
    assert_eq!(ask("train", "heavy").unwrap().verdict, Verdict::No);
    assert_eq!(ask("train", "large").unwrap().verdict, Verdict::No);
    assert_eq!(ask("train", "strange").unwrap().verdict, Verdict::CannotTell);
    let texts = ["light", "heavy", "large", "strange"].map(|other| ask("train", other).unwrap().to_string());
    insta::assert_snapshot!(texts.join("\n"));
    insta::assert_snapshot!(told(&ask("train", "heavi").unwrap_err()), @r"
    there is no workload `heavi`
    hint: did you mean `heavy`?
    ");
    // A chip that the profiles know is meant sooner than one that only looks alike.
    let question_on = |device: &str| PairQuestion::on(device, &Options::default());
    let on = |device: &str| pair(&id("train"), &id("light"), &question_on(device), &profiles(), &Law::new());
    assert_eq!(told(&on("h10").unwrap_err()), "there is no chip `h10`\nhint: did you mean `h100`?");
    assert_eq!(told(&on("zzz").unwrap_err()), "there is no chip `zzz`\nhint: the only chip is `h100`");
    let all = partners(&id("train"), &[], &question, &profiles(), &Law::new()).unwrap();
    assert_eq!(all.partners[0].b, id("light"));
    assert_eq!(all.partners.len(), 5);
}

#[test]
fn on_a_device_that_the_model_does_not_know_nothing_is_told_and_nobody_shares() {
    let mut law = Law::new();
    law.0.devices = vec!["a100".to_owned()];
    let id = |name: &str| WorkloadId::new(name).unwrap();
    let question = PairQuestion::on("h100", &Options::default());
    let answer = pair(&id("train"), &id("light"), &question, &profiles(), &law).unwrap();
    assert_eq!(answer.verdict, Verdict::CannotTell);
    assert!(answer.ways.iter().all(|way| !way.in_domain));
    assert!(
        answer.binds.contains("not trained on h100") && answer.binds.contains("--calibrate"),
        "{}",
        answer.binds
    );
    let cluster = "[[pool]]\nid = \"p\"\ndevice = \"h100\"\nnodes = 1\ngpus_per_node = 1\n";
    let allocator = Allocator::new(Cluster::from_toml(cluster, Path::new("c")).unwrap(), Options::default());
    let jobs = "[[job]]\nid = \"t\"\nworkload = \"train\"\n[[job]]\nid = \"l\"\nworkload = \"light\"\n";
    let jobs = Jobs::from_toml(jobs, Path::new("jobs.toml")).unwrap();
    let placement = allocator.solve(&jobs, &profiles(), Some(&law)).unwrap();
    assert_eq!((placement.pairs(), placement.assignments.len()), (0, 1));
    assert_eq!(placement.refused_pairs.get("out_of_domain"), Some(&1), "{:?}", placement.refused_pairs);
    law.0.devices.push("h100".to_owned());
    assert_eq!(allocator.solve(&jobs, &profiles(), Some(&law)).unwrap().pairs(), 1);
}

#[test]
fn a_predictor_makes_jobs_share() {
    let cluster = Cluster::from_toml(
        "[[pool]]\nid = \"p\"\ndevice = \"h100\"\nnodes = 1\ngpus_per_node = 1\n",
        Path::new("c"),
    )
    .unwrap();
    let jobs = "[[job]]\nid = \"t\"\nworkload = \"train\"\n[[job]]\nid = \"l\"\nworkload = \"light\"\n\
                [[job]]\nid = \"h\"\nworkload = \"heavy\"\n[[job]]\nid = \"s\"\nworkload = \"strange\"\n";
    let jobs = Jobs::from_toml(jobs, Path::new("jobs.toml")).unwrap();
    let allocator = Allocator::new(cluster, Options::default());
    let (profiles, law) = (profiles(), Law::new());
    let placement = allocator.solve(&jobs, &profiles, Some(&law)).unwrap();
    assert!(check(&placement, allocator.cluster()).is_empty());
    assert_eq!(placement.pairs(), 1);
    assert!((placement.value - (1.0 / 1.1 + 1.0 / 1.3)).abs() < 1e-5);
    assert!(placement.basis.simulated);
    insta::assert_snapshot!(format!("{placement}{:?}", placement.refused_pairs));
    let table = allocator.pair_table(&jobs, &profiles, &law).unwrap();
    let whatif = WhatIf::new(&allocator, &jobs, &profiles, Some(&table)).unwrap();
    let harmed = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = Scenario::default();
        change(&mut scenario);
        whatif.harmed(&scenario)
    };
    let alone = harmed(&|change| change.without_sharing = true).unwrap();
    assert!((alone.value_delta - (1.0 - 1.0 / 1.1 - 1.0 / 1.3)).abs() < 1e-5);
    assert_eq!((alone.harmed, alone.worst_ratio), (1, Some(0.0)));
    let strict = harmed(&|change| change.limit = Some(1.2)).unwrap();
    assert_eq!(strict.after.pairs, 0);
    assert!(harmed(&|change| change.limit = Some(f64::NAN)).is_err());
    assert!(harmed(&|change| change.jobs = jobs.clone()).is_err());
    let mut strict_job = jobs.clone();
    strict_job.job[1].slo_slowdown = Some(1.25);
    assert_eq!(allocator.solve(&strict_job, &profiles, Some(&law)).unwrap().pairs(), 0);
    let mut tenants = jobs.clone();
    tenants.job[1].tenant = Some("other".to_owned());
    assert_eq!(allocator.solve(&tenants, &profiles, Some(&law)).unwrap().pairs(), 0);
    let again = allocator.update(&placement.prices, &jobs, &profiles, Some(&law)).unwrap();
    assert!((again.value - placement.value).abs() < 1e-9);
}
