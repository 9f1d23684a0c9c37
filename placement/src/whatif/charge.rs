//! What does each tenant pay?
//!
//! A job's *rent* is the shadow price of what it uses. All rents together are scaled to the list price of the GPUs in
//! use, so that scarce GPUs cost more than plentiful ones and the sum is what the hardware costs; the GPUs that stand idle
//! are stated for themselves. Where nothing is short every price is 0, and the list price of the GPUs in use is the rent.

use super::{Side, WhatIf};
use crate::Error;
use crate::cluster::Cluster;
use crate::placement::{Assignment, Placement};
use crate::provenance::Basis;
use crate::resources::Resource;
use elastico_core::{JobId, PoolId, SharingMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema id of an answer about charges.
pub const CHARGE_SCHEMA: &str = "elastico.whatif.charge/1";

/// What the charges are in proportion to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChargedBy {
    /// The shadow price of what is used.
    ShadowPrice,
    /// The list price of the GPUs in use: nothing is short, so that all shadow prices are 0.
    ListPrice,
}

/// What one job pays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobCharge {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// Its tenant.
    pub tenant: Option<String>,
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// GPUs in use; those of a pair are one together, split by the shares of the SMs where the mode names them, else by half.
    pub gpus: f64,
    /// The shadow price of what it uses, in units of the objective.
    pub rent: f64,
    /// Money per hour, in whole millionths.
    pub money_per_hour: f64,
    /// The list price of its GPUs per hour.
    pub list_price_per_hour: f64,
}

/// What one tenant pays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantCharge {
    /// The tenant; absent = jobs that name none.
    pub tenant: Option<String>,
    /// Jobs that run.
    pub jobs: usize,
    /// Jobs that wait, and pay nothing.
    pub waiting: usize,
    /// GPUs in use.
    pub gpus: f64,
    /// Money per hour.
    pub money_per_hour: f64,
    /// The list price of their GPUs per hour.
    pub list_price_per_hour: f64,
}

/// What stands idle in one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IdleCharge {
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// GPUs without a job.
    pub gpus: f64,
    /// Their list price per hour, in whole millionths.
    pub money_per_hour: f64,
}

/// The answer to "what does each tenant pay". Charges and idle parts sum to the cost of the hardware, to the millionth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChargeAnswer {
    /// `elastico.whatif.charge/1`.
    pub schema: String,
    /// The state.
    pub side: Side,
    /// What the charges are in proportion to.
    pub by: ChargedBy,
    /// Money for a unit of rent, where shadow prices are charged.
    pub money_per_value: Option<f64>,
    /// What all GPUs of the cluster cost per hour.
    pub hardware_per_hour: f64,
    /// What all jobs pay.
    pub charged_per_hour: f64,
    /// What nobody pays for.
    pub idle_per_hour: f64,
    /// By tenant, those without a name last.
    pub tenants: Vec<TenantCharge>,
    /// By job, in the order of the file.
    pub jobs: Vec<JobCharge>,
    /// By pool.
    pub idle: Vec<IdleCharge>,
    /// What it rests on.
    pub basis: Basis,
}

/// Money is counted in whole millionths, so that parts sum to the whole.
const MICRO: f64 = 1e6;

/// How much of the slot of a pair a job takes: by the shares of the SMs where the mode names them, else half.
fn slot_part(sharing: &SharingMode) -> f64 {
    match sharing {
        SharingMode::Mps { subject_percent, co_runner_percent }
        | SharingMode::SplitStreams { subject_percent, co_runner_percent } => {
            let both = f64::from(*subject_percent) + f64::from(*co_runner_percent);
            if both > 0.0 { f64::from(*subject_percent) / both } else { 0.5 }
        }
        SharingMode::Exclusive | SharingMode::TimeSlice | SharingMode::Mig { .. } | SharingMode::Streams => {
            0.5
        }
    }
}

/// GPUs that a job takes; those of a pair are one together.
fn slots(assignment: &Assignment) -> f64 {
    let part = assignment.beside.as_ref().map_or(1.0, |beside| slot_part(&beside.sharing));
    f64::from(assignment.shape.gpus) * part
}

/// What a job's resources cost at the prices, the slot of a pair split by [`slot_part`].
fn rent(placement: &Placement, assignment: &Assignment) -> f64 {
    // The price of an assignment has half of a pair's slot.
    let half = assignment.beside.as_ref().map_or(0.0, |beside| slot_part(&beside.sharing) - 0.5);
    (assignment.price + half * placement.prices.get(&assignment.pool, Resource::GpuSlots)).max(0.0)
}

/// Money per hour that the used GPUs of the cluster cost; absent where a pool has no list price.
fn used_cost(placement: &Placement, cluster: &Cluster) -> Option<f64> {
    let mut sum = 0.0;
    for assignment in &placement.assignments {
        let pool = cluster.get(assignment.pool.as_str()).ok()?;
        sum += slots(assignment) * pool.price_per_gpu_hour?;
    }
    Some(sum)
}

/// The rate at which all that is used pays its list price; absent where a list price is missing or nothing is short.
pub(super) fn money_per_value(placement: &Placement, cluster: &Cluster) -> Option<f64> {
    let rents: f64 = placement.assignments.iter().map(|assignment| rent(placement, assignment)).sum();
    used_cost(placement, cluster).filter(|cost| *cost > 0.0 && rents > 0.0).map(|cost| cost / rents)
}

impl WhatIf<'_> {
    /// What does each job and each tenant pay per hour for the present placement?
    ///
    /// # Errors
    /// [`Error::NoListPrice`] where a pool with GPUs has no price per GPU-hour.
    pub fn charge(&self) -> Result<ChargeAnswer, Error> {
        let cluster = self.allocator.cluster();
        let placement = &self.before;
        let list = |pool: &PoolId| cluster.get(pool.as_str()).ok().and_then(|pool| pool.price_per_gpu_hour);
        if let Some(pool) = cluster.pool.iter().find(|pool| pool.gpu_count() > 0 && list(&pool.id).is_none())
        {
            return Err(Error::NoListPrice { pool: pool.id.to_string() });
        }
        let tenants: BTreeMap<&JobId, Option<&String>> =
            self.jobs.job.iter().map(|job| (&job.id, job.tenant.as_ref())).collect();
        let rate = money_per_value(placement, cluster);
        let mut jobs: Vec<JobCharge> = placement
            .assignments
            .iter()
            .map(|assignment| JobCharge {
                job: assignment.job.clone(),
                tenant: tenants.get(&assignment.job).copied().flatten().cloned(),
                pool: assignment.pool.clone(),
                gpus: slots(assignment),
                rent: rent(placement, assignment),
                money_per_hour: 0.0,
                list_price_per_hour: slots(assignment) * list(&assignment.pool).unwrap_or(0.0),
            })
            .collect();
        let by = if rate.is_some() { ChargedBy::ShadowPrice } else { ChargedBy::ListPrice };
        let weights: Vec<f64> =
            jobs.iter().map(|job| if rate.is_some() { job.rent } else { job.list_price_per_hour }).collect();
        let mut idle: Vec<IdleCharge> = Vec::new();
        for pool in &cluster.pool {
            let used: f64 = jobs.iter().filter(|job| job.pool == pool.id).map(|job| job.gpus).sum();
            let gpus = (f64::from(pool.gpu_count()) - used).max(0.0);
            // Halves and shares of pairs are whole together, up to rounding.
            let gpus = if (gpus - gpus.round()).abs() < 1e-9 { gpus.round() } else { gpus };
            let money = (gpus * list(&pool.id).unwrap_or(0.0) * MICRO).round() / MICRO;
            idle.push(IdleCharge { pool: pool.id.clone(), gpus, money_per_hour: money });
        }
        let hardware: f64 = cluster
            .pool
            .iter()
            .map(|pool| (f64::from(pool.gpu_count()) * list(&pool.id).unwrap_or(0.0) * MICRO).round())
            .fold(0.0, |sum, money| sum + money);
        let idle_sum =
            idle.iter().map(|idle| (idle.money_per_hour * MICRO).round()).fold(0.0, |sum, money| sum + money);
        let parts = apportion((hardware - idle_sum).max(0.0) as u64, &weights);
        for (job, part) in jobs.iter_mut().zip(&parts) {
            job.money_per_hour = *part as f64 / MICRO;
        }
        Ok(ChargeAnswer {
            schema: CHARGE_SCHEMA.to_owned(),
            side: self.side(),
            by,
            money_per_value: rate,
            hardware_per_hour: hardware / MICRO,
            charged_per_hour: parts.iter().sum::<u64>() as f64 / MICRO,
            idle_per_hour: idle_sum / MICRO,
            tenants: self.tenants(&jobs),
            jobs,
            idle,
            basis: placement.basis.clone(),
        })
    }

    fn tenants(&self, jobs: &[JobCharge]) -> Vec<TenantCharge> {
        let mut sums: BTreeMap<(bool, Option<&String>), TenantCharge> = BTreeMap::new();
        for job in &self.jobs.job {
            let tenant = job.tenant.as_ref();
            let sum = sums.entry((tenant.is_none(), tenant)).or_insert_with(|| TenantCharge {
                tenant: tenant.cloned(),
                jobs: 0,
                waiting: 0,
                gpus: 0.0,
                money_per_hour: 0.0,
                list_price_per_hour: 0.0,
            });
            match jobs.iter().find(|charge| charge.job == job.id) {
                None => sum.waiting += 1,
                Some(charge) => {
                    sum.jobs += 1;
                    sum.gpus += charge.gpus;
                    sum.money_per_hour =
                        ((sum.money_per_hour + charge.money_per_hour) * MICRO).round() / MICRO;
                    sum.list_price_per_hour += charge.list_price_per_hour;
                }
            }
        }
        sums.into_values().collect()
    }
}

/// A whole split in proportion to weights by largest remainders: the parts sum to it exactly. Ties go to the first.
fn apportion(whole: u64, weights: &[f64]) -> Vec<u64> {
    let sum: f64 = weights.iter().sum();
    if weights.is_empty() || sum <= 0.0 {
        return vec![0; weights.len()];
    }
    let exact: Vec<f64> = weights.iter().map(|weight| whole as f64 * (weight / sum)).collect();
    let mut parts: Vec<u64> = exact.iter().map(|part| part.floor() as u64).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()).then(a.cmp(b)));
    let given: u64 = parts.iter().sum();
    if given > whole {
        // Rounding of the products went up: take it back where the least is lost.
        for at in order.iter().rev().cycle().take((given - whole) as usize) {
            parts[*at] = parts[*at].saturating_sub(1);
        }
    } else {
        for at in order.iter().cycle().take((whole - given) as usize) {
            parts[*at] += 1;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_sum_to_the_whole() {
        assert_eq!(apportion(10, &[1.0, 1.0, 1.0]), [4, 3, 3]);
        assert_eq!(apportion(7, &[0.0, 2.0]), [0, 7]);
        assert_eq!(apportion(7, &[0.0, 0.0]), [0, 0]);
        let weights: Vec<f64> = (1..200).map(|at| f64::from(at).sqrt()).collect();
        assert_eq!(apportion(123_456_789, &weights).iter().sum::<u64>(), 123_456_789);
    }

    #[test]
    fn a_pair_has_one_slot_together() {
        for mode in ["mps(0.3,0.7)", "time_slice", "mps(0.5,0.5)", "streams"] {
            let mode: SharingMode = mode.parse().unwrap();
            assert!((slot_part(&mode) + slot_part(&mode.swapped()) - 1.0).abs() < 1e-12);
        }
        assert!((slot_part(&"mps(0.3,0.7)".parse().unwrap()) - 0.3).abs() < 1e-12);
    }
}
