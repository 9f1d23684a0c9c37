//! ElastiCo: prices choose one shape for each job, and co-locate only what the planner calls safe.

mod cells;
mod greedy;
mod market;

use super::Policy;
use super::kind::{NOISE, PolicyKind};
use crate::error::check;
use crate::rates::Shape;
use crate::{Error, Round};
use cells::{Candidate, Cells};
use elastico_core::Seed;
use elastico_placement::PairKinds;
use rand::RngExt as _;
use serde::Serialize;
use std::collections::BTreeMap;

/// How shapes are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Choosing {
    /// By shadow prices: the Lagrangian dual of all jobs, shapes and pairs together.
    Prices,
    /// One job after another by worth for each GPU, then GPUs that are left to whoever gains most by them. The ablation
    /// without prices.
    Greedy,
}

/// When two jobs get on the same GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pairing {
    /// Together with the shapes, in the same prices.
    Joint,
    /// After the shapes: who still waits joins whoever is alone.
    Sequential,
    /// Never.
    Off,
}

/// How ElastiCo weighs, chooses and shares.
///
/// A job is worth (1 + age / `ageing_seconds`) / R^`urgency` for each unit of its rate, times its GPUs^(1 − `urgency`), where R is the
/// work that it has left and its age counts from its submission. `urgency` 1 is shortest remaining time first (Schrage and
/// Miller, 1966), 0 is work done: the GPU-seconds of its request in each second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ElasticoOptions {
    /// Both upper bounds of the slowdown of a pair must stay at or under this.
    pub limit_ratio: f64,
    /// Which kinds of jobs may share; a job of unknown kind counts as training.
    pub pairs: PairKinds,
    /// Between completions (1) and work done (0).
    pub urgency: f64,
    /// The age at which a job's weight has doubled.
    pub ageing_seconds: f64,
    /// Less work left than this counts as this, seconds.
    pub least_seconds: f64,
    /// Time between two solutions of the whole cluster; in between jobs come and go at the prices of the last one.
    pub period_seconds: f64,
    /// In how much time a restart must pay for itself. Far shorter than jobs stay: a move looks better than it is, since what
    /// comes later is not seen. With 600 s each job was moved 4.5 times, with 90 s once, and mean JCT was a tenth shorter.
    pub horizon_seconds: f64,
    /// Waiting jobs that a solution looks at, for each GPU of the cluster.
    pub candidates_per_gpu: f64,
    /// GPUs of a part of the cluster that is solved by itself; larger is better and slower.
    pub cell_gpus: f64,
    /// Whether a job may run on another number of GPUs than it asks for.
    pub shapes: bool,
    /// How shapes are chosen.
    pub choosing: Choosing,
    /// When two jobs share.
    pub pairing: Pairing,
    /// Whether it plans with the truth instead of the planner's predictions.
    pub oracle: bool,
    /// Largest factor by which the work left of a job is misjudged, either way, drawn once for each job; 1 = it is known.
    pub error_factor: f64,
    /// Seed of these factors.
    pub seed: Seed,
}

impl Default for ElasticoOptions {
    fn default() -> Self {
        Self {
            limit_ratio: 1.5,
            pairs: PairKinds { training_inference: true, inference_inference: true, training_training: true },
            urgency: 0.15,
            ageing_seconds: 8.0 * 3600.0,
            least_seconds: 60.0,
            period_seconds: 300.0,
            horizon_seconds: 90.0,
            candidates_per_gpu: 2.0,
            cell_gpus: 64.0,
            shapes: true,
            choosing: Choosing::Prices,
            pairing: Pairing::Joint,
            oracle: false,
            error_factor: 1.0,
            seed: Seed(0),
        }
    }
}

impl ElasticoOptions {
    /// The usual settings of ElastiCo, or of one of its ablations: `elastico_noisy` misjudges the work left by a factor of up to
    /// 2, `elastico_oracle` plans with the truth, `elastico_no_shapes`, `elastico_no_prices` and `elastico_no_pairs` lack a
    /// part, `elastico_sequential` pairs after it has chosen the shapes.
    pub fn named(name: &str) -> Option<Self> {
        let usual = Self::default();
        Some(match name {
            "elastico" => usual,
            "elastico_noisy" => Self { error_factor: NOISE, ..usual },
            "elastico_oracle" => Self { oracle: true, ..usual },
            "elastico_no_shapes" => Self { shapes: false, ..usual },
            "elastico_no_prices" => Self { choosing: Choosing::Greedy, ..usual },
            "elastico_no_pairs" => Self { pairing: Pairing::Off, ..usual },
            "elastico_sequential" => Self { pairing: Pairing::Sequential, ..usual },
            _ => return None,
        })
    }

    /// The name under which [`Self::named`] knows these parts, whatever the numbers; `elastico_custom` for any other
    /// combination.
    pub fn name(&self) -> &'static str {
        let parts = |options: &Self| {
            (options.shapes, options.choosing, options.pairing, options.oracle, options.error_factor > 1.0)
        };
        let known = |name: &&str| Self::named(name).is_some_and(|known| parts(&known) == parts(self));
        PolicyKind::NAMES.into_iter().find(known).unwrap_or("elastico_custom")
    }

    fn check(&self) -> Result<(), Error> {
        check(|| "limit_ratio".to_owned(), self.limit_ratio, 1.0, "1 or more")?;
        check(|| "ageing_seconds".to_owned(), self.ageing_seconds, f64::MIN_POSITIVE, "above 0")?;
        check(|| "least_seconds".to_owned(), self.least_seconds, f64::MIN_POSITIVE, "above 0")?;
        check(|| "period_seconds".to_owned(), self.period_seconds, 0.0, "0 or more")?;
        check(|| "horizon_seconds".to_owned(), self.horizon_seconds, f64::MIN_POSITIVE, "above 0")?;
        check(|| "candidates_per_gpu".to_owned(), self.candidates_per_gpu, 0.0, "0 or more")?;
        check(|| "cell_gpus".to_owned(), self.cell_gpus, 1.0, "1 or more")?;
        check(|| "error_factor".to_owned(), self.error_factor, 1.0, "1 or more")?;
        if (0.0..=1.0).contains(&self.urgency) {
            Ok(())
        } else {
            let (what, value) = ("urgency".to_owned(), self.urgency);
            Err(Error::Number { what, value, must: "within 0 and 1" })
        }
    }
}

/// GPUs that are idle while nobody waits are worth a solution before its time where they are more than this part of all.
const IDLE: f64 = 0.05;

/// What is left of the period then.
const HURRY: f64 = 0.2;

/// Waiting jobs that are tried between two solutions when something has changed, the best first.
const TRIES: usize = 64;

#[derive(Debug)]
pub(super) struct Elastico {
    options: ElasticoOptions,
    cells: Option<Cells>,
    solved: Option<f64>,
    /// By how much the work of each job is misjudged.
    errors: BTreeMap<usize, f64>,
}

impl Elastico {
    pub(super) fn new(options: &ElasticoOptions) -> Result<Self, Error> {
        options.check()?;
        Ok(Self { options: options.clone(), cells: None, solved: None, errors: BTreeMap::new() })
    }

    /// What a unit of the job's rate is worth.
    fn weight(&self, round: &Round<'_, '_>, job: usize) -> f64 {
        let options = &self.options;
        let traced = round.job(job);
        let misjudged = self.errors.get(&job).copied().unwrap_or(1.0);
        let left = (round.remaining_seconds(job) * misjudged).max(options.least_seconds);
        let ageing = 1.0 + (round.now() - traced.submit_seconds) / options.ageing_seconds;
        let size = f64::from(traced.gpus).powf(1.0 - options.urgency);
        traced.weight * ageing * size / (left / 3600.0).powf(options.urgency)
    }

    /// The shapes that the job may have.
    fn shapes(&self, round: &Round<'_, '_>, job: usize) -> Vec<(Shape, f64)> {
        let asked = round.job(job).gpus;
        let shapes = round.shapes(job).iter();
        let allowed = shapes.filter(|found| self.options.shapes || found.shape.gpus == asked);
        allowed.map(|found| (found.shape, found.rate)).collect()
    }

    /// Waiting jobs by worth for each GPU of their thriftiest shape, the best first.
    fn ranked(&self, round: &Round<'_, '_>) -> Vec<usize> {
        let worth = |job: usize| {
            let shapes = self.shapes(round, job);
            let best = shapes.iter().map(|(shape, rate)| rate / f64::from(shape.gpus));
            self.weight(round, job) * best.fold(0.0, f64::max)
        };
        let mut ranked: Vec<(f64, usize)> =
            round.waiting().into_iter().map(|job| (worth(job), job)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranked.into_iter().map(|(_, job)| job).collect()
    }

    /// Shapes and partners for all that run and the best that wait.
    fn solve(&mut self, round: &mut Round<'_, '_>) {
        let most = (f64::from(round.cluster().gpus()) * self.options.candidates_per_gpu).ceil() as usize;
        let mut jobs: Vec<usize> = self.ranked(round).into_iter().take(most.max(TRIES)).collect();
        jobs.extend(round.running());
        jobs.sort_unstable();
        let targets = match self.options.choosing {
            Choosing::Prices => {
                let candidates: Vec<Candidate> = jobs
                    .into_iter()
                    .map(|job| Candidate {
                        job,
                        weight: self.weight(round, job),
                        shapes: self.shapes(round, job),
                    })
                    .collect();
                let Some(cells) = self.cells.as_mut() else { return };
                match cells.solve(round, candidates) {
                    Ok(targets) => targets,
                    Err(error) => {
                        round.abort(error.into());
                        return;
                    }
                }
            }
            Choosing::Greedy => self.choose_greedily(round, &jobs),
        };
        round.apply(&targets);
    }

    /// When the next solution is due: after a period, or sooner where GPUs are idle and nobody is there to take them.
    fn due(&self, round: &Round<'_, '_>) -> f64 {
        let Some(solved) = self.solved else { return round.now() };
        let idle = f64::from(round.free_gpus()) > IDLE * f64::from(round.cluster().gpus());
        let hurry = if idle && round.waiting_sizes().next().is_none() { HURRY } else { 1.0 };
        solved + self.options.period_seconds * hurry
    }

    /// Starts the best that wait, on free GPUs or beside others, at the prices of the last solution. Nobody is moved.
    fn fill(&self, round: &mut Round<'_, '_>) {
        for job in self.ranked(round).into_iter().take(TRIES) {
            let alone = self.best_free(round, job);
            let beside = self.best_host(round, job);
            match (alone, beside) {
                (Some((gain, _)), Some((of_pair, host))) if of_pair > gain => {
                    round.start_beside(job, host);
                }
                (None, Some((_, host))) => {
                    round.start_beside(job, host);
                }
                (Some((_, shape)), _) => {
                    round.start(job, shape);
                }
                (None, None) => {}
            }
        }
    }

    /// The free shape that is worth most beyond its price.
    fn best_free(&self, round: &Round<'_, '_>, job: usize) -> Option<(f64, Shape)> {
        let weight = self.weight(round, job);
        let mut best: Option<(f64, Shape)> = None;
        for (shape, rate) in self.shapes(round, job) {
            if !round.fits(shape) {
                continue;
            }
            let price = self.cells.as_ref().map_or(0.0, |cells| cells.slot_price(job, shape.pool));
            let gain = weight * rate - price * f64::from(shape.gpus);
            if best.is_none_or(|(value, _)| gain > value) {
                best = Some((gain, shape));
            }
        }
        best
    }

    /// The running job beside which this one gains most over what the other loses.
    fn best_host(&self, round: &Round<'_, '_>, job: usize) -> Option<(f64, usize)> {
        if self.options.pairing == Pairing::Off {
            return None;
        }
        let weight = self.weight(round, job);
        let mut best: Option<(f64, usize)> = None;
        for (shape, rate) in self.shapes(round, job).into_iter().filter(|(shape, _)| shape.gpus == 1) {
            for host in round.hosts(1) {
                let Some(of_host) = round.shape_of(host).filter(|found| *found == shape) else { continue };
                let Some(sides) = self.safe(round, job, host, shape.pool) else { continue };
                let Some(host_rate) = round.rate(host, of_host) else { continue };
                let gain =
                    weight * rate / sides[0] - self.weight(round, host) * host_rate * (1.0 - 1.0 / sides[1]);
                if gain > 0.0 && best.is_none_or(|(value, _)| gain > value) {
                    best = Some((gain, host));
                }
            }
        }
        best
    }

    /// The slowdowns that are expected of both, where they may share.
    fn safe(&self, round: &Round<'_, '_>, a: usize, b: usize, pool: usize) -> Option<[f64; 2]> {
        let sides = round.expect(a, b, pool)?;
        let is_safe = sides.iter().all(|(_, upper)| *upper <= self.options.limit_ratio);
        (is_safe && self.options.pairs.allow(market::kind(round.job(a)), market::kind(round.job(b))))
            .then(|| sides.map(|(slowdown, _)| slowdown))
    }

    /// Whoever still waits joins whoever is alone.
    fn pair_up(&self, round: &mut Round<'_, '_>) {
        for job in self.ranked(round).into_iter().take(TRIES) {
            if let Some((_, host)) = self.best_host(round, job) {
                round.start_beside(job, host);
            }
        }
    }
}

impl Policy for Elastico {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        if self.options.error_factor > 1.0 {
            for job in round.arrived().to_vec() {
                let mut stream = self.options.seed.stream("misjudged work", &[round.job(job).job.as_str()]);
                let exponent = 2.0 * stream.random::<f64>() - 1.0;
                self.errors.insert(job, self.options.error_factor.powf(exponent));
            }
        }
        self.cells.get_or_insert_with(|| Cells::new(&self.options, round.cluster())).meet(round);
        if self.due(round) <= round.now() {
            self.solve(round);
            self.solved = Some(round.now());
            if self.options.pairing == Pairing::Sequential {
                self.pair_up(round);
            }
            self.fill(round);
        } else {
            self.fill(round);
            let due = self.due(round);
            round.wake_at(due);
        }
    }
}
