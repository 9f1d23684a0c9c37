//! Views and their drawings.

mod bars;
mod curves;
mod dots;
mod gantt;
mod heatmap;
mod placement;
mod reliability;
mod roofline;
mod scatter;
mod square;

pub use bars::{Bar, BarGroup, BarUnit, Bars};
pub use curves::{Axis, AxisUnit, Curve, CurvePoint, Curves};
pub use dots::{Dot, Dots};
pub use gantt::{Gantt, GanttBar, GanttKind, GanttRow};
pub use heatmap::{Cell, Heatmap};
pub use placement::{GpuView, NodeView, PlacementChart, Tenant, Waiting};
pub use reliability::{ReliabilityPlot, ReliabilityPoint};
pub use roofline::{Roofline, RooflinePoint};
pub use scatter::{PredictedVsMeasured, PredictionPoint};

use crate::{Error, Origin, svg::Svg};
use serde::Serialize;
use std::fmt;

/// A finished figure: an SVG that stands alone, and the words that belong under it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figure {
    /// What is shown.
    pub title: String,
    /// What to read from it, with the number of values behind it.
    pub caption: String,
    /// Where the numbers come from.
    pub origin: Origin,
    /// One `<svg>` element with a `viewBox`; all texts are escaped.
    pub svg: String,
    /// Natural width in pixels: below it, scroll instead of scaling, since text would fall under 12 px.
    pub width: u32,
}

impl Figure {
    /// Pairwise slowdowns: rows are subjects, columns co-runners.
    ///
    /// # Errors
    /// No cells, a number that is no slowdown, or two values for one cell.
    pub fn heatmap(view: &Heatmap) -> Result<Self, Error> {
        heatmap::draw(view)
    }

    /// Predicted against measured slowdown, with intervals and the diagonal.
    ///
    /// # Errors
    /// No points, or a number that is no slowdown.
    pub fn predicted_vs_measured(view: &PredictedVsMeasured) -> Result<Self, Error> {
        scatter::draw(view)
    }

    /// Workloads under the roofs of a chip (Williams, Waterman and Patterson 2009).
    ///
    /// # Errors
    /// No points, an unknown chip, or a number that a logarithmic axis cannot show.
    pub fn roofline(view: &Roofline) -> Result<Self, Error> {
        roofline::draw(view)
    }

    /// Nodes, their GPUs, and who sits beside whom.
    ///
    /// # Errors
    /// No nodes, or a slowdown that is none.
    pub fn placement_chart(view: &PlacementChart) -> Result<Self, Error> {
        placement::draw(view)
    }

    /// Horizontal bars in groups, with intervals.
    ///
    /// # Errors
    /// No bars, or a number that is negative or not finite.
    pub fn bars(view: &Bars) -> Result<Self, Error> {
        bars::draw(view)
    }

    /// Curves over one axis, with bands.
    ///
    /// # Errors
    /// No points, or a number that an axis cannot show.
    pub fn curves(view: &Curves) -> Result<Self, Error> {
        curves::draw(view)
    }

    /// Nodes over time.
    ///
    /// # Errors
    /// No nodes, or a bar outside its node.
    pub fn gantt(view: &Gantt) -> Result<Self, Error> {
        gantt::draw(view)
    }

    /// Dots with intervals on a logarithmic axis of ratios, around a line at 1.
    ///
    /// # Errors
    /// No dots, or a number that is no ratio.
    pub fn dots(view: &Dots) -> Result<Self, Error> {
        dots::draw(view)
    }

    /// Promised level against achieved coverage.
    ///
    /// # Errors
    /// No points, or a number outside 0..1.
    pub fn reliability(view: &ReliabilityPlot) -> Result<Self, Error> {
        reliability::draw(view)
    }

    fn new(title: &str, caption: String, origin: &Origin, svg: Svg) -> Self {
        let width = svg.width() as u32;
        Self { title: title.to_owned(), caption, origin: origin.clone(), svg: svg.finish(), width }
    }
}

/// The SVG alone.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.svg)
    }
}

/// Refuses what an axis cannot show.
fn check(figure: &str, what: &'static str, label: &str, value: f64, at_least: f64) -> Result<(), Error> {
    if value.is_finite() && value >= at_least {
        Ok(())
    } else {
        Err(Error::Number { figure: figure.to_owned(), what, label: label.to_owned(), value })
    }
}

/// The smallest number that counts as positive.
const POSITIVE: f64 = f64::MIN_POSITIVE;

/// Joins the non-empty sentences of a caption.
fn sentences(parts: impl IntoIterator<Item = String>) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}
