//! The nodes that derive the physics features.

use super::graph::{GraphBuilder, integer};
use crate::PhysicsSpec;
use crate::physics::{Columns, LEAST_BYTES, LEAST_HERTZ, LEAST_SECONDS, LEAST_SHARE};

/// The nodes of [`PhysicsSpec::evaluate`], in the same order and with the same operations.
pub(super) fn write_physics(graph: &mut GraphBuilder, spec: &PhysicsSpec, raw: String) -> String {
    if spec.width() == 0 {
        return raw;
    }
    let subjects = |columns: &[Columns]| columns.iter().map(|c| c.subject).collect::<Vec<_>>();
    let co_runners = |columns: &[Columns]| columns.iter().map(|c| c.co_runner).collect::<Vec<_>>();
    let mut parts = vec![raw.clone()];
    if !spec.contended.is_empty() {
        let subject = graph.columns("subject_demand", &raw, &subjects(&spec.contended));
        let co_runner = graph.columns("co_runner_demand", &raw, &co_runners(&spec.contended));
        let sum = graph.node("Add", "demand_sum", &[&subject, &co_runner]);
        let one = graph.scalar("one", 1.0);
        let excess = graph.node("Sub", "demand_excess", &[&sum, &one]);
        let saturation = graph.node("Relu", "demand_saturation", &[&excess]);
        let product = graph.node("Mul", "demand_product", &[&subject, &co_runner]);
        parts.extend([sum, saturation, product]);
    }
    if let Some(steps) = spec.steps {
        let least = graph.scalar("least_seconds", LEAST_SECONDS);
        let subject_step = graph.columns("subject_step", &raw, &[steps.subject]);
        let co_runner_step = graph.columns("co_runner_step", &raw, &[steps.co_runner]);
        if !spec.rates.is_empty() {
            let sides = [
                ("subject", &subject_step, subjects(&spec.rates)),
                ("co_runner", &co_runner_step, co_runners(&spec.rates)),
            ];
            for (side, step, columns) in sides {
                let work = graph.columns(&format!("{side}_work"), &raw, &columns);
                let positive = graph.node("Max", &format!("{side}_step_positive"), &[step, &least]);
                parts.push(graph.node("Div", &format!("{side}_rate"), &[&work, &positive]));
            }
        }
        parts.push(write_fraction(graph, "step_fraction", &subject_step, &co_runner_step, &least));
    }
    if let Some(shares) = spec.shares {
        let least = graph.scalar("least_share", LEAST_SHARE);
        let subject = graph.columns("subject_share", &raw, &[shares.subject]);
        let co_runner = graph.columns("co_runner_share", &raw, &[shares.co_runner]);
        parts.push(write_fraction(graph, "share_fraction", &subject, &co_runner, &least));
        if let Some(active) = spec.active {
            let active = graph.columns("sm_active", &raw, &[active.subject, active.co_runner]);
            let share = graph.columns("share", &raw, &[shares.subject, shares.co_runner]);
            let excess = graph.node("Sub", "share_difference", &[&active, &share]);
            parts.push(graph.node("Relu", "share_excess", &[&excess]));
        }
    }
    if let Some((sets, l2)) = spec.working_sets {
        let least = graph.scalar("least_bytes", LEAST_BYTES);
        let subject = graph.columns("subject_working_set", &raw, &[sets.subject]);
        let co_runner = graph.columns("co_runner_working_set", &raw, &[sets.co_runner]);
        let l2 = graph.columns("l2", &raw, &[l2]);
        let sum = graph.node("Add", "working_set_sum", &[&subject, &co_runner]);
        let excess = graph.node("Sub", "working_set_difference", &[&sum, &l2]);
        let overflow = graph.node("Relu", "working_set_excess", &[&excess]);
        let capacity = graph.node("Max", "l2_positive", &[&l2, &least]);
        parts.push(graph.node("Div", "working_set_overflow", &[&overflow, &capacity]));
    }
    if !spec.speeds.is_empty() {
        let (columns, firsts): (Vec<usize>, Vec<usize>) = spec.speeds.iter().copied().unzip();
        let least = graph.scalar("least_hertz", LEAST_HERTZ);
        let rate = graph.columns("isolated_rate", &raw, &columns);
        let first = graph.columns("first_isolated_rate", &raw, &firsts);
        parts.push(write_fraction(graph, "isolated_fraction", &rate, &first, &least));
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    graph.full_node("", "Concat", "prepared", &parts, vec![integer("axis", 1)])
}

fn write_fraction(
    graph: &mut GraphBuilder,
    name: &str,
    subject: &str,
    co_runner: &str,
    least: &str,
) -> String {
    let sum = graph.node("Add", &format!("{name}_sum"), &[subject, co_runner]);
    let positive = graph.node("Max", &format!("{name}_positive"), &[&sum, least]);
    graph.node("Div", name, &[subject, &positive])
}
