//! Every benchmark as a launch plan: bounds, order, work and memory.

use elastico_core::{Dtype, Seed};
use elastico_workloads::launch::{
    Action, KERNEL_FILES, LaunchError, LaunchPlan, Place, Target, Touch, checks, reference,
};
use elastico_workloads::{Benchmark, Catalogue, Op};
use std::collections::BTreeMap;

const A100: Target = Target { compute_capability: (8, 0), multiprocessors: 108, l2_bytes: 40 << 20 };
const H200: Target = Target { compute_capability: (9, 0), multiprocessors: 132, l2_bytes: 50 << 20 };
const B200: Target = Target { compute_capability: (10, 0), multiprocessors: 148, l2_bytes: 126 << 20 };

fn plans(target: Target) -> impl Iterator<Item = (Benchmark, LaunchPlan)> {
    let all: Vec<_> = Catalogue::bundled().iter().cloned().collect();
    all.into_iter().map(move |benchmark| {
        let plan = LaunchPlan::new(benchmark.program(), &target, Seed(7));
        let plan = plan.unwrap_or_else(|error| panic!("{}: {error}", benchmark.id));
        (benchmark, plan)
    })
}

#[test]
fn every_benchmark_lowers_where_its_format_exists() {
    for target in [H200, B200] {
        assert!(plans(target).count() > 90);
    }
    for benchmark in Catalogue::bundled().iter() {
        let plan = LaunchPlan::new(benchmark.program(), &A100, Seed(7));
        match plan {
            Ok(_) => assert_ne!(benchmark.dtype, Dtype::Fp8, "{}", benchmark.id),
            Err(LaunchError::Capability { dtype: Dtype::Fp8, needs: (8, 9), has: (8, 0), .. }) => {}
            Err(error) => panic!("{}: {error}", benchmark.id),
        }
    }
}

#[test]
fn calls_stay_in_their_buffers_and_name_kernels_that_exist() {
    for (benchmark, plan) in plans(H200) {
        for action in plan.setup.iter().chain(&plan.actions) {
            for touch in action.touches() {
                let buffer = &plan.buffers[touch.buffer];
                assert!(
                    touch.offset + touch.bytes <= buffer.bytes,
                    "{}: {} of {} bytes, {action:?}",
                    benchmark.id,
                    buffer.label,
                    buffer.bytes
                );
            }
            match action {
                Action::Kernel(call) => {
                    let file = KERNEL_FILES.iter().find(|file| file.name == call.file);
                    assert!(file.is_some(), "{}: no file {}", benchmark.id, call.file);
                    assert!(call.block[0] <= 1024 && call.block[0] % 32 == 0);
                }
                Action::Gemm(call) => {
                    for operand in [call.a, call.b, call.c] {
                        assert_eq!(operand.offset % 256, 0, "{}: {call:?}", benchmark.id);
                    }
                }
                Action::Copy(_) | Action::HostGap { .. } => {}
            }
        }
    }
}

/// Ranges of one buffer, none next to another.
#[derive(Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn add(&mut self, mut begin: u64, mut end: u64) {
        while let Some((&from, &to)) = self.0.range(..=end).next_back().filter(|(_, to)| **to >= begin) {
            self.0.remove(&from);
            (begin, end) = (begin.min(from), end.max(to));
        }
        self.0.insert(begin, end);
    }

    fn has(&self, begin: u64, end: u64) -> bool {
        self.0.range(..=begin).next_back().is_some_and(|(_, to)| *to >= end)
    }
}

#[test]
fn a_step_reads_no_activation_that_it_has_not_written() {
    for (benchmark, plan) in plans(H200) {
        let arena = plan.buffers.iter().position(|buffer| buffer.label == "activations");
        let mut written = Ranges::default();
        for action in &plan.actions {
            let touches: Vec<Touch> =
                action.touches().into_iter().filter(|touch| Some(touch.buffer) == arena).collect();
            let end = |touch: &Touch| touch.offset + touch.bytes;
            for read in touches.iter().filter(|touch| !touch.is_written && touch.bytes > 0) {
                assert!(written.has(read.offset, end(read)), "{}: {action:?}", benchmark.id);
                for other in touches.iter().filter(|touch| touch.is_written && touch.bytes > 0) {
                    let is_in_place = other.offset == read.offset && other.bytes == read.bytes;
                    assert!(
                        is_in_place || end(other) <= read.offset || other.offset >= end(read),
                        "{}: overlap in {action:?}",
                        benchmark.id
                    );
                }
            }
            for write in touches.iter().filter(|touch| touch.is_written && touch.bytes > 0) {
                written.add(write.offset, end(write));
            }
        }
    }
}

#[test]
fn work_and_copies_are_those_of_the_program() {
    for (benchmark, plan) in plans(H200) {
        let demand = benchmark.program().demand();
        let flops: f64 = plan.actions.iter().map(Action::flops).sum();
        let wanted = demand.flops().get();
        // Register loops come in whole rounds.
        assert!(
            (flops - wanted).abs() <= 0.005 * wanted,
            "{}: {flops:.3e} of {wanted:.3e} operations",
            benchmark.id
        );
        let copied = |place| -> u64 {
            plan.actions
                .iter()
                .filter_map(|action| match action {
                    Action::Copy(call) if plan.buffers[call.from].place == place => Some(call.bytes),
                    _ => None,
                })
                .sum()
        };
        assert_eq!(copied(Place::Pinned), demand.host_to_device.get() as u64, "{}", benchmark.id);
        assert_eq!(copied(Place::Device), demand.device_to_host.get() as u64, "{}", benchmark.id);
        let gaps: f64 = plan
            .actions
            .iter()
            .map(|action| if let Action::HostGap { seconds } = action { *seconds } else { 0.0 })
            .sum();
        assert!((gaps - demand.host.get()).abs() < 1e-9);
        assert_eq!(plan.duty.to_bits(), benchmark.program().duty.to_bits());
    }
}

#[test]
fn memory_is_about_the_footprint() {
    let mut report = String::new();
    for (benchmark, plan) in plans(H200) {
        let (held, wanted) = (plan.bytes() as f64, benchmark.program().footprint().get());
        report += &format!("{:60} {:8.1} MB of {:8.1} MB\n", benchmark.id, held / 1e6, wanted / 1e6);
        assert!(held >= wanted, "{}: {held} bytes of {wanted}", benchmark.id);
        assert!(held <= 1.3 * wanted + 64e6, "{}: {held:.3e} bytes of {wanted:.3e}\n{report}", benchmark.id);
    }
    println!("{report}");
}

#[test]
fn launch_stressors_are_no_graph() {
    for (benchmark, plan) in plans(H200) {
        let launches = benchmark.program().ops.iter().any(|op| matches!(op, Op::Launch { .. }));
        assert_eq!(plan.is_graph, !launches, "{}", benchmark.id);
    }
}

#[test]
fn a_plan_is_the_same_for_the_same_seed() {
    let benchmark = Catalogue::bundled().get("tr_dlrm.b2048_r1m_d64_fp32").unwrap().clone();
    let plan = |seed| LaunchPlan::new(benchmark.program(), &H200, Seed(seed)).unwrap();
    assert_eq!(plan(1), plan(1));
    let contents = |seed| {
        let plan = plan(seed);
        let mut bytes = vec![0; 4096];
        let index = plan.host_filled().next().unwrap();
        plan.contents(index, &mut bytes, 0);
        bytes
    };
    assert_eq!(contents(1), contents(1));
    assert_ne!(contents(1), contents(2));
}

/// Root mean square of what a step leaves behind, weights and state included.
fn size_of_results(plan: &LaunchPlan, steps: u32) -> f64 {
    let contents = reference(plan, steps).unwrap();
    for result in plan.results() {
        let range = result.offset as usize..(result.offset + result.bytes) as usize;
        assert!(result.is_finite(&contents[result.buffer][range]), "{}", plan.buffers[result.buffer].label);
    }
    let weights = plan.buffers.iter().position(|buffer| buffer.label == "weights" || buffer.label == "table");
    let weights = &contents[weights.unwrap()];
    let words = weights.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()));
    let (mut squares, mut count) = (0.0, 0);
    for word in words {
        squares += f64::from(word).powi(2);
        count += 1;
    }
    (squares / f64::from(count)).sqrt()
}

#[test]
fn nothing_grows_from_step_to_step() {
    let names = ["block step fp32", "convolution step fp32", "table step fp32"];
    for check in checks().into_iter().filter(|check| names.contains(&check.name.as_str())) {
        let plan = check.plan(&H200).unwrap();
        let (few, many) = (size_of_results(&plan, 1), size_of_results(&plan, 300));
        // Weights move by at most 1e-7 a step; tables get back what was added.
        assert!((many / few - 1.0).abs() < 1e-3, "{}: {few} becomes {many}", check.name);
    }
}
