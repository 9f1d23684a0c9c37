//! The calibrated model as a file.

use super::correction::Effect;
use super::form::Best;
use crate::{Error, Examples};
use elastico_core::Digest;
use elastico_models::{Aggregate, Body, Calibrated, FeatureSchema, Gate, ModelSpec};
use std::collections::{BTreeMap, BTreeSet};

/// The base with so many of its trees that those of the correction have room beside them: a hundred trees whose leaves are
/// single rows, or half of the file. Trees of a sum cannot be spared.
pub(super) fn with_room(mut spec: ModelSpec, bytes: usize, rows: usize, most: usize) -> ModelSpec {
    const LEAST_TREES: usize = 20;
    let body = match &mut spec.body {
        Body::Shrunk(shrunk) => &mut shrunk.base,
        body => body,
    };
    let Body::Forest(forest) = body else { return spec };
    let nodes: usize = forest.trees.iter().map(|tree| tree.nodes.len()).sum();
    let wanted = 100 * 2 * rows * bytes / nodes.max(1);
    let room = most.saturating_sub(wanted.min(most / 2));
    if bytes > room && forest.aggregate != Aggregate::Sum && forest.trees.len() > LEAST_TREES {
        let kept = forest.trees.len() * room / bytes;
        forest.trees.truncate(kept.max(LEAST_TREES));
        spec.metadata.facts.insert("base_trees_kept".to_owned(), forest.trees.len().to_string());
    }
    spec
}

/// The calibrated model before it becomes a file.
pub(super) fn apply(
    spec: &ModelSpec,
    found: &Best,
    examples: &Examples,
    upper_offset_log: f64,
    new: &BTreeSet<u32>,
    is_new_device: bool,
    base: &[u8],
) -> Result<ModelSpec, Error> {
    let groups = &examples.groups;
    let correction = &found.correction;
    let wanted: BTreeMap<String, f64> = correction
        .offsets
        .iter()
        .map(|((effect, code), offset)| (effect.feature(groups, *code), *offset))
        .collect();
    // Rows that touch none of the new workloads keep what the base says of them.
    let touched: Vec<String> = if is_new_device {
        Vec::new()
    } else {
        let sides = [Effect::Subject, Effect::CoRunner];
        new.iter().flat_map(|code| sides.map(|effect| effect.feature(groups, *code))).collect()
    };
    let mut extra: Vec<String> = wanted.keys().chain(&touched).cloned().collect();
    extra.sort();
    extra.dedup();
    extra.retain(|name| spec.schema.position(name).is_none());
    let added = extra.len();
    let width = spec.schema.width();
    let mut wide = spec.with_features(&extra)?;
    let offsets = wanted
        .iter()
        .filter_map(|(name, offset)| Some((wide.schema.position(name)? as u32, *offset)))
        .collect();
    let residual = correction.residual.clone().map(|mut forest| {
        // The trees were grown over rows without the new columns.
        for node in forest.trees.iter_mut().flat_map(|tree| &mut tree.nodes) {
            if !node.is_leaf() && node.feature as usize >= width {
                node.feature += added as u32;
            }
        }
        forest
    });
    wide.body = Body::Calibrated(Box::new(Calibrated {
        base: wide.body,
        scale: correction.scale,
        shift: correction.shift,
        offsets,
        residual,
        gate: (!touched.is_empty()).then(|| Gate {
            columns: touched
                .iter()
                .filter_map(|name| wide.schema.position(name))
                .map(|at| at as u32)
                .collect(),
            upper_offset_log_elsewhere: spec.upper_offset_log,
        }),
    }));
    wide.upper_offset_log = upper_offset_log;
    let width = examples.schema.width();
    if is_new_device {
        // What the model knew of others says nothing here: the domain is that of the new measurements.
        let domain = elastico_models::fit_domain(&examples.features, width)?;
        wide.domain_lower[..width].copy_from_slice(&domain.lower);
        wide.domain_upper[..width].copy_from_slice(&domain.upper);
        for (have, seen) in wide.domain_missing[..width].iter_mut().zip(domain.missing) {
            *have = seen;
        }
        wide.domain_distance = None;
        wide.metadata.devices.clone_from(&groups.devices);
        // Of the modes and harnesses of the base nothing was measured there.
        wide.metadata.sharing_modes.clone_from(&examples.origin.sharing_modes);
        wide.metadata.facts.insert("harnesses".to_owned(), groups.harnesses.join(", "));
    } else {
        for column in 0..width {
            let values =
                (0..examples.rows()).map(|row| examples.row(row)[column]).filter(|value| value.is_finite());
            for value in values {
                wide.domain_lower[column] = wide.domain_lower[column].min(value);
                wide.domain_upper[column] = wide.domain_upper[column].max(value);
            }
        }
        // The probes were measured: rows of their workloads are near.
        wide.domain_distance = wide.domain_distance.take().map(|distance| {
            let far = distance
                .distances(&widened(examples, &wide.schema))
                .into_iter()
                .fold(distance.limit(), f32::max);
            distance.with_limit(far * 1.01)
        });
    }
    // Scores and coverage are the base's; what is known of the calibrated model stands in the facts.
    wide.metadata.scores.clear();
    wide.metadata.achieved_coverage = None;
    let mut fact = |name: &str, value: String| wide.metadata.facts.insert(name.to_owned(), value);
    fact("calibrated_from", Digest::of([base]).to_string());
    fact("calibrated_on", examples.origin.digest.to_string());
    fact("calibration_rows", examples.rows().to_string());
    fact("calibration_mape_before", format!("{:.4}", found.mape.0));
    if let Some(after) = found.mape.1 {
        fact("calibration_mape_after", format!("{after:.4}"));
    }
    fact("calibration_form", found.form.words());
    let kept = examples.origin.licences.iter().filter(|source| !source.may_ship);
    let kept: Vec<&str> = kept.map(|source| source.source.as_str()).collect();
    if !kept.is_empty() {
        let known = wide
            .metadata
            .facts
            .get("shipping")
            .map_or("forbidden by".to_owned(), |known| format!("{known},"));
        wide.metadata.facts.insert("shipping".to_owned(), format!("{known} {}", kept.join(", ")));
    }
    Ok(wide)
}

/// Rows of the examples with the columns of the calibrated model: 1 for the workload or family of the row.
pub(super) fn widened(examples: &Examples, schema: &FeatureSchema) -> Vec<f32> {
    let groups = &examples.groups;
    let width = examples.schema.width();
    let mut rows = Vec::with_capacity(examples.rows() * schema.width());
    for row in 0..examples.rows() {
        rows.extend_from_slice(examples.row(row));
        rows.extend(schema.names()[width..].iter().map(|name| {
            let is = Effect::ALL
                .into_iter()
                .any(|effect| effect.feature(groups, effect.code(groups, row)) == *name);
            f32::from(u8::from(is))
        }));
    }
    rows
}
