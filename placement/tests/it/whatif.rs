//! Questions on states that are small enough to know the answers.

use super::{Law, profiles, told};
use elastico_core::{PoolId, Seed};
use elastico_models::Profiles;
use elastico_placement::whatif::{
    ChargedBy, EffectKind, PoolAmounts, RemedyKind, RobustOptions, Scenario, Smallest, Target, Verdict,
    WhatIf,
};
use elastico_placement::{Allocator, Cluster, Jobs, Options, PairTable, Resource};
use std::fmt::Write as _;
use std::path::Path;

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn allocator(nodes: u32, per_node: u32) -> Allocator {
    let text = format!(
        "[[pool]]\nid = \"p\"\ndevice = \"h100\"\nnodes = {nodes}\ngpus_per_node = {per_node}\nprice_per_gpu_hour = 2.0\n"
    );
    Allocator::new(Cluster::from_toml(&text, Path::new("cluster.toml")).unwrap(), Options::default())
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn jobs(text: &str) -> Jobs {
    Jobs::from_toml(text, Path::new("jobs.toml")).unwrap()
}

/// Jobs of one GPU each with these weights, named a, b, c, …
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn weighted(weights: &[f64]) -> Jobs {
    let mut text = String::new();
    for (at, weight) in weights.iter().enumerate() {
        let id = char::from(b'a' + at as u8);
        write!(text, "[[job]]\nid = \"{id}\"\nweight = {weight}\nshape = [{{ step_seconds = 1 }}]\n")
            .unwrap();
    }
    jobs(&text)
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn pool() -> PoolId {
    PoolId::new("p").unwrap()
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn gpus(text: &str) -> Vec<PoolAmounts> {
    vec![text.parse().unwrap()]
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn the_price_of_a_gpu_is_what_the_next_job_would_bring() {
    let none = Profiles::default();
    let allocator = allocator(4, 1);
    let different = weighted(&[9.0, 8.0, 7.0, 6.0, 4.0, 3.0]);
    let answer = WhatIf::new(&allocator, &different, &none, None).unwrap().price(None).unwrap();
    let price = &answer.prices[0];
    assert_eq!((answer.prices.len(), price.resource), (1, Resource::GpuSlots));
    assert!((4.0 - 1e-6..=6.0 + 1e-6).contains(&price.price), "{price:?}");
    let (more, less) = (price.one_more.unwrap(), price.one_less.unwrap());
    assert!(near(more.value, 4.0) && near(less.value, 6.0) && near(more.bound, 4.0), "{price:?}");
    assert!(near(more.value_range[0], 4.0) && near(more.value_range[1], 4.0), "{price:?}");

    // Equal jobs: one price from no GPU to as many as there are jobs.
    let equal = weighted(&[1.0; 9]);
    let answer = WhatIf::new(&allocator, &equal, &none, None).unwrap().price(Some(&pool())).unwrap();
    let price = &answer.prices[0];
    assert!(near(price.price, 1.0) && near(price.holds_from, 0.0), "{price:?}");
    assert_eq!(price.holds_to, Some(9.0));
    assert!(near(price.price_per_hour.unwrap(), 2.0) && near(price.list_price_ratio.unwrap(), 1.0));

    // More GPUs than jobs: surplus, however many are added, and down to as many as there are jobs.
    let few = weighted(&[1.0; 3]);
    let answer = WhatIf::new(&allocator, &few, &none, None).unwrap().price(None).unwrap();
    let price = &answer.prices[0];
    assert!(near(price.price, 0.0) && near(price.holds_from, 3.0) && price.holds_to.is_none(), "{price:?}");
    assert!(near(price.one_more.unwrap().value, 0.0) && near(price.one_less.unwrap().value, 0.0));
    assert_eq!(answer.money_per_value, None);

    // A shape of four GPUs fits three only when there is a fourth: there the price ends.
    let text = "[[pool]]\nid = \"p\"\ndevice = \"h100\"\nnodes = 1\ngpus_per_node = 4\ngpus = 3\n";
    let torn = Allocator::new(Cluster::from_toml(text, Path::new("c.toml")).unwrap(), Options::default());
    let wide = jobs("[[job]]\nid = \"wide\"\ngpus_min = 4\nshape = [{ gpus = 4, step_seconds = 1 }]\n");
    let answer = WhatIf::new(&torn, &wide, &none, None).unwrap().price(None).unwrap();
    let price = &answer.prices[0];
    assert!(near(price.price, 0.0) && near(price.one_more.unwrap().value, 1.0), "{price:?}");
    assert_eq!((price.holds_from, price.holds_to), (0.0, Some(3.0)));
}

#[test]
fn the_price_of_a_host_core_counts_where_cores_are_short() {
    let text = "[[pool]]\nid = \"p\"\ndevice = \"h100\"\nnodes = 1\ngpus_per_node = 8\nhost_cores = 8\n";
    let allocator =
        Allocator::new(Cluster::from_toml(text, Path::new("cluster.toml")).unwrap(), Options::default());
    let mut jobs = weighted(&[1.0; 6]);
    jobs.job.iter_mut().for_each(|job| job.host_cores = 4.0);
    let none = Profiles::default();
    let whatif = WhatIf::new(&allocator, &jobs, &none, None).unwrap();
    let answer = whatif.price(None).unwrap();
    let cores = answer.prices.iter().find(|price| price.resource == Resource::HostCores).unwrap();
    assert!(near(cores.price, 0.25) && near(cores.holds_from, 0.0), "{cores:?}");
    assert_eq!(cores.holds_to, Some(24.0));
    assert!(near(answer.prices[0].price, 0.0), "GPUs are in surplus: {:?}", answer.prices[0]);
    let step = whatif.capacity(&gpus("p:4"), &[]).unwrap().steps.remove(0);
    assert_eq!(step.bottleneck.unwrap().resource, Resource::HostCores);
}

#[test]
fn capacity_is_solved_step_by_step() {
    let none = Profiles::default();
    let (allocator, jobs) = (allocator(4, 1), weighted(&[9.0, 8.0, 7.0, 6.0, 4.0, 3.0]));
    let whatif = WhatIf::new(&allocator, &jobs, &none, None).unwrap();
    let answer = whatif.capacity(&gpus("p:8,1,2"), &gpus("p:all,1")).unwrap();
    let marginal: Vec<(i64, f64)> =
        answer.steps.iter().map(|step| (step.gpus, step.marginal_per_gpu)).collect();
    assert_eq!(marginal.len(), 5);
    for ((gpus, marginal), (expected, value)) in
        marginal.into_iter().zip([(-4, 8.0), (-1, 6.0), (1, 4.0), (2, 3.0), (8, 0.0)])
    {
        assert_eq!(gpus, expected);
        assert!(near(marginal, value), "{gpus}: {marginal}");
    }
    let [all, .., eight] = answer.steps.as_slice() else { panic!("five steps") };
    assert!(near(all.after.value, 0.0) && near(eight.value_delta, 7.0));
    assert!(eight.bottleneck.is_none(), "with twelve GPUs for six jobs nothing is short");
    assert_eq!(eight.entering.len(), 2);
    assert!(near(answer.steps[2].marginal_per_money.unwrap(), 2.0));
    for (add, remove, message) in [
        ("p:all", "p:1", "option add is `all`, only --remove takes `all`"),
        ("q:1", "p:1", "there is no pool `q`"),
        ("p:1", "p:5", "pool `p` has 4 GPUs, 5 cannot be removed"),
    ] {
        let error = whatif.capacity(&gpus(add), &gpus(remove)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn throughput_keeps_its_meaning_when_a_pool_goes() {
    let pools = "[[pool]]\nid = \"p\"\ndevice = \"h100\"\nnodes = 1\ngpus_per_node = 2\n\
                 [[pool]]\nid = \"slow\"\ndevice = \"t4\"\nnodes = 1\ngpus_per_node = 2\n";
    let cluster = Cluster::from_toml(pools, Path::new("cluster.toml")).unwrap();
    let allocator = Allocator::new(cluster, Options::default());
    let job = "[[job]]\nid = \"a\"\nshape = [{ pool = \"p\", step_seconds = 1 }, { pool = \"slow\", step_seconds = 4 }]\n";
    let none = Profiles::default();
    let jobs = jobs(job);
    let whatif = WhatIf::new(&allocator, &jobs, &none, None).unwrap();
    let step = whatif.capacity(&[], &gpus("p:all")).unwrap().steps.remove(0);
    assert!(near(step.after.value, 0.25) && near(step.value_delta, -0.75), "{step:?}");
    let mut change = Scenario::default();
    change.remove = gpus("p:all");
    let answer = whatif.harmed(&change).unwrap();
    assert_eq!(answer.effects[0].kind, EffectKind::Slower);
    assert!(near(answer.worst_ratio.unwrap(), 0.25));
}

#[test]
fn a_new_job_hears_what_would_let_it_in() {
    let none = Profiles::default();
    let (allocator, running) = (allocator(2, 2), weighted(&[4.0, 3.0, 3.0, 2.0]));
    let whatif = WhatIf::new(&allocator, &running, &none, None).unwrap();
    let light = jobs("[[job]]\nid = \"new\"\nshape = [{ step_seconds = 1 }]\n");
    let answer = whatif.admit(&light).unwrap();
    let admission = &answer.jobs[0];
    assert_eq!((answer.verdict, admission.never), (Verdict::No, false));
    assert!(answer.harmed.is_empty() && near(answer.value_delta, 0.0));
    assert_eq!(admission.binding, Some(Resource::GpuSlots));
    assert!(near(admission.entry.as_ref().unwrap().entry_slot_price, 1.0));
    let weight = admission.remedies.iter().find(|remedy| remedy.kind == RemedyKind::Weight).unwrap();
    assert!(weight.admits && near(weight.cost_to_others.unwrap(), 2.0), "{weight:?}");
    assert_eq!(weight.displaced[0].as_str(), "d");
    // Another node costs nobody anything, but money, so it comes after what needs none.
    assert_eq!(admission.remedies[0].kind, RemedyKind::Weight);
    let node = admission.remedies.iter().find(|remedy| remedy.kind == RemedyKind::Node).unwrap();
    assert!(
        node.admits && near(node.cost_to_others.unwrap(), 0.0) && near(node.money_per_hour.unwrap(), 4.0)
    );
    // What is said to admit does admit.
    let said: f64 = weight.change.split(' ').nth(1).unwrap().parse().unwrap();
    assert!((2.0..2.05).contains(&said), "{}", weight.change);
    let mut heavier = light.clone();
    heavier.job[0].weight = said;
    let answer = whatif.admit(&heavier).unwrap();
    assert_eq!(answer.verdict, Verdict::Yes);
    assert_eq!(answer.harmed[0].kind, EffectKind::Stops);
    assert_eq!(answer.jobs[0].state.as_ref().unwrap().gpus, 1);

    let large = jobs(
        "[[job]]\nid = \"large\"\nweight = 20\ngpus_min = 8\nshape = [{ gpus = 8, step_seconds = 1 }]\n\
         [[job]]\nid = \"stranger\"\nworkload = \"nobody\"\n",
    );
    let answer = whatif.admit(&large).unwrap();
    assert_eq!(answer.verdict, Verdict::CannotTell);
    let [large, stranger] = answer.jobs.as_slice() else { panic!("two jobs") };
    assert!(large.verdict == Verdict::No && large.never);
    assert!(stranger.verdict == Verdict::CannotTell && stranger.remedies.is_empty());
    let fewer = large.remedies.iter().find(|remedy| remedy.kind == RemedyKind::FewerGpus).unwrap();
    assert!(fewer.admits && fewer.change.starts_with("gpus_min 4"), "{fewer:?}");
    assert!(large.remedies.iter().all(|remedy| remedy.kind != RemedyKind::Weight));
    assert_eq!(
        told(&whatif.admit(&running).unwrap_err()),
        "there is a job `a` already\nhint: give the new job another id"
    );
}

#[test]
fn the_fewest_nodes_that_admit_are_found_and_useless_ones_are_not_offered() {
    let none = Profiles::default();
    let (allocator, running) = (allocator(1, 1), weighted(&[4.0]));
    let whatif = WhatIf::new(&allocator, &running, &none, None).unwrap();
    let node = |text: &str| {
        let admission = whatif.admit(&jobs(text)).unwrap().jobs.remove(0);
        let node = admission.remedies.iter().find(|remedy| remedy.kind == RemedyKind::Node).cloned();
        (node, admission.forbidden)
    };
    let wide = |gpus: u32| {
        format!(
            "[[job]]\nid = \"new\"\nweight = 0.1\ngpus_min = {gpus}\nshape = [{{ gpus = {gpus}, step_seconds = 1 }}]\n"
        )
    };
    for gpus in [1, 2, 3, 5, 7] {
        let (found, forbidden) = node(&wide(gpus));
        let found = found.unwrap();
        let plural = if gpus == 1 { "" } else { "s" };
        assert_eq!(found.change, format!("{gpus} more node{plural} of p, {gpus} GPU{plural}"));
        assert!(found.admits && near(found.money_per_hour.unwrap(), 2.0 * f64::from(gpus)), "{found:?}");
        assert_eq!(forbidden, []);
    }
    let (found, _) = node(&wide(10));
    let found = found.unwrap();
    assert_eq!((found.change.as_str(), found.admits), ("up to 8 more nodes of p do not help", false));
    // No number of GPUs of 80 GB holds it.
    let (found, forbidden) =
        node("[[job]]\nid = \"new\"\nmemory_bytes = 200e9\nshape = [{ step_seconds = 1 }]\n");
    assert_eq!((found, forbidden.len()), (None, 1));
    assert!(forbidden[0].reason.starts_with("needs 200 GB of device memory, a GPU has "), "{forbidden:?}");
    assert!(forbidden[0].remedy.as_ref().unwrap().ends_with("or GPUs with 200 GB"), "{forbidden:?}");
}

#[test]
fn a_pool_cannot_lose_more_than_it_has() {
    let none = Profiles::default();
    let (allocator, running) = (allocator(4, 2), weighted(&[1.0]));
    let whatif = WhatIf::new(&allocator, &running, &none, None).unwrap();
    assert_eq!(
        told(&whatif.capacity(&[], &gpus("p:99")).unwrap_err()),
        "pool `p` has 8 GPUs, 99 cannot be removed\nhint: remove at most 8, or all of them with `p:all`"
    );
    let error = whatif.capacity(&gpus("p:1000000"), &[]).unwrap_err().to_string();
    assert_eq!(error, "pool `p` has 8 GPUs, with 1000000 more it would have over a million");
    let long = "z".repeat(1_000_000);
    let error = told(&running.get(&long).unwrap_err());
    assert_eq!(error, format!("there is no job `{}…`\nhint: the only job is `a`", "z".repeat(200)));
    let error = told(&weighted(&[1.0; 7]).get("zz").unwrap_err());
    assert_eq!(error, "there is no job `zz`\nhint: the jobs are `a`, `b`, `c`, `d`, `e` and 2 more");
    let error = told(&weighted(&[1.0; 3]).get("zz").unwrap_err());
    assert_eq!(error, "there is no job `zz`\nhint: the jobs are `a`, `b` and `c`");
}

#[test]
fn the_announced_solutions_are_enough() {
    let none = Profiles::default();
    let (allocator, jobs) = (allocator(3, 2), weighted(&[9.0, 8.0, 7.0, 6.0, 4.0, 3.0, 2.0, 1.0, 1.0, 1.0]));
    let whatif = WhatIf::new(&allocator, &jobs, &none, None).unwrap();
    let (solves, most) = (whatif.price(None).unwrap().solves, whatif.most_prices(None).unwrap());
    assert!(solves <= most && most < 50, "{solves} of {most}");
    for target in [Target::Served(1.0), Target::Value(30.5), Target::Throughput(11.0)] {
        let (tried, most) =
            (whatif.size(&pool(), target).unwrap().tried.len(), whatif.most_sizes(&pool(), target).unwrap());
        assert!(tried <= most as usize && most < 20, "{tried} of {most}");
    }
}

#[test]
fn the_smallest_pool_is_found_and_its_neighbours_are_tried() {
    let none = Profiles::default();
    let (allocator, jobs) = (allocator(1, 4), weighted(&[9.0, 8.0, 7.0, 6.0, 4.0, 3.0, 2.0, 1.0, 1.0, 1.0]));
    let whatif = WhatIf::new(&allocator, &jobs, &none, None).unwrap();
    let all = whatif.size(&pool(), Target::Served(1.0)).unwrap();
    assert_eq!((all.nodes, all.smallest, all.monotone), (Some(3), Some(Smallest::Neighbours), true));
    assert!(near(all.money_per_hour.unwrap(), 24.0) && all.waiting.is_empty());
    assert_eq!(all.cluster_money_per_hour, all.money_per_hour);
    assert!([2, 3, 4].iter().all(|nodes| all.tried.iter().any(|point| point.nodes == *nodes)));
    let value = whatif.size(&pool(), Target::Value(30.5)).unwrap();
    assert_eq!((value.nodes, value.smallest), (Some(2), Some(Smallest::Proven)));
    let some = whatif.size(&pool(), Target::Served(0.4)).unwrap();
    assert_eq!(some.nodes, Some(1));
    let never = whatif.size(&pool(), Target::Throughput(11.0)).unwrap();
    assert_eq!(never.nodes, None);
    assert_eq!(
        never.why_not.unwrap(),
        "with 10 nodes, enough for the largest shape of every job, the throughput is 10.000"
    );
    for bad in [Target::Served(1.5), Target::Served(0.0), Target::Value(f64::NAN), Target::Throughput(-1.0)] {
        assert!(whatif.size(&pool(), bad).is_err());
    }
}

/// A training and an inference job on each of two GPUs, or less.
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn sharing() -> (Allocator, Jobs, PairTable) {
    let jobs = jobs(
        "[[job]]\nid = \"t\"\nworkload = \"train\"\ntenant = \"x\"\n\
         [[job]]\nid = \"l\"\nworkload = \"light\"\ntenant = \"x\"\n\
         [[job]]\nid = \"h\"\nworkload = \"heavy\"\n\
         [[job]]\nid = \"s\"\nworkload = \"strange\"\n",
    );
    let allocator = allocator(1, 2);
    let table = allocator.pair_table(&jobs, &profiles(), &Law::new()).unwrap();
    (allocator, jobs, table)
}

#[test]
fn wrong_predictions_are_judged_by_regret_and_breaches() {
    let (allocator, jobs, table) = sharing();
    let profiles = profiles();
    let whatif = WhatIf::new(&allocator, &jobs, &profiles, Some(&table)).unwrap();
    assert_eq!(whatif.before().pairs(), 1);
    let ask = |error: f64, draws: u32| whatif.robust(RobustOptions { error, draws, seed: Seed(3) }).unwrap();
    // The inference job is slowed down 1.3 times under a limit of 1.5.
    let small = ask(0.1, 20);
    assert!(near(small.safe_error.unwrap(), 0.153), "{:?}", small.safe_error);
    assert_eq!((small.worst.breaches, small.pairs), (0, 1));
    assert!(small.breaches.high < 0.5 && small.jobs.is_empty());
    let large = ask(0.4, 20);
    assert_eq!(large.worst.breaches, 1);
    assert_eq!(large.jobs[0].job.as_str(), "l");
    assert!(large.breached_draws_ratio > 0.0 && large.breached_draws_ratio < 1.0);
    assert!(large.value.low <= large.value.mean && large.value.mean <= large.value.high);
    let worst = 1.0 + 1.0 / (1.1 * 1.4) + 1.0 / (1.3 * 1.4);
    assert!((large.worst.value - worst).abs() < 1e-5, "{}", large.worst.value);
    assert!(large.worst.regret <= large.worst.regret_most + 1e-12);
    assert_eq!(large, ask(0.4, 20));
    let bad = |error, draws| whatif.robust(RobustOptions { error, draws, seed: Seed(0) }).is_err();
    assert!(bad(0.0, 1) && bad(f64::NAN, 1) && bad(1.0, 1) && bad(0.1, 0));
}

#[test]
fn charges_and_idle_parts_sum_to_the_hardware() {
    let (allocator, jobs, table) = sharing();
    let profiles = profiles();
    let whatif = WhatIf::new(&allocator, &jobs, &profiles, Some(&table)).unwrap();
    let answer = whatif.charge().unwrap();
    assert_eq!(answer.by, ChargedBy::ShadowPrice);
    let micro = |money: f64| (money * 1e6).round() as i64;
    let paid: i64 = answer.jobs.iter().map(|job| micro(job.money_per_hour)).sum();
    assert_eq!(paid + micro(answer.idle_per_hour), micro(answer.hardware_per_hour));
    assert_eq!(answer.tenants.iter().map(|tenant| micro(tenant.money_per_hour)).sum::<i64>(), paid);
    assert!(near(answer.hardware_per_hour, 4.0) && near(answer.idle_per_hour, 0.0));
    let pair: f64 =
        answer.jobs.iter().filter(|job| job.tenant.as_deref() == Some("x")).map(|job| job.gpus).sum();
    assert!(near(pair, 1.0), "a pair has one GPU together");
    assert_eq!(answer.tenants.iter().map(|tenant| tenant.waiting).sum::<usize>(), 1);

    // Nothing is short: the list price of what is used, and the rest is idle.
    let few = weighted(&[1.0]);
    let answer = WhatIf::new(&allocator, &few, &profiles, None).unwrap().charge().unwrap();
    assert_eq!(answer.by, ChargedBy::ListPrice);
    assert!(near(answer.charged_per_hour, 2.0) && near(answer.idle_per_hour, 2.0));

    let mut free = allocator.cluster().clone();
    free.pool[0].price_per_gpu_hour = None;
    let free = Allocator::new(free, Options::default());
    let error = WhatIf::new(&free, &few, &profiles, None).unwrap().charge().unwrap_err();
    assert_eq!(error.to_string(), "pool `p` has no price_per_gpu_hour");
}

#[test]
fn harm_is_told_job_by_job() {
    let none = Profiles::default();
    let (allocator, mut running) = (allocator(2, 2), weighted(&[4.0, 3.0, 3.0, 2.0, 1.0]));
    running.job[3].slo_slowdown = Some(1.1);
    let whatif = WhatIf::new(&allocator, &running, &none, None).unwrap();
    let mut change = Scenario::default();
    change.remove = gpus("p:2");
    let answer = whatif.harmed(&change).unwrap();
    assert_eq!((answer.harmed, answer.helped, answer.breaches), (2, 0, 1));
    assert_eq!(answer.worst_ratio, Some(0.0));
    let told: Vec<(&str, bool)> =
        answer.effects.iter().map(|effect| (effect.job.as_str(), effect.breach)).collect();
    assert!(told.contains(&("d", true)) && told.iter().all(|(job, _)| *job != "a"), "{told:?}");
    assert_eq!(answer.question, "p -2 GPUs");
    let mut change = Scenario::default();
    change.add = gpus("p:2");
    let answer = whatif.harmed(&change).unwrap();
    assert_eq!((answer.harmed, answer.helped, answer.worst_ratio), (0, 1, None));
    change.add = gpus("p:2,4");
    assert!(whatif.harmed(&change).unwrap_err().to_string().contains("one amount"));
}

#[test]
fn an_explanation_names_who_holds_what_binds() {
    let none = Profiles::default();
    let (allocator, jobs) = (allocator(2, 2), weighted(&[4.0, 3.0, 3.5, 2.0, 1.0]));
    let placement = allocator.solve(&jobs, &none, None).unwrap();
    let why = allocator.explain(&placement, &jobs, &none, None, "e").unwrap();
    assert_eq!(why.binding, Some(Resource::GpuSlots));
    assert_eq!(why.holders.iter().map(|holder| holder.job.as_str()).collect::<Vec<_>>(), ["d"]);
    assert!(near(why.holders[0].amount, 1.0) && near(why.holders[0].value, 2.0));
    assert!(near(why.entry.unwrap().entry_slot_price, 1.0));
}
