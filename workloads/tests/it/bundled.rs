//! Promises of the bundled catalogue.

use elastico_core::units::{Bytes, Seconds};
use elastico_core::{Dtype, WorkloadKind};
use elastico_workloads::{Benchmark, Catalogue, Op, STRUCTURES, catalogue_schema};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[test]
fn families_and_configurations_suffice_for_held_out_splits() {
    let catalogue = Catalogue::bundled();
    let mut families: BTreeMap<WorkloadKind, BTreeSet<&str>> = BTreeMap::new();
    for benchmark in catalogue.iter() {
        families.entry(benchmark.kind).or_default().insert(benchmark.family.as_str());
    }
    assert!((60..=100).contains(&catalogue.len()), "{}", catalogue.len());
    assert_eq!(families[&WorkloadKind::Training].len(), 7);
    assert_eq!(families[&WorkloadKind::Inference].len(), 7);
    assert!(families[&WorkloadKind::Stressor].len() >= 9);
    assert_eq!(catalogue.select("null").unwrap().len(), 1);
}

#[test]
fn every_structure_is_used_and_its_axes_are_told_apart() {
    let catalogue = Catalogue::bundled();
    for structure in STRUCTURES {
        assert!(
            catalogue.iter().any(|benchmark| benchmark.structure == structure.name),
            "{}",
            structure.name
        );
        let shorts: Vec<_> =
            structure.axes.iter().map(|axis| axis.short).filter(|short| !short.is_empty()).collect();
        let names: Vec<_> = structure.axes.iter().map(|axis| axis.name).collect();
        assert_eq!(shorts.iter().collect::<BTreeSet<_>>().len(), shorts.len(), "{}", structure.name);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{}", structure.name);
    }
}

#[test]
fn an_id_is_its_family_and_its_axes() {
    let catalogue = Catalogue::bundled();
    let benchmark = catalogue.get("tr_block.b8_s1024_h1024_bf16").unwrap();
    assert_eq!((benchmark.family.as_str(), benchmark.batch, benchmark.dtype), ("tr_block", 8, Dtype::Bf16));
    let axes = benchmark.axes();
    assert_eq!(
        (axes["sequence"].as_str(), axes["head_dim"].as_str(), axes["dtype"].as_str()),
        ("1024", "64", "bf16")
    );
    for benchmark in catalogue.iter() {
        assert!(benchmark.id.as_str().starts_with(benchmark.family.as_str()));
    }
}

fn kinds_of_ops(ops: &[Op]) -> Vec<&'static str> {
    let names: BTreeSet<_> = ops.iter().map(Op::name).collect();
    names.into_iter().collect()
}

#[test]
fn cpu_programs_keep_the_structure_and_fit_a_core() {
    for benchmark in Catalogue::bundled().iter() {
        let (program, small) = (benchmark.program(), benchmark.cpu_program());
        let id = &benchmark.id;
        assert_eq!(kinds_of_ops(&program.ops), kinds_of_ops(&small.ops), "{id}");
        assert!((program.duty - small.duty).abs() < f64::EPSILON, "{id}");
        assert!(small.footprint() < Bytes(600e6), "{id} holds {}", small.footprint());
        let step = small.cpu_estimate();
        assert!(Seconds(0.9e-3) <= step && step <= Seconds(20e-3), "{id} takes {step}");
    }
}

#[test]
fn most_cpu_programs_of_a_family_differ() {
    let catalogue = Catalogue::bundled();
    let mut seen: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for benchmark in catalogue.iter() {
        let key = serde_json::to_string(benchmark.cpu_program()).unwrap();
        seen.entry(key).or_default().push(benchmark.id.as_str());
    }
    let same: Vec<_> = seen.values().filter(|ids| ids.len() > 1).collect();
    assert!(seen.len() * 10 >= catalogue.len() * 9, "{} of {} differ: {same:?}", seen.len(), catalogue.len());
}

#[test]
fn the_dram_stressor_sweeps_past_a_last_level_cache_on_a_cpu_too() {
    for benchmark in Catalogue::bundled().select("st_dram").unwrap() {
        let Some(Op::Stream { footprint, bytes, .. }) = benchmark.cpu_program().ops.first() else {
            panic!("{} is no stream", benchmark.id);
        };
        assert!(*footprint >= 128 << 20 && bytes < footprint, "{}: {bytes} of {footprint}", benchmark.id);
    }
}

#[test]
fn most_benchmarks_can_pair_on_16_gigabytes() {
    let catalogue = Catalogue::bundled();
    let small = |benchmark: &&Benchmark| benchmark.program().footprint() < Bytes(7e9);
    let fitting = catalogue.iter().filter(small).count();
    assert!(fitting * 10 >= catalogue.len() * 9, "{fitting} of {}", catalogue.len());
}

#[test]
fn demands_are_finite_and_compulsory_traffic_passes_through_l2() {
    for benchmark in Catalogue::bundled().iter() {
        for op in benchmark.program().ops.iter().chain(&benchmark.cpu_program().ops) {
            let demand = op.demand();
            let amounts = [
                demand.flops().get(),
                demand.dram_read.get(),
                demand.dram_write.get(),
                demand.l2_bytes.get(),
                demand.working_set.get(),
            ];
            assert!(
                amounts.iter().all(|amount| amount.is_finite() && *amount >= 0.0),
                "{} {op}",
                benchmark.id
            );
            let floor = demand.dram_bytes().get() * 0.999;
            assert!(demand.l2_bytes.get() >= floor, "{} {op}: {demand:?}", benchmark.id);
            if demand.launches > 0 {
                assert!(
                    demand.blocks >= demand.launches && (1..=32).contains(&demand.warps_per_block),
                    "{op}"
                );
            }
        }
    }
}

#[test]
fn the_committed_schema_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalogue/schema.json");
    let current = catalogue_schema();
    if std::env::var_os("ELASTICO_BLESS").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        committed == current,
        "stale: run the tests once with ELASTICO_BLESS=1 and commit {}",
        path.display()
    );
}

#[test]
fn the_folder_reads_like_the_bundled_copy() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalogue");
    let read = Catalogue::read(&folder).unwrap();
    let ids =
        |catalogue: &Catalogue| catalogue.iter().map(|benchmark| benchmark.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&read), ids(&Catalogue::bundled()));
}
