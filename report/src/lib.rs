//! Figures, tables and one self-contained page: how numbers look, and nothing about where they come from.
//!
//! A caller fills a *view*, a plain struct such as [`Heatmap`], [`PredictedVsMeasured`], [`Roofline`],
//! [`PlacementChart`] or [`Bars`], and [`Figure`] draws it as an SVG with a caption that says what to read from it.
//! A [`Table`] is one set of rows with four renderings: text for a terminal, CSV, JSON and HTML. A [`Page`] puts both
//! into one HTML file that needs neither a network nor a script.
//!
//! Each view has exactly one [`Origin`], so that simulated and measured numbers cannot meet in one figure, and the
//! badge in the page's title is collected from the figures, so that it cannot be forgotten.
//!
//! ```
//! use elastico_core::DeviceKind;
//! use elastico_report::{Cell, Figure, Heatmap, Origin, Page, Section};
//!
//! let origin = Origin::new(DeviceKind::Simulated, "sim:h100");
//! let mut heatmap = Heatmap::new(origin, "Slowdown of each workload beside each other");
//! heatmap.cells.push(Cell::new("gemm", "stream", 1.31).interval(1.29, 1.33).repeats(3));
//! heatmap.cells.push(Cell::new("stream", "gemm", 1.08));
//! let figure = Figure::heatmap(&heatmap)?;
//! assert!(figure.svg.contains("1.31"));
//!
//! let page = Page::new("First campaign").with(Section::new("Slowdowns").with(figure));
//! assert!(page.render()?.contains("simulated h100"));
//! # Ok::<(), elastico_report::Error>(())
//! ```

mod error;
mod figure;
mod glossary;
mod number;
mod origin;
mod page;
mod svg;
mod table;

pub use error::Error;
pub use figure::{
    Axis, AxisUnit, Bar, BarGroup, BarUnit, Bars, Cell, Curve, CurvePoint, Curves, Dot, Dots, Figure, Gantt,
    GanttBar, GanttKind, GanttRow, GpuView, Heatmap, NodeView, PlacementChart, PredictedVsMeasured,
    PredictionPoint, ReliabilityPlot, ReliabilityPoint, Roofline, RooflinePoint, Tenant, Waiting,
};
pub use origin::Origin;
pub use page::{Block, Fact, Page, Section};
pub use table::{Align, Column, Format, Table, Value};
