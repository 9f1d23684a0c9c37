//! The shape families on public measurements, where they are present; they are not part of the repository.

use elastico_core::{JobId, PoolId};
use elastico_models::Profiles;
use elastico_placement::{
    Allocator, BatchPoint, Cluster, Goodput, Job, Jobs, MeasuredShape, Options, Origin, ScalingLaw,
    ShapeFamily, Timing, check,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn published(folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("ELASTICO_SHARED")?;
    let path = Path::new(&root).join("data/traces").join(folder);
    path.is_dir().then_some(path)
}

#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn skip(what: &str) {
    println!("skipped: {what} is absent; set ELASTICO_SHARED to the folder with data/traces");
}

/// The lines of a CSV file as maps from column to cell.
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn lines(path: &Path) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    reader.deserialize().map(|line| line.unwrap()).collect()
}

fn pool(id: &str, device: &str, nodes: u32, gpus_per_node: u32) -> String {
    format!(
        "[[pool]]\nid = \"{id}\"\ndevice = \"{device}\"\nnodes = {nodes}\ngpus_per_node = {gpus_per_node}\n"
    )
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Throughput of one model and global batch by GPUs.
type Curve = BTreeMap<u32, f64>;

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn elasticflow(folder: &Path) -> Vec<(String, Curve)> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join("throughputs_A100"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let mut curves = Vec::new();
    for file in files {
        for line in lines(&file) {
            let name =
                format!("{}-{}", file.file_stem().unwrap().to_string_lossy(), line["global_batch_size"]);
            let points = line.iter().filter_map(|(gpus, hertz)| {
                let hertz = hertz.parse::<f64>().ok().filter(|hertz| *hertz > 0.0 && hertz.is_finite())?;
                Some((gpus.parse::<u32>().ok()?, hertz))
            });
            curves.push((name, points.collect()));
        }
    }
    curves
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn training(name: &str, curve: &Curve, known: impl Fn(u32) -> bool) -> Job {
    let mut job = Job::new(JobId::new(name).unwrap(), None);
    job.gpus_max = Some(64);
    job.shape = curve
        .iter()
        .filter(|(gpus, _)| known(**gpus))
        .map(|(gpus, hertz)| MeasuredShape::new(*gpus, hertz.recip()))
        .collect();
    job
}

#[test]
fn elasticflow_tables_are_placed_and_the_scaling_law_is_judged_by_them() {
    let Some(folder) = published("elasticflow") else { return skip("ElasticFlow") };
    let curves = elasticflow(&folder);
    let cluster = Cluster::from_toml(&pool("a100", "a100-40gb", 8, 8), Path::new("cluster.toml")).unwrap();
    let jobs = Jobs { job: curves.iter().map(|(name, curve)| training(name, curve, |_| true)).collect() };
    assert!(jobs.job.len() >= 15, "{} tables", jobs.job.len());
    let allocator = Allocator::new(cluster.clone(), Options::default());
    let placement = allocator.solve(&jobs, &Profiles::default(), None).unwrap();
    assert_eq!(check(&placement, &cluster), vec![]);
    assert!(placement.gap < 0.005, "gap {}", placement.gap);
    let one_each: f64 = jobs.job.len() as f64;
    assert!(placement.value > 1.5 * one_each, "{} against {one_each} on one GPU each", placement.value);
    // Past the peak of a curve more GPUs are slower: such shapes are pruned.
    for job in &jobs.job {
        let family = ShapeFamily::of(job, &cluster, &Profiles::default(), ScalingLaw::default());
        assert!(family.shapes.windows(2).all(|two| two[1].step_seconds < two[0].step_seconds));
    }

    // How wrong are assumed shapes? Ratio of the assumed to the measured throughput where points are hidden.
    let off = |known: &dyn Fn(u32) -> bool| {
        let mut ratios = Vec::new();
        for (name, curve) in
            curves.iter().filter(|(_, curve)| [1, 8, 16, 64].iter().all(|gpus| curve.contains_key(gpus)))
        {
            let family = ShapeFamily::of(
                &training(name, curve, known),
                &cluster,
                &Profiles::default(),
                ScalingLaw::default(),
            );
            for shape in family.shapes.iter().filter(|shape| shape.origin == Origin::Assumed) {
                ratios.push(shape.step_seconds.recip() / curve[&shape.gpus]);
            }
        }
        median(ratios)
    };
    let (one, two, three) = (
        off(&|gpus| gpus == 1),
        off(&|gpus| gpus == 1 || gpus == 8),
        off(&|gpus| [1, 8, 16].contains(&gpus)),
    );
    println!(
        "ElasticFlow A100: value {:.2} on 64 GPUs for {} jobs, gap {:.3} %; assumed / measured throughput, median: \
         {one:.2} from 1 GPU, {two:.2} from 1 and 8, {three:.2} from 1, 8 and 16",
        placement.value,
        jobs.job.len(),
        placement.gap * 100.0
    );
    assert!((three - 1.0).abs() < 0.3, "{three}");
    // The default of the law is chosen for these tables: neither twice too fast nor too slow.
    assert!((0.8..1.25).contains(&one), "{one}");
}

#[test]
fn llm_pilot_load_tests_become_shapes() {
    let Some(folder) = published("llm-pilot") else { return skip("LLM-Pilot") };
    let mut jobs: BTreeMap<String, Job> = BTreeMap::new();
    for line in lines(&folder.join("llmpilot_aggregated.csv")) {
        let number = |name: &str| line[name].parse::<f64>().unwrap();
        let pool = match line["gpu"].as_str() {
            "a100" => "a100",
            "h100" => "h100",
            _ => continue,
        };
        // The table has no memory: requests that failed for lack of it are the mask.
        if number("failed_requests") > 0.01 * number("ok_requests") {
            continue;
        }
        let name = line["model"].replace('/', "-");
        let job = jobs.entry(name.clone()).or_insert_with(|| {
            let mut job = Job::new(JobId::new(name).unwrap(), None);
            job.gpus_max = Some(4);
            job.setting_names.batch = "MAX_CONCURRENT_REQUESTS".to_owned();
            job.setting_names.tensor_parallel = "NUM_SHARD".to_owned();
            job
        });
        job.batch.push(BatchPoint {
            pool: Some(PoolId::new(pool).unwrap()),
            gpus: number("n_gpus") as u32,
            batch: number("concurrent_users") as u32,
            throughput_hertz: number("output_tokens_per_s"),
            memory_bytes: None,
            kv_bytes: None,
            weights_bytes: None,
            settings: BTreeMap::new(),
        });
    }
    let cluster = pool("a100", "a100-40gb", 1, 8) + &pool("h100", "h100", 1, 8);
    let cluster = Cluster::from_toml(&cluster, Path::new("cluster.toml")).unwrap();
    let llama = &jobs["llama-13b"];
    let family = ShapeFamily::of(llama, &cluster, &Profiles::default(), ScalingLaw::default());
    let best = |pool: &str, gpus: u32| {
        let shape = family.shapes.iter().find(|shape| shape.pool.as_str() == pool && shape.gpus == gpus);
        let shape = shape.expect("it was measured");
        (shape.step_seconds.recip(), shape.settings["MAX_CONCURRENT_REQUESTS"].to_string())
    };
    println!(
        "llama-13b: a100 {:?}, h100 {:?}, 4 h100 {:?}",
        best("a100", 1),
        best("h100", 1),
        best("h100", 4)
    );
    // On one A100 with 40 GB the cache is full soon: far fewer users than on an H100.
    let users = |pool| best(pool, 1).1.parse::<u32>().unwrap();
    assert!(users("a100") < users("h100"));
    assert!(best("h100", 4).0 > best("h100", 1).0);
    assert!(
        family.shapes.iter().all(|shape| shape.settings["NUM_SHARD"].to_string() == shape.gpus.to_string())
    );
    let count = jobs.len();
    let jobs = Jobs { job: jobs.into_values().collect() };
    let allocator = Allocator::new(cluster.clone(), Options::default());
    let placement = allocator.solve(&jobs, &Profiles::default(), None).unwrap();
    assert_eq!(check(&placement, &cluster), vec![]);
    println!(
        "LLM-Pilot: {count} models, {} served, gap {:.3} %",
        placement.assignments.len(),
        placement.gap * 100.0
    );
    assert!(placement.assignments.len() >= 5 && placement.gap < 0.05);
}

/// A line by least squares: intercept and slope.
fn line_through(points: &[(f64, f64, f64)]) -> (f64, f64) {
    let sum = |term: &dyn Fn(&(f64, f64, f64)) -> f64| points.iter().map(term).sum::<f64>();
    let weight = sum(&|point| point.2);
    let (x, y) = (sum(&|point| point.2 * point.0) / weight, sum(&|point| point.2 * point.1) / weight);
    let slope =
        sum(&|point| point.2 * (point.0 - x) * (point.1 - y)) / sum(&|point| point.2 * (point.0 - x).powi(2));
    (y - slope * x, slope)
}

struct Step {
    gpus: u32,
    is_one_node: bool,
    batch: u32,
    seconds: f64,
}

/// Fits the times as Pollux' agent does, by a search over γ; the synchronisation from the smallest batches, where it shows.
fn fitted(steps: &[Step]) -> (Timing, f64) {
    let alone: Vec<(f64, f64, f64)> = steps
        .iter()
        .filter(|step| step.gpus == 1)
        .map(|step| (f64::from(step.batch), step.seconds, step.seconds.powi(-2)))
        .collect();
    let (compute_alpha_seconds, compute_beta_seconds) = line_through(&alone);
    let mut best: Option<(Timing, f64)> = None;
    for gamma in [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0] {
        let sync = |is_one_node: bool| {
            let of_kind = |step: &&Step| step.gpus > 1 && step.is_one_node == is_one_node;
            let mut batches: Vec<u32> = steps.iter().filter(of_kind).map(|step| step.batch).collect();
            batches.sort_unstable();
            batches.dedup();
            let small = batches.get(2).copied().unwrap_or(u32::MAX);
            let points: Vec<(f64, f64, f64)> = steps
                .iter()
                .filter(of_kind)
                .filter(|step| step.batch <= small)
                .map(|step| {
                    let pass = compute_beta_seconds.mul_add(f64::from(step.batch), compute_alpha_seconds);
                    let sync = (step.seconds.powf(gamma) - pass.powf(gamma)).max(0.0).powf(gamma.recip());
                    (f64::from(step.gpus - 2), sync, 1.0)
                })
                .collect();
            let (alpha, beta) = line_through(&points);
            (alpha.max(0.0), beta.max(0.0))
        };
        let (local, node) = (sync(true), sync(false));
        let timing = Timing {
            pool: None,
            max_batch_per_gpu: steps.iter().map(|step| step.batch).max().unwrap_or(1),
            compute_alpha_seconds,
            compute_beta_seconds,
            local_alpha_seconds: local.0,
            local_beta_seconds: local.1,
            node_alpha_seconds: node.0,
            node_beta_seconds: node.1,
            gamma,
        };
        let errors: Vec<f64> = steps
            .iter()
            .map(|step| {
                (timing.step_seconds(step.gpus, step.is_one_node, step.batch, 1) / step.seconds - 1.0).abs()
            })
            .collect();
        let error = mean(&errors);
        if best.as_ref().is_none_or(|best| error < best.1) {
            best = Some((timing, error));
        }
    }
    best.expect("there is a gamma")
}

#[test]
fn the_step_time_of_pollux_fits_its_own_measurements() {
    let Some(folder) = published("pollux-profiles") else { return skip("the profiles of Pollux") };
    for app in ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"] {
        let steps: Vec<Step> = lines(&folder.join(app).join("placements.csv"))
            .iter()
            .map(|line| Step {
                gpus: line["placement"].chars().filter_map(|digit| digit.to_digit(10)).sum(),
                is_one_node: line["placement"].len() == 1,
                batch: line["local_bsz"].parse().unwrap(),
                seconds: line["step_time"].parse().unwrap(),
            })
            .collect();
        let (timing, error) = fitted(&steps);
        println!("{app}: {} steps, mean error {:.1} % at gamma {}", steps.len(), error * 100.0, timing.gamma);
        assert!(error < 0.12, "{app}: {error}");
        // The family: the batch grows with the GPUs, and over nodes it pays for the network.
        let smallest = steps.iter().map(|step| step.batch).min().unwrap();
        let mut job = Job::new(JobId::new(app).unwrap(), None);
        job.gpus_max = Some(16);
        let goodput = Goodput {
            noise_examples: f64::from(smallest) * 64.0,
            reference_batch: smallest,
            max_batch: None,
            max_accumulation: 4,
            timing: vec![timing],
        };
        job.goodput = Some(goodput);
        let cluster = Cluster::from_toml(&pool("t4", "t4", 4, 4), Path::new("cluster.toml")).unwrap();
        let family = ShapeFamily::of(&job, &cluster, &Profiles::default(), ScalingLaw::default());
        assert!(family.shapes.iter().all(|shape| shape.origin == Origin::Fitted));
        let batches: Vec<u32> = family
            .shapes
            .iter()
            .map(|shape| shape.settings["global_batch"].to_string().parse().unwrap())
            .collect();
        let speeds: Vec<f64> = family.shapes.iter().map(|shape| shape.normalized_throughput).collect();
        println!("  batches {batches:?}, goodput {speeds:.2?}");
        assert!(batches.is_sorted() && batches[0] >= smallest);
        assert!(
            family.shapes.iter().all(|shape| shape.normalized_throughput <= f64::from(shape.gpus) * 1.001)
        );
    }
}
