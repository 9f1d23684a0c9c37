//! Prices and placement certify each other, and nodes cost little.

use super::generator::{Size, generate};
use super::{sizes, solve};
use crate::Options;
use crate::allocate::seat;
use crate::dual::{self, Start};
use crate::instance::Instance;
use elastico_core::Seed;
use elastico_models::Profiles;
use proptest::prelude::*;
use std::collections::BTreeMap;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Complementary slackness. What is missing to the bound is the price of what is left over, and what every job gives away:
    /// so none of these is more than the gap, and where there is no gap all are zero.
    #[test]
    fn nothing_gives_away_more_than_the_gap((size, seed) in sizes()) {
        let options = Options { limit: 2.0, search: 20_000, ..Options::default() };
        let made = generate(size, Seed(seed), &options.sharing);
        let placement = solve(&made, &options);
        let most = placement.bound - placement.value + 1e-9 * (1.0 + placement.bound);
        let mut total = 0.0;
        for price in &placement.prices.prices {
            let left = price.value_per_unit * price.capacity * (1.0 - price.used_ratio);
            prop_assert!(left <= most, "{:?} is priced and left: {} of {}", price, left, most);
            total += left;
        }
        let mut units: BTreeMap<String, f64> = BTreeMap::new();
        for run in &placement.assignments {
            // A pair is priced as a whole.
            let first = run.beside.as_ref().map_or(&run.job, |beside| (&run.job).min(&beside.job));
            *units.entry(first.to_string()).or_default() += run.value - run.price;
        }
        for (unit, net) in units {
            prop_assert!(net >= -most, "{unit} runs at {net}");
        }
        for wait in &placement.waiting {
            let net = wait.entry.as_ref().map_or(0.0, |entry| entry.value - entry.price);
            prop_assert!(net <= most, "{} waits at {}", wait.job, net);
            total += net.max(0.0);
        }
        prop_assert!(total <= most, "{} of {}", total, most);
    }

    /// The bound itself, not only what a question makes of it, never falls as GPUs are added.
    #[test]
    fn the_bound_rises_with_capacity((size, seed) in sizes()) {
        let options = Options { limit: 2.0, search: 0, tolerance: 1e-6, calls: 200, ..Options::default() };
        let made = generate(size, Seed(seed), &options.sharing);
        let mut larger = made.clone();
        let pool = &mut larger.cluster.pool[0];
        pool.nodes += 1;
        pool.gpus = pool.gpus.map(|gpus| gpus + pool.gpus_per_node);
        let (before, after) = (solve(&made, &options), solve(&larger, &options));
        prop_assert!(after.bound >= before.bound * (1.0 - 1e-5), "{} then {}", before.bound, after.bound);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Of many jobs only the pairs within blocks are listed, and yet the bound holds for each that the rules permit.
    #[test]
    fn pairs_that_are_not_listed_are_covered(seed in 0_u64..10_000, spread in any::<bool>(), pools in 1_u32..3) {
        let options = Options { limit: 2.0, share_across_tenants: spread, ..Options::default() };
        let size = Size { training: 60, inference: 60, gpus: 48, per_node: 8, pools, most_gpus: 4 };
        let mut made = generate(size, Seed(seed), &options.sharing);
        let known: Vec<_> = made.jobs.job.iter().map(|job| job.workload.clone()).collect();
        for (at, job) in made.jobs.job.iter_mut().enumerate() {
            // Ten workloads of either kind.
            job.workload.clone_from(&known[at / 60 * 60 + at % 10]);
            job.tenant = Some(format!("tenant {}", (at * 7 + seed as usize) % 3));
            job.host_cores = [2.0, 6.0][(at / 5) % 2];
            job.slo_slowdown = (at % 4 == 0).then_some(1.3);
            if at % 9 == 0 {
                job.current = Some(crate::Current::new(made.cluster.pool[0].id.clone(), 1));
                job.switch_seconds = 60.0;
            }
        }
        for pool in &mut made.cluster.pool {
            pool.host_cores = Some(80.0);
        }
        let profiles = Profiles::default();
        let instance = || Instance::new(&made.cluster, &options, &made.jobs, &profiles, Some(&made.table));
        let (mut listed, mut dealt) = (instance(), instance());
        dealt.deal(16);
        let all = dual::solve(&mut listed, &Start::default());
        let dual = dual::solve(&mut dealt, &Start::default());
        let costs = dealt.pair_costs(&dual.prices);
        let mut permitted = 0;
        for a in 0..made.jobs.job.len() {
            for b in a + 1..made.jobs.job.len() {
                for (pool, costs) in costs.iter().enumerate() {
                    let Ok(value) = dealt.pair_value(a, b, pool) else { continue };
                    permitted += 1;
                    let price = dual.prices[pool][0] + costs[a] + costs[b];
                    let over = value - price - dual.surplus[a] - dual.surplus[b];
                    prop_assert!(over <= 1e-9 * (1.0 + value), "{} and {}: {}", a, b, over);
                }
            }
        }
        prop_assert!(permitted > 500, "{}", permitted);
        prop_assert!(dual.bound >= all.lower * (1.0 - 1e-9), "{} under {}", dual.bound, all.lower);
        prop_assert!(dual.bound <= all.bound * 1.002, "{} over {}", dual.bound, all.bound);
    }
}

/// How much less the jobs on nodes are worth than the same prices' solution of whole pools, with so many host cores per node.
fn lost_to_nodes(cores: Option<f64>) -> f64 {
    let options = Options::default();
    let profiles = Profiles::default();
    let mut worst = 0.0_f64;
    for (size, seed) in [
        (Size { training: 70, inference: 70, gpus: 64, per_node: 8, pools: 1, most_gpus: 4 }, 1),
        (Size { training: 150, inference: 50, gpus: 256, per_node: 8, pools: 2, most_gpus: 32 }, 2),
        (Size { training: 200, inference: 200, gpus: 512, per_node: 8, pools: 1, most_gpus: 64 }, 3),
    ] {
        let mut made = generate(size, Seed(seed), &options.sharing);
        for pool in &mut made.cluster.pool {
            pool.host_cores = cores;
        }
        for (at, job) in made.jobs.job.iter_mut().enumerate() {
            job.host_cores = [0.5, 1.0, 2.0, 3.0, 6.0][(at * 7 + at / 5) % 5];
        }
        let mut instance = Instance::new(&made.cluster, &options, &made.jobs, &profiles, Some(&made.table));
        let dual = dual::solve(&mut instance, &Start::default());
        let (pools, nodes) = seat(&instance, &dual, &[]);
        let lost = 1.0 - nodes.value / pools;
        println!(
            "{}+{} jobs on {} GPUs, {cores:?} cores per node: nodes cost {:.3} % of the pool-level value",
            size.training,
            size.inference,
            size.gpus,
            lost * 100.0
        );
        worst = worst.max(lost);
    }
    worst
}

#[test]
fn nodes_cost_at_most_a_hundredth_of_the_value() {
    let worst = lost_to_nodes(None).max(lost_to_nodes(Some(64.0)));
    assert!(worst <= 0.01, "{worst}");
}

/// A pair takes five cores on average: with 14 for 8 GPUs hosts are what is packed.
#[test]
fn nodes_cost_little_where_hosts_are_short() {
    let worst = [14.0, 20.0, 28.0].map(|cores| lost_to_nodes(Some(cores))).into_iter().fold(0.0, f64::max);
    assert!(worst <= 0.02, "{worst}");
}
