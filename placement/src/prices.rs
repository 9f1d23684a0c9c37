//! Shadow prices as a result.

use crate::cluster::Cluster;
use crate::problem::{PriceTable, Problem};
use crate::resources::{RESOURCES, Resource};
use elastico_core::PoolId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The price of one resource of one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// The resource.
    pub resource: Resource,
    /// Shadow price: the slope of the bound by one unit, in units of the objective; 0 = there is enough.
    pub value_per_unit: f64,
    /// What the pool has.
    pub capacity: f64,
    /// How much of it the placement uses, 0..1.
    pub used_ratio: f64,
}

/// Prices of all resources that can be short, and the certificate that they give.
///
/// Prices are exact only near the present cluster: for a change of capacity solve again (`whatif::WhatIf::capacity`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prices {
    /// By pool of the cluster, then resource; resources that can never be short are absent.
    pub prices: Vec<Price>,
    /// The dual value: no placement of these jobs on this cluster is worth more.
    pub bound: f64,
    /// Below this the dual value cannot be brought.
    pub bound_lower: f64,
    /// Calls of the oracle.
    pub calls: u32,
    /// Rounds in which pair columns were added; 0 = no job shares.
    pub rounds: u32,
}

impl Prices {
    pub(crate) fn of(
        cluster: &Cluster,
        problem: &Problem,
        table: &PriceTable,
        used: &[[f64; RESOURCES]],
    ) -> Self {
        let scarce = problem.scarce().into_iter().map(|(pool, resource)| {
            let capacity = problem.capacity[pool][resource];
            Price {
                pool: cluster.pool[pool].id.clone(),
                resource: Resource::ALL[resource],
                value_per_unit: table.get(pool).map_or(0.0, |prices| prices[resource]),
                capacity,
                used_ratio: if capacity > 0.0 { used[pool][resource] / capacity } else { 0.0 },
            }
        });
        Self { prices: scarce.collect(), ..Self::default() }
    }

    /// The price of a resource; 0 where it cannot be short.
    pub fn get(&self, pool: &PoolId, resource: Resource) -> f64 {
        let found = self.prices.iter().find(|price| price.pool == *pool && price.resource == resource);
        found.map_or(0.0, |price| price.value_per_unit)
    }

    /// By the pools of a cluster, also of another one than the prices were found on.
    pub(crate) fn table(&self, cluster: &Cluster) -> PriceTable {
        cluster.pool.iter().map(|pool| Resource::ALL.map(|resource| self.get(&pool.id, resource))).collect()
    }
}
