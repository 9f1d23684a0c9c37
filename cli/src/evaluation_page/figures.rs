//! The figures of the page.

use super::{group, name, words};
use elastico_core::{median, quantile};
use elastico_report::{
    Dot, Dots, Origin, PredictedVsMeasured, PredictionPoint, ReliabilityPlot, ReliabilityPoint,
};
use elastico_trainer::{Calibration, Evaluation, HeldOut, LearnerKind, Split};
use std::collections::BTreeMap;

pub(super) fn scatter(
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
pub(super) fn residuals(rows: &[&HeldOut], learner: LearnerKind, split: Split, origin: &Origin) -> Dots {
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

pub(super) fn reliability(
    evaluation: &Evaluation,
    learner: LearnerKind,
    split: Split,
    origin: &Origin,
) -> Option<ReliabilityPlot> {
    let levels: Vec<Calibration> = evaluation
        .bounds
        .iter()
        .filter(|bound| bound.split == split && bound.learner == learner)
        .map(|bound| bound.calibration)
        .filter(|found| found.groups_total > 1)
        .collect();
    if levels.is_empty() {
        return None;
    }
    let groups = levels[0].groups_total;
    let note =
        format!("Guaranteed on average over exchangeable groups are {groups}/{} of each level.", groups + 1);
    Some(ReliabilityPlot {
        title: format!("Reliability of the upper bound, {}, {}", name(learner), words(split)),
        origin: origin.clone(),
        group: group(split).to_owned(),
        points: levels
            .iter()
            .map(|found| ReliabilityPoint {
                level: found.level,
                achieved: found.achieved_coverage,
                interval: found.coverage_interval,
                least: found.least_coverage,
                groups: found.groups_total as usize,
            })
            .collect(),
        note,
    })
}
