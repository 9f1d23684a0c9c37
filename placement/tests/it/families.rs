//! Shape families as a user writes them.

use elastico_core::{Hint, SharingMode, WorkloadId};
use elastico_models::Profiles;
use elastico_placement::{
    Allocator, Cluster, Error, Jobs, Objective, Options, Origin, PairOutcome, PairTable, Placement,
    ScalingLaw, ShapeFamily, check,
};
use proptest::prelude::*;
use std::path::Path;

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn cluster(pools: &[(&str, &str, u32, u32)]) -> Cluster {
    let text: Vec<String> = pools
        .iter()
        .map(|(id, device, nodes, gpus)| {
            format!(
                "[[pool]]\nid = \"{id}\"\ndevice = \"{device}\"\nnodes = {nodes}\ngpus_per_node = {gpus}\n"
            )
        })
        .collect();
    Cluster::from_toml(&text.concat(), Path::new("cluster.toml")).unwrap()
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn jobs(text: &str) -> Jobs {
    Jobs::from_toml(text, Path::new("jobs.toml")).unwrap()
}

fn family(text: &str, cluster: &Cluster) -> ShapeFamily {
    ShapeFamily::of(&jobs(text).job[0], cluster, &Profiles::default(), ScalingLaw::default())
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn solve(text: &str, cluster: &Cluster, options: Options, table: Option<&PairTable>) -> Placement {
    let allocator = Allocator::new(cluster.clone(), options);
    let placement = allocator.solve_with(&jobs(text), &Profiles::default(), table, None).unwrap();
    assert_eq!(check(&placement, cluster), vec![]);
    placement
}

/// Pool, GPUs, throughput and settings of each shape, one a line, then what was dropped.
fn told(family: &ShapeFamily) -> String {
    let shapes = family.shapes.iter().map(|shape| {
        let settings: Vec<String> =
            shape.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!(
            "{} x {}  {:.3}  {:?}  {:.0} GB  {}",
            shape.pool,
            shape.gpus,
            shape.normalized_throughput,
            shape.origin,
            shape.resources.gpu_memory_bytes / 1e9,
            settings.join(" ")
        )
    });
    let dropped = family.dropped.iter().map(|dropped| {
        format!(
            "{} x {}  {}",
            dropped.pool,
            dropped.gpus.map_or("-".to_owned(), |gpus| gpus.to_string()),
            dropped.reason
        )
    });
    shapes.map(|line| line.trim_end().to_owned()).chain(dropped).collect::<Vec<_>>().join("\n")
}

const LLM: &str = r#"
[[job]]
id = "summarise"
gpus_max = 2
memory_bytes = 26e9
setting_names = { batch = "MAX_NUM_SEQS", tensor_parallel = "TP" }
batch = [
    { batch = 8, throughput_hertz = 280.0, kv_bytes = 6e9 },
    { batch = 32, throughput_hertz = 450.0, kv_bytes = 25e9 },
    { batch = 64, throughput_hertz = 500.0, kv_bytes = 50e9 },
    { batch = 64, gpus = 2, throughput_hertz = 820.0, weights_bytes = 13e9, kv_bytes = 25e9 },
    { batch = 64, gpus = 4, throughput_hertz = 1040.0, memory_bytes = 20e9 },
    { pool = "small", batch = 8, throughput_hertz = 145.0, kv_bytes = 6e9 },
]
"#;

#[test]
fn the_best_batch_that_fits_is_the_shape() {
    let family = family(LLM, &cluster(&[("large", "h100", 1, 4), ("small", "a100-40gb", 1, 4)]));
    insta::assert_snapshot!(told(&family), @r"
    large x 1  1.000  Measured  76 GB  MAX_NUM_SEQS=64 TP=1
    large x 1  0.900  Measured  51 GB  MAX_NUM_SEQS=32 TP=1
    large x 1  0.560  Measured  32 GB  MAX_NUM_SEQS=8 TP=1
    large x 2  1.640  Measured  76 GB  MAX_NUM_SEQS=64 TP=2
    small x 1  0.290  Measured  32 GB  MAX_NUM_SEQS=8 TP=1
    small x 2  1.640  Measured  76 GB  MAX_NUM_SEQS=64 TP=2
    large x 4  MAX_NUM_SEQS=64 TP=4: the job allows 1 to 2 GPUs
    small x 1  MAX_NUM_SEQS=32 TP=1: needs 51 GB of device memory, a GPU has 40 GB
    small x 1  MAX_NUM_SEQS=64 TP=1: needs 76 GB of device memory, a GPU has 40 GB
    small x 4  MAX_NUM_SEQS=64 TP=4: the job allows 1 to 2 GPUs
    ");
}

#[test]
fn inside_a_pair_a_smaller_batch_leaves_memory() {
    let table = PairTable::from_fn(
        ["l", "t"].map(|name| WorkloadId::new(name).unwrap()),
        ["h100".to_owned()],
        &[SharingMode::TimeSlice],
        |_, _, _, mode| {
            let slowdown = [1.1, 1.1];
            Some(PairOutcome { sharing: mode.clone(), slowdown, upper: slowdown, in_domain: true })
        },
    );
    let options = || Options { sharing: vec![SharingMode::TimeSlice], ..Options::default() };
    let one = cluster(&[("p", "h100", 1, 1)]);
    let llm = LLM.replace("gpus_max = 2", "workload = \"l\"");
    let train = |memory: &str| {
        format!(
            "[[job]]\nid = \"train\"\nworkload = \"t\"\nmemory_bytes = {memory}\nshape = [{{ step_seconds = 1.0 }}]\n"
        )
    };
    let alone = solve(&llm, &one, options(), Some(&table));
    let batch = |placement: &Placement| {
        placement.assignment("summarise").unwrap().shape.settings["MAX_NUM_SEQS"].to_string()
    };
    assert_eq!(batch(&alone), "64");
    // 76 + 20 GB exceed the GPU, 51 + 20 do not.
    let pair = solve(&(llm.clone() + &train("20e9")), &one, options(), Some(&table));
    assert_eq!((pair.pairs(), batch(&pair).as_str()), (1, "32"));
    // Alone a batch of 32 is of no use; in the pair it is what runs.
    let (allocator, both) = (Allocator::new(one.clone(), options()), jobs(&(llm.clone() + &train("20e9"))));
    let why = allocator.explain(&pair, &both, &Profiles::default(), Some(&table), "summarise").unwrap();
    let in_use: Vec<_> = why.shapes.iter().filter(|shape| shape.in_use).collect();
    let [shape] = in_use[..] else { panic!("one shape is in use: {why}") };
    assert!(shape.only_in_pair && shape.settings["MAX_NUM_SEQS"].to_string() == "32", "{shape:?}");
    let partner = &why.partners[0];
    assert!(partner.in_use && partner.runs && partner.lacks.is_none(), "{partner:?}");
    assert_eq!(partner.settings["MAX_NUM_SEQS"].to_string(), "32");
    assert!(why.to_string().starts_with("summarise runs on p, node 0, GPU 0: beside train"), "{why}");
    assert!((pair.value - (0.9 / 1.1 + 1.0 / 1.1)).abs() < 1e-6, "{}", pair.value);
    let tight = solve(&(llm.clone() + &train("45e9")), &one, options(), Some(&table));
    assert_eq!((tight.pairs(), batch(&tight).as_str()), (1, "8"));
    let full = solve(&(llm.clone() + &train("60e9")), &one, options(), Some(&table));
    assert_eq!((full.pairs(), full.refused_pairs.get("memory")), (0, Some(&1)));
    // Two of the same kind: either may have the larger batch, but not both.
    let twins = llm.clone() + &llm.replace("summarise", "translate");
    let twins = solve(&twins, &one, options(), Some(&table));
    assert_eq!(twins.pairs(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pairs_with_a_choice_of_batch_never_exceed_a_gpu(
        rows in prop::collection::vec(prop::collection::vec((1_u32..90, 1_u32..50), 1..5), 1..9),
        (gpus, running) in (1_u32..4, prop::collection::vec(any::<bool>(), 9)),
        power in -4.0..0.9_f64,
    ) {
        prop_assume!(power != 0.0);
        let names: Vec<String> = (0..rows.len()).map(|job| format!("j{job}")).collect();
        let table = PairTable::from_fn(
            names.iter().map(|name| WorkloadId::new(name.clone()).unwrap()),
            ["h100".to_owned()],
            &[SharingMode::TimeSlice],
            |_, a, b, mode| {
                let heavy = |name: &WorkloadId| f64::from(u8::try_from(name.as_str().len()).unwrap()) / 10.0;
                let slowdown = [1.0 + heavy(b), 1.1 + heavy(a)];
                Some(PairOutcome { sharing: mode.clone(), slowdown, upper: slowdown, in_domain: true })
            },
        );
        let mut text = String::new();
        for (job, rows) in rows.iter().enumerate() {
            let rows: Vec<String> = rows.iter().enumerate().map(|(at, (memory, speed))| {
                format!("{{ batch = {}, throughput_hertz = {speed}, memory_bytes = {memory}e9 }}", at + 1)
            }).collect();
            let current = if running[job] { "current = { pool = \"p\" }\n" } else { "" };
            text += &format!("[[job]]\nid = \"j{job}\"\nworkload = \"j{job}\"\n{current}batch = [{}]\n", rows.join(", "));
        }
        let options = Options {
            sharing: vec![SharingMode::TimeSlice],
            objective: Objective::Power { p: power },
            ..Options::default()
        };
        let placement = solve(&text, &cluster(&[("p", "h100", 1, gpus)]), options, Some(&table));
        let sum: f64 = placement.assignments.iter().map(|assignment| assignment.value).sum();
        prop_assert!((sum - placement.value).abs() < 1e-6 * (1.0 + sum), "{sum} against {}", placement.value);
        prop_assert!(placement.bound >= placement.value);
    }
}

const GOODPUT: &str = r#"
[[job]]
id = "resnet"
gpus_max = 16

[job.goodput]
noise_examples = 2000
reference_batch = 128
max_accumulation = 4
timing = [{ max_batch_per_gpu = 256, compute_alpha_seconds = 0.03, compute_beta_seconds = 0.0012, local_alpha_seconds = 0.03, local_beta_seconds = 0.002, node_alpha_seconds = 0.25, node_beta_seconds = 0.004, gamma = 2.0 }]
"#;

#[test]
fn goodput_chooses_batch_and_accumulation_for_each_number_of_gpus() {
    let eight = family(GOODPUT, &cluster(&[("p", "h100", 2, 8)]));
    insta::assert_snapshot!(told(&eight), @r"
    p x 1  1.000  Fitted  0 GB  accumulation_steps=1 batch_per_gpu=224 global_batch=224
    p x 2  1.827  Fitted  0 GB  accumulation_steps=1 batch_per_gpu=168 global_batch=336
    p x 4  3.239  Fitted  0 GB  accumulation_steps=1 batch_per_gpu=123 global_batch=492
    p x 8  5.446  Fitted  0 GB  accumulation_steps=1 batch_per_gpu=94 global_batch=752
    ");
    // The same GPUs in two nodes instead of one have a network between them: less goodput, never more.
    let four = family(GOODPUT, &cluster(&[("p", "h100", 4, 4)]));
    let of = |family: &ShapeFamily, gpus: u32| {
        family.shapes.iter().find(|shape| shape.gpus == gpus).map_or(0.0, |shape| shape.normalized_throughput)
    };
    assert!(of(&four, 8) < of(&eight, 8));
    // Memory for 16 examples, 4 passes and 1 GPU: no batch of 128.
    let small = family(&GOODPUT.replace("= 256", "= 16"), &cluster(&[("p", "h100", 1, 1)]));
    assert!(
        small.shapes.is_empty() && small.dropped[0].reason.contains("16 examples"),
        "{:?}",
        small.dropped
    );
}

#[test]
fn beyond_a_node_shapes_take_whole_nodes_and_pay_for_the_network() {
    let text = "[[job]]\nid = \"j\"\ngpus_max = 24\nshape = [{ step_seconds = 8.0 }, { gpus = 8, step_seconds = 1.25 }, { gpus = 12, step_seconds = 1.0 }]\n";
    let family = family(text, &cluster(&[("p", "h100", 3, 8)]));
    let gpus: Vec<u32> = family.shapes.iter().map(|shape| shape.gpus).collect();
    assert_eq!(gpus, [1, 2, 4, 8, 16, 24]);
    assert!(
        family
            .dropped
            .iter()
            .any(|dropped| dropped.gpus == Some(12) && dropped.reason.contains("whole number"))
    );
    let speed = |gpus: u32| {
        let shape = family.shapes.iter().find(|shape| shape.gpus == gpus).unwrap();
        (shape.normalized_throughput, shape.origin)
    };
    assert_eq!((speed(8).1, speed(16).1, speed(4).1), (Origin::Measured, Origin::Assumed, Origin::Assumed));
    assert!(speed(16).0 / speed(8).0 < speed(2).0 / speed(1).0);
    // Nodes of six: whole nodes, not powers of two.
    let six = family_of_six();
    assert_eq!(six.shapes.iter().map(|shape| shape.gpus).collect::<Vec<_>>(), [1, 2, 4, 6, 12, 18]);
}

fn family_of_six() -> ShapeFamily {
    family(
        "[[job]]\nid = \"j\"\ngpus_max = 18\nshape = [{ step_seconds = 1.0 }]\n",
        &cluster(&[("p", "h100", 3, 6)]),
    )
}

#[test]
fn a_shape_stays_where_it_takes_less_of_anything() {
    let text = "[[job]]\nid = \"j\"\nmemory_bytes = 10e9\nshape = [\n\
        { step_seconds = 1.0, host_cores = 16, settings = { workers = 16 } },\n\
        { step_seconds = 1.2, host_cores = 4, settings = { workers = 4 } },\n\
        { step_seconds = 1.3, host_cores = 6, settings = { workers = 6 } },\n\
        { step_seconds = 1.4, host_cores = 4, network_bytes_per_second = 0, memory_bytes = 5e9, settings = { workers = 5 } },\n\
        { step_seconds = 2.0, host_cores = 4, host_memory_bytes = 1e9, settings = { workers = 3 } }]\n";
    let family = family(text, &cluster(&[("p", "h100", 1, 8)]));
    let workers: Vec<String> =
        family.shapes.iter().map(|shape| shape.settings["workers"].to_string()).collect();
    assert_eq!(workers, ["16", "4", "5"]);
}

#[test]
fn scarce_network_and_host_cores_have_a_price() {
    let pool = "[[pool]]\nid = \"p\"\ndevice = \"h100\"\nnodes = 1\ngpus_per_node = 8\nhost_cores = 32\nnetwork_bytes_per_second = 10e9\n";
    let cluster = Cluster::from_toml(pool, Path::new("c")).unwrap();
    let job = |id: usize| {
        format!(
            "[[job]]\nid = \"j{id}\"\nnetwork_bytes_per_second = 1e9\nshape = [{{ step_seconds = 1.0, host_cores = 16 }}, {{ step_seconds = 1.25, host_cores = 4 }}]\n"
        )
    };
    let text: String = (0..8).map(job).collect();
    let placement = solve(&text, &cluster, Options::default(), None);
    // Eight with 4 cores fill the node; one with 16 would displace three.
    assert_eq!(placement.assignments.len(), 8);
    assert!((placement.value - 6.4).abs() < 1e-9, "{}", placement.value);
    let heavy = text.replace("= 1e9", "= 5e9");
    let placement = solve(&heavy, &cluster, Options::default(), None);
    assert_eq!(placement.assignments.len(), 2, "two jobs fill the network");
    let price =
        placement.prices.prices.iter().find(|price| price.resource.as_str() == "network_bytes_per_second");
    assert!(price.is_some_and(|price| price.value_per_unit > 0.0));
    let none = solve(&text.replace("= 1e9", "= 20e9"), &cluster, Options::default(), None);
    assert!(
        none.waiting[0].detail().contains("needs 20 GB/s of network per node, a node has 10 GB/s"),
        "{}",
        none.waiting[0].detail()
    );
}

#[test]
fn the_objective_decides_who_runs() {
    let one = cluster(&[("p", "h100", 1, 1)]);
    let pair = |long: &str, short: &str| {
        format!(
            "[[job]]\nid = \"long\"\nwork_steps = 36000\n{long}shape = [{{ step_seconds = 1.0 }}]\n\
             [[job]]\nid = \"short\"\nwork_steps = 600\n{short}shape = [{{ step_seconds = 1.0 }}]\n"
        )
    };
    let runs = |text: &str| {
        let options = Options { objective: Objective::SRPT, ..Options::default() };
        solve(text, &one, options, None).assignments[0].job.to_string()
    };
    assert_eq!(runs(&pair("", "")), "short");
    // 60 times the work: after 59 hours of waiting it is its turn, whoever comes.
    assert_eq!(runs(&pair("waited_seconds = 208800\n", "")), "short");
    assert_eq!(runs(&pair("waited_seconds = 216000\n", "")), "long");
    let text = "[[job]]\nid = \"a\"\nwork_steps = 9\nshape = [{ step_seconds = 1.0 }]\n[[job]]\nid = \"b\"\nshape = [{ step_seconds = 1.0 }]\n";
    let allocator = Allocator::new(one, Options { objective: Objective::SRPT, ..Options::default() });
    let error = allocator.solve(&jobs(text), &Profiles::default(), None).unwrap_err();
    insta::assert_snapshot!(format!("{error}\nhint: {}", error.hint().unwrap()), @r"
    job `b`: work_steps is absent, the objective srpt needs the work that is left
    hint: give `work_steps` to every job, or choose another objective
    ");
    // Two jobs on four GPUs, one scales well and one does not: throughput feeds the one, max-min serves both alike.
    let four = cluster(&[("p", "h100", 1, 4)]);
    let text = "[[job]]\nid = \"good\"\ngpus_max = 4\nshape = [{ gpus = 1, step_seconds = 1.0 }, { gpus = 2, step_seconds = 0.5 }, { gpus = 3, step_seconds = 0.34 }, { gpus = 4, step_seconds = 0.24 }]\n\
                [[job]]\nid = \"poor\"\nweight = 0.9\ngpus_max = 2\nshape = [{ gpus = 1, step_seconds = 1.0 }, { gpus = 2, step_seconds = 0.7 }]\n";
    let gpus = |objective: Objective| {
        let placement = solve(text, &four, Options { objective, ..Options::default() }, None);
        ["good", "poor"].map(|job| placement.assignment(job).map_or(0, |assignment| assignment.shape.gpus))
    };
    assert_eq!(gpus(Objective::Throughput), [4, 0]);
    assert_eq!(gpus(Objective::Power { p: -6.0 }), [2, 2]);
}

#[test]
fn mistakes_in_families_are_answered_with_their_line() {
    let toml = |text: &str| {
        let error: Error = Jobs::from_toml(text, Path::new("jobs.toml")).unwrap_err();
        error.hint().map_or(error.to_string(), |hint| format!("{error}\nhint: {hint}"))
    };
    let job = "[[job]]\nid = \"a\"\n";
    let shape = "shape = [{ step_seconds = 1.0 }]\n";
    let texts = [
        toml(&format!("{job}batch = [{{ batch = 0, throughput_hertz = 1.0 }}]\n")),
        toml(&format!("{job}batch = [{{ batch = 1, throughput_hertz = -1.0 }}]\n")),
        toml(&format!("{job}batch = [{{ batch = 1, throughput_hertz = 1.0, kv_bytes = 1e9 }}]\n")),
        toml(&format!(
            "{job}batch = [{{ batch = 1, throughput_hertz = 1.0, kv_bytes = 1e9, memory_bytes = 2e9 }}]\n"
        )),
        toml(&format!("{job}batch = [{{ batch = 1, throughput_hertz = 1.0 }}]\n{shape}")),
        toml(&GOODPUT.replace("noise_examples = 2000", "noise_examples = nan")),
        toml(&GOODPUT.replace("gamma = 2.0", "gamma = 0.5")),
        toml(&GOODPUT.replace("max_accumulation = 4", "max_batch = 64")),
        toml(&GOODPUT.replace("noise_examples", "noise_exmaples")),
        toml(&format!("{job}goodput = {{ noise_examples = 1, reference_batch = 1, timing = [] }}\n")),
        toml(&format!("{job}current = {{ pool = \"p\", gpus = 2, beside = \"b\" }}\n{shape}")),
        toml(&format!("{job}current = {{ pool = \"p\", beside = \"a\" }}\n{shape}")),
        toml(&format!("{job}switch_seconds = -1\n{shape}")),
        toml(&format!("{job}shape = [{{ step_seconds = 1.0, settings = {{ \"A B\" = 1 }} }}]\n")),
        toml(&format!("{job}shape = [{{ step_seconds = 1.0, settings = {{ rate = nan }} }}]\n")),
        toml(&format!("{job}shape = [{{ step_seconds = 1.0, settings = {{ a = [1] }} }}]\n")),
        toml(&format!("{job}shape = [{{ gpus = 2, share_ratio = 0.5, step_seconds = 1.0 }}]\n")),
        toml(&format!("{job}setting_names = {{ batch = \"a b\" }}\n{shape}")),
    ];
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn the_example_of_families_is_placed_as_it_was() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let cluster = Cluster::read(&folder.join("cluster.toml")).unwrap();
    let jobs = Jobs::read(&folder.join("families.toml")).unwrap();
    let allocator = Allocator::new(cluster, Options::default());
    let placement = allocator.solve(&jobs, &Profiles::default(), None).unwrap();
    assert_eq!(check(&placement, allocator.cluster()), vec![]);
    insta::assert_snapshot!(placement);
}
