//! What holds for every instance, and how far tiny ones are from the true optimum.

use crate::instance::Instance;
use crate::placement::check;
use crate::resources::{Amounts, RESOURCES};
use crate::whatif::{Amount, PoolAmounts, Scenario, WhatIf};
use crate::{
    Allocator, Cluster, Decision, Job, Jobs, MeasuredShape, Objective, Options, PairOutcome, PairTable,
    Session,
};
use elastico_core::Seed;
use elastico_models::Profiles;
use proptest::prelude::*;

#[path = "../benches/generator.rs"]
mod generator;
use generator::{Generated, Size, generate};

mod certificate;

/// The best integral solution by trying all of them.
fn optimum(instance: &Instance<'_>) -> f64 {
    fn go(instance: &Instance<'_>, job: usize, taken: &mut Vec<bool>, left: &mut Vec<Amounts>) -> f64 {
        let jobs = instance.problem.jobs();
        if job == jobs {
            return 0.0;
        }
        if taken[job] {
            return go(instance, job + 1, taken, left);
        }
        let mut best = go(instance, job + 1, taken, left);
        let fits = |left: &Amounts, demand: &Amounts| (0..RESOURCES).all(|at| demand[at] <= left[at] + 1e-6);
        let apply = |left: &mut Amounts, demand: &Amounts, sign: f64| {
            left.iter_mut().zip(demand).for_each(|(left, amount)| *left += sign * amount);
        };
        for column in &instance.problem.singles[job] {
            if fits(&left[column.pool], &column.demand) {
                apply(&mut left[column.pool], &column.demand, -1.0);
                best = best.max(column.value + go(instance, job + 1, taken, left));
                apply(&mut left[column.pool], &column.demand, 1.0);
            }
        }
        for other in job + 1..jobs {
            for pool in 0..left.len() {
                if taken[other] {
                    continue;
                }
                let Ok(value) = instance.pair_value(job, other, pool) else { continue };
                let demand = instance.pair_demand(job, other, pool);
                if fits(&left[pool], &demand) {
                    taken[other] = true;
                    apply(&mut left[pool], &demand, -1.0);
                    best = best.max(value + go(instance, job + 1, taken, left));
                    apply(&mut left[pool], &demand, 1.0);
                    taken[other] = false;
                }
            }
        }
        best
    }
    go(instance, 0, &mut vec![false; instance.problem.jobs()], &mut instance.problem.capacity.clone())
}

fn solve(made: &Generated, options: &Options) -> crate::Placement {
    let allocator = Allocator::new(made.cluster.clone(), options.clone());
    allocator.solve_with(&made.jobs, &Profiles::default(), Some(&made.table), None).unwrap()
}

#[test]
fn tiny_instances_are_solved_and_their_bound_holds() {
    let mut options = Options { limit: 1.8, ..Options::default() };
    let (mut worst, mut sum, mut looseness) = (1.0_f64, 0.0, 0.0_f64);
    for round in 0..60_u64 {
        options.objective = if round % 3 == 2 { Objective::Log } else { Objective::Throughput };
        options.pairs.training_training = round % 4 == 3;
        let size = Size {
            training: 3 + (round % 3) as usize,
            inference: 4 - (round % 2) as usize,
            gpus: 2 + (round % 4) as u32,
            per_node: 8,
            pools: 1 + (round % 2) as u32,
            most_gpus: 4,
        };
        let made = generate(size, Seed(round), &options.sharing);
        let profiles = Profiles::default();
        let instance = Instance::new(&made.cluster, &options, &made.jobs, &profiles, Some(&made.table));
        let best = optimum(&instance);
        let placement = solve(&made, &options);
        assert!(check(&placement, &made.cluster).is_empty(), "{:?}", check(&placement, &made.cluster));
        assert!(
            placement.bound >= best * (1.0 - 1e-12),
            "round {round}: bound {} under {best}",
            placement.bound
        );
        assert!(placement.value <= best * (1.0 + 1e-9));
        let ratio = placement.value / best;
        worst = worst.min(ratio);
        sum += ratio;
        looseness = looseness.max(placement.bound / best - 1.0);
    }
    println!(
        "60 tiny instances: mean {:.5}, worst {worst:.5} of the optimum; bound at most {looseness:.4} above",
        sum / 60.0
    );
    assert!(worst > 0.97, "worst {worst}");
    assert!(sum / 60.0 > 0.999, "mean {}", sum / 60.0);
}

#[test]
fn moderate_instances_have_a_small_certified_gap() {
    for (size, most) in [
        (Size { training: 70, inference: 70, gpus: 64, per_node: 8, pools: 1, most_gpus: 4 }, 0.02),
        (Size { training: 150, inference: 150, gpus: 64, per_node: 8, pools: 2, most_gpus: 8 }, 0.02),
        (Size { training: 200, inference: 200, gpus: 256, per_node: 8, pools: 2, most_gpus: 8 }, 0.01),
    ] {
        let options = Options::default();
        let made = generate(size, Seed(3), &options.sharing);
        let placement = solve(&made, &options);
        println!(
            "{}+{} jobs, {} GPUs: gap {:.4} %, dual gap {:.4} %, {} calls, {} rounds, {} pairs",
            size.training,
            size.inference,
            size.gpus,
            placement.gap * 100.0,
            (1.0 - placement.prices.bound_lower / placement.bound) * 100.0,
            placement.prices.calls,
            placement.prices.rounds,
            placement.pairs()
        );
        assert!(check(&placement, &made.cluster).is_empty());
        assert!(placement.gap < most, "gap {}", placement.gap);
    }
}

#[test]
fn warm_prices_give_as_good_an_answer() {
    let options = Options::default();
    let size = Size { training: 60, inference: 60, gpus: 64, per_node: 8, pools: 1, most_gpus: 4 };
    let made = generate(size, Seed(9), &options.sharing);
    let allocator = Allocator::new(made.cluster.clone(), options.clone());
    let profiles = Profiles::default();
    let first = allocator.solve_with(&made.jobs, &profiles, Some(&made.table), None).unwrap();
    let mut jobs = made.jobs.clone();
    jobs.job.remove(5);
    jobs.job.remove(70);
    let cold = allocator.solve_with(&jobs, &profiles, Some(&made.table), None).unwrap();
    let warm = allocator.solve_with(&jobs, &profiles, Some(&made.table), Some(&first.prices)).unwrap();
    assert!((warm.bound / cold.bound - 1.0).abs() < 1e-3);
    assert!(warm.value > cold.value * 0.995);
}

fn sizes() -> impl Strategy<Value = (Size, u64)> {
    (0_usize..12, 0_usize..12, 0_u32..20, 1_u32..3, 0_u32..4, any::<u64>()).prop_map(
        |(training, inference, gpus, pools, most, seed)| {
            (Size { training, inference, gpus, per_node: 4, pools, most_gpus: 1 << most }, seed)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_placement_is_feasible_bounded_and_repeatable((size, seed) in sizes()) {
        let options = Options { limit: 2.0, search: 20_000, ..Options::default() };
        let made = generate(size, Seed(seed), &options.sharing);
        let placement = solve(&made, &options);
        prop_assert_eq!(check(&placement, &made.cluster), vec![]);
        prop_assert!(placement.bound >= placement.value);
        prop_assert!(placement.prices.prices.iter().all(|price| price.value_per_unit >= 0.0));
        prop_assert_eq!(placement.assignments.len() + placement.waiting.len(), made.jobs.job.len());
        let sum: f64 = placement.assignments.iter().map(|assignment| assignment.value).sum();
        prop_assert!((sum - placement.value).abs() <= 1e-5 * (1.0 + sum));
        let again = serde_json::to_string(&solve(&made, &options)).unwrap();
        prop_assert_eq!(again, serde_json::to_string(&placement).unwrap());
    }

    #[test]
    fn more_gpus_never_lower_bound_or_value((size, seed) in sizes()) {
        let options = Options { limit: 2.0, search: 5_000, ..Options::default() };
        let made = generate(size, Seed(seed), &options.sharing);
        let allocator = Allocator::new(made.cluster.clone(), options);
        let profiles = Profiles::default();
        let whatif = WhatIf::new(&allocator, &made.jobs, &profiles, Some(&made.table)).unwrap();
        let pool = made.cluster.pool[0].id.clone();
        let steps = |amount: Amount| [PoolAmounts { pool: pool.clone(), amounts: vec![amount] }];
        let more = whatif.capacity(&steps(Amount::Gpus(3)), &steps(Amount::All)).unwrap();
        for step in &more.steps {
            let sign = step.gpus.signum() as f64;
            prop_assert!(step.value_delta * sign >= 0.0);
            prop_assert!((step.after.bound - more.before.bound) * sign >= 0.0);
            prop_assert!(step.value_delta_range[0] <= step.value_delta && step.value_delta <= step.value_delta_range[1]);
        }
        let too_many = Amount::Gpus(made.cluster.pool[0].gpu_count() + 1);
        prop_assert!(whatif.capacity(&[], &steps(too_many)).is_err());
        let alone = whatif.harmed(&Scenario { without_sharing: true, ..Scenario::default() }).unwrap();
        prop_assert_eq!(alone.after.pairs, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// The bound is concave in capacity, and a price is a slope of it: no less than what one more brings, no more than what
    /// one less costs. Where it is said to hold it is both.
    #[test]
    fn a_price_lies_between_one_more_and_one_less((size, seed) in sizes()) {
        let options = Options { limit: 2.0, search: 0, tolerance: 1e-6, calls: 200, ..Options::default() };
        let made = generate(size, Seed(seed), &options.sharing);
        let allocator = Allocator::new(made.cluster.clone(), options);
        let profiles = Profiles::default();
        let whatif = WhatIf::new(&allocator, &made.jobs, &profiles, Some(&made.table)).unwrap();
        let answer = whatif.price(None).unwrap();
        prop_assert_eq!(answer.prices.len(), made.cluster.pool.len());
        let tolerance = 1e-4 * (1.0 + answer.side.bound);
        for price in &answer.prices {
            let more = price.one_more.unwrap();
            // A pool that is smaller than a shape gets new shapes as it grows: only larger ones have a concave bound.
            if price.capacity >= f64::from(size.most_gpus) {
                prop_assert!(more.bound <= price.price + tolerance, "{:?}", price);
            }
            prop_assert!(more.value_range[0] <= more.value && more.value <= more.value_range[1]);
            if let Some(less) = price.one_less {
                prop_assert!(price.price <= less.bound + tolerance, "{:?}", price);
                if price.holds_from < price.capacity {
                    prop_assert!((less.bound - price.price).abs() <= tolerance, "{:?}", price);
                }
            }
            if price.holds_to.is_none_or(|to| to > price.capacity) {
                prop_assert!((more.bound - price.price).abs() <= tolerance, "{:?}", price);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Jobs come and go in any order; who runs never takes more than there is, and what is asked of pairs holds.
    #[test]
    fn a_session_never_places_over_capacity((size, seed) in sizes(), events in proptest::collection::vec((0_usize..24, 0_u8..8), 1..60)) {
        let options = Options { limit: 2.0, search: 2_000, ..Options::default() };
        let made = generate(size, Seed(seed), &options.sharing);
        let allocator = Allocator::new(made.cluster.clone(), options);
        let profiles = Profiles::default();
        let mut session = Session::new(&allocator, &profiles, Some(&made.table)).unwrap();
        let mut here = std::collections::BTreeMap::<String, Option<crate::Assignment>>::new();
        let note = |decision: Decision, here: &mut std::collections::BTreeMap<String, Option<crate::Assignment>>| match decision {
            Decision::Runs(run) => { here.insert(run.job.to_string(), Some(*run)); }
            Decision::Waits(wait) => { here.insert(wait.job.to_string(), None); }
        };
        for (index, kind) in events {
            let Some(job) = made.jobs.job.get(index) else { continue };
            if kind == 0 {
                let placement = session.solve().unwrap();
                prop_assert_eq!(check(&placement, &made.cluster), vec![]);
                for run in &placement.assignments {
                    // Who is not restarted sits where it sat.
                    if let Some(Some(before)) = here.get(run.job.as_str()) && !run.restarts {
                        prop_assert_eq!(&run.pool, &before.pool);
                        prop_assert_eq!(&run.nodes, &before.nodes);
                    }
                }
                for run in here.values_mut() {
                    *run = None;
                }
                for run in placement.assignments {
                    here.insert(run.job.to_string(), Some(run));
                }
            } else if here.remove(job.id.as_str()).is_some() {
                for decision in session.finish(job.id.as_str()).unwrap() {
                    note(decision, &mut here);
                }
            } else {
                for decision in session.submit(job.clone()).unwrap() {
                    note(decision, &mut here);
                }
                prop_assert!(session.submit(job.clone()).is_err());
            }
            prop_assert_eq!(session.jobs(), here.len());
            // Each GPU has one job, or two that name each other.
            let mut on: std::collections::BTreeMap<(String, u32, u32), Vec<&crate::Assignment>> =
                std::collections::BTreeMap::default();
            for run in here.values().flatten() {
                for node in &run.nodes {
                    for gpu in &node.gpus {
                        on.entry((run.pool.to_string(), node.node, *gpu)).or_default().push(run);
                    }
                }
            }
            for runs in on.values() {
                prop_assert!(runs.len() <= 2);
                if let [a, b] = runs[..] {
                    let names = |a: &crate::Assignment, b: &crate::Assignment| a.beside.as_ref().is_some_and(|beside| beside.job == b.job);
                    prop_assert!(names(a, b) && names(b, a));
                }
            }
        }
        prop_assert!(session.finish("nobody").is_err());
    }
}

#[test]
fn a_job_that_comes_finds_a_place_that_a_solution_would_give_it() {
    let options = Options::default();
    let size = Size { training: 40, inference: 40, gpus: 64, per_node: 8, pools: 1, most_gpus: 4 };
    let made = generate(size, Seed(4), &options.sharing);
    let allocator = Allocator::new(made.cluster.clone(), options);
    let profiles = Profiles::default();
    let mut session = Session::new(&allocator, &profiles, Some(&made.table)).unwrap();
    for job in &made.jobs.job {
        session.submit(job.clone()).unwrap();
    }
    let whole = session.solve().unwrap();
    // One after the other leaves and comes back: the prices hold, and little is lost.
    for job in made.jobs.job.iter().take(20) {
        session.finish(job.id.as_str()).unwrap();
        session.submit(job.clone()).unwrap();
    }
    let again = session.solve().unwrap();
    assert!((again.value / whole.value - 1.0).abs() < 0.01, "{} {}", again.value, whole.value);
}

#[test]
fn a_question_that_changes_nothing_harms_nobody() {
    let options = Options::default();
    let size = Size { training: 90, inference: 90, gpus: 64, per_node: 8, pools: 2, most_gpus: 4 };
    let made = generate(size, Seed(7), &options.sharing);
    let allocator = Allocator::new(made.cluster.clone(), options.clone());
    let profiles = Profiles::default();
    let whatif = WhatIf::new(&allocator, &made.jobs, &profiles, Some(&made.table)).unwrap();
    let same = Scenario { limit: Some(options.limit), ..Scenario::default() };
    let answer = whatif.harmed(&same).unwrap();
    assert_eq!((answer.effects.len(), answer.before), (0, answer.after), "{}", answer.value_delta);
    // A job that is worth nothing is not let in, and nobody pays for it.
    let mut worthless = made.jobs.job[0].clone();
    (worthless.id, worthless.weight) = ("worthless".parse().unwrap(), 1e-9);
    let answer = whatif.admit(&Jobs { job: vec![worthless] }).unwrap();
    assert!(answer.harmed.is_empty(), "{:?}", answer.harmed);
    assert_eq!(answer.after.value.to_bits(), answer.before.value.to_bits());
    assert_eq!(answer.after.throughput.to_bits(), answer.before.throughput.to_bits());
    let refused = &answer.jobs[0].remedies;
    assert!(refused.iter().filter(|remedy| !remedy.admits).all(|remedy| remedy.displaced.is_empty()));
    let many = crate::whatif::RobustOptions { draws: u32::MAX, ..Default::default() };
    assert!(whatif.robust(many).is_err());
}
