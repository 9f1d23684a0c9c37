//! Which pairs are proposed, and what never is.

use crate::made_up::MadeUp;
use elastico_core::{Seed, SharingMode, WorkloadId};
use elastico_datasets::Dataset;
use elastico_models::{ModelSpec, Profiles};
use elastico_trainer::{
    Candidates, CurveOptions, Error, ExampleOptions, Examples, LearnerKind, LearnerOptions, Measured,
    NextOptions, Proposal, Strategy, TrainOptions, learning_curve, pairs_among, profiles, propose, train,
};
use std::collections::{BTreeMap, BTreeSet};

struct Known {
    dataset: Dataset,
    spec: ModelSpec,
    profiles: Profiles,
    workloads: Vec<WorkloadId>,
}

fn known(learner: LearnerKind) -> Known {
    let dataset = MadeUp { families: 5, repeats: 1, ..MadeUp::default() }.dataset();
    // Every third pair was learnt from: about those the trees have no doubt.
    let rows: Vec<usize> = (0..dataset.pairs.rows()).filter(|row| (row / 2) % 3 == 0).collect();
    let learnt = Dataset { pairs: dataset.pairs.take(&rows), ..dataset.clone() };
    let examples = Examples::from_dataset(&learnt, &ExampleOptions::default()).unwrap();
    let mut settings = LearnerOptions::default().with_trees(30);
    settings.boosting.rounds = 20;
    let trained = train(&examples, &TrainOptions { learner, settings, ..TrainOptions::default() }).unwrap();
    let spec = ModelSpec::from_onnx(&trained.onnx).unwrap();
    let profiles = profiles(&dataset).unwrap();
    let workloads = profiles.iter().map(|profile| profile.workload.clone()).collect();
    Known { dataset, spec, profiles, workloads }
}

impl Known {
    fn propose(
        &self,
        sharing: &[SharingMode],
        measured: &Measured,
        frequency: &BTreeMap<WorkloadId, f64>,
        strategy: Strategy,
    ) -> Result<Vec<Proposal>, Error> {
        let candidates = Candidates {
            pairs: &pairs_among(&self.workloads, sharing),
            sharing,
            device: "h100",
            profiles: &self.profiles,
            measured,
            frequency,
        };
        let options = NextOptions { budget: 12, strategy, ..NextOptions::default() };
        propose(&self.spec, &candidates, &options)
    }
}

fn names(proposals: &[Proposal]) -> Vec<(&str, &str)> {
    proposals.iter().map(|pair| (pair.subject.as_str(), pair.co_runner.as_str())).collect()
}

#[test]
fn no_pair_is_proposed_that_was_measured_from_either_side() {
    let known = known(LearnerKind::ExtraTrees);
    let (sharing, all) = ([SharingMode::TimeSlice], BTreeMap::new());
    let measured = Measured::of(&known.dataset, "h100").unwrap();
    assert_eq!(measured.len(), 55, "ten workloads");
    assert_eq!(Measured::of(&known.dataset, "a100").unwrap(), Measured::default());
    let error = known.propose(&sharing, &measured, &all, Strategy::Active).unwrap_err();
    assert!(matches!(error, Error::NothingLeft { measured: 55 }), "{error:?}");

    let mut measured = Measured::default();
    let mut proposed = BTreeSet::new();
    for round in 0..4 {
        let next = known.propose(&sharing, &measured, &all, Strategy::Active).unwrap();
        assert_eq!(next.len(), 12, "round {round}");
        for pair in next {
            // Seen from the other side, as half of the rows are.
            measured.insert(pair.co_runner.clone(), pair.subject.clone(), SharingMode::TimeSlice);
            assert!(proposed.insert((pair.subject, pair.co_runner)), "proposed twice");
        }
    }
    let last = known.propose(&sharing, &measured, &all, Strategy::Active).unwrap();
    assert_eq!(last.len(), 7, "what is left of 55");
}

#[test]
fn the_same_question_gets_the_same_answer_in_order_of_worth() {
    let known = known(LearnerKind::ExtraTrees);
    let (sharing, measured, all) = ([SharingMode::TimeSlice], Measured::default(), BTreeMap::new());
    for strategy in [Strategy::Active, Strategy::Greedy, Strategy::Random] {
        let first = known.propose(&sharing, &measured, &all, strategy).unwrap();
        assert_eq!(first, known.propose(&sharing, &measured, &all, strategy).unwrap());
        assert!(
            strategy == Strategy::Random || first.is_sorted_by(|a, b| a.score >= b.score),
            "{strategy:?}"
        );
        for pair in &first {
            let product = pair.spread_log * pair.traffic * pair.allowed * pair.variety;
            assert!((pair.score - product).abs() < 1e-12, "{pair:?}");
            assert!(pair.slowdown_upper >= pair.slowdown && pair.allowed > 0.0 && pair.allowed <= 1.0);
        }
    }
}

#[test]
fn workloads_that_never_occur_are_not_paired_and_frequent_ones_come_first() {
    let known = known(LearnerKind::ExtraTrees);
    let (sharing, measured) = ([SharingMode::TimeSlice], Measured::default());
    let count = |index: usize, count: f64| (known.workloads[index].clone(), count);
    let jobs = BTreeMap::from([count(0, 90.0), count(1, 9.0), count(2, 1.0), count(3, 0.0)]);
    let next = known.propose(&sharing, &measured, &jobs, Strategy::Active).unwrap();
    assert_eq!(next.len(), 6, "three workloads");
    let frequent = known.workloads[0].as_str();
    let [first, ..] = names(&next)[..] else { panic!("nothing is proposed") };
    assert!(first.0 == frequent || first.1 == frequent, "{next:?}");
    assert!((next.iter().map(|pair| pair.traffic).fold(0.0, f64::max) - 3.6 * 3.6).abs() < 1e-9);
}

#[test]
fn under_uneven_shares_both_orders_are_pairs() {
    let known = known(LearnerKind::ExtraTrees);
    let even: SharingMode = "mps(0.5,0.5)".parse().unwrap();
    let uneven: SharingMode = "mps(0.3,0.7)".parse().unwrap();
    assert_eq!(pairs_among(&known.workloads, &[even]).len(), 55);
    assert_eq!(pairs_among(&known.workloads, std::slice::from_ref(&uneven)).len(), 100);
    let mut measured = Measured::default();
    let (a, b) = (&known.workloads[0], &known.workloads[1]);
    measured.insert(a.clone(), b.clone(), uneven.clone());
    assert!(measured.contains(b, a, &uneven.swapped()) && !measured.contains(b, a, &uneven));
}

#[test]
fn a_model_that_cannot_doubt_is_refused_and_unknown_workloads_are_named() {
    let mut known = known(LearnerKind::Boosting);
    let (sharing, measured, all) = ([SharingMode::TimeSlice], Measured::default(), BTreeMap::new());
    let error = known.propose(&sharing, &measured, &all, Strategy::Active).unwrap_err();
    assert!(error.to_string().contains("`boosting` does not say how sure it is"), "{error}");
    known.workloads.push(WorkloadId::new("stranger.v0").unwrap());
    let error = known.propose(&sharing, &measured, &all, Strategy::Active).unwrap_err();
    assert!(format!("{:?}", std::error::Error::source(&error)).contains("stranger.v0"), "{error:?}");
}

#[test]
fn a_curve_has_every_point_and_refuses_more_pairs_than_there_are() {
    let dataset = MadeUp { families: 6, repeats: 1, ..MadeUp::default() }.dataset();
    let options = CurveOptions {
        start: 6,
        batch: 6,
        steps: 2,
        seeds: vec![Seed(1), Seed(2)],
        settings: LearnerOptions::default().with_trees(20),
        ..CurveOptions::default()
    };
    let curve = learning_curve(&dataset, &ExampleOptions::default(), &options).unwrap();
    assert_eq!((curve.pairs_total, curve.test_pairs_total, curve.counts()), (78, 23, vec![6, 12, 18]));
    assert_eq!(curve.points.len(), 3 * 2 * 3);
    // Before the first choice all orders are the same model.
    let start = |strategy| curve.values(strategy, 6, |point| Some(point.mape));
    assert_eq!(start(Strategy::Active), start(Strategy::Random));
    assert_eq!(curve, learning_curve(&dataset, &ExampleOptions::default(), &options).unwrap());
    let most = curve.values(Strategy::Random, 6, |point| Some(point.mape)).into_iter().fold(0.0, f64::max);
    assert_eq!(curve.pairs_for(Strategy::Random, most), Some(6.0));
    assert_eq!(curve.pairs_for(Strategy::Random, 0.0), None);

    let more = CurveOptions { batch: 60, ..options };
    let error = learning_curve(&dataset, &ExampleOptions::default(), &more).unwrap_err();
    assert!(matches!(error, Error::Setting { value, .. } if value > 78.0), "{error:?}");
}
