use super::{Figure, POSITIVE, check, sentences};
use crate::svg::{Anchor, BLUE, INK, MUTED, SMALL, Svg, TEXT, Taken, fit, short, text_width};
use crate::{Error, Origin, number};
use elastico_core::units::FlopsPerSecond;
use elastico_core::{CHIPS, Dtype, chip, suggest};
use serde::Serialize;

/// Workloads against the limits of a chip.
#[derive(Clone, Debug, Serialize)]
pub struct Roofline {
    /// What is shown.
    pub title: String,
    /// Where the points come from.
    pub origin: Origin,
    /// The chip whose roofs are drawn, a name of `elastico_core::CHIPS`.
    pub chip: String,
    /// One per workload.
    pub points: Vec<RooflinePoint>,
    /// A further sentence for the caption.
    pub note: String,
}

impl Roofline {
    /// An empty figure for a chip.
    pub fn new(origin: Origin, title: impl Into<String>, chip: impl Into<String>) -> Self {
        Self { title: title.into(), origin, chip: chip.into(), points: Vec::new(), note: String::new() }
    }
}

/// One workload, running alone.
#[derive(Clone, Debug, Serialize)]
pub struct RooflinePoint {
    /// Its name.
    pub label: String,
    /// Operations per byte of DRAM traffic, FLOP/B.
    pub intensity: f64,
    /// Operations per second reached, FLOP/s.
    pub achieved: f64,
    /// The format of its arithmetic: which roof it is under.
    pub dtype: Dtype,
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 84.0;
const TOP: f64 = 16.0;

pub(super) fn draw(view: &Roofline) -> Result<Figure, Error> {
    let chip = chip(&view.chip).ok_or_else(|| Error::Chip {
        name: view.chip.clone(),
        suggestion: suggest(&view.chip, CHIPS.iter().map(|chip| chip.name)),
    })?;
    if view.points.is_empty() {
        return Err(Error::Empty { figure: view.title.clone(), what: "points" });
    }
    for point in &view.points {
        check(&view.title, "arithmetic intensity", &point.label, point.intensity, POSITIVE)?;
        check(&view.title, "achieved rate", &point.label, point.achieved, POSITIVE)?;
    }
    let bandwidth = chip.dram_bandwidth.get();
    // One roof for each rate, named after every format that is under it.
    let mut roofs: Vec<(f64, Vec<Dtype>)> = Vec::new();
    let mut dtypes: Vec<Dtype> = view.points.iter().map(|point| point.dtype).collect();
    dtypes.sort_unstable();
    dtypes.dedup();
    for dtype in dtypes {
        let rate = chip.peak(dtype).0.get();
        match roofs.iter_mut().find(|(other, _)| (*other / rate - 1.0).abs() < 1e-9) {
            Some((_, names)) => names.push(dtype),
            None => roofs.push((rate, vec![dtype])),
        }
    }
    roofs.sort_by(|a, b| b.0.total_cmp(&a.0));
    let highest = roofs[0].0;

    let intensities = view.points.iter().map(|point| point.intensity);
    let ridge = highest / bandwidth;
    let decade = |value: f64, up: bool| {
        let exponent = value.log10();
        10f64.powf(if up { exponent.ceil() } else { exponent.floor() })
    };
    let x_low = decade(intensities.clone().fold(ridge / 4.0, f64::min), false);
    let x_high = decade(intensities.fold(ridge * 3.0, f64::max), true);
    let achieved = view.points.iter().map(|point| point.achieved);
    let y_low = decade(achieved.fold(highest / 100.0, f64::min), false);
    let y_high = highest * 3.0;
    let x = |value: f64| LEFT + WIDTH * (value / x_low).ln() / (x_high / x_low).ln();
    let y = |value: f64| TOP + HEIGHT * (1.0 - (value / y_low).ln() / (y_high / y_low).ln());

    let roof_labels: Vec<String> = roofs
        .iter()
        .map(|(rate, names)| {
            let names: Vec<&str> = names.iter().map(|dtype| dtype.as_str()).collect();
            format!("{} {:.0}", names.join(", "), FlopsPerSecond(*rate))
        })
        .collect();
    let margin = roof_labels.iter().map(|label| text_width(label, SMALL)).fold(0.0, f64::max);
    let mut svg = Svg::new(
        LEFT + WIDTH + 8.0 + margin,
        TOP + HEIGHT + 52.0,
        format!("{}, {}: roofline of {} workloads", view.title, view.origin, view.points.len()),
    );
    for tick in number::log_ticks(x_low, x_high).into_iter().filter(|tick| is_power(*tick)) {
        svg.grid((x(tick), TOP), (x(tick), TOP + HEIGHT));
        svg.muted(x(tick), TOP + HEIGHT + 18.0, Anchor::Middle, SMALL, &number::tick(tick));
    }
    for tick in number::log_ticks(y_low, y_high).into_iter().filter(|tick| is_power(*tick)) {
        svg.grid((LEFT, y(tick)), (LEFT + WIDTH, y(tick)));
        svg.muted(LEFT - 8.0, y(tick) + 4.0, Anchor::End, SMALL, &format!("{:.0}", FlopsPerSecond(tick)));
    }
    svg.axis((LEFT, TOP + HEIGHT), (LEFT + WIDTH, TOP + HEIGHT));
    svg.axis((LEFT, TOP), (LEFT, TOP + HEIGHT));
    svg.text(
        LEFT + WIDTH / 2.0,
        TOP + HEIGHT + 40.0,
        Anchor::Middle,
        TEXT,
        "arithmetic intensity, FLOP per byte of DRAM traffic",
    );

    let mut taken = Taken::default();
    let roof_style = format!(r#"class="roof" stroke="{INK}" stroke-width="1.8" fill="none""#);
    let mut last_baseline = f64::NEG_INFINITY;
    for ((rate, _), label) in roofs.iter().zip(&roof_labels) {
        let knee = (rate / bandwidth).max(x_low);
        svg.line((x(knee), y(*rate)), (x(x_high), y(*rate)), &roof_style);
        // Names stand right of the plot; roofs close together push each other's names down.
        let baseline = (y(*rate) + 4.0).max(last_baseline + SMALL * 1.25);
        svg.text(LEFT + WIDTH + 8.0, baseline, Anchor::Start, SMALL, label);
        last_baseline = baseline;
        taken.add(LEFT + WIDTH + 6.0, baseline - SMALL, margin, SMALL * 1.3);
        taken.add(x(knee), y(*rate) - 2.0, x(x_high) - x(knee), 4.0);
    }
    let slope_start = (x_low.max(y_low / bandwidth), bandwidth * x_low.max(y_low / bandwidth));
    svg.line((x(slope_start.0), y(slope_start.1)), (x(ridge), y(highest)), &roof_style);
    bandwidth_label(
        &mut svg,
        &mut taken,
        (x(slope_start.0), y(slope_start.1)),
        (x(ridge), y(highest)),
        bandwidth,
    );

    // Names may run into the margin where no roof's name stands.
    let bounds = [LEFT + 2.0, TOP, svg.width(), TOP + HEIGHT];
    let mut sorted: Vec<&RooflinePoint> = view.points.iter().collect();
    sorted.sort_by(|a, b| b.achieved.total_cmp(&a.achieved).then_with(|| a.label.cmp(&b.label)));
    for point in &sorted {
        taken.add(x(point.intensity) - 5.0, y(point.achieved) - 5.0, 10.0, 10.0);
    }
    let mut unnamed = 0;
    for point in &sorted {
        let (at_x, at_y) = (x(point.intensity), y(point.achieved));
        let roof = (point.intensity * bandwidth).min(chip.peak(point.dtype).0.get());
        svg.open(&format!(
            "{}: {:.2} FLOP/B, {:.2}, {} of its {} roof",
            point.label,
            point.intensity,
            FlopsPerSecond(point.achieved),
            number::percent(point.achieved / roof),
            point.dtype
        ));
        let style = format!(r#"class="calm" fill="{BLUE}" fill-opacity="0.75" stroke="{BLUE}""#);
        svg.circle(at_x, at_y, 4.5, &style);
        let label = fit(&point.label, SMALL, 190.0);
        match taken.place((at_x, at_y), text_width(&label, SMALL), SMALL, bounds) {
            Some((left, baseline)) => svg.text(left, baseline, Anchor::Start, SMALL, &label),
            None => unnamed += 1,
        }
        svg.close();
    }

    let bound = view
        .points
        .iter()
        .filter(|point| point.intensity * bandwidth < chip.peak(point.dtype).0.get())
        .count();
    let caption = sentences([
        format!(
            "The lines are what {} can do at most; a workload's distance to the line above it is speed left unused. \
             Under the slope DRAM is the limit, under a flat line arithmetic is.",
            chip.product
        ),
        format!("n = {} workloads running alone, {bound} of them under the slope.", view.points.len()),
        if unnamed > 0 {
            format!("{unnamed} crowded points carry their name as a tooltip only.")
        } else {
            String::new()
        },
        format!("Peaks: {}.", chip.source),
        view.note.clone(),
    ]);
    Ok(Figure::new(&view.title, caption, &view.origin, svg))
}

fn is_power(tick: f64) -> bool {
    let exponent = tick.log10();
    (exponent - exponent.round()).abs() < 1e-6
}

fn bandwidth_label(svg: &mut Svg, taken: &mut Taken, from: (f64, f64), to: (f64, f64), bandwidth: f64) {
    let text = format!("DRAM, {:.1}", elastico_core::units::BytesPerSecond(bandwidth));
    let angle = (to.1 - from.1).atan2(to.0 - from.0).to_degrees();
    let (x, y) = (from.0 + (to.0 - from.0) * 0.55, from.1 + (to.1 - from.1) * 0.55);
    let (x, y) = (x - 7.0, y - 6.0);
    svg.styled(
        x,
        y,
        Anchor::Middle,
        SMALL,
        &format!(
            r#"class="muted" fill="{MUTED}" transform="rotate({} {} {})""#,
            short(angle),
            short(x),
            short(y)
        ),
        &text,
    );
    // The slope and its label as small boxes along the line.
    for step in 0..=40 {
        let share = f64::from(step) / 40.0;
        let at = (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share);
        taken.add(at.0 - 2.0, at.1 - 2.0, 4.0, 4.0);
        if (0.35..=0.75).contains(&share) {
            taken.add(at.0 - 14.0, at.1 - 16.0, 14.0, 16.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::DeviceKind;

    #[test]
    fn roofs_come_from_the_chip_and_nonsense_is_refused() {
        let origin = Origin::new(DeviceKind::Simulated, "sim:h100");
        let mut view = Roofline::new(origin, "Roofline", "h100");
        for (label, intensity, achieved, dtype) in [
            ("gemm", 400.0, 6e14, Dtype::Bf16),
            ("stream", 0.08, 2e11, Dtype::Fp32),
            ("stream again", 0.08, 2e11, Dtype::Fp32),
        ] {
            view.points.push(RooflinePoint { label: label.into(), intensity, achieved, dtype });
        }
        let figure = Figure::roofline(&view).unwrap();
        assert!(figure.svg.contains(">bf16 989 TFLOP/s<"), "{}", figure.svg);
        assert!(figure.svg.contains(">fp32 67 TFLOP/s<"));
        assert!(figure.caption.contains("n = 3 workloads running alone, 2 of them under the slope"));
        view.points[0].intensity = 0.0;
        assert!(matches!(Figure::roofline(&view), Err(Error::Number { .. })));
        view.chip = "h10".into();
        assert!(Figure::roofline(&view).unwrap_err().to_string().contains("did you mean `h100`?"));
    }
}
