use super::square::{LEFT, TOP, frame};
use super::{Figure, check, sentences};
use crate::svg::{Anchor, BLUE, INK, ORANGE, SMALL, Svg, TEXT, short};
use crate::{Error, Origin, number};
use serde::Serialize;

/// Whether an upper bound holds as often as it promises, at several levels.
#[derive(Clone, Debug, Serialize)]
pub struct ReliabilityPlot {
    /// What is shown.
    pub title: String,
    /// Where all its numbers come from.
    pub origin: Origin,
    /// What was held out, for example `family`.
    pub group: String,
    /// Levels from low to high.
    pub points: Vec<ReliabilityPoint>,
    /// A further sentence for the caption.
    pub note: String,
}

/// One level.
#[derive(Clone, Debug, Serialize)]
pub struct ReliabilityPoint {
    /// The promised share, 0..1.
    pub level: f64,
    /// The achieved share, mean over groups.
    pub achieved: f64,
    /// Its interval over groups.
    pub interval: Option<(f64, f64)>,
    /// The share in the worst group.
    pub least: f64,
    /// Groups behind it.
    pub groups: usize,
}

const SIDE: f64 = 340.0;

pub(super) fn draw(view: &ReliabilityPlot) -> Result<Figure, Error> {
    if view.points.is_empty() {
        return Err(Error::Empty { figure: view.title.clone(), what: "points" });
    }
    let mut low = 1.0_f64;
    for point in &view.points {
        let label = format!("level {}", point.level);
        let values = [point.level, point.achieved, point.least];
        let interval = point.interval.map(|(lower, upper)| [lower, upper]).unwrap_or_default();
        for value in values.iter().chain(&interval) {
            check(&view.title, "share", &label, *value, 0.0)?;
            check(&view.title, "share", &label, 1.0 - *value, 0.0)?;
        }
        low = low.min(point.level).min(point.achieved).min(point.least);
        low = point.interval.map_or(low, |(lower, _)| low.min(lower));
    }
    let low = ((low - 0.03) * 10.0).floor().max(0.0) / 10.0;
    let share = |value: f64| (value - low) / (1.0 - low);
    let x = |value: f64| LEFT + SIDE * share(value);
    let y = |value: f64| TOP + SIDE * (1.0 - share(value));
    let mut svg = Svg::new(
        LEFT + SIDE + 24.0,
        TOP + SIDE + 92.0,
        format!("{}, {}: achieved coverage at {} levels", view.title, view.origin, view.points.len()),
    );
    let percent = |tick: f64| (tick, format!("{} %", number::tick((tick * 1000.0).round() / 10.0)));
    frame(&mut svg, SIDE, (&x, &y), (low, 1.0), number::ticks(low, 1.0, 5).into_iter().map(percent));
    svg.text(LEFT + SIDE / 2.0, TOP + SIDE + 38.0, Anchor::Middle, TEXT, "promised level");
    svg.styled(
        14.0,
        TOP + SIDE / 2.0,
        Anchor::Middle,
        TEXT,
        &format!(r#"class="ink" fill="{INK}" transform="rotate(-90 14 {})""#, short(TOP + SIDE / 2.0)),
        "achieved coverage",
    );
    for point in &view.points {
        let interval = point.interval.map_or(String::new(), |(lower, upper)| {
            format!(" [{}, {}]", number::percent(lower), number::percent(upper))
        });
        svg.open(&format!(
            "promised {}, achieved {}{interval}, worst {} {}",
            number::percent(point.level),
            number::percent(point.achieved),
            view.group,
            number::percent(point.least)
        ));
        if let Some((lower, upper)) = point.interval {
            let style = format!(r#"class="whisker" stroke="{INK}" stroke-width="1.5""#);
            svg.line((x(point.level), y(lower)), (x(point.level), y(upper)), &style);
        }
        worst(&mut svg, x(point.level), y(point.least));
        svg.circle(x(point.level), y(point.achieved), 4.5, &format!(r#"class="calm" fill="{BLUE}""#));
        svg.close();
    }
    let legend = TOP + SIDE + 66.0;
    svg.circle(LEFT + 6.0, legend - 4.0, 4.5, &format!(r#"class="calm" fill="{BLUE}""#));
    svg.text(LEFT + 16.0, legend, Anchor::Start, SMALL, &format!("mean over each {}", view.group));
    worst(&mut svg, LEFT + 196.0, legend - 4.0);
    svg.text(LEFT + 206.0, legend, Anchor::Start, SMALL, &format!("worst {}", view.group));

    let groups = view.points.iter().map(|point| point.groups).max().unwrap_or_default();
    let caption = sentences([
        "On the dashed line the bound holds as often as it promises; under it, it promises too much."
            .to_owned(),
        format!("Each {} was held against a bound made from the others; {groups} of them.", view.group),
        if view.points.iter().any(|point| point.interval.is_some()) {
            format!("Whiskers are 95 % intervals over each {}.", view.group)
        } else {
            String::new()
        },
        view.note.clone(),
    ]);
    Ok(Figure::new(&view.title, caption, &view.origin, svg))
}

fn worst(svg: &mut Svg, x: f64, y: f64) {
    let style = format!(r#"class="alarm hollow" fill="none" stroke="{ORANGE}" stroke-width="1.5""#);
    svg.circle(x, y, 3.5, &style);
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::DeviceKind;

    #[test]
    fn levels_are_held_against_what_was_achieved() {
        let mut view = ReliabilityPlot {
            title: "Reliability".into(),
            origin: Origin::new(DeviceKind::Imported, "gavel"),
            group: "family".into(),
            points: vec![ReliabilityPoint {
                level: 0.9,
                achieved: 0.88,
                interval: Some((0.8, 0.95)),
                least: 0.4,
                groups: 7,
            }],
            note: String::new(),
        };
        let figure = Figure::reliability(&view).unwrap();
        assert!(figure.svg.contains("achieved 88 %"), "{}", figure.svg);
        assert!(figure.caption.contains("7 of them"));
        view.points[0].least = 1.2;
        assert!(matches!(Figure::reliability(&view), Err(Error::Number { .. })));
        view.points.clear();
        assert!(matches!(Figure::reliability(&view), Err(Error::Empty { .. })));
    }
}
