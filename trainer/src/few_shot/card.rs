//! The card of a calibrated model.

use super::CalibratedModel;
use crate::Examples;
use crate::card::{banners, kinds, licence_limits};
use std::fmt::Write as _;

pub(super) fn card(model: &CalibratedModel, examples: &Examples) -> String {
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = write_card(&mut out, model, examples);
    out
}

fn write_card(out: &mut String, model: &CalibratedModel, examples: &Examples) -> std::fmt::Result {
    let (metadata, origin) = (&model.metadata, &examples.origin);
    let fact = |name: &str| metadata.facts.get(name).map_or("", String::as_str);
    let devices = examples.groups.devices.join(", ");
    let what = if model.is_new_device {
        format!("the device {devices}")
    } else {
        format!("{} on {devices}", count(model.workloads.len(), "new workload"))
    };
    writeln!(out, "# Slowdown predictor: {}, calibrated to {what}\n", metadata.learner)?;
    writeln!(
        out,
        "A trained model, corrected by a few measurements of what it did not know. One file, read and asked as the one it \
         was made from.\n"
    )?;
    banners(out, examples)?;

    writeln!(out, "## Calibration\n")?;
    writeln!(out, "| | |\n|---|---|")?;
    writeln!(
        out,
        "| base model | `{}`, trained on {} rows |",
        short(fact("calibrated_from")),
        metadata.training_rows_total
    )?;
    writeln!(
        out,
        "| measurements | {} ({}), content digest `{}` |",
        origin.sources.join(", "),
        kinds(examples),
        origin.digest.short()
    )?;
    for source in &origin.licences {
        writeln!(out, "| licence of {} | {} |", source.source, source.licence)?;
    }
    writeln!(out, "| learnt from | {} rows of {} |", model.rows_total, count(model.pairs_total, "pair"))?;
    writeln!(out, "| device | {devices} |")?;
    writeln!(out, "| sharing modes | {} |", origin.sharing_modes.join(", "))?;
    writeln!(out, "| harnesses | {} |", examples.groups.harnesses.join(", "))?;
    writeln!(
        out,
        "| {} | {} |",
        if model.is_new_device { "workloads" } else { "new workloads" },
        model.workloads.join(", ")
    )?;
    writeln!(out, "| form | {} |", form(fact("calibration_form")))?;

    writeln!(out, "\n## Error\n")?;
    let before = format!("{:.1} %", 100.0 * model.mape_before);
    match model.mape_after {
        Some(after) => writeln!(
            out,
            "Mean absolute percentage error on these {} rows: {before} by the base model, {:.1} % after the calibration, each \
             pair by a calibration that had not seen it. {} is a small sample: the error on other pairs may be another.",
            model.rows_total,
            100.0 * after,
            count(model.pairs_total, "pair")
        )?,
        None => writeln!(
            out,
            "Mean absolute percentage error of the base model on these {} rows: {before}. With one pair nothing could be held \
             out, so the error after the calibration is unknown.",
            model.rows_total
        )?,
    }

    if model.is_no_better() {
        writeln!(
            out,
            "\n**The calibration is no better than the base model on these rows.** Measure more pairs, or use the base model."
        )?;
    }

    writeln!(out, "\n## Upper bound\n")?;
    writeln!(
        out,
        "`slowdown_upper` is the prediction times {:.3} at the level {:.0} %: {}.",
        model.upper_offset_log.exp(),
        100.0 * metadata.conformal_level,
        model.bound
    )?;

    writeln!(out, "\n## Limits\n")?;
    licence_limits(out, examples)?;
    if model.is_new_device {
        writeln!(out, "- It covers {devices} alone: for the devices of the base model use the base model.")?;
        writeln!(
            out,
            "- Workloads that were not measured on {devices} are predicted by what they are on others, and the bound is not made from such."
        )?;
    } else {
        writeln!(
            out,
            "- The new workloads are calibrated on {devices}; the offsets are used on every device that the model knows{}.",
            if metadata.devices.len() > 1 { ", where nobody has checked them" } else { "" }
        )?;
        writeln!(
            out,
            "- Pairs of other workloads have the prediction and the bound of the base model. Its card says how good they are."
        )?;
    }
    if let (Some(kept), Some(all)) = (metadata.facts.get("base_trees_kept"), metadata.facts.get("trees")) {
        writeln!(
            out,
            "- {kept} of the {all} trees of the base are kept, so that the file does not grow too large: its predictions move a little."
        )?;
    }
    if examples.is_simulated() {
        writeln!(out, "- Simulated measurements: use it to try the software, not to place real jobs.")?;
    }
    writeln!(
        out,
        "- A calibrated model is not calibrated again: take the base model and all probes at once."
    )?;

    writeln!(out, "\n## How it was made\n")?;
    writeln!(
        out,
        "elastico {} · learner `{}` · {} raw features · {} bytes",
        metadata.elastico_version,
        metadata.learner,
        metadata.features.width(),
        model.onnx.len()
    )?;
    for (name, value) in &metadata.facts {
        writeln!(out, "- {name}: {value}")?;
    }
    let found = &model.verification;
    let ort = found.ort_difference_ratio.map_or("ONNX Runtime not at hand".to_owned(), |difference| {
        format!("ONNX Runtime within {difference:.1e} of that")
    });
    writeln!(
        out,
        "- file against calibration: within {:.1e} on {} data rows and {} rows at thresholds; {ort}",
        found.native_difference_ratio, found.data_rows_total, found.threshold_rows_total
    )
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The first digits of a digest tell two files apart.
fn short(digest: &str) -> &str {
    digest.get(..16).unwrap_or(digest)
}

/// The form of the correction as an equation.
fn form(parts: &str) -> String {
    let has = |part: &str| parts.split(", ").any(|found| found == part);
    let mut text = String::from("log slowdown = ");
    if has("factor") {
        text.push_str("a · ");
    }
    text.push_str("base model");
    for (part, words) in [
        ("shift", " + b"),
        ("offsets", " + offset of the subject + offset of the co-runner, each shrunk to 0"),
        ("trees", " + small trees over what is left"),
    ] {
        if has(part) {
            text.push_str(words);
        }
    }
    text
}
