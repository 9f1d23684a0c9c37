//! What is a GPU worth, and up to which change of capacity?
//!
//! For given shapes the dual value as a function of one capacity is concave, and a price is the slope of a line that
//! touches it at the present capacity. The price is exact as long as the function stays on that line, so the ends of the
//! interval are found by solving at other capacities: doubling the distance until the line is left, then halving. A larger
//! pool may hold shapes that a smaller one cannot; where one of them appears the value jumps over the line, and the
//! interval ends there too.

use super::charge::money_per_value;
use super::resize::resized;
use super::{Side, Solved, WhatIf};
use crate::Error;
use crate::allocate::Allocator;
use crate::cluster::{Cluster, Pool};
use crate::options::Options;
use crate::placement::Placement;
use crate::prices::Price;
use crate::provenance::Basis;
use crate::resources::{Amounts, Resource};
use elastico_core::PoolId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema id of an answer about prices.
pub const PRICE_SCHEMA: &str = "elastico.whatif.price/1";

/// What one unit more or less changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Marginal {
    /// Value per unit: of the placement that is solved again, less that of the present one.
    pub value: f64,
    /// The same for certain: better placements of either side cannot bring it outside.
    pub value_range: [f64; 2],
    /// The change of the bound per unit, where jobs may be split: what a price is compared with.
    pub bound: f64,
}

/// The price of one resource of one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourcePrice {
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// The resource.
    pub resource: Resource,
    /// What the pool has.
    pub capacity: f64,
    /// How much of it the placement uses, 0..1.
    pub used_ratio: f64,
    /// Value per unit: the slope of the bound; 0 = surplus, more of it brings nothing.
    pub price: f64,
    /// The unit: one GPU, one core, 1e9 bytes, or 1e9 bytes per second. A GPU comes with its part of the host.
    pub unit: f64,
    /// One unit more; absent for host resources that are in surplus.
    pub one_more: Option<Marginal>,
    /// One unit less, as a loss; absent for host resources in surplus, and where there is none to take.
    pub one_less: Option<Marginal>,
    /// The price holds down to this capacity.
    pub holds_from: f64,
    /// The price holds up to this capacity; absent = as far as was tried, five times the capacity.
    pub holds_to: Option<f64>,
    /// The price in money per unit and hour, at the rate of `money_per_value`.
    pub price_per_hour: Option<f64>,
    /// What a GPU of the pool costs per hour.
    pub list_price_per_gpu_hour: Option<f64>,
    /// Price in money over list price, of a GPU: above 1 it is worth more than it costs, as the cluster goes.
    pub list_price_ratio: Option<f64>,
}

/// The answer to "what is a GPU worth".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PriceAnswer {
    /// `elastico.whatif.price/1`.
    pub schema: String,
    /// The state, solved finely.
    pub side: Side,
    /// How far at most the bound is above the best that prices can show, as a ratio: with a lower one no price is surer.
    pub dual_gap: f64,
    /// A price is said to hold where it foretells the bound to this part of it.
    pub holds_within_ratio: f64,
    /// The rate at which all that is used pays its list price; absent where a pool has no list price or nothing is short.
    pub money_per_value: Option<f64>,
    /// By pool, then resource. GPU slots are always there, host resources where they can be short.
    pub prices: Vec<ResourcePrice>,
    /// Solutions that were made to find all this.
    pub solves: u32,
    /// What it rests on.
    pub basis: Basis,
}

/// Prices are compared more finely than placing needs, where the search for them gets that far.
const FINE: f64 = 1e-7;
const CALLS: u32 = 400;
const CONVERGED: f64 = 1e-6;
/// Jobs that may share, at most, for the fine search to be tried.
const FEW: usize = 200;
/// How far the search for the upper end goes, as a multiple of the capacity and in units.
const FARTHEST: f64 = 4.0;
const FEWEST: f64 = 16.0;

struct Search<'a, 'b> {
    whatif: &'b WhatIf<'a>,
    options: Options,
    /// How far from the line a bound may be, in parts of it.
    within: f64,
    solves: u32,
}

impl WhatIf<'_> {
    /// What is a unit of each resource worth, and between which capacities does that hold? All pools where none is named.
    ///
    /// # Errors
    /// [`Error::Unknown`] for an unknown pool.
    pub fn price(&self, pool: Option<&PoolId>) -> Result<PriceAnswer, Error> {
        let cluster = self.allocator.cluster();
        if let Some(pool) = pool {
            cluster.get(pool.as_str())?;
        }
        let own = self.allocator.options();
        // With many pairs a fine search takes long and ends unfinished: there the one that places is surer and faster.
        let is_small = self.table.is_none() || self.jobs.job.len() <= FEW;
        let options = if is_small {
            Options { tolerance: own.tolerance.min(FINE), calls: own.calls.max(CALLS), ..own.clone() }
        } else {
            own.clone()
        };
        let mut base = self.solve(cluster.clone(), options.clone(), self.jobs)?;
        let within = if is_small { CONVERGED } else { CONVERGED.max(2.0 * own.tolerance) };
        let mut search = Search { whatif: self, options, within, solves: 1 };
        if is_small && dual_gap(&base) > CONVERGED {
            search.options = own.clone();
            search.within = CONVERGED.max(2.0 * own.tolerance);
            search.solves = 2;
            base = self.solve(cluster.clone(), own.clone(), self.jobs)?;
        }
        let rate = money_per_value(&base.placement, cluster);
        let mut prices = Vec::new();
        for known in cluster.pool.iter().filter(|known| pool.is_none_or(|pool| known.id == *pool)) {
            for price in listed(&base.placement, known) {
                prices.push(search.price(&base, known, &price, rate)?);
            }
        }
        Ok(PriceAnswer {
            schema: PRICE_SCHEMA.to_owned(),
            side: base.side(),
            dual_gap: dual_gap(&base),
            holds_within_ratio: search.within,
            money_per_value: rate,
            prices,
            solves: search.solves,
            basis: base.placement.basis,
        })
    }
}

fn dual_gap(solved: &Solved) -> f64 {
    super::gap(solved.placement.prices.bound_lower, solved.placement.prices.bound)
}

impl WhatIf<'_> {
    /// Solutions at most that [`Self::price`] makes, as far as the prices of the present state tell.
    ///
    /// # Errors
    /// [`Error::Unknown`] for an unknown pool.
    pub fn most_prices(&self, pool: Option<&PoolId>) -> Result<u32, Error> {
        if let Some(pool) = pool {
            self.allocator.cluster().get(pool.as_str())?;
        }
        let pools = self.allocator.cluster().pool.iter();
        let asked = pools.filter(|known| pool.is_none_or(|pool| known.id == *pool));
        let prices = asked.flat_map(|known| listed(&self.before, known));
        let steps = |units: f64| units.max(1.0).log2().ceil() as u32 + 1;
        let of = |price: Price| {
            if price.resource != Resource::GpuSlots && price.value_per_unit <= 0.0 {
                return 0;
            }
            let units = price.capacity / unit_of(price.resource);
            2 + 2 * steps(units) + 2 * steps((units * FARTHEST).max(FEWEST))
        };
        Ok(prices.map(of).fold(2, u32::saturating_add))
    }
}

/// What one more of a resource is for people.
const fn unit_of(resource: Resource) -> f64 {
    match resource {
        Resource::GpuSlots | Resource::HostCores => 1.0,
        Resource::GpuMemoryBytes | Resource::HostMemoryBytes | Resource::NetworkBytesPerSecond => 1e9,
    }
}

impl Search<'_, '_> {
    fn price(
        &mut self,
        base: &Solved,
        pool: &Pool,
        price: &Price,
        rate: Option<f64>,
    ) -> Result<ResourcePrice, Error> {
        let is_slots = price.resource == Resource::GpuSlots;
        let unit = unit_of(price.resource);
        let (mut one_more, mut one_less) = (None, None);
        let (mut holds_from, mut holds_to) = (0.0, None);
        if is_slots || price.value_per_unit > 0.0 {
            let units = price.capacity / unit;
            one_more = Some(self.marginal(base, pool, price, unit, 1.0)?);
            if units >= 1.0 {
                one_less = Some(self.marginal(base, pool, price, unit, -1.0)?);
            }
            let lower = self.reach(base, pool, price, unit, -1.0, units.floor())?;
            holds_from = price.capacity - unit * lower;
            let farthest = (units * FARTHEST).max(FEWEST).floor();
            let upper = self.reach(base, pool, price, unit, 1.0, farthest)?;
            holds_to = (upper < farthest).then_some(price.capacity + unit * upper);
        }
        let per_hour = rate.map(|rate| price.value_per_unit * unit * rate);
        Ok(ResourcePrice {
            pool: pool.id.clone(),
            resource: price.resource,
            capacity: price.capacity,
            used_ratio: price.used_ratio,
            price: price.value_per_unit * unit,
            unit,
            one_more,
            one_less,
            holds_from,
            holds_to,
            price_per_hour: per_hour,
            list_price_per_gpu_hour: pool.price_per_gpu_hour,
            list_price_ratio: per_hour
                .filter(|_| is_slots)
                .zip(pool.price_per_gpu_hour.filter(|list| *list > 0.0))
                .map(|(money, list)| money / list),
        })
    }

    /// The cluster with so many units more.
    fn cluster(&self, pool: &Pool, resource: Resource, unit: f64, units: f64) -> Result<Cluster, Error> {
        let cluster = self.whatif.allocator.cluster();
        if resource == Resource::GpuSlots {
            resized(cluster, &pool.id, units as i64)
        } else {
            Ok(with_host(cluster, &pool.id, resource, unit * units))
        }
    }

    fn marginal(
        &mut self,
        base: &Solved,
        pool: &Pool,
        price: &Price,
        unit: f64,
        sign: f64,
    ) -> Result<Marginal, Error> {
        let cluster = self.cluster(pool, price.resource, unit, sign)?;
        self.solves += 1;
        let solved = self.whatif.solve(cluster, self.options.clone(), self.whatif.jobs)?;
        let (mut base, mut other) = (base.side(), solved.side());
        if sign > 0.0 {
            Side::order(&mut base, &mut other);
        } else {
            Side::order(&mut other, &mut base);
        }
        let mut range = base.delta_range(&other).map(|value| value * sign + 0.0);
        range.sort_by(f64::total_cmp);
        Ok(Marginal {
            value: (other.value - base.value) * sign + 0.0,
            // More is never worth less.
            value_range: range.map(|value| value.max(0.0)),
            bound: (other.bound - base.bound) * sign + 0.0,
        })
    }

    /// How many units away the bound still lies on the line of the price.
    fn reach(
        &mut self,
        base: &Solved,
        pool: &Pool,
        price: &Price,
        unit: f64,
        sign: f64,
        most: f64,
    ) -> Result<f64, Error> {
        let mut holds = |units: f64| -> Result<bool, Error> {
            let cluster = self.cluster(pool, price.resource, unit, sign * units)?;
            let allocator = Allocator::new(cluster, self.options.clone());
            let whatif = self.whatif;
            let prices = allocator.bound(whatif.jobs, whatif.profiles, whatif.table, Some(&whatif.warm))?;
            self.solves += 1;
            Ok(on_line(base, allocator.cluster(), prices.bound, pool, self.within))
        };
        let (mut inside, mut outside, mut step) = (0.0, most + 1.0, 1.0_f64);
        while inside < most {
            let units = step.min(most);
            if !holds(units)? {
                outside = units;
                break;
            }
            inside = units;
            step *= 2.0;
        }
        while outside - inside > 1.0 {
            let middle = f64::midpoint(inside, outside).floor();
            if holds(middle)? {
                inside = middle;
            } else {
                outside = middle;
            }
        }
        Ok(inside)
    }
}

/// Whether the bound of another capacity lies on the line of the present prices.
fn on_line(base: &Solved, other: &Cluster, bound: f64, pool: &Pool, within: f64) -> bool {
    let amounts = |cluster: &Cluster| -> Amounts {
        cluster.pool.iter().find(|known| known.id == pool.id).map(Pool::amounts).unwrap_or_default()
    };
    let (from, to) = (amounts(base.allocator.cluster()), amounts(other));
    let prices = Resource::ALL.map(|resource| base.placement.prices.get(&pool.id, resource));
    let slope: f64 = (0..prices.len())
        .filter(|at| prices[*at] > 0.0 && from[*at].is_finite())
        .map(|at| prices[at] * (to[at] - from[at]))
        .sum();
    let scale = base.placement.prices.bound.max(bound);
    let line = base.placement.prices.bound + slope;
    (bound - line).abs() <= within * scale
}

/// The prices of a pool, that of its slots first even where they can never be short.
fn listed(placement: &Placement, pool: &Pool) -> Vec<Price> {
    let mut listed: Vec<Price> =
        placement.prices.prices.iter().filter(|price| price.pool == pool.id).cloned().collect();
    if !listed.iter().any(|price| price.resource == Resource::GpuSlots) {
        let capacity = f64::from(pool.gpu_count());
        let used = used_slots(placement, &pool.id);
        listed.insert(
            0,
            Price {
                pool: pool.id.clone(),
                resource: Resource::GpuSlots,
                value_per_unit: 0.0,
                capacity,
                used_ratio: if capacity > 0.0 { used / capacity } else { 0.0 },
            },
        );
    }
    listed
}

fn used_slots(placement: &Placement, pool: &PoolId) -> f64 {
    let mine = placement.assignments.iter().filter(|assignment| assignment.pool == *pool);
    mine.map(|assignment| {
        f64::from(assignment.shape.gpus) * if assignment.beside.is_some() { 0.5 } else { 1.0 }
    })
    .sum()
}

/// The cluster with more of a host resource in a pool, spread over its nodes.
fn with_host(cluster: &Cluster, pool: &PoolId, resource: Resource, change: f64) -> Cluster {
    let mut cluster = cluster.clone();
    for pool in cluster.pool.iter_mut().filter(|known| known.id == *pool) {
        let nodes = f64::from(pool.gpu_count()) / f64::from(pool.gpus_per_node.max(1));
        let amount = match resource {
            Resource::HostCores => &mut pool.host_cores,
            Resource::HostMemoryBytes => &mut pool.host_memory_bytes,
            Resource::NetworkBytesPerSecond => &mut pool.network_bytes_per_second,
            Resource::GpuSlots | Resource::GpuMemoryBytes => continue,
        };
        *amount = amount.map(|amount| (amount + change / nodes.max(f64::MIN_POSITIVE)).max(0.0));
    }
    cluster
}
