use super::{Figure, check, sentences};
use crate::svg::{Anchor, BLUE, INK, ORANGE, SMALL, Svg, TEXT, fit, short, text_width};
use crate::{Error, Origin, number};
use serde::Serialize;
use std::fmt::Write as _;

/// Curves over one axis, with bands where intervals are known: load sweeps, utilisation over time, distributions.
#[derive(Clone, Debug, Serialize)]
pub struct Curves {
    /// What is shown.
    pub title: String,
    /// Where all its numbers come from.
    pub origin: Origin,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Curves in the order of the legend.
    pub curves: Vec<Curve>,
    /// A further sentence for the caption.
    pub note: String,
}

/// What an axis shows, and how.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// How its numbers are written.
    pub unit: AxisUnit,
    /// Logarithmic; needs numbers above 0.
    pub is_log: bool,
}

/// How the numbers of an axis are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AxisUnit {
    /// Plain numbers.
    Plain,
    /// A ratio of 0.25 is written 25 %.
    Percent,
    /// Seconds, written as hours, minutes or seconds, whichever suits the largest.
    Seconds,
}

/// One curve.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<CurvePoint>,
    /// Drawn in ink: what the others are compared with.
    pub is_baseline: bool,
}

/// One point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Horizontally.
    pub x: f64,
    /// Vertically.
    pub y: f64,
    /// Interval of `y`.
    pub interval: Option<(f64, f64)>,
}

const LEFT: f64 = 74.0;
const TOP: f64 = 12.0;
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
/// Above so many points a curve has no marks.
const MARKED: usize = 20;
/// Lines of text at the right end are at least this far apart.
const LINE: f64 = 16.0;
const NAMES: f64 = 190.0;

/// Middle tones that keep 3:1 on white and on a dark page; beyond them lines are dashed.
const COLOURS: [&str; 7] = [BLUE, ORANGE, "#1f8a5b", "#9358c0", "#c23b5a", "#13808f", "#8a6a2f"];

/// The numbers of an axis on the page.
struct Scale<'a> {
    axis: &'a Axis,
    low: f64,
    high: f64,
    /// Seconds of the unit that is written.
    unit: f64,
}

impl<'a> Scale<'a> {
    fn new(axis: &'a Axis, values: impl Iterator<Item = f64>, from_zero: bool) -> Self {
        let (mut low, mut high) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if axis.is_log {
            // A decade at least, else there is hardly a tick.
            let room = (10.0 / (high / low)).sqrt().max(1.05);
            (low, high) = (low / room, high * room);
        } else {
            low = if from_zero { low.min(0.0) } else { low };
            if high <= low {
                high = low + 1.0;
            }
            high += (high - low) * if from_zero { 0.04 } else { 0.0 };
        }
        let unit = match axis.unit {
            AxisUnit::Seconds if high >= 7200.0 => 3600.0,
            AxisUnit::Seconds if high >= 600.0 => 60.0,
            _ => 1.0,
        };
        Self { axis, low, high, unit }
    }

    /// 0 at the low end, 1 at the high one.
    fn part(&self, value: f64) -> f64 {
        let part = if self.axis.is_log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        part.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        let (low, high) = (self.low / self.unit, self.high / self.unit);
        let ticks = if self.axis.is_log { number::log_ticks(low, high) } else { number::ticks(low, high, 6) };
        ticks
            .into_iter()
            .map(|tick| tick * self.unit)
            .filter(|tick| (self.low..=self.high).contains(tick))
            .collect()
    }

    fn write_tick(&self, value: f64) -> String {
        match self.axis.unit {
            AxisUnit::Percent => format!("{} %", number::tick((value * 1000.0).round() / 10.0)),
            AxisUnit::Plain | AxisUnit::Seconds => number::tick(value / self.unit),
        }
    }

    fn write(&self, value: f64) -> String {
        match self.axis.unit {
            AxisUnit::Percent => number::percent(value),
            AxisUnit::Plain => number::ratio(value),
            AxisUnit::Seconds => format!("{} {}", number::ratio(value / self.unit), self.word()),
        }
    }

    const fn word(&self) -> &'static str {
        match self.unit {
            3600.0 => "h",
            60.0 => "min",
            _ => "s",
        }
    }

    fn label(&self) -> String {
        match self.axis.unit {
            AxisUnit::Seconds => format!("{}, {}", self.axis.label, self.word()),
            AxisUnit::Plain | AxisUnit::Percent => self.axis.label.clone(),
        }
    }
}

pub(super) fn draw(view: &Curves) -> Result<Figure, Error> {
    let points = || view.curves.iter().flat_map(|curve| &curve.points);
    if points().next().is_none() {
        return Err(Error::Empty { figure: view.title.clone(), what: "points" });
    }
    for curve in &view.curves {
        for point in &curve.points {
            let least = |axis: &Axis| if axis.is_log { super::POSITIVE } else { f64::MIN };
            check(&view.title, "position", &curve.name, point.x, least(&view.x))?;
            check(&view.title, "value", &curve.name, point.y, least(&view.y))?;
            if let Some((lower, upper)) = point.interval {
                check(&view.title, "lower bound", &curve.name, lower, f64::MIN)?;
                check(&view.title, "upper bound", &curve.name, upper, lower)?;
            }
        }
    }
    let x_scale = Scale::new(&view.x, points().map(|point| point.x), false);
    let heights = points().flat_map(|point| {
        let (lower, upper) = point.interval.unwrap_or((point.y, point.y));
        // The lower end of a band may lie below 0, where a logarithmic axis does not reach.
        [point.y, upper, if view.y.is_log && lower <= 0.0 { point.y } else { lower }]
    });
    let y_scale = Scale::new(&view.y, heights, true);
    let x = |value: f64| LEFT + WIDTH * x_scale.part(value);
    let y = |value: f64| TOP + HEIGHT * (1.0 - y_scale.part(value));
    let mut svg = Svg::new(
        LEFT + WIDTH + 18.0 + names_width(view),
        TOP + HEIGHT + 48.0,
        format!(
            "{}, {}: {} curves of {} over {}",
            view.title,
            view.origin,
            view.curves.len(),
            view.y.label,
            view.x.label
        ),
    );
    for tick in y_scale.ticks() {
        svg.grid((LEFT, y(tick)), (LEFT + WIDTH, y(tick)));
        svg.muted(LEFT - 8.0, y(tick) + 4.0, Anchor::End, SMALL, &y_scale.write_tick(tick));
    }
    for tick in x_scale.ticks() {
        svg.grid((x(tick), TOP), (x(tick), TOP + HEIGHT));
        svg.muted(x(tick), TOP + HEIGHT + 18.0, Anchor::Middle, SMALL, &x_scale.write_tick(tick));
    }
    svg.axis((LEFT, TOP + HEIGHT), (LEFT + WIDTH, TOP + HEIGHT));
    svg.axis((LEFT, TOP), (LEFT, TOP + HEIGHT));
    svg.text(LEFT + WIDTH / 2.0, TOP + HEIGHT + 38.0, Anchor::Middle, TEXT, &x_scale.label());
    svg.styled(
        14.0,
        TOP + HEIGHT / 2.0,
        Anchor::Middle,
        TEXT,
        &format!(r#"class="ink" fill="{INK}" transform="rotate(-90 14 {})""#, short(TOP + HEIGHT / 2.0)),
        &y_scale.label(),
    );
    let styles = styles(view);
    for (curve, style) in view.curves.iter().zip(&styles) {
        band(&mut svg, curve, style, (&x, &y));
    }
    for (curve, style) in view.curves.iter().zip(&styles) {
        line(&mut svg, curve, style, (&x, &y), (&x_scale, &y_scale));
    }
    names(&mut svg, view, &styles, &y);
    let has_bands = points().any(|point| point.interval.is_some());
    let caption = sentences([
        if has_bands { "Bands are 95 % intervals.".to_owned() } else { String::new() },
        if view.y.is_log { "The vertical axis is logarithmic.".to_owned() } else { String::new() },
        if view.x.is_log { "The horizontal axis is logarithmic.".to_owned() } else { String::new() },
        view.note.clone(),
    ]);
    Ok(Figure::new(&view.title, caption, &view.origin, svg))
}

struct Style {
    class: &'static str,
    colour: &'static str,
    dashes: &'static str,
}

/// Colours in order, then once more dashed and dotted; the baseline in ink.
fn styles(view: &Curves) -> Vec<Style> {
    let mut next = 0;
    view.curves
        .iter()
        .map(|curve| {
            if curve.is_baseline {
                return Style { class: "whisker", colour: INK, dashes: "7 4" };
            }
            let style = Style {
                class: "curve",
                colour: COLOURS[next % COLOURS.len()],
                dashes: ["", "6 3", "2 3"][(next / COLOURS.len()).min(2)],
            };
            next += 1;
            style
        })
        .collect()
}

type Place<'a> = (&'a dyn Fn(f64) -> f64, &'a dyn Fn(f64) -> f64);

fn band(svg: &mut Svg, curve: &Curve, style: &Style, (x, y): Place<'_>) {
    let known: Vec<(f64, f64, f64)> = curve
        .points
        .iter()
        .filter_map(|point| point.interval.map(|(lower, upper)| (point.x, lower, upper)))
        .collect();
    // Of one point a band has no width: a whisker.
    if let [(at, lower, upper)] = known[..] {
        let stroke = format!(r#"stroke="{}" stroke-width="1.5""#, style.colour);
        svg.line((x(at), y(lower)), (x(at), y(upper)), &stroke);
    }
    if known.len() < 2 {
        return;
    }
    let mut data = String::new();
    let upper = known.iter().map(|(at, _, upper)| (x(*at), y(*upper)));
    let lower = known.iter().rev().map(|(at, lower, _)| (x(*at), y(*lower)));
    for (index, (across, down)) in upper.chain(lower).enumerate() {
        let _ = write!(data, "{}{} {} ", if index == 0 { "M" } else { "L" }, short(across), short(down));
    }
    svg.path(&format!("{data}Z"), &format!(r#"fill="{}" fill-opacity="0.16""#, style.colour));
}

fn line(
    svg: &mut Svg,
    curve: &Curve,
    style: &Style,
    (x, y): Place<'_>,
    (x_scale, y_scale): (&Scale<'_>, &Scale<'_>),
) {
    let mut data = String::new();
    for (index, point) in curve.points.iter().enumerate() {
        let _ = write!(
            data,
            "{}{} {} ",
            if index == 0 { "M" } else { "L" },
            short(x(point.x)),
            short(y(point.y))
        );
    }
    let dashes = if style.dashes.is_empty() {
        String::new()
    } else {
        format!(r#" stroke-dasharray="{}""#, style.dashes)
    };
    let stroke = format!(
        r#"class="{}" fill="none" style="fill:none" stroke="{}" stroke-width="2" stroke-linejoin="round"{dashes}"#,
        style.class, style.colour
    );
    svg.open(&curve.name);
    svg.path(data.trim_end(), &stroke);
    svg.close();
    if curve.points.len() > MARKED {
        return;
    }
    for point in &curve.points {
        let interval = point.interval.map_or(String::new(), |(lower, upper)| {
            format!(" [{}, {}]", y_scale.write(lower), y_scale.write(upper))
        });
        svg.open(&format!(
            "{}, {}: {}{interval}",
            curve.name,
            x_scale.write(point.x),
            y_scale.write(point.y)
        ));
        svg.circle(x(point.x), y(point.y), 3.5, &format!(r#"fill="{}""#, style.colour));
        svg.close();
    }
}

/// Names at the right ends of their curves, pushed apart, each with a stroke of its curve.
fn names(svg: &mut Svg, view: &Curves, styles: &[Style], y: &dyn Fn(f64) -> f64) {
    let mut places: Vec<(usize, f64)> = view
        .curves
        .iter()
        .enumerate()
        .filter_map(|(index, curve)| Some((index, y(curve.points.last()?.y))))
        .collect();
    places.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    let mut least = TOP + 4.0;
    for place in &mut places {
        place.1 = place.1.max(least);
        least = place.1 + LINE;
    }
    // Back up from the bottom, where they have been pushed over it.
    let mut most = TOP + HEIGHT + LINE;
    for place in places.iter_mut().rev() {
        place.1 = place.1.min(most);
        most = place.1 - LINE;
    }
    let from = LEFT + WIDTH + 6.0;
    for (index, down) in places {
        let (curve, style) = (&view.curves[index], &styles[index]);
        let dashes = if style.dashes.is_empty() { "" } else { r#" stroke-dasharray="4 2""# };
        let stroke = format!(r#"class="{}" stroke="{}" stroke-width="3"{dashes}"#, style.class, style.colour);
        svg.line((from, down), (from + 14.0, down), &stroke);
        svg.text(from + 20.0, down + 4.0, Anchor::Start, SMALL, &fit(&curve.name, SMALL, NAMES - 20.0));
    }
}

fn names_width(view: &Curves) -> f64 {
    let widest = view.curves.iter().map(|curve| text_width(&curve.name, SMALL)).fold(40.0, f64::max);
    (widest + 20.0).min(NAMES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::DeviceKind;

    fn view() -> Curves {
        let axis = |label: &str, unit| Axis { label: label.to_owned(), unit, is_log: false };
        let point = |x, y: f64| CurvePoint { x, y, interval: Some((y * 0.9, y * 1.2)) };
        let curve = |name: &str, factor: f64, is_baseline| Curve {
            name: name.to_owned(),
            points: vec![point(0.5, 3600.0 * factor), point(1.0, 7200.0 * factor)],
            is_baseline,
        };
        Curves {
            title: "Completion time".to_owned(),
            origin: Origin::new(DeviceKind::Simulated, "cluster"),
            x: axis("offered load", AxisUnit::Plain),
            y: axis("mean JCT", AxisUnit::Seconds),
            curves: vec![curve("fifo", 1.0, true), curve("srtf", 0.6, false), curve("las", 0.61, false)],
            note: "n = 10 traces for each point.".to_owned(),
        }
    }

    #[test]
    fn small_curves_are_as_before() {
        let figure = Figure::curves(&view()).unwrap();
        insta::assert_snapshot!(format!("{}\n\n{}", figure.caption, figure.svg));
    }

    #[test]
    fn what_an_axis_cannot_show_is_refused() {
        let mut wrong = view();
        wrong.curves[0].points[0].y = f64::NAN;
        assert!(matches!(Figure::curves(&wrong), Err(Error::Number { .. })));
        let mut wrong = view();
        wrong.x.is_log = true;
        wrong.curves[1].points[0].x = 0.0;
        assert!(matches!(Figure::curves(&wrong), Err(Error::Number { .. })));
        wrong.curves.clear();
        assert!(matches!(Figure::curves(&wrong), Err(Error::Empty { .. })));
    }
}
