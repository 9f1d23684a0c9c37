use super::{Figure, check, sentences};
use crate::svg::{Anchor, BLUE, INK, ORANGE, SMALL, Svg, TEXT, fit, text_width};
use crate::{Error, Origin, number};
use serde::Serialize;

/// Who runs where and when: a row for each node with a lane for each GPU, time from left to right.
#[derive(Clone, Debug, Serialize)]
pub struct Gantt {
    /// What is shown.
    pub title: String,
    /// Where all its numbers come from.
    pub origin: Origin,
    /// Nodes from top to bottom.
    pub rows: Vec<GanttRow>,
    /// What is on them.
    pub bars: Vec<GanttBar>,
    /// The time at the left end, seconds.
    pub from_seconds: f64,
    /// The time at the right end, seconds.
    pub to_seconds: f64,
    /// A further sentence for the caption.
    pub note: String,
}

/// A node.
#[derive(Clone, Debug, Serialize)]
pub struct GanttRow {
    /// Its name.
    pub name: String,
    /// Its GPUs.
    pub lanes: u32,
}

/// One job on neighbouring GPUs of one node for some time.
#[derive(Clone, Debug, Serialize)]
pub struct GanttBar {
    /// Index of its node among the rows.
    pub row: usize,
    /// Its first GPU.
    pub lane: u32,
    /// Its number of GPUs.
    pub lanes: u32,
    /// Whether it shares them with the job below it: then it has the lower half of each.
    pub is_guest: bool,
    /// Begin, seconds.
    pub from_seconds: f64,
    /// End, seconds.
    pub to_seconds: f64,
    /// Time without progress at its beginning, seconds.
    pub stalled_seconds: f64,
    /// What it does.
    pub kind: GanttKind,
    /// Who it is; seen when one points at it.
    pub label: String,
}

/// What a job does, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GanttKind {
    /// Training.
    Training,
    /// Inference.
    Inference,
    /// Not known.
    Unknown,
}

impl GanttKind {
    const fn colour(self) -> &'static str {
        match self {
            Self::Training => BLUE,
            Self::Inference => ORANGE,
            Self::Unknown => "#4f7d6d",
        }
    }

    /// Of a guest, which lies over a host of perhaps its own kind.
    const fn guest_colour(self) -> &'static str {
        match self {
            Self::Training => "#05335f",
            Self::Inference => "#6b2d03",
            Self::Unknown => "#24453a",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Inference => "inference",
            Self::Unknown => "job",
        }
    }
}

const WIDTH: f64 = 760.0;
const TOP: f64 = 30.0;
const GAP: f64 = 5.0;

pub(super) fn draw(view: &Gantt) -> Result<Figure, Error> {
    if view.rows.is_empty() {
        return Err(Error::Empty { figure: view.title.clone(), what: "nodes" });
    }
    check(&view.title, "begin", "time", view.from_seconds, f64::MIN)?;
    check(&view.title, "end", "time", view.to_seconds, view.from_seconds + f64::MIN_POSITIVE)?;
    for bar in &view.bars {
        check(&view.title, "begin", &bar.label, bar.from_seconds, f64::MIN)?;
        check(&view.title, "end", &bar.label, bar.to_seconds, bar.from_seconds)?;
        let lanes = view.rows.get(bar.row).map_or(0, |row| row.lanes);
        check(
            &view.title,
            "free lanes",
            &bar.label,
            f64::from(lanes) - f64::from(bar.lane + bar.lanes),
            0.0,
        )?;
    }
    let lanes: u32 = view.rows.iter().map(|row| row.lanes).sum();
    let lane = if lanes <= 32 { 14.0 } else { 9.0 };
    let names = view.rows.iter().map(|row| text_width(&row.name, SMALL)).fold(30.0, f64::max).min(120.0);
    let left = names + 12.0;
    let mut tops = Vec::new();
    let mut height = TOP;
    for row in &view.rows {
        tops.push(height);
        height += f64::from(row.lanes) * lane + GAP;
    }
    let span = view.to_seconds - view.from_seconds;
    let x = |seconds: f64| left + WIDTH * ((seconds - view.from_seconds) / span).clamp(0.0, 1.0);
    let mut svg = Svg::new(
        left + WIDTH + 16.0,
        height + 40.0,
        format!("{}, {}: {} bars on {lanes} GPUs", view.title, view.origin, view.bars.len()),
    );
    legend(&mut svg, view, left);
    let (unit, word) = match view.to_seconds {
        end if end >= 7200.0 => (3600.0, "h"),
        end if end >= 600.0 => (60.0, "min"),
        _ => (1.0, "s"),
    };
    for tick in number::ticks(view.from_seconds / unit, view.to_seconds / unit, 8) {
        let at = x(tick * unit);
        svg.grid((at, TOP), (at, height - GAP));
        svg.muted(at, height + 12.0, Anchor::Middle, SMALL, &number::tick(tick));
    }
    for (row, top) in view.rows.iter().zip(&tops) {
        let middle = top + f64::from(row.lanes) * lane / 2.0;
        svg.muted(left - 8.0, middle + 4.0, Anchor::End, SMALL, &fit(&row.name, SMALL, 120.0));
        svg.rect(
            left,
            *top,
            WIDTH,
            f64::from(row.lanes) * lane,
            r##"class="node" fill="#7d8590" fill-opacity="0.13""##,
        );
    }
    svg.text(left + WIDTH / 2.0, height + 32.0, Anchor::Middle, TEXT, &format!("time, {word}"));
    // Guests lie over their hosts.
    for is_guest in [false, true] {
        for bar in view.bars.iter().filter(|bar| bar.is_guest == is_guest) {
            draw_bar(&mut svg, bar, tops[bar.row], lane, &x);
        }
    }
    let guests = view.bars.iter().filter(|bar| bar.is_guest).count();
    let has_stalls = view.bars.iter().any(|bar| bar.stalled_seconds > 0.0);
    let caption = sentences([
        "Each band is a node, each lane a GPU; grey is idle.".to_owned(),
        if guests > 0 {
            "Where two share a GPU, the one that joined has the lower half, in a darker tone.".to_owned()
        } else {
            String::new()
        },
        if has_stalls { "Black beginnings are restarts.".to_owned() } else { String::new() },
        view.note.clone(),
    ]);
    Ok(Figure::new(&view.title, caption, &view.origin, svg))
}

fn draw_bar(svg: &mut Svg, bar: &GanttBar, top: f64, lane: f64, x: &dyn Fn(f64) -> f64) {
    let (from, to) = (x(bar.from_seconds), x(bar.to_seconds));
    let colour = if bar.is_guest { bar.kind.guest_colour() } else { bar.kind.colour() };
    svg.open(&bar.label);
    // The guest's half of every lane; a host is one box.
    let boxes: Vec<(f64, f64)> = if bar.is_guest {
        (bar.lane..bar.lane + bar.lanes)
            .map(|gpu| (top + f64::from(gpu) * lane + lane / 2.0, lane / 2.0))
            .collect()
    } else {
        vec![(top + f64::from(bar.lane) * lane, f64::from(bar.lanes) * lane)]
    };
    for (down, height) in boxes {
        svg.rect(
            from,
            down,
            to - from,
            height,
            &format!(
                r##"fill="{colour}" fill-opacity="{}" stroke="#ffffff" stroke-width="0.7""##,
                if bar.is_guest { 1.0 } else { 0.82 }
            ),
        );
        if bar.stalled_seconds > 0.0 {
            let width = (x(bar.from_seconds + bar.stalled_seconds) - from).max(1.2).min(to - from);
            svg.rect(from, down, width, height, &format!(r#"fill="{INK}" fill-opacity="0.6""#));
        }
    }
    svg.close();
}

fn legend(svg: &mut Svg, view: &Gantt, left: f64) {
    let mut at = left;
    for kind in [GanttKind::Training, GanttKind::Inference, GanttKind::Unknown] {
        if view.bars.iter().any(|bar| bar.kind == kind) {
            svg.rect(at, 6.0, 14.0, 12.0, &format!(r#"fill="{}" fill-opacity="0.82""#, kind.colour()));
            svg.text(at + 20.0, 17.0, Anchor::Start, SMALL, kind.name());
            at += 44.0 + text_width(kind.name(), SMALL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::DeviceKind;

    fn view() -> Gantt {
        let bar = |lane, lanes, is_guest, from, to, kind| GanttBar {
            row: 0,
            lane,
            lanes,
            is_guest,
            from_seconds: from,
            to_seconds: to,
            stalled_seconds: if is_guest { 30.0 } else { 0.0 },
            kind,
            label: "job <1>".to_owned(),
        };
        Gantt {
            title: "Who runs where".to_owned(),
            origin: Origin::new(DeviceKind::Simulated, "n1g4"),
            rows: vec![GanttRow { name: "node 0".to_owned(), lanes: 4 }],
            bars: vec![
                bar(0, 2, false, 0.0, 500.0, GanttKind::Training),
                bar(0, 2, true, 100.0, 400.0, GanttKind::Inference),
            ],
            from_seconds: 0.0,
            to_seconds: 1000.0,
            note: String::new(),
        }
    }

    #[test]
    fn a_small_chart_is_as_before() {
        let figure = Figure::gantt(&view()).unwrap();
        insta::assert_snapshot!(format!("{}\n\n{}", figure.caption, figure.svg));
    }

    #[test]
    fn a_bar_outside_its_node_is_refused() {
        let mut wrong = view();
        wrong.bars[0].lane = 3;
        assert!(matches!(Figure::gantt(&wrong), Err(Error::Number { .. })));
        wrong.rows.clear();
        assert!(matches!(Figure::gantt(&wrong), Err(Error::Empty { .. })));
    }
}
