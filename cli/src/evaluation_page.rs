//! An evaluation as a page: what was judged, on which numbers, and how far to trust it.

use elastico_core::{DeviceKind, median, quantile};
use elastico_datasets::Dataset;
use elastico_report::{
    Column, Dot, Dots, Fact, Figure, Origin, Page, PredictedVsMeasured, PredictionPoint, ReliabilityPlot,
    ReliabilityPoint, Section, Table, Value,
};
use elastico_trainer::{Details, Evaluation, EvaluationRow, Examples, HeldOut, LearnerKind, Split};
use std::collections::BTreeMap;

/// What the page is made from.
pub(crate) struct Material<'a> {
    pub(crate) dataset: &'a Dataset,
    pub(crate) examples: &'a Examples,
    pub(crate) evaluation: &'a Evaluation,
    pub(crate) details: &'a Details,
}

/// Formulas without training or with a handful of constants, and effects per workload: what a learner must beat.
const SIMPLE: [LearnerKind; 4] =
    [LearnerKind::ProcessorSharing, LearnerKind::Saturation, LearnerKind::GpuLets, LearnerKind::BiasFilter];

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
    for noise in &material.details.noise {
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
    section = section.with(if material.details.noise.is_empty() {
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
    section = section.with(table(&rows, material.evaluation.limit));
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
    section = section.with(Figure::predicted_vs_measured(&scatter(
        &points,
        *learner,
        split,
        origin,
        material.evaluation.limit,
    ))?);
    if split != Split::RandomPair {
        section = section.with(Figure::dots(&residuals(&points, *learner, split, origin))?);
    }
    if let Some(view) = reliability(material, *learner, split, origin) {
        section = section.with(Figure::reliability(&view)?);
    }
    Ok(section)
}

/// All learners of one split: baselines first, then by error.
fn table(rows: &[&EvaluationRow], limit: f64) -> Table {
    let mape = |row: &EvaluationRow| row.scores.as_ref().map_or(f64::INFINITY, |scores| scores.mape);
    let mean = rows.iter().find(|row| row.learner == LearnerKind::Mean).map(|row| mape(row));
    let simple = rows
        .iter()
        .filter(|row| SIMPLE.contains(&row.learner) && row.scores.is_some())
        .min_by(|a, b| mape(a).total_cmp(&mape(b)))
        .map(|row| row.learner);
    let mut sorted: Vec<&&EvaluationRow> =
        rows.iter().filter(|row| row.scores.is_some() || row.decision.is_some()).collect();
    sorted.sort_by(|a, b| {
        let key = |row: &EvaluationRow| {
            (row.learner != LearnerKind::Mean, Some(row.learner) != simple, row.scores.is_none())
        };
        key(a).cmp(&key(b)).then(mape(a).total_cmp(&mape(b)))
    });
    let mut table = Table::new(
        "elastico.evaluation_table/1",
        format!("Baselines first, then by error; safe = slowdown of at most {limit}"),
        vec![
            Column::text("learner"),
            Column::number("n", ""),
            Column::number("mape", "%").label("mean error"),
            Column::text("interval").label("95 % interval"),
            Column::number("against_mean", "").label("error / that of the mean"),
            Column::number("r2", "").label("R2"),
            Column::number("p95_abs_error", "").label("P95 of abs. error"),
            Column::number("spearman", "").label("rank correlation"),
            Column::number("safe_precision", "").label("safe precision"),
            Column::number("safe_recall", "").label("safe recall"),
            Column::number("safe_base_rate", "").label("truly safe"),
        ],
    );
    for row in sorted {
        let mut label = name(row.learner);
        if row.learner == LearnerKind::Mean {
            label.push_str(" (baseline)");
        } else if Some(row.learner) == simple {
            label.push_str(" (best simple baseline)");
        }
        let optional = |value: Option<f64>| value.map_or(Value::Missing, |value| Value::number(value, 2));
        if let Some(scores) = &row.scores {
            let interval = scores.mape_interval.map_or(Value::Missing, |(lower, upper)| {
                format!("{:.1} to {:.1} %", 100.0 * lower, 100.0 * upper).into()
            });
            table.push(vec![
                label.into(),
                Value::Count(row.n),
                Value::number(100.0 * scores.mape, 1),
                interval,
                optional(mean.filter(|mean| mean.is_finite()).map(|mean| scores.mape / mean)),
                optional(scores.r2),
                Value::number(scores.p95_abs_error, 2),
                optional(scores.spearman),
                optional(scores.safe_precision),
                optional(scores.safe_recall),
                Value::number(scores.safe_base_rate, 2),
            ]);
        } else if let Some(decision) = &row.decision {
            let mut cells = vec![label.into(), Value::Count(row.n)];
            cells.extend(std::iter::repeat_n(Value::Missing, 6));
            cells.extend([
                optional(decision.safe_precision),
                optional(decision.safe_recall),
                Value::number(decision.safe_base_rate, 2),
            ]);
            table.push(cells);
        }
    }
    table
}

fn scatter(
    rows: &[&HeldOut],
    learner: LearnerKind,
    split: Split,
    origin: &Origin,
    limit: f64,
) -> PredictedVsMeasured {
    let title = format!("Predicted against observed slowdown, {}, {}", name(learner), words(split));
    let mut view = PredictedVsMeasured::new(origin.clone(), title);
    view.split = words(split).to_owned();
    view.log = true;
    view.limit = Some(limit);
    view.points = rows
        .iter()
        .map(|row| PredictionPoint {
            label: format!("{} beside {}, {}", row.subject, row.co_runner, row.device),
            measured: row.measured,
            interval: row.interval,
            predicted: row.predicted,
            upper: None,
            in_domain: row.in_domain,
        })
        .collect();
    view.note =
        "Each point was predicted by a model that had not seen it. Both axes are logarithmic.".to_owned();
    view
}

/// Observed over predicted by what was held out.
fn residuals(rows: &[&HeldOut], learner: LearnerKind, split: Split, origin: &Origin) -> Dots {
    let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for row in rows {
        groups.entry(&row.held_out).or_default().push(row.measured / row.predicted);
    }
    let mut dots: Vec<Dot> = groups
        .into_iter()
        .map(|(name, ratios)| Dot {
            name: name.to_owned(),
            value: median(&ratios),
            interval: (quantile(&ratios, 0.05), quantile(&ratios, 0.95)),
            n: ratios.len(),
        })
        .collect();
    dots.sort_by(|a, b| b.value.total_cmp(&a.value));
    Dots {
        title: format!("Residuals by what was held out, {}, {}", name(learner), words(split)),
        origin: origin.clone(),
        quantity: "observed / predicted slowdown".to_owned(),
        sides: ("predicted too high".to_owned(), "predicted too low".to_owned()),
        dots,
        note: "Dots are medians, bars reach from the 5th to the 95th percentile of the rows. A bar that lies on one side is \
               a family that the model does not understand."
            .to_owned(),
    }
}

fn reliability(
    material: &Material<'_>,
    learner: LearnerKind,
    split: Split,
    origin: &Origin,
) -> Option<ReliabilityPlot> {
    let levels: Vec<_> = material.details.reliability.iter().filter(|row| row.split == split).collect();
    let at = levels.iter().find(|row| (row.level - 0.9).abs() < 1e-9)?;
    let promised: Vec<String> =
        levels.iter().filter(|row| row.is_guaranteed).map(|row| percent(row.level)).collect();
    let note = format!(
        "At 90 % the bound lies {:.2}x over the prediction. {}",
        at.factor,
        if promised.is_empty() {
            "Too few groups for a guarantee at any level: what is shown is all that is known.".to_owned()
        } else {
            format!(
                "Guaranteed on average over exchangeable groups at {}; above, the groups are too few and the bound is a plain \
                 quantile, which can lie lower.",
                promised.join(", ")
            )
        }
    );
    Some(ReliabilityPlot {
        title: format!("Reliability of the upper bound, {}, {}", name(learner), words(split)),
        origin: origin.clone(),
        group: group(split).to_owned(),
        points: levels
            .iter()
            .map(|row| ReliabilityPoint {
                level: row.level,
                achieved: row.achieved,
                interval: row.interval,
                least: row.least,
                groups: row.groups as usize,
            })
            .collect(),
        note,
    })
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
