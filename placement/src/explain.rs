//! Why a job is where it is.

use crate::Error;
use crate::allocate::Allocator;
use crate::instance::Instance;
use crate::jobs::Jobs;
use crate::pairing::PairTable;
use crate::placement::{Assignment, Entry, Placement, Waiting};
use crate::provenance::Basis;
use crate::report::Teller;
use crate::resources::{RESOURCES, Resource, Resources, cost};
use crate::settings::{self, Settings};
use crate::shapes::{Dropped, Origin};
use elastico_core::{JobId, PoolId, SharingMode};
use elastico_models::Profiles;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The schema id of an explanation.
pub const EXPLANATION_SCHEMA: &str = "elastico.explanation/1";

/// Holders named at most.
const HOLDERS: usize = 5;

/// One shape at the prices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PricedShape {
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// GPUs.
    pub gpus: u32,
    /// What it is worth.
    pub value: f64,
    /// What its resources cost.
    pub price: f64,
    /// Value less price: the shape with the most is the one the job wants.
    pub surplus: f64,
    /// Where its performance comes from.
    pub origin: Origin,
    /// What its entry point is started with.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
    /// What it takes.
    pub amounts: Resources,
    /// What each resource adds to the price; resources without a price are absent.
    #[schemars(with = "BTreeMap<String, f64>")]
    pub parts: BTreeMap<Resource, f64>,
}

/// One co-runner at the prices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PricedPartner {
    /// The co-runner.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The pool.
    #[schemars(with = "String")]
    pub pool: PoolId,
    /// The best sharing mode, seen from the job.
    #[schemars(with = "String")]
    pub sharing: SharingMode,
    /// Predicted slowdowns of the job and the co-runner.
    pub slowdown: [f64; 2],
    /// Upper bounds of both.
    pub upper: [f64; 2],
    /// Worth of the pair less the worth of the better of both alone on that GPU.
    pub gain: f64,
}

/// A job that has some of what another one lacks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// How much of the resource it has; the slot of a pair is held by both by half.
    pub amount: f64,
    /// What it adds to the objective.
    pub value: f64,
    /// What its resources cost at the prices.
    pub price: f64,
    /// Value less price: the holder with the least is the first to give way.
    pub surplus: f64,
}

/// Why a job is where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// `elastico.explanation/1`.
    pub schema: String,
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// Where it runs.
    pub assignment: Option<Assignment>,
    /// Why it waits.
    pub waiting: Option<Waiting>,
    /// Its shapes, the largest surplus first.
    pub shapes: Vec<PricedShape>,
    /// Shapes that cannot be.
    pub dropped: Vec<Dropped>,
    /// The most expensive part of its best shape: what binds.
    pub binding: Option<Resource>,
    /// Who holds what binds, in the pool of its best shape: those with the least surplus, until there is as much as that
    /// shape needs, at most five.
    pub holders: Vec<Holder>,
    /// When its best shape enters.
    pub entry: Option<Entry>,
    /// Its best co-runners, at most five.
    pub partners: Vec<PricedPartner>,
    /// Jobs that it may not share with, by reason, the names of [`Refusal`](crate::Refusal).
    pub refused_partners: BTreeMap<String, u64>,
    /// Value of the placement.
    pub value: f64,
    /// The bound behind the prices.
    pub bound: f64,
    /// The gap of the placement.
    pub gap: f64,
    /// What it rests on.
    pub basis: Basis,
}

impl Allocator {
    /// Explains one job of a placement that this allocator made of these jobs.
    ///
    /// # Errors
    /// [`Error::Unknown`] where there is no such job.
    pub fn explain(
        &self,
        placement: &Placement,
        jobs: &Jobs,
        profiles: &Profiles,
        table: Option<&PairTable>,
        job: &str,
    ) -> Result<Explanation, Error> {
        let (at, found) = jobs.get(job)?;
        let instance = Instance::new(self.cluster(), self.options(), jobs, profiles, table);
        let prices = placement.prices.table(self.cluster());
        let family = instance.family(at);
        let mut shapes: Vec<PricedShape> = instance.problem.singles[at]
            .iter()
            .map(|column| {
                let shape = &family.shapes[column.shape];
                let price = cost(&prices[column.pool], &column.demand);
                let parts = (0..RESOURCES).filter(|resource| prices[column.pool][*resource] > 0.0);
                PricedShape {
                    pool: shape.pool.clone(),
                    gpus: shape.gpus,
                    value: column.value,
                    price,
                    surplus: column.value - price,
                    origin: shape.origin,
                    settings: shape.settings.clone(),
                    amounts: shape.resources,
                    parts: parts
                        .map(|resource| {
                            (Resource::ALL[resource], prices[column.pool][resource] * column.demand[resource])
                        })
                        .collect(),
                }
            })
            .collect();
        shapes.sort_by(|a, b| b.surplus.total_cmp(&a.surplus).then(a.gpus.cmp(&b.gpus)));
        let largest = |shape: &PricedShape| {
            shape.parts.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(resource, _)| *resource)
        };
        let binding = shapes.first().and_then(largest);
        let (cluster, listed) = (self.cluster(), &jobs.job[..]);
        let teller = Teller { instance: &instance, cluster, jobs: listed, prices: &prices };
        let (partners, refused_partners) = partners(&instance, jobs, at);
        Ok(Explanation {
            schema: EXPLANATION_SCHEMA.to_owned(),
            job: found.id.clone(),
            assignment: placement.assignment(job).cloned(),
            waiting: placement.waiting.iter().find(|waiting| waiting.job == found.id).cloned(),
            holders: binding.zip(shapes.first()).map_or(Vec::new(), |(resource, shape)| {
                holders(placement, resource, &shape.pool, &found.id, shape.amounts.get(resource))
            }),
            binding,
            shapes,
            dropped: family.dropped.clone(),
            entry: teller.entry(at),
            partners,
            refused_partners,
            value: placement.value,
            bound: placement.bound,
            gap: placement.gap,
            basis: placement.basis.clone(),
        })
    }
}

/// The jobs that hold a resource of a pool, the least surplus first, until they have `needed` of it together.
fn holders(
    placement: &Placement,
    resource: Resource,
    pool: &PoolId,
    but: &JobId,
    needed: f64,
) -> Vec<Holder> {
    let others = placement.assignments.iter().filter(|other| other.pool == *pool && other.job != *but);
    let of = others.map(|other| {
        let part = if resource == Resource::GpuSlots && other.beside.is_some() { 0.5 } else { 1.0 };
        Holder {
            job: other.job.clone(),
            amount: other.shape.resources.get(resource) * part,
            value: other.value,
            price: other.price,
            surplus: other.value - other.price,
        }
    });
    let mut holders: Vec<Holder> = of.filter(|holder| holder.amount > 0.0).collect();
    holders.sort_by(|a, b| a.surplus.total_cmp(&b.surplus).then(a.job.cmp(&b.job)));
    let mut sum = 0.0;
    let enough = holders.iter().position(|holder| {
        sum += holder.amount;
        sum >= needed * (1.0 - 1e-9)
    });
    holders.truncate(enough.map_or(HOLDERS, |at| (at + 1).min(HOLDERS)));
    holders
}

fn partners(instance: &Instance<'_>, jobs: &Jobs, job: usize) -> (Vec<PricedPartner>, BTreeMap<String, u64>) {
    let mut found: Vec<(f64, usize, usize)> = Vec::new();
    let mut refused = BTreeMap::new();
    for other in (0..jobs.job.len()).filter(|other| *other != job) {
        let mut best: Option<(f64, usize)> = None;
        let mut reason = None;
        for pool in 0..instance.cluster.pool.len() {
            match instance.pair_value(job, other, pool) {
                Ok(value) => {
                    let alone = |job: usize| {
                        let columns = instance.problem.singles[job].iter();
                        let one = columns.filter(|column| column.pool == pool && column.demand[0] <= 1.0);
                        one.map(|column| column.value).fold(0.0, f64::max)
                    };
                    let gain = value - alone(job).max(alone(other));
                    if best.is_none_or(|best| gain > best.0) {
                        best = Some((gain, pool));
                    }
                }
                Err(refusal) => reason = reason.max(Some(refusal)),
            }
        }
        match (best, reason) {
            (Some((gain, pool)), _) => found.push((gain, other, pool)),
            (None, Some(reason)) => *refused.entry(reason.as_str().to_owned()).or_insert(0) += 1,
            (None, None) => {}
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let partners = found.into_iter().take(5).filter_map(|(gain, other, pool)| {
        let way = instance.pair_choice(job, other, pool).ok()?.outcome;
        Some(PricedPartner {
            job: jobs.job[other].id.clone(),
            pool: instance.cluster.pool[pool].id.clone(),
            sharing: way.sharing,
            slowdown: way.slowdown,
            upper: way.upper,
            gain,
        })
    });
    (partners.collect(), refused)
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.assignment, &self.waiting) {
            (Some(assignment), _) => {
                writeln!(f, "{} runs on {}: {}", self.job, assignment.pool, assignment.why)?;
            }
            (None, Some(waiting)) => writeln!(f, "{} waits: {}", self.job, waiting.detail())?,
            (None, None) => writeln!(f, "{} is not in the placement", self.job)?,
        }
        for shape in &self.shapes {
            let line = format!(
                "  {} x {}  value {:.3}  price {:.3}  surplus {:.3}  {}",
                shape.pool,
                shape.gpus,
                shape.value,
                shape.price,
                shape.surplus,
                settings::in_words(&shape.settings)
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        for dropped in &self.dropped {
            let gpus = dropped.gpus.map(|gpus| format!(" x {gpus}")).unwrap_or_default();
            writeln!(f, "  {}{gpus}  impossible: {}", dropped.pool, dropped.reason)?;
        }
        if let Some(binding) = self.binding {
            writeln!(f, "  what binds: {binding}")?;
        }
        for holder in &self.holders {
            writeln!(f, "  held by {}: {:.1}, surplus {:.3}", holder.job, holder.amount, holder.surplus)?;
        }
        for partner in &self.partners {
            writeln!(
                f,
                "  beside {} on {} by {}: {:.2}x and {:.2}x, gain {:.3}",
                partner.job,
                partner.pool,
                partner.sharing,
                partner.slowdown[0],
                partner.slowdown[1],
                partner.gain
            )?;
        }
        writeln!(f, "  bound {:.3}, gap {:.2} %", self.bound, self.gap * 100.0)
    }
}
