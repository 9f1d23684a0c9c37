//! The predictor: what a pair of workloads looks like to a model, the ONNX file, and two back ends that read it.
//!
//! [`Profiles`] hold what isolated runs say about each workload. A [`FeatureSchema`] turns two [`WorkloadProfile`]s and a
//! sharing mode into a row of raw features. A learner fits a [`ModelSpec`] on such rows; [`export`] writes it as one
//! ONNX file that imputes, derives the [`physics`] features and checks its own domain, so that a scheduler in any
//! language needs nothing but the file; [`verify`] proves that the file says what the learner says. [`load`] gives a
//! [`Predictor`]: the native evaluator of this crate, or ONNX Runtime where its library is configured.
//!
//! ```
//! use elastico_core::{DeviceKind, FamilyId, SharingMode, WorkloadId, WorkloadKind};
//! use elastico_models::{FeatureSchema, WorkloadProfile};
//!
//! let profile = |name: &str, active: f64| -> Result<_, elastico_core::IdError> {
//!     Ok(WorkloadProfile {
//!         workload: WorkloadId::new(format!("{name}.small"))?,
//!         family: FamilyId::new(name)?,
//!         kind: WorkloadKind::Training,
//!         device: "h100".into(),
//!         device_kind: DeviceKind::Simulated,
//!         fields: [("sm_active_ratio".to_owned(), active)].into(),
//!         shares: Vec::new(),
//!     })
//! };
//! let names = ["subject_sm_active_ratio", "co_runner_sm_active_ratio", "sharing_mps_ratio", "device_sm_total"];
//! let schema = FeatureSchema::new(&names.map(String::from))?;
//! let mut row = Vec::new();
//! schema.encode(&profile("gemm", 0.9)?, &profile("copy", 0.2)?, &SharingMode::MPS_UNLIMITED, &mut row);
//! assert_eq!(row, [0.9, 0.2, 1.0, 132.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod field;
mod forest;
mod metadata;
mod native;
mod onnx;
mod physics;
mod predictor;
mod profile;
mod runtime;
mod schema;
mod spec;
mod verify;

pub use error::Error;
pub use field::{FIELDS, Field};
pub use forest::{Aggregate, Forest, Tree, TreeNode, round_below, round_down};
pub use metadata::{ModelMetadata, Prior, knows_device};
pub use onnx::export::export;
pub use physics::{PhysicsSpec, physics, prepare};
pub use predictor::{Backend, LoadOptions, Prediction, Predictor, load, load_bytes};
pub use profile::{Profiles, SharePoint, WorkloadProfile};
pub use runtime::runtime_library;
pub use schema::{Feature, FeatureSchema, SchemaDifference, Side};
pub use spec::{
    Body, Calibrated, DOMAIN_TOLERANCE_RATIO, Domain, DomainDistance, Gate, Link, ModelSpec, Shrunk,
    fit_domain,
};
pub use verify::{EXPORT_TOLERANCE, Verification, verify};
