use super::{Figure, POSITIVE, check, sentences};
use crate::svg::{Anchor, INK, MUTED, SMALL, Svg, TEXT, fit, text_width, warm};
use crate::{Error, Origin, number};
use serde::Serialize;
use std::collections::BTreeMap;

/// Pairwise slowdowns of one device under one sharing mode.
#[derive(Clone, Debug, Serialize)]
pub struct Heatmap {
    /// What is shown.
    pub title: String,
    /// Where all its numbers come from.
    pub origin: Origin,
    /// The sharing mode, for example `time_slice`; empty = unstated.
    pub sharing: String,
    /// Subjects in order; empty = in order of first appearance.
    pub rows: Vec<String>,
    /// Co-runners in order; empty = in order of first appearance.
    pub columns: Vec<String>,
    /// What is known; a cell that is not in the list is drawn as not measured.
    pub cells: Vec<Cell>,
    /// A slowdown above this is counted in the caption as harm, for example 1.2; `None` = do not count.
    pub limit: Option<f64>,
    /// A further sentence for the caption.
    pub note: String,
}

impl Heatmap {
    /// An empty heat map.
    pub fn new(origin: Origin, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            origin,
            sharing: String::new(),
            rows: Vec::new(),
            columns: Vec::new(),
            cells: Vec::new(),
            limit: None,
            note: String::new(),
        }
    }
}

/// One subject beside one co-runner.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The row.
    pub subject: String,
    /// The column.
    pub co_runner: String,
    /// The slowdown, or why there is none, for example `oom`.
    pub value: Result<f64, String>,
    /// Interval of the slowdown.
    pub interval: Option<(f64, f64)>,
    /// Independent repeats behind it; 0 = unstated.
    pub repeats: u32,
}

impl Cell {
    /// A slowdown.
    pub fn new(subject: impl Into<String>, co_runner: impl Into<String>, slowdown: f64) -> Self {
        Self {
            subject: subject.into(),
            co_runner: co_runner.into(),
            value: Ok(slowdown),
            interval: None,
            repeats: 0,
        }
    }

    /// A pair that gave no number, with a word for why: it stands in the cell.
    pub fn failed(
        subject: impl Into<String>,
        co_runner: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            subject: subject.into(),
            co_runner: co_runner.into(),
            value: Err(reason.into()),
            interval: None,
            repeats: 0,
        }
    }

    /// Adds an interval.
    #[must_use]
    pub const fn interval(mut self, lower: f64, upper: f64) -> Self {
        self.interval = Some((lower, upper));
        self
    }

    /// Adds the number of independent repeats.
    #[must_use]
    pub const fn repeats(mut self, repeats: u32) -> Self {
        self.repeats = repeats;
        self
    }
}

const LABEL_LIMIT: f64 = 210.0;

pub(super) fn draw(view: &Heatmap) -> Result<Figure, Error> {
    let rows = order(&view.rows, view.cells.iter().map(|cell| &cell.subject));
    let columns = order(&view.columns, view.cells.iter().map(|cell| &cell.co_runner));
    if rows.is_empty() || columns.is_empty() {
        return Err(Error::Empty { figure: view.title.clone(), what: "cells" });
    }
    let mut known = BTreeMap::new();
    for cell in &view.cells {
        let label = || format!("{} beside {}", cell.subject, cell.co_runner);
        if let Ok(value) = cell.value {
            check(&view.title, "slowdown", &label(), value, POSITIVE)?;
        }
        if let Some((lower, upper)) = cell.interval {
            check(&view.title, "lower bound", &label(), lower, 0.0)?;
            check(&view.title, "upper bound", &label(), upper, lower)?;
        }
        if known.insert((cell.subject.as_str(), cell.co_runner.as_str()), cell).is_some() {
            return Err(Error::Duplicate {
                figure: view.title.clone(),
                subject: cell.subject.clone(),
                co_runner: cell.co_runner.clone(),
            });
        }
    }

    let slowdowns: Vec<f64> = known.values().filter_map(|cell| cell.value.as_ref().ok().copied()).collect();
    let top = slowdowns.iter().copied().fold(1.25, f64::max);
    let position = |slowdown: f64| slowdown.max(1.0).ln() / top.ln();

    let widest = |labels: &[&str]| {
        labels.iter().map(|label| text_width(label, TEXT)).fold(0.0, f64::max).clamp(60.0, LABEL_LIMIT)
    };
    let (cell_width, cell_height) = if columns.len() > 20 { (42.0, 26.0) } else { (58.0, 34.0) };
    let slant = std::f64::consts::FRAC_1_SQRT_2;
    let column_label = widest(&columns);
    let left = widest(&rows) + 14.0;
    let above = column_label * slant + 44.0;
    let grid_width = cell_width * columns.len() as f64;
    let grid_height = cell_height * rows.len() as f64;
    let right = (column_label * slant - cell_width / 2.0 + 14.0).max(12.0);
    let key_top = above + grid_height + 26.0;
    let width = (left + grid_width + right).max(470.0);

    let measured = slowdowns.len();
    let total = rows.len() * columns.len();
    let mut svg = Svg::new(
        width,
        key_top + 56.0,
        format!("{}, {}: heat map of {measured} slowdowns", view.title, view.origin),
    );
    svg.muted(0.0, 14.0, Anchor::Start, SMALL, "down: subject (whose time is shown)");
    svg.muted(0.0, 30.0, Anchor::Start, SMALL, "across: co-runner (what it runs beside)");
    for (index, column) in columns.iter().enumerate() {
        let x = left + cell_width * (index as f64 + 0.5);
        let y = above - 6.0;
        svg.open(column);
        svg.styled(
            x,
            y,
            Anchor::Start,
            TEXT,
            &format!(r#"class="ink" fill="{INK}" transform="rotate(-45 {x:.1} {y:.1})""#),
            &fit(column, TEXT, LABEL_LIMIT),
        );
        svg.close();
    }
    for (index, row) in rows.iter().enumerate() {
        let top_edge = above + cell_height * index as f64;
        let baseline = top_edge + cell_height / 2.0 + TEXT * 0.35;
        svg.open(row);
        svg.text(left - 8.0, baseline, Anchor::End, TEXT, &fit(row, TEXT, LABEL_LIMIT));
        svg.close();
        for (column_index, column) in columns.iter().enumerate() {
            let edge = left + cell_width * column_index as f64;
            let center = edge + cell_width / 2.0;
            let (inner_width, inner_height) = (cell_width - 2.0, cell_height - 2.0);
            match known.get(&(*row, *column)).map(|cell| (*cell, &cell.value)) {
                Some((cell, Ok(slowdown))) => {
                    svg.open(&tooltip(cell, *slowdown));
                    let fill = format!(r#"class="cell" fill="{}""#, warm(position(*slowdown)));
                    svg.rect(edge + 1.0, top_edge + 1.0, inner_width, inner_height, &fill);
                    svg.styled(
                        center,
                        baseline,
                        Anchor::Middle,
                        TEXT,
                        &format!(r#"fill="{INK}""#),
                        &number::ratio(*slowdown),
                    );
                    svg.close();
                }
                Some((_, Err(reason))) => {
                    svg.open(&format!("{row} beside {column}: {reason}"));
                    let hatch = svg.hatch();
                    svg.rect(edge + 1.0, top_edge + 1.0, inner_width, inner_height, &hatch);
                    let word = fit(reason, SMALL, inner_width - 2.0);
                    svg.styled(center, baseline, Anchor::Middle, SMALL, &format!(r#"fill="{INK}""#), &word);
                    svg.close();
                }
                None => {
                    svg.open(&format!("{row} beside {column}: not measured"));
                    let hatch = svg.hatch();
                    svg.rect(edge + 1.0, top_edge + 1.0, inner_width, inner_height, &hatch);
                    svg.close();
                }
            }
        }
    }
    key(&mut svg, left.min(160.0), key_top, top, measured < total);

    let harmed = view.limit.map_or(String::new(), |limit| {
        let count = slowdowns.iter().filter(|slowdown| **slowdown > limit).count();
        format!("{count} of {measured} are above {}.", number::ratio(limit))
    });
    let worst = known
        .values()
        .filter_map(|cell| cell.value.as_ref().ok().map(|slowdown| (*slowdown, cell)))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or(String::new(), |(slowdown, cell)| {
            format!("The worst is {} beside {}: {}.", cell.subject, cell.co_runner, number::ratio(slowdown))
        });
    let sharing =
        if view.sharing.is_empty() { String::new() } else { format!("Sharing mode {}.", view.sharing) };
    let caption = sentences([
        "Read a row to see who harms a workload, a column to see whom it harms; 1.00 is no harm, darker is slower."
            .to_owned(),
        sharing,
        format!("n = {measured} of {total} cells{}.", repeats(&known)),
        worst,
        harmed,
        view.note.clone(),
    ]);
    Ok(Figure::new(&view.title, caption, &view.origin, svg))
}

/// The explicit order, with whatever it lacks behind it.
fn order<'a>(explicit: &'a [String], seen: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    for name in explicit.iter().chain(seen) {
        if known.insert(name.as_str()) {
            names.push(name);
        }
    }
    names
}

fn tooltip(cell: &Cell, slowdown: f64) -> String {
    let interval =
        cell.interval.map_or(String::new(), |(lower, upper)| format!(", interval [{lower:.3}, {upper:.3}]"));
    let repeats = if cell.repeats > 0 { format!(", n = {}", cell.repeats) } else { String::new() };
    format!("{} beside {}: {slowdown:.3}{interval}{repeats}", cell.subject, cell.co_runner)
}

fn repeats(known: &BTreeMap<(&str, &str), &Cell>) -> String {
    let counts = known.values().map(|cell| cell.repeats).filter(|repeats| *repeats > 0);
    match (counts.clone().min(), counts.max()) {
        (Some(1), Some(1)) => ", 1 repeat each".to_owned(),
        (Some(low), Some(high)) if low == high => format!(", {low} repeats each"),
        (Some(low), Some(high)) => format!(", {low} to {high} repeats each"),
        _ => String::new(),
    }
}

fn key(svg: &mut Svg, left: f64, top: f64, darkest: f64, has_absent: bool) {
    const STEPS: usize = 5;
    svg.muted(left, top, Anchor::Start, SMALL, "slowdown");
    for step in 0..STEPS {
        let share = step as f64 / (STEPS - 1) as f64;
        let x = left + 46.0 * step as f64;
        svg.rect(x, top + 7.0, 46.0, 14.0, &format!(r#"class="cell" fill="{}""#, warm(share)));
        let value = number::ratio((share * darkest.ln()).exp());
        svg.muted(x + 23.0, top + 36.0, Anchor::Middle, SMALL, &value);
    }
    if has_absent {
        let x = left + 46.0 * STEPS as f64 + 20.0;
        let hatch = svg.hatch();
        svg.rect(x, top + 7.0, 24.0, 14.0, &format!(r#"{hatch} stroke="{MUTED}" stroke-width="0.5""#));
        svg.muted(x + 30.0, top + 18.0, Anchor::Start, SMALL, "not measured");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::DeviceKind;

    fn small() -> Heatmap {
        let mut view = Heatmap::new(Origin::new(DeviceKind::Simulated, "sim:h100"), "Slowdowns");
        view.cells = vec![
            Cell::new("gemm", "gemm", 1.9).interval(1.85, 1.95).repeats(3),
            Cell::new("gemm", "stream", 1.05).repeats(3),
            Cell::failed("stream", "gemm", "oom"),
        ];
        view.limit = Some(1.2);
        view
    }

    #[test]
    fn small_heatmap_is_as_before() {
        let figure = Figure::heatmap(&small()).unwrap();
        insta::assert_snapshot!(format!("{}\n\n{}", figure.caption, figure.svg));
    }

    #[test]
    fn missing_cells_are_labelled_and_not_zero() {
        let figure = Figure::heatmap(&small()).unwrap();
        assert!(figure.svg.contains("stream beside stream: not measured"));
        assert!(figure.svg.contains("stream beside gemm: oom"));
        assert!(figure.caption.contains("n = 2 of 4 cells"));
        assert!(!figure.svg.contains(">0.00<"));
    }

    #[test]
    fn nonsense_is_refused() {
        let mut view = small();
        view.cells.push(Cell::new("gemm", "stream", 1.1));
        assert!(matches!(Figure::heatmap(&view), Err(Error::Duplicate { .. })));
        let mut view = small();
        view.cells.push(Cell::new("a", "b", f64::NAN));
        assert!(matches!(Figure::heatmap(&view), Err(Error::Number { .. })));
        view.cells.clear();
        assert!(matches!(Figure::heatmap(&view), Err(Error::Empty { .. })));
    }
}
