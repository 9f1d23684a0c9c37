//! Bad input: one clear error each, or a row with a reason.

use crate::made_up::{MadeUp, assemble};
use elastico_core::{DeviceKind, Hint};
use elastico_datasets::{IsolatedRow, PairRow};
use elastico_trainer::{
    Error, EvaluateOptions, ExampleOptions, Examples, Identities, LearnerKind, LearnerOptions, Split,
    TrainOptions, evaluate, rules, train,
};

fn from_rows(change: impl Fn(&mut Vec<IsolatedRow>, &mut Vec<PairRow>)) -> Result<Examples, Error> {
    let (mut isolated, mut pairs) = MadeUp { families: 3, ..MadeUp::default() }.rows();
    change(&mut isolated, &mut pairs);
    Examples::from_dataset(&assemble(&isolated, &pairs), &ExampleOptions::default())
}

fn message(change: impl Fn(&mut Vec<IsolatedRow>, &mut Vec<PairRow>)) -> String {
    from_rows(change).unwrap_err().to_string()
}

#[test]
fn rows_that_cannot_be_used_are_named() {
    assert_eq!(
        message(|_, pairs| pairs[3].slowdown_ratio = f64::NAN),
        "row 3 of `pairs` has outcome `ok`, but `slowdown_ratio` is NaN"
    );
    assert!(message(|_, pairs| pairs[4].slowdown_ratio = -1.0).contains("row 4 of `pairs`"));
    let examples =
        from_rows(|_, pairs| (pairs[4].slowdown_ratio, pairs[5].slowdown_ratio) = (0.4, 1e9)).unwrap();
    assert_eq!(examples.out_of_range(), 2);
    assert_eq!(examples.origin.left_out["slowdown_ratio outside 0.5 to 1000"], 2);
    assert_eq!(
        message(|_, pairs| pairs[5].sharing = "mpz".into()),
        "row 5 of `pairs`: column `sharing` holds `mpz`"
    );
    assert_eq!(
        message(|_, pairs| pairs[6].device = String::new()),
        "row 6 of `pairs`: column `device` holds nothing"
    );
    assert!(message(|_, pairs| pairs[0].outcome = "okay".into()).contains("column `outcome` holds `okay`"));
    assert!(message(|isolated, _| isolated[0].kind = "trainning".into()).contains("row 0 of `isolated`"));
    assert_eq!(
        message(|isolated, _| isolated.retain(|row| row.workload != "family_00.v0")),
        "row 0 of `pairs`: `family_00.v0` has no usable row in `isolated` for device `h100`"
    );
}

#[test]
fn nothing_to_learn_from_says_why() {
    let reason = message(|_, pairs| pairs.clear());
    assert_eq!(reason, "no row of `pairs` can be learnt from: the table is empty");
    let reason = message(|_, pairs| pairs.iter_mut().for_each(|row| row.outcome = "oom".into()));
    assert!(reason.ends_with("84 x oom"), "{reason}");
    let same = |isolated: &mut Vec<IsolatedRow>, _: &mut Vec<PairRow>| {
        for row in isolated {
            (row.step_seconds, row.sm_active_ratio, row.dram_throughput_ratio) = (1.0, 0.5, 0.5);
        }
    };
    let (mut isolated, mut pairs) = MadeUp { families: 3, ..MadeUp::default() }.rows();
    same(&mut isolated, &mut pairs);
    let options = ExampleOptions { identities: Identities::Never, ..ExampleOptions::default() };
    let reason = Examples::from_dataset(&assemble(&isolated, &pairs), &options).unwrap_err().to_string();
    assert!(reason.starts_with("none of the "), "constant features teach nothing: {reason}");
}

#[test]
fn device_kinds_do_not_mix_unasked() {
    let (mut isolated, mut pairs) = MadeUp::default().rows();
    let real = MadeUp { device_kind: DeviceKind::Cuda, ..MadeUp::default() }.rows();
    isolated.extend(real.0);
    pairs.extend(real.1);
    let dataset = assemble(&isolated, &pairs);
    let error = Examples::from_dataset(&dataset, &ExampleOptions::default()).unwrap_err();
    assert!(error.to_string().contains("840 cuda, 840 simulated"), "{error}");
    assert!(error.hint().is_some());
    let of = |kinds: &[DeviceKind]| {
        let options = ExampleOptions { device_kinds: Some(kinds.to_vec()), ..ExampleOptions::default() };
        Examples::from_dataset(&dataset, &options)
    };
    assert_eq!(of(&[DeviceKind::Cuda]).unwrap().rows(), 840);
    let both = of(&[DeviceKind::Cuda, DeviceKind::Simulated]).unwrap();
    assert_eq!((both.rows(), both.origin.device_kinds.len()), (1680, 2));
    assert!(both.is_simulated());
    assert!(matches!(of(&[DeviceKind::Cpu]), Err(Error::NoExamples { .. })));
}

fn few() -> EvaluateOptions {
    let learners = vec![LearnerKind::Mean, LearnerKind::ProcessorSharing, LearnerKind::ExtraTrees];
    EvaluateOptions { learners, ..EvaluateOptions::default() }
}

fn ten_trees() -> TrainOptions {
    TrainOptions { settings: LearnerOptions::default().with_trees(10), ..TrainOptions::default() }
}

/// Imported rows of two harnesses.
fn two_harnesses() -> elastico_datasets::Dataset {
    let made = MadeUp { families: 3, device_kind: DeviceKind::Imported, ..MadeUp::default() };
    let (isolated, mut pairs) = made.rows();
    for row in &mut pairs {
        if row.repeat_total > 0.0 {
            row.source = "other".into();
            row.slowdown_ratio *= 1.2;
            row.slowdown_upper_ratio *= 1.3;
        }
    }
    assemble(&isolated, &pairs)
}

#[test]
fn harnesses_do_not_mix_unasked_and_are_told_apart_when_they_do() {
    let dataset = two_harnesses();
    let error = Examples::from_dataset(&dataset, &ExampleOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`pairs` mixes harnesses (42 of made up, 42 of other), which disagree by more than their noise"
    );
    assert!(error.hint().unwrap().contains("--mix-harnesses"));
    let options = ExampleOptions { mix_harnesses: true, ..ExampleOptions::default() };
    let examples = Examples::from_dataset(&dataset, &options).unwrap();
    assert_eq!(examples.groups.harnesses, ["made up", "other"]);
    let names = examples.schema.names();
    let place = |name: &str| names.iter().position(|known| known == name).unwrap();
    let (own, other) = (place("harness=made up"), place("harness=other"));
    for row in 0..examples.rows() {
        let is_other = examples.groups.harness[row] == 1;
        assert_eq!(examples.row(row)[other] > 0.5, is_other);
        assert_eq!(examples.row(row)[own] > 0.5, !is_other);
    }
    let trained = train(&examples, &ten_trees()).unwrap();
    assert_eq!(trained.metadata.facts["harnesses"], "made up, other");
    assert!(trained.card.contains("Rows of several harnesses"));
    // A model that tells harnesses apart is given data of one: its feature is still set.
    let one = MadeUp { families: 3, device_kind: DeviceKind::Imported, ..MadeUp::default() }.dataset();
    let one = Examples::for_schema(&one, &ExampleOptions::default(), &examples.schema).unwrap();
    assert!((0..one.rows()).all(|row| (one.row(row)[own], one.row(row)[other]) == (1.0, 0.0)));
}

#[test]
fn slowdowns_at_a_share_do_not_mix_with_others() {
    let error = from_rows(|_, pairs| pairs[0].flags = Some("drift;slowdown_at_share".into())).unwrap_err();
    assert!(matches!(error, Error::MixedLabels { at_share: 1, others: 83 }), "{error}");
    assert!(error.hint().is_some());
    let all = |_: &mut Vec<IsolatedRow>, pairs: &mut Vec<PairRow>| {
        for row in pairs {
            row.flags = Some("slowdown_at_share".into());
        }
    };
    assert!(from_rows(all).is_ok());
}

#[test]
fn one_sided_rows_need_no_profile_of_the_co_runner() {
    let one_sided = |isolated: &mut Vec<IsolatedRow>, pairs: &mut Vec<PairRow>| {
        isolated.retain(|row| row.family != "family_02");
        pairs.retain(|row| row.co_runner_family == "family_02" && row.subject_family != "family_02");
        for row in pairs {
            row.flags = Some("one_sided".into());
            row.co_runner_kind = "stressor".into();
        }
    };
    let examples = from_rows(one_sided).unwrap();
    assert_eq!(examples.rows(), 16);
    assert!(!examples.schema.names().iter().any(|name| name == "co_runner_step_seconds"));
    let (mut isolated, mut pairs) = MadeUp { families: 3, ..MadeUp::default() }.rows();
    one_sided(&mut isolated, &mut pairs);
    let profiles = elastico_trainer::profiles(&assemble(&isolated, &pairs)).unwrap();
    let co_runner = profiles.iter().find(|profile| profile.family.as_str() == "family_02").unwrap();
    assert!(co_runner.fields.is_empty() && co_runner.shares.is_empty());
}

#[test]
fn one_family_still_gets_what_is_possible() {
    let examples =
        from_rows(|_, pairs| pairs.retain(|row| row.pair_id.matches("family_00").count() == 2)).unwrap();
    let evaluation = evaluate(&examples, &few()).unwrap();
    let row = |split| evaluation.row(split, LearnerKind::ExtraTrees).unwrap();
    assert!(row(Split::RandomPair).scores.is_some());
    assert!(row(Split::UnseenFamily).reason.as_ref().unwrap().contains("one family"));
    let trained = train(&examples, &ten_trees()).unwrap();
    assert!(trained.card.contains("one family") && trained.card.contains("nothing for each of them"));
    assert!(rules(&examples, 1.2).is_ok());
}

#[test]
fn a_single_pair_cannot_be_judged() {
    let examples =
        from_rows(|_, pairs| pairs.retain(|row| row.pair_id == "family_00.v0 | family_00.v1")).unwrap();
    assert!(matches!(train(&examples, &TrainOptions::default()), Err(Error::NoSplit { .. })));
    assert!(matches!(rules(&examples, 1.2), Err(Error::NoSplit { .. })));
    let evaluation = evaluate(&examples, &few()).unwrap();
    assert!(evaluation.rows.iter().all(|row| row.scores.is_none() && row.reason.is_some()));
}

#[test]
fn equal_slowdowns_everywhere_are_learnt_as_such() {
    let examples = from_rows(|_, pairs| pairs.iter_mut().for_each(|row| row.slowdown_ratio = 1.5)).unwrap();
    let evaluation = evaluate(&examples, &few()).unwrap();
    let scores =
        evaluation.row(Split::UnseenFamily, LearnerKind::ExtraTrees).unwrap().scores.as_ref().unwrap();
    assert!(scores.mape < 1e-6);
    assert_eq!((scores.r2, scores.safe_precision), (None, None));
    assert!(train(&examples, &ten_trees()).is_ok());
    assert!(rules(&examples, 1.2).is_ok());
}

#[test]
fn settings_outside_their_range_are_refused() {
    let examples = from_rows(|_, _| ()).unwrap();
    let refused = |options: EvaluateOptions| evaluate(&examples, &options).unwrap_err().to_string();
    let plain = EvaluateOptions::default;
    assert_eq!(
        refused(EvaluateOptions { limit: 1.0, ..plain() }),
        "`limit` is 1, it must be a slowdown above 1"
    );
    let forest = |change: fn(&mut LearnerOptions)| {
        let mut settings = LearnerOptions::default();
        change(&mut settings);
        refused(EvaluateOptions { settings, ..plain() })
    };
    assert!(forest(|settings| settings.extra_trees.trees = 0).contains("`extra_trees.trees` is 0"));
    assert!(forest(|settings| settings.random_forest.min_leaf = 0).contains("`random_forest.min_leaf` is 0"));
    assert!(
        forest(|settings| settings.extra_trees.max_depth = Some(1)).contains("`extra_trees.max_depth` is 1")
    );
    let level = TrainOptions { level: 1.0, ..TrainOptions::default() };
    assert!(train(&examples, &level).unwrap_err().to_string().contains("`level` is 1, it must be"));
    assert!(rules(&examples, f64::NAN).is_err());
}
