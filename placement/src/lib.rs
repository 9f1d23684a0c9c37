//! Shapes, prices, pairs, placement and what-if questions: the light runtime that a scheduler embeds.
//!
//! A [`Cluster`] and [`Jobs`] are read from files. Each job becomes a [`ShapeFamily`]; the predictor is asked once for
//! all pairs of workloads ([`PairTable`]); the [`Allocator`] finds [`Prices`] of all resources by the Lagrangian dual
//! of the multiple-choice knapsack, shapes and pairs together, lets every job take what is worth most at these prices,
//! and makes a feasible [`Placement`] of it. The dual value is a bound on every placement, so each answer says how far
//! from the best it can be at most. [`check`] verifies a placement without trusting the solver; [`whatif`] asks what
//! would change.
//!
//! Equal inputs and options give equal results, to the last bit.
//!
//! ```
//! use elastico_placement::{Allocator, Cluster, Jobs, Options, check};
//! use std::path::Path;
//!
//! let cluster = Cluster::from_toml(
//!     r#"
//!     [[pool]]
//!     id = "east"
//!     device = "h100"
//!     nodes = 1
//!     gpus_per_node = 4
//!     "#,
//!     Path::new("cluster.toml"),
//! )?;
//! let jobs = Jobs::from_toml(
//!     r#"
//!     [[job]]
//!     id = "train"
//!     gpus_max = 4
//!     shape = [{ gpus = 1, step_seconds = 0.5 }, { gpus = 4, step_seconds = 0.15 }]
//!
//!     [[job]]
//!     id = "serve"
//!     kind = "inference"
//!     weight = 2
//!     shape = [{ step_seconds = 0.02 }]
//!     "#,
//!     Path::new("jobs.toml"),
//! )?;
//! let placement =
//!     Allocator::new(cluster.clone(), Options::default()).solve(&jobs, &elastico_models::Profiles::default(), None)?;
//! assert_eq!(placement.assignments.len(), 2);
//! assert!(placement.bound >= placement.value);
//! assert!(check(&placement, &cluster).is_empty());
//! # Ok::<(), elastico_placement::Error>(())
//! ```

mod allocate;
mod bundle;
mod cluster;
mod dual;
mod error;
mod explain;
mod input;
mod instance;
mod jobs;
mod kept;
mod matching;
mod nodes;
mod objective;
mod options;
mod pairing;
mod placement;
mod prices;
mod problem;
mod provenance;
mod report;
mod resources;
mod rounding;
mod schema;
mod session;
mod settings;
mod shapes;
mod simplex;
mod warm;
pub mod whatif;
mod worth;

pub use allocate::Allocator;
pub use cluster::{Cluster, Pool};
pub use elastico_models::Profiles;
pub use error::Error;
pub use explain::{EXPLANATION_SCHEMA, Explanation, Holder, PricedPartner, PricedShape};
pub use instance::Refusal;
pub use jobs::{Current, Job, Jobs, MeasuredShape};
pub use objective::Objective;
pub use options::{Options, PairKinds};
pub use pairing::{PairOutcome, PairTable};
pub use placement::{
    Assignment, Beside, Entry, NodeGpus, PLACEMENT_SCHEMA, Placement, Timings, Violation, WaitReason,
    Waiting, check,
};
pub use prices::{Price, Prices};
pub use provenance::{Basis, ModelIdentity};
pub use resources::{Resource, Resources};
pub use schema::schemas;
pub use session::{Decision, SESSION_SCHEMA, Session, SessionAnswer};
pub use settings::{Setting, SettingNames, Settings};
pub use shapes::{BatchPoint, Dropped, Goodput, Origin, ScalingLaw, Shape, ShapeFamily, Timing};

#[cfg(test)]
mod laws;
