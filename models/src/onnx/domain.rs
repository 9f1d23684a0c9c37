//! The nodes of the domain check.

use super::export::{INPUT, OUTPUTS};
use super::graph::{GraphBuilder, integer};
use super::proto::FLOAT;
use crate::{DomainDistance, ModelSpec};

/// Fills a missing value of a column that had none in training: beyond every bound.
pub(super) const NEVER_MISSING: f32 = f32::MAX;

pub(super) fn write_domain(graph: &mut GraphBuilder, spec: &ModelSpec, missing: &str, raw: &str) {
    let (lower, upper) = spec.domain_bounds();
    let fill: Vec<f32> = (spec.impute.iter().zip(&spec.domain_missing))
        .zip(lower.iter().zip(&upper))
        .map(|((median, seen), (low, high))| if *seen { median.clamp(*low, *high) } else { NEVER_MISSING })
        .collect();
    let fill = graph.row("domain_fill", &fill);
    let (lower, upper) = (graph.row("domain_lower", &lower), graph.row("domain_upper", &upper));
    let axes = graph.integers("domain_axes", &[1]);
    let filled = graph.node("Where", "domain_values", &[missing, &fill, INPUT]);
    let above = graph.node("GreaterOrEqual", "domain_above_lower", &[&filled, &lower]);
    let below = graph.node("LessOrEqual", "domain_below_upper", &[&filled, &upper]);
    let inside = graph.node("And", "domain_inside", &[&above, &below]);
    let inside = write_ratio(graph, "domain_inside_ratio", &inside);
    // A distance over no column is 0: the ranges alone decide.
    match spec.domain_distance.as_ref().filter(|distance| distance.dimensions() > 0) {
        None => write_least(graph, OUTPUTS[2], &inside, &axes),
        Some(distance) => {
            let within = write_least(graph, "domain_within", &inside, &axes);
            let near = write_distance(graph, distance, raw, &axes);
            graph.node("Mul", OUTPUTS[2], &[&within, &near])
        }
    };
}

/// 1 where a row is near a prototype, else 0.
fn write_distance(graph: &mut GraphBuilder, distance: &DomainDistance, raw: &str, axes: &str) -> String {
    let mut parts = Vec::new();
    if !distance.plain.is_empty() {
        parts.push(graph.columns("distance_plain", raw, &distance.plain));
    }
    if !distance.bounded.is_empty() {
        let values = graph.columns("distance_bounded", raw, &distance.bounded);
        let positive = graph.node("Relu", "distance_positive", &[&values]);
        let medians = graph.row("distance_medians", &distance.medians);
        let sum = graph.node("Add", "distance_positive_sum", &[&positive, &medians]);
        parts.push(graph.node("Div", "distance_fraction", &[&positive, &sum]));
    }
    let values = match &parts[..] {
        [only] => only.clone(),
        _ => {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            graph.full_node("", "Concat", "distance_values", &parts, vec![integer("axis", 1)])
        }
    };
    let dimensions = distance.dimensions();
    let total = distance.prototypes_total();
    let mean = graph.row("distance_mean", &distance.mean);
    let scale = graph.row("distance_scale", &distance.scale);
    let bound = distance.score_bound();
    let (low, high) = (graph.scalar("distance_low", -bound), graph.scalar("distance_high", bound));
    let centred = graph.node("Sub", "distance_centred", &[&values, &mean]);
    let scaled = graph.node("Div", "distance_scaled", &[&centred, &scale]);
    let scores = graph.node("Clip", "distance_scores", &[&scaled, &low, &high]);

    let mut weights = vec![0.0; dimensions * total];
    for (prototype, values) in distance.prototypes.chunks_exact(dimensions).enumerate() {
        for (column, value) in values.iter().enumerate() {
            weights[column * total + prototype] = -2.0 * value;
        }
    }
    let weights = graph.floats("distance_weights", &[dimensions, total], &weights);
    let norms = graph.row("distance_norms", &distance.norms());
    let products = graph.node("MatMul", "distance_products", &[&scores, &weights]);
    let shifted = graph.node("Add", "distance_shifted", &[&products, &norms]);
    let nearest = write_least(graph, "distance_nearest", &shifted, axes);
    let ones = graph.floats("distance_ones", &[dimensions, 1], &vec![1.0; dimensions]);
    let squares = graph.node("Mul", "distance_squares", &[&scores, &scores]);
    let norm = graph.node("MatMul", "distance_norm", &[&squares, &ones]);
    let squared = graph.node("Add", "distance_squared", &[&nearest, &norm]);
    let limit = graph.scalar("distance_limit_squared", distance.limit_squared.min(f32::MAX));
    let near = graph.node("LessOrEqual", "distance_near", &[&squared, &limit]);
    write_ratio(graph, "distance_near_ratio", &near)
}

fn write_ratio(graph: &mut GraphBuilder, name: &str, truth: &str) -> String {
    graph.full_node("", "Cast", name, &[truth], vec![integer("to", i64::from(FLOAT))])
}

fn write_least(graph: &mut GraphBuilder, name: &str, matrix: &str, axes: &str) -> String {
    graph.full_node("", "ReduceMin", name, &[matrix, axes], vec![integer("keepdims", 1)])
}
