//! The dataset: schema, Parquet, validation, merge and imports. The only room that sees polars.
//!
//! A [`Dataset`] is two columnar [`Table`]s and a [`Manifest`]. The *isolated* table has one row per workload alone on a
//! device; the *pairs* table has one row per subject per trial, so two rows per co-run. Each table's columns come
//! from one list that also defines its row struct ([`IsolatedRow`], [`PairRow`]), so that code, files and the generated
//! reference cannot drift apart.
//!
//! On disk a dataset is a folder: `manifest.json`, `isolated/*.parquet`, `pairs/*.parquet`. The same dataset always gives
//! the same bytes. [`Dataset::write`] replaces a folder in one step, [`Dataset::read`] refuses changed or damaged files,
//! and [`validate`] names file, row, column and rule of each wrong value. [`Dataset::merge`] is idempotent; [`import`]
//! brings in what others measured.
//!
//! ```
//! use elastico_core::{DeviceKind, Provenance};
//! use elastico_datasets::{Dataset, PairRow, Table};
//! use std::collections::BTreeMap;
//!
//! let row = PairRow {
//!     trial_id: "t1".into(),
//!     side: "a".into(),
//!     device_kind: "cpu".into(),
//!     slowdown_ratio: 1.25,
//!     ..PairRow::default()
//! };
//! let provenance = Provenance {
//!     elastico_version: "0.1.0".into(),
//!     device_kind: DeviceKind::Cpu,
//!     device: "cpu".into(),
//!     seed: None,
//!     source: "example".into(),
//!     source_digest: None,
//!     facts: BTreeMap::new(),
//! };
//! let dataset = Dataset::new(Table::isolated(&[]), Table::pairs(&[row]), provenance, BTreeMap::new())?;
//! assert_eq!(dataset.pairs.f64("slowdown_ratio")?, [1.25]);
//! assert_eq!(dataset.pairs.text("side")?.get(0), Some("a"));
//! # Ok::<(), elastico_datasets::Error>(())
//! ```

mod atomic;
mod dataset;
mod datasheet;
mod error;
mod export;
pub mod import;
mod labels;
mod manifest;
mod merge;
mod parquet;
mod reference;
mod schema;
mod summary;
mod table;
mod text;
mod validate;

pub use atomic::{Existing, resolve, write_atomic, write_files};
pub use dataset::Dataset;
pub use datasheet::datasheet;
pub use error::{Conflict, Error};
pub use export::export_csv;
pub use labels::{Licence, OWN_HARNESS, SLOWDOWN_RANGE};
pub use manifest::{Exclusion, Manifest, Part, SCHEMA};
pub use reference::reference;
pub use schema::{Check, Column, ColumnKind, FLAGS, Flag, IsolatedRow, PairRow, TableKind, pair_id};
pub use summary::{DatasetInspection, PairSummary, TableInspection, inspect, pair_summaries};
pub use table::Table;
pub use text::TextColumn;
pub use validate::{Finding, validate};
