//! How fast the error falls with the number of measured pairs, by the order in which they are measured.

use crate::active::{Candidates, NextOptions, Strategy, propose};
use crate::metrics::safe_scores;
use crate::{Error, ExampleOptions, Examples, LearnerKind, LearnerOptions, Measured, fit, profiles};
use elastico_core::parallel::map;
use elastico_core::{DeviceKind, Estimate, Seed, SharingMode, WorkloadId, WorkloadKind, mean};
use elastico_datasets::Dataset;
use elastico_models::{Backend, ModelMetadata, ModelSpec, Profiles, export, fit_domain, load_bytes, physics};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How to draw the curve.
#[derive(Debug, Clone)]
pub struct CurveOptions {
    /// Pairs drawn at random before the first choice.
    pub start: usize,
    /// Pairs between two fits.
    pub batch: usize,
    /// Choices.
    pub steps: usize,
    /// Of all pairs, the share that is never measured and judged on, within 0 and 1.
    pub test_ratio: f64,
    /// A slowdown up to this counts as safe to share.
    pub limit: f64,
    /// Each seed has test pairs and a start of its own, the same for every strategy.
    pub seeds: Vec<Seed>,
    /// The orders to compare.
    pub strategies: Vec<Strategy>,
    /// As [`NextOptions::allowed_weight`].
    pub allowed_weight: f64,
    /// Who learns; its trees must be averaged.
    pub learner: LearnerKind,
    /// How it is set.
    pub settings: LearnerOptions,
}

impl Default for CurveOptions {
    fn default() -> Self {
        Self {
            start: 20,
            batch: 20,
            steps: 6,
            test_ratio: 0.3,
            limit: 1.2,
            seeds: (0..10).map(Seed).collect(),
            strategies: vec![Strategy::Random, Strategy::Greedy, Strategy::Active],
            allowed_weight: NextOptions::default().allowed_weight,
            learner: LearnerKind::ExtraTrees,
            settings: LearnerOptions::default(),
        }
    }
}

/// One model on the pairs that are never measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The order.
    pub strategy: Strategy,
    /// The seed.
    pub seed: Seed,
    /// Pairs measured.
    pub pairs: usize,
    /// Mean of |predicted − measured| ÷ measured over the rows of the test pairs.
    pub mape: f64,
    /// Of the test rows predicted at or under the limit, the share that is; absent where none is predicted so.
    pub safe_precision: Option<f64>,
    /// Of the test rows at or under the limit, the share predicted so; absent where there is none.
    pub safe_recall: Option<f64>,
}

/// Learning curves by strategy and seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearningCurve {
    /// Kinds of devices of the rows; a curve over simulated rows says nothing about a real GPU.
    pub device_kinds: Vec<DeviceKind>,
    /// All pairs of the dataset, those judged on among them.
    pub pairs_total: usize,
    /// Pairs judged on.
    pub test_pairs_total: usize,
    /// The points: by seed, strategy and number of pairs.
    pub points: Vec<CurvePoint>,
}

/// Replays a dataset as if its pairs were measured bit by bit in different orders.
///
/// The dataset must be of one device. A pair counts with all its repeats under all its sharing modes; pairs with an idle
/// co-runner take no part. After each batch the learner is fitted anew on what was measured so far.
///
/// # Determinism
/// The same dataset and options give the same curve, on any number of cores.
///
/// # Errors
/// Those of [`Examples::from_dataset`], [`fit()`] and [`propose`]; [`Error::Setting`] for options outside their range or more
/// pairs than there are.
pub fn learning_curve(
    dataset: &Dataset,
    rows: &ExampleOptions,
    options: &CurveOptions,
) -> Result<LearningCurve, Error> {
    let pool = Pool::of(dataset, rows)?;
    let test = (options.test_ratio * pool.pairs.len() as f64).round() as usize;
    let wanted = test + options.start + options.batch * options.steps;
    let settings: [(&str, f64, bool, &str); 4] = [
        ("the share of test pairs", options.test_ratio, options.test_ratio > 0.0 && test > 0, "above 0"),
        ("the number of pairs at the start", options.start as f64, options.start > 1, "at least 2"),
        ("the number of pairs of a batch", options.batch as f64, options.batch > 0, "at least 1"),
        (
            "the number of pairs to test and to measure",
            wanted as f64,
            wanted <= pool.pairs.len(),
            "at most that of the dataset",
        ),
    ];
    if let Some((what, value, _, range)) = settings.into_iter().find(|(_, _, is_sound, _)| !is_sound) {
        return Err(Error::Setting { what, value, range });
    }
    let strategies = &options.strategies;
    let runs = map(options.seeds.len() * strategies.len(), |index| {
        let (seed, strategy) =
            (options.seeds[index / strategies.len()], strategies[index % strategies.len()]);
        pool.run(strategy, seed, test, options)
    });
    Ok(LearningCurve {
        device_kinds: pool.examples.origin.device_kinds.clone(),
        pairs_total: pool.pairs.len(),
        test_pairs_total: test,
        points: runs.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect(),
    })
}

/// A dataset whose pairs can be measured by looking them up.
struct Pool {
    examples: Examples,
    profiles: Profiles,
    device: String,
    sharing: Vec<SharingMode>,
    /// Each pair, the lesser id first, with its rows.
    pairs: BTreeMap<(WorkloadId, WorkloadId), Vec<u32>>,
}

impl Pool {
    fn of(dataset: &Dataset, options: &ExampleOptions) -> Result<Self, Error> {
        let examples = Examples::from_dataset(dataset, options)?;
        let profiles = profiles(dataset)?;
        let groups = &examples.groups;
        let [device] = &groups.devices[..] else {
            let reason = format!("a learning curve is of one device, here are {}", groups.devices.join(", "));
            return Err(Error::NoExamples { reason });
        };
        let mut ids = Vec::with_capacity(groups.workloads.len());
        for name in &groups.workloads {
            let profile = profiles.get(name, device)?;
            ids.push((profile.kind != WorkloadKind::Null).then(|| profile.workload.clone()));
        }
        let mut pairs: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for row in 0..examples.rows() {
            let id = |code: &[u32]| ids[code[row] as usize].clone();
            if let (Some(subject), Some(co_runner)) = (id(&groups.subject), id(&groups.co_runner)) {
                let key = if subject <= co_runner { (subject, co_runner) } else { (co_runner, subject) };
                pairs.entry(key).or_default().push(row as u32);
            }
        }
        let modes = dataset.pairs.text("sharing")?.values().iter();
        let sharing: BTreeSet<SharingMode> = modes
            .filter_map(|text| text.parse().ok())
            .map(|mode: SharingMode| mode.clone().min(mode.swapped()))
            .collect();
        let device = device.clone();
        Ok(Self { examples, profiles, device, sharing: sharing.into_iter().collect(), pairs })
    }

    fn run(
        &self,
        strategy: Strategy,
        seed: Seed,
        test: usize,
        options: &CurveOptions,
    ) -> Result<Vec<CurvePoint>, Error> {
        let mut order: Vec<&(WorkloadId, WorkloadId)> = self.pairs.keys().collect();
        let mut stream = seed.stream("trainer.learning_curve", &[]);
        for index in (1..order.len()).rev() {
            order.swap(index, stream.random_range(0..=index));
        }
        let (judged, open) = order.split_at(test);
        let test_rows = self.rows(judged.iter().copied());
        let measured_slowdown: Vec<f64> =
            test_rows.iter().map(|&row| self.examples.slowdown[row as usize]).collect();
        let test_features: Vec<f32> =
            test_rows.iter().flat_map(|&row| self.examples.row(row as usize)).copied().collect();
        let open: Vec<(WorkloadId, WorkloadId)> = open.iter().copied().cloned().collect();

        let mut chosen: Vec<(WorkloadId, WorkloadId)> = open[..options.start].to_vec();
        let mut measured = Measured::default();
        let mut points = Vec::with_capacity(options.steps + 1);
        for step in 0..=options.steps {
            for (subject, co_runner) in &chosen[measured.len() / self.sharing.len()..] {
                for mode in &self.sharing {
                    measured.insert(subject.clone(), co_runner.clone(), mode.clone());
                }
            }
            let spec = self.fit(&self.rows(&chosen), seed, options)?;
            let predictor = load_bytes(&export(&spec)?, Backend::Native)?;
            let predicted: Vec<f64> =
                predictor.predict(&test_features)?.iter().map(|row| row.slowdown.get()).collect();
            let errors: Vec<f64> =
                predicted.iter().zip(&measured_slowdown).map(|(p, y)| (p - y).abs() / y).collect();
            let decision = safe_scores(&measured_slowdown, &predicted, options.limit);
            points.push(CurvePoint {
                strategy,
                seed,
                pairs: chosen.len(),
                mape: mean(&errors),
                safe_precision: decision.safe_precision,
                safe_recall: decision.safe_recall,
            });
            if step < options.steps {
                let candidates = Candidates {
                    pairs: &open,
                    sharing: &self.sharing,
                    device: &self.device,
                    profiles: &self.profiles,
                    measured: &measured,
                    frequency: &BTreeMap::new(),
                };
                let next = NextOptions {
                    budget: options.batch,
                    limit: options.limit,
                    strategy,
                    allowed_weight: options.allowed_weight,
                    // Another order each time.
                    seed: Seed(seed.0.wrapping_add(step as u64)),
                };
                let next = propose(&spec, &candidates, &next)?;
                chosen.extend(next.into_iter().map(|pair| (pair.subject, pair.co_runner)));
            }
        }
        Ok(points)
    }

    fn rows<'a>(&self, pairs: impl IntoIterator<Item = &'a (WorkloadId, WorkloadId)>) -> Vec<u32> {
        let rows = pairs.into_iter().filter_map(|pair| self.pairs.get(pair)).flatten();
        rows.copied().collect()
    }

    /// The model of some rows. Its bound is the point: what the choice reads is how near the limit a pair is.
    fn fit(&self, rows: &[u32], seed: Seed, options: &CurveOptions) -> Result<ModelSpec, Error> {
        let all = &self.examples;
        let at = || rows.iter().map(|&row| row as usize);
        let examples = Examples {
            schema: all.schema.clone(),
            features: at().flat_map(|row| all.row(row)).copied().collect(),
            slowdown: at().map(|row| all.slowdown[row]).collect(),
            interval: at().map(|row| all.interval[row]).collect(),
            weights: all.weights.as_ref().map(|weights| at().map(|row| weights[row]).collect()),
            groups: all.groups.subset(rows),
            origin: all.origin.clone(),
        };
        let domain = fit_domain(&examples.features, examples.schema.width())?;
        Ok(ModelSpec {
            physics: physics(&examples.schema),
            body: fit(&examples, options.learner, &options.settings, options.limit, seed)?,
            impute: domain.impute,
            upper_offset_log: 0.0,
            domain_lower: domain.lower,
            domain_upper: domain.upper,
            domain_missing: domain.missing,
            domain_distance: None,
            metadata: ModelMetadata::new(examples.schema.clone(), options.learner.as_str()),
            schema: examples.schema,
        })
    }
}

impl LearningCurve {
    /// The numbers of pairs at which models were fitted, ascending.
    pub fn counts(&self) -> Vec<usize> {
        self.points.iter().map(|point| point.pairs).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// A value of each seed at a number of pairs, in the order of the seeds.
    pub fn values(
        &self,
        strategy: Strategy,
        pairs: usize,
        value: impl Fn(&CurvePoint) -> Option<f64>,
    ) -> Vec<f64> {
        let points = self.points.iter().filter(|point| point.strategy == strategy && point.pairs == pairs);
        points.filter_map(value).collect()
    }

    /// The error of a strategy over that of another, seed by seed; 95 % interval of the geometric mean by Student's t.
    ///
    /// `None` with fewer than two seeds.
    pub fn error_ratio(&self, strategy: Strategy, against: Strategy, pairs: usize) -> Option<Estimate> {
        let of = |strategy| self.values(strategy, pairs, |point| Some(point.mape));
        let ratios: Vec<f64> = of(strategy).iter().zip(of(against)).map(|(a, b)| a / b).collect();
        Estimate::geometric(&ratios, 0.95)
    }

    /// How many pairs a strategy needs for an error, by the mean over seeds; linear between two counts.
    ///
    /// `None` where it never gets there.
    pub fn pairs_for(&self, strategy: Strategy, mape: f64) -> Option<f64> {
        let of = |pairs: usize| mean(&self.values(strategy, pairs, |point| Some(point.mape)));
        let curve: Vec<(f64, f64)> =
            self.counts().into_iter().map(|pairs| (pairs as f64, of(pairs))).collect();
        let first = curve.iter().position(|(_, error)| *error <= mape)?;
        let (pairs, error) = curve[first];
        let Some(&(fewer, more_error)) = first.checked_sub(1).and_then(|before| curve.get(before)) else {
            return Some(pairs);
        };
        Some(fewer + (pairs - fewer) * (more_error - mape) / (more_error - error))
    }
}

/// A table: per number of pairs and strategy the mean over seeds with its 95 % interval.
impl fmt::Display for LearningCurve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<&str> = self.device_kinds.iter().map(|kind| kind.as_str()).collect();
        let strategies: BTreeSet<&str> = self.points.iter().map(|point| point.strategy.as_str()).collect();
        let all = [Strategy::Random, Strategy::Greedy, Strategy::Active];
        let shown = || all.into_iter().filter(|strategy| strategies.contains(strategy.as_str()));
        writeln!(
            f,
            "{} pairs ({}), judged on {} that are never measured; 95 % intervals of means over seeds",
            self.pairs_total,
            kinds.join(" and "),
            self.test_pairs_total
        )?;
        writeln!(
            f,
            "{:>6} {:<8}{:>7}{:>16}{:>9}{:>16}{:>7}{:>7}{:>7}",
            "pairs", "order", "MAPE %", "95 %", "/random", "95 %", "prec", "rec", "seeds"
        )?;
        let ratio_of = |values: &[f64]| match values {
            [] => "-".to_owned(),
            values => format!("{:.3}", mean(values)),
        };
        for pairs in self.counts() {
            for strategy in shown() {
                let errors = self.values(strategy, pairs, |point| Some(100.0 * point.mape));
                let interval = |estimate: Option<Estimate>| {
                    estimate.map_or("-".to_owned(), |e| format!("{:.2} to {:.2}", e.lower, e.upper))
                };
                let ratio = self.error_ratio(strategy, Strategy::Random, pairs);
                writeln!(
                    f,
                    "{pairs:>6} {:<8}{:>7.2}{:>16}{:>9}{:>16}{:>7}{:>7}{:>7}",
                    strategy.as_str(),
                    mean(&errors),
                    interval(Estimate::arithmetic(&errors, 0.95)),
                    ratio.map_or("-".to_owned(), |ratio| format!("{:.3}", ratio.point)),
                    interval(ratio),
                    ratio_of(&self.values(strategy, pairs, |point| point.safe_precision)),
                    ratio_of(&self.values(strategy, pairs, |point| point.safe_recall)),
                    errors.len(),
                )?;
            }
        }
        if let Some(most) = self.counts().last() {
            for strategy in shown().filter(|strategy| *strategy != Strategy::Random) {
                let error = mean(&self.values(Strategy::Random, *most, |point| Some(point.mape)));
                if let Some(needed) = self.pairs_for(strategy, error) {
                    let ratio = *most as f64 / needed;
                    let name = strategy.as_str();
                    writeln!(
                        f,
                        "{name} order reaches the error of {most} random pairs with {needed:.0}: {ratio:.2} times fewer"
                    )?;
                }
            }
        }
        Ok(())
    }
}
