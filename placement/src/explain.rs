//! Why a job is where it is.

mod partners;

pub use partners::PricedPartner;

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
use elastico_core::{JobId, PoolId};
use elastico_models::Profiles;
use partners::Partners;
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
    /// Whether the job runs in it in this placement.
    #[serde(default)]
    pub in_use: bool,
    /// Whether it is of use only beside the co-runner that the job has: value and price are those in the pair, with half of its
    /// slot.
    #[serde(default)]
    pub only_in_pair: bool,
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
        let assignment = placement.assignment(job);
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
                    in_use: assignment.is_some_and(|assignment| assignment.shape == *shape),
                    only_in_pair: false,
                }
            })
            .collect();
        let order =
            |a: &PricedShape, b: &PricedShape| b.surplus.total_cmp(&a.surplus).then(a.gpus.cmp(&b.gpus));
        shapes.sort_by(order);
        let largest = |shape: &PricedShape| {
            shape.parts.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(resource, _)| *resource)
        };
        let binding = shapes.first().and_then(largest);
        let (cluster, listed) = (self.cluster(), &jobs.job[..]);
        let teller = Teller { instance: &instance, cluster, jobs: listed, prices: &prices };
        let (partners, refused_partners) =
            Partners { instance: &instance, jobs, placement, prices: &prices }.of(at);
        let holders = binding.zip(shapes.first()).map_or(Vec::new(), |(resource, shape)| {
            holders(placement, resource, &shape.pool, &found.id, shape.amounts.get(resource))
        });
        if let Some(assignment) = assignment.filter(|_| !shapes.iter().any(|shape| shape.in_use)) {
            shapes.push(in_pair(assignment, placement));
            shapes.sort_by(order);
        }
        Ok(Explanation {
            schema: EXPLANATION_SCHEMA.to_owned(),
            job: found.id.clone(),
            assignment: assignment.cloned(),
            waiting: placement.waiting.iter().find(|waiting| waiting.job == found.id).cloned(),
            holders,
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

/// A shape that is there only because it leaves memory to a co-runner, as it is in the pair.
fn in_pair(assignment: &Assignment, placement: &Placement) -> PricedShape {
    let shape = &assignment.shape;
    let amounts = Resources { gpu_slots: 0.5 * f64::from(shape.gpus), ..shape.resources };
    let part = |resource: Resource| {
        let price = placement.prices.get(&shape.pool, resource);
        (price > 0.0).then(|| (resource, price * amounts.get(resource)))
    };
    PricedShape {
        pool: shape.pool.clone(),
        gpus: shape.gpus,
        value: assignment.value,
        price: assignment.price,
        surplus: assignment.value - assignment.price,
        origin: shape.origin,
        settings: shape.settings.clone(),
        amounts,
        parts: Resource::ALL.into_iter().filter_map(part).collect(),
        in_use: true,
        only_in_pair: true,
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.assignment, &self.waiting) {
            (Some(assignment), _) => {
                let places = assignment.places_in_words();
                writeln!(f, "{} runs on {}, {places}: {}", self.job, assignment.pool, assignment.why)?;
            }
            (None, Some(waiting)) => writeln!(f, "{} waits: {}", self.job, waiting.detail())?,
            (None, None) => writeln!(f, "{} is not in the placement", self.job)?,
        }
        for shape in &self.shapes {
            write!(
                f,
                "  {} x {}  value {:.3}  price {:.3}  surplus {:.3}",
                shape.pool, shape.gpus, shape.value, shape.price, shape.surplus
            )?;
            let in_use = match (shape.in_use, shape.only_in_pair) {
                (true, true) => "in use, only in the pair",
                (true, false) => "in use",
                (false, _) => "",
            };
            let words = [settings::in_words(&shape.settings), in_use.to_owned()];
            for word in words.iter().filter(|word| !word.is_empty()) {
                write!(f, "  {word}")?;
            }
            writeln!(f)?;
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
                "  beside {} on {} by {}: {:.2}x and {:.2}x, gain {:.3}; {}",
                partner.job,
                partner.pool,
                partner.sharing,
                partner.slowdown[0],
                partner.slowdown[1],
                partner.gain,
                partner.now()
            )?;
        }
        writeln!(f, "  bound {:.3}, gap {:.2} %", self.bound, self.gap * 100.0)
    }
}
