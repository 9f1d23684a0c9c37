//! `MODEL.md`: what a model is, for somebody who has to decide whether to trust it.

use crate::calibrate::Calibration;
use crate::evaluate::Evaluation;
use crate::{Examples, Split};
use elastico_models::{ModelMetadata, Verification};
use std::fmt::Write as _;

/// The card in Markdown.
pub(crate) fn card(
    examples: &Examples,
    metadata: &ModelMetadata,
    evaluation: &Evaluation,
    calibration: &Calibration,
    verification: &Verification,
    bytes: usize,
) -> String {
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = write_card(&mut out, examples, metadata, evaluation, calibration, verification, bytes);
    out
}

fn write_card(
    out: &mut String,
    examples: &Examples,
    metadata: &ModelMetadata,
    evaluation: &Evaluation,
    calibration: &Calibration,
    verification: &Verification,
    bytes: usize,
) -> std::fmt::Result {
    let origin = &examples.origin;
    let simulated = examples.is_simulated();
    writeln!(out, "# Slowdown predictor: {} on {}\n", metadata.learner, examples.groups.devices.join(", "))?;
    writeln!(
        out,
        "Predicts how much slower a workload runs beside a co-runner than alone on the full device, and an upper \
         bound.\n"
    )?;
    banners(out, examples)?;

    writeln!(out, "## Data\n")?;
    writeln!(out, "| | |\n|---|---|")?;
    writeln!(out, "| origin | {} ({}) |", origin.sources.join(", "), kinds(examples))?;
    for source in &origin.licences {
        writeln!(out, "| licence of {} | {} |", source.source, source.licence)?;
    }
    writeln!(out, "| rows | {} (one per subject per trial) |", examples.rows())?;
    writeln!(
        out,
        "| workloads | {} in {} families, {} pairs |",
        origin.workloads_total,
        examples.groups.families.len(),
        origin.pairs_total
    )?;
    writeln!(out, "| devices | {} |", examples.groups.devices.join(", "))?;
    writeln!(out, "| sharing modes | {} |", origin.sharing_modes.join(", "))?;
    let mut sorted = examples.slowdown.clone();
    sorted.sort_by(f64::total_cmp);
    writeln!(
        out,
        "| slowdown | median {:.2}, 95th percentile {:.2}, largest {:.2} |",
        elastico_core::median(&sorted),
        elastico_core::quantile(&sorted, 0.95),
        sorted.last().copied().unwrap_or(f64::NAN)
    )?;
    for (reason, rows) in &origin.left_out {
        writeln!(out, "| left out | {rows} rows: {reason} |")?;
    }
    writeln!(out, "| content digest | `{}` |", origin.digest.short())?;

    writeln!(out, "\n## Scores\n")?;
    writeln!(
        out,
        "Rows are predicted by models that saw neither them nor their group. Read each line against the mean below it, \
         and `unseen_family` before `random_pair`: a new workload is the former. `safe` is a slowdown of at most {}.\n",
        evaluation.limit
    )?;
    writeln!(
        out,
        "| split | predictor | n | MAPE | 95 % interval | R2 | P95 of abs. error | rank correlation | safe precision | \
         safe recall | truly safe |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    let number = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
    for pair in evaluation.rows.chunks(2) {
        // The mean was judged first; the learner is what one reads first.
        for row in pair.iter().rev() {
            let Some(scores) = &row.scores else {
                let reason = row.reason.as_deref().unwrap_or("no rows");
                writeln!(out, "| {} | {} | 0 | {reason} | | | | | | | |", row.split, row.learner)?;
                continue;
            };
            writeln!(
                out,
                "| {} | {} | {} | {:.1} % | {} | {} | {:.2} | {} | {} | {} | {:.2} |",
                row.split,
                row.learner,
                row.n,
                100.0 * scores.mape,
                scores.mape_interval.map_or("–".to_owned(), |(lower, upper)| format!(
                    "{:.1} to {:.1} %",
                    100.0 * lower,
                    100.0 * upper
                )),
                number(scores.r2),
                scores.p95_abs_error,
                number(scores.spearman),
                number(scores.safe_precision),
                number(scores.safe_recall),
                scores.safe_base_rate
            )?;
        }
    }

    writeln!(out, "\n## Upper bound\n")?;
    writeln!(
        out,
        "`slowdown_upper` is the prediction times {:.3}. It should lie over {:.0} % of slowdowns; on held-out groups, each \
         against the offset of the others, it lay over {:.1} % (over {:.1} % in the worst group of {}).",
        calibration.offset_log.exp(),
        100.0 * calibration.level,
        100.0 * calibration.achieved_coverage,
        100.0 * calibration.least_coverage,
        calibration.groups_total
    )?;
    writeln!(
        out,
        "Guaranteed, without any assumption on their distribution, are {:.1} % on average over new groups that are exchangeable \
         with these; nothing for each of them, and nothing on another device or sharing mode.",
        100.0 * calibration.guaranteed_level
    )?;

    writeln!(out, "\n## Limits\n")?;
    licence_limits(out, examples)?;
    if let Some(reduced) = metadata.facts.get("reduced") {
        writeln!(
            out,
            "- The forest is smaller than asked for: {reduced}. The scores are those of the smaller one."
        )?;
    }
    if examples.groups.harnesses.len() > 1 {
        writeln!(
            out,
            "- Rows of several harnesses ({}): set the `harness=` feature of the one that is meant; without it the model answers \
             for none of them.",
            examples.groups.harnesses.join(", ")
        )?;
    }
    let limits = [
        (simulated, "Simulated training data: use it to try the software, not to place real jobs."),
        (
            !origin.has_counters,
            "No hardware counters among the features: families are told apart by name and speed.",
        ),
        (
            examples.groups.devices.len() < 2,
            "One device: on another one its numbers are no predictions, and the file's `in_domain` may not notice. The tools \
             of ElastiCo do.",
        ),
        (evaluation.rows.iter().any(|row| row.split == Split::UnseenDevice && lags(evaluation)), TRANSFER),
        (true, "Two workloads on one device; three or more were never seen."),
        (
            true,
            "`in_domain` = 0 means a feature outside its training range, or a row far from all training rows: treat the job as unknown.",
        ),
    ];
    for (_, limit) in limits.iter().filter(|(holds, _)| *holds) {
        writeln!(out, "- {limit}")?;
    }

    writeln!(out, "\n## How it was made\n")?;
    writeln!(
        out,
        "elastico {} · learner `{}` · {} raw and {} physics features · {} bytes",
        metadata.elastico_version,
        metadata.learner,
        examples.schema.width(),
        metadata.physics_features.len(),
        bytes
    )?;
    for (name, value) in &metadata.facts {
        writeln!(out, "- {name}: {value}")?;
    }
    let ort = verification.ort_difference_ratio.map_or("ONNX Runtime not at hand".to_owned(), |difference| {
        format!("ONNX Runtime within {difference:.1e} of that")
    });
    writeln!(
        out,
        "- file against learner: within {:.1e} on {} data rows and {} rows at thresholds; {ort}",
        verification.native_difference_ratio, verification.data_rows_total, verification.threshold_rows_total
    )
}

/// Kinds of devices in words.
pub(crate) fn kinds(examples: &Examples) -> String {
    examples.origin.device_kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What must be read before any number.
pub(crate) fn banners(out: &mut String, examples: &Examples) -> std::fmt::Result {
    if examples.is_simulated() {
        writeln!(
            out,
            "> **Trained on simulated data.** Every number below is about the fluid model of a GPU, not about a GPU.\n"
        )?;
    }
    if examples.groups.devices.iter().any(|device| device.starts_with("stand-in")) {
        writeln!(
            out,
            "> **Trained on a stand-in driver's answers.** No GPU took part: a test of the tool, not a model to use.\n"
        )?;
    }
    Ok(())
}

/// One line for each source whose licence forbids to pass the model on.
pub(crate) fn licence_limits(out: &mut String, examples: &Examples) -> std::fmt::Result {
    for source in examples.origin.licences.iter().filter(|source| !source.may_ship) {
        writeln!(
            out,
            "- **Do not pass this model on**: the licence of {} ({}) does not allow it.",
            source.source, source.licence
        )?;
    }
    Ok(())
}

const TRANSFER: &str =
    "On a device that it was not trained on it does no better than the mean: measure pairs there first.";

/// Whether the learner is no better than the mean on an unseen device.
fn lags(evaluation: &Evaluation) -> bool {
    let mape: Vec<f64> = evaluation
        .rows
        .iter()
        .filter(|row| row.split == Split::UnseenDevice)
        .filter_map(|row| row.scores.as_ref().map(|scores| scores.mape))
        .collect();
    matches!(mape[..], [mean, learner] if learner >= 0.95 * mean)
}
