use super::{Figure, POSITIVE, check, sentences};
use crate::svg::{Anchor, INK, MUTED, SMALL, Svg, TEXT, fit, text_width};
use crate::{Error, Origin, number};
use serde::Serialize;
use std::collections::BTreeSet;

/// A placement, node by node.
#[derive(Clone, Debug, Serialize)]
pub struct PlacementChart {
    /// What is shown.
    pub title: String,
    /// Where the slowdowns come from.
    pub origin: Origin,
    /// Nodes in order.
    pub nodes: Vec<NodeView>,
    /// Jobs without a place, and why.
    pub waiting: Vec<Waiting>,
    /// A further sentence for the caption, for example the bound and the gap.
    pub note: String,
}

impl PlacementChart {
    /// An empty chart.
    pub fn new(origin: Origin, title: impl Into<String>) -> Self {
        Self { title: title.into(), origin, nodes: Vec::new(), waiting: Vec::new(), note: String::new() }
    }
}

/// One node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeView {
    /// Its name, with the pool where there are several.
    pub name: String,
    /// Its GPUs in order.
    pub gpus: Vec<GpuView>,
}

/// One GPU.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuView {
    /// Its name within the node, for example `0`.
    pub name: String,
    /// Who is on it: nobody, one job, or two that share.
    pub tenants: Vec<Tenant>,
}

/// A job, or the part of a job, on one GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Tenant {
    /// The job.
    pub job: String,
    /// Its shape in a few words, for example `2 GPUs, batch 64`.
    pub shape: String,
    /// The share of the multiprocessors it may use, 0..1.
    pub share_ratio: f64,
    /// Expected slowdown; `None` for a job that is alone.
    pub slowdown: Option<f64>,
    /// Upper bound of the slowdown.
    pub upper: Option<f64>,
}

/// A job that waits.
#[derive(Clone, Debug, Serialize)]
pub struct Waiting {
    /// The job.
    pub job: String,
    /// Why, in a few words.
    pub reason: String,
}

const BOX: f64 = 210.0;
const GAP: f64 = 8.0;
const HEAD: f64 = 20.0;
const BAND: f64 = 40.0;
const NODE_LIMIT: usize = 32;
const WAITING_LIMIT: usize = 24;
const ALONE: &str = "#d8e8f8";
const SHARED: &str = "#fde3c4";

pub(super) fn draw(view: &PlacementChart) -> Result<Figure, Error> {
    if view.nodes.iter().all(|node| node.gpus.is_empty()) {
        return Err(Error::Empty { figure: view.title.clone(), what: "GPUs" });
    }
    for tenant in view.nodes.iter().flat_map(|node| &node.gpus).flat_map(|gpu| &gpu.tenants) {
        check(&view.title, "share", &tenant.job, tenant.share_ratio, 0.0)?;
        for value in [tenant.slowdown, tenant.upper].into_iter().flatten() {
            check(&view.title, "slowdown", &tenant.job, value, POSITIVE)?;
        }
    }
    let shown = &view.nodes[..view.nodes.len().min(NODE_LIMIT)];
    let per_row = shown.iter().map(|node| node.gpus.len()).max().unwrap_or(1).clamp(1, 4);
    let width = (per_row as f64 * (BOX + GAP)).max(440.0);
    let waiting_lines = view.waiting.len().min(WAITING_LIMIT);
    let node_height = |node: &NodeView| {
        26.0 + node.gpus.chunks(per_row).map(row_height).map(|height| height + GAP).sum::<f64>() + 8.0
    };
    let nodes_height: f64 = shown.iter().map(node_height).sum();
    let waiting_height =
        if view.waiting.is_empty() { 0.0 } else { 30.0 + 20.0 * (waiting_lines as f64 + 1.0) };
    let mut svg = Svg::new(
        width,
        34.0 + nodes_height + waiting_height,
        format!("{}, {}: GPUs of {} nodes and the jobs on them", view.title, view.origin, view.nodes.len()),
    );
    legend(&mut svg);
    let mut top = 34.0;
    for node in shown {
        svg.heading(0.0, top + 16.0, &fit(&node.name, TEXT, width));
        let mut row_top = top + 26.0;
        for row in node.gpus.chunks(per_row) {
            let height = row_height(row);
            for (index, gpu) in row.iter().enumerate() {
                draw_gpu(&mut svg, index as f64 * (BOX + GAP), row_top, height, gpu);
            }
            row_top += height + GAP;
        }
        top += node_height(node);
    }
    if !view.waiting.is_empty() {
        svg.heading(0.0, top + 18.0, &format!("Waiting: {}", number::count(view.waiting.len())));
        for (index, waiting) in view.waiting.iter().take(waiting_lines).enumerate() {
            let baseline = top + 40.0 + 20.0 * index as f64;
            svg.open(&format!("{}: {}", waiting.job, waiting.reason));
            svg.text(0.0, baseline, Anchor::Start, SMALL, &fit(&waiting.job, SMALL, 170.0));
            svg.muted(180.0, baseline, Anchor::Start, SMALL, &fit(&waiting.reason, SMALL, width - 184.0));
            svg.close();
        }
        if waiting_lines < view.waiting.len() {
            let rest = number::count(view.waiting.len() - waiting_lines);
            let baseline = top + 40.0 + 20.0 * waiting_lines as f64;
            svg.muted(0.0, baseline, Anchor::Start, SMALL, &format!("and {rest} more"));
        }
    }
    Ok(Figure::new(&view.title, caption(view, shown.len()), &view.origin, svg))
}

fn row_height(row: &[GpuView]) -> f64 {
    HEAD + BAND * row.iter().map(|gpu| gpu.tenants.len()).max().unwrap_or(1).max(1) as f64
}

fn draw_gpu(svg: &mut Svg, left: f64, top: f64, height: f64, gpu: &GpuView) {
    let frame = format!(r#"class="frame" fill="none" stroke="{MUTED}" rx="3""#);
    svg.muted(
        left + 2.0,
        top + 14.0,
        Anchor::Start,
        SMALL,
        &fit(&format!("GPU {}", gpu.name), SMALL, BOX - 4.0),
    );
    let body = top + HEAD;
    if gpu.tenants.is_empty() {
        let hatch = svg.hatch();
        svg.rect(left, body, BOX, height - HEAD, &hatch);
        let style = format!(r#"fill="{INK}""#);
        svg.styled(
            left + BOX / 2.0,
            body + (height - HEAD) / 2.0 + 4.0,
            Anchor::Middle,
            SMALL,
            &style,
            "idle",
        );
    }
    let fill = if gpu.tenants.len() > 1 { SHARED } else { ALONE };
    let band = (height - HEAD) / gpu.tenants.len().max(1) as f64;
    for (index, tenant) in gpu.tenants.iter().enumerate() {
        let y = body + band * index as f64;
        svg.open(&tooltip(tenant, gpu));
        // The pale ground is the whole GPU, the strong part the share.
        let ground = format!(r#"class="cell" fill="{fill}" fill-opacity="0.45""#);
        svg.rect(left, y, BOX, band, &ground);
        let share = format!(r#"class="cell" fill="{fill}""#);
        svg.rect(left, y, BOX * tenant.share_ratio.clamp(0.0, 1.0), band, &share);
        let middle = y + band / 2.0;
        let slowdown = tenant.slowdown.map(|slowdown| format!("{}x", number::ratio(slowdown)));
        let room = BOX - 16.0 - if slowdown.is_some() { 54.0 } else { 0.0 };
        let ink = format!(r#"fill="{INK}""#);
        let bold = format!(r#"fill="{INK}" font-weight="600""#);
        svg.styled(
            left + 8.0,
            middle - 3.0,
            Anchor::Start,
            TEXT,
            &bold,
            &fit(&tenant.job, TEXT * 1.12, room),
        );
        svg.styled(
            left + 8.0,
            middle + 13.0,
            Anchor::Start,
            SMALL,
            &ink,
            &fit(&tenant.shape, SMALL, BOX - 16.0),
        );
        if let Some(slowdown) = slowdown {
            svg.styled(left + BOX - 8.0, middle - 3.0, Anchor::End, TEXT, &bold, &slowdown);
        }
        if index > 0 {
            svg.line((left, y), (left + BOX, y), r##"stroke="#ffffff" stroke-width="2""##);
        }
        svg.close();
    }
    svg.rect(left, body, BOX, height - HEAD, &frame);
}

fn legend(svg: &mut Svg) {
    let mut x = 0.0;
    let hatch = svg.hatch();
    for (fill, text) in [
        (format!(r#"class="cell" fill="{ALONE}""#), "alone"),
        (format!(r#"class="cell" fill="{SHARED}""#), "shared, expected slowdown at the right"),
        (hatch, "idle"),
    ] {
        svg.rect(x, 4.0, 18.0, 14.0, &format!(r#"{fill} stroke="{MUTED}" stroke-width="0.5""#));
        svg.muted(x + 24.0, 16.0, Anchor::Start, SMALL, text);
        x += 24.0 + text_width(text, SMALL) + 16.0;
    }
}

fn tooltip(tenant: &Tenant, gpu: &GpuView) -> String {
    let beside: Vec<&str> =
        gpu.tenants.iter().map(|other| other.job.as_str()).filter(|job| *job != tenant.job).collect();
    let company =
        if beside.is_empty() { "alone".to_owned() } else { format!("beside {}", beside.join(", ")) };
    let slowdown = tenant.slowdown.map_or(String::new(), |value| format!(", slowdown {value:.3}"));
    let upper = tenant.upper.map_or(String::new(), |value| format!(", upper bound {value:.3}"));
    format!(
        "{}: {}, share {}, {company}{slowdown}{upper}",
        tenant.job,
        tenant.shape,
        number::percent(tenant.share_ratio)
    )
}

fn caption(view: &PlacementChart, shown: usize) -> String {
    let gpus = || view.nodes.iter().flat_map(|node| &node.gpus);
    let (mut idle, mut alone, mut shared) = (0, 0, 0);
    let mut jobs = BTreeSet::new();
    let mut worst: Option<f64> = None;
    for gpu in gpus() {
        match gpu.tenants.len() {
            0 => idle += 1,
            1 => alone += 1,
            _ => shared += 1,
        }
        for tenant in &gpu.tenants {
            jobs.insert(tenant.job.as_str());
            worst = worst.into_iter().chain(tenant.slowdown).reduce(f64::max);
        }
    }
    sentences([
        "Each box is one GPU; jobs in one box share it, and the filled part of a band is the job's share."
            .to_owned(),
        format!(
            "n = {} jobs on {} GPUs: {shared} shared, {alone} with one job, {idle} idle; {} waiting.",
            number::count(jobs.len()),
            number::count(gpus().count()),
            number::count(view.waiting.len())
        ),
        worst.map_or(String::new(), |worst| {
            format!("The largest expected slowdown is {}.", number::ratio(worst))
        }),
        if shown < view.nodes.len() {
            format!("The first {shown} of {} nodes are drawn.", number::count(view.nodes.len()))
        } else {
            String::new()
        },
        view.note.clone(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::DeviceKind;

    #[test]
    fn everybody_is_drawn_and_counted() {
        let mut view = PlacementChart::new(Origin::new(DeviceKind::Simulated, "sim:h100"), "Placement");
        let tenant = |job: &str, slowdown| Tenant {
            job: job.into(),
            shape: "1 GPU".into(),
            share_ratio: 0.5,
            slowdown,
            upper: None,
        };
        view.nodes.push(NodeView {
            name: "h100 <0>".into(),
            gpus: vec![
                GpuView { name: "0".into(), tenants: vec![tenant("a", Some(1.2)), tenant("b", Some(1.4))] },
                GpuView { name: "1".into(), tenants: vec![tenant("c", None)] },
                GpuView { name: "2".into(), tenants: vec![] },
            ],
        });
        view.waiting.push(Waiting { job: "d".into(), reason: "no four free GPUs on one node".into() });
        let figure = Figure::placement_chart(&view).unwrap();
        assert!(figure.caption.contains("n = 3 jobs on 3 GPUs: 1 shared, 1 with one job, 1 idle; 1 waiting"));
        assert!(figure.caption.contains("1.40"));
        assert!(
            figure.svg.contains("h100 &lt;0&gt;") && figure.svg.contains("a: 1 GPU, share 50 %, beside b")
        );
        view.nodes[0].gpus[0].tenants[0].slowdown = Some(f64::NAN);
        assert!(Figure::placement_chart(&view).is_err());
    }
}
