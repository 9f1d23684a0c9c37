//! An evaluation as a page: what was judged, on which numbers, and how far to trust it.

mod figures;
mod tables;

use elastico_core::{DeviceKind, mean, median, quantile};
use elastico_datasets::Dataset;
use elastico_report::{Fact, Figure, Origin, Page, Section};
use elastico_trainer::{Details, Evaluation, EvaluationRow, Examples, HeldOut, LearnerKind, Newcomer, Split};

/// What the page is made from.
pub(crate) struct Material<'a> {
    pub(crate) dataset: &'a Dataset,
    pub(crate) examples: &'a Examples,
    pub(crate) evaluation: &'a Evaluation,
    pub(crate) details: &'a Details,
}

/// The page.
pub(crate) fn evaluation_page(material: &Material<'_>) -> anyhow::Result<Page> {
    let origin = origin(material);
    let mut page = Page::new(format!("How well slowdowns are predicted, {}", kind_words(material)));
    page.provenance.extend(material.dataset.manifest.provenance.iter().cloned());
    page.warnings = warnings(material);
    page.summary = summary(material);
    let mut splits: Vec<Split> = Vec::new();
    for row in &material.evaluation.rows {
        if !splits.contains(&row.split) {
            splits.push(row.split);
        }
    }
    // A new workload is the question, so that comes first, and what flatters comes last.
    splits.sort_by_key(|split| (*split == Split::RandomPair, *split));
    page = page.with(overview(material));
    for split in splits {
        page = page.with(section(material, split, &origin)?);
    }
    Ok(page.with(how_to_read(material)))
}

fn origin(material: &Material<'_>) -> Origin {
    let kind = material.evaluation.device_kinds.first().copied().unwrap_or(DeviceKind::Imported);
    let provenance = &material.dataset.manifest.provenance;
    let names: Vec<&str> = provenance.iter().map(|origin| origin.device.as_str()).collect();
    Origin::new(kind, names.join(", "))
}

fn kind_words(material: &Material<'_>) -> String {
    let words: Vec<&str> = material
        .evaluation
        .device_kinds
        .iter()
        .map(|kind| match kind {
            DeviceKind::Simulated => "simulated numbers",
            DeviceKind::Imported => "imported measurements",
            DeviceKind::Recorded => "replayed measurements",
            DeviceKind::Cuda => "measured on a GPU",
            DeviceKind::Cpu => "measured on CPU cores",
        })
        .collect();
    words.join(" and ")
}

fn warnings(material: &Material<'_>) -> Vec<String> {
    let kinds = &material.evaluation.device_kinds;
    let mut warnings = Vec::new();
    if kinds.contains(&DeviceKind::Simulated) {
        warnings.push(
            "Simulated: every error here is an error against the fluid model of a GPU. It says nothing about a real GPU."
                .to_owned(),
        );
    }
    if kinds.contains(&DeviceKind::Cpu) {
        warnings.push("Measured on CPU cores: real contention, but not that of a GPU.".to_owned());
    }
    if kinds.contains(&DeviceKind::Imported) {
        warnings.push(
            "Imported: others measured these numbers, with their harness. Read its traps in the guide before comparing."
                .to_owned(),
        );
    }
    if material.examples.groups.harnesses.len() > 1 {
        warnings.push(format!(
            "Several harnesses are mixed ({}). They disagree by more than the noise of each.",
            material.examples.groups.harnesses.join(", ")
        ));
    }
    if !material.examples.origin.has_counters {
        warnings.push(
            "No hardware counters among the features: workloads are told apart by name and speed.".to_owned(),
        );
    }
    for source in material.examples.origin.licences.iter().filter(|source| !source.may_ship) {
        warnings.push(format!(
            "Licence of {}: {}. Keep this page and models of these numbers to yourself.",
            source.source, source.licence
        ));
    }
    warnings
}

/// What a reader should take away: the error on a new workload beside that of the mean.
fn summary(material: &Material<'_>) -> String {
    for split in [Split::UnseenFamily, Split::RandomPair] {
        let Some(learner) = material.details.shown.get(&split) else { continue };
        let mape = |learner| {
            let row = material.evaluation.row(split, learner)?;
            Some((row.scores.as_ref()?.mape, row.scores.as_ref()?.mape_interval))
        };
        let Some((error, interval)) = mape(*learner) else { continue };
        let interval = interval.map_or(String::new(), |(lower, upper)| {
            format!(" (95 % interval {} to {})", percent(lower), percent(upper))
        });
        let mean = mape(LearnerKind::Mean).map_or(String::new(), |(mean, _)| {
            format!(" Always predicting the mean is off by {}.", percent(mean))
        });
        return format!(
            "On {}, {} is off by {} of the slowdown on average{interval}.{mean}",
            words(split),
            name(*learner),
            percent(error)
        );
    }
    "No split could be judged; each section says why.".to_owned()
}

fn overview(material: &Material<'_>) -> Section {
    let examples = material.examples;
    let slowdowns = &examples.slowdown;
    let mut facts = vec![
        Fact::new(
            material.evaluation.rows_total.to_string(),
            "rows judged on",
            format!("{} pairs, {} workloads", examples.origin.pairs_total, examples.origin.workloads_total),
        ),
        Fact::new(
            examples.groups.families.len().to_string(),
            "families",
            "the unit that unseen_family holds out",
        ),
        Fact::new(
            format!("{:.2}x", median(slowdowns)),
            "median slowdown",
            format!("95th percentile {:.2}x", quantile(slowdowns, 0.95)),
        ),
    ];
    for noise in &material.evaluation.noise {
        let interval = noise.interval.map_or(String::new(), |(lower, upper)| {
            format!(", 95 % interval {} to {}", percent(lower), percent(upper))
        });
        facts.push(Fact::new(
            percent(noise.mape_floor),
            "noise floor of the error",
            format!(
                "from {} {}{interval}{}",
                noise.cells,
                noise.source.as_str(),
                if noise.copies > 0 {
                    format!("; {} more are equal to the last digit, so written twice", noise.copies)
                } else {
                    String::new()
                }
            ),
        ));
    }
    let mut section = Section::new("What was judged").with(facts);
    section = section.with(if material.evaluation.noise.is_empty() {
        "Nothing was measured twice, so the noise of the labels is unknown: no error here can be read against it."
    } else {
        "The noise floor is the error of a perfect model: two measurements of one thing differ by that much. An error \
         near it cannot be improved, and one under it would be luck."
    });
    section
}

fn section(material: &Material<'_>, split: Split, origin: &Origin) -> anyhow::Result<Section> {
    let mut section = Section::new(capital(words(split))).with(match split {
        Split::RandomPair => {
            "Both workloads of a held-out pair were seen in other pairs. This flatters every model: read it as the error \
             between known workloads."
        }
        Split::UnseenFamily => {
            "Every row that touches a family was held out: the workload is new, as subject and as co-runner. This is the \
             error for a job that nobody measured."
        }
        Split::UnseenSubject => "The held-out family was never seen as a subject, but beside others.",
        Split::UnseenCoRunner => "The held-out family was never seen as a co-runner, but as a subject.",
        Split::UnseenDevice => {
            "A whole device was held out. Where no learner beats the mean here, no prediction for a new device should be \
             trusted before pairs are measured on it."
        }
    });
    let rows: Vec<&EvaluationRow> =
        material.evaluation.rows.iter().filter(|row| row.split == split).collect();
    section = section.with(tables::scores(material.evaluation, split));
    let mut reasons: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let reason = row.reason.as_ref()?;
            // A learner's own words begin with its name.
            let own = format!("{} cannot be fitted: ", row.learner.as_str());
            Some(format!("{}: {}", name(row.learner), reason.strip_prefix(&own).unwrap_or(reason)))
        })
        .collect();
    reasons.dedup();
    if !reasons.is_empty() {
        section = section.with(format!("Not judged: {}.", reasons.join("; ")));
    }
    let Some(learner) = material.details.shown.get(&split) else { return Ok(section) };
    let points: Vec<&HeldOut> =
        material.details.predictions.iter().filter(|row| row.split == split).collect();
    if points.is_empty() {
        return Ok(section);
    }
    let limit = material.evaluation.limit;
    section = section
        .with(Figure::predicted_vs_measured(&figures::scatter(&points, *learner, split, origin, limit))?);
    section = section.with(in_and_out(&points));
    if split != Split::RandomPair {
        section = section.with(Figure::dots(&figures::residuals(&points, *learner, split, origin))?);
    }
    if let Some(view) = figures::reliability(material.evaluation, *learner, split, origin) {
        section = section.with(Figure::reliability(&view)?);
    }
    if let Some(table) = tables::bounds(material.evaluation, split, *learner) {
        section = section.with(table).with(
            "Bound / measured says how tight it is: 1 would touch each slowdown. The guarantee holds on average over new groups that are \
             exchangeable with these, whatever their distribution.",
        );
    }
    let newcomer = match split {
        Split::UnseenFamily => Some(Newcomer::Family),
        Split::UnseenDevice => Some(Newcomer::Device),
        _ => None,
    };
    if let Some(table) = newcomer.and_then(|of| tables::few_shot(material.evaluation, of, *learner)) {
        section = section.with(table).with(
            "Rehearsed on what was held out: probes were drawn, the model was calibrated by them, and the pairs that were not \
             probed were predicted. Those are others at each number of probes: compare with the error without probes beside it, not \
             along the column.",
        );
    }
    Ok(section)
}

/// What `in_domain` is worth: the error where the model would claim to know, and where it would not.
fn in_and_out(points: &[&HeldOut]) -> String {
    let (known, strange): (Vec<&HeldOut>, Vec<&HeldOut>) = points.iter().partition(|point| point.in_domain);
    let share = known.len() as f64 / points.len() as f64;
    let off = |rows: &[&HeldOut]| {
        let errors: Vec<f64> =
            rows.iter().map(|row| (row.predicted - row.measured).abs() / row.measured).collect();
        if errors.is_empty() {
            "not there to judge".to_owned()
        } else {
            format!("off by {}", percent(mean(&errors)))
        }
    };
    format!(
        "By the rule of the model file {} of these rows would be in the domain: there the predictions are {}; outside it, {}.",
        percent(share),
        off(&known),
        off(&strange)
    )
}

fn how_to_read(material: &Material<'_>) -> Section {
    let left_out: Vec<String> = material
        .examples
        .origin
        .left_out
        .iter()
        .map(|(reason, rows)| format!("{rows} rows ({reason})"))
        .collect();
    let mut section = Section::new("How it was made")
        .with(
            "No row is predicted by a model that saw it, its other direction or a repeat of it. Nothing was tuned on test rows. \
             Intervals resample whole families, because rows of one family are alike.",
        )
        .with(
            "Regret: a subject looks for a co-runner among the held-out ones. The one that the model likes best slows it down by so \
             much more than the best one would. Read it against that of a blind choice.",
        )
        .with(
            "The learner whose points are drawn is chosen by name (extra trees where it was asked for), not by how well it did.",
        );
    if !left_out.is_empty() {
        section = section.with(format!("Left out: {}.", left_out.join(", ")));
    }
    section.with(format!(
        "Seed {}, content of the dataset {}.",
        material.evaluation.seed.0,
        material.evaluation.dataset_digest.short()
    ))
}

fn words(split: Split) -> &'static str {
    match split {
        Split::RandomPair => "unseen pairs of known workloads",
        Split::UnseenFamily => "unseen families",
        Split::UnseenSubject => "unseen subjects",
        Split::UnseenCoRunner => "unseen co-runners",
        Split::UnseenDevice => "unseen devices",
    }
}

fn group(split: Split) -> &'static str {
    match split {
        Split::RandomPair => "fold",
        Split::UnseenDevice => "device",
        Split::UnseenFamily | Split::UnseenSubject | Split::UnseenCoRunner => "family",
    }
}

fn name(learner: LearnerKind) -> String {
    learner.as_str().replace('_', " ")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}
