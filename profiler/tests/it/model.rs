//! What the simulated chips must get right whatever their constants are.

use crate::campaign;
use elastico_core::{SharingMode, WorkloadId};
use elastico_profiler::devices::simulated::Simulated;
use elastico_profiler::{Device, Observation, Plan, protocol};
use elastico_workloads::Catalogue;

fn catalogue() -> Catalogue {
    Catalogue::bundled()
}

struct Result {
    /// Interference of both sides.
    interference: [f64; 2],
    isolated: [f64; 2],
}

/// One trial on a chip under a mode.
fn measure(chip: &str, a: &str, b: &str, mode: &str) -> Result {
    let catalogue = catalogue();
    let text = format!(
        "schema = 1\nname = \"m\"\ndevice = \"sim:{chip}\"\nsharing = [\"{mode}\"]\n[workloads]\npairs = [[\"{a}\", \"{b}\"]]\n[protocol]\nmin_steps = 200\n"
    );
    let mut device = Simulated::new(chip).unwrap();
    let plan = Plan::new(&campaign(&text), &catalogue, device.identity()).unwrap();
    let cell = plan.cells.iter().find(|cell| cell.role == elastico_profiler::Role::Pair).unwrap();
    let trial = cell.trial(0);
    let observation: Observation = protocol::measure(
        &mut device,
        &trial,
        catalogue.get(trial.subject.as_str()).unwrap(),
        trial.co_runner.as_ref().map(|id| catalogue.get(id.as_str()).unwrap()),
        &plan.header.protocol,
        0.95,
        plan.header.seed,
    );
    let measured = observation.measured.unwrap_or_else(|| panic!("{:?}", observation.attempts));
    let co_runner = measured.co_runner.unwrap();
    let sides = [&measured.subject, &co_runner];
    let mut result = Result {
        interference: sides.map(|side| side.interference.unwrap().point),
        isolated: sides.map(|side| side.isolated.point),
    };
    if trial.subject != WorkloadId::new(a).unwrap() {
        result.interference.reverse();
        result.isolated.reverse();
    }
    result
}

/// The first benchmark of a family at full duty.
fn one(pattern: &str) -> String {
    let catalogue = catalogue();
    let found = catalogue.select(pattern).unwrap();
    let full = found.iter().filter(|benchmark| benchmark.program().duty >= 1.0);
    full.max_by(|a, b| {
        let flops = |benchmark: &elastico_workloads::Benchmark| {
            let demand = benchmark.program().demand();
            demand.blocks as f64 * f64::from(demand.warps_per_block)
        };
        flops(a).total_cmp(&flops(b))
    })
    .unwrap()
    .id
    .to_string()
}

#[test]
fn compute_bound_sides_halve_each_other_when_sliced() {
    let fma = one("st_fma");
    let result = measure("h100", &fma, &fma, "time_slice");
    for interference in result.interference {
        assert!((1.95..2.2).contains(&interference), "{interference}");
    }
}

#[test]
fn two_streams_share_the_memory() {
    let dram = one("st_dram*");
    for chip in ["h100", "a100-80gb", "v100"] {
        let result = measure(chip, &dram, &dram, "mps(1,1)");
        for interference in result.interference {
            assert!((1.8..2.6).contains(&interference), "{chip}: {interference}");
        }
    }
}

#[test]
fn different_resources_hardly_meet() {
    let result = measure("h100", &one("st_fma"), &one("st_dram*"), "mps(1,1)");
    for interference in result.interference {
        assert!((0.99..1.25).contains(&interference), "{:?}", result.interference);
    }
}

#[test]
fn the_null_pair_is_free() {
    let catalogue = catalogue();
    let null = catalogue.select("null").unwrap()[0].id.to_string();
    for mode in ["mps(1,1)", "mps(0.5,0.5)", "time_slice", "streams", "mig(3g.40gb)"] {
        for workload in ["st_fma", "st_dram*", "tr_block"] {
            let result = measure("h100", &one(workload), &null, mode);
            assert!(
                (result.interference[0] - 1.0).abs() < 0.01,
                "{mode} {workload} {:?}",
                result.interference
            );
        }
    }
}

#[test]
fn half_the_sms_double_compute_bound_time_and_spare_the_interference() {
    let fma = one("st_fma");
    let whole = measure("h100", &fma, &fma, "mps(1,1)");
    let half = measure("h100", &fma, &fma, "mps(0.5,0.5)");
    let partition = half.isolated[0] / whole.isolated[0];
    assert!((1.9..2.1).contains(&partition), "{partition}");
    assert!(half.interference[0] < 1.1, "{:?}", half.interference);
    let sliced = measure("h100", &fma, &fma, "mig(3g.40gb)");
    assert!((sliced.isolated[0] / whole.isolated[0] / (7.0 / 3.0) - 1.0).abs() < 0.05);
}

#[test]
fn equal_sides_suffer_equally() {
    for workload in ["tr_block", "tr_conv", "in_decode", "tr_lstm"] {
        for mode in ["mps(1,1)", "time_slice"] {
            let id = one(workload);
            let [a, b] = measure("a100-80gb", &id, &id, mode).interference;
            assert!((a / b - 1.0).abs() < 0.02, "{workload} {mode}: {a} {b}");
        }
    }
}

/// A stressor that works more of the time hurts no less.
#[test]
fn slowdown_grows_with_the_duty_of_the_co_runner() {
    let catalogue = catalogue();
    for family in ["st_dram*", "st_fma", "st_tensor"] {
        let mut by_size: std::collections::BTreeMap<String, Vec<(f64, String)>> =
            std::collections::BTreeMap::default();
        for benchmark in catalogue.select(family).unwrap() {
            let demand = benchmark.program().demand();
            let key = format!("{family} {:?} {:?} {}", demand.dram_bytes(), demand.flops(), demand.blocks);
            by_size.entry(key).or_default().push((benchmark.program().duty, benchmark.id.to_string()));
        }
        let mut ladder = by_size.into_values().max_by_key(Vec::len).unwrap();
        ladder.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(ladder.len() >= 3, "{family} has no ladder of duties: {ladder:?}");
        let subject = one("tr_block");
        let slowdowns: Vec<f64> =
            ladder.iter().map(|(_, id)| measure("h100", &subject, id, "mps(1,1)").interference[0]).collect();
        // Each side carries noise of about half a percent of its excess, and the phases of four offsets.
        assert!(
            slowdowns.windows(2).all(|pair| pair[1] > pair[0] * 0.985),
            "{family}: {ladder:?} {slowdowns:?}"
        );
        assert!(slowdowns.last() > slowdowns.first(), "{family}: {slowdowns:?}");
    }
}

/// Over the whole catalogue: nobody gains from a neighbour beyond the noise, and everything is finite.
#[test]
fn nobody_gains_from_a_neighbour() {
    let catalogue = catalogue();
    let text = "schema = 1\nname = \"all\"\ndevice = \"sim:t4\"\nsharing = [\"mps\", \"time_slice\", \"streams\"]\nmax_pairs = 300\n[workloads]\nsubjects = [\"*\"]\n";
    let mut device = Simulated::new("t4").unwrap();
    let plan = Plan::new(&campaign(text), &catalogue, device.identity()).unwrap();
    let mut worst = 1.0_f64;
    for cell in plan.cells.iter().filter(|cell| cell.co_runner.is_some()) {
        let trial = cell.trial(0);
        let co_runner = trial.co_runner.as_ref().map(|id| catalogue.get(id.as_str()).unwrap());
        let subject = catalogue.get(trial.subject.as_str()).unwrap();
        let observation = protocol::measure(
            &mut device,
            &trial,
            subject,
            co_runner,
            &plan.header.protocol,
            0.95,
            plan.header.seed,
        );
        let measured = observation.measured.unwrap_or_else(|| panic!("{trial:?} {:?}", observation.attempts));
        for side in [&measured.subject, measured.co_runner.as_ref().unwrap()] {
            let interference = side.interference.unwrap_or_else(|| panic!("{trial:?} {measured:?}")).point;
            assert!(interference > 0.985 && interference < 1000.0, "{trial:?}: {interference}");
            worst = worst.max(interference);
        }
    }
    assert!(worst > 1.5, "no pair interferes at all: {worst}");
}

#[test]
fn counters_of_a_stressor_name_its_resource() {
    let text = |id: &str| {
        format!(
            "schema = 1\nname = \"c\"\ndevice = \"sim:h100\"\nsharing = [\"mps\"]\n[workloads]\npairs = [[\"{id}\", \"{id}\"]]\n"
        )
    };
    let catalogue = catalogue();
    for (family, counter) in [
        ("st_fma", "fp32_active_ratio"),
        ("st_dram*", "dram_throughput_ratio"),
        ("st_tensor", "tensor_active_ratio"),
    ] {
        let id = one(family);
        let mut device = Simulated::new("h100").unwrap();
        let plan = Plan::new(&campaign(&text(&id)), &catalogue, device.identity()).unwrap();
        let isolated = plan
            .cells
            .iter()
            .find(|cell| cell.subject.as_str() == id && cell.sharing == SharingMode::Exclusive)
            .unwrap()
            .trial(0);
        let observation = protocol::measure(
            &mut device,
            &isolated,
            catalogue.get(&id).unwrap(),
            None,
            &plan.header.protocol,
            0.95,
            plan.header.seed,
        );
        assert!(observation.counters[counter] > 0.6, "{family}: {:?}", observation.counters);
        assert!(
            observation
                .counters
                .iter()
                .all(|(name, value)| !name.ends_with("_ratio") || (0.0..=1.0).contains(value))
        );
    }
}

/// A slip in a unit makes one op of one workload absurdly slow; no step of the catalogue takes a minute anywhere.
#[test]
fn no_step_is_absurd() {
    let catalogue = catalogue();
    for chip in ["t4", "v100", "a100-80gb", "h100", "b200"] {
        let text = format!(
            "schema = 1\nname = \"all\"\ndevice = \"sim:{chip}\"\nsharing = [\"mps\"]\n[workloads]\nsubjects = [\"*\"]\nco_runners = [\"null\"]\n"
        );
        let mut device = Simulated::new(chip).unwrap();
        let plan = Plan::new(&campaign(&text), &catalogue, device.identity()).unwrap();
        for cell in plan.cells.iter().filter(|cell| cell.co_runner.is_none()) {
            let trial = cell.trial(0);
            let subject = catalogue.get(trial.subject.as_str()).unwrap();
            let protocol = &plan.header.protocol;
            let observation =
                protocol::measure(&mut device, &trial, subject, None, protocol, 0.95, plan.header.seed);
            let step = observation.measured.unwrap().subject.isolated.point;
            assert!((1e-6..60.0).contains(&step), "{chip} {}: {step} s", trial.subject);
        }
    }
}
