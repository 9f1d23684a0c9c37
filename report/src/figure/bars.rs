use super::{Figure, check, sentences};
use crate::svg::{Anchor, BLUE, INK, MUTED, ORANGE, SMALL, Svg, TEXT, fit, text_width};
use crate::{Error, Origin, number};
use serde::Serialize;

/// Horizontal bars in groups: errors by split and learner, completion times by policy.
#[derive(Clone, Debug, Serialize)]
pub struct Bars {
    /// What is shown.
    pub title: String,
    /// Where all its numbers come from.
    pub origin: Origin,
    /// What the length means, for example `mean absolute percentage error`.
    pub quantity: String,
    /// How numbers are written.
    pub unit: BarUnit,
    /// Groups from top to bottom.
    pub groups: Vec<BarGroup>,
    /// What is better.
    pub lower_is_better: bool,
    /// A further sentence for the caption.
    pub note: String,
}

impl Bars {
    /// An empty figure in which shorter is better.
    pub fn new(origin: Origin, title: impl Into<String>, quantity: impl Into<String>, unit: BarUnit) -> Self {
        Self {
            title: title.into(),
            origin,
            quantity: quantity.into(),
            unit,
            groups: Vec::new(),
            lower_is_better: true,
            note: String::new(),
        }
    }
}

/// How the numbers of a bar are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BarUnit {
    /// A ratio of 0.25 is written 25 %.
    Percent,
    /// A plain ratio such as a slowdown.
    Ratio,
    /// A duration in seconds, written with a fitting unit.
    Seconds,
}

impl BarUnit {
    fn write(self, value: f64) -> String {
        match self {
            Self::Percent => number::percent(value),
            Self::Ratio => number::ratio(value),
            Self::Seconds if value >= 7200.0 => format!("{:.1} h", value / 3600.0),
            Self::Seconds if value >= 1.0 => format!("{value:.0} s"),
            Self::Seconds => format!("{:.1} ms", value * 1e3),
        }
    }
}

/// Bars under one heading.
#[derive(Clone, Debug, Serialize)]
pub struct BarGroup {
    /// The heading, for example the split.
    pub name: String,
    /// Bars from top to bottom.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// Its label, for example the learner.
    pub name: String,
    /// Its length.
    pub value: f64,
    /// Interval of the value.
    pub interval: Option<(f64, f64)>,
    /// Values behind it; 0 = unstated.
    pub n: usize,
    /// Drawn in the second colour: a baseline to compare with.
    pub is_baseline: bool,
}

const BAR: f64 = 20.0;
const GAP: f64 = 6.0;
const HEADING: f64 = 26.0;
const PLOT: f64 = 380.0;

pub(super) fn draw(view: &Bars) -> Result<Figure, Error> {
    let all: Vec<(&str, &Bar)> = view
        .groups
        .iter()
        .flat_map(|group| group.bars.iter().map(move |bar| (group.name.as_str(), bar)))
        .collect();
    if all.is_empty() {
        return Err(Error::Empty { figure: view.title.clone(), what: "bars" });
    }
    let mut high = 0.0_f64;
    for (group, bar) in &all {
        let label = format!("{group}, {}", bar.name);
        check(&view.title, "value", &label, bar.value, 0.0)?;
        high = high.max(bar.value);
        if let Some((lower, upper)) = bar.interval {
            check(&view.title, "lower bound", &label, lower, f64::MIN)?;
            check(&view.title, "upper bound", &label, upper, lower)?;
            high = high.max(upper);
        }
    }
    if high <= 0.0 {
        high = 1.0;
    }
    let labels = all.iter().map(|(_, bar)| text_width(&bar.name, TEXT)).fold(40.0, f64::max).min(200.0);
    let left = labels + 18.0;
    let values = 70.0;
    let height: f64 =
        view.groups.iter().map(|group| HEADING + group.bars.len() as f64 * (BAR + GAP) + 8.0).sum();
    let x = |value: f64| left + PLOT * value.clamp(0.0, high) / high;
    let mut svg = Svg::new(
        left + PLOT + values,
        height + 52.0,
        format!("{}, {}: {} bars of {}", view.title, view.origin, all.len(), view.quantity),
    );
    let ticks = number::ticks(0.0, high, 5);
    for tick in &ticks {
        svg.muted(x(*tick), height + 18.0, Anchor::Middle, SMALL, &view.unit.write_tick(*tick));
    }
    let mut top = 0.0;
    for group in &view.groups {
        svg.heading(0.0, top + 18.0, &group.name);
        top += HEADING;
        // Grid and axis stop at headings, so that no line runs through a word.
        let bottom = top + group.bars.len() as f64 * (BAR + GAP) - GAP + 3.0;
        for tick in &ticks {
            svg.grid((x(*tick), top - 3.0), (x(*tick), bottom));
        }
        svg.line((left, top - 3.0), (left, bottom), &format!(r#"class="axis" stroke="{MUTED}""#));
        for bar in &group.bars {
            let (class, colour) = if bar.is_baseline { ("alarm", ORANGE) } else { ("calm", BLUE) };
            svg.open(&tooltip(view.unit, group, bar));
            svg.text(left - 8.0, top + BAR * 0.72, Anchor::End, TEXT, &fit(&bar.name, TEXT, 200.0));
            svg.rect(
                left,
                top,
                x(bar.value) - left,
                BAR,
                &format!(
                    r#"class="{class}" fill="{colour}" fill-opacity="{}""#,
                    if bar.is_baseline { 0.55 } else { 0.75 }
                ),
            );
            let mut end = x(bar.value);
            if let Some((lower, upper)) = bar.interval {
                let middle = top + BAR / 2.0;
                let style = format!(r#"class="whisker" stroke="{INK}" stroke-width="1.5""#);
                svg.line((x(lower), middle), (x(upper), middle), &style);
                for bound in [lower, upper] {
                    svg.line((x(bound), middle - 4.0), (x(bound), middle + 4.0), &style);
                }
                end = end.max(x(upper));
            }
            svg.text(end + 8.0, top + BAR * 0.72, Anchor::Start, TEXT, &view.unit.write(bar.value));
            svg.close();
            top += BAR + GAP;
        }
        top += 8.0;
    }
    svg.muted(left, height + 40.0, Anchor::Start, SMALL, &view.quantity);

    let counts: Vec<usize> = all.iter().map(|(_, bar)| bar.n).filter(|n| *n > 0).collect();
    let n = match (counts.iter().min(), counts.iter().max()) {
        (Some(low), Some(high)) if low == high => format!("n = {} for each bar.", number::count(*low)),
        (Some(low), Some(high)) => {
            format!("n = {} to {} for a bar.", number::count(*low), number::count(*high))
        }
        _ => String::new(),
    };
    let has_interval = all.iter().any(|(_, bar)| bar.interval.is_some());
    let has_baseline = all.iter().any(|(_, bar)| bar.is_baseline);
    let caption = sentences([
        format!("{} is better.", if view.lower_is_better { "Shorter" } else { "Longer" }),
        if has_interval {
            "Whiskers are intervals: where they overlap widely, the difference may be chance.".to_owned()
        } else {
            String::new()
        },
        if has_baseline { "Orange bars are baselines.".to_owned() } else { String::new() },
        n,
        view.note.clone(),
    ]);
    Ok(Figure::new(&view.title, caption, &view.origin, svg))
}

impl BarUnit {
    fn write_tick(self, value: f64) -> String {
        match self {
            Self::Percent => format!("{} %", number::tick((value * 1000.0).round() / 10.0)),
            Self::Ratio => number::tick(value),
            Self::Seconds if value == 0.0 => "0".to_owned(),
            Self::Seconds => self.write(value),
        }
    }
}

fn tooltip(unit: BarUnit, group: &BarGroup, bar: &Bar) -> String {
    let interval = bar
        .interval
        .map_or(String::new(), |(lower, upper)| format!(" [{}, {}]", unit.write(lower), unit.write(upper)));
    let n = if bar.n > 0 { format!(", n = {}", number::count(bar.n)) } else { String::new() };
    format!("{}, {}: {}{interval}{n}", group.name, bar.name, unit.write(bar.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::DeviceKind;

    #[test]
    fn small_bars_are_as_before() {
        let mut view =
            Bars::new(Origin::new(DeviceKind::Imported, "gavel"), "Error", "mean error", BarUnit::Percent);
        view.groups.push(BarGroup {
            name: "random pair".into(),
            bars: vec![
                Bar {
                    name: "extra trees".into(),
                    value: 0.08,
                    interval: Some((0.07, 0.09)),
                    n: 40,
                    is_baseline: false,
                },
                Bar { name: "always 1".into(), value: 0.4, interval: None, n: 40, is_baseline: true },
            ],
        });
        let figure = Figure::bars(&view).unwrap();
        insta::assert_snapshot!(format!("{}\n\n{}", figure.caption, figure.svg));
        view.groups[0].bars[0].value = f64::INFINITY;
        assert!(matches!(Figure::bars(&view), Err(Error::Number { .. })));
        view.groups.clear();
        assert!(matches!(Figure::bars(&view), Err(Error::Empty { .. })));
    }
}
