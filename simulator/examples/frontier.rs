#![allow(clippy::all, clippy::pedantic, missing_docs)]
use elastico_core::{JobId, Seed, WorkloadKind};
use elastico_simulator::*;
use rand::RngExt;
use std::path::Path;

fn trace(
    workloads: &[(String, WorkloadKind, f64)],
    cluster: &ClusterSpec,
    jobs: usize,
    load: f64,
    seed: u64,
) -> Trace {
    let mut r = Seed(seed).stream("headline", &[]);
    let mut list = Vec::new();
    let mut now = 0.0;
    let tr: Vec<_> = workloads.iter().filter(|w| w.1 == WorkloadKind::Training).collect();
    let inf: Vec<_> = workloads.iter().filter(|w| w.1 == WorkloadKind::Inference).collect();
    for i in 0..jobs {
        let t = r.random::<f64>() < 0.5;
        let w = if t { tr[r.random_range(0..tr.len())] } else { inf[r.random_range(0..inf.len())] };
        let gpus = if !t {
            1
        } else {
            match r.random::<f64>() {
                d if d < 0.7 => 1,
                d if d < 0.8 => 2,
                d if d < 0.95 => 4,
                _ => 8,
            }
        };
        now += -(1.0 - r.random::<f64>()).ln();
        let z: f64 = {
            let u: f64 = r.random();
            let v: f64 = r.random();
            (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        };
        let d = (1800.0 * (1.2 * z).exp()).clamp(300.0, 6.0 * 3600.0);
        let mut j = TraceJob::new(JobId::new(format!("j{i}")).unwrap(), w.0.clone(), gpus, now, d);
        j.kind = Some(w.1);
        j.sm_active_ratio = Some(w.2);
        j.gpus_min = Some(1);
        j.gpus_max = Some(8);
        list.push(j);
    }
    Trace::new(format!("t{seed}"), list).unwrap().at_load(load, cluster).unwrap()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = Path::new(&args[1]);
    let cluster: ClusterSpec = args[2].parse().unwrap();
    let loads: Vec<f64> = args[3].split(',').map(|x| x.parse().unwrap()).collect();
    let seeds: u64 = args[4].parse().unwrap();
    let per_gpu: usize = args[5].parse().unwrap();
    let specs: Vec<String> = args[6].split(' ').map(str::to_owned).collect();
    let read = |n: &str| SlowdownTable::read_json(&dir.join(n)).unwrap();
    let (truth, planner) = (read("truth.json"), read("planner.json"));
    let ws: Vec<(String, WorkloadKind, f64)> = std::fs::read_to_string(dir.join("workloads.csv"))
        .unwrap()
        .lines()
        .map(|l| {
            let p: Vec<&str> = l.split(',').collect();
            (
                p[0].to_owned(),
                if p[1] == "training" { WorkloadKind::Training } else { WorkloadKind::Inference },
                p[2].parse().unwrap(),
            )
        })
        .collect();
    for load in loads {
        println!("load {load}");
        let mut base: Vec<f64> = Vec::new();
        for spec in &specs {
            let mut parts = spec.split(':');
            let name = parts.next().unwrap();
            let mut kind = PolicyKind::parse(name).unwrap();
            let mut restart = 30.0;
            if let PolicyKind::Elastico(o) = &mut kind {
                for p in parts {
                    let (k, v) = p.split_once('=').unwrap();
                    let v: f64 = v.parse().unwrap();
                    match k {
                        "u" => o.urgency = v,
                        "a" => o.ageing_seconds = v,
                        "l" => o.least_seconds = v,
                        "p" => o.period_seconds = v,
                        "h" => o.horizon_seconds = v,
                        "c" => o.candidates_per_gpu = v,
                        "lim" => o.limit_ratio = v,
                        "e" => o.error_factor = v,
                        "r" => restart = v,
                        _ => panic!(),
                    }
                }
            }
            let mut m = vec![vec![]; 12];
            let begin = std::time::Instant::now();
            for seed in 0..seeds {
                let mut ts = SpeedTable::new("drawn scaling");
                let mut ps = SpeedTable::new("scaling law");
                let mut r = Seed(seed).stream("scaling", &[]);
                for w in &ws {
                    let (lo, hi, pl) =
                        if w.1 == WorkloadKind::Training { (0.6, 0.95, 0.7) } else { (0.9, 1.0, 0.95) };
                    let e = lo + (hi - lo) * r.random::<f64>();
                    ts.set_law(
                        Some(&w.0),
                        elastico_placement::ScalingLaw { within_node: e, across_nodes: e - 0.2 },
                        8,
                    )
                    .unwrap();
                    ps.set_law(
                        Some(&w.0),
                        elastico_placement::ScalingLaw { within_node: pl, across_nodes: 0.5 },
                        8,
                    )
                    .unwrap();
                }
                let t = Knowledge::new(Some(truth.clone()), Some(ts));
                let p = Knowledge::new(Some(planner.clone()), Some(ps));
                let tables = Tables { truth: &t, planner: &p };
                let tr = trace(&ws, &cluster, per_gpu * cluster.gpus() as usize, load, seed);
                let options =
                    Options { harm_limit_ratio: 1.5, restart_seconds: restart, ..Options::default() };
                let (s, timing) = simulate_timed(&tr, &cluster, &kind, Some(&tables), &options).unwrap();
                let v = serde_json::to_value(&s).unwrap();
                if seed == 0 && std::env::var("KEYS").is_ok() {
                    println!("{}", serde_json::to_string_pretty(&v).unwrap());
                }
                let g = |k: &str| v[k].as_f64().unwrap_or(f64::NAN);
                let row = [
                    g("jct_mean_seconds"),
                    g("jct_p99_seconds"),
                    g("throughput_steady_ratio"),
                    g("sm_active_steady_ratio"),
                    g("allocated_while_arriving_ratio"),
                    g("harmed_jobs_total") / g("jobs_total"),
                    g("pairs_total"),
                    g("reconfigurations_total") / g("jobs_total"),
                    g("makespan_seconds"),
                    g("slowdown_mean_ratio"),
                    g("jct_median_seconds"),
                    g("jct_mean_steady_seconds"),
                ];
                for (a, b) in m.iter_mut().zip(row) {
                    a.push(b);
                }
                if std::env::var("TIME").is_ok() {
                    println!("{timing:?}");
                }
            }
            let mean = |v: &Vec<f64>| v.iter().sum::<f64>() / v.len() as f64;
            if base.is_empty() {
                base = (0..12).map(|i| mean(&m[i])).collect();
            }
            let geo = |i: usize| base[i] / mean(&m[i]);
            println!(
                "{spec:34} JCT {:5.2}x p99 {:5.2}x med {:5.2}x thr {:5.2}x ({:.2}) sm {:.3} alloc {:.3} harm {:.4} reconf {:.2} mksp {:.2}x [jct {:.0}] {:.1}s",
                geo(0),
                geo(1),
                geo(10),
                mean(&m[2]) / base[2],
                mean(&m[2]),
                mean(&m[3]),
                mean(&m[4]),
                mean(&m[5]),
                mean(&m[7]),
                geo(8),
                mean(&m[0]),
                begin.elapsed().as_secs_f64()
            );
        }
    }
}
