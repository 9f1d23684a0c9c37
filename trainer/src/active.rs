//! Which pairs to measure next.

use crate::Error;
use crate::Measured;
use crate::variety::Variety;
use elastico_core::parallel::map;
use elastico_core::{FamilyId, Seed, SharingMode, WorkloadId};
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
    /// How much less a pair counts that is surely not allowed to share, within 0 and 1: 0 = all pairs count alike, 1 =
    /// such pairs count nothing.
    pub allowed_weight: f64,
    /// Of the random order.
    pub seed: Seed,
}

impl NextOptions {
    /// On the simulated H100, limit 1.2, 5 seeds, error after 100 pairs against random order (variety without square and
    /// families): 0.84 with 0, 0.88 with 0.2, 0.95 with 0.5. What is surely over the limit still teaches what the rest is like.
    const ALLOWED_WEIGHT: f64 = 0.2;
}

impl Default for NextOptions {
    fn default() -> Self {
        Self {
            budget: 40,
            limit: 1.2,
            strategy: Strategy::Active,
            allowed_weight: Self::ALLOWED_WEIGHT,
            seed: Seed(0),
        }
    }
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
    /// 1 for a pair that is surely allowed to share, 1 − `allowed_weight` for one that surely is not; mean over the modes.
    pub allowed: f64,
    /// 1 for a pair unlike those that were measured or proposed before it, else less; see [`propose`].
    pub variety: f64,
    /// Predicted slowdown of the side that suffers more, in the best mode.
    pub slowdown: f64,
    /// Its upper bound.
    pub slowdown_upper: f64,
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
/// Sompolinsky 1992) times its *traffic* (the product of how often its workloads occur), times a factor that falls with
/// the chance that it would be *allowed* to share: far over the limit no decision depends on the exact slowdown. The
/// spread alone takes pair after pair of the same few workloads, of which the first teaches nearly all; so pairs are taken
/// one after the other, and the worth is divided by (1 + a + b)² (1 + f): a and b are the pairs of the two workloads that
/// were measured or taken before, f the pairs of the two families that were taken before (*variety*). The square and
/// the families matter where many pairs are taken at once: on the simulated H100 the error after 3 x 40 pairs is 0.82 of
/// that of random order with both, 0.94 with the first power of 1 + a + b alone.
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
    if !(0.0..=1.0).contains(&options.allowed_weight) {
        let (what, value) = ("the weight of being allowed to share", options.allowed_weight);
        return Err(Error::Setting { what, value, range: "within 0 and 1" });
    }
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
    let mut open = worth(spec, candidates, &pairs, options)?;
    Ok(match options.strategy {
        Strategy::Active => {
            let variety = variety(candidates, &open)?;
            take(open, options.budget, Some(variety))
        }
        Strategy::Greedy => take(open, options.budget, None),
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
    options: &NextOptions,
) -> Result<Vec<Proposal>, Error> {
    /// Pairs of one piece of work.
    const PIECE: usize = 64;
    let predictor = load_bytes(&export(spec)?, Backend::Native)?;
    let average = candidates.frequency.values().sum::<f64>() / candidates.frequency.len().max(1) as f64;
    let frequency =
        |workload: &WorkloadId| candidates.frequency.get(workload).map_or(1.0, |count| count / average);
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
                        (allowed(upper, spread[0].max(spread[1]), options.limit), point, upper)
                    })
                    .collect();
                let best = modes.iter().copied().min_by(|a, b| a.2.total_cmp(&b.2));
                let (_, slowdown, slowdown_upper) = best.unwrap_or((0.0, f64::NAN, f64::NAN));
                let spread_log = elastico_core::mean(spread);
                let chance = modes.iter().map(|mode| mode.0).sum::<f64>() / modes.len() as f64;
                let allowed = 1.0 - options.allowed_weight * (1.0 - chance);
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
    let all: Vec<Proposal> =
        pieces.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    if all.iter().any(|pair| pair.spread_log.is_nan()) {
        return Err(Error::NoSpread { learner: spec.metadata.learner.clone() });
    }
    Ok(all)
}

/// The chance that the pair may share once it is better known: a logistic curve of the distance of the upper bound from
/// the limit, over the spread of the trees or 5 %, whichever is more.
fn allowed(upper: f64, spread_log: f64, limit: f64) -> f64 {
    const LEAST_SCALE: f64 = 0.05;
    let distance = (limit.ln() - upper.ln()) / spread_log.max(LEAST_SCALE);
    1.0 / (1.0 + (-distance).exp())
}

/// What was measured before counts as taken.
fn variety(candidates: &Candidates<'_>, open: &[Proposal]) -> Result<Variety<WorkloadId, FamilyId>, Error> {
    let mut families = BTreeMap::new();
    for workload in open.iter().flat_map(|pair| [&pair.subject, &pair.co_runner]) {
        if !families.contains_key(workload) {
            let profile = candidates.profiles.get(workload.as_str(), candidates.device)?;
            families.insert(workload.clone(), profile.family.clone());
        }
    }
    Ok(Variety::new(candidates.measured.partners(), families))
}

/// Takes pairs one after the other, the best of those left each time.
fn take(
    mut open: Vec<Proposal>,
    budget: usize,
    mut variety: Option<Variety<WorkloadId, FamilyId>>,
) -> Vec<Proposal> {
    let mut taken = Vec::with_capacity(budget.min(open.len()));
    while taken.len() < budget && !open.is_empty() {
        // The first of the best: `open` is sorted by ids and stays so.
        let mut best = 0;
        for index in 0..open.len() {
            if let Some(variety) = &variety {
                let pair = &mut open[index];
                pair.variety = variety.factor(&pair.subject, &pair.co_runner);
                pair.score = pair.spread_log * pair.traffic * pair.allowed * pair.variety;
            }
            if open[index].score > open[best].score {
                best = index;
            }
        }
        let pair = open.remove(best);
        if let Some(variety) = &mut variety {
            variety.add(&pair.subject, &pair.co_runner);
        }
        taken.push(pair);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(subject: &str, co_runner: &str, spread_log: f64) -> Proposal {
        Proposal {
            subject: WorkloadId::new(subject).unwrap(),
            co_runner: WorkloadId::new(co_runner).unwrap(),
            score: spread_log,
            spread_log,
            traffic: 1.0,
            allowed: 1.0,
            variety: 1.0,
            slowdown: 1.1,
            slowdown_upper: 1.2,
        }
    }

    #[test]
    fn variety_keeps_a_workload_from_coming_again_and_again() {
        let open = vec![proposal("a", "b", 1.0), proposal("a", "c", 0.9), proposal("d", "e", 0.6)];
        let order = |variety| {
            let taken = take(open.clone(), 3, variety);
            taken.iter().map(|pair| format!("{}{}", pair.subject, pair.co_runner)).collect::<Vec<_>>()
        };
        assert_eq!(order(None), ["ab", "ac", "de"]);
        assert_eq!(order(Some(Variety::new(BTreeMap::new(), BTreeMap::new()))), ["ab", "de", "ac"]);
        // What was measured counts like what is proposed, once for all modes.
        let mut measured = Measured::default();
        for mode in [SharingMode::TimeSlice, SharingMode::MPS_UNLIMITED] {
            measured.insert(WorkloadId::new("b").unwrap(), WorkloadId::new("f").unwrap(), mode);
        }
        assert_eq!(measured.partners()[&WorkloadId::new("b").unwrap()], 1);
        let variety = Variety::new(measured.partners(), BTreeMap::new());
        assert_eq!(order(Some(variety)), ["ac", "de", "ab"]);
        // A pair of two families that were paired already is put off.
        let family = |id: &str| {
            (WorkloadId::new(id).unwrap(), FamilyId::new(if id < "d" { "x" } else { "y" }).unwrap())
        };
        let families = ["a", "b", "d", "e", "g", "h"].map(family).into();
        let open = vec![
            proposal("a", "b", 1.0),
            proposal("d", "e", 0.6),
            proposal("d", "g", 0.5),
            proposal("g", "h", 0.5),
        ];
        let taken = take(open, 3, Some(Variety::new(BTreeMap::new(), families)));
        assert_eq!(taken.iter().map(|pair| pair.spread_log).collect::<Vec<_>>(), [1.0, 0.6, 0.5]);
        assert_eq!(taken[2].subject.as_str(), "g");
        assert!((taken[2].variety - 0.5).abs() < 1e-12);
    }

    #[test]
    fn what_is_surely_over_the_limit_is_not_allowed() {
        assert!(allowed(1.0, 0.02, 1.2) > 0.97 && allowed(2.0, 0.02, 1.2) < 0.01);
        assert!((allowed(1.2, 0.02, 1.2) - 0.5).abs() < 1e-12);
        assert!(allowed(1.5, 0.5, 1.2) > allowed(1.5, 0.1, 1.2), "doubt leaves a chance");
    }
}
