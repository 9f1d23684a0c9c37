//! From a dataset to a verified file, a card and rules.

use crate::made_up::{MadeUp, assemble};
use elastico_core::{Seed, SharingMode};
use elastico_models::{Backend, load_bytes};
use elastico_trainer::{
    EvaluateOptions, ExampleOptions, Examples, Identities, LearnerKind, LearnerOptions, Rule, Split,
    TrainOptions, evaluate, profiles, rules, train,
};

fn examples(made_up: &MadeUp) -> Examples {
    Examples::from_dataset(&made_up.dataset(), &ExampleOptions::default()).unwrap()
}

fn quick() -> TrainOptions {
    let mut settings = LearnerOptions::default().with_trees(40);
    settings.boosting.rounds = 50;
    TrainOptions { settings, ..TrainOptions::default() }
}

#[test]
fn features_are_what_varies() {
    let with_counters = examples(&MadeUp::default());
    let names = with_counters.schema.names();
    assert_eq!(
        names,
        [
            "subject_step_seconds",
            "subject_sm_active_ratio",
            "subject_dram_throughput_ratio",
            "co_runner_step_seconds",
            "co_runner_sm_active_ratio",
            "co_runner_dram_throughput_ratio"
        ]
    );
    assert_eq!(with_counters.rows(), 20 * 21 / 2 * 2 * 2);
    assert!(with_counters.origin.has_counters);
    assert_eq!(with_counters.origin.pairs_total, 210);
    assert!((elastico_core::mean(with_counters.weights.as_ref().unwrap()) - 1.0).abs() < 1e-9);

    let without = examples(&MadeUp { counters: false, ..MadeUp::default() });
    assert!(without.schema.names().iter().any(|name| name == "subject_family=family_03"));
    let options = ExampleOptions { identities: Identities::Never, ..ExampleOptions::default() };
    let dataset = MadeUp { counters: false, ..MadeUp::default() }.dataset();
    let anonymous = Examples::from_dataset(&dataset, &options).unwrap();
    assert_eq!(anonymous.schema.names(), ["subject_step_seconds", "co_runner_step_seconds"]);
}

#[test]
fn a_row_is_what_the_model_will_encode() {
    let dataset = MadeUp::default().dataset();
    let examples = Examples::from_dataset(&dataset, &ExampleOptions::default()).unwrap();
    let profiles = profiles(&dataset).unwrap();
    let subject = dataset.pairs.text("subject_workload").unwrap();
    let co_runner = dataset.pairs.text("co_runner_workload").unwrap();
    for row in (0..examples.rows()).step_by(37) {
        let mut encoded = Vec::new();
        examples.schema.encode(
            profiles.get(subject.get(row).unwrap(), "h100").unwrap(),
            profiles.get(co_runner.get(row).unwrap(), "h100").unwrap(),
            &SharingMode::TimeSlice,
            &mut encoded,
        );
        assert_eq!(examples.row(row), encoded);
    }
    let profile = profiles.get("family_00.v0", "h100").unwrap();
    assert!((profile.partition_effect_at(0.5).unwrap() - 1.4).abs() < 1e-9);
}

#[test]
fn evaluation_puts_the_formula_first_where_it_is_the_law() {
    let examples = examples(&MadeUp::default());
    let options =
        EvaluateOptions { settings: LearnerOptions::default().with_trees(40), ..EvaluateOptions::default() };
    let evaluation = evaluate(&examples, &options).unwrap();
    let mape = |split, learner| evaluation.row(split, learner).unwrap().scores.as_ref().unwrap().mape;
    for split in [Split::RandomPair, Split::UnseenFamily] {
        assert!(mape(split, LearnerKind::ProcessorSharing) < 0.005);
        assert!(mape(split, LearnerKind::ExtraTrees) < 0.5 * mape(split, LearnerKind::Mean));
    }
    let row = evaluation.row(Split::UnseenDevice, LearnerKind::ExtraTrees).unwrap();
    assert_eq!((row.scores.as_ref(), row.reason.as_deref()), (None, Some("all rows are of one device")));
    let json = serde_json::to_string(&evaluation).unwrap();
    let again: elastico_trainer::Evaluation = serde_json::from_str(&json).unwrap();
    // The parser may be off in the last bit of a number, so no equality.
    assert_eq!((again.schema.as_str(), again.rows.len()), ("elastico.evaluation/1", evaluation.rows.len()));
    assert!(again.rows.iter().zip(&evaluation.rows).all(|(a, b)| (a.learner, a.n) == (b.learner, b.n)));
}

#[test]
fn trained_bytes_are_reproducible_and_say_what_they_are() {
    let examples = examples(&MadeUp::default());
    let trained = train(&examples, &quick()).unwrap();
    assert_eq!(train(&examples, &quick()).unwrap().onnx, trained.onnx);
    assert_ne!(train(&examples, &TrainOptions { seed: Seed(1), ..quick() }).unwrap().onnx, trained.onnx);

    let predictor = load_bytes(&trained.onnx, Backend::Native).unwrap();
    assert_eq!(predictor.metadata(), &trained.metadata);
    let predictions = predictor.predict(&examples.features).unwrap();
    let errors: Vec<f64> = predictions
        .iter()
        .zip(&examples.slowdown)
        .map(|(prediction, slowdown)| (prediction.slowdown.get() / slowdown - 1.0).abs())
        .collect();
    assert!(elastico_core::mean(&errors) < 0.02);
    assert!(
        predictions.iter().all(|prediction| prediction.in_domain && prediction.upper >= prediction.slowdown)
    );

    let scores = &trained.metadata.scores;
    assert!(scores["unseen_family"]["mape"] < scores["unseen_family.mean"]["mape"]);
    assert!((0.7..0.9).contains(&trained.calibration.guaranteed_level));
    assert!(trained.calibration.achieved_coverage > 0.8);
    let unseen = trained.predictions.iter().filter(|row| row.split == Split::UnseenFamily);
    let (covered, total) = unseen
        .fold((0, 0), |(covered, total), row| (covered + usize::from(row.measured <= row.upper), total + 1));
    assert!(covered * 10 >= total * 9 - 1, "{covered} of {total}");
    assert!(trained.card.contains("**Trained on simulated data.**"));
    insta::assert_snapshot!("card", masked(&trained.card));
}

/// Numbers that may move with the arithmetic of a library stand as `#`.
fn masked(card: &str) -> String {
    let mut out = String::new();
    let mut in_number = false;
    for letter in card.chars() {
        let part = letter.is_ascii_digit() || (in_number && matches!(letter, '.' | 'e' | '-'));
        if !part {
            out.push(letter);
        } else if !in_number {
            out.push('#');
        }
        in_number = part;
    }
    let digest =
        |line: &str| line.starts_with("| content digest").then(|| "| content digest | … |".to_owned());
    out.lines().map(|line| digest(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

#[test]
fn forests_shrink_until_the_file_fits() {
    let examples = examples(&MadeUp::default());
    let size = |max_bytes| {
        let trained = train(&examples, &TrainOptions { max_bytes, ..quick() }).unwrap();
        assert!(
            trained.onnx.len() <= max_bytes && trained.onnx.len() * 3 > max_bytes,
            "{}",
            trained.onnx.len()
        );
        let fact = |name: &str| trained.metadata.facts[name].parse::<usize>().unwrap();
        (fact("trees"), fact("min_leaf"))
    };
    let (trees, min_leaf) = size(train(&examples, &quick()).unwrap().onnx.len() * 7 / 10);
    assert!((20..40).contains(&trees) && min_leaf == 1, "{trees} trees, leaves of {min_leaf}");
    let (trees, min_leaf) = size(120_000);
    assert!(trees == 20 && min_leaf > 1, "{trees} trees, leaves of {min_leaf}");
    let error = train(&examples, &TrainOptions { max_bytes: 1_000, ..quick() }).unwrap_err();
    assert!(matches!(error, elastico_trainer::Error::TooLarge { limit: 1_000, .. }), "{error}");
}

#[test]
fn plain_learners_export_too() {
    let examples = examples(&MadeUp::default());
    for learner in [
        LearnerKind::Mean,
        LearnerKind::ProcessorSharing,
        LearnerKind::Saturation,
        LearnerKind::ElasticNet,
        LearnerKind::RandomForest,
        LearnerKind::Boosting,
    ] {
        let trained = train(&examples, &TrainOptions { learner, ..quick() }).unwrap();
        assert_eq!(trained.metadata.learner, learner.as_str());
        assert!(trained.verification.native_difference_ratio < 1e-5);
    }
}

#[test]
fn what_no_file_can_hold_is_refused_with_the_reason() {
    let examples = examples(&MadeUp::default());
    for (learner, reason) in [
        (LearnerKind::BiasFilter, "knows workloads by name"),
        (LearnerKind::MatrixFactorisation, "knows workloads by name"),
        (LearnerKind::RuleTree, "safe or not"),
        (LearnerKind::GpuLets, "`subject_l2_throughput_ratio` is not a feature"),
    ] {
        let error = train(&examples, &TrainOptions { learner, ..quick() }).unwrap_err().to_string();
        assert!(error.contains(reason), "{learner}: {error}");
    }
}

#[test]
fn the_rule_tree_is_judged_on_its_decision_only() {
    let examples = examples(&MadeUp { law: |a, b| if a + b > 1.1 { 1.5 } else { 1.0 }, ..MadeUp::default() });
    let options = EvaluateOptions { learners: vec![LearnerKind::RuleTree], ..EvaluateOptions::default() };
    let evaluation = evaluate(&examples, &options).unwrap();
    let row = evaluation.row(Split::UnseenFamily, LearnerKind::RuleTree).unwrap();
    let decision = row.decision.as_ref().unwrap();
    assert!(row.scores.is_none() && row.reason.is_none());
    assert!(decision.safe_precision.unwrap() > 0.9 && decision.safe_recall.unwrap() > 0.9, "{decision:?}");
}

#[test]
fn auto_is_chosen_inside_the_training_part_and_says_so() {
    let examples = examples(&MadeUp::default());
    let mut settings = LearnerOptions::default().with_trees(20);
    settings.candidates = vec![LearnerKind::Mean, LearnerKind::ExtraTrees];
    let options = TrainOptions { learner: LearnerKind::Auto, settings, ..TrainOptions::default() };
    let trained = train(&examples, &options).unwrap();
    assert_eq!(trained.metadata.learner, "extra_trees");
    let chosen = &trained.metadata.facts["chosen"];
    assert!(chosen.contains("unseen_family folds") && chosen.contains("mean: "), "{chosen}");
    assert!(trained.card.contains(chosen));
    let row = trained.evaluation.row(Split::UnseenFamily, LearnerKind::Auto).unwrap();
    assert!(row.scores.as_ref().unwrap().mape < 0.05);
}

#[test]
fn rules_read_like_the_law() {
    let examples = examples(&MadeUp { law: |a, b| if a + b > 1.1 { 1.5 } else { 1.0 }, ..MadeUp::default() });
    let rules = rules(&examples, 1.2).unwrap();
    assert!(rules.safe_precision.unwrap() > 0.9 && rules.safe_recall.unwrap() > 0.9, "{rules}");
    assert_eq!(rules.split, Split::UnseenFamily);
    let Rule::If { feature, at_most, then, .. } = &rules.root else { panic!("{rules}") };
    assert_eq!(feature, "sm_active_sum_ratio");
    assert!((at_most - 1.1).abs() < 0.05);
    assert!(matches!(&**then, Rule::Verdict { safe: true, .. }), "{rules}");
    insta::assert_snapshot!("rules", masked(&rules.to_string()));
    let json = serde_json::to_string(&rules).unwrap();
    let again: elastico_trainer::Rules = serde_json::from_str(&json).unwrap();
    assert_eq!(again.to_string(), rules.to_string());
}

#[test]
fn samples_keep_pairs_whole() {
    let examples = examples(&MadeUp::default());
    let sample = examples.sample(200, Seed(4));
    assert!(sample.rows() <= 200 && sample.rows() > 190);
    let mut counts = std::collections::BTreeMap::new();
    for pair in &sample.groups.pair {
        *counts.entry(pair).or_insert(0) += 1;
    }
    assert!(counts.values().all(|count| *count == 4), "both directions and both repeats");
    assert_eq!(examples.sample(200, Seed(4)).slowdown, sample.slowdown);
    assert_eq!(examples.sample(10_000, Seed(4)).rows(), examples.rows());
}

#[test]
fn flagged_rows_are_left_out_and_counted() {
    let (isolated, mut pairs) = MadeUp::default().rows();
    pairs[0].outcome = "drift".into();
    pairs[1].outcome = "oom".into();
    pairs[1].slowdown_ratio = f64::NAN;
    let dataset = assemble(&isolated, &pairs);
    let plain = Examples::from_dataset(&dataset, &ExampleOptions::default()).unwrap();
    assert_eq!(plain.rows(), pairs.len() - 2);
    assert_eq!(plain.origin.left_out["drift"] + plain.origin.left_out["oom"], 2);
    let options = ExampleOptions { include_flagged: true, ..ExampleOptions::default() };
    assert_eq!(Examples::from_dataset(&dataset, &options).unwrap().rows(), pairs.len() - 1);
}
