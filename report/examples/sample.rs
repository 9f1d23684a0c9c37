//! Writes a page with every kind of figure, from made-up numbers: `cargo run -p elastico-report --example sample out.html`.

use elastico_core::{DeviceKind, Dtype, Provenance, Seed};
use elastico_report::{
    Bar, BarGroup, BarUnit, Bars, Block, Cell, Column, Fact, Figure, GpuView, Heatmap, NodeView, Origin,
    Page, PlacementChart, PredictedVsMeasured, PredictionPoint, Roofline, RooflinePoint, Section, Table,
    Tenant, Value, Waiting,
};

const NAMES: [&str; 9] = [
    "tr_block.b8_s1024_h1024_bf16",
    "tr_decode.b32_s2048_h4096_fp16",
    "resnet_50.b64_fp16",
    "dlrm.b4096_fp32",
    "gnn_gather.n1m_fp32",
    "vae.b128_tf32",
    "stress.dram",
    "stress.l2",
    "null.context",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("say where to write the page")?;
    std::fs::write(path, page()?.render()?)?;
    Ok(())
}

fn page() -> Result<Page, elastico_report::Error> {
    let origin = Origin::new(DeviceKind::Simulated, "sim:h100");
    let wave = |a: usize, b: usize| (a as f64 * 1.7 + b as f64 * 2.3).sin().abs();

    let mut heatmap = Heatmap::new(origin.clone(), "Slowdown of each workload beside each other");
    heatmap.sharing = "mps(0.5,0.5)".into();
    heatmap.limit = Some(1.2);
    for (a, subject) in NAMES.iter().enumerate() {
        for (b, co_runner) in NAMES.iter().enumerate() {
            match (a + 2 * b) % 13 {
                5 if a != b => {}
                7 if a == 4 => heatmap.cells.push(Cell::failed(*subject, *co_runner, "oom")),
                _ => {
                    let value = 0.99 + wave(a, b).powi(3) * 2.4;
                    heatmap.cells.push(
                        Cell::new(*subject, *co_runner, value)
                            .interval(value * 0.98, value * 1.02)
                            .repeats(3),
                    );
                }
            }
        }
    }

    let mut scatter =
        PredictedVsMeasured::new(origin.clone(), "Predicted against measured, unseen co-runner");
    scatter.split = "unseen co-runner".into();
    scatter.bound_level = Some(0.9);
    for a in 0..140 {
        let measured = 1.0 + wave(a, 3).powi(3) * 2.0;
        let predicted = measured * (1.0 + (wave(a, 9) - 0.5) * 0.25);
        scatter.points.push(PredictionPoint {
            label: format!("pair {a}"),
            measured,
            interval: Some((measured * 0.97, measured * 1.03)),
            predicted,
            upper: Some(predicted * 1.09),
            in_domain: a % 17 != 0,
        });
    }

    let mut bars = Bars::new(
        origin.clone(),
        "Error by split and learner",
        "mean absolute percentage error",
        BarUnit::Percent,
    );
    for (index, split) in
        ["random pair", "unseen co-runner", "unseen subject", "unseen device"].iter().enumerate()
    {
        let base = 0.05 + 0.04 * index as f64;
        let bar = |name: &str, value: f64, is_baseline| Bar {
            name: name.into(),
            value,
            interval: Some((value * 0.8, value * 1.25)),
            n: 420,
            is_baseline,
        };
        bars.groups.push(BarGroup {
            name: (*split).into(),
            bars: vec![
                bar("extra trees", base, false),
                bar("physics, linear", base * 1.5, false),
                bar("always the mean", 0.31, true),
            ],
        });
    }

    let mut roofline = Roofline::new(origin.clone(), "Workloads under the roofs of an H100", "h100");
    for (label, intensity, achieved, dtype) in [
        (NAMES[0], 310.0, 4.9e14, Dtype::Bf16),
        (NAMES[1], 14.0, 3.4e13, Dtype::Fp16),
        (NAMES[2], 95.0, 2.1e14, Dtype::Fp16),
        (NAMES[3], 3.0, 7.2e12, Dtype::Fp32),
        (NAMES[4], 0.25, 5.1e11, Dtype::Fp32),
        (NAMES[5], 60.0, 9.0e13, Dtype::Tf32),
        ("stress.dram", 0.08, 2.5e11, Dtype::Fp32),
        ("stress.fma", 900.0, 5.5e13, Dtype::Fp32),
    ] {
        roofline.points.push(RooflinePoint { label: label.into(), intensity, achieved, dtype });
    }

    let mut chart = PlacementChart::new(origin.clone(), "Who sits beside whom");
    for node in 0..3 {
        let gpus = (0..if node == 2 { 8 } else { 4 })
            .map(|gpu| {
                let tenant = |job: String, share_ratio, slowdown: Option<f64>| Tenant {
                    shape: "1 GPU, batch 64, share 50 %".into(),
                    upper: slowdown.map(|slowdown| slowdown * 1.1),
                    job,
                    share_ratio,
                    slowdown,
                };
                let tenants = match (node + gpu) % 4 {
                    0 => vec![tenant(format!("train-{node}{gpu}"), 1.0, None)],
                    1 | 2 => vec![
                        tenant(format!("train-{node}{gpu}-of-a-long-name-{gpu}"), 0.7, Some(1.12)),
                        tenant(format!("serve-{node}{gpu}"), 0.3, Some(1.31)),
                    ],
                    _ => vec![],
                };
                GpuView { name: gpu.to_string(), tenants }
            })
            .collect();
        chart.nodes.push(NodeView { name: format!("h100 node {node}"), gpus });
    }
    for (job, reason) in [
        ("train-big", "needs 8 GPUs of one node; at most 3 are free"),
        ("serve-cold", "its value 0.4 is under the price 0.9"),
    ] {
        chart.waiting.push(Waiting { job: job.into(), reason: reason.into() });
    }
    chart.note = "The value is within 0.4 % of the dual bound.".into();

    let mut table = Table::new(
        "elastico.evaluation/1",
        "Scores by split, simulated h100",
        vec![
            Column::text("split"),
            Column::text("learner"),
            Column::number("n_total", "").label("n"),
            Column::number("mape_ratio", "ratio"),
            Column::number("rmse_ratio", "ratio"),
            Column::number("spearman", ""),
            Column::number("safe_precision_ratio", "ratio"),
            Column::number("safe_recall_ratio", "ratio"),
        ],
    );
    for split in ["random pair", "unseen co-runner", "unseen subject"] {
        table.push(vec![
            split.into(),
            "extra trees".into(),
            Value::Count(420),
            Value::number(0.051, 3),
            Value::number(0.11, 3),
            Value::number(0.97, 2),
            Value::number(0.95, 2),
            Value::Missing,
        ]);
    }

    let mut page = Page::new("A sample of every figure");
    page.summary =
        "The numbers on this page are made up to show how figures look. They say nothing about any device."
            .into();
    page.warnings.push("Sample page: every number is invented.".into());
    page.provenance.push(Provenance {
        elastico_version: env!("CARGO_PKG_VERSION").into(),
        device_kind: DeviceKind::Simulated,
        device: "sim:h100".into(),
        seed: Some(Seed(7)),
        source: "examples/sample.rs".into(),
        source_digest: None,
        facts: std::collections::BTreeMap::new(),
    });
    Ok(page
        .with(
            Section::new("In short")
                .with(vec![
                    Fact::new("5.1 %", "error on unseen pairs", "n = 420, interval [4.1 %, 6.4 %]"),
                    Fact::new("91 %", "upper bound held", "promised 90 %"),
                    Fact::new("1.43", "STP of chosen pairs", "above 1: sharing does more work"),
                ])
                .with("Nearly all harm comes from two workloads that fill the memory bus."),
        )
        .with(Section::new("Slowdowns").with(Figure::heatmap(&heatmap)?).with(Figure::roofline(&roofline)?))
        .with(
            Section::new("Predictor")
                .with(Figure::predicted_vs_measured(&scatter)?)
                .with(Figure::bars(&bars)?)
                .with(table)
                .with(Block::Code("if subject_dram_throughput_ratio + co_runner_dram_throughput_ratio <= 0.91 then safe (n = 311, 97 %)".into())),
        )
        .with(Section::new("Placement").with(Figure::placement_chart(&chart)?)))
}
