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

/// How much less the jobs on nodes are worth than the same prices' solution of whole pools, where hosts are not short.
#[test]
fn nodes_cost_at_most_a_hundredth_of_the_value() {
    let options = Options::default();
    let profiles = Profiles::default();
    let mut worst = 0.0_f64;
    for (size, seed) in [
        (Size { training: 70, inference: 70, gpus: 64, per_node: 8, pools: 1, most_gpus: 4 }, 1),
        (Size { training: 150, inference: 50, gpus: 256, per_node: 8, pools: 2, most_gpus: 32 }, 2),
        (Size { training: 200, inference: 200, gpus: 512, per_node: 8, pools: 1, most_gpus: 64 }, 3),
    ] {
        let made = generate(size, Seed(seed), &options.sharing);
        let mut instance = Instance::new(&made.cluster, &options, &made.jobs, &profiles, Some(&made.table));
        let dual = dual::solve(&mut instance, &Start::default());
        let (pools, nodes) = seat(&instance, &dual, &[]);
        let lost = 1.0 - nodes.value / pools;
        println!(
            "{}+{} jobs on {} GPUs: nodes cost {:.3} % of the pool-level value",
            size.training,
            size.inference,
            size.gpus,
            lost * 100.0
        );
        worst = worst.max(lost);
    }
    assert!(worst <= 0.01, "{worst}");
}
