//! What stands behind the scores.

use crate::made_up::{MadeUp, assemble};
use elastico_trainer::{
    BoundRow, EvaluateOptions, ExampleOptions, Examples, LearnerKind, Newcomer, NoiseSource, Split, Stage,
    evaluate, evaluate_in_detail,
};

fn options() -> EvaluateOptions {
    EvaluateOptions {
        learners: vec![LearnerKind::Mean, LearnerKind::ProcessorSharing, LearnerKind::RuleTree],
        splits: vec![Split::RandomPair, Split::UnseenFamily, Split::UnseenDevice],
        ..EvaluateOptions::default()
    }
}

#[test]
fn details_belong_to_the_scores() {
    let dataset = MadeUp::default().dataset();
    let examples = Examples::from_dataset(&dataset, &ExampleOptions::default()).unwrap();
    let (evaluation, details) = evaluate_in_detail(&examples, &options(), &mut |_| {}).unwrap();
    assert_eq!(evaluation, evaluate(&examples, &options()).unwrap());
    // No preferred learner was asked for: the last that predicts. One device leaves nothing to hold out.
    let shown: Vec<_> = details.shown.iter().map(|(split, learner)| (*split, *learner)).collect();
    let formula = LearnerKind::ProcessorSharing;
    assert_eq!(shown, [(Split::RandomPair, formula), (Split::UnseenFamily, formula)]);
    for (split, learner) in shown {
        let row = evaluation.row(split, learner).unwrap();
        let points: Vec<_> = details.predictions.iter().filter(|point| point.split == split).collect();
        assert_eq!(points.len() as u64, row.n);
        let errors: Vec<f64> =
            points.iter().map(|point| (point.predicted - point.measured).abs() / point.measured).collect();
        assert!((elastico_core::mean(&errors) - row.scores.as_ref().unwrap().mape).abs() < 1e-12);
        assert!(points.iter().any(|point| point.in_domain));
    }
    let bounds: Vec<_> = evaluation.bounds.iter().filter(|bound| bound.learner == formula).collect();
    assert_eq!(bounds.len(), options().levels.len());
    assert!(bounds.iter().all(|bound| bound.split == Split::UnseenFamily));
    let rises = |pair: &[&BoundRow]| {
        let [a, b] = [pair[0].calibration, pair[1].calibration];
        a.achieved_coverage <= b.achieved_coverage + 1e-12
    };
    assert!(bounds.windows(2).all(rises));
    for bound in bounds {
        let found = bound.calibration;
        assert!(found.least_coverage <= found.achieved_coverage && found.offset_log >= 0.0, "{found:?}");
    }
}

#[test]
fn each_learner_on_each_fold_is_announced() {
    let examples = Examples::from_dataset(&MadeUp::default().dataset(), &ExampleOptions::default()).unwrap();
    let options = EvaluateOptions { few_shot: true, ..options() };
    let (mut fits, mut rehearsals) = (Vec::new(), Vec::new());
    let mut watch = |stage: &Stage<'_>| match *stage {
        Stage::Fit { split, learner, fold, folds, .. } => fits.push((split, learner, fold, folds)),
        Stage::Rehearse { newcomer, learner } => rehearsals.push((newcomer, learner)),
    };
    let (evaluation, _) = evaluate_in_detail(&examples, &options, &mut watch).unwrap();
    for row in evaluation.rows.iter().filter(|row| row.reason.is_none()) {
        let of_row: Vec<_> = fits
            .iter()
            .filter(|(split, learner, ..)| (*split, *learner) == (row.split, row.learner))
            .collect();
        assert_eq!(of_row.len() as u64, row.folds);
        assert!(
            of_row
                .iter()
                .enumerate()
                .all(|(index, (.., fold, folds))| { index == *fold && *folds as u64 == row.folds })
        );
    }
    let learners = [LearnerKind::Mean, LearnerKind::ProcessorSharing];
    assert_eq!(rehearsals, learners.map(|learner| (Newcomer::Family, learner)));
    assert!(evaluation.few_shot.iter().all(|row| learners.contains(&row.learner)));
}

#[test]
fn noise_is_what_two_measurements_differ_by_and_copies_are_none() {
    let of = |copy: bool| {
        let (isolated, mut pairs) = MadeUp { families: 4, repeats: 6, ..MadeUp::default() }.rows();
        if copy {
            // Both sides of a workload beside itself are written from one number.
            for row in &mut pairs {
                if row.subject_workload == row.co_runner_workload {
                    row.slowdown_ratio = 1.5;
                    (row.slowdown_lower_ratio, row.slowdown_upper_ratio) = (f64::NAN, f64::NAN);
                }
            }
        }
        let examples =
            Examples::from_dataset(&assemble(&isolated, &pairs), &ExampleOptions::default()).unwrap();
        evaluate(&examples, &options()).unwrap().noise
    };
    let noise = of(false);
    assert_eq!(noise.len(), 2);
    // Uniform over 1 %: a deviation of 0.01 / sqrt(12).
    let expected = 0.01 / 12f64.sqrt();
    for noise in &noise {
        assert!((noise.deviation / expected - 1.0).abs() < 0.15, "{noise:?}");
        let (lower, upper) = noise.interval.unwrap();
        assert!(lower < noise.mape_floor && noise.mape_floor < upper);
    }
    let sources: Vec<NoiseSource> = of(true).iter().map(|noise| noise.source).collect();
    assert_eq!(sources, [NoiseSource::Repeats]);
}
