//! Which pairs to measure next.

use crate::Error;
use crate::parallel::map;
use elastico_core::{Outcome, Seed, SharingMode, WorkloadId};
use elastico_datasets::Dataset;
use elastico_models::{Backend, ModelSpec, Profiles, export, load_bytes};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// By what the next pairs are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Spread, traffic and variety.
    #[default]
    Active,
    /// The same without variety, a yardstick: it takes many pairs of the few workloads that the trees know least.
    Greedy,
    /// Random order, the yardstick.
    Random,
}

impl Strategy {
    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Greedy => "greedy",
            Self::Random => "random",
        }
    }
}

/// How to choose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NextOptions {
    /// How many pairs.
    pub budget: usize,
    /// The most slowdown at which the placement lets two workloads share.
    pub limit: f64,
    /// By what.
    pub strategy: Strategy,
    /// Of the random order.
    pub seed: Seed,
}

/// What could be measured.
///
/// A pair is two workloads, and stands for a run under each of the sharing modes: so does a campaign measure it. Its order
/// matters under uneven shares alone, where the first workload gets the first share.
#[derive(Debug, Clone)]
pub struct Candidates<'a> {
    /// The pairs; those of [`measured`](Self::measured) are passed over.
    pub pairs: &'a [(WorkloadId, WorkloadId)],
    /// How they would share.
    pub sharing: &'a [SharingMode],
    /// The device, as the profiles name it.
    pub device: &'a str,
    /// What is known of each workload of the pairs.
    pub profiles: &'a Profiles,
    /// What was measured already.
    pub measured: &'a Measured,
    /// How often each workload occurs among the jobs; empty = all the same. A workload that is not there never occurs.
    pub frequency: &'a BTreeMap<WorkloadId, f64>,
}

/// A pair to measure, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The first workload.
    pub subject: WorkloadId,
    /// The second.
    pub co_runner: WorkloadId,
    /// spread x traffic x allowed x variety.
    pub score: f64,
    /// Standard deviation of the log slowdown over the trees, mean over both sides and all modes.
    pub spread_log: f64,
    /// How often both workloads meet, against a pair of two average workloads.
    pub traffic: f64,
    /// How near the pair is to being allowed to share, 0 to 1, mean over the modes.
    pub allowed: f64,
    /// 1 for the first pair of its workloads, less for each one that was proposed before.
    pub variety: f64,
    /// Predicted slowdown of the side that suffers more, in the best mode.
    pub slowdown: f64,
    /// Its upper bound.
    pub slowdown_upper: f64,
}

/// Pairs that were tried on a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Measured {
    pairs: BTreeSet<(WorkloadId, WorkloadId, SharingMode)>,
}

impl Measured {
    /// The pairs of a dataset that have times on this device, or that cannot run on it: another run would teach
    /// nothing new. Trials that crashed or timed out may be proposed again.
    ///
    /// # Errors
    /// [`Error::Cell`] for a row without workloads, or with a sharing mode that does not exist.
    pub fn of(dataset: &Dataset, device: &str) -> Result<Self, Error> {
        let table = &dataset.pairs;
        let (subject, co_runner) = (table.text("subject_workload")?, table.text("co_runner_workload")?);
        let (on, sharing, outcome) = (table.text("device")?, table.text("sharing")?, table.text("outcome")?);
        let mut seen = BTreeSet::new();
        let mut measured = Self::default();
        for row in (0..table.rows()).filter(|row| on.get(*row) == Some(device)) {
            // Rows repeat: each combination of words is read once.
            let codes = [subject, co_runner, sharing, outcome].map(|column| column.code(row));
            if !seen.insert(codes) {
                continue;
            }
            let outcome: Option<Outcome> = outcome.get(row).and_then(|text| text.parse().ok());
            let is_final = |outcome: Outcome| {
                outcome.has_times()
                    || matches!(outcome, Outcome::Oom | Outcome::OomPredicted | Outcome::Unsupported)
            };
            if !outcome.is_some_and(is_final) {
                continue;
            }
            let cell = |column: &'static str, text: Option<&str>| Error::Cell {
                table: "pairs",
                row,
                column,
                found: text.map_or("nothing".to_owned(), |text| format!("`{text}`")),
            };
            let id = |column: &'static str, text: Option<&str>| {
                text.and_then(|text| WorkloadId::new(text).ok()).ok_or_else(|| cell(column, text))
            };
            let mode = sharing.get(row).and_then(|text| text.parse().ok());
            measured.insert(
                id("subject_workload", subject.get(row))?,
                id("co_runner_workload", co_runner.get(row))?,
                mode.ok_or_else(|| cell("sharing", sharing.get(row)))?,
            );
        }
        Ok(measured)
    }

    /// Adds a pair, seen from either side.
    pub fn insert(&mut self, subject: WorkloadId, co_runner: WorkloadId, sharing: SharingMode) {
        self.pairs.insert(from_one_side(subject, co_runner, sharing));
    }

    /// Whether the pair was tried, seen from either side.
    pub fn contains(&self, subject: &WorkloadId, co_runner: &WorkloadId, sharing: &SharingMode) -> bool {
        self.pairs.contains(&from_one_side(subject.clone(), co_runner.clone(), sharing.clone()))
    }

    /// How many pairs and modes there are.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether nothing was tried.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

/// The lesser id first, so that a pair is the same from both sides.
fn from_one_side(
    subject: WorkloadId,
    co_runner: WorkloadId,
    sharing: SharingMode,
) -> (WorkloadId, WorkloadId, SharingMode) {
    let swapped = sharing.swapped();
    if (&subject, &sharing) <= (&co_runner, &swapped) {
        (subject, co_runner, sharing)
    } else {
        (co_runner, subject, swapped)
    }
}

/// The pairs of some workloads, each with itself too; both orders where a mode has uneven shares.
pub fn pairs_among(workloads: &[WorkloadId], sharing: &[SharingMode]) -> Vec<(WorkloadId, WorkloadId)> {
    let workloads: BTreeSet<&WorkloadId> = workloads.iter().collect();
    let is_uneven = sharing.iter().any(|mode| *mode != mode.swapped());
    let both = |first: &WorkloadId, second: &WorkloadId| first <= second || is_uneven;
    workloads
        .iter()
        .flat_map(|first| workloads.iter().map(move |second| (*first, *second)))
        .filter(|(first, second)| both(first, second))
        .map(|(first, second)| (first.clone(), second.clone()))
        .collect()
}

/// The pairs whose measurement teaches most, the first one first; fewer than the budget where there are no more.
///
/// A pair is worth its *spread* (how much the trees of the model disagree about it: query by committee, Seung, Opper and
/// Sompolinsky 1992) times its *traffic* (the product of how often its workloads occur) times the chance that it would
/// be *allowed* to share: about a pair far over the limit nothing needs to be known more exactly. The spread alone takes
/// pair after pair of the same few workloads, of which the first would have taught nearly all, and does worse than random
/// order; so pairs are taken one after the other, and the worth is divided by 1 + the number of those taken before that
/// share a workload with it (*variety*).
///
/// A pair is passed over if it was measured under any of the modes, for a campaign would measure it again under all.
///
/// # Determinism
/// The same model, candidates and options give the same list; ties go to the lesser ids.
///
/// # Errors
/// [`Error::Setting`], [`Error::NoSpread`] for a model without averaged trees, [`Error::NothingLeft`] where every pair
/// was measured, [`Error::Models`] for a workload without a profile or a model that is not sound.
pub fn propose(
    spec: &ModelSpec,
    candidates: &Candidates<'_>,
    options: &NextOptions,
) -> Result<Vec<Proposal>, Error> {
    crate::evaluate::check_limit(options.limit)?;
    let is_new = |(subject, co_runner): &&(WorkloadId, WorkloadId)| {
        !candidates.sharing.iter().any(|mode| candidates.measured.contains(subject, co_runner, mode))
    };
    let mut pairs: Vec<&(WorkloadId, WorkloadId)> = candidates.pairs.iter().filter(is_new).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let frequency = candidates.frequency;
    if !frequency.is_empty() {
        let occurs = |workload: &WorkloadId| frequency.get(workload).is_some_and(|count| *count > 0.0);
        pairs.retain(|(subject, co_runner)| occurs(subject) && occurs(co_runner));
    }
    if pairs.is_empty() || candidates.sharing.is_empty() {
        return Err(Error::NothingLeft { measured: candidates.measured.len() });
    }
    let mut open = worth(spec, candidates, &pairs, options.limit)?;
    Ok(match options.strategy {
        Strategy::Active => take(open, options.budget, true),
        Strategy::Greedy => take(open, options.budget, false),
        Strategy::Random => {
            let mut stream = options.seed.stream("trainer.next", &[]);
            for index in (1..open.len()).rev() {
                open.swap(index, stream.random_range(0..=index));
            }
            open.truncate(options.budget);
            open
        }
    })
}

/// Every pair with its worth before any was taken.
fn worth(
    spec: &ModelSpec,
    candidates: &Candidates<'_>,
    pairs: &[&(WorkloadId, WorkloadId)],
    limit: f64,
) -> Result<Vec<Proposal>, Error> {
    /// Pairs of one piece of work.
    const PIECE: usize = 64;
    let predictor = load_bytes(&export(spec)?, Backend::Native)?;
    let average = candidates.frequency.values().sum::<f64>() / candidates.frequency.len().max(1) as f64;
    let frequency = |workload: &WorkloadId| {
        candidates.frequency.get(workload).map_or(1.0, |count| count / average)
    };
    let piece = |index: usize| -> Result<Vec<Proposal>, Error> {
        let pairs = &pairs[index * PIECE..pairs.len().min((index + 1) * PIECE)];
        let mut rows = Vec::new();
        for (subject, co_runner) in pairs {
            let profile = |id: &WorkloadId| candidates.profiles.get(id.as_str(), candidates.device);
            let (subject, co_runner) = (profile(subject)?, profile(co_runner)?);
            for mode in candidates.sharing {
                spec.schema.encode(subject, co_runner, mode, &mut rows);
                spec.schema.encode(co_runner, subject, &mode.swapped(), &mut rows);
            }
        }
        let spread = spec.spread(&rows);
        let predictions = predictor.predict(&rows)?;
        let sides = 2 * candidates.sharing.len();
        let of_pair = pairs.iter().zip(spread.chunks(sides)).zip(predictions.chunks(sides));
        Ok(of_pair
            .map(|(((subject, co_runner), spread), predictions)| {
                // The side that suffers more, of each mode: the placement asks both.
                let modes: Vec<(f64, f64, f64)> = predictions
                    .chunks(2)
                    .zip(spread.chunks(2))
                    .map(|(sides, spread)| {
                        let worse = |value: fn(&elastico_models::Prediction) -> f64| {
                            sides.iter().map(value).fold(0.0, f64::max)
                        };
                        let point = worse(|side| side.slowdown.get());
                        let upper = worse(|side| side.upper.get());
                        (allowed(upper, spread[0].max(spread[1]), limit), point, upper)
                    })
                    .collect();
                let best = modes.iter().copied().min_by(|a, b| a.2.total_cmp(&b.2));
                let (_, slowdown, slowdown_upper) = best.unwrap_or((0.0, f64::NAN, f64::NAN));
                let spread_log = elastico_core::mean(spread);
                let allowed = modes.iter().map(|mode| mode.0).sum::<f64>() / modes.len() as f64;
                let traffic = frequency(subject) * frequency(co_runner);
                Proposal {
                    subject: subject.clone(),
                    co_runner: co_runner.clone(),
                    score: spread_log * traffic * allowed,
                    spread_log,
                    traffic,
                    allowed,
                    variety: 1.0,
                    slowdown,
                    slowdown_upper,
                }
            })
            .collect())
    };
    let pieces = map(pairs.len().div_ceil(PIECE), piece);
    let all: Vec<Proposal> = pieces.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    if all.iter().any(|pair| pair.spread_log.is_nan()) {
        return Err(Error::NoSpread { learner: spec.metadata.learner.clone() });
    }
    Ok(all)
}

/// The chance that the pair may share once it is better known: 1 far under the limit, and falling to a tenth over it.
///
/// A logistic curve of the distance of the upper bound from the limit, over the spread of the trees or 5 %, whichever is
/// more. It does not fall to 0: the model may be wrong about a pair, and what far pairs teach serves near ones.
fn allowed(upper: f64, spread_log: f64, limit: f64) -> f64 {
    const LEAST_SCALE: f64 = 0.05;
    const FLOOR: f64 = 0.1;
    let distance = (limit.ln() - upper.ln()) / spread_log.max(LEAST_SCALE);
    FLOOR + (1.0 - FLOOR) / (1.0 + (-distance).exp())
}

/// Takes pairs one after the other, the best of those left each time.
fn take(mut open: Vec<Proposal>, budget: usize, with_variety: bool) -> Vec<Proposal> {
    let mut picks: BTreeMap<WorkloadId, u32> = BTreeMap::new();
    let mut taken = Vec::with_capacity(budget.min(open.len()));
    while taken.len() < budget && !open.is_empty() {
        if with_variety {
            for pair in &mut open {
                let picked = |workload: &WorkloadId| picks.get(workload).copied().unwrap_or(0);
                let variety = 1.0 / f64::from(1 + picked(&pair.subject) + picked(&pair.co_runner));
                pair.variety = variety;
                pair.score = pair.spread_log * pair.traffic * pair.allowed * variety;
            }
        }
        // The first of the best: `open` is sorted by ids and stays so.
        let mut best = 0;
        for (index, pair) in open.iter().enumerate() {
            if pair.score > open[best].score {
                best = index;
            }
        }
        let pair = open.remove(best);
        *picks.entry(pair.subject.clone()).or_default() += 1;
        *picks.entry(pair.co_runner.clone()).or_default() += 1;
        taken.push(pair);
    }
    taken
}
