use super::square::{LEFT, TOP, frame};
use super::{Figure, POSITIVE, check, sentences};
use crate::svg::{Anchor, BLUE, INK, MUTED, ORANGE, SMALL, Svg, TEXT, short};
use crate::{Error, Origin, number};
use serde::Serialize;

/// Predictions held against measurements that the model has not seen.
#[derive(Clone, Debug, Serialize)]
pub struct PredictedVsMeasured {
    /// What is shown.
    pub title: String,
    /// Where the measured numbers come from.
    pub origin: Origin,
    /// How the points were held out, for example `unseen co-runner`.
    pub split: String,
    /// One per observation.
    pub points: Vec<PredictionPoint>,
    /// Nominal level of the upper bound, for example 0.9; `None` = no bound is given.
    pub bound_level: Option<f64>,
    /// A slowdown up to this counts as safe: a line across each axis.
    pub limit: Option<f64>,
    /// Logarithmic axes.
    pub log: bool,
    /// A further sentence for the caption.
    pub note: String,
}

impl PredictedVsMeasured {
    /// An empty figure with linear axes.
    pub fn new(origin: Origin, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            origin,
            split: String::new(),
            points: Vec::new(),
            bound_level: None,
            limit: None,
            log: false,
            note: String::new(),
        }
    }
}

/// One observation and its prediction.
#[derive(Clone, Debug, Serialize)]
pub struct PredictionPoint {
    /// Subject, co-runner and sharing, for the tooltip.
    pub label: String,
    /// Measured slowdown.
    pub measured: f64,
    /// Interval of the measured slowdown.
    pub interval: Option<(f64, f64)>,
    /// Predicted slowdown.
    pub predicted: f64,
    /// Predicted upper bound.
    pub upper: Option<f64>,
    /// Whether the features lie in the domain that the model was trained on.
    pub in_domain: bool,
}

/// Points drawn at most: a browser grows slow beyond, and ink would cover everything.
const DRAWN_LIMIT: usize = 1500;
/// With more points marks are small, and intervals are told by the tooltip alone.
const CROWDED: usize = 300;
const SIDE: f64 = 420.0;

pub(super) fn draw(view: &PredictedVsMeasured) -> Result<Figure, Error> {
    let points = &view.points;
    if points.is_empty() {
        return Err(Error::Empty { figure: view.title.clone(), what: "points" });
    }
    for point in points {
        check(&view.title, "measured slowdown", &point.label, point.measured, POSITIVE)?;
        check(&view.title, "predicted slowdown", &point.label, point.predicted, POSITIVE)?;
        if let Some((lower, upper)) = point.interval {
            check(&view.title, "lower bound", &point.label, lower, POSITIVE)?;
            check(&view.title, "upper bound", &point.label, upper, lower)?;
        }
        if let Some(upper) = point.upper {
            check(&view.title, "predicted upper bound", &point.label, upper, POSITIVE)?;
        }
    }
    let values = points.iter().flat_map(|point| [point.measured, point.predicted]);
    let (low, high) =
        values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let (low, high) = if view.log {
        (low.min(1.0) / 1.03, high.max(1.3) * 1.05)
    } else {
        let margin = (high - low).max(0.2) * 0.05;
        (low.min(1.0) - margin, high + margin)
    };
    let share = |value: f64| {
        let value = value.clamp(low, high);
        if view.log { (value / low).ln() / (high / low).ln() } else { (value - low) / (high - low) }
    };
    let x = |value: f64| LEFT + SIDE * share(value);
    let y = |value: f64| TOP + SIDE * (1.0 - share(value));

    let mut svg = Svg::new(
        LEFT + SIDE + 16.0,
        TOP + SIDE + 102.0,
        format!(
            "{}, {}: predicted against observed slowdown of {} observations",
            view.title,
            view.origin,
            points.len()
        ),
    );
    let ticks = if view.log { number::log_ticks(low, high) } else { number::ticks(low, high, 6) };
    let ticks = ticks.into_iter().map(|tick| (tick, number::tick(tick)));
    frame(&mut svg, SIDE, (&x, &y), (low, high), ticks);
    if let Some(limit) = view.limit.filter(|limit| *limit > low && *limit < high) {
        let style = format!(r#"class="diagonal" stroke="{MUTED}" stroke-width="1.2" stroke-dasharray="2 3""#);
        svg.line((x(limit), TOP), (x(limit), TOP + SIDE), &style);
        svg.line((LEFT, y(limit)), (LEFT + SIDE, y(limit)), &style);
    }
    svg.text(LEFT + SIDE / 2.0, TOP + SIDE + 38.0, Anchor::Middle, TEXT, "observed slowdown");
    svg.styled(
        16.0,
        TOP + SIDE / 2.0,
        Anchor::Middle,
        TEXT,
        &format!(r#"class="ink" fill="{INK}" transform="rotate(-90 16 {})""#, short(TOP + SIDE / 2.0)),
        "predicted slowdown",
    );

    let n = points.len();
    let stride = n.div_ceil(DRAWN_LIMIT);
    let mut drawn = 0;
    // Violations are few and matter most: drawn last, and never thinned out.
    let violated = |point: &PredictionPoint| point.upper.is_some_and(|upper| point.measured > upper);
    let (calm, alarming): (Vec<_>, Vec<_>) = points.iter().partition(|point| !violated(point));
    let radius = if n > CROWDED { 2.5 } else { 4.0 };
    for point in calm.iter().step_by(stride).chain(&alarming) {
        drawn += 1;
        let is_violation = violated(point);
        let colour = if is_violation { ORANGE } else { BLUE };
        let class = if is_violation { "alarm" } else { "calm" };
        svg.open(&tooltip(point));
        if let Some((lower, upper)) = point.interval.filter(|_| n <= CROWDED) {
            svg.line(
                (x(lower), y(point.predicted)),
                (x(upper), y(point.predicted)),
                &format!(r#"class="{class}" stroke="{colour}" stroke-width="1.2" stroke-opacity="0.6""#),
            );
        }
        marker(&mut svg, (x(point.measured), y(point.predicted)), radius, is_violation, point.in_domain);
        svg.close();
    }
    legend(&mut svg, TOP + SIDE + 64.0, points);

    let absolute: Vec<f64> =
        points.iter().map(|point| (point.predicted - point.measured).abs() / point.measured).collect();
    let mape = elastico_core::mean(&absolute);
    let bounded: Vec<_> = points.iter().filter(|point| point.upper.is_some()).collect();
    let held = bounded.len() - alarming.len();
    let bound = match (view.bound_level, bounded.len()) {
        (_, 0) => String::new(),
        (level, of) => {
            let nominal =
                level.map_or(String::new(), |level| format!(" (promised {})", number::percent(level)));
            format!(
                "The observed value stayed under the predicted upper bound for {held} of {of}, {}{nominal}.",
                number::percent(held as f64 / of as f64)
            )
        }
    };
    let crossing = view.limit.map_or(String::new(), |limit| {
        let called = points.iter().filter(|point| point.predicted <= limit).count();
        let wrong =
            points.iter().filter(|point| point.predicted <= limit && point.measured > limit).count();
        format!(
            "The dotted lines are the limit of {}: of {} observations predicted under it, {} were over it (lower right).",
            number::ratio(limit),
            number::count(called),
            number::count(wrong)
        )
    });
    let outside = points.iter().filter(|point| !point.in_domain).count();
    let caption = sentences([
        "On the dashed line the prediction is right; above it the model is too careful, below it too hopeful.".to_owned(),
        if view.split.is_empty() { String::new() } else { format!("Held out: {}.", view.split) },
        format!("n = {}, mean absolute error {}.", number::count(n), number::percent(mape)),
        bound,
        crossing,
        if outside > 0 { format!("{outside} outside the model's domain (hollow).") } else { String::new() },
        if drawn < n { format!("{} of {} points drawn.", number::count(drawn), number::count(n)) } else { String::new() },
        view.note.clone(),
    ]);
    Ok(Figure::new(&view.title, caption, &view.origin, svg))
}

fn marker(svg: &mut Svg, (x, y): (f64, f64), radius: f64, is_violation: bool, in_domain: bool) {
    let (class, colour) = if is_violation { ("alarm", ORANGE) } else { ("calm", BLUE) };
    let fill = if in_domain { colour } else { "none" };
    let style = format!(
        r#"class="{class}{}" fill="{fill}" fill-opacity="0.6" stroke="{colour}" stroke-width="1""#,
        if in_domain { "" } else { " hollow" }
    );
    if is_violation {
        let size = radius * 1.4;
        let data = format!(
            "M{} {}L{} {}L{} {}Z",
            short(x),
            short(y - size),
            short(x + size),
            short(y + size * 0.8),
            short(x - size),
            short(y + size * 0.8)
        );
        svg.path(&data, &style);
    } else {
        svg.circle(x, y, radius, &style);
    }
}

fn legend(svg: &mut Svg, y: f64, points: &[PredictionPoint]) {
    marker(svg, (LEFT + 6.0, y - 4.0), 4.0, false, true);
    let has_bound = points.iter().any(|point| point.upper.is_some());
    let first = if has_bound { "under the upper bound" } else { "one observation" };
    svg.text(LEFT + 16.0, y, Anchor::Start, SMALL, first);
    if has_bound {
        marker(svg, (LEFT + 176.0, y - 4.0), 4.0, true, true);
        svg.text(LEFT + 187.0, y, Anchor::Start, SMALL, "over it (bound missed)");
    }
    if points.iter().any(|point| !point.in_domain) {
        marker(svg, (LEFT + 6.0, y + 16.0), 4.0, false, false);
        svg.text(LEFT + 16.0, y + 20.0, Anchor::Start, SMALL, "outside the model's domain");
    }
}

fn tooltip(point: &PredictionPoint) -> String {
    let interval =
        point.interval.map_or(String::new(), |(lower, upper)| format!(" [{lower:.3}, {upper:.3}]"));
    let upper = point.upper.map_or(String::new(), |upper| format!(", upper bound {upper:.3}"));
    let domain = if point.in_domain { "" } else { ", outside the model's domain" };
    format!(
        "{}: measured {:.3}{interval}, predicted {:.3}{upper}{domain}",
        point.label, point.measured, point.predicted
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::DeviceKind;

    #[test]
    fn the_caption_counts_what_the_bound_missed() {
        let mut view = PredictedVsMeasured::new(
            Origin::new(DeviceKind::Simulated, "sim:t4"),
            "Predicted against measured",
        );
        for index in 0..10 {
            let measured = 1.0 + f64::from(index) / 10.0;
            view.points.push(PredictionPoint {
                label: format!("pair {index}"),
                measured,
                interval: Some((measured * 0.99, measured * 1.01)),
                predicted: 1.1 * measured,
                upper: Some(if index == 3 { 1.0 } else { 3.0 }),
                in_domain: index != 4,
            });
        }
        view.bound_level = Some(0.9);
        let figure = Figure::predicted_vs_measured(&view).unwrap();
        assert!(figure.caption.contains("n = 10, mean absolute error 10 %"), "{}", figure.caption);
        assert!(figure.caption.contains("for 9 of 10, 90 % (promised 90 %)"), "{}", figure.caption);
        assert!(figure.caption.contains("1 outside"));
        assert_eq!(figure.svg.matches("class=\"alarm\" fill").count(), 2);
        view.log = true;
        assert!(Figure::predicted_vs_measured(&view).is_ok());
        view.points[0].measured = 0.0;
        assert!(matches!(Figure::predicted_vs_measured(&view), Err(Error::Number { .. })));
    }

    #[test]
    fn many_points_are_thinned_and_it_is_said() {
        let mut view = PredictedVsMeasured::new(Origin::new(DeviceKind::Simulated, "sim:t4"), "Many");
        view.points = (0..5000)
            .map(|index| PredictionPoint {
                label: String::new(),
                measured: 1.0 + f64::from(index % 100) / 50.0,
                interval: None,
                predicted: 1.5,
                upper: None,
                in_domain: true,
            })
            .collect();
        let figure = Figure::predicted_vs_measured(&view).unwrap();
        assert!(figure.caption.contains("1,250 of 5,000 points drawn"), "{}", figure.caption);
    }
}
