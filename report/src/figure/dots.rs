use super::{Figure, POSITIVE, check, sentences};
use crate::svg::{Anchor, BLUE, INK, MUTED, SMALL, Svg, TEXT, fit, text_width};
use crate::{Error, Origin, number};
use serde::Serialize;

/// Ratios by name, each a dot with an interval: residuals by family.
#[derive(Clone, Debug, Serialize)]
pub struct Dots {
    /// What is shown.
    pub title: String,
    /// Where all its numbers come from.
    pub origin: Origin,
    /// What the ratio is, for example `observed / predicted`.
    pub quantity: String,
    /// What lies left and right of 1, in two or three words each.
    pub sides: (String, String),
    /// From top to bottom.
    pub dots: Vec<Dot>,
    /// A further sentence for the caption.
    pub note: String,
}

/// One dot.
#[derive(Clone, Debug, Serialize)]
pub struct Dot {
    /// Its label.
    pub name: String,
    /// The ratio.
    pub value: f64,
    /// The interval drawn through it.
    pub interval: (f64, f64),
    /// Values behind it.
    pub n: usize,
}

const ROW: f64 = 24.0;
const PLOT: f64 = 380.0;
const TOP: f64 = 28.0;

pub(super) fn draw(view: &Dots) -> Result<Figure, Error> {
    if view.dots.is_empty() {
        return Err(Error::Empty { figure: view.title.clone(), what: "dots" });
    }
    let (mut low, mut high) = (1.0 / 1.1_f64, 1.1_f64);
    for dot in &view.dots {
        check(&view.title, "ratio", &dot.name, dot.value, POSITIVE)?;
        check(&view.title, "lower bound", &dot.name, dot.interval.0, POSITIVE)?;
        check(&view.title, "upper bound", &dot.name, dot.interval.1, dot.interval.0)?;
        low = low.min(dot.interval.0.min(dot.value));
        high = high.max(dot.interval.1.max(dot.value));
    }
    let (low, high) = (low / 1.03, high * 1.03);
    let labels = view.dots.iter().map(|dot| text_width(&dot.name, TEXT)).fold(40.0, f64::max).min(200.0);
    let left = labels + 18.0;
    let bottom = TOP + view.dots.len() as f64 * ROW;
    let x = |value: f64| left + PLOT * (value / low).ln() / (high / low).ln();
    let mut svg = Svg::new(
        left + PLOT + 74.0,
        bottom + 52.0,
        format!("{}, {}: {} ratios of {}", view.title, view.origin, view.dots.len(), view.quantity),
    );
    for tick in number::log_ticks(low, high) {
        svg.grid((x(tick), TOP), (x(tick), bottom));
        svg.muted(x(tick), bottom + 18.0, Anchor::Middle, SMALL, &number::tick(tick));
    }
    svg.line(
        (x(1.0), TOP - 4.0),
        (x(1.0), bottom),
        &format!(r#"class="diagonal" stroke="{MUTED}" stroke-width="1.5" stroke-dasharray="6 4""#),
    );
    svg.muted(left, TOP - 12.0, Anchor::Start, SMALL, &format!("← {}", view.sides.0));
    svg.muted(left + PLOT, TOP - 12.0, Anchor::End, SMALL, &format!("{} →", view.sides.1));
    for (index, dot) in view.dots.iter().enumerate() {
        let middle = TOP + (index as f64 + 0.5) * ROW;
        let (lower, upper) = dot.interval;
        svg.open(&format!(
            "{}: {} [{}, {}], n = {}",
            dot.name,
            number::ratio(dot.value),
            number::ratio(lower),
            number::ratio(upper),
            number::count(dot.n)
        ));
        svg.text(left - 8.0, middle + 4.0, Anchor::End, TEXT, &fit(&dot.name, TEXT, 200.0));
        let style = format!(r#"class="whisker" stroke="{INK}" stroke-width="1.5""#);
        svg.line((x(lower), middle), (x(upper), middle), &style);
        svg.circle(x(dot.value), middle, 4.5, &format!(r#"class="calm" fill="{BLUE}""#));
        svg.muted(
            left + PLOT + 8.0,
            middle + 4.0,
            Anchor::Start,
            SMALL,
            &format!("n = {}", number::count(dot.n)),
        );
        svg.close();
    }
    svg.muted(left, bottom + 40.0, Anchor::Start, SMALL, &view.quantity);
    let caption = sentences(["On the dashed line there is no difference.".to_owned(), view.note.clone()]);
    Ok(Figure::new(&view.title, caption, &view.origin, svg))
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::DeviceKind;

    #[test]
    fn dots_stand_in_their_interval_and_nonsense_is_refused() {
        let mut view = Dots {
            title: "Residuals".into(),
            origin: Origin::new(DeviceKind::Imported, "gavel"),
            quantity: "observed / predicted".into(),
            sides: ("too careful".into(), "too hopeful".into()),
            dots: vec![Dot { name: "A <b>".into(), value: 1.1, interval: (0.8, 1.6), n: 1200 }],
            note: "Bars are quantiles.".into(),
        };
        let figure = Figure::dots(&view).unwrap();
        assert!(figure.svg.contains("A &lt;b&gt;") && figure.svg.contains("n = 1,200"), "{}", figure.svg);
        assert!(figure.caption.ends_with("Bars are quantiles."));
        view.dots[0].interval.0 = 0.0;
        assert!(matches!(Figure::dots(&view), Err(Error::Number { .. })));
        view.dots.clear();
        assert!(matches!(Figure::dots(&view), Err(Error::Empty { .. })));
    }
}
