//! What stands behind the scores.

use crate::made_up::{MadeUp, assemble};
use elastico_trainer::{
    EvaluateOptions, ExampleOptions, Examples, LearnerKind, NoiseSource, Split, evaluate, evaluate_in_detail,
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
    let (evaluation, details) = evaluate_in_detail(&examples, &options()).unwrap();
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
        let levels: Vec<_> = details.reliability.iter().filter(|level| level.split == split).collect();
        assert_eq!(levels.len(), 6);
        // Where there are too few groups for a promise the bound is another quantile, and may lie lower.
        let rises = |pair: &[&elastico_trainer::Reliability]| {
            pair[0].is_guaranteed != pair[1].is_guaranteed || pair[0].achieved <= pair[1].achieved + 1e-12
        };
        assert!(levels.windows(2).all(rises));
        assert!(levels.iter().all(|level| level.least <= level.achieved && level.factor >= 1.0));
    }
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
        evaluate_in_detail(&examples, &options()).unwrap().1.noise
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
