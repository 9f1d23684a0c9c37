//! Would these jobs run, and if not, what would let them in?

mod nodes;

use super::effects::{Effect, EffectKind, State, effects};
use super::{CHANCE, Side, Solved, Verdict, WhatIf};
use crate::Error;
use crate::cluster::{Cluster, Pool};
use crate::jobs::{Job, Jobs};
use crate::options::Options;
use crate::pairing::find;
use crate::placement::{Assignment, Entry, WaitReason};
use crate::provenance::Basis;
use crate::resources::Resource;
use crate::shapes::Dropped;
use elastico_core::{JobId, SharingMode, parallel};
use nodes::MOST_NODES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The schema id of an answer about admission.
pub const ADMIT_SCHEMA: &str = "elastico.whatif.admit/1";

/// What was changed to let a job in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RemedyKind {
    /// The job asks for fewer GPUs.
    FewerGpus,
    /// The job may use another pool.
    AnotherPool,
    /// The job may share, its tenant with others too.
    Sharing,
    /// The job counts for more.
    Weight,
    /// A pool has more nodes.
    Node,
}

/// One change that was tried, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Remedy {
    /// What is changed.
    pub kind: RemedyKind,
    /// The change in words.
    pub change: String,
    /// Whether the job then runs.
    pub admits: bool,
    /// What all other jobs that are here would be worth less together, gains taken off; below 0 they gain. Absent where the
    /// change does not admit the job.
    pub cost_to_others: Option<f64>,
    /// What the added nodes cost per hour, where the change adds any and the pool has a list price.
    pub money_per_hour: Option<f64>,
    /// Jobs that would stop for it; none where the change does not admit the job.
    #[schemars(with = "Vec<String>")]
    pub displaced: Vec<JobId>,
}

/// The answer for one new job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Admission {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// Whether it would run: no where it would wait or can never run, "cannot tell" where nothing says how fast it runs.
    pub verdict: Verdict,
    /// Whether it can never run on this cluster, however empty.
    pub never: bool,
    /// How it would run.
    pub state: Option<State>,
    /// How it would share its GPU, seen from the job.
    #[schemars(with = "Option<String>")]
    pub sharing: Option<SharingMode>,
    /// Value that it adds to the objective.
    pub value: Option<f64>,
    /// What its resources cost at the prices then.
    pub price: Option<f64>,
    /// Why, in words.
    pub why: String,
    /// The most expensive resource of its best shape; absent where nothing is short or it has no shape.
    pub binding: Option<Resource>,
    /// The shape with which it comes in first and the price of a GPU at which it does.
    pub entry: Option<Entry>,
    /// Jobs that it may not share with, by reason; `cold` and `out_of_domain` are what the predictor cannot tell.
    pub refused_partners: BTreeMap<String, u64>,
    /// The changes that were tried, where it would not run: first those that admit it, without new hardware before with
    /// it, then by their cost to others.
    pub remedies: Vec<Remedy>,
    /// Of a job that can never run: what forbids it on pools that no number of nodes helps, and what would have to be otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbidden: Vec<Dropped>,
}

/// The answer to "would these jobs run".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdmitAnswer {
    /// `elastico.whatif.admit/1`.
    pub schema: String,
    /// Yes where all of them would run; else the worst of their verdicts.
    pub verdict: Verdict,
    /// Without them.
    pub before: Side,
    /// With them.
    pub after: Side,
    /// Value after less value before.
    pub value_delta: f64,
    /// The delta for certain: better placements of either side cannot bring it outside.
    pub value_delta_range: [f64; 2],
    /// One answer for each new job, in the order of the file.
    pub jobs: Vec<Admission>,
    /// Jobs that run now and would stop, or run slower.
    pub harmed: Vec<Effect>,
    /// What it rests on.
    pub basis: Basis,
}

/// A state in which a job is tried again.
struct Trial {
    kind: RemedyKind,
    change: String,
    cluster: Cluster,
    options: Options,
    job: Job,
}

impl WhatIf<'_> {
    /// Would these jobs run, in which shape, beside whom, and at whose cost?
    ///
    /// Each one that would not is tried again with one thing changed: fewer GPUs, another pool, sharing, a higher weight,
    /// more nodes. Every trial is solved.
    ///
    /// # Errors
    /// [`Error::Duplicate`] for a job whose id is known; as [`crate::Allocator::solve_with`].
    pub fn admit(&self, new: &Jobs) -> Result<AdmitAnswer, Error> {
        let jobs = self.with_jobs(new)?;
        let (cluster, options) = (self.allocator.cluster().clone(), self.allocator.options().clone());
        let solved = self.solve_within(cluster, options, &jobs, CHANCE)?;
        let (mut before, mut after) = (self.side(), solved.side());
        Side::order_bounds(&mut before, &mut after);
        let admissions =
            new.job.iter().map(|job| self.admission(job, &jobs, &solved)).collect::<Result<Vec<_>, _>>()?;
        Ok(AdmitAnswer {
            schema: ADMIT_SCHEMA.to_owned(),
            verdict: admissions.iter().map(|job| job.verdict).max().unwrap_or(Verdict::Yes),
            value_delta: after.value - before.value,
            value_delta_range: before.delta_range(&after),
            before,
            after,
            jobs: admissions,
            harmed: effects(&self.before, &solved.placement, self.jobs)
                .into_iter()
                .filter(|effect| effect.kind.is_harm())
                .collect(),
            basis: solved.placement.basis.clone(),
        })
    }

    fn admission(&self, job: &Job, jobs: &Jobs, solved: &Solved) -> Result<Admission, Error> {
        let id = job.id.as_str();
        let placement = &solved.placement;
        let explained = solved.allocator.explain(placement, jobs, self.profiles, self.table, id)?;
        let assignment = explained.assignment.as_ref();
        let never = explained.waiting.as_ref().is_some_and(|waiting| waiting.reason == WaitReason::NoShape);
        let verdict = match (assignment, never) {
            (Some(_), _) => Verdict::Yes,
            (None, true) if self.is_unknown(job) => Verdict::CannotTell,
            (None, _) => Verdict::No,
        };
        let why = match (assignment, &explained.waiting) {
            (Some(assignment), _) => assignment.why.clone(),
            (None, Some(waiting)) => waiting.detail(),
            (None, None) => "it is not in the placement".to_owned(),
        };
        let (mut remedies, mut forbidden) = (Vec::new(), Vec::new());
        if verdict == Verdict::No {
            let trials = self.trials(job);
            let mut pools: Vec<&Pool> = self.allocator.cluster().pool.iter().collect();
            // Where the job has a shape already, nodes of any pool may help: those that are there move to them.
            if never {
                pools.retain(|pool| {
                    let reasons = self.forbidden(job, pool);
                    forbidden.extend(reasons.iter().flatten().cloned());
                    reasons.is_none()
                });
            }
            // The weight comes last, and helps only a job that can run at all.
            let count = trials.len() + 1 + pools.len() + usize::from(!never);
            let tried = parallel::map(count, |at| match trials.get(at) {
                Some(trial) => self.remedy(trial, jobs).map(Some),
                None if at == trials.len() => self.fewer(job, jobs),
                None => match pools.get(at - trials.len() - 1) {
                    Some(pool) => self.nodes(job, pool, jobs),
                    None => self.weight(job, jobs),
                },
            });
            for remedy in tried {
                remedies.extend(remedy?);
            }
        }
        remedies.sort_by(|a: &Remedy, b: &Remedy| {
            b.admits
                .cmp(&a.admits)
                .then((a.kind == RemedyKind::Node).cmp(&(b.kind == RemedyKind::Node)))
                .then_with(|| {
                    let cost = |remedy: &Remedy| remedy.cost_to_others.unwrap_or(f64::INFINITY);
                    cost(a).total_cmp(&cost(b))
                })
                .then(a.kind.cmp(&b.kind))
        });
        Ok(Admission {
            job: job.id.clone(),
            verdict,
            never,
            state: assignment.map(State::of),
            sharing: assignment.and_then(|job| job.beside.as_ref()).map(|beside| beside.sharing.clone()),
            value: assignment.map(|job| job.value),
            price: assignment.map(|job| job.price),
            why,
            binding: explained.binding,
            entry: explained.entry,
            refused_partners: explained.refused_partners,
            remedies,
            forbidden,
        })
    }

    /// Solutions at most that [`Self::admit`] makes for each of these jobs that would not run.
    ///
    /// # Errors
    /// [`Error::Duplicate`] for a job whose id is known.
    pub fn most_trials(&self, new: &Jobs) -> Result<u32, Error> {
        self.with_jobs(new)?;
        let nodes = MOST_NODES.ilog2() * 2 * self.allocator.cluster().pool.len() as u32;
        let of = |job: &Job| {
            let fewer = job.gpus_min.checked_ilog2().unwrap_or(0);
            self.trials(job).len() as u32 + fewer + nodes + DOUBLINGS + HALVINGS
        };
        Ok(new.job.iter().map(of).max().unwrap_or(0))
    }

    /// Whether nothing says how fast a job runs on any pool that it may use.
    fn is_unknown(&self, job: &Job) -> bool {
        let profiled = |workload| {
            let mut pools = self.allocator.cluster().pool.iter();
            pools.any(|pool| {
                (job.pools.is_empty() || job.pools.contains(&pool.id))
                    && find(self.profiles, workload, &pool.device).is_some()
            })
        };
        let is_measured = !job.shape.is_empty() || !job.batch.is_empty() || job.goodput.is_some();
        !is_measured && !job.workload.as_ref().is_some_and(profiled)
    }

    fn trial(&self, kind: RemedyKind, change: String, job: Job) -> Trial {
        Trial {
            kind,
            change,
            cluster: self.allocator.cluster().clone(),
            options: self.allocator.options().clone(),
            job,
        }
    }

    /// Half of the GPUs, and half again, until the job runs or one GPU is too many.
    fn fewer(&self, job: &Job, jobs: &Jobs) -> Result<Option<Remedy>, Error> {
        let (mut gpus, mut last) = (job.gpus_min / 2, None);
        while gpus > 0 {
            let smaller = Job { gpus_min: gpus, gpus_max: Some(job.most_gpus()), ..job.clone() };
            let text = format!("gpus_min {gpus} instead of {}", job.gpus_min);
            let remedy = self.remedy(&self.trial(RemedyKind::FewerGpus, text, smaller), jobs)?;
            if remedy.admits {
                return Ok(Some(remedy));
            }
            last = Some(remedy);
            gpus /= 2;
        }
        Ok(last)
    }

    /// The changes of policy, each for itself.
    fn trials(&self, job: &Job) -> Vec<Trial> {
        let (cluster, options) = (self.allocator.cluster(), self.allocator.options());
        let trial = |kind, change, job| self.trial(kind, change, job);
        let mut trials = Vec::new();
        if !job.pools.is_empty() {
            for pool in cluster.pool.iter().filter(|pool| !job.pools.contains(&pool.id)) {
                let mut wider = job.clone();
                wider.pools.push(pool.id.clone());
                trials.push(trial(RemedyKind::AnotherPool, format!("allow pool {}", pool.id), wider));
            }
        }
        if self.table.is_some() {
            if !job.allow_sharing {
                let sharing = Job { allow_sharing: true, ..job.clone() };
                trials.push(trial(RemedyKind::Sharing, "allow_sharing = true".to_owned(), sharing));
            }
            let has_others = self.jobs.job.iter().any(|other| other.tenant != job.tenant);
            if has_others && !options.share_across_tenants {
                let sharing = Job { allow_sharing: true, ..job.clone() };
                let mut across =
                    trial(RemedyKind::Sharing, "let tenants share with each other".to_owned(), sharing);
                across.options.share_across_tenants = true;
                trials.push(across);
            }
        }
        trials
    }

    fn remedy(&self, trial: &Trial, jobs: &Jobs) -> Result<Remedy, Error> {
        let new: BTreeSet<&JobId> = jobs.job.iter().skip(self.jobs.job.len()).map(|job| &job.id).collect();
        let mut jobs = jobs.clone();
        for job in jobs.job.iter_mut().filter(|job| job.id == trial.job.id) {
            *job = trial.job.clone();
        }
        let solved = self.solve_within(trial.cluster.clone(), trial.options.clone(), &jobs, CHANCE)?;
        let placement = &solved.placement;
        let own = placement.assignment(trial.job.id.as_str()).map(|run| run.value);
        let is_old = |run: &&Assignment| !new.contains(&run.job);
        let of_others: f64 = placement.assignments.iter().filter(is_old).map(|run| run.value).sum();
        let effects = effects(&self.before, placement, self.jobs);
        let stopped = effects.into_iter().filter(|effect| effect.kind == EffectKind::Stops);
        Ok(Remedy {
            kind: trial.kind,
            change: trial.change.clone(),
            admits: own.is_some(),
            cost_to_others: own
                .map(|_| self.before.assignments.iter().map(|run| run.value).sum::<f64>() - of_others),
            money_per_hour: None,
            displaced: if own.is_some() { stopped.map(|effect| effect.job).collect() } else { Vec::new() },
        })
    }

    /// The least weight that admits the job, to one part in a hundred, up to a million times its own.
    fn weight(&self, job: &Job, jobs: &Jobs) -> Result<Option<Remedy>, Error> {
        let at = |weight: f64| {
            let heavier = Job { weight, ..job.clone() };
            let text = format!("weight {weight} instead of {}", job.weight);
            self.remedy(&self.trial(RemedyKind::Weight, text, heavier), jobs)
        };
        let own = if job.weight > 0.0 { job.weight } else { 1.0 };
        let mut refused = job.weight;
        let mut admitted = None;
        for power in 1..=DOUBLINGS {
            let weight = own * f64::from(1_u32 << power);
            let remedy = at(weight)?;
            if remedy.admits {
                admitted = Some((weight, remedy));
                break;
            }
            refused = weight;
        }
        // A weight of 0 on all shapes, or shapes that no node has room for.
        let Some((mut weight, mut remedy)) = admitted else { return Ok(None) };
        while weight - refused > 0.01 * weight {
            let middle = three_digits(f64::midpoint(refused, weight));
            if middle <= refused || middle >= weight {
                break;
            }
            let tried = at(middle)?;
            if tried.admits {
                (weight, remedy) = (middle, tried);
            } else {
                refused = middle;
            }
        }
        Ok(Some(remedy))
    }
}

/// Doublings of the weight, a million times, and halvings to the hundredth part after them, at most.
const DOUBLINGS: u32 = 20;
const HALVINGS: u32 = 7;

/// A number that a person would write.
fn three_digits(number: f64) -> f64 {
    let scale = 10_f64.powi(2 - number.abs().max(f64::MIN_POSITIVE).log10().floor() as i32);
    (number * scale).round() / scale
}
